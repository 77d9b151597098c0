"""Whatever a table may be or do, a load stores what COPY would store there, or says why it cannot."""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from psycopg.conninfo import make_conninfo

from penstock.core.errors import TargetError
from penstock.core.values.job import LoadRules
from penstock.loading.steps import sequences
from support.files import write_to
from support.loads import Loads, share_ledger, target
from support.modes import Killed, mode_target

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.core.values.job import Mode


@pytest.fixture
def loads(database18: str) -> Loads:
    """Provide loads in tiny blocks into an empty database on the newest version."""
    return Loads(database18, piece_bytes=1009)


@pytest.fixture
def every(database: str) -> Loads:
    """Provide loads in tiny blocks into an empty database on each version in turn."""
    return Loads(database, piece_bytes=1009)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Provide a csv file with header a,b and the numbers 0 to 999 with their texts."""
    return write_to(tmp_path / "file", "a,b\n" + "".join(f"{n},value {n}\n" for n in range(1000)))


@pytest.fixture
def role(database18: str) -> Iterator[str]:
    """Provide an ordinary role that may log in."""
    admin = Loads(database18)
    name = f"ordinary_{secrets.token_hex(4)}"
    admin.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'hunter2'")
    share_ledger(admin, name)
    yield name
    admin.execute(f"DROP OWNED BY {name} CASCADE")
    admin.execute(f"DROP ROLE {name}")


def as_user(loads: Loads, user: str, **settings: str) -> Loads:
    """Return loads of another user into the same database."""
    options = " ".join(f"-c {name}={value}" for name, value in settings.items())
    return Loads(make_conninfo(loads.conninfo, user=user, password="hunter2", options=options), piece_bytes=1009)


# ---------------------------------------------------------------- triggers

_SKIP_ODD = """
CREATE FUNCTION skip_odd() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN IF NEW.a % 2 = 1 THEN RETURN NULL; END IF; RETURN NEW; END $$
"""


def test_rows_that_a_trigger_keeps_out_are_counted(every: Loads, path: Path) -> None:
    """They are neither loaded nor a disagreement about where records end."""
    every.chop(3000)
    every.execute("CREATE TABLE t (a int, b text)")
    every.execute(_SKIP_ODD)
    every.execute("CREATE TRIGGER skip BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION skip_odd()")
    outcome = every.run(target(path), sessions=2)
    assert (outcome.rows, outcome.suppressed, outcome.files[0].rows) == (500, 500, 500)
    assert every.count() == 500


def test_trigger_of_a_partition_is_counted(every: Loads, path: Path) -> None:
    """The table itself has none."""
    every.execute("CREATE TABLE t (a int, b text) PARTITION BY RANGE (a)")
    every.execute("CREATE TABLE low PARTITION OF t FOR VALUES FROM (0) TO (500)")
    every.execute("CREATE TABLE high PARTITION OF t FOR VALUES FROM (500) TO (1000)")
    every.execute(_SKIP_ODD)
    every.execute("CREATE TRIGGER skip BEFORE INSERT ON low FOR EACH ROW EXECUTE FUNCTION skip_odd()")
    outcome = every.run(target(path), sessions=2)
    assert (outcome.rows, outcome.suppressed) == (750, 250)


def test_view_with_an_instead_of_trigger_takes_rows(loads: Loads, path: Path) -> None:
    """COPY hands each row to it; one that returns null has done with the row as it liked."""
    loads.execute("CREATE TABLE base (a int, b text)")
    loads.execute("CREATE VIEW t AS SELECT * FROM base")
    loads.execute(
        "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN INSERT INTO base VALUES (NEW.a, NEW.b); RETURN NEW; END $$"
    )
    loads.execute("CREATE TRIGGER keep INSTEAD OF INSERT ON t FOR EACH ROW EXECUTE FUNCTION keep()")
    outcome = loads.run(target(path), sessions=2)
    assert (outcome.rows + outcome.suppressed, loads.count("base")) == (1000, 1000)


def test_plain_view_is_refused(loads: Loads, path: Path) -> None:
    """Even one that INSERT could update through."""
    loads.execute("CREATE TABLE base (a int, b text)")
    loads.execute("CREATE VIEW t AS SELECT * FROM base")
    assert isinstance(loads.refuse(target(path)), TargetError)


# ---------------------------------------------------------------- columns


def test_generated_column_is_computed(every: Loads, path: Path) -> None:
    """A file with a header has no field for it, and neither has one without."""
    every.execute("CREATE TABLE t (a int, twice int GENERATED ALWAYS AS (a * 2) STORED, b text)")
    every.run(target(path, format="csv"))
    headless = path.with_name("headless")
    headless.write_text("5000,x\n")
    every.run(target(headless, format="csv", has_header=False))
    assert every.execute("SELECT * FROM t WHERE a >= 999 ORDER BY a") == [(999, 1998, "value 999"), (5000, 10000, "x")]


def test_virtual_column_is_left_out(loads: Loads, path: Path) -> None:
    """From PostgreSQL 18 on, where the server computes it on reading."""
    loads.execute("CREATE TABLE t (a int, twice int GENERATED ALWAYS AS (a * 2) VIRTUAL, b text)")
    loads.run(target(path))
    assert loads.execute("SELECT sum(twice) FROM t") == [(999_000,)]


def test_generated_column_in_the_file_is_refused(loads: Loads, path: Path) -> None:
    """With the way out: --skip."""
    loads.execute("CREATE TABLE t (a int, b text GENERATED ALWAYS AS ('x') STORED)")
    error = loads.refuse(target(path))
    assert "generated" in error.message
    loads.run(target(path, skip=["b"]))
    assert loads.count() == 1000


@pytest.mark.parametrize(
    "column", ["int GENERATED ALWAYS AS IDENTITY", "int GENERATED BY DEFAULT AS IDENTITY", "serial"]
)
def test_sequence_is_advanced_past_what_was_loaded(every: Loads, path: Path, column: str) -> None:
    """The next row that the application inserts gets a value of its own."""
    every.execute(f"CREATE TABLE t (a {column} PRIMARY KEY, b text)")
    every.run(target(path))
    assert every.execute("INSERT INTO t (b) VALUES ('next') RETURNING a") == [(1000,)]


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_sequence_is_advanced_by_the_next_run_after_a_kill(
    loads: Loads, path: Path, monkeypatch: pytest.MonkeyPatch, mode: Mode
) -> None:
    """Wherever behind its last row the load died: the command that is run again comes by the sequence."""
    loads.execute("CREATE TABLE t (a serial PRIMARY KEY, b text)")
    job = replace(target(path), mode=mode, key=("a",) if mode == "upsert" else ())

    def die(*_args: object) -> list[str]:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(sequences, "advance_sequences", die)
        with pytest.raises(Killed):
            loads.run(job)
    assert loads.count() == 1000
    loads.run(job)
    assert loads.count() == 1000
    assert loads.execute("INSERT INTO t (b) VALUES ('next') RETURNING a") == [(1000,)]


def test_columns_that_the_file_lacks_take_their_defaults(every: Loads, path: Path) -> None:
    """As in COPY with a column list."""
    every.execute("CREATE TABLE t (id bigint GENERATED ALWAYS AS IDENTITY, b text, c text DEFAULT 'none', a int)")
    every.run(target(path), sessions=2)
    assert every.execute("SELECT count(DISTINCT id), min(c), sum(a) FROM t") == [(1000, "none", 499_500)]


def test_objects_may_order_their_columns_differently(loads: Loads, path: Path) -> None:
    """Each one's own header decides."""
    other = path.with_name("other")
    other.write_text("b,a\n" + "".join(f"value {n},{n}\n" for n in range(1000, 1500)))
    loads.execute("CREATE TABLE t (a int, b text)")
    loads.run(target([path, other], format="csv", has_header=True), sessions=3)
    assert loads.execute("SELECT count(*) FROM t WHERE b = 'value ' || a") == [(1500,)]


