"""How a kind of change is added (ARCHITECTURE.md): pages filled to the brim while a table is loaded, and as they were.

What stands above KIND belongs into src/penstock/changes/tables/kinds.py, and KIND into KINDS (kinds.py there).
Run as a program, this file is penstock with that kind.
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from psycopg import sql

from penstock.changes.tables.kind import Switch, TableSwitch
from penstock.changes.tables.kinds import KINDS
from penstock.cli.main import run_process
from penstock.core.connect.connection import ConnectionFactory
from penstock.core.values.job import LoadRules
from penstock.restore.repair import Repairer
from support.files import write_to
from support.loads import Loads, await_end_of_backends, target
from support.modes import Killed, killing_at

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from penstock.changes.tables.kind import TableRequest
    from penstock.changes.tables.look import State
    from penstock.changes.values import Change
    from penstock.core.connect.connection import Connection
    from penstock.restore.repair import RepairOutcome

_OPTIONS = "SELECT reloptions FROM pg_catalog.pg_class WHERE oid = %s"


def _read(connection: Connection, oid: int) -> str | None:
    row = connection.execute(_OPTIONS, [oid]).fetchone()
    options = dict(option.split("=", 1) for option in (row and row[0]) or [])
    return options.get("fillfactor")


def _find(connection: Connection, request: TableRequest) -> Sequence[Change]:
    """Fill pages to the brim while autovacuum is paused, if the table leaves room in them."""
    value = _read(connection, request.table.oid)
    if request.rules.autovacuum != "pause" or value in (None, "100"):
        return []
    return [request.change("fillfactor", "fillfactor", {"value": value}, relation_oid=request.table.oid)]


def _look(connection: Connection, change: Change) -> State:
    if connection.execute(_OPTIONS, [change.relation_oid]).fetchone() is None:
        return "gone"
    return "absent" if _read(connection, change.relation_oid) == "100" else "there"


FILLFACTOR = TableSwitch(
    name="fillfactor",
    lock_mode="SHARE UPDATE EXCLUSIVE",
    find=_find,
    is_whole=lambda change: str(change.record.get("value")).isdigit(),
    state=_look,
    compose_change=lambda _: sql.SQL("SET (fillfactor = 100)"),
    compose_restore=lambda _, change: sql.SQL("SET (fillfactor = {})").format(int(change.record["value"])),
)

KIND = Switch(FILLFACTOR)

PAUSE = LoadRules(retry_for=0.0, autovacuum="pause", indexes="rebuild", vacuum=False)
# Statements between two deaths: fewer than there are between a record and its change.
_STEP = 3


@pytest.fixture
def kind() -> Iterator[None]:
    """Have the kind in the list."""
    KINDS.append(KIND)
    yield
    KINDS.remove(KIND)


@pytest.fixture
def loads(database18: str) -> Loads:
    """Provide a table that leaves room in its pages."""
    return Loads(
        database18,
        piece_bytes=8,
        setup="CREATE TABLE t (id int, name text) WITH (fillfactor = 40); CREATE INDEX i ON t (id)",
    )


@pytest.fixture
def people(tmp_path: Path) -> Path:
    """Provide a file of three records."""
    return write_to(tmp_path / "people.csv", "id,name\n1,Ada\n2,Grace\n3,Edsger\n")


def look(loads: Loads) -> tuple[Any, ...]:
    """Return the table's storage parameters, its indexes, and how many changes the ledger knows of."""
    return loads.execute(
        "SELECT c.reloptions, array(SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid = c.oid),"
        " (SELECT count(*) FROM penstock.changes) FROM pg_class AS c WHERE c.oid = 't'::regclass"
    )[0]


def repair(conninfo: str) -> RepairOutcome:
    """Repair as from another host."""
    with Repairer(ConnectionFactory(conninfo)) as repairer:
        return repairer.run()


def is_changed(loads: Loads) -> bool:
    """Whether the fillfactor is the load's, and the index is dropped."""
    if not loads.has_table("penstock.changes"):
        return False
    options, indexes, _ = look(loads)
    return "fillfactor=100" in options and not indexes


AS_BEFORE = (["fillfactor=40"], ["i"], 0)


@pytest.mark.usefixtures("kind")
def test_new_kind_is_changed_while_loading_and_restored(loads: Loads, people: Path) -> None:
    """And said so, as the others are."""
    seen: list[tuple[Any, ...]] = []
    loads.at_piece = lambda _number: seen.append(look(loads))
    assert loads.run(target(people), rules=PAUSE).rows == 3
    assert "fillfactor=100" in seen[-1][0]
    assert look(loads) == AS_BEFORE
    assert any("disabling at" in text and "fillfactor" in text for text in loads.notices)


@pytest.mark.part("rest")
@pytest.mark.usefixtures("kind")
def test_new_kind_is_restored_whatever_statement_kills_the_load(loads: Loads, people: Path) -> None:
    """A repair after each death finds all that was changed, and nothing else."""
    is_done, changed = False, 0
    for statement in itertools.count(0, _STEP):
        with killing_at(statement), suppress(Killed):
            is_done = loads.run(target(people), rules=PAUSE).rows == 3
        changed += is_changed(loads)
        assert repair(loads.conninfo).errors == []
        assert not loads.has_table("penstock.changes") or look(loads) == AS_BEFORE, f"killed at statement {statement}"
        if is_done:
            break
        loads.execute("TRUNCATE t")
        if loads.has_table("penstock.loads"):
            loads.execute("DELETE FROM penstock.loads")
    assert changed > 0


@pytest.mark.part("rest")
@pytest.mark.usefixtures("kind")
def test_killed_process_leaves_a_record_that_only_its_kind_restores(loads: Loads) -> None:
    """By kill -9; a penstock that does not know the kind refuses it by name, and restores what it knows."""
    argv = [sys.executable, __file__, "load", "-", "--into", "t", "--to", loads.conninfo, "--autovacuum", "pause"]
    argv += ["--header", "--indexes", "rebuild"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(argv, stdin=subprocess.PIPE, env=environment) as loading:
        assert loading.stdin is not None
        try:
            # More than a sample; what follows never comes.
            loading.stdin.write(b"id,name\n" + b"1,x\n" * 500_000)
            loading.stdin.flush()
            while not is_changed(loads):
                assert loading.poll() is None
                time.sleep(0.02)
        finally:
            loading.send_signal(signal.SIGKILL)
    await_end_of_backends(loads)
    KINDS.remove(KIND)
    try:
        (error,) = repair(loads.conninfo).errors
    finally:
        KINDS.append(KIND)
    assert "does not know changes of kind fillfactor" in str(error.detail)
    assert look(loads) == (["fillfactor=100"], ["i"], 1)
    assert [each.kind for each in repair(loads.conninfo).rebuilt] == ["fillfactor"]
    assert look(loads) == AS_BEFORE


if __name__ == "__main__":
    KINDS.append(KIND)
    run_process()
