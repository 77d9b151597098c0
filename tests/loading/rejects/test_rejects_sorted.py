r"""The server sorts out the records of a COPY command that it refuses: good ones are in, and the others rejected."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from penstock.core.errors import DataError, FileLocation, PenstockError, TargetError
from penstock.core.values.job import LoadRules
from penstock.loading.rejects.sorting import SortedRows, SortingStage
from support.codes import has_code
from support.files import write_to
from support.loads import AGAIN, Loads, share_ledger, target, write_csv
from support.modes import mode_target

if TYPE_CHECKING:
    from pathlib import Path

REJECT = LoadRules(retry_for=0.0, on_error="reject")


@pytest.fixture
def loads(database: str) -> Loads:
    """Provide loads into a database with table t (a int primary key, b text), on each version."""
    return Loads(database, setup="CREATE TABLE t (a int PRIMARY KEY, b varchar(20) NOT NULL CHECK (b <> 'wrong'))")


@pytest.fixture
def sorts(monkeypatch: pytest.MonkeyPatch) -> list[SortedRows]:
    """Provide a list of how each sorting has ended."""
    ended: list[SortedRows] = []
    sort = SortingStage.sort

    def note(self: SortingStage) -> SortedRows:
        found = sort(self)
        ended.append(found)
        return found

    monkeypatch.setattr(SortingStage, "sort", note)
    return ended


def read_rejects(loads: Loads) -> list[tuple[int, str, str | None, str, str | None]]:
    """Return line, SQLSTATE, column, message and detail of what is rejected, in the order of the file."""
    return loads.execute(  # type: ignore[return-value]
        'SELECT line, sqlstate, "column", message, detail FROM penstock.rejects ORDER BY object, start'
    )


# Every tenth record is one of these in turn.
BAD = ["{},wrong", "0,twice", "x{},y", "{},much too long a text for it", "99999999999{},y"]


def make_records(count: int = 1000) -> list[str]:
    """Return records of which every tenth is bad, each kind in turn."""
    return [BAD[n // 10 % len(BAD)].format(n) if n % 10 == 9 else f"{n},x" for n in range(count)]


def test_reasons_are_the_servers(loads: Loads, tmp_path: Path, sorts: list[SortedRows]) -> None:
    """Line, SQLSTATE, column, message and detail; of types too."""
    path = write_csv(tmp_path / "file.csv", make_records())
    outcome = loads.run(target(path, format="csv"), sessions=1, rules=REJECT)
    assert (outcome.rows, outcome.rejected, loads.count()) == (900, 100, 900)
    assert len(sorts) == 1
    found = read_rejects(loads)
    assert [line for line, *_ in found] == list(range(11, 1002, 10))
    reasons = {(code, column, message, detail) for _, code, column, message, detail in found}
    assert ("22001", "b", "value too long for type character varying(20)", None) in reasons
    assert ("22P02", "a", 'invalid input syntax for type integer: "x29"', None) in reasons
    assert ("22003", "a", 'value "99999999999949" is out of range for type integer', None) in reasons
    taken = 'duplicate key value violates unique constraint "t_pkey"'
    assert ("23505", None, taken, "Key (a)=(0) already exists.") in reasons
    checked = 'new row for relation "t" violates check constraint "t_b_check"'
    assert ("23514", None, checked, "Failing row contains (9, wrong).") in reasons


def test_rows_are_stored_in_the_order_of_the_file(loads: Loads, tmp_path: Path, sorts: list[SortedRows]) -> None:
    """As COPY would, so that what is ordered in the file stays so in the table."""
    path = write_csv(tmp_path / "file.csv", [f"{n},{'wrong' if n % 7 == 6 else 'x'}" for n in range(1000)])
    loads.run(target(path, format="csv"), sessions=1, rules=REJECT)
    assert sorts
    assert loads.execute("SELECT a FROM t ORDER BY ctid") == loads.execute("SELECT a FROM t ORDER BY a")


KEYS = {
    "pair": "a int, b text, c int, PRIMARY KEY (a, b)",
    "several": "a int UNIQUE, b text, c int UNIQUE",
    "collated": 'a int, b text COLLATE "C", c int, UNIQUE (a, b)',
    "partial": "a int, b text, c int",
    "deferrable": "a int UNIQUE DEFERRABLE, b text, c int",
    "partitioned": "a int PRIMARY KEY, b text, c int",
}


@pytest.mark.parametrize("kind", KEYS)
def test_the_first_record_with_a_key_is_stored(loads: Loads, tmp_path: Path, kind: str) -> None:
    """Whatever index has the key; but for one that is in the table, and nulls are no key."""
    loads.execute(f"CREATE TABLE k ({KEYS[kind]}){' PARTITION BY RANGE (a)' if kind == 'partitioned' else ''}")
    if kind == "partitioned":
        loads.execute("CREATE TABLE k1 PARTITION OF k FOR VALUES FROM (0) TO (700)")
        loads.execute("CREATE TABLE k2 PARTITION OF k FOR VALUES FROM (700) TO (100000)")
    if kind == "partial":
        loads.execute("CREATE UNIQUE INDEX ON k (a) WHERE b = 'y'")
    loads.execute("INSERT INTO k SELECT n, 'y', -n FROM generate_series(0, 1900, 100) AS n")
    keys = [n - n % 3 if n % 50 < 3 else n for n in range(2000)]
    path = write_csv(tmp_path / "file", [f"{key},y,{n}" for n, key in enumerate(keys)], header="a,b,c")
    outcome = loads.run(target(path, into="k", format="csv"), sessions=1, rules=REJECT)
    first: dict[int, int] = {key: -key for key in range(0, 2000, 100)}
    for n, key in enumerate(keys):
        first.setdefault(key, n)
    assert dict(loads.execute("SELECT a, c FROM k")) == first
    assert (outcome.rows, outcome.rejected) == (len(first) - 20, 2020 - len(first))
    # Each with the table's own words of which key it is.
    assert all(code == "23505" and "already exists" in str(detail) for _, code, _, _, detail in read_rejects(loads))


def test_key_of_a_refused_record_is_free(loads: Loads, tmp_path: Path) -> None:
    """The first record with it breaks a constraint: the second goes in."""
    path = write_csv(tmp_path / "file", [f"{n - n % 2},{'wrong' if n % 4 == 0 else 'y'}" for n in range(1000)])
    outcome = loads.run(target(path, format="csv"), sessions=1, rules=REJECT)
    assert (outcome.rows, outcome.rejected, loads.count()) == (500, 500, 500)


def test_session_sorts_in_each_of_its_transactions(loads: Loads, tmp_path: Path, sorts: list[SortedRows]) -> None:
    """What it makes for that is gone with them."""
    loads.chop(2000)
    loads.piece_bytes = 1000
    path = write_csv(tmp_path / "file.csv", make_records())
    loads.run(target(path, format="csv"), sessions=1, rules=REJECT, batch_bytes=2000)
    assert len(sorts) > 1
    assert loads.count() == 900
    assert loads.execute("SELECT relname FROM pg_class WHERE relname LIKE 'penstock\\_%'") == []


def test_columns_that_the_server_fills(loads: Loads, tmp_path: Path, sorts: list[SortedRows]) -> None:
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


def test_rows_kept_out_by_triggers_are_counted(loads: Loads, tmp_path: Path, sorts: list[SortedRows]) -> None:
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


def test_partitions_and_records_that_have_none(loads: Loads, tmp_path: Path, sorts: list[SortedRows]) -> None:
    """They are a record's own fault."""
    loads.execute(
        "CREATE TABLE p (a int, b text) PARTITION BY LIST (b); CREATE TABLE p1 PARTITION OF p FOR VALUES IN ('x')"
    )
    path = write_csv(tmp_path / "file.csv", [f"{n},{'y' if n % 10 == 9 else 'x'}" for n in range(500)])
    outcome = loads.run(target(path, into="p", format="csv"), sessions=1, rules=REJECT)
    assert (outcome.rows, outcome.rejected, len(sorts)) == (450, 50, 1)
    assert {code for _, code, *_ in read_rejects(loads)} == {"23514"}


