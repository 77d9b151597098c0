"""Healthy workloads: nothing is to be found but facts, which each names. Most have a rate that leaves time to spare."""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from benchmarks.planted import LINES, ORDERS, READ, UPDATE, copy_rows
from benchmarks.plantings import Case, Place

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg

BANK = (
    "CREATE TABLE accounts (id int PRIMARY KEY, balance int)",
    "CREATE TABLE tellers (id int PRIMARY KEY, balance int)",
    "CREATE TABLE branches (id int PRIMARY KEY, balance int)",
    "CREATE TABLE history (teller int, branch int, account int, delta int, at timestamp)",
    "INSERT INTO accounts SELECT n, 0 FROM generate_series(1, 200000) n",
    "INSERT INTO tellers SELECT n, 0 FROM generate_series(1, 20) n",
    "INSERT INTO branches SELECT n, 0 FROM generate_series(1, 4) n",
    "VACUUM ANALYZE",
)
TPCB = (
    "\\set a random(1, 200000)\n\\set t random(1, 20)\n\\set b random(1, 4)\nBEGIN;\n"
    "UPDATE accounts SET balance = balance + 1 WHERE id = :a;\nSELECT balance FROM accounts WHERE id = :a;\n"
    "UPDATE tellers SET balance = balance + 1 WHERE id = :t;\n"
    "UPDATE branches SET balance = balance + 1 WHERE id = :b;\n"
    "INSERT INTO history VALUES (:t, :b, :a, 1, now());\nEND;\n"
)
# Short transactions that write on this disk, if they come to be most of what is active
COMMITS = frozenset({"commit-local-flush"})
WRITES = COMMITS | {"wal-write"}
# A command or a report at a time uses one processor, and others use the rest
CPU = frozenset({"cpu-bound"})


def rated(name: str, rate: int, script: str, *prepare: str, also: frozenset[str] = COMMITS, clients: int = 2) -> Case:
    """Return a workload of so many transactions a second."""
    given = prepare or ORDERS
    return Case(name=name, prepare=given, work=(script,), options=("-R", str(rate)), clients=clients, also=also)


def repeated(
    name: str, statement: str, *prepare: str, also: frozenset[str] = WRITES | CPU, pause_s: float = 0.05
) -> Case:
    """Return a workload that runs one command again and again, outside of transactions."""

    def work(connection: psycopg.Connection[Any]) -> None:
        connection.autocommit = True
        for each in statement.split(";;"):
            connection.execute(each.encode())
        time.sleep(pause_s)

    return Case(name=name, prepare=prepare or ORDERS, repeat=work, clients=1, also=also)


def think(connection: psycopg.Connection[Any]) -> None:
    """Read, think briefly, write, and think for longer between two transactions."""
    connection.execute("SELECT price FROM orders WHERE id = 7")
    time.sleep(0.004)
    connection.execute("UPDATE orders SET price = price + 1 WHERE id = 7000")
    connection.commit()
    time.sleep(0.05)


@contextmanager
def idle(place: Place, count: int) -> Iterator[None]:
    """So many sessions of a pool."""
    with ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(place.session("SELECT 1", name="pool")).commit()
        yield


@contextmanager
def receiving(place: Place) -> Iterator[None]:
    """An asynchronous receiver of WAL."""
    folder = place.folder / "received"
    folder.mkdir()
    with place.program(place.find("pg_receivewal"), f"--directory={folder}", f"--dbname={place.conninfo}"):
        time.sleep(1)
        yield


