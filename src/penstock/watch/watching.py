"""Opens a sampler for a server, with AWS's figures for an RDS instance, and samples beside other work."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.core.connect.endpoints import is_rds_endpoint
from penstock.core.connect.errors import TOO_MANY_CONNECTIONS
from penstock.core.errors import AwsError, PenstockError, ServerError, SourceError, UsageError
from penstock.watch.kept import make_room

if TYPE_CHECKING:
    from penstock.core.connect.connection import ConnectionFactory
    from penstock.core.values.accounts import LoadCounts
    from penstock.core.values.device import CounterRow, VolumeLimits
    from penstock.core.values.server import ServerFacts
    from penstock.rds.values import LocalStorageMetrics, RdsInstance
    from penstock.watch.recordings import Recorder
    from penstock.watch.sampler import Sampler
    from penstock.watch.values import RecordingHeader, Sample

_log = logging.getLogger(__name__)

# How often to try to get a connection. Each attempt starts a backend. If no connection is free, it ends at once.
_PLACE_EVERY_S = 1.0


def ask_local_storage(host: str) -> LocalStorageMetrics | None:
    """Return CloudWatch's metrics of the local storage of an RDS endpoint; None if it has none. Raises AwsError."""
    from penstock.rds.metrics import read_local_storage  # noqa: PLC0415 (56 ms, botocore)

    return read_local_storage(host, now=datetime.now(UTC))


def open_sampler(
    factory: ConnectionFactory, *, to: str | None, interval_s: float, with_query_text: bool = False
) -> Sampler:
    """Return a sampler for the server that `factory` connects to. The caller closes it. Raises ServerError.

    `to` is the connection string that the factory was created from. If it names an RDS endpoint, AWS is asked for the
    number of CPUs, the limits of the storage and the metrics of local storage. If AWS does not answer, they are
    missing. Needs pg_read_all_stats to see what other roles' sessions do.
    """
    return open_sampler_at(factory, find_rds_host(to), interval_s=interval_s, with_query_text=with_query_text)


def open_sampler_at(
    factory: ConnectionFactory,
    host: str | None,
    *,
    interval_s: float,
    with_query_text: bool = False,
    application: str | None = None,
    facts: ServerFacts | None = None,
) -> Sampler:
    """Return a sampler as `open_sampler` does. `host` is the RDS endpoint, None if the server is not on RDS.

    If `application` is given, the workload to be diagnosed is the sessions whose application name starts with it.
    Otherwise the workload is all sessions.
    """
    from penstock.watch.sampler import AwsFeeds, KnownServer, Sampler  # noqa: PLC0415 (15 ms, short loads are not sampled)

    if host is None:
        known = KnownServer(application=application, facts=facts)
        return Sampler(factory, interval_s=interval_s, with_query_text=with_query_text, known=known)
    instance = _ask_instance(host)
    return Sampler(
        factory,
        interval_s=interval_s,
        with_query_text=with_query_text,
        known=KnownServer(
            cpu_count=None if instance is None else instance.instance_class.vcpu_count,
            volume=_find_limits(instance),
            application=application,
            facts=facts,
        ),
        feeds=AwsFeeds(read_local_storage=LocalStorageFeed(host).newest, take_late_points=LatePoints(host).take),
    )


def await_place(open_one: Callable[[], Sampler], *, for_s: float | None, say: Callable[[str], None]) -> Sampler:
    """Return the sampler that `open_one` opens. While all connections of the server are taken, retry once a second.

    Before the first retry, `say` is called. Raises ServerError if the server refuses for another reason, or if all
    connections are still taken after `for_s` seconds. The server gives a reserved
    connection by itself to a role that may use one.
    """
    began_s, is_told = time.monotonic(), False
    while True:
        try:
            return open_one()
        except ServerError as error:
            is_over = for_s is not None and time.monotonic() - began_s >= for_s
            if error.sqlstate != TOO_MANY_CONNECTIONS or is_over:
                raise
        if not is_told:
            say(
                "all connections of the server are taken: waiting for one. A superuser, or from PostgreSQL 16 on a "
                "member of pg_use_reserved_connections, gets a reserved one"
            )
        is_told = True
        time.sleep(_PLACE_EVERY_S)


