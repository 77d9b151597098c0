"""A database with several ledgers: what one of them knows is not loaded through another one by mistake."""

from __future__ import annotations

import secrets
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from psycopg.conninfo import make_conninfo

import penstock
from penstock.core.errors import TargetError
from penstock.core.values.job import LoadRules
from support.files import write_to
from support.loads import IMPATIENT, Loads, target

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.core.values.job import Mode, TargetJob


@pytest.fixture
def loads(database18: str) -> Loads:
    """Provide loads into a table, recorded in schema penstock."""
    return Loads(database18, setup="CREATE TABLE t (a int PRIMARY KEY, b text)")


@pytest.fixture
def other(loads: Loads) -> Loads:
    """Provide loads into the same database, recorded in another schema."""
    return Loads(loads.conninfo, ledger_schema="own")


@pytest.fixture
def path() -> Iterator[Path]:
    """Provide a file that every user may read."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        path = write_to(Path(folder) / "f.csv", "a,b\n1,x\n2,y\n")
        path.chmod(0o644)
        yield path


def refuse(other: Loads, job: TargetJob, **rules: Any) -> TargetError:
    """Check that a load is refused before anything is created; return the error."""
    with pytest.raises(TargetError) as caught:
        other.run(job, rules=replace(IMPATIENT, **rules))
    assert not other.has_table("own.loads")
    return caught.value


# What makes the ledger one that a later, an earlier or no version has written.
_VERSIONS = {
    "this": "SELECT",
    "older": "COMMENT ON TABLE penstock.loads IS 'penstock ledger, version 5';"
    "ALTER TABLE penstock.objects DROP origin, DROP ctime_ns; DROP TABLE penstock.claims, penstock.members",
    "newer": "COMMENT ON TABLE penstock.loads IS 'penstock ledger, version 999, and more';"
    "ALTER TABLE penstock.objects ADD more text",
    "newer, with other columns": "COMMENT ON TABLE penstock.loads IS 'penstock ledger, version 999';"
    "ALTER TABLE penstock.objects RENAME uri TO source",
    "newer, with other tables": "COMMENT ON TABLE penstock.loads IS 'penstock ledger, version 999';"
    "ALTER TABLE penstock.objects RENAME TO files",
    "without comments": "COMMENT ON TABLE penstock.loads IS NULL",
}


@pytest.mark.parametrize("mode", ["append", "replace", "truncate", "upsert"])
@pytest.mark.parametrize("version", _VERSIONS)
def test_table_that_another_ledger_knows_is_refused(
    loads: Loads, other: Loads, path: Path, version: str, mode: Mode
) -> None:
    """Whichever version that ledger has; a changed file, too, and nothing is created."""
    loads.run(target(path))
    loads.execute(_VERSIONS[version])
    job = replace(target(path), mode=mode, key=("a",) if mode == "upsert" else ())
    error = refuse(other, job)
    assert '"penstock"' in error.message
    assert "--again" in str(error.hint)
    named = "--ledger-schema penstock" if version in ("this", "without comments") else f"{version[:5]} penstock"
    assert named in str(error.hint)
    for look in (other.plan, other.check):
        with pytest.raises(TargetError, match="another ledger"):
            look(job)
    assert loads.count() == 2


@pytest.mark.parametrize("rules", [{"again": True}, {"emptied": "load"}])
def test_load_that_is_meant_to_repeat_is_carried_out(
    loads: Loads, other: Loads, path: Path, rules: dict[str, Any]
) -> None:
    """By option. From then on both ledgers know the table, and each what it has loaded."""
    loads.run(target(path))
    loads.execute("TRUNCATE t")
    assert other.run(target(path), rules=LoadRules(retry_for=0.0, **rules)).rows == 2
    assert [each.run(target(path)).objects_skipped for each in (loads, other)] == [1, 1]


def test_object_that_only_another_ledger_knows_is_refused(loads: Loads, other: Loads, path: Path) -> None:
    """Both know the table, and the file is in a folder with new ones."""
    new = write_to(path.with_name("g.csv"), "a,b\n3,z\n")
    loads.run(target(path))
    other.run(target(new), rules=LoadRules(retry_for=0.0, again=True))
    assert other.run(target(new)).objects_skipped == 1
    with pytest.raises(TargetError, match="another ledger") as caught:
        other.run(target(path.parent))
    assert str(path) in str(caught.value.detail)
    newest = write_to(path.with_name("h.csv"), "a,b\n4,z\n")
    assert loads.run(target(newest)).rows == 1
    assert loads.count() == 4


@pytest.mark.parametrize("way", ["renamed", "restored"])
def test_table_is_known_by_its_oid_or_its_name(loads: Loads, other: Loads, path: Path, way: str) -> None:
    """A renamed table has its oid, a restored one its name."""
    loads.run(target(path))
    if way == "renamed":
        loads.execute("ALTER TABLE t RENAME TO u")
    else:
        loads.execute("UPDATE penstock.objects SET target_oid = 1, origin = 'elsewhere'")
    refuse(other, target(path, into="u" if way == "renamed" else "t"))


def test_other_tables_are_loaded_through_any_ledger(loads: Loads, other: Loads, path: Path) -> None:
    """One that exists, and one that is created."""
    loads.run(target(path))
    loads.execute("CREATE TABLE u (a int, b text); INSERT INTO u VALUES (1)")
    assert other.run(target(path, into="u"), target(path, into="v", create=True)).rows == 4


def test_unfinished_load_and_forgotten_option_are_refused(loads: Loads, other: Loads, path: Path) -> None:
    """What is recorded elsewhere is not seen by the default ledger either, before a row is committed or after."""
    other.run(target(path))
    other.execute("UPDATE own.loads SET state = 'running'; DELETE FROM own.ranges; TRUNCATE t")
    with pytest.raises(TargetError) as caught:
        loads.run(target(path))
    assert "--ledger-schema own" in str(caught.value.hint)


@pytest.fixture
def role(loads: Loads) -> Iterator[str]:
    """Provide an ordinary role that may load table t, with a schema for its ledger."""
    name = f"ann_{secrets.token_hex(4)}"
    loads.execute(f"CREATE ROLE {name} LOGIN; CREATE SCHEMA own AUTHORIZATION {name}; GRANT ALL ON t TO {name}")
    yield name
    loads.execute(f"DROP OWNED BY {name} CASCADE; DROP ROLE {name}")


def as_role(loads: Loads, role: str, ledger_schema: str = "own") -> Loads:
    """Return loads as a role that logs in."""
    return Loads(make_conninfo(loads.conninfo, user=role), ledger_schema=ledger_schema)


def test_ledger_that_the_role_cannot_read_may_know_its_table(loads: Loads, role: str, path: Path) -> None:
    """A superuser's: the table is refused unless it is empty, or its own ledger knows it, or it is meant."""
    loads.run(target(path))
    ann = as_role(loads, role)
    error = refuse(ann, target(path))
    assert "cannot be read" in error.message
    assert f"penstock init --grant {role}" in str(error.hint)
    loads.execute("TRUNCATE t")
    assert ann.run(target(path)).rows == 2
    new = write_to(path.with_name("g.csv"), "a,b\n3,z\n")
    assert ann.run(target(new)).rows == 1


