"""How long a load waits for a fault to pass, and with how many sessions it resumes. Pure but for the clock given."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.model.load.plan import SessionPlan

_Result = TypeVar("_Result")

_FIRST_DELAY_S = 0.5
_LONGEST_DELAY_S = 15.0

_DEADLOCK = "40P01"


class Patience:
    """Doubles the wait with each attempt that brought nothing, and runs out after `retry_for_s` without progress."""

    def __init__(self, retry_for_s: float, clock: Callable[[], float]) -> None:
        self._retry_for_s = retry_for_s
        self._clock = clock
        self._failures = 0
        self._rows = -1
        self._since_s: float | None = None

    def note_progress(self, rows: int) -> None:
        """Take note of how many rows are committed: more than before is progress."""
        if rows > self._rows >= 0:
            self._failures, self._since_s = 0, None
        self._rows = rows

    def next_delay_s(self) -> float | None:
        """Return how long to wait before the next attempt, or None where patience has run out."""
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
        """Say and wait; raise the error where it does not pass, or patience has run out."""
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
    """Return what `act` does, which may be done again, once no fault that passes ends it. Raises PenstockError."""
    while True:
        try:
            return act()
        except PenstockError as error:
            patience.wait_out(error, sleep=sleep, notice=notice)


def fewer_sessions(plan: SessionPlan, error: PenstockError) -> SessionPlan:
    """Return the sessions to go on with: half of them after a deadlock, one after sessions waited for each other."""
    if error.sqlstate == _DEADLOCK:
        count = max(1, plan.initial // 2)
    elif error.sqlstate == "57014":
        count = 1
    else:
        return plan
    return replace(plan, initial=count, maximum=count, is_adaptive=False, reason="fewer, after deadlocks between them")
