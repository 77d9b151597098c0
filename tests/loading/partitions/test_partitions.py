"""A new partition is built aside and attached: it is as PARTITION OF and COPY make it, and seen when it is whole."""

from __future__ import annotations

import gzip
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import penstock
from penstock.api.ledger_view import LedgerView
from penstock.core.connect.connection import ConnectionFactory
from penstock.core.errors import PenstockError, TargetError, UsageError
from penstock.core.values.job import LoadJob
from penstock.core.values.names import parse_table_name
from support.loads import IMPATIENT, Loads, share_ledger, target, write_csv
from support.modes import Killed

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.core.values.job import TargetJob

PARENT = """
    CREATE TABLE kinds (id int PRIMARY KEY, name text);
    INSERT INTO kinds SELECT n, 'kind ' || n FROM generate_series(0, 9) AS n;
    CREATE TABLE events (
        id bigint NOT NULL, at timestamptz NOT NULL, kind int REFERENCES kinds, note text DEFAULT 'none',
        CONSTRAINT checked CHECK (id >= 0), PRIMARY KEY (id, at)
    ) PARTITION BY RANGE (at);
    CREATE INDEX ON events (kind, at);
    CREATE INDEX ON events (lower(note)) WHERE note <> 'none';
    CREATE UNIQUE INDEX ON events (at, id, kind);
    CREATE TABLE events_1 PARTITION OF events FOR VALUES FROM ('2026-11-25') TO ('2026-11-26');
    INSERT INTO events VALUES (1, '2026-11-25 12:00Z', 1);
"""
DAY = "FROM ('2026-11-26') TO ('2026-11-27')"


WITHOUT_KEYS = PARENT.replace("REFERENCES kinds", "")
TRIGGER = """
    CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
    CREATE TRIGGER t AFTER INSERT ON events FOR EACH ROW EXECUTE FUNCTION f();
"""


def day(path: Path, *, count: int = 500, outside: int | None = None) -> Path:
    """Write a day's rows, compressed. Row `outside` is of another day."""
    lines = ["id,at,kind,note"]
    for number in range(count):
        date = "2026-11-28" if number == outside else "2026-11-26"
        lines.append(f"{number},{date} {number % 24:02}:00:00Z,{number % 10},note {number}")
    path.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode()))
    return path


def partition(path: Path, *, into: str = "events_2", of: str = "events", values: str = DAY) -> TargetJob:
    """Return a target that is a new partition."""
    return replace(target(path, into=into), partition_of=parse_table_name(of), for_values=values)


@pytest.fixture
def loads(ledger18: str) -> Loads:
    """Provide loads in small blocks into a database with a partitioned table."""
    return Loads(ledger18, piece_bytes=3000, chunk_bytes=3000, setup="SET timezone = 'UTC';" + PARENT)


def list_indexes(loads: Loads, table: str) -> list[Any]:
    """Return the name and the definition of each index of a table, and the index to which it is attached."""
    return loads.execute(
        "SELECT i.indexrelid::regclass::text, pg_get_indexdef(i.indexrelid), h.inhparent::regclass::text"
        f" FROM pg_index i LEFT JOIN pg_inherits h ON h.inhrelid = i.indexrelid WHERE indrelid = '{table}'::regclass"
        " ORDER BY 1"
    )


def list_constraints(loads: Loads, table: str) -> list[Any]:
    """Return what the catalogue has of a table's constraints."""
    return loads.execute(
        "SELECT conname::text, contype::text, pg_get_constraintdef(oid), convalidated, conislocal, coninhcount"
        f" FROM pg_constraint WHERE conrelid = '{table}'::regclass ORDER BY 1"
    )


def left_tables(loads: Loads) -> list[Any]:
    """Return the tables and constraints of penstock that are left outside of the ledger."""
    return loads.execute(
        "SELECT relname FROM pg_class WHERE relname LIKE 'penstock%' AND relnamespace = 'public'::regnamespace"
        " UNION ALL SELECT conname FROM pg_constraint WHERE conname LIKE 'penstock%'"
    )


