"""How a file spells records, fields and nulls, in COPY's own words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Format = Literal["csv", "text", "tsv"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    r"""One file's dialect, complete.

    `format` is "csv" or "text" with the meaning COPY gives them, or "tsv": fields separated by `delimiter`, no quoting,
    no escapes, so that quotes and backslashes are data (the form of IMDb's files, which COPY has no option for).
    `quote` and `escape` are one character for csv, None otherwise. A field that equals one of `nulls` is null
    (csv: unquoted only). `encoding` is PostgreSQL's name of the file's encoding, or a form of Unicode that it does
    not know (UTF16, UTF32).
    """

    format: Format
    delimiter: str
    quote: str | None
    escape: str | None
    nulls: tuple[str, ...]
    has_header: bool
    encoding: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DialectOptions:
    """What the user said of the dialect; None where probing decides."""

    format: Format | None = None
    delimiter: str | None = None
    quote: str | None = None
    escape: str | None = None
    nulls: tuple[str, ...] | None = None
    has_header: bool | None = None
    encoding: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Something worth a warning: what, where, and what to do. `line` and `column` count from 1; column is a field."""

    message: str
    uri: str | None = None
    line: int | None = None
    column: int | None = None
    hint: str | None = None