def test_names_that_need_quotes_are_kept(loads: Loads, path: Path) -> None:
    """In table, schema and columns; a header in other case finds its column."""
    path.write_text('"Order ""No""",SELECT\n1,x\n')
    loads.execute('CREATE SCHEMA "My Schema"; CREATE TABLE "My Schema"."T 1" ("Order ""No""" int, "select" text)')
    loads.run(target(path, into='"My Schema"."T 1"', format="csv", has_header=True))
    assert loads.rows('"My Schema"."T 1"') == [(1, "x")]


def test_names_without_quotes_are_those_of_sql(loads: Loads, path: Path) -> None:
    """Of a letter that is not ASCII's SQL keeps the case."""
    loads.execute("CREATE TABLE ÜBUNG (ÄNDERUNG int, b text)")
    path.write_text("ÄNDERUNG,b\n1,x\n")
    loads.run(target(path, into="ÜBUNG"))
    loads.run(target(path, into="MESSE_É", create=True))
    assert loads.execute("SELECT ÄNDERUNG, b FROM ÜBUNG") == [(1, "x")]
    assert loads.execute("SELECT ÄNDERUNG, B FROM MESSE_É") == [("1", "x")]


def test_filename_constant_is_each_objects_own(loads: Loads, path: Path) -> None:
    """Also when sessions mix the blocks of both."""
    other = path.with_name("other")
    other.write_text(path.read_text())
    loads.execute("CREATE TABLE t (a int, b text, origin text)")
    loads.run(target([path, other], constants={"origin": "{filename}"}), sessions=3)
    assert loads.execute("SELECT origin, count(*) FROM t GROUP BY 1 ORDER BY 1") == [("file", 1000), ("other", 1000)]


