"""Changes the settings of a server by ALTER SYSTEM, or in its parameter group in Amazon RDS."""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.changes.records import SERVER_DATABASE, TableStore
from penstock.changes.store_tags import TagStore
from penstock.core.catalogue.catalog import read_server_facts, read_table_storage
from penstock.core.catalogue.settings import AttachedGroup, LeaseReport, Profile, SettingsDecision, read_facts
from penstock.core.closing import Closing
from penstock.core.connect.connection import Connection, ConnectionFactory
from penstock.core.connect.endpoints import is_rds_endpoint
from penstock.core.errors import AwsError, ServerError, TargetError, UsageError
from penstock.core.host.disks import measure_disk
from penstock.core.host.machine import client_name
from penstock.rds.findings import compose_command
from penstock.settings.decide import has_parameter_group
from penstock.settings.kinds import APPLY_LOOK_S, AlterSystem, ParameterGroups, Parameters
from penstock.settings.lease import LeaseRequest, SettingsLeases, SettingsOverview

_log = logging.getLogger(__name__)

# How long to retry while AWS throttles calls. Throttling lasts for seconds. A setting that is not restored in this time
# stays changed until another command is run.
_BUSY_TIMEOUT_S = 60.0


class SettingsBackend(ABC):
    """Changes a server's settings for the time of a lease, and restores them.

    This object keeps a session in database SERVER_DATABASE. A lease lasts for a given time, or until this session ends.
    Methods do the same as those of SettingsLeases with the same names, and raise the same errors.
    """

    def __init__(self, connect: ConnectionFactory) -> None:
        self._connect = connect.in_database(SERVER_DATABASE)
        self._session: Connection | None = None

    @abstractmethod
    def leases(self) -> SettingsLeases:
        """Return the leases, for one call of a method.

        They use the open session; if it has ended, a new one is opened.
        """

    def take(self, request: LeaseRequest) -> tuple[LeaseReport, SettingsDecision]:
        """Change settings under a new lease.

        Return what was changed, and what was decided about each setting of the profile.
        """
        leases = self.leases()
        self._connect.refuse_pooler("change settings")
        return leases.take(request)

    def release(self, lease_id: str) -> LeaseReport:
        """End a lease of this process, and return what was restored.

        If the session was lost, try once more with a new one.
        """
        try:
            return self.leases().release(lease_id)
        except ServerError:
            self._close_session()
            return self.leases().release(lease_id)

    @abstractmethod
    def refuse_blindness(self) -> None:
        """Raise TargetError if the server may have leases that this connection cannot see."""

    def close(self) -> None:
        """Close the sessions. This ends a lease that lasts until its session ends."""
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
    """Changes settings by ALTER SYSTEM. The ledger in database SERVER_DATABASE records the leases."""

    def leases(self) -> SettingsLeases:
        """Return the leases on settings that are changed by ALTER SYSTEM."""
        return system_leases(self._open_session())

    def refuse_blindness(self) -> None:
        """Raise TargetError for a server of Amazon RDS that was not named by its endpoint.

        Tags in AWS record its leases, and AWS finds the server only by its endpoint.
        """
        if has_parameter_group(read_facts(self._open_session())):
            raise TargetError(
                "the server's settings are in a parameter group of Amazon RDS",
                detail="AWS finds the server only by its endpoint.",
                hint="Name the server by its endpoint of Amazon RDS, also through a tunnel.",
            )


def system_leases(connection: Connection) -> SettingsLeases:
    """Return the leases of a cluster whose settings are changed by ALTER SYSTEM.

    `connection` is a session in database SERVER_DATABASE, whose ledger records them.
    """
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
        """Change parameters under a new lease.

        Return what was changed, and what was decided about each setting of the profile.
        """
        self._changed = None
        report, decision = super().take(request)
        if report.lease_ids and self._parameters is not None:
            self._changed = self._parameters.group
        return report, decision

    def release(self, lease_id: str) -> LeaseReport:
        """End a lease of this process, in the parameter group where it was taken, and return what was restored.

        While AWS throttles calls, they are tried again for a minute.
        """
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
        """Close the sessions and the connections to AWS."""
        super().close()
        self._groups.close()

    def leases(self) -> SettingsLeases:
        """Return the leases in a parameter group.

        It is the group in which this object has taken a lease that has not ended, otherwise the group that is attached
        to the server.
        """
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


@dataclass(slots=True)
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


