"""Exports of RDS snapshots, as AWS writes them, are loaded into the tables that were exported."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import psycopg
import pyarrow as pa
import pytest

from cli.conftest import run_process
from support.dumps import dump, restore
from support.exports import export_table, make_export, write_export
from support.loads import Loads

if TYPE_CHECKING:
    from pathlib import Path

    from cli.conftest import Finished
    from support.servers import PgServer

# All types that AWS's documentation names, but money, whose text depends on the locale.
_TYPES = """
CREATE TYPE mood AS ENUM ('sad', 'so so');
CREATE TYPE pair AS (a int, b text);
CREATE DOMAIN positive AS numeric CHECK (VALUE > 0);
CREATE TABLE kinds (
    id bigint PRIMARY KEY, i integer, s smallint, n numeric, p numeric(12,2), d double precision, r real, b boolean,
    c char(5), v varchar(20), t text, bits bit(3), vb bit varying, by bytea, m mood, nm name, ts tsvector, tq tsquery,
    da date, iv interval, ti time, tz time with time zone, st timestamp, sz timestamp with time zone,
    bo box, ci circle, li line, ls lseg, pa path, po point, pg polygon, j json, jb jsonb,
    cd cidr, ine inet, ma macaddr, o oid, ls2 pg_lsn, ra int4range, u uuid, co pair, dom positive,
    ai int[], at text[], att timestamptz[], am numeric[][]
);
INSERT INTO kinds VALUES (
    1, -2147483648, -32768, 'NaN', -1234567890.12, 0.1, 1.5, true,
    'ab', 'x', E'tab\\t nl\\n "q" \\\\ é', B'101', B'10', '\\x00ff5c', 'so so', 'n', 'a:1 b:2', 'a & b',
    '0044-03-15 BC', '1 year -2 mons 3 days 04:05:06.789', '24:00', '12:00+05:30', 'infinity',
    '2026-11-25 07:00:00.123456+02', '(1,1),(0,0)', '<(0,0),1>', '{1,2,3}', '[(0,0),(1,1)]', '((0,0),(1,1))', '(1,2)',
    '((0,0),(1,1),(1,0))', '{"a": "\\u00e9"}', '{"b": [1, null]}', '10.0.0.0/8', '::1',
    '08:00:2b:01:02:03', 4294967295, '16/B374D848', '[1,5)', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '(1,"x,y")', 3.14,
    '{1,NULL,3}', '{"a,b","NULL",NULL,""}', '{"2026-01-01 00:00+00",infinity}', '{{1.10,NaN},{2,3}}');
INSERT INTO kinds (id, t, v, i) VALUES (2, '', '', NULL), (9223372036854775807, NULL, NULL, 2147483647);
INSERT INTO kinds SELECT (jsonb_populate_record(k, jsonb_build_object('id', 10 + g))).*
  FROM kinds AS k, generate_series(1, 500) AS g WHERE k.id = 1
"""

_TABLES = """
CREATE SCHEMA old;
CREATE TABLE customers (id int PRIMARY KEY, name text);
CREATE TABLE orders (id int PRIMARY KEY, customer int REFERENCES customers, total numeric(10,2));
CREATE TABLE old.orders (id int PRIMARY KEY, note text);
CREATE TABLE empty (id int);
"""

# A loader that kills itself when it has written the given number of blocks.
_PROGRAM = """
import os, signal, sys
from penstock.cli.main import main
from penstock.loading.files.columnar import text
from penstock.loading import loader
from penstock.core.tuning import BatchPlan, LoadTuning

left = int(sys.argv[1])

def write(*args):
    global left
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    left -= 1
    return write_rows(*args)

write_rows, text.write_rows = text.write_rows, write
batch = BatchPlan(limit_bytes=2_000, duration_s=None, chunk_bytes=500, round_trips_per_chunk=0)
tuning = LoadTuning(batch=batch)
class Loader(loader.Loader):
    def __init__(self, *args, **options):
        super().__init__(*args, **options, tuning=tuning)
