"""A server's settings, changed under leases: by ALTER SYSTEM here, or in a parameter group (parameter_group.py)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from penstock.changes.settings.decide import has_parameter_group
from penstock.changes.settings.leases import Leases, Line
from penstock.changes.settings.profiles import LEASABLE
from penstock.changes.settings.values import is_sound, parse_value, show, to_text
from penstock.errors import ServerError, TargetError
from penstock.server.facts.settings import (
    alter_system,
    find_unchanged,
    read_facts,
    read_identity,
    read_lines,
    reload,
)
from penstock.server.leases import LEASE_DATABASE, LeaseStore

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.changes.settings.leases import LeaseRequest
    from penstock.model.server.settings import (
        Lease,
        LeaseReport,
        PriorSetting,
        ServerIdentity,
        SettingsDecision,
        SettingsFacts,
        SettingsOverview,
    )
    from penstock.server.connect.connection import Connection, ConnectionFactory


class SettingsBackend(ABC):
    """Changes a server's settings; its session in LEASE_DATABASE holds the lease for as long as that lasts.

    Methods are those of Leases, which see, and raise what those raise.
    """

    def __init__(self, connect: ConnectionFactory) -> None:
        self._connect = connect.in_database(LEASE_DATABASE)
        self._session: Connection | None = None

    @abstractmethod
    def _leases(self) -> Leases:
        """Return the leases, for one call, by the session that is there or a new one."""

    def look(self, request: LeaseRequest) -> tuple[SettingsDecision, SettingsFacts]:
        """Return what a lease would change, and the facts; changes nothing."""
        return self._leases().look(request)

    def take(self, request: LeaseRequest) -> tuple[LeaseReport, SettingsDecision]:
        """Change settings under a new lease."""
        leases = self._leases()
        self._connect.refuse_pooler("change settings")
        return leases.take(request)

    def clear(self) -> LeaseReport:
        """Restore leases whose holder has gone, or whose time is up."""
        return self._leases().clear()

    def release(self, lease_id: str) -> LeaseReport:
        """End a lease of this process; a session that was lost meanwhile is replaced once."""
        try:
            return self._leases().release(lease_id)
        except ServerError:
            self._close_session()
            return self._leases().release(lease_id)

    def restore(self, *, beginning: str | None = None, forgets: bool = False) -> LeaseReport:
        """End leases that nobody holds."""
        return self._leases().restore(beginning=beginning, forgets=forgets)

    def overview(self) -> SettingsOverview:
        """Return the settings as they are, and the leases on them."""
        return self._leases().overview()

    @abstractmethod
    def refuse_blindness(self) -> None:
        """Raise TargetError where the server's leases, if there are any, cannot be seen from here."""

    def close(self) -> None:
        """Let go of sessions; a lease that was held by one is over then."""
        self._close_session()
        self._connect.close()

    def _open_session(self) -> Connection:
        if self._session is None or self._session.closed:
            self._session = self._connect.connect(label="settings")
        return self._session

    def _close_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()


class SystemSettings(SettingsBackend):
    """Changes settings by ALTER SYSTEM."""

    def _leases(self) -> Leases:
        return system_leases(LeaseStore(self._open_session()))

    def refuse_blindness(self) -> None:
        """Raise TargetError for a server of Amazon RDS that is not named by its endpoint."""
        if has_parameter_group(read_facts(self._open_session())):
            raise TargetError(
                "the server's settings are in a parameter group of Amazon RDS",
                detail="AWS finds the server only by its endpoint.",
                hint="Name the server by its endpoint of Amazon RDS, also through a tunnel.",
            )


def system_leases(store: LeaseStore) -> Leases:
    """Return the leases of a cluster on settings by ALTER SYSTEM."""
    return Leases(store, _AlterSystem(store.connection))


class _AlterSystem:
    """Sets settings in postgresql.auto.conf; see Applier."""

    is_shared: ClassVar[bool] = False

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def identify(self) -> ServerIdentity:
        return read_identity(self._connection)

    def read_facts(self) -> SettingsFacts:
        return read_facts(self._connection)

    def read_lines(self) -> dict[str, Line]:
        lines = read_lines(self._connection)
        return {name: Line(line.text, line.line) for name, line in lines.items() if line.text is not None}

    def to_text(self, name: str, value: float) -> str:
        return to_text(name, value)

    def refuse_line(self, name: str, text: str) -> None:
        raise TargetError(
            f"no lease on settings: {name} could not be restored",
            detail=f"Its line in postgresql.auto.conf is '{text}', and only plain numbers can be restored.",
            hint=f"Write it as a number with a unit: ALTER SYSTEM SET {name}.",
        )

    def apply(self, texts: Mapping[str, str | None], priors: Sequence[PriorSetting]) -> None:  # noqa: ARG002 (see Applier)
        for name, text in texts.items():
            alter_system(self._connection, name, text)
        reload(self._connection)
        # A line that was removed leaves the value to the server's other files.
        wanted = {name: parse_value(name, text) for name, text in texts.items() if text is not None}
        unchanged = find_unchanged(self._connection, wanted)
        if unchanged:
            raise ServerError(
                f"{unchanged[0].name} is still {show(unchanged[0].value, unchanged[0].unit)} after a reload",
                detail=f"Its value comes from: {unchanged[0].source}.",
                hint="Another source overrides postgresql.auto.conf; run penstock settings restore.",
            )

    def describe_foreign(self, lease: Lease, priors: Sequence[PriorSetting]) -> str:
        texts = {prior.name: prior.auto_text for prior in priors}
        undo = [
            f"ALTER SYSTEM RESET {name};" if text is None else f"ALTER SYSTEM SET {name} = '{text}';"
            # Who reads this may run it: no more is said than a lease would do.
            for name, text in ((name, texts.get(name)) for name in lease.wanted if name in LEASABLE)
            if text is None or is_sound(name, text)
        ]
        return (
            f"lease {lease.lease_id} ({lease.reason}) was taken on {lease.server}, and this is {self.identify()}: "
            "nothing was changed. If a server still has its values, restore them there: "
            f"{' '.join(undo)} SELECT pg_reload_conf(); penstock settings restore --forget then removes the record."
        )
