"""Reports a server's temporary work within an interval: which statements spill and why, and to which tablespaces.

It also reports the devices of the tablespaces.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.core.catalogue.facts import read_server_facts
from penstock.core.connect.texts import receive_any_text
from penstock.core.errors import AwsError
from penstock.temp.statements import begins_to_read
from penstock.temp.usage.compare import compare_readings, find_logged, find_use_case
from penstock.temp.usage.read import explain_kept, find_routes, look_at_devices, read_log_end, read_usage, strip_explain
from penstock.watch.watching import ask_local_storage

if TYPE_CHECKING:
    from penstock.core.aws.values import LocalStorageMetrics
    from penstock.core.connect.connection import Connection, ConnectionFactory
    from penstock.temp.usage.values import StatementUse, UsageReading, UsageReport


def temp_usage(
    to: ConnectionFactory,
    *,
    interval_s: float = 60.0,
    top: int = 10,
    host: str | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> UsageReport:
    """Return what temporary work a server does within an interval; 0 means since its statistics were reset.

    Changes nothing. Statements need pg_stat_statements. Statements of other roles, and files on disk, need pg_monitor.
    Devices are read if the server is on this machine. If `host` (an endpoint of RDS) is given, CloudWatch is asked for
    the metrics of local storage. Raises ServerError.
    """
    with closing(to.connect(label="usage")) as connection:
        facts = read_server_facts(connection)
        receive_any_text(connection)
        before = _read(connection, is_local=facts.is_local)
        after = before
        if interval_s:
            say(f"watching for {interval_s:g} s")
            time.sleep(interval_s)
            after = _read(connection, is_local=facts.is_local)
        report = compare_readings(before, after, top=top)
        explained = tuple(_explain(connection, each, facts.user, facts.database) for each in report.statements)
        missing: list[str] = []
        log = read_log_end(connection, missing=missing)
    return replace(
        report,
        statements=explained,
        log_path=None if log is None else log.path,
        logged=() if log is None else find_logged(log, top=top),
        local_storage=None if host is None else _ask_local_storage(host, missing=missing),
        missing=(*report.missing, *missing),
    )


def _ask_local_storage(host: str, *, missing: list[str]) -> LocalStorageMetrics | None:
    try:
        return ask_local_storage(host)
    except AwsError as error:
        missing.append(f"CloudWatch's metrics of local storage: {error.message}")
        return None


def _read(connection: Connection, *, is_local: bool) -> UsageReading:
    reading = read_usage(connection)
    return replace(
        reading,
        routes=tuple(find_routes(reading.settings, reading.tablespaces, session=reading.temp_tablespaces)),
        devices=tuple(look_at_devices(reading.tablespaces)) if is_local else (),
    )


def _explain(connection: Connection, use: StatementUse, user: str, database: str) -> StatementUse:
    """Return a statement with the reason why it spills, according to its plan, or why it was not planned.

    Only this role's own statements are planned, because planning runs immutable functions with this role's rights.
    """
    query = strip_explain(use.query)
    if use.role != user:
        return replace(use, unplanned="it is another role's")
    if use.database != database:
        return replace(use, unplanned="it is another database's")
    if not begins_to_read(query):
        return replace(use, unplanned="it is not one that only reads")
    plan = explain_kept(connection, query)
    if plan is None:
        return replace(use, unplanned="the server cannot plan its text")
    return replace(use, use_case=find_use_case(use, plan))
