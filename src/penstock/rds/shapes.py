"""Converts RDS's answers, as botocore returns them, to penstock's values. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.rds.values import (
    AssociatedRole,
    ClusterMember,
    EbsLimits,
    InstanceClass,
    LocalStorageMetrics,
    Nearness,
    OptimizedReads,
    ParameterGroup,
    PendingChange,
    PendingMaintenance,
    RdsCluster,
    RdsInstance,
    Storage,
    Window,
    WindowKind,
    WindowOwner,
    parse_window,
)

if TYPE_CHECKING:
    from penstock.core.aws.calls import Raw

    OnGap = Callable[[str, str], None]

SERVERLESS_CLASS = "db.serverless"

# Matches the name of a class. From the generation in _MODERN on, the size determines a class's number of vCPUs. All
# classes since 2014 are of such a generation. A test compares the result with EC2's table.
_CLASS = re.compile(
    r"db\.(?P<family>[a-z]+)(?P<generation>\d+)[a-z]*\.(?P<size>(?P<times>\d*)xlarge|large|medium|small|micro)"
)
_MODERN: Mapping[str, int] = {"t": 3, "m": 4, "r": 4, "x": 1, "c": 5}

# For each major version, the first minor version with Optimized Reads. Later major versions have it from the start.
_RDS_SINCE = {13: 10, 14: 7, 15: 2}
_AURORA_SINCE = {14: 9, 15: 4, 16: 1}
_AURORA_R8GD_SINCE = {14: 12, 15: 7, 16: 3, 17: 4}


def ec2_type(class_name: str) -> str | None:
    """Return the EC2 instance type that an RDS instance class runs on, None for a serverless class.

    >>> ec2_type("db.r6g.2xlarge")
    'r6g.2xlarge'
    """
    return None if class_name == SERVERLESS_CLASS else class_name.removeprefix("db.")


def count_vcpus(class_name: str) -> int | None:
    """Return the number of vCPUs that an RDS instance class's name tells, None if the name does not determine it.

    Source: DescribeInstanceTypes. RDS's classes of the last ten years follow one rule.

    >>> count_vcpus("db.r6g.2xlarge"), count_vcpus("db.serverless")
    (8, None)
    """
    match = _CLASS.fullmatch(class_name)
    if match is None or int(match["generation"]) < _MODERN.get(match["family"], 1_000):
        return None
    if match["size"].endswith("xlarge"):
        return 4 * int(match["times"] or 1)
    return 1 if match["size"] == "medium" and match["family"] != "t" else 2


def name_sibling(class_name: str) -> str | None:
    """Return the name of the RDS instance class that equals this one and has local storage.

    Return None if the class has local storage itself, or if its family has no such classes. Only AWS knows whether the
    class exists and is offered for an engine. EC2 writes the letter of the processor (a, g, i) first, then d for local
    storage, then letters such as n for the network.

    >>> name_sibling("db.m5.4xlarge"), name_sibling("db.m6in.xlarge"), name_sibling("db.r5n.large")
    ('db.m5d.4xlarge', 'db.m6idn.xlarge', 'db.r5dn.large')
    >>> name_sibling("db.r6gd.xlarge"), name_sibling("db.t3.medium")
    (None, None)
    """
    match = re.fullmatch(r"db\.([mrxc]\d+[agi]?)([a-z]*)\.(\w+)", class_name)
    return None if match is None or "d" in match[2] else f"db.{match[1]}d{match[2]}.{match[3]}"


def read_class(class_name: str, raw: Raw | None) -> InstanceClass:
    """Return the hardware of an RDS instance class.

    `raw` is what EC2's API says of its instance type; without it, only the name tells something.
    """
    if raw is None:
        return InstanceClass(
            name=class_name, vcpu_count=count_vcpus(class_name), memory_mib=None, local_storage_gb=None, ebs=None
        )
    return InstanceClass(
        name=class_name,
        vcpu_count=raw.get("VCpuInfo", {}).get("DefaultVCpus"),
        memory_mib=raw.get("MemoryInfo", {}).get("SizeInMiB"),
        local_storage_gb=raw.get("InstanceStorageInfo", {}).get("TotalSizeInGB", 0),
        ebs=_read_ebs(raw.get("EbsInfo", {}).get("EbsOptimizedInfo")),
        network_gbit_per_s=_read_network(raw.get("NetworkInfo", {}).get("NetworkCards", ())),
    )


def _read_network(cards: Sequence[Mapping[str, Any]]) -> tuple[float, float] | None:
    """Return the sustained and the highest bandwidth of all network cards, None if EC2 does not have them."""
    if not cards or not all("BaselineBandwidthInGbps" in card and "PeakBandwidthInGbps" in card for card in cards):
        return None
    return sum(card["BaselineBandwidthInGbps"] for card in cards), sum(card["PeakBandwidthInGbps"] for card in cards)


def _read_ebs(raw: Mapping[str, Any] | None) -> EbsLimits | None:
    if raw is None:
        return None
    return EbsLimits(
        baseline_mb_per_s=raw["BaselineThroughputInMBps"],
        baseline_iops=raw["BaselineIops"],
        maximum_mb_per_s=raw["MaximumThroughputInMBps"],
        maximum_iops=raw["MaximumIops"],
    )


def judge_optimized_reads(
    instance_class: InstanceClass, *, engine: str, engine_version: str | None, storage_type: str | None
) -> OptimizedReads:
    """Return whether temporary files are on the instance's local NVMe storage, and why.

    Source: RDS User Guide, "Amazon RDS Optimized Reads"; Aurora User Guide, "Aurora Optimized Reads".
    """
    name, local_gb = instance_class.name, instance_class.local_storage_gb
    if name == SERVERLESS_CLASS or local_gb == 0:
        return OptimizedReads(is_on=False, reason=f"{name} has no local storage")
    if local_gb is None:
        return OptimizedReads(is_on=None, reason=f"the local storage of {name} could not be read")
    is_aurora = engine.startswith("aurora")
    version = _read_version(engine_version)
    since = _RDS_SINCE if not is_aurora else _AURORA_R8GD_SINCE if name.startswith("db.r8gd.") else _AURORA_SINCE
    if version is None or not _is_since(version, since):
        product = "Aurora PostgreSQL" if is_aurora else "RDS for PostgreSQL"
        return OptimizedReads(is_on=False, reason=f"{product} {engine_version} does not have them")
    what = f"temporary files on {local_gb} GB of local storage"
    if is_aurora:
        has_cache = storage_type == "aurora-iopt1"
        what = f"tiered cache and {what}" if has_cache else f"{what}; no tiered cache without I/O-Optimized"
    return OptimizedReads(is_on=True, reason=what)


def _read_version(text: str | None) -> tuple[int, int] | None:
    match = re.match(r"(\d+)\.(\d+)", text or "")
    return None if match is None else (int(match[1]), int(match[2]))


def _is_since(version: tuple[int, int], since: Mapping[int, int]) -> bool:
    """Return whether a version has a feature that these minor versions introduced. Later major versions have it too."""
    major, minor = version
    return major > max(since) or minor >= since.get(major, 1_000)


# AWS masks the value of this property, and penstock does not show the mask either.
_SECRETS = frozenset({"MasterUserPassword"})


class Answers(NamedTuple):
    """What AWS's API answered to the calls that are made after the server was found.

    An answer is None if AWS gave none, or if the server has no such thing.
    """

    hardware: Raw | None = None
    instances: list[Raw] | None = None
    clusters: list[Raw] | None = None
    of_instance: list[Raw] | None = None
    of_cluster: list[Raw] | None = None
    free_bytes: int | None = None
    local_storage: LocalStorageMetrics | None = None
    sibling: InstanceClass | None = None
    nearness: Nearness | None = None


def read_instance(raw: Raw, answers: Answers, *, cluster: Raw | None, on_gap: OnGap) -> RdsInstance:
    """Return the instance that DescribeDBInstances describes in `raw`.

    `answers` are the answers to other calls, and `cluster` is its cluster as the API describes it. `on_gap` is called
    with what could not be read, and why.
    """
    identifier, engine = raw["DBInstanceIdentifier"], raw["Engine"]
    endpoint = raw.get("Endpoint", {})
    instance_class = read_class(raw["DBInstanceClass"], answers.hardware)
    return RdsInstance(
        identifier=identifier,
        resource_id=raw.get("DbiResourceId"),
        arn=raw.get("DBInstanceArn"),
        status=raw.get("DBInstanceStatus"),
        engine=engine,
        engine_version=raw.get("EngineVersion"),
        endpoint=endpoint.get("Address"),
        port=endpoint.get("Port"),
        instance_class=instance_class,
        storage=None if engine.startswith("aurora") else _read_storage(raw, free_bytes=answers.free_bytes),
        local_storage=answers.local_storage,
        is_multi_az=raw.get("MultiAZ", False),
        replica_of=raw.get("ReadReplicaSourceDBInstanceIdentifier") or raw.get("ReadReplicaSourceDBClusterIdentifier"),
        parameter_groups=_read_groups(raw, answers.instances),
        maintenance_window=_read_window(raw, "maintenance", owner="instance", identifier=identifier, on_gap=on_gap),
        backup_window=_read_window(raw, "backup", owner="instance", identifier=identifier, on_gap=on_gap),
        backup_retention_days=raw.get("BackupRetentionPeriod"),
        pending_changes=_read_changes(raw),
        pending_maintenance=_read_maintenance(answers.of_instance),
        roles=read_roles(raw),
        is_iam_auth_on=raw.get("IAMDatabaseAuthenticationEnabled", False),
        local_sibling=answers.sibling,
        optimized_reads=judge_optimized_reads(
            instance_class,
            engine=engine,
            engine_version=raw.get("EngineVersion"),
            storage_type=(cluster or raw).get("StorageType"),
        ),
        insights_mode=raw.get("DatabaseInsightsMode"),
        nearness=answers.nearness,
        is_publicly_accessible=raw.get("PubliclyAccessible"),
        subnet_group=raw.get("DBSubnetGroup", {}).get("DBSubnetGroupName"),
    )


def read_cluster(raw: Raw, answers: Answers, *, on_gap: OnGap) -> RdsCluster:
    """Return the cluster that DescribeDBClusters describes in `raw`.

    `answers` are the answers to other calls. `on_gap` is called with what could not be read, and why.
    """
    identifier = raw["DBClusterIdentifier"]
    capacity = raw.get("ServerlessV2ScalingConfiguration")
    return RdsCluster(
        identifier=identifier,
        resource_id=raw.get("DbClusterResourceId"),
        arn=raw.get("DBClusterArn"),
        status=raw.get("Status"),
        engine=raw["Engine"],
        engine_version=raw.get("EngineVersion"),
        endpoint=raw.get("Endpoint"),
        reader_endpoint=raw.get("ReaderEndpoint"),
        members=_read_members(raw),
        storage_type=raw.get("StorageType"),
        capacity_range=None if not capacity else (capacity["MinCapacity"], capacity["MaxCapacity"]),
        parameter_groups=_read_cluster_group(raw, answers.clusters),
        maintenance_window=_read_window(raw, "maintenance", owner="cluster", identifier=identifier, on_gap=on_gap),
        backup_window=_read_window(raw, "backup", owner="cluster", identifier=identifier, on_gap=on_gap),
        backup_retention_days=raw.get("BackupRetentionPeriod"),
        pending_changes=_read_changes(raw),
        pending_maintenance=_read_maintenance(answers.of_cluster),
        roles=read_roles(raw),
        is_iam_auth_on=raw.get("IAMDatabaseAuthenticationEnabled") or False,
    )


def _read_storage(raw: Raw, *, free_bytes: int | None) -> Storage:
    size_gib, ceiling_gib = raw.get("AllocatedStorage"), raw.get("MaxAllocatedStorage")
    has_room = ceiling_gib is not None and (size_gib is None or ceiling_gib > size_gib)
    return Storage(
        type=raw.get("StorageType"),
        size_gib=size_gib,
        iops=raw.get("Iops"),
        throughput_mib_per_s=raw.get("StorageThroughput"),
        ceiling_gib=ceiling_gib if has_room else None,
        free_bytes=free_bytes,
        operation=raw.get("StorageOperationStatus"),
        operation_percent=raw.get("StorageOperationPercentProgress"),
        is_upgrade_available=raw.get("IsStorageConfigUpgradeAvailable", False),
        has_log_volume=raw.get("DedicatedLogVolume", False),
    )


def _read_groups(raw: Raw, all_instances: list[Raw] | None) -> tuple[ParameterGroup, ...]:
    return tuple(
        ParameterGroup(
            name=group["DBParameterGroupName"],
            owner="instance",
            apply_state=group.get("ParameterApplyStatus"),
            users=None
            if all_instances is None
            else _users(
                raw["DBInstanceIdentifier"],
                (
                    other["DBInstanceIdentifier"]
                    for other in all_instances
                    for used in other.get("DBParameterGroups", [])
                    if used["DBParameterGroupName"] == group["DBParameterGroupName"]
                ),
            ),
        )
        for group in raw.get("DBParameterGroups", [])
    )


def _read_cluster_group(raw: Raw, all_clusters: list[Raw] | None) -> tuple[ParameterGroup, ...]:
    name = raw.get("DBClusterParameterGroup")
    if name is None:
        return ()
    states = {member.get("DBClusterParameterGroupStatus") for member in raw.get("DBClusterMembers", [])} - {None}
    # Each member of a cluster applies the group by itself. The group is in sync if all members are in sync.
    behind = sorted(states - {"in-sync"})
    users = None
    if all_clusters is not None:
        sharing = (other for other in all_clusters if other.get("DBClusterParameterGroup") == name)
        users = _users(raw["DBClusterIdentifier"], (other["DBClusterIdentifier"] for other in sharing))
    state = ", ".join(behind) if behind else "in-sync" if states else None
    return (ParameterGroup(name=name, owner="cluster", apply_state=state, users=users),)


def _users(itself: str, others: Iterable[str]) -> tuple[str, ...]:
    """Return the users of a group, the described server first.

    The described server is added if it is missing, because the list may be older than the server.
    """
    return (itself, *sorted(set(others) - {itself}))


def _read_members(raw: Raw) -> tuple[ClusterMember, ...]:
    members = [
        ClusterMember(
            identifier=member["DBInstanceIdentifier"],
            is_writer=member.get("IsClusterWriter", False),
            promotion_tier=member.get("PromotionTier"),
        )
        for member in raw.get("DBClusterMembers", [])
    ]
    return tuple(sorted(members, key=lambda member: (not member.is_writer, member.identifier)))


def _read_window(raw: Raw, kind: WindowKind, *, owner: WindowOwner, identifier: str, on_gap: OnGap) -> Window | None:
    # RDS shows a backup window even if backups are off.
    if kind == "backup" and raw.get("BackupRetentionPeriod") == 0:
        return None
    text = raw.get("PreferredMaintenanceWindow" if kind == "maintenance" else "PreferredBackupWindow")
    if not text:
        return None
    try:
        return parse_window(text, kind=kind, owner=owner, identifier=identifier)
    except ValueError as exc:
        call = "rds:DescribeDBInstances" if owner == "instance" else "rds:DescribeDBClusters"
        on_gap(call, str(exc))
        return None


def _read_changes(raw: Raw) -> tuple[PendingChange, ...]:
    pending = {
        name: value for name, value in raw.get("PendingModifiedValues", {}).items() if value not in (None, [], {})
    }
    return tuple(PendingChange(name=name, value=_write_value(name, value)) for name, value in pending.items())


def _write_value(name: str, value: Any) -> str:
    if name in _SECRETS:
        return "(hidden)"
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _read_maintenance(raw: Sequence[Raw] | None) -> tuple[PendingMaintenance, ...] | None:
    """Return the actions that DescribePendingMaintenanceActions lists for one resource."""
    if raw is None:
        return None
    return tuple(
        PendingMaintenance(
            action=action["Action"],
            description=action.get("Description"),
            opt_in_status=action.get("OptInStatus"),
            applies_at=action.get("CurrentApplyDate"),
            auto_applied_after=action.get("AutoAppliedAfterDate"),
            forced_at=action.get("ForcedApplyDate"),
        )
        for resource in raw
        for action in resource.get("PendingMaintenanceActionDetails", [])
    )


def read_roles(raw: Raw) -> tuple[AssociatedRole, ...]:
    """Return the IAM roles that an instance or a cluster may assume. `raw` is its description by RDS's API."""
    return tuple(
        AssociatedRole(arn=role["RoleArn"], feature=role.get("FeatureName") or None, status=role.get("Status"))
        for role in raw.get("AssociatedRoles", [])
    )
