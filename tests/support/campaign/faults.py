"""The kinds of fault: each strikes a running load, and returns what it hit, or None if it hit nothing.

A fault counts only if the ledger shows the load as incomplete before and after it, and its loader was running.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psycopg

from support.campaign.plant import Pair, Single
from support.campaign.s3 import TROUBLES

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.campaign.ledger import LedgerView
    from support.campaign.processes import LoaderProcess
    from support.campaign.scenario import Run

_POLL_S = 0.005

# Longer than any batch of the campaign takes to come to its COMMIT, or to a body it asks for.
_PATIENCE_S = 1.5

_SETTLING_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """What a fault struck: the rows committed then, and the acknowledged ledger rows that were gone after it.

    `is_takeover`: a killed loader's backend was in the middle of its COMMIT when the next loader had its session.
    """

    kind: str
    at_s: float
    rows: int
    gone: int = 0
    is_takeover: bool = False


def strike(run: Run, kind: str) -> Hit | None:
    """Let one fault happen."""
    before = run.look()
    if before is None or not before.is_incomplete or not run.loader.is_running():
        return None
    return _KINDS[kind](run, before)


def _hit(run: Run, kind: str, before: LedgerView, *, is_takeover: bool = False) -> Hit | None:
    after = run.look()
    if after is None or not after.is_incomplete:
        return None
    return Hit(kind=kind, at_s=round(run.elapsed_s(), 3), rows=before.rows, is_takeover=is_takeover)


def _kill(run: Run, before: LedgerView) -> Hit | None:
    """Kill the loader, and start another one."""
    run.loader.kill()
    hit = _hit(run, "kill", before)
    run.go_on()
    return hit


def _kill_in_commit(run: Run, before: LedgerView) -> Hit | None:
    """Kill the loader while a deferred trigger sleeps in its COMMIT; the next one begins meanwhile."""
    killed = run.loader
    run.set_brake(is_on=True)
    try:
        if not _wait(run, lambda: bool(run.observer.committing(killed.name))):
            return None
        time.sleep(run.rng.uniform(0, 0.03))
        killed.kill()
        # The session with the load's lock may end first: then only the fence makes the next loader wait.
        is_lock_free = run.rng.random() < 0.7
        if is_lock_free:
            run.observer.execute(
                "SELECT pg_terminate_backend(pid, 1000) FROM pg_stat_activity WHERE application_name LIKE %s",
                [f"{killed.name}%session 1"],
            )
        following = run.start()
        until_s = time.monotonic() + _SETTLING_S
        while not run.observer.backends(following.name) and following.is_running() and time.monotonic() < until_s:
            time.sleep(_POLL_S)
        is_takeover = bool(run.observer.committing(killed.name)) and bool(run.observer.backends(following.name))
        time.sleep(run.rng.uniform(0.1, 0.4) if is_lock_free else run.rng.uniform(0, 0.1))
        return _hit(run, "commit", before, is_takeover=is_takeover)
    finally:
        run.set_brake(is_on=False)


def _terminate(run: Run, before: LedgerView) -> Hit | None:
    """End one of the loader's sessions, or all of them."""
    pids = sorted(run.observer.backends(run.loader.name))
    chosen = pids if run.rng.random() < 0.2 else run.rng.sample(pids, min(1, len(pids)))
    ended = [run.observer.execute("SELECT pg_terminate_backend(%s)", [pid]) for pid in chosen]
    return _hit(run, "terminate", before) if [(True,)] in ended else None


def _crash(run: Run, before: LedgerView) -> Hit | None:
    """Stop the server as by a crash, sometimes together with the loader, and start it again."""
    assert isinstance(run.place, Single)
    is_loader_lost = run.rng.random() < 0.5
    before = run.look() or before
    if is_loader_lost and run.rng.random() < 0.5:
        run.loader.kill()
    run.place.lose()
    # The server may have lost that the brake is off again.
    run.set_brake(is_on=False)
    hit = _note_lost(run, "crash", before)
    if is_loader_lost:
        run.loader.kill()
        run.go_on()
    return hit


