"""Reads a server on a clock: sessions at every tick, statistics views once a second, statements every ten.

What the samples mean is diagnose's to say. The sampler leaves itself out of its samples, and counts its transactions,
which the server counts with the others'.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import PenstockError
from penstock.host import busy_cpu_s, cpu_count, find_device, measure_disk, process_cpu_s, read_counters
from penstock.model.recording import LOCAL_STORAGE, RecordingHeader, Sample
from penstock.model.server.inspection import Unread
from penstock.observe.statements import strip_literals
from penstock.server.facts.facts import read_server_facts
from penstock.server.inspect.activity import STATEMENTS, ActivityReader, flush_statistics, open_reader
from penstock.server.inspect.inspect import read_moment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from penstock.model.recording import CounterRow, SessionSample
    from penstock.model.server.device import Device
    from penstock.server.connect.connection import ConnectionFactory

# What a view shows arrives once a second: sessions report what they did no more often than that.
_COUNTERS_EVERY_S = 1.0
# Its rows may be thousands.
_STATEMENTS_EVERY_S = 10.0


class Sampler:
    """Samples one server; `header` says what it is. Raises ServerError, as do all its methods.

    `cpu_count` is the server's where its caller knows it, `read_local_storage` the newest of its local storage's
    metrics, which must not wait. Needs pg_read_all_stats for what others' sessions do;
    `header.unread` says what could not be read. Not through a pooler, which would hand out another backend each time.
    """

    def __init__(
        self,
        factory: ConnectionFactory,
        *,
        interval_s: float,
        with_query_text: bool = False,
        cpu_count: int | None = None,
        read_local_storage: Callable[[], CounterRow | None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._factory = factory
        self._devices: Mapping[str, tuple[Path, Device]] = {}
        self._clean = (lambda text: text) if with_query_text else Cleaner()
        self._clock = clock
        self._read_local_storage = read_local_storage
        self._reader, self.header = self._open(interval_s, with_query_text, cpu_count)
        self._is_local = self.header.cpu_count is not None and cpu_count is None
        self._began_s = self._last_s = clock()
        self._busy_s = busy_cpu_s()
        self._own_commits = 0
        self._next_s = dict.fromkeys(self._reader.views_there, 0.0)
        self._statements: dict[tuple[object, ...], CounterRow] = {}
        self._in_use = threading.Lock()

    def sample(self, *, reads_all: bool = False) -> Sample:
        """Return what is going on now; `reads_all` asks every view, due or not, as at the end of a recording."""
        at_s = self._clock() - self._began_s
        due = [name for name, next_s in self._next_s.items() if reads_all or at_s >= next_s]
        with self._in_use:
            seen = self._reader.read(views=due)
        self._own_commits += 1
        counters = dict(seen.counters)
        for name in due:
            every_s = _STATEMENTS_EVERY_S if name == STATEMENTS else _COUNTERS_EVERY_S
            # By the clock, not from now: ticks that come late do not add up.
            self._next_s[name] = (at_s // every_s + 1) * every_s
        if any(name != STATEMENTS for name in due):
            counters |= self._read_storage()
        if STATEMENTS in counters:
            counters[STATEMENTS] = self._keep_changed(counters[STATEMENTS])
        interval_s = at_s + self._began_s - self._last_s
        self._last_s = at_s + self._began_s
        return Sample(
            at_s=at_s,
            interval_s=interval_s,
            sessions=tuple(map(self._clean_session, seen.sessions)),
            progress=seen.progress,
            own_commits=self._own_commits,
            counters=counters,
            host_busy_cpus=self._measure_busy(interval_s),
        )

    def reconnect(self) -> None:
        """Go on over a new session, after one that was lost."""
        with self._in_use:
            self._reader.close()
            connection = self._factory.connect(label="observe")
            try:
                self._reader, _ = open_reader(connection, is_aurora=self.header.flavour == "aurora")
            except BaseException:
                connection.close()
                raise
        self._next_s = dict.fromkeys(self._reader.views_there, 0.0)
        # Nothing was seen meanwhile: the next sample does not stand for that time.
        self._last_s, self._busy_s = self._clock(), busy_cpu_s()

    def close(self) -> None:
        """End the session, unless another thread waits in it for the server: its socket may be another's by then."""
        if self._in_use.acquire(blocking=False):
            try:
                self._reader.close()
            finally:
                self._in_use.release()

    def _open(
        self, interval_s: float, with_query_text: bool, given_cpus: int | None
    ) -> tuple[ActivityReader, RecordingHeader]:
        connection = self._factory.connect(label="observe")
        try:
            self._factory.refuse_pooler("watch a server")
            facts = read_server_facts(connection)
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
                settings=reader.read_settings(),
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
        cpu_s = process_cpu_s(session.pid, named="postgres") if self._is_local else None
        return replace(session, query=query, blocked_by=tuple(session.blocked_by), cpu_s=cpu_s)

    def _keep_changed(self, rows: Sequence[CounterRow]) -> tuple[CounterRow, ...]:
        """Return the statements that were called since they were read last, their text as it is kept."""
        changed = []
        for row in rows:
            key = (row.get("userid"), row.get("dbid"), row.get("queryid"), row.get("toplevel"))
            kept = {**row, "query": self._clean(str(row.get("query") or ""))}
            before = self._statements.get(key)
            if before is None or before["calls"] != row["calls"]:
                self._statements[key] = kept
                changed.append(kept)
        return tuple(changed)

    def _read_storage(self) -> dict[str, tuple[CounterRow, ...]]:
        devices, metrics = self._read_devices(), self._read_local_storage()
        found = {"host_devices": devices, LOCAL_STORAGE: () if metrics is None else (metrics,)}
        return {name: rows for name, rows in found.items() if rows}

    def _read_devices(self) -> tuple[CounterRow, ...]:
        """Return the counters of the devices below the tablespaces, with what is free there."""
        rows = []
        for tablespace, (path, device) in self._devices.items():
            counters, disk = read_counters(device), measure_disk(path)
            if counters is not None and disk is not None:
                space = {"free_bytes": disk.free_bytes, "size_bytes": disk.size_bytes}
                known = {"tablespace": tablespace, "device": device.name, "kind": device.kind}
                rows.append({**known, **asdict(counters), **space})
        return tuple(rows)

    def _measure_busy(self, interval_s: float) -> float | None:
        if not self._is_local or interval_s <= 0:
            return None
        before_s, self._busy_s = self._busy_s, busy_cpu_s()
        return (self._busy_s - before_s) / interval_s


