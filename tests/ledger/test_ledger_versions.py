"""The ledger has one version; what has another is refused, and so is what another version has recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock import __version__
from penstock.api.ledger_view import LedgerView
from penstock.changes.records import TableStore
from penstock.changes.values import SERVER, Hold
from penstock.core.connect.connection import ConnectionFactory
from penstock.core.errors import TargetError
from penstock.core.values.job import LoadRules
from penstock.ledger.ledger import Ledger
from penstock.restore.repair import Repairer
from support.files import write_to
from support.loads import ORIGIN, Loads, target

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.versions


@pytest.fixture
def loads(database: str) -> Loads:
    """Provide loads into an empty database."""
    return Loads(database)


@pytest.fixture
def loads18(ledger18: str) -> Loads:
    """Provide loads for tests to which the version makes no difference."""
    return Loads(ledger18)


@pytest.mark.parametrize("version", [1, 999])
def test_ledger_of_another_version_is_refused_by_name(loads: Loads, version: int) -> None:
    """Nothing of it is read or written, whatever its policies are; the hint does not lead to another ledger."""
    with ConnectionFactory(loads.conninfo).connect() as connection:
        Ledger().ensure(connection)
        loads.execute(f"COMMENT ON TABLE penstock.loads IS 'penstock ledger, version {version}'")
        loads.execute("CREATE POLICY former ON penstock.loads USING (true)")
        with pytest.raises(TargetError, match=f'"penstock" has version {version}, and this penstock') as caught:
            Ledger().ensure(connection)
    assert "--ledger-schema" not in str(caught.value.hint)
    assert f"{'older' if version == 1 else 'newer'} penstock" in str(caught.value.hint)


def test_ledger_knows_the_penstock_that_created_it(loads: Loads) -> None:
    """The hint names it if it is another one than this."""
    with ConnectionFactory(loads.conninfo).connect() as connection:
        Ledger().ensure(connection)
        assert loads.execute("SELECT obj_description('penstock.objects'::regclass)") == [
            (f"created by penstock {__version__}",)
        ]
        loads.execute("COMMENT ON TABLE penstock.loads IS 'penstock ledger, version 999'")
        loads.execute("COMMENT ON TABLE penstock.objects IS 'created by penstock 7.2.0rc1'")
        with pytest.raises(TargetError) as caught:
            Ledger().ensure(connection)
    assert caught.value.hint == "Install penstock 7.2.0rc1, or a later one."


def test_ledger_without_comments_is_not_replaced(loads: Loads) -> None:
    """A dump may lack them: the hint gives the comment back, and it works."""
    with ConnectionFactory(loads.conninfo).connect() as connection:
        Ledger().ensure(connection)
        loads.execute("COMMENT ON TABLE penstock.loads IS NULL")
        with pytest.raises(TargetError) as caught:
            Ledger().ensure(connection)
        loads.execute("COMMENT ON" + str(caught.value.hint).partition("COMMENT ON")[2])
        Ledger().ensure(connection)


# What a later version might record, and how it is named.
_LATER = {
    "target option": ("""jsonb_set(job, '{targets,0,relabel}', '{"A": "b"}')""", "relabel"),
    "dialect option": ("jsonb_set(job, '{targets,0,dialect,comment}', '\"#\"')", "comment"),
    "rule": ("jsonb_set(job, '{rules,notify}', 'true')", "notify"),
    "part": ("job || '{\"windows\": 1}'", "windows"),
    "value of a target": ("jsonb_set(job, '{targets,0,mode}', '\"mirror\"')", "mirror"),
    "value of a rule": ("jsonb_set(job, '{rules,on_error}', '\"quarantine\"')", "quarantine"),
    "value of another kind": ("jsonb_set(job, '{targets,0,key}', '{\"columns\": [\"a\"]}')", "key"),
    "form": ("job - 'targets'", "form"),
    "format": ("job || '{\"format\": 2}'", "format 2"),
}


@pytest.mark.parametrize("command", ["resume", "retry"])
@pytest.mark.parametrize("what", _LATER)
def test_job_of_a_later_version_is_refused_by_name(loads18: Loads, tmp_path: Path, what: str, command: str) -> None:
    """What this version does not know could decide which rows are stored."""
    loads18.execute("CREATE TABLE t (a int)")
    loads18.run(target(write_to(tmp_path / "f.csv", "a\n1\nx\n")), rules=LoadRules(on_error="reject"))
    change, name = _LATER[what]
    loads18.execute(f"UPDATE penstock.loads SET job = {change} || '{{\"penstock\": \"7.2.0\"}}', state = 'running'")
    with LedgerView(ConnectionFactory(loads18.conninfo)) as view:
        (record,) = view.loads()
        with pytest.raises(TargetError) as caught:
            view.job(record.load_id) if command == "resume" else view.retry(record.load_id)
    assert name in caught.value.message
    assert "7.2.0" in str(caught.value.detail)
    assert caught.value.hint == "Install penstock 7.2.0, or a later one."


@pytest.mark.parametrize(
    "change", ["'{dialect,comment}', '1'", "'{column_map,renamed}', '[]'", "'{later}', '1'", "'{dialect}', '[]'"]
)
def test_form_of_a_later_version_is_refused(loads18: Loads, tmp_path: Path, change: str) -> None:
    """Rejected records would be read in another way than their file."""
    loads18.execute("CREATE TABLE t (a int)")
    outcome = loads18.run(target(write_to(tmp_path / "f.csv", "a\n1\nx\n")), rules=LoadRules(on_error="reject"))
    loads18.execute(f"UPDATE penstock.ranges SET form = jsonb_set(form, {change})")
    with LedgerView(ConnectionFactory(loads18.conninfo)) as view, pytest.raises(TargetError, match="cannot read how"):
        view.retry(str(outcome.load_id))


def test_changes_of_a_later_version_are_not_restored(loads18: Loads, tmp_path: Path) -> None:
    """A repair names their kind, and keeps their record."""
    loads18.execute("CREATE TABLE t (a int)")
    loads18.run(target(write_to(tmp_path / "f.csv", "a\n1\n")))
    loads18.execute(
        "INSERT INTO penstock.changes"
        " (origin, target_oid, number, target_schema, target_table, kind, relation_oid, name, record, load)"
        f" SELECT {ORIGIN}, 't'::regclass, 1, 'public', 't', 'storage', 't'::regclass, 'x', '{{}}', id"
        "   FROM penstock.loads"
    )
    (error,) = loads18.repair().errors
    assert "storage" in error.message
    with Repairer(ConnectionFactory(loads18.conninfo)) as repairer:
        assert [(step.action, "storage" in step.reason) for step in repairer.plan()] == [("refuse", True)]
    assert loads18.run(target(write_to(tmp_path / "g.csv", "a\n2\n"))).rows == 1
    assert loads18.execute("SELECT kind FROM penstock.changes") == [("storage",)]


def test_hold_of_a_later_version_is_refused(loads18: Loads, tmp_path: Path) -> None:
    """It names a server in a way that this version does not know."""
    loads18.execute("CREATE TABLE t (a int)")
    loads18.run(target(write_to(tmp_path / "f.csv", "a\n1\n")))
    hold = Hold(holder_id="00000000-0000-0000-0000-000000000001", target_oid=SERVER, lock="1")
    with ConnectionFactory(loads18.conninfo).connect() as connection:
        store = TableStore(connection=connection)
        store.write(hold, [])
        loads18.execute("""UPDATE penstock.holds SET server = '{"zone": "a"}'""")
        with pytest.raises(TargetError, match="zone"):
            store.read_holds()
