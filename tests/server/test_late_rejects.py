"""Keys and foreign keys that are parked though records which break them are to be rejected: found at the rebuild."""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from penstock.errors import DataError, PenstockError
from penstock.loading import late_rejects, late_search
from penstock.model.job import LoadJob, LoadRules
from support.loads import Loads, chop_commands, share_ledger, target
from support.modes import mode_target

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

RULES = LoadRules(retry_for_s=0.0, indexes="rebuild", on_error="reject")


@pytest.fixture
def loads(database18: str) -> Loads:
    """Provide loads in small pieces."""
    return Loads(database18, piece_bytes=50)


def write(path: Path, records: Sequence[str], *, header: str = "a,b") -> Path:
    """Write a csv file."""
    path.write_text("".join(f"{line}\n" for line in (header, *records)))
    return path


def rejected(loads: Loads) -> list[tuple[object, ...]]:
    """Return line, SQLSTATE and bytes of each rejected record, in file order."""
    query = "SELECT line, sqlstate, convert_from(raw, 'UTF8') FROM penstock.rejects ORDER BY object, start"
    return [tuple(row) for row in loads.execute(query)]


def reasons(loads: Loads) -> list[tuple[object, ...]]:
    """Return message and detail of each rejected record, in file order."""
    return [tuple(row) for row in loads.execute("SELECT message, detail FROM penstock.rejects ORDER BY object, start")]


def check_counts(loads: Loads) -> None:
    """Assert that the ledger accounts for every record, and has as many rejects as it says."""
    query = """
        SELECT count(*) FROM penstock.ranges AS r WHERE r.records <> r.rows + r.suppressed + r.rejected
         UNION ALL
        SELECT (SELECT sum(rejected) FROM penstock.ranges) - (SELECT count(*) FROM penstock.rejects)
    """
    assert [tuple(row) for row in loads.execute(query)] == [(0,), (0,)]
    assert loads.execute("SELECT count(*) FROM penstock.changes") == [(0,)]


@pytest.mark.parametrize("needles", [0, 16])
def test_the_first_of_each_key_stays(
    loads: Loads, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, needles: int
) -> None:
    """Whether their text is looked for or all records are compared."""
    monkeypatch.setattr(late_search, "_MOST_NEEDLES", needles)
    monkeypatch.setattr(late_search, "_PORTION_BYTES", 100)
    loads.execute("CREATE TABLE t (a int PRIMARY KEY, b text)")
    records = [f"{1000 + n},x{n}" for n in range(200)]
    records[150] = "1020,second"
    records[180] = "1020,third"
    records[190] = "1199,before"
    outcome = loads.run(target(write(tmp_path / "f.csv", records)), rules=RULES)
    assert [each.name for each in outcome.rebuilt] == ["t_pkey"]
    assert (outcome.rows, outcome.rejected) == (197, 3)
    assert rejected(loads) == [
        (152, "23505", "1020,second\n"),
        (182, "23505", "1020,third\n"),
        (201, "23505", "1199,x199\n"),
    ]
    message = 'duplicate key value violates unique constraint "t_pkey"'
    assert reasons(loads)[0] == (message, "Key (a)=(1020) already exists.")
    assert loads.execute("SELECT b FROM t WHERE a IN (1020, 1199) ORDER BY a") == [("x20",), ("before",)]
    check_counts(loads)


@pytest.mark.parametrize("needles", [0, 16])
def test_what_refers_to_nothing_is_put_aside(
    loads: Loads, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, needles: int
) -> None:
    """Whether their text is looked for or all records are compared."""
    monkeypatch.setattr(late_search, "_MOST_NEEDLES", needles)
    monkeypatch.setattr(late_search, "_PORTION_BYTES", 100)
    loads.execute("CREATE TABLE p (b text PRIMARY KEY); INSERT INTO p VALUES ('good')")
    loads.execute("CREATE TABLE t (a int, b text REFERENCES p)")
    records = [f"{n},good" for n in range(100)]
    records[10], records[50], records[60] = "10,nobody", "50,no one", "60,"
    outcome = loads.run(target(write(tmp_path / "f.csv", records)), rules=RULES)
    assert [each.name for each in outcome.rebuilt] == ["t_b_fkey"]
    assert (outcome.rows, outcome.rejected) == (98, 2)
    assert rejected(loads) == [(12, "23503", "10,nobody\n"), (52, "23503", "50,no one\n")]
    message = 'insert or update on table "t" violates foreign key constraint "t_b_fkey"'
    assert reasons(loads)[0] == (message, 'Key (b)=(nobody) is not present in table "p".')
    assert loads.execute("SELECT convalidated FROM pg_constraint WHERE conname = 't_b_fkey'") == [(True,)]
    check_counts(loads)


