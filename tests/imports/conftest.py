"""A server with the lab's extension aws_s3, a bucket of moto's S3, and a gate at which imports wait."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from files.conftest import aws_environment, moto_port, s3  # noqa: F401 (fixtures)
from support.import_server import create_extension, make_import_server
from support.loads import Loads
from support.servers import TEST_SETTINGS, PgServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from files.conftest import S3
    from support.servers import ServerPool

_LOCK = 4711
_MAJOR = 18


@pytest.fixture(scope="session")
def import_server(servers: ServerPool, moto_port: int) -> Iterator[PgServer]:  # noqa: F811
    """Provide a running server of the newest version that has extension aws_s3."""
    server = make_import_server(
        servers.new_home(), servers.installation(_MAJOR), port=moto_port, settings=TEST_SETTINGS
    )
    server.ensure_running()
    yield PgServer(server.conninfo(), _MAJOR, server)
    server.stop("immediate")


@pytest.fixture
def loads(
    s3: S3,  # noqa: F811
    import_server: PgServer,
    aws_environment: pytest.MonkeyPatch,  # noqa: F811
) -> Iterator[Loads]:
    """Provide a database whose server can import from the bucket, with table t."""
    aws_environment.setenv("AWS_REGION", "us-east-1")
    database = import_server.fresh_database()
    create_extension(database)
    yield Loads(database, setup="CREATE TABLE t (a int, b text)")
    import_server.drop_databases()


class Gate:
    """A trigger of table t in which imports wait, in the middle of their COPY, until it is opened."""

    def __init__(self, loads: Loads) -> None:
        self._loads = loads
        loads.execute(
            "CREATE FUNCTION gate() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            f" PERFORM pg_advisory_xact_lock_shared({_LOCK}); RETURN NEW; END $$;"
            "CREATE TRIGGER gate BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION gate()"
        )
        self._holder: psycopg.Connection[Any] | None = None

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Keep the gate shut during the block, unless `open` is called."""
        with psycopg.connect(self._loads.conninfo, autocommit=True) as self._holder:
            self._holder.execute("SELECT pg_advisory_lock(%s)", [_LOCK])
            yield
            self.open()

    def open(self) -> None:
        """Let imports go on."""
        assert self._holder is not None
        self._holder.execute("SELECT pg_advisory_unlock_all()")

    def await_import(self) -> int:
        """Wait until a backend waits at the gate, and return its process id."""
        query = (
            f"SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objid = {_LOCK} AND NOT granted"
            " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
        while not (found := self._loads.execute(query)):
            time.sleep(0.01)
        return int(found[0][0])

    @contextmanager
    def in_thread(self, act: Callable[[], Any]) -> Iterator[Future[Any]]:
        """Run a load beside the test."""
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(act)
            try:
                yield future
            finally:
                self.open()


@pytest.fixture
def gate(loads: Loads) -> Gate:
    """Provide the gate of table t."""
    return Gate(loads)
