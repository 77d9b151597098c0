"""Every error that a user can get: one class for each exit code, with messages in PostgreSQL's style.

The message is one line in lower case without a full stop; the detail gives facts; the hint says what to do. Modules
that use a library or a service turn its errors into these classes. Only the command line prints them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from penstock.frozen import frozen


@frozen
class FileLocation:
    """Where in a source an error is. `file` is a path or URL, `line` counts from 1, `column` is the table's column.

    If `part` names a row group or record batch of a columnar file, `line` is the number of a row of the file.
    """

    file: str
    line: int | None = None
    column: str | None = None
    part: str | None = None

    def __str__(self) -> str:
        if self.line is None:
            return self.file
        return f"{self.file} line {self.line}" if self.part is None else f"{self.file} {self.part}, row {self.line}"


class PenstockError(Exception):
    """An error that the user can act on; `exit_code` is the exit status of the process.

    `sqlstate` is the server's five-character code, None if the error did not come from the server. `is_transient` is
    true if the same operation may succeed when it is retried. `location` is the file, line and column of the error, as
    far as they are known. `load_id` is the load that has committed rows, None if no load has.
    """

    exit_code = 1

    def __init__(
        self,
        message: str,
        *,
        detail: str | None = None,
        hint: str | None = None,
        sqlstate: str | None = None,
        is_transient: bool = False,
        location: FileLocation | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail
        self.hint = hint
        self.sqlstate = sqlstate
        self.is_transient = is_transient
        self.location = location
        self.load_id: str | None = None

    def __str__(self) -> str:
        lines = [self.message]
        if self.detail:
            lines.append(f"DETAIL: {self.detail}")
        if self.hint:
            lines.append(f"HINT: {self.hint}")
        return "\n".join(lines)


class UsageError(PenstockError):
    """An option, a job file or a dialect is invalid."""

    exit_code = 2


class SourceError(PenstockError):
    """An object cannot be found, read, decompressed or decoded, or changed while it was read."""

    exit_code = 4


class LeftOutError(SourceError):
    """A load by several hosts is complete without some objects that this host lists: it had begun without them."""


class DataError(PenstockError):
    """The data does not fit the dialect or the table."""

    exit_code = 5


class TargetError(PenstockError):
    """The table is missing, does not match, or cannot be loaded into."""

    exit_code = 6


class OtherTableError(TargetError):
    """The target's name now belongs to another table than when the load began; a retry does not help."""


class TableExistsError(TargetError):
    """The table to create exists: another session created it after the load had checked that it did not exist."""


class TakenOverError(TargetError):
    """Another process has taken the load over, or has ended this member of it, or the load was removed."""


class ServerError(PenstockError):
    """The server refused a request, failed, or closed the connection."""

    exit_code = 7


class LabError(PenstockError):
    """An embedded server or another part of the lab could not be set up or run."""

    exit_code = 8


class AwsError(PenstockError):
    """AWS cannot be reached, refuses a request, or does not know the resource."""

    exit_code = 10


class Interrupted(PenstockError):
    """The user asked to stop."""

    exit_code = 130


@contextmanager
def naming_file(file: str) -> Iterator[None]:
    """Set the file of a SourceError that the block raises, unless the error names one."""
    try:
        yield
    except SourceError as error:
        error.location = error.location or FileLocation(file=file)
        raise
