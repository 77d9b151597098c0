"""Measures which sessions were active in a run of samples, what they waited for, and who blocked them.

Each sample stands for the real time since the previous sample. Meters read samples one by one and keep only sums, so
memory does not grow with the recording. The functions accept any run of samples, such as the last seconds of a
recording in progress.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from penstock.core.slotted import slotted

if TYPE_CHECKING:
    from penstock.watch.values import Sample, SessionSample

# The name for active sessions without a wait event. A backend that waits for a processor looks the same.
CPU = "CPU"

# The seconds that a sample stands for if its interval is 0.
_NO_TIME_S = 1e-9

# After this many different names, further names are counted together as "(others)". Otherwise memory could fill up with
# statements that differ only in their literals.
_MOST_NAMES = 10_000
_OTHERS = "(others)"


class Moment(NamedTuple):
    """A session in one sample."""

    # The sample's number.
    tick: int
    # The time that the sample stands for.
    weight_s: float
    session: SessionSample
    # The wait event in lower case, for example io:walsync, because PostgreSQL 17 spells some events differently.
    wait: str


@slotted
class ActivityPart:
    """A part of the activity, such as the sessions with one wait event."""

    name: str
    # The average number of active sessions in this part.
    sessions: float
    # The part's share of all active time, 0 to 1.
    share: float


@slotted
class Activity:
    """The average number of active sessions, in total and by wait class, wait, application and statement.

    The parts are ordered by size, largest first.
    """

    elapsed_s: float
    # The number of moments: a session that is active in three samples counts three times.
    samples: int
    sessions: float
    classes: tuple[ActivityPart, ...]
    waits: tuple[ActivityPart, ...]
    applications: tuple[ActivityPart, ...]
    statements: tuple[ActivityPart, ...]


class Shares:
    """Sums of seconds by name. Names that differ only in case are counted as one."""

    def __init__(self) -> None:
        self._seconds: dict[object, float] = {}
        self._names: dict[object, str] = {}

    def add(self, name: str, seconds: float, *, key: object = None) -> None:
        """Add seconds to a name. Names with the same key are counted as one."""
        key = key or name.lower()
        if key not in self._seconds:
            if len(self._seconds) >= _MOST_NAMES:
                key = name = _OTHERS
            self._names.setdefault(key, name)
            self._seconds.setdefault(key, 0.0)
        self._seconds[key] += seconds

    def join(self, other: Shares) -> None:
        """Add all seconds of `other`."""
        for key, seconds in other._seconds.items():
            self.add(other._names[key], seconds, key=key)

    def parts(self, elapsed_s: float) -> tuple[ActivityPart, ...]:
        """Return the parts, largest first."""
        total_s = sum(self._seconds.values())
        return tuple(
            ActivityPart(name=self._names[key], sessions=spent_s / elapsed_s, share=spent_s / total_s)
            for key, spent_s in sorted(self._seconds.items(), key=lambda item: -item[1])
            if spent_s
        )


class Ticks:
    """Counts moments, in total and by tick, and sums the seconds that they stand for.

    A moment is one session in one sample, and its tick is the sample's number, from 0.
    """

    def __init__(self) -> None:
        self.count = 0
        self.seconds = 0.0
        self.by_tick = array("L")

    def add(self, moment: Moment) -> None:
        """Count a moment. Ticks may come in any order."""
        self.count += 1
        self.seconds += moment.weight_s
        missing = moment.tick + 1 - len(self.by_tick)
        if missing > 0:
            self.by_tick.extend([0] * missing)
        self.by_tick[moment.tick] += 1

    def join(self, other: Ticks) -> None:
        """Add all moments of `other`."""
        self.count += other.count
        self.seconds += other.seconds
        self.by_tick.extend([0] * (len(other.by_tick) - len(self.by_tick)))
        for tick, count in enumerate(other.by_tick):
            self.by_tick[tick] += count


class ActivityTally(Ticks):
    """A group of moments, also counted by application and statement."""

    def __init__(self) -> None:
        super().__init__()
        self.applications = Shares()
        self.statements = Shares()

    def add(self, moment: Moment) -> None:
        """Count a moment."""
        super().add(moment)
        self.applications.add(name_application(moment.session), moment.weight_s)
        add_statement(self.statements, moment.session, moment.weight_s)

    def join(self, other: Ticks) -> None:
        """Add all moments of `other`."""
        super().join(other)
        if isinstance(other, ActivityTally):
            self.applications.join(other.applications)
            self.statements.join(other.statements)


class ActivityMeter:
    """Measures the average number of active sessions, and its parts by wait class, wait, application and statement."""

    def __init__(self) -> None:
        self.elapsed_s = 0.0
        self.everything = ActivityTally()
        self._classes = Shares()
        self._waits = Shares()

    def see(self, sample: Sample, moments: Iterable[Moment]) -> None:
        """Count a sample's moments."""
        self.elapsed_s += weight_of(sample)
        for moment in moments:
            self.everything.add(moment)
            self._classes.add(moment.session.wait_event_type or CPU, moment.weight_s)
            self._waits.add(name_wait(moment.session), moment.weight_s, key=moment.wait)

    def result(self) -> Activity:
        """Return the activity in the samples so far."""
        waits = self._waits.parts(self.elapsed_s)
        return Activity(
            elapsed_s=self.elapsed_s,
            samples=self.everything.count,
            sessions=sum(part.sessions for part in waits),
            classes=self._classes.parts(self.elapsed_s),
            waits=waits,
            applications=self.everything.applications.parts(self.elapsed_s),
            statements=self.everything.statements.parts(self.elapsed_s),
        )


