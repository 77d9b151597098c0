"""100,000 small objects into one table, and the same load again, which finds all of them loaded."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from benchmarks.data import PENSTOCK
from benchmarks.processes import run_measured
from benchmarks.record import save, summarize
from benchmarks.rounds import WrongRows
from benchmarks.server import SCHEMA, Target, bench_server, make_open_dir
from benchmarks.ways import AS_COPY

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.options import Options
    from benchmarks.processes import Cost

# At the scale of the other benchmarks, 1/9.
_OBJECTS_AT_FULL_SCALE = 900_000
_RECORDS = 10


def run(options: Options) -> None:
    """Run it and write the results."""
    count = max(1, round(_OBJECTS_AT_FULL_SCALE * options.scale))
    folder = _small_objects(options.data, count)
    costs: dict[str, list[Cost]] = {"load": [], "again: nothing to load": []}
    with bench_server(options.data) as server, Target(server.conninfo()) as target:
        argv = [
            PENSTOCK,
            "load",
            str(folder),
            "--into",
            f"{SCHEMA}.small",
            "--to",
            server.conninfo(),
            "--quiet",
            *AS_COPY,
        ]
        for number in range(-1, options.runs):
            target.renew_small()
            for name, more in (("load", ["--again"]), ("again: nothing to load", [])):
                cost = run_measured([*argv, *more])
                print(f"{name}: {cost.seconds:.2f} s", flush=True)
                if number >= 0:
                    costs[name].append(cost)
            if (rows := target.count_small()) != count * _RECORDS:
                raise WrongRows(f"{rows} rows of {count * _RECORDS}")
        rates = {name: count / statistics.median(cost.seconds for cost in found) for name, found in costs.items()}
        save(
            "small_objects",
            options=options,
            postgresql=target.settings(),
            settings={"objects": count, "records_each": _RECORDS},
            results={name: summarize(found) for name, found in costs.items()},
            table=[
                ("run", "median s", "objects/s", "client CPU s", "peak MB"),
                *(_row(name, found, rates[name]) for name, found in costs.items()),
            ],
            notes=[f"{count:,} local files of {_RECORDS} records."],
        )


def _row(name: str, costs: list[Cost], rate: float) -> tuple[str, ...]:
    return (
        name,
        f"{statistics.median(cost.seconds for cost in costs):.2f}",
        f"{rate:,.0f}",
        f"{statistics.median(cost.cpu_s or 0.0 for cost in costs):.2f}",
        f"{max(cost.peak_rss_bytes or 0 for cost in costs) / 1e6:.0f}",
    )


def _small_objects(data: Path, count: int) -> Path:
    """Return a folder of that many csv files."""
    folder = data / f"small-{count}"
    if not folder.exists():
        make_open_dir(data)
        unfinished = folder.with_suffix(".new")
        unfinished.mkdir(parents=True, exist_ok=True)
        for number in range(count):
            records = "".join(f"{number * _RECORDS + n},text of record {n}\n" for n in range(_RECORDS))
            (unfinished / f"{number:07}.csv").write_text(f"a,b\n{records}", encoding="ascii")
        unfinished.rename(folder)
    return folder
