"""Draws a load's progress as lines of a terminal: a bar for each open file and one in all. Pure.

A line is spans of (text, style) in rich's style names; putting it on the screen is bars.py's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.cli.columns import pad, shorten_left, width_of
from penstock.cli.meter import format_left, format_percent, is_all_sent, read_file
from penstock.cli.visible import visible
from penstock.units import MB, format_count, format_duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.cli.meter import Reading
    from penstock.model.outcome import LoadProgress

Span = tuple[str, str]
Line = list[Span]

# More would push what was on the screen out of sight.
_BARS_SHOWN = 8
_GAP = "  "
_NAME_LEAST, _NAME_MOST = 12, 48
_BAR_LEAST, _BAR_MOST = 8, 40
# Cells a second that the mark of an unknown size moves.
_PULSE_SPEED = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class BarStyle:
    """What bars are drawn with."""

    done: str
    rest: str


UNICODE = BarStyle(done="━", rest="─")
ASCII = BarStyle(done="#", rest="-")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """One bar; `cells` are percentage, rows, rate and time left."""

    name: str
    fraction: float | None
    cells: tuple[str, ...]


# Least widths of the cells, so that growing numbers do not make the columns jump.
_CELL_WIDTHS = (5, 11, 9, 9)
# Which cells are left out first where the terminal is narrow: rate, rows.
_CELL_CHOICES = ((0, 1, 2, 3), (0, 1, 3), (0, 3), (0,))


def draw(progress: LoadProgress, reading: Reading, *, width: int, style: BarStyle = UNICODE) -> list[Line]:
    """Return the lines for a terminal of that many cells; each fits it."""
    if progress.file_count == 1 and progress.files:
        rows, hidden = [_total_row(progress.files[0].uri, progress, reading)], 0
    else:
        is_open = [file for file in progress.files if not file.is_done]
        read = [(file, read_file(file)) for file in is_open[:_BARS_SHOWN]]
        rows = [_row(file.uri, rows=file.rows, reading=its, rate=its.read_rate, left_s=None) for file, its in read]
        hidden = len(is_open) - len(rows)
        rows.append(_total_row("in all", progress, reading))
    rows += [
        _Row(name=visible(step.name), fraction=step.fraction, cells=(format_percent(step.fraction), step.phase, "", ""))
        for step in progress.steps
    ]
    lines = _draw_rows(rows, elapsed_s=progress.elapsed_s, width=width, style=style)
    if hidden:
        lines.insert(-1 - len(progress.steps), [(f"and {format_count(hidden)} more"[:width], "dim")])
    return [*lines, [(_status(progress, reading)[:width], "dim")]]


def _total_row(name: str, progress: LoadProgress, reading: Reading) -> _Row:
    # Behind the last row there is no rate any more.
    is_over = is_all_sent(progress)
    rate, left_s = (None, None) if is_over else (reading.read_rate, reading.left_s)
    return _row(name, rows=progress.rows, reading=reading, rate=rate, left_s=left_s)


def _row(name: str, *, rows: int, reading: Reading, rate: float | None, left_s: float | None) -> _Row:
    return _Row(
        name=visible(name),
        fraction=reading.fraction,
        cells=(
            format_percent(reading.fraction),
            f"{format_count(rows)} rows",
            "" if rate is None else f"{rate / MB:.1f} MB/s",
            format_left(left_s),
        ),
    )


def _status(progress: LoadProgress, reading: Reading) -> str:
    """Return what concerns the load as a whole: phase, files, sessions, and the rate after decompression."""
    if is_all_sent(progress):
        return f"{visible(progress.activity) or 'committing'}, {format_duration(progress.elapsed_s)}"
    done = sum(file.is_done for file in progress.files)
    sessions = f"{progress.sessions} session{'' if progress.sessions == 1 else 's'}"
    words = [
        format_duration(progress.elapsed_s),
        sessions,
        f"{reading.sent_rate / MB:.0f} MB/s sent",
    ]
    if progress.file_count > 1:
        words.append(f"{format_count(done)} of {format_count(progress.file_count)} files done")
    return ", ".join(words)


def _draw_rows(rows: Sequence[_Row], *, elapsed_s: float, width: int, style: BarStyle) -> list[Line]:
    chosen, cell_widths, name_width, bar_width = _lay_out(rows, width=width)
    lines = []
    for row in rows:
        cells = "".join(
            _GAP + pad(row.cells[index], cell_width, ">") for index, cell_width in zip(chosen, cell_widths, strict=True)
        )
        name = pad(shorten_left(row.name, name_width), name_width)
        bar = _bar(row.fraction, width=bar_width, elapsed_s=elapsed_s, style=style)
        lines.append([(name + _GAP, ""), *bar, (cells, "")])
    return lines


def _lay_out(rows: Sequence[_Row], *, width: int) -> tuple[tuple[int, ...], list[int], int, int]:
    """Return which cells fit, their widths, and what that leaves for names and bars."""
    longest = max(width_of(row.name) for row in rows)
    for chosen in _CELL_CHOICES:
        cell_widths = [max(_CELL_WIDTHS[index], *(width_of(row.cells[index]) for row in rows)) for index in chosen]
        left = width - sum(cell_widths) - len(_GAP) * (len(cell_widths) + 1)
        if left >= min(longest, _NAME_LEAST) + _BAR_LEAST:
            break
    left = max(0, left)
    name_width = min(longest, _NAME_MOST, max(_NAME_LEAST, left - _BAR_MOST), max(0, left - _BAR_LEAST))
    return chosen, cell_widths, name_width, min(_BAR_MOST, left - name_width)


def _bar(fraction: float | None, *, width: int, elapsed_s: float, style: BarStyle) -> list[Span]:
    if fraction is None:
        mark = max(1, width // 5)
        before = int(elapsed_s * _PULSE_SPEED) % max(1, width - mark + 1)
        return [
            (style.rest * before, "dim"),
            (style.done * mark, "cyan"),
            (style.rest * (width - mark - before), "dim"),
        ]
    done = int(fraction * width)
    return [(style.done * done, "green"), (style.rest * (width - done), "dim")]