def find_rds_host(to: str | None) -> str | None:
    """Return the RDS endpoint that a connection string or the PG* variables name, None if they name none."""
    from penstock.rds.describe import read_host  # noqa: PLC0415 (60 ms, botocore)

    try:
        host = read_host(to)
    except UsageError:
        return None
    return host if is_rds_endpoint(host) else None


def _start(poll: Callable[[], None], name: str) -> None:
    """Poll AWS in a daemon thread until AWS refuses. The process can exit while AWS does not answer."""

    def run() -> None:
        try:
            poll()
        except AwsError as error:
            _log.info("%s: %s", error.message, error.detail)

    threading.Thread(target=run, name=name, daemon=True).start()


class LocalStorageFeed:
    """CloudWatch's metrics of an instance's local storage, which a background thread reads once a minute.

    There are no metrics if AWS refuses, or if the instance has no local storage.
    """

    def __init__(
        self, host: str, *, read: Callable[[str], LocalStorageMetrics | None] = ask_local_storage, every_s: float = 60.0
    ) -> None:
        self._host = host
        self._read = read
        self._every_s = every_s
        self._row: CounterRow | None = None
        _start(self._poll, "local storage")

    def newest(self) -> CounterRow | None:
        """Return the newest metrics as a row of a recording: instance, measured_at, and one value for each metric."""
        return self._row

    def _poll(self) -> None:
        while (found := self._read(self._host)) is not None:
            self._row = {"instance": found.instance, "measured_at": found.measured_at, **found.values}
            time.sleep(self._every_s)


def ask_late_points(host: str, since: datetime) -> Mapping[str, Sequence[CounterRow]]:
    """Return the values since a time that CloudWatch and Performance Insights have of an RDS endpoint.

    Raises AwsError.
    """
    from penstock.rds.metrics import read_late_points  # noqa: PLC0415 (56 ms, botocore)

    return read_late_points(host, since=since, now=datetime.now(UTC))


class LatePoints:
    """The metrics of an RDS instance. A background thread reads them once a minute; they are some minutes late.

    The column measured_at of a row has the time of its values. If AWS completes a row later, the row is returned again.
    There are no rows if AWS refuses.
    """

    def __init__(
        self,
        host: str,
        *,
        read: Callable[[str, datetime], Mapping[str, Sequence[CounterRow]]] = ask_late_points,
        every_s: float = 60.0,
    ) -> None:
        self._host = host
        self._read = read
        self._every_s = every_s
        self._since = datetime.now(UTC)
        self._lock = threading.Lock()
        self._new: dict[str, list[CounterRow]] = {}
        self._seen: dict[str, Sequence[CounterRow]] = {}
        _start(self._poll, "late points")

    def take(self) -> dict[str, tuple[CounterRow, ...]]:
        """Return the rows that arrived since the last call, by the name under which a sample has them."""
        with self._lock:
            taken = {name: tuple(rows) for name, rows in self._new.items()}
            self._new.clear()
        return taken

    def _poll(self) -> None:
        while True:
            # At first, wait: AWS has no values yet for the first minute.
            time.sleep(self._every_s)
            try:
                found = self._read(self._host, self._since)
            except AwsError as error:
                if not error.is_transient:
                    raise
                _log.info("%s: %s", error.message, error.detail)
                found = {}
            for name, rows in found.items():
                new = [row for row in rows if row not in self._seen.get(name, ())]
                self._seen[name] = rows
                if new:
                    with self._lock:
                        self._new.setdefault(name, []).extend(new)


def _ask_instance(host: str) -> RdsInstance | None:
    from penstock.rds.describe import BriefQuestion  # noqa: PLC0415 (56 ms, botocore)

    found = BriefQuestion(host, now=datetime.now(UTC)).answer()
    return None if found is None else found.instance


def _find_limits(instance: RdsInstance | None) -> VolumeLimits | None:
    if instance is None or instance.storage is None:
        return None
    from penstock.rds.volumes import find_volume_limits  # noqa: PLC0415 (5 ms, for servers on RDS)

    return find_volume_limits(instance.storage, instance.instance_class.ebs)


# A load is sampled only if it runs longer than this. Opening the sampler takes 40 ms of processor time on this host and
# on the server together, which is 1 % of what two sessions use in this time.
_AFTER_S = 2.0

