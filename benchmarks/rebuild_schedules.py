"""Five ways to make a key and four indexes of a loaded table on two cores, and what penstock does."""

from __future__ import annotations

import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

import psycopg

from benchmarks.record import save, spread
from benchmarks.rounds import WrongRows
from benchmarks.server import Target, bench_server
from benchmarks.tpch import INDEXES, KEY, LINEITEM, Warehouse, lineitem_rows, write_lineitem
from penstock.changes.context import Context
from penstock.changes.journal import restore
from penstock.changes.records import TableStore, write_changes
from penstock.changes.tables.indexes import drop_parts, make_changes
from penstock.changes.tables.kind import TableRequest
from penstock.changes.tables.kinds import KINDS
from penstock.changes.tables.parts import capture_tree
from penstock.core.catalogue.catalog import find_table
from penstock.core.connect.connection import ConnectionFactory
from penstock.core.values.job import LoadRules, TargetJob
from penstock.core.values.names import parse_table_name
from penstock.ledger.ledger import Ledger

if TYPE_CHECKING:
    from benchmarks.options import Options

_MEMORY = "1GB"
_NOBODY = "00000000-0000-4000-8000-000000000000"
_OURS = "penstock"
# The key's own: ADD CONSTRAINT takes it over. Largest first by what they take when made.
_KEY_INDEX = "lineitem_pkey"
_CATALOGUE = {_KEY_INDEX: "(l_orderkey, l_linenumber)", **INDEXES}
_LARGEST = ("lineitem_comment", "lineitem_shipmode", _KEY_INDEX, "lineitem_part_supplier", "lineitem_shipdate")


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """How many sessions take indexes, in which order, with how many parallel workers each."""

    sessions: int
    order: tuple[str, ...]
    workers: int


_SCHEDULES = {
    "one session, no workers": Schedule(sessions=1, order=_LARGEST, workers=0),
    "one session, two workers": Schedule(sessions=1, order=_LARGEST, workers=2),
    "two sessions, largest first": Schedule(sessions=2, order=_LARGEST, workers=0),
    "two sessions, as in the catalogue": Schedule(sessions=2, order=tuple(_CATALOGUE), workers=0),
    "all at once": Schedule(sessions=len(_CATALOGUE), order=_LARGEST, workers=0),
}


def run(options: Options) -> None:
    """Run it and write the results."""
    rows = lineitem_rows(options.scale)
    path = write_lineitem(options.data, options.scale)
    seconds: dict[str, list[float]] = {name: [] for name in (*_SCHEDULES, _OURS)}
    with bench_server(options.data) as server, Warehouse(server.conninfo()) as warehouse:
        warehouse.make(rows)
        warehouse.renew(has_indexes=False)
        statement = f"COPY {LINEITEM} FROM STDIN (FORMAT csv)"
        with path.open("rb") as source, warehouse.connection.cursor() as cursor, cursor.copy(statement) as copy:
            while block := source.read(1 << 20):
                copy.write(block)
        warehouse.vacuum()
        _make_by_schedule(server.conninfo(), _SCHEDULES["all at once"])
        whole = warehouse.describe()
        for number in range(-1, options.runs):
            for name, found in seconds.items():
                taken_s = _time(name, server.conninfo(), warehouse)
                if warehouse.describe() != whole:
                    raise WrongRows(f"{name} made other indexes")
                print(f"{name}: {taken_s:.2f} s", flush=True)
                if number >= 0:
                    found.append(taken_s)
        with Target(server.conninfo()) as target:
            postgresql = target.settings()
        best_s = min(statistics.median(seconds[name]) for name in _SCHEDULES)
        table: list[tuple[str, ...]] = [("schedule", "median s", "times the best of the five")]
        for name, found in seconds.items():
            table.append((name, f"{statistics.median(found):.2f}", f"{statistics.median(found) / best_s:.2f}"))
        save(
            "rebuild_schedules",
            options=options,
            postgresql=postgresql,
            settings={"rows": rows, "maintenance_work_mem": _MEMORY},
            results={name: {"runs": found, "seconds": spread(found)} for name, found in seconds.items()},
            table=table,
            notes=[
                f"Each session has maintenance_work_mem {_MEMORY}, or for penstock a share of the machine's memory."
            ],
        )


def _time(name: str, conninfo: str, warehouse: Warehouse) -> float:
    """Take all indexes away, have what is dirty written, and return the seconds in which they are there again."""
    with ConnectionFactory(conninfo).connect() as connection:
        oid = _drop_indexes(connection)
        warehouse.connection.execute("CHECKPOINT")
        began_s = time.perf_counter()
        if name == _OURS:
            store = TableStore(connection=connection, schema="penstock")
            connect = ConnectionFactory(conninfo)
            context = Context(store=store, kinds=KINDS, connect=connect, notice=print, is_local=True)
            restore(context, [oid]).raise_first()
        else:
            _make_by_schedule(conninfo, _SCHEDULES[name])
        taken_s = time.perf_counter() - began_s
        connection.execute("DELETE FROM penstock.changes")
    return taken_s


def _drop_indexes(connection: psycopg.Connection) -> int:
    """Write the table's key and indexes down, and drop them."""
    Ledger().ensure(connection)
    name = parse_table_name(LINEITEM)
    table = find_table(connection, name)
    assert table is not None
    parts = capture_tree(connection, table.oid)
    assert parts is not None
    request = TableRequest(
        table=table, job=TargetJob(sources=("lineitem.csv",), into=name), rules=LoadRules(), load_id=_NOBODY
    )
    changes = make_changes(parts, request, indexes=parts.indexes, foreign_keys=())
    write_changes(connection, "penstock", changes)
    with connection.transaction():
        drop_parts(connection, table.oid, changes)
    return table.oid


def _make_by_schedule(conninfo: str, schedule: Schedule) -> None:
    waiting: SimpleQueue[str] = SimpleQueue()
    for name in schedule.order:
        waiting.put(name)

    def work(_number: int) -> None:
        with psycopg.connect(conninfo, autocommit=True) as connection:
            connection.execute(f"SET maintenance_work_mem = '{_MEMORY}'")
            connection.execute(f"SET max_parallel_maintenance_workers = {schedule.workers}")
            while True:
                try:
                    name = waiting.get_nowait()
                except Empty:
                    return
                unique = "UNIQUE" if name == _KEY_INDEX else ""
                connection.execute(f"CREATE {unique} INDEX {name} ON {LINEITEM} {_CATALOGUE[name]}")

    with ThreadPoolExecutor(schedule.sessions) as pool:
        list(pool.map(work, range(schedule.sessions)))
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute(f"ALTER TABLE {LINEITEM} ADD {KEY.split('(', maxsplit=1)[0]}USING INDEX {_KEY_INDEX}")