def _promote(run: Run, before: LedgerView) -> Hit | None:
    """Lose the primary, promote its synchronous standby, and give that one a standby."""
    assert isinstance(run.place, Pair)
    before = run.look() or before
    run.place.fail_over()
    run.observer.close()
    hit = _note_lost(run, "promote", before)
    if run.rng.random() < 0.2:
        run.loader.kill()
        run.go_on()
    run.place.rebuild()
    return hit


def _lose_after_end(run: Run, before: LedgerView) -> Hit | None:
    """Cut the standby off, wait until what follows the rows waits for the table, and lose the primary."""
    assert isinstance(run.place, Pair)
    if not before.rows:
        return None
    run.place.cut_off()
    with closing(psycopg.connect(run.place.conninfo)) as blocker:
        # The VACUUM behind the load's end waits for this lock, the rebuild of an index too; COPY and a merge do not.
        blocker.execute(f"LOCK TABLE {run.table} IN SHARE UPDATE EXCLUSIVE MODE".encode())
        until_s = time.monotonic() + _SETTLING_S
        while time.monotonic() < until_s and run.loader.is_running() and not run.observer.is_blocking(blocker):
            time.sleep(_POLL_S)
        before = run.look() or before
        run.place.fail_over()
    run.observer.close()
    hit = _note_lost(run, "late", before)
    run.place.rebuild()
    if run.scenario.settings != "none":
        run.place.restore_settings(forgets=True)
    return hit


def _note_lost(run: Run, kind: str, before: LedgerView) -> Hit | None:
    """Return the hit for a lost server, with the acknowledged rows that it lost."""
    after = run.observer.view()
    if after is not None and not after.is_incomplete:
        return None
    # Where the user has synchronous_commit off, a crash may take the whole load with it.
    left = frozenset[str]() if after is None else after.ranges
    run.forget_seen(left)
    gone = len(before.ranges - left)
    return Hit(kind=kind, at_s=round(run.elapsed_s(), 3), rows=before.rows, gone=gone)


def _turn_clock_back(run: Run, before: LedgerView) -> Hit | None:
    """Stop the server, and start it again with a clock that is behind, more each time."""
    assert isinstance(run.place, Single)
    before = run.look() or before
    run.place.restart(hours_behind=1 + len(run.hits))
    return _note_lost(run, "clock", before)


def _grow(run: Run, before: LedgerView) -> Hit | None:
    """Kill the loader and append to an object; the next loader must refuse that, and the one after it loads all."""
    run.loader.kill()
    _wait_for_end(run, run.loader)
    hit = _hit(run, "grow", before)
    if hit is not None:
        name = run.files.grow(run.rng)
        (run.folder / "files" / name).write_bytes(run.files.bodies[name])
        refused = run.start(on_changed="error")
        assert refused.wait(_SETTLING_S), "a loader goes on with a file that has grown"
        assert "has changed since load" in refused.read_log(), "a file that has grown was not refused"
        run.on_changed = "load"
    run.go_on()
    return hit


def _replace_beside(run: Run, before: LedgerView) -> Hit | None:
    """Try to replace the table while a running or killed load has rows there: this must be refused."""
    if not before.rows:
        return None
    is_killed = run.rng.random() < 0.7
    if is_killed:
        run.loader.kill()
        _wait_for_end(run, run.loader)
    rival, rows = run.start_rival()
    assert rival.wait(2 * _SETTLING_S), "the rival goes on"
    hit = _hit(run, "beside", before)
    log = rival.read_log()
    if rival.exit_code == 0:
        assert hit is None, "the table was replaced though a load has rows there"
        run.replaced_by = rows
    else:
        refusals = ("another load into it has not ended", "could not get a lock")
        assert any(words in log for words in refusals), f"the rival ended otherwise: {log}"
    run.drop_rival()
    if is_killed:
        run.go_on()
    return hit


def _wait_for_end(run: Run, loader: LoaderProcess) -> None:
    """Wait until a killed loader's backends have ended what they were doing."""
    until_s = time.monotonic() + _SETTLING_S
    while run.observer.backends(loader.name) and time.monotonic() < until_s:
        time.sleep(_POLL_S)