def test_what_refers_to_such_a_record_goes_too(loads: Loads, tmp_path: Path) -> None:
    """In a table that refers to itself; and back with it, where another record has its key."""
    loads.execute("CREATE TABLE t (a int PRIMARY KEY, b int REFERENCES t)")
    records = ["100,", "101,100", "102,999", "103,102", "104,103", "105,106", "106,100", "101,104", "101,106"]
    outcome = loads.run(target(write(tmp_path / "f.csv", records)), rules=RULES)
    assert sorted(loads.execute("SELECT a, b FROM t")) == [(100, None), (101, 100), (105, 106), (106, 100)]
    assert [row[:2] for row in rejected(loads)] == [
        (4, "23503"),
        (5, "23503"),
        (6, "23503"),
        (9, "23505"),
        (10, "23505"),
    ]
    assert outcome.rejected == 5
    check_counts(loads)


def test_tables_of_one_load_refer_to_each_other(loads: Loads, tmp_path: Path) -> None:
    """What refers to a record that is rejected is rejected; what refers to its namesake is not."""
    loads.execute("CREATE TABLE g (b int PRIMARY KEY); CREATE TABLE p (a int PRIMARY KEY, b int REFERENCES g)")
    loads.execute("CREATE TABLE t (a int PRIMARY KEY, b int REFERENCES p)")
    children = target(write(tmp_path / "t.csv", ["1,100", "2,101", "3,102", "4,100"]))
    parents = target(write(tmp_path / "p.csv", ["100,1", "101,9", "102,9", "102,1", "100,1"]), into="p")
    grand = target(write(tmp_path / "g.csv", ["1", "2"], header="b"), into="g")
    outcome = loads.run(children, parents, grand, rules=RULES)
    assert loads.execute("SELECT a, b FROM p ORDER BY a") == [(100, 1), (102, 1)]
    assert loads.execute("SELECT a, b FROM t ORDER BY a") == [(1, 100), (3, 102), (4, 100)]
    assert outcome.rejected == 4
    assert len(outcome.rebuilt) == 5
    check_counts(loads)


def test_values_written_in_several_ways_are_found(loads: Loads, tmp_path: Path) -> None:
    """The text of a key is a guess; that as many records are found as there are rows is not."""
    loads.execute("CREATE TABLE t (a numeric, b text)")
    loads.execute("CREATE UNIQUE INDEX i ON t (a, lower(b) text_pattern_ops) INCLUDE (b) WHERE a > 0")
    records = ["100.0,Aa", "100,aA", '"1e2","aa"', "-5,a", "-5,a", "100,", "100,", "7,b"]
    outcome = loads.run(target(write(tmp_path / "f.csv", records)), rules=RULES)
    assert [row[0] for row in rejected(loads)] == [3, 4]
    assert outcome.rows == 6
    check_counts(loads)


def test_names_and_encodings_are_the_files_own(loads: Loads, tmp_path: Path) -> None:
    """Columns that need quotes, in another order, with a constant; a key of two columns; texts that are no ASCII."""
    loads.execute("""
        CREATE TABLE p ("A b" text, "c""d" int, PRIMARY KEY ("A b", "c""d"));
        INSERT INTO p VALUES ('für', 1);
        CREATE TABLE t (x text, "c""d" int, "A b" text, y int, FOREIGN KEY ("A b", "c""d") REFERENCES p)
    """)
    path = tmp_path / "f.csv"
    path.write_bytes("x;A b\none;für\ntwo;Öde\nthree;Öde\nfour;\n".encode("latin-1"))
    job = target(path, constants={'c"d': "1", "y": "2"}, encoding="LATIN1", delimiter=";")
    outcome = loads.run(job, rules=RULES)
    assert outcome.rows == 2
    raws = loads.execute("SELECT line, sqlstate, raw FROM penstock.rejects ORDER BY start")
    assert [tuple(row) for row in raws] == [(3, "23503", b"two;\xd6de\n"), (4, "23503", b"three;\xd6de\n")]
    check_counts(loads)


