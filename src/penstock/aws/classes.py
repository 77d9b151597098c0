"""Reads an instance class's hardware from EC2's description, or the number of vCPUs from the class's name. Pure.

It also decides whether Optimized Reads apply.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.model.server.rds import EbsLimits, InstanceClass, OptimizedReads

if TYPE_CHECKING:
    from penstock.aws.calls import Raw

SERVERLESS_CLASS = "db.serverless"

# The families and generations since 2014 that have all of these sizes. A test compares them with EC2's table.
_CLASS = re.compile(
    r"db\.(?P<family>[a-z]+)(?P<generation>\d+)[a-z]*\.(?P<size>(?P<times>\d*)xlarge|large|medium|small|micro)"
)
_MODERN: Mapping[str, int] = {"t": 3, "m": 4, "r": 4, "x": 1, "c": 5}

# The first minor version with Optimized Reads of each major version. All later major versions have it.
_RDS_SINCE = {13: 10, 14: 7, 15: 2}
_AURORA_SINCE = {14: 9, 15: 4, 16: 1}
_AURORA_R8GD_SINCE = {14: 12, 15: 7, 16: 3, 17: 4}


def ec2_type(class_name: str) -> str | None:
    """Return the EC2 instance type that a class runs on, or None for serverless.

    >>> ec2_type("db.r6g.2xlarge")
    'r6g.2xlarge'
    """
    return None if class_name == SERVERLESS_CLASS else class_name.removeprefix("db.")


def count_vcpus(class_name: str) -> int | None:
    """Return a class's number of vCPUs from its name alone, or None if the name does not determine it.

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
    """Return the name of the same class with local storage.

    None if the class has local storage itself, or if its family has no such classes. Only AWS knows whether the class
    exists and is offered for an engine.

    >>> name_sibling("db.m5.4xlarge"), name_sibling("db.r6gd.xlarge"), name_sibling("db.t3.medium")
    ('db.m5d.4xlarge', None, None)
    """
    match = re.fullmatch(r"db\.([mrxc]\d+)([a-z]*)\.(\w+)", class_name)
    return None if match is None or "d" in match[2] else f"db.{match[1]}{match[2]}d.{match[3]}"


def read_class(class_name: str, raw: Raw | None) -> InstanceClass:
    """Return a class from EC2's description of its type, or from its name alone if there is no description."""
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
    )


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
    """Return whether temporary files are on the instance's local NVMe storage.

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
    """Return whether a version has a feature that these minor versions introduced. All later major versions have it."""
    major, minor = version
    return major > max(since) or minor >= since.get(major, 1_000)
