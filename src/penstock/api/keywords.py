"""The types of the options that functions take by name, written by `python -m penstock.cli.reference`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict

if TYPE_CHECKING:
    from penstock.core.values.job import Transform


class LoadKeywords(TypedDict, total=False):
    """Options of a load, as penstock.load takes them."""

    create: bool
    types: Literal["text", "infer", "widen"]
    add_columns: bool
    mode: Literal["append", "truncate", "replace", "upsert", "insert-new", "sync"]
    key: str | list[str] | tuple[str, ...]
    keep: Literal["first", "last", "error"]
    sync_delete: str
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
    role: str | None
    iam_auth: bool
    tunnel: str | None
    read_write: bool
    pg_bin: str | Path | None
    sessions: int | Literal["auto"] | None
    via: Literal["client", "server", "auto"]
    atomic: bool
    again: bool
    changed: Literal["error", "load", "skip"]
    emptied: Literal["error", "load", "skip"]
    join: bool
    wait: bool
    retry_for: float | str
    max_replica_lag: str | None
    max_wal: int | str | None
    max_wait: float | str
    ignore_space: bool
    on_error: Literal["stop", "reject"]
    max_rejects: int | None
    max_record: int | str
    indexes: Literal["auto", "keep", "rebuild"]
    freeze: Literal["auto", "always", "never"]
    triggers: Literal["keep", "disable"]
    autovacuum: Literal["keep", "pause"]
    vacuum: bool
    checkpoint: bool | None
    warnings: Literal["show", "error"]
    settings: str
    shared_group: bool
    ledger_schema: str
    publish_ledger: bool
    spool: bool
    reject_file: str | Path | None
    record: str | Path | None
    no_record: bool
    aws_timeout: float | str


class ResumeKeywords(TypedDict, total=False):
    """Options that may differ when a load is resumed."""

    pg_bin: str | Path | None
    role: str | None
    iam_auth: bool
    tunnel: str | None
    read_write: bool
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
    ledger_schema: str
    reject_file: str | Path | None
    aws_timeout: float | str


class AccessKeywords(TypedDict, total=False):
    """Options of how to connect to a server, and where its ledger is."""

    pg_bin: str | Path | None
    role: str | None
    iam_auth: bool
    tunnel: str | None
    read_write: bool
    ledger_schema: str
