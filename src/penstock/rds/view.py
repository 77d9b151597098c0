"""Renders AWS's description of an instance or a cluster as text and as an object for --json. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import Any

from penstock.core.units import GIB, count_nouns, format_bytes, format_count
from penstock.core.words import line_up
from penstock.rds.values import (
    EbsLimits,
    InstanceClass,
    Nearness,
    OptimizedReads,
    ParameterGroup,
    PendingMaintenance,
    RdsCluster,
    RdsDescription,
    RdsInstance,
    Storage,
    Window,
)


def describe_local_storage(values: Mapping[str, float]) -> str:
    """Return a line with reads, writes, latencies and free space of local storage; empty without metrics.

    `values` maps CloudWatch's names of metrics to their values.
    """
    parts = []
    for what in ("Read", "Write"):
        iops, latency_s = values.get(f"{what}IOPSLocalStorage"), values.get(f"{what}LatencyLocalStorage")
        per_s = values.get(f"{what}ThroughputLocalStorage")
        words = [f"{iops:,.0f} {what.lower()}s/s" if iops is not None else ""]
        words += [f"{format_bytes(round(per_s))}/s" if per_s is not None else ""]
        words += [f"{1e3 * latency_s:.2f} ms each" if latency_s is not None and iops else ""]
        parts.append(" ".join(filter(None, words)))
    if (free_bytes := values.get("FreeLocalStorage")) is not None:
        parts.append(f"{format_bytes(round(free_bytes))} free")
    return ", ".join(filter(None, parts))


Row = tuple[str, str]

_PRODUCTS = {"postgres": "PostgreSQL", "aurora-postgresql": "Aurora PostgreSQL"}

# If many instances share a parameter group, at most this many are named, so that they fit on a line.
_SHARERS_SHOWN = 5


def describe_lines(found: RdsDescription) -> list[str]:
    """Return lines of text: AWS's description of a server, and the calls that failed."""
    lines: list[str] = []
    if found.cluster is not None:
        lines += [_cluster_title(found.cluster, found.region), *_rows(_cluster_rows(found.cluster)), ""]
    if found.instance is not None:
        lines += [_instance_title(found.instance, found), *_rows(_instance_rows(found.instance, found.cluster)), ""]
    if len(found.may_reach) > 1:
        lines += [f"the endpoint leads to one of: {', '.join(found.may_reach)}", ""]
    if found.gaps:
        lines.append("not reported by AWS")
        lines += line_up([(gap.call, gap.reason) for gap in found.gaps], align="<<", indent="  ")
    return lines if found.gaps else lines[:-1]


def description_object(found: RdsDescription) -> dict[str, Any]:
    """Return what --json prints of AWS's description: the fields of RdsDescription, with windows and times as text."""
    plain: dict[str, Any] = _plain(found)
    return plain


