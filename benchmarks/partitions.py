"""A new partition of a table of 30, with a key, four indexes and a foreign key: loaded in place, or built aside.

psql creates it by PARTITION OF and copies into it; or, by hand as well as it goes, it makes a table by itself with the
bounds as CHECK, copies with FREEZE, creates indexes and keys, and attaches it. penstock does that in one command, with
VACUUM (FREEZE, ANALYZE). Meanwhile clients read the table and write the one that it refers to: a statement of theirs
that waits 50 ms for a lock fails, and is counted.
"""

from __future__ import annotations

import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

import psycopg

from benchmarks.data import PENSTOCK
from benchmarks.indexed_load import psql_argv
from benchmarks.processes import Cost, run_measured
from benchmarks.record import save, spread, summarize
from benchmarks.rounds import WrongRows
from benchmarks.server import Target, bench_server
from benchmarks.tpch import HALVES, INDEXES, KEY, LINEITEM, ORDERS, SCHEMA, Warehouse, lineitem_rows, write_lineitem

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from benchmarks.options import Options

_NEW = f"{SCHEMA}.lineitem_new"
_OTHERS = 29
_ORDERS_IN_OTHERS = 1000
_COPY, _PENSTOCK, _BY_HAND = "psql \\copy into the partition", "penstock --partition-of", "by hand, "
_FREEZE = f"{_PENSTOCK} --freeze always"
_MEMORIES = ("1GB", "64MB", "12MB")
# How many times as fast penstock must be as \copy, and as the best way by hand.
_BAR, _BAR_BY_HAND = 2.5, 1.2
_LONGEST_WAIT = "50ms"


class _Clients(threading.Thread):
    """A client that runs a statement all the time, and counts the waits for locks."""

    def __init__(self, conninfo: str, statement: str) -> None:
        super().__init__(daemon=True)
        self._conninfo, self._statement = conninfo, statement
        self._is_over = threading.Event()
        self.statements = self.waits = 0
        self.longest_s = 0.0

    def run(self) -> None:
        """Run the statement until `end` is called."""
        with psycopg.connect(self._conninfo, autocommit=True) as connection:
            connection.execute(f"SET lock_timeout = '{_LONGEST_WAIT}'".encode())
            while not self._is_over.is_set():
                began_s = time.perf_counter()
                try:
                    connection.execute(self._statement.encode())
                except psycopg.errors.LockNotAvailable:
                    self.waits += 1
                self.statements += 1
                self.longest_s = max(self.longest_s, time.perf_counter() - began_s)
                time.sleep(0.005)

    def end(self) -> None:
        """Let the last statement end."""
        self._is_over.set()
        self.join()


class _Table:
    """The partitioned table, made once; the new partition is dropped before each run."""

    def __init__(self, warehouse: Warehouse, rows: int) -> None:
        self._execute = warehouse.connection.execute
        self._rows = rows
        warehouse.make(rows)
        columns = f"(LIKE {SCHEMA}.shape INCLUDING ALL, {KEY}, FOREIGN KEY (l_orderkey) REFERENCES {ORDERS})"
        self._run(
            f"ALTER TABLE {LINEITEM} RENAME TO shape",
            f"CREATE TABLE {LINEITEM} {columns} PARTITION BY RANGE (l_orderkey)",
            *(f"CREATE INDEX {name} ON {LINEITEM} {body}" for name, body in INDEXES.items()),
            f"INSERT INTO {ORDERS} SELECT -n, n, 'O', n, '1992-01-01'"
            f" FROM generate_series(0, {_OTHERS * _ORDERS_IN_OTHERS}) AS n",
        )
        for number in range(_OTHERS):
            least = -(number + 1) * _ORDERS_IN_OTHERS
            self._run(
                f"CREATE TABLE {SCHEMA}.lineitem_{number} PARTITION OF {LINEITEM}"
                f" FOR VALUES FROM ({least}) TO ({least + _ORDERS_IN_OTHERS})"
            )
        self._run(
            f"INSERT INTO {LINEITEM} SELECT -n, n, n, 1, 1, 1, 0, 0, 'A', 'O', '1992-01-01', '1992-01-01',"
            f" '1992-01-01', 'NONE', 'AIR', 'n ' || n FROM generate_series(1, {_OTHERS * _ORDERS_IN_OTHERS - 1}) AS n",
            f"VACUUM (ANALYZE) {LINEITEM}",
        )

    def _run(self, *statements: str) -> None:
        for statement in statements:
            self._execute(statement.encode())

    def renew(self) -> None:
        """Drop the new partition, and let the server write what is dirty."""
        self._run(f"DROP TABLE IF EXISTS {_NEW}", "CHECKPOINT")

    def check(self, name: str) -> None:
        """Check that the partition has all rows and all indexes, attached. Raises WrongRows."""
        found = self._execute(
            f"SELECT (SELECT count(*) FROM {LINEITEM} WHERE l_orderkey > 0), count(*), count(h.inhparent)"
            " FROM pg_index AS i LEFT JOIN pg_inherits AS h ON h.inhrelid = i.indexrelid"
            f" WHERE i.indrelid = '{_NEW}'::regclass AND i.indisvalid".encode()
        ).fetchone()
        if found != (self._rows, len(INDEXES) + 1, len(INDEXES) + 1):
            raise WrongRows(f"{name} left another partition than it should: {found}")

    def not_frozen(self) -> int:
        """Return how many pages of the partition a later VACUUM must freeze."""
        self._run(f"ANALYZE {_NEW}")
        query = f"SELECT relpages - relallfrozen FROM pg_class WHERE oid = '{_NEW}'::regclass"
        row = self._execute(query.encode()).fetchone()
        return int(row[0]) if row is not None else -1