def open_backend(connect: ConnectionFactory, *, may_share_group: bool = False) -> SettingsBackend:
    """Return the backend that changes a server's settings.

    For an endpoint of Amazon RDS, the backend changes parameters in the server's parameter group. For any other server,
    it uses ALTER SYSTEM. If `may_share_group` is true, a group that other instances use too may be changed. Raises
    ServerError.
    """
    with connect.borrow() as connection:
        host = connection.info.host
    if not is_rds_endpoint(host):
        return SystemSettings(connect)
    from penstock.rds.parameter_groups import RdsParameterGroups  # noqa: PLC0415 (70 ms, botocore)

    return GroupSettings(connect, RdsParameterGroups(host), may_share_group=may_share_group)


def prepare_group(connect: ConnectionFactory, name: str) -> tuple[AttachedGroup, str]:
    """Create a parameter group that a server of Amazon RDS can use in place of AWS's default group.

    The new group is not attached. Return the group that is attached now, and the `aws` command that attaches the new
    one. Raises UsageError, AwsError.
    """
    with connect.borrow() as connection:
        host = connection.info.host
    if not is_rds_endpoint(host):
        raise UsageError(f"{host or 'the server'} is not an endpoint of Amazon RDS", hint="Name its endpoint.")
    from penstock.rds.parameter_groups import RdsParameterGroups  # noqa: PLC0415 (70 ms, botocore)

    with closing(RdsParameterGroups(host)) as groups:
        attached = groups.describe()
        groups.create_like(attached, name)
        region = groups.region
    kind = "db-cluster" if attached.owner == "cluster" else "db-instance"
    option = "db-cluster-parameter-group-name" if attached.owner == "cluster" else "db-parameter-group-name"
    words = [f"modify-{kind}", f"--{kind}-identifier", attached.identifier, f"--{option}", name, "--apply-immediately"]
    return attached, compose_command(*words, region=region)


class ServerSettings(Closing):
    """The settings of one server. Close it, or use it as a context manager.

    Methods raise ServerError. If the role lacks a privilege, they raise TargetError with the statements that grant it.
    """

    def __init__(self, connect: ConnectionFactory, *, may_share_group: bool = False) -> None:
        self._connect = connect
        self._backend = open_backend(connect, may_share_group=may_share_group)

    def close(self) -> None:
        """Close the sessions."""
        self._backend.close()
        self._connect.close()

    def show(self) -> SettingsOverview:
        """Return the current values of the settings in profiles, and the leases on the settings."""
        return self._backend.leases().overview()

    def leases(self) -> SettingsOverview:
        """Return what `show` returns, which has the leases.

        Raises TargetError if the server may have leases that are not seen.
        """
        self._backend.refuse_blindness()
        return self._backend.leases().overview()

    def compare(self, profile: Profile, *, expected_wal_bytes: int | None = None) -> SettingsDecision:
        """Return what applying a profile would change, and why other settings would stay. Changes nothing.

        `expected_wal_bytes` is how many bytes of WAL the work is expected to write.
        """
        return self._backend.leases().look(self._request(profile, expected_wal_bytes=expected_wal_bytes))[0]

    def apply(
        self, profile: Profile, *, lasts_s: float, expected_wal_bytes: int | None = None
    ) -> tuple[LeaseReport, SettingsDecision]:
        """Change settings under a lease that lasts for `lasts_s` seconds, or until `restore` ends it.

        Return what was changed, and what was decided about each setting of the profile. `expected_wal_bytes` is how
        many bytes of WAL the work is expected to write.
        """
        return self._backend.take(self._request(profile, lasts_s=lasts_s, expected_wal_bytes=expected_wal_bytes))

    def restore(self, *, beginning: str | None = None, forgets: bool = False) -> LeaseReport:
        """End the leases that no session holds, and return which settings were restored.

        If `beginning` is given, only the lease whose id begins so is ended. Leases that a running load holds stay. If
        `forgets` is true, leases that were taken on another server, before a failover, are ended too.
        """
        self._backend.refuse_blindness()
        return self._backend.leases().restore(beginning=beginning, forgets=forgets)

    def _request(
        self, profile: Profile, *, lasts_s: float | None = None, expected_wal_bytes: int | None = None
    ) -> LeaseRequest:
        return LeaseRequest(
            profile=profile,
            client=client_name(),
            reason=f"penstock settings apply ({profile.name})",
            lasts_s=lasts_s,
            expected_wal_bytes=expected_wal_bytes,
            wal_free_bytes=self._find_wal_room(),
        )

    def _find_wal_room(self) -> int | None:
        """Return the free bytes of the disk with a local server's WAL.

        Returns None if the server is remote, or if the path of its WAL is not known.
        """
        with self._connect.borrow() as connection:
            is_local = read_server_facts(connection).is_local
            path = read_table_storage(connection, [0])[0].wal_path if is_local else None
        disk = None if path is None else measure_disk(Path(path))
        return None if disk is None else disk.free_bytes