# ---------------------------------------------------------------- kinds of tables


def test_partitioned_table_routes_its_rows(every: Loads, path: Path) -> None:
    """From every session."""
    every.execute("CREATE TABLE t (a int, b text) PARTITION BY HASH (a)")
    for number in range(3):
        every.execute(f"CREATE TABLE t{number} PARTITION OF t FOR VALUES WITH (MODULUS 3, REMAINDER {number})")
    every.run(target(path), sessions=3)
    assert sum(every.count(f"t{number}") for number in range(3)) == 1000


def test_row_without_a_partition_is_refused(loads: Loads, path: Path) -> None:
    """With its line."""
    loads.execute("CREATE TABLE t (a int, b text) PARTITION BY RANGE (a)")
    loads.execute("CREATE TABLE low PARTITION OF t FOR VALUES FROM (0) TO (700)")
    error = loads.refuse(target(path), sessions=1)
    assert "no partition of relation" in error.message
    assert "file line 702" in str(error.detail)


def test_foreign_table_is_refused(loads: Loads, path: Path) -> None:
    """As a target and as a partition of one."""
    loads.execute("CREATE FOREIGN DATA WRAPPER w; CREATE SERVER s FOREIGN DATA WRAPPER w")
    loads.execute("CREATE FOREIGN TABLE far (a int, b text) SERVER s")
    with pytest.raises(TargetError, match="foreign table"):
        loads.run(target(path, into="far"))
    loads.execute("CREATE TABLE t (a int, b text) PARTITION BY RANGE (a)")
    loads.execute("CREATE FOREIGN TABLE part PARTITION OF t FOR VALUES FROM (0) TO (9) SERVER s")
    with pytest.raises(TargetError, match="foreign tables"):
        loads.run(target(path))


def test_missing_table_is_refused(loads: Loads, path: Path) -> None:
    """The hint names --create, which makes it, with text columns."""
    assert "--create" in str(loads.refuse(target(path)).hint)
    loads.run(target(path, create=True))
    assert loads.execute("SELECT b FROM t WHERE a = '17'") == [("value 17",)]


# ---------------------------------------------------------------- rights and settings


def test_ordinary_user_loads_with_insert_alone(loads: Loads, path: Path, role: str) -> None:
    """No superuser, no membership in a special role, not even SELECT."""
    loads.execute("CREATE TABLE t (a int, b text)")
    loads.execute(f"GRANT INSERT ON t TO {role}")
    as_user(loads, role).run(target(path), sessions=2)
    assert loads.count() == 1000


def test_missing_right_is_told_with_the_grant_that_gives_it(loads: Loads, path: Path, role: str) -> None:
    """Before anything is sent."""
    loads.execute("CREATE TABLE t (a int, b text)")
    with pytest.raises(TargetError, match="permission denied") as caught:
        as_user(loads, role).run(target(path))
    assert "GRANT" in str(caught.value.hint)


@pytest.mark.part("rest")
@pytest.mark.parametrize("column", ["id serial", "id int DEFAULT nextval('s') + 1"])
@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_missing_right_on_a_sequence_is_told_with_the_grant_that_gives_it(
    loads: Loads, path: Path, role: str, column: str, mode: Mode
) -> None:
    """Before a row is sent; if the file fills the column, the sequence is not used."""
    loads.execute(f"CREATE SEQUENCE s; CREATE TABLE t (a int PRIMARY KEY, b text, {column})")
    loads.execute(f"GRANT INSERT, SELECT, UPDATE ON t TO {role}; GRANT CREATE ON SCHEMA penstock TO {role}")
    job = mode_target(path, mode, key=("a",) if mode == "upsert" else ())
    with pytest.raises(TargetError, match="permission denied for sequence") as caught:
        as_user(loads, role).run(job)
    assert caught.value.sqlstate == "42501"
    assert loads.count() == 0
    filled = path.parent / "filled.csv"
    filled.write_text("a,b,id\n9999,x,7\n")
    assert as_user(loads, role).run(replace(job, sources=(str(filled),))).rows == 1
    loads.execute(str(caught.value.hint))
    assert as_user(loads, role).run(job).rows == 1000