def _plain(value: Any) -> Any:
    if isinstance(value, Window):
        return str(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def _cluster_title(cluster: RdsCluster, region: str) -> str:
    kind = "Aurora cluster" if cluster.is_aurora else "Multi-AZ DB cluster"
    return f"{cluster.identifier}: {kind}, {_engine(cluster)}, {cluster.status} in {region}"


def _cluster_rows(cluster: RdsCluster) -> Iterable[Row]:
    yield "endpoint", _known(cluster.endpoint)
    yield "reader endpoint", _known(cluster.reader_endpoint)
    yield "resource id", _known(cluster.resource_id)
    parts = (f"{member.identifier} ({'writer' if member.is_writer else 'reader'})" for member in cluster.members)
    yield "members", ", ".join(parts) or "none"
    if cluster.is_aurora:
        optimized = "I/O-Optimized" if cluster.storage_type == "aurora-iopt1" else "Standard"
        yield "storage", f"Aurora {optimized}, grows automatically"
    if cluster.capacity_range is not None:
        least, most = cluster.capacity_range
        yield "serverless", f"{least:g} to {most:g} capacity units of 2 GiB memory"
    yield from _common_rows(cluster)


def _instance_title(instance: RdsInstance, found: RdsDescription) -> str:
    part = "RDS instance"
    for member in found.cluster.members if found.cluster is not None else ():
        if member.identifier == instance.identifier:
            part = "writer" if member.is_writer else "reader"
    return f"{instance.identifier}: {part}, {_engine(instance)}, {instance.status} in {found.region}"


def _instance_rows(instance: RdsInstance, cluster: RdsCluster | None) -> Iterable[Row]:
    port = "" if instance.port is None else f":{instance.port}"
    yield "endpoint", f"{_known(instance.endpoint)}{port}"
    yield "resource id", _known(instance.resource_id)
    if instance.nearness is not None:
        yield from _nearness_rows(instance.nearness)
    if instance.is_publicly_accessible is not None:
        yield "public access", "the endpoint has a public address" if instance.is_publicly_accessible else "none"
    yield "class", describe_class(instance.instance_class)
    if instance.instance_class.network_gbit_per_s is not None:
        yield "network", _describe_network(*instance.instance_class.network_gbit_per_s)
    if instance.instance_class.ebs is not None and instance.storage is not None:
        yield "EBS limits", describe_ebs(instance.instance_class.ebs)
    if instance.storage is not None:
        yield from _storage_rows(instance.storage)
    if instance.local_storage is not None:
        yield "local storage", describe_local_storage(instance.local_storage.values)
    yield "Optimized Reads", describe_optimized_reads(instance.optimized_reads)
    if instance.local_sibling is not None:
        yield "with local storage", describe_class(instance.local_sibling)
        yield "", f"aws rds modify-db-instance --db-instance-identifier {instance.identifier} \\"
        yield "", f"  --db-instance-class {instance.local_sibling.name} --no-apply-immediately"
    if instance.insights_mode is not None:
        yield from _insights_rows(instance.insights_mode, instance, cluster)
    if cluster is None:
        yield "Multi-AZ", "a standby in another zone" if instance.is_multi_az else "no standby"
    if instance.replica_of is not None:
        yield "replica of", instance.replica_of
    yield from _common_rows(instance, cluster=cluster)


def _storage_rows(storage: Storage) -> Iterable[Row]:
    yield "storage", describe_storage(storage)
    if storage.operation is not None:
        done = "" if storage.operation_percent is None else f", {storage.operation_percent} % done"
        yield "storage operation", f"{storage.operation.lower()}{done}"
    if storage.has_log_volume:
        yield "log volume", "dedicated: pg_wal has a volume of its own"
    if storage.is_upgrade_available:
        yield "file system", "RDS recommends an upgrade, by a blue/green deployment or a read replica"


def _nearness_rows(nearness: Nearness) -> Iterable[Row]:
    if nearness.zone is not None:
        same = {True: "so is this host", False: f"this host is in {nearness.host_zone}: what it sends crosses zones"}
        is_same = nearness.zone == nearness.host_zone
        where = "cannot tell in which zone this host is" if nearness.host_zone is None else same[is_same]
        yield "zone", f"{nearness.zone}; {where}"
    if nearness.security_groups:
        admitted = {
            True: "admit this host",
            False: "do not admit this host",
            None: "cannot tell if they admit this host",
        }
        state = f"{admitted[nearness.is_host_admitted]}: {nearness.reason}"
        yield "security groups", f"{', '.join(nearness.security_groups)}; {state}"
    if nearness.command is not None:
        yield "", nearness.command


def _insights_rows(mode: str, instance: RdsInstance, cluster: RdsCluster | None) -> Iterable[Row]:
    """Yield the mode of Database Insights, and the command that changes to the mode that is not set.

    The advanced mode needs Performance Insights with a retention of 15 months. A cluster has one mode.
    """
    yield "Database Insights", mode
    name = f"db-instance --db-instance-identifier {instance.identifier}"
    if cluster is not None:
        name = f"db-cluster --db-cluster-identifier {cluster.identifier}"
    yield "", f"aws rds modify-{name} \\"
    if mode == "advanced":
        yield "", "  --database-insights-mode standard"
    else:
        yield "", "  --database-insights-mode advanced --enable-performance-insights \\"
        yield "", "  --performance-insights-retention-period 465"


def _common_rows(owner: RdsInstance | RdsCluster, *, cluster: RdsCluster | None = None) -> Iterable[Row]:
    """Yield the rows that instances and clusters share.

    An instance of a cluster does not have the rows that the cluster has.
    """
    for group in owner.parameter_groups:
        yield "parameter group", _describe_group(group)
    if cluster is None or cluster.is_aurora:
        yield (
            "maintenance window",
            "not known" if owner.maintenance_window is None else f"{owner.maintenance_window} UTC",
        )
        kind = "instance" if isinstance(owner, RdsInstance) else "cluster"
        yield "", f"aws rds modify-db-{kind} --db-{kind}-identifier {owner.identifier} \\"
        yield "", "  --preferred-maintenance-window DAY:HH:MM-DAY:HH:MM"
    if cluster is None:
        yield "backup window", _describe_backups(owner)
        yield "IAM authentication", "on" if owner.is_iam_auth_on else "off"
    for number, role in enumerate(owner.roles):
        label = "" if number else "roles"
        yield label, " ".join(word for word in (role.feature, role.arn, role.status) if word)
    if not owner.roles and cluster is None:
        yield "roles", "none"
    changes = [f"{change.name}: {change.value}" for change in owner.pending_changes]
    yield from _listed("pending changes", changes or ["none"])
    yield from _listed("pending maintenance", _describe_maintenance(owner.pending_maintenance))


def _listed(label: str, values: Sequence[str]) -> Iterable[Row]:
    return ((label if number == 0 else "", value) for number, value in enumerate(values))


def describe_class(found: InstanceClass) -> str:
    """Return an instance class and its hardware, as far as it is known, as one line of text."""
    parts = [found.name]
    if found.vcpu_count is not None:
        parts.append(f"{found.vcpu_count} vCPUs")
    if found.memory_mib is not None:
        parts.append(f"{found.memory_mib / 1024:g} GiB memory")
    if found.local_storage_gb is not None:
        parts.append(f"{found.local_storage_gb} GB local storage" if found.local_storage_gb else "no local storage")
    return ", ".join(parts)


def describe_optimized_reads(found: OptimizedReads) -> str:
    """Return whether temporary files are on local storage, and why, as one line of text."""
    state = {True: "on", False: "off", None: "not known"}[found.is_on]
    return f"{state}: {found.reason}"


def describe_ebs(ebs: EbsLimits) -> str:
    """Return the limits of an instance class's traffic with its volumes, throughput and IOPS, as one line of text."""
    baseline = f"{ebs.baseline_mb_per_s:.0f} MB/s, {format_count(ebs.baseline_iops)} IOPS"
    maximum = f"{ebs.maximum_mb_per_s:.0f} MB/s, {format_count(ebs.maximum_iops)} IOPS"
    return baseline if baseline == maximum else f"{baseline}; in bursts {maximum}"


def _describe_network(baseline: float, peak: float) -> str:
    return f"{baseline:g} Gbit/s" + (f"; in bursts {peak:g} Gbit/s" if peak > baseline else "")


def describe_storage(storage: Storage) -> str:
    """Return an instance's volumes as one line of text: performance, free space, and the limit of their growth."""
    parts = [_known(storage.type)]
    if storage.size_gib is not None:
        parts.append(f"{format_count(storage.size_gib)} GiB")
    if storage.iops is not None:
        parts.append(f"{format_count(storage.iops)} IOPS")
    if storage.throughput_mib_per_s is not None:
        parts.append(f"{format_count(storage.throughput_mib_per_s)} MiB/s")
    grows = "does not grow" if storage.ceiling_gib is None else f"grows up to {format_count(storage.ceiling_gib)} GiB"
    free = "not known how much is free" if storage.free_bytes is None else f"{storage.free_bytes / GIB:.1f} GiB free"
    return f"{', '.join(parts)}; {free}; {grows}"


def _describe_group(group: ParameterGroup) -> str:
    parts = [f"{group.name}: {_known(group.apply_state)}"]
    if group.is_default:
        parts.append("AWS's own, cannot be changed")
    elif group.users is None:
        parts.append("not known which servers share it")
    elif len(group.users) == 1:
        parts.append("not shared")
    else:
        others = group.users[1:]
        names = ", ".join(others[:_SHARERS_SHOWN]) + (", ..." if len(others) > _SHARERS_SHOWN else "")
        parts.append(f"shared by {len(group.users)} {group.owner}s, also {names}")
    return ", ".join(parts)


def _describe_backups(owner: RdsInstance | RdsCluster) -> str:
    if owner.backup_retention_days == 0:
        return "no backups"
    if owner.backup_window is None:
        return "not known"
    days = owner.backup_retention_days
    return f"{owner.backup_window} UTC" + ("" if days is None else f", kept {count_nouns(days, 'day')}")


def _describe_maintenance(pending: Sequence[PendingMaintenance] | None) -> list[str]:
    if pending is None:
        return ["not known"]
    return [_describe_action(action) for action in pending] or ["none"]


def _describe_action(action: PendingMaintenance) -> str:
    when = ""
    if action.applies_at is not None:
        when = f", scheduled for {action.applies_at:%Y-%m-%d %H:%M} UTC"
    elif action.forced_at is not None:
        when = f", forced at {action.forced_at:%Y-%m-%d %H:%M} UTC"
    opted = "" if action.opt_in_status is None else f" ({action.opt_in_status})"
    return f"{action.action}{opted}{when}" + ("" if action.description is None else f": {action.description}")


def _engine(owner: RdsInstance | RdsCluster) -> str:
    return f"{_PRODUCTS.get(owner.engine, owner.engine)} {_known(owner.engine_version)}"


def describe_rds_facts(found: RdsDescription) -> list[Row]:
    """Return the facts about a server that matter for a load, as pairs of a subject and a line of text.

    penstock rds show has all facts.
    """
    rows = [("AWS", _describe_name(found))]
    if found.cluster is not None and found.cluster.is_aurora:
        rows.append(("storage", "Aurora's, grows automatically"))
    if found.instance is not None:
        rows += _load_rows(found.instance)
    if found.windows:
        rows.append(("windows", "; ".join(f"{window.kind} {window} UTC" for window in found.windows)))
    return rows


def _describe_name(found: RdsDescription) -> str:
    parts = []
    if found.instance is not None:
        parts.append(f"instance {found.instance.identifier}")
    if found.cluster is not None:
        kind = "Aurora cluster" if found.cluster.is_aurora else "Multi-AZ DB cluster"
        parts.append(f"{kind} {found.cluster.identifier}")
    owner = found.instance or found.cluster
    status = None if owner is None else owner.status
    return f"{' of '.join(parts)}, {status or 'status not known'} in {found.region}"


def _load_rows(instance: RdsInstance) -> Iterable[Row]:
    yield "class", describe_class(instance.instance_class)
    if instance.storage is not None:
        yield "storage", describe_storage(instance.storage)
        if instance.instance_class.ebs is not None:
            yield "EBS limits", describe_ebs(instance.instance_class.ebs)
    yield "temp. files", f"Optimized Reads {describe_optimized_reads(instance.optimized_reads)}"


def _known(value: str | None) -> str:
    return "not known" if value is None else value


def _rows(rows: Iterable[Row]) -> list[str]:
    return line_up(list(rows), align="<<", indent="  ")
