"""JSON Lines: penstock loads records by name, beside psql by way of a jsonb column, and the same rows as CSV.

The other way with psql alone is COPY of each line into the jsonb column of a temporary table, then INSERT ... SELECT.
"""

from __future__ import annotations

import csv
import gzip
import json
import random
import statistics
from typing import TYPE_CHECKING

import psycopg

from benchmarks.data import PENSTOCK
from benchmarks.processes import Cost, run_measured
from benchmarks.record import save, summarize
from benchmarks.rounds import WrongRows
from benchmarks.server import Target, bench_server, make_open_dir
from benchmarks.ways import AS_COPY

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchmarks.options import Options
    from penstock.embedded.server import EmbeddedServer

# At scale 1; some 370 MB of JSON.
_RECORDS = 2_000_000
_SEED = 20_261_125
_COLUMNS = {
    "id": "bigint",
    "name": "text",
    "price": "numeric",
    "is_open": "boolean",
    "made_at": "timestamptz",
    "tags": "jsonb",
    "note": "text",
}
_SCHEMA = """
    DROP SCHEMA IF EXISTS json_lines CASCADE;
    CREATE SCHEMA json_lines;
    CREATE TABLE json_lines.t ({columns});
    CREATE TABLE json_lines.docs (doc jsonb);
    CHECKPOINT
"""
# Each line is one field: neither byte is in JSON.
_COPY = "COPY {table} FROM STDIN (FORMAT csv, DELIMITER E'\\x01', QUOTE E'\\x02')"
_OWN = "penstock load f.jsonl.gz"


def run(options: Options) -> None:
    """Run it and write the results."""
    make_open_dir(options.data)
    count = max(10, round(_RECORDS * options.scale))
    paths = _write(options.data, count)
    costs: dict[str, list[Cost]] = {}
    with bench_server(options.data) as server, psycopg.connect(server.conninfo(), autocommit=True) as connection:
        ways = _list_ways(server, *paths)
        sums = dict[str, str]()
        for number in range(-1, options.runs):
            for name, act in ways.items():
                columns = ", ".join(f"{column} {kind}" for column, kind in _COLUMNS.items())
                for statement in _SCHEMA.format(columns=columns).split(";"):
                    connection.execute(statement.encode())
                cost = act()
                print(f"{name}: {cost.seconds:.2f} s", flush=True)
                sums[name] = _check(connection, name, count)
                if number >= 0:
                    costs.setdefault(name, []).append(cost)
        with Target(server.conninfo()) as target:
            postgresql = target.settings()
    if len({each for name, each in sums.items() if "whole" not in name}) > 1:
        raise WrongRows(f"the ways differ in what they stored: {sums}")
    save(
        "json_lines",
        options=options,
        postgresql=postgresql,
        settings={"records": count, **{path.name: path.stat().st_size for path in paths}},
        results={name: summarize(runs) for name, runs in costs.items()},
        table=_table(costs),
        notes=["Each way is one process. The CPU seconds are the client's alone, without gzip's."],
    )


def _list_ways(server: EmbeddedServer, records: Path, rows: Path) -> dict[str, Callable[[], Cost]]:
    def load(path: Path, table: str) -> Callable[[], Cost]:
        argv = [PENSTOCK, "load", str(path), "--into", f"json_lines.{table}", "--to", server.conninfo()]
        return lambda: run_measured([*argv, "--quiet", "--again", *AS_COPY])

    def run_psql(*statements: str) -> Cost:
        commands = [f"--command={statement}" for statement in statements]
        argv = ["--no-psqlrc", "--dbname=postgres", "--set=ON_ERROR_STOP=1", *commands]
        return run_measured(server.psql_argv(argv), gunzip=records)

    def copy_and_insert() -> Cost:
        values = [
            f"(doc ->> '{name}')::{kind}" if kind != "jsonb" else f"doc -> '{name}'" for name, kind in _COLUMNS.items()
        ]
        return run_psql(
            "CREATE TEMPORARY TABLE staged (doc jsonb)",
            _COPY.format(table="staged"),
            f"INSERT INTO json_lines.t SELECT {', '.join(values)} FROM staged",
        )

    return {
        _OWN: load(records, "t"),
        "zcat | psql COPY into a temporary table of jsonb, INSERT ... SELECT": copy_and_insert,
        "penstock load f.csv.gz": load(rows, "t"),
        "penstock load f.jsonl.gz, whole records": load(records, "docs"),
        "zcat | psql COPY into jsonb, whole records": lambda: run_psql(_COPY.format(table="json_lines.docs")),
    }


def _check(connection: psycopg.Connection, way: str, count: int) -> str:
    table = "docs" if "whole" in way else "t"
    found = connection.execute(
        f"SELECT count(*), sum(hashtextextended(x::text, 0))::text FROM json_lines.{table} AS x".encode()
    ).fetchone()
    assert found is not None
    if found[0] != count:
        raise WrongRows(f"{way} stored {found[0]} rows of {count}")
    return str(found[1])


def _table(costs: dict[str, list[Cost]]) -> list[tuple[str, ...]]:
    table: list[tuple[str, ...]] = [("way", "median s", "of penstock's time", "CPU s", "peak MB")]
    own_s = statistics.median([cost.seconds for cost in costs[_OWN]])
    for way, runs in costs.items():
        seconds = statistics.median([cost.seconds for cost in runs])
        cpu_s = statistics.median([cost.cpu_s or 0.0 for cost in runs])
        peak_mb = max(cost.peak_rss_bytes or 0 for cost in runs) / 1e6
        table.append((way, f"{seconds:.2f}", f"{seconds / own_s:.2f}", f"{cpu_s:.2f}", f"{peak_mb:.0f}"))
    return table


def _write(folder: Path, count: int) -> tuple[Path, Path]:
    """Write the same rows as JSON Lines and as CSV, unless the files exist, and return their paths."""
    records, rows = folder / f"json_lines-{count}.jsonl.gz", folder / f"json_lines-{count}.csv.gz"
    if records.exists() and rows.exists():
        return records, rows
    rng = random.Random(_SEED)
    with (
        gzip.open(records, "wt", compresslevel=6, encoding="utf-8") as lines,
        gzip.open(rows, "wt", compresslevel=6, encoding="utf-8", newline="") as table,
    ):
        writer = csv.writer(table)
        writer.writerow(_COLUMNS)
        for number in range(count):
            record = {
                "id": number,
                "name": " ".join(rng.choices(["Ann", "Bob", "été", "plain", "words"], k=3)),
                "price": rng.randrange(10**7) / 100,
                "is_open": rng.random() < 0.5,
                "made_at": f"2026-01-{rng.randrange(1, 29):02d}T{rng.randrange(24):02d}:15:00Z",
                "tags": rng.choices(["red", "green", "blue"], k=rng.randrange(4)),
                "note": rng.choice([None, 'a "quoted" one', "two\nlines", "x" * 40]),
            }
            lines.write(json.dumps(record) + "\n")
            values = record | {"is_open": str(record["is_open"]).lower(), "tags": json.dumps(record["tags"])}
            writer.writerow(values.values())
    return records, rows
