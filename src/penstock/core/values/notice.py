"""Warnings about input: what was found, where, and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal

from penstock.core.slotted import slotted

# The codes of warnings, which stay the same between releases. docs/reference/warnings.md explains each of them.
WarningCode = Literal[
    "backslash-escape",
    "backslash-kept",
    "binary-text",
    "blank-kept",
    "byte-order-mark",
    "carriage-returns",
    "column-names",
    "control-bytes",
    "differs",
    "disk-short",
    "empty",
    "empty-field",
    "end-of-data",
    "existing-keys",
    "file-skipped",
    "first-line",
    "folder-empty",
    "folder-skipped",
    "line-ends",
    "literal-null",
    "log",
    "long-record",
    "more",
    "not-deleted",
    "not-restored",
    "notation",
    "omitted-names",
    "other-delimiter",
    "pooler",
    "preamble",
    "quote-dropped",
    "quote-kept",
    "quote-open",
    "read-only",
    "references",
    "rejects",
    "renamed",
    "repeated-source",
    "secret-visible",
    "separator-line",
    "sequences",
    "server",
    "settings",
    "source-changed",
    "source-gone",
    "table-left",
    "total-line",
    "triggers",
    "unclear-date",
    "unlogged",
    "unpublished",
    "untested-version",
    "upkeep",
    "value-changed",
    "wal-minimal",
    "window",
    "zero-byte",
]


@slotted
class Notice:
    """A warning: what was found, where, and what to do."""

    code: WarningCode
    message: str
    # The file, or the table if the warning is about stored rows.
    uri: str | None = None
    # The number of the line, counted from 1.
    line: int | None = None
    # The number of a field, counted from 1.
    column: int | None = None
    # The first characters of the record, or of the stored row as text.
    record: str | None = None
    hint: str | None = None
    # The options of the files that would prevent the warning, as fields of DialectOptions. None if no option would, or
    # if the user has to choose one of several.
    options: Mapping[str, Any] | None = field(default=None, compare=False)

    @property
    def location(self) -> str | None:
        """Return the file, line and column as a sentence, None if the warning has no file.

        >>> Notice(code="empty", message="m", uri="a.csv", line=3, column=2).location
        'a.csv line 3, column 2.'
        """
        if self.uri is None:
            return None
        line = "" if self.line is None else f" line {self.line}"
        column = "" if self.column is None else f", column {self.column}"
        return f"{self.uri}{line}{column}."

    def as_item(self) -> dict[str, object]:
        """Return the warning as --json prints it."""
        where = {"file": self.uri, "line": self.line, "record": self.record}
        return {"code": self.code, "message": self.message, "hint": self.hint, **where}
