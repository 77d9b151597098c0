"""How fast is a file loaded into a new table whose types are found in it, and is it right? Beside DuckDB and csvkit.

The others need `--peers`, the python of an environment with duckdb, duckdb-extension-postgres-scanner, csvkit and
psycopg2-binary. csvkit gets the first 50th of the records, because it takes so long.
"""

from __future__ import annotations

import random
import statistics
from contextlib import suppress
from datetime import date, timedelta
from decimal import Decimal, InvalidOperation
from itertools import islice
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import psycopg
from psycopg.conninfo import conninfo_to_dict

from benchmarks.data import PENSTOCK
from benchmarks.processes import ProcessFailed, run_measured
from benchmarks.record import save, spread
from benchmarks.server import Target, bench_server, make_open_dir

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.options import Options

# At scale 1.
_RECORDS = 9_000_000
_SEED = 20_261_129
_TABLE = "new_table"
_FEWER = 50

_DUCKDB = """
import pathlib, sys, duckdb, duckdb_extension_postgres_scanner as extension
path = next(pathlib.Path(extension.__file__).parent.rglob("*.duckdb_extension"))
session = duckdb.connect()
session.execute(f"LOAD '{path}'")
session.execute(f"ATTACH '{sys.argv[1]}' AS pg (TYPE postgres)")
session.execute(f"CREATE TABLE pg.new_table AS FROM read_csv('{sys.argv[2]}'{sys.argv[3]})")
"""

# Files, each with what it means, and the options with which each tool is told how it is written.
_EXPORT = "Sales 2025;;;\n;;;\nNo;Customer;Sold;Amount\n001;Müller;31.01.2025;1.234,50\n002;Dupont;13.02.2025;NA\n"
_FILES: dict[str, tuple[dict[str, bytes], list[tuple[str | None, ...]]]] = {
    "export": (
        {"export.csv": _EXPORT.encode("cp1252")},
        [("001", "Müller", "2025-01-31", "1234.50"), ("002", "Dupont", "2025-02-13", None)],
    ),
    "folder": (
        {"1.csv": b"id,qty\n1,5\n2,6\n", "2.csv": b"id,qty,channel\n3,7,web\n", "3.csv": b"id,qty\n4,7.5\n"},
        [("1", "5", None), ("2", "6", None), ("3", "7", "web"), ("4", "7.5", None)],
    ),
    "late": (
        {"late.csv": b"id,code\n" + b"".join(b"%d,%d\n" % (n, n) for n in range(30_000)) + b"30000,A7\n"},
        [*((str(n), str(n)) for n in range(30_000)), ("30000", "A7")],
    ),
}
_TOLD: dict[str, dict[str, list[str]]] = {
    "penstock": {
        "export": [
            *("--encoding", "WIN1252", "--skip-lines", "2", "--null", "NA", "--decimal-comma", "*"),
            *("--thousands", ".", "--date-order", "dmy"),
        ],
        "folder": ["--add-columns"],
    },
    "DuckDB": {
        "export": [
            ", encoding='latin-1', skip=2, decimal_separator=',', thousands='.', dateformat='%d.%m.%Y', nullstr='NA'"
        ],
        "folder": [", union_by_name=true"],
        "late": [", sample_size=-1"],
    },
    "csvkit": {"export": ["-e", "cp1252", "-K", "2", "-d", ";", "--date-format", "%d.%m.%Y", "--locale", "de_DE"]},
}


