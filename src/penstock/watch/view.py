"""Renders what a watched server does as a line, as an object for --json, and as a screen. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Self

from penstock.core.slotted import slotted
from penstock.core.units import count_nouns, format_bytes, format_duration
from penstock.core.words import pad, shorten_right, visible
from penstock.rds.view import describe_local_storage
from penstock.watch.devices import (
    DATA,
    WAL,
    DeviceUse,
    find_local_storage,
    find_tiered_cache,
    local_metrics,
    measure_devices,
)
from penstock.watch.holders import read_int
from penstock.watch.rates import DatabaseIncrease, Rates, RunningCommand, find_work, measure_rates, parse_lsn
from penstock.watch.risks import RiskMeter
from penstock.watch.waits import (
    Activity,
    ActivityPart,
    Blocked,
    find_blocking,
    is_active,
    is_idle_in_transaction,
    measure_activity,
    name_statement,
    name_wait,
)

if TYPE_CHECKING:
    from penstock.core.values.device import CounterRow, TieredCache
    from penstock.core.values.diagnosis import Diagnosis
    from penstock.watch.values import RecordingHeader, Sample, SessionSample

Span = tuple[str, str]
Line = list[Span]

# The colours can be seen on black and on white, and differ for readers who cannot distinguish red and green. Next to
# each colour is the name of what it shows.
_STYLES = {
    "cpu": "cyan",
    "io": "blue",
    "ipc": "magenta",
    "lock": "yellow",
    "lwlock": "bright_yellow",
    "buffer": "bright_yellow",
    "client": "white",
}
_BAR_WIDTH = 30
_NAMES_IN_LINE = 3
_LEAST_SHARE = 0.005
_BLOCKED_SHOWN = 8
_WORK_SHOWN = 5
# A row of the table of statements: pid, age, share of the active time, database and user, wait, text.
_STATEMENT = "{:>8}  {:>7}  {:>5}  {:<13.13}  {:<16.16}  {}"


@slotted
class Standby:
    """A standby, or another receiver of WAL."""

    name: str
    state: str
    # The WAL that the receiver has not replayed yet. If the receiver replays nothing, as pg_receivewal does, it is the
    # WAL that the receiver has not flushed. None if the role may not see it.
    behind_bytes: int | None


@slotted
class RunningStatement:
    """A statement that a session is running, the longest one of its text."""

    pid: int
    query_s: float | None
    database: str | None
    user: str | None
    # The wait event, or CPU.
    wait: str
    statement: str
    # How many sessions run the same text, parallel workers included.
    sessions: int


@slotted
class InUse:
    """What a server has in use, apart from its active sessions. A value is None if it is not known."""

    # Client backends, and how many ordinary roles may have.
    connections: int | None
    allowed_connections: int | None
    idle_in_transaction: int
    # The part of the blocks that was found in shared buffers, 0 to 1, and what was written to temporary files.
    cache_hits: float | None
    temp_bytes_per_s: float | None


@slotted
class View:
    """What a server did in the last seconds."""

    header: RecordingHeader
    at_s: float
    window_s: float
    activity: Activity
    rates: Rates
    standbys: tuple[Standby, ...]
    devices: tuple[DeviceUse, ...]
    local_storage: dict[str, object] | None
    tiered_cache: TieredCache | None
    busy_cpus: float | None
    blocking: tuple[Blocked, ...]
    work: tuple[RunningCommand, ...]
    running: tuple[RunningStatement, ...]
    in_use: InUse
    # The risks since the watch began.
    risks: tuple[Diagnosis, ...]

    @classmethod
    def of(cls, header: RecordingHeader, samples: Sequence[Sample], risks: tuple[Diagnosis, ...] = ()) -> Self:
        """Return the view of one or more samples."""
        last = samples[-1]
        counted = next((sample for sample in reversed(samples) if "pg_stat_replication" in sample.counters), last)
        return cls(
            header=header,
            at_s=last.at_s,
            window_s=last.at_s - samples[0].at_s,
            activity=measure_activity(samples),
            rates=measure_rates(samples),
            standbys=tuple(
                _read_standby(row, counted.progress.wal_bytes)
                for row in counted.counters.get("pg_stat_replication", ())
            ),
            devices=measure_devices(samples),
            local_storage=find_local_storage(samples),
            tiered_cache=find_tiered_cache(samples),
            busy_cpus=_average_busy(samples),
            blocking=find_blocking(last),
            work=find_work(samples),
            running=find_running(last),
            in_use=_measure_use(header, samples),
            risks=risks,
        )


def as_object(view: View) -> dict[str, object]:
    """Return a view as the object that --json prints."""
    return {
        "at_s": round(view.at_s, 3),
        "window_s": round(view.window_s, 3),
        "cpu_count": view.header.cpu_count,
        "active_sessions": view.activity.sessions,
        **{
            kind: [asdict(part) for part in getattr(view.activity, kind)]
            for kind in ("classes", "waits", "applications", "statements")
        },
        "rates": asdict(view.rates),
        "standbys": [asdict(standby) for standby in view.standbys],
        "devices": [{**asdict(use), "metrics": use.as_metrics()} for use in view.devices],
        "local_storage": view.local_storage,
        "tiered_cache": None if view.tiered_cache is None else asdict(view.tiered_cache),
        "host_busy_cpus": view.busy_cpus,
        "blocking": [asdict(blocked) for blocked in view.blocking],
        "progress": [asdict(work) for work in view.work],
        "running": [asdict(each) for each in view.running],
        "in_use": asdict(view.in_use),
        "risks": [asdict(risk) for risk in view.risks],
    }


def describe_line(view: View) -> str:
    """Return a line that describes what the server did."""
    waits = ", ".join(
        f"{part.share:.0%} {part.name}" for part in view.activity.waits[:_NAMES_IN_LINE] if part.share >= _LEAST_SHARE
    )
    behind = [standby.behind_bytes for standby in view.standbys if standby.behind_bytes is not None]
    parts = [
        f"{view.at_s:7.1f} s",
        f"{view.activity.sessions:.2f} active{_of_cpus(view.header)}" + (f": {waits}" if waits else ""),
        *_describe_rates(view.rates),
    ]
    parts += [f"{use.device} queue {use.rates.queue:.1f}" for use in view.devices if use.has_data]
    if view.blocking:
        parts.append(f"{sum(blocked.waits_s is not None for blocked in view.blocking)} blocked by locks")
    if behind:
        parts.append(f"standbys up to {format_bytes(max(behind))} behind")
    if view.risks:
        parts.append(f"risks: {', '.join(sorted({risk.code for risk in view.risks}))}")
    return "; ".join(parts)


def draw_screen(view: View, *, width: int, height: int, by_name: bool, remark: str) -> list[Line]:
    """Return the lines of a screen that fits a terminal. `remark` is the text about the keys and the interval."""
    header = view.header
    flavour = "Aurora PostgreSQL" if header.flavour == "aurora" else "PostgreSQL"
    role = ", standby" if header.is_in_recovery else ""
    total = view.activity.sessions
    busy = [] if view.busy_cpus is None else [f"{view.busy_cpus:.1f} CPUs of the host busy"]
    lines: list[Line] = [
        [(visible(f"{header.server}, database {header.database}, {flavour} {header.version}{role}"), "bold")],
        [(remark, "")],
        [],
        [
            (
                f"{total:.2f} active sessions{_of_cpus(header)}, average of the last {view.window_s:.0f} s",
                "bold",
            )
        ],
        *_draw_parts(view.activity.classes, by_name=by_name, is_class=True),
        [],
        [
            (
                "; ".join([*busy, *_describe_rates(view.rates)]) or "counters arrive with the second sample",
                "",
            )
        ],
        [("; ".join(_describe_use(view.in_use)), "")],
        *([(_describe_standby(standby), "")] for standby in view.standbys),
        *([(_describe_device(device), "")] for device in view.devices),
        *([(_describe_local_storage(row), "")] for row in (view.local_storage,) if row is not None),
        *([(describe_tiered_cache(cache), "")] for cache in (view.tiered_cache,) if cache is not None),
        *([(_describe_work(work), "")] for work in view.work[:_WORK_SHOWN]),
        *([(visible(risk.headline), "")] for risk in view.risks[:_WORK_SHOWN]),
        *_draw_blocking(view.blocking),
    ]
    tables = [
        ("waits", view.activity.waits),
        ("applications", view.activity.applications),
    ]
    # Running statements get the rest, because there are most of them.
    room = max(1, (height - len(lines) - 2 * (len(tables) + 1)) // (len(tables) + 1))
    for title, parts in tables:
        lines += [[], [(f"{'sessions':>8}  share  {title}", "bold")]]
        lines += _draw_parts(parts[:room], by_name=by_name, is_class=False)
    lines += [[], [(_STATEMENT.format("pid", "for", "share", "database/user", "wait", "statement"), "bold")]]
    lines += _draw_statements(view)
    return [_fit(line, width) for line in lines[:height]]


def _fit(line: Line, width: int) -> Line:
    """Return a line that is not wider than `width`. A line of several spans is unchanged: none is long."""
    return [(shorten_right(text, width), style) for text, style in line] if len(line) == 1 else line


def _draw_parts(parts: Sequence[ActivityPart], *, by_name: bool, is_class: bool) -> list[Line]:
    shown = sorted(parts, key=lambda part: part.name.lower()) if by_name else parts
    lines: list[Line] = []
    for part in shown:
        figures = f"{part.sessions:8.2f}  {part.share:5.0%}  "
        name = visible(part.name)
        if is_class:
            style = _STYLES.get(part.name.lower(), "green")
            label = "CPU (inferred)" if part.name == "CPU" else name
            lines.append([(figures + pad(label, 16), ""), ("█" * max(1, round(part.share * _BAR_WIDTH)), style)])
        else:
            lines.append([(figures + name, "")])
    return lines


def find_running(sample: Sample) -> tuple[RunningStatement, ...]:
    """Return the statements that sessions run at this moment, the longest first, each text once."""
    by_text: dict[str, list[SessionSample]] = {}
    for session in filter(is_active, sample.sessions):
        by_text.setdefault(name_statement(session), []).append(session)
    found = []
    for text, sessions in by_text.items():
        # A parallel worker counts as part of its leader.
        first = max(sessions, key=lambda each: (each.leader_pid is None, each.query_s or 0.0))
        found.append(
            RunningStatement(
                pid=first.pid,
                query_s=first.query_s,
                database=first.database,
                user=first.user,
                wait=name_wait(first),
                statement=text,
                sessions=len(sessions),
            )
        )
    return tuple(sorted(found, key=lambda each: -(each.query_s or 0.0)))


def _draw_statements(view: View) -> list[Line]:
    """Return the running statements, and then those that took most of the time and are not running now."""
    shares = {part.name: f"{part.share:.0%}" for part in view.activity.statements}
    lines: list[Line] = []
    for each in view.running:
        text = each.statement if each.sessions == 1 else f"({each.sessions} sessions) {each.statement}"
        took = "" if each.query_s is None else format_duration(each.query_s)
        who = f"{each.database or ''}/{each.user or ''}"
        row = _STATEMENT.format(each.pid, took, shares.get(each.statement, ""), who, each.wait, text)
        lines.append([(visible(row), "")])
    running = {each.statement for each in view.running}
    rest = [part for part in view.activity.statements if part.name not in running]
    return lines + [[(visible(_STATEMENT.format("", "", f"{part.share:.0%}", "", "", part.name)), "")] for part in rest]


def _measure_use(header: RecordingHeader, samples: Sequence[Sample]) -> InUse:
    connections = next((rows for sample in reversed(samples) if (rows := sample.counters.get("connections"))), ())
    read, hit, temp_bytes = DatabaseIncrease("blks_read"), DatabaseIncrease("blks_hit"), DatabaseIncrease("temp_bytes")
    for sample in samples:
        for each in (read, hit, temp_bytes):
            each.see(sample)
    elapsed_s = samples[-1].at_s - samples[0].at_s
    return InUse(
        # The rows do not include this process's own connection.
        connections=read_int(connections[0], "of_all") + 1 if connections else None,
        allowed_connections=RiskMeter(header.settings).allowed_connections,
        idle_in_transaction=sum(map(is_idle_in_transaction, samples[-1].sessions)),
        cache_hits=hit.total / (hit.total + read.total) if hit.total + read.total else None,
        temp_bytes_per_s=temp_bytes.total / elapsed_s if elapsed_s > 0 else None,
    )


def _describe_use(load: InUse) -> list[str]:
    allowed = "" if load.allowed_connections is None else f" of {load.allowed_connections}"
    return [
        *([] if load.connections is None else [f"{load.connections}{allowed} connections"]),
        f"{load.idle_in_transaction} idle in transaction",
        *([] if load.cache_hits is None else [f"{load.cache_hits:.1%} cache hits"]),
        *([] if load.temp_bytes_per_s is None else [f"{format_bytes(load.temp_bytes_per_s)}/s to temporary files"]),
    ]


def _draw_blocking(blocking: Sequence[Blocked]) -> list[Line]:
    """Return the first lines of the tree of blocked sessions, in which each is below the session that blocks it."""
    if not blocking:
        return []
    lines: list[Line] = [[], [("waits for locks, each below what blocks it", "bold")]]
    for each in blocking[:_BLOCKED_SHOWN]:
        waits = "" if each.waits_s is None else f" waits {format_duration(each.waits_s)}"
        who = f"{each.application or ''} {each.state or 'not shown'}"
        text = f"{'  ' * each.depth}{each.pid}{waits}: {who.strip()}: {each.statement or ''}"
        lines.append([(visible(text), "")])
    if len(blocking) > _BLOCKED_SHOWN:
        lines.append([(f"and {len(blocking) - _BLOCKED_SHOWN} more", "")])
    return lines


def _average_busy(samples: Sequence[Sample]) -> float | None:
    """Return how many of the host's CPUs were busy on average, None if that is not known."""
    known = [(sample.host_busy_cpus, sample.interval_s) for sample in samples if sample.host_busy_cpus is not None]
    seconds = sum(interval_s for _, interval_s in known)
    return sum(busy * interval_s for busy, interval_s in known) / seconds if seconds else None


