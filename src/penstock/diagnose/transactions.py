"""Finds which waits for the flush of WAL are waits for a commit.

The server also flushes the WAL at each segment's end and when its buffers are full. So a long transaction waits for
flushes while it writes, and larger batches do not avoid these. The commit is the last thing that a transaction does. So
a wait for the local flush is not for the commit if a later sample shows the same transaction doing something else. It
does not count either if the transaction is older than a second and did something else before, because its commit is
then a small part of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.diagnose.activity import Moment, is_active, moment_of, spell_wait, weight_of

if TYPE_CHECKING:
    from penstock.model.recording import Sample, SessionSample

# Wait events, with the codes of their diagnoses. The session waits for its own local flush, or for another session's
# flush; for a standby; or for Aurora's storage.
LOCAL_FLUSH = "commit-local-flush"
COMMIT_WAITS = {
    "io:walsync": LOCAL_FLUSH,
    "lwlock:walwrite": LOCAL_FLUSH,
    "ipc:syncrep": "commit-standby",
    "io:xactsync": "commit-aurora-storage",
}

# With these values of wal_sync_method one call writes and flushes WAL, and the server shows the call as a write.
_FLUSH_BY_WRITE = frozenset(("open_datasync", "open_sync"))

# In a longer transaction, a commit that takes a tenth of the time would take more than a tenth of a second.
_LONG_S = 1.0


def find_commit_waits(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the code for each wait event that may be for a commit, given the settings of a recording."""
    flush = {"io:walwrite": LOCAL_FLUSH} if settings.get("wal_sync_method") in _FLUSH_BY_WRITE else {}
    return COMMIT_WAITS | flush


def is_working(session: SessionSample) -> bool:
    """Return whether a client's session is in a transaction. Autovacuum workers do not count."""
    is_client = session.backend_type != "autovacuum worker"
    return is_client and (is_active(session) or (session.state or "").startswith("idle in transaction"))


@dataclass(slots=True)
class _Transaction:
    """An open transaction."""

    # The waits for the local flush since the last sample that shows the transaction doing something else.
    waits: list[Moment] = field(default_factory=list)
    # Whether a sample shows the transaction doing something else.
    has_worked: bool = False
    age_s: float = 0.0


class CommitFinder:
    """Reads samples one by one. It returns each wait for a commit as soon as the wait is known to be for a commit."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._codes = find_commit_waits(settings)
        self._open: dict[int, _Transaction] = {}
        self._tick = -1
        self._at_s = 0.0

    def see(self, sample: Sample) -> list[tuple[str, Moment]]:
        """Add a sample; return the waits that are now known to be for commits, with their codes."""
        self._tick += 1
        since_s, self._at_s = sample.at_s - self._at_s, sample.at_s
        weight_s = weight_of(sample)
        found: list[tuple[str, Moment]] = []
        before, self._open = self._open, {}
        for session in filter(is_working, sample.sessions):
            code = self._codes.get(spell_wait(session)) if session.wait_event_type and is_active(session) else None
            age_s = session.transaction_s
            # If the transaction began before the last sample, it is the transaction that the last sample shows.
            is_same = age_s is not None and age_s > since_s and session.pid in before
            now = before.pop(session.pid) if is_same else _Transaction()
            if code == LOCAL_FLUSH:
                now.waits.append(moment_of(session, self._tick, weight_s))
                now.age_s = age_s or 0.0
            else:
                now.waits.clear()
                now.has_worked = True
                if code is not None:
                    found.append((code, moment_of(session, self._tick, weight_s)))
            self._open[session.pid] = now
        for ended in before.values():
            found += _conclude(ended)
        return found

    def end(self) -> list[tuple[str, Moment]]:
        """Return the waits for commits of the transactions that were open at the last sample."""
        left = [each for open_ in self._open.values() for each in _conclude(open_)]
        self._open = {}
        return left


def _conclude(ended: _Transaction) -> Iterator[tuple[str, Moment]]:
    """Yield the last waits of a transaction that has ended, if these waits are for its commit."""
    if not (ended.has_worked and ended.age_s > _LONG_S):
        for moment in ended.waits:
            yield LOCAL_FLUSH, moment