def is_active(session: SessionSample) -> bool:
    """Return whether a backend is active for a client.

    A walsender does not count as active, because its state is always active.
    """
    return session.state in {"active", "fastpath function call"} and session.backend_type != "walsender"


def measure_activity(samples: Iterable[Sample]) -> Activity:
    """Return the average number of active sessions in a run of samples, and the parts of this activity."""
    meter = ActivityMeter()
    for tick, sample in enumerate(samples):
        meter.see(sample, find_moments(sample, tick))
    return meter.result()


def find_moments(sample: Sample, tick: int) -> list[Moment]:
    """Return the sessions of a sample that are active for a client. The workers of autovacuum are not."""
    weight_s = weight_of(sample)
    active = (each for each in sample.sessions if is_active(each) and each.backend_type != "autovacuum worker")
    return [moment_of(session, tick, weight_s) for session in active]


def moment_of(session: SessionSample, tick: int, weight_s: float) -> Moment:
    """Return a session in the sample number `tick` as a moment."""
    return Moment(tick, weight_s, session, spell_wait(session))


def weight_of(sample: Sample) -> float:
    """Return the seconds that a sample stands for."""
    return sample.interval_s or _NO_TIME_S


def name_wait(session: SessionSample) -> str:
    """Return the wait event of an active session, for example IO:WalSync, or CPU if it does not wait."""
    return _spell(session.wait_event_type, session.wait_event)[0]


def spell_wait(session: SessionSample) -> str:
    """Return the wait event in lower case, for example io:walsync."""
    return _spell(session.wait_event_type, session.wait_event)[1]


@lru_cache(maxsize=1024)
def _spell(kind: str | None, event: str | None) -> tuple[str, str]:
    """Return a wait event's name twice: as PostgreSQL spells it, and in lower case."""
    name = CPU if kind is None else f"{kind}:{event}"
    return name, name.lower()


def name_application(session: SessionSample) -> str:
    """Return the application's name."""
    return session.application or "(no name)"


def name_statement(session: SessionSample) -> str:
    """Return a session's statement on one line, or its query id if the text is hidden."""
    return _join_lines(session.query or f"(query {session.query_id or 'hidden'})")


def add_statement(shares: Shares, session: SessionSample, seconds: float) -> None:
    """Add seconds to a session's statement. Its query id identifies it, or its text if there is no query id."""
    shares.add(name_statement(session), seconds, key=session.query_id)


# Commands that build or rewrite an index or a table: they compute and sort once, for as long as it takes.
_BUILDS = re.compile(
    r"\s*(create\s+(unique\s+)?index|reindex|cluster|vacuum|analyze|alter\s+table)\b",
    re.IGNORECASE,
)


def is_build(session: SessionSample) -> bool:
    """Return whether a session runs a command that builds, rewrites or reads a whole table once."""
    return _BUILDS.match(session.query or "") is not None


# Texts may be long, and the same texts are read at every tick.
@lru_cache(maxsize=256)
def _join_lines(text: str) -> str:
    return " ".join(text.split())


