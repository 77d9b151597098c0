"""Runs ways in turn, A B C A B C ..., into an empty table each time, and checks what they stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.processes import Cost
    from benchmarks.server import Target
    from benchmarks.ways import Variant

# Of every setting of a way, this many runs choose the one that is compared.
_TRIAL_RUNS = 2


class WrongRows(Exception):
    """A way stored something else than the file holds."""


def run_checked(variant: Variant, target: Target, *, rows: int) -> Cost:
    """Run once into a new table and count its rows."""
    target.renew()
    cost = variant.run()
    if (count := target.count()) != rows:
        raise WrongRows(f"{variant.name} stored {count} rows of {rows}")
    print(f"{variant.name}: {cost.seconds:.2f} s", flush=True)
    return cost


def interleave(
    variants: Sequence[Variant], target: Target, *, rows: int, runs: int, warm_ups: int = 1
) -> dict[str, list[Cost]]:
    """Return each variant's counted costs in order, by its name."""
    costs: dict[str, list[Cost]] = {variant.name: [] for variant in variants}
    for number in range(-warm_ups, runs):
        for variant in variants:
            cost = run_checked(variant, target, rows=rows)
            if number >= 0:
                costs[variant.name].append(cost)
    return costs


def choose_best(variants: Sequence[Variant], target: Target, *, rows: int) -> tuple[Variant, dict[str, list[Cost]]]:
    """Return the variant with the fastest trial run, and all trials."""
    trials = interleave(variants, target, rows=rows, runs=_TRIAL_RUNS)
    best = min(variants, key=lambda variant: min(cost.seconds for cost in trials[variant.name]))
    return best, trials


def check_contents(variants: Sequence[Variant], target: Target, *, rows: int) -> str:
    """Run each exact variant once, and return the checksum that all their tables have. Raises WrongRows."""
    sums = {}
    for variant in variants:
        if variant.is_exact:
            run_checked(variant, target, rows=rows)
            sums[variant.name] = target.checksum()
    if len(set(sums.values())) != 1:
        raise WrongRows(f"the ways differ in what they stored: {sums}")
    return next(iter(sums.values()))