def run(options: Options) -> None:
    """Run it and write the results."""
    rows = lineitem_rows(options.scale)
    path = write_lineitem(options.data, options.scale)
    with bench_server(options.data) as server, Warehouse(server.conninfo()) as warehouse:
        conninfo, table = server.conninfo(), _Table(warehouse, rows)
        ways = _list_ways(conninfo, path, rows)
        costs: dict[str, list[Cost]] = {name: [] for name in ways}
        clients: dict[str, list[_Clients]] = {name: [] for name in ways}
        pages: dict[str, int] = {}
        for number in range(-1, options.runs):
            for name in list(ways) if number % 2 else [*ways][::-1]:
                cost, watching = _run_once(table, conninfo, name, ways[name])
                pages[name] = table.not_frozen()
                if number >= 0:
                    costs[name].append(cost)
                    clients[name] += watching
        with Target(conninfo) as target:
            postgresql = target.settings()
    best = min((name for name in ways if name.startswith(_BY_HAND)), key=lambda name: _median_s(costs[name]))
    times, by_hand = (_median_s(costs[name]) / _median_s(costs[_PENSTOCK]) for name in (_COPY, best))
    save(
        "partitions",
        options=options,
        postgresql=postgresql,
        settings={"rows": rows, "file_bytes": path.stat().st_size, "bars": [_BAR, _BAR_BY_HAND]},
        results={
            "times_as_fast": {"copy": times, "by_hand": by_hand, "best_by_hand": best},
            **{
                name: summarize(runs)
                | {
                    "lock_waits": sum(each.waits for each in clients[name]),
                    "statements": sum(each.statements for each in clients[name]),
                    "longest_s": spread([each.longest_s for each in clients[name]]),
                    "pages_not_frozen": pages[name],
                }
                for name, runs in costs.items()
            },
        },
        table=_table(costs, clients, pages),
        notes=[
            (
                f"penstock is {times:.2f} times as fast as \\copy (bar: {_BAR}) and {by_hand:.2f} times as fast as the "
                f"best way by hand ({best}; bar: {_BAR_BY_HAND}). Its time has VACUUM (FREEZE, ANALYZE) in it, those "
                "by hand have ANALYZE."
            ),
            (
                f"Lock waits are statements of clients that waited {_LONGEST_WAIT} for a lock: one reads the table, "
                "one writes the table that it refers to, both all the time. The longest statement has waits for "
                "processors in it."
            ),
        ],
    )


def _run_once(table: _Table, conninfo: str, name: str, way: Callable[[], Cost]) -> tuple[Cost, list[_Clients]]:
    table.renew()
    clients = [
        _Clients(conninfo, f"SELECT count(*) FROM {LINEITEM} WHERE l_partkey = 17"),
        _Clients(conninfo, f"UPDATE {ORDERS} SET o_totalprice = o_totalprice + 1 WHERE o_orderkey = -17"),
    ]
    for client in clients:
        client.start()
    try:
        cost = way()
    finally:
        for client in clients:
            client.end()
    table.check(name)
    print(f"{name}: {cost.seconds:.2f} s, {sum(client.waits for client in clients)} lock waits", flush=True)
    return cost, clients