@pytest.mark.parametrize("encoding", ["UTF8", "EUC_KR"])
def test_records_that_cannot_be_read_are_rejected(loads: Loads, tmp_path: Path, encoding: str) -> None:
    """By the count of fields or their bytes, beside others that are refused; each by its own line."""
    loads.chop(5000)
    loads.piece_bytes = 1500
    records = [f'{n},"two\nlines"'.encode() for n in range(1000)]
    records[500:504] = [b"5", b"5,6,7", b"500,", b"501,wrong"]
    bad = [20, *range(700, 720), 999]
    for n in bad:
        records[n] = f"{n},\xff\x00".encode("latin-1") if n % 2 else f"{n},\xe9 ".encode("latin-1")
    path = write_to(tmp_path / "file.csv", b"a,b\n" + b"\n".join(records))
    outcome = loads.run(target(path, format="csv", encoding=encoding, has_header=True), sessions=1, rules=REJECT)
    assert (outcome.rows, outcome.rejected, loads.count()) == (1000 - 26, 26, 1000 - 26)
    found = loads.execute("SELECT line, sqlstate, raw FROM penstock.rejects ORDER BY start")
    codes = dict(
        zip([*bad, 500, 501, 502, 503], ["22021"] * len(bad) + ["22P04", "22P04", "23502", "23514"], strict=True)
    )
    lines = [2 + b"\n".join(records[:n]).count(b"\n") + (n > 0) for n in range(1000)]
    assert found == [(lines[n], codes[n], records[n] + (b"\n" if n < 999 else b"")) for n in sorted(codes)]


