"""Rules for sessions that wait for WAL before they commit, and for locks inside the server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.diagnose.activity import Moment, Tally, name_wait
from penstock.diagnose.rules.case import BULK_BYTES, LEAST_SHARE, Case, number
from penstock.units import MB

if TYPE_CHECKING:
    from penstock.model.diagnosis import Diagnosis
    from penstock.model.recording import Sample

# Waits of shorter transactions are waits for their commits, which another rule examines.
_LEAST_TRANSACTION_S = 1.0

# Waits while WAL is written, flushed or given a new segment, and for another session that does this
# (PostgreSQL's wait_event_names.txt).
_WAL = frozenset(
    (
        *("io:walwrite", "io:walsync", "io:walinitwrite", "io:walinitsync", "io:walsyncmethodassign"),
        *("lwlock:walwrite", "lwlock:walinsert", "lwlock:walbufmapping"),
    )
)

# Waits that belong to other rules.
_EXPLAINED = frozenset(("lwlock:buffiledescriptor",))


class WalWaits:
    """Counts waits for the writing or flushing of WAL.

    Waits of short transactions are separate, because they may be waits for commits.
    """

    def __init__(self) -> None:
        self.long = Tally()
        self._short = Tally()

    def add(self, moment: Moment) -> None:
        """Count a moment if its session waits for WAL."""
        if moment.wait in _WAL:
            is_long = (moment.session.transaction_s or 0.0) >= _LEAST_TRANSACTION_S
            (self.long if is_long else self._short).add(moment)

    def join_to(self, part: Tally, case: Case, *, size_bytes: int) -> None:
        """Add the waits of long transactions to `part`, or all waits if commits have more WAL than `size_bytes`."""
        part.join(self.long)
        if case.is_written_per_commit(size_bytes):
            part.join(self._short)


class WalWrites:
    """The rule for transactions that are long or have much WAL, and wait while it is written, as bulk loads do."""

    def __init__(self) -> None:
        self._waits = WalWaits()

    def see(self, sample: Sample, moments: Sequence[Moment]) -> None:  # noqa: ARG002 (a rule's signature)
        for moment in moments:
            self._waits.add(moment)

    def conclude(self, case: Case) -> list[Diagnosis]:
        """Return a diagnosis if such transactions wait for WAL."""
        part = Tally()
        self._waits.join_to(part, case, size_bytes=BULK_BYTES)
        if case.share(part) < LEAST_SHARE:
            return []
        rate = case.rates.wal_bytes_per_s
        evidence = [number("sessions that wait for WAL, on average", case.sessions(part))]
        evidence += [] if rate is None else [number("WAL", rate / MB, "MB/s")]
        return [case.conclude("wal-write", part, evidence)]


class InternalLocks:
    """The rule for sessions that wait for one of the server's internal locks, such as LWLock:BufferMapping."""

    def __init__(self) -> None:
        self._parts: dict[str, tuple[str, Tally]] = {}
        self._extending = Tally()

    def see(self, sample: Sample, moments: Sequence[Moment]) -> None:  # noqa: ARG002 (a rule's signature)
        for moment in moments:
            if moment.wait == "lock:extend":
                self._extending.add(moment)
            elif moment.wait.startswith("lwlock:") and moment.wait not in _WAL | _EXPLAINED:
                _, part = self._parts.setdefault(moment.wait, (name_wait(moment.session), Tally()))
                part.add(moment)

    def conclude(self, case: Case) -> list[Diagnosis]:
        """Return a diagnosis for the lock that is waited for most, and for the growth of tables."""
        found = []
        if case.share(self._extending) >= LEAST_SHARE:
            evidence = [number("sessions that wait to extend a table, on average", case.sessions(self._extending))]
            found.append(case.conclude("relation-extension", self._extending, evidence))
        if self._parts:
            name, part = max(self._parts.values(), key=lambda each: each[1].seconds)
            if case.share(part) >= LEAST_SHARE:
                evidence = [number("sessions that wait for it, on average", case.sessions(part))]
                found.append(case.conclude("lwlock-contention", part, evidence, name=name))
        return found
