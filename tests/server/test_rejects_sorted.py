r"""Where many records of a command are bad the server sorts them out: the outcome is what commands would come to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.errors import TargetError
from penstock.loading import salvage
from penstock.model.job import LoadRules
from penstock.server.sorting import Sorted, Sorter
from support.loads import Loads, chop_commands, share_ledger, target

if TYPE_CHECKING:
    from pathlib import Path

REJECT = LoadRules(retry_for_s=0.0, on_error="reject")


@pytest.fixture
def loads(database: str) -> Loads:
    """Provide loads into a database with table t (a int primary key, b text), on each version."""
    loads = Loads(database)
    loads.execute("CREATE TABLE t (a int PRIMARY KEY, b varchar(20) NOT NULL CHECK (b <> 'wrong'))")
    return loads


@pytest.fixture
def sorts(monkeypatch: pytest.MonkeyPatch) -> list[Sorted]:
    """Provide a list of how each sorting has ended."""
    ended: list[Sorted] = []
    sort = Sorter.sort

    def note(self: Sorter) -> Sorted:
        found = sort(self)
        ended.append(found)
        return found

    monkeypatch.setattr(Sorter, "sort", note)
    return ended


def write_csv(path: Path, records: list[str], header: str = "a,b") -> Path:
    """Write a csv file and return its path."""
    path.write_text("".join(f"{record}\n" for record in [header, *records]))
    return path


def read_rejects(loads: Loads) -> list[tuple[int, str, str | None, str, str | None]]:
    """Return line, SQLSTATE, column, message and detail of what is put aside, in the order of the file."""
    return loads.execute(  # type: ignore[return-value]
        'SELECT line, sqlstate, "column", message, detail FROM penstock.rejects ORDER BY object, start'
    )


def have_commands_do_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no records sorted."""
    monkeypatch.setattr(salvage, "_FEWEST_SORTED", 10**9)


# Every tenth record is one of these in turn.
BAD = ["{},wrong", "0,twice", "x{},y", "{},much too long a text for it", "99999999999{},y"]


