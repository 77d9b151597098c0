"""Every error that a user can get: one class for each exit code, with messages in PostgreSQL's style.

The message is one line in lower case without a full stop. The detail gives facts. The hint says what to do. Modules
that use a library or a service turn its errors into these classes. Only the command line prints them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from penstock.core.slotted import slotted


@slotted
class FileLocation:
    """Where an error is in a source: its file, line and column."""

    # A path or URL.
    file: str
    # A line of the file, counted from 1. If `part` is given, this is the number of a row of the file.
    line: int | None = None
    # The table's column.
    column: str | None = None
    # A row group or record batch of a columnar file.
    part: str | None = None

    def __str__(self) -> str:
        if self.line is None:
            return self.file
        return f"{self.file} line {self.line}" if self.part is None else f"{self.file} {self.part}, row {self.line}"


class PenstockError(Exception):
    """An error that the user can act on."""

    # The exit status of the process.
    exit_code = 1

    def __init__(
        self,
        message: str,
        *,
        detail: str | None = None,
        hint: str | None = None,
        # The server's five-character code, None if the error did not come from the server.
        sqlstate: str | None = None,
        # Whether the same operation may succeed when it is retried.
        is_transient: bool = False,
        # The file, line and column of the error, as far as they are known.
        location: FileLocation | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail
        self.hint = hint
        self.sqlstate = sqlstate
        self.is_transient = is_transient
        self.location = location
        # The options of the files that would prevent the error, as fields of DialectOptions, None if no option would.
        self.options: Mapping[str, Any] | None = None
        # The id of the load, if it had committed rows when the error occurred. None if no rows are committed.
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
    """An object cannot be found, read, decompressed or decoded, or an object changed while it was read."""

    exit_code = 4

    @property
    def is_unreadable(self) -> bool:
        """Whether the error is about an object that a retry could not read either."""
        return not self.is_transient


class CredentialsError(SourceError):
    """There are no valid credentials for a source, which says nothing about its objects."""

    @property
    def is_unreadable(self) -> bool:
        """False: with valid credentials the object may be read."""
        return False


class LeftOutError(SourceError):
    """A load by several hosts is complete, but this host lists more objects than the load had when it began."""


class DataError(PenstockError):
    """The data does not fit the dialect or the table."""

    exit_code = 5


class TargetError(PenstockError):
    """The table is missing, does not match, or cannot be loaded into."""

    exit_code = 6


class OtherTableError(TargetError):
    """The target's name now belongs to another table than when the load began. A retry does not help."""


class DeleteLimitError(TargetError):
    """A sync would delete more rows than --max-delete allows. `penstock resume` cannot give another limit."""


class TableExistsError(TargetError):
    """The table to create exists, because another session created it after the load's check."""


class TakenOverError(TargetError):
    """The load was taken over or removed by another process, or another host ended this process's part in it."""


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
    """Set `file` as the location of a SourceError that the block raises without a location."""
    try:
        yield
    except SourceError as error:
        error.location = error.location or FileLocation(file=file)
        raise
