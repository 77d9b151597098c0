"""Turns the samples of a recording into curves over time: waits, rows, WAL, checkpoints, devices, steps. Pure.

A curve is a list of pieces. Each piece has a start, an end and a value. Curves are drawn from bins, so a drawing of
many hours is as large as one of a minute.
"""

from __future__ import annotations

import io
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.core.slotted import slotted
from penstock.core.units import MB
from penstock.core.values.device import CounterRow, DeviceCounters, is_reset, rates
from penstock.watch.devices import DATA, WAL, are_counters, read_device
from penstock.watch.waits import find_moments, name_wait

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from penstock.watch.values import Sample

# How many bins of time a drawing has.
BINS = 160

# The columns that count forced and timed checkpoints: up to PostgreSQL 16, and from 17 on.
_CHECKPOINTS = (
    ("pg_stat_bgwriter", "checkpoints_req", "checkpoints_timed"),
    ("pg_stat_checkpointer", "num_requested", "num_timed"),
)

# Two counts can give the curve of rows. COPY's progress shows rows as they arrive, but misses the end of short
# commands. The database's count rises at the end of transactions, so its curve spreads the rows over the time since the
# last rise. Progress is used if it has shown at least this share of the rows that the database counted.
_LEAST_SEEN = 0.9


class TimelinePiece(NamedTuple):
    """A piece of a curve: a value, and the times between which it holds, in seconds since the recording's start."""

    begin_s: float
    end_s: float
    value: float


@dataclass(slots=True)
class Marks:
    """The times at which a count, such as that of checkpoints, was found to have risen."""

    # The times of the readings that show a rise.
    at_s: list[float] = field(default_factory=list)
    # By how much the count rose over the whole recording.
    count: int = 0


@dataclass(slots=True)
class DeviceCurves:
    """The use of one device over time: its queue, I/Os per second and MB per second."""

    # What is on the device: tablespaces and pg_wal.
    roles: dict[str, None]
    queue: list[TimelinePiece]
    iops: list[TimelinePiece]
    mb_per_s: list[TimelinePiece]

    @property
    def has_data(self) -> bool:
        """Return whether the data directory is on the device."""
        return DATA in self.roles

    @property
    def use(self) -> str:
        """Return what the device stores as text, such as "data, WAL"."""
        names = {DATA: "data", WAL: "WAL"}
        return ", ".join(names.get(role, role) for role in self.roles)


