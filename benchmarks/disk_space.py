"""How far the forecast of a load's disk space is off, for seven kinds of table of narrow and wide rows."""

from __future__ import annotations

import random
import threading
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

from benchmarks.record import save
from benchmarks.server import Target, bench_server
from penstock.core.connect.connection import ConnectionFactory
from penstock.core.values.job import LoadJob, LoadRules, TargetJob
from penstock.core.values.names import parse_table_name
from penstock.loading.loader import Loader
from penstock.loading.plan.space import DiskSpace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.options import Options
    from penstock.core.values.mode import Mode

# At scale 1/9; some milliseconds between looks, for sorts and staging tables are there for a second.
_FILE_BYTES = 64_000_000
_LOOK_S = 0.02

_MANY = ", ".join(f"c{number} int" for number in range(50))
_ORDERS = "a int {key}, b bigint, c date, d text"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A table: its columns, a line of its file, what else is created, and how it is loaded."""

    columns: str
    line: Callable[[random.Random, int], str]
    index: str = ""
    mode: Mode = "append"


def _order(rng: random.Random, number: int) -> str:
    return (
        f"{number * 7919 % 10_000_019},{rng.randrange(10**9)},2024-0{rng.randrange(1, 9)}-11,{'n' * rng.randrange(40)}"
    )


_KEYED = _ORDERS.format(key="PRIMARY KEY")
_KINDS = {
    "narrow integers": Kind(columns="a int, b int", line=lambda rng, number: f"{number},{rng.randrange(10**6)}"),
    "text": Kind(columns="a int, b text", line=lambda rng, number: f"{number},{rng.randbytes(90).hex()}"),
    "50 columns, mostly null": Kind(
        columns=_MANY,
        line=lambda rng, _: ",".join(str(rng.randrange(10**6)) if rng.random() < 0.1 else "" for _ in range(50)),
    ),
    "primary key": Kind(columns=_KEYED, line=_order),
    "three indexes": Kind(columns=_KEYED, line=_order, index="CREATE INDEX ON k (b); CREATE INDEX ON k (c, d)"),
    "upsert by primary key": Kind(columns=_KEYED, line=_order, mode="upsert"),
    "replaced table, primary key": Kind(columns=_KEYED, line=_order, mode="replace"),
}


def run(options: Options) -> None:
    """Run it and write the results."""
    size_bytes = round(_FILE_BYTES * options.scale * 9)
    results: dict[str, dict[str, float]] = {}
    with bench_server(options.data) as server, Target(server.conninfo()) as target:
        for name, kind in _KINDS.items():
            path = _write(options.data / "disk_space.csv", kind, size_bytes)
            with psycopg.connect(server.conninfo(), autocommit=True) as connection:
                connection.execute(f"DROP TABLE IF EXISTS k; CREATE TABLE k ({kind.columns}); {kind.index}; CHECKPOINT")
            text_bytes = path.stat().st_size
            took, expected = _load(server.conninfo(), path, kind)
            results[name] = {"text": text_bytes, "took": took, "expected": expected}
            print(f"{name}: {took / text_bytes:.2f} of {expected / text_bytes:.2f} times the text", flush=True)
            path.unlink()
        save(
            "disk_space",
            options=replace(options, runs=1),
            postgresql=target.settings(),
            settings={"file_bytes": size_bytes},
            results=results,
            table=[
                ("table", "times its text at most", "forecast", "error of the forecast"),
                *(
                    (
                        name,
                        f"{found['took'] / found['text']:.2f}",
                        f"{found['expected'] / found['text']:.2f}",
                        f"{found['expected'] / found['took'] - 1:+.0%}",
                    )
                    for name, found in results.items()
                ),
            ],
            notes=[
                (
                    "The highest sum of the files below the server's `base` during a load into an empty table, less "
                    "that before it. The WAL, for which the forecast adds at most max_wal_size, is not counted."
                )
            ],
        )


def _write(path: Path, kind: Kind, size_bytes: int) -> Path:
    rng = random.Random(7)
    with path.open("w", encoding="utf-8") as file:
        number = written = 0
        while written < size_bytes:
            written += file.write(kind.line(rng, number) + "\n")
            number += 1
    return path


def _load(conninfo: str, path: Path, kind: Kind) -> tuple[int, int]:
    """Load a file; return by how much the server's files grew at most, and what was forecast of that."""
    job = TargetJob(
        sources=(str(path),),
        into=parse_table_name("k"),
        columns=tuple(column.split()[0] for column in kind.columns.split(", ")),
        mode=kind.mode,
        key=("a",) if kind.mode == "upsert" else (),
    )
    rules = LoadRules(again=True, indexes="rebuild" if kind.index else "keep")
    with Loader(ConnectionFactory(conninfo)) as loader:
        plan = loader.plan(LoadJob(targets=(replace(job, dialect=replace(job.dialect, header=False)),), rules=rules))
        space = loader.foresee(plan).find_part(DiskSpace)
        assert space is not None
        needs = [need for disk in space.disks for need in disk.needs if need.what != "WAL"]
        with psycopg.connect(conninfo) as connection:
            row = connection.execute("SELECT current_setting('data_directory')").fetchone()
        assert row is not None
        with _highest(Path(row[0]) / "base") as sizes:
            loader.run(plan)
    return max(sizes) - sizes[0], sum(need.needed_bytes for need in needs)


@contextmanager
def _highest(folder: Path) -> Iterator[list[int]]:
    """Look how large a folder is every few milliseconds while the block runs."""
    sizes = [_measure(folder)]
    is_over = threading.Event()

    def look() -> None:
        while not is_over.wait(_LOOK_S):
            sizes.append(_measure(folder))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    yield sizes
    is_over.set()
    thread.join()
    sizes.append(_measure(folder))


def _measure(folder: Path) -> int:
    """Return the bytes that files take, some of which may go meanwhile."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_blocks * 512
        except FileNotFoundError:
            continue
    return total
