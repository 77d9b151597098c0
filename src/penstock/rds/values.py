"""An RDS instance or a cluster, and its maintenance windows, as AWS describes them.

A value that could not be read is None, and a Gap says why. Sizes are in GiB, as RDS gives them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal

from penstock.core.slotted import slotted
from penstock.core.units import format_duration

if TYPE_CHECKING:
    from penstock.core.aws.calls import Gap

WindowKind = Literal["maintenance", "backup"]
WindowOwner = Literal["instance", "cluster"]

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAY_MINUTES = 24 * 60
_WEEK_MINUTES = 7 * _DAY_MINUTES

_TIME = r"([01]\d|2[0-3]):([0-5]\d)"
_DAY = f"({'|'.join(_DAYS)})"
_WEEKLY = re.compile(f"{_DAY}:{_TIME}-{_DAY}:{_TIME}", re.IGNORECASE)
_DAILY = re.compile(f"{_TIME}-{_TIME}")

# A window that begins within this time is reported as near.
_NEAR = timedelta(hours=3)


@slotted
class Window:
    """A time that recurs: each week for maintenance, each day for backups. Times are UTC."""

    kind: WindowKind
    owner: WindowOwner
    # The instance or cluster to which the window belongs.
    identifier: str
    # When the window begins, in minutes after Monday 00:00 UTC (maintenance) or after midnight UTC (backup).
    start_minute: int
    length_minutes: int

    @property
    def period_minutes(self) -> int:
        """Return the minutes from the beginning of one occurrence to that of the next."""
        return _WEEK_MINUTES if self.kind == "maintenance" else _DAY_MINUTES

    def __str__(self) -> str:
        ends = (_write_minute(self.start_minute + passed, self.kind) for passed in (0, self.length_minutes))
        return "-".join(ends)


def parse_window(text: str, *, kind: WindowKind, owner: WindowOwner, identifier: str) -> Window:
    """Return the window that a text of RDS's API names.

    It is "ddd:hh24:mi-ddd:hh24:mi" for maintenance and "hh24:mi-hh24:mi" for backups. A window that ends before it
    begins wraps around the week or the day. Raises ValueError. Source: RDS API Reference, CreateDBInstance.

    >>> str(parse_window("sun:23:45-mon:00:15", kind="maintenance", owner="instance", identifier="orders"))
    'sun:23:45-mon:00:15'
    """
    match = (_WEEKLY if kind == "maintenance" else _DAILY).fullmatch(text.strip())
    if match is None:
        raise ValueError(f'"{text}" is no {kind} window')
    fields = match.groups()
    half = len(fields) // 2
    start, end = _read_minute(fields[:half]), _read_minute(fields[half:])
    period = _WEEK_MINUTES if kind == "maintenance" else _DAY_MINUTES
    return Window(
        kind=kind,
        owner=owner,
        identifier=identifier,
        start_minute=start,
        # If both ends are equal, the window is the whole period.
        length_minutes=(end - start) % period or period,
    )


def describe_near(windows: Sequence[Window], *, now: datetime) -> list[str]:
    """Return a sentence for each window that is running or begins within three hours, ordered by time.

    `now` must have a time zone.
    """
    found = []
    for window in windows:
        begins, ends = _next_coming(window, now.astimezone(UTC))
        name = f"the {window.kind} window of {window.owner} {window.identifier}"
        if begins <= now:
            found.append((begins, f"{name} is running until {ends:%a %H:%M} UTC, for another {_passed(now, ends)}"))
        elif begins <= now + _NEAR:
            found.append((begins, f"{name} begins at {begins:%a %H:%M} UTC, in {_passed(now, begins)}"))
    return [text for _, text in sorted(found)]


def _next_coming(window: Window, now: datetime) -> tuple[datetime, datetime]:
    """Return when the current or next occurrence of a window begins and ends."""
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    origin = midnight - timedelta(days=midnight.weekday()) if window.kind == "maintenance" else midnight
    period = timedelta(minutes=window.period_minutes)
    # Begin with the previous occurrence, which may still be running.
    begins = origin + timedelta(minutes=window.start_minute) - period
    while (ends := begins + timedelta(minutes=window.length_minutes)) <= now:
        begins += period
    return begins, ends


def _passed(start: datetime, end: datetime) -> str:
    return format_duration((end - start).total_seconds())


def _read_minute(fields: Sequence[str]) -> int:
    *day, hour, minute = fields
    days = _DAYS.index(day[0].lower()) if day else 0
    return days * _DAY_MINUTES + int(hour) * 60 + int(minute)


def _write_minute(minute: int, kind: WindowKind) -> str:
    day, of_day = divmod(minute, _DAY_MINUTES)
    time = f"{of_day // 60:02d}:{of_day % 60:02d}"
    return f"{_DAYS[day % 7]}:{time}" if kind == "maintenance" else time


# How the instance was found: by a kind of endpoint, or by its identifier.
FoundBy = Literal["instance", "writer", "reader", "custom", "identifier"]


@slotted
class EbsLimits:
    """The limits of the traffic between an instance and its volumes. MB = 10^6 bytes.

    The baseline can be sustained. The maximum is reached in bursts.
    """

    baseline_mb_per_s: float
    baseline_iops: int
    maximum_mb_per_s: float
    maximum_iops: int


@slotted
class InstanceClass:
    """An RDS instance class, such as db.r6g.2xlarge, and its hardware. What is not known is None."""

    name: str
    vcpu_count: int | None
    memory_mib: int | None
    # The class's NVMe storage in 10^9 bytes, 0 if it has none.
    local_storage_gb: int | None
    ebs: EbsLimits | None
    # The network's bandwidth in 10^9 bits a second: what can be sustained, and what is reached in bursts.
    network_gbit_per_s: tuple[float, float] | None = None


@slotted
class Storage:
    """The volumes of an instance taken together. What is not known is None."""

    type: str | None
    size_gib: int | None
    iops: int | None
    throughput_mib_per_s: int | None
    # The limit of storage autoscaling, None if autoscaling is off.
    ceiling_gib: int | None
    # The latest value of CloudWatch's FreeStorageSpace.
    free_bytes: int | None
    # What RDS does with the volumes at present (Initializing or Optimizing), and how much of this work is done. None if
    # RDS does nothing with them.
    operation: str | None = None
    operation_percent: int | None = None
    # Whether RDS recommends an upgrade of the file system.
    is_upgrade_available: bool = False
    # Whether the WAL is on a volume of its own.
    has_log_volume: bool = False


@slotted
class StorageOption:
    """A kind of storage to which RDS lets an instance be changed, with its limits."""

    type: str
    # The ranges of values that can be chosen, each by its first and last value. Empty if nothing can be chosen.
    sizes_gib: tuple[tuple[int, int], ...]
    iops: tuple[tuple[int, int], ...]
    mib_per_s: tuple[tuple[int, int], ...]
    # This and the next field are None if RDS states no ratio.
    most_iops_per_gib: float | None
    most_mib_per_s_per_iops: float | None


@slotted
class LocalStorageMetrics:
    """The latest values of CloudWatch's metrics of local storage."""

    instance: str
    # The time of the latest value, as ISO 8601.
    measured_at: str
    # The values by the metric's name, in bytes, seconds or operations per second. A metric without a value is missing.
    values: dict[str, float]

    @property
    def free_bytes(self) -> int | None:
        """Return the free bytes of local storage, None if CloudWatch has no value."""
        free = self.values.get("FreeLocalStorage")
        return None if free is None else int(free)


