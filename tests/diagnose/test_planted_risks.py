"""What grows on real servers while nobody waits for it, and who keeps it: planted, and found by a recording."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import psycopg
import pytest

from penstock.diagnose.examination import diagnose, examine
from support.recorded import execute, recording, working

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.embedded.server import EmbeddedServer
    from penstock.watch.values import Recording, Sample

OF_STATEMENTS = {"sequential-scan", "no-statistics", "statement-spills", "foreign-key-unindexed"}

# More than are needed to claim anything.
ENOUGH = 40

SEGMENT_BYTES = 16 * 1024 * 1024
PAGE_BYTES = 8192

# Takes a number each, with nothing to write.
SPEND = "DO $$BEGIN FOR i IN 1..{} LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END$$"


def await_row(conninfo: str, query: str) -> None:
    """Wait until a query returns true, for as long as a busy machine may need."""
    deadline_s = time.monotonic() + 600
    with psycopg.connect(conninfo, autocommit=True) as watcher:
        while watcher.execute(query.encode()).fetchone() != (True,):
            assert time.monotonic() < deadline_s, query
            time.sleep(0.1)


def codes_of_risks(recorded: Recording) -> set[str]:
    """Return what is near its limit; the disk is this machine's."""
    return {each.code for each in examine(recorded).risks} - {"disk-full"}


@pytest.mark.part("rest")
@pytest.mark.parametrize("major", [15, 18])
def test_autovacuum_that_prevents_wraparound_is_named_with_its_age(
    new_server: Callable[..., EmbeddedServer], major: int
) -> None:
    """It pauses after each page, and an ALTER TABLE waits for it; behind that wait the readers."""
    settings = {"autovacuum_freeze_max_age": "100000", "autovacuum_naptime": "1s", "synchronous_commit": "off"}
    # Autovacuum does not pause in the catalogs, which it reads before.
    settings["autovacuum_vacuum_cost_delay"] = "0"
    conninfo = new_server(major, **settings).ensure_running()
    # Only the prevention of wraparound reads a table with autovacuum off. At a tenth of a second or more for a page, it
    # takes several minutes.
    slow = "autovacuum_enabled = off, autovacuum_vacuum_cost_delay = 100, autovacuum_vacuum_cost_limit = 1"
    execute(conninfo, f"CREATE TABLE orders WITH ({slow}) AS SELECT n FROM generate_series(1, 500000) n")
    execute(conninfo, SPEND.format(101_000))
    worker = "autovacuum: VACUUM%public.orders (to prevent wraparound)"
    await_row(conninfo, f"SELECT count(*) > 0 FROM pg_stat_activity WHERE query LIKE '{worker}'")
    work = ["ALTER TABLE orders ADD c int", "SELECT count(*) FROM orders"]
    with recording(conninfo) as taken, working(conninfo, *(lambda each=each: execute(conninfo, each) for each in work)):
        taken.await_sessions(ENOUGH, lambda session: session.wait_event_type == "Lock")
    first = diagnose(taken.recording)[0]
    assert first.code == "autovacuum-wraparound"
    assert "autovacuum on public.orders to prevent wraparound, " in first.claim
    numbers = {each.name: each.value for each in first.evidence}
    assert numbers["age of the table in transactions"] > numbers["autovacuum_freeze_max_age"] == 100_000
    assert "--freeze always" in first.remedy
    assert "pause" not in first.remedy.replace("do not pause", "").replace("does not pause", "")


