"""Loads that widen columns of a table, and add columns to it, before the first row."""

from __future__ import annotations

import shlex
import subprocess
import sys
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from penstock.core.errors import DataError, DeleteLimitError, TargetError, UsageError
from penstock.core.values.job import LoadRules
from penstock.ledger.ledger import Ledger
from penstock.loading.claim import write as write_claim
from penstock.loading.steps.columns import ColumnChanges
from penstock.loading.types import find
from penstock.loading.types.find import scan_objects
from support.loads import Loads, share_ledger
from support.typed import make_target, types_of

if TYPE_CHECKING:
    from penstock.loading.values.outcome import LoadOutcome

Write = Any


def _actions(outcome: LoadOutcome) -> list[str]:
    part = outcome.steps["columns"]
    assert isinstance(part, ColumnChanges)
    assert part.describe()
    return [change.action for each in part.tables for change in each.changes]


def _widen(*paths: Any, **options: Any) -> Any:
    return make_target(*paths, **({"create": False, "types": "widen"} | options))


@pytest.mark.parametrize("mode", ["sync", "append"])
def test_new_version_of_a_file_with_the_same_size_is_looked_at(loads: Loads, write: Write, mode: str) -> None:
    """It is loaded, so its values widen the columns."""
    loads.run(make_target(write("id,zip\n1,10115\n"), types="widen"))
    job = _widen(write("id,zip\n1,01067\n"), mode=mode)
    if mode == "sync":
        loads.execute("ALTER TABLE t ADD PRIMARY KEY (id)")
        job = replace(job, key=("id",))
    loads.run(job, rules=LoadRules(retry_for=0.0, changed="load"))
    assert types_of(loads) == ["integer", "text"]
    assert (1, "01067") in loads.rows()


@pytest.mark.parametrize(
    ("type_name", "value", "expected"),
    [
        ("smallint", "40000", "integer"),
        ("integer", "3000000000", "bigint"),
        ("integer", "9223372036854775808", "numeric"),
        ("integer", "1.5", "numeric"),
        ("bigint", "1e3", "numeric"),
        ("bigint", "x", "text"),
        ("numeric", "x", "text"),
        ("integer", " 007 ", "text"),
        ("integer", "+7", "integer"),
        ("integer", "1_000", "text"),
        ("integer", "0x1F", "text"),
        ("numeric", "1e5", "numeric"),
        ("numeric", "NaN", "numeric"),
        ("numeric(10,2)", "1.555", "numeric(10,2)"),
        ("text", "x", "text"),
    ],
)
def test_column_is_widened_as_far_as_its_values_need(
    loads: Loads, write: Write, type_name: str, value: str, expected: str
) -> None:
    """What the present type keeps widens nothing; the rows that were there keep their values."""
    loads.execute(f"CREATE TABLE t (id int, a {type_name} DEFAULT 5); INSERT INTO t VALUES (0, 7)")
    outcome = loads.run(_widen(write(f"id,a\n1,1\n2,{value}\n")))
    assert types_of(loads) == ["integer", expected]
    assert loads.execute("SELECT a::numeric FROM t WHERE id < 2 ORDER BY id") == [(7,), (1,)]
    assert ("columns" in outcome.steps) == (type_name != expected)


@pytest.mark.parametrize(
    ("type_name", "value", "expected"),
    [
        *((each, "0000-00-00", "text") for each in ("date", "timestamp", "timestamptz")),
        ("date", "2026-02-29", "text"),
        ("date", "2024-02-29", "date"),
        ("date", "2026-01-01 25:00", "text"),
        ("date", "2026-01-01 24:30", "text"),
        ("date", "31.12.2025 10:00", "text"),
        ("date", "2024-08-10 foo", "text"),
        ("date", "2024-08-10 +99", "text"),
        ("timestamp", "2024-08-10 10:00 +99", "text"),
        ("timestamp", "2024-08-10 10:00 Europe/Berlin", "timestamp with time zone"),
        ("timestamptz", "2024-08-10 10:00 EST", "timestamp with time zone"),
    ],
)
def test_what_a_type_of_moments_refuses_makes_the_column_text(
    loads: Loads, write: Write, type_name: str, value: str, expected: str
) -> None:
    """The load stores it, and no type in between is chosen."""
    loads.execute(f"CREATE TABLE t (d {type_name})")
    assert loads.run(_widen(write(f"d\n2026-01-05\n{value}\n"))).rows == 2
    assert types_of(loads) == [expected]


