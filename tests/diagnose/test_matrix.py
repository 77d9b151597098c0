"""The matrix of loads: each has one bottleneck planted, which must be named first; all rules look at each load.

Bottlenecks of storage and of other workloads are planted in tests/lab/test_planted_storage.py, test_real_runs.py and
tests/temp. Not planted: a round trip of 20 ms, which does not limit a load, since each COPY command lasts 400 of them;
and contention for the mapping of buffers (LWLock:BufferMapping), which is 19 % of active time with 24 sessions that
read a table through 1 MB of shared_buffers: cpu-bound is first on two processors, and rightly so.
"""

from __future__ import annotations

import lzma
import random
import threading
import time
from dataclasses import dataclass, replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from penstock.core.host.machine import cpu_count
from penstock.diagnose.examination import examine
from penstock.diagnose.load import judge_recording
from penstock.watch.recordings import read_recording
from support.loads import IMPATIENT, Loads, target, write_csv
from support.modes import await_waiter
from support.parts import rest
from support.slow import slow_link

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.core.values.diagnosis import Diagnosis
    from penstock.core.values.job import LoadRules
    from support.servers import PgServer

_SLOW_BYTES_PER_S = 3_000_000
_HELD_S = 4.0

WORK = """
    CREATE TABLE t (a int, b text);
    CREATE FUNCTION work() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN FOR i IN 1..5000 LOOP NULL; END LOOP; RETURN NEW; END $$;
    CREATE TRIGGER work {} INSERT ON t FOR EACH ROW EXECUTE FUNCTION work();
"""
REFERENCES = """
    CREATE TABLE parents (id int PRIMARY KEY);
    INSERT INTO parents SELECT generate_series(0, 9999);
    CREATE TABLE t (a int REFERENCES parents, b text);
"""


@dataclass(frozen=True)
class Plot:
    """Where a load with a bottleneck runs: a server, a database of it, and a folder for files."""

    server: PgServer
    conninfo: str
    folder: Path

    def load(
        self,
        setup: str,
        paths: list[Path],
        *,
        conninfo: str | None = None,
        sessions: int | None = None,
        rules: LoadRules = IMPATIENT,
    ) -> tuple[Diagnosis, ...]:
        """Load files into t and return what limited that; there is a session for each processor."""
        Loads(self.conninfo, setup=setup)
        loads = Loads(conninfo or self.conninfo, record=self.folder / "recording")
        loads.run(target(paths), sessions=sessions or cpu_count(), rules=rules)
        return self.findings()

    def findings(self) -> tuple[Diagnosis, ...]:
        """Return what penstock diagnose says of the load's recording; most loads here are too short for a verdict."""
        recording = read_recording(self.folder / "recording")
        return judge_recording(recording, examine(recording)).diagnoses

    def files(self, rows: int, *, width: int = 10) -> list[Path]:
        """Return a file of rows for each processor."""
        return [
            write_csv(self.folder / f"{number}.csv", [f"{n % 10000},{'x' * width}" for n in range(rows)])
            for number in range(cpu_count())
        ]


def work_before_each_row(plot: Plot) -> tuple[Diagnosis, ...]:
    """A row trigger computes while rows are sent."""
    found = plot.load(WORK.format("BEFORE"), plot.files(120_000))
    assert "--triggers disable" in found[0].remedy
    assert "work" in found[0].remedy
    return found


def work_after_each_row(plot: Plot) -> tuple[Diagnosis, ...]:
    """A row trigger computes at the end of each COPY command."""
    return plot.load(WORK.format("AFTER"), plot.files(80_000))


def foreign_key(plot: Plot) -> tuple[Diagnosis, ...]:
    """Each row's reference is looked up at the end of each COPY command."""
    return plot.load(REFERENCES, plot.files(300_000), rules=replace(IMPATIENT, indexes="keep"))