def test_missing_right_on_a_sequence_of_a_function_is_not_taken_for_one_on_the_table(
    loads: Loads, path: Path, role: str
) -> None:
    """The catalogue does not know that the default uses it, so the server's error comes with the first rows."""
    loads.execute("CREATE SEQUENCE s; CREATE TABLE t (a int, b text, id int DEFAULT nextval(text 's'))")
    loads.execute(f"GRANT INSERT ON t TO {role}")
    with pytest.raises(TargetError, match="permission denied for sequence") as caught:
        as_user(loads, role).run(target(path))
    assert "INSERT" not in (caught.value.hint or "")


def test_created_table_belongs_to_the_role(loads: Loads, path: Path, role: str) -> None:
    """--role: what the load makes is that role's, not the user's who connects."""
    loads.execute(f"GRANT CREATE ON SCHEMA public TO {role}")
    Loads(loads.conninfo, role=role).run(target(path, create=True))
    assert loads.execute("SELECT tableowner FROM pg_tables WHERE tablename = 't'") == [(role,)]


@pytest.mark.part("rest")
def test_row_level_security_needs_the_right_to_stage(loads: Loads, path: Path, role: str) -> None:
    """COPY cannot check policies, so records are staged in the ledger's schema.

    Without CREATE there, an error is reported.
    """
    loads.execute("CREATE TABLE t (a int, b text); ALTER TABLE t ENABLE ROW LEVEL SECURITY")
    loads.execute("CREATE POLICY small ON t USING (a < 10000)")
    loads.execute(f"GRANT INSERT, SELECT ON t TO {role}")
    with pytest.raises(TargetError, match="permission denied for schema penstock") as caught:
        as_user(loads, role).run(target(path))
    assert "grant CREATE on schema penstock" in str(caught.value.hint)
    loads.execute(f"GRANT CREATE ON SCHEMA penstock TO {role}")
    assert as_user(loads, role).run(target(path)).rows == loads.count() == 1000


@pytest.mark.parametrize("mode", ["append", "truncate"])
def test_read_only_default_refuses_a_load(loads: Loads, path: Path, role: str, mode: str) -> None:
    """As psql's COPY is refused; nothing is retried, and nothing recorded."""
    loads.execute("CREATE TABLE t (a int, b text); INSERT INTO t VALUES (1, 'kept')")
    loads.execute(f"GRANT ALL ON t TO {role}; ALTER ROLE {role} SET default_transaction_read_only = on")
    job = replace(target(path), mode=mode)  # type: ignore[arg-type]
    with pytest.raises(TargetError, match="cannot load in read-only transactions") as caught:
        as_user(loads, role).run(job, rules=LoadRules())
    assert "--read-write" in str(caught.value.hint)
    assert loads.count() == 1
    assert not loads.execute("SELECT FROM penstock.loads")
    with pytest.raises(TargetError, match="cannot check"):
        as_user(loads, role).check(job)


@pytest.mark.parametrize(("name", "value"), [("row_security", "off"), ("quote_all_identifiers", "on")])
def test_role_that_reads_policies_otherwise_can_use_the_ledger(
    loads: Loads, path: Path, role: str, name: str, value: str
) -> None:
    """The ledger's tables have policies, which are read and distinguished from planted ones."""
    loads.execute("CREATE TABLE t (a int, b text)")
    loads.execute(f"GRANT INSERT, SELECT ON t TO {role}; ALTER ROLE {role} SET {name} = {value}")
    assert as_user(loads, role).run(target(path)).rows == 1000
    assert as_user(loads, role).run(target(path)).objects_skipped == 1


@pytest.mark.part("rest")
def test_timeouts_of_the_role_do_not_end_a_load(loads: Loads, path: Path, role: str) -> None:
    """Each row takes a while, the statement longer than any of the role's timeouts."""
    loads.execute("CREATE TABLE t (a int, b text)")
    loads.execute(
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN PERFORM pg_sleep(0.001); RETURN NEW; END $$"
    )
    loads.execute("CREATE TRIGGER slow BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION slow()")
    loads.execute(f"GRANT INSERT ON t TO {role}")
    for name in ("statement_timeout", "transaction_timeout", "idle_in_transaction_session_timeout"):
        loads.execute(f"ALTER ROLE {role} SET {name} = '100ms'")
    as_user(loads, role).run(target(path), sessions=1)
    assert loads.count() == 1000