def test_a_partition_is_made_with_all_that_its_parent_has(loads: Loads, tmp_path: Path) -> None:
    """Compared with what PARTITION OF and COPY make."""
    outcome = loads.run(partition(day(tmp_path / "day.csv.gz")))
    assert outcome.rows == 500
    assert loads.count("events") == 501
    found = list_indexes(loads, "events_2"), list_constraints(loads, "events_2"), loads.rows("events_2")
    loads.execute(
        "ALTER TABLE events DETACH PARTITION events_2; DROP TABLE IF EXISTS copied;"
        "CREATE TABLE copied AS SELECT * FROM events_2; DROP TABLE events_2;"
        f"CREATE TABLE events_2 PARTITION OF events FOR VALUES {DAY}; INSERT INTO events_2 SELECT * FROM copied"
    )
    assert found == (list_indexes(loads, "events_2"), list_constraints(loads, "events_2"), loads.rows("events_2"))
    assert left_tables(loads) == []


PARTED_KINDS = """
    CREATE TABLE kinds (id int PRIMARY KEY, name text) PARTITION BY RANGE (id);
    CREATE TABLE kinds_1 PARTITION OF kinds FOR VALUES FROM (0) TO (5);
    CREATE TABLE kinds_2 PARTITION OF kinds FOR VALUES FROM (5) TO (10);
"""


@pytest.mark.parametrize("on_error", ["stop", "reject"])
def test_a_foreign_key_may_refer_to_a_partitioned_table(database: str, tmp_path: Path, on_error: str) -> None:
    """PostgreSQL has a row in pg_constraint for each of its partitions, none of which is a key of its own."""
    setup = PARENT.replace("CREATE TABLE kinds (id int PRIMARY KEY, name text);", PARTED_KINDS)
    loads = Loads(database, setup="SET timezone = 'UTC';" + setup)
    rules = replace(IMPATIENT, on_error=on_error)
    assert loads.run(partition(day(tmp_path / "day.csv.gz")), rules=rules).rows == 500
    query = (
        "SELECT conname, confrelid::regclass::text FROM pg_constraint AS k WHERE conrelid = 'events_2'::regclass"
        " AND contype = 'f' AND NOT EXISTS (SELECT FROM pg_constraint AS p WHERE p.oid = k.conparentid AND"
        " p.conrelid = k.conrelid)"
    )
    found = list_indexes(loads, "events_2"), loads.execute(query)
    loads.execute(f"DROP TABLE events_2; CREATE TABLE events_2 PARTITION OF events FOR VALUES {DAY}")
    assert found == (list_indexes(loads, "events_2"), loads.execute(query))
    loads.run(replace(target(day(tmp_path / "again.csv.gz"), into="events_2"), mode="replace"), rules=rules)
    assert (loads.count("events_2"), loads.execute(query)) == (500, found[1])
    assert left_tables(loads) == []


def test_the_same_command_has_nothing_to_do(loads: Loads, tmp_path: Path) -> None:
    """The ledger knows the file as one of the partition."""
    job = partition(day(tmp_path / "day.csv.gz"))
    loads.run(job)
    assert loads.run(job).rows == 0
    assert loads.count("events") == 501
    other = partition(day(tmp_path / "other.csv.gz", count=3))
    with pytest.raises(TargetError, match=r'partition "public.events_2" exists'):
        loads.run(other)


def test_a_partition_with_other_bounds_is_not_taken_for_that_of_the_command(loads: Loads, tmp_path: Path) -> None:
    """Though its file is loaded. The text of the bounds may differ."""
    path = day(tmp_path / "day.csv.gz")
    loads.run(partition(path, values="FROM ('2026-11-26') TO ('2026-11-28')"))
    with pytest.raises(TargetError, match=r'partition "public.events_2" exists with other bounds') as caught:
        loads.run(partition(path))
    assert "TO ('2026-11-28 00:00:00+00'), not FOR VALUES FROM ('2026-11-26" in (caught.value.detail or "")
    loads.execute(
        f"ALTER TABLE events DETACH PARTITION events_2;ALTER TABLE events ATTACH PARTITION events_2 FOR VALUES {DAY}"
    )
    assert loads.run(partition(path, values="FROM ('2026-11-26 00:00') TO ('Nov 27 2026')")).rows == 0


def test_rows_outside_the_bounds_are_refused(loads: Loads, tmp_path: Path) -> None:
    """With file and line, and rejected if that is asked."""
    job = partition(day(tmp_path / "day.csv.gz", outside=444))
    with pytest.raises(PenstockError, match="penstock_bounds") as caught:
        loads.run(job)
    assert caught.value.location is not None
    assert caught.value.location.line == 446
    assert loads.count("events") == 1
    assert not loads.has_table("events_2")


