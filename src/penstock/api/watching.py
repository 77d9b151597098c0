"""Opens a sampler for a server, and watches loads. AWS is asked for the CPUs and the local storage of RDS."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from penstock.errors import AwsError, UsageError
from penstock.host.interrupts import holding_interrupts
from penstock.model.load.accounts import LoadCounts
from penstock.model.server.endpoints import is_rds_endpoint
from penstock.observe.beside import SHORTEST_S, Beside
from penstock.observe.kept import recordings_folder

if TYPE_CHECKING:
    from penstock.diagnose.examination import Examination
    from penstock.model.load.job import Housekeeping
    from penstock.model.load.outcome import LoadOutcome
    from penstock.model.load.plan import LoadPlan
    from penstock.model.recording import CounterRow, RecordingHeader, Sample
    from penstock.model.server.device import VolumeLimits
    from penstock.model.server.rds import LocalStorageMetrics, RdsInstance
    from penstock.model.server.server import ServerFacts
    from penstock.observe.sampler import Sampler
    from penstock.server.connect.connection import ConnectionFactory

_log = logging.getLogger(__name__)

# So many free connections must be left beside those of a load before one of them is used to sample the server.
_SPARE_CONNECTIONS = 3

# The beginning of the application names of a load's sessions.
_APPLICATION = "penstock"


def ask_local_storage(host: str) -> LocalStorageMetrics | None:
    """Return CloudWatch's metrics of the local storage of an RDS endpoint; None if it has none. Raises AwsError."""
    from penstock.aws.metrics import read_local_storage  # noqa: PLC0415 (56 ms, botocore)

    return read_local_storage(host, now=datetime.now(UTC))


def open_sampler(
    factory: ConnectionFactory, *, to: str | None, interval_s: float, with_query_text: bool = False
) -> Sampler:
    """Return a sampler for the server that `factory` connects to; the caller closes it. Raises ServerError.

    `to` is the connection string that the factory was made from. If it names an RDS endpoint, AWS is asked for the
    number of CPUs, the limits of the storage and the metrics of local storage; they are left out if AWS does not
    answer. Needs pg_read_all_stats to see what other roles' sessions do.
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
    """Return a sampler as `open_sampler` does; `host` is the RDS endpoint, None if the server is not on RDS.

    If `application` is given, only sessions whose application name starts with it count as the workload to be
    diagnosed; without it, all sessions do.
    """
    from penstock.observe.sampler import Sampler  # noqa: PLC0415 (15 ms, short loads are not sampled)

    if host is None:
        return Sampler(
            factory, interval_s=interval_s, with_query_text=with_query_text, application=application, facts=facts
        )
    instance = _ask_instance(host)
    return Sampler(
        factory,
        application=application,
        facts=facts,
        interval_s=interval_s,
        with_query_text=with_query_text,
        cpu_count=None if instance is None else instance.instance_class.vcpu_count,
        read_local_storage=LocalStorageFeed(host).newest,
        take_late_points=LatePoints(host).take,
        volume=_find_limits(instance),
    )


def find_rds_host(to: str | None) -> str | None:
    """Return the RDS endpoint that a connection string or the PG* variables name, None if they name none."""
    from penstock.api.rds.describe import find_host  # noqa: PLC0415 (60 ms, botocore)

    try:
        host = find_host(to)
    except UsageError:
        return None
    return host if is_rds_endpoint(host) else None


def _start(poll: Callable[[], None], name: str) -> None:
    """Poll AWS in a daemon thread, so that the process can exit while AWS does not answer; end if AWS refuses."""

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
    """Return what CloudWatch and Performance Insights have of an RDS endpoint since a time. Raises AwsError."""
    from penstock.aws.metrics import read_late_points  # noqa: PLC0415 (56 ms, botocore)

    return read_late_points(host, since=since, now=datetime.now(UTC))


class LatePoints:
    """The metrics of an RDS instance, which a background thread reads once a minute; they are some minutes late.

    A row has its own time in measured_at. A row that AWS has completed later is taken again. There are none if AWS
    refuses.
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
        """Return the rows that are new since the last call, by the name that a sample has them under."""
        with self._lock:
            taken = {name: tuple(rows) for name, rows in self._new.items()}
            self._new.clear()
        return taken

    def _poll(self) -> None:
        while True:
            # AWS has nothing of the first minute yet.
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
    from penstock.aws.quick import ask_briefly  # noqa: PLC0415 (56 ms, botocore)

    found = ask_briefly(host, now=datetime.now(UTC))
    return None if found is None else found.instance


