"""Describes AWS's facts about a server in a few lines, for the screen of doctor. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.cli.views.rds_view import describe_class, describe_ebs, describe_optimized_reads, describe_storage

if TYPE_CHECKING:
    from penstock.model.server.rds import RdsDescription, RdsInstance


def describe_rds_facts(found: RdsDescription) -> list[tuple[str, str]]:
    """Return the facts that matter for a load, as pairs of a subject and a line; penstock rds show has all facts."""
    rows = [("AWS", _describe_name(found))]
    if found.cluster is not None and found.cluster.is_aurora:
        rows.append(("storage", "Aurora's, grows automatically"))
    if found.instance is not None:
        rows += _instance_rows(found.instance)
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


def _instance_rows(instance: RdsInstance) -> Iterator[tuple[str, str]]:
    yield "class", describe_class(instance.instance_class)
    if instance.storage is not None:
        yield "storage", describe_storage(instance.storage)
        if instance.instance_class.ebs is not None:
            yield "EBS limits", describe_ebs(instance.instance_class.ebs)
    yield "temp. files", f"Optimized Reads {describe_optimized_reads(instance.optimized_reads)}"
