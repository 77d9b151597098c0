"""Replays statements of a file or of pg_stat_statements, with temporary work in one tablespace, then another."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from penstock.core.connect.connection import ConnectionFactory
from penstock.core.errors import SourceError, UsageError
from penstock.core.values.temp_place import DEFAULT_TABLESPACE, parse_name
from penstock.temp.replay.run import ReplayRequest, find_top_statements, open_place, read_totals, replay
from penstock.temp.statements import check_places, pair_totals, refuse_unreadable, split_statements, why_not
from penstock.temp.values import ReplayResult, Skipped, StatementTotals


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
    the role's temp_tablespaces. With `against`, they run on both servers, each with its own temp_tablespaces. Each runs
    in as many sessions at once as each of `concurrencies` says, after the statements of file `setup`. `seed` draws the
    order of the tablespaces in each round. A statement is cancelled after `timeout_s` seconds. `say` is called with the
    progress. Raises UsageError if both tablespaces are the same or if a statement does more than read. Raises
    SourceError, TargetError, ServerError.
    """
    skipped: list[Skipped] = []
    if sql is not None:
        statements = split_statements(_read(sql))
        for statement in statements:
            refuse_unreadable(statement, source=str(sql))
    else:
        with to.connect(label="replay") as connection:
            found, skipped = find_top_statements(connection, top or 1)
        statements = [statement for statement in found if why_not(statement) is None]
        skipped += [Skipped(statement=each, why=why) for each in found if (why := why_not(each)) is not None]
    if not statements:
        raise UsageError(
            "there is no statement to replay",
            detail="\n".join(f"{each.statement}: {each.why}." for each in skipped) or None,
            hint="Name a file with statements by --sql.",
        )
    first = open_place(to, None if against is not None else DEFAULT_TABLESPACE, allows_superuser=allows_superuser)
    second_name = None if place is None else parse_name(place)
    second = open_place(against or to, second_name, allows_superuser=allows_superuser)
    totals: list[StatementTotals] = []
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
    return replace(replay(request, first, second, skipped=skipped, say=say), totals=tuple(totals))


def _compare_totals(to: ConnectionFactory, against: ConnectionFactory, skipped: list[Skipped]) -> list[StatementTotals]:
    """Return the totals of pg_stat_statements of both servers, as they are before the replay.

    If the extension is not installed on both servers, an entry in `skipped` says so.
    """
    found = []
    for factory in (to, against):
        with factory.connect(label="replay") as connection:
            found.append(read_totals(connection))
    if any(each is None for each in found):
        why = "pg_stat_statements is not installed in this database of both servers"
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
