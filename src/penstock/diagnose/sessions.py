"""Whether sessions wait for each other's locks, for their clients, or for processors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.diagnose.activity import CPU, find_moments, name_application, name_statement
from penstock.diagnose.case import Case, number, share_of, shorten
from penstock.units import format_duration

if TYPE_CHECKING:
    from penstock.diagnose.activity import Moment
    from penstock.model.diagnosis import Diagnosis
    from penstock.model.recording import Sample, SessionSample

# Short waits for locks are how transactions take turns.
_LEAST_LOCKED = 0.1

# Bound by their clients are transactions that wait for them most of the time.
_LEAST_CLIENT = 0.5

# What has run for less may have ended between two readings of one sample.
_LEAST_STATEMENT_S = 0.1

# One that is idle in a transaction for longer has been left there, and is not between two statements.
_BETWEEN_STATEMENTS_S = 5.0

# Begins of one transaction, each by its age and this host's clock, are not further apart.
_SAME_BEGIN_S = 1.0

# From here on, a processor is rarely free when one is wanted.
_BUSY = 0.8

# Waits and processors disagree where at least half of the time waits, and as much of a processor is busy besides.
_LEAST_WAITING = 0.5
_LEAST_UNEXPLAINED_CPUS = 0.5


def find_lock_waits(case: Case) -> list[Diagnosis]:
    """Return whether sessions wait for locks, and who holds them."""
    # Who extends a table holds that lock for a moment: nobody is to blame for it.
    part = case.select(lambda moment: moment.wait.startswith("lock:") and moment.wait != "lock:extend")
    if share_of(part, case.moments) < _LEAST_LOCKED:
        return []
    held_s: dict[int | None, float] = {}
    holders: dict[int | None, SessionSample | None] = {}
    for moment in part:
        pid, session = _head_of_queue(case.recording.samples[moment.tick], moment.session)
        held_s[pid] = held_s.get(pid, 0.0) + moment.weight_s
        holders[pid] = session or holders.get(pid)
    worst = max(held_s, key=lambda pid: held_s[pid])
    holder = holders[worst]
    evidence = [
        number("sessions that wait for a lock, on average", case.sessions(part)),
        number("longest statement that waits", max(moment.session.query_s or 0.0 for moment in part), "s"),
        number("of this, for the holder", 100 * held_s[worst] / sum(held_s.values()), "%"),
    ]
    if holder is not None and holder.transaction_s is not None:
        evidence.append(number("age of the holder's transaction", holder.transaction_s, "s"))
    described, release = _describe_holder(worst, holder), _release(worst, holder)
    return [case.conclude("lock-wait", part, evidence, holder=described, release=release)]


def _head_of_queue(sample: Sample, waiting: SessionSample) -> tuple[int | None, SessionSample | None]:
    """Return whom a session waits for in the end, with its session where the sample has it."""
    sessions = {session.pid: session for session in sample.sessions}
    passed: list[int] = []
    session: SessionSample | None = waiting
    while session is not None and session.blocked_by and session.blocked_by[0] not in passed:
        passed.append(session.blocked_by[0])
        session = sessions.get(passed[-1])
    return (passed[-1], session) if passed else (None, None)


def _describe_holder(pid: int | None, session: SessionSample | None) -> str:
    if session is None:
        unknown = {None: "one that had ended when it was read", 0: "a prepared transaction"}
        return unknown.get(pid, f"backend {pid}, which no sample shows")
    age = "" if session.transaction_s is None else f", its transaction {format_duration(session.transaction_s)} old"
    return (
        f"backend {pid} (application {name_application(session)}, user {session.user}), {session.state}{age}; "
        f"its statement: {shorten(name_statement(session))}"
    )


def _release(pid: int | None, session: SessionSample | None) -> str:
    if pid == 0:
        return "Find it in pg_prepared_xacts, and end it with COMMIT PREPARED or ROLLBACK PREPARED."
    if session is not None and _is_idle_in_transaction(session):
        return (
            "Have this application commit or roll back before it does anything else. While it holds: SELECT "
            f"pg_terminate_backend({pid}). For good: idle_in_transaction_session_timeout for its role."
        )
    text = "Keep transactions short that change what others change; set lock_timeout if an error is better."
    return text if pid is None else f"{text} While it holds: SELECT pg_cancel_backend({pid})."


def find_client_waits(case: Case) -> list[Diagnosis]:
    """Return whether open transactions wait for their clients, in a statement or between two."""
    between = _find_between_statements(case)
    moments = sorted([*case.moments, *between], key=lambda moment: moment.tick)
    inside = case.select(lambda moment: moment.wait.startswith("client:") and not _is_torn(moment))
    part = [*inside, *between]
    if share_of(part, moments) < _LEAST_CLIENT:
        return []
    evidence = [
        number("sessions that wait for their client, on average", case.sessions(part)),
        number("of this, in a statement such as COPY", 100 * share_of(inside, part), "%"),
    ]
    return [case.conclude("client-bound", part, evidence, among=moments)]


def _is_torn(moment: Moment) -> bool:
    """Whether a session may have become idle between the reading of its state and that of its wait.

    The server copies the states of all sessions first (pgstat_read_current_status, in backend_status.c); where the
    processors are busy, a short statement has ended by the time that its session's wait is read.
    """
    query_s = moment.session.query_s
    return query_s is not None and query_s < _LEAST_STATEMENT_S


def _find_between_statements(case: Case) -> list[Moment]:
    """Return sessions between two statements of their transaction; of a single one none, which is no workload."""
    samples = case.recording.samples
    found = find_moments(
        samples, lambda each: _is_idle_in_transaction(each) and (each.query_s or 0.0) < _BETWEEN_STATEMENTS_S
    )
    begins_s = [samples[moment.tick].at_s - (moment.session.transaction_s or 0.0) for moment in found]
    is_one = (
        len({moment.session.pid for moment in found}) < 2
        and max(begins_s, default=0.0) - min(begins_s, default=0.0) < _SAME_BEGIN_S
    )
    return [] if is_one else found


def _is_idle_in_transaction(session: SessionSample) -> bool:
    return (session.state or "").startswith("idle in transaction")


def find_cpu(case: Case) -> list[Diagnosis]:
    """Return whether processors are all busy, or busier than samples of waits explain."""
    running = case.select(lambda moment: moment.wait == CPU.lower())
    waiting = case.select(lambda moment: moment.wait != CPU.lower())
    on_cpu, busy, cpus = case.sessions(running), case.busy_cpus(), case.recording.header.cpu_count
    evidence = [number("active sessions without a wait, on average", on_cpu)]
    evidence += [] if cpus is None else [number("processors of the server", cpus)]
    evidence += [] if busy is None else [number("processors of the host that are busy", busy)]
    if cpus is not None and on_cpu >= _BUSY * cpus and (busy is None or busy >= _BUSY * cpus):
        return [case.conclude("cpu-bound", running, evidence)]
    least_busy = max(_BUSY * case.sessions(case.moments), on_cpu + _LEAST_UNEXPLAINED_CPUS)
    if busy is not None and busy >= least_busy and share_of(waiting, case.moments) >= _LEAST_WAITING:
        return [case.conclude("waits-disagree-with-cpu", waiting, evidence)]
    return []
