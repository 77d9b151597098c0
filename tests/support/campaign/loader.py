"""The loader's process: `python -m support.campaign.loader` imports everything once and forks a loader at each request.

A request is a line of JSON on standard input; answers are lines on standard output: {"started": pid} and, when that
process has ended, {"ended": pid, "status": wait status}. At the end of standard input the loaders are killed. A loader
is a process like any other: what is saved is the half second that imports take.
"""

from __future__ import annotations

import itertools
import json
import os
import select
import signal
import sys
import time
import traceback
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

from penstock.api.ledger_view import LedgerView
from penstock.core.connect.connection import ConnectionFactory
from penstock.core.errors import PenstockError
from penstock.core.tuning import BatchPlan
from penstock.core.values.dialect import DialectOptions
from penstock.core.values.job import MAX_DELETE, Housekeeping, LoadJob, LoadRules, TargetJob
from penstock.core.values.names import parse_table_name
from penstock.loading.files.streams import SourceReader
from penstock.loading.loader import Loader
from penstock.loading.plan.identity import job_from_json
from support.loads import ChoppedSources

if TYPE_CHECKING:
    from collections.abc import Collection

    from penstock.core.values.source import ColumnarFormat, SourceObject
    from penstock.loading.files.columnar.reader import ColumnarFile, RangedFile, RangedObject

# The exit status of a loader that ended by what is no PenstockError: a bug.
BROKEN = 99


class _Sources(ChoppedSources):
    """Small pieces, as slow as requested, and the machine's AWS configuration.

    What was read whole at a first look is fetched again: objects are small, and a store fails while they are loaded.
    """

    def __init__(self, piece_bytes: int, piece_s: float, hidden: Collection[str] = (), **options: Any) -> None:
        SourceReader.__init__(self, **options)
        self._kept_bytes = sys.maxsize
        self._piece_bytes = piece_bytes
        self._at_piece = (lambda _: time.sleep(piece_s)) if piece_s else None
        self._piece_s = piece_s
        self._hidden = hidden

    def list(self, *arguments: Any, **options: Any) -> tuple[SourceObject, ...]:
        """Return the objects that this host sees."""
        found = super().list(*arguments, **options)
        return tuple(source for source in found if source.uri.rpartition("/")[2] not in self._hidden)

    def open_columnar(self, source: SourceObject, file_format: ColumnarFormat) -> tuple[RangedFile, ColumnarFile]:
        """Return an object's file and its reader, as slow as its pieces would be."""
        file, opened = super().open_columnar(source, file_format)
        if self._piece_s:
            file._stored = _SlowRanges(file._stored, self._piece_s)
        return file, opened


class _SlowRanges:
    """An opened object each read of which takes some time."""

    def __init__(self, stored: RangedObject, piece_s: float) -> None:
        self._stored, self._piece_s = stored, piece_s
        self.close = stored.close

    def read_at(self, start: int, length_bytes: int) -> bytes:
        """Return the stored bytes, later."""
        time.sleep(self._piece_s)
        return self._stored.read_at(start, length_bytes)


def _die_at(wait: int, *, after: bool) -> None:
    """Kill this process at its nth wait for the server: before it sends something, or after the server has answered."""
    numbers, original = itertools.count(1), psycopg.Connection.wait

    def waiting(self: psycopg.Connection[Any], *arguments: Any, **options: Any) -> Any:
        is_last = next(numbers) == wait
        if is_last and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(self, *arguments, **options)
        if is_last:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    psycopg.Connection.wait = waiting  # type: ignore[method-assign]


