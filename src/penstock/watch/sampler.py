"""Samples a server: sessions at every tick, and statistics views every second, or less often if they are costly.

Package diagnose interprets the samples. The sampler's own session is not in its samples. Its transactions are counted
in `own_commits`, because the server's counters include them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.core.catalogue.catalog import read_server_facts
from penstock.core.errors import PenstockError
from penstock.core.host.disks import find_device, measure_space, read_counters
from penstock.core.host.machine import busy_cpu_s, cpu_count
from penstock.core.host.process import is_named, process_cpu_s, server_cpu_s
from penstock.core.slotted import slotted
from penstock.core.values.device import LOCAL_STORAGE, CounterRow, Device, VolumeLimits
from penstock.core.values.server import ServerFacts, Unread
from penstock.watch.activity import (
    CONNECTIONS,
    INDEX_READS,
    PREPARED,
    SLOW,
    STATEMENTS,
    ActivityReader,
    flush_statistics,
    open_reader,
    read_moment,
    read_settings,
)
from penstock.watch.statements import strip_literals
from penstock.watch.values import PROCESSES, RecordingHeader, Sample, SessionSample

if TYPE_CHECKING:
    from penstock.core.connect.connection import ConnectionFactory

# Sessions report to the statistics views at most once a second.
_COUNTERS_EVERY_S = 1.0
# Processor time is counted in ticks of 10 ms. Over a time shorter than this, more processors could seem busy than
# exist.
_LEAST_BUSY_S = 0.05
# Some views have thousands of rows, cost a scan of all sessions, or are needed only as totals, so they are read only
# this often. The processor time of the server's processes is read as often.
_RARELY_S = 10.0
_SLOW_EVERY_S = 60.0

# How often a view is read, if not every second.
_EVERY_S = {
    **dict.fromkeys((STATEMENTS, INDEX_READS, CONNECTIONS, PREPARED, "pg_stat_io", "pg_stat_wal_receiver"), _RARELY_S),
    **dict.fromkeys(SLOW, _SLOW_EVERY_S),
}


@slotted
class KnownServer:
    """What the caller knows of a server. The storage's limits and the application are kept in the header."""

    # None if the caller does not know it.
    cpu_count: int | None = None
    volume: VolumeLimits | None = None
    application: str | None = None
    facts: ServerFacts | None = None


@slotted
class AwsFeeds:
    """Functions that return what AWS reports. They must not wait."""

    # Returns the newest metrics of the server's local storage.
    read_local_storage: Callable[[], CounterRow | None] = lambda: None
    # Returns what AWS has reported since the last call.
    take_late_points: Callable[[], Mapping[str, tuple[CounterRow, ...]]] = dict


