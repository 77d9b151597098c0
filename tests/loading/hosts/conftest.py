"""Hosts of one load: processes with host names of their own, behind a network that makes the load last."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from penstock_lab.topology.relay import Relay
from support.loads import Loads

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from support.servers import PgServer

# Each object is as large as what a host claims at once.
OBJECTS = 6
ROWS_PER_OBJECT = 21_000
# Until the hosts that a test needs have claimed objects: a load by one host would take a minute.
_SLOW_BYTES_PER_S = 0.5e6

SETUP = "CREATE TABLE t (id integer, note text); CREATE INDEX t_id ON t (id)"

_UNSHARE = ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"']


class Host:
    """One `penstock load --join` with a host name of its own."""

    def __init__(self, name: str, log: Path, argv: Sequence[str], environment: Mapping[str, str]) -> None:
        self.name = name
        self._log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [*argv],
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, **environment},
            )

    @property
    def out(self) -> str:
        """Return what the process wrote."""
        return self._log.read_text(encoding="utf-8")

    def wait(self, timeout_s: float = 60.0) -> int:
        """Wait for the process's end and return its exit code."""
        return self._process.wait(timeout_s)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process and its children, of which there are none once unshare has run it."""
        os.killpg(self._process.pid, number)

    def await_text(self, text: str, timeout_s: float = 30.0) -> None:
        """Wait until the process has written something."""
        until_s = time.monotonic() + timeout_s
        while text not in self.out:
            assert self._process.poll() is None, self.out
            assert time.monotonic() < until_s, self.out
            time.sleep(0.02)

    def kill(self) -> None:
        """Kill the process, if it runs."""
        if self._process.poll() is None:
            self.send(signal.SIGKILL)
            self._process.wait()

    @property
    def share(self) -> tuple[int, int]:
        """Return the rows and the objects that the process says it has loaded."""
        found = re.search(rf"this process on {self.name} loaded ([\d,]+) rows? of (\d+) objects?", self.out)
        assert found is not None, self.out
        return int(found[1].replace(",", "")), int(found[2])


class Hosts:
    """Starts hosts of one load, on one database."""

    def __init__(self, loads: Loads, folder: Path, socket: Path) -> None:
        self.loads = loads
        self._socket = socket
        self.relays: list[Relay] = []
        self.files = folder / "files"
        self._folder = folder
        self.started: list[Host] = []
        self.files.mkdir()
        for number in range(OBJECTS):
            first = number * ROWS_PER_OBJECT
            rows = "".join(f"{each},note {each:0200}\n" for each in range(first, first + ROWS_PER_OBJECT))
            (self.files / f"part_{number}.csv").write_text("id,note\n" + rows)

    def start(
        self,
        name: str,
        *options: str,
        join: bool = True,
        before: str = "",
        to: str | None = None,
        inside: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> Host:
        """Start the load on a host of that name, through a relay unless `to` says how it connects.

        `before` is a command that the host runs first; `inside` is a command that runs the host.
        """
        unshare = list(_UNSHARE)
        if before:
            unshare = ["unshare", "--uts", "--mount", "sh", "-c", f'hostname "$0" && {before} && exec "$@"']
        command = [sys.executable, "-m", "penstock", "load", f"{self.files}/*.csv", "--into", "t"]
        if to is None:
            self.relays.append(Relay(self._socket, bytes_per_s=_SLOW_BYTES_PER_S))
            port = self.relays[-1].port
            to = make_conninfo(self.loads.conninfo, host="127.0.0.1", port=port, sslmode="disable")
        command += ["--to", to, "--sessions", "1", "--no-record", *options]
        argv = [*inside, *unshare, name, *command, *(["--join"] if join else [])]
        self.started.append(Host(name, self._folder / f"{name}-{len(self.started)}.log", argv, environment or {}))
        return self.started[-1]

    def await_claims(self, *names: str, timeout_s: float = 30.0) -> None:
        """Wait until each of these hosts has claimed an object."""
        query = """
            SELECT count(DISTINCT split_part(m.client, ' ', 1))
              FROM penstock.members AS m JOIN penstock.claims AS c ON c.load = m.load AND c.member = m.number
             WHERE split_part(m.client, ' ', 1) = ANY ('{%s}')
        """
        self._await(query % ",".join(names), len(names), timeout_s)

    def hurry(self) -> None:
        """Let the hosts' networks be fast from now on."""
        for relay in self.relays:
            relay.bytes_per_s = None

    def wait(self, *hosts: Host, timeout_s: float = 60.0) -> list[int]:
        """Wait for the end of hosts whose networks are fast from now on; return their exit codes."""
        self.hurry()
        return [host.wait(timeout_s) for host in hosts]

    def await_count(self, query: str, wanted: int, *, timeout_s: float) -> None:
        """Wait until a query of the ledger returns a number."""
        self._await(query, wanted, timeout_s)

    def end_as_told(self, host: Host) -> None:
        """Run the statements with which a host says that sessions which hold it up can be ended, if it says so."""
        for pid in re.findall(r"pg_terminate_backend\((\d+)\)", host.out):
            self.loads.execute(f"SELECT pg_terminate_backend({pid})")

    def await_ended(self, name: str, *, told_by: Host, timeout_s: float = 30.0) -> None:
        """Wait until another member has ended a host."""
        query = f"SELECT count(*) FROM penstock.members WHERE client LIKE '{name} %' AND ended_at IS NOT NULL"
        self._await(query, 1, timeout_s, told_by)

    def await_lead(self, name: str, *, told_by: Host, timeout_s: float = 30.0) -> None:
        """Wait until a host leads the load."""
        self._await(f"SELECT count(*) FROM penstock.loads WHERE client LIKE '{name} %'", 1, timeout_s, told_by)

    def _await(self, query: str, wanted: int, timeout_s: float, told_by: Host | None = None) -> None:
        until_s = time.monotonic() + timeout_s
        while True:
            if told_by is not None:
                self.end_as_told(told_by)
            if self.loads.has_table("penstock.claims") and self.loads.execute(query) == [(wanted,)]:
                return
            assert time.monotonic() < until_s, "\n".join(f"{host.name}: {host.out}" for host in self.started)
            time.sleep(0.02)

    def check(self) -> None:
        """Check that each row is there once, that the index is, and that no claim is left."""
        rows = self.loads.execute("SELECT count(*), count(DISTINCT id) FROM t")
        assert rows == [(OBJECTS * ROWS_PER_OBJECT,) * 2]
        assert self.loads.execute("SELECT count(*) FROM penstock.claims") == [(0,)]
        assert self.loads.execute("SELECT count(*) FROM penstock.changes") == [(0,)]
        assert self.loads.execute("SELECT count(*) FROM pg_index WHERE indrelid = 't'::regclass") == [(1,)]

    def close(self) -> None:
        """Kill what runs."""
        for host in self.started:
            host.kill()
        for relay in self.relays:
            relay.close()


@pytest.fixture
def hosts(pg18: PgServer, database18: str, tmp_path: Path) -> Iterator[Hosts]:
    """Provide hosts, and a table to load."""
    if subprocess.run([*_UNSHARE, "probe", "true"], capture_output=True, check=False).returncode or pg18.server is None:
        pytest.skip("needs root, to give processes host names of their own, and a server on this machine")
    given = conninfo_to_dict(database18)
    made = Hosts(Loads(database18, setup=SETUP), tmp_path, Path(str(given["host"])) / f".s.PGSQL.{given['port']}")
    yield made
    made.close()