def run_load(request: dict[str, Any]) -> int:
    """Carry out one request; return the process's exit status."""
    os.environ.update(request["environment"])
    if "dies_at" in request:
        _die_at(request["dies_at"], after=request["dies_after"])
    connect = ConnectionFactory(request["conninfo"], application_name=request["name"])
    phase = "planning"
    try:
        if "retry" in request:
            phase = "running"
            _say("phase running")
            _retry(connect, request["retry"], request["file"])
            return 0
        job = job_from_json(request["job"]) if "job" in request else _read_job(request)
        sources = partial(_Sources, request["piece_bytes"], request["piece_s"], request.get("hidden", ()))
        with Loader(connect, Housekeeping(settings=request.get("settings", "none")), sources=sources) as loader:
            _say("phase planning")
            plan = loader.plan(job, on_notice=_say)
            plan = replace(plan, batch=BatchPlan(limit_bytes=request["batch_bytes"], duration_s=None))
            # One object at a time, so that hosts share even small files.
            plan = replace(plan, tuning=replace(plan.tuning, least_claim_bytes=1))
            phase = "running"
            _say("phase running")
            outcome = loader.run(plan, on_notice=_say, on_warning=lambda notice: _say(notice.message))
            _say(f"done rows={outcome.rows} before={outcome.rows_before} local_only={outcome.is_local_only}")
    except PenstockError as error:
        _say(f"failed while {phase}: {type(error).__name__} transient={error.is_transient} {error.sqlstate} {error}")
        return error.exit_code
    except KeyboardInterrupt:
        _say(f"interrupted while {phase}")
        return 130
    except BaseException:  # noqa: BLE001 (reported as what it is: a bug)
        _say(traceback.format_exc())
        return BROKEN
    return 0


def _retry(connect: ConnectionFactory, load_id: str, file: str | None) -> None:
    """Retry the rejected records of a load, or those of a corrected file."""
    with LedgerView(connect) as view:
        outcome = view.retry(load_id, None if file is None else Path(file))
        _say(f"done {outcome}")


def _read_job(request: dict[str, Any]) -> LoadJob:
    target = TargetJob(
        sources=tuple(request["sources"]),
        into=parse_table_name(request["table"]),
        dialect=DialectOptions(**request["dialect"]),
        mode=request["mode"],
        key=tuple(request["key"]),
        copy_format=request.get("copy_format", "auto"),
        max_delete=request.get("max_delete", MAX_DELETE),
        partition_of=None if "partition_of" not in request else parse_table_name(request["partition_of"]),
        for_values=request.get("for_values"),
    )
    rules = LoadRules(
        retry_for=request["retry_for_s"],
        on_error=request["on_error"],
        changed=request["on_changed"],
        via=request.get("via", "client"),
        join=request.get("join", False),
        indexes=request.get("indexes", "auto"),
    )
    return LoadJob(targets=(target,), sessions=request["sessions"], rules=rules)


def _say(text: str) -> None:
    print(text, flush=True)


def _become_loader(request: dict[str, Any]) -> None:
    """Run in the forked process, which ends here."""
    status = BROKEN
    try:
        log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        null = os.open(os.devnull, os.O_RDONLY)
        for source, descriptor in ((null, 0), (log, 1), (log, 2)):
            os.dup2(source, descriptor)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        status = run_load(request)
    except KeyboardInterrupt:
        # A second interrupt arrived after the load had reported how it ended.
        status = 130
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        sys.stdout.flush()
        # Threads that hang on a source that says nothing must not keep the process, as in the command line's main.
        os._exit(status)


def main() -> None:
    """Fork loaders until standard input ends."""
    running: dict[int, int] = {}
    requests = sys.stdin.fileno()
    waiting = b""
    while True:
        ready, _, _ = select.select([requests, *running], [], [])
        for descriptor in set(ready) - {requests}:
            pid = running.pop(descriptor)
            os.close(descriptor)
            _say(json.dumps({"ended": pid, "status": os.waitpid(pid, 0)[1]}))
        if requests in ready:
            data = os.read(requests, 65536)
            if not data:
                break
            *lines, waiting = (waiting + data).split(b"\n")
            for line in lines:
                pid = os.fork()
                if pid == 0:
                    _become_loader(json.loads(line))
                running[os.pidfd_open(pid)] = pid
                _say(json.dumps({"started": pid}))
    for pid in running.values():
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
