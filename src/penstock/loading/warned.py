"""The warnings of one plan, check or load: kept for its outcome, shown at once, and errors where that was asked for."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from penstock.errors import UsageError
from penstock.model.source.dialect import Notice

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.model.source.dialect import WarningCode

# A trigger may warn of each row. More than anybody reads.
_KEPT = 1000


class WarningLog:
    """Keeps the first 1,000 warnings; safe from any thread. `is_strict`: `refuse` makes an error of the first.

    `on_warning` hears of each, one at a time.
    """

    def __init__(self, on_warning: Callable[[Notice], None] | None = None, *, is_strict: bool = False) -> None:
        self._on_warning = on_warning
        self.is_strict = is_strict
        self._notices: list[Notice] = []
        self._lock = threading.Lock()

    @property
    def notices(self) -> tuple[Notice, ...]:
        """Return what was warned of so far."""
        return tuple(self._notices)

    def add(self, notice: Notice) -> None:
        """Keep a warning, and tell it."""
        with self._lock:
            if len(self._notices) > _KEPT:
                return
            if len(self._notices) == _KEPT:
                notice = Notice(code="more", message="further warnings are not shown")
            self._notices.append(notice)
            if self._on_warning is not None:
                self._on_warning(notice)

    def warn(self, code: WarningCode, message: str, *, uri: str | None = None) -> None:
        """Keep a warning in words."""
        self.add(Notice(code=code, message=message, uri=uri))

    def refuse(self) -> None:
        """Raise UsageError where there is a warning though none may be: whatever is not committed then stays so."""
        if self.is_strict and self._notices:
            raise strict_error(self._notices[0])


def strict_error(notice: Notice) -> UsageError:
    """Return a warning as the error that --warnings error makes of it."""
    place = f"{notice.place} " if notice.place else ""
    return UsageError(notice.message, detail=f"{place}With --warnings error this is an error.", hint=notice.hint)
