"""Describes CloudWatch's metrics of an instance's local storage on one line. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.units import format_bytes


def describe_local_storage(values: Mapping[str, float]) -> str:
    """Return reads, writes, latencies and free space of local storage on one line; empty if there are no metrics."""
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