NOTHING = frozenset[str]()
HEALTHY = [
    rated("tpcb-at-100-a-second", 100, TPCB, *BANK),
    rated("tpcb-at-20-a-second", 20, TPCB, *BANK),
    rated("updates-at-100-a-second", 100, UPDATE),
    rated("updates-of-16-clients", 100, UPDATE, clients=16),
    rated("reads-at-300-a-second", 300, READ, also=NOTHING),
    Case(name="prepared-reads", prepare=ORDERS, work=(READ,), options=("-R", "200", "-M", "prepared")),
    rated("inserts", 100, "INSERT INTO log VALUES (1, 'x');\n", "CREATE TABLE log (id int, text text)"),
    rated(
        "inserts-of-100-rows",
        20,
        "INSERT INTO log SELECT n, 'x' FROM generate_series(1, 100) n;\n",
        "CREATE TABLE log (id int, text text)",
        also=WRITES,
    ),
    rated(
        "upserts",
        100,
        "\\set id random(1, 300000)\nINSERT INTO orders VALUES (:id) ON CONFLICT (id) DO UPDATE SET price = 1;\n",
    ),
    rated(
        "queue",
        30,
        "INSERT INTO jobs (job) VALUES ('x');\nDELETE FROM jobs WHERE id IN (SELECT id FROM jobs ORDER BY id LIMIT 1"
        " FOR UPDATE SKIP LOCKED);\n",
        "CREATE TABLE jobs (id bigserial PRIMARY KEY, job text)",
    ),
    rated("report", 2, "SELECT price, count(*) FROM orders GROUP BY price ORDER BY 2 LIMIT 5;\n", also=NOTHING),
    rated("count", 3, "SELECT count(*) FROM orders;\n", also=NOTHING),
    rated("join", 5, "SELECT count(*) FROM orders a JOIN orders b ON b.id = a.id WHERE a.id < 5000;\n", also=NOTHING),
    rated("first-page", 50, "SELECT * FROM orders ORDER BY id LIMIT 20;\n", also=NOTHING),
    rated("window", 3, "SELECT sum(price) OVER (ORDER BY id) FROM orders WHERE id < 20000 LIMIT 1;\n", also=NOTHING),
    rated(
        "recursion",
        10,
        "WITH RECURSIVE r (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 2000) SELECT sum(n) FROM r;\n",
        also=NOTHING,
    ),
    Case(
        name="bulk-copy",
        prepare=LINES,
        repeat=copy_rows,
        clients=1,
        also=WRITES | CPU | {"few-sessions", "autovacuum"},
        settings={"autovacuum_naptime": "1s"},
    ),
    repeated("create-index", "CREATE INDEX i ON orders (note, price);;DROP INDEX i"),
    repeated(
        "create-index-that-spills",
        "SET maintenance_work_mem = '2MB';;CREATE INDEX i ON orders (note, id);;DROP INDEX i",
    ),
    repeated("reindex", "REINDEX TABLE orders"),
    repeated("vacuum", "UPDATE orders SET price = 1 WHERE id < 20000;;VACUUM orders"),
    repeated("vacuum-freeze", "VACUUM (FREEZE, DISABLE_PAGE_SKIPPING) orders"),
    repeated("analyze", "ANALYZE orders"),
    repeated("cluster", "CLUSTER orders USING orders_pkey", also=WRITES | CPU | {"data-io"}, pause_s=0.5),
    repeated(
        "staging",
        "TRUNCATE staged;;INSERT INTO staged SELECT * FROM orders WHERE id < 50000;;ANALYZE staged",
        *ORDERS,
        "CREATE TABLE staged (LIKE orders)",
    ),
    repeated("tables-that-come-and-go", "CREATE TABLE t AS SELECT * FROM orders WHERE id < 1000;;DROP TABLE t"),
    repeated(
        "refresh",
        "REFRESH MATERIALIZED VIEW m",
        *ORDERS,
        "CREATE MATERIALIZED VIEW m AS SELECT price, count(*) FROM orders GROUP BY price",
        pause_s=0.2,
    ),
    rated(
        "temporary-tables", 5, "CREATE TEMP TABLE t ON COMMIT DROP AS SELECT generate_series(1, 1000);\n", also=COMMITS
    ),
    rated("advisory-locks", 50, "BEGIN;\nSELECT pg_advisory_xact_lock(7);\nEND;\n", also=NOTHING),
    rated(
        "rows-locked-briefly",
        50,
        "BEGIN;\nSELECT * FROM orders WHERE id = 7 FOR UPDATE;\nEND;\n",
        also=COMMITS | {"lock-wait"},
    ),
    rated("notifications", 50, "SELECT pg_notify('news', 'x');\n"),
    rated("sequence", 100, "SELECT nextval('s');\n", "CREATE SEQUENCE s"),
    rated(
        "partitions",
        50,
        "INSERT INTO parts VALUES (7, 1);\n",
        "CREATE TABLE parts (id int, n int) PARTITION BY HASH (id)",
        *[f"CREATE TABLE parts_{n} PARTITION OF parts FOR VALUES WITH (MODULUS 8, REMAINDER {n})" for n in range(8)],
    ),
    rated(
        "foreign-keys",
        30,
        "\\set ref random(1, 20000)\nINSERT INTO lines VALUES (1, :ref, 'x');\n",
        *LINES,
        "ALTER TABLE lines ADD FOREIGN KEY (ref) REFERENCES refs",
    ),
    rated(
        "search-of-words",
        20,
        "SELECT count(*) FROM lines WHERE to_tsvector('simple', words) @@ to_tsquery('word7');\n",
        *LINES,
        "INSERT INTO lines SELECT n, n, 'word' || n % 97 || ' text' FROM generate_series(1, 20000) n",
        "CREATE INDEX ON lines USING gin (to_tsvector('simple', words))",
        "VACUUM ANALYZE lines",
        also=NOTHING,
    ),
    rated("savepoints", 30, f"BEGIN;\nSAVEPOINT a;\n{UPDATE}RELEASE a;\nEND;\n"),
    rated(
        "two-phase-commits",
        10,
        "BEGIN;\n" + UPDATE + "PREPARE TRANSACTION 'tx:client_id';\nCOMMIT PREPARED 'tx:client_id';\n",
        clients=1,
    ),
    Case(name="pool-of-forty", prepare=ORDERS, work=(READ,), options=("-R", "50"), hold=lambda place: idle(place, 40)),
    Case(name="transactions-that-think-briefly", prepare=ORDERS, repeat=think, clients=2, also=COMMITS),
    Case(name="receiver-in-step", prepare=ORDERS, work=(UPDATE,), options=("-R", "50"), hold=receiving, also=COMMITS),
    Case(
        name="autovacuum-in-step",
        prepare=(
            *ORDERS,
            "ALTER TABLE orders SET (autovacuum_vacuum_threshold = 100, autovacuum_vacuum_scale_factor = 0)",
        ),
        work=(UPDATE,),
        options=("-R", "100"),
        settings={"autovacuum_naptime": "1s"},
        also=COMMITS,
    ),
    rated("unlogged", 50, "INSERT INTO u VALUES (1);\n", "CREATE UNLOGGED TABLE u (id int)"),
    Case(name="nobody", prepare=ORDERS),
    Case(
        name="bulk-inserts-with-a-key-and-an-index",
        prepare=("CREATE TABLE keyed (id bigserial PRIMARY KEY, n int)", "CREATE INDEX ON keyed (n)"),
        work=("INSERT INTO keyed (n) SELECT n * 7919 % 100000 FROM generate_series(1, 5000) n;\n",),
        clients=1,
        also=WRITES | CPU,
    ),
    Case(
        name="bulk-upserts",
        prepare=("CREATE TABLE stock (id int PRIMARY KEY, n int)",),
        work=(
            (
                "INSERT INTO stock SELECT n, 1 FROM generate_series(1, 3000) n"
                " ON CONFLICT (id) DO UPDATE SET n = stock.n + 1;\n"
            ),
        ),
        clients=1,
        also=WRITES | CPU,
    ),
    Case(
        name="inserts-with-a-light-trigger",
        prepare=(
            *LINES,
            "CREATE FUNCTION light() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.n := 1; RETURN NEW; END'",
            "CREATE TRIGGER light BEFORE INSERT ON lines FOR EACH ROW EXECUTE FUNCTION light()",
        ),
        work=("INSERT INTO lines VALUES (1, 1, 'x');\n",),
        also=WRITES | CPU,
    ),
]
