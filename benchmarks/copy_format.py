"""Rows sent as text and in COPY's binary format: tables that suit it and that do not, and what a value of a type saves.

Each table is loaded as text, in the binary format, by --copy-format auto, and by `zcat | psql`. Then tables of ten
columns of one type tell what one value saves of CPU, client and server together: loading/copy/payload.py has these
figures.
"""

from __future__ import annotations

import gzip
import random
import statistics
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from benchmarks.cpu import run_once, summarize_runs
from benchmarks.data import PENSTOCK
from benchmarks.record import save
from benchmarks.server import Target, bench_server, make_open_dir
from benchmarks.tpch import lineitem_rows, write_lineitem
from penstock.loading.copy.payload import GAINS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from benchmarks.cpu import Run
    from benchmarks.options import Options
    from penstock.lab.embedded import EmbeddedServer

_SEED = 20_261_125
_SCHEMA = "copy_format"
_FORMATS = ("text", "binary", "auto")
_PSQL = "zcat | psql"
_RANDOM_TABLES = 3
# Seconds are noisier than CPU: tables are loaded so many times as often as those of one type.
_MORE_RUNS = 2
# So many values of one type in a row that the row itself counts little.
_CELLS = 10

_LINEITEM = (
    "l_orderkey bigint NOT NULL, l_partkey bigint NOT NULL, l_suppkey bigint NOT NULL, l_linenumber integer NOT NULL, "
    "l_quantity numeric(15, 2) NOT NULL, l_extendedprice numeric(15, 2) NOT NULL, l_discount numeric(15, 2) NOT NULL, "
    "l_tax numeric(15, 2) NOT NULL, l_returnflag char(1) NOT NULL, l_linestatus char(1) NOT NULL, "
    "l_shipdate date NOT NULL, l_commitdate date NOT NULL, l_receiptdate date NOT NULL, "
    "l_shipinstruct char(25) NOT NULL, l_shipmode char(10) NOT NULL, l_comment varchar(44) NOT NULL"
)


def _moment(rng: random.Random) -> datetime:
    return datetime(2000, 1, 1, tzinfo=UTC) + timedelta(microseconds=rng.randrange(10**15))


def _letters(count: int) -> Callable[[random.Random], str]:
    return lambda rng: "".join(rng.choices("abcdefghijklmnopqrstuvwxyz ", k=count))


# Of each type: its name in SQL, and how a value is made. Texts are named by their width.
_TYPES: dict[str, tuple[str, Callable[[random.Random], str]]] = {
    "bool": ("boolean", lambda rng: rng.choice("tf")),
    "int2": ("smallint", lambda rng: str(rng.randrange(-(2**15), 2**15))),
    "int4": ("integer", lambda rng: str(rng.randrange(-(2**31), 2**31))),
    "int8": ("bigint", lambda rng: str(rng.randrange(-(2**63), 2**63))),
    "float4": ("real", lambda rng: f"{rng.uniform(-1e6, 1e6):.6g}"),
    "float8": ("double precision", lambda rng: repr(rng.uniform(-1e6, 1e6))),
    "numeric": ("numeric(15, 2)", lambda rng: f"{rng.uniform(0, 1e6):.2f}"),
    "date": ("date", lambda rng: _moment(rng).date().isoformat()),
    "timestamp": ("timestamp", lambda rng: f"{_moment(rng):%Y-%m-%d %H:%M:%S.%f}"),
    "timestamptz": ("timestamptz", lambda rng: f"{_moment(rng):%Y-%m-%d %H:%M:%S.%f}+00"),
    "uuid": ("uuid", lambda rng: str(uuid.UUID(int=rng.getrandbits(128), version=4))),
    "text 4": ("text", _letters(4)),
    "text 12": ("text", _letters(12)),
    "text 32": ("text", _letters(32)),
    "text 200": ("text", _letters(200)),
}
_MIXED = ("int4", "int8", "float8", "timestamptz", "numeric", "uuid")
# So many rows of these types are a block. A sign in front of a number makes a block go as text.
_BLOCK_ROWS = 4_400
_SIGN = "+"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """A file and the table that it fills; `key` is a primary key that is kept."""

    name: str
    columns: str
    path: Path
    rows: int
    key: str = ""


