"""Several loaders of one load, by --join: starts them together, and strikes members, the leader, or the server.

A stopped member keeps its backends. To have its objects taken, the backend that shows that it is live is ended, as the
server ends it if the host does not answer any more; other backends of it may continue until they find that it has
ended.
"""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

from support.campaign.faults import Hit
from support.campaign.plant import Single

if TYPE_CHECKING:
    from support.campaign.ledger import LedgerView
    from support.campaign.processes import LoaderProcess
    from support.campaign.scenario import Run

_START_PATIENCE_S = 30.0
_TAKE_PATIENCE_S = 20.0
_END_PATIENCE_S = 120.0
_POLL_S = 0.02

# The exit code of a host that lists other objects than the load has.
_NOT_ALL = 4

_LEADER = """
    SELECT a.application_name
      FROM penstock.loads AS l
      JOIN pg_locks AS k
        ON k.locktype = 'advisory'
       AND k.objsubid = 1
       AND k.granted
       AND k.classid = ('x' || substr(l.lock_key, 1, 8))::bit(32)::int8::oid
       AND k.objid = ('x' || substr(l.lock_key, 9, 8))::bit(32)::int8::oid
      JOIN pg_stat_activity AS a ON a.pid = k.pid
     WHERE l.id = %s
"""


def start_hosts(run: Run) -> None:
    """Start members at the same instant: one of them leads."""
    late = frozenset(run.rng.sample(sorted(run.files.bodies), run.rng.randrange(4)))
    for _ in range(run.rng.choice((2, 3, 3))):
        _start(run, hidden=late)


def strike_hosts(run: Run) -> bool:
    """Wait for a random moment and strike; return whether there is a load to go on with."""
    if run.rng.random() < 0.9:
        run.loader.await_text("phase running", _START_PATIENCE_S)
    if run.rng.random() < 0.8:
        run.await_progress()
    run.loader.wait(run.rng.uniform(0.0, 0.3))
    _refuse_failures(run)
    members = _running(run)
    if not members:
        return False
    view = run.look()
    if view is None or not view.is_incomplete:
        return view is None
    run.strikes += 1
    hit = _strike(run, run.rng.choice(run.scenario.kinds), view, members)
    if hit is not None:
        run.hits.append(hit)
    while len(_running(run)) < 2:
        _start(run)
    return True


