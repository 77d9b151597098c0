"""Changes the settings of a server by ALTER SYSTEM, or in the server's parameter group in Amazon RDS."""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.changes.kinds.parameter import APPLY_LOOK_S, ParameterGroups, Parameters
from penstock.changes.kinds.setting import AlterSystem
from penstock.changes.server_settings import LeaseRequest, SettingsLeases
from penstock.changes.settings.decide import has_parameter_group
from penstock.changes.store.table import SERVER_DATABASE, TableStore
from penstock.changes.store.tags import TagStore
from penstock.errors import AwsError, ServerError, TargetError
from penstock.server.facts.settings import read_facts

if TYPE_CHECKING:
    from penstock.model.server.settings import AttachedGroup, LeaseReport, SettingsDecision
    from penstock.server.connect.connection import Connection, ConnectionFactory

_log = logging.getLogger(__name__)

# AWS throttles an account's calls for seconds. A setting that is not restored now stays until another command is run.
_BUSY_TIMEOUT_S = 60.0


class SettingsBackend(ABC):
    """Changes a server's settings.

    Its session in SERVER_DATABASE holds the lease until the lease or the session ends.

    Methods do and raise the same as those of SettingsLeases.
    """

    def __init__(self, connect: ConnectionFactory) -> None:
        self._connect = connect.in_database(SERVER_DATABASE)
        self._session: Connection | None = None

    @abstractmethod
    def leases(self) -> SettingsLeases:
        """Return the leases, for one call of a method. Uses the open session, or opens a new one."""

    def take(self, request: LeaseRequest) -> tuple[LeaseReport, SettingsDecision]:
        """Change settings under a new lease."""
        leases = self.leases()
        self._connect.refuse_pooler("change settings")
        return leases.take(request)

    def release(self, lease_id: str) -> LeaseReport:
        """End a lease of this process. If the session was lost, try once more with a new session."""
        try:
            return self.leases().release(lease_id)
        except ServerError:
            self._close_session()
            return self.leases().release(lease_id)

    @abstractmethod
    def refuse_blindness(self) -> None:
        """Raise TargetError if the server may have leases that this connection cannot see."""

    def close(self) -> None:
        """Close the sessions. This ends a lease that one of them holds."""
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

    def leases(self) -> SettingsLeases:
        """Return the leases on settings by ALTER SYSTEM."""
        return system_leases(self._open_session())

    def refuse_blindness(self) -> None:
        """Raise TargetError for a server of Amazon RDS that is not named by its endpoint."""
        if has_parameter_group(read_facts(self._open_session())):
            raise TargetError(
                "the server's settings are in a parameter group of Amazon RDS",
                detail="AWS finds the server only by its endpoint.",
                hint="Name the server by its endpoint of Amazon RDS, also through a tunnel.",
            )


def system_leases(connection: Connection) -> SettingsLeases:
    """Return the leases of a cluster on settings by ALTER SYSTEM, through a session in SERVER_DATABASE."""
    return SettingsLeases(TableStore(connection=connection), AlterSystem(connection))


class GroupSettings(SettingsBackend):
    """Changes settings in the parameter group of a server of Amazon RDS. The group's tags record the leases."""

    def __init__(
        self,
        connect: ConnectionFactory,
        groups: ParameterGroups,
        *,
        may_share_group: bool = False,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(connect)
        self._groups = groups
        self._may_share_group = may_share_group
        self._clock = clock
        self._sleep = sleep
        self._parameters: Parameters | None = None
        # The group of the present lease. When the lease ends, another group may be attached.
        self._changed: AttachedGroup | None = None

    def take(self, request: LeaseRequest) -> tuple[LeaseReport, SettingsDecision]:
        """Change parameters under a new lease."""
        self._changed = None
        report, decision = super().take(request)
        if report.lease_ids and self._parameters is not None:
            self._changed = self._parameters.group
        return report, decision

    def release(self, lease_id: str) -> LeaseReport:
        """End a lease of this process, in the group where it was taken. Wait if AWS throttles calls."""
        began_s = self._clock()
        while True:
            try:
                report = super().release(lease_id)
            except AwsError as error:
                if not error.is_transient or self._clock() - began_s > _BUSY_TIMEOUT_S:
                    raise
                _log.info("%s; trying again", error.message)
                self._sleep(APPLY_LOOK_S)
            else:
                break
        self._changed, used = None, self._parameters
        if used is None or used.is_attached or not report.results:
            return report
        warning = (
            f"parameter group {used.attached.name} is attached now: the lease on {used.group.name} was ended there"
        )
        return replace(report, warnings=(warning,))

    def refuse_blindness(self) -> None:
        """Do nothing: the tags of the attached group show all leases."""

    def close(self) -> None:
        """Close sessions."""
        super().close()
        self._groups.close()

    def leases(self) -> SettingsLeases:
        """Return the leases in a parameter group: the group of the present lease, otherwise the attached group."""
        connection = self._open_session()
        self._parameters = Parameters(
            connection=connection,
            groups=self._groups,
            changed=self._changed,
            may_share_group=self._may_share_group,
            clock=self._clock,
            sleep=self._sleep,
        )
        return SettingsLeases(TagStore(connection=connection, tags=_GroupTags(self._parameters)), self._parameters)


@dataclass(frozen=True, slots=True)
class _GroupTags:
    """The tags of a parameter group, as an implementation of Tags."""

    parameters: Parameters

    def exists(self) -> bool:
        return not self.parameters.group.is_default

    def read(self) -> dict[str, str]:
        return self.parameters.groups.read_tags(self.parameters.group)

    def write(self, tags: Mapping[str, str]) -> None:
        self.parameters.groups.write_tags(self.parameters.group, tags)

    def remove(self, keys: Sequence[str]) -> None:
        self.parameters.groups.remove_tags(self.parameters.group, keys)