@slotted
class ParameterGroup:
    """A parameter group and its state on one instance or cluster."""

    name: str
    owner: Literal["instance", "cluster"]
    # The state's name, such as in-sync, applying or pending-reboot.
    apply_state: str | None
    # The instances of the region that use the group, including this one; for a cluster's group, the clusters. None if
    # they could not be listed.
    users: tuple[str, ...] | None

    @property
    def is_default(self) -> bool:
        """Return whether the group is one of AWS's default groups, whose parameters cannot be changed."""
        return self.name.startswith("default.")


@slotted
class PendingChange:
    """A requested change that waits for the maintenance window or for a restart."""

    name: str
    value: str


@slotted
class PendingMaintenance:
    """Maintenance that AWS has planned."""

    action: str
    description: str | None
    opt_in_status: str | None
    # The currently planned time, None if there is none.
    applies_at: datetime | None
    auto_applied_after: datetime | None
    forced_at: datetime | None


@slotted
class AssociatedRole:
    """An IAM role that an instance may assume, for a feature such as s3Import."""

    arn: str
    feature: str | None
    status: str | None


@slotted
class OptimizedReads:
    """Whether temporary files are on the instance's local storage (RDS Optimized Reads), and why."""

    # Whether temporary files are on local storage, None if that is not known.
    is_on: bool | None
    reason: str