# There are five samples a second for the first 20 s, then fewer, and one a second from 100 s on. More samples would
# cost a short load more than 1 % of its processor time (benchmarks/recording_cost.py).
SHORTEST_S, _LONGEST_S, _SAMPLES_BEFORE_THINNING = 0.2, 1.0, 100

# How long the end of a load waits for the last sample, for example if the server no longer answers.
_PATIENCE_S = 2.0


class SamplerThread:
    """A thread that samples a server, writes the samples to a new file, and calls `see` with each of them.

    An error of sampling does not end the load.

    Needs a free connection, and pg_read_all_stats to see other roles' sessions.
    """

    def __init__(
        self,
        open_sampler: Callable[[], Sampler],
        *,
        # The file of the recording, None for a new one in the folder. If a path is given, `on_notice` also gets the
        # reason why the server cannot be sampled.
        path: Path | None,
        folder: Path,
        # Called in the thread with the header and each sample.
        see: Callable[[RecordingHeader, Sample], None],
        # Called with the reason why the file cannot be written. Sampling continues without the file.
        on_notice: Callable[[str], None],
    ) -> None:
        self._open_sampler = open_sampler
        self._path = path
        self._folder = folder
        self._see = see
        self._notice = on_notice
        # If the caller asks for a recording, short loads are recorded too.
        self._after_s = _AFTER_S if path is None else 0.0
        self._count: Callable[[], LoadCounts | None] = lambda: None
        self._stop = threading.Event()
        # A daemon thread lets the process exit while the server does not answer.
        self._thread = threading.Thread(target=self._run, name="recording", daemon=True)
        self._thread.start()

    def stop(self, count: Callable[[], LoadCounts | None] = lambda: None) -> bool:
        """End the sampling. If there is a recording, add the loader's counts, which `count` returns.

        Returns false if the sampling has not ended, because the server does not answer.
        """
        self._count = count
        self._stop.set()
        self._thread.join(_PATIENCE_S)
        return not self._thread.is_alive()

    def _run(self) -> None:
        if self._stop.wait(self._after_s):
            return
        try:
            self._sample()
        except PenstockError as error:
            if self._path is None:
                _log.info("the load is not sampled: %s", error)
            else:
                self._notice(f"{error.message}: the load goes on without a recording")

    def _sample(self) -> None:
        from penstock.watch.sampler import sample_on_clock  # noqa: PLC0415 (in this thread, not at a load's start)

        with closing(self._open_sampler()) as sampler, self._recording(sampler.header) as write:
            began_s = time.monotonic()

            def interval() -> float:
                return thin(time.monotonic() - began_s)

            for sample in sample_on_clock(sampler, interval=interval, stop=self._stop):
                self._see(sampler.header, sample)
                write(sample)

    @contextmanager
    def _recording(self, header: RecordingHeader) -> Iterator[Callable[[Sample], None]]:
        """Provide a function that writes samples to the file. After an error of the file the function does nothing."""
        from penstock.watch.recordings import Recorder  # noqa: PLC0415 (in this thread, not at a load's start)

        recorder: Recorder | None = None

        def attempt(act: Callable[[], Recorder | None]) -> None:
            nonlocal recorder
            try:
                recorder = act()
            except SourceError as error:
                recorder = None
                self._notice(f"{error.message}: the load goes on without a recording")

        def open_file() -> Recorder:
            if self._path is not None:
                return Recorder(self._path, header)
            with make_room(self._folder, datetime.now(UTC)) as (name, opened):
                return Recorder(self._folder / name, header, folder=opened)

        def write(sample: Sample) -> Recorder | None:
            if recorder is not None:
                recorder.write(sample)
            return recorder

        def close() -> None:
            if recorder is not None:
                if (counts := self._count()) is not None:
                    recorder.write_load(counts)
                recorder.__exit__(None, None, None)

        attempt(open_file)
        yield lambda sample: attempt(lambda: write(sample))
        attempt(close)


def thin(elapsed_s: float) -> float:
    """Return the seconds until the next sample.

    >>> thin(3), thin(50), thin(3600)
    (0.2, 0.5, 1.0)
    """
    return min(_LONGEST_S, max(SHORTEST_S, elapsed_s / _SAMPLES_BEFORE_THINNING))
