"""Measures how fast all values are looked at (`--types infer`), beside reading and decompressing the files alone."""

from __future__ import annotations

import csv
import gzip
import random
import statistics
import time
import uuid
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from benchmarks.record import save, spread
from benchmarks.server import Target, bench_server
from penstock.core.connect.connection import ConnectionFactory
from penstock.core.values.job import Housekeeping, LoadJob, TargetJob
from penstock.core.values.names import parse_table_name
from penstock.loading.context import LoadTools
from penstock.loading.files.streams import SourceReader
from penstock.loading.loader import Loader
from penstock.loading.types.find import scan_objects
from penstock.loading.values.objects import all_objects
from penstock.loading.values.types import ALL_TYPES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchmarks.options import Options

# Of all types, at scale 1.
_RECORDS = 9_000_000
_SEED = 20_261_125


def run(options: Options) -> None:
    """Run it and write the results."""
    plain = _write(options.data, round(_RECORDS * options.scale))
    packed = plain.with_suffix(".csv.gz")
    if not packed.exists():
        packed.write_bytes(gzip.compress(plain.read_bytes(), compresslevel=6))
    size_bytes, found = plain.stat().st_size, dict[str, list[float]]()
    with bench_server(options.data) as server, Target(server.conninfo()) as target:
        for number in range(-1, options.runs):
            for path in (plain, packed):
                for way, act in _ways(path, server.conninfo()).items():
                    began_s = time.perf_counter()
                    act()
                    speed = size_bytes / 1e6 / (time.perf_counter() - began_s)
                    if number >= 0:
                        found.setdefault(f"{path.suffix[1:]}, {way}", []).append(speed)
        save(
            "infer",
            options=options,
            postgresql=target.settings(),
            settings={"text_bytes": size_bytes, "packed_bytes": packed.stat().st_size},
            results={name: {"mb_per_s": spread(speeds), "runs": speeds} for name, speeds in found.items()},
            table=[
                ("file, what is done", "median MB/s of text"),
                *((name, f"{statistics.median(speeds):.0f}") for name, speeds in found.items()),
            ],
            notes=["One file of ten columns, one of each type and two of text."],
        )


def _ways(path: Path, conninfo: str) -> dict[str, Callable[[], None]]:
    """Return what is measured: the file read and decompressed, and all its values looked at."""

    def read() -> None:
        with SourceReader() as sources:
            for _ in sources.open(sources.list([str(path)])[0]):
                pass

    job = TargetJob(sources=(str(path),), into=parse_table_name("t"), create=True)
    connect = ConnectionFactory(conninfo)
    with Loader(connect, Housekeeping(no_record=True)) as loader:
        plan = loader.plan(LoadJob(targets=(job,)))

    def look() -> None:
        with SourceReader() as sources:
            tools = LoadTools(connect=connect, sources=sources, server_major=18)
            scan_objects(all_objects(plan.targets), tools, wanted=ALL_TYPES)

    return {"read alone": read, "looked at": look}


def _write(folder: Path, count: int) -> Path:
    """Write the file, unless it exists."""
    path = folder / f"infer-{count}.csv"
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    rng, began = random.Random(_SEED), datetime(2020, 1, 1)  # noqa: DTZ001 (made data)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "big", "price", "ratio", "day", "at", "flag", "key", "code", "note"])
        for number in range(count):
            at = began + timedelta(seconds=rng.randrange(200_000_000))
            key = uuid.UUID(int=rng.getrandbits(128))
            words = " ".join(rng.choices(["plain", "words", "of", "some", "note,", 'a "quoted" one'], k=5))
            writer.writerow(
                [
                    number,
                    rng.getrandbits(50),
                    f"{rng.random() * 1000:.2f}",
                    repr(rng.random() * 1e-5),
                    at.date(),
                    f"{at}+00",
                    rng.choice(["t", "f"]),
                    key,
                    f"{rng.randrange(10**5):05}",
                    words,
                ]
            )
    return path
