"""What all modules of this package use: the tools of a load, its retries, and the options of its next attempt."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Protocol, TypeVar

from penstock.core.connect.connection import ConnectionFactory
from penstock.core.errors import PenstockError
from penstock.core.slotted import slotted
from penstock.core.values.server import ServerFacts
from penstock.ledger.ledger import Ledger
from penstock.loading.formats.format import ReadTools
from penstock.loading.plan.space import SpaceGuard
from penstock.loading.values.outcome import LoadProgress
from penstock.loading.values.plan import LoadPlan, SessionPlan
from penstock.loading.warned import WarningLog

if TYPE_CHECKING:
    from penstock.core.catalogue.settings import LeasedSetting
    from penstock.loading.plan.settings import LoadSettings
    from penstock.loading.values.objects import PlannedObject
    from penstock.loading.yielding.brake import Brake
    from penstock.settings.backend import SettingsBackend

_Result = TypeVar("_Result")

_FIRST_DELAY_S = 0.5
_LONGEST_DELAY_S = 15.0

_DEADLOCK = "40P01"


class RefusedEncodedError(PenstockError):
    """The server refused a batch that contained encoded blocks.

    `objects` are the ledger's numbers of the objects in the batch. The next attempt sends these objects as text.
    """

    def __init__(self, cause: PenstockError | str, objects: Collection[int]) -> None:
        super().__init__(cause.message if isinstance(cause, PenstockError) else cause)
        self.objects = frozenset(objects)


class UnreadableError(PenstockError):
    """An object cannot be read to its end, and a part of it was sent already.

    `number` is its number in the ledger, and `cause` the error. The next attempt is made without the object.
    """

    def __init__(self, cause: PenstockError, number: int) -> None:
        super().__init__(cause.message)
        self.cause = cause
        self.number = number


class Patience:
    """Decides how long to wait before each retry: the wait doubles after each failure, up to _LONGEST_DELAY_S.

    No retry is made later than `retry_for_s` seconds after the first failure. Progress resets that time and the wait.
    `clock` returns seconds.
    """

    def __init__(self, retry_for_s: float, clock: Callable[[], float]) -> None:
        self._retry_for_s = retry_for_s
        self._clock = clock
        self._failures = 0
        self._rows = -1
        self._since_s: float | None = None

    def note_progress(self, rows: int) -> None:
        """Record how many rows are committed. If the number has grown, the load has made progress."""
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
        """Show the error, and wait with `sleep` until the next attempt. `notice` is called with the text that is shown.

        Raises the error if it is not transient, or if the time for retries is over.
        """
        delay_s = self.next_delay_s() if error.is_transient else None
        if delay_s is None:
            raise error
        if notice is not None:
            notice(f"{error.message}: retrying in {delay_s:.1f} s")
        sleep(delay_s)


@slotted
class NextAttempt:
    """The options of the next attempt, which follow from earlier attempts.

    Objects are named by their numbers in the ledger.
    """

    sessions: SessionPlan
    # The objects to send as text, because the server has refused a batch with encoded blocks of them.
    as_text: frozenset[int] = frozenset()
    # The objects that cannot be read to their end, each with its error. They are not loaded.
    unreadable: Mapping[int, PenstockError] = field(default_factory=dict)


class Retrying:
    """Waits between the attempts of one load, and keeps the options of the next attempt."""

    def __init__(
        self,
        plan: LoadPlan,
        *,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
        notice: Callable[[str], None],
    ) -> None:
        self.next = NextAttempt(sessions=plan.sessions)
        self.patience = Patience(plan.job.rules.retry_for if plan.is_repeatable else 0.0, clock)
        self._rejects = plan.job.rules.on_error == "reject"
        self._sleep = sleep
        self._notice = notice

    def note_unreadable(self, errors: Mapping[int, PenstockError]) -> None:
        """Record the errors of objects that cannot be read to their end, by the objects' numbers in the ledger."""
        self.next = replace(self.next, unreadable={**self.next.unreadable, **errors})

    def wait(self, error: PenstockError) -> None:
        """Set the options of the next attempt, which follow from `error`, and wait before that attempt.

        Raises `error` if it is not transient, or if the time for retries is over. There is no wait if the next attempt
        sends objects as text or leaves out an object that cannot be read.
        """
        if isinstance(error, RefusedEncodedError):
            # The number of such attempts needs no limit: each sends further objects as text, and if the server refuses
            # text, an ordinary error is raised.
            self._notice(f"{error.message}: sending the objects of this batch as text")
            self.next = replace(self.next, as_text=self.next.as_text | error.objects)
            return
        if isinstance(error, UnreadableError):
            self._notice(f"{error.message}: loading the other objects")
            self.note_unreadable({error.number: error.cause})
            return
        before = self.next.sessions
        fewer = fewer_sessions(before, error)
        if error.is_transient and self._rejects and fewer.maximum < before.maximum:
            # Sessions have waited for each other because they send the same key, and one of the records will be
            # rejected. A wait before the next attempt does not help, but fewer sessions do.
            words = "one session" if fewer.maximum == 1 else f"{fewer.maximum} sessions"
            self._notice(f"{error.message}: continuing with {words}")
        else:
            self.patience.wait_out(error, sleep=self._sleep, notice=self._notice)
        self.next = replace(self.next, sessions=fewer)