class Timeline:
    """The curves of a recording, made from its samples one by one. Each reading adds one piece to each curve."""

    def __init__(self) -> None:
        self.end_s = 0.0
        self.waits: list[tuple[float, float, Counter[str]]] = []
        self.busy_cpus: list[TimelinePiece] = []
        self.wal: list[TimelinePiece] = []
        self.wal_bytes = 0
        self.forced = Marks()
        self.timed = Marks()
        self.devices: dict[str, DeviceCurves] = {}
        self._copied: list[TimelinePiece] = []
        self._inserted: list[TimelinePiece] = []
        self._last: dict[str, tuple[float, Mapping[object, int]]] = {}
        self._last_devices: dict[str, tuple[float, DeviceCounters]] = {}

    def see(self, sample: Sample) -> None:
        """Add a sample to the curves. The caller has removed sessions that do not belong to the workload."""
        begin_s, self.end_s = max(0.0, sample.at_s - sample.interval_s), max(self.end_s, sample.at_s)
        counts = Counter(name_wait(moment.session) for moment in find_moments(sample, 0))
        self.waits.append((begin_s, sample.at_s, counts))
        if sample.host_busy_cpus is not None:
            self.busy_cpus.append(TimelinePiece(begin_s, sample.at_s, sample.host_busy_cpus))
        if (wal_bytes := sample.progress.wal_bytes) is not None:
            if wal_bytes < self._last.get("wal", (0.0, {None: 0}))[1][None]:
                # A position is no counter that was reset: another server has taken over, which lacked some WAL.
                del self._last["wal"]
            self.wal_bytes += self._add(self.wal, "wal", sample.at_s, {None: wal_bytes}, unit=MB)
        self._see_rows(sample)
        self._see_checkpoints(sample)
        self._see_devices(sample)

    @property
    def rows(self) -> list[TimelinePiece]:
        """Return the curve of rows per second that COPY and INSERT have stored."""
        copied, inserted = (sum((p.end_s - p.begin_s) * p.value for p in c) for c in (self._copied, self._inserted))
        return self._copied if copied and copied >= _LEAST_SEEN * inserted else self._inserted

    def _see_rows(self, sample: Sample) -> None:
        if (found := sample.counters.get("pg_stat_database")) is not None:
            counts = _numbers(found, "datname", "tup_inserted")
            is_idle = not self.waits[-1][2]
            if is_idle or self._last.get("inserted", (0.0, {}))[1] != counts:
                self._add(self._inserted, "inserted", sample.at_s, counts)
            copies = sample.counters.get("pg_stat_progress_copy", ())
            # A command that the last reading did not have counts from 0, because COPY's counter begins at 0.
            self._add(self._copied, "copied", sample.at_s, _numbers(copies, "pid", "tuples_processed"), is_new=True)

    def _see_checkpoints(self, sample: Sample) -> None:
        for view, forced, timed in _CHECKPOINTS:
            rows = sample.counters.get(view, ())
            for column, marks in ((forced, self.forced), (timed, self.timed)):
                now = _numbers(rows, "", column)
                if now and (rise := self._add([], column, sample.at_s, now)):
                    marks.at_s.append(sample.at_s)
                    marks.count += rise

    def _see_devices(self, sample: Sample) -> None:
        seen: dict[str, CounterRow] = {}
        for row in filter(are_counters, sample.counters.get("host_devices", ())):
            device = str(row.get("device"))
            curves = self.devices.setdefault(device, DeviceCurves({}, [], [], []))
            curves.roles[str(row.get("tablespace"))] = None
            seen[device] = row
        for device, row in seen.items():
            now = read_device(row)
            before_s, before = self._last_devices.get(device, (sample.at_s, now))
            self._last_devices[device] = (sample.at_s, now)
            if now.at_s > before.at_s and sample.at_s > before_s and not is_reset(before, now):
                use, curves = rates(before, now), self.devices[device]
                mb_per_s = (use.read_bytes_per_s + use.write_bytes_per_s) / MB
                curves.queue.append(TimelinePiece(before_s, sample.at_s, use.queue))
                curves.iops.append(TimelinePiece(before_s, sample.at_s, use.read_iops + use.write_iops))
                curves.mb_per_s.append(TimelinePiece(before_s, sample.at_s, mb_per_s))

    def _add(
        self,
        curve: list[TimelinePiece],
        name: str,
        at_s: float,
        now: Mapping[object, int],
        *,
        unit: float = 1.0,
        is_new: bool = False,
    ) -> int:
        """Add the rise of some counters since the last reading, per second, to a curve, and return the rise.

        If a counter fell, it was reset to 0 and has risen since. A counter that the last reading did not have counts
        from 0 if `is_new` is true, and does not count otherwise.
        """
        before_s, before = self._last.get(name, (at_s, now))
        self._last[name] = (at_s, now)
        rise = sum(
            value - then if value >= then else value
            for key, value in now.items()
            for then in [before.get(key, 0 if is_new else value)]
        )
        if at_s > before_s:
            curve.append(TimelinePiece(before_s, at_s, rise / (at_s - before_s) / unit))
        return rise


def _numbers(rows: Iterable[CounterRow], key: str, column: str) -> dict[object, int]:
    return {row.get(key): value for row in rows if isinstance(value := row.get(column), int)}


def pieces_of(waits: Iterable[tuple[float, float, Counter[str]]], names: Iterable[str]) -> list[TimelinePiece]:
    """Return the curve of how many sessions were in any of the waits that `names` lists.

    `waits` has a start and an end in seconds, and the number of sessions in each wait by its name.
    """
    wanted = set(names)
    return [
        TimelinePiece(begin_s, end_s, sum(count for name, count in counts.items() if name in wanted))
        for begin_s, end_s, counts in waits
    ]


def mean(pieces: Sequence[TimelinePiece]) -> float | None:
    """Return the mean value of a curve over its time, None if it has no pieces.

    >>> mean([TimelinePiece(0, 1, 4), TimelinePiece(1, 4, 0)])
    1.0
    """
    seconds = sum(piece.end_s - piece.begin_s for piece in pieces)
    return sum((piece.end_s - piece.begin_s) * piece.value for piece in pieces) / seconds if seconds else None


def bin_pieces(pieces: Iterable[TimelinePiece], end_s: float, bins: int = BINS) -> list[float | None]:
    """Return the curve's mean in each of `bins` equal parts of the time up to `end_s`; None for a part without pieces.

    >>> bin_pieces([TimelinePiece(0, 1, 4), TimelinePiece(1, 3, 2)], end_s=4, bins=2)
    [3.0, 2.0]
    """
    width_s = (end_s or 1.0) / bins
    sums, seconds = [0.0] * bins, [0.0] * bins
    for piece in pieces:
        first, last = int(piece.begin_s / width_s), int(piece.end_s / width_s)
        for number in range(max(0, first), min(bins - 1, last) + 1):
            inside_s = min(piece.end_s, (number + 1) * width_s) - max(piece.begin_s, number * width_s)
            if inside_s > 0:
                sums[number] += inside_s * piece.value
                seconds[number] += inside_s
    return [total / spent_s if spent_s else None for total, spent_s in zip(sums, seconds, strict=True)]