def test_transaction_that_keeps_the_dead_rows_of_a_queue_is_named(database: str) -> None:
    """It has read once, and is idle since: rows that others insert and delete stay."""
    execute(database, "CREATE TABLE jobs (id int) WITH (autovacuum_enabled = off)")
    with psycopg.connect(database, application_name="report") as holder:
        holder.execute("SELECT pg_current_xact_id()")
        execute(database, SPEND.format(1100), "INSERT INTO jobs SELECT generate_series(1, 20000)", "DELETE FROM jobs")
        # What the DELETE counts would otherwise be added to what VACUUM counts.
        await_row(database, "SELECT n_tup_del = 20000 FROM pg_stat_user_tables WHERE relname = 'jobs'")
        # It leaves the rows, so that they are dead because of the transaction.
        execute(database, "VACUUM jobs")
        await_row(database, "SELECT n_dead_tup = 20000 FROM pg_stat_user_tables WHERE relname = 'jobs'")
        ended = threading.Event()

        def take() -> None:
            while not ended.is_set():
                execute(database, *["SELECT count(*) FROM jobs"] * 50)

        with recording(database) as taken, working(database, take):
            try:
                taken.await_sessions(ENOUGH)
            finally:
                ended.set()
        pid = holder.info.backend_pid
        holder.rollback()
    found = {each.code: each for each in diagnose(taken.recording)}
    assert f"because of backend {pid} (application report, user postgres), idle in tr" in found["xmin-held"].claim
    assert f"pg_terminate_backend({pid})" in found["xmin-held"].remedy
    assert {each.name: each.value for each in found["xmin-held"].evidence}["dead rows of jobs that are kept"] == 20_000


PLANT = (
    "ALTER SEQUENCE orders_id_seq RESTART 2000000000",
    "INSERT INTO orders (n) VALUES (1)",
    "SELECT pg_create_physical_replication_slot('left', true)",
    "CREATE TABLE copied (id int, text text) WITH (autovacuum_enabled = off)",
    "INSERT INTO copied SELECT n, repeat('x', 500) FROM generate_series(1, 20000) n",
    # It sets reltuples, but makes no statistics.
    "CREATE INDEX ON copied (id)",
)
# Updates rows in subtransactions of the transaction that has locked them: each takes a multixact of both.
SHARE = (
    "DO $$BEGIN PERFORM FROM orders FOR KEY SHARE;"
    " FOR i IN 1..{} LOOP BEGIN UPDATE orders SET n = 2 WHERE id = i; EXCEPTION WHEN division_by_zero THEN END;"
    " END LOOP; END$$"
)


@pytest.mark.part("rest")
@pytest.mark.parametrize("major", [15, 18])
def test_what_will_stop_the_server_is_named_before_it_does(
    new_server: Callable[..., EmbeddedServer], major: int
) -> None:
    """With its number and limit; the same server has none of these before they are planted."""
    settings = {"max_connections": "16", "max_wal_size": "64MB", "min_wal_size": "32MB"}
    settings |= {"autovacuum_freeze_max_age": "100000", "autovacuum_naptime": "1h", "synchronous_commit": "off"}
    settings["autovacuum_multixact_freeze_max_age"] = "10000"
    conninfo = new_server(major, **settings).ensure_running()
    execute(conninfo, "CREATE TABLE orders (id serial PRIMARY KEY, n int)", "VACUUM ANALYZE orders")
    with recording(conninfo) as taken:
        execute(conninfo, "INSERT INTO orders (n) SELECT 1 FROM generate_series(1, 20000)", "ANALYZE orders")
        execute(conninfo, "SELECT count(*) FROM orders")
        taken.await_samples(30)
    assert codes_of_risks(taken.recording) == set()
    execute(conninfo, *PLANT, SPEND.format(85_000), SHARE.format(9000))
    with psycopg.connect(conninfo, autocommit=True) as other, pytest.raises(psycopg.errors.UniqueViolation):
        other.execute("CREATE UNIQUE INDEX CONCURRENTLY broken ON orders (n)")
    clients = [psycopg.connect(conninfo) for _ in range(11)]
    with recording(conninfo) as taken:
        taken.await_samples(2)
        execute(conninfo, *["SELECT count(*) FROM copied"] * 5, "INSERT INTO copied SELECT id, text FROM copied")
        taken.await_samples(30)
    for client in clients:
        client.close()
    risks = {each.code: each for each in examine(taken.recording).risks}
    assert codes_of_risks(taken.recording) == {
        *("connections", "invalid-index", "multixact-age", "never-analyzed", "sequence-end", "slot-keeps-wal"),
        "transaction-age",
    }
    assert risks["connections"].number("limit") == 13
    assert risks["invalid-index"].claim.startswith("index public.broken of orders is invalid")
    assert risks["never-analyzed"].claim.startswith("table public.copied, which is read, has ")
    assert (risks["sequence-end"].number("now"), risks["sequence-end"].number("limit")) == (2_000_000_000, 2**31 - 1)
    assert risks["slot-keeps-wal"].claim.startswith("slot left, not in use, has ")
    assert risks["slot-keeps-wal"].number("now") > 10_000_000
    assert (risks["multixact-age"].number("limit"), risks["multixact-age"].number("now") >= 9000) == (10_000, True)
    assert (risks["transaction-age"].number("limit"), risks["transaction-age"].number("now") > 80_000) == (
        100_000,
        True,
    )


