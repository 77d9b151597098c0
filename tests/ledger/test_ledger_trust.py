"""A ledger is used only where nobody else's code would run in it, and made only where that harms nobody."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import pytest
from psycopg.conninfo import make_conninfo

from penstock.api.ledger_view import LedgerView
from penstock.changes.records import TableStore
from penstock.changes.values import SERVER, Hold
from penstock.core.connect.connection import ConnectionFactory
from penstock.core.errors import TargetError
from penstock.ledger.ledger import Ledger
from support.codes import has_code
from support.files import write_to
from support.loads import Loads, share_ledger, target

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.versions

_SPY = "CREATE FUNCTION spy() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'"


@pytest.fixture
def loads(database: str) -> Loads:
    """Provide loads into an empty database on each version in turn."""
    return Loads(database)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Provide a csv file of two records."""
    return write_to(tmp_path / "file", "a,b\n1,x\n2,y\n")


@pytest.fixture
def role(database: str) -> Iterator[str]:
    """Provide an ordinary role that may log in."""
    admin = Loads(database)
    name = f"user_{secrets.token_hex(4)}"
    admin.execute(f"CREATE ROLE {name} LOGIN")
    yield name
    admin.execute(f"DROP OWNED BY {name} CASCADE")
    admin.execute(f"DROP ROLE {name}")


def ensure(conninfo: str, *, role: str | None = None, is_publishing_allowed: bool = False) -> None:
    """Make the ledger, or look at the one that is there."""
    with ConnectionFactory(conninfo, role=role).connect() as connection:
        Ledger().ensure(connection, is_publishing_allowed=is_publishing_allowed)


def test_ledger_is_made_once(loads: Loads) -> None:
    """The second look finds it as it is, with a primary key on every table."""
    ensure(loads.conninfo)
    ensure(loads.conninfo)
    without_key = loads.execute(
        "SELECT relname FROM pg_class AS c WHERE relnamespace = 'penstock'::regnamespace AND relkind = 'r'"
        " AND NOT EXISTS (SELECT FROM pg_index WHERE indrelid = c.oid AND indisprimary)"
    )
    assert without_key == []


def test_planted_trigger_is_refused(loads: Loads) -> None:
    """It would run with the rights of whoever loads."""
    ensure(loads.conninfo)
    loads.execute(_SPY)
    loads.execute("CREATE TRIGGER planted BEFORE INSERT ON penstock.ranges FOR EACH ROW EXECUTE FUNCTION spy()")
    with pytest.raises(TargetError, match="cannot trust the ledger") as caught:
        ensure(loads.conninfo)
    assert "planted" in str(caught.value.detail)


def test_rows_of_child_tables_are_not_the_ledgers(loads: Loads, path: Path) -> None:
    """Copies of all of its rows change nothing: what is loaded is skipped, what is removed is loaded again."""
    loads.execute("CREATE TABLE t (a int, b text)")
    ensure(loads.conninfo)
    for table in ("loads", "objects", "ranges", "targets", "rejects", "changes", "holds", "members", "claims"):
        loads.execute(f"CREATE TABLE {table}_child (LIKE penstock.{table}) INHERITS (penstock.{table})")
    loads.run(target(path))
    for table in ("loads", "objects", "ranges", "members"):
        loads.execute(f"INSERT INTO {table}_child SELECT * FROM ONLY penstock.{table}")
    hold = Hold(holder_id="00000000-0000-0000-0000-000000000001", target_oid=SERVER, lock="1")
    with ConnectionFactory(loads.conninfo).connect() as connection:
        TableStore(connection=connection).write(hold, [])
    loads.execute(
        "WITH hold AS (DELETE FROM ONLY penstock.holds RETURNING *) INSERT INTO holds_child SELECT * FROM hold"
    )
    with LedgerView(ConnectionFactory(loads.conninfo)) as view:
        (record,) = view.loads()
        assert (record.objects, record.complete_objects, record.rows) == (1, 1, 2)
        assert loads.run(target(path)).rows == 0
        loads.execute("TRUNCATE t")
        view.forget(record.load_id, keeps_rows=True)
        assert view.loads() == []
    assert loads.run(target(path)).rows == 2
    assert loads.count() == 2


@pytest.mark.parametrize("what", ["SCHEMA penstock", "TABLE penstock.objects"])
def test_ledger_of_somebody_else_is_refused(loads: Loads, role: str, what: str) -> None:
    """Whoever owns it can plant code at any time."""
    ensure(loads.conninfo)
    loads.execute(f"ALTER {what} OWNER TO {role}")
    with pytest.raises(TargetError, match="cannot trust the ledger") as caught:
        ensure(loads.conninfo)
    assert role in str(caught.value.detail)


def test_ledger_that_lacks_a_table_is_refused(loads: Loads) -> None:
    """By the table's name, before anything is looked up in it."""
    ensure(loads.conninfo)
    loads.execute("DROP TABLE penstock.targets")
    with pytest.raises(TargetError, match='lacks table "targets"') as caught:
        ensure(loads.conninfo)
    assert "--ledger-schema" not in str(caught.value.hint)


def test_schema_with_other_tables_of_that_name_is_refused(loads: Loads) -> None:
    """Somebody's table "loads" is not taken for a ledger."""
    loads.execute("CREATE SCHEMA penstock CREATE TABLE loads (a int)")
    with pytest.raises(TargetError, match="not a penstock ledger"):
        ensure(loads.conninfo)


def test_user_who_may_make_no_schema_is_told_what_to_do(loads: Loads, role: str) -> None:
    """With the command for the owner, and the option that names a schema of one's own."""
    with pytest.raises(TargetError, check=has_code("42501")) as caught:
        ensure(loads.conninfo, role=role)
    assert f"penstock init --grant {role}" in str(caught.value.hint)
    assert "--ledger-schema" in str(caught.value.hint)


def test_schema_made_by_the_owner_is_enough(loads: Loads, role: str, path: Path) -> None:
    """What the hint says works."""
    loads.execute(f'CREATE SCHEMA "penstock" AUTHORIZATION "{role}"; CREATE TABLE t (a int, b text)')
    loads.execute(f"GRANT INSERT ON t TO {role}")
    assert Loads(make_conninfo(loads.conninfo, user=role)).run(target(path)).rows == 2


def test_several_users_share_a_ledger(loads: Loads, role: str, path: Path) -> None:
    """By the documented grants; each load knows its owner."""
    loads.execute(f"CREATE TABLE t (a int, b text); GRANT INSERT ON t TO {role}")
    share_ledger(loads, role)
    Loads(loads.conninfo, role=role).run(target(path))
    assert loads.execute("SELECT owner::text, state FROM penstock.loads") == [(role, "complete")]


def test_publication_for_all_tables_is_not_widened_unasked(loads: Loads) -> None:
    """Its subscribers would stop at the first row of a table they lack; the error has the DDL for them."""
    loads.execute("CREATE PUBLICATION everything FOR ALL TABLES")
    with pytest.raises(TargetError, match="stop the subscribers") as caught:
        ensure(loads.conninfo)
    assert '"everything"' in str(caught.value.detail)
    assert 'CREATE TABLE "penstock".ranges' in str(caught.value.detail)
    assert not loads.has_table("penstock.loads")
    ensure(loads.conninfo, is_publishing_allowed=True)
    # Once it is there, nothing is asked any more.
    ensure(loads.conninfo)
