"""Decides how long a load waits after a transient error, and with how many sessions it goes on.

Pure, except for the clock.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from penstock.errors import PenstockError
from penstock.model.load.plan import SessionPlan

_Result = TypeVar("_Result")

_FIRST_DELAY_S = 0.5
_LONGEST_DELAY_S = 15.0

_DEADLOCK = "40P01"


class Patience:
    """Doubles the wait after each failed attempt, up to _LONGEST_DELAY_S.

    Allows no further attempt once `retry_for_s` seconds have passed since the first failure after the last progress.
    """

    def __init__(self, retry_for_s: float, clock: Callable[[], float]) -> None:
        self._retry_for_s = retry_for_s
        self._clock = clock
        self._failures = 0
        self._rows = -1
        self._since_s: float | None = None

    def note_progress(self, rows: int) -> None:
        """Record how many rows are committed: if there are more than before, the load has made progress."""
        if rows > self._rows >= 0:
            self._failures, self._since_s = 0, None
        self._rows = rows

    def next_delay_s(self) -> float | None:
        """Return how many seconds to wait before the next attempt, or None if the time for retries is over."""
        now_s = self._clock()
        if self._since_s is None:
            self._since_s = now_s
        left_s = self._retry_for_s - (now_s - self._since_s)
        if left_s <= 0:
            return None
        delay_s = min(_FIRST_DELAY_S * 2.0**self._failures, _LONGEST_DELAY_S, left_s)
        self._failures += 1
        return delay_s

    def wait_out(
        self, error: PenstockError, *, sleep: Callable[[float], None], notice: Callable[[str], None] | None
    ) -> None:
        """Show the error and wait; raise it if it is not transient, or if the time for retries is over."""
        delay_s = self.next_delay_s() if error.is_transient else None
        if delay_s is None:
            raise error
        if notice is not None:
            notice(f"{error.message}: retrying in {delay_s:.1f} s")
        sleep(delay_s)


def patiently(
    act: Callable[[], _Result],
    patience: Patience,
    *,
    sleep: Callable[[float], None],
    notice: Callable[[str], None] | None,
) -> _Result:
    """Call `act` again after each transient error, and return its result; `act` must be repeatable.

    Raises PenstockError if the error is not transient, or if the time for retries is over.
    """
    while True:
        try:
            return act()
        except PenstockError as error:
            patience.wait_out(error, sleep=sleep, notice=notice)


def fewer_sessions(plan: SessionPlan, error: PenstockError) -> SessionPlan:
    """Return the session plan of the next attempt: half the sessions after a deadlock, one after a cancelled session.

    A session is cancelled because it blocks another session of the load in a way that the server does not detect.
    """
    if error.sqlstate == _DEADLOCK:
        count = max(1, plan.initial // 2)
    elif error.sqlstate == "57014":
        count = 1
    else:
        return plan
    return replace(plan, initial=count, maximum=count, is_adaptive=False, reason="fewer, after deadlocks between them")
