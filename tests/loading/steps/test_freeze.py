"""Rows whose pages nobody has to write again: COPY FREEZE, and VACUUM (FREEZE) of what a load alone has filled."""

from __future__ import annotations

import gzip
import json
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from psycopg.pq import TransactionStatus

from penstock.core.errors import PenstockError, UsageError
from penstock.core.values.job import LoadRules, TargetJob
from support.loads import IMPATIENT, Loads, target, write_csv

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from penstock.core.values.mode import Mode
    from penstock.loading.values.outcome import LoadProgress

ALWAYS = replace(IMPATIENT, freeze="always")
# VACUUM would freeze the rows, too.
WITHOUT_VACUUM = replace(ALWAYS, vacuum=False)

_RECORDS = [f"{number},name {number}" for number in range(5000)]


def share_of_frozen(loads: Loads, table: str = "t", *, column: str = "relallfrozen") -> float:
    """Return which part of a table's pages with rows is frozen. ANALYZE counts them, and changes none.

    A COPY leaves up to 64 pages without rows at the table's end.
    """
    loads.execute(f"ANALYZE {table}")
    query = f"SELECT count(DISTINCT (ctid::text::point)[0])::int, (SELECT {column} FROM pg_class"
    pages, frozen = loads.execute(f"{query} WHERE oid = '{table}'::regclass) FROM {table}")[0]
    assert pages > 0
    return float(frozen / pages)


