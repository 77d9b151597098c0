"""What the acting modules of this room act through."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

from penstock.loading.retry import Patience, patiently
from penstock.loading.warned import WarningLog
from penstock.model.load.job import MAX_RECORD_BYTES
from penstock.server.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.changes.settings_backend import SettingsBackend
    from penstock.files import SourceReader
    from penstock.loading.plan.guard import SpaceGuard
    from penstock.model.load.outcome import LoadProgress
    from penstock.model.server.server import ServerFacts
    from penstock.model.server.settings import LeasedSetting
    from penstock.server.connect.connection import ConnectionFactory


_Result = TypeVar("_Result")


class Lease(Protocol):
    """The server's settings, changed for as long as one load lasts; methods raise PenstockError."""

    @property
    def lease_id(self) -> str | None:
        """Return the lease under which settings are others now."""

    @property
    def settings(self) -> tuple[LeasedSetting, ...]:
        """Return what became of them, once it is released."""

    def take(self) -> None:
        """Change them."""

    def release(self, *, is_patient: bool) -> None:
        """Restore them; where the server is away, wait as a load does if it `is_patient`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadTools:
    """Connections, sources, the ledger, the clock, who wants to hear of progress and of notices, and the warnings.

    `guard` looks after disks, where these are this machine's. `server` is what is known of it; `open_settings` tells
    how its settings are changed, and `lease` changes them for this load. `resumes` is the load that is to be resumed,
    where none other may begin; `retries` the one whose rejected records this load takes on. `max_record_bytes` and
    `rejects_torn` (whether the line is rejected that a stray quote is in) follow from the load's rules.
    """

    connect: ConnectionFactory
    sources: SourceReader
    server_major: int
    on_progress: Callable[[LoadProgress], None] | None = None
    ledger: Ledger = field(default_factory=Ledger)
    is_publishing_allowed: bool = False
    guard: SpaceGuard | None = None
    on_notice: Callable[[str], None] | None = None
    warnings: WarningLog = field(default_factory=WarningLog)
    server: ServerFacts | None = None
    open_settings: Callable[[], SettingsBackend] | None = None
    lease: Lease | None = None
    resumes: str | None = None
    retries: str | None = None
    max_record_bytes: int = MAX_RECORD_BYTES
    rejects_torn: bool = False
    clock: Callable[[], float] = time.perf_counter
    sleep: Callable[[float], None] = time.sleep

    def notice(self, text: str) -> None:
        """Tell whoever wants to hear it what is done or waited for; what is wrong goes to `warnings`."""
        if self.on_notice is not None:
            self.on_notice(text)

    def patiently(self, act: Callable[[], _Result], *, retry_for_s: float) -> _Result:
        """Return what `act` does, which may be done again, once no fault that passes ends it. Raises PenstockError."""
        return patiently(act, Patience(retry_for_s, self.clock), sleep=self.sleep, notice=self.on_notice)
