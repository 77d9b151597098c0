"""The types of the options that functions take by name, written by `make reference`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict

if TYPE_CHECKING:
    from penstock.core.values.job import Transform
    from penstock.core.values.table import TableName


class AccessKeywords(TypedDict, total=False):
    """Options of how to connect to a server, and where its ledger is."""

    pg_bin: str | Path | None
    role: str | None
    iam_auth: bool
    tunnel: str | None
    read_write: bool
    ledger_schema: str


class ResumeKeywords(AccessKeywords, total=False):
    """Options that may differ when a load is resumed."""

    sessions: int | Literal["auto"] | None
    changed: Literal["error", "load", "skip"]
    emptied: Literal["error", "load", "skip"]
    wait: bool
    retry_for: float | str
    ignore_space: bool
    on_error: Literal["stop", "reject"]
    max_rejects: int | None
    max_record: int | str
    warnings: Literal["show", "error"]
    settings: str
    shared_group: bool
    reject_file: str | Path | None
    aws_timeout: float | str


class LoadKeywords(ResumeKeywords, total=False):
    """Options of a load, as penstock.load takes them."""

    create: bool
    partition_of: str | TableName | None
    for_values: str | None
    types: Literal["text", "infer", "widen"]
    add_columns: bool
    mode: Literal["append", "truncate", "replace", "upsert", "insert-new", "sync"]
    key: str | list[str] | tuple[str, ...]
    keep: Literal["first", "last", "error"]
    max_delete: float | str
    transform: str | Path | Transform | None
    columns: str | list[str] | tuple[str, ...] | None
    set: Mapping[str, str] | str | list[str] | tuple[str, ...]
    skip: str | list[str] | tuple[str, ...]
    only: str | list[str] | tuple[str, ...]
    missing: Literal["error", "default"]
    copy_format: Literal["auto", "text", "binary"]
    format: Literal["csv", "text", "tsv", "jsonl", "parquet", "arrow"] | None
    delimiter: str | None
    quote: str | None
    escape: str | None
    null: str | list[str] | tuple[str, ...] | None
    force_null: str | list[str] | tuple[str, ...]
    decimal_comma: str | list[str] | tuple[str, ...]
    thousands: Mapping[str, str] | str | list[str] | tuple[str, ...]
    date_order: Mapping[str, str] | str | list[str] | tuple[str, ...]
    skip_lines: int
    header: bool | None
    encoding: str | None
    names: Literal["lower", "snake"]
    rename: Mapping[str, str] | str | list[str] | tuple[str, ...]
    via: Literal["client", "server"]
    atomic: bool
    again: bool
    join: bool
    max_replica_lag: str | None
    max_wal: int | str | None
    max_wait: float | str
    indexes: Literal["auto", "keep", "rebuild"]
    freeze: Literal["auto", "always", "never"]
    triggers: Literal["keep", "disable"]
    autovacuum: Literal["keep", "pause"]
    vacuum: bool
    checkpoint: bool | None
    publish_ledger: bool
    spool: bool
    record: str | Path | None
    no_record: bool
