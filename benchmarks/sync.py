"""`--mode sync` beside statements by hand: COPY into a temporary table, then MERGE, or INSERT and DELETE.

The table has a primary key and an index. The file has most of its rows, some of them changed, and new ones; the rows
that it does not have are deleted. `--mode upsert` shows what the deletion adds.
"""

from __future__ import annotations

import gzip
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

# At scale 1; some 180 MB of CSV.
_ROWS = 3_000_000
# Of the table's rows, how many the file does not have, and how many are new there.
_MISSING = _NEW = 0.05
_SEED = 20_261_127
_COLUMNS = "id bigint, name text, price numeric, changed_at timestamptz, note text"
_SETUP = """
    DROP SCHEMA IF EXISTS sync_bench CASCADE;
    CREATE SCHEMA sync_bench;
    CREATE TABLE sync_bench.t ({columns}, PRIMARY KEY (id));
    INSERT INTO sync_bench.t
    SELECT n, md5(n::text), n % 9973 / 100.0, '2026-01-01'::timestamptz + n * interval '1 s', repeat('x', n % 40)
      FROM generate_series(1, {rows}) AS n;
    CREATE INDEX ON sync_bench.t (changed_at)
"""
_SET = "SET name = s.name, price = s.price, changed_at = s.changed_at, note = s.note"
_MERGE = f"""
    MERGE INTO sync_bench.t AS t USING staged AS s ON t.id = s.id
     WHEN MATCHED THEN UPDATE {_SET}
     WHEN NOT MATCHED BY TARGET THEN INSERT VALUES (s.id, s.name, s.price, s.changed_at, s.note)
     WHEN NOT MATCHED BY SOURCE THEN DELETE
"""
_INSERT = f"INSERT INTO sync_bench.t SELECT * FROM staged ON CONFLICT (id) DO UPDATE {_SET.replace('s.', 'EXCLUDED.')}"
_DELETE = "DELETE FROM sync_bench.t AS t WHERE NOT EXISTS (SELECT FROM staged AS s WHERE s.id = t.id)"
_OWN, _UPSERT = "penstock load --mode sync", "penstock load --mode upsert"


def run(options: Options) -> None:
    """Run it and write the results."""
    make_open_dir(options.data)
    rows = max(100, round(_ROWS * options.scale))
    path = _write(options.data, rows)
    costs: dict[str, list[Cost]] = {}
    sums = dict[str, str]()
    with bench_server(options.data) as server, psycopg.connect(server.conninfo(), autocommit=True) as connection:
        for number in range(-1, options.runs):
            for name, act in _list_ways(server, path).items():
                for statement in _SETUP.format(columns=_COLUMNS, rows=rows).split(";"):
                    connection.execute(statement.encode())
                connection.execute("VACUUM (ANALYZE) sync_bench.t")
                connection.execute("CHECKPOINT")
                cost = act()
                print(f"{name}: {cost.seconds:.2f} s", flush=True)
                sums[name] = _check(connection)
                if number >= 0:
                    costs.setdefault(name, []).append(cost)
        with Target(server.conninfo()) as target:
            postgresql = target.settings()
    if len({each for name, each in sums.items() if name != _UPSERT}) > 1:
        raise WrongRows(f"the ways differ in what they stored: {sums}")
    save(
        "sync",
        options=options,
        postgresql=postgresql,
        settings={"rows": rows, "missing": _MISSING, "new": _NEW, "file_bytes": path.stat().st_size},
        results={name: summarize(runs) for name, runs in costs.items()},
        table=_table(costs),
        notes=["Each way is one process and one last transaction. The CPU seconds are the client's, without gzip's."],
    )


def _list_ways(server: EmbeddedServer, path: Path) -> dict[str, Callable[[], Cost]]:
    def load(*mode: str) -> Callable[[], Cost]:
        argv = [PENSTOCK, "load", str(path), "--into", "sync_bench.t", "--to", server.conninfo(), "--key", "id"]
        return lambda: run_measured([*argv, "--quiet", "--again", *AS_COPY, "--mode", *mode])

    def by_hand(*statements: str) -> Callable[[], Cost]:
        prepared = (
            "BEGIN",
            f"CREATE TEMPORARY TABLE staged ({_COLUMNS})",
            "COPY staged FROM STDIN (FORMAT csv, HEADER)",
        )
        commands = [f"--command={each}" for each in (*prepared, "ANALYZE staged", *statements, "COMMIT")]
        argv = ["--no-psqlrc", "--dbname=postgres", "--set=ON_ERROR_STOP=1", *commands]
        return lambda: run_measured(server.psql_argv(argv), gunzip=path)

    return {
        _OWN: load("sync"),
        "zcat | psql, MERGE": by_hand(_MERGE),
        "zcat | psql, INSERT ... ON CONFLICT, DELETE": by_hand(_INSERT, _DELETE),
        _UPSERT: load("upsert"),
    }


def _check(connection: psycopg.Connection) -> str:
    query = "SELECT concat_ws(' ', count(*), sum(hashtextextended(t::text, 0))) FROM sync_bench.t"
    row = connection.execute(query).fetchone()
    assert row is not None
    return str(row[0])


def _table(costs: dict[str, list[Cost]]) -> list[tuple[str, ...]]:
    table: list[tuple[str, ...]] = [("way", "median s", "lowest", "highest", "of penstock's time", "CPU s", "peak MB")]
    own_s = statistics.median([cost.seconds for cost in costs[_OWN]])
    for way, runs in costs.items():
        seconds = [cost.seconds for cost in runs]
        cpu_s = statistics.median([cost.cpu_s or 0.0 for cost in runs])
        peak_mb = max(cost.peak_rss_bytes or 0 for cost in runs) / 1e6
        shown = (f"{choose(seconds):.2f}" for choose in (statistics.median, min, max))
        table.append((way, *shown, f"{statistics.median(seconds) / own_s:.2f}", f"{cpu_s:.2f}", f"{peak_mb:.0f}"))
    return table


def _write(folder: Path, rows: int) -> Path:
    """Write a file of the rows, without the last of them and in another order, and of new rows."""
    path = folder / f"sync-{rows}.csv.gz"
    if not path.exists():
        noise = random.Random(_SEED)
        keys = [*range(1, round(rows * (1 - _MISSING)) + 1), *range(rows + 1, round(rows * (1 + _NEW)) + 1)]
        noise.shuffle(keys)
        unfinished = path.with_suffix(".new")
        with gzip.open(unfinished, "wt", encoding="ascii", compresslevel=3) as file:
            file.write("id,name,price,changed_at,note\n")
            for key in keys:
                cents = noise.randrange(1_000_000)
                file.write(
                    f"{key},name {key},{cents / 100:.2f},2026-11-{key % 28 + 1:02} 10:00:00+00,{'y' * (key % 40)}\n"
                )
        unfinished.replace(path)
    return path
