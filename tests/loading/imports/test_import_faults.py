"""Loaders and backends of the server's route that die at any step of an object's transaction: 0 lost, 0 repeated."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from unittest.mock import patch

import psycopg
import pytest

from loading.imports.jobs import SERVER, job
from penstock.core.errors import PenstockError
from penstock.core.values.job import LoadRules
from penstock.loading.files.streams import SourceReader
from penstock.loading.imports.server import ImportSession
from support.loads import Loads
from support.modes import Killed, killing_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from loading.imports.conftest import Gate
    from support.s3_lab import S3Lab

pytestmark = pytest.mark.part("rest")

_OBJECTS = 2
# In the order of Loads.rows.
_ROWS = sorted(((number, f"row {number}") for number in range(20)), key=repr)

# What a session does for each object, in this order, by two sessions.
_STEPS: tuple[tuple[type, str], ...] = (
    (ImportSession, "begin"),
    (SourceReader, "look"),
    (ImportSession, "import_object"),
    (SourceReader, "look"),
    (ImportSession, "commit"),
)
_POINTS = 2 * len(_STEPS) * _OBJECTS


@pytest.fixture
def objects(s3: S3Lab) -> None:
    """Store two objects of ten rows."""
    for number in range(_OBJECTS):
        part = _ROWS[10 * number : 10 * number + 10]
        s3.put(f"d/{number}.csv", b"a,b\n" + "".join(f"{a},{b}\n" for a, b in part).encode())


@contextmanager
def dying_at(point: int, who: Literal["client", "backend"], conninfo: str) -> Iterator[None]:
    """Let the loader, or the backend of a session, die before or after the step of that number, from 0."""
    passed = [0]
    backends: list[int] = []

    def pass_by() -> None:
        passed[0] += 1
        if passed[0] - 1 != point:
            return
        if who == "client":
            raise Killed
        with psycopg.connect(conninfo, autocommit=True) as admin:
            admin.execute("SELECT pg_terminate_backend(%s, 5000)", [backends[-1]])

    def wrap(kind: type, name: str) -> Any:
        act: Callable[..., Any] = getattr(kind, name)

        def step(self: Any, *arguments: Any, **options: Any) -> Any:
            if isinstance(self, ImportSession):
                backends.append(self.backend_pid)
            pass_by()
            result = act(self, *arguments, **options)
            pass_by()
            return result

        return patch.object(kind, name, step)

    patches = [wrap(kind, name) for kind, name in dict.fromkeys(_STEPS)]
    for each in patches:
        each.start()
    try:
        yield
    finally:
        for each in patches:
            each.stop()


@pytest.mark.usefixtures("objects")
@pytest.mark.parametrize("who", ["client", "backend"])
def test_death_at_any_step_loses_and_repeats_nothing(
    loads: Loads, who: Literal["client", "backend"], some: Callable[[list[int], int], list[int]]
) -> None:
    """What was committed is not imported again, and the rest is."""
    for point in some(list(range(_POINTS)), 5):
        loads.execute("DROP SCHEMA IF EXISTS penstock CASCADE; TRUNCATE t")
        with dying_at(point, who, loads.conninfo):
            try:
                loads.run(job(), sessions=2, rules=SERVER)
            except (Killed, PenstockError):
                pass
            else:
                # The backend died after the load's last statement there.
                assert who == "backend", f"nobody died at point {point}"
        before = set(loads.rows())
        loads.run(job(), sessions=2, rules=SERVER)
        assert loads.rows() == _ROWS, f"{who} died at point {point}"
        assert before <= set(_ROWS)
        assert loads.execute("SELECT sum(rows), count(*) FROM penstock.ranges") == [(20, _OBJECTS)]
        assert loads.execute("SELECT DISTINCT state FROM penstock.loads") == [("complete",)]


@pytest.mark.usefixtures("objects")
def test_loader_that_dies_at_any_other_statement_is_resumed(
    loads: Loads, some: Callable[[list[int], int], list[int]]
) -> None:
    """While it claims the load, reads what is missing, ends it."""
    with killing_at(-1) as sent:
        loads.run(job(), sessions=2, rules=SERVER)
    # The last statements may be looks at the progress, of which the next load has fewer.
    for point in some(list(range(sent[0] * 3 // 4)), 4):
        loads.execute("DROP SCHEMA IF EXISTS penstock CASCADE; TRUNCATE t")
        with killing_at(point), pytest.raises(Killed):
            loads.run(job(), sessions=2, rules=SERVER)
        loads.run(job(), sessions=2, rules=SERVER)
        assert loads.rows() == _ROWS, f"died at statement {point}"


@pytest.mark.usefixtures("objects")
def test_import_of_a_killed_loader_ends_and_another_resumes(loads: Loads, gate: Gate) -> None:
    """By kill -9 in the middle of an import, which goes on until the server looks for its client."""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    with gate.holding(), subprocess.Popen([sys.executable, __file__, loads.conninfo], env=environment) as loader:
        backend = gate.await_import()
        loader.send_signal(signal.SIGKILL)
        loader.wait()
        rules = LoadRules(via="server", retry_for=30.0)
        with gate.in_thread(lambda: loads.run(job(), sessions=2, rules=rules)) as running:
            while gate.await_import() == backend:
                pass
            gate.open()
            running.result()
    assert loads.rows() == _ROWS
    assert loads.execute("SELECT sum(rows), count(*) FROM penstock.ranges") == [(20, _OBJECTS)]


if __name__ == "__main__":
    Loads(sys.argv[1]).run(job(), sessions=1, rules=SERVER)