@pytest.mark.parametrize("major", [15, 18])
def test_each_sequence_that_ends_is_a_risk(new_server: Callable[..., EmbeddedServer], major: int) -> None:
    """One of a number of ten digits, and one of an unlogged table; one of bigint never ends."""
    conninfo = new_server(major).ensure_running()
    execute(
        conninfo,
        "CREATE SEQUENCE invoice MAXVALUE 9999999999",
        "SELECT setval('invoice', 9000000000)",
        "CREATE SEQUENCE down INCREMENT -1 MINVALUE -9999999999",
        "SELECT setval('down', -9000000000)",
        "CREATE UNLOGGED TABLE staged (id smallserial)",
        "SELECT setval('staged_id_seq', 30000)",
        "CREATE TABLE orders (id bigserial)",
        "SELECT setval('orders_id_seq', 9000000000)",
    )
    with recording(conninfo) as taken:
        taken.await_samples(2)
    found = {
        each.claim.partition(" has ")[0]: (each.number("now"), each.number("limit"))
        for each in examine(taken.recording).risks
    }
    assert found == {
        "sequence public.invoice": (9_000_000_000, 9_999_999_999),
        "sequence public.down": (9_000_000_000, 9_999_999_999),
        "sequence public.staged_id_seq": (30_000, 32_767),
    }


@pytest.mark.part("rest")
@pytest.mark.parametrize("major", [15, 18])
def test_decoding_that_spills_is_named(new_server: Callable[..., EmbeddedServer], major: int) -> None:
    """A transaction is larger than the memory of decoding; beside it a slot whose transactions fit has none."""
    settings = {"wal_level": "logical", "logical_decoding_work_mem": "64kB"}
    conninfo = new_server(major, **settings).ensure_running()
    execute(
        conninfo,
        "CREATE TABLE orders (id int, text text)",
        "CREATE PUBLICATION all_orders FOR TABLE orders",
        "SELECT pg_create_logical_replication_slot('replica', 'pgoutput')",
    )
    decode = (
        "SELECT count(*) FROM pg_logical_slot_get_binary_changes('replica', NULL, NULL, 'proto_version', '1',"
        " 'publication_names', 'all_orders')"
    )
    for rows, expected in ((20, set()), (20_000, {"decoding-spills"})):
        with recording(conninfo) as taken:
            taken.await_samples(2)
            execute(conninfo, f"INSERT INTO orders SELECT n, repeat('x', 1000) FROM generate_series(1, {rows}) n")
            execute(conninfo, decode)
            taken.await_samples(10)
        assert codes_of_risks(taken.recording) == expected


@pytest.mark.part("rest")
@pytest.mark.parametrize("major", [15, 18])
def test_archiver_that_fails_is_named_until_it_works(new_server: Callable[..., EmbeddedServer], major: int) -> None:
    """It has never archived a segment, so the first one that failed is the oldest of those that are kept."""
    conninfo = new_server(
        major, archive_mode="on", archive_command="false", wal_level="replica", max_wal_size="1GB"
    ).ensure_running()
    execute(conninfo, "CREATE TABLE orders (id int)")
    for _ in range(3):
        execute(conninfo, "INSERT INTO orders VALUES (1)", "SELECT pg_switch_wal()")
    await_row(conninfo, "SELECT failed_count > 0 FROM pg_stat_archiver")
    with recording(conninfo) as taken:
        taken.await_samples(3)
    (risk,) = (each for each in examine(taken.recording).risks if each.code != "disk-full")
    assert risk.headline.startswith("archiver-keeps-wal: the archiver, which fails at 0000")
    assert 3 * SEGMENT_BYTES <= risk.number("now") < 5 * SEGMENT_BYTES
    execute(conninfo, "ALTER SYSTEM SET archive_command = 'true'", "SELECT pg_reload_conf()")
    await_row(conninfo, "SELECT archived_count >= 3 FROM pg_stat_archiver")
    with recording(conninfo) as taken:
        taken.await_samples(3)
    assert codes_of_risks(taken.recording) == set()


