"""Rows sent as text, as csv with and without quotes, and in COPY's binary format; and what a value of a type saves.

Each shape of table is stored by the server's own COPY of each form, and by penstock, of which the server's share is
shown beside. Then whole processes load a `.csv.gz`. Tables of ten columns of one type tell what one value in the binary
format saves of CPU, client and server together: loading/copy/encoded.py has these figures. All is done on the default
server and, in turn, on those of `--pg-bin`.
"""

from __future__ import annotations

import gzip
import random
import statistics
import uuid
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from benchmarks.cpu import run_once, summarize_runs
from benchmarks.data import PENSTOCK
from benchmarks.record import markdown, save
from benchmarks.server import Target, bench_server, make_open_dir
from benchmarks.tpch import lineitem_rows, write_lineitem
from penstock.embedded.installations import default_installation, installation_at, read_version
from penstock.loading.copy.encoded import gains_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from benchmarks.cpu import Run
    from benchmarks.options import Options
    from penstock.embedded.server import EmbeddedServer

_SEED = 20_261_125
_SCHEMA = "copy_format"
_PSQL = "zcat | psql"
# So many values of one type in a row that the row itself counts little.
_CELLS = 10
# Texts are cut from it: to draw each letter would take minutes.
_POOL = "".join(random.Random(_SEED).choices("abcdefghijklmnopqrstuvwxyz ", k=1 << 20))

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
    def cut(rng: random.Random) -> str:
        at = rng.randrange(len(_POOL) - count)
        return _POOL[at : at + count]

    return cut


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
    "text 1000": ("text", _letters(1000)),
}
_LINEITEM_SHAPE = "lineitem"
_TITLES = "IMDb's titles"
# Each shape's types, and which share of the rows of a whole process it has. A type with ? is null in half of the rows.
_SHAPES: dict[str, tuple[tuple[str, ...], int]] = {
    "mixed": (("int4", "int8", "float8", "timestamptz", "numeric", "uuid"), 10),
    "six texts of 4": (("text 4",) * 6, 3),
    "six texts of 32": (("text 32",) * 6, 10),
    "six texts of 200": (("text 200",) * 6, 30),
    "one text of 1000": (("text 1000",), 30),
    _LINEITEM_SHAPE: ((), 15),
    _TITLES: (("text 12", "text 4", "text 32", "text 32", "bool", "int4", "int2?", "int2?", "text 12?"), 10),
}
# The options of the server's COPY, and of penstock, of each form of a file. The server reads the binary format too.
_FORMS = {
    "text": ("FORMAT text", ["--format", "text"]),
    "csv": ("FORMAT csv", ["--format", "csv"]),
    "quoted csv": ("FORMAT csv", ["--format", "csv"]),
}
# The shapes that whole processes load, in which form, and which share of the rows.
_WHOLE = (
    ("mixed", "csv", 2),
    ("lineitem", "csv", 2),
    ("six texts of 32", "quoted csv", 3),
    ("six texts of 200", "csv", 10),
    ("six texts of 200", "quoted csv", 10),
)
_WHOLE_WAYS = ("text", "auto", _PSQL)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """A table and the ways to fill it: by name, the arguments of a process and a file that it gets decompressed."""

    name: str
    columns: str
    rows: int
    files: dict[str, Path]
    ways: Callable[[EmbeddedServer], dict[str, tuple[list[str], Path | None]]]


class _Tables(Target):
    """The table of the case that runs, on one server."""

    def __init__(self, server: EmbeddedServer) -> None:
        super().__init__(server.conninfo())
        self.server = server
        self.major = server.spec.installation.major

    def renew_case(self, case: _Case) -> None:
        """Drop the case's table, and create it, empty."""
        self._connection.execute(f"DROP SCHEMA IF EXISTS {_SCHEMA} CASCADE")
        self._connection.execute(f"CREATE SCHEMA {_SCHEMA}")
        self._connection.execute(f"CREATE TABLE {_SCHEMA}.t ({case.columns})".encode())
        self._connection.execute("CHECKPOINT")

    def count(self) -> int:
        """Return that table's rows."""
        row = self._connection.execute(f"SELECT count(*) FROM {_SCHEMA}.t").fetchone()
        assert row is not None
        return int(row[0])

    def write_binary(self, case: _Case, path: Path) -> None:
        """Write a case's rows in the binary format."""
        self.renew_case(case)
        self._connection.execute(f"COPY {_SCHEMA}.t FROM '{case.files['csv']}' (FORMAT csv)".encode())
        copied = f"COPY {_SCHEMA}.t TO STDOUT (FORMAT binary)"
        with path.open("wb") as file, self._connection.cursor().copy(copied) as copy:
            for part in copy:
                file.write(part)


_Found = dict[tuple[str, int], dict[str, list["Run"]]]


