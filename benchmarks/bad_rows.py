"""What records cost that the table refuses: one in all, and one in a hundred of each kind, with --on-error reject.

The table has types and constraints here. Each way's file is the same but for its bad records, and is compared with the
clean one on a table with the same constraints.
"""

from __future__ import annotations

import gzip
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from isal import igzip

from benchmarks.cpu import Run, compare, run_once, summarize_runs
from benchmarks.data import PENSTOCK, principals
from benchmarks.record import save
from benchmarks.server import QUALIFIED, SCHEMA, Target, bench_server
from benchmarks.ways import AS_COPY
from penstock_lab.datasets.people import expected_rows

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
_KEY = (*_CONSTRAINTS, "ADD PRIMARY KEY (tconst, ordering)")
_REFERENCE = (*_CONSTRAINTS, f"ADD FOREIGN KEY (category) REFERENCES {SCHEMA}.categories")

Fields = list[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is loaded into a table, and what it is compared with.

    `spoil` makes a record bad, given its fields and those of the one before; None leaves all as they are.
    """

    spoil: Callable[[Fields, Fields], Fields] | None = None
    base: str = "none"
    constraints: tuple[str, ...] = _CONSTRAINTS
    argv: tuple[str, ...] = ()
    is_single: bool = False
    rejects: bool = False


def _mistype(fields: Fields, _before: Fields) -> Fields:
    return [fields[0], b"first", *fields[2:]]


def _shorten(fields: Fields, _before: Fields) -> Fields:
    return fields[:4]


def _lack(fields: Fields, _before: Fields) -> Fields:
    return [b"\\N", *fields[1:]]


def _break_check(fields: Fields, _before: Fields) -> Fields:
    return [fields[0], b"0", *fields[2:]]


def _repeat_key(fields: Fields, before: Fields) -> Fields:
    return [*before[:2], *fields[2:]]


def _refer_to_nothing(fields: Fields, _before: Fields) -> Fields:
    return [*fields[:3], b"nobody", *fields[4:]]


# Two sessions would wait for each other where a pair of records is parted between them and the key is in place.
_ONE_SESSION = ("--sessions", "1")
# With --on-error reject keys and foreign keys stay in place: each is compared with a clean load that is told to reject.
_WAYS: dict[str, Case] = {
    "none": Case(),
    "one in all: a value its type refuses": Case(spoil=_mistype, is_single=True),
    "a value its type refuses": Case(spoil=_mistype),
    "too few fields": Case(spoil=_shorten),
    "null in a NOT NULL column": Case(spoil=_lack),
    "a CHECK violated": Case(spoil=_break_check),
    "none, with a primary key": Case(constraints=_KEY, rejects=True),
    "one in all: a key that is there": Case(
        spoil=_repeat_key, base="none, with a primary key", constraints=_KEY, is_single=True
    ),
    "a key that is there": Case(
        spoil=_repeat_key, base="none, with a primary key", constraints=_KEY, argv=_ONE_SESSION
    ),
    "none, with a foreign key": Case(constraints=_REFERENCE, rejects=True),
    "one in all: a reference to nothing": Case(
        spoil=_refer_to_nothing, base="none, with a foreign key", constraints=_REFERENCE, is_single=True
    ),
    "a reference to nothing": Case(spoil=_refer_to_nothing, base="none, with a foreign key", constraints=_REFERENCE),
}
_CLEAN = "none"
_ONE = "one in all: a value its type refuses"


def run(options: Options) -> None:
    """Run it and write the results."""
    path = principals(options.data, options.scale)
    rows = expected_rows("title.principals", options.scale)
    files = {name: _spoil(path, way, rows=rows) for name, way in _WAYS.items()}
    runs: dict[str, list[Run]] = {name: [] for name in _WAYS}
    with bench_server(options.data) as server, Target(server.conninfo()) as target:
        target.renew_categories(_read_categories(path))
        for number in range(-1, options.runs):
            for name, way in _WAYS.items():
                target.renew(way.constraints)
                bad = _count_bad(way, rows=rows)
                argv = [PENSTOCK, "load", str(files[name]), "--into", QUALIFIED, "--to", server.conninfo()]
                argv += [
                    "--quiet",
                    "--again",
                    *AS_COPY,
                    *way.argv,
                    *(["--on-error", "reject"] if bad or way.rejects else []),
                ]
                found = run_once(argv, server, target, rows=rows - bad, status=_REJECTED if bad else 0)
                print(f"{name}: {found.seconds:.2f} s, {found.cpu_s:.2f} s of CPU", flush=True)
                if number >= 0:
                    runs[name].append(found)
        one = compare(runs[_CLEAN], runs[_ONE]) if options.runs > 1 else None
        save(
            "bad_rows",
            options=options,
            postgresql=target.settings(),
            settings={"rows": rows, "one bad record in": _EVERY},
            results={"one in all": one} | {name: summarize_runs(found) for name, found in runs.items()},
            table=_table(runs),
            notes=[
                f"Every {_EVERY}th record is bad, or one. Clean files are loaded without --on-error reject where the",
                "table has neither key nor foreign key. times: of the clean load of the same table.",
            ]
            + ([] if one is None else [_describe(one)]),
        )


def _describe(one: dict[str, float]) -> str:
    interval = f"{one['low_percent']:+.1f} to {one['high_percent']:+.1f} %"
    return f"One bad record in all: {one['percent']:+.1f} % of client and server CPU, 95 % interval {interval}."


def _table(runs: dict[str, list[Run]]) -> list[tuple[str, ...]]:
    median_s = {name: statistics.median(run.seconds for run in found) for name, found in runs.items()}
    rows = [("bad records", "median s", "times", "CPU s in all")]
    for name, found in runs.items():
        times = median_s[name] / median_s[_WAYS[name].base if _WAYS[name].spoil is not None else name]
        cpu_s = statistics.fmean(run.cpu_s for run in found)
        rows.append((name, f"{median_s[name]:.2f}", f"{times:.2f}", f"{cpu_s:.2f}"))
    return rows


def _count_bad(way: Case, *, rows: int) -> int:
    if way.spoil is None:
        return 0
    return 1 if way.is_single else rows // _EVERY


def _read_categories(path: Path) -> list[str]:
    with gzip.open(path, "rt", encoding="utf-8") as source:
        next(source)
        return sorted({line.split("\t")[3] for line in source})


def _spoil(path: Path, way: Case, *, rows: int) -> Path:
    """Return the file with bad records: the one in the middle, or the last of every hundred."""
    if way.spoil is None:
        return path
    name = f"bad-{way.spoil.__name__.strip('_')}-{'one' if way.is_single else 'some'}"
    target = path.with_name(f"{name}-{path.name}")
    if not target.exists():
        unfinished = target.with_suffix(".new")
        with gzip.open(path, "rb") as source, igzip.open(unfinished, "wb", compresslevel=2) as out:
            out.write(source.readline())
            before: Fields = []
            for index, line in enumerate(source):
                fields = line[:-1].split(b"\t")
                is_bad = index == rows // 2 if way.is_single else index % _EVERY == _EVERY - 1
                out.write(b"\t".join(way.spoil(fields, before)) + b"\n" if is_bad else line)
                before = fields
        unfinished.replace(target)
    return target
