"""Healthy workloads on real servers: nothing is named but what does limit them, and nothing is a risk.

Each workload is a generator: what is before its first `yield` is prepared before the recording begins, and what is
after its second one follows when the recording has ended. Beside it in the list is what may be found, because it is
true.
"""

from __future__ import annotations

import itertools
import math
import subprocess
import time
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from penstock.core.values.job import LoadRules
from penstock.diagnose.examination import REMARKS, examine
from penstock_lab.programs import Child
from support.loads import Loads, target, write_csv
from support.recorded import execute, find_pgbench, recording, working
from support.servers import TEST_SETTINGS, USUAL_MAJOR, majors_to_test

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.embedded.server import EmbeddedServer
    from support.servers import ServerPool

    Steps: TypeAlias = Iterator[None]

pytestmark = pytest.mark.part("rest")

# Forty samples: more than are needed to claim anything.
WORK_S = 1.6
INTERVAL_S = 0.04

# A server as it comes, but for what some of the workloads need.
SETTINGS = {
    **TEST_SETTINGS,
    "fsync": "on",
    "full_page_writes": "on",
    "shared_buffers": "256MB",
    "max_connections": "200",
    "wal_level": "logical",
}
# The database that the workloads' databases are copies of, with the tables of pgbench too.
TEMPLATE = "shop"
DAY = "date '2026-01-01' + n % 300"
SHOP = (
    "CREATE TABLE customers AS SELECT n AS customer, 'region ' || n % 10 AS region FROM generate_series(1, 5000) n",
    "ALTER TABLE customers ADD PRIMARY KEY (customer)",
    "CREATE TABLE orders (id bigint PRIMARY KEY, customer int, day date, price int, note text)",
    f"INSERT INTO orders SELECT n, 1 + n % 5000, {DAY}, 1 + n % 100, repeat('x', 20) FROM generate_series(1, 200000) n",
    "VACUUM ANALYZE",
)


@dataclass(frozen=True)
class Place:
    """Where a workload runs: a server, a database of it, and a folder for files."""

    server: EmbeddedServer
    conninfo: str
    folder: Path

    def find(self, program: str) -> str:
        """Return the path of a program of the server's installation; skip where it has none."""
        path = self.server.spec.installation.program(program)
        if not Path(path).exists():
            pytest.skip(f"this installation has no {program}")
        return path

    def run(self, program: str, *options: str) -> None:
        """Run a program on the database."""
        subprocess.run([self.find(program), *options, self.conninfo], check=True, capture_output=True)

    def bench(self, *options: str) -> None:
        """Run pgbench."""
        self.run("pgbench", "-T", str(math.ceil(WORK_S)), *options)

    def execute(self, *statements: str) -> None:
        """Run statements, each by itself."""
        execute(self.conninfo, *statements)

    def repeat(self, *statements: str) -> None:
        """Run statements again and again by one session, each by itself. In them, {} is the number of the turn."""
        with psycopg.connect(self.conninfo, autocommit=True, application_name="worker") as connection:
            for turn in turns():
                for statement in statements:
                    connection.execute(statement.format(turn).encode())

    def beside(self, *work: Callable[[], object]) -> None:
        """Run each in a thread of its own until all have ended."""
        with working(self.conninfo, *work) as threads:
            for thread in threads:
                thread.join()

    def await_row(self, query: str) -> None:
        """Wait until a query returns true."""
        with psycopg.connect(self.conninfo, autocommit=True) as watcher:
            deadline_s = time.monotonic() + 60
            while watcher.execute(query.encode()).fetchone() != (True,):
                assert time.monotonic() < deadline_s, query
                time.sleep(0.02)


def turns() -> Iterator[int]:
    """Count from 0 as long as a workload is to last."""
    end_s = time.monotonic() + WORK_S
    return itertools.takewhile(lambda _: time.monotonic() < end_s, itertools.count())


def tpcb_of_one_client(place: Place) -> Steps:
    """TPC-B."""
    yield
    place.bench()


