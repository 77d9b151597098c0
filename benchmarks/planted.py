"""The plantings: for each, what is prepared, what works, and what must be found first."""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from benchmarks.plantings import Case, Place

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg

ORDERS = (
    "CREATE TABLE orders (id int PRIMARY KEY, customer int, price int, note text)",
    "INSERT INTO orders SELECT n, 1 + n % 5000, 1 + n % 100, repeat('x', 60) FROM generate_series(1, 200000) n",
    "VACUUM ANALYZE orders",
)
# Takes a number each, with nothing to write.
SPEND = "DO $$BEGIN FOR i IN 1..{} LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END$$"
UPDATE = "\\set id random(1, 200000)\nUPDATE orders SET price = price + 1 WHERE id = :id;\n"
READ = "\\set id random(1, 200000)\nSELECT price FROM orders WHERE id = :id;\n"
HOT = "UPDATE orders SET price = price + 1 WHERE id = 1;\n"
# A queue whose rows come and go: what is dead stays while something holds xmin.
JOBS = (
    "CREATE TABLE jobs (id bigserial PRIMARY KEY, job text) WITH (autovacuum_enabled = off)",
    "INSERT INTO jobs (job) SELECT 'job' FROM generate_series(1, 100)",
)
TAKE = "SELECT count(*) FROM jobs;\n"
CHURN = (
    "INSERT INTO jobs (job) SELECT repeat('x', 200) FROM generate_series(1, 60000)",
    "DELETE FROM jobs WHERE id > 100",
)