def make_records(count: int = 1000) -> list[str]:
    """Return records of which every tenth is bad, each kind in turn."""
    return [BAD[n // 10 % len(BAD)].format(n) if n % 10 == 9 else f"{n},x" for n in range(count)]


def test_reasons_are_those_that_commands_give(
    loads: Loads, tmp_path: Path, sorts: list[Sorted], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Line, SQLSTATE, column, message and detail; types too, which the server names no column of before 17."""
    path = write_csv(tmp_path / "file.csv", make_records())
    outcome = loads.run(target(path, format="csv"), sessions=1, rules=REJECT)
    assert (outcome.rows, outcome.rejected, loads.count()) == (900, 100, 900)
    assert sorts
    found = read_rejects(loads)
    assert {(code, column) for _, code, column, *_ in found} == {
        ("23514", None),
        ("23505", None),
        ("22P02", "a"),
        ("22001", "b"),
        ("22003", "a"),
    }
    sorts.clear()
    have_commands_do_it(monkeypatch)
    loads.execute("TRUNCATE t; DROP SCHEMA penstock CASCADE")
    assert loads.run(target(path, format="csv"), sessions=1, rules=REJECT).rejected == 100
    assert not sorts
    # Which of two duplicates stays is open, and so is which line is put aside.
    assert [item for item in read_rejects(loads) if item[1] != "23505"] == [
        item for item in found if item[1] != "23505"
    ]
    assert {item[1:] for item in read_rejects(loads)} == {item[1:] for item in found}


def test_rows_are_stored_in_the_order_of_the_file(
    loads: Loads, tmp_path: Path, sorts: list[Sorted], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As COPY would, so that what is ordered in the file stays so in the table."""
    monkeypatch.setattr(salvage, "_FAILURES_BEFORE_SORTING", 1)
    path = write_csv(tmp_path / "file.csv", [f"{n},{'wrong' if n % 7 == 6 else 'x'}" for n in range(1000)])
    loads.run(target(path, format="csv"), sessions=1, rules=REJECT)
    assert sorts
    assert loads.execute("SELECT a FROM t ORDER BY ctid") == loads.execute("SELECT a FROM t ORDER BY a")


def test_session_sorts_in_each_of_its_transactions(
    loads: Loads, tmp_path: Path, sorts: list[Sorted], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it makes for that is gone with them."""
    chop_commands(monkeypatch, 2000)
    loads._piece_bytes = 1000
    path = write_csv(tmp_path / "file.csv", make_records())
    loads.run(target(path, format="csv"), sessions=1, rules=REJECT, batch_bytes=2000)
    assert len(sorts) > 1
    assert loads.count() == 900
    assert loads.execute("SELECT relname FROM pg_class WHERE relname LIKE 'penstock\\_%'") == []


def test_columns_that_the_server_fills(loads: Loads, tmp_path: Path, sorts: list[Sorted]) -> None:
    """Identities that the file gives or not, defaults, generated columns, and names that must be quoted."""
    loads.execute(
        'CREATE TABLE "T" ("lower" int GENERATED ALWAYS AS IDENTITY, "first" int CHECK ("first" <> 7),'
        ' "s t""r" text DEFAULT \'d\', places int GENERATED ALWAYS AS ("first" * 2) STORED, counter numeric(5, 1),'
        " serial bigserial)"
    )
    records = [f"{n + 100},{7 if n % 10 == 9 else n + 1000},{n}.26" for n in range(500)]
    path = write_csv(tmp_path / "file.csv", records, header="lower,first,counter")
    outcome = loads.run(target(path, into='"T"', format="csv"), sessions=1, rules=REJECT)
    assert (outcome.rows, outcome.rejected, len(sorts)) == (450, 50, 1)
    rows = loads.execute(
        'SELECT count(*), min("lower"), sum("first" * 2 - places), min("s t""r"), max(scale(counter)) FROM "T"'
    )
    assert rows == [(450, 100, 0, "d", 1)]
    assert loads.execute('SELECT count(DISTINCT serial) FROM "T"') == [(450,)]


def test_rows_kept_out_by_triggers_are_counted(loads: Loads, tmp_path: Path, sorts: list[Sorted]) -> None:
    """They are neither stored nor rejected; what a trigger changes stays changed, and what it raises is its own."""
    loads.execute(
        "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " IF NEW.a % 2 = 0 THEN RETURN NULL; END IF;"
        " IF NEW.a % 5 = 0 THEN RAISE EXCEPTION 'no fives' USING DETAIL = NEW.a, COLUMN = 'a'; END IF;"
        " NEW.b := 'changed'; RETURN NEW; END $$"
    )
    loads.execute("CREATE TRIGGER keep BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION keep()")
    path = write_csv(tmp_path / "file.csv", [f"{n},x" for n in range(1000)])
    outcome = loads.run(target(path, format="csv"), sessions=1, rules=REJECT)
    assert (outcome.rows, outcome.suppressed, outcome.rejected) == (400, 500, 100)
    assert sorts
    assert read_rejects(loads)[-1] == (997, "P0001", "a", "no fives", "995")
    assert loads.execute("SELECT DISTINCT b FROM t") == [("changed",)]


def test_orphans_are_tried_again_behind_their_parents(loads: Loads, tmp_path: Path, sorts: list[Sorted]) -> None:
    """Children before their parents, in one file, besides some without any."""
    loads.execute("ALTER TABLE t ADD parent int REFERENCES t")
    records = [f"{n},x,{5000 if n % 50 == 0 else min(n + 7, 999)}" for n in range(1000)]
    path = write_csv(tmp_path / "file.csv", records, header="a,b,parent")
    outcome = loads.run(target(path, format="csv"), sessions=1, rules=REJECT)
    assert sorts
    assert outcome.rows == loads.count()
    # Whose parent was put aside is put aside too, and so on.
    assert outcome.rejected == 1000 - loads.count() >= 20
    assert {code for _, code, *_ in read_rejects(loads)} == {"23503"}
    lost = loads.execute(
        "SELECT count(*) FROM penstock.rejects, t WHERE split_part(convert_from(raw, 'UTF8'), ',', 3)::int = t.a"
    )
    assert lost == [(0,)]


def test_partitions_and_records_that_have_none(loads: Loads, tmp_path: Path, sorts: list[Sorted]) -> None:
    """They are a record's own fault."""
    loads.execute(
        "CREATE TABLE p (a int, b text) PARTITION BY LIST (b); CREATE TABLE p1 PARTITION OF p FOR VALUES IN ('x')"
    )
    path = write_csv(tmp_path / "file.csv", [f"{n},{'y' if n % 10 == 9 else 'x'}" for n in range(500)])
    outcome = loads.run(target(path, into="p", format="csv"), sessions=1, rules=REJECT)
    assert (outcome.rows, outcome.rejected, len(sorts)) == (450, 50, 1)
    assert {code for _, code, *_ in read_rejects(loads)} == {"23514"}


def test_records_that_cannot_be_read_do_not_stop_it(loads: Loads, tmp_path: Path, sorts: list[Sorted]) -> None:
    """They are put aside before, where penstock finds them; types are the stage's to refuse."""
    records = make_records(600)
    records[500:503] = ["5", "5,6,7", "500,"]
    path = write_csv(tmp_path / "file.csv", records)
    outcome = loads.run(target(path, format="csv"), sessions=1, rules=REJECT)
    assert (outcome.rows, outcome.rejected, loads.count()) == (537, 63, 537)
    assert len(sorts) == 1


# ---------------------------------------------------------------- rights


def test_insert_on_the_columns_is_enough(loads: Loads, tmp_path: Path, user_name: str, sorts: list[Sorted]) -> None:
    """Nothing is read of the table."""
    share_ledger(loads, f'"{user_name}"')
    loads.execute(f'ALTER TABLE t ADD c text DEFAULT 1; GRANT INSERT (a, b) ON t TO "{user_name}"')
    path = write_csv(tmp_path / "file.csv", make_records())
    outcome = Loads(loads.conninfo, role=user_name).run(target(path, format="csv"), sessions=1, rules=REJECT)
    assert (outcome.rows, outcome.rejected, len(sorts)) == (900, 100, 1)


def test_without_the_right_to_temporary_tables_commands_do_it(
    loads: Loads, tmp_path: Path, user_name: str, sorts: list[Sorted]
) -> None:
    """The outcome is the same."""
    share_ledger(loads, f'"{user_name}"')
    name = loads.execute("SELECT current_database()")[0][0]
    loads.execute(f'REVOKE TEMPORARY ON DATABASE "{name}" FROM PUBLIC')
    loads.execute(f'GRANT INSERT ON t TO "{user_name}"')
    path = write_csv(tmp_path / "file.csv", make_records())
    outcome = Loads(loads.conninfo, role=user_name).run(target(path, format="csv"), sessions=1, rules=REJECT)
    assert (outcome.rows, outcome.rejected, sorts) == (900, 100, [])


def test_without_plpgsql_commands_do_it(loads: Loads, tmp_path: Path, sorts: list[Sorted]) -> None:
    """The outcome is the same."""
    loads.execute("DROP EXTENSION plpgsql")
    path = write_csv(tmp_path / "file.csv", make_records())
    outcome = loads.run(target(path, format="csv"), sessions=1, rules=REJECT)
    assert (outcome.rows, outcome.rejected, sorts) == (900, 100, [])


def test_rules_of_a_table_stay_out_of_it(loads: Loads, tmp_path: Path, sorts: list[Sorted]) -> None:
    """COPY knows no rules, and an INSERT would."""
    loads.execute("CREATE RULE away AS ON INSERT TO t DO INSTEAD NOTHING")
    path = write_csv(tmp_path / "file.csv", make_records())
    outcome = loads.run(target(path, format="csv"), sessions=1, rules=REJECT)
    assert (outcome.rows, loads.count(), sorts) == (900, 900, [])


def test_fault_that_is_no_records_own_ends_the_load(loads: Loads, tmp_path: Path) -> None:
    """Such as a trigger that asks for a table that is not there, of one record behind many bad ones."""
    loads.execute(
        "CREATE FUNCTION break() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " IF NEW.a = 900 THEN PERFORM * FROM nowhere; END IF; RETURN NEW; END $$"
    )
    loads.execute("CREATE TRIGGER break AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION break()")
    path = write_csv(tmp_path / "file.csv", make_records())
    with pytest.raises(TargetError, match="nowhere"):
        loads.run(target(path, format="csv"), sessions=1, rules=REJECT)
    assert loads.count() == 0


# Types, a value that each takes, and one that it refuses: with and without modifiers, domains, casts of their own.
TYPES = {
    "int2": ("12", "70000"),
    "float8": ("1e3", "1e999"),
    "numeric(5, 2)": ("12.345", "12345"),
    "varchar(3)": ("abc   ", "abcd"),
    "varchar": ("é\\\\\"' (,)", None),
    "char(3)": ("ab", "abcd"),
    "bpchar": ("ab  ", None),
    '"char"': ("xyz", None),
    "name": ("n" * 70, None),
    "bit(3)": ("101", "10"),
    "bit varying(3)": ("10", "1010"),
    "timestamp(0)": ("2020-01-31 10:00:00.6", "2020-02-31"),
    "timestamptz": ("2020-01-31 10:00:00.6+01", "yesterday or so"),
    "interval day": ("3", "three"),
    "interval(0)": ("1.6 s", "-"),
    "bool": ("yes", "perhaps"),
    "bytea": ("\\\\x00ff", "\\\\x0"),
    "jsonb": ('{"a": [1, 2]}', "{"),
    "uuid": ("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "a0"),
    "varchar(3)[]": ("{abc,NULL}", "{abcd}"),
    "int4range": ("[1,5)", "[5,1)"),
    "mood": ("good", "great"),
    "short": ("abc", "abcd"),
    "pair": ("(1,abc)", "(1,abcd)"),
}


def test_values_are_what_copy_makes_of_them(
    loads: Loads, tmp_path: Path, sorts: list[Sorted], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of any type, empty and null too; and what COPY refuses is refused for the same reason."""
    names = [f"c{number}" for number in range(len(TYPES))]
    loads.execute("CREATE TYPE mood AS ENUM ('good', 'bad'); CREATE DOMAIN short AS varchar(3) CHECK (VALUE <> 'no')")
    loads.execute("CREATE TYPE pair AS (a int, b varchar(3))")
    columns = ", ".join(f"{name} {type_name}" for name, type_name in zip(names, TYPES, strict=True))
    good = [value for value, _ in TYPES.values()]
    lines = []
    for number, (_, refused) in enumerate(TYPES.values()):
        for value in (refused, "\\N", ""):
            fields = list(good)
            fields[number] = fields[number] if value is None else value
            lines.append(["1", *fields])
    lines += [["0" if n % 5 else "1", *good] for n in range(100)]
    path = tmp_path / "file.tsv"
    path.write_text("".join("\t".join(fields) + "\n" for fields in lines))
    found = []
    monkeypatch.setattr(salvage, "_FEWEST_SORTED", 1)
    for number in range(2):
        loads.execute(f"DROP TABLE IF EXISTS v; CREATE TABLE v (k int CHECK (k <> 0), {columns})")
        loads.execute("DROP SCHEMA IF EXISTS penstock CASCADE")
        job = target(path, into="v", format="text", columns=("k", *names), has_header=False)
        loads.run(job, sessions=1, rules=REJECT)
        found.append((sorted(loads.execute("SELECT v::text FROM v")), read_rejects(loads)))
        assert bool(sorts) == (number == 0)
        sorts.clear()
        have_commands_do_it(monkeypatch)
    assert found[0] == found[1]


def test_column_is_the_one_that_the_message_speaks_of(loads: Loads, tmp_path: Path, sorts: list[Sorted]) -> None:
    """Of several values that are wrong in the same way each server meets another one first."""
    loads.execute("CREATE TYPE mood AS ENUM ('good'); CREATE DOMAIN few AS int CHECK (VALUE < 9)")
    loads.execute("CREATE TABLE v (k int, m mood, n few)")
    records = [f"{n},{'bad' if n % 5 == 3 else 'good'},{'x' if n % 5 == 3 else 1}" for n in range(200)]
    path = write_csv(tmp_path / "file.csv", records, header="k,m,n")
    outcome = loads.run(target(path, into="v", format="csv"), sessions=1, rules=REJECT)
    assert (outcome.rows, outcome.rejected) == (160, 40)
    told = {'invalid input value for enum mood: "bad"': "m", 'invalid input syntax for type integer: "x"': "n"}
    assert [column for _, _, column, *_ in read_rejects(loads)] == [told[each[3]] for each in read_rejects(loads)]