def _of_cpus(header: RecordingHeader) -> str:
    return "" if header.cpu_count is None else f" on {count_nouns(header.cpu_count, 'CPU')}"


def _describe_rates(rates: Rates) -> list[str]:
    words = []
    if rates.commits_per_s is not None:
        words.append(f"{rates.commits_per_s:,.0f} commits/s")
    if rates.rows_per_commit is not None:
        about = "" if rates.is_exact else "about "
        source = "" if rates.is_exact else " (estimated from WAL)"
        words.append(f"{about}{rates.rows_per_commit:,.1f} rows each{source}")
    if rates.rollbacks_per_s:
        words.append(f"{rates.rollbacks_per_s:,.0f} rollbacks/s")
    if rates.wal_bytes_per_s is not None:
        words.append(f"{format_bytes(rates.wal_bytes_per_s)}/s of WAL")
    return words


def _describe_work(work: RunningCommand) -> str:
    parts = [work.phase, "" if work.fraction is None else f"{work.fraction:.0%}"]
    parts.append("" if work.rows is None else count_nouns(work.rows, "row"))
    parts.append("" if work.left_s is None else f"{format_duration(work.left_s)} left in this phase")
    return visible(f"{work.command} {work.table}: {', '.join(part for part in parts if part)} ({work.pid})")