def run(options: Options) -> None:
    """Run it and write the results."""
    make_open_dir(options.data)
    rows = lineitem_rows(options.scale)
    installations = [default_installation(), *map(installation_at, options.pg_bin)]
    with ExitStack() as stack:
        servers = []
        for each in installations:
            server = stack.enter_context(bench_server(options.data, name=f"server{each.major}", installation=each))
            servers.append(stack.enter_context(_Tables(server)))
        parts = [
            [_make_shape(options.data, name, rows) for name in _SHAPES],
            [_make_whole(options.data, *each, rows=rows) for each in _WHOLE],
            [_make_cells(options.data, name, rows) for name in _TYPES if name != "text 1000"],
        ]
        cases = [case for part in parts for case in part]
        for case in parts[0]:
            if not case.files["binary"].exists():
                servers[0].write_binary(case, case.files["binary"])
        found = {}
        for case in cases:
            found |= _measure(case, servers, runs=options.runs)
        settings = servers[0].settings()
    majors = [each.major for each in servers]
    shapes, whole, cells = parts
    save(
        "copy_format",
        options=options,
        postgresql={**settings, "server_version": ", ".join(map(read_version, installations))},
        settings={
            case.name: {"rows": case.rows, "bytes": {name: path.stat().st_size for name, path in case.files.items()}}
            for case in cases
        },
        results={
            f"{name}, PostgreSQL {major}": {way: summarize_runs(runs) for way, runs in ways.items()}
            for (name, major), ways in found.items()
        },
        table=_tell_shapes(shapes, majors, found),
        notes=[
            "CPU of the server, ns a row: of its own COPY of a file in each form, and of loads by penstock.",
            "",
            *markdown(_tell_whole(whole, majors, found)),
            "",
            "Whole processes that load a `.csv.gz`, medians; CPU in ns a row.",
            "",
            *markdown(_tell_cells(cells, majors, found)),
            "",
            (
                "CPU in ns that a value in the binary format saves, client and server together. Beside it is the "
                "constant of src/penstock/loading/copy/encoded.py."
            ),
            "No table has an index; penstock does no VACUUM.",
        ],
    )


def _measure(case: _Case, servers: list[_Tables], *, runs: int) -> _Found:
    """Run each way on each server in turn, after a warm-up."""
    found: _Found = {(case.name, tables.major): {} for tables in servers}
    for number in range(-1, runs):
        for tables in servers:
            for name, (argv, packed) in case.ways(tables.server).items():
                tables.renew_case(case)
                cost = run_once(argv, tables.server, tables, rows=case.rows, gunzip=packed)
                print(f"{case.name}, {tables.major}, {name}: {cost.seconds:.2f} s, CPU {cost.cpu_s:.2f} s", flush=True)
                if number >= 0:
                    found[case.name, tables.major].setdefault(name, []).append(cost)
    return found


# ---------------------------------------------------------------- ways


def _load(path: Path, server: EmbeddedServer, form: str, *, copy_format: str = "auto") -> list[str]:
    load = [PENSTOCK, "load", str(path), "--into", f"{_SCHEMA}.t", "--to", server.conninfo(), "--quiet", "--again"]
    load += ["--no-vacuum", "--no-header", "--indexes", "keep", "--copy-format", copy_format]
    return [*load, *_FORMS[form][1]]


def _psql(server: EmbeddedServer, command: str) -> list[str]:
    return server.psql_argv(["--no-psqlrc", "--dbname=postgres", "--command", command])


def _shape_ways(server: EmbeddedServer, files: dict[str, Path]) -> dict[str, tuple[list[str], Path | None]]:
    forms = {**{name: options for name, (options, _) in _FORMS.items()}, "binary": "FORMAT binary"}
    ways = {
        name: _psql(server, f"COPY {_SCHEMA}.t FROM '{files[name]}' ({options})") for name, options in forms.items()
    }
    ways |= {f"penstock, {form}": _load(files[form], server, form) for form in ("text", "quoted csv")}
    return {name: (argv, None) for name, argv in ways.items()}


def _whole_ways(server: EmbeddedServer, packed: Path, form: str) -> dict[str, tuple[list[str], Path | None]]:
    psql = _psql(server, f"COPY {_SCHEMA}.t FROM STDIN ({_FORMS[form][0]})")
    return {way: (_load(packed, server, form, copy_format=way), None) for way in _WHOLE_WAYS[:2]} | {
        _PSQL: (psql, packed)
    }


# ---------------------------------------------------------------- tables


def _median_ns(runs: list[Run], case: _Case, measure: str) -> float:
    return 1e9 * statistics.median(getattr(run, measure) for run in runs) / case.rows


def _tell_shapes(cases: list[_Case], majors: list[int], found: _Found) -> list[tuple[str, ...]]:
    names = [*found[cases[0].name, majors[0]]]
    table: list[tuple[str, ...]] = [("table", "PostgreSQL", *names)]
    for case in cases:
        for major in majors:
            ways = found[case.name, major]
            values = [f"{_median_ns(ways[name], case, 'server_cpu_s'):.0f}" for name in names]
            table.append((case.name, str(major), *values))
    return table