# Wait events that may be for a commit, with the codes of their diagnoses. The session waits for a flush of WAL (its own
# or that of another session), for a standby, or for Aurora's storage.
LOCAL_FLUSH = "commit-local-flush"
SYNC_REP = "ipc:syncrep"
COMMIT_WAITS = {
    "io:walsync": LOCAL_FLUSH,
    "lwlock:walwrite": LOCAL_FLUSH,
    # PostgreSQL 19 and later show the pause of commit_delay as this wait.
    "timeout:commitdelay": LOCAL_FLUSH,
    SYNC_REP: "commit-standby",
    "io:xactsync": "commit-aurora-storage",
}

# With these values of wal_sync_method, one call both writes and flushes WAL. The server shows that call as a write.
_FLUSH_BY_WRITE = frozenset(("open_datasync", "open_sync"))

# If a transaction is longer than this, its last waits for a flush are probably not for its commit. A commit would have
# to take more than a tenth of a second to be a tenth of the time.
_LONG_S = 1.0


def find_commit_waits(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the code for each wait event that may be for a commit, given the settings of a recording."""
    flush = {"io:walwrite": LOCAL_FLUSH} if settings.get("wal_sync_method") in _FLUSH_BY_WRITE else {}
    return COMMIT_WAITS | flush


def is_working(session: SessionSample) -> bool:
    """Return whether a client's session is in a transaction. Autovacuum workers do not count."""
    is_client = session.backend_type != "autovacuum worker"
    return is_client and (is_active(session) or is_idle_in_transaction(session))


def is_idle_in_transaction(session: SessionSample) -> bool:
    """Return whether a session has a transaction open and waits for its client's next statement."""
    return (session.state or "").startswith("idle in transaction")


@dataclass(slots=True)
class _Transaction:
    """An open transaction."""

    # The waits for the local flush since the last sample in which the transaction did something else.
    waits: list[Moment] = field(default_factory=list)
    # Whether the transaction did anything else in a sample.
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
        """Add a sample. Return the waits that are now known to be for commits, with their codes."""
        self._tick += 1
        since_s, self._at_s = sample.at_s - self._at_s, sample.at_s
        weight_s = weight_of(sample)
        found: list[tuple[str, Moment]] = []
        before, self._open = self._open, {}
        for session in filter(is_working, sample.sessions):
            code = self._codes.get(spell_wait(session)) if session.wait_event_type and is_active(session) else None
            age_s = session.transaction_s
            # If the transaction began before the last sample, it is the transaction that this session had in the last
            # sample.
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


# The pid that the server reports for a prepared transaction.
_PREPARED = 0


@slotted
class Blocked:
    """A session in the tree of sessions that block others or wait for a lock.

    The fields that describe the session are None if the sample does not show it. A prepared transaction, for example,
    has pid 0 and no session.
    """

    # The depth in the tree. It is 0 for a session that blocks others and waits for no lock itself.
    depth: int
    pid: int
    state: str | None
    application: str | None
    statement: str | None
    # How long the session's statement has run if the session waits for a lock, otherwise None.
    waits_s: float | None


def find_blocking(sample: Sample) -> tuple[Blocked, ...]:
    """Return the tree of blocking and waiting sessions, each below its first blocker, the longest waits first."""
    sessions = {session.pid: session for session in sample.sessions}
    waiting: dict[int, list[SessionSample]] = {}
    for session in sorted(sample.sessions, key=lambda each: -(each.query_s or 0.0)):
        if session.blocked_by:
            waiting.setdefault(session.blocked_by[0], []).append(session)
    heads = [pid for pid in waiting if pid not in sessions or not sessions[pid].blocked_by]
    return tuple(found for pid in heads for found in _walk(pid, 0, sessions, waiting, ()))


def _walk(
    pid: int,
    depth: int,
    sessions: Mapping[int, SessionSample],
    waiting: Mapping[int, Sequence[SessionSample]],
    above: tuple[int, ...],
) -> Iterator[Blocked]:
    session = sessions.get(pid)
    yield Blocked(
        depth=depth,
        pid=pid,
        state=("prepared transaction" if pid == _PREPARED else None) if session is None else session.state,
        application=None if session is None else name_application(session),
        statement=None if session is None else name_statement(session),
        waits_s=session.query_s if session is not None and session.blocked_by else None,
    )
    for each in waiting.get(pid, ()):
        # A session that is above in the tree already is not listed again. Such a circle is a deadlock, which the server
        # ends.
        if each.pid not in (*above, pid):
            yield from _walk(each.pid, depth + 1, sessions, waiting, (*above, pid))