def test_what_a_record_excluded_goes_in_when_that_is_taken_out(loads: Loads, tmp_path: Path) -> None:
    """An exclusion constraint is never parked, and has kept records out for one whose key turns out to be taken."""
    loads.execute("CREATE TABLE t (a int PRIMARY KEY, b int4range, EXCLUDE USING gist (b WITH &&))")
    records = ['1,"[1,2)"', '1,"[10,20)"', '2,"[15,16)"', '3,"[1,5)"']
    outcome = loads.run(target(write(tmp_path / "f.csv", records)), sessions=1, rules=RULES)
    assert [each.name for each in outcome.rebuilt] == ["t_pkey"]
    assert (outcome.rows, outcome.rejected) == (2, 2)
    assert rejected(loads) == [(3, "23505", '1,"[10,20)"\n'), (5, "23P01", '3,"[1,5)"\n')]
    assert loads.execute("SELECT a FROM t ORDER BY a") == [(1,), (2,)]
    check_counts(loads)


def test_a_deferrable_key_is_told_all_the_same(loads: Loads, tmp_path: Path) -> None:
    """And records that the types refuse are rejected as they come, and left out later."""
    loads.execute("CREATE TABLE t (a int, b text, UNIQUE (a) DEFERRABLE INITIALLY DEFERRED)")
    records = ["100,x", "x,100", "101,y", "100,z", "100", "102,", "101,w"]
    outcome = loads.run(target(write(tmp_path / "f.csv", records)), rules=RULES)
    assert outcome.rows == 3
    assert [row[:2] for row in rejected(loads)] == [(3, "22P02"), (5, "23505"), (6, "22P04"), (8, "23505")]
    check_counts(loads)