def tpcb_of_four_clients(place: Place) -> Steps:
    """TPC-B, of as many clients as there are branches."""
    yield
    place.bench("-c", "4", "-j", "2")


def updates_of_many_clients(place: Place) -> Steps:
    """Sixteen, with 300 transactions a second together: the server has time to spare."""
    yield
    place.bench("-N", "-c", "16", "-R", "300")


def short_reads(place: Place) -> Steps:
    """By primary key, in statements that are planned each time."""
    yield
    place.bench("-S", "-c", "4")


def prepared_reads(place: Place) -> Steps:
    """By primary key, in prepared statements."""
    yield
    place.bench("-S", "-M", "prepared", "-c", "2")


def load_into_new_tables(place: Place) -> Steps:
    """By penstock, which analyzes them; they are read afterwards."""
    path = write_csv(place.folder / "rows.csv", [f"{n},{'x' * 40}" for n in range(300_000)])
    yield
    for turn in turns():
        Loads(place.conninfo).run(target(path, into=f"new_{turn}", create=True), rules=LoadRules())
        place.execute(f"SELECT count(*) FROM new_{turn}")


def load_that_rebuilds_indexes(place: Place) -> Steps:
    """By penstock, into a table with a key and an index."""
    path = write_csv(place.folder / "rows.csv", [f"{n},{n % 1000}" for n in range(300_000)])
    place.execute("CREATE TABLE t (a int PRIMARY KEY, b int)", "CREATE INDEX ON t (b)")
    yield
    for _ in turns():
        place.execute("TRUNCATE t")
        Loads(place.conninfo).run(target(path), rules=LoadRules(indexes="rebuild", again=True))


def copy_by_psql(place: Place) -> Steps:
    """Into new tables, which are counted. Autovacuum analyzes them within a minute."""
    path = write_csv(place.folder / "rows.csv", [f"{n},{'x' * 40}" for n in range(200_000)])
    yield
    for turn in turns():
        create = f"CREATE TABLE new_{turn} (a int PRIMARY KEY, b text)"
        copy = f"\\copy new_{turn} FROM '{path}' WITH (FORMAT csv, HEADER)"
        place.run("psql", "-Xq", "-c", create, "-c", copy, "-c", f"SELECT count(*) FROM new_{turn}", "-d")


def upserts(place: Place) -> Steps:
    """Into a new table, whose key is looked up for each row."""
    place.execute("CREATE TABLE stock (id int PRIMARY KEY, n int)")
    yield
    rows = "SELECT 1000 * ({0} % 50) + n, 1 FROM generate_series(1, 1000) n"
    place.repeat(f"INSERT INTO stock {rows} ON CONFLICT (id) DO UPDATE SET n = stock.n + 1")


def vacuum(place: Place) -> Steps:
    """After a tenth of the rows has changed."""
    yield
    place.repeat("UPDATE orders SET price = price + 1 WHERE id <= 20000", "VACUUM orders")


def vacuum_freeze(place: Place) -> Steps:
    """After a tenth of the rows has changed."""
    yield
    place.repeat("UPDATE orders SET price = price + 1 WHERE id <= 20000", "VACUUM (FREEZE, ANALYZE) orders")


def analyze(place: Place) -> Steps:
    """Of all tables."""
    yield
    place.repeat("ANALYZE")


def indexes_built_beside_writers(place: Place) -> Steps:
    """Created and dropped concurrently."""
    yield
    build = ("CREATE INDEX CONCURRENTLY by_day ON orders (day)", "DROP INDEX CONCURRENTLY by_day")
    place.beside(partial(place.repeat, *build), partial(place.repeat, "UPDATE orders SET price = 7 WHERE id = {0}"))


