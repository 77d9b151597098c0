"""Shows a result: as tables, as a plot beside the article's measurements, and as an object for JSON. Pure.

Extrapolated figures are marked. benchmarks/recorded.py reads the object back. Package report draws the plot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from penstock.core.units import format_count
from penstock.core.values.device import METRIC_NAMES
from penstock_lab.bench.commits.plan import (
    BASE,
    SAMPLES,
    SECONDS,
    SHORT_SOURCE,
    SOURCE,
    UNSAMPLED,
    CommitCost,
    SizeResult,
    Use,
    advise,
    commit_cost,
    multiples,
    published_multiple,
    published_shares,
)
from penstock_lab.bench.plot import Line, Plot, Point

if TYPE_CHECKING:
    from penstock_lab.bench.commits.run import CommitsResult, CommitsTargetResult

# The order in which the shares of samples are shown.
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
)

# The processors' columns: the backend that inserts, all processes of its server, all of this machine.
_BY_PROCESS = ("backend", "server", "machine")

USE_HEADING = (
    "rows per commit",
    *(f"CPUs: {which}" for which in _BY_PROCESS),
    "WAL kB/commit",
    "flushes/commit",
    "ms/commit",
    *(f"CPU ms of it: {which}" for which in _BY_PROCESS),
    "waits, % of samples",
)

# How many wait events of a batch size are shown, and the least share of samples that one must have.
_WAITS_SHOWN = 5
_LEAST_SHARE = 0.01


def rows(target: CommitsTargetResult) -> list[tuple[str, ...]]:
    """Return the rows of the table below HEADING for one topology or server.

    Figures scaled up from fewer rows are marked.
    """
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
        )
        for run, largest, base in zip(target.sizes, of_largest, of_base, strict=True)
    ]


def use_rows(target: CommitsTargetResult) -> list[tuple[str, ...]]:
    """Return the rows of the table below USE_HEADING for one topology or server: what each batch size used."""
    largest = max(target.sizes, key=lambda run: run.size.rows_per_commit)
    return [
        (
            format_count(run.size.rows_per_commit),
            *(_multiple(run.busy(what)) for what in _CPU_USES),
            _multiple(None if run.wal_bytes_per_commit is None else run.wal_bytes_per_commit / 1000),
            _multiple(run.flushes_per_commit),
            *_describe_cost(commit_cost(run, largest)),
            ", ".join(
                f"{name} {100 * share:.0f}" for name, share in run.wait_shares[:_WAITS_SHOWN] if share >= _LEAST_SHARE
            )
            or "-",
        )
        for run in target.sizes
    ]


_CPU_USES: tuple[Use, ...] = ("backend_cpu_s", "server_cpu_s", "machine_cpu_s")


def _describe_cost(cost: CommitCost | None) -> list[str]:
    names: tuple[Use, ...] = ("elapsed_s", *_CPU_USES)
    values = (None if cost is None else getattr(cost, name) for name in names)
    return ["-" if value is None else f"{1000 * value:.3f}" for value in values]


def metric_rows(target: CommitsTargetResult) -> list[tuple[str, ...]]:
    """Return a heading and rows with CloudWatch's metrics of each batch size. Without metrics, return no rows."""
    names = [name for name in METRIC_NAMES if any(name in dict(run.metrics) for run in target.sizes)]
    if not names:
        return []
    return [
        ("rows per commit", *names, "% of the minutes"),
        *(
            (
                format_count(run.size.rows_per_commit),
                *("-" if (value := dict(run.metrics).get(name)) is None else f"{value:.4g}" for name in names),
                "-" if run.metrics_share is None else f"{100 * run.metrics_share:.0f}",
            )
            for run in target.sizes
        ),
    ]