def test_an_object_that_has_changed_changes_nothing(
    loads: Loads, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it was cannot be put aside any more; when it is back, the load goes on."""
    loads.execute("CREATE TABLE t (a int PRIMARY KEY, b text)")
    records = ["100,x", "100,y", "101,z"]
    path = write(tmp_path / "f.csv", records)
    settle = late_rejects.LateRejects.settle

    def change_before(*arguments: Any) -> bool:
        write(path, ["100,x", "100,Y", "101,z"])
        return settle(*arguments)

    monkeypatch.setattr(late_rejects.LateRejects, "settle", change_before)
    with pytest.raises(PenstockError, match="changed"):
        loads.run(target(path), rules=RULES)
    monkeypatch.undo()
    assert loads.count() == 3
    write(path, records)
    outcome = loads.run(target(path), rules=RULES)
    assert (outcome.rows, outcome.rows_before, outcome.rejected) == (0, 2, 1)
    check_counts(loads)


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("CREATE TRIGGER g AFTER INSERT ON t EXECUTE FUNCTION f()", "triggers would fire"),
        (
            "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD d int GENERATED ALWAYS AS (a % 1000) STORED UNIQUE",
            "do not fill all",
        ),
        ("ALTER TABLE t DROP CONSTRAINT t_pkey, ADD EXCLUDE USING btree (a WITH =)", "what excludes what"),
        ("CREATE TABLE c (a int REFERENCES t ON DELETE CASCADE)", "acts on deletes"),
        ("REVOKE DELETE ON t FROM CURRENT_USER; ALTER TABLE t OWNER TO o", "may not delete rows"),
    ],
)
def test_what_could_not_be_taken_out_again_is_kept_out(
    loads: Loads, tmp_path: Path, statement: str, reason: str
) -> None:
    """The key stays in place, as it did, and the plan says why."""
    role = f"o_{secrets.token_hex(4)}"
    loads.execute(f"CREATE ROLE {role}; GRANT ALL ON SCHEMA public TO {role}")
    loads.execute("CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$")
    loads.execute("CREATE TABLE t (a int PRIMARY KEY, b text)")
    is_of_role = "OWNER" in statement
    if is_of_role:
        loads.execute(f"ALTER TABLE t OWNER TO {role}; REVOKE DELETE ON t FROM {role}")
        share_ledger(loads, role)
    else:
        loads.execute(statement)
    path = write(tmp_path / "f.csv", ["100,x", "100,y", "101,z"])
    own = Loads(loads.conninfo, role=role, piece_bytes=50) if is_of_role else loads
    with own._loader() as loader:
        plan = loader.plan(LoadJob(targets=(target(path),), sessions=1, rules=RULES))
    parking = plan.targets[0].parking
    assert parking is not None
    assert any(reason in part.reason for part in parking.kept)
    outcome = own.run(target(path), rules=RULES, sessions=1)
    assert (outcome.rows, outcome.rejected) == (2, 1)
    loads.execute(f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}")


def test_rows_of_others_are_not_taken_out(loads: Loads, tmp_path: Path) -> None:
    """Somebody has written to the table meanwhile: the rebuild fails as it does without --on-error reject."""
    loads.execute("CREATE TABLE t (a int PRIMARY KEY, b text)")
    path = write(tmp_path / "f.csv", [f"{1000 + n},x" for n in range(50)])

    written: list[int] = []

    def write_too(number: int) -> None:
        # The file is read once more, when the table is locked.
        if number == 3 and not written:
            written.append(number)
            loads.execute("INSERT INTO t VALUES (1040, 'mine')")

    loads.at_piece = write_too
    with pytest.raises(DataError) as caught:
        loads.run(target(path), rules=RULES)
    assert "not those of this load's records" in (caught.value.detail or "")
    assert loads.execute("SELECT count(*) FROM t WHERE a = 1040") == [(2,)]
    assert rejected(loads) == []
    loads.execute("DELETE FROM t WHERE b = 'mine'")
    assert loads.run(target(path), rules=RULES).state == "complete"
    assert loads.execute("SELECT count(*) FROM t") == [(50,)]
    check_counts(loads)


def test_a_table_with_rows_keeps_its_key(loads: Loads, tmp_path: Path) -> None:
    """Whatever is said: none of the rows that stood there may be taken for one of the load's."""
    loads.execute("CREATE TABLE t (a int PRIMARY KEY, b text); INSERT INTO t VALUES (1, 'before')")
    outcome = loads.run(target(write(tmp_path / "f.csv", ["1,after", "2,x"])), rules=RULES)
    assert (outcome.rows, outcome.rejected, outcome.rebuilt) == (1, 1, ())
    assert loads.execute("SELECT b FROM t ORDER BY a") == [("before",), ("x",)]


def test_too_many_are_too_many(loads: Loads, tmp_path: Path) -> None:
    """They are out of the table, which has its key; with more allowed the load is complete."""
    loads.execute("CREATE TABLE t (a int PRIMARY KEY, b text)")
    path = write(tmp_path / "f.csv", ["1,x", "1,y", "1,z", "2,x"])
    with pytest.raises(DataError, match="more than 1 record was rejected"):
        loads.run(target(path), rules=replace(RULES, max_rejects=1))
    assert loads.execute("SELECT a, b FROM t ORDER BY a") == [(1, "x"), (2, "x")]
    check_counts(loads)
    outcome = loads.run(target(path), rules=replace(RULES, max_rejects=2))
    assert (outcome.rejected, len(rejected(loads))) == (2, 2)


def test_records_are_tried_again_beside_a_table_that_is_merged(
    loads: Loads, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of one come with the end, and the other's index behind it: what stood before its parent goes in."""
    chop_commands(monkeypatch, 1)
    loads.execute("CREATE TABLE tree (id int PRIMARY KEY, up int REFERENCES tree); CREATE INDEX tree_up ON tree (up)")
    loads.execute("CREATE TABLE merged (a int PRIMARY KEY, b text)")
    one, two = tmp_path / "tree.csv", tmp_path / "merged.csv"
    one.write_text("id,up\n" + "".join(f"{n},{min(n + 1, 20)}\n" for n in range(1, 21)))
    two.write_text("a,b\n1,x\n")
    jobs = (target(one, into="tree"), mode_target(two, "upsert", into="merged", key=("a",)))
    outcome = loads.run(*jobs, rules=RULES, sessions=1)
    assert [each.name for each in outcome.rebuilt] == ["tree_up"]
    assert (outcome.rows, outcome.rejected) == (21, 0)