def test_rows_outside_the_bounds_are_rejected(loads: Loads, tmp_path: Path) -> None:
    """All others are loaded."""
    job = partition(day(tmp_path / "day.csv.gz", outside=444))
    outcome = loads.run(job, rules=replace(IMPATIENT, on_error="reject"))
    assert (outcome.rows, outcome.rejected) == (499, 1)
    assert loads.count("events_2") == 499
    assert left_tables(loads) == []


def listen(loads: Loads, job: TargetJob) -> list[str]:
    """Load, and return what the server has told the sessions at DEBUG1."""
    seen: list[str] = []
    with loads.loader() as loader:
        connect = loader._connect
        original = connect.connect

        def listening(*args: Any, **options: Any) -> Any:
            connection = original(*args, **options)
            connection.execute("SET client_min_messages = debug1")
            connection.add_notice_handler(lambda notice: seen.append(notice.message_primary or ""))
            return connection

        connect.connect = listening  # type: ignore[method-assign]
        loader.run(loader.plan(LoadJob(targets=(job,), rules=IMPATIENT)))
    return seen


def test_attach_reads_no_row(loads: Loads, tmp_path: Path) -> None:
    """As the server says at DEBUG1."""
    loads.execute("CREATE TABLE rest PARTITION OF events DEFAULT; INSERT INTO events VALUES (5, '2020-01-01', 1)")
    seen = listen(loads, partition(day(tmp_path / "day.csv.gz")))
    assert 'partition constraint for table "events_2" is implied by existing constraints' in seen
    assert loads.count("events_2") == 500


REFUSALS = {
    "publication": ("CREATE PUBLICATION p FOR TABLE events", 'publication "p" publishes it'),
    "publication of all": ("CREATE PUBLICATION p FOR ALL TABLES", 'publication "p" publishes it'),
    "publication of the schema": ("CREATE PUBLICATION p FOR TABLES IN SCHEMA public", 'publication "p" publishes it'),
    "trigger": (
        """
        CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
        CREATE TRIGGER t BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION f()
        """,
        "trigger t on table public.events",
    ),
    "index of the parent only": ("CREATE INDEX lonely ON ONLY events (note)", "index public.lonely is not valid"),
    "foreign key": (
        "CREATE TABLE refs (id bigint, at timestamptz, FOREIGN KEY (id, at) REFERENCES events)",
        "foreign key refs_id_at_fkey of table public.refs refers to it",
    ),
}


def assert_refused(loads: Loads, job: TargetJob, setup: str, detail: str, *, message: str) -> None:
    """Check that a load is refused after `setup`, with a message and within its detail, and leaves nothing."""
    loads.execute(setup)
    with pytest.raises(TargetError, match=message) as caught:
        loads.run(job)
    assert detail in (caught.value.detail or "")
    assert left_tables(loads) == []


@pytest.mark.parametrize("name", REFUSALS)
def test_parents_are_refused_by_name(loads: Loads, tmp_path: Path, name: str) -> None:
    """Before the first row, with what stands in the way."""
    job = partition(day(tmp_path / "day.csv.gz"))
    assert_refused(loads, job, *REFUSALS[name], message=r'cannot build a partition of table "public.events" aside')


def test_triggers_are_skipped_if_asked(loads: Loads, tmp_path: Path) -> None:
    """The partition gets them, and they have not fired."""
    loads.execute(REFUSALS["trigger"][0].replace("RETURN NEW;", "RAISE EXCEPTION $$fired$$;"))
    loads.run(partition(day(tmp_path / "day.csv.gz")), rules=replace(IMPATIENT, triggers="disable"))
    query = "SELECT count(*)::int FROM pg_trigger WHERE tgname = 't' AND tgenabled = 'O' AND tgrelid::regclass::text"
    assert loads.execute(f"{query} IN ('events', 'events_2')") == [(2,)]


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ("FROM ('2026-11-25 12:00') TO ('2026-11-27')", 'partition "events_2" would overlap partition "events_1"'),
        ("FROM ('2026-11-27') TO ('2026-11-26')", "empty range bound"),
        ("IN ('2026-11-27')", "invalid bound specification"),
        (f"{DAY}; DROP TABLE kinds", "cannot insert multiple commands"),
        (f"{DAY} PARTITION BY RANGE (id)", "syntax error"),
    ],
)
def test_bounds_are_refused_before_the_first_row(loads: Loads, tmp_path: Path, values: str, text: str) -> None:
    """With the server's own words."""
    with pytest.raises(PenstockError) as caught:
        loads.plan(partition(day(tmp_path / "day.csv.gz"), values=values))
    assert text in f"{caught.value.message} {caught.value.detail}"
    assert loads.has_table("kinds")


