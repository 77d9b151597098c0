"""Draws lines on logarithmic axes into a file that the user named. The caller defines what the lines mean."""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Self

from penstock.core.errors import UsageError
from penstock.core.newfile import check_writable, write_file
from penstock.core.slotted import slotted
from penstock.report.timeline import COLORS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ENDINGS = (".svg", ".png")

# The colours and markers of the lines. In black and white, the markers distinguish the lines.
_STYLES = tuple(zip(COLORS, "os^Dv", strict=True))
_PUBLISHED_STYLE = ("#000000", "X")

# How far points of two lines with equal values are apart, as a share of the axis's width. Without this distance, one
# point would cover the other.
_SHIFT = 0.013
_NOTE_WIDTH = 150
_NAME_WIDTH = 60


@slotted
class Point:
    """One point of a line: the median of the measured values, with the lowest and the highest."""

    # The position on the axis.
    x: float
    median: float
    low: float
    high: float
    # Whether the values were computed from a measurement of fewer rows. The point is then drawn hollow.
    is_scaled: bool = False

    @classmethod
    def of(cls, x: float, values: Sequence[float], *, unit: float = 1.0, is_scaled: bool = False) -> Self:
        """Return the point at `x` for the values measured there. The point's values are in multiples of `unit`."""
        middle = median(values) / unit
        return cls(x=x, median=middle, low=min(values) / unit, high=max(values) / unit, is_scaled=is_scaled)


@slotted
class Line:
    """The points of one measured series, with its name."""

    name: str
    points: tuple[Point, ...]
    # Whether the values were measured and published by others.
    is_published: bool = False


@slotted
class Plot:
    """The title, the labels of the axes, the lines and the notes of a plot."""

    title: str
    x_label: str
    y_label: str
    lines: tuple[Line, ...]
    # Texts that are printed below the plot.
    notes: tuple[str, ...]


def check_plot(path: Path) -> None:
    """Raise UsageError or SourceError if a plot cannot be drawn into this file. Call it before measuring."""
    if path.suffix.lower() not in _ENDINGS:
        raise UsageError(f'cannot draw "{path}"', hint="Name a file that ends in .svg or .png.")
    if find_spec("matplotlib") is None:
        raise UsageError("cannot draw without matplotlib", hint="Run pip install 'pg-penstock[report]'.")
    check_writable(path)


def draw_plot(path: Path, plot: Plot) -> None:
    """Write a plot in the format of the file's suffix, completely or not at all. Raises UsageError, SourceError."""
    check_plot(path)
    write_file(path, _render(plot, path.suffix.lower().removeprefix(".")), mode=0o666)


def _render(plot: Plot, kind: str) -> bytes:
    from matplotlib import rc_context  # noqa: PLC0415 (370 ms, and an extra)
    from matplotlib.figure import Figure  # noqa: PLC0415 (with the line above)

    # Server names must not be parsed as formulas. The fixed salt makes the file depend only on the figures.
    with rc_context({"text.parse_math": False, "svg.hashsalt": "penstock"}):
        notes = "\n".join(textwrap.fill(note, _NOTE_WIDTH) for note in plot.notes)
        figure = Figure(figsize=(9, 5.4 + 0.16 * (notes.count("\n") + 1)), layout="constrained")
        axes = figure.add_subplot()
        _draw_lines(axes, plot.lines)
        _label(axes, plot)
        # Outside of the axes it hides no point.
        figure.legend(loc="outside upper left", frameon=False)
        figure.supxlabel(notes, x=0.01, ha="left", fontsize=8, color="0.25")
        stream = io.BytesIO()
        figure.savefig(stream, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None)
    return stream.getvalue()


def _draw_lines(axes: Axes, lines: Sequence[Line]) -> None:
    styles = iter(_STYLES * len(lines))
    values = [point.x for line in lines for point in line.points]
    decades = math.log10(max(values) / min(values)) if values else 0.0
    for number, line in enumerate(lines):
        color, marker = _PUBLISHED_STYLE if line.is_published else next(styles)
        shift = 10 ** (_SHIFT * decades * (number - (len(lines) - 1) / 2))
        xs = [point.x * shift for point in line.points]
        medians = [point.median for point in line.points]
        look: dict[str, Any] = {"color": color, "marker": marker, "linestyle": "--" if line.is_published else "-"}
        axes.plot(xs, medians, linewidth=1.3, label=_shorten(line.name), **look)
        if line.points and not line.is_published:
            lows, highs = zip(*((point.low, point.high) for point in line.points), strict=True)
            axes.vlines(xs, lows, highs, color=color, linewidth=4, alpha=0.3)
        hollow = [(x, point.median) for x, point in zip(xs, line.points, strict=True) if point.is_scaled]
        if hollow:
            axes.plot(*zip(*hollow, strict=True), color=color, marker=marker, linestyle="", mfc="white", zorder=4)


def _shorten(name: str) -> str:
    return name if len(name) <= _NAME_WIDTH else f"{name[: _NAME_WIDTH - 3]}..."


def _label(axes: Axes, plot: Plot) -> None:
    axes.set(xlabel=plot.x_label, ylabel=plot.y_label)
    axes.set_title(plot.title, loc="left")
    axes.grid(visible=True, color="0.9")
    axes.spines[["top", "right"]].set_visible(False)
    # Logarithms need a value.
    if any(line.points for line in plot.lines):
        _scale(axes, plot)


def _scale(axes: Axes, plot: Plot) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator  # noqa: PLC0415 (with matplotlib)

    axes.set(xscale="log", yscale="log")
    axes.xaxis.set_major_locator(FixedLocator(sorted({point.x for line in plot.lines for point in line.points})))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}" if value < 1000 else f"{value:,.0f}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}\N{MULTIPLICATION SIGN}"))