def held_lock(plot: Plot) -> tuple[Diagnosis, ...]:
    """Another session has inserted a row of the same key, and is idle in its transaction."""
    Loads(plot.conninfo, setup="CREATE TABLE t (a int PRIMARY KEY, b text)")
    path = write_csv(plot.folder / "keys.csv", [f"{n},x" for n in range(1000)])
    with psycopg.connect(plot.conninfo, application_name="report") as holder:
        holder.execute("INSERT INTO t VALUES (500, 'mine')")
        release = threading.Thread(target=_release_waited, args=(holder, plot.conninfo))
        release.start()
        try:
            found = plot.load("", [path], rules=replace(IMPATIENT, retry_for=60.0))
        finally:
            release.join()
    assert "application report" in found[0].claim
    return found


def _release_waited(holder: psycopg.Connection, conninfo: str) -> None:
    """Roll a session's transaction back when another has waited for it long enough for samples."""
    with psycopg.connect(conninfo, autocommit=True) as connection:
        await_waiter(connection, holder.info.backend_pid)
    time.sleep(_HELD_S)
    holder.rollback()


def xz(plot: Plot) -> tuple[Diagnosis, ...]:
    """Random digits, which xz decompresses at some 20 MB/s, in rows of 1 kB."""
    digits = random.Random(1)
    text = "".join(f"{n},{digits.randbytes(500).hex()}\n" for n in range(4000))
    once = lzma.compress(text.encode(), preset=0)
    path = plot.folder / "rows.csv.xz"
    # A file of several streams.
    path.write_bytes(lzma.compress(b"a,b\n") + once * 20)
    return plot.load("CREATE TABLE t (a int, b text)", [path])


def slow_source(plot: Plot) -> tuple[Diagnosis, ...]:
    """The file comes by HTTP over a link of 3 MB/s."""
    (path, *_) = plot.files(12_000, width=1000)
    handler = partial(_Quiet, directory=str(plot.folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            with slow_link(server.server_port, bytes_per_s=_SLOW_BYTES_PER_S) as port:
                Loads(plot.conninfo, setup="CREATE TABLE t (a int, b text)")
                loads = Loads(plot.conninfo, record=plot.folder / "recording")
                loads.run(target(f"http://127.0.0.1:{port}/{path.name}"))  # type: ignore[arg-type]
                return plot.findings()
        finally:
            server.shutdown()
            thread.join()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base class's name)
        """Keep quiet."""


def slow_network(plot: Plot) -> tuple[Diagnosis, ...]:
    """The server is behind a link of 3 MB/s."""
    near = plot.server.over_tcp(plot.conninfo)
    with slow_link(int(conninfo_to_dict(near)["port"] or 0), bytes_per_s=_SLOW_BYTES_PER_S) as port:
        far = make_conninfo(near, port=port)
        return plot.load("CREATE TABLE t (a int, b text)", plot.files(12_000, width=1000), conninfo=far)


def one_session(plot: Plot) -> tuple[Diagnosis, ...]:
    """The same work before each row, by one session, while another processor is idle."""
    if cpu_count() == 1:
        pytest.skip("this machine has one processor")
    return plot.load(WORK.format("BEFORE"), plot.files(200_000)[:1], sessions=1)


MATRIX: dict[str, Callable[[Plot], tuple[Diagnosis, ...]]] = {
    "load-server-cpu": work_before_each_row,
    "load-triggers": work_after_each_row,
    "load-foreign-keys": foreign_key,
    "lock-wait": held_lock,
    "load-decompression": xz,
    "load-source": slow_source,
    "load-network": slow_network,
    "load-few-sessions": one_session,
}
_SMOKE = "lock-wait"
PAID = {
    "load-server-cpu": "trigger work",
    "load-triggers": "trigger work",
    "load-few-sessions": "trigger work",
    "load-foreign-keys": "foreign key",
}


@pytest.mark.parametrize("code", [code if code == _SMOKE else rest(code) for code in MATRIX])
def test_planted_bottleneck_of_a_load_is_named_first(code: str, pg18: PgServer, tmp_path: Path) -> None:
    """No two rows have the same code, so what is first in its own row is first in no other."""
    found = MATRIX[code](Plot(pg18, pg18.fresh_database(), tmp_path))
    # Where samples show what each row pays for, that is named first: the trigger, or the foreign key.
    assert found[0].code == code or (code in PAID and found[0].code == "row-costs" and PAID[code] in found[0].claim)
    assert found[0].confidence != "too few samples"
