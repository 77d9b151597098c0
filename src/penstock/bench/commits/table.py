"""The tables that show a result. Extrapolated figures are marked. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.bench.commits.plan import BASE, SizeResult, multiples, published_multiple, published_shares
from penstock.units import format_count

if TYPE_CHECKING:
    from penstock.bench.commits.run import CommitsResult, TargetResult

# The order of the shares of samples.
SHARES = "CPU/write/commit"

MARK = "*"

HEADING = (
    "rows per commit",
    "seconds",
    "min",
    "max",
    "bare",
    "of the largest",
    "published",
    f"of {format_count(BASE)}",
    "published",
    SHARES,
    "published",
    "busy CPUs",
)


def rows(target: TargetResult) -> list[tuple[str, ...]]:
    """Return a target's rows below HEADING. Figures that are scaled up from fewer rows are marked."""
    of_largest, of_base = multiples(target.sizes), multiples(target.sizes, base=BASE)
    return [
        (
            format_count(run.size.rows_per_commit),
            *(_seconds(run, each_s) for each_s in (run.median_s, min(run.totals_s), max(run.totals_s))),
            "-" if run.bare_s is None else _seconds(run, run.size.to_total(run.bare_s)),
            _multiple(largest, is_extrapolated=_is_extrapolated(target, run, base=None)),
            _multiple(published_multiple(run.size.rows_per_commit)),
            _multiple(base, is_extrapolated=_is_extrapolated(target, run, base=BASE)),
            _multiple(published_multiple(run.size.rows_per_commit, base=BASE)),
            _describe_shares(run.shares),
            _describe_shares(published_shares(run.size.rows_per_commit)),
            _multiple(run.busy_cpus),
        )
        for run, largest, base in zip(target.sizes, of_largest, of_base, strict=True)
    ]


def overview(result: CommitsResult, *, base: int | None = None) -> list[tuple[str, ...]]:
    """Return the multiples of all targets next to the published ones, each median with its lowest and highest.

    They are multiples of the time of each target's largest batch, or of `base` rows per commit. With `base`, larger
    batches are left out.
    """
    names = [target.name for target in result.targets]
    table = [("rows per commit", *names, "Aurora, published")]
    for number, run in enumerate(result.targets[0].sizes):
        size = run.size.rows_per_commit
        if base is None or size <= base:
            cells = (_spread(target, number, base=base) for target in result.targets)
            table.append((format_count(size), *cells, _multiple(published_multiple(size, base=base))))
    return table


def describe_rounds(result: CommitsResult) -> str:
    """Return how many rounds ran, in words."""
    if result.rounds == 1:
        return "1 round"
    is_bare = any(run.bare_s is not None for target in result.targets for run in target.sizes)
    return f"{result.rounds} interleaved rounds" + (", one of them without the sampler" if is_bare else "")


def _spread(target: TargetResult, number: int, *, base: int | None) -> str:
    run = target.sizes[number]
    median = multiples(target.sizes, base=base)[number]
    if median is None:
        return "-"
    low, high = (median * each_s / run.median_s for each_s in (min(run.totals_s), max(run.totals_s)))
    mark = MARK if _is_extrapolated(target, run, base=base) else ""
    return f"{_figure(median)}{mark} ({_figure(low)}-{_figure(high)})"


def _is_extrapolated(target: TargetResult, run: SizeResult, *, base: int | None) -> bool:
    """Return whether a multiple contains seconds that were scaled up, in its numerator or denominator."""
    largest = max(each.size.rows_per_commit for each in target.sizes)
    compared = [each for each in target.sizes if each.size.rows_per_commit == (base or largest)]
    return any(each.size.is_scaled for each in (run, *compared))


def _seconds(run: SizeResult, seconds: float) -> str:
    return f"{seconds:.2f}{MARK if run.size.is_scaled else ''}"


def _multiple(value: float | None, *, is_extrapolated: bool = False) -> str:
    return "-" if value is None else f"{value:.2f}{MARK if is_extrapolated else ''}"


def _figure(multiple: float) -> str:
    """Format a multiple with three digits."""
    return f"{multiple:.2f}" if multiple < 10 else f"{multiple:.1f}" if multiple < 100 else f"{multiple:.0f}"


def _describe_shares(shares: Sequence[float] | None) -> str:
    return "-" if shares is None else "/".join(f"{100 * share:.0f}" for share in shares)