def test_column_is_widened_once_for_all_targets_of_the_table(loads: Loads, write: Write) -> None:
    """Whichever of them asks for it, the first or the last."""
    for number, column in enumerate(("a", "b")):
        loads.execute(f"DROP TABLE IF EXISTS t; CREATE TABLE t ({column} int)")
        wide = _widen(write(f"{column}\n3000000000\n", f"{number}w.csv"))
        plain = replace(_widen(write(f"{column}\n1\n", f"{number}p.csv")), types="text")
        outcome = loads.run(*((wide, plain) if number else (plain, wide)))
        assert (outcome.rows, types_of(loads)) == (2, ["bigint"])


def test_nothing_is_looked_at_twice(loads: Loads, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is loaded is not read again for types; a new one beside it is."""
    loads.execute("CREATE TABLE t (a int)")
    one = write("a\n1\n", "1.csv")
    loads.run(_widen(one))
    two = write("a\n3000000000\n", "2.csv")
    looked: list[str] = []

    def scan(works: Any, *args: Any, **options: Any) -> Any:
        looked.extend(work.source.uri for work in works)
        return scan_objects(works, *args, **options)

    monkeypatch.setattr(find, "scan_objects", scan)
    outcome = loads.run(_widen(one, two))
    assert (outcome.rows, outcome.objects_skipped) == (1, 1)
    assert _actions(outcome) == ['ALTER COLUMN "a" TYPE bigint']
    assert looked == [str(two)]


@pytest.mark.parametrize(
    ("dependent", "why"),
    [
        ("CREATE INDEX i ON t (a)", "index public.i"),
        ("ALTER TABLE t ADD PRIMARY KEY (a)", "constraint t_pkey"),
        ("CREATE VIEW v AS SELECT a FROM t", "view public.v"),
        ("ALTER TABLE t ADD CHECK (a > 0)", "constraint t_a_check"),
        ("ALTER TABLE t ADD g int GENERATED ALWAYS AS (a + 1) STORED", "column g of table public.t"),
    ],
)
def test_column_that_something_uses_is_not_widened(loads: Loads, write: Write, dependent: str, why: str) -> None:
    """The error names file, line, value, what uses the column, and the ALTER TABLE; nothing is changed."""
    loads.execute(f"CREATE TABLE t (a int); {dependent}")
    path = write("a\n1\n3000000000\n")
    error = loads.refuse(_widen(path))
    assert isinstance(error, DataError)
    assert error.location is not None
    assert (error.location.file, error.location.line, error.location.column) == (str(path), 3, "a")
    assert why in (error.detail or "")
    assert "3000000000" in error.message
    assert 'ALTER TABLE "public"."t" ALTER COLUMN "a" TYPE bigint' in (error.hint or "")
    assert types_of(loads)[0] == "integer"


@pytest.mark.parametrize("word", ["NA", "NULL", "-"])
def test_word_for_null_makes_no_column_text(loads: Loads, write: Write, word: str) -> None:
    """The table is left as it was, and the hint names the option."""
    loads.execute("CREATE TABLE t (a int)")
    with pytest.raises(DataError) as caught:
        loads.run(_widen(write(f"a\n1\n3000000000\n{word}\n")))
    assert caught.value.hint is not None
    assert caught.value.hint.startswith(f"Use --null {word} if it stands for null")
    assert types_of(loads) == ["integer"]


@pytest.mark.parametrize("value", ["0000-00-00", "0000-00-00 00:00:00"])
def test_a_date_that_stands_for_none_is_named_with_the_option(loads: Loads, write: Write, value: str) -> None:
    """In the error of the load and of what may not be widened, and in the warning if the column becomes text."""
    loads.execute("CREATE TABLE t (a int, d timestamp); CREATE TABLE u (d timestamp); CREATE INDEX i ON u (d)")
    path, option = write(f"a,d\n1,{value}\n"), f"Use --null {shlex.quote(value)} if it stands for null"
    assert option in (loads.refuse(make_target(path, create=False, types="text")).hint or "")
    assert option in (loads.refuse(_widen(write(f"d\n{value}\n", "u.csv"), into="u")).hint or "")
    loads.run(_widen(path))
    assert [option in (each.hint or "") for each in loads.warnings] == [True]
    assert types_of(loads) == ["integer", "text"]


def test_the_hint_does_not_name_an_option_that_was_given(loads: Loads, write: Write) -> None:
    """A column of a table with --types widen has its type because of what uses it, or since the look at the values."""
    loads.execute("CREATE TABLE t (a uuid, d date)")
    error = loads.refuse(make_target(write("a,d\n,2026-02-29\n"), create=False, types="text"))
    assert "TYPE text; --types widen does so" in (error.hint or "")
    error = loads.refuse(_widen(write("a,d\nx,2026-02-28\n")))
    assert "--types widen" not in (error.hint or "")
    # A record without its last fields does not decide the types, and a table that was not created cannot be altered.
    error = loads.refuse(make_target(write("a,d\n1,2\nTotal\n", "new.csv"), into="new"))
    assert error.hint == "Correct the value in the file, or load the other records with --on-error reject."


@pytest.mark.parametrize(
    ("type_name", "good", "garbage"),
    [
        ("int", "7", "x"),
        ("int", "7", "1_x"),
        ("int", "7", "NA"),
        ("numeric", "7", "2026-01-01"),
        ("date", "2026-01-01", "2024-08-10 foo"),
        ("timestamp", "2026-01-01 10:00", "0000-00-00"),
        ("timestamptz", "2026-01-01 10:00Z", "x"),
    ],
)
def test_a_value_that_is_rejected_alters_nothing(
    loads: Loads, write: Write, type_name: str, good: str, garbage: str
) -> None:
    """Values that a wider type takes do, also beside it."""
    loads.execute(f"CREATE TABLE t (a {type_name}, b int)")
    before = types_of(loads)[0]
    rules = LoadRules(retry_for=0.0, on_error="reject")
    outcome = loads.run(_widen(write(f"a,b\n{good},3000000000\n{garbage},1\n")), rules=rules)
    assert (outcome.rows, outcome.rejected) == (1, 1)
    assert types_of(loads) == [before, "bigint"]


def test_a_nested_value_that_is_rejected_alters_nothing(loads: Loads, write: Write) -> None:
    """Objects, arrays and booleans of JSON Lines."""
    loads.execute("CREATE TABLE t (a int, d date)")
    lines = '{"a": 1, "d": "2026-01-01"}\n{"a": [1], "d": null}\n{"a": 2, "d": {"x": 1}}\n{"a": true, "d": null}\n'
    outcome = loads.run(_widen(write(lines, "f.jsonl")), rules=LoadRules(retry_for=0.0, on_error="reject"))
    assert (outcome.rows, outcome.rejected, types_of(loads)) == (1, 3, ["integer", "date"])


def test_a_failed_load_names_the_columns_that_stay_changed(loads: Loads, write: Write) -> None:
    """Of a load without rows, and of a sync that is stopped before it stores its records."""
    loads.execute("CREATE TABLE t (a int, b int); CREATE TABLE u (id int PRIMARY KEY)")
    loads.execute("INSERT INTO u SELECT generate_series(1, 40)")
    error = loads.refuse(_widen(write("a,b\n3000000000,1\n4,x,y\n")))
    stays = 'The columns that the load has changed stay so: ALTER TABLE "public"."{}" {}.'
    assert stays.format("t", 'ALTER COLUMN "a" TYPE bigint') in (error.detail or "")
    assert types_of(loads) == ["bigint", "integer"]
    path = write("id,extra\n" + "".join(f"{number},x\n" for number in range(1, 20)), "u.csv")
    with pytest.raises(DeleteLimitError) as caught:
        loads.run(make_target(path, into="u", create=False, types="text", mode="sync", key=("id",), add_columns=True))
    assert stays.format("u", 'ADD COLUMN "extra" text') in (caught.value.detail or "")
    assert "No table was changed" not in (caught.value.detail or "")
    assert types_of(loads, "u") == ["integer", "text"]


def test_plan_of_a_table_that_exists_creates_none(loads: Loads, write: Write) -> None:
    """It prints what is added and widened."""
    loads.execute("CREATE TABLE t (a int)")
    path = write("a,b\n3000000000,2020-01-01\n")
    argv = ["load", str(path), "--into=t", "--types=widen", "--add-columns", "--plan", f"--to={loads.conninfo}"]
    shown = subprocess.run([sys.executable, "-m", "penstock", *argv], check=True, capture_output=True, text=True).stdout
    assert 'ADD COLUMN "b" date' in shown
    assert "CREATE TABLE" not in shown


def test_identity_column_is_widened(loads: Loads, write: Write) -> None:
    """A default and a sequence are no obstacle."""
    loads.execute("CREATE TABLE t (a serial, b text)")
    loads.run(_widen(write("a,b\n3000000000,x\n")))
    assert types_of(loads) == ["bigint", "text"]


def test_partitions_are_widened_with_their_parent(loads: Loads, write: Write) -> None:
    """ALTER TABLE descends; an index of a partition is an obstacle as the table's own is."""
    loads.execute("CREATE TABLE t (k int, a int) PARTITION BY LIST (k); CREATE TABLE t1 PARTITION OF t DEFAULT")
    loads.run(_widen(write("k,a\n1,3000000000\n")))
    assert types_of(loads, "t1") == ["integer", "bigint"]
    loads.execute("CREATE INDEX part_a ON t1 (a)")
    with pytest.raises(DataError) as caught:
        loads.run(_widen(write("k,a\n1,x\n", "2.csv")))
    assert "index public.part_a" in (caught.value.detail or "")


def test_widen_creates_a_table_that_does_not_exist(loads: Loads, write: Write) -> None:
    """One command for the first run and all later ones."""
    for number, (text, expected) in enumerate([("a\n1\n", "integer"), ("a\n3000000000\n", "bigint")]):
        loads.run(_widen(write(text, f"{number}.csv"), create=True))
        assert types_of(loads) == [expected]


def test_columns_are_added_with_the_load(loads: Loads, write: Write) -> None:
    """Files with more columns, each with others, add all; the result names them, and older rows have nulls."""
    loads.execute("CREATE TABLE t (a int, gone int); ALTER TABLE t DROP gone; INSERT INTO t VALUES (0)")
    write("a,b\n1,x\n", "1.csv")
    folder = write('a,"C c"\n2,2024-01-01\n', "2.csv").parent
    outcome = loads.run(make_target(folder, create=False, types="text", add_columns=True))
    assert _actions(outcome) == ['ADD COLUMN "b" text', 'ADD COLUMN "c c" text']
    assert loads.execute("SELECT * FROM t ORDER BY a") == [(0, None, None), (1, "x", None), (2, None, "2024-01-01")]
    again = loads.run(make_target(folder, create=False, types="text", add_columns=True))
    assert (again.load_id, again.objects_skipped) == (None, 2)


def test_added_columns_have_the_types_of_their_values(loads: Loads, write: Write) -> None:
    """With --types, added columns are typed as created ones, and others are widened in the same ALTER TABLE."""
    loads.execute("CREATE TABLE t (a int)")
    outcome = loads.run(_widen(write("a,b,c\n3000000000,2024-01-01,x\n"), add_columns=True))
    assert types_of(loads) == ["bigint", "date", "text"]
    assert len(_actions(outcome)) == 3


def test_created_table_has_the_columns_of_all_files(loads: Loads, write: Write) -> None:
    """--create --add-columns takes the columns of later files too."""
    write("a\n1\n2\n", "1.csv")
    folder = write("a,b\n2,2.5\n", "2.csv").parent
    loads.run(make_target(folder, add_columns=True))
    assert types_of(loads) == ["integer", "numeric"]
    assert loads.count() == 3


def test_without_the_option_the_error_names_it(loads: Loads, write: Write) -> None:
    """A column that the table lacks is refused as before."""
    loads.execute("CREATE TABLE t (a int)")
    error = loads.refuse(make_target(write("a,b\n1,x\n"), create=False, types="text"))
    assert isinstance(error, TargetError)
    assert "--add-columns" in (error.hint or "")


@pytest.mark.parametrize("mode", ["append", "truncate", "replace", "upsert"])
def test_columns_change_with_every_mode(loads: Loads, write: Write, mode: str) -> None:
    """Staging tables and new tables have the changed columns."""
    loads.execute("CREATE TABLE t (k text PRIMARY KEY, a int); INSERT INTO t VALUES ('x', 1)")
    key = {"key": "k"} if mode == "upsert" else {}
    path = write("k,a,b\ny,3000000000,2\n")
    loads.run(_widen(path, mode=mode, add_columns=True, **key))
    assert types_of(loads) == ["text", "bigint", "integer"]
    kept = mode in ("append", "upsert")
    assert loads.rows() == [("x", 1, None), ("y", 3000000000, 2)][not kept :]


def test_load_that_is_not_recorded_changes_nothing(loads: Loads, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """The changes and the record of the load are one transaction."""
    loads.execute("CREATE TABLE t (a int)")

    def fail(*_: Any, **__: Any) -> Any:
        raise TargetError("no")

    monkeypatch.setattr(Ledger, "begin", fail)
    loads.refuse(_widen(write("a,b\n3000000000,x\n"), add_columns=True))
    assert types_of(loads) == ["integer"]


def test_load_that_fails_later_is_resumed(database18: str, write: Write) -> None:
    """The changed columns stay; the next run resumes the load, and finds the table as it needs it."""
    loads = Loads(database18, piece_bytes=1000, chunk_bytes=1000)
    loads.execute("CREATE TABLE t (a int, d text CONSTRAINT good CHECK (d <> 'bad'))")
    path = write("a,b,d\n" + "3000000000,x,good\n" * 2000 + "1,x,bad\n")
    target = _widen(path, add_columns=True)
    with pytest.raises(DataError):
        loads.run(target, sessions=1, batch_bytes=2000)
    assert types_of(loads) == ["bigint", "text", "text"]
    before = loads.count()
    assert 0 < before < 2001
    loads.execute("ALTER TABLE t DROP CONSTRAINT good")
    outcome = loads.run(target)
    assert (outcome.rows_before, outcome.rows) == (before, 2001 - before)
    assert loads.count() == 2001


def test_role_that_is_not_the_owner_is_told(database18: str, write: Write) -> None:
    """The error has the statement for the owner."""
    admin = Loads(database18, setup="CREATE TABLE t (a int); CREATE ROLE ann; GRANT SELECT, INSERT ON t TO ann")
    try:
        share_ledger(admin, "ann")
        loads = Loads(database18, role="ann")
        error = loads.refuse(make_target(write("a,b\n1,x\n"), create=False, types="text", add_columns=True))
        assert isinstance(error, TargetError)
        assert 'ADD COLUMN "b" text' in (error.hint or "")
        assert isinstance(loads.refuse(_widen(write("a\nx\ny\n"))), DataError)
    finally:
        admin.execute("DROP OWNED BY ann; DROP ROLE ann")


def test_table_altered_since_the_plan_is_an_error(loads: Loads, write: Write) -> None:
    """Another session's column takes the number that was planned."""
    from penstock.core.values.job import LoadJob

    loads.execute("CREATE TABLE t (a int)")
    job = LoadJob(targets=(_widen(write("a,b\n1,x\n"), add_columns=True),), rules=LoadRules(retry_for=0))
    with loads.loader() as loader:
        plan = loader.plan(job)
        loads.execute("ALTER TABLE t ADD z int")
        with pytest.raises(TargetError):
            loader.run(plan)
    assert types_of(loads) == ["integer", "integer"]


def test_nothing_is_altered_if_another_load_records_a_file_first(
    loads: Loads, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While this one waits for the table's lock: it starts again, and is refused then."""
    loads.execute("CREATE TABLE t (a int)")
    path = write("a,b\n1,x\n")

    looks = iter([write_claim.alter_table])

    def alter(*arguments: Any, **options: Any) -> None:
        for look in looks:
            return look(*arguments, **options)
        raise TargetError("belongs to another load")

    monkeypatch.setattr(Ledger, "begin", lambda *_arguments, **_options: None)
    monkeypatch.setattr(write_claim, "alter_table", alter)
    assert loads.refuse(_widen(path, add_columns=True)).message == "belongs to another load"
    assert types_of(loads) == ["integer"]


def test_two_loads_at_once_add_the_same_column(loads: Loads, write: Write) -> None:
    """The second finds the column as it planned it."""
    loads.execute("CREATE TABLE t (a int)")
    from penstock.core.values.job import LoadJob

    plans = []
    for number in range(2):
        path = write(f"a,b\n{number},x\n", f"{number}.csv")
        loader = loads.loader()
        target = make_target(path, create=False, types="text", add_columns=True)
        plans.append((loader, loader.plan(LoadJob(targets=(target,), rules=LoadRules(retry_for=0)))))
    threads = [threading.Thread(target=loader.run, args=(plan,)) for loader, plan in plans]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    for loader, _ in plans:
        loader.close()
    assert types_of(loads) == ["integer", "text"]
    assert loads.count() == 2


def test_what_cannot_be_altered_is_refused(loads: Loads, write: Write) -> None:
    """Views have no columns to add, and --check alters nothing."""
    loads.execute("CREATE TABLE t (a int); CREATE VIEW v AS SELECT a FROM t")
    target = make_target(write("a,b\n1,x\n"), create=False, types="text", add_columns=True, into="v")
    assert isinstance(loads.refuse(target), (UsageError, TargetError))
    with pytest.raises(UsageError):
        loads.check(make_target(write("a,b\n1,x\n"), create=False, types="text", add_columns=True))
    assert types_of(loads) == ["integer"]