def _find_devices(directories: Mapping[str, str]) -> dict[str, tuple[Path, Device]]:
    """Return the directories of tablespaces and their devices, where this process may see them."""
    found = ((name, Path(directory), find_device(Path(directory))) for name, directory in directories.items())
    return {name: (path, device) for name, path, device in found if device is not None}


class Cleaner:
    """strip_literals, which remembers the texts of late: the same ones are seen at every tick."""

    # With a track_activity_query_size of 1 MB a few texts are many bytes.
    _LIMIT_CHARACTERS = 16 * 1024 * 1024

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._characters = 0

    def __call__(self, text: str) -> str:
        """Return a text without its literals."""
        if text not in self._known:
            self._characters += len(text)
            if self._characters > self._LIMIT_CHARACTERS:
                self._known.clear()
                self._characters = len(text)
            self._known[text] = strip_literals(text)
        return self._known[text]


@contextmanager
def sampling_beside(sampler: Sampler, *, interval_s: float) -> Iterator[list[Sample]]:
    """Sample in a thread while the block runs, and once more at its end; provides the samples, of which more come.

    Raises ServerError, at the end of the block.
    """
    stop = threading.Event()
    samples: list[Sample] = []

    def sample() -> None:
        for each in sample_on_clock(sampler, interval=lambda: interval_s, stop=stop):
            samples.append(each)  # noqa: PERF402 (seen one by one by who watches the list)

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
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Sample]:
    """Yield a sample at each tick until `stop` is set or `for_s` are over, and one more of all views at the end.

    Ticks that were missed are left out, so that the real interval is the sample's own. `interval` is asked before each.
    A connection that is lost is reported to `on_lost`, once, and tried again at each tick. Raises ServerError for what
    will not pass.
    """
    began_s = due_s = clock()
    is_lost = False
    while not stop.is_set() and (for_s is None or clock() - began_s < for_s):
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
        due_s = max(due_s + step_s, clock())
        left_s = due_s - clock() if for_s is None else min(due_s, began_s + for_s) - clock()
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