def test_a_default_partition_with_rows_of_the_new_one_is_refused(loads: Loads, tmp_path: Path) -> None:
    """ATTACH would fail at the end."""
    loads.execute("CREATE TABLE rest PARTITION OF events DEFAULT; INSERT INTO events VALUES (5, '2026-11-26', 1)")
    with pytest.raises(TargetError, match=r"default partition public.rest has rows that belong to the new partition"):
        loads.run(partition(day(tmp_path / "day.csv.gz")))


def test_other_tables_are_refused(loads: Loads, tmp_path: Path) -> None:
    """No parent, no partition, another schema."""
    path = day(tmp_path / "day.csv.gz")
    for job, text in [
        (partition(path, of="nothing"), 'table "nothing" of --partition-of does not exist'),
        (partition(path, of="kinds"), 'table "public.kinds" of --partition-of is not partitioned'),
        (partition(path, into="kinds"), 'table "public.kinds" exists, and is not a partition of "public.events"'),
        (partition(path, into="pg_catalog.x"), 'is not in the schema of its parent "public.events"'),
    ]:
        with pytest.raises(TargetError, match=text):
            loads.run(job)


def test_options_that_exclude_each_other(tmp_path: Path) -> None:
    """Named."""
    job = partition(tmp_path / "x")
    with pytest.raises(UsageError, match="--create cannot be used with --partition-of"):
        replace(job, create=True)
    with pytest.raises(UsageError, match="need each other"):
        replace(job, for_values=None)


KINDS: dict[str, tuple[str, str, str]] = {
    "list": ("LIST (kind)", "CREATE TABLE p1 PARTITION OF p FOR VALUES IN (1, NULL)", "IN (0, 2, 3)"),
    "hash": (
        "HASH (kind)",
        "CREATE TABLE p1 PARTITION OF p FOR VALUES WITH (MODULUS 2, REMAINDER 1)",
        "WITH (MODULUS 2, REMAINDER 0)",
    ),
    "range of two columns and an expression": (
        "RANGE (kind, (id + 1))",
        "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (10, MINVALUE) TO (20, 5)",
        "FROM (MINVALUE, MINVALUE) TO (5, 5)",
    ),
    "a partition of a partition": (
        "RANGE (id)",
        "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (1000) PARTITION BY LIST (kind)",
        "IN (0, 2, 3)",
    ),
}


@pytest.mark.versions
@pytest.mark.parametrize("name", KINDS)
def test_kinds_of_bounds(ledger: str, tmp_path: Path, name: str) -> None:
    """By list, hash, expressions, and below a partition."""
    key, other, values = KINDS[name]
    loads = Loads(ledger, setup=f"CREATE TABLE p (id int, kind int, CHECK (id > 0)) PARTITION BY {key}; {other}")
    (kind,) = loads.execute("SELECT count(*) > 1 FROM pg_partition_tree('p') WHERE NOT isleaf")[0]
    of = "p1" if kind else "p"
    rows = "".join(f"{n},{(0, 2, 3)[n % 3]}\n" for n in range(1, 100))
    path = tmp_path / "rows.csv"
    if name == "hash":
        hashed = loads.execute(
            "SELECT k FROM generate_series(1, 50) AS k WHERE satisfies_hash_partition('p'::regclass, 2, 0, k)"
        )
        rows = "".join(f"{n},{hashed[n % len(hashed)][0]}\n" for n in range(1, 100))
    path.write_text(f"id,kind\n{rows}")
    outcome = loads.run(partition(path, into="p2", of=of, values=values))
    assert (outcome.rows, loads.count("p"), loads.count("p2")) == (99, 99, 99)
    assert left_tables(loads) == []


@pytest.mark.versions
def test_identity_columns_get_values_of_the_parents_sequence(ledger: str, tmp_path: Path) -> None:
    """And the partition has the identity that the version gives it."""
    loads = Loads(
        ledger,
        setup="CREATE TABLE p (id int GENERATED ALWAYS AS IDENTITY, kind int) PARTITION BY LIST (kind);"
        "CREATE TABLE p1 PARTITION OF p FOR VALUES IN (1); INSERT INTO p (kind) VALUES (1), (1);"
        "CREATE TABLE model PARTITION OF p FOR VALUES IN (3)",
    )
    path = tmp_path / "rows.csv"
    path.write_text("kind\n2\n2\n2\n")
    loads.run(partition(path, into="p2", of="p", values="IN (2)"))
    assert loads.rows("p") == [(1, 1), (2, 1), (3, 2), (4, 2), (5, 2)]
    query = "SELECT attname, attidentity, atthasdef, attnotnull FROM pg_attribute WHERE attnum > 0 AND attrelid = "
    assert loads.execute(f"{query} 'p2'::regclass") == loads.execute(f"{query} 'model'::regclass")
    assert left_tables(loads) == []


