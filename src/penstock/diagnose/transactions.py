"""Which waits are a commit's: a long transaction waits for the same flush while it writes, and no batch saves that.

The server flushes the log at each segment's end too, and when its buffers are full. A commit is the last that a
transaction does. So a wait for the local flush is not the commit's if the same transaction is seen doing something else
afterwards; nor in a transaction of over a second that did something else before, of which its commit is a small part.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.diagnose.activity import is_active, moment_of, spell_wait, weight_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.diagnose.activity import Moment
    from penstock.model.recording import Sample, SessionSample

# By the code of their diagnosis: the local flush, or another's behind which one waits; a standby; Aurora's storage.
LOCAL_FLUSH = "commit-local-flush"
COMMIT_WAITS = {
    "io:walsync": LOCAL_FLUSH,
    "lwlock:walwrite": LOCAL_FLUSH,
    "ipc:syncrep": "commit-standby",
    "io:xactsync": "commit-aurora-storage",
}

# These write and flush by one call, which the server shows as a write.
_FLUSH_BY_WRITE = frozenset(("open_datasync", "open_sync"))

# A commit that takes a tenth of a longer transaction would take a tenth of a second.
_LONG_S = 1.0


def find_commit_waits(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the code of each wait for a commit, by the settings of a recording."""
    flush = {"io:walwrite": LOCAL_FLUSH} if settings.get("wal_sync_method") in _FLUSH_BY_WRITE else {}
    return COMMIT_WAITS | flush


def is_working(session: SessionSample) -> bool:
    """Return whether a client's session is in a transaction; autovacuum commits for nobody."""
    is_client = session.backend_type != "autovacuum worker"
    return is_client and (is_active(session) or (session.state or "").startswith("idle in transaction"))


@dataclass(slots=True)
class _Transaction:
    """One that is open: its waits for the local flush since it was last seen doing something else."""

    waits: list[Moment] = field(default_factory=list)
    has_worked: bool = False
    age_s: float = 0.0


class CommitFinder:
    """Sees samples one by one, and tells which sessions waited for their commits, once that is certain."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._codes = find_commit_waits(settings)
        self._open: dict[int, _Transaction] = {}
        self._tick = -1
        self._at_s = 0.0

    def see(self, sample: Sample) -> list[tuple[str, Moment]]:
        """Take a sample; return the waits that are certain by now, with their codes."""
        self._tick += 1
        since_s, self._at_s = sample.at_s - self._at_s, sample.at_s
        weight_s = weight_of(sample)
        found: list[tuple[str, Moment]] = []
        before, self._open = self._open, {}
        for session in filter(is_working, sample.sessions):
            code = self._codes.get(spell_wait(session)) if session.wait_event_type and is_active(session) else None
            age_s = session.transaction_s
            # It began before the last sample: it is the one that was seen then.
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
        """Return what is left of the transactions that were open at the end."""
        left = [each for open_ in self._open.values() for each in _conclude(open_)]
        self._open = {}
        return left


def _conclude(ended: _Transaction) -> Iterator[tuple[str, Moment]]:
    """Yield the waits that a transaction ended with, if they are its commit's."""
    if not (ended.has_worked and ended.age_s > _LONG_S):
        for moment in ended.waits:
            yield LOCAL_FLUSH, moment
