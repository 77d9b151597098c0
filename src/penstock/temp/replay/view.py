"""Renders the result of a replay as text and as an object for --json. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from penstock.core.units import format_bytes
from penstock.core.words import line_up
from penstock.temp.statements import shorten

if TYPE_CHECKING:
    from penstock.temp.values import Comparison, ReplayResult, StatementRun

_SHOWN = 100


def replay_object(result: ReplayResult) -> dict[str, object]:
    """Return the object that --json prints of a result."""
    fields = asdict(result)
    fields["totals"] = [{**asdict(each), "speed_up": each.speed_up} for each in result.totals]
    fields["comparisons"] = [
        {
            **asdict(each),
            "verdict": each.verdict,
            "chance": each.chance if each.first and each.second else None,
            "first_median_s": each.first_s if each.first else None,
            "second_median_s": each.second_s if each.second else None,
            "speed_up": each.speed_up if each.first and each.second else None,
        }
        for each in result.comparisons
    ]
    return fields


def describe_replay(result: ReplayResult) -> list[str]:
    """Return a result as lines: a block for each statement, with a row for each number of sessions."""
    lines: list[str] = []
    by_statement: dict[int, list[Comparison]] = {}
    for each in result.comparisons:
        by_statement.setdefault(each.number, []).append(each)
    for number, found in by_statement.items():
        lines += [*([""] if lines else []), *_describe_statement(number, found, result)]
    lines += _describe_chance(result)
    if result.totals:
        lines += ["", *_describe_totals(result)]
    for skipped in result.skipped:
        lines += ["", f"not replayed: {shorten(skipped.statement, length=_SHOWN)}", f"  {skipped.why}"]
    if result.shared_device is not None:
        lines += ["", f"both places are on device {result.shared_device}: what differs is not the disk"]
    if result.is_interrupted:
        lines += ["", "interrupted: the last rows have fewer rounds"]
    return lines


def _describe_statement(number: int, found: Sequence[Comparison], result: ReplayResult) -> Iterator[str]:
    yield f"statement {number}: {shorten(found[0].statement, length=_SHOWN)}"
    heads = ["sessions", f"{result.first_place} s", "min", "max", f"{result.second_place} s", "min", "max", "speed-up"]
    heads += ["temporary", "workers", "verdict"]
    measured = [each for each in found if each.first and each.second]
    if measured:
        yield from line_up([heads, *map(_row, measured)], align=">" * 10 + "<", indent="  ")
    for each in found:
        if each.failure is not None:
            yield f"  failed with {each.sessions} sessions: {each.failure}"
    last = measured[-1] if measured else None
    if last is None or last.verdict == "does not spill":
        return
    run = last.first[-1]
    for spill in run.spills:
        how = "" if spill.how is None else f" ({spill.how})"
        yield f"  spills: {spill.node}{how}, {format_bytes(spill.written_bytes)} written in each session"
    yield from _describe_devices(last, result)
    if last.trial is not None:
        left = "nothing" if not last.trial.written_bytes else format_bytes(last.trial.written_bytes)
        yield (
            f"  cheapest remedy, tried once with {last.sessions} sessions: work_mem = "
            f"'{last.trial.work_mem_bytes // 1024}kB' took {last.trial.elapsed_s:.2f} s and spilled {left}"
        )
    for each in measured:
        if full := sum(run.is_elsewhere for run in each.second):
            rounds = f"{full} of {len(each.second)} rounds with {each.sessions} sessions"
            yield f"  {result.second_place} was full in {rounds}: they ran in the server's default place"


def _describe_chance(result: ReplayResult) -> list[str]:
    """Return how likely a verdict would arise by chance if both places were equal.

    It is the largest chance of all comparisons.
    """
    found = [each.chance for each in result.comparisons if each.verdict in {"faster", "slower"}]
    if not found:
        return []
    lines = ["", f"faster, slower: equal places differ so by chance in {max(found):.1%} of comparisons"]
    return [
        *lines,
        f"  ({len(result.comparisons)} were made; the order in each round was drawn with seed {result.seed})",
    ]


def _describe_totals(result: ReplayResult) -> Iterator[str]:
    yield "milliseconds for each call by pg_stat_statements of both servers, as it was before the replay:"
    heads = ("calls", "first ms", "calls", "second ms", "speed-up", "statement")
    rows = (
        (
            f"{each.first_calls:,}",
            f"{each.first_ms / each.first_calls:.2f}",
            f"{each.second_calls:,}",
            f"{each.second_ms / each.second_calls:.2f}",
            f"{each.speed_up:.2f}" if each.speed_up else "-",
            shorten(each.statement, length=_SHOWN),
        )
        for each in result.totals
    )
    yield from line_up([heads, *rows], align=">" * 5 + "<", indent="  ")


def _row(each: Comparison) -> tuple[str, ...]:
    run = each.first[-1]
    return (
        str(each.sessions),
        *_times(each.first, each.first_s),
        *_times(each.second, each.second_s),
        "-" if each.verdict in {"does not spill", "was full"} else f"{each.speed_up:.2f}",
        format_bytes(run.written_bytes),
        f"{run.workers_launched}/{run.workers_planned}",
        each.verdict,
    )


def _times(runs: Sequence[StatementRun], median_s: float) -> tuple[str, str, str]:
    seconds = [run.elapsed_s for run in runs]
    return f"{median_s:.2f}", f"{min(seconds):.2f}", f"{max(seconds):.2f}"


def _describe_devices(each: Comparison, result: ReplayResult) -> Iterator[str]:
    for name, runs in ((result.first_place, each.first), (result.second_place, each.second)):
        if runs and (rates := runs[-1].device) is not None:
            yield (
                f"  device below {name} with {each.sessions} sessions: {rates.busy:.0%} busy, queue {rates.queue:.1f}, "
                f"{rates.read_iops:,.0f} reads/s, {rates.write_iops:,.0f} writes/s, "
                f"{format_bytes(rates.read_bytes_per_s + rates.write_bytes_per_s)}/s"
            )