def job(paths: Sequence[Path], into: str = "t", *, mode: Mode = "append", create: bool = False) -> TargetJob:
    """Return a target that loads files into a table."""
    return replace(target(list(paths), into=into, create=create), mode=mode)


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Provide two files of 5,000 records each."""
    return [write_csv(tmp_path / f"{name}.csv", _RECORDS) for name in ("one", "two")]


# ---------------------------------------------------------------- VACUUM


@pytest.mark.parametrize("mode", ["append", "truncate", "replace", "create"])
def test_vacuum_freezes_a_table_that_the_load_alone_has_filled(ledger18: str, files: list[Path], mode: str) -> None:
    """Each of its pages: a later VACUUM against wraparound has nothing to write."""
    loads = Loads(ledger18, least_freezing_bytes=0)
    if mode != "create":
        loads.execute("CREATE TABLE t (a int, b text)")
    if mode in ("truncate", "replace"):
        loads.execute("INSERT INTO t VALUES (1, 'old')")
    is_new = mode == "create"
    loads.run(job(files, mode="append" if is_new else mode, create=is_new))  # type: ignore[arg-type]
    assert share_of_frozen(loads) == 1.0


def test_vacuum_does_not_freeze_what_others_have_stored(ledger18: str, files: list[Path]) -> None:
    """It would write their pages again."""
    loads = Loads(ledger18, least_freezing_bytes=0)
    loads.execute("CREATE TABLE t (a int, b text); INSERT INTO t SELECT i, 'old' FROM generate_series(1, 5000) AS i")
    loads.run(job(files))
    assert share_of_frozen(loads) < 1.0
    assert loads.count() == 15_000


def test_vacuum_does_not_wait_for_a_cursor_of_another_session(ledger18: str, files: list[Path]) -> None:
    """The page that it is on stays as it is; all others are frozen."""
    # VACUUM would wait five seconds for the lock to cut the empty pages off.
    setup = "CREATE TABLE t (a int, b text) WITH (vacuum_truncate = off)"
    loads = Loads(ledger18, least_freezing_bytes=0, setup=setup, piece_bytes=4000)
    with psycopg.connect(ledger18) as reader:

        def read(progress: LoadProgress) -> None:
            if progress.activity.startswith("vacuuming"):
                _see_all_rows(reader)
                reader.execute("DECLARE c CURSOR FOR SELECT * FROM t").execute("FETCH 10 FROM c")

        loads.tune(long_vacuum_bytes=1)
        loads.run(job(files), on_progress=read)
        assert 0.5 < share_of_frozen(loads) < 1.0


def _see_all_rows(reader: psycopg.Connection) -> None:
    """Take a snapshot that keeps no row from being frozen: no transaction is in progress, such as one of autovacuum.

    A snapshot depends on the transactions of all databases.
    """
    reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    query = "SELECT pg_snapshot_xmin(taken) = pg_snapshot_xmax(taken) FROM pg_current_snapshot() AS taken"
    deadline = time.monotonic() + 60
    while reader.execute(query).fetchall() != [(True,)]:
        assert time.monotonic() < deadline, "a transaction did not end"
        reader.rollback()
        time.sleep(0.01)


def test_vacuum_freezes_the_partitions_that_were_empty(ledger18: str, files: list[Path]) -> None:
    """And leaves alone the rows of the one that was not."""
    loads = Loads(ledger18, least_freezing_bytes=0)
    loads.execute(
        "CREATE TABLE t (a int, b text) PARTITION BY RANGE (a);"
        "CREATE TABLE low PARTITION OF t FOR VALUES FROM (0) TO (2500);"
        "CREATE TABLE high PARTITION OF t FOR VALUES FROM (2500) TO (9000);"
        "INSERT INTO low VALUES (1, 'old')"
    )
    loads.run(job(files))
    assert share_of_frozen(loads, "high") == 1.0
    assert share_of_frozen(loads, "low") < 1.0


# ---------------------------------------------------------------- COPY


@pytest.mark.parametrize("sessions", [1, 3])
@pytest.mark.parametrize("mode", ["create", "truncate", "replace"])
def test_copy_freezes_every_page_and_stores_the_same_rows(
    ledger18: str, files: list[Path], mode: str, sessions: int
) -> None:
    """Of two tables at a time, each from several blocks and commands."""
    loads = Loads(ledger18, piece_bytes=4000, chunk_bytes=20_000)
    tables = ("t", "u")
    if mode != "create":
        for table in tables:
            loads.execute(f"CREATE TABLE {table} (a int, b text); INSERT INTO {table} VALUES (0, 'old')")
    is_new = mode == "create"
    jobs = [job(files, table, mode="append" if is_new else mode, create=is_new) for table in tables]  # type: ignore[arg-type]
    outcome = loads.run(*jobs, sessions=sessions, rules=WITHOUT_VACUUM)
    assert outcome.rows == 20_000
    for table in tables:
        assert share_of_frozen(loads, table) == 1.0
        assert loads.count(table) == 10_000
        assert loads.execute(f"SELECT count(DISTINCT b), count(*) FILTER (WHERE b = 'name 7') FROM {table}") == [
            (5000, 2)
        ]


def test_copy_freezes_on_every_server(database: str, files: list[Path]) -> None:
    """Whose catalogue does not say how many pages are frozen."""
    loads = Loads(database, setup="CREATE TABLE t (a int, b text)")
    loads.run(job(files, mode="truncate"), rules=WITHOUT_VACUUM)
    # Only VACUUM and COPY FREEZE mark pages as visible to all.
    assert share_of_frozen(loads, column="relallvisible") == 1.0
    assert loads.count() == 10_000


def test_rows_are_binary_and_indexes_are_rebuilt_as_ever(ledger18: str, files: list[Path]) -> None:
    """Frozen or not, a table ends with the same rows and indexes."""
    loads = Loads(ledger18, setup="CREATE TABLE t (a int, b text); CREATE INDEX i ON t (a)", least_binary_bytes=0)
    rules = replace(WITHOUT_VACUUM, indexes="rebuild")
    loads.run(replace(job(files, mode="truncate"), copy_format="binary"), rules=rules)
    assert share_of_frozen(loads) == 1.0
    assert loads.indexes() == ["i"]
    assert loads.execute("SELECT count(*) FROM t WHERE a = 7") == [(2,)]


@pytest.mark.parametrize("form", ["csv.gz", "tsv", "jsonl", "parquet"])
def test_frozen_rows_are_those_that_are_not_frozen(ledger18: str, tmp_path: Path, form: str) -> None:
    """Of every format, with types that are found in the file."""
    path = _write(tmp_path / f"f.{form}")
    loads = Loads(ledger18, piece_bytes=4000, least_binary_bytes=0)
    for table, freeze in (("t", "always"), ("u", "never")):
        made = replace(job([path], table, create=True), types="text" if form == "parquet" else "infer")
        loads.run(made, rules=replace(WITHOUT_VACUUM, freeze=freeze, again=True))
    assert loads.rows("t") == loads.rows("u") != []
    assert (share_of_frozen(loads, "t"), share_of_frozen(loads, "u")) == (1.0, 0.0)


def _write(path: Path) -> Path:
    """Write 2,000 records in the format that the file's name ends with."""
    records = [{"a": number, "b": f"name {number}" * (number % 7)} for number in range(2000)]
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(records), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    else:
        delimiter = "\t" if path.suffix == ".tsv" else ","
        lines = [delimiter.join(map(str, record.values())) for record in ({"a": "a", "b": "b"}, *records)]
        text = "".join(f"{line}\n" for line in lines).encode()
        path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def test_atomic_load_of_several_tables_freezes_in_one_transaction(ledger18: str, files: list[Path]) -> None:
    """All rows have one transaction in the ledger, and appear at once."""
    loads = Loads(ledger18)
    rules = replace(WITHOUT_VACUUM, atomic=True)
    loads.run(job(files, "t", create=True), job(files, "u", create=True), rules=rules)
    assert share_of_frozen(loads, "t") == 1.0
    assert share_of_frozen(loads, "u") == 1.0