def index_dropped_beside_a_report(place: Place) -> Steps:
    """It waits for the report, and no new statement uses the index."""
    place.execute("CREATE INDEX by_day ON orders (day)")
    with psycopg.connect(place.conninfo) as report:
        report.execute("SELECT count(*) FROM orders")
        with working(place.conninfo, partial(place.execute, "DROP INDEX CONCURRENTLY by_day")) as threads:
            place.await_row("SELECT NOT indisvalid FROM pg_index WHERE indexrelid = 'by_day'::regclass")
            yield
            time.sleep(WORK_S)
            yield
            report.rollback()
            threads[0].join()


def report(place: Place) -> Steps:
    """It joins by a hash, groups and sorts in memory, and its WHERE keeps nearly all rows."""
    yield
    place.repeat(
        "SELECT region, day, sum(price) FROM orders JOIN customers USING (customer) WHERE price > 1"
        " GROUP BY region, day ORDER BY sum(price) DESC"
    )


def report_that_spills_a_little(place: Place) -> Steps:
    """Most of its time is for hashes of the rows that it then sorts."""
    yield
    place.repeat(
        "SELECT * FROM (SELECT md5(repeat(note, 300)) AS md5, id FROM orders WHERE id <= 60000) AS each ORDER BY md5"
        " OFFSET 60000"
    )


def export(place: Place) -> Steps:
    """Of most rows of a table."""
    yield
    for _ in turns():
        copy = "COPY (SELECT * FROM orders WHERE price > 1) TO STDOUT"
        place.run("psql", "-Xq", "-c", copy, "-o", "/dev/null", "-d")


def dump_of_a_wide_table(place: Place) -> Steps:
    """Its COPY names more columns than the server shows of a statement."""
    columns = ", ".join(f"column_with_number_{n} int DEFAULT {n}" for n in range(100))
    place.execute(
        f"CREATE TABLE wide (id int, {columns})", "INSERT INTO wide SELECT generate_series(1, 20000)", "ANALYZE"
    )
    yield
    for _ in turns():
        place.run("pg_dump", "--table=wide", "--file=/dev/null")


def rows_changed_by_the_thousand(place: Place) -> Steps:
    """Most rows of a table by one statement, now and then."""
    yield
    for turn in turns():
        place.execute(f"UPDATE orders SET note = 'turn {turn}' WHERE day > date '2026-01-02'", "VACUUM orders")


def inserts_of_a_thousand_rows(place: Place) -> Steps:
    """Each commit has as many."""
    place.execute("CREATE TABLE lines (id int, text text)")
    script = place.folder / "script.sql"
    script.write_text("INSERT INTO lines VALUES " + ", ".join(f"({n}, 'line {n}')" for n in range(1000)))
    yield
    place.bench("-n", "-f", str(script))


def queue(place: Place) -> Steps:
    """One session adds jobs, and two take them by SKIP LOCKED."""
    place.execute("CREATE TABLE jobs (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, job text)")
    yield
    add = "INSERT INTO jobs (job) SELECT 'job {}' FROM generate_series(1, 10)"
    first = "SELECT id FROM jobs ORDER BY id FOR UPDATE SKIP LOCKED LIMIT 5"
    take = f"DELETE FROM jobs WHERE id = ANY (ARRAY ({first})) RETURNING job"
    place.beside(*(partial(place.repeat, each) for each in (add, take, take)))


def notifications(place: Place) -> Steps:
    """Two sessions listen, and one notifies."""

    def listen() -> None:
        with psycopg.connect(place.conninfo, autocommit=True) as client:
            client.execute("LISTEN news")
            for _ in turns():
                list(client.notifies(timeout=0.2))

    yield
    place.beside(listen, listen, partial(place.repeat, "SELECT pg_notify('news', '{}'), pg_sleep(0.005)"))


def polled_slot(place: Place) -> Steps:
    """A program reads the changes of each transaction by SQL; between two calls nobody uses the slot."""
    slot = "'replica', NULL, NULL, 'proto_version', '1', 'publication_names', 'all_tables'"
    place.execute(
        "CREATE TABLE events (id int, text text)",
        "CREATE PUBLICATION all_tables FOR ALL TABLES",
        "SELECT pg_create_logical_replication_slot('replica', 'pgoutput')",
    )
    yield
    insert = "INSERT INTO events SELECT n, repeat('x', 1000) FROM generate_series(1, 16000) n"
    read = f"SELECT count(*) FROM pg_logical_slot_get_binary_changes({slot})"
    # Together a tenth of max_wal_size, and more.
    place.execute("SET work_mem = '64MB'", *[insert, read] * 8)


