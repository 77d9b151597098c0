"""What records cost that the table refuses: one in all, and one in a hundred of each kind, with --on-error reject.

The table has types and constraints here. Each way's file is the same but for its bad records.
"""

from __future__ import annotations

import gzip
import statistics
from typing import TYPE_CHECKING

from isal import igzip

from benchmarks.cpu import Run, compare, run_once, summarize_runs
from benchmarks.data import PENSTOCK, principals
from benchmarks.record import save
from benchmarks.server import QUALIFIED, Target, bench_server
from penstock.lab.imdb import expected_rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchmarks.options import Options

_EVERY = 100
_REJECTED = 3

_CONSTRAINTS = (
    "ALTER COLUMN ordering TYPE integer USING ordering::integer",
    "ALTER COLUMN tconst SET NOT NULL",
    "ADD CHECK (ordering > 0)",
)

# What is done to the fields of a bad record.
_KINDS: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "a value its type refuses": lambda fields: [fields[0], b"first", *fields[2:]],
    "too few fields": lambda fields: fields[:4],
    "null in a NOT NULL column": lambda fields: [b"\\N", *fields[1:]],
    "a CHECK violated": lambda fields: [fields[0], b"0", *fields[2:]],
}
_CLEAN = "none"
_ONE = "one in all: a value its type refuses"


def run(options: Options) -> None:
    """Run it and write the results."""
    path = principals(options.data, options.scale)
    rows = expected_rows("title.principals", options.scale)
    middle = rows // 2
    files = {_CLEAN: (path, 0), _ONE: (_spoil(path, "one", _KINDS["a value its type refuses"], at=middle), 1)}
    for number, (kind, spoil) in enumerate(_KINDS.items()):
        files[kind] = (_spoil(path, f"kind-{number}", spoil), -(-rows // _EVERY))
    runs: dict[str, list[Run]] = {kind: [] for kind in files}
    with bench_server(options.data) as server, Target(server.conninfo()) as target:
        for number in range(-1, options.runs):
            for kind, (file, bad) in files.items():
                target.renew(_CONSTRAINTS)
                argv = [
                    PENSTOCK,
                    "load",
                    str(file),
                    "--into",
                    QUALIFIED,
                    "--to",
                    server.conninfo(),
                    "--quiet",
                    "--again",
                ]
                argv += ["--on-error", "reject"] if bad else []
                found = run_once(argv, server, target, rows=rows - bad, status=_REJECTED if bad else 0)
                print(f"{kind}: {found.seconds:.2f} s, {found.cpu_s:.2f} s of CPU", flush=True)
                if number >= 0:
                    runs[kind].append(found)
        one = compare(runs[_CLEAN], runs[_ONE]) if options.runs > 1 else None
        save(
            "bad_rows",
            options=options,
            postgresql=target.settings(),
            settings={"rows": rows, "one bad record in": _EVERY},
            results={"one in all": one} | {kind: summarize_runs(found) for kind, found in runs.items()},
            table=_table(runs),
            notes=[
                f"Every {_EVERY}th record is bad, or one. The clean file is loaded without --on-error reject.",
            ]
            + ([] if one is None else [_describe(one)]),
        )


def _describe(one: dict[str, float]) -> str:
    interval = f"{one['low_percent']:+.1f} to {one['high_percent']:+.1f} %"
    return f"One bad record in all: {one['percent']:+.1f} % of client and server CPU, 95 % interval {interval}."


def _table(runs: dict[str, list[Run]]) -> list[tuple[str, ...]]:
    clean_s = statistics.median(run.seconds for run in runs[_CLEAN])
    rows = [("bad records", "median s", "times", "CPU s in all")]
    for kind, found in runs.items():
        median_s = statistics.median(run.seconds for run in found)
        cpu_s = statistics.fmean(run.cpu_s for run in found)
        rows.append((kind, f"{median_s:.2f}", f"{median_s / clean_s:.2f}", f"{cpu_s:.2f}"))
    return rows


def _spoil(path: Path, name: str, spoil: Callable[[list[bytes]], list[bytes]], *, at: int | None = None) -> Path:
    """Return the file with bad records: the one at an index, or every hundredth."""
    target = path.with_name(f"{name}-bad-{path.name}")
    if not target.exists():
        unfinished = target.with_suffix(".new")
        with gzip.open(path, "rb") as source, igzip.open(unfinished, "wb", compresslevel=2) as out:
            out.write(source.readline())
            for number, line in enumerate(source):
                is_bad = number % _EVERY == 0 if at is None else number == at
                out.write(b"\t".join(spoil(line[:-1].split(b"\t"))) + b"\n" if is_bad else line)
        unfinished.replace(target)
    return target
