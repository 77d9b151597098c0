"""Does a volume of the lab deliver the IOPS, throughput and latency that were asked for? Needs root."""

from __future__ import annotations

import os
import statistics
import time
from typing import TYPE_CHECKING, Literal

from benchmarks.direct_io import fill, measure
from benchmarks.record import save, spread
from penstock.core.units import KIB, MIB
from penstock.embedded.installations import default_installation
from penstock_lab.topology.lab import Lab

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.direct_io import Delivered
    from benchmarks.options import Options

# IOPS and MiB/s.
_ASKED = ((300, 20), (625, 70), (3_000, 125), (1_000, 250))
_WAYS: tuple[tuple[int, Literal["write", "read"]], ...] = (
    (8 * KIB, "write"),
    (8 * KIB, "read"),
    (256 * KIB, "write"),
    (256 * KIB, "read"),
)
# Each flush follows a write of 8 KiB, as a commit's does.
_FLUSHES = 300
_LATENCIES = ("", "@0.5ms", "@1ms", "@2ms")
# Long beside the tenth of a second's worth that comes at once.
_RUN_S = 5


def run(options: Options) -> None:
    """Run it and write the results."""
    found = {asked: _measure(asked, options) for asked in _ASKED}
    flushes = {f"unlimited{latency}": _measure_flushes(f"unlimited{latency}", options) for latency in _LATENCIES}
    rows = [
        (f"{iops:,} IOPS, {mib} MiB/s", *(_describe(io_bytes, runs) for (io_bytes, _), runs in ways.items()))
        for (iops, mib), ways in found.items()
    ]
    save(
        "volumes",
        options=options,
        postgresql={"server_version": str(default_installation().major)},
        settings={"seconds_asked_for": _RUN_S, "load_average": os.getloadavg()},
        results={
            f"{iops} IOPS, {mib} MiB/s": {
                f"{io_bytes // KIB} KiB {what}": {"iops": [run.iops for run in runs]}
                for (io_bytes, what), runs in ways.items()
            }
            for (iops, mib), ways in found.items()
        }
        | {volume: {"flush_ms": spread(times), "runs": times} for volume, times in flushes.items()},
        table=[("asked for", *(f"{io_bytes // KIB} KiB {what}" for io_bytes, what in _WAYS)), *rows],
        notes=[
            "Direct I/O of 8 threads at random places, each block once; medians with lowest and highest.",
            "",
            f"Milliseconds of an fdatasync behind a write of 8 KiB, medians of {_FLUSHES} in each run:",
            "",
            *(f"* {volume}: {_describe_flushes(times)}" for volume, times in flushes.items()),
        ],
    )


def _measure(asked: tuple[int, int], options: Options) -> dict[tuple[int, Literal["write", "read"]], list[Delivered]]:
    iops, mib = asked
    lab = Lab.named(f"volumes-{os.getpid()}", options.data)
    found: dict[tuple[int, Literal["write", "read"]], list[Delivered]] = {way: [] for way in _WAYS}
    try:
        lab.up("single", default_installation(), parameters="postgres", volume=f"gp3:4GiB:{iops}:{mib}")
        path = lab.files.folder / "primary" / "measured"
        fill(path, _RUN_S * mib * MIB)
        for number in range(options.runs):
            for io_bytes, what in _WAYS:
                ios = min(_RUN_S * iops, _RUN_S * mib * MIB // io_bytes)
                delivered = measure(path, what, ios=ios, io_bytes=io_bytes, seed=number)
                print(f"{asked}: {io_bytes // KIB} KiB {what}: {delivered.iops:.0f}/s", flush=True)
                found[io_bytes, what].append(delivered)
    finally:
        lab.down()
    return found


def _measure_flushes(volume: str, options: Options) -> list[float]:
    """Return the median milliseconds of a flush in each run."""
    lab = Lab.named(f"volumes-{os.getpid()}", options.data)
    found = []
    try:
        lab.up("single", default_installation(), parameters="postgres", volume=volume)
        path = lab.files.folder / "primary" / "flushed"
        fill(path, _FLUSHES * 8 * KIB)
        for _ in range(options.runs):
            found.append(1000 * statistics.median(_time_flushes(path)))
            print(f"{volume}: {found[-1]:.2f} ms a flush", flush=True)
    finally:
        lab.down()
    return found


def _time_flushes(path: Path) -> Iterator[float]:
    with path.open("rb+", buffering=0) as file:
        for _ in range(_FLUSHES):
            file.write(b"x" * 8 * KIB)
            began_s = time.perf_counter()
            os.fdatasync(file.fileno())
            yield time.perf_counter() - began_s


def _describe_flushes(times_ms: list[float]) -> str:
    seen = spread(times_ms)
    return f"{seen['median']:.2f} ({seen['lowest']:.2f}-{seen['highest']:.2f})"


def _describe(io_bytes: int, runs: list[Delivered]) -> str:
    """Return small I/Os by their number, large ones by their throughput."""
    is_small = io_bytes < MIB // 8
    seen = spread([run.iops if is_small else run.bytes_per_s / MIB for run in runs])
    return f"{seen['median']:,.0f} ({seen['lowest']:,.0f}-{seen['highest']:,.0f}) {'/s' if is_small else 'MiB/s'}"