@pytest.mark.parametrize(("style", "month"), [("DMY", 2), ("MDY", 1)])
def test_date_style_of_the_role_decides(loads: Loads, path: Path, role: str, style: str, month: int) -> None:
    """As it would in the user's own COPY, on every session."""
    loads.execute("CREATE TABLE t (d date)")
    loads.execute(f"GRANT INSERT ON t TO {role}; ALTER ROLE {role} SET DateStyle = 'SQL, {style}'")
    path.write_text("d\n" + "01/02/2024\n" * 500)
    as_user(loads, role).run(target(path, format="csv", has_header=True), sessions=3)
    assert loads.execute("SELECT extract(month FROM d)::int, count(*) FROM t GROUP BY 1") == [(month, 500)]


@pytest.mark.parametrize("on_error", ["stop", "reject"])
@pytest.mark.parametrize("mode", ["append", "replace", "upsert"])
def test_interval_style_of_the_role_decides(loads: Loads, path: Path, role: str, mode: Mode, on_error: str) -> None:
    """Records are read with it in every mode; what penstock itself reads and writes does not depend on it."""
    loads.execute(f"CREATE TABLE t (a int PRIMARY KEY, i interval); ALTER TABLE t OWNER TO {role}")
    loads.execute(
        f"GRANT CREATE ON SCHEMA public, penstock TO {role}; ALTER ROLE {role} SET IntervalStyle = 'sql_standard'"
    )
    loads.execute("CREATE INDEX before ON t (a) WHERE i > interval '-1 days -2:03:04'")
    (before,) = loads.execute("SELECT pg_get_indexdef('before'::regclass)")
    path.write_text("a,i\n1,-1 2:03:04\n")
    key = ("a",) if mode == "upsert" else ()
    rules = LoadRules(retry_for=0.0, on_error=on_error, indexes="rebuild" if mode == "append" else "keep")
    wanted = mode_target(path, mode, key=key)
    as_user(loads, role).run(wanted, rules=rules)
    assert loads.execute("SELECT i = interval '-1 days -2:03:04' FROM t") == [(True,)]
    assert loads.execute("SELECT pg_get_indexdef('before'::regclass)") == [before]


def test_search_path_of_the_role_decides(loads: Loads, path: Path, role: str) -> None:
    """A table without a schema is the one that the user's SQL would mean."""
    loads.execute("CREATE TABLE t (a int, b text); CREATE SCHEMA mine; CREATE TABLE mine.t (a int, b text)")
    loads.execute(f"GRANT USAGE ON SCHEMA mine TO {role}; GRANT INSERT ON mine.t, t TO {role}")
    loads.execute(f"ALTER ROLE {role} SET search_path = mine, public")
    as_user(loads, role).run(target(path))
    assert (loads.count("t"), loads.count("mine.t")) == (0, 1000)


# ---------------------------------------------------------------- sizes


@pytest.mark.parametrize("data", ["", "a,b\n"], ids=["empty", "header"])
def test_file_without_records_loads_nothing(loads: Loads, path: Path, data: str) -> None:
    """It is no error: an export of nothing."""
    loads.execute("CREATE TABLE t (a int, b text)")
    path.write_text(data)
    assert loads.run(target(path, format="csv")).rows == 0


def test_last_record_may_lack_its_line_end(loads: Loads, path: Path) -> None:
    """In several files, whose records must not run together."""
    paths = [path.with_name(name) for name in "xyz"]
    for number, one in enumerate(paths):
        one.write_text(f"{number},{one.name}")
    loads.execute("CREATE TABLE t (a int, b text)")
    loads.run(target(paths, format="csv", has_header=False), sessions=1)
    assert loads.rows() == [(0, "x"), (1, "y"), (2, "z")]


@pytest.mark.part("rest")
def test_record_of_many_megabytes_is_loaded(loads: Loads, path: Path) -> None:
    """Far longer than a block, with line ends in quotes; the records around it too."""
    long = "long line\n" * 4_000_000
    path.write_text(f'1,x\n2,"{long}"\n3,y\n')
    loads.execute("CREATE TABLE t (a int, b text)")
    Loads(loads.conninfo).run(target(path, format="csv", has_header=False))
    assert loads.execute("SELECT a, length(b) FROM t ORDER BY a") == [(1, 1), (2, 40_000_000), (3, 1)]
