"""Records that an ordinary role has planted in the ledger: a superuser who carries them out runs nothing of theirs."""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from penstock.core.connect.connection import ConnectionFactory
from penstock.core.errors import PenstockError, TargetError
from penstock.core.values.job import LoadJob, LoadRules
from penstock.loading.loader import Loader
from penstock.restore.repair import Repairer
from support.files import write_to
from support.loads import ORIGIN, Loads, share_ledger, target

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Becomes the session's own role, perhaps a superuser, and records which one it is in a sequence, which is not rolled
# back.
_SPY = """
    CREATE SEQUENCE seen;
    CREATE FUNCTION spy() RETURNS int LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM set_config('role', 'none', true);
        IF (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN
            PERFORM nextval('public.seen');
        END IF;
        RETURN 1;
    END $$;
    CREATE TABLE up (a int PRIMARY KEY);
    CREATE TYPE word AS ENUM ('x');
    CREATE DOMAIN name_of_word AS word;
    CREATE FUNCTION to_int(word) RETURNS int LANGUAGE plpgsql AS 'BEGIN RETURN public.spy(); END';
    CREATE CAST (word AS int) WITH FUNCTION to_int(word) AS IMPLICIT;
    CREATE TABLE mine (a int, b name_of_word);
    INSERT INTO up VALUES (1);
    INSERT INTO mine VALUES (1, 'x');
"""
_KEY = "REFERENCES public.up(a)"
_MORE = "ADD COLUMN c int DEFAULT public.spy(), ADD CONSTRAINT d CHECK (true)"


@pytest.fixture
def loads(database18: str) -> Loads:
    """Provide a superuser's loads into a database with a table."""
    return Loads(database18, setup="CREATE TABLE t (a int PRIMARY KEY, b text)")


@pytest.fixture
def spy(loads: Loads) -> Iterator[str]:
    """Provide an ordinary role that may use the ledger, with tables and functions of its own."""
    name = f"user_{secrets.token_hex(4)}"
    loads.execute(f"CREATE ROLE {name} LOGIN; GRANT CREATE ON SCHEMA public TO {name}")
    share_ledger(loads, name)
    with psycopg.connect(loads.conninfo, user=name, autocommit=True) as connection:
        connection.execute(_SPY)
    yield name
    loads.execute(f"DROP OWNED BY {name} CASCADE; DROP ROLE {name}")


def plant(loads: Loads, role: str, kind: str, record: dict[str, Any], *, table: str = "mine") -> None:
    """Plant a record of a constraint of table mine, as one that a load of a table has dropped."""
    with psycopg.connect(loads.conninfo, user=role, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO penstock.changes"
            " (origin, target_oid, number, target_schema, target_table, kind, relation_oid, name, record, load)"
            f" VALUES ({ORIGIN}, %s::regclass, 1, 'public', 'mine',"
            " %s, 'mine'::regclass, 'planted', %s, gen_random_uuid())",
            [table, kind, json.dumps(record)],
        )


def foreign_key(loads: Loads, definition: str, columns: dict[str, str]) -> dict[str, Any]:
    """Return a foreign key's record."""
    mine, up = loads.execute("SELECT 'mine'::regclass::oid::int8, 'up'::regclass::oid::int8")[0]
    return {
        "relation": "public.mine",
        "references_oid": up,
        "references": "public.up",
        "references_index": "up_pkey",
        "definition": definition,
        "is_deferrable": False,
        "is_deferred": False,
        "is_validated": True,
        "is_enforced": True,
        "comment": None,
        "columns": {**{f"{mine}.{name}": type_name for name, type_name in columns.items()}, f"{up}.a": "integer"},
        "parent": None,
    }


def exclusion(definition: str) -> dict[str, Any]:
    """Return an exclusion constraint's record."""
    index = {
        "name": "planted",
        "is_unique": False,
        "body": "USING btree (a)",
        "constraint_name": "planted",
        "tablespace": "",
        "options": [],
        "is_clustered": False,
        "is_replica_identity": False,
        "statistics_targets": [None],
        "comment": None,
    }
    constraint = {
        "name": "planted",
        "kind": "x",
        "definition": definition,
        "is_deferrable": False,
        "is_deferred": False,
        "is_validated": True,
        "is_enforced": True,
        "is_temporal": False,
        "comment": None,
    }
    return {
        "index": index,
        "constraint": constraint,
        "columns": {"a": "integer"},
        "method": "btree",
        "width_bytes": 4,
        "parent": None,
    }


