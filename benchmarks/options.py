"""What every benchmark can be told."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.record import RECORDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Where data and results go, how much is loaded, how often.

    At scale 1/9 title.principals has 10 million rows. `command` is what was typed; `commit` is that of the code that
    runs. `record` is one whose tables and plot are written again, without measuring.
    """

    scale: float
    runs: int
    data: Path
    results: Path
    tspc: Path | None
    baseline: Path | None = None
    pollock: Path | None = None
    peers: Path | None = None
    packages: Path | None = None
    pg_bin: tuple[Path, ...] = ()
    record: Path | None = None
    only_old: bool = False
    on_busy: bool = False
    # The options as they were typed.
    given: tuple[str, ...] = ()
    command: str = ""
    commit: str = ""


def read_options(arguments: list[str] | None = None) -> tuple[list[str], Options]:
    """Return the names of the benchmarks to run and the options."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Runs benchmarks, all by default.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="what to run; `list` shows it")
    parser.add_argument("--scale", type=float, default=1 / 9, help="size of the set; 1/9 is 10 million rows")
    parser.add_argument("--runs", type=int, default=7, help="counted runs of each way, after one warm-up")
    parser.add_argument(
        "--data",
        type=Path,
        default=Path(os.environ.get("PENSTOCK_BENCH_DATA", "/tmp/penstock-bench")),  # noqa: S108 (--data overrules)
        help="folder for files and servers, kept between runs (PENSTOCK_BENCH_DATA)",
    )
    parser.add_argument("--results", type=Path, default=RECORDS, help="folder for results")
    parser.add_argument("--tspc", type=Path, help="timescaledb-parallel-copy's binary; without it, it is left out")
    parser.add_argument("--baseline", type=Path, help="another penstock's command, for ledger_overhead")
    parser.add_argument("--pollock", type=Path, help="a checkout of Pollock; without it, it is left out")
    parser.add_argument(
        "--peers", type=Path, help="python of an environment with the other tools, for parquet and new_tables"
    )
    parser.add_argument("--packages", type=Path, help="a site-packages folder, for real_types; see there")
    parser.add_argument("--pg-bin", type=Path, action="append", default=[], help="another PostgreSQL, for copy_format")
    parser.add_argument("--record", type=Path, help="compute a record again from its runs; measure nothing")
    parser.add_argument("--only-old", action="store_true", help="with `records`: only those that are missing or old")
    parser.add_argument("--on-busy", action="store_true", help="with `records`: do not wait until the machine is idle")
    typed = sys.argv[1:] if arguments is None else arguments
    given = parser.parse_args(typed)
    options = Options(
        scale=given.scale,
        runs=given.runs,
        data=given.data.absolute(),
        results=given.results,
        tspc=given.tspc,
        baseline=given.baseline,
        pollock=given.pollock,
        peers=given.peers,
        packages=given.packages,
        pg_bin=tuple(given.pg_bin),
        record=given.record,
        only_old=given.only_old,
        on_busy=given.on_busy,
        given=tuple(word for word in typed if word not in (*given.names, "--only-old", "--on-busy")),
        command=shlex.join(["python", "-m", "benchmarks", *typed]),
    )
    return given.names, options