def test_rows_are_frozen(loads: Loads, tmp_path: Path) -> None:
    """By VACUUM before the attach, or by COPY; not if neither is wanted."""
    for freeze in ("never", "always"):
        loads.run(partition(day(tmp_path / f"{freeze}.csv.gz")), rules=replace(IMPATIENT, freeze=freeze))
        query = "SELECT relpages > 0, relallfrozen = relpages FROM pg_class WHERE oid = 'events_2'::regclass"
        assert loads.execute(query) == [(True, True)]
        loads.execute("DROP TABLE events_2")
    loads.run(partition(day(tmp_path / "neither.csv.gz")), rules=replace(IMPATIENT, freeze="never", vacuum=False))
    assert loads.execute("SELECT relpages > 0, relallfrozen FROM pg_class WHERE relname = 'events_2'") == [(True, 0)]


def test_a_load_that_fails_is_resumed(loads: Loads, tmp_path: Path) -> None:
    """Nothing is seen before it has ended, and its rows are stored once."""
    path = day(tmp_path / "day.csv.gz", outside=444)
    with pytest.raises(PenstockError):
        loads.run(partition(path), batch_bytes=3000)
    assert loads.count("events") == 1
    (working,) = (name for (name,) in left_tables(loads) if name != "penstock_bounds")
    assert 0 < loads.count(working) < 500
    before = loads.execute(f"SELECT '{working}'::regclass::oid")
    day(path)
    loads.run(partition(path), rules=replace(IMPATIENT, changed="load"))
    assert loads.count("events_2") == 500
    assert loads.execute("SELECT 'events_2'::regclass::oid") == before
    assert left_tables(loads) == []


def test_a_file_that_is_corrected_after_its_last_row_is_loaded_after_a_repair(loads: Loads, tmp_path: Path) -> None:
    """A foreign key is checked behind the rows, when the record is staged. The hint says what to do."""
    path = tmp_path / "day.csv"
    path.write_text("id,at,kind,note\n1,2026-11-26 12:00:00Z,99,x\n")
    with pytest.raises(PenstockError, match="violates foreign key"):
        loads.run(partition(path))
    path.write_text("id,at,kind,note\n1,2026-11-26 12:00:00Z,9,x\n")
    rules = replace(IMPATIENT, changed="load")
    with pytest.raises(PenstockError, match="already loaded") as caught:
        loads.run(partition(path), rules=rules)
    assert "penstock repair" in (caught.value.hint or "")
    loads.repair()
    assert loads.run(partition(path), rules=rules).rows == 1
    assert loads.count("events") == 2


def test_what_a_given_up_load_has_made_is_dropped(loads: Loads, tmp_path: Path) -> None:
    """By repair, as the tables of other loads that nobody runs."""
    with pytest.raises(PenstockError):
        loads.run(partition(day(tmp_path / "day.csv.gz", outside=444)), batch_bytes=3000)
    loads.execute("UPDATE penstock.loads SET changed_at = now() - interval '1 day'")
    loads.repair()
    assert left_tables(loads) == []
    assert loads.count("events") == 1


def test_a_partition_is_verified_and_undone(loads: Loads, tmp_path: Path) -> None:
    """As rows that COPY has put into a table."""
    load_id = loads.run(partition(day(tmp_path / "day.csv.gz"))).load_id
    assert penstock.verify(load_id, to=loads.conninfo, values=True).is_verified
    penstock.undo(load_id, to=loads.conninfo)
    assert (loads.count("events"), loads.count("events_2")) == (1, 0)


def test_an_unfinished_load_is_undone(loads: Loads, tmp_path: Path) -> None:
    """None of its rows is in the parent yet, and its new table is dropped."""
    with pytest.raises(PenstockError):
        loads.run(partition(day(tmp_path / "day.csv.gz", outside=444)), batch_bytes=3000)
    ((load_id,),) = loads.execute("SELECT id::text FROM penstock.loads")
    assert penstock.undo(load_id, to=loads.conninfo).rows == 0
    assert (loads.count("events"), left_tables(loads)) == (1, [])
    assert loads.execute("SELECT id FROM penstock.loads") == []