# The colours of curves: Okabe and Ito's without the pale ones, which colour-blind readers can distinguish. The page's
# legends show the colours with the same dashes.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9")
DASHES = ("none", "6 2", "2 2", "7 2 2 2", "1 3")
REST_COLOR = "#999999"

# Two colours of a drawing, which the page replaces by its own colours.
_TEXT, _GRID = "#010203", "#040506"
_PAGE = {_TEXT: "currentColor", _GRID: "var(--line)"}
# The width and height of a drawing in inches.
_SIZE = (6.4, 2.3)
_ROOM_ABOVE = 1.08


@slotted
class TimePlot:
    """The curves of one drawing. Each has the means in equal parts of the time, None where nothing was recorded."""

    y_label: str
    # The time in seconds at which the axis ends.
    end_s: float
    # The highest value of the axis.
    top: float
    curves: tuple[Sequence[float | None], ...] = ()
    # Curves that are drawn as areas on top of each other. The sixth is grey.
    stacked: tuple[Sequence[float | None], ...] = ()
    # The values of limits, which are drawn as horizontal lines.
    limits: tuple[float, ...] = ()
    # The times of marks, which are drawn as vertical lines.
    marks: tuple[float, ...] = ()


def draw_times(plot: TimePlot, name: str) -> str:
    """Return a drawing of curves over time as an SVG element whose ids begin with `name`."""
    from matplotlib import rc_context  # noqa: PLC0415 (370 ms, and an extra)
    from matplotlib.figure import Figure  # noqa: PLC0415 (with the line above)

    look: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": name, "font.size": 9}
    look |= dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), _TEXT)
    with rc_context(look):
        figure = Figure(figsize=_SIZE, layout="constrained")
        axes = figure.add_subplot()
        _draw(axes, plot)
        _label(axes, plot)
        stream = io.StringIO()
        figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    drawn = re.sub(r"<metadata>.*?</metadata>", "", stream.getvalue(), flags=re.DOTALL)
    drawn = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", drawn[drawn.index("<svg") :])
    for inside, outside in _PAGE.items():
        drawn = drawn.replace(inside, outside)
    return drawn


def _draw(axes: Axes, plot: TimePlot) -> None:
    end = plot.end_s / _unit(plot.end_s)[1]
    below: list[float] = []
    for values, color in zip(plot.stacked, (*COLORS, REST_COLOR), strict=False):
        below = below or [0.0] * len(values)
        edges = [number * end / len(values) for number in range(len(values) + 1)]
        above = [base + (value or 0.0) for base, value in zip(below, values, strict=True)]
        axes.stairs(above, edges, baseline=below, fill=True, color=color, linewidth=0)
        below = above
    for number, values in enumerate(plot.curves):
        dashes = DASHES[number % len(DASHES)]
        style = "-" if dashes == "none" else (0, tuple(map(float, dashes.split())))
        # The line has a gap for the time in which nothing was recorded.
        ys = [math.nan if value is None else value for value in values]
        xs = [(at + 0.5) * end / len(values) for at in range(len(values))]
        color = _TEXT if plot.stacked else COLORS[number % len(COLORS)]
        axes.plot(xs, ys, color=color, linewidth=1.5, linestyle=style)
    for limit in plot.limits:
        axes.axhline(limit, color=_TEXT, linewidth=1.2, linestyle=(0, (4, 3)))
    for mark in plot.marks:
        axes.axvline(mark / _unit(plot.end_s)[1], color=_TEXT, linewidth=1, linestyle=":")


def _label(axes: Axes, plot: TimePlot) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator  # noqa: PLC0415 (with matplotlib)

    name, unit_s = _unit(plot.end_s)
    axes.set(xlim=(0, plot.end_s / unit_s), ylim=(0, plot.top * _ROOM_ABOVE), xlabel=f"{name} since the beginning")
    axes.set_ylabel(plot.y_label)
    axes.xaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_tick(value)))
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: format_tick(value)))
    axes.grid(visible=True, axis="y", color=_GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _unit(seconds: float) -> tuple[str, float]:
    """Return the unit of a time axis, and how many seconds the unit has."""
    return ("hours", 3600.0) if seconds >= 10_800 else ("minutes", 60.0) if seconds >= 300 else ("seconds", 1.0)


def format_tick(value: float) -> str:
    """Return a number as the short text that is written at a mark of an axis.

    >>> [format_tick(value) for value in (0.25, 40, 1500, 250_000, 2_000_000)]
    ['0.25', '40', '1,500', '250 k', '2 M']
    """
    if abs(value) >= 1e6:
        return f"{value / 1e6:,.4g} M"
    return f"{value / 1e3:,.4g} k" if abs(value) >= 1e4 else f"{value:,.4g}" if value < 1000 else f"{value:,.0f}"