def _find_limits(instance: RdsInstance | None) -> VolumeLimits | None:
    if instance is None or instance.storage is None:
        return None
    from penstock.storage.limits import find_volume_limits  # noqa: PLC0415 (5 ms, for servers on RDS)

    return find_volume_limits(instance.storage, instance.instance_class.ebs)


class LoadWatch:
    """Samples a server while a load runs, keeps the recording, and says what limited the load.

    The recording is written to the file that --record names, or to the user's folder, which keeps 20. The server is not
    sampled if its free connections are not many more than the load's own.
    """

    def __init__(self, connect: ConnectionFactory, plan: LoadPlan, *, server: ServerFacts, house: Housekeeping) -> None:
        self._connect = connect
        self._plan = plan
        self._server = server
        self._house = house
        self._path = house.record
        is_scarce = server.free_connections < plan.sessions.maximum + _SPARE_CONNECTIONS
        self._is_on = not house.no_record and not is_scarce and bool(plan.targets)
        self._header: RecordingHeader | None = None
        self._examination: Examination | None = None
        # Samples that are not in the examination yet: a load that gets no verdict does without it.
        self._waiting: list[Sample] = []

    def run(self, load: Callable[[], LoadOutcome], on_notice: Callable[[str], None]) -> LoadOutcome:
        """Call `load` and sample in a thread meanwhile, and return its outcome with what limited it.

        No error of the sampling reaches the load.
        """
        if not self._is_on:
            return self._judge(load(), is_sampled=False)
        beside = Beside(
            self._open_sampler,
            path=self._path,
            folder=recordings_folder(os.environ),
            see=self._see,
            on_notice=on_notice,
        )
        outcome: LoadOutcome | None = None
        try:
            outcome = load()
        finally:
            # An interrupt changes nothing of a load that has ended, and would hide what the load reports.
            with holding_interrupts(limit=1) as interrupts:
                # A thread that has not stopped may still add samples.
                is_sampled = beside.stop(partial(self._count, outcome))
                interrupts.drop()
        return self._judge(outcome, is_sampled=is_sampled)

    def _count(self, outcome: LoadOutcome | None) -> LoadCounts | None:
        if outcome is None or outcome.accounts is None:
            return None
        from penstock.api.details import describe_load  # noqa: PLC0415 (short loads do not need it)
        from penstock.diagnose.load import find_setting  # noqa: PLC0415 (with the line above)

        details = describe_load(self._plan, outcome)
        setting = find_setting(self._plan, self._house, outcome.accounts, is_recorded=self._is_on)
        return LoadCounts(accounts=outcome.accounts, setting=setting, details=details)

    def _judge(self, outcome: LoadOutcome, *, is_sampled: bool) -> LoadOutcome:
        """Return the outcome of a load with the verdict on it; a short or small load has none."""
        if outcome.accounts is None or outcome.accounts.elapsed_s < self._plan.tuning.least_verdict_s:
            return outcome
        from penstock.diagnose.load import (  # noqa: PLC0415 (short loads do not need it)
            LoadCase,
            find_verdict,
            judge_load,
        )

        counts = self._count(outcome)
        assert counts is not None
        header = self._header if is_sampled else None
        findings = None if header is None else self._examine(header).conclude(counts)
        cpu_count = None if header is None else header.cpu_count
        found = judge_load(LoadCase(counts=counts, findings=findings, cpu_count=cpu_count))
        return replace(outcome, diagnoses=find_verdict(found, outcome.accounts, self._plan.tuning))

    def _open_sampler(self) -> Sampler:
        host, _, _ = self._server.host.rpartition(":")
        rds_host = host if is_rds_endpoint(host) else None
        return open_sampler_at(
            self._connect, rds_host, interval_s=SHORTEST_S, application=_APPLICATION, facts=self._server
        )

    def _see(self, header: RecordingHeader, sample: Sample) -> None:
        self._header = header
        self._waiting.append(sample)
        if sample.at_s >= self._plan.tuning.least_verdict_s:
            self._examine(header)

    def _examine(self, header: RecordingHeader) -> Examination:
        """Return the examination of all samples so far."""
        from penstock.diagnose.examination import Examination  # noqa: PLC0415 (short loads do not need it)

        self._examination = self._examination or Examination(header)
        for sample in self._waiting:
            self._examination.see(sample)
        self._waiting.clear()
        return self._examination
