"""Measures how long a durable commit takes, without a table."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable

from penstock.core.checks import check_standby
from penstock.core.connect.connection import ConnectionFactory
from penstock.core.connect.errors import translate_errors
from penstock.core.errors import ServerError
from penstock.core.slotted import slotted
from penstock.core.values.diagnosis import refuse

_COMMITS = 100
_ROUND_TRIPS = 20
_LONGEST_S = 10.0


@slotted
class CommitTimes:
    """The times of small commits, in seconds."""

    # The time of each commit, including a round trip.
    commits_s: tuple[float, ...]
    # The median of a round trip alone.
    round_trip_s: float

    @property
    def commit_s(self) -> float:
        """Return the median time of a commit in seconds, without its round trip."""
        return max(0.0, statistics.median(self.commits_s) - self.round_trip_s)


def probe_commits(
    factory: ConnectionFactory, *, clock: Callable[[], float] = time.perf_counter, give_up_s: float = 20.0
) -> CommitTimes:
    """Time 100 commits, or fewer if they take more than 10 s in total, and return their times.

    Each commit writes a message of a few bytes to the WAL, so its transaction waits as any other does. Only a logical
    decoding plugin could see the message, which has the prefix "penstock". Needs no privilege. Raises ServerError on a
    standby, and if the commits together take longer than `give_up_s` seconds.
    """

    def measure(statement: str) -> float:
        began_s = clock()
        connection.execute(statement.encode()).fetchone()
        return clock() - began_s

    def give_up() -> None:
        has_given_up.set()
        connection.cancel()

    with factory.connect(label="probe") as connection, translate_errors("measuring commits"):
        row = connection.execute("SELECT pg_catalog.pg_is_in_recovery()").fetchone()
        refuse(check_standby(row is None or row[0], "measure commits"), ServerError)
        commits_s: list[float] = []
        # A commit that waits for missing standbys waits for ever, because statement_timeout does not end it.
        has_given_up = threading.Event()
        giving_up = threading.Timer(give_up_s, give_up)
        giving_up.daemon = True
        giving_up.start()
        trips_s = [measure("SELECT 1") for _ in range(_ROUND_TRIPS)]
        try:
            while len(commits_s) < _COMMITS and sum(commits_s) < _LONGEST_S and not has_given_up.is_set():
                commits_s.append(measure("SELECT pg_catalog.pg_logical_emit_message(true, 'penstock', 'commit')"))
        finally:
            giving_up.cancel()
        if has_given_up.is_set():
            raise ServerError(f"a commit was not acknowledged within {give_up_s:.0f} s")
    return CommitTimes(commits_s=tuple(commits_s), round_trip_s=statistics.median(trips_s))
