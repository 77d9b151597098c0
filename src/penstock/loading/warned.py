"""Shows the warnings of a plan, check or load, keeps them for its outcome, and raises them with --warnings error."""

from __future__ import annotations

import threading
from collections.abc import Callable

from penstock.core.errors import UsageError
from penstock.core.values.notice import Notice, WarningCode

# How many warnings are kept. A trigger may raise one for each row, and nobody reads more than this.
_KEPT = 1000


class WarningLog:
    """Keeps the first 1,000 warnings. Any thread may call its methods.

    If `is_strict` is true, warnings are errors: `refuse` raises the first one. `on_warning` is called with each
    warning, and never by two threads at once.
    """

    def __init__(self, on_warning: Callable[[Notice], None] | None = None, *, is_strict: bool = False) -> None:
        self._on_warning = on_warning
        self.is_strict = is_strict
        self._notices: list[Notice] = []
        self._lock = threading.Lock()

    @property
    def notices(self) -> tuple[Notice, ...]:
        """Return the warnings that are kept so far."""
        return tuple(self._notices)

    def add(self, notice: Notice) -> None:
        """Keep a warning, and call `on_warning` with it. After the first 1,000 warnings, do nothing."""
        with self._lock:
            if len(self._notices) > _KEPT:
                return
            if len(self._notices) == _KEPT:
                notice = Notice(code="more", message="further warnings are not shown")
            self._notices.append(notice)
            if self._on_warning is not None:
                self._on_warning(notice)

    def warn(self, code: WarningCode, message: str, *, uri: str | None = None) -> None:
        """Keep and show a warning with this code and message."""
        self.add(Notice(code=code, message=message, uri=uri))

    def refuse(self) -> None:
        """Raise UsageError if warnings are errors and a warning was given. Call this before a commit, to prevent it."""
        if self.is_strict and self._notices:
            raise strict_error(self._notices[0])


def strict_error(notice: Notice) -> UsageError:
    """Return the error that --warnings error raises for a warning."""
    position = f"{notice.location} " if notice.location else ""
    error = UsageError(notice.message, detail=f"{position}With --warnings error this is an error.", hint=notice.hint)
    error.options = notice.options
    return error
