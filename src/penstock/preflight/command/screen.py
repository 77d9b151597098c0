"""Draws the screen of doctor: facts, findings, verdict. The texts come from view.py and findings.py.

This module imports rich, so import it only if the screen is shown.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from penstock.cli.output import shows_colours
from penstock.core.words import visible, visible_lines

if TYPE_CHECKING:
    from penstock.core.values.finding import Finding

# The width of the screen if standard output is not a terminal. On a terminal it is the maximum width, because longer
# lines are hard to read.
_WIDTH = 110

_STYLES = {"ok": "green", "note": "cyan", "warning": "bold yellow", "refusal": "bold red"}


def render(
    facts: Sequence[tuple[str, str]], findings: Sequence[Finding], *, goes: bool, plan: Sequence[str] = ()
) -> str:
    """Return the screen as text that is safe to print, with colours for a terminal. `plan` is shown last."""
    is_coloured = shows_colours(sys.stdout)
    sink = io.StringIO()
    width = min(_WIDTH, Console().width) if sys.stdout.isatty() else _WIDTH
    console = Console(file=sink, width=width, force_terminal=is_coloured, no_color=not is_coloured, highlight=False)
    verdict = Text("Ready to load.", "bold green") if goes else Text("A load would be refused.", "bold red")
    console.print(Group(_draw_facts(facts), Text(), _draw_findings(findings), Text(), verdict))
    lines = [line.rstrip() for line in sink.getvalue().rstrip().splitlines()]
    return "\n".join([*lines, *([""] if plan else []), *map(visible, plan)])


def _draw_facts(facts: Sequence[tuple[str, str]]) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for subject, line in facts:
        grid.add_row(Text(subject, style="bold"), Text(visible(line)))
    return grid


def _draw_findings(findings: Sequence[Finding]) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for finding in findings:
        text = Text(visible_lines(". ".join(filter(None, [finding.text, finding.detail]))))
        if finding.remedy is not None:
            text.append("\n")
            text.append(visible_lines(finding.remedy), style="bold")
        grid.add_row(Text(finding.severity, style=_STYLES[finding.severity]), Text(finding.subject), text)
    return grid
