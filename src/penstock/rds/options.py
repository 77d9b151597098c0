"""Asks RDS to which storage it lets an instance be changed. storage/ decides which of it a workload needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from penstock.core.aws.calls import Calls
from penstock.rds.clients import AwsClients
from penstock.rds.values import StorageOption

if TYPE_CHECKING:
    from penstock.core.aws.calls import Raw


def read_storage_options(
    identifier: str,
    *,
    region: str | None = None,
    profile: str | None = None,
    make_clients: Callable[..., AwsClients] = AwsClients,
) -> tuple[StorageOption, ...]:
    """Return the kinds of storage to which RDS lets an instance be changed, with their limits.

    Needs rds:DescribeValidDBInstanceModifications. Raises AwsError.
    """
    with closing(make_clients(region=region, profile=profile)) as clients:
        answer = Calls(clients).act("rds", "describe_valid_db_instance_modifications", DBInstanceIdentifier=identifier)
    valid = answer.get("ValidDBInstanceModificationsMessage", {})
    return tuple(_read_option(each) for each in valid.get("Storage", ()) if each.get("StorageType"))


def _read_option(raw: Raw) -> StorageOption:
    return StorageOption(
        type=raw["StorageType"],
        sizes_gib=_read_ranges(raw.get("StorageSize", ())),
        iops=_read_ranges(raw.get("ProvisionedIops", ())),
        mib_per_s=_read_ranges(raw.get("ProvisionedStorageThroughput", ())),
        most_iops_per_gib=_read_most(raw.get("IopsToStorageRatio", ())),
        most_mib_per_s_per_iops=_read_most(raw.get("StorageThroughputToIopsRatio", ())),
    )


def _read_ranges(raw: Sequence[Raw]) -> tuple[tuple[int, int], ...]:
    """Return the ranges, except those that end at 0. A range that ends at 0 leaves nothing to choose."""
    return tuple((each.get("From", 0), each["To"]) for each in raw if each.get("To"))


def _read_most(raw: Sequence[Raw]) -> float | None:
    return max((float(each["To"]) for each in raw if each.get("To")), default=None)
