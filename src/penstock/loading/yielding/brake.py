"""Holds a load while followers are too far behind: looks at them once a second, and tells the feed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from psycopg.sql import SQL

from penstock.core.connect.errors import translate_errors
from penstock.core.errors import PenstockError, TargetError
from penstock.core.slotted import slotted
from penstock.core.sql import fetch_as, fetch_one, fetch_rows
from penstock.core.units import format_bytes, format_duration
from penstock.loading.yielding.lag import (
    AuroraReader,
    Follower,
    Holding,
    KeptWal,
    Limit,
    WalReceiver,
    WrittenWal,
    follow_reader,
    follow_receiver,
    follow_slot,
    read_limit,
)

if TYPE_CHECKING:
    from penstock.core.connect.connection import Connection, ConnectionFactory
    from penstock.core.tuning import LoadTuning
    from penstock.core.values.job import LoadRules

# The writer's row has the session id MASTER_SESSION_ID (Aurora's documentation of aurora_replica_status).
_AURORA_READERS = SQL("""
    SELECT server_id::text AS name, replica_lag_in_msec::float8 / 1000 AS lag_s
      FROM pg_catalog.aurora_replica_status()
     WHERE session_id <> 'MASTER_SESSION_ID'
     ORDER BY server_id
""")


class Held(Protocol):
    """What hands out blocks or objects, and can hold them back."""

    def hold(self, is_held: bool) -> None:
        """Let sessions begin no batch if `is_held`, and let them begin batches again otherwise."""


@slotted
class Yielded:
    """How long a load has begun no batches, by option."""

    seconds: dict[str, float]

    def describe(self) -> Sequence[str]:
        """Return a line for each limit for which the load waited."""
        return [f"waited {format_duration(held)} for {option}" for option, held in self.seconds.items()]


class Brake:
    """Holds a load by the limits of --max-replica-lag and --max-wal.

    It uses a session of its own. `clock` returns seconds, and `notice` is called with what the load waits for.
    """

    def __init__(
        self,
        rules: LoadRules,
        connect: ConnectionFactory,
        *,
        tuning: LoadTuning,
        clock: Callable[[], float],
        notice: Callable[[str], None],
    ) -> None:
        limits: dict[str, Limit] = {}
        if rules.max_replica_lag is not None:
            limits["--max-replica-lag"] = read_limit(rules.max_replica_lag)
        if rules.max_wal is not None:
            limits["--max-wal"] = Limit(length_bytes=rules.max_wal)
        self._holdings = {
            option: Holding(limit=limit, patience_s=tuning.replay_patience_s) for option, limit in limits.items()
        }
        self._written = WrittenWal()
        self._max_wait_s = rules.max_wait
        self._look_s = tuning.yield_look_s
        self._is_aurora = False
        self._connect = connect
        self._clock = clock
        self._notice = notice
        self._connection: Connection | None = None
        self._looked_s: float | None = None
        self._shown = ""
        # Since when the followers of an option cannot be read, and of which options this was told.
        self._blind_since_s: dict[str, float] = {}
        self._told: set[str] = set()
        self._patience_s = tuning.replay_patience_s

    def begin(self, session: Connection, *, is_aurora: bool) -> None:
        """Read in `session` which followers there are. Those that are over a limit now are named, and not waited for.

        Raises TargetError as `check` does.
        """
        self.check(session, is_aurora=is_aurora)
        self._is_aurora = is_aurora
        for option, holding in self._holdings.items():
            if holding.names is None:
                for text in holding.look(self._read(option, session), now_s=self._clock()):
                    self._notice(text)
                if not holding.names:
                    what = "slot keeps WAL" if option == "--max-wal" else "standby or subscriber is connected"
                    self._notice(f"{option} has no effect: no {what} that is below the limit")

    def check(self, session: Connection, *, is_aurora: bool) -> None:
        """Raise TargetError if the role may not read how far standbys are behind.

        Raises it too if Aurora's readers are to be measured in bytes.
        """
        replicas = self._holdings.get("--max-replica-lag")
        if replicas is not None:
            _refuse_blind(session, replicas.limit, is_aurora=is_aurora)

    def look(self, feed: Held) -> None:
        """Look at the followers once a second, and hold or release the feed. Raises TargetError after --max-wait."""
        now_s = self._clock()
        if self._looked_s is not None and now_s - self._looked_s < self._look_s:
            return
        self._looked_s = now_s
        for option, holding in self._holdings.items():
            if holding.names and (found := self._find(option, now_s=now_s)) is not None:
                for text in holding.look(found, now_s=now_s):
                    self._notice(text)
        held = {option: each for option, each in self._holdings.items() if each.holder is not None}
        feed.hold(bool(held))
        self._show(held)
        for option, holding in held.items():
            if now_s - holding.since_s >= self._max_wait_s:
                raise self._give_up(option, holding)

    @property
    def activity(self) -> str:
        """Return what the load waits for now, empty if it begins batches."""
        return self._shown

    def conclude(self) -> Yielded | None:
        """Return how long the load has held, None if it has not. Close the session."""
        self.close()
        seconds = {option: each.held_s for option, each in self._holdings.items() if each.held_s > 0}
        return Yielded(seconds=seconds) if seconds else None

    def close(self) -> None:
        """Close the session. The next look opens another one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _find(self, option: str, *, now_s: float) -> list[Follower] | None:
        """Return the followers, None if they cannot be read for a moment: then a load that holds holds on.

        If they cannot be read for longer, there are none. The load then goes on, and its own sessions fail if the
        server is gone.
        """
        try:
            if self._connection is None:
                self._connection = self._connect.connect(label="lag")
            found = self._read(option, self._connection)
        except PenstockError as error:
            self.close()
            if option not in self._told:
                self._told.add(option)
                self._notice(f"how far others are behind ({option}) cannot be read: {error.message}")
            since_s = self._blind_since_s.setdefault(option, now_s)
            return None if now_s - since_s < self._patience_s else []
        self._blind_since_s.pop(option, None)
        return found

    def _read(self, option: str, session: Connection) -> list[Follower]:
        with translate_errors("reading how far standbys are behind"):
            if option == "--max-wal":
                return [*map(follow_slot, fetch_rows(session, "loading/kept_wal", KeptWal))]
            if self._is_aurora:
                return [*map(follow_reader, fetch_as(session, AuroraReader, _AURORA_READERS))]
            return self._follow(fetch_rows(session, "loading/wal_receivers", WalReceiver))

    def _follow(self, rows: Sequence[WalReceiver]) -> list[Follower]:
        now_s = self._clock()
        if rows:
            self._written.note(max(row.position + row.behind_bytes for row in rows), now_s=now_s)
        return [follow_receiver(row, age_s=self._written.age_s(row.position, now_s=now_s)) for row in rows]

    def _show(self, held: dict[str, Holding]) -> None:
        """Notice that the load begins to wait, and that it goes on."""
        before, self._shown = self._shown, "; ".join(_describe(*each) for each in held.items())
        if self._shown and not before:
            self._notice(self._shown)
        elif before and not self._shown:
            self._notice("the load goes on: it waits for no standby, subscriber or slot any more")

    def _give_up(self, option: str, holding: Holding) -> TargetError:
        return TargetError(
            _describe(option, holding),
            detail=f"The load has waited {format_duration(self._max_wait_s)} (--max-wait).",
            hint="Run the same command again when it has caught up: the load is resumed.",
        )


def _describe(option: str, holding: Holding) -> str:
    follower = holding.holder
    assert follower is not None
    if option == "--max-wal":
        return f"waiting for {follower.name}, which keeps {format_bytes(follower.behind_bytes)} of WAL"
    return f"waiting for {follower.name}, which is {holding.limit.describe(follower)} behind"


def _refuse_blind(session: Connection, limit: Limit, *, is_aurora: bool) -> None:
    if is_aurora and limit.seconds is None:
        raise TargetError("--max-replica-lag needs a time on Aurora", hint="Its readers share the volume: use 10s.")
    with translate_errors("reading the role's rights"):
        query = "SELECT pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE'), current_user"
        may_read, role = fetch_one(session, query)
    if not is_aurora and not may_read:
        raise TargetError(
            f'role "{role}" may not read how far standbys are behind (--max-replica-lag)',
            hint=f'Have an administrator run: GRANT pg_monitor TO "{role}"',
        )
