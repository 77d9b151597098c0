"""A sampler for a server that is named as everywhere, with its processors where AWS knows them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from penstock.api.rds import find_host
from penstock.errors import UsageError
from penstock.model.server.endpoints import is_rds_endpoint
from penstock.observe import Sampler

if TYPE_CHECKING:
    from penstock.server.connect.connection import ConnectionFactory


def open_sampler(
    factory: ConnectionFactory, *, to: str | None, interval_s: float, with_query_text: bool = False
) -> Sampler:
    """Return a sampler for what `factory` connects to; the caller closes it. Raises ServerError.

    `to` is what the factory was made from. Of an endpoint of RDS the processors are asked of AWS, which need not
    answer. Needs pg_read_all_stats for what others' sessions do.
    """
    return Sampler(factory, interval_s=interval_s, with_query_text=with_query_text, cpu_count=_ask_cpu_count(to))


def _ask_cpu_count(to: str | None) -> int | None:
    try:
        host = find_host(to)
    except UsageError:
        return None
    if not is_rds_endpoint(host):
        return None
    from penstock.aws.quick import ask_briefly  # noqa: PLC0415 (56 ms, botocore)

    found = ask_briefly(host, now=datetime.now(UTC))
    return None if found is None or found.instance is None else found.instance.instance_class.vcpu_count