def _reset(run: Run, before: LedgerView) -> Hit | None:
    """Reset every connection between loader and server."""
    assert run.relay is not None
    return _hit(run, "reset", before) if run.relay.reset() else None


def _stall(run: Run, before: LedgerView) -> Hit | None:
    """Let nothing pass between loader and server for a while; half of the stalls end in a reset."""
    assert run.relay is not None
    run.relay.stall()
    try:
        time.sleep(run.rng.uniform(0.05, 0.5))
        is_hit = bool(run.observer.backends(run.loader.name))
        if run.rng.random() < 0.5:
            run.relay.reset()
    finally:
        run.relay.resume()
    return _hit(run, "stall", before) if is_hit else None


def _spoil_bodies(run: Run, before: LedgerView) -> Hit | None:
    """Answer the next reads of objects with an error, a reset or half of the body."""
    assert run.store is not None
    troubles = run.rng.choices(TROUBLES, k=run.rng.randrange(1, 4))
    run.store.arm(*troubles)
    is_hit = _wait(run, lambda: run.store is not None and run.store.await_hit(0.02))
    run.store.disarm()
    return _hit(run, "s3", before) if is_hit else None


def _fill_disk(run: Run, before: LedgerView) -> Hit | None:
    """Fill the table's disk until a session has met that, then make room again."""
    assert run.disk is not None
    told = run.loader.read_log().count("retrying in")
    ballast = run.disk / "ballast"
    try:
        with ballast.open("wb", buffering=0) as file:
            _fill(file.fileno())
        is_hit = _wait(run, lambda: run.loader.read_log().count("retrying in") > told)
        time.sleep(run.rng.uniform(0, 0.3))
    finally:
        ballast.unlink()
    return _hit(run, "disk", before) if is_hit else None


def _fill(descriptor: int) -> None:
    """Write until the disk is full."""
    for piece in (b"\0" * 65536, b"\0" * 512):
        try:
            while True:
                os.write(descriptor, piece)
        except OSError:
            continue


def _interrupt(run: Run, before: LedgerView) -> Hit | None:
    """Press Ctrl-C: the batches under way are finished, and the process ends."""
    return _end_by_interrupts(run, before, "interrupt", count=1)


def _interrupt_twice(run: Run, before: LedgerView) -> Hit | None:
    """Press Ctrl-C and once more: sessions roll back, and the process ends."""
    return _end_by_interrupts(run, before, "interrupt twice", count=2)


def _end_by_interrupts(run: Run, before: LedgerView, kind: str, *, count: int) -> Hit | None:
    loader = run.loader
    for number in range(count):
        if number:
            time.sleep(run.rng.uniform(0.001, 0.08))
        loader.send(signal.SIGINT)
    if not loader.wait(_SETTLING_S):
        raise AssertionError(f"{kind}: the loader goes on {_SETTLING_S:g} s later")
    if loader.exit_code == 0:
        return None
    hit = _hit(run, kind, before)
    run.check_end(loader, {130})
    run.go_on()
    return hit


def _wait(run: Run, is_so: Callable[[], bool]) -> bool:
    until_s = time.monotonic() + _PATIENCE_S
    while not is_so():
        if not run.loader.is_running() or time.monotonic() > until_s:
            return False
        time.sleep(_POLL_S)
    return True


_KINDS: dict[str, Callable[[Run, LedgerView], Hit | None]] = {
    "kill": _kill,
    "commit": _kill_in_commit,
    "terminate": _terminate,
    "crash": _crash,
    "promote": _promote,
    "late": _lose_after_end,
    "reset": _reset,
    "stall": _stall,
    "s3": _spoil_bodies,
    "disk": _fill_disk,
    "grow": _grow,
    "beside": _replace_beside,
    "clock": _turn_clock_back,
    "interrupt": _interrupt,
    "interrupt twice": _interrupt_twice,
}

# Those of several loaders are in hosts.py.
KINDS = tuple(_KINDS)
