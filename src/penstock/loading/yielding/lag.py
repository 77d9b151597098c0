"""Decides whether a load begins no new batches because of what is behind on its WAL. Pure.

A follower is what receives or keeps the server's WAL: a standby, a subscriber, a reader of Aurora, or a slot. A load
holds from the moment at which a follower is further behind than the limit until none is behind by a third of it.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from penstock.core.slotted import slotted
from penstock.core.units import format_bytes, format_duration
from penstock.core.values.options import read_lag

# A load that holds begins batches again when all followers are behind by less than this part of the limit.
_GO_ON_AT = 1 / 3

# A standby answers at least this often (wal_receiver_status_interval, 10 s by default), so a younger answer is no lag.
_REPLY_INTERVAL_S = 10.0


@slotted
class Limit:
    """How far followers may be behind: in seconds or in bytes."""

    seconds: float | None = None
    length_bytes: int | None = None

    def share(self, follower: Follower) -> float:
        """Return how far a follower is behind as a part of the limit: 1 at the limit."""
        if self.seconds is not None:
            return follower.behind_s / self.seconds
        return follower.behind_bytes / (self.length_bytes or 1)

    def describe(self, follower: Follower) -> str:
        """Return how far a follower is behind, in the unit of the limit."""
        return format_bytes(follower.behind_bytes) if self.seconds is None else format_duration(follower.behind_s)


def read_limit(text: str) -> Limit:
    """Return the limit that --max-replica-lag has. Raises ValueError.

    >>> read_limit("30s"), read_limit("1GB")
    (Limit(seconds=30.0, length_bytes=None), Limit(seconds=None, length_bytes=1000000000))
    """
    value = read_lag(text)
    return Limit(length_bytes=value) if isinstance(value, int) else Limit(seconds=value)


@slotted
class WalReceiver:
    """A row of wal_receivers.sql. Positions are in bytes of WAL; `unflushed_bytes` is what it has not flushed yet."""

    kind: str
    name: str
    address: str
    position: int
    behind_bytes: int
    unflushed_bytes: int | None
    replay_lag_s: float | None
    reply_age_s: float | None


@slotted
class KeptWal:
    """A row of kept_wal.sql: a slot, and the bytes of WAL that it keeps."""

    name: str
    kept_bytes: int


@slotted
class AuroraReader:
    """A reader of an Aurora cluster, and its lag in seconds; the lag is null at first."""

    name: str
    lag_s: float | None


@slotted
class Follower:
    """What is behind on the server's WAL. `name` begins with its kind, and is the same at each look."""

    name: str
    behind_bytes: int = 0
    behind_s: float = 0.0
    # The position that a standby with nearly all of the WAL has replayed; None if it lacks WAL, or replays none.
    replayed: int | None = None


class WrittenWal:
    """When the server was first seen to have written how much WAL. Times are of the caller's clock."""

    def __init__(self) -> None:
        # Positions, and when each was seen; both grow.
        self._seen: list[tuple[int, float]] = []

    def note(self, position: int, *, now_s: float) -> None:
        """Take note of the position up to which WAL is written. After a failover it may be a lower one."""
        if self._seen and position < self._seen[-1][0]:
            self._seen.clear()
        if not self._seen or position > self._seen[-1][0]:
            self._seen.append((position, now_s))

    def age_s(self, position: int, *, now_s: float) -> float:
        """Return for how many seconds WAL beyond `position` has been there, 0 if there is none."""
        index = bisect(self._seen, position, key=lambda seen: seen[0])
        return now_s - self._seen[index][1] if index < len(self._seen) else 0.0


def follow_receiver(row: WalReceiver, *, age_s: float = 0.0) -> Follower:
    """Return a standby or subscriber as a follower.

    Its seconds are the lag of what it replayed last or, while it has bytes to replay, the time since its last answer,
    or `age_s`, for which the first of these bytes have been there. A subscriber whose apply is blocked may answer.
    """
    silences = (row.reply_age_s or 0.0, age_s)
    behind_s = max(row.replay_lag_s or 0.0, *(each for each in silences if each > _REPLY_INTERVAL_S), 0.0)
    has_wal = row.unflushed_bytes is not None and 2 * row.unflushed_bytes < row.behind_bytes
    return Follower(
        name=f'{row.kind} "{row.name}" ({row.address})',
        behind_bytes=row.behind_bytes,
        behind_s=behind_s if row.behind_bytes > 0 else 0.0,
        replayed=row.position if has_wal and row.kind == "standby" else None,
    )


def follow_slot(row: KeptWal) -> Follower:
    """Return a slot as a follower: it is behind by the WAL that it keeps."""
    return Follower(name=f'slot "{row.name}"', behind_bytes=row.kept_bytes)


def follow_reader(row: AuroraReader) -> Follower:
    """Return a reader of Aurora as a follower."""
    return Follower(name=f'reader "{row.name}"', behind_s=row.lag_s or 0.0)


@dataclass(slots=True)
class Holding:
    """Whether a load holds because of one limit, and since when, over all looks. Times are of the caller's clock.

    A follower that was over the limit at the first look is not waited for, nor is one that came later. A standby that
    has the WAL but replays nothing of it for `patience_s` seconds is paused or delayed on purpose
    (recovery_min_apply_delay), so it is not waited for either.
    """

    limit: Limit
    patience_s: float
    # The followers that are waited for, by name; None before the first look.
    names: frozenset[str] | None = None
    # The follower that the load waits for now, and since when it holds.
    holder: Follower | None = None
    since_s: float = 0.0
    held_s: float = 0.0
    # When `look` was last called.
    _seen_s: float = 0.0
    # Of each standby, what it had replayed and when that was first seen.
    _replayed: dict[str, tuple[int, float]] = field(default_factory=dict)

    def look(self, followers: Sequence[Follower], *, now_s: float) -> list[str]:
        """Take note of how far followers are behind. Return sentences about those that are not waited for from now on.

        `holder` is then the follower that is furthest behind if the load holds, else None.
        """
        if self.names is None:
            over = [each for each in followers if self.limit.share(each) >= 1]
            self.names = frozenset(each.name for each in followers) - {each.name for each in over}
            lags = ((each.name, self.limit.describe(each)) for each in over)
            return [f"{name} is {lag} behind: the load does not wait for it" for name, lag in lags]
        stopped = self._drop_stopped(followers, now_s=now_s)
        behind = [each for each in followers if each.name in self.names]
        furthest = max(behind, key=self.limit.share, default=None)
        least = _GO_ON_AT if self.holder is not None else 1
        holder = furthest if furthest is not None and self.limit.share(furthest) >= least else None
        if self.holder is not None:
            self.held_s += now_s - self._seen_s
        elif holder is not None:
            self.since_s = now_s
        self.holder, self._seen_s = holder, now_s
        return stopped

    def _drop_stopped(self, followers: Iterable[Follower], *, now_s: float) -> list[str]:
        dropped = []
        for each in followers:
            replayed, since_s = self._replayed.get(each.name, (None, now_s))
            if each.replayed is None or each.replayed != replayed or self.limit.share(each) < _GO_ON_AT:
                self._replayed[each.name] = (each.replayed or 0, now_s)
            elif each.name in (self.names or ()) and now_s - since_s >= self.patience_s:
                dropped.append(each.name)
        self.names = (self.names or frozenset()) - set(dropped)
        return [
            f"{name} has the WAL and does not replay it: it is paused or delayed, and the load does not wait for it"
            for name in dropped
        ]
