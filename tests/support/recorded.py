"""Recordings of what a test has a server do."""

from __future__ import annotations

import shutil
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import psycopg
import pytest

from penstock.core.connect.connection import ConnectionFactory
from penstock.watch.recordings import read_recording
from penstock.watch.sampler import Sampler, sampling_beside
from penstock.watch.values import Recording

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock.embedded.server import EmbeddedServer
    from penstock.watch.values import RecordingHeader, Sample, SessionSample

_PATIENCE_S = 120


@dataclass
class Taken:
    """The samples so far; `recording` is what there is of them."""

    header: RecordingHeader
    samples: list[Sample] = field(default_factory=list)

    @property
    def recording(self) -> Recording:
        """Return all samples as a recording."""
        return Recording(header=self.header, samples=tuple(self.samples), is_whole=True)

    def await_sessions(self, count: int, is_seen: Callable[[SessionSample], bool] = bool) -> None:
        """Wait until so many sessions were seen that will do, counted in each sample."""
        self.await_that(lambda samples: sum(is_seen(each) for sample in samples for each in sample.sessions) >= count)

    def await_samples(self, count: int) -> None:
        """Wait for so many more samples."""
        wanted = len(self.samples) + count
        self.await_that(lambda samples: len(samples) >= wanted)

    def await_that(self, holds: Callable[[list[Sample]], bool], *, patience_s: float = _PATIENCE_S) -> None:
        """Wait until a condition holds for the samples so far."""
        deadline_s = time.monotonic() + patience_s
        while not holds(list(self.samples)):
            assert time.monotonic() < deadline_s
            time.sleep(0.05)


def read_whole(path: Path) -> tuple[Recording, list[Sample]]:
    """Return a recording and all its samples, as far as the file was written."""
    read = read_recording(path)
    return read, list(read.samples)


@contextmanager
def recording(conninfo: str, *, interval_s: float = 0.05) -> Iterator[Taken]:
    """Sample a server in a thread, and once more at the end."""
    sampler = Sampler(ConnectionFactory(conninfo), interval_s=interval_s)
    try:
        with sampling_beside(sampler, interval_s=interval_s) as samples:
            yield Taken(sampler.header, samples)
    finally:
        sampler.close()


def execute(conninfo: str, *statements: str) -> None:
    """Run statements, each by itself; one that is cancelled ends here."""
    with psycopg.connect(conninfo, autocommit=True, application_name="worker") as connection:
        try:
            for statement in statements:
                connection.execute(statement.encode())
        except psycopg.errors.QueryCanceled:
            pass


@contextmanager
def working(conninfo: str, *work: Callable[[], object]) -> Iterator[list[threading.Thread]]:
    """Run each in a thread of its own; at the end cancel what the application "worker" still does, and wait."""
    threads = [threading.Thread(target=each) for each in work]
    for thread in threads:
        thread.start()
    try:
        yield threads
    finally:
        while any(thread.is_alive() for thread in threads):
            execute(
                conninfo,
                "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE application_name = 'worker'"
                " AND state <> 'idle' AND pid <> pg_backend_pid()",
            )
            time.sleep(0.1)


def find_pgbench(server: EmbeddedServer) -> str:
    """Return the server's own pgbench, or another; skip where there is none."""
    own = server.spec.installation.bin_dir / "pgbench"
    found = str(own) if own.exists() else shutil.which("pgbench")
    if found is None:
        pytest.skip("pgbench is not installed (Debian's package postgresql-15)")
    return found