def test_a_load_is_resumed_by_its_id(loads: Loads, tmp_path: Path) -> None:
    """From the job that the ledger has."""
    path = day(tmp_path / "day.csv.gz", outside=444)
    with pytest.raises(PenstockError):
        loads.run(partition(path), batch_bytes=3000)
    ((load_id,),) = loads.execute("SELECT id::text FROM penstock.loads")
    day(path)
    penstock.resume(load_id, to=loads.conninfo, changed="load")
    assert (loads.count("events"), loads.count("events_2")) == (501, 500)
    assert left_tables(loads) == []


def test_a_load_is_checked(loads: Loads, tmp_path: Path) -> None:
    """Against the columns of the parent."""
    assert not loads.check(partition(day(tmp_path / "day.csv.gz"))).problems
    path = tmp_path / "bad.csv"
    path.write_text("id,at,kind,note\nx,2026-11-26,1,\n")
    assert loads.check(partition(path)).problems


@pytest.mark.parametrize("rules", [{"atomic": True}, {"join": True}, {"indexes": "rebuild"}, {"again": True}], ids=str)
def test_other_rules(loads: Loads, tmp_path: Path, rules: dict[str, Any]) -> None:
    """Make the same partition."""
    loads.run(partition(day(tmp_path / "day.csv.gz")), rules=replace(IMPATIENT, **rules))
    assert (loads.count("events"), loads.count("events_2")) == (501, 500)
    assert left_tables(loads) == []


def test_bounds_do_not_depend_on_the_sessions_settings(loads: Loads, tmp_path: Path) -> None:
    """As PARTITION OF takes the text in the session of the user."""
    name = psycopg.conninfo.conninfo_to_dict(loads.conninfo)["dbname"]
    loads.execute(
        f"ALTER DATABASE {name} SET datestyle = 'Postgres, DMY'; ALTER DATABASE {name} SET timezone = 'Asia/Kolkata'"
    )
    loads.run(partition(day(tmp_path / "day.csv.gz"), values="FROM ('26/11/2026 05:30') TO ('27/11/2026 05:30')"))
    loads.execute(f"ALTER DATABASE {name} RESET datestyle; ALTER DATABASE {name} SET timezone = 'UTC'")
    assert loads.execute("SELECT pg_get_expr(relpartbound, oid) FROM pg_class WHERE relname = 'events_2'") == [
        ("FOR VALUES FROM ('2026-11-26 00:00:00+00') TO ('2026-11-27 00:00:00+00')",)
    ]


@pytest.mark.versions
@pytest.mark.parametrize("held", ["UPDATE kinds SET name = 'x' WHERE id = 1", "SELECT FROM kinds", "SELECT FROM rest"])
def test_locks_of_others_are_named_and_waited_for(ledger: str, tmp_path: Path, held: str) -> None:
    """By the writers and readers of a referenced table, by the readers of the default partition; the rows are kept."""
    loads = Loads(ledger, setup=f"SET timezone = 'UTC'; {PARENT} CREATE TABLE rest PARTITION OF events DEFAULT")
    job = partition(day(tmp_path / "day.csv.gz"))
    with psycopg.connect(loads.conninfo) as other:
        other.execute(held.encode())
        with pytest.raises(PenstockError, match="could not get a lock") as caught:
            loads.run(job)
        assert f"pid {other.info.backend_pid}" in (caught.value.detail or "")
        assert loads.count("events") == 1
    loads.run(job)
    assert (loads.count("events"), loads.count("events_2")) == (501, 500)
    assert loads.execute("SELECT count(*)::int FROM penstock.loads") == [(1,)]
    assert left_tables(loads) == []


@pytest.mark.parametrize("does", ["attach", "truncate"])
def test_a_reader_of_a_partition_that_is_locked_with_its_parent_is_named(
    loads: Loads, tmp_path: Path, does: str
) -> None:
    """Of the default partition, which ATTACH locks, and of a table that is truncated."""
    loads.execute(
        "CREATE TABLE rest PARTITION OF events DEFAULT PARTITION BY RANGE (at);"
        "CREATE TABLE rest_1 PARTITION OF rest DEFAULT"
    )
    path = day(tmp_path / "day.csv.gz")
    job = partition(path) if does == "attach" else replace(target(path, into="events"), mode="truncate")
    with psycopg.connect(loads.conninfo) as other:
        other.execute("SELECT FROM rest_1")
        with pytest.raises(PenstockError, match="could not get a lock") as caught:
            loads.run(job)
        assert f"pid {other.info.backend_pid}" in (caught.value.detail or "")


