"""A sampler for a server that is named as everywhere, with its processors where AWS knows them."""

from __future__ import annotations

import logging
import threading
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from penstock.api.rds import find_host
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
    """Return CloudWatch's metrics of the local storage behind an endpoint of RDS; None without. Raises AwsError."""
    from penstock.aws.metrics import read_local_storage  # noqa: PLC0415 (56 ms, botocore)

    return read_local_storage(host, now=datetime.now(UTC))


def open_sampler(
    factory: ConnectionFactory, *, to: str | None, interval_s: float, with_query_text: bool = False
) -> Sampler:
    """Return a sampler for what `factory` connects to; the caller closes it. Raises ServerError.

    `to` is what the factory was made from. Of an endpoint of RDS the processors and the local storage's metrics are
    asked of AWS, which need not answer. Needs pg_read_all_stats for what others' sessions do.
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
    """Return the endpoint of RDS that a connection string or the PG* variables name, if they do."""
    try:
        host = find_host(to)
    except UsageError:
        return None
    return host if is_rds_endpoint(host) else None


class LocalStorageFeed:
    """CloudWatch's metrics of an instance's local storage, asked for once a minute by a thread that nobody waits for.

    Where AWS does not tell, or there is no local storage, there are none.
    """

    def __init__(
        self, host: str, *, read: Callable[[str], LocalStorageMetrics | None] = ask_local_storage, every_s: float = 60.0
    ) -> None:
        self._host = host
        self._read = read
        self._every_s = every_s
        self._row: CounterRow | None = None
        # A daemon: it ends with the process, and AWS may never answer.
        threading.Thread(target=self._ask_again_and_again, name="local storage", daemon=True).start()

    def newest(self) -> CounterRow | None:
        """Return the newest metrics as a row of a recording: instance, measured_at, and each by its name."""
        return self._row

    def _ask_again_and_again(self) -> None:
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