def _list_ways(conninfo: str, path: Path, rows: int) -> dict[str, Callable[[], Cost]]:
    bounds = f"FROM (1) TO ({rows})"
    load = [PENSTOCK, "load", str(path), "--into", _NEW, "--partition-of", LINEITEM, "--for-values", bounds]
    load += ["--to", conninfo, "--quiet", "--no-header", "--again"]
    create = f"CREATE TABLE {_NEW} PARTITION OF {LINEITEM} FOR VALUES {bounds}"
    ways: dict[str, Callable[[], Cost]] = {
        _COPY: lambda: run_measured(psql_argv(conninfo, create, f"\\copy {_NEW} FROM '{path}' (FORMAT csv)")),
        _PENSTOCK: lambda: run_measured(load),
        _FREEZE: lambda: run_measured([*load, "--freeze", "always"]),
    }
    for memory in _MEMORIES:
        for is_parallel in (False, True):
            how = "two at a time" if is_parallel else "one after another"
            ways[f"{_BY_HAND}{how}, {memory}"] = partial(
                _build_by_hand, conninfo, path, bounds, rows=rows, memory=memory, is_parallel=is_parallel
            )
    return ways


def _build_by_hand(conninfo: str, path: Path, bounds: str, *, rows: int, memory: str, is_parallel: bool) -> Cost:
    """Make the table by itself, copy into it with FREEZE, create the indexes and keys, and attach it."""
    began_s, cpu_s = time.perf_counter(), 0.0

    def run(*statements: str) -> float:
        return run_measured(psql_argv(conninfo, *statements)).cpu_s or 0.0

    check = f"CHECK (l_orderkey IS NOT NULL AND l_orderkey >= 1 AND l_orderkey < {rows})"
    cpu_s += run(
        "BEGIN",
        f"CREATE TABLE {_NEW} (LIKE {LINEITEM} INCLUDING DEFAULTS, CONSTRAINT bounds {check})",
        f"\\copy {_NEW} FROM '{path}' (FORMAT csv, FREEZE)",
        "COMMIT",
    )
    creates = {name: f"CREATE INDEX {name}_new ON {_NEW} {body}" for name, body in INDEXES.items()}
    setting = f"SET maintenance_work_mem = '{memory}'"
    if is_parallel:
        alone = "SET max_parallel_maintenance_workers = 0"
        halves = [[setting, alone, *(creates[name] for name in names)] for names in HALVES]
        with ThreadPoolExecutor(len(halves)) as pool:
            cpu_s += sum(pool.map(lambda half: run(*half), halves))
        creates = {}
    cpu_s += run(
        setting,
        *creates.values(),
        f"ALTER TABLE {_NEW} ADD {KEY}",
        f"ALTER TABLE {_NEW} ADD CONSTRAINT lineitem_l_orderkey_fkey FOREIGN KEY (l_orderkey) REFERENCES {ORDERS}",
        f"ANALYZE {_NEW}",
        f"ALTER TABLE {LINEITEM} ATTACH PARTITION {_NEW} FOR VALUES {bounds}",
        f"ALTER TABLE {_NEW} DROP CONSTRAINT bounds",
    )
    return Cost(seconds=time.perf_counter() - began_s, cpu_s=cpu_s)


def _median_s(costs: Sequence[Cost]) -> float:
    return statistics.median(cost.seconds for cost in costs)


def _table(
    costs: dict[str, list[Cost]], clients: dict[str, list[_Clients]], pages: dict[str, int]
) -> list[tuple[str, ...]]:
    head = ("way", "median s", "lowest", "highest", "of penstock's time", "lock waits", "longest statement, ms")
    table: list[tuple[str, ...]] = [(*head, "pages not frozen")]
    own_s = _median_s(costs[_PENSTOCK])
    for name, found in costs.items():
        seconds = [cost.seconds for cost in found]
        shown = (f"{choose(seconds):.2f}" for choose in (statistics.median, min, max))
        waits = str(sum(each.waits for each in clients[name]))
        longest = f"{1000 * max(each.longest_s for each in clients[name]):.0f}"
        table.append((name, *shown, f"{_median_s(found) / own_s:.2f}", waits, longest, f"{pages[name]:,}"))
    return table
