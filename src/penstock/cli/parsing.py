"""What was typed becomes values: each option's text read, and refused where it means nothing.

What a value means is judged by the rooms that use it (files for the dialect, loading for columns).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from penstock.errors import UsageError
from penstock.model.dialect import DialectOptions
from penstock.units import GB, MB

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.model import job
    from penstock.model.dialect import Format

_SIZES = {"kB": 1000, "MB": MB, "GB": GB}
_SECONDS = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_MODES: Mapping[str, job.Mode] = {
    "append": "append",
    "truncate": "truncate",
    "replace": "replace",
    "upsert": "upsert",
    "insert-new": "insert-new",
}
_KEEPS: Mapping[str, job.Keep] = {"first": "first", "last": "last", "error": "error"}
_FORMATS: Mapping[str, Format] = {"csv": "csv", "text": "text", "tsv": "tsv"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """What was said of sources, table and columns, as it was typed; None or empty where nothing was."""

    sources: tuple[str, ...]
    into: str | None = None
    create: bool = False
    format: str | None = None
    delimiter: str | None = None
    quote: str | None = None
    escape: str | None = None
    nulls: tuple[str, ...] = ()
    header: bool | None = None
    encoding: str | None = None
    columns: str | None = None
    constants: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    mode: str | None = None
    key: str | None = None
    keep: str | None = None
    transform: str | None = None

    @property
    def is_job_file(self) -> bool:
        """Return whether the sources are one job file."""
        return self.into is None and len(self.sources) == 1 and self.sources[0].lower().endswith(".toml")

    def given_names(self) -> list[str]:
        """Return the options among these that were given, as they are typed."""
        spelled = {"nulls": "null", "constants": "set"}
        return [
            f"--{spelled.get(option.name, option.name)}"
            for option in fields(self)
            if option.name != "sources" and getattr(self, option.name) not in (None, (), False)
        ] + (["--no-header"] if self.header is False else [])


def parse_dialect(options: SourceOptions) -> DialectOptions:
    """Return what was said of the dialect."""
    from penstock.files.probe import parse_character

    def character(text: str | None) -> str | None:
        return None if text is None else parse_character(text)

    return DialectOptions(
        format=_parse_format(options.format),
        delimiter=character(options.delimiter),
        quote=character(options.quote),
        escape=character(options.escape),
        nulls=options.nulls or None,
        has_header=options.header,
        encoding=options.encoding,
    )


def _parse_format(text: str | None) -> Format | None:
    if text is None:
        return None
    if text not in _FORMATS:
        raise UsageError(f'invalid value "{text}" for --format', hint="Use csv, text or tsv.")
    return _FORMATS[text]


def parse_columns(text: str | None) -> tuple[str, ...] | None:
    """Return the names of a list such as a,b,"c,d". Raises UsageError for one without a name.

    >>> parse_columns('id, "a,b"')
    ('id', 'a,b')
    """
    if text is None:
        return None
    names = split_names(text)
    if not names or not all(names):
        raise UsageError(
            "--columns has an empty name",
            detail=f"It was given as {text!r}.",
            hint="Name every field of the file, and use --skip for those you do not want.",
        )
    return names


def split_names(text: str) -> tuple[str, ...]:
    """Return the names of a list, as they stand."""
    import csv

    return tuple(name.strip() for name in next(csv.reader([text], skipinitialspace=True), []))


def parse_mode(options: SourceOptions) -> job.Mode:
    """Return how the rows are to land. Raises UsageError."""
    if options.mode is None:
        return "append"
    if options.mode not in _MODES:
        raise UsageError(f'invalid value "{options.mode}" for --mode', hint=f"Use one of {', '.join(_MODES)}.")
    return _MODES[options.mode]


def parse_key(text: str | None) -> tuple[str, ...]:
    """Return the columns of a key. Raises UsageError for one without a name.

    >>> parse_key("a, b")
    ('a', 'b')
    """
    if text is None:
        return ()
    names = split_names(text)
    if not names or not all(names):
        raise UsageError("--key has an empty name", detail=f"It was given as {text!r}.", hint="Write --key a,b.")
    return names


def parse_keep(options: SourceOptions) -> job.Keep:
    """Return which of several records with the same key counts. Raises UsageError."""
    if options.keep is None:
        return "error"
    if options.keep not in _KEEPS:
        raise UsageError(f'invalid value "{options.keep}" for --keep', hint="Use first, last or error.")
    if options.mode != "upsert":
        raise UsageError("--keep is for --mode upsert", hint="insert-new keeps the first record of a key.")
    return _KEEPS[options.keep]


def parse_constants(settings: Sequence[str]) -> Mapping[str, str]:
    """Return the columns and values of --set. Raises UsageError."""
    constants: dict[str, str] = {}
    for setting in settings:
        column, separator, value = setting.partition("=")
        column = column.strip()
        if not separator or not column:
            raise UsageError(
                "--set takes COLUMN=VALUE",
                detail=f"It was given as {setting!r}.",
                hint="Write --set source={filename}, or --set 'note=' for an empty string.",
            )
        if column in constants:
            raise UsageError(f'column "{column}" is set twice', hint="Give each column one --set.")
        constants[column] = value
    return constants


def parse_duration(text: str) -> float:
    """Return a time in seconds, as PostgreSQL's settings spell it. Raises UsageError.

    >>> parse_duration("5min"), parse_duration("90"), parse_duration("1.5 h")
    (300.0, 90.0, 5400.0)
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?(ms|s|min|h|d)?", text.strip())
    if match is None:
        raise UsageError(f'invalid time "{text}"', hint="Write 30s, 5min or 1h.")
    return float(match[1]) * _SECONDS[match[2] or "s"]


def parse_size(text: str) -> int:
    """Return a size in bytes. Raises UsageError.

    >>> parse_size("512MB"), parse_size("1 GB")
    (512000000, 1000000000)
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?(kB|MB|GB)", text.strip())
    if match is None:
        raise UsageError(f'invalid size "{text}"', hint="Write 512MB or 1GB.")
    return round(float(match[1]) * _SIZES[match[2]])


def parse_sessions(text: str | None) -> int | None:
    """Return the number of sessions, None for auto. Raises UsageError."""
    if text is None or text == "auto":
        return None
    if not (text.isascii() and text.isdigit()) or int(text) < 1:
        raise UsageError(f'invalid value "{text}" for --sessions', hint="Use auto, or a number from 1 up.")
    return int(text)