def has_run(loads: Loads) -> bool:
    """Return whether the role's function was run as a superuser."""
    return loads.execute("SELECT is_called FROM seen") == [(True,)]


@pytest.mark.parametrize(
    ("definition", "columns"),
    [
        (f"FOREIGN KEY (a) {_KEY}, {_MORE}", {"a": "integer"}),
        (f"FOREIGN KEY (b) {_KEY}", {"b": "name_of_word"}),
    ],
    ids=["action", "cast"],
)
def test_a_planted_foreign_key_runs_nothing(loads: Loads, spy: str, definition: str, columns: dict[str, str]) -> None:
    """Neither by a further action of ALTER TABLE nor by a cast of its columns."""
    plant(loads, spy, "constraint", foreign_key(loads, definition, columns))
    assert len(loads.repair().errors) == 1
    assert not has_run(loads)


def test_a_foreign_key_that_was_begun_runs_nothing(loads: Loads, spy: str) -> None:
    """It is there, and only to be validated."""
    key = f"FOREIGN KEY (b) {_KEY}"
    with psycopg.connect(loads.conninfo, user=spy, autocommit=True) as connection:
        connection.execute(f"ALTER TABLE mine ADD CONSTRAINT planted {key} NOT VALID".encode())
    plant(loads, spy, "constraint", foreign_key(loads, key, {"b": "name_of_word"}))
    assert len(loads.repair().errors) == 1
    assert not has_run(loads)


def test_a_planted_exclusion_constraint_runs_nothing(loads: Loads, spy: str) -> None:
    """It is what follows ADD CONSTRAINT too."""
    plant(loads, spy, "constraint", exclusion(f"EXCLUDE USING btree (a WITH =), {_MORE}"))
    assert len(loads.repair().errors) == 1
    assert not has_run(loads)


def test_a_load_runs_nothing_that_was_planted(loads: Loads, spy: str, tmp_path: Path) -> None:
    """A superuser's load puts back what other loads have left at its table."""
    plant(loads, spy, "constraint", foreign_key(loads, f"FOREIGN KEY (a) {_KEY}, {_MORE}", {"a": "integer"}), table="t")
    path = write_to(tmp_path / "file.csv", "a,b\n1,x\n")
    try:
        loads.run(target(path), rules=LoadRules(retry_for=0.0, indexes="rebuild"))
    except PenstockError as error:
        assert "was not written by penstock" in error.message
    assert not has_run(loads)


def test_a_key_that_a_roles_cast_compares_is_not_dropped(loads: Loads, spy: str, tmp_path: Path) -> None:
    """It could not be restored; the plan says why."""
    loads.execute(f"ALTER TABLE mine ADD FOREIGN KEY (b) {_KEY} NOT VALID; CREATE INDEX i ON mine (a)")
    path = write_to(tmp_path / "file.csv", "a,b\n1,x\n")
    with Loader(ConnectionFactory(loads.conninfo)) as loader:
        job = LoadJob(targets=(target(path, into="mine"),), rules=LoadRules(indexes="rebuild"))
        indexes = loader.plan(job).targets[0].indexes
    assert [part.name for part in indexes.dropped] == ["i"]
    assert [part.reason for part in indexes.kept] == [f'functions of "{spy}" compare its columns']


@pytest.mark.parametrize(
    ("kind", "record"),
    [
        ("reference", {}),
        ("reference", []),
        ("constraint", {"references_oid": "x"}),
        ("index", {"index": 5}),
        ("index", {"parent": 5}),
        ("trigger", {}),
        ("autovacuum", {"value": 5}),
    ],
    ids=str,
)
def test_a_record_of_nonsense_keeps_nothing_else_from_being_put_back(
    loads: Loads, spy: str, kind: str, record: dict[str, Any]
) -> None:
    """The record is reported, also by the plan."""
    plant(loads, spy, kind, record)
    with Repairer(ConnectionFactory(loads.conninfo)) as repairer:
        assert [step.action for step in repairer.plan()] in (["refuse"], ["forget"])
        assert [type(error) for error in repairer.run().errors] in ([TargetError], [])