def standby_in_step(place: Place) -> Steps:
    """It receives WAL by a slot as fast as it is written."""
    place.execute("SELECT pg_create_physical_replication_slot('standby', true)")
    with Child(
        [place.find("pg_receivewal"), f"--directory={place.folder}", "--slot=standby", f"--dbname={place.conninfo}"]
    ):
        place.await_row("SELECT active FROM pg_replication_slots")
        yield
        place.repeat("INSERT INTO orders SELECT 1000000 + 1000 * {0} + n FROM generate_series(1, 1000) n")
        yield
    place.await_row("SELECT NOT active FROM pg_replication_slots")


def nobody(place: Place) -> Steps:
    """Nobody uses the server."""
    yield
    time.sleep(WORK_S)


def pools_that_are_filled(place: Place) -> Steps:
    """Applications start, each with a pool of connections that they keep."""
    yield
    with ExitStack() as stack:
        for _ in range(120):
            stack.enter_context(psycopg.connect(place.conninfo, autocommit=True)).execute("SELECT 1")
        yield


def transactions_of_an_application(place: Place) -> Steps:
    """Three sessions think between the statements of a transaction, and longer between two transactions."""

    def buy(session: int) -> None:
        with psycopg.connect(place.conninfo, application_name="shop") as client:
            for turn in turns():
                with client.transaction():
                    (price,) = client.execute("SELECT price FROM orders WHERE id = %s", [turn]).fetchone() or (0,)
                    time.sleep(0.005)
                    client.execute("UPDATE orders SET price = %s WHERE id = %s", [price + 1, 3 * turn + session])
                time.sleep(0.05)

    yield
    place.beside(*(partial(buy, session) for session in range(3)))


def partitions_that_come_and_go(place: Place) -> Steps:
    """A partition for each turn, which is filled and counted; the one before the last is dropped."""
    place.execute("CREATE TABLE events (turn int, id int, PRIMARY KEY (turn, id)) PARTITION BY LIST (turn)")
    yield
    place.repeat(
        "CREATE TABLE events_{0} PARTITION OF events FOR VALUES IN ({0})",
        "INSERT INTO events SELECT {0}, generate_series(1, 15000)",
        "SELECT count(*) FROM events WHERE turn = {0}",
        "DO $$BEGIN IF {0} > 1 THEN EXECUTE format('ALTER TABLE events DETACH PARTITION events_%s', {0} - 2);"
        " EXECUTE format('DROP TABLE events_%s', {0} - 2); END IF; END$$",
    )


def numbers_of_sequences(place: Place) -> Steps:
    """Of bigint far beyond int, and of int a quarter: this burst does not go on for hours."""
    place.execute(
        "CREATE TABLE calls (id serial, big bigserial, note text)",
        "SELECT setval('calls_id_seq', 600000000), setval('calls_big_seq', 3000000000)",
        "CREATE SEQUENCE unused AS int START 1000000000",
    )
    yield
    place.repeat("INSERT INTO calls (note) SELECT 'call' FROM generate_series(1, 10000)", "SELECT nextval('unused')")


def temporary_tables(place: Place) -> Steps:
    """One is filled, and read whole."""
    with psycopg.connect(place.conninfo, autocommit=True) as client:
        client.execute("CREATE TEMP TABLE chosen (id int, price int)")
        yield
        for _ in turns():
            client.execute("INSERT INTO chosen SELECT id, price FROM orders WHERE id BETWEEN 1000 AND 21000")
            client.execute("SELECT sum(price) FROM chosen")
            client.execute("TRUNCATE chosen")
        client.execute("INSERT INTO chosen SELECT id, price FROM orders WHERE id BETWEEN 1000 AND 21000")
        client.execute("SELECT sum(price) FROM chosen")