class _Tables(Target):
    """The table of the case that runs."""

    case: _Case

    def renew_case(self) -> None:
        """Drop the case's table, and create it, empty."""
        key = f", PRIMARY KEY ({self.case.key})" if self.case.key else ""
        self._connection.execute(f"DROP SCHEMA IF EXISTS {_SCHEMA} CASCADE")
        self._connection.execute(f"CREATE SCHEMA {_SCHEMA}")
        self._connection.execute(f"CREATE TABLE {_SCHEMA}.t ({self.case.columns}{key})".encode())
        self._connection.execute("CHECKPOINT")

    def count(self) -> int:
        """Return that table's rows."""
        row = self._connection.execute(f"SELECT count(*) FROM {_SCHEMA}.t").fetchone()
        assert row is not None
        return int(row[0])


def run(options: Options) -> None:
    """Run it and write the results."""
    make_open_dir(options.data)
    rows = lineitem_rows(options.scale)
    cases = [*_tables(options.data, rows), *(_cells(options.data, rows, name) for name in _TYPES)]
    found: dict[str, dict[str, list[Run]]] = {}
    with bench_server(options.data) as server, _Tables(server.conninfo()) as tables:
        for case in cases:
            tables.case = case
            ways = _ways(case, server)
            runs = found[case.name] = {name: [] for name in ways}
            for number in range(-1, options.runs if case.name in _TYPES else _MORE_RUNS * options.runs):
                for name, (argv, packed) in ways.items():
                    tables.renew_case()
                    cost = run_once(argv, server, tables, rows=case.rows, gunzip=packed)
                    print(f"{case.name}, {name}: {cost.seconds:.2f} s, CPU {cost.cpu_s:.2f} s", flush=True)
                    if number >= 0:
                        runs[name].append(cost)
        settings = tables.settings()
    save(
        "copy_format",
        options=options,
        postgresql=settings,
        settings={case.name: {"rows": case.rows, "bytes": case.path.stat().st_size} for case in cases},
        results={
            name: {way: summarize_runs(runs) for way, runs in found_of.items()} for name, found_of in found.items()
        },
        table=_table(cases, found),
        notes=[
            f"Each way is a process of its own. Tables are loaded {_MORE_RUNS} times as often as those of one type.",
            "They have no index, keyed keeps its key; penstock does no VACUUM.",
            (
                "A value's gain is the CPU of client and server as text minus that in the binary format. Beside it is "
                "the constant of src/penstock/load/copy/payload.py, the median of several runs of this benchmark."
            ),
        ],
    )


def _ways(case: _Case, server: EmbeddedServer) -> dict[str, tuple[list[str], Path | None]]:
    load = [PENSTOCK, "load", str(case.path), "--into", f"{_SCHEMA}.t", "--to", server.conninfo(), "--quiet"]
    load += ["--again", "--no-vacuum", "--no-header", "--format", "csv", "--indexes", "keep", "--copy-format"]
    is_cells = case.name in _TYPES
    ways: dict[str, tuple[list[str], Path | None]] = {
        name: ([*load, name], None) for name in (_FORMATS[:2] if is_cells else _FORMATS)
    }
    if not is_cells:
        statement = f"COPY {_SCHEMA}.t FROM STDIN (FORMAT csv)"
        ways[_PSQL] = (server.psql_argv(["--no-psqlrc", "--dbname=postgres", "--command", statement]), case.path)
    return ways


