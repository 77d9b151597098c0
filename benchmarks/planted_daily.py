"""More plantings: what statements, functions, clients, slots and standbys do in daily life."""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from benchmarks.planted import LINES, NO_CANCEL, ORDERS, UPDATE
from benchmarks.plantings import Case, Place

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg


def walk(connection: psycopg.Connection[Any]) -> None:
    """Read a page of orders and, for each, its lines by a statement of its own, and compute between them."""
    for (order,) in connection.execute("SELECT id FROM orders ORDER BY id LIMIT 200").fetchall():
        connection.execute("SELECT price FROM orders WHERE id = %s", [order]).fetchall()
        time.sleep(0.015)
    connection.commit()


def read_slowly(connection: psycopg.Connection[Any]) -> None:
    """Read a large result, and do something else after each row."""
    for number, _ in enumerate(connection.cursor().stream("SELECT repeat('x', 800) FROM orders")):
        if number % 20 == 0:
            time.sleep(0.01)
    connection.commit()


def notify(connection: psycopg.Connection[Any]) -> None:
    """Notify in a transaction that writes: its commit holds a lock that all who notify wait for."""
    connection.execute("SELECT pg_notify('news', 'x')")
    connection.execute("INSERT INTO log VALUES (1)")
    connection.commit()


def skewed(connection: psycopg.Connection[Any]) -> None:
    """Run a prepared statement by its generic plan, for a value that is rare."""
    for _ in range(100):
        find = "SELECT sum(b.price) FROM orders AS a JOIN orders AS b ON b.id = a.ref WHERE a.kind = %s"
        connection.execute(find, [1], prepare=True)
        connection.commit()


def limited(connection: psycopg.Connection[Any]) -> None:
    """Sort more than temp_file_limit allows."""
    import psycopg

    connection.autocommit = True
    try:
        connection.execute("SELECT count(*) FROM (SELECT * FROM orders ORDER BY note, price OFFSET 0) AS s")
    except psycopg.errors.ConfigurationLimitExceeded:
        time.sleep(0.005)


@contextmanager
def logical_slot(place: Place) -> Iterator[None]:
    """A logical slot that nobody reads."""
    place.execute("SELECT pg_create_logical_replication_slot('gone', 'pgoutput')")
    yield


@contextmanager
def slow_autovacuum(place: Place) -> Iterator[None]:
    """Rows die faster than an autovacuum worker with a small cost limit removes them."""

    def churn(connection: psycopg.Connection[Any]) -> None:
        connection.autocommit = True
        connection.execute("UPDATE queue SET n = n + 1")
        time.sleep(0.02)

    with ExitStack() as stack:
        stack.enter_context(place.repeating(churn))
        time.sleep(8)
        yield


PARTS = (
    "CREATE TABLE days (id int, day int, note text) PARTITION BY RANGE (day)",
    *[f"CREATE TABLE days_{n} PARTITION OF days FOR VALUES FROM ({n * 100}) TO ({n * 100 + 100})" for n in range(4)],
    "INSERT INTO days SELECT n, n % 400, repeat('x', 60) FROM generate_series(1, 400000) n",
    *[f"CREATE INDEX ON days_{n} (id)" for n in range(3)],
    "VACUUM ANALYZE",
)
KINDS = (
    "CREATE TABLE orders (id int PRIMARY KEY, kind int, ref int, price int, note text)",
    (
        "INSERT INTO orders SELECT n, CASE WHEN n % 3000 = 0 THEN 1 ELSE 0 END, 1 + n::bigint * 7919 % 300000, n % 100,"
        " repeat('x', 60) FROM generate_series(1, 300000) n"
    ),
    "CREATE INDEX ON orders (kind)",
    "VACUUM ANALYZE",
)

