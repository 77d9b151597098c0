"""Finds the limits of an RDS instance's storage, from AWS's description of its volumes and of its class. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import UsageError
from penstock.model.server.device import VolumeLimits
from penstock.storage.envelopes import VOLUME_KINDS, find_envelope
from penstock.units import MB, MIB

if TYPE_CHECKING:
    from penstock.model.server.rds import EbsLimits, Storage


def find_volume_limits(storage: Storage, ebs: EbsLimits | None) -> VolumeLimits | None:
    """Return the limits of storage and of its instance; None if the kind or the size of the storage is not known.

    `ebs` is None if the limits of the instance's class are not known. The balance of a burst bucket is not known.
    """
    kind = next((kind for kind in VOLUME_KINDS if kind == storage.type), None)
    if kind is None or storage.size_gib is None:
        return None
    try:
        envelope = find_envelope(kind, storage.size_gib)
    except UsageError:
        return None
    bucket = envelope.bucket
    # A single gp3 volume has a fixed throughput. Several volumes have the throughput that was provisioned.
    given = None if storage.throughput_mib_per_s is None else storage.throughput_mib_per_s * MIB
    is_fixed = kind != "gp3" or envelope.volumes == 1
    return VolumeLimits(
        iops=envelope.least_iops if bucket is not None else storage.iops or envelope.least_iops,
        bytes_per_s=envelope.most_bytes_per_s if is_fixed else given,
        burst_iops=None if bucket is None else bucket.burst_iops,
        burst_ios=None if bucket is None else bucket.capacity_ios,
        instance_iops=None if ebs is None else ebs.baseline_iops,
        instance_bytes_per_s=None if ebs is None else round(ebs.baseline_mb_per_s * MB),
    )