@contextmanager
def held_queue(place: Place, holder: str) -> Iterator[None]:
    """A transaction or a prepared one is the oldest; then rows die, VACUUM leaves them, and forty snapshots follow."""
    with ExitStack() as stack:
        if holder == "prepared":
            place.execute("BEGIN; INSERT INTO orders VALUES (0); PREPARE TRANSACTION 'order-4711'")
        else:
            stack.enter_context(place.session("SELECT pg_current_xact_id()" if holder == "xid" else holder))
        place.execute(*CHURN, SPEND.format(3000), "VACUUM jobs")
        for _ in range(40):
            snapshot = place.session("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "SELECT 1", name="reader")
            stack.enter_context(snapshot)
        yield
    if holder == "prepared":
        place.execute("ROLLBACK PREPARED 'order-4711'")


@contextmanager
def prepared_row(place: Place) -> Iterator[None]:
    """A prepared transaction has the row."""
    place.execute("BEGIN; UPDATE orders SET price = 0 WHERE id = 1; PREPARE TRANSACTION 'order-4711'")
    yield
    place.execute("ROLLBACK PREPARED 'order-4711'")


@contextmanager
def prepared_ddl(place: Place) -> Iterator[None]:
    """A prepared transaction, a DDL that waits for it, and readers behind that."""
    place.execute("BEGIN; UPDATE orders SET price = 0 WHERE id = 1; PREPARE TRANSACTION 'order-4711'")
    with altering(place):
        yield
    place.execute("ROLLBACK PREPARED 'order-4711'")


@contextmanager
def altering(place: Place) -> Iterator[None]:
    """A DDL that waits."""

    def alter(connection: psycopg.Connection[Any]) -> None:
        connection.execute("ALTER TABLE orders ADD IF NOT EXISTS c int")
        connection.commit()
        time.sleep(5)

    with place.repeating(alter):
        time.sleep(0.5)
        yield


@contextmanager
def report_and_ddl(place: Place) -> Iterator[None]:
    """An open report, and a DDL behind it."""
    with place.session("SELECT count(*) FROM orders", name="report"), altering(place):
        yield


@contextmanager
def frozen_late(place: Place) -> Iterator[None]:
    """The age of the database is at its limit because of one transaction; sessions work."""
    with place.session("INSERT INTO orders VALUES (0)", name="left"):
        place.execute(SPEND.format(96_000))
        yield


@contextmanager
def many_idle(place: Place, count: int) -> Iterator[None]:
    """So many connections that do nothing."""
    with ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(place.session(name="pool")).commit()
        yield


@contextmanager
def busy_host(place: Place) -> Iterator[None]:
    """Four other programs compute."""
    with ExitStack() as stack:
        for _ in range(8):
            stack.enter_context(place.program("sh", "-c", "while :; do :; done"))
        yield


@contextmanager
def receiver(place: Place, *, stalls: bool) -> Iterator[None]:
    """A synchronous receiver of WAL, which stalls."""
    folder = place.folder / "received"
    folder.mkdir()
    command = [place.find("pg_receivewal"), f"--directory={folder}", "--synchronous", "--no-loop"]
    with place.program(*command, f"--dbname={place.conninfo} application_name=b1", stopped=False) as child:
        time.sleep(1.5)
        place.execute("ALTER SYSTEM SET synchronous_standby_names = 'b1'", "SELECT pg_reload_conf()")
        time.sleep(1)
        if stalls:
            import signal

            child.send_signal(signal.SIGSTOP)
        yield
        place.execute("ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")


@contextmanager
def missing_standby(place: Place) -> Iterator[None]:
    """No standby of that name."""
    place.execute("ALTER SYSTEM SET synchronous_standby_names = 'b1'", "SELECT pg_reload_conf()")
    yield
    place.execute("ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")


def slow_copy(connection: psycopg.Connection[Any]) -> None:
    """COPY rows with a pause after each."""
    with connection.cursor().copy("COPY target FROM STDIN") as copy:
        for _ in range(20):
            copy.write_row((1,))
            time.sleep(0.02)
    connection.commit()


def copy_rows(connection: psycopg.Connection[Any]) -> None:
    """COPY 5,000 rows as fast as the server takes them."""
    rows = "".join(f"{n}\t{1 + n % 20000}\tword{n % 977} some text {n}\n" for n in range(5000))
    with connection.cursor().copy("COPY lines (n, ref, words) FROM STDIN") as copy:
        copy.write(rows)
    connection.commit()


def copy_many(connection: psycopg.Connection[Any]) -> None:
    """COPY 100,000 rows in one transaction."""
    rows = "".join(f"{n}\t{n}\tword{n % 977} some text {n}\n" for n in range(5000))
    with connection.cursor().copy("COPY lines (n, ref, words) FROM STDIN") as copy:
        for _ in range(20):
            copy.write(rows)
    connection.commit()


LINES = (
    "CREATE TABLE refs (id int PRIMARY KEY)",
    "INSERT INTO refs SELECT generate_series(1, 20000)",
    "CREATE TABLE lines (n int, ref int, words text)",
    "VACUUM ANALYZE refs",
)
INSERT_LINES = (
    "INSERT INTO lines SELECT n, 1 + n % 20000, 'word' || n % 977 || ' some text ' || n"
    " FROM generate_series(1, 3000) n;\n"
)
SLOW = (
    "CREATE FUNCTION slow(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS"
    " 'DECLARE s int := 0; BEGIN FOR i IN 1..300 LOOP s := s + i; END LOOP; RETURN s + $1; END'"
)
PLAIN_INDEXES = tuple(f"CREATE INDEX l5_{name}_idx ON lines ({column})" for name, column in (("a", "n"), ("b", "ref")))
FIVE = (*PLAIN_INDEXES, "CREATE INDEX l5_c_idx ON lines (n, ref)", "CREATE INDEX l5_d_idx ON lines (ref, n)")
TRIGGER = (
    (
        "CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS"
        " 'DECLARE s int := 0; BEGIN FOR i IN 1..150 LOOP s := s + i; END LOOP; RETURN NEW; END'"
    ),
    "CREATE TRIGGER audits BEFORE INSERT ON lines FOR EACH ROW EXECUTE FUNCTION audit()",
)
# What a planner that expects few rows of the first reads by a loop over the second's index.
JOINED = (
    "CREATE TABLE a (key text, k int) WITH (autovacuum_enabled = off)",
    "CREATE TABLE b (key text PRIMARY KEY, n int) WITH (autovacuum_enabled = off)",
    "INSERT INTO b SELECT md5(n::text), n FROM generate_series(1, 100000) n",
)
COUNT = "SELECT sum(n) FROM a JOIN b USING (key) WHERE k = 1;\n"
GROW = "INSERT INTO orders SELECT 1000000 + nextval('s'), 1, 1, repeat('x', 900) FROM generate_series(1, 500);\n"
NO_CANCEL = ("pg_cancel_backend", "pg_terminate_backend")

PLANTINGS = [
    Case(
        name="xmin-of-an-open-transaction",
        expected=("xmin-held",),
        prepare=(*ORDERS, *JOBS),
        work=(TAKE,),
        hold=lambda place: held_queue(place, "xid"),
        remedy=("VACUUM FULL jobs",),
        named=("application left", "pg_terminate_backend"),
        never=("application reader",),
    ),
    Case(
        name="xmin-of-a-prepared-transaction",
        expected=("xmin-held",),
        prepare=(*ORDERS, *JOBS),
        work=(TAKE,),
        hold=lambda place: held_queue(place, "prepared"),
        remedy=("VACUUM FULL jobs",),
        named=("order-4711", "ROLLBACK PREPARED 'order-4711'"),
        never=NO_CANCEL,
        risks=("prepared-transaction",),
    ),
    Case(
        name="row-of-a-prepared-transaction",
        expected=("lock-wait",),
        prepare=ORDERS,
        work=(HOT,),
        clients=4,
        hold=prepared_row,
        named=("prepared transaction 'order-4711'", "ROLLBACK PREPARED 'order-4711'"),
        never=NO_CANCEL,
        risks=("prepared-transaction",),
    ),
    Case(
        name="ddl-behind-a-prepared-transaction",
        expected=("lock-queue", "lock-wait"),
        prepare=ORDERS,
        work=(READ,),
        clients=4,
        hold=prepared_ddl,
        named=("order-4711", "ROLLBACK PREPARED 'order-4711'"),
        risks=("prepared-transaction",),
    ),
    Case(
        name="wraparound-held-by-an-open-transaction",
        also=frozenset({"cpu-bound", "client-bound"}),
        prepare=ORDERS,
        work=(READ,),
        settings={"autovacuum_freeze_max_age": "100000"},
        hold=frozen_late,
        named=("application left",),
        risks=("transaction-age",),
        never=("application pgbench",),
    ),
    Case(
        name="row-of-an-open-transaction",
        expected=("lock-wait",),
        prepare=ORDERS,
        work=(HOT,),
        clients=4,
        hold=lambda place: place.session("UPDATE orders SET price = 0 WHERE id = 1", name="report"),
        named=("application report", "pg_terminate_backend"),
    ),
    Case(
        name="ddl-behind-a-report",
        expected=("lock-queue",),
        prepare=ORDERS,
        work=(READ,),
        clients=4,
        hold=report_and_ddl,
        named=("ALTER TABLE", "lock_timeout"),
    ),
    Case(
        name="advisory-lock-of-an-idle-session",
        expected=("lock-wait",),
        prepare=ORDERS,
        work=("SELECT pg_advisory_lock(7), pg_advisory_unlock(7);\n",),
        clients=4,
        hold=lambda place: place.session("SELECT pg_advisory_lock(7)", name="cron"),
        named=("application cron",),
    ),
    Case(
        name="table-locked-by-an-application",
        expected=("lock-wait",),
        prepare=ORDERS,
        work=(READ,),
        clients=4,
        hold=lambda place: place.session("LOCK TABLE orders", name="batch"),
        named=("application batch",),
    ),
    Case(
        name="hot-row",
        expected=("lock-wait", "commit-local-flush"),
        prepare=ORDERS,
        work=(f"BEGIN;\n{HOT}SELECT pg_sleep(0.01);\nEND;\n",),
        clients=8,
        named=("in turn",),
        never=NO_CANCEL,
        also=frozenset({"client-bound"}),
    ),
    Case(
        name="deadlocks",
        expected=("deadlocks",),
        prepare=(*ORDERS, "ALTER SYSTEM SET deadlock_timeout = '200ms'", "SELECT pg_reload_conf()"),
        work=(
            (
                "BEGIN;\nUPDATE orders SET price = 1 WHERE id = 1;\nSELECT pg_sleep(0.02);\n"
                "UPDATE orders SET price = 1 WHERE id = 2;\nEND;\n"
            ),
            (
                "BEGIN;\nUPDATE orders SET price = 1 WHERE id = 2;\nSELECT pg_sleep(0.02);\n"
                "UPDATE orders SET price = 1 WHERE id = 1;\nEND;\n"
            ),
        ),
        options=("--max-tries=0",),
        named=("one order",),
        never=NO_CANCEL,
    ),
    Case(
        name="missing-index",
        expected=("sequential-scan",),
        prepare=ORDERS,
        work=("\\set c random(1, 5000)\nSELECT count(*), sum(price) FROM orders WHERE customer = :c;\n",),
        remedy=("CREATE INDEX ON orders (customer)",),
        named=("public.orders", "CREATE INDEX CONCURRENTLY"),
    ),
    Case(
        name="update-without-an-index",
        expected=("sequential-scan",),
        prepare=ORDERS,
        work=("\\set c random(1, 5000)\nUPDATE orders SET price = price + 1 WHERE customer = :c;\n",),
        remedy=("CREATE INDEX ON orders (customer)",),
        named=("public.orders",),
    ),
    Case(
        name="no-index-and-never-analyzed",
        expected=("sequential-scan",),
        prepare=(
            "CREATE TABLE copied (id int, n int) WITH (autovacuum_enabled = off)",
            "INSERT INTO copied SELECT n, n % 1000 FROM generate_series(1, 200000) n",
        ),
        work=("\\set id random(1, 200000)\nSELECT n FROM copied WHERE id = :id;\n",),
        remedy=("CREATE INDEX ON copied (id)",),
        named=("public.copied",),
    ),
    Case(
        name="never-analyzed-but-the-plan-is-right",
        also=frozenset({"cpu-bound", "client-bound"}),
        prepare=(
            "CREATE TABLE copied (id int PRIMARY KEY, n int) WITH (autovacuum_enabled = off)",
            "INSERT INTO copied SELECT n, n % 1000 FROM generate_series(1, 200000) n",
        ),
        work=("\\set id random(1, 200000)\nSELECT n FROM copied WHERE id = :id;\n",),
        remedy=("ANALYZE copied",),
        risks=("never-analyzed",),
    ),
    Case(
        name="stale-statistics",
        expected=("stale-statistics",),
        prepare=(
            *JOINED,
            "INSERT INTO a SELECT md5(n::text), n FROM generate_series(1, 5000) n",
            "CREATE INDEX ON a (k)",
            "VACUUM ANALYZE",
            "INSERT INTO a SELECT md5(n::text), 1 FROM generate_series(1, 95000) n",
        ),
        work=(COUNT,),
        remedy=("ANALYZE a",),
        named=("public.a", "ANALYZE"),
    ),
    Case(
        name="never-analyzed-and-the-plan-is-wrong",
        expected=("no-statistics",),
        prepare=(
            *JOINED,
            "INSERT INTO a SELECT md5(n::text), n FROM generate_series(1, 5000) n",
            "INSERT INTO a SELECT md5(n::text), 1 FROM generate_series(1, 95000) n",
            "CREATE INDEX ON a (k)",
            "VACUUM ANALYZE b",
        ),
        work=(COUNT,),
        remedy=("ANALYZE a",),
        named=("public.a", "ANALYZE"),
    ),
    Case(
        name="bloat",
        expected=("bloat",),
        prepare=(
            "CREATE TABLE hot (id int, n int, note text) WITH (autovacuum_enabled = off)",
            "INSERT INTO hot SELECT n, 0, repeat('x', 100) FROM generate_series(1, 2000) n",
            "CREATE INDEX ON hot (n)",
            "ANALYZE hot",
            *["UPDATE hot SET n = n + 1"] * 52,
        ),
        work=("SELECT sum(n) FROM hot;\n",),
        remedy=("VACUUM FULL hot",),
        named=("public.hot", "VACUUM", "ACCESS EXCLUSIVE"),
    ),
    Case(
        name="bloat-after-vacuum",
        expected=("bloat",),
        prepare=(
            "CREATE TABLE hot (id int, n int, note text) WITH (autovacuum_enabled = off)",
            "INSERT INTO hot SELECT n, 0, repeat('x', 100) FROM generate_series(1, 100000) n",
            "DELETE FROM hot WHERE id % 50 > 0 AND id < 99990",
            "SELECT pg_sleep(1.2)",
            "VACUUM ANALYZE hot",
        ),
        work=("SELECT sum(n) FROM hot;\n",),
        remedy=("VACUUM FULL hot",),
        named=("public.hot", "VACUUM FULL", "ACCESS EXCLUSIVE"),
    ),
    Case(
        name="foreign-key-without-an-index",
        expected=("foreign-key-unindexed",),
        prepare=(
            *ORDERS,
            "CREATE TABLE items (id int, order_id int REFERENCES orders)",
            "INSERT INTO items SELECT n, 1 + n % 100000 FROM generate_series(1, 400000) n",
            "VACUUM ANALYZE items",
        ),
        work=("\\set id random(100001, 200000)\nDELETE FROM orders WHERE id = :id;\n",),
        remedy=("CREATE INDEX ON items (order_id)",),
        named=("public.items", "order_id"),
    ),
    Case(
        name="copy-pays-for-a-foreign-key",
        expected=("row-costs",),
        prepare=(*LINES, "ALTER TABLE lines ADD CONSTRAINT lines_ref FOREIGN KEY (ref) REFERENCES refs"),
        repeat=copy_rows,
        clients=1,
        remedy=("ALTER TABLE lines DROP CONSTRAINT lines_ref",),
        named=("lines_ref",),
        never=("by more sessions",),
    ),
    Case(
        name="copy-pays-for-a-trigger",
        expected=("row-costs",),
        prepare=(*LINES, *TRIGGER),
        repeat=copy_rows,
        clients=1,
        remedy=("DROP TRIGGER audits ON lines",),
        named=("audits",),
        never=("by more sessions",),
    ),
    Case(
        name="insert-pays-for-one-of-five-indexes",
        expected=("row-costs",),
        prepare=(*LINES, SLOW, *FIVE, "CREATE INDEX l5_id_idx ON lines (slow(n))"),
        work=(INSERT_LINES,),
        clients=1,
        remedy=("DROP INDEX l5_id_idx",),
        named=("l5_id_idx",),
    ),
    Case(
        name="insert-pays-for-a-gin-index",
        expected=("row-costs",),
        prepare=(
            *LINES,
            "CREATE INDEX by_words ON lines USING gin (to_tsvector('english', words)) WITH (fastupdate = off)",
        ),
        work=(INSERT_LINES,),
        clients=1,
        remedy=("DROP INDEX by_words",),
        named=("by_words",),
    ),
    Case(
        name="copy-pays-for-an-index-of-texts",
        expected=("row-costs",),
        prepare=(*LINES, *FIVE, "CREATE INDEX z_idx ON lines (md5(words))"),
        work=(INSERT_LINES,),
        clients=1,
        remedy=("DROP INDEX z_idx",),
        named=("z_idx",),
    ),
    Case(
        name="insert-pays-for-a-gin-index-of-arrays",
        expected=("row-costs",),
        prepare=(
            "CREATE TABLE tagged (id int, tags int[])",
            "CREATE INDEX by_id ON tagged (id)",
            "CREATE INDEX by_tags ON tagged USING gin (tags)",
        ),
        work=(
            (
                "INSERT INTO tagged SELECT n, ARRAY[n % 100, n * 7 % 1000, n * 13 % 5000, n * 17 % 9000, n]"
                " FROM generate_series(1, 3000) n;\n"
            ),
        ),
        clients=1,
        remedy=("DROP INDEX by_tags",),
        named=("by_tags",),
    ),
    Case(
        name="one-copy-on-two-processors",
        expected=("few-sessions", "wal-write"),
        prepare=LINES,
        repeat=copy_many,
        clients=1,
    ),
    Case(
        name="checkpoints-forced",
        expected=("checkpoints-forced",),
        named=("max_wal_size", "At most"),
        prepare=ORDERS,
        work=("\\set id random(1, 190000)\nUPDATE orders SET price = price + 1 WHERE id BETWEEN :id AND :id + 200;\n",),
        clients=4,
        settings={"max_wal_size": "32MB", "min_wal_size": "32MB"},
        remedy=("ALTER SYSTEM SET max_wal_size = '4GB'", "SELECT pg_reload_conf()", "CHECKPOINT"),
        also=frozenset({"commit-local-flush", "wal-write"}),
    ),
    Case(
        name="wal-without-full-page-images",
        expected=("wal-write", "commit-local-flush", "relation-extension"),
        prepare=("CREATE TABLE filled (id int, note text)",),
        work=("INSERT INTO filled SELECT n, repeat('x', 500) FROM generate_series(1, 2000) n;\n",),
        clients=4,
        settings={"max_wal_size": "64MB", "min_wal_size": "32MB"},
        never=("Full-page images", "full-page images smaller"),
        also=frozenset({"checkpoints-forced"}),
    ),
    Case(
        name="flush-of-a-slow-disk",
        expected=("commit-local-flush",),
        prepare=ORDERS,
        work=(UPDATE,),
        clients=2,
        settings={"commit_delay": "20000", "commit_siblings": "0"},
        remedy=("ALTER SYSTEM SET synchronous_commit = off", "SELECT pg_reload_conf()"),
        named=("synchronous_commit",),
    ),
    Case(
        name="synchronous-standby-stalls",
        expected=("commit-standby", "standby-behind"),
        prepare=ORDERS,
        work=(UPDATE,),
        clients=4,
        hold=lambda place: receiver(place, stalls=True),
        named=("b1",),
        never=("rows at a time",),
    ),
    Case(
        name="synchronous-standby-is-missing",
        expected=("standby-missing",),
        prepare=ORDERS,
        work=(UPDATE,),
        clients=4,
        hold=missing_standby,
        named=("b1",),
    ),
    Case(
        name="one-sequence",
        expected=("lwlock-contention",),
        prepare=("CREATE SEQUENCE numbers",),
        work=("DO $$BEGIN FOR i IN 1..20000 LOOP PERFORM nextval('numbers'); END LOOP; END$$;\n",),
        clients=24,
        remedy=("ALTER SEQUENCE numbers CACHE 1000",),
        named=("CACHE",),
        also=frozenset({"cpu-bound"}),
    ),
    Case(
        name="sixty-four-partitions",
        expected=("lwlock-contention", "cpu-bound"),
        prepare=(
            "CREATE TABLE parts (id int, k int) PARTITION BY HASH (id)",
            *[f"CREATE TABLE p_{n} PARTITION OF parts FOR VALUES WITH (MODULUS 64, REMAINDER {n})" for n in range(64)],
            "INSERT INTO parts SELECT n, n FROM generate_series(1, 20000) n",
            "CREATE INDEX ON parts (k)",
            "VACUUM ANALYZE",
        ),
        work=("\\set k random(1, 20000)\nSELECT count(*) FROM parts WHERE k = :k;\n",),
        clients=24,
        never=("--sessions",),
    ),
    Case(
        name="computing",
        expected=("cpu-bound",),
        prepare=ORDERS,
        work=("DO $$BEGIN FOR i IN 1..200000 LOOP PERFORM i; END LOOP; END$$;\n",),
        clients=4,
    ),
    Case(
        name="other-programs",
        expected=("other-programs", "cpu-bound", "waits-disagree-with-cpu"),
        prepare=ORDERS,
        work=("DO $$BEGIN FOR i IN 1..100000 LOOP PERFORM i; END LOOP; END$$;\n",),
        clients=1,
        hold=busy_host,
    ),
    Case(
        name="client-thinks-in-transactions",
        expected=("client-bound",),
        prepare=ORDERS,
        work=(f"BEGIN;\n{READ}\\sleep 40 ms\n{UPDATE}END;\n",),
        clients=6,
        also=frozenset({"commit-local-flush"}),
    ),
    Case(
        name="slow-client-of-copy",
        expected=("client-bound",),
        prepare=("CREATE TABLE target (id int)",),
        repeat=slow_copy,
        clients=3,
    ),
    Case(
        name="short-connections",
        expected=("connections-short",),
        prepare=ORDERS,
        work=(READ,),
        clients=4,
        options=("-C",),
        also=frozenset({"cpu-bound"}),
    ),
    Case(
        name="all-connections-taken",
        expected=("connections-taken",),
        prepare=ORDERS,
        work=(READ,),
        clients=2,
        options=("-R", "20"),
        settings={"max_connections": "30"},
        hold=lambda place: many_idle(place, 25),
        named=("application pool",),
    ),
    Case(
        name="sorts-that-spill",
        # By own queries they compute: in memory they take as long.
        expected=("cpu-bound",),
        prepare=ORDERS,
        work=("SELECT count(*) FROM (SELECT note, price, id FROM orders ORDER BY note, price, id OFFSET 0) AS s;\n",),
        settings={"work_mem": "256kB"},
        remedy=("ALTER SYSTEM SET work_mem = '128MB'", "SELECT pg_reload_conf()"),
        also=frozenset({"temp-spill"}),
    ),
    Case(
        name="forgotten-slot",
        also=frozenset({"wal-write", "commit-local-flush", "cpu-bound", "client-bound"}),
        prepare=(*ORDERS, "CREATE SEQUENCE s", "SELECT pg_create_physical_replication_slot('gone', true)"),
        work=(
            "INSERT INTO orders SELECT 1000000 + nextval('s'), 1, 1, repeat('x', 900) FROM generate_series(1, 500);\n",
        ),
        settings={"max_wal_size": "64MB"},
        risks=("slot-keeps-wal",),
    ),
    Case(
        name="autovacuum-prevents-wraparound-of-a-locked-table",
        expected=("lock-wait",),
        prepare=(*ORDERS, "CREATE TABLE big AS SELECT * FROM orders, generate_series(1, 3)"),
        work=("SELECT count(*) FROM orders WHERE id < 10;\n",),
        clients=3,
        hold=lambda place: place.session("ALTER TABLE orders ADD c int", name="migration"),
        named=("application migration",),
    ),
    Case(
        name="index-does-not-fit-into-memory",
        expected=("index-reads", "data-io"),
        prepare=(
            "CREATE TABLE wide (id bigint, key text)",
            "INSERT INTO wide SELECT n, md5(n::text) FROM generate_series(1, 600000) n",
            "CREATE INDEX by_key ON wide (key)",
            "VACUUM ANALYZE wide",
        ),
        work=("INSERT INTO wide SELECT 1, md5(random()::text) FROM generate_series(1, 200);\n",),
        clients=4,
        settings={"shared_buffers": "8MB"},
        remedy=("DROP INDEX by_key",),
        also=frozenset({"wal-write", "commit-local-flush", "checkpoints-forced", "volume-iops"}),
    ),
]
