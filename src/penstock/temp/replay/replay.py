"""Replays statements of a file or of pg_stat_statements, with temporary work in one tablespace, then another."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.core.connect.endpoints import is_rds_endpoint
from penstock.core.connect.errors import translate_errors
from penstock.core.errors import AwsError, PenstockError, SourceError, UsageError
from penstock.core.sql import fetch_one, fetch_rows
from penstock.core.values.temp_place import DEFAULT_TABLESPACE, parse_name
from penstock.core.words import hide_secrets
from penstock.rds.findings import describe_silence
from penstock.temp.copies import CopyFacts, judge_copy
from penstock.temp.replay.blocks import find_tables, read_tables
from penstock.temp.replay.run import (
    NOT_ALLOWED,
    ReplayRequest,
    ReplaySession,
    find_top_statements,
    open_place,
    read_totals,
    replay,
)
from penstock.temp.statements import check_places, pair_totals, refuse_unreadable, split_statements, why_not
from penstock.temp.values import ReplayResult, Skipped, StatementTotals

if TYPE_CHECKING:
    from penstock.core.connect.connection import Connection, ConnectionFactory
    from penstock.core.values.diagnosis import Diagnosis
    from penstock.rds.values import RdsDescription


def replay_statements(
    to: ConnectionFactory,
    *,
    sql: Path | None = None,
    top: int | None = None,
    setup: Path | None = None,
    concurrencies: Sequence[int] = (1, 2, 4),
    rounds: int = 5,
    seed: int | None = None,
    timeout_s: float = 600.0,
    place: str | None = None,
    against: ConnectionFactory | None = None,
    allows_superuser: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> ReplayResult:
    """Return how long statements take with their temporary files in pg_default, and in a second tablespace.

    The statements are those of file `sql`, or the `top` that spill most. `place` is the second tablespace, by default
    the role's temp_tablespaces. With `against`, they run on both servers, each with its own temp_tablespaces; the
    result has what makes the servers comparable or not. If the second is a copy of the first, the statements' tables
    are read there before. Each runs in as many sessions at once as each of `concurrencies` says, after the statements
    of file `setup`. `seed` draws the order of the tablespaces in each round. A statement is cancelled after `timeout_s`
    seconds. `say` is called with the progress. Raises UsageError if both tablespaces are the same or if a statement
    does more than read. Raises SourceError, TargetError, ServerError.
    """
    statements, skipped = _choose_statements(to, sql, top)
    first = open_place(to, None if against is not None else DEFAULT_TABLESPACE, allows_superuser=allows_superuser)
    second_name = None if place is None else parse_name(place)
    second = open_place(against or to, second_name, allows_superuser=allows_superuser)
    totals: list[StatementTotals] = []
    checks: list[Diagnosis] = []
    if against is None:
        check_places(first.names, second.names)
    else:
        totals = _compare_totals(to, against, skipped)
    request = ReplayRequest(
        statements=tuple(statements),
        concurrencies=tuple(concurrencies),
        rounds=rounds,
        seed=secrets.randbelow(2**32) if seed is None else seed,
        timeout_s=timeout_s,
        setup=() if setup is None else tuple(split_statements(_read(setup))),
    )
    if against is not None:
        is_copy, checks = _check_copy(to, against)
        if is_copy:
            checks.append(_read_tables(request, against, block_bytes=second.facts.block_bytes, say=say))
    return replace(replay(request, first, second, skipped=skipped, say=say), totals=tuple(totals), checks=tuple(checks))


def _choose_statements(to: ConnectionFactory, sql: Path | None, top: int | None) -> tuple[list[str], list[Skipped]]:
    """Return the statements to replay, and those that cannot be. Raises UsageError if there is none to replay."""
    skipped: list[Skipped] = []
    if sql is not None:
        statements = split_statements(_read(sql))
        for statement in statements:
            refuse_unreadable(statement, source=str(sql))
    else:
        with to.connect(label="replay") as connection:
            found, skipped = find_top_statements(connection, top or 1)
        statements = [statement for statement in found if why_not(statement) is None]
        others = [(hide_secrets(each), why_not(each)) for each in found]
        skipped += [Skipped(statement=each, why=why) for each, why in others if why is not None]
    if not statements:
        raise UsageError(
            "there is no statement to replay",
            detail="\n".join(f"{each.statement}: {each.why}." for each in skipped) or None,
            hint="Name a file with statements by --sql.",
        )
    return statements, skipped


def _check_copy(to: ConnectionFactory, against: ConnectionFactory) -> tuple[bool, list[Diagnosis]]:
    """Return whether the second server is a copy of the first, and what makes them comparable or not."""
    facts, identifiers = [], []
    for factory in (to, against):
        with factory.connect(label="replay") as connection, translate_errors("comparing the servers"):
            facts += fetch_rows(connection, "temp/copy_facts", CopyFacts)
            identifiers.append(_read_identifier(connection))
            host = connection.info.host
    described, silence = _ask_aws(host)
    is_copy = None if None in identifiers else identifiers[0] == identifiers[1]
    return bool(is_copy), [*judge_copy(*facts, is_copy=is_copy, described=described), *silence]


def _read_tables(
    request: ReplayRequest, server: ConnectionFactory, *, block_bytes: int, say: Callable[[str], None]
) -> Diagnosis:
    """Read the tables of the statements: the blocks of a restored snapshot come when they are first read."""
    with closing(ReplaySession(server, timeout_s=request.timeout_s)) as session:
        session.set_up(request.setup)
        plans = []
        for statement in request.statements:
            try:
                plans.append(session.plan(statement))
            except PenstockError as error:
                # The replay reports that the statement fails.
                if error.is_transient:
                    raise
        tables = find_tables(plans)
    return read_tables(server, tables, block_bytes=block_bytes, say=say)


def _read_identifier(connection: Connection) -> int | None:
    """Return the system identifier, which copies of a server have in common, None if the role may not read it."""
    try:
        with translate_errors("reading the system identifier"):
            query = "SELECT c.system_identifier FROM pg_catalog.pg_control_system() AS c"
            return int(fetch_one(connection, query)[0])
    except PenstockError as error:
        if error.sqlstate != NOT_ALLOWED:
            raise
        return None


def _ask_aws(host: str) -> tuple[RdsDescription | None, list[Diagnosis]]:
    """Return AWS's description of an endpoint, None for other hosts and without an answer, and why AWS is silent."""
    if not is_rds_endpoint(host):
        return None, []
    from penstock.rds.describe import describe_instance  # noqa: PLC0415 (56 ms, botocore)

    try:
        return describe_instance(host, now=datetime.now(UTC)), []
    except AwsError as error:
        return None, [describe_silence(error)]


def _compare_totals(to: ConnectionFactory, against: ConnectionFactory, skipped: list[Skipped]) -> list[StatementTotals]:
    """Return the totals of pg_stat_statements of both servers, as they are before the replay.

    If they cannot be read on both servers, an entry in `skipped` says so.
    """
    found = []
    for factory in (to, against):
        with factory.connect(label="replay") as connection:
            found.append(read_totals(connection))
    if any(each is None for each in found):
        why = "pg_stat_statements cannot be read on both servers: it is not installed, not loaded, or not allowed"
        skipped.append(Skipped(statement="total_exec_time by statement", why=why))
    return pair_totals(found[0] or {}, found[1] or {})


def _read(path: Path) -> str:
    try:
        # Some editors write a byte-order mark at the start.
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise SourceError(f'could not read "{path}": {error.strerror}') from error
    except UnicodeDecodeError as error:
        raise SourceError(f'"{path}" is not UTF-8', hint="Convert it with iconv.") from error
