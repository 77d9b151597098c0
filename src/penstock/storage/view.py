"""Renders a report of storage as text and as an object for --json. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from penstock.core.units import MB, format_count, format_duration
from penstock.core.values.device import VolumeLimits
from penstock.core.words import line_up
from penstock.diagnose.uses import Demand, bucket_of
from penstock.storage.report import (
    Candidate,
    StorageReport,
    modify_command,
    stop_growth_command,
)

if TYPE_CHECKING:
    from penstock.rds.values import Storage

_LIMITS = {
    "volume-iops": "the IOPS of the volume",
    "volume-throughput": "the throughput of the volume",
    "instance-limit": "the limit of the instance",
}


def describe_report(report: StorageReport) -> list[str]:
    """Return lines of text: the limits of storage, and what a workload used of them."""
    where = "" if report.instance is None else f", {report.instance.instance_class.name} in {report.region}"
    title = f"{report.name}: {_name(report.storage)}{where}"
    rows = [*_limit_rows(report.limits), *([] if report.instance is None else [_growth_row(report.storage)])]
    rows += _option_rows(report)
    if report.demand is None:
        rows += [] if report.instance is None else [("used", "not known")]
    else:
        rows += [("used", f"{format_duration(report.demand.elapsed_s)}, from {report.seen_in}")]
        rows += _use_rows(report.demand, report.limits)
    return [title, *line_up(rows, align="<<", indent="  ")]


def describe_plan(report: StorageReport) -> list[str]:
    """Return lines of text: those of `describe_report`, then storage that would carry the workload, with commands."""
    lines, demand = describe_report(report), report.demand
    if demand is None:
        return lines
    lines += ["", *_verdict(report, demand)]
    if report.candidates and report.instance is not None and (pending := report.instance.pending_changes):
        waiting = ", ".join(f"{each.name} {each.value}" for each in pending)
        lines += ["", f"The commands also apply at once what waits for the maintenance window: {waiting}."]
    for rank, candidate in enumerate(report.candidates, start=1):
        lines += ["", *_describe(rank, candidate, report)]
    if report.candidates and report.storage.ceiling_gib is not None and report.instance is not None:
        stop = stop_growth_command(report.name, report.region or "", report.storage)
        lines += [
            "",
            "RDS grows this storage automatically, and cannot shrink it. To turn that off first:",
            f"  {stop}",
        ]
    return lines


def report_object(report: StorageReport) -> dict[str, Any]:
    """Return what --json prints of a report.

    The workload is summed up, and its values in each interval are left out.
    """
    demand = report.demand
    summary = None
    if demand is not None:
        summary = {
            "elapsed_s": demand.elapsed_s,
            "limit": demand.limit,
            "limited_s": demand.limited_s,
            "here_s": demand.here_s,
            "balance_share": demand.balance_share,
            "needs_iops": demand.most_iops,
            "needs_bytes_per_s": demand.most_bytes_per_s,
        }
    return {
        "name": report.name,
        "region": report.region,
        "storage": report.storage,
        "limits": report.limits,
        "options": report.options,
        "seen_in": report.seen_in,
        "demand": summary,
        "candidates": [{**asdict(each), "command": _command(each, report)} for each in report.candidates],
        "pending_changes": [] if report.instance is None else report.instance.pending_changes,
    }


def _name(storage: Storage) -> str:
    parts = [f"{storage.type} {format_count(storage.size_gib or 0)} GiB"]
    if storage.iops is not None:
        parts.append(f"{format_count(storage.iops)} IOPS")
    if storage.throughput_mib_per_s is not None:
        parts.append(f"{format_count(storage.throughput_mib_per_s)} MiB/s")
    return ", ".join(parts)


def _limit_rows(limits: VolumeLimits) -> Iterator[tuple[str, str]]:
    moved = "" if limits.bytes_per_s is None else f", {limits.bytes_per_s / MB:,.0f} MB/s"
    yield "sustained", f"{limits.iops or 0:,} IOPS{moved}"
    if limits.iops and limits.burst_iops and limits.burst_ios:
        lasts = format_duration(bucket_of(limits).burst_s(limits.burst_ios))
        fills = format_duration(limits.burst_ios / limits.iops)
        yield "burst", f"{limits.burst_iops:,} IOPS for {lasts} with a full balance, which fills in {fills}"
    if limits.instance_iops is not None and limits.instance_bytes_per_s is not None:
        yield "instance", f"{limits.instance_iops:,} IOPS, {limits.instance_bytes_per_s / MB:,.0f} MB/s"


def _option_rows(report: StorageReport) -> Iterator[tuple[str, str]]:
    for number, option in enumerate(report.options or ()):
        parts = [f"{option.type} {_ranges(option.sizes_gib)} GiB"]
        parts += [f"{_ranges(option.iops)} IOPS"] if option.iops else []
        parts += [f"{_ranges(option.mib_per_s)} MiB/s"] if option.mib_per_s else []
        yield ("" if number else "RDS allows"), ", ".join(parts)
    if report.unasked is not None:
        yield "RDS allows", f"not known, so RDS's general limits are used: {report.unasked}"


def _ranges(ranges: Sequence[tuple[int, int]]) -> str:
    parts = (format_count(first) if first == last else f"{first:,} to {last:,}" for first, last in ranges)
    return " or ".join(parts)


def _growth_row(storage: Storage) -> tuple[str, str]:
    growth = "off" if storage.ceiling_gib is None else f"up to {format_count(storage.ceiling_gib)} GiB"
    return "autoscaling", growth


def _use_rows(demand: Demand, limits: VolumeLimits) -> Iterator[tuple[str, str]]:
    total_s = demand.elapsed_s
    ios, moved = sum(use.ios for use in demand.uses), sum(use.moved_bytes for use in demand.uses)
    most_ios = max(use.ios / use.elapsed_s for use in demand.uses)
    most_moved = max(use.moved_bytes / use.elapsed_s for use in demand.uses)
    yield "IOPS", f"{ios / total_s:,.0f} on average, {most_ios:,.0f} at most"
    yield "MB/s", f"{moved / total_s / MB:,.1f} on average, {most_moved / MB:,.1f} at most"
    queues = [use.queue for use in demand.uses if use.queue is not None]
    if queues:
        yield "queue", f"{sum(queues) / len(queues):,.1f} requests on average, {max(queues):,.1f} at most"
    if limits.burst_ios:
        yield "balance", f"{100 * demand.balance_share:.0f} % full at the start"


def _verdict(report: StorageReport, demand: Demand) -> list[str]:
    lasted, limits = format_duration(demand.elapsed_s), report.limits
    if demand.limit is None:
        lines = [f"The storage does not explain the {lasted}: it was below its limits for most of the time."]
        if limits.burst_ios and limits.iops and limits.burst_iops and demand.balance_share:
            lasts = format_duration(bucket_of(limits).burst_s(demand.balance_share * limits.burst_ios))
            lines.append(f"Its burst balance allows {limits.burst_iops:,} IOPS for {lasts}.")
            if report.instance is None:
                lines.append("If the balance was spent, say so: --volume gp2:SIZE:spent")
        return lines
    if demand.is_faster:
        took = f"It was recorded on faster storage: this one would take {format_duration(demand.here_s)} for {lasted}."
        if not report.candidates:
            return [took, "No storage of RDS would carry it."]
        return [took, f"It needs {demand.most_iops:,.0f} IOPS and {demand.most_bytes_per_s / MB:,.1f} MB/s."]
    share = f"{100 * demand.limited_s / demand.elapsed_s:.0f} %"
    lines = [f"Limited by {_LIMITS[demand.limit]} for {share} of {lasted}."]
    if demand.limit == "instance-limit":
        return [*lines, "Other storage does not help: use a larger instance class."]
    if not report.candidates:
        return [*lines, "No storage of RDS would make it faster."]
    return [*lines, f"It needs up to {demand.most_iops:,.0f} IOPS and {demand.most_bytes_per_s / MB:,.1f} MB/s."]


def _describe(rank: int, candidate: Candidate, report: StorageReport) -> list[str]:
    price = "price not known" if candidate.price is None else f"{candidate.price:.1f} times the price"
    limits = candidate.limits
    moved = "" if limits.bytes_per_s is None else f", {limits.bytes_per_s / MB:,.0f} MB/s"
    lines = [
        f"{rank}  {_name(candidate.storage)}: {format_duration(candidate.elapsed_s)} at best, {price}",
        f"   {limits.iops or 0:,} IOPS sustained{moved}",
    ]
    if candidate.copies:
        lines.append("   RDS copies all data to other volumes (one below 400 GiB, four above): hours of slow I/O.")
    if (candidate.storage.size_gib or 0) > (report.storage.size_gib or 0):
        lines.append("   The storage cannot be made smaller again.")
    command = _command(candidate, report)
    return lines if command is None else [*lines, f"   {command}"]


def _command(candidate: Candidate, report: StorageReport) -> str | None:
    if report.instance is None:
        return None
    return modify_command(report.name, report.region or "", report.storage, candidate.storage)