@pytest.mark.part("rest")
@pytest.mark.parametrize("major", [15, 18])
def test_page_whose_checksum_is_wrong_is_counted(new_server: Callable[..., EmbeddedServer], major: int) -> None:
    """VACUUM FULL writes the table past the server's buffers, so that the page is read from the disk."""
    server = new_server(major)
    conninfo = server.ensure_running()
    execute(conninfo, "CREATE TABLE orders AS SELECT generate_series(1, 1000) AS n", "VACUUM FULL orders")
    with psycopg.connect(conninfo, autocommit=True) as connection:
        assert connection.execute("SHOW data_checksums").fetchone() == ("on",)
        (path,) = connection.execute("SELECT pg_relation_filepath('orders')").fetchone() or ("",)
        connection.execute("CHECKPOINT")
        with recording(conninfo) as taken:
            taken.await_samples(2)
        assert codes_of_risks(taken.recording) == set()
        with (server.data_dir / path).open("r+b") as file:
            file.seek(PAGE_BYTES // 2)
            file.write(bytes(range(256)))
        with pytest.raises(psycopg.errors.DataCorrupted):
            connection.execute("SELECT count(*) FROM orders")
        with recording(conninfo) as taken:
            taken.await_samples(2)
    assert codes_of_risks(taken.recording) == {"checksum-failures"}


@pytest.mark.part("rest")
@pytest.mark.parametrize("major", [15, 18])
def test_subtransactions_that_do_not_fit_their_cache_are_named(
    new_server: Callable[..., EmbeddedServer], major: int
) -> None:
    """Each row was inserted by a subtransaction of a transaction that is open, and they are read in random order."""
    conninfo = new_server(major, autovacuum="off").ensure_running()
    execute(conninfo, "CREATE TABLE orders (id float8)", "CREATE INDEX ON orders (id)")
    read = "SELECT count(*) FROM (SELECT id FROM orders ORDER BY id OFFSET 0) AS each"
    insert = (
        "DO $$BEGIN FOR i IN 1..{} LOOP BEGIN INSERT INTO orders VALUES (random());"
        " EXCEPTION WHEN division_by_zero THEN END; END LOOP; END$$"
    )
    execute(conninfo, "ALTER ROLE postgres SET enable_seqscan = off", "ALTER ROLE postgres SET enable_sort = off")
    for subtransactions, expected in ((1000, set()), (200_000, {"slru-misses"})):
        with psycopg.connect(conninfo) as writer:
            writer.execute(insert.format(subtransactions).encode())
            # Numbers behind the last transaction that has ended are in progress for certain, and are not looked up.
            execute(conninfo, "SELECT pg_current_xact_id()")
            with recording(conninfo) as taken:
                taken.await_samples(2)
                execute(conninfo, read, read)
            writer.rollback()
        assert codes_of_risks(taken.recording) == expected
    (risk,) = (each for each in examine(taken.recording).risks if each.code == "slru-misses")
    assert risk.claim.lower().startswith("cache subtrans")
    assert "subtransaction_buffers" in risk.remedy


@pytest.mark.part("rest")
def test_disk_of_temporary_files_that_was_full_is_named_though_it_is_free_again(
    new_server: Callable[..., EmbeddedServer], small_device: Path
) -> None:
    """A sort of 1 kB rows fills it, fails, and leaves it empty; then it begins again."""
    server = new_server(18, work_mem="64kB")
    conninfo = server.ensure_running()
    owner, folder = server.data_dir.stat(), small_device / "temporary"
    folder.mkdir()
    os.chown(folder, owner.st_uid, owner.st_gid)
    for path in (small_device.parent, small_device):
        path.chmod(0o755)
    slowly = "(SELECT count(*) FROM generate_series(1, 200 + n % 2))"
    rows = f"SELECT n, repeat(md5(n::text), 32) AS text, {slowly} FROM generate_series(1, 1000000) n"
    execute(
        conninfo,
        f"CREATE TABLESPACE small LOCATION '{folder}'",
        "ALTER ROLE postgres SET temp_tablespaces = 'small'",
        "ALTER ROLE postgres SET jit = off",
    )
    ended = threading.Event()

    def sort() -> None:
        while not ended.is_set():
            with suppress(psycopg.errors.DiskFull):
                execute(conninfo, f"SELECT * FROM ({rows} ORDER BY text) AS each OFFSET 1000000")

    def was_full(samples: list[Sample]) -> bool:
        rows = [row for sample in samples for row in sample.counters.get("host_devices", ())]
        return any(row["least_free_bytes"] < 0.01 * row["size_bytes"] for row in rows if row["tablespace"] == "small")  # type: ignore[operator]

    with recording(conninfo, interval_s=0.02) as taken, working(conninfo, sort):
        try:
            taken.await_that(was_full, patience_s=60)
        finally:
            ended.set()
    first = diagnose(taken.recording)[0]
    assert first.code == "temp-disk-full"
    assert "which was full" in first.claim
    execute(conninfo, "ALTER ROLE postgres RESET temp_tablespaces", "DROP TABLESPACE small")


def computing(conninfo: str, statement: str) -> list[str]:
    """Return what is found while two sessions run a statement again and again."""
    ended = threading.Event()

    def run() -> None:
        while not ended.is_set():
            execute(conninfo, *[statement] * 5)

    with recording(conninfo) as taken:
        taken.await_samples(2)
        with working(conninfo, run, run):
            try:
                taken.await_sessions(2 * ENOUGH, lambda session: session.application == "worker")
            finally:
                ended.set()
    return [each.code for each in diagnose(taken.recording)]


@pytest.mark.part("rest")
def test_search_without_an_index_is_told_from_one_with_an_index(
    new_server: Callable[..., EmbeddedServer], debian15: int
) -> None:
    """By rows read for each row returned, also of a table without statistics; and a hash that spills."""
    settings = {"shared_preload_libraries": "pg_stat_statements", "work_mem": "64kB", "autovacuum": "off"}
    conninfo = new_server(debian15, **settings).ensure_running()
    search = "SELECT * FROM orders WHERE customer = 7"
    execute(
        conninfo,
        "CREATE EXTENSION pg_stat_statements",
        "CREATE TABLE orders AS SELECT n AS id, n % 50000 AS customer FROM generate_series(1, 200000) n",
        # It sets reltuples, but makes no statistics.
        "CREATE INDEX ON orders (id)",
    )
    assert "sequential-scan" in computing(conninfo, search)
    execute(conninfo, "VACUUM ANALYZE orders")
    assert "sequential-scan" in computing(conninfo, search)
    distinct = "SELECT DISTINCT -id, repeat('x', 200) FROM orders OFFSET 0"
    found = computing(conninfo, f"SELECT count(*) FROM ({distinct}) AS each")
    assert {"statement-spills", "temp-spill", "temp-spill-on-data-volume", "temp-disk-slow"} & {*found}
    assert "sequential-scan" not in found
    execute(conninfo, "CREATE INDEX ON orders (customer)")
    by_index = "DO $$BEGIN FOR i IN 1..20000 LOOP PERFORM FROM orders WHERE customer = i; END LOOP; END$$"
    assert not OF_STATEMENTS & {*computing(conninfo, by_index)}


@pytest.mark.part("rest")
def test_foreign_key_without_an_index_is_named_until_it_has_one(database18: str) -> None:
    """Rows of the referenced table are deleted: each looks for rows that refer to it."""
    execute(
        database18,
        "CREATE TABLE customers (id int PRIMARY KEY)",
        "CREATE TABLE orders (id int, customer int REFERENCES customers)",
        "INSERT INTO customers SELECT generate_series(1, 100000)",
        "INSERT INTO orders SELECT n, n FROM generate_series(1, 50000) n",
        "VACUUM ANALYZE",
    )
    some = "SELECT id FROM customers WHERE id > 50000 LIMIT 50 FOR UPDATE SKIP LOCKED"
    delete = f"DELETE FROM customers WHERE id IN ({some})"
    assert computing(database18, delete)[0] == "foreign-key-unindexed"
    execute(database18, "CREATE INDEX ON orders (customer)")
    assert "foreign-key-unindexed" not in computing(database18, delete)
