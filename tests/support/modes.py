"""Targets of each mode, and loaders that die at a chosen statement."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, LiteralString
from unittest.mock import patch

import psycopg
import pytest

from penstock.loading import run
from penstock.loading.giving_up import undo
from support.loads import target

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from penstock.core.errors import PenstockError
    from penstock.core.values.job import TargetJob
    from penstock.loading.steps.step import RunningLoad, Step
    from support.loads import Loads

# A look every so often until a session waits.
_LOOK_S = 0.05
_LOOKS = 1200


class Killed(BaseException):
    """The loader dies: its connections break, and it tidies nothing up (`dying_with_killed`)."""


@contextmanager
def dying_with_killed() -> Iterator[None]:
    """Let a load that `Killed` ends give up nothing while the block runs, as a process that was killed."""
    give_up = run.give_up

    def give_up_unless_killed(load: RunningLoad, steps: Sequence[Step], error: PenstockError) -> PenstockError:
        cause = sys.exc_info()[1]
        if isinstance(cause, Killed):
            undo(load, steps, None, "killed")
            raise cause
        return give_up(load, steps, error)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(run, "give_up", give_up_unless_killed)
        yield


def mode_target(path: Path | Sequence[Path], mode: str, **options: Any) -> TargetJob:
    """Return a target of a mode; options of the mode are as for the job, the others as for `target`."""
    names = ("key", "keep", "transform", "max_delete")
    own = {name: options.pop(name) for name in names if name in options}
    return replace(target(path, **options), mode=mode, **own)


def landing_tables(loads: Loads) -> list[Any]:
    """Return the landing tables that loads have created and not dropped."""
    return loads.execute(
        "SELECT oid::regclass::text FROM pg_class WHERE relkind = 'r'"
        " AND (relname LIKE 'staging\\_%' OR relname LIKE 'penstock\\_%')"
    )


@contextmanager
def killing_at(statement: int) -> Iterator[list[int]]:
    """Kill the loader before it sends its statement of that number, from 0. The list shows how many it had sent.

    The payloads of COPY and their commands are not counted.
    """
    sent = [0]
    execute = psycopg.Connection.execute

    def count(self: psycopg.Connection, *arguments: Any, **options: Any) -> Any:
        if sent[0] == statement:
            raise Killed
        sent[0] += 1
        return execute(self, *arguments, **options)

    with patch.object(psycopg.Connection, "execute", count):
        yield sent


def await_gate(connection: psycopg.Connection, gate: int) -> None:
    """Wait until a session waits for the advisory lock `gate`; one minute at most."""
    _await(connection, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = %s AND NOT granted", gate)


def await_waiter(connection: psycopg.Connection, pid: int) -> None:
    """Wait until a session of this database waits for a lock that the session `pid` holds; one minute at most.

    The connection must be in autocommit mode: a transaction shows the same pg_stat_activity again.
    """
    _await(
        connection,
        """
        SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND %s = ANY (pg_blocking_pids(pid))
        """,
        pid,
    )


def _await(connection: psycopg.Connection, count: LiteralString, of: int) -> None:
    for _ in range(_LOOKS):
        if connection.execute(count, [of]).fetchone() != (0,):
            return
        time.sleep(_LOOK_S)
    raise AssertionError("no session waits for the lock")