def _describe_standby(standby: Standby) -> str:
    behind = "" if standby.behind_bytes is None else f", {format_bytes(standby.behind_bytes)} behind"
    return visible(f"standby {standby.name}: {standby.state}{behind}")


def _describe_device(use: DeviceUse) -> str:
    known = {DATA: "data", WAL: "WAL"}
    what = ", ".join(known.get(name, f"tablespace {name}") for name in use.tablespaces)
    rates = use.rates
    return visible(
        f"device {use.device} ({what}): queue {rates.queue:.1f}, {rates.busy:.0%} busy, "
        f"{rates.read_iops:,.0f} reads/s, {rates.write_iops:,.0f} writes/s, "
        f"{format_bytes(rates.read_bytes_per_s + rates.write_bytes_per_s)}/s, {format_bytes(use.free_bytes)} free"
    )


def _describe_local_storage(row: Mapping[str, object]) -> str:
    measured = str(row.get("measured_at"))
    return visible(f"local storage (CloudWatch, {measured[:16]}): {describe_local_storage(local_metrics(row))}")


def describe_tiered_cache(cache: TieredCache) -> str:
    """Return how much of Aurora's cache on local storage is used."""
    share = cache.used_bytes / cache.total_bytes
    return f"tiered cache: {format_bytes(cache.used_bytes)} of {format_bytes(cache.total_bytes)} used ({share:.0%})"


def _read_standby(row: CounterRow, wal_bytes: int | None) -> Standby:
    position = parse_lsn(row.get("replay_lsn") or row.get("flush_lsn"))
    return Standby(
        name=str(row.get("application_name") or f"pid {row.get('pid')}"),
        state=str(row.get("sync_state") or "hidden"),
        behind_bytes=None if position is None or wal_bytes is None else max(0, wal_bytes - position),
    )