def _start(run: Run, *, hidden: frozenset[str] | None = None) -> LoaderProcess:
    """Start a member: of theme lists, one that does not see `hidden`, or else most, some or none of the objects."""
    if run.scenario.theme == "lists":
        names = sorted(run.files.bodies)
        count = run.rng.choice((0, run.rng.randrange(1, 4), len(names) // 2, len(names) - 1))
        run.hidden = frozenset(run.rng.sample(names, count)) if hidden is None else hidden
    return run.start()


def finish_hosts(run: Run) -> None:
    """Let the load come to its end: every member that was not killed exits with 0.

    Of theme lists, one that sees more than the load, or less than is left of it, exits with 4.
    """
    until_s = time.monotonic() + _END_PATIENCE_S
    for loader in run.loaders:
        assert loader.wait(until_s - time.monotonic()), f"{loader.name} has not ended {_END_PATIENCE_S:g} s later"
    _refuse_failures(run)
    view = run.look()
    if view is None or view.is_incomplete or run.scenario.theme == "lists":
        run.hidden = frozenset()
        last = _end_by(run)
        if last.exit_code == _NOT_ALL and run.scenario.theme == "lists":
            # It has resumed a load that had begun without some objects.
            last = _end_by(run)
        assert last.exit_code == 0, f"{last.name} ended with {last.exit_code}"


def _end_by(run: Run) -> LoaderProcess:
    """Start one more loader, and wait for its end."""
    last = run.start()
    assert last.wait(_END_PATIENCE_S), f"{last.name} has not ended {_END_PATIENCE_S:g} s later"
    return last


def check_hosts(run: Run) -> None:
    """Check that nothing of the load is left: no claim, no recorded change of the table."""
    assert run.observer.execute("SELECT count(*) FROM penstock.claims") == [(0,)], "claims are left"
    assert run.observer.execute("SELECT count(*) FROM penstock.changes") == [(0,)], "changes are left"


def _strike(run: Run, kind: str, before: LedgerView, members: list[LoaderProcess]) -> Hit | None:
    leader = _find_leader(run, before, members)
    if kind == "leader":
        if leader is None:
            return None
        leader.kill()
    elif kind == "member":
        run.rng.choice([each for each in members if each is not leader] or members).kill()
    elif kind == "all":
        for each in members:
            each.kill()
        _start(run)
    elif kind == "crash":
        assert isinstance(run.place, Single)
        return _crash(run, before)
    elif kind == "leave":
        _leave(run.rng.choice(members), twice=run.rng.random() < 0.3)
    elif kind == "terminate":
        _terminate(run, run.rng.choice(members), share=run.rng.choice((0.3, 1.0)))
    elif not _stop(run, before, run.rng.choice(members)):
        return None
    return _hit(run, kind, before)


def _crash(run: Run, before: LedgerView) -> Hit | None:
    before = run.look() or before
    run.place.lose()
    run.set_brake(is_on=False)
    after = run.observer.view()
    if after is not None and not after.is_incomplete:
        return None
    left = frozenset[str]() if after is None else after.ranges
    run.forget_seen(left)
    return Hit(kind="crash", at_s=round(run.elapsed_s(), 3), rows=before.rows, gone=len(before.ranges - left))


def _leave(member: LoaderProcess, *, twice: bool) -> None:
    """Press Ctrl-C, or twice: the member ends, and the others go on."""
    for _ in range(1 + twice):
        member.send(signal.SIGINT)
        time.sleep(_POLL_S)
    assert member.wait(_TAKE_PATIENCE_S), f"{member.name} goes on {_TAKE_PATIENCE_S:g} s after it was interrupted"


def _stop(run: Run, before: LedgerView, stopped: LoaderProcess) -> bool:
    """Stop a member, have its objects taken, and let it go on; return whether others had ended it meanwhile."""
    while len(_running(run)) < 2:
        _start(run).await_text("phase running", _START_PATIENCE_S)
    numbers = _live_numbers(run, before, stopped)
    stopped.send(signal.SIGSTOP)
    try:
        if not numbers:
            return False
        _terminate(run, stopped, label="member")
        if run.rng.random() < 0.7:
            # Whoever leads holds the load's lock by its first session.
            _terminate(run, stopped, label="session 1")
        until_s = time.monotonic() + _TAKE_PATIENCE_S
        ends_all_s = time.monotonic() + run.rng.uniform(0.5, 3.0)
        while set(numbers) & set(_live_numbers(run, before, stopped)) and time.monotonic() < until_s:
            if time.monotonic() > ends_all_s:
                # A session in the middle of a transaction holds up whoever would take its objects.
                _terminate(run, stopped, share=1.0)
            view = run.look()
            if view is None or not view.is_incomplete or not set(_running(run)) - {stopped}:
                return False
            time.sleep(_POLL_S)
        is_ended = not set(numbers) & set(_live_numbers(run, before, stopped))
        assert is_ended, "nobody has ended the stopped member"
        time.sleep(run.rng.uniform(0.0, 0.5))
        return True
    finally:
        stopped.send(signal.SIGCONT)


def _live_numbers(run: Run, view: LedgerView, loader: LoaderProcess) -> list[int]:
    rows = run.observer.execute(
        "SELECT number FROM penstock.members WHERE load = %s AND ended_at IS NULL AND client LIKE %s",
        [view.load_id, f"% {loader.pid}"],
    )
    return [number for (number,) in rows]


def _terminate(run: Run, loader: LoaderProcess, *, share: float = 1.0, label: str = "") -> None:
    """End a loader's sessions: a share of them, or those of a label."""
    query = "SELECT pid FROM pg_stat_activity WHERE application_name LIKE %s ORDER BY pid"
    pids = [pid for (pid,) in run.observer.execute(query, [f"{loader.name}%{label}"])]
    for pid in pids if share == 1.0 else run.rng.sample(pids, min(len(pids), 1)):
        run.observer.execute("SELECT pg_terminate_backend(%s)", [pid])


def _find_leader(run: Run, view: LedgerView, members: list[LoaderProcess]) -> LoaderProcess | None:
    names = [name for (name,) in run.observer.execute(_LEADER, [view.load_id])]
    return next((each for each in members if any(name.startswith(each.name) for name in names)), None)


def _running(run: Run) -> list[LoaderProcess]:
    return [loader for loader in run.loaders if loader.is_running()]


def _hit(run: Run, kind: str, before: LedgerView) -> Hit | None:
    after = run.look()
    if after is None or not after.is_incomplete:
        return None
    return Hit(kind=kind, at_s=round(run.elapsed_s(), 3), rows=before.rows)


def _refuse_failures(run: Run) -> None:
    """Raise AssertionError if a member ended with an error; only those that were killed or interrupted may."""
    for loader in run.loaders:
        # A process that has planned --mode replace just before the load was complete gets an error about that.
        is_late = run.scenario.mode == "replace" and "was replaced after the load was planned" in loader.read_log()
        may_be = (0, 130, -signal.SIGKILL, *((_NOT_ALL,) if run.scenario.theme == "lists" else ()))
        if not loader.is_running() and loader.exit_code not in may_be and not is_late:
            raise AssertionError(f"{loader.name} ended with {loader.exit_code}")
