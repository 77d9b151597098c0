"""Shows a server's settings, compares them with a profile, changes them under a lease, and restores them."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.access.rds import compose_command
from penstock.api.closing import Closing
from penstock.changes.server_settings import LeaseRequest, SettingsOverview
from penstock.changes.settings_backend import GroupSettings, SettingsBackend, SystemSettings
from penstock.errors import UsageError
from penstock.host import measure_disk
from penstock.host.process import client_name
from penstock.model.server.endpoints import is_rds_endpoint
from penstock.server.facts.facts import read_server_facts
from penstock.server.table.catalog import read_table_storage

if TYPE_CHECKING:
    from penstock.model.server.settings import AttachedGroup, LeaseReport, Profile, SettingsDecision
    from penstock.server.connect.connection import ConnectionFactory


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
    from penstock.aws.parameter_groups import RdsParameterGroups  # noqa: PLC0415 (70 ms, botocore)

    return GroupSettings(connect, RdsParameterGroups(host), may_share_group=may_share_group)


def prepare_group(connect: ConnectionFactory, name: str) -> tuple[AttachedGroup, str]:
    """Create a parameter group that a server of Amazon RDS can use in place of AWS's default group.

    It is not attached.

    Return the group that is attached now, and the command that attaches the new one. Raises UsageError, AwsError.
    """
    with connect.borrow() as connection:
        host = connection.info.host
    if not is_rds_endpoint(host):
        raise UsageError(f"{host or 'the server'} is not an endpoint of Amazon RDS", hint="Name its endpoint.")
    from penstock.aws.parameter_groups import RdsParameterGroups  # noqa: PLC0415 (70 ms, botocore)

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
        """Return the leases, in the overview that `show` returns. Raises TargetError if the leases cannot be seen."""
        self._backend.refuse_blindness()
        return self._backend.leases().overview()

    def compare(self, profile: Profile, *, expected_wal_bytes: int | None = None) -> SettingsDecision:
        """Return what applying a profile would change. Changes nothing."""
        return self._backend.leases().look(self._request(profile, expected_wal_bytes=expected_wal_bytes))[0]

    def apply(
        self, profile: Profile, *, lasts_s: float, expected_wal_bytes: int | None = None
    ) -> tuple[LeaseReport, SettingsDecision]:
        """Change settings under a lease that lasts for `lasts_s` seconds, or until it is restored."""
        return self._backend.take(self._request(profile, lasts_s=lasts_s, expected_wal_bytes=expected_wal_bytes))

    def restore(self, *, beginning: str | None = None, forgets: bool = False) -> LeaseReport:
        """Restore settings under leases that no session holds. If `beginning` is given, restore only one lease.

        `beginning` is the beginning of this lease's id. Leases that a running load holds are not ended. `forgets` also
        ends the leases that were taken on another server, before a failover.
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

        None if the server is remote or the path not known.
        """
        with self._connect.borrow() as connection:
            is_local = read_server_facts(connection).is_local
            path = read_table_storage(connection, [0])[0].wal_path if is_local else None
        disk = None if path is None else measure_disk(Path(path))
        return None if disk is None else disk.free_bytes