def _tell_whole(cases: list[_Case], majors: list[int], found: _Found) -> list[tuple[str, ...]]:
    table: list[tuple[str, ...]] = [("file", "PostgreSQL", "way", "s", f"{_PSQL} / this", "client", "server")]
    for case in cases:
        for major in majors:
            ways = found[case.name, major]
            seconds = {name: statistics.median(run.seconds for run in runs) for name, runs in ways.items()}
            for name, runs in ways.items():
                cpu = [f"{_median_ns(runs, case, measure):.0f}" for measure in ("client_cpu_s", "server_cpu_s")]
                ratio = f"{seconds[_PSQL] / seconds[name]:.2f}"
                table.append((case.name, str(major), name, f"{seconds[name]:.2f}", ratio, *cpu))
    return table


def _tell_cells(cases: list[_Case], majors: list[int], found: _Found) -> list[tuple[str, ...]]:
    heading = [text for major in majors for text in (f"saves on {major}", f"constant for {major}")]
    table: list[tuple[str, ...]] = [("type", *heading)]
    for case in cases:
        row = [case.name]
        for major in majors:
            ways = found[case.name, major]
            before, after = (_median_ns(ways[name], case, "cpu_s") for name in ("text", "binary"))
            row += [f"{(before - after) / _CELLS:.0f}", f"{_gain_in_use(case.name, major):.0f}"]
        table.append(tuple(row))
    return table


def _gain_in_use(name: str, major: int) -> float:
    """Return what a value of a type saves by the constants with which penstock chooses a format."""
    gains = gains_of(major)
    kind, _, width = name.partition(" ")
    if kind != "text":
        return gains.by_kind[kind]
    return max(gains.least_text_ns, gains.text_ns_per_byte * int(width) - gains.text_ns)


# ---------------------------------------------------------------- files


def _make_shape(data: Path, name: str, rows: int) -> _Case:
    """Return a shape's case, with a file of each form."""
    rows = max(4, rows // _SHAPES[name][1] // 4 * 4)
    files = {form: _write(data, name, form, rows) for form in _FORMS}
    files["binary"] = files["csv"].with_suffix(".binary")
    return _Case(
        name=name,
        columns=_columns(name),
        rows=rows,
        files=files,
        ways=lambda server: _shape_ways(server, files),
    )


def _make_whole(data: Path, name: str, form: str, share: int, *, rows: int) -> _Case:
    """Return the case of whole processes that load one compressed file."""
    rows = max(4, rows // share // 4 * 4)
    packed = _pack(_write(data, name, form, rows))
    return _Case(
        name=f"{name}, {form}",
        columns=_columns(name),
        rows=rows,
        files={form: packed},
        ways=lambda server: _whole_ways(server, packed, form),
    )


def _make_cells(data: Path, name: str, rows: int) -> _Case:
    """Return the case of a table of one type, so large that starting penstock counts little."""
    rows = max(100, rows // (50 if name == "text 200" else 10))
    path = _pack(_write(data, name, "csv", rows))
    ways = ("text", "binary")
    return _Case(
        name=name,
        columns=_columns(name),
        rows=rows,
        files={"csv": path},
        ways=lambda server: {way: (_load(path, server, "csv", copy_format=way), None) for way in ways},
    )


def _types(name: str) -> tuple[str, ...]:
    return _SHAPES[name][0] if name in _SHAPES else (name,) * _CELLS


def _columns(name: str) -> str:
    if name == _LINEITEM_SHAPE:
        return _LINEITEM
    types = [_TYPES[each.rstrip("?")][0] for each in _types(name)]
    return ", ".join(f"c{number} {each}" for number, each in enumerate(types))


def _write(data: Path, name: str, form: str, rows: int) -> Path:
    """Return a file of a shape or a type in a form; it is written once. The rows of each form are the same."""
    word = name.replace(" ", "-").replace("'", "")
    path = data / f"copy-format-{word}-{rows}.{form.replace(' ', '-')}"
    if not path.exists():
        unfinished = path.with_suffix(".new")
        with unfinished.open("w", encoding="ascii") as file:
            file.writelines(_spell(values, form) for values in _draw(data, name, rows))
        unfinished.replace(path)
    return path


def _draw(data: Path, name: str, rows: int) -> Iterator[list[str]]:
    """Yield the values of each row; an empty one is null. None has a delimiter, a quote or a backslash."""
    if name == _LINEITEM_SHAPE:
        with write_lineitem(data, rows / 27_000_000).open(encoding="ascii") as file:
            yield from (line.rstrip("\n").split(",") for line in file)
        return
    rng = random.Random(f"{_SEED} {name}")
    makers = [(_TYPES[each.rstrip("?")][1], each.endswith("?")) for each in _types(name)]
    for _ in range(rows):
        yield ["" if is_nullable and rng.random() < 0.5 else make(rng) for make, is_nullable in makers]


def _spell(values: Iterable[str], form: str) -> str:
    if form == "text":
        return "\t".join(value or "\\N" for value in values) + "\n"
    if form == "csv":
        return ",".join(values) + "\n"
    return ",".join(f'"{value}"' if value else "" for value in values) + "\n"


def _pack(path: Path) -> Path:
    packed = path.with_name(f"{path.name}.gz")
    if not packed.exists():
        packed.write_bytes(gzip.compress(path.read_bytes(), compresslevel=1))
    return packed