loader.Loader = Loader
sys.exit(main(sys.argv[2:]))
"""


def _load(source: Path | str, conninfo: str, *options: str) -> Finished:
    return run_process("load", str(source), "--to", conninfo, "--no-record", *options)


def _shop(folder: Path, **options: object) -> Path:
    customers = pa.table({"id": pa.array([1, 2], pa.int32()), "name": ["Ann", "Bob"]})
    orders = [
        pa.table(
            {
                "id": pa.array(range(n, n + 200), pa.int32()),
                "customer": pa.array([1] * 200, pa.int32()),
                "total": ["1.50"] * 200,
            }
        )
        for n in (0, 200)
    ]
    old = pa.table({"id": pa.array([7], pa.int32()), "note": ["old"]})
    tables = {"public.orders": orders, "public.customers": customers, "old.orders": old, "public.empty": []}
    return write_export(folder, make_export(tables, **options))  # type: ignore[arg-type]


@pytest.mark.part("rest")
def test_values_of_every_type_are_those_that_were_exported(database: str, tmp_path: Path) -> None:
    """Numbers, booleans and bytes as such, all others as strings: a table of the same types is the same."""
    loads = Loads(database, setup=_TYPES)
    with psycopg.connect(database) as connection:
        rows = export_table(connection, "public.kinds")
    assert rows.num_rows == 503
    folder = write_export(tmp_path / "e", make_export({"public.kinds": [rows.slice(0, 300), rows.slice(300)]}))
    loads.execute(
        "ALTER TABLE kinds RENAME TO source; ALTER INDEX kinds_pkey RENAME TO p; CREATE TABLE kinds (LIKE source)"
    )
    finished = _load(folder, database)
    assert finished.code == 0, finished.err
    differing = "(SELECT k::text FROM {} AS k EXCEPT ALL SELECT k::text FROM {} AS k)"
    for one, other in (("source", "kinds"), ("kinds", "source")):
        assert loads.execute(f"SELECT count(*) FROM {differing.format(one, other)} AS d") == [(0,)]


def test_all_tables_are_loaded_referenced_ones_first(database18: str, tmp_path: Path) -> None:
    """Two of one name into their schemas, whatever the exported database was called; run again, nothing is loaded."""
    loads = Loads(database18, setup=_TABLES)
    folder = _shop(tmp_path / "renamed copy [1]")
    finished = _load(folder, database18, "--json")
    assert finished.code == 0, finished.err
    assert finished.object["rows"] == 403
    assert [notice["code"] for notice in finished.object["warnings"]] == ["export", "references"]
    assert (loads.count("orders"), loads.count("customers"), loads.rows("old.orders")) == (400, 2, [(7, "old")])
    again = _load(folder, database18, "--json")
    assert (again.code, again.object["rows"], again.object["objects_skipped"]) == (0, 0, 4)


def test_one_table_comes_back_by_replace(database18: str, tmp_path: Path) -> None:
    """Named by its folder, in an export whose folder has AWS's name; other tables are not touched."""
    loads = Loads(database18, setup=_TABLES)
    folder = _shop(tmp_path / "nightly-0700")
    loads.execute("INSERT INTO old.orders VALUES (1, 'damaged'); INSERT INTO customers VALUES (9, 'new')")
    finished = _load(f"{folder}/shop/old.orders/", database18, "--mode", "replace")
    assert finished.code == 0, finished.err
    assert (loads.rows("old.orders"), loads.rows("customers")) == ([(7, "old")], [(9, "new")])


def test_database_is_restored_from_an_export_and_the_definitions_of_another(
    pg18: PgServer, database18: str, tmp_path: Path
) -> None:
    """By the three commands of docs/snapshot-exports.md: all but the rows by pg_dump, sequences behind them."""
    source = Loads(database18, setup=_TABLES)
    source.execute(
        "ALTER TABLE orders ALTER id ADD GENERATED BY DEFAULT AS IDENTITY; CREATE INDEX ON orders (customer)"
    )
    folder = _shop(tmp_path)
    target = Loads(pg18.fresh_database())
    for section in ("pre-data", "post-data"):
        restore(pg18, dump(pg18, database18, "--schema-only", f"--section={section}"), target.conninfo)
        if section == "pre-data":
            finished = _load(folder, target.conninfo)
            assert finished.code == 0, finished.err
    assert (target.count("orders"), target.count("customers"), target.rows("old.orders")) == (400, 2, [(7, "old")])
    assert target.execute("INSERT INTO orders (customer) VALUES (2) RETURNING id") == [(400,)]
    keys = "SELECT count(*) FROM pg_constraint WHERE contype IN ('p', 'f') AND conrelid = ANY (%s::regclass[])"
    assert target.execute(keys % "'{orders,customers,old.orders}'") == [(4,)]


@pytest.mark.part("rest")
def test_generated_columns_are_skipped_by_option(database18: str, tmp_path: Path) -> None:
    """Of the tables that have them: AWS exports them as columns like others."""
    loads = Loads(
        database18,
        setup="CREATE TABLE a (id int, twice int GENERATED ALWAYS AS (id * 2) STORED); CREATE TABLE b (id int)",
    )
    tables = {"public.a": pa.table({"id": [1], "twice": [2]}), "public.b": pa.table({"id": [1]})}
    folder = write_export(tmp_path / "e", make_export(tables))
    refused = _load(folder, database18)
    assert 'column "twice" is generated and cannot be loaded' in refused.err
    finished = _load(folder, database18, "--skip", "twice", "--missing", "default")
    assert finished.code == 0, finished.err
    assert (loads.rows("a"), loads.rows("b")) == ([(1, 2)], [(1,)])


