"""Takes a load over after sessions that are still committing, or after another process that runs it, have ended."""

from __future__ import annotations

import os
import socket
from functools import partial

from penstock.errors import TargetError
from penstock.loading.context import LoadTools
from penstock.model.load.ledger import Claim, LoaderProcess
from penstock.server.connect.connection import Connection
from penstock.server.ledger.locks import find_lock_holder, find_workers, try_lock

# How often to check if another process has ended.
_WAIT_S = 0.2

# A wait is shown only after this many checks, so that short waits are not shown.
_LOOKS_BEFORE_NOTICE = 4


def client_name() -> str:
    """Return the host name and process id of this process, which the ledger shows as the client of the load."""
    return f"{host_name()} {os.getpid()}"


def host_name() -> str:
    """Return the name of this host."""
    return socket.gethostname()


def open_ledger(lock: str, tools: LoadTools, connection: Connection, *, waits: bool) -> None:
    """Create the ledger if there is none, and take the load's lock until this session ends.

    If another process has the lock, wait for it if `waits`, else raise TargetError. Raises TargetError, ServerError.
    """
    looks = 0
    is_locked = tools.ledger.open(connection, lock=lock, is_publishing_allowed=tools.is_publishing_allowed)
    while not is_locked:
        pid = find_lock_holder(connection, lock)
        if not waits:
            raise TargetError(
                "another process is running this load",
                detail=f"One of its sessions is backend {pid}.",
                hint="Wait for it, or end it with pg_terminate_backend.",
            )
        looks += 1
        if looks == _LOOKS_BEFORE_NOTICE:
            tools.notice(f"waiting for another process that is running this load (backend {pid})")
        tools.sleep(_WAIT_S)
        is_locked = try_lock(connection, lock)


def take_over(
    load_id: str,
    tools: LoadTools,
    connection: Connection,
    *,
    waits: bool,
    process: LoaderProcess,
    is_joint: bool = False,
    job: str | None = None,
) -> Claim:
    """Return a claim to a load that has begun, once no transaction of an earlier loader is open.

    `process` becomes a member of the load. If `is_joint`, the load's other members go on. `job` replaces the job in the
    ledger. A loader that was killed leaves sessions that may still be committing; what they commit counts. Raises
    TargetError if there are such sessions and `waits` is false.
    """
    is_shown = False
    take = partial(
        tools.ledger.take_over,
        connection,
        load_id,
        process=process,
        is_joint=is_joint,
        job=job,
        is_own_job=tools.resumes is None,
    )
    while (claim := take()) is None:
        workers = find_workers(connection, load_id)
        calls = " ".join(f"SELECT pg_terminate_backend({pid});" for pid in workers)
        if not waits:
            raise TargetError(
                f"sessions of load {load_id} are still running",
                detail=f"Backends: {', '.join(map(str, workers)) or 'just ended'}.",
                hint=f"Wait for them, or end them: {calls}" if calls else "Try again.",
            )
        if not is_shown and workers:
            tools.notice(f"waiting for sessions of load {load_id} that are still running; to end them: {calls}")
            is_shown = True
    return claim
