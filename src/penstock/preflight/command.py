"""`penstock doctor`: shows the facts of a server, the role's rights, and whether a load can begin."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.options import LOAD_OPTIONS, TARGET_OPTIONS, Json, takes
from penstock.cli.output import (
    WOULD_NOT_LOAD,
    complete_commands,
    remember_target,
    shows_colours,
    write_drawn,
    write_result,
)
from penstock.core.errors import UsageError
from penstock.core.values.diagnosis import describe_diagnosis
from penstock.core.words import WIDTH, hang, visible
from penstock.loading.views.plan import describe_plan, plan_object
from penstock.preflight.findings import describe_verdict
from penstock.preflight.view import describe_facts
from penstock.watch.risks import stops_soon

if TYPE_CHECKING:
    from penstock.core.values.diagnosis import Diagnosis
    from penstock.preflight.doctor import DoctorResult


For = Annotated[
    list[str] | None,
    typer.Option(
        "--for",
        metavar="SOURCE",
        help="Also plan a load of these files into --into, as penstock load --plan does, and check disk "
        "space. May be given several times.",
    ),
]


@takes([*TARGET_OPTIONS, *LOAD_OPTIONS])
def doctor(sources: For = None, as_json: Json = False, **options: Any) -> None:
    """Show whether a load can begin, and how to fix what prevents it.

    It shows what the server is, and what the role may do there. With --into a table is checked too, and with --for a
    load, with the options of penstock load.

    Changes nothing and needs no privilege. It also works on a standby and behind a connection pooler, and reports it.
    For an endpoint of Amazon RDS or Aurora, AWS is asked too (permissions: docs/rds.md); no answer is not an error.

    Exit codes: 0 ready to load, 9 a load would be refused; others as for every command.
    """
    if sources and "into" not in options:
        raise UsageError("--for needs a table", hint="Name the table to load into with --into.")
    from penstock.api.functions import examine

    remember_target(options)
    others = {name: value for name, value in options.items() if name != "to"}
    found = examine(options.get("into"), sources or (), to=options.get("to"), options=others)
    planned = found.planned
    if as_json:
        write_result(as_object(found))
    else:
        from penstock.rds.view import describe_rds_facts

        lines = [] if planned is None else describe_plan(planned.foreseen)
        facts = describe_facts(found.inspection)
        if found.described is not None:
            # An empty row separates the facts of AWS from those above. They are one table, so that the columns line up.
            facts += [("", ""), *describe_rds_facts(found.described)]
        write_drawn(render(facts, found.findings, verdict=describe_verdict(found.findings), plan=lines))
    if not found.would_load:
        raise typer.Exit(WOULD_NOT_LOAD)


def as_object(found: DoctorResult) -> dict[str, object]:
    """Return what --json prints of a result."""
    from penstock.rds.view import description_object

    planned = found.planned
    return {
        "would_load": found.would_load,
        "findings": found.findings,
        "facts": found.inspection,
        "rds": None if found.described is None else description_object(found.described),
        "plan": None if planned is None else plan_object(planned.foreseen),
    }


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
    for finding in findings:
        remedy = finding.remedy
        found = finding if remedy is None else replace(finding, remedy=complete_commands(remedy))
        first, *others = describe_diagnosis(found, f"{found.severity:{severities}}  {found.code:{codes}}  ", width)
        severity, rest = first[: len(found.severity)], first[len(found.severity) :]
        lines += [_colour(severity, _COLOURS[found.severity]) + visible(rest), *map(visible, others)]
    is_refused = any(found.severity == "refusal" for found in findings)
    coloured = _colour(verdict, "1;31" if is_refused else "1;33" if any(map(stops_soon, findings)) else "1;32")
    return "\n".join([*lines, "", coloured, *([""] if plan else []), *map(visible, plan)])


def _colour(text: str, colour: str) -> str:
    return f"\x1b[{colour}m{text}\x1b[0m" if shows_colours(sys.stdout) else text
