"""A database with a ledger is dumped and restored by the same roles as before there was one."""

from __future__ import annotations

import secrets
import subprocess
from typing import TYPE_CHECKING

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from penstock.api.ledger_view import LedgerView
from penstock.core.connect.connection import ConnectionFactory
from penstock.core.values.job import LoadRules
from support.loads import Loads, target, write_csv

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from support.servers import PgServer

    Program = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = pytest.mark.pg(">= 15, != 16, != 17")


@pytest.fixture
def run(pg: PgServer) -> Program:
    """Provide a function that runs one of the server's programs; skip where it has no pg_dump."""
    if pg.server is None or not (pg.server.spec.installation.bin_dir / "pg_dump").exists():
        pytest.skip("pg_dump is not among this server's programs")
    installation = pg.server.spec.installation

    def run(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([installation.program(name), *arguments], capture_output=True, text=True, check=False)

    return run


@pytest.fixture
def owner(pg: PgServer) -> Iterator[str]:
    """Provide an ordinary role that owns databases."""
    name, admin = f"owner_{secrets.token_hex(4)}", Loads(pg.conninfo)
    admin.execute(f"CREATE ROLE {name} LOGIN")
    yield name
    pg.drop_databases()
    admin.execute(f"DROP ROLE {name}")


def make_database(pg: PgServer, owner: str) -> str:
    """Return the conninfo of an empty database of the owner, for the owner."""
    conninfo = pg.fresh_database()
    Loads(pg.conninfo).execute(f"ALTER DATABASE {conninfo_to_dict(conninfo)['dbname']} OWNER TO {owner}")
    return make_conninfo(conninfo, user=owner)


def test_owner_dumps_and_restores_what_was_loaded(pg: PgServer, run: Program, owner: str, tmp_path: Path) -> None:
    """With the ledger's rows, rejected records and all."""
    loads = Loads(make_database(pg, owner), setup="CREATE TABLE t (a int PRIMARY KEY, b text)")
    rules = LoadRules(retry_for=0.0, on_error="reject")
    path = write_csv(tmp_path / "file.csv", ["1,x", "bad,y", "3,z"])
    done = loads.run(target(path, format="csv", header=True), rules=rules)
    assert (done.rows, done.rejected) == (2, 1)
    archive = str(tmp_path / "archive")
    dumped = run("pg_dump", "--format=custom", f"--file={archive}", f"--dbname={loads.conninfo}")
    assert dumped.returncode == 0, dumped.stderr
    copy = Loads(make_database(pg, owner))
    restored = run("pg_restore", "--exit-on-error", f"--dbname={copy.conninfo}", archive)
    assert restored.returncode == 0, restored.stderr
    assert copy.rows() == loads.rows()
    with LedgerView(ConnectionFactory(copy.conninfo)) as view:
        assert [record.load_id for record in view.loads()] == [done.load_id]
        assert [cause.count for cause in view.rejects(done.load_id)] == [1]


def test_reader_of_the_tables_leaves_the_ledger_out(pg: PgServer, run: Program, owner: str, tmp_path: Path) -> None:
    """As the documentation says: the schema is not its to read."""
    loads = Loads(make_database(pg, owner), setup="CREATE TABLE t (a int, b text)")
    loads.run(target(write_csv(tmp_path / "file.csv", ["1,x"])))
    reader = f"reader_{secrets.token_hex(4)}"
    admin = Loads(make_conninfo(loads.conninfo, user=conninfo_to_dict(pg.conninfo)["user"]))
    admin.execute(f"CREATE ROLE {reader} LOGIN; GRANT SELECT ON t TO {reader}")
    try:
        where = f"--dbname={make_conninfo(loads.conninfo, user=reader)}"
        assert "permission denied for schema penstock" in run("pg_dump", where).stderr
        dumped = run("pg_dump", "--exclude-schema=penstock", where)
        assert (dumped.returncode, "1\tx" in dumped.stdout) == (0, True), dumped.stderr
    finally:
        admin.execute(f"DROP OWNED BY {reader}; DROP ROLE {reader}")