def test_tables_that_are_sorted_by_turns(loads: Loads, tmp_path: Path) -> None:
    """One session's commands of one transaction are for either."""
    loads.chop(2000)
    loads.piece_bytes = 2000
    jobs = []
    for name in ("r", "s"):
        loads.execute(f"CREATE TABLE {name} (a int PRIMARY KEY, b text CHECK (b <> 'x'))")
        for number in range(3):
            records = [f"{n - n % 2},{'x' if n % 10 == 3 else 'y'}" for n in range(number * 500, number * 500 + 500)]
            path = write_csv(tmp_path / f"{name}{number}", records)
            jobs.append(target(path, into=name, format="csv"))
    outcome = loads.run(*jobs, sessions=1, rules=REJECT)
    assert (outcome.rows, outcome.rejected) == (1500, 1500)
    assert (loads.count("r"), loads.count("s")) == (750, 750)


# ---------------------------------------------------------------- rights


def test_insert_on_the_columns_is_enough(loads: Loads, tmp_path: Path, user_name: str, sorts: list[SortedRows]) -> None:
    """Nothing is read of the table."""
    share_ledger(loads, f'"{user_name}"')
    loads.execute(f'ALTER TABLE t ADD c text DEFAULT 1; GRANT INSERT (a, b) ON t TO "{user_name}"')
    path = write_csv(tmp_path / "file.csv", make_records())
    outcome = Loads(loads.conninfo, role=user_name).run(target(path, format="csv"), sessions=1, rules=REJECT)
    assert (outcome.rows, outcome.rejected, len(sorts)) == (900, 100, 1)


HINDRANCES = {
    "temporary tables": 'REVOKE TEMPORARY ON DATABASE "{database}" FROM PUBLIC',
    "plpgsql": "DROP EXTENSION plpgsql",
    "rules": "CREATE RULE away AS ON INSERT TO t DO INSTEAD NOTHING",
}


@pytest.mark.parametrize("kind", HINDRANCES)
@pytest.mark.parametrize("bad", ["x,type", "1,wrong"])
def test_what_stands_in_the_way_is_named_with_the_first_bad_record(
    loads: Loads, tmp_path: Path, user_name: str, kind: str, bad: str
) -> None:
    """The load ends, and nothing is loaded; without bad records it goes as ever."""
    share_ledger(loads, f'"{user_name}"')
    (database,) = loads.execute("SELECT current_database()")[0]
    loads.execute(f'GRANT INSERT ON t TO "{user_name}"; {HINDRANCES[kind].format(database=database)}')
    limited = Loads(loads.conninfo, role=user_name)
    with pytest.raises(DataError) as caught:
        limited.run(target(write_csv(tmp_path / "bad", ["1,x", bad]), format="csv"), sessions=1, rules=REJECT)
    assert ("rules on INSERT" if kind == "rules" else "language plpgsql") in str(caught.value.hint)
    assert loads.count() == 0
    assert limited.run(target(write_csv(tmp_path / "good", ["1,x"]), format="csv"), rules=REJECT).rows == 1


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_value_that_is_nested_too_deep_is_rejected(loads: Loads, tmp_path: Path, mode: str) -> None:
    """As any other value that its type refuses, with its column if COPY has read it."""
    loads.execute("CREATE TABLE deep (id int PRIMARY KEY, v jsonb)")
    deep = "[" * 100_000 + "]" * 100_000
    path = write_to(tmp_path / "f.csv", f"id,v\n1,[1]\n2,{deep}\n3,[3]\n")
    key = ("id",) if mode == "upsert" else ()
    outcome = loads.run(mode_target(path, mode, into="deep", key=key, format="csv"), rules=REJECT)
    assert (outcome.rows, outcome.rejected) == (2, 1)
    assert loads.execute('SELECT line, sqlstate, "column" FROM penstock.rejects') == [(3, "54001", "v")]
    with pytest.raises(DataError, check=has_code("54001")) as caught:
        loads.run(target(path, into="deep", format="csv"), rules=AGAIN)
    assert caught.value.location == FileLocation(file=str(path), line=3, column="v")


_RAISE = """
    CREATE TABLE raised (a int);
    CREATE FUNCTION raise() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF NEW.a = 2 THEN RAISE 'no' USING ERRCODE = '{code}'; END IF;
        RETURN NEW;
    END $$;
    CREATE TRIGGER raise {when} INSERT ON raised FOR EACH ROW EXECUTE FUNCTION raise();
"""