@pytest.mark.versions
def test_readers_and_writers_of_the_parent_go_on(ledger: str, tmp_path: Path) -> None:
    """Without foreign keys, also those whose transactions are open."""
    loads = Loads(ledger, setup=f"SET timezone = 'UTC'; {WITHOUT_KEYS}")
    with psycopg.connect(loads.conninfo) as other:
        other.execute("INSERT INTO events VALUES (2, '2026-11-25 12:00Z', 1)")
        loads.run(partition(day(tmp_path / "day.csv.gz")))
        assert other.execute("SELECT count(*) FROM events").fetchone() == (502,)


def test_triggers_that_another_load_has_disabled_are_enabled_in_the_partition(ledger18: str, tmp_path: Path) -> None:
    """ATTACH makes them as they are in the parent, where no load disables them."""
    loads = Loads(ledger18, piece_bytes=3000, setup=f"SET timezone = 'UTC'; {WITHOUT_KEYS} {TRIGGER}")
    beside, rules = Loads(ledger18, piece_bytes=3000), replace(IMPATIENT, triggers="disable")
    job, rows = partition(day(tmp_path / "day.csv.gz")), tmp_path / "rows.csv"
    rows.write_text("id,at,kind,note\n2,2026-11-25 12:00:00Z,1,x\n")

    def die(_number: int) -> None:
        raise Killed

    def load_beside(number: int) -> None:
        if number == 0:
            with pytest.raises(Killed):
                beside.run(target(rows, into="events"), rules=rules)

    beside.at_piece, loads.at_piece = die, load_beside
    loads.run(job, rules=rules)
    loads.repair().raise_first()
    query = "SELECT tgrelid::regclass::text, tgenabled FROM pg_trigger WHERE tgname = 't' ORDER BY 1"
    assert loads.execute(query) == [("events", "O"), ("events_1", "O"), ("events_2", "O")]


@pytest.mark.parametrize("into", ["events", "events_3"])
def test_a_load_with_another_target_of_the_parent_is_refused(loads: Loads, tmp_path: Path, into: str) -> None:
    """Before the first row: the ledger would have the objects of one as those of the other."""
    path = day(tmp_path / "other.csv.gz")
    after = "FROM ('2026-11-27') TO ('2026-11-28')"
    other = target(path, into=into) if into == "events" else partition(path, into=into, values=after)
    with pytest.raises(TargetError, match=f'cannot make partition "public.events_2" and fill table "public.{into}"'):
        loads.run(partition(day(tmp_path / "day.csv.gz")), other)
    assert (loads.count("events"), left_tables(loads)) == (1, [])


def test_rows_that_the_default_partition_gets_meanwhile_are_named(ledger18: str, tmp_path: Path) -> None:
    """When they are moved, the same command attaches the table."""
    loads = Loads(ledger18, piece_bytes=3000, setup=f"SET timezone = 'UTC'; {WITHOUT_KEYS}")
    loads.execute("CREATE TABLE rest PARTITION OF events DEFAULT")
    insert = "INSERT INTO events VALUES (7000, '2026-11-26', 1) ON CONFLICT DO NOTHING"
    loads.at_piece = lambda _: loads.execute(insert)
    job = partition(day(tmp_path / "day.csv.gz"))
    with pytest.raises(TargetError, match=r"default partition public.rest has rows that belong to the new partition"):
        loads.run(job)
    loads.execute("DELETE FROM rest")
    loads.run(job)
    assert (loads.count("events"), left_tables(loads)) == (501, [])


def test_a_role_to_which_policies_apply_is_refused(loads: Loads, tmp_path: Path) -> None:
    """With words about the parent."""
    loads.execute(
        "DROP ROLE IF EXISTS partition_owner; CREATE ROLE partition_owner; ALTER TABLE events OWNER TO partition_owner;"
        "GRANT ALL ON SCHEMA public TO partition_owner;"
        "ALTER TABLE events ENABLE ROW LEVEL SECURITY; ALTER TABLE events FORCE ROW LEVEL SECURITY"
    )
    try:
        share_ledger(loads, "partition_owner")
        owner = Loads(loads.conninfo, role="partition_owner")
        with pytest.raises(TargetError, match=r'build a partition of table "public.events" aside: row-level security'):
            owner.run(partition(day(tmp_path / "day.csv.gz")))
    finally:
        loads.execute("DROP OWNED BY partition_owner; DROP ROLE partition_owner")


