"""A database with the stand-in for aws_s3, a bucket of moto's S3, and a gate at which imports wait."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from files.conftest import aws_environment, moto_port, s3  # noqa: F401 (fixtures)
from support.loads import Loads
from support.stand_in import install_stand_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from files.conftest import S3
    from support.servers import ServerPool

_LOCK = 4711


@pytest.fixture
def loads(s3: S3, servers: ServerPool, database18: str, aws_environment: pytest.MonkeyPatch) -> Loads:  # noqa: F811
    """Provide a database in which a server can import from the bucket."""
    aws_environment.setenv("AWS_REGION", "us-east-1")
    install_stand_in(database18, servers, endpoint=f"http://127.0.0.1:{s3.port}")
    return Loads(database18, setup="CREATE TABLE t (a int, b text)")


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
