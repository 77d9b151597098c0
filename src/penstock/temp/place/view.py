"""Renders the temp place as text and as objects for --json. Pure."""

from __future__ import annotations

from dataclasses import asdict

from penstock.core.units import format_bytes
from penstock.core.values.temp_place import TABLESPACE, CheckReport, Placement, PlaceReport


def describe_plan(report: PlaceReport) -> list[str]:
    """Return the statements that temp place or temp remove would run."""
    return [f"{text};" for text in report.statements]


def describe_placed(report: PlaceReport) -> list[str]:
    """Return lines that describe the temp place that was created."""
    return [f"placed {_name(report.placement)}: a sort that spilled and a temporary table were found there"]


def describe_removed(report: PlaceReport) -> list[str]:
    """Return lines that say what was removed of a temp place, and what was left."""
    return [f"temporary work of {report.placement.scope} is no longer placed in {report.placement.location}"]


def describe_check(report: CheckReport) -> list[str]:
    """Return the temp place with its problems."""
    free = "" if report.free_bytes is None else f", {format_bytes(report.free_bytes)} free"
    lines = [f"{_name(report.placement)}{free}", *(f"  mended: {text}" for text in report.mended)]
    for problem in report.problems:
        lines += [f"  problem: {problem.what}", f"    {problem.remedy}"]
    return lines if report.problems else [*lines, "  no problem was found"]


def report_object(report: PlaceReport) -> dict[str, object]:
    """Return what --json prints of a temp place that is created, planned or removed."""
    return {**_placement(report.placement), "statements": report.statements, "left": report.left}


def check_object(report: CheckReport) -> dict[str, object]:
    """Return what --json prints of a check."""
    return {**asdict(report), "placement": _placement(report.placement)}


def _placement(placement: Placement) -> dict[str, object]:
    return {"tablespace": TABLESPACE, **asdict(placement)}


def _name(placement: Placement) -> str:
    return f"temporary work of {placement.scope} in {placement.location}"