def staging(place: Place) -> Steps:
    """A table is emptied, filled and analyzed, and most of its rows go on to another one."""
    place.execute("CREATE TABLE staged (LIKE orders)", "CREATE TABLE history (LIKE orders)")
    yield
    place.repeat(
        "TRUNCATE staged",
        "INSERT INTO staged SELECT * FROM orders WHERE id BETWEEN 1000 AND 51000",
        "ANALYZE staged",
        "INSERT INTO history SELECT * FROM staged WHERE price > 1",
    )


def large_objects(place: Place) -> Steps:
    """Of 100 kB, written and read."""
    yield
    place.repeat(
        "SELECT lo_from_bytea(1000000 + {0}, decode(repeat(md5('{0}'), 6000), 'hex'))",
        "SELECT lo_get(1000000 + {0})",
    )


def cursor_that_is_read_slowly(place: Place) -> Steps:
    """A client looks at each page of rows."""
    yield
    with psycopg.connect(place.conninfo) as client:
        client.execute("DECLARE pages CURSOR FOR SELECT * FROM orders ORDER BY id")
        for _ in turns():
            client.execute("FETCH 1000 FROM pages")
            time.sleep(0.02)


def databases_that_come_and_go(place: Place) -> Steps:
    """Each is created with a checkpoint, and dropped with one."""
    yield
    for _ in turns():
        place.execute("CREATE DATABASE another", "DROP DATABASE another")
        place.execute("UPDATE orders SET price = price + 1 WHERE id <= 4000")


def autovacuum_alone(place: Place) -> Steps:
    """After a table has changed, nobody else works."""
    place.execute("ALTER TABLE orders SET (autovacuum_vacuum_cost_limit = 30)", "UPDATE orders SET price = price + 1")
    place.execute("ALTER SYSTEM SET autovacuum_naptime = '1s'", "SELECT pg_reload_conf()")
    yield
    place.await_row("SELECT autovacuum_count > 0 FROM pg_stat_user_tables WHERE relname = 'orders'")
    place.execute("ALTER SYSTEM RESET autovacuum_naptime", "SELECT pg_reload_conf()")


# Clients of many short statements are waited for, above all if they get no processor on this machine.
CLIENT = frozenset({"client-bound"})
# At least as many sessions as there are processors compute, or a parallel query does.
CPU = frozenset({"cpu-bound"})
# Commits are short, and on a slow disk each waits for it.
COMMITS = frozenset({"commit-local-flush"})
# A session writes WAL as fast as it can.
WAL = frozenset({"wal-write"})

# Version 15 is Debian's, which has pg_stat_statements.
ALSO_15 = tuple({USUAL_MAJOR, 15})


class Workload(NamedTuple):
    """A workload, and what may be found, because it is true of it."""

    work: Callable[[Place], Steps]
    may_find: frozenset[str] = frozenset()
    majors: tuple[int, ...] = (USUAL_MAJOR,)


