"""What an attempt needs of the two ways to load: blocks that sessions send, or objects that the server imports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from penstock.loading.plan.work import ObjectWork
    from penstock.model.load.accounts import ReaderSeconds, SessionTotals
    from penstock.model.load.details import FileOutcome
    from penstock.model.load.outcome import LoadProgress
    from penstock.server.connect.connection import Connection
    from penstock.server.copy.copy import CopySession


class Feed(Protocol):
    """Hands units of work to sessions; all methods are safe from any thread."""

    sessions: int
    failure: BaseException | None
    most_readers: int
    reader_seconds: ReaderSeconds

    @property
    def bytes_read(self) -> int:
        """Return the stored bytes that were read so far, here or by the server."""

    def set_sessions(self, count: int) -> None:
        """Let only the first `count` sessions take work from now on."""

    def stop(self) -> None:
        """Hand out no more work; sessions finish what they have taken."""

    def abandon(self, cause: BaseException) -> None:
        """Stop all sessions; the first cause is kept in `failure`."""

    def close(self) -> None:
        """Wait until nothing is read any more."""

    def progress(self, *, bytes_copied: int, size_bytes: int | None, elapsed_s: float) -> LoadProgress:
        """Return the progress of the load."""

    def outcomes(self) -> tuple[FileOutcome, ...]:
        """Return each object's rows and seconds in the order of the job."""


class RowSession(Protocol):
    """Loads what a feed hands out, on one connection; `run` and `commit` are called by its own thread."""

    number: int
    totals: SessionTotals
    is_in_conflict: bool

    @property
    def session(self) -> CopySession:
        """Return the session on the server."""

    @property
    def has_sealed(self) -> bool:
        """Whether there is a last transaction for `commit`."""

    def run(self) -> None:
        """Work until there is nothing to take; raises PenstockError, or Abandoned when the load failed elsewhere."""

    def commit(self) -> None:
        """Commit the last transaction. Raises CopyFailed."""


class Unit(Protocol):
    """One way to load what is left of a load."""

    @property
    def feed(self) -> Feed:
        """Return the feed of the attempt."""

    @property
    def work(self) -> Sequence[ObjectWork]:
        """Return the objects of the feed, in its order."""

    def open_session(self, number: int, connection: Connection) -> RowSession:
        """Return session `number` on a connection."""

    def look(self, sessions: Sequence[RowSession]) -> None:
        """Look after sessions that work; called often, by the attempt's thread. Raises PenstockError."""

    def close(self) -> None:
        """Close what `look` has opened."""