def overview(result: CommitsResult, *, base: int | None = None) -> list[tuple[str, ...]]:
    """Return the multiples of all targets beside the published ones, each median with its lowest and highest.

    They are multiples of the time of each target's largest batch, or of its batch of `base` rows. If `base` is given,
    batches that are larger are not shown.
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
    """Return how many rounds ran, as words."""
    if result.rounds == 1:
        return "1 round"
    is_bare = any(run.bare_s is not None for target in result.targets for run in target.sizes)
    return f"{result.rounds} interleaved rounds" + (", one of them without the sampler" if is_bare else "")


def _spread(target: CommitsTargetResult, number: int, *, base: int | None) -> str:
    run = target.sizes[number]
    median = multiples(target.sizes, base=base)[number]
    if median is None:
        return "-"
    low, high = (median * each_s / run.median_s for each_s in (min(run.totals_s), max(run.totals_s)))
    mark = MARK if _is_extrapolated(target, run, base=base) else ""
    return f"{_figure(median)}{mark} ({_figure(low)}-{_figure(high)})"


def _is_extrapolated(target: CommitsTargetResult, run: SizeResult, *, base: int | None) -> bool:
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


def chart(result: CommitsResult) -> Plot:
    """Return the plot of a result. Each line shows multiples of the time of its own largest batch."""
    machine = result.machine
    versions = ", ".join(sorted({target.postgresql for target in result.targets}))
    measured = (
        f"Measured: PostgreSQL {versions}; {result.rows:,} rows, medians of {describe_rounds(result)}, shaded from "
        "lowest to highest; hollow: fewer rows, scaled up. Points of one batch length stand side by side. Client, and "
        f"what the lab brought up, on {machine.cpu_model}, {machine.cpu_count} cores."
    )
    return Plot(
        title="Inserting the same rows with different commit sizes",
        x_label="rows per commit",
        y_label="seconds, as a multiple of the largest batch's",
        lines=(*map(_line, result.targets), _published_line()),
        notes=(measured, f"Published, not measured here: {SOURCE}."),
    )


def _line(target: CommitsTargetResult) -> Line:
    whole_s = max(target.sizes, key=lambda run: run.size.rows_per_commit).median_s
    points = (
        Point.of(run.size.rows_per_commit, run.totals_s, unit=whole_s, is_scaled=run.size.is_scaled)
        for run in target.sizes
    )
    return Line(name=target.name, points=tuple(points))


def _published_line() -> Line:
    whole_s = SECONDS[max(SECONDS)]
    points = (Point.of(size, [seconds], unit=whole_s) for size, seconds in SECONDS.items())
    return Line(name=f"published: {SHORT_SOURCE}", points=tuple(points), is_published=True)


def as_object(result: CommitsResult) -> dict[str, object]:
    """Return what --json prints of a result."""
    fields = asdict(result)
    fields["rounds"] = result.rounds
    fields["targets"] = [
        {
            "name": target.name,
            "postgresql": target.postgresql,
            "check": asdict(target.check),
            "advised_rows_per_commit": advise(target.sizes),
            "sizes": [
                _size(run, of_largest=of_largest, of_base=of_base)
                for run, of_largest, of_base in zip(
                    target.sizes, multiples(target.sizes), multiples(target.sizes, base=BASE), strict=True
                )
            ],
        }
        for target in result.targets
    ]
    fields["published"] = {
        "source": SOURCE,
        "seconds": {str(size): seconds for size, seconds in SECONDS.items()},
        "without_sampler": sorted(UNSAMPLED),
        "samples": {str(size): dict(zip(SHARES.split("/"), found, strict=True)) for size, found in SAMPLES.items()},
    }
    return fields


def _size(run: SizeResult, *, of_largest: float | None, of_base: float | None) -> dict[str, object]:
    return {
        **asdict(run.size),
        "is_scaled": run.size.is_scaled,
        "runs_s": run.runs_s,
        "bare_s": run.bare_s,
        "samples": dict(run.waits),
        "shares": None if run.shares is None else dict(zip(SHARES.split("/"), run.shares, strict=True)),
        "uses": [asdict(use) for use in run.uses],
        "metrics": dict(run.metrics),
        "metrics_share": run.metrics_share,
        "median_s": run.median_s,
        "lowest_s": min(run.totals_s),
        "highest_s": max(run.totals_s),
        "multiple_of_largest": of_largest,
        f"multiple_of_{BASE}": of_base,
    }