def patiently(
    act: Callable[[], _Result],
    patience: Patience,
    *,
    sleep: Callable[[float], None],
    notice: Callable[[str], None] | None,
) -> _Result:
    """Return the result of `act`. Call `act` again after each transient error; it must be safe to do so.

    `patience` decides how long to wait, and `sleep` waits so many seconds. `notice` is called with the text of each
    error and the time of the wait. Raises PenstockError if the error is not transient, or if the time for retries is
    over.
    """
    while True:
        try:
            return act()
        except PenstockError as error:
            patience.wait_out(error, sleep=sleep, notice=notice)


def fewer_sessions(plan: SessionPlan, error: PenstockError) -> SessionPlan:
    """Return the session plan of the attempt that follows an error.

    After a deadlock (40P01) it has half the sessions. It has one session after penstock has cancelled a session (57014)
    because two sessions of the load waited for each other in a way that the server does not detect. After any other
    error it is `plan`.
    """
    if error.sqlstate == _DEADLOCK:
        count = max(1, plan.initial // 2)
    elif error.sqlstate == "57014":
        count = 1
    else:
        return plan
    return replace(plan, initial=count, maximum=count, is_adaptive=False, reason="fewer, after deadlocks between them")


class Lease(Protocol):
    """Changes settings of the server for the duration of one load. Methods raise PenstockError."""

    @property
    def lease_id(self) -> str | None:
        """Return the id of the lease that has changed the settings, or None if no settings are changed."""

    @property
    def settings(self) -> tuple[LeasedSetting, ...]:
        """Return the values of each changed setting before, during and after the load. Call this after `release`."""

    def look(self, works: Sequence[PlannedObject]) -> LoadSettings:
        """Return which settings a load of these objects would change, or why none. Nothing is changed."""

    def take(self, works: Sequence[PlannedObject]) -> None:
        """Change the settings for a load of these objects."""

    def release(self, *, is_patient: bool) -> None:
        """Restore the settings. If `is_patient` is true, retry after transient errors for the time of --retry-for."""


@slotted
class LoadTools(ReadTools):
    """What a load uses: connections, sources, the ledger, callbacks, clock and sleep."""

    connect: ConnectionFactory
    on_progress: Callable[[LoadProgress], None] | None = None
    ledger: Ledger = field(default_factory=Ledger)
    # Whether the ledger may be created where a publication would publish it.
    is_publishing_allowed: bool = False
    # Checks the free disk space if the server runs on this machine.
    guard: SpaceGuard | None = None
    # Holds the load while standbys or slots are too far behind.
    brake: Brake | None = None
    on_notice: Callable[[str], None] | None = None
    warnings: WarningLog = field(default_factory=WarningLog)
    server: ServerFacts | None = None
    # Opens the backend that changes the server's settings; `lease` changes them for this load.
    open_settings: Callable[[], SettingsBackend] | None = None
    lease: Lease | None = None
    # The id of the load to resume. If it is given, no other load may begin.
    resumes: str | None = None
    sleep: Callable[[float], None] = time.sleep

    def notice(self, text: str) -> None:
        """Call `on_notice`, if it is given, with what the load does or waits for. Warnings go to `warnings` instead."""
        if self.on_notice is not None:
            self.on_notice(text)

    def patiently(self, act: Callable[[], _Result], *, retry_for_s: float) -> _Result:
        """Return the result of `act`. After transient errors, call `act` again for `retry_for_s` seconds.

        Raises PenstockError.
        """
        return patiently(act, Patience(retry_for_s, self.clock), sleep=self.sleep, notice=self.on_notice)