class Sampler:
    """Samples one server.

    Its attribute `header` describes the server. Its settings are read again once a minute, and after a reconnection.
    The constructor and methods raise ServerError.

    Needs pg_read_all_stats to see what other roles' sessions do; `header.unread` names what could not be read. A pooler
    is refused, because it would use another backend for each query.
    """

    def __init__(
        self,
        factory: ConnectionFactory,
        *,
        interval_s: float,
        with_query_text: bool = False,
        known: KnownServer = KnownServer(),  # noqa: B008 (a value)
        feeds: AwsFeeds = AwsFeeds(),  # noqa: B008 (a value)
        # How often statistics views and devices are read. Views with many rows are read every 10 s.
        counters_every_s: float = _COUNTERS_EVERY_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._factory = factory
        self._counters_every_s = counters_every_s
        self._devices: Mapping[str, tuple[Path, Device]] = {}
        # For each tablespace, the least space that was free at any tick since the devices were last read.
        self._least_free: dict[str, int] = {}
        self._clean = (lambda text: text) if with_query_text else Cleaner()
        self._clock = clock
        self._feeds = feeds
        self._reader, header = self._open(interval_s, with_query_text, known.cpu_count, known.facts)
        self.header = replace(header, volume=known.volume, application=known.application)
        self._is_local = self.header.cpu_count is not None and known.cpu_count is None
        # False if the server is in a container, and so its pids are not those of this machine.
        self._sees_processes = self._is_local and is_named(self._reader.backend_pid, "postgres")
        self._began_s = self._last_s = clock()
        self._busy_s, self._busy_at_s = busy_cpu_s(), self._last_s
        self._own_commits = 0
        self._next_s = dict.fromkeys(self._reader.views_there, 0.0)
        self._next_processes_s = 0.0
        self._statements: dict[tuple[object, ...], CounterRow] = {}
        self._indexes: dict[tuple[object, object], CounterRow] = {}
        self._in_use = threading.Lock()

    def sample(self, *, reads_all: bool = False) -> Sample:
        """Return a sample of this moment. With `reads_all`, read every view, even if it is not due."""
        at_s = self._clock() - self._began_s
        self._note_free_space()
        due = [name for name, next_s in self._next_s.items() if reads_all or at_s >= next_s]
        with self._in_use:
            if set(SLOW).intersection(due):
                # A reload or a restart may have changed them.
                self.header = replace(self.header, settings=self._reader.read_settings())
                self._own_commits += 1
            seen = self._reader.read(views=due)
        self._own_commits += 1
        counters = dict(seen.counters)
        for name in due:
            every_s = _EVERY_S.get(name, self._counters_every_s)
            # Readings are due at multiples of `every_s` since the start, so that the delays of late ticks do not add
            # up.
            self._next_s[name] = (at_s // every_s + 1) * every_s
        if any(name != STATEMENTS for name in due):
            counters |= self._read_storage()
        if self._is_local and (reads_all or at_s >= self._next_processes_s):
            self._next_processes_s = (at_s // _RARELY_S + 1) * _RARELY_S
            counters |= self._read_processes()
        if STATEMENTS in counters:
            counters[STATEMENTS] = self._keep_changed(counters[STATEMENTS])
        if INDEX_READS in counters:
            counters[INDEX_READS] = self._keep_changed_indexes(counters[INDEX_READS])
        interval_s = at_s + self._began_s - self._last_s
        self._last_s = at_s + self._began_s
        return Sample(
            at_s=at_s,
            interval_s=interval_s,
            sessions=tuple(map(self._clean_session, seen.sessions)),
            progress=seen.progress,
            own_commits=self._own_commits,
            counters=counters,
            host_busy_cpus=self._measure_busy(self._last_s),
        )

    def reconnect(self) -> None:
        """Open a new session after the connection was lost."""
        with self._in_use:
            self._reader.close()
            connection = self._factory.connect(label="observe")
            try:
                self._reader, _ = open_reader(connection, is_aurora=self.header.flavour == "aurora")
            except BaseException:
                connection.close()
                raise
        self._next_s = dict.fromkeys(self._reader.views_there, 0.0)
        # The time without a session does not count for the next sample's interval.
        self._last_s, self._busy_s = self._clock(), busy_cpu_s()
        self._busy_at_s = self._last_s

    def close(self) -> None:
        """Close the session, unless another thread is using it to wait for the server.

        If this thread closed the socket then, a new connection could get the descriptor on which the other thread
        waits.
        """
        if self._in_use.acquire(blocking=False):
            try:
                self._reader.close()
            finally:
                self._in_use.release()

    def _open(
        self, interval_s: float, with_query_text: bool, given_cpus: int | None, facts: ServerFacts | None
    ) -> tuple[ActivityReader, RecordingHeader]:
        connection = self._factory.connect(label="observe")
        try:
            self._factory.refuse_pooler("watch a server")
            facts = facts or read_server_facts(connection)
            reader, unread = open_reader(connection, is_aurora=facts.is_aurora)
            cpus = cpu_count() if given_cpus is None and facts.is_local else given_cpus
            if not facts.is_local:
                unread = (*unread, Unread(what="the host's processors", why="the server is not on this machine"))
            header = RecordingHeader(
                started_at=datetime.now(tz=UTC).isoformat(timespec="milliseconds"),
                clock_ahead_s=read_moment(connection, time.time)[1].ahead_s,
                interval_s=interval_s,
                version=facts.version,
                version_num=facts.version_num,
                flavour="aurora" if facts.is_aurora else "postgresql",
                server=facts.address,
                database=facts.database,
                is_in_recovery=facts.is_in_recovery,
                cpu_count=cpus,
                has_query_text=with_query_text,
                settings=read_settings(connection),
                unread=unread,
            )
            self._devices = _find_devices(reader.read_directories()) if facts.is_local else {}
            flush_statistics(connection)
        except BaseException:
            connection.close()
            raise
        return reader, header

    def _clean_session(self, session: SessionSample) -> SessionSample:
        query = None if session.query is None else self._clean(session.query)
        cpu_s = process_cpu_s(session.pid) if self._sees_processes else None
        return replace(session, query=query, blocked_by=tuple(session.blocked_by), cpu_s=cpu_s)

    def _keep_changed(self, rows: Sequence[CounterRow]) -> tuple[CounterRow, ...]:
        """Return the statements that were called since the last reading, with the text that the recording keeps."""
        changed = []
        for row in rows:
            key = (row.get("userid"), row.get("dbid"), row.get("queryid"), row.get("toplevel"))
            kept = {**row, "query": self._clean(str(row.get("query") or ""))}
            before = self._statements.get(key)
            if before is None or before["calls"] != row["calls"]:
                self._statements[key] = kept
                changed.append(kept)
        return tuple(changed)

    def _keep_changed_indexes(self, rows: Sequence[CounterRow]) -> tuple[CounterRow, ...]:
        """Return the indexes whose counters have changed since the last reading."""
        now = {(row["schemaname"], row["indexrelname"]): row for row in rows}
        changed = tuple(row for key, row in now.items() if self._indexes.get(key) != row)
        self._indexes |= now
        return changed

    def _read_storage(self) -> dict[str, tuple[CounterRow, ...]]:
        devices, metrics = self._read_devices(), self._feeds.read_local_storage()
        found = {"host_devices": devices, LOCAL_STORAGE: () if metrics is None else (metrics,)}
        return {name: rows for name, rows in {**found, **self._feeds.take_late_points()}.items() if rows}

    def _note_free_space(self) -> None:
        """Record how much is free at each tick. A statement that fails on a full disk frees its space at once."""
        for tablespace, (path, _) in self._devices.items():
            if (space := measure_space(path)) is not None:
                self._least_free[tablespace] = min(space[0], self._least_free.get(tablespace, space[0]))

    def _read_devices(self) -> tuple[CounterRow, ...]:
        """Return the counters of the tablespaces' devices, with their free space."""
        rows = []
        # Several tablespaces may be on one device.
        found = {device: read_counters(device) for device in {device for _, device in self._devices.values()}}
        for tablespace, (path, device) in self._devices.items():
            counters, space = found[device], measure_space(path)
            if counters is not None and space is not None:
                free_bytes, size_bytes = space
                least = min(free_bytes, self._least_free.pop(tablespace, free_bytes))
                known = {"tablespace": tablespace, "device": device.name, "kind": device.kind}
                sizes = {"free_bytes": free_bytes, "least_free_bytes": least, "size_bytes": size_bytes}
                rows.append({**known, **asdict(counters), **sizes})
        return tuple(rows)

    def _read_processes(self) -> dict[str, tuple[CounterRow, ...]]:
        """Return the processor time of the server's processes and of all processes of this machine, if it is known."""
        own_s = server_cpu_s(self._reader.backend_pid)
        return {} if own_s is None else {PROCESSES: ({"server_cpu_s": own_s, "busy_cpu_s": busy_cpu_s()},)}

    def _measure_busy(self, now_s: float) -> float | None:
        """Return how many processors were busy since the last measurement. None if that was a moment ago."""
        elapsed_s = now_s - self._busy_at_s
        if not self._is_local or elapsed_s < _LEAST_BUSY_S:
            return None
        before_s, self._busy_s, self._busy_at_s = self._busy_s, busy_cpu_s(), now_s
        return (self._busy_s - before_s) / elapsed_s


def _find_devices(directories: Mapping[str, str]) -> dict[str, tuple[Path, Device]]:
    """Return the directory and the device of each tablespace whose device this process can see."""
    found = ((name, Path(directory), find_device(Path(directory))) for name, directory in directories.items())
    return {name: (path, device) for name, path, device in found if device is not None}


class Cleaner:
    """Removes literals from texts. It keeps the results, because most ticks see the same texts again."""

    # The most characters that are kept. With a track_activity_query_size of 1 MB, a few texts reach this number.
    _LIMIT_CHARACTERS = 16 * 1024 * 1024

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._characters = 0

    def __call__(self, text: str) -> str:
        """Return the text without its literals."""
        if text not in self._known:
            self._characters += len(text)
            if self._characters > self._LIMIT_CHARACTERS:
                self._known.clear()
                self._characters = len(text)
            self._known[text] = strip_literals(text)
        return self._known[text]


@contextmanager
def sampling_beside(sampler: Sampler, *, interval_s: float) -> Iterator[list[Sample]]:
    """Sample in a thread while the block runs, and once more at the end of the block.

    The context manager provides the list to which samples are added. It raises ServerError at the end of the block.
    """
    stop = threading.Event()
    samples: list[Sample] = []

    def sample() -> None:
        for each in sample_on_clock(sampler, interval=lambda: interval_s, stop=stop):
            samples.append(each)  # noqa: PERF402 (the block reads the list while it grows)

    with ThreadPoolExecutor(max_workers=1) as pool:
        sampling = pool.submit(sample)
        try:
            yield samples
        finally:
            stop.set()
        sampling.result()


def sample_on_clock(
    sampler: Sampler,
    *,
    interval: Callable[[], float],
    stop: threading.Event,
    for_s: float | None = None,
    on_lost: Callable[[PenstockError], None] = lambda _: None,
) -> Iterator[Sample]:
    """Yield a sample at each tick until `stop` is set or `for_s` seconds are over. The last sample reads all views.

    Missed ticks are skipped. Each sample has its real interval. `interval` is called before each tick. If the
    connection is lost, `on_lost` is called once and the connection is retried at each tick. Raises ServerError if a
    fault is not transient.
    """
    began_s = due_s = time.monotonic()
    is_lost = False
    while not stop.is_set() and (for_s is None or time.monotonic() - began_s < for_s):
        try:
            if is_lost:
                sampler.reconnect()
                is_lost = False
            yield sampler.sample()
        except PenstockError as error:
            if not error.is_transient:
                raise
            if not is_lost:
                on_lost(error)
            is_lost = True
        step_s = interval()
        due_s = max(due_s + step_s, time.monotonic())
        left_s = due_s - time.monotonic() if for_s is None else min(due_s, began_s + for_s) - time.monotonic()
        stop.wait(max(0.0, left_s))
    if not is_lost:
        try:
            last = sampler.sample(reads_all=True)
        except PenstockError as error:
            if not error.is_transient:
                raise
            on_lost(error)
        else:
            yield last