DAILY = [
    Case(
        name="cast-defeats-the-index",
        expected=("sequential-scan",),
        prepare=ORDERS,
        work=("\\set id random(1, 200000)\nSELECT price FROM orders WHERE id::text = (:id)::text;\n",),
        remedy=("CREATE INDEX ON orders ((id::text))",),
        named=("public.orders", "expression"),
    ),
    Case(
        name="partition-lacks-an-index",
        expected=("sequential-scan",),
        prepare=PARTS,
        work=("\\set id random(1, 400000)\nSELECT day FROM days WHERE id = :id AND day BETWEEN 300 AND 399;\n",),
        remedy=("CREATE INDEX ON days_3 (id)", "ANALYZE days_3"),
        named=("public.days_3",),
    ),
    Case(
        name="subquery-without-an-index",
        expected=("sequential-scan", "cpu-bound"),
        prepare=(
            *ORDERS,
            "CREATE TABLE events (orders_id int, at int)",
            "INSERT INTO events SELECT 1 + n % 200000, n FROM generate_series(1, 60000) n",
            "VACUUM ANALYZE events",
        ),
        work=(
            (
                "\\set id random(1, 100000)\nSELECT id, (SELECT max(at) FROM events WHERE orders_id = o.id)"
                " FROM orders o WHERE id BETWEEN :id AND :id + 20;\n"
            ),
        ),
        remedy=("CREATE INDEX ON events (orders_id)",),
        named=("public.events",),
    ),
    Case(
        name="generic-plan-of-a-skewed-column",
        expected=("sequential-scan",),
        prepare=KINDS,
        repeat=skewed,
        settings={"plan_cache_mode": "force_generic_plan"},
        remedy=("ALTER ROLE CURRENT_USER SET plan_cache_mode = force_custom_plan",),
        named=("plan_cache_mode",),
    ),
    Case(
        name="values-that-are-decompressed",
        expected=("cpu-bound",),
        prepare=(
            "CREATE TABLE docs (id int PRIMARY KEY, doc jsonb)",
            (
                "INSERT INTO docs SELECT n, (SELECT jsonb_object_agg('key' || k, repeat(md5(k::text), 4))"
                " FROM generate_series(1, 300) k) FROM generate_series(1, 300) n"
            ),
            "VACUUM ANALYZE docs",
        ),
        work=("SELECT count(doc->'key7') FROM docs;\n",),
    ),
    Case(
        name="hash-join-in-batches",
        expected=("temp-spill", "statement-spills", "cpu-bound"),
        prepare=ORDERS,
        work=("SELECT count(*) FROM orders a JOIN orders b ON a.id = b.id AND a.note = b.note;\n",),
        settings={"work_mem": "64kB", "hash_mem_multiplier": "1", "enable_mergejoin": "off"},
        remedy=("ALTER SYSTEM SET work_mem = '64MB'", "SELECT pg_reload_conf()"),
    ),
    Case(
        name="temp-file-limit",
        expected=("temp-file-limit",),
        prepare=ORDERS,
        repeat=limited,
        settings={"work_mem": "256kB", "temp_file_limit": "8MB", "max_parallel_workers_per_gather": "0"},
    ),
    Case(
        name="round-trips-in-a-transaction",
        expected=("client-bound",),
        prepare=ORDERS,
        repeat=walk,
    ),
    Case(
        name="result-that-is-read-slowly",
        expected=("client-bound",),
        prepare=ORDERS,
        repeat=read_slowly,
        named=("select only the rows",),
    ),
    Case(
        name="trigger-that-waits-elsewhere",
        expected=("outside-wait",),
        prepare=(
            *LINES,
            "CREATE FUNCTION ask() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.01); RETURN NEW; END'",
            "CREATE TRIGGER asks BEFORE INSERT ON lines FOR EACH ROW EXECUTE FUNCTION ask()",
        ),
        work=("INSERT INTO lines VALUES (1, 1, 'x'), (2, 2, 'y');\n",),
        remedy=("DROP TRIGGER asks ON lines",),
        named=("PgSleep",),
        never=NO_CANCEL,
    ),
    Case(
        name="notifications-one-after-the-other",
        expected=("lock-wait", "commit-local-flush"),
        prepare=("CREATE TABLE log (n int)",),
        repeat=notify,
        clients=8,
        never=NO_CANCEL,
        also=frozenset({"client-bound"}),
    ),
    Case(
        name="autovacuum-that-is-too-slow",
        expected=("bloat", "cpu-bound"),
        prepare=(
            (
                "CREATE TABLE queue (id int, n int, note text) WITH (autovacuum_vacuum_cost_delay = 100,"
                " autovacuum_vacuum_cost_limit = 1, autovacuum_vacuum_threshold = 50)"
            ),
            "INSERT INTO queue SELECT n, 0, repeat('x', 200) FROM generate_series(1, 2000) n",
            "CREATE INDEX ON queue (n)",
            "ANALYZE queue",
        ),
        work=("SELECT sum(n) FROM queue;\n",),
        settings={"autovacuum_naptime": "1s"},
        hold=slow_autovacuum,
        remedy=("VACUUM FULL queue",),
        named=("cost",),
    ),
    Case(
        name="logical-slot-that-nobody-reads",
        also=frozenset({"wal-write", "commit-local-flush", "cpu-bound", "client-bound", "relation-extension"}),
        prepare=(*ORDERS, "CREATE TABLE filled (id int, note text)"),
        work=("INSERT INTO filled SELECT n, repeat('x', 500) FROM generate_series(1, 500) n;\n",),
        settings={"max_wal_size": "64MB"},
        hold=logical_slot,
        risks=("slot-keeps-wal",),
        named=("pg_drop_replication_slot('gone')",),
    ),
    Case(
        name="archiver-that-fails",
        also=frozenset({"wal-write", "commit-local-flush", "cpu-bound", "client-bound", "relation-extension"}),
        prepare=("CREATE TABLE filled (id int, note text)", "SELECT pg_switch_wal()"),
        work=("INSERT INTO filled SELECT n, repeat('x', 500) FROM generate_series(1, 500) n;\n",),
        settings={"archive_mode": "on", "archive_command": "false"},
        risks=("archiver-keeps-wal",),
    ),
    Case(
        name="sequence-that-ends",
        also=frozenset({"commit-local-flush"}),
        prepare=("CREATE TABLE keyed (id serial PRIMARY KEY)", "SELECT setval('keyed_id_seq', 2100000000)"),
        work=("INSERT INTO keyed DEFAULT VALUES;\n",),
        options=("-R", "50"),
        risks=("sequence-end",),
        named=("bigint",),
    ),
    Case(
        name="index-left-invalid",
        also=frozenset({"commit-local-flush"}),
        prepare=(
            *ORDERS,
            "CREATE INDEX gone ON orders (price)",
            "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'gone'::regclass",
        ),
        work=(UPDATE,),
        options=("-R", "50"),
        risks=("invalid-index",),
        named=("DROP INDEX CONCURRENTLY",),
    ),
]
