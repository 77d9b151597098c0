"""The connections, callables and values that the modules of this package work with."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING, Protocol, TypeVar

from penstock.frozen import frozen
from penstock.loading.formats.format import ReadTools
from penstock.loading.retry import Patience, patiently
from penstock.loading.warned import WarningLog
from penstock.server.ledger import Ledger

if TYPE_CHECKING:
    from penstock.changes.settings_backend import SettingsBackend
    from penstock.loading.plan.guard import SpaceGuard
    from penstock.loading.plan.settings import LoadSettings
    from penstock.model.load.outcome import LoadProgress
    from penstock.model.server.server import ServerFacts
    from penstock.model.server.settings import LeasedSetting
    from penstock.server.connect.connection import ConnectionFactory


_Result = TypeVar("_Result")


class Lease(Protocol):
    """Changes settings of the server for the duration of one load; methods raise PenstockError."""

    @property
    def lease_id(self) -> str | None:
        """Return the id of the lease that the settings are changed under, or None if they are not changed."""

    @property
    def settings(self) -> tuple[LeasedSetting, ...]:
        """Return what was done with each setting; call it after `release`."""

    def look(self) -> LoadSettings:
        """Return what the load would change."""

    def take(self) -> None:
        """Change the settings."""

    def release(self, *, is_patient: bool) -> None:
        """Restore the settings; if `is_patient` and the server cannot be reached, retry as a load does."""


@frozen
class LoadTools(ReadTools):
    """What a load acts through: connections, sources, the ledger, callbacks, and the clock."""

    connect: ConnectionFactory
    on_progress: Callable[[LoadProgress], None] | None = None
    ledger: Ledger = field(default_factory=Ledger)
    # Whether the ledger may be created where a publication would publish it.
    is_publishing_allowed: bool = False
    # Checks the free disk space, if the server's disks are in this machine.
    guard: SpaceGuard | None = None
    on_notice: Callable[[str], None] | None = None
    warnings: WarningLog = field(default_factory=WarningLog)
    server: ServerFacts | None = None
    # Opens the backend that changes the server's settings; `lease` changes them for this load.
    open_settings: Callable[[], SettingsBackend] | None = None
    lease: Lease | None = None
    # The id of the load to resume: if it is given, no other load may begin.
    resumes: str | None = None
    sleep: Callable[[float], None] = time.sleep

    def notice(self, text: str) -> None:
        """Show what the load does or waits for; problems go to `warnings`."""
        if self.on_notice is not None:
            self.on_notice(text)

    def patiently(self, act: Callable[[], _Result], *, retry_for_s: float) -> _Result:
        """Return the result of `act`; retry it for `retry_for_s` after transient errors. Raises PenstockError."""
        return patiently(act, Patience(retry_for_s, self.clock), sleep=self.sleep, notice=self.on_notice)