def test_rows_that_came_meanwhile_stay_and_nothing_is_frozen(ledger18: str, files: list[Path]) -> None:
    """The table is not truncated a second time if it is not empty any more."""
    loads = Loads(ledger18, setup="CREATE TABLE t (a int, b text); CREATE TABLE u (a int, b text)", piece_bytes=4000)

    is_done = threading.Event()

    def insert(piece: int) -> None:
        # Before the session has locked the table.
        if piece == 0 and not is_done.is_set():
            is_done.set()
            loads.execute("INSERT INTO t SELECT -1, 'meanwhile'")

    loads.at_piece = insert
    loads.run(job(files, mode="truncate"), sessions=1, rules=WITHOUT_VACUUM)
    assert loads.execute("SELECT count(*), min(a) FROM t") == [(10_001, -1)]
    assert share_of_frozen(loads) < 1.0


def test_rows_of_tables_that_inherit_stay(ledger18: str, files: list[Path]) -> None:
    """The load truncates only the table that is named."""
    loads = Loads(
        ledger18,
        setup="CREATE TABLE t (a int, b text); CREATE TABLE child () INHERITS (t); INSERT INTO child VALUES (1, 'x')",
    )
    loads.run(job(files, mode="truncate"), rules=WITHOUT_VACUUM)
    assert (loads.count("child"), loads.count("ONLY t")) == (1, 10_000)


@pytest.mark.part("rest")
def test_table_whose_lock_is_not_free_is_loaded_without_freeze(ledger18: str, files: list[Path]) -> None:
    """Readers would wait behind the load while it waits."""
    loads = Loads(ledger18, setup="CREATE TABLE t (a int, b text)", piece_bytes=4000)
    with psycopg.connect(ledger18) as reader:

        def read(piece: int) -> None:
            if piece == 0 and reader.info.transaction_status == TransactionStatus.IDLE:
                reader.execute("SELECT FROM t")

        loads.at_piece = read
        loads.run(job(files, mode="truncate"), sessions=1, rules=WITHOUT_VACUUM)
        assert share_of_frozen(loads) == 0.0
        assert loads.count() == 10_000


def test_load_that_creates_its_table_may_be_run_again(ledger18: str, files: list[Path]) -> None:
    """Also with files that the first run did not have, though they find rows in the table."""
    loads = Loads(ledger18)
    loads.run(job(files[:1], create=True), rules=WITHOUT_VACUUM)
    assert loads.run(job(files[:1], create=True), rules=WITHOUT_VACUUM).rows == 0
    loads.run(job(files, create=True), rules=WITHOUT_VACUUM)
    assert loads.count() == 10_000


