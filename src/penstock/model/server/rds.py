"""An RDS instance, a Multi-AZ DB cluster or an Aurora cluster, as AWS describes it.

A value that could not be read is None, and a Gap says why. Sizes are in GiB, as RDS gives them.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Literal

from penstock.frozen import frozen

if TYPE_CHECKING:
    from penstock.model.server.windows import Window

# How the instance was found: by a kind of endpoint, or by its identifier.
FoundBy = Literal["instance", "writer", "reader", "custom", "identifier"]


@frozen
class Gap:
    """A call to AWS that gave no answer."""

    # Its name in IAM.
    call: str
    reason: str
    # Whether no policy allows the call.
    is_denied: bool = False


@frozen
class EbsLimits:
    """The limits between an instance class and its volumes: sustained, and for bursts. MB = 10^6 bytes."""

    baseline_mb_per_s: float
    baseline_iops: int
    maximum_mb_per_s: float
    maximum_iops: int


@frozen
class InstanceClass:
    """A class such as db.r6g.2xlarge."""

    name: str
    vcpu_count: int | None
    memory_mib: int | None
    # Its NVMe storage in 10^9 bytes, 0 if it has none.
    local_storage_gb: int | None
    ebs: EbsLimits | None


@frozen
class Storage:
    """The volumes of an instance."""

    type: str | None
    size_gib: int | None
    iops: int | None
    throughput_mib_per_s: int | None
    # The limit of storage autoscaling, None if autoscaling is off.
    ceiling_gib: int | None
    # The latest value of CloudWatch's FreeStorageSpace.
    free_bytes: int | None


@frozen
class LocalStorageMetrics:
    """The latest values of CloudWatch's metrics of local storage."""

    instance: str
    # The time of the latest value, as ISO 8601.
    measured_at: str
    # By the metric's name, in bytes, seconds or operations per second. A metric without a value is missing.
    values: dict[str, float]

    @property
    def free_bytes(self) -> int | None:
        """Return the free bytes of local storage, or None if not measured."""
        free = self.values.get("FreeLocalStorage")
        return None if free is None else int(free)


@frozen
class ParameterGroup:
    """A parameter group and its state on one instance or cluster."""

    name: str
    owner: Literal["instance", "cluster"]
    # in-sync, applying, pending-reboot and so on.
    apply_state: str | None
    # The instances of the region that use the group, including this one; for a cluster's group, the clusters. None if
    # they could not be listed.
    users: tuple[str, ...] | None

    @property
    def is_default(self) -> bool:
        """Return whether the group is one of AWS's default groups, whose parameters cannot be changed."""
        return self.name.startswith("default.")


@frozen
class PendingChange:
    """A requested change that waits for the maintenance window or for a restart."""

    name: str
    value: str


@frozen
class PendingMaintenance:
    """Maintenance that AWS has planned."""

    action: str
    description: str | None
    opt_in_status: str | None
    # The currently planned time, None if there is none.
    applies_at: datetime | None
    auto_applied_after: datetime | None
    forced_at: datetime | None


@frozen
class AssociatedRole:
    """An IAM role that an instance may assume, for a feature such as s3Import."""

    arn: str
    feature: str | None
    status: str | None


@frozen
class OptimizedReads:
    """Whether temporary files are on the instance's local storage, and why."""

    # None if that is not known.
    is_on: bool | None
    reason: str


@frozen
class Nearness:
    """How near this host is to an instance."""

    # The instance's availability zone, None if it is not known.
    zone: str | None
    # This host's availability zone, None if it is not known.
    host_zone: str | None
    security_groups: tuple[str, ...]
    # Whether the instance's security groups admit this host's address, None if that is not known.
    is_host_admitted: bool | None
    # Why the host is admitted or not, or why that is not known.
    reason: str


@frozen
class ClusterMember:
    """An instance of a cluster and its role in it."""

    identifier: str
    is_writer: bool
    # Failover prefers the lowest tier.
    promotion_tier: int | None


@frozen
class _Described:
    """What AWS reports about an instance as well as about a cluster."""

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
        """Return whether it is Aurora. A cluster that is not Aurora is a Multi-AZ DB cluster."""
        return self.engine.startswith("aurora")

    @property
    def windows(self) -> tuple[Window, ...]:
        """Return the windows of maintenance and of backups that are known."""
        return tuple(window for window in (self.maintenance_window, self.backup_window) if window is not None)


@frozen
class RdsCluster(_Described):
    """An Aurora cluster or a Multi-AZ DB cluster."""

    reader_endpoint: str | None
    members: tuple[ClusterMember, ...]
    storage_type: str | None
    # The minimum and maximum Aurora capacity units of serverless instances, each of 2 GiB memory. None if none is
    # serverless.
    capacity_range: tuple[float, float] | None


@frozen
class RdsInstance(_Described):
    """One DB instance."""

    port: int | None
    instance_class: InstanceClass
    # None for Aurora: its volume belongs to no instance and grows automatically.
    storage: Storage | None
    local_storage: LocalStorageMetrics | None
    is_multi_az: bool
    # The source if the instance is a read replica, otherwise None.
    replica_of: str | None
    # The same class with local storage, None if AWS offers none for the engine.
    local_sibling: InstanceClass | None
    optimized_reads: OptimizedReads
    # The mode of Database Insights, standard or advanced, None if AWS does not report it.
    insights_mode: str | None = None
    # None in a brief description.
    nearness: Nearness | None = None


@frozen
class RdsDescription:
    """AWS's description of the server behind an endpoint."""

    region: str
    found_by: FoundBy
    # The instance that the endpoint leads to; for a cluster's writer endpoint, the writer. None if the cluster has no
    # instance, or if the instance may not be described.
    instance: RdsInstance | None
    # None if the instance is not in a cluster, or if the cluster may not be described.
    cluster: RdsCluster | None
    # All instances that the endpoint may lead to, `instance` first.
    may_reach: tuple[str, ...]
    gaps: tuple[Gap, ...]

    @property
    def windows(self) -> tuple[Window, ...]:
        """Return the windows that a job should avoid.

        A Multi-AZ DB cluster's windows apply to all its instances. Aurora's backup window is not returned, because
        Aurora's backups are continuous and do not slow its instances.
        """
        if self.cluster is not None and not self.cluster.is_aurora:
            return self.cluster.windows
        owners = [owner for owner in (self.cluster, self.instance) if owner is not None]
        is_aurora = any(owner.is_aurora for owner in owners)
        found = [window for owner in owners for window in owner.windows]
        return tuple(window for window in found if not (is_aurora and window.kind == "backup"))
