"""A block device of a server's host, its rates between two readings, and the rows of counters in samples. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from penstock.core.slotted import slotted

# CloudWatch's metrics of local storage, in its order. Source: see DeviceRates.as_metrics.
LOCAL_METRICS = (
    "ReadIOPSLocalStorage",
    "WriteIOPSLocalStorage",
    "ReadLatencyLocalStorage",
    "WriteLatencyLocalStorage",
    "ReadThroughputLocalStorage",
    "WriteThroughputLocalStorage",
    "FreeLocalStorage",
)

DeviceKind = Literal["local", "network", "memory", "unknown"]


@slotted
class Device:
    """The block device that stores a directory."""

    # The name in /dev.
    name: str
    # "major:minor"; None if there is no block device.
    number: str | None
    file_system: str
    # The whole disks below the device.
    disks: tuple[str, ...]
    # "unknown" for a virtual disk, because a machine cannot know where such a disk's data is stored.
    kind: DeviceKind


@slotted
class VolumeLimits:
    """The limits of the storage of a data directory. A limit is None if it is not known."""

    # The sustained rate. An I/O is one of at most `io_bytes`.
    iops: int | None = None
    bytes_per_s: int | None = None
    # The rate of a volume with a burst bucket, while the bucket lasts.
    burst_iops: int | None = None
    # How many I/Os the full bucket holds. The bucket fills at the sustained rate.
    burst_ios: int | None = None
    # How many I/Os the bucket held when the recording began.
    balance_ios: float | None = None
    # This and the next field are limits of the connection between the instance and all its volumes.
    instance_iops: int | None = None
    instance_bytes_per_s: int | None = None
    # The largest size of one I/O. A larger I/O counts as several (EBS User Guide, I/O characteristics).
    io_bytes: int = 262_144


@slotted
class DeviceCounters:
    """What a device has counted up to one moment. Times are in seconds."""

    # A time of the monotonic clock.
    at_s: float
    reads: int
    read_bytes: int
    # The sum of the time of all reads. `write_s` is that of all writes.
    read_s: float
    writes: int
    write_bytes: int
    write_s: float
    # The time with any request in flight.
    busy_s: float
    # The sum of the time of all queued requests.
    queue_s: float
    # The flushes of the device's cache, 0 in recordings before they were read. The kernel counts a flush that an fsync
    # asks for among the writes, with no bytes.
    flushes: int = 0


@slotted
class DeviceRates:
    """A device's rates between two readings."""

    elapsed_s: float
    read_iops: float
    # Without flushes, which move no bytes, and which no volume counts as an I/O.
    write_iops: float
    read_bytes_per_s: float
    write_bytes_per_s: float
    # The mean time of a read, None if there was no read. The next field is the mean time of a write or a flush.
    read_latency_s: float | None
    write_latency_s: float | None
    # The mean size of a request, None if there was no I/O.
    request_bytes: float | None
    # The mean number of requests in flight.
    queue: float
    # The share of the time with any request in flight, 0 to 1.
    busy: float

    def as_metrics(self) -> dict[str, float | None]:
        """Return the device's rates and latencies by the names of CloudWatch's metrics of local storage.

        The units are CloudWatch's. Both latencies are in seconds, although the source shows milliseconds for the
        latency of writes. Source: Amazon RDS User Guide, "Amazon CloudWatch metrics for Amazon RDS".
        """
        values = (
            self.read_iops,
            self.write_iops,
            self.read_latency_s,
            self.write_latency_s,
            self.read_bytes_per_s,
            self.write_bytes_per_s,
        )
        return dict(zip(LOCAL_METRICS, values, strict=False))


def rates(before: DeviceCounters, after: DeviceCounters) -> DeviceRates:
    """Return a device's rates a second between two readings. Raises ValueError if no time passed between them."""
    elapsed_s = after.at_s - before.at_s
    if elapsed_s <= 0:
        raise ValueError("no time between two readings of a device")
    reads, writes = after.reads - before.reads, after.writes - before.writes
    read_bytes, write_bytes = after.read_bytes - before.read_bytes, after.write_bytes - before.write_bytes
    moving = max(0, writes - max(0, after.flushes - before.flushes))
    return DeviceRates(
        elapsed_s=elapsed_s,
        read_iops=reads / elapsed_s,
        write_iops=moving / elapsed_s,
        read_bytes_per_s=read_bytes / elapsed_s,
        write_bytes_per_s=write_bytes / elapsed_s,
        read_latency_s=(after.read_s - before.read_s) / reads if reads else None,
        write_latency_s=(after.write_s - before.write_s) / writes if writes else None,
        request_bytes=(read_bytes + write_bytes) / (reads + moving) if reads + moving else None,
        queue=(after.queue_s - before.queue_s) / elapsed_s,
        busy=min(1.0, (after.busy_s - before.busy_s) / elapsed_s),
    )


def is_reset(before: DeviceCounters, after: DeviceCounters) -> bool:
    """Return whether counters began again at 0 between two readings, because the host was restarted.

    The monotonic clock begins again too.
    """
    return after.at_s < before.at_s or after.reads < before.reads or after.writes < before.writes


def count_ios(each: DeviceRates, io_bytes: int) -> float:
    """Return the I/Os per second as a volume counts them: a request of more than `io_bytes` is several I/Os."""
    return max(each.read_iops + each.write_iops, count_bytes(each) / io_bytes)


def count_bytes(each: DeviceRates) -> float:
    """Return the bytes per second that were read and written."""
    return each.read_bytes_per_s + each.write_bytes_per_s


# A row of a statistics view, with the columns of the server's version.
CounterRow: TypeAlias = Mapping[str, object]

# A sample has the row of Aurora's function of this name, with total_size and used_size in bytes.
TIERED_CACHE = "aurora_stat_optimized_reads_cache"


@slotted
class TieredCache:
    """Aurora's cache of pages on the local storage of an instance with Optimized Reads."""

    total_bytes: int
    used_bytes: int


def read_tiered_cache(row: CounterRow | None) -> TieredCache | None:
    """Return the cache that a row's total_size and used_size describe, None if the instance has no such cache."""
    total, used = (None, None) if row is None else (row.get("total_size"), row.get("used_size"))
    if not isinstance(total, int) or not isinstance(used, int) or total <= 0:
        return None
    return TieredCache(total_bytes=total, used_bytes=used)


# A sample has CloudWatch's metrics of local storage under this name.
LOCAL_STORAGE = "rds_local_storage"

# A sample has the active sessions of an RDS instance, as Performance Insights counts them, under this name.
RDS_LOAD = "rds_load"

# A sample has CloudWatch's metrics of an RDS instance under this name. The names of the metrics follow.
RDS_METRICS = "rds_metrics"
METRIC_NAMES = (
    *("ReadIOPS", "WriteIOPS", "ReadThroughput", "WriteThroughput", "ReadLatency", "WriteLatency", "DiskQueueDepth"),
    *("BurstBalance", "EBSIOBalance%", "CPUUtilization", "FreeableMemory", "ReplicaLag", "CommitLatency"),
)