def _table(cases: list[_Case], found: dict[str, dict[str, list[Run]]]) -> list[tuple[str, ...]]:
    heading: tuple[str, ...] = ("table", "way", "median s", "as text / this", "client CPU ns/row", "server CPU ns/row")
    heading += ("ns/value saved", "in choose.py")
    table: list[tuple[str, ...]] = [heading]
    for case in cases:
        of_case = found[case.name]
        text_s = statistics.median(run.seconds for run in of_case["text"])
        for way, runs in of_case.items():
            seconds = statistics.median(run.seconds for run in runs)
            client, server = (
                f"{1e9 * statistics.median(values) / case.rows:.0f}"
                for values in ([run.client_cpu_s for run in runs], [run.server_cpu_s for run in runs])
            )
            saved, used = "", ""
            if case.name in _TYPES and way == "binary":
                before, after = (statistics.median(run.cpu_s for run in of_case[name]) for name in ("text", "binary"))
                saved, used = f"{1e9 * (before - after) / case.rows / _CELLS:.0f}", f"{_gain_in_use(case.name):.0f}"
            table.append((case.name, way, f"{seconds:.2f}", f"{text_s / seconds:.2f}", client, server, saved, used))
    return table


def _gain_in_use(name: str) -> float:
    """Return what a value of a type saves by the constants with which penstock chooses a format."""
    kind, _, width = name.partition(" ")
    if kind != "text":
        return GAINS.by_kind[kind]
    return max(GAINS.least_text_ns, GAINS.text_ns_per_byte * int(width) - GAINS.text_ns)


# ---------------------------------------------------------------- files


def _tables(data: Path, rows: int) -> Iterable[_Case]:
    yield _made(data, "mixed", _MIXED, rows)
    yield _made(data, "alternating", _MIXED, rows, signed=2 * _BLOCK_ROWS)
    yield _made(data, "every 11th", _MIXED, rows, signed=11 * _BLOCK_ROWS)
    lineitem = _pack(_write_lineitem(data, rows))
    yield _Case(name="lineitem", columns=_LINEITEM, path=lineitem, rows=rows // 2)
    yield _Case(name="keyed", columns=_LINEITEM, path=lineitem, rows=rows // 2, key="l_orderkey, l_linenumber")
    yield _made(data, "short texts", ("text 4",) * 6, rows)
    rng = random.Random(_SEED)
    for number in range(1, _RANDOM_TABLES + 1):
        yield _made(data, f"random {number}", rng.choices([*_TYPES], k=10), rows // 4)


def _write_lineitem(data: Path, rows: int) -> Path:
    """Return lineitem.csv with half as many rows as the other tables have."""
    return write_lineitem(data, rows / 2 / 27_000_000)


def _cells(data: Path, rows: int, name: str) -> _Case:
    """Return the case of a table of one type, so large that starting penstock counts little."""
    return _made(data, name, (name,) * _CELLS, max(100, rows // (50 if name == "text 200" else 10)))


def _made(data: Path, name: str, types: Iterable[str], rows: int, *, signed: int = 0) -> _Case:
    """Return the case of a table of these types; its file is written once. One of `signed` rows begins with a sign."""
    types = tuple(types)
    path = data / f"copy-format-{name.replace(' ', '-')}-{rows}.csv.gz"
    if not path.exists():
        rng = random.Random(f"{_SEED} {name}")
        makers = [_TYPES[each][1] for each in types]
        unfinished = path.with_suffix(".new")
        with gzip.open(unfinished, "wt", compresslevel=1, encoding="ascii") as file:
            for number in range(1, rows + 1):
                sign = _SIGN if signed and number % signed == 0 else ""
                file.write(sign + ",".join(make(rng).lstrip("-" if sign else "") for make in makers) + "\n")
        unfinished.replace(path)
    columns = ", ".join(f"c{number} {_TYPES[each][0]}" for number, each in enumerate(types))
    return _Case(name=name, columns=columns, path=path, rows=rows)


def _pack(path: Path) -> Path:
    packed = path.with_suffix(".csv.gz")
    if not packed.exists():
        packed.write_bytes(gzip.compress(path.read_bytes(), compresslevel=6))
    return packed
