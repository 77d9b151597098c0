"""Opens a sampler for a server. For RDS, AWS is asked for the number of CPUs and the metrics of local storage."""

from __future__ import annotations

import logging
import threading
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from penstock.api.rds.describe import find_host
from penstock.errors import AwsError, UsageError
from penstock.model.server.endpoints import is_rds_endpoint
from penstock.observe import Sampler

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.model.recording import CounterRow
    from penstock.model.server.rds import LocalStorageMetrics
    from penstock.server.connect.connection import ConnectionFactory

_log = logging.getLogger(__name__)


def ask_local_storage(host: str) -> LocalStorageMetrics | None:
    """Return CloudWatch's metrics of the local storage of an RDS endpoint; None if it has none. Raises AwsError."""
    from penstock.aws.metrics import read_local_storage  # noqa: PLC0415 (56 ms, botocore)

    return read_local_storage(host, now=datetime.now(UTC))


def open_sampler(
    factory: ConnectionFactory, *, to: str | None, interval_s: float, with_query_text: bool = False
) -> Sampler:
    """Return a sampler for the server that `factory` connects to; the caller closes it. Raises ServerError.

    `to` is the connection string that the factory was made from. If it names an RDS endpoint, AWS is asked for the
    number of CPUs and for the metrics of local storage; both are left out if AWS does not answer. Needs
    pg_read_all_stats to see what other roles' sessions do.
    """
    host = find_rds_host(to)
    if host is None:
        return Sampler(factory, interval_s=interval_s, with_query_text=with_query_text)
    return Sampler(
        factory,
        interval_s=interval_s,
        with_query_text=with_query_text,
        cpu_count=_ask_cpu_count(host),
        read_local_storage=LocalStorageFeed(host).newest,
    )


def find_rds_host(to: str | None) -> str | None:
    """Return the RDS endpoint that a connection string or the PG* variables name, None if they name none."""
    try:
        host = find_host(to)
    except UsageError:
        return None
    return host if is_rds_endpoint(host) else None


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
        # A daemon thread, so that the process can exit while AWS does not answer.
        threading.Thread(target=self._poll, name="local storage", daemon=True).start()

    def newest(self) -> CounterRow | None:
        """Return the newest metrics as a row of a recording: instance, measured_at, and one value for each metric."""
        return self._row

    def _poll(self) -> None:
        while True:
            try:
                found = self._read(self._host)
            except AwsError as error:
                _log.info("%s: %s", error.message, error.detail)
                return
            if found is None:
                return
            self._row = {"instance": found.instance, "measured_at": found.measured_at, **found.values}
            time.sleep(self._every_s)


def _ask_cpu_count(host: str) -> int | None:
    from penstock.aws.quick import ask_briefly  # noqa: PLC0415 (56 ms, botocore)

    found = ask_briefly(host, now=datetime.now(UTC))
    return None if found is None or found.instance is None else found.instance.instance_class.vcpu_count
