"""Every error a user can meet: one class per exit code, in PostgreSQL's message style.

The message is one line in lower case without a full stop; the detail gives facts; the hint is a sentence to act on.
Rooms that know an outside thing turn its errors into these; only the command line prints them.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePlace:
    """Where in a source an error is: `file` is its path or URL, `line` counts from 1, `column` is the table's."""

    file: str
    line: int | None = None
    column: str | None = None

    def __str__(self) -> str:
        return self.file if self.line is None else f"{self.file} line {self.line}"


class PenstockError(Exception):
    """Something the user can act on; `exit_code` is the process's exit status.

    `sqlstate` is the server's five-character code, None where no server spoke. `is_transient`: the fault may pass, so
    the same may succeed a little later. `place` is where in the sources it was met, as far as that is known. `load_id`
    is the load that has kept something, None where there is none.
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
        place: FilePlace | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail
        self.hint = hint
        self.sqlstate = sqlstate
        self.is_transient = is_transient
        self.place = place
        self.load_id: str | None = None

    def __str__(self) -> str:
        lines = [self.message]
        if self.detail:
            lines.append(f"DETAIL: {self.detail}")
        if self.hint:
            lines.append(f"HINT: {self.hint}")
        return "\n".join(lines)


class UsageError(PenstockError):
    """What was asked makes no sense as it stands: an option, a job file, a dialect."""

    exit_code = 2


class SourceError(PenstockError):
    """An object cannot be found, read, decompressed or decoded, or changed while it was read."""

    exit_code = 4


class DataError(PenstockError):
    """The data does not fit the dialect or the table."""

    exit_code = 5


class TargetError(PenstockError):
    """The table is missing, does not match, or cannot be loaded into."""

    exit_code = 6


class OtherTableError(TargetError):
    """The name of a table means another one than when the load began: nothing but the first one's return mends that."""


class TableExistsError(TargetError):
    """A table that was to be created exists: another session created it after it was looked for."""


class ServerError(PenstockError):
    """The server refused, failed, or went away."""

    exit_code = 7


class LabError(PenstockError):
    """An embedded server or another part of the lab could not be set up or run."""

    exit_code = 8


class AwsError(PenstockError):
    """AWS cannot be asked, refuses, or does not know what is meant."""

    exit_code = 10


class Interrupted(PenstockError):
    """The user asked to stop."""

    exit_code = 130


@contextmanager
def naming_file(file: str) -> Iterator[None]:
    """Have a SourceError say which file it is of, unless it does."""
    try:
        yield
    except SourceError as error:
        error.place = error.place or FilePlace(file=file)
        raise