@pytest.mark.parametrize("when", ["BEFORE", "AFTER"])
@pytest.mark.parametrize("code", ["P0001", "45000", "U0001", "38000", "54000", "54001", "09000"])
def test_record_that_a_trigger_refuses_is_rejected(loads: Loads, tmp_path: Path, code: str, when: str) -> None:
    """Whatever SQLSTATE it has chosen, if that does not say that something else than the record is wrong."""
    loads.execute(_RAISE.format(code=code, when=when))
    path = write_to(tmp_path / "f.csv", "a\n1\n2\n3\n")
    outcome = loads.run(target(path, into="raised", format="csv", has_header=True), rules=REJECT)
    assert (outcome.rows, outcome.rejected) == (2, 1)
    assert loads.execute("SELECT line, sqlstate FROM penstock.rejects") == [(3, code)]


@pytest.mark.parametrize("code", ["42P01", "42501", "53100", "55000", "54011", "XX000", "2F005"])
@pytest.mark.parametrize("before", ["1", "x"])
def test_error_of_a_trigger_names_the_record(loads: Loads, tmp_path: Path, code: str, before: str) -> None:
    """Though it ends the load: while COPY runs, and while records behind a bad one are sorted out."""
    loads.execute(_RAISE.format(code=code, when="BEFORE"))
    path = write_to(tmp_path / "f.csv", f"a\n{before}\n2\n3\n")
    with pytest.raises(PenstockError, check=has_code(code)) as caught:
        loads.run(target(path, into="raised", format="csv", has_header=True), rules=REJECT)
    assert caught.value.location == FileLocation(file=str(path), line=3)
    assert loads.count("raised") == 0


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


def test_values_are_what_copy_makes_of_them(loads: Loads, tmp_path: Path, sorts: list[SortedRows]) -> None:
    """Of any type, empty and null too; and what COPY refuses is refused for the same reason."""
    names = [f"c{number}" for number in range(len(TYPES))]
    loads.execute("CREATE TYPE mood AS ENUM ('good', 'bad'); CREATE DOMAIN short AS varchar(3) CHECK (VALUE <> 'no')")
    loads.execute("CREATE TYPE pair AS (a int, b varchar(3))")
    columns = ", ".join(f"{name} {type_name}" for name, (type_name, _) in zip(names, TYPES.items(), strict=True))
    loads.execute(f"CREATE TABLE v (k int CHECK (k <> 0), {columns}); CREATE TABLE copied (LIKE v)")
    good = [value for value, _ in TYPES.values()]
    lines = [["0", *good]]
    for number, (_, refused) in enumerate(TYPES.values()):
        for value in (refused, "\\N", ""):
            fields = list(good)
            fields[number] = fields[number] if value is None else value
            lines.append(["1", *fields])
    path = write_to(tmp_path / "file.tsv", "".join("\t".join(fields) + "\n" for fields in lines))
    loads.run(target(path, into="v", format="text", columns=("k", *names), has_header=False), sessions=1, rules=REJECT)
    assert sorts
    expected = []
    with psycopg.connect(loads.conninfo, autocommit=True) as connection:
        for number, fields in enumerate(lines[1:], start=2):
            try:
                with connection.cursor().copy("COPY copied FROM STDIN") as copy:
                    copy.write("\t".join(fields) + "\n")
            except psycopg.Error as error:
                expected.append((number, error.sqlstate, f"c{(number - 2) // 3}", error.diag.message_primary))
    assert [row[:4] for row in read_rejects(loads)[1:]] == expected
    assert len(expected) > 20
    assert sorted(loads.execute("SELECT v::text FROM v")) == sorted(loads.execute("SELECT c::text FROM copied AS c"))


def test_column_is_the_one_that_the_message_speaks_of(loads: Loads, tmp_path: Path, sorts: list[SortedRows]) -> None:
    """Of several values that are wrong in the same way each server meets another one first."""
    loads.execute("CREATE TYPE mood AS ENUM ('good'); CREATE DOMAIN few AS int CHECK (VALUE < 9)")
    loads.execute("CREATE TABLE v (k int, m mood, n few)")
    records = [f"{n},{'bad' if n % 5 == 3 else 'good'},{'x' if n % 5 == 3 else 1}" for n in range(200)]
    path = write_csv(tmp_path / "file.csv", records, header="k,m,n")
    outcome = loads.run(target(path, into="v", format="csv"), sessions=1, rules=REJECT)
    assert (outcome.rows, outcome.rejected) == (160, 40)
    told = {'invalid input value for enum mood: "bad"': "m", 'invalid input syntax for type integer: "x"': "n"}
    assert [column for _, _, column, *_ in read_rejects(loads)] == [told[each[3]] for each in read_rejects(loads)]
