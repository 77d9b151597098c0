"""Decides how many sessions to use: how many at the start, and how many given the measured throughput. Pure."""

from __future__ import annotations

from dataclasses import replace

from penstock.core.slotted import slotted
from penstock.core.units import format_bytes
from penstock.loading.values.plan import SessionPlan

# How many sessions to start with if the number of the server's CPUs is not known (another machine, no cloud API). This
# many sessions are enough to measure the throughput, and few enough not to harm the server.
_UNKNOWN_START = 4

# The largest number of sessions. With more, the number of backends is not what limits a load.
_SESSIONS_LIMIT = 64

# A further session must raise the rate by at least this factor. Otherwise it costs the server more than it gains
# (benchmarks/results).
_GAIN_WORTH_KEEPING = 1.05


# A session is opened only if it gets at least this many stored bytes. With fewer bytes, the
# other sessions would send them before the new session is connected: that takes nine round trips and a backend's start.
_BYTES_WORTH_A_SESSION = 1024 * 1024


def plan_sessions(
    *,
    asked: int | None,
    cpu_count: int | None,
    free_connections: int,
    size_bytes: int | None = None,
    instance_class: str | None = None,
) -> SessionPlan:
    """Return how many sessions to start with, and how many `--sessions auto` may open.

    `asked` is the number of sessions that the user has asked for, None for auto. A session is one backend process, so
    it uses at most one CPU. With auto, the load starts with one session less than the server has vCPUs, but with at
    least 2; with a small `size_bytes`, the size of the files as they are stored, it starts with one session for each
    MiB. There are never more sessions than free connections.

    `cpu_count` and `size_bytes` are None if they are not known. `instance_class` is the class of the server's RDS
    instance. It is named in the stated reason. The caller checks that a connection is free.
    """
    if asked is not None:
        count = max(1, min(asked, free_connections))
        reason = "as requested" if count == asked else f"as requested, limited by {free_connections} free connections"
        return SessionPlan(initial=count, maximum=count, is_adaptive=False, reason=reason, connections=free_connections)
    wanted = _UNKNOWN_START if cpu_count is None else max(2, cpu_count - 1)
    why = "server's CPUs unknown" if cpu_count is None else f"server has {cpu_count} CPUs"
    if instance_class is not None:
        why = f"{instance_class} has {cpu_count} vCPUs"
    ceiling = _SESSIONS_LIMIT if cpu_count is None else max(2, 2 * cpu_count)
    maximum = max(1, min(ceiling, free_connections))
    initial = min(wanted, maximum)
    if initial < wanted:
        why += f", {free_connections} free connections"
    worth = initial if size_bytes is None else -(-size_bytes // _BYTES_WORTH_A_SESSION)
    if worth < initial:
        initial = max(1, worth)
        why += f", {format_bytes(size_bytes or 0)} to read"
    return SessionPlan(
        initial=initial, maximum=maximum, is_adaptive=maximum > 1, reason=why, connections=free_connections
    )


def share_sessions(connections: int, *, members: int) -> int:
    """Return how many COPY sessions one of `members` hosts may open if they share `connections` free connections.

    Each host needs one more connection to claim objects. The result is at least 1.

    >>> share_sessions(30, members=3), share_sessions(2, members=3)
    (9, 1)
    """
    return max(1, connections // members - 1)


def limit_sessions(plan: SessionPlan, *, connections: int, members: int) -> SessionPlan:
    """Return the session plan of one of `members` hosts that share `connections` free connections."""
    share = share_sessions(connections, members=members)
    if plan.maximum <= share:
        return plan
    reason = f"{plan.reason}; {members} hosts share {connections} connections"
    return replace(plan, initial=min(plan.initial, share), maximum=share, reason=reason)


@slotted
class Pace:
    """The state of the search for the best number of sessions."""

    sessions: int
    # The bytes per second before the last step. None if the next step is not decided yet.
    rate_before: float | None = None
    # How many sessions each step adds: 1, or -1 to remove one.
    step: int = 1
    # Whether the search is over.
    is_settled: bool = False


def next_pace(pace: Pace, *, rate: float, plan: SessionPlan) -> Pace:
    """Return the state with the number of sessions to continue with.

    `rate` is how many bytes per second the present number of sessions has sent. Sessions are added one by one as long
    as each raises the rate enough. A session that does not raise it enough is removed again. If that was the first one
    added, further sessions are removed as long as the rate does not fall.
    """
    if pace.is_settled:
        return pace
    if pace.rate_before is None:
        return _try_step(pace, rate=rate, plan=plan)
    if pace.step > 0 and rate >= pace.rate_before * _GAIN_WORTH_KEEPING:
        return _try_step(replace(pace, rate_before=None), rate=rate, plan=plan)
    if pace.step < 0 and rate >= pace.rate_before:
        return _try_step(replace(pace, rate_before=None), rate=rate, plan=plan)
    back = pace.sessions - pace.step
    if pace.step > 0 and back == plan.initial and back > 2:
        return Pace(sessions=back - 1, rate_before=pace.rate_before, step=-1)
    return replace(pace, sessions=back, is_settled=True)


def _try_step(pace: Pace, *, rate: float, plan: SessionPlan) -> Pace:
    sessions = pace.sessions + pace.step
    least = min(2, plan.maximum)
    if not least <= sessions <= plan.maximum:
        return replace(pace, is_settled=True)
    return replace(pace, sessions=sessions, rate_before=rate)
