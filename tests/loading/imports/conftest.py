"""A lab with extension aws_s3 and a bucket, and a gate at which imports wait."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from support.loads import Loads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.s3_lab import S3Lab, S3Labs

_LOCK = 4711
_MAJOR = 18


@pytest.fixture
def s3(s3_labs: S3Labs, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Lab]:
    """Provide a database with aws_s3 on a lab of the newest version, and its bucket, which the environment names."""
    found = s3_labs.database(_MAJOR)
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_S3", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    for name, value in found.environment.items():
        monkeypatch.setenv(name, value)
    yield found
    found.empty()


@pytest.fixture
def loads(s3: S3Lab) -> Loads:
    """Provide the database, with table t."""
    return Loads(s3.conninfo, setup="CREATE TABLE t (a int, b text)")


class Gate:
    """A trigger of table t in which imports wait, in the middle of their COPY, until it is opened."""

    def __init__(self, loads: Loads) -> None:
        self._loads = loads
        loads.execute(
            "CREATE FUNCTION gate() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            f" PERFORM pg_advisory_xact_lock_shared({_LOCK}); RETURN NEW; END $$;"
            "CREATE TRIGGER gate AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION gate()"
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