def run(options: Options) -> None:
    """Run it and write the results."""
    make_open_dir(options.data)
    rows = round(_RECORDS * options.scale)
    path, part = _write(options.data, rows), _write(options.data, rows // _FEWER)
    ways = ["penstock", *(["DuckDB", "csvkit"] if options.peers is not None else [])]
    speeds: dict[str, list[float]] = {way: [] for way in ways}
    found: dict[str, dict[str, dict[str, str]]] = {}
    with (
        bench_server(options.data) as server,
        psycopg.connect(server.conninfo(), autocommit=True, prepare_threshold=None) as connection,
    ):
        for number in range(-1, options.runs):
            for way in ways:
                count = rows // _FEWER if way == "csvkit" else rows
                _drop(connection)
                cost = run_measured(_compose(way, options, server.conninfo(), [part if way == "csvkit" else path], []))
                assert connection.execute(f"SELECT count(*) FROM {_TABLE}".encode()).fetchone() == (count,)
                print(f"{way}: {count / cost.seconds:,.0f} records/s", flush=True)
                if number >= 0:
                    speeds[way].append(count / cost.seconds)
        for name, (files, wanted) in _FILES.items():
            paths = _write_all(options.data / name, files)
            for way in ways:
                for how in ("as it is", "told"):
                    if way == "csvkit" and len(paths) > 1:
                        found.setdefault(way, {}).setdefault(name, {})[how] = "a table each"
                        continue
                    told = _TOLD[way].get(name, []) if how == "told" else []
                    argv = _compose(way, options, server.conninfo(), paths, told)
                    found.setdefault(way, {}).setdefault(name, {})[how] = _try(connection, argv, wanted)
        with Target(server.conninfo()) as target:
            postgresql = target.settings()
    save(
        "new_tables",
        options=options,
        postgresql=postgresql,
        settings={"rows": rows, "text_bytes": path.stat().st_size},
        results={way: {"records_per_s": spread(speeds[way]), "runs": speeds[way], "files": found[way]} for way in ways},
        table=[
            ("way", "records/s", *(f"{name}, {how}" for name in _FILES for how in ("as it is", "told"))),
            *(
                (
                    way,
                    f"{statistics.median(speeds[way]):,.0f}",
                    *(each for of in found[way].values() for each in of.values()),
                )
                for way in ways
            ),
        ],
        notes=[
            "Seven columns: integers, a date, a time, an amount, text and a boolean. Types are found in all values, by",
            "DuckDB in the first ones. Files: an export with title lines, decimal commas, days first, NA and cp1252; a",
            "folder of which one file has another column (csvsql makes a table of each file); a column with its first",
            "word in line 30,002.",
        ],
    )


def _compose(way: str, options: Options, conninfo: str, paths: list[Path], told: list[str]) -> list[str]:
    names = [str(path) for path in paths]
    if way == "penstock":
        load = [PENSTOCK, "load", *names, "--into", _TABLE, "--to", conninfo, "--quiet", "--again", "--no-vacuum"]
        return [*load, "--create", "--types", "infer", *told]
    assert options.peers is not None
    if way == "DuckDB":
        name = names[0] if len(names) == 1 else str(paths[0].parent / "*.csv")
        return [str(options.peers), "-c", _DUCKDB, conninfo, name, *(told or [""])]
    values = {name: str(value) for name, value in conninfo_to_dict(conninfo).items()}
    url = f"postgresql+psycopg2:///{values.pop('dbname')}?{urlencode(values)}"
    return [str(options.peers.with_name("csvsql")), "--db", url, "--insert", "--tables", _TABLE, *told, *names]


def _try(connection: psycopg.Connection, argv: list[str], wanted: list[tuple[str | None, ...]]) -> str:
    """Load files and return what became of them."""
    _drop(connection)
    try:
        run_measured(argv)
    except ProcessFailed:
        return "refused"
    rows = connection.execute(f"SELECT * FROM {_TABLE}".encode()).fetchall()
    found = sorted((tuple(map(_normalize, row)) for row in rows), key=repr)
    return "right" if found == sorted((tuple(map(_normalize, row)) for row in wanted), key=repr) else "other values"


def _normalize(value: object) -> object:
    """Return a number as a number, if it is not a code with zeros before it, anything else as text."""
    text = None if value is None else str(value)
    if text is not None and not text.startswith("0"):
        with suppress(InvalidOperation):
            return Decimal(text).normalize()
    return text


def _drop(connection: psycopg.Connection) -> None:
    connection.execute(f"DROP TABLE IF EXISTS {_TABLE}".encode())
    connection.execute("DROP SCHEMA IF EXISTS penstock CASCADE")
    connection.execute("CHECKPOINT")


def _write_all(folder: Path, files: dict[str, bytes]) -> list[Path]:
    make_open_dir(folder)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return [folder / name for name in files]


def _write(folder: Path, count: int) -> Path:
    path = folder / f"new-{count}.csv"
    if not path.exists():
        path.write_text("".join(islice(_lines(), count + 1)))
    return path


def _lines() -> Iterator[str]:
    chance, number = random.Random(_SEED), 0
    yield "id,day,at,amount,customer,note,active\n"
    while True:
        day = date(2020, 1, 1) + timedelta(days=number % 2000)
        time = f"{number % 24:02}:{number % 60:02}:{number % 59:02}"
        amount = f"{chance.randrange(10**6) / 100:.2f},{chance.randrange(50_000)}"
        yield f"{number},{day},{day} {time},{amount},note number {number % 977},{'true' if number % 3 else 'false'}\n"
        number += 1
