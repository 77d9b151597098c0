"""How a server's settings are changed: by ALTER SYSTEM here, or by whatever else has these methods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from penstock.changes.settings.decide import has_parameter_group
from penstock.changes.settings.lease import clear, look, release, restore, take
from penstock.errors import ServerError, TargetError
from penstock.model.server.settings import LeaseReport, SettingsOverview
from penstock.server.facts.settings import read_facts, read_identity, read_settings
from penstock.server.leases import LEASE_DATABASE, LeaseStore

if TYPE_CHECKING:
    from penstock.changes.settings.lease import LeaseRequest
    from penstock.model.server.settings import SettingsDecision, SettingsFacts
    from penstock.server.connect.connection import Connection, ConnectionFactory


class SettingsBackend(Protocol):
    """Changes a server's settings under leases; methods raise ServerError, TargetError and what else is theirs."""

    def look(self, request: LeaseRequest) -> tuple[SettingsDecision, SettingsFacts]:
        """Return what a lease would change, and the facts; changes nothing."""

    def take(self, request: LeaseRequest) -> tuple[LeaseReport, SettingsDecision]:
        """Change settings under a new lease."""

    def clear(self) -> LeaseReport:
        """Restore leases whose holder has gone, or whose time is up."""

    def release(self, lease_id: str) -> LeaseReport:
        """End a lease of this process."""

    def restore(self, *, beginning: str | None = None, forgets: bool = False) -> LeaseReport:
        """End leases that nobody holds."""

    def overview(self) -> SettingsOverview:
        """Return the settings as they are, and the leases on them."""

    def refuse_blindness(self) -> None:
        """Raise TargetError where the server's leases, if there are any, cannot be seen from here."""

    def close(self) -> None:
        """Let go of sessions; a lease that was held by one is over then."""


class SystemSettings:
    """Changes settings by ALTER SYSTEM; its session in LEASE_DATABASE holds the lease for as long as that lasts."""

    def __init__(self, connect: ConnectionFactory) -> None:
        self._connect = connect.in_database(LEASE_DATABASE)
        self._session: Connection | None = None

    def look(self, request: LeaseRequest) -> tuple[SettingsDecision, SettingsFacts]:
        """Return what a lease would change, and the facts; changes nothing."""
        return look(self._store(), request)

    def take(self, request: LeaseRequest) -> tuple[LeaseReport, SettingsDecision]:
        """Change settings under a new lease; see lease.take."""
        store = self._store()
        self._connect.refuse_pooler("change settings")
        return take(store, request)

    def clear(self) -> LeaseReport:
        """Restore leases whose holder has gone, or whose time is up."""
        return clear(self._store())

    def release(self, lease_id: str) -> LeaseReport:
        """End a lease of this process; a session that was lost meanwhile is replaced once."""
        try:
            return release(self._store(), lease_id)
        except ServerError:
            self.close()
            return release(self._store(), lease_id)

    def restore(self, *, beginning: str | None = None, forgets: bool = False) -> LeaseReport:
        """End leases that nobody holds; see lease.restore."""
        return restore(self._store(), beginning=beginning, forgets=forgets)

    def overview(self) -> SettingsOverview:
        """Return the settings as they are, and the leases on them."""
        store = self._store()
        leases = store.read()[0] if store.exists() else []
        return SettingsOverview(
            identity=read_identity(store.connection),
            as_of=store.now(),
            settings=tuple(read_settings(store.connection).values()),
            leases=tuple(leases),
        )

    def refuse_blindness(self) -> None:
        """Raise TargetError for a server of Amazon RDS that is not named by its endpoint."""
        if has_parameter_group(read_facts(self._store().connection)):
            raise TargetError(
                "the server's settings are in a parameter group of Amazon RDS",
                detail="AWS finds the server only by its endpoint.",
                hint="Name the server by its endpoint of Amazon RDS, also through a tunnel.",
            )

    def close(self) -> None:
        """Let go of the session."""
        session, self._session = self._session, None
        if session is not None:
            session.close()
        self._connect.close()

    def _store(self) -> LeaseStore:
        if self._session is None or self._session.closed:
            self._session = self._connect.connect(label="settings")
        return LeaseStore(self._session)