@slotted
class Nearness:
    """Whether this host is in an instance's availability zone, and whether it may connect."""

    # The instance's availability zone, None if it is not known.
    zone: str | None
    # This host's availability zone, None if it is not known.
    host_zone: str | None
    security_groups: tuple[str, ...]
    # Whether the instance's security groups admit this host, None if that is not known.
    is_host_admitted: bool | None
    # Why the host is admitted or not, or why that is not known.
    reason: str
    # The `aws` command that adds a rule for this host, None if the host is admitted or that is not known.
    command: str | None = None


@slotted
class ClusterMember:
    """An instance of a cluster, and the role of the instance in the cluster."""

    identifier: str
    is_writer: bool
    # The tier of the instance. Failover prefers the lowest tier.
    promotion_tier: int | None


@slotted
class _Described:
    """What AWS reports both about an instance and about a cluster."""

    identifier: str
    resource_id: str | None
    arn: str | None
    status: str | None
    engine: str
    engine_version: str | None
    endpoint: str | None
    parameter_groups: tuple[ParameterGroup, ...]
    maintenance_window: Window | None
    backup_window: Window | None
    backup_retention_days: int | None
    pending_changes: tuple[PendingChange, ...]
    pending_maintenance: tuple[PendingMaintenance, ...] | None
    roles: tuple[AssociatedRole, ...]
    is_iam_auth_on: bool

    @property
    def is_aurora(self) -> bool:
        """Return whether the server is Aurora. A cluster that is not Aurora is a Multi-AZ DB cluster."""
        return self.engine.startswith("aurora")

    @property
    def windows(self) -> tuple[Window, ...]:
        """Return the windows of maintenance and of backups that are known."""
        return tuple(window for window in (self.maintenance_window, self.backup_window) if window is not None)


@slotted
class RdsCluster(_Described):
    """An Aurora cluster or a Multi-AZ DB cluster."""

    reader_endpoint: str | None
    members: tuple[ClusterMember, ...]
    storage_type: str | None
    # The minimum and maximum Aurora capacity units of serverless instances, each of 2 GiB memory. None if none is
    # serverless.
    capacity_range: tuple[float, float] | None


@slotted
class RdsInstance(_Described):
    """One DB instance."""

    port: int | None
    instance_class: InstanceClass
    # The volumes. None for Aurora, whose volume belongs to no instance and grows automatically.
    storage: Storage | None
    local_storage: LocalStorageMetrics | None
    is_multi_az: bool
    # The source if the instance is a read replica, otherwise None.
    replica_of: str | None
    # The instance class that equals this one but has local storage, None if AWS offers none for the engine.
    local_sibling: InstanceClass | None
    optimized_reads: OptimizedReads
    # The mode of Database Insights, standard or advanced, None if AWS does not report it.
    insights_mode: str | None = None
    # How near this host is to the instance, None in a brief description.
    nearness: Nearness | None = None
    # Whether the endpoint has a public address, None if AWS does not report it.
    is_publicly_accessible: bool | None = None
    # The DB subnet group, None if AWS does not report it.
    subnet_group: str | None = None


@slotted
class RdsDescription:
    """AWS's description of the server behind an endpoint."""

    region: str
    found_by: FoundBy
    # The instance that the endpoint leads to; for a cluster's writer endpoint, the writer. None if the cluster has no
    # instance, or if the instance may not be described.
    instance: RdsInstance | None
    # The cluster. None if the instance is not in a cluster, or if the cluster may not be described.
    cluster: RdsCluster | None
    # All instances that the endpoint may lead to, `instance` first.
    may_reach: tuple[str, ...]
    gaps: tuple[Gap, ...]

    @property
    def windows(self) -> tuple[Window, ...]:
        """Return the windows of maintenance and of backups in which a load should not run.

        A Multi-AZ DB cluster's windows apply to all its instances. Aurora's backup window is not returned, because
        Aurora's backups are continuous and do not slow its instances.
        """
        if self.cluster is not None and not self.cluster.is_aurora:
            return self.cluster.windows
        owners = [owner for owner in (self.cluster, self.instance) if owner is not None]
        is_aurora = any(owner.is_aurora for owner in owners)
        found = [window for owner in owners for window in owner.windows]
        return tuple(window for window in found if not (is_aurora and window.kind == "backup"))
