"""Draws curves over time as inline SVG for a page, in the page's own text colour. The drawing has no recorded text."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock.frozen import frozen
from penstock.report.plot import STYLES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The colours of curves. The page's legends show the colours with the same dashes.
COLORS = tuple(color for color, _ in STYLES)
DASHES = ("none", "6 2", "2 2", "7 2 2 2", "1 3")
REST_COLOR = "#999999"

# The drawing has these colours where the page's colours are filled in.
_TEXT, _GRID = "#010203", "#040506"
_PAGE = {_TEXT: "currentColor", _GRID: "var(--line)"}
# The width and height of a drawing in inches.
_SIZE = (6.4, 2.3)
_ROOM_ABOVE = 1.08


@frozen
class TimePlot:
    """Curves over time, in equal bins."""

    y_label: str
    # The seconds that the axis shows.
    end_s: float
    # The highest value of the axis.
    top: float
    curves: tuple[Sequence[float | None], ...] = ()
    # Curves that are drawn as areas on top of each other. The sixth is grey.
    stacked: tuple[Sequence[float | None], ...] = ()
    # Drawn as horizontal lines.
    limits: tuple[float, ...] = ()
    # Drawn as vertical lines.
    marks: tuple[float, ...] = ()


def draw_times(plot: TimePlot, name: str) -> str:
    """Return a drawing as an SVG element whose ids begin with `name`."""
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
    """Return a number of an axis in a short form.

    >>> [format_tick(value) for value in (0.25, 40, 1500, 250_000, 2_000_000)]
    ['0.25', '40', '1,500', '250 k', '2 M']
    """
    if abs(value) >= 1e6:
        return f"{value / 1e6:,.4g} M"
    return f"{value / 1e3:,.4g} k" if abs(value) >= 1e4 else f"{value:,.4g}" if value < 1000 else f"{value:,.0f}"
