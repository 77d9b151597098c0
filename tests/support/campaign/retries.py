"""Retries of a load's rejected records, and their faults: each record is stored once, or it is still rejected."""

from __future__ import annotations

import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import psycopg
from psycopg.conninfo import make_conninfo

import penstock
from support.campaign.check import find_rejects
from support.campaign.faults import Hit
from support.campaign.loader import BROKEN
from support.campaign.plant import Single

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.campaign.ledger import LedgerView
    from support.campaign.processes import LoaderProcess
    from support.campaign.scenario import Run

    Retry = Callable[[], LoaderProcess]

_START_PATIENCE_S = 30.0
_END_PATIENCE_S = 60.0
_POLL_S = 0.005

# What the table refuses of the records that were corrected.
_STAYS = "bad 0.1"

_MEANINGS = {"kill": "kill of a retry", "terminate": "end of a retry", "crash": "crash of a retry"}


def strike_retries(run: Run) -> None:
    """Correct most of the rejected records, or the table, and retry them until a retry has come to its end."""
    view = run.look()
    assert view is not None
    by_file = run.rng.random() < 0.5
    file = _correct(run, view.load_id, by_file=by_file)
    again = partial(run.start_retry, view.load_id, file)
    before = find_rejects(run, [view.load_id])
    after = Counter({raw: count for raw, count in before.items() if _STAYS.encode() in raw})
    if by_file:
        # What is refused again stays rejected as it was edited.
        after = Counter({raw.replace(b"much", b"1.00"): count for raw, count in after.items()})
    most = len(run.hits) + run.scenario.faults
    until_s, has_ended = time.monotonic() + _END_PATIENCE_S, False
    while not has_ended:
        assert time.monotonic() < until_s, f"no retry has ended {_END_PATIENCE_S:g} s later"
        retry = again()
        is_struck = len(run.hits) < most and _strike(run, retry, again, view)
        assert retry.wait(_END_PATIENCE_S), f"{retry.name} has not ended"
        left = find_rejects(run, [view.load_id])
        assert left in (before, after), f"{left.total()} of {before.total()} records are left, {after.total()} may be"
        has_ended = _take_end(retry, is_struck=is_struck, is_done=left == after)
        assert not has_ended or left == after, f"1 false success: {left.total()} rejects, not {after.total()}"
    if file is not None and run.rng.random() < 0.5:
        # By whom does not know that it has succeeded.
        again().wait(_END_PATIENCE_S)
    _expect(run, after, is_corrected=by_file)


def _correct(run: Run, load_id: str, *, by_file: bool) -> Path | None:
    """Make rejected records right, by an edited file or a changed type; return the file."""
    changes = [f"ADD CONSTRAINT others CHECK (note NOT LIKE '{_STAYS}%')"]
    if not by_file:
        changes.append("ALTER amount TYPE text")
    conninfo = make_conninfo(run.place.conninfo, dbname="postgres")
    # Durably, as the observer does nothing.
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute(f"ALTER TABLE {run.table} {', '.join(changes)}".encode())
    if not by_file:
        return None
    path = run.folder / f"rejects.{run.files.format}"
    penstock.rejects(load_id, path, to=conninfo)
    path.write_bytes(path.read_bytes().replace(b"much", b"1.00"))
    run.corrected = True
    return path


def _expect(run: Run, left: Counter[bytes], *, is_corrected: bool) -> None:
    """Take what was retried for what the table must have."""
    bad = (row for records in run.files.records.values() for row in records if row[1] == "much")
    for identity, amount, note in bad:
        if not str(note).startswith(_STAYS):
            run.files.rows[identity, "1.00" if is_corrected else amount, note] += 1
    run.files.bad.clear()
    run.files.bad.update(left)


def _strike(run: Run, retry: LoaderProcess, again: Retry, view: LedgerView) -> bool:
    """Wait for a random moment and strike; return whether that may have ended the retry."""
    retry.await_text("phase running", _START_PATIENCE_S)
    kind = run.rng.choice(("kill", "kill", "orphan", "terminate", "crash"))
    run.strikes += 1
    if kind == "orphan":
        return _orphan(run, retry, again, view.rows)
    retry.wait(run.rng.uniform(0.0, 0.3))
    if not retry.is_running():
        return False
    before = find_rejects(run, [view.load_id])
    if kind == "kill":
        retry.kill()
    elif kind == "crash":
        assert isinstance(run.place, Single)
        run.place.lose()
        run.set_brake(is_on=False)
    else:
        for pid in run.observer.backends(retry.name):
            run.observer.execute("SELECT pg_terminate_backend(%s)", [pid])
    retry.wait(_END_PATIENCE_S)
    _await_backends(run, retry)
    if find_rejects(run, [view.load_id]) == before:
        run.hits.append(Hit(kind=_MEANINGS[kind], at_s=round(run.elapsed_s(), 3), rows=view.rows))
    return True


def _orphan(run: Run, retry: LoaderProcess, again: Retry, rows: int) -> bool:
    """Kill the retry while a statement of its backend goes on, and begin another one beside it."""
    run.set_brake(is_on=True)
    try:
        if retry.wait(run.rng.uniform(0.2, 1.0)):
            return False
        retry.kill()
        following = again()
        following.await_text("phase running", _START_PATIENCE_S)
        following.wait(run.rng.uniform(0.0, 0.5))
        if run.observer.backends(retry.name):
            run.hits.append(Hit(kind="orphan of a retry", at_s=round(run.elapsed_s(), 3), rows=rows))
        following.kill()
    finally:
        run.set_brake(is_on=False)
    _await_backends(run, retry)
    _await_backends(run, following)
    return True


def _await_backends(run: Run, retry: LoaderProcess) -> None:
    """Wait until a retry's backends have ended what they were doing."""
    until_s = time.monotonic() + _END_PATIENCE_S
    while run.observer.backends(retry.name) and time.monotonic() < until_s:
        time.sleep(_POLL_S)


def _take_end(retry: LoaderProcess, *, is_struck: bool, is_done: bool) -> bool:
    """Return whether a retry has ended well; it may fail only because of a fault, or because of the one before."""
    log = retry.read_log()
    assert retry.exit_code != BROKEN, f"a retry broke: {log}"
    if retry.exit_code == 0:
        return True
    if is_done and "records, and the load has" in log:
        # The one before was killed when it had committed.
        return True
    assert is_struck or "another process works on this load" in log, f"a retry failed: {log}"
    return False
