"""Parquet files: penstock, DuckDB's postgres extension, ADBC and polars load the same rows, and what memory each takes.

Two tables: TPC-H's lineitem in shape, and one of numbers, timestamps and uuids. Then penstock alone loads lineitem in
one row group of more than 128 MB, and as a table in memory. The others need `--peers`, the python of an environment
with duckdb, duckdb-extension-postgres-scanner (of one version), adbc-driver-postgresql, polars and pyarrow.
"""

from __future__ import annotations

import random
import statistics
import sys
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import psycopg
from psycopg.conninfo import conninfo_to_dict

from benchmarks.data import PENSTOCK
from benchmarks.processes import Cost, ProcessFailed, run_measured
from benchmarks.record import save, summarize
from benchmarks.rounds import WrongRows
from benchmarks.server import Target, bench_server, make_open_dir
from benchmarks.tpch import lineitem_rows, write_lineitem

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchmarks.options import Options

_SCHEMA = "parquet"
_PENSTOCK = "penstock load"
_GROUP_ROWS = 122_880
_SEED = 20_260_101

_DUCKDB = """
import pathlib, sys, duckdb, duckdb_extension_postgres_scanner as extension
path = next(pathlib.Path(extension.__file__).parent.rglob("*.duckdb_extension"))
session = duckdb.connect()
session.execute(f"LOAD '{path}'")
session.execute(f"ATTACH '{sys.argv[1]}' AS pg (TYPE postgres)")
session.execute(f"INSERT INTO pg.{sys.argv[3]} FROM read_parquet('{sys.argv[2]}')")
"""
_ADBC = """
import sys, adbc_driver_postgresql.dbapi, pyarrow, pyarrow.parquet
schema, table = sys.argv[3].split(".")
file = pyarrow.parquet.ParquetFile(sys.argv[2])
batches = pyarrow.RecordBatchReader.from_batches(file.schema_arrow, file.iter_batches())
with adbc_driver_postgresql.dbapi.connect(sys.argv[1]) as session, session.cursor() as cursor:
    cursor.adbc_ingest(table, batches, mode="append", db_schema_name=schema)
    session.commit()
"""
_POLARS = """
import sys, polars
frame = polars.read_parquet(sys.argv[2])
frame.write_database(sys.argv[3], sys.argv[1], engine="adbc", if_table_exists="append")
"""
_MEMORY = """
import sys, pyarrow.parquet, penstock
table = pyarrow.parquet.read_table(sys.argv[2])
penstock.load(table, sys.argv[3], to=sys.argv[1], no_record=True, vacuum=False)
"""
_PEERS = {"DuckDB's postgres extension": _DUCKDB, "ADBC": _ADBC, "polars": _POLARS}