def test_who_does_not_own_the_parent_is_refused(loads: Loads, tmp_path: Path) -> None:
    """By name."""
    loads.execute(
        "DROP ROLE IF EXISTS partition_clerk; CREATE ROLE partition_clerk; GRANT ALL ON events TO partition_clerk"
    )
    try:
        share_ledger(loads, "partition_clerk")
        clerk = Loads(loads.conninfo, role="partition_clerk")
        with pytest.raises(TargetError) as caught:
            clerk.run(partition(day(tmp_path / "day.csv.gz")))
        assert "role partition_clerk does not own table public.events" in (caught.value.detail or "")
        assert "temporary tables" not in (caught.value.detail or "")
        name = psycopg.conninfo.conninfo_to_dict(loads.conninfo)["dbname"]
        loads.execute(f"REVOKE TEMPORARY ON DATABASE {name} FROM PUBLIC")
        with pytest.raises(TargetError) as caught:
            clerk.run(partition(day(tmp_path / "day.csv.gz")))
        assert "role partition_clerk may not create temporary tables in database" in (caught.value.detail or "")
    finally:
        loads.execute("DROP OWNED BY partition_clerk; DROP ROLE partition_clerk")


@pytest.mark.parametrize("key", ["LIST", "HASH", "RANGE"])
def test_names_that_need_quotes(ledger18: str, tmp_path: Path, key: str) -> None:
    """Of the schema, the parent, the columns, the partition and its sibling in another schema."""
    first, values = {
        "LIST": ("IN ('b')", "IN ('it''s', NULL)"),
        "HASH": ("WITH (MODULUS 2, REMAINDER 1)", "WITH (MODULUS 2, REMAINDER 0)"),
        "RANGE": ("FROM ('a') TO ('c')", "FROM ('i') TO ('j')"),
    }[key]
    loads = Loads(
        ledger18,
        setup=f"""
        CREATE SCHEMA "s x"; CREATE SCHEMA other;
        CREATE TABLE "s x"."Ev ""ents" (
            "Id SET DEFAULT 1" int GENERATED ALWAYS AS IDENTITY, "Say ""hi" text
        ) PARTITION BY {key} ("Say ""hi");
        CREATE TABLE other."Day 2" PARTITION OF "s x"."Ev ""ents" FOR VALUES {first};
        """,
    )
    path = tmp_path / "rows.csv"
    path.write_text('"Say ""hi"\n' + "it's\n" * 3)
    job = partition(path, into='"Day 2"', of='"s x"."Ev ""ents"', values=values)
    if key == "HASH":
        query = """SELECT satisfies_hash_partition('"s x"."Ev ""ents"'::regclass, 2, 0, 'it''s'::text)"""
        ((is_even,),) = loads.execute(query)
        if not is_even:
            with pytest.raises(PenstockError, match="penstock_bounds"):
                loads.run(job)
            return
    loads.run(job)
    assert loads.rows('"s x"."Day 2"') == [(1, "it's"), (2, "it's"), (3, "it's")]


def test_a_name_that_is_too_long_is_refused(loads: Loads, tmp_path: Path) -> None:
    """Before the first row."""
    with pytest.raises(TargetError, match="63"):
        loads.run(partition(day(tmp_path / "day.csv.gz"), into="x" * 64))


def test_a_new_partition_keeps_no_retry_into_its_parent_from_running(loads: Loads, tmp_path: Path) -> None:
    """Nor after the details of its load were pruned: it took nothing away."""
    bad = write_csv(tmp_path / "bad.csv", ["2,2026-11-25 13:00Z,77,x"], header="id,at,kind,note")
    rules = replace(IMPATIENT, on_error="reject")
    load_id = str(loads.run(target(bad, into="events"), rules=rules).load_id)
    loads.run(partition(day(tmp_path / "day.csv.gz")))
    loads.execute("UPDATE penstock.loads SET changed_at = now() - interval '2 days'")
    with LedgerView(ConnectionFactory(loads.conninfo)) as view:
        assert view.prune(age_s=3600).loads == 1
        loads.execute("INSERT INTO kinds VALUES (77, 'late')")
        assert view.retry(load_id).rows == 1