def test_tables_are_created_with_the_types_of_parquet(database18: str, tmp_path: Path) -> None:
    """What AWS exports as strings is text then."""
    loads = Loads(database18, setup="CREATE SCHEMA old")
    finished = _load(_shop(tmp_path), database18, "--create")
    assert finished.code == 0, finished.err
    types = "SELECT pg_typeof(id)::text, pg_typeof(customer)::text, pg_typeof(total)::text FROM orders LIMIT 1"
    assert loads.execute(types) == [("integer", "integer", "text")]
    assert not loads.has_table("empty")


@pytest.mark.part("rest")
def test_plan_shows_the_table_of_each_folder(database18: str, tmp_path: Path) -> None:
    """With the warnings of the export, and nothing is done."""
    Loads(database18, setup=_TABLES)
    entries = [{"target": "shop.public.big", "status": "FAILED", "failureCause": "row over 2 GB"}]
    finished = _load(_shop(tmp_path, entries=entries), database18, "--plan")
    assert finished.code == 0, finished.err
    assert [line for line in finished.out.splitlines() if line.startswith("table")] == [
        "table    public.orders (exists)",
        "table    public.customers (exists)",
        "table    old.orders (exists)",
    ]
    assert '"shop.public.big" is not in the export: status FAILED: row over 2 GB' in finished.err
    strict = _load(_shop(tmp_path, entries=entries), database18, "--warnings", "error")
    assert strict.code == 2


@pytest.mark.parametrize("damage", ["unmarked", "cut", "short"])
def test_damaged_export_loads_nothing(database18: str, tmp_path: Path, damage: str) -> None:
    """A copy without a mark, one with a part that was cut off, and one with fewer rows than the file's footer says."""
    loads = Loads(database18, setup=_TABLES)
    folder = _shop(tmp_path)
    table = folder / "shop" / "public.customers" / "1"
    (part,) = table.glob("*.parquet")
    if damage == "unmarked":
        (table / "_SUCCESS").unlink()
    elif damage == "cut":
        part.write_bytes(part.read_bytes()[:-100])
    else:
        part.write_bytes(_claim_more_rows(part.read_bytes()))
    finished = _load(folder, database18, "--atomic")
    assert finished.code != 0
    assert {
        "unmarked": 'table "public.customers" is not whole in the export',
        "cut": "it is not a valid Parquet file",
        "short": "it is not a valid Parquet file",
    }[damage] in finished.err
    assert (loads.count("orders"), loads.count("customers")) == (0, 0)


def _claim_more_rows(data: bytes) -> bytes:
    """Return a file of 2 rows whose footer says 3 of the file and its row group (Thrift's zigzag: 4 becomes 6)."""
    at = data.index(b"PAR1", 4) - 4
    begin = at - int.from_bytes(data[at : at + 4], "little")
    footer = data[begin:at]
    # num_rows of FileMetaData and of the RowGroup: fields of type i64 behind a list and behind an i64.
    changed = re.sub(rb"\x16\x04", b"\x16\x06", footer)
    assert changed != footer
    return data[:begin] + changed + data[at:]


@pytest.mark.parametrize("source", ["folder", "a.csv", "missing/"])
def test_folder_that_is_no_export_needs_a_table(tmp_path: Path, source: str) -> None:
    """As any other source; no server is asked."""
    (tmp_path / "folder").mkdir()
    finished = run_process("load", str(tmp_path / source))
    assert (finished.code, finished.err.splitlines()[0]) == (2, "error: no table to load into")


@pytest.mark.part("rest")
def test_killed_load_of_an_export_is_resumed(database18: str, tmp_path: Path) -> None:
    """By the same command: no row of any table is lost or repeated."""
    loads = Loads(database18, setup=_TABLES)
    orders = [
        pa.table({"id": pa.array(range(n, n + 50), pa.int32()), "customer": [None] * 50, "total": ["1.50"] * 50})
        for n in range(0, 2_000, 50)
    ]
    notes = pa.table({"id": pa.array([7], pa.int32()), "note": ["old"]})
    folder = write_export(tmp_path, make_export({"public.orders": orders, "old.orders": notes}))
    argv = [
        sys.executable,
        "-c",
        _PROGRAM,
        "30",
        "load",
        str(folder),
        "--to",
        database18,
        "--no-record",
        "--sessions",
        "1",
    ]
    killed = subprocess.run(argv, check=False, env=os.environ | {"PYTHONPATH": "src"})
    assert killed.returncode == -signal.SIGKILL
    assert 0 < loads.count("orders") < 2_000
    finished = _load(folder, database18)
    assert finished.code == 0, finished.err
    assert loads.execute("SELECT count(*), count(DISTINCT id) FROM orders") == [(2_000, 2_000)]
    assert loads.count("old.orders") == 1