def test_ledger_of_a_role_that_may_fill_some_columns_may_know_the_table(loads: Loads, role: str, path: Path) -> None:
    """Such a role can load, too."""
    bob = f"bob_{secrets.token_hex(4)}"
    loads.execute(f"CREATE ROLE {bob} LOGIN; CREATE SCHEMA bobs AUTHORIZATION {bob}; GRANT INSERT (a, b) ON t TO {bob}")
    try:
        assert as_role(loads, bob, "bobs").run(target(path)).rows == 2
        assert "cannot be read" in refuse(as_role(loads, role), target(path)).message
    finally:
        loads.execute(f"DROP OWNED BY {bob} CASCADE; DROP ROLE {bob}")


def test_ledger_of_a_role_that_cannot_write_the_table_does_not_matter(loads: Loads, role: str, path: Path) -> None:
    """Roles that do not share a table have ledgers of their own, as many as there are roles."""
    bob = f"bob_{secrets.token_hex(4)}"
    loads.execute(f"CREATE ROLE {bob} LOGIN; CREATE SCHEMA bobs AUTHORIZATION {bob}; INSERT INTO t VALUES (3)")
    try:
        loads.execute(f"SET ROLE {bob}; CREATE TABLE bobs.t (a int, b text)")
        as_role(loads, bob, "bobs").run(target(path, into="bobs.t"))
        assert as_role(loads, role).run(target(path)).rows == 2
        loads.execute(f"GRANT INSERT ON t TO {bob}; CREATE TABLE u (a int, b text); INSERT INTO u VALUES (3)")
        loads.execute(f"GRANT ALL ON u TO {bob}, {role}")
        with pytest.raises(TargetError, match="cannot be read"):
            as_role(loads, role).run(target(path, into="u"))
    finally:
        loads.execute(f"DROP OWNED BY {bob} CASCADE; DROP ROLE {bob}")


def test_code_of_a_ledgers_owner_does_not_run_in_a_superusers_session(loads: Loads, role: str, path: Path) -> None:
    """A policy on its tables is code; and what it hides may be there."""
    ann = as_role(loads, role)
    ann.run(target(path))
    loads.execute(
        f"SET ROLE {role}; CREATE SEQUENCE own.seen; CREATE FUNCTION own.spy(text) RETURNS boolean IMMUTABLE LANGUAGE"
        " plpgsql AS 'BEGIN PERFORM nextval(''own.seen''); RETURN true; END';"
        "CREATE POLICY spying ON own.objects AS RESTRICTIVE USING (own.spy(uri));"
        "CREATE INDEX ON own.objects (uri) WHERE own.spy('x'); SELECT setval('own.seen', 1, false)"
    )
    with pytest.raises(TargetError, match="cannot be read"):
        loads.run(target(path))
    assert loads.execute("SELECT is_called FROM own.seen") == [(False,)]
    rules = LoadRules(retry_for=0.0, again=True, on_error="reject")
    assert loads.run(target(path), rules=rules).rejected == 2


def test_doctor_and_the_functions_say_the_same(loads: Loads, path: Path) -> None:
    """With a file and without one; --again is meant here, too."""
    loads.run(target(path))
    options: dict[str, Any] = {"to": loads.conninfo, "ledger_schema": "own"}
    for source in ((), path):
        found = penstock.doctor("t", source, **options)
        assert [each.claim for each in found.findings if "another ledger" in each.claim]
        assert not found.would_load
        assert penstock.doctor("t", source, again=True, **options).would_load
    with pytest.raises(TargetError, match="another ledger"):
        penstock.load(path, "t", **options)