def test_append_truncates_no_table_that_was_there(ledger18: str, files: list[Path]) -> None:
    """A subscriber would get the TRUNCATE, and lose rows that it has from elsewhere. It is loaded without FREEZE."""
    loads = Loads(ledger18)
    loads.execute("CREATE TABLE t (a int, b text)")
    before = loads.execute("SELECT relfilenode FROM pg_class WHERE relname = 't'")
    assert loads.run(job(files, create=True), rules=WITHOUT_VACUUM).rows == 10_000
    assert loads.execute("SELECT relfilenode FROM pg_class WHERE relname = 't'") == before
    assert share_of_frozen(loads) == 0.0


def test_triggers_on_truncate_fire_once(ledger18: str, files: list[Path]) -> None:
    """A table with such triggers is loaded without FREEZE."""
    loads = Loads(
        ledger18,
        setup="""
        CREATE TABLE t (a int, b text);
        CREATE TABLE fired (at timestamptz DEFAULT now());
        CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
            'BEGIN INSERT INTO fired DEFAULT VALUES; RETURN NULL; END';
        CREATE TRIGGER noting AFTER TRUNCATE ON t EXECUTE FUNCTION note();
        """,
    )
    loads.run(job(files, mode="truncate"), rules=WITHOUT_VACUUM)
    assert (loads.count(), loads.count("fired")) == (10_000, 1)


def test_readers_wait_until_the_rows_are_committed(ledger18: str, files: list[Path]) -> None:
    """As --plan says."""
    loads = Loads(ledger18, setup="CREATE TABLE t (a int, b text)", piece_bytes=4000)
    held: list[bool] = []

    def look(piece: int) -> None:
        if piece == 15:
            query = "SELECT count(*) FROM pg_locks WHERE relation = 't'::regclass AND mode = 'AccessExclusiveLock'"
            held.append(loads.execute(query) == [(1,)])

    loads.at_piece = look
    loads.run(job(files, mode="truncate"), sessions=1, rules=WITHOUT_VACUUM)
    assert held == [True, True]


def test_load_that_fails_leaves_nothing_of_a_table_and_is_resumed(ledger18: str, files: list[Path]) -> None:
    """Its sessions have committed nothing of the table when its last record is refused."""
    bad = write_csv(files[0].parent / "zbad.csv", [*_RECORDS, "x,not a number"])
    loads = Loads(ledger18, setup="CREATE TABLE t (a int, b text)", piece_bytes=4000)
    loads.refuse(replace(job([*files, bad], mode="truncate")))
    with pytest.raises(PenstockError):
        loads.run(job([*files, bad], mode="truncate"), rules=WITHOUT_VACUUM)
    assert loads.count() == 0
    write_csv(bad, _RECORDS)
    loads.run(job([*files, bad], mode="truncate"), rules=replace(WITHOUT_VACUUM, changed="load"))
    assert loads.count() == 15_000
    assert share_of_frozen(loads) == 1.0


def test_lost_session_repeats_its_table_only(ledger18: str, files: list[Path]) -> None:
    """The other table is committed as a whole, and is not loaded again."""
    loads = Loads(ledger18, setup="CREATE TABLE t (a int, b text); CREATE TABLE u (a int, b text)", piece_bytes=4000)
    killed = threading.Event()

    def kill(piece: int) -> None:
        query = """
            SELECT pg_terminate_backend(pid)
              FROM pg_locks
             WHERE relation = 't'::regclass AND mode = 'AccessExclusiveLock' AND granted
        """
        if piece == 15 and not killed.is_set() and loads.execute(query):
            killed.set()

    loads.at_piece = kill
    rules = replace(WITHOUT_VACUUM, retry_for=30.0)
    loads.run(job(files, "t", mode="truncate"), job(files, "u", mode="truncate"), rules=rules)
    assert killed.is_set()
    assert (loads.count("t"), loads.count("u")) == (10_000, 10_000)
    assert share_of_frozen(loads, "t") == 1.0


# ---------------------------------------------------------------- decisions