HEALTHY = [
    Workload(tpcb_of_one_client, CLIENT | COMMITS),
    Workload(tpcb_of_four_clients, CLIENT | COMMITS | CPU | {"lock-wait"}),
    Workload(updates_of_many_clients, CLIENT | COMMITS),
    Workload(short_reads, CPU),
    Workload(prepared_reads, CPU),
    Workload(load_into_new_tables, CPU | WAL),
    Workload(load_that_rebuilds_indexes, CPU | WAL),
    Workload(copy_by_psql, WAL | {"few-sessions"}),
    Workload(upserts, WAL | COMMITS),
    Workload(vacuum, WAL),
    Workload(vacuum_freeze, WAL),
    Workload(analyze),
    Workload(indexes_built_beside_writers, CPU | COMMITS | WAL),
    Workload(index_dropped_beside_a_report, frozenset({"lock-wait"})),
    Workload(report, CPU, majors=ALSO_15),
    Workload(report_that_spills_a_little, CPU),
    Workload(export),
    Workload(dump_of_a_wide_table),
    Workload(rows_changed_by_the_thousand, WAL, majors=ALSO_15),
    Workload(inserts_of_a_thousand_rows, WAL),
    Workload(queue, COMMITS | CPU | {"lwlock-contention"}),
    Workload(notifications),
    Workload(polled_slot, WAL),
    Workload(standby_in_step, WAL),
    Workload(nobody),
    Workload(pools_that_are_filled),
    Workload(transactions_of_an_application, CLIENT),
    Workload(partitions_that_come_and_go, WAL | COMMITS),
    Workload(numbers_of_sequences, WAL),
    Workload(temporary_tables),
    Workload(staging, WAL),
    Workload(large_objects, WAL),
    Workload(cursor_that_is_read_slowly),
    Workload(databases_that_come_and_go, WAL | COMMITS),
    Workload(autovacuum_alone),
]


@pytest.fixture(scope="module")
def shops(servers: ServerPool) -> Iterator[Callable[[int], EmbeddedServer]]:
    """Provide a function that starts a server of a version with the template of the workloads' databases."""
    started: dict[int, EmbeddedServer] = {}

    def start(major: int) -> EmbeddedServer:
        if major not in started:
            settings = {**SETTINGS, "shared_preload_libraries": "pg_stat_statements"} if major == 15 else SETTINGS
            server = started[major] = servers.new_server(servers.installation(major), settings=settings)
            conninfo = server.ensure_running()
            execute(conninfo, f"CREATE DATABASE {TEMPLATE}")
            template = make_conninfo(conninfo, dbname=TEMPLATE)
            initialize = [find_pgbench(server), "-i", "-q", "-s", "4", template]
            subprocess.run(initialize, check=True, capture_output=True)
            execute(template, *SHOP, *["CREATE EXTENSION pg_stat_statements"] * (major == 15))
        return started[major]

    yield start
    for server in started.values():
        server.stop("immediate")


@pytest.fixture
def place(major: int, shops: Callable[[int], EmbeddedServer], tmp_path: Path) -> Iterator[Place]:
    """Provide a database with the tables of the template."""
    if major not in majors_to_test():
        pytest.skip(f"PostgreSQL {major} is not installed")
    server = shops(major)
    conninfo = server.conninfo()
    strategy = "STRATEGY file_copy" if major >= 15 else ""
    execute(conninfo, f"CREATE DATABASE work TEMPLATE {TEMPLATE} {strategy}")
    place = Place(server, make_conninfo(conninfo, dbname="work"), tmp_path)
    # The counters of the tables do not come with the template, and nothing of it is in memory.
    place.execute("ANALYZE", *(f"SELECT count(*) FROM {table}" for table in ("orders", "pgbench_accounts")))
    yield place
    drop_slots = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
    execute(conninfo, drop_slots, "DROP DATABASE work WITH (FORCE)")


@pytest.mark.parametrize(
    ("major", "workload"),
    [pytest.param(major, each, id=f"{each.work.__name__}-{major}") for each in HEALTHY for major in each.majors],
)
def test_nothing_is_found_in_a_healthy_workload(place: Place, workload: Workload) -> None:
    """But what is true of it; what only remarks on the processors' use, and full disks, are this machine's."""
    steps = workload.work(place)
    with closing(steps):
        next(steps)
        with recording(place.conninfo, interval_s=INTERVAL_S) as taken:
            taken.await_samples(2)
            next(steps, None)
            taken.await_samples(1)
        list(steps)
    found = examine(taken.recording)
    # Of too few samples, a finding says itself that it is a guess.
    claimed = {each.code: each.claim for each in found.diagnoses if each.confidence != "too few samples"}
    assert claimed.keys() <= workload.may_find | REMARKS, claimed
    assert {each.code for each in found.risks} <= {"disk-full"}