_LINEITEM = {
    "l_orderkey": "bigint",
    "l_partkey": "bigint",
    "l_suppkey": "bigint",
    "l_linenumber": "integer",
    "l_quantity": "numeric(15, 2)",
    "l_extendedprice": "numeric(15, 2)",
    "l_discount": "numeric(15, 2)",
    "l_tax": "numeric(15, 2)",
    "l_returnflag": "text",
    "l_linestatus": "text",
    "l_shipdate": "date",
    "l_commitdate": "date",
    "l_receiptdate": "date",
    "l_shipinstruct": "text",
    "l_shipmode": "text",
    "l_comment": "text",
}
_NUMBERS = {
    "id": "bigint",
    "part": "integer",
    "price": "double precision",
    "share": "real",
    "made_at": "timestamp",
    "sold_at": "timestamptz",
    "item": "uuid",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """A file and its table; `make_sum` is the expression that all ways must agree on."""

    name: str
    columns: dict[str, str]
    path: Path
    make_sum: str
    has_peers: bool = True

    @property
    def table(self) -> str:
        return f"{_SCHEMA}.{self.name}"


def run(options: Options) -> None:
    """Run it and write the results."""
    rows = max(4, lineitem_rows(options.scale) // 2)
    make_open_dir(options.data)
    cases = _make_cases(options, rows)
    costs: dict[str, dict[str, list[Cost]]] = {}
    notes = ["Each way is a process of its own. Tables exist, and have no index; penstock runs without its VACUUM."]
    with bench_server(options.data) as server, psycopg.connect(server.conninfo(), autocommit=True) as connection:
        for case in cases:
            ways = _list_ways(options, case, server.conninfo())
            costs[case.name] = {name: [] for name in ways}
            sums: dict[str, str] = {}
            for number in range(-1, options.runs):
                for name, argv in list(ways.items()):
                    _renew(connection, case)
                    try:
                        cost = run_measured(argv)
                    except ProcessFailed as failure:
                        notes.append(f"{name} cannot load {case.name}: {str(failure).splitlines()[-1][:200]}")
                        del ways[name], costs[case.name][name]
                        continue
                    sums[name] = _check(connection, case, rows=rows, way=name)
                    print(f"{case.name}, {name}: {cost.seconds:.2f} s", flush=True)
                    if number >= 0:
                        costs[case.name][name].append(cost)
            notes += [
                f"{name} stored other values of {case.name} than penstock: {found}, not {sums[_PENSTOCK]}."
                for name, found in sums.items()
                if found != sums[_PENSTOCK]
            ]
        with Target(server.conninfo()) as target:
            postgresql = target.settings()
    save(
        "parquet",
        options=options,
        postgresql=postgresql,
        settings={"rows": rows, **{f"{case.name}_bytes": case.path.stat().st_size for case in cases}},
        results={name: {way: summarize(runs) for way, runs in found.items()} for name, found in costs.items()},
        table=_table(costs),
        notes=notes,
    )


def _make_cases(options: Options, rows: int) -> list[_Case]:
    lineitem = "round(sum(l_extendedprice * l_quantity) + sum(l_shipdate - date '1992-01-01'), 2)"
    numbers = "sum(id + part) || ' ' || sum(price::numeric(20, 6)) || ' ' || max(made_at) || ' ' || max(item::text)"
    return [
        _Case(name="lineitem", columns=_LINEITEM, make_sum=lineitem, path=_write_lineitem(options, rows)),
        _Case(name="numbers", columns=_NUMBERS, make_sum=numbers, path=_write_numbers(options, rows)),
        _Case(
            name="one_group",
            columns=_LINEITEM,
            make_sum=lineitem,
            path=_write_lineitem(options, rows, is_one_group=True),
            has_peers=False,
        ),
        _Case(
            name="memory", columns=_LINEITEM, make_sum=lineitem, path=_write_lineitem(options, rows), has_peers=False
        ),
    ]


def _list_ways(options: Options, case: _Case, conninfo: str) -> dict[str, list[str]]:
    if case.name == "memory":
        return {_PENSTOCK: [sys.executable, "-c", _MEMORY, conninfo, str(case.path), case.table]}
    load = [PENSTOCK, "load", str(case.path), "--into", case.table, "--to", conninfo, "--quiet", "--again"]
    ways = {_PENSTOCK: [*load, "--no-vacuum"]}
    if options.peers is not None and case.has_peers:
        values = {name: str(value) for name, value in conninfo_to_dict(conninfo).items()}
        arguments = [f"postgresql:///{values.pop('dbname')}?{urlencode(values)}", str(case.path), case.table]
        ways |= {name: [str(options.peers), "-c", program, *arguments] for name, program in _PEERS.items()}
    return ways


def _renew(connection: psycopg.Connection, case: _Case) -> None:
    columns = ", ".join(f"{name} {kind}" for name, kind in case.columns.items())
    connection.execute(f"CREATE SCHEMA IF NOT EXISTS {_SCHEMA}".encode())
    connection.execute(f"DROP TABLE IF EXISTS {case.table}".encode())
    connection.execute(f"CREATE TABLE {case.table} ({columns})".encode())
    connection.execute("CHECKPOINT")


def _check(connection: psycopg.Connection, case: _Case, *, rows: int, way: str) -> str:
    found = connection.execute(f"SELECT count(*), ({case.make_sum})::text FROM {case.table}".encode()).fetchone()
    assert found is not None
    if found[0] != rows:
        raise WrongRows(f"{way} stored {found[0]} rows of {rows}")
    return str(found[1])


def _table(costs: dict[str, dict[str, list[Cost]]]) -> list[tuple[str, ...]]:
    table: list[tuple[str, ...]] = [
        ("table", "way", "median s", "lowest", "highest", "of penstock's time", "CPU s", "peak MB")
    ]
    median: Callable[[list[float]], float] = statistics.median
    for case, found in costs.items():
        own_s = median([cost.seconds for cost in found[_PENSTOCK]])
        for way, runs in found.items():
            taken_s = [cost.seconds for cost in runs]
            shown_s = (f"{each:.2f}" for each in (median(taken_s), min(taken_s), max(taken_s)))
            cpu_s = median([cost.cpu_s or 0.0 for cost in runs])
            peak_mb = max(cost.peak_rss_bytes or 0 for cost in runs) / 1e6
            share = f"{median(taken_s) / own_s:.2f}"
            table.append((case, way, *shown_s, share, f"{cpu_s:.2f}", f"{peak_mb:.0f}"))
    return table


# ---------------------------------------------------------------- files


def _write_lineitem(options: Options, rows: int, *, is_one_group: bool = False) -> Path:
    """Return lineitem.parquet, compressed in groups as DuckDB writes them, or in one group of its plain values."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet as pq

    path = options.data / f"lineitem-{rows}{'-one-group' if is_one_group else ''}.parquet"
    if path.exists():
        return path
    kinds = {
        "bigint": pa.int64(),
        "integer": pa.int32(),
        "numeric(15, 2)": pa.decimal128(15, 2),
        "text": pa.string(),
        "date": pa.date32(),
    }
    table = pyarrow.csv.read_csv(
        write_lineitem(options.data, options.scale),
        read_options=pyarrow.csv.ReadOptions(column_names=list(_LINEITEM)),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types={name: kinds[kind] for name, kind in _LINEITEM.items()}
        ),
    ).slice(0, rows)
    if is_one_group:
        pq.write_table(table, path, row_group_size=rows, compression="none", use_dictionary=False)
    else:
        pq.write_table(table, path, row_group_size=_GROUP_ROWS)
    return path


def _write_numbers(options: Options, rows: int) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = options.data / f"numbers-{rows}.parquet"
    if path.exists():
        return path
    rng = random.Random(_SEED)
    uuids = pa.array([uuid.UUID(bytes=rng.randbytes(16), version=4).bytes for _ in range(rows)], pa.binary(16))
    stamps = [1_600_000_000_000_000 + rng.randrange(10**14) for _ in range(rows)]
    table = pa.table(
        {
            "id": pa.array(range(rows), pa.int64()),
            "part": pa.array([rng.randrange(10**6) for _ in range(rows)], pa.int32()),
            "price": pa.array([rng.uniform(0, 10**6) for _ in range(rows)]),
            "share": pa.array([rng.random() for _ in range(rows)], pa.float32()),
            "made_at": pa.array(stamps, pa.timestamp("us")),
            "sold_at": pa.array(stamps, pa.timestamp("us", "UTC")),
            "item": pa.ExtensionArray.from_storage(pa.uuid(), uuids),
        }
    )
    pq.write_table(table, path, row_group_size=_GROUP_ROWS)
    return path
