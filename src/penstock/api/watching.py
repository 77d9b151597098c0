"""Opens a sampler for a server. AWS is asked for the CPUs, the limits and the local storage of an RDS instance."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from penstock.errors import AwsError, UsageError
from penstock.model.server.endpoints import is_rds_endpoint

if TYPE_CHECKING:
    from penstock.model.server.counters import CounterRow
    from penstock.model.server.device import VolumeLimits
    from penstock.model.server.rds import LocalStorageMetrics, RdsInstance
    from penstock.model.server.server import ServerFacts
    from penstock.observe.sampler import Sampler
    from penstock.server.connect.connection import ConnectionFactory

_log = logging.getLogger(__name__)


def ask_local_storage(host: str) -> LocalStorageMetrics | None:
    """Return CloudWatch's metrics of the local storage of an RDS endpoint; None if it has none. Raises AwsError."""
    from penstock.aws.metrics import read_local_storage  # noqa: PLC0415 (56 ms, botocore)

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
    from penstock.aws.metrics import read_late_points  # noqa: PLC0415 (56 ms, botocore)

    return read_late_points(host, since=since, now=datetime.now(UTC))


class LatePoints:
    """The metrics of an RDS instance. A background thread reads them once a minute; they are some minutes late.

    A row has its own time in measured_at. If AWS has completed a row later, it is returned again. There are no rows if
    AWS refuses.
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
        """Return the new rows since the last call, by the name under which a sample has them."""
        with self._lock:
            taken = {name: tuple(rows) for name, rows in self._new.items()}
            self._new.clear()
        return taken

    def _poll(self) -> None:
        while True:
            # AWS has no values for the first minute yet.
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
