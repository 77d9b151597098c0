"""Writes the screen of doctor: facts, findings, verdict. The texts come from view.py and findings.py."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.cli.output import shows_colours
from penstock.core.diagnoses import describe_diagnosis
from penstock.core.words import WIDTH, hang, visible
from penstock.watch.risks import stops_soon

if TYPE_CHECKING:
    from penstock.core.values.diagnosis import Diagnosis

_COLOURS = {"ok": "32", "note": "36", "warning": "1;33", "refusal": "1;31"}


def render(
    facts: Sequence[tuple[str, str]], findings: Sequence[Diagnosis], *, verdict: str, plan: Sequence[str] = ()
) -> str:
    """Return the screen as text that is safe to print, with colours if standard output is a terminal.

    `facts` are pairs of a subject and a line about it. `plan` are the lines of the planned load, which are shown last.
    """
    width = min(WIDTH, shutil.get_terminal_size().columns) if sys.stdout.isatty() else WIDTH
    subjects, severities, codes = (
        max(map(len, names), default=0)
        for names in ([name for name, _ in facts], [f.severity for f in findings], [f.code for f in findings])
    )
    lines = [visible(line).rstrip() for name, text in facts for line in hang(f"{name:{subjects}}  ", text, width)]
    lines.append("")
    for found in findings:
        first, *others = describe_diagnosis(found, f"{found.severity:{severities}}  {found.code:{codes}}  ", width)
        severity, rest = first[: len(found.severity)], first[len(found.severity) :]
        lines += [_colour(severity, _COLOURS[found.severity]) + visible(rest), *map(visible, others)]
    is_refused = any(found.severity == "refusal" for found in findings)
    coloured = _colour(verdict, "1;31" if is_refused else "1;33" if any(map(stops_soon, findings)) else "1;32")
    return "\n".join([*lines, "", coloured, *([""] if plan else []), *map(visible, plan)])


def _colour(text: str, colour: str) -> str:
    return f"\x1b[{colour}m{text}\x1b[0m" if shows_colours(sys.stdout) else text
