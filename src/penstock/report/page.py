"""Writes recordings as one HTML page: charts as inline SVG, each above a table. The page has no script and no links.

This is the only module that imports jinja2, which pg-penstock[report] installs. jinja2 escapes all recorded text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.core.errors import UsageError
from penstock.core.newfile import check_writable, write_file
from penstock.core.slotted import slotted
from penstock.core.units import MB
from penstock.core.words import visible_page
from penstock.report import looks as shown
from penstock.report.looks import ShownRecording, Table, look_at, say
from penstock.report.timeline import (
    COLORS,
    DASHES,
    REST_COLOR,
    Marks,
    TimelinePiece,
    TimePlot,
    bin_pieces,
    draw_times,
    mean,
    pieces_of,
)

if TYPE_CHECKING:
    from penstock.watch.values import Recording

# A limit is named but not drawn if it exceeds the curves by more than this factor. Drawn to its scale, the curves would
# be flat.
_FARTHEST = 4.0


@slotted
class Curve:
    """A named line, area, limit or set of marks of a chart. `kind` is "line", "area", "limit" or "mark".

    Only lines and areas have pieces.
    """

    name: str
    pieces: Sequence[TimelinePiece] = ()
    kind: str = "line"
    color: str = "currentColor"
    dashes: str = "none"
    # The value, if the curve is a limit.
    limit: float = 0.0
    # The moments, if the curve is a set of marks.
    marks: Marks = field(default_factory=Marks)

    @property
    def cells(self) -> tuple[str, str]:
        """Return the texts of the two cells of the curve's row: the mean and the highest value.

        For a limit, the first is empty and the second is the limit. For marks, the second is their number.
        """
        if self.kind == "limit":
            return "", say(self.limit)
        if self.kind == "mark":
            return "", f"{say(self.marks.count)} in all"
        return say(mean(self.pieces)), say(max((piece.value for piece in self.pieces), default=None))


@slotted
class Chart:
    """A chart of one recording, with the curves that its table lists."""

    # The drawing, None if nothing was recorded.
    svg: str | None
    curves: tuple[Curve, ...]


@slotted
class Section:
    """A section of the page, with a chart or a table for each recording."""

    title: str
    unit: str = ""
    note: str = ""
    charts: tuple[Chart, ...] = ()
    tables: tuple[Table | None, ...] = ()


def check_page(path: Path, sources: Sequence[str]) -> None:
    """Check that a page can be drawn and written to `path`, and that `path` is none of the recordings `sources`.

    Raises UsageError, SourceError.
    """
    if find_spec("matplotlib") is None or find_spec("jinja2") is None:
        raise UsageError("a report needs matplotlib and jinja2", hint="Run pip install 'pg-penstock[report]'.")
    check_writable(path, sources=sources)


def write_page(path: Path, recordings: Sequence[tuple[str, Recording]]) -> None:
    """Write a page about recordings. Each is given with its name.

    The file is written completely or not at all. Raises SourceError.
    """
    looks = [
        look_at(recording, name=name, letter=chr(ord("A") + number))
        for number, (name, recording) in enumerate(recordings)
    ]
    # JSON may have halves of surrogate pairs, which no encoding can represent.
    write_file(path, render(looks).encode("utf-8", errors="replace"))


def render(looks: Sequence[ShownRecording]) -> str:
    """Return the page as HTML."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 (an extra)
    from markupsafe import Markup  # noqa: PLC0415 (with jinja2)

    environment = Environment(
        loader=PackageLoader("penstock.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # The drawings contain no recorded text, so they need no escaping.
    environment.filters["drawing"] = Markup
    page = environment.get_template("page.html.j2").render(
        looks=looks,
        facts=shown.facts,
        verdict=shown.verdict,
        say=say,
        differences=shown.compare(looks),
        sections=[section for section in (*_charts(looks), *_tables(looks)) if section is not None],
    )
    # The template has no such characters itself, so those of the page are of recorded text.
    return visible_page(page)


def _tables(looks: Sequence[ShownRecording]) -> list[Section | None]:
    kinds: tuple[tuple[str, Callable[[ShownRecording], Table | None]], ...] = (
        ("Waits", shown.describe_waits),
        ("Statements", shown.describe_statements),
        ("Where the load's time went", shown.describe_time),
        ("Tables", shown.describe_tables),
        ("Files", shown.describe_files),
        ("Plan", shown.describe_plan),
        ("Changed, restored, and done after the rows", shown.describe_done),
    )
    sections: list[Section | None] = []
    for title, describe in kinds:
        tables = tuple(map(describe, looks))
        sections.append(Section(title=title, tables=tables) if any(table and table.rows for table in tables) else None)
    return sections


def _charts(looks: Sequence[ShownRecording]) -> list[Section | None]:
    waits = shown.top_waits(looks, len(COLORS))
    return [
        _draw(looks, "Sessions by what they wait for", "sessions", lambda look: _sessions(look, waits)),
        _draw(looks, "Throughput", "rows/s", _rows),
        _draw(looks, "WAL and checkpoints", "MB/s", _wal),
        _draw(looks, "Queue of the devices", "requests", lambda look: _devices(look, "queue")),
        _draw(looks, "I/O requests of the devices", "IOPS", lambda look: _devices(look, "iops") + _iops_limits(look)),
        _draw(looks, "Throughput of the devices", "MB/s", lambda look: _devices(look, "mb_per_s") + _mb_limits(look)),
    ]


def _sessions(look: ShownRecording, waits: Sequence[str]) -> list[Curve]:
    """Return an area for each of the largest waits, an area for all others, and the processors."""
    timeline, cpus = look.timeline, look.header.cpu_count
    areas = [
        Curve(name=name, pieces=pieces_of(timeline.waits, [name]), kind="area", color=COLORS[number])
        for number, name in enumerate(waits)
    ]
    others = {name for _, _, counts in timeline.waits for name in counts} - set(waits)
    rest = [pieces_of(timeline.waits, others)] if others or not waits else []
    areas += [Curve(name="others", pieces=pieces, kind="area", color=REST_COLOR) for pieces in rest]
    if timeline.busy_cpus:
        areas.append(Curve(name="busy processors of the host", pieces=timeline.busy_cpus))
    return areas + ([] if cpus is None else [_limit("processors of the server", cpus)])


def _rows(look: ShownRecording) -> list[Curve]:
    return [Curve(name="rows", pieces=look.timeline.rows, color=COLORS[0])] if look.timeline.rows else []


def _wal(look: ShownRecording) -> list[Curve]:
    timeline = look.timeline
    wal = [Curve(name="WAL", pieces=timeline.wal, color=COLORS[0])] if timeline.wal else []
    marks = {"checkpoints forced by WAL or asked for": timeline.forced, "checkpoints by time": timeline.timed}
    return wal + [
        Curve(name=name, kind="mark", dashes="2 2", marks=found) for name, found in marks.items() if wal and found.count
    ]


def _devices(look: ShownRecording, curve: str) -> list[Curve]:
    devices = sorted(look.timeline.devices.items(), key=lambda item: not item[1].has_data)
    return [
        Curve(
            name=f"{name} ({use.use})",
            pieces=getattr(use, curve),
            color=COLORS[number % len(COLORS)],
            dashes=DASHES[number % len(DASHES)],
        )
        for number, (name, use) in enumerate(devices)
    ]


def _iops_limits(look: ShownRecording) -> list[Curve]:
    if (volume := look.header.volume) is None:
        return []
    limits = {
        "limit of the volume": volume.iops,
        "limit of its bursts": volume.burst_iops,
        "limit of the instance": volume.instance_iops,
    }
    return [_limit(name, value) for name, value in limits.items() if value]


def _mb_limits(look: ShownRecording) -> list[Curve]:
    if (volume := look.header.volume) is None:
        return []
    limits = {"limit of the volume": volume.bytes_per_s, "limit of the instance": volume.instance_bytes_per_s}
    return [_limit(name, value / MB) for name, value in limits.items() if value]


def _limit(name: str, value: float) -> Curve:
    return Curve(name=name, kind="limit", limit=value, dashes="4 3")


def _draw(
    looks: Sequence[ShownRecording], title: str, unit: str, pick: Callable[[ShownRecording], list[Curve]]
) -> Section | None:
    """Return a section with a chart for each recording, or None without data. All charts have the same axes."""
    found = [pick(look) for look in looks]
    if not any(curve.pieces for curves in found for curve in curves):
        return None
    end_s = max(look.timeline.end_s for look in looks)
    plots = [_bin(curves, end_s) for curves in found]
    heights = [sum(value or 0.0 for value in at) for areas, _ in plots for at in zip(*areas, strict=True)]
    heights += [value for _, lines in plots for line in lines for value in line if value is not None]
    highest = max(heights, default=0.0)
    limits = [curve.limit for curves in found for curve in curves if curve.kind == "limit"]
    near = [limit for limit in limits if limit <= _FARTHEST * highest]
    top = max(highest, *near) if near else highest
    charts = []
    for number, (curves, (areas, lines)) in enumerate(zip(found, plots, strict=True)):
        plot = TimePlot(
            y_label=unit,
            end_s=end_s or 1.0,
            top=top or 1.0,
            curves=tuple(lines),
            stacked=tuple(areas),
            limits=tuple(curve.limit for curve in curves if curve.kind == "limit" and curve.limit <= top),
            marks=tuple(mark for curve in curves for mark in curve.marks.at_s),
        )
        name = f"{''.join(filter(str.isalnum, title))}-{looks[number].letter}"
        is_there = any(curve.pieces for curve in curves)
        charts.append(Chart(svg=draw_times(plot, name) if is_there else None, curves=tuple(curves)))
    note = "A limit that is not drawn is far above the curves." if len(near) < len(limits) else ""
    return Section(title=title, unit=unit, note=note, charts=tuple(charts))


def _bin(curves: Sequence[Curve], end_s: float) -> tuple[list[list[float | None]], list[list[float | None]]]:
    """Return the areas and the lines of a chart."""
    areas = [bin_pieces(curve.pieces, end_s) for curve in curves if curve.kind == "area"]
    lines = [bin_pieces(curve.pieces, end_s) for curve in curves if curve.kind == "line"]
    return areas, lines