_PARTITIONED = "CREATE TABLE t (a int, b text) PARTITION BY RANGE (a); CREATE TABLE p PARTITION OF t DEFAULT"
_TRIGGERED = (
    "CREATE TABLE t (a int, b text); CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';"
    "CREATE TRIGGER g BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION f()"
)
_REFERRED = "CREATE TABLE t (a int PRIMARY KEY, b text); CREATE TABLE u (a int REFERENCES t, b text)"


@pytest.mark.parametrize(
    ("setup", "mode", "rules", "what"),
    [
        ("CREATE TABLE t (a int, b text)", "append", {}, "--mode append"),
        ("CREATE TABLE t (a int, b text)", "truncate", {"on_error": "reject"}, "--on-error reject"),
        ("CREATE TABLE t (a int, b text)", "truncate", {"join": True}, "--join"),
        ("CREATE TABLE t (a int, b text)", "truncate", {"atomic": True}, "staged"),
        (_PARTITIONED, "truncate", {}, "partitioned"),
        (_TRIGGERED, "truncate", {}, "row triggers"),
    ],
)
def test_freeze_always_is_refused_by_name(
    ledger18: str, files: list[Path], setup: str, mode: Mode, rules: dict[str, object], what: str
) -> None:
    """Before anything is changed; with --freeze auto the same load runs without it."""
    loads = Loads(ledger18, setup=setup)
    with pytest.raises(UsageError, match="--freeze always") as caught:
        loads.run(job(files, mode=mode), rules=replace(ALWAYS, **rules))  # type: ignore[arg-type]
    assert what in caught.value.message
    loads.run(job(files, mode=mode), rules=replace(IMPATIENT, **rules))  # type: ignore[arg-type]
    assert loads.count() == 10_000


def test_table_that_another_of_the_load_refers_to_is_refused(ledger18: str, tmp_path: Path) -> None:
    """It cannot be truncated by itself."""
    loads = Loads(ledger18, setup=_REFERRED)
    path = write_csv(tmp_path / "a.csv", _RECORDS)
    with pytest.raises(UsageError, match="foreign key"):
        loads.run(job([path], "t", mode="truncate"), job([path], "u", mode="truncate"), rules=ALWAYS)


def test_table_that_refers_to_itself_is_refused_for_its_own_reason(ledger18: str, tmp_path: Path) -> None:
    """It can be truncated by itself, but its key's check locks rows that COPY has frozen."""
    loads = Loads(ledger18, setup="CREATE TABLE t (a int PRIMARY KEY, b int REFERENCES t)")
    path = write_csv(tmp_path / "a.csv", [f"{number},{max(1, number - 1)}" for number in range(1, 5000)])
    with pytest.raises(UsageError, match="refers to itself") as caught:
        loads.run(job([path], mode="truncate"), rules=ALWAYS)
    assert "locks the rows" in (caught.value.detail or "")


@pytest.mark.parametrize(
    ("tables", "sessions", "least_bytes", "is_frozen"),
    [
        # Two tables of the same size, and two sessions.
        (("t", "u"), 2, 0, True),
        # One table would have one session only.
        (("t",), 2, 0, False),
        (("t",), 1, 0, True),
        (("t",), 1, 10**9, False),
    ],
)
def test_freeze_auto_costs_no_session(
    ledger18: str, files: list[Path], tables: tuple[str, ...], sessions: int, least_bytes: int, is_frozen: bool
) -> None:
    """And does not keep others from a table: it freezes only those that the load creates."""
    loads = Loads(ledger18, least_frozen_bytes=least_bytes)
    rules = replace(IMPATIENT, vacuum=False)
    loads.run(*(job(files, table, create=True) for table in tables), sessions=sessions, rules=rules)
    assert (share_of_frozen(loads, tables[0]) == 1.0) is is_frozen
    loads.run(*(job(files, table, mode="truncate") for table in tables), sessions=sessions, rules=rules)
    assert share_of_frozen(loads, tables[0]) < 1.0


def test_rules_name_what_freeze_takes() -> None:
    """A typing error is no silent default."""
    with pytest.raises(PenstockError):
        LoadRules(freeze="often")  # type: ignore[arg-type]
