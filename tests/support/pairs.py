"""Cases of a test with several independent dimensions: any two values of two dimensions occur together in some case."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations, product
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def pairs(**dimensions: Iterable[Any] | Mapping[str, Any]) -> pytest.MarkDecorator:
    """Return the mark that runs a test with such cases, in place of all combinations.

    Use it only if no value of a dimension changes what another dimension does. A mapping names its values.
    """
    named = [
        [*each.items()] if isinstance(each, Mapping) else [(str(value), value) for value in each]
        for each in dimensions.values()
    ]
    cases = choose_cases([len(each) for each in named])
    rows = [[each[index] for each, index in zip(named, case, strict=True)] for case in cases]
    return pytest.mark.parametrize(
        tuple(dimensions),
        [tuple(value for _, value in row) for row in rows],
        ids=["-".join(name for name, _ in row) for row in rows],
    )


def choose_cases(sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """Return cases, an index for each dimension, of which each has as many new pairs as any that is left.

    >>> choose_cases([2, 2, 2])
    [(0, 0, 0), (0, 1, 1), (1, 0, 1), (1, 1, 0)]
    """
    combined = [*product(*map(range, sizes))]
    missing = {pair for case in combined for pair in _pairs_of(case)}
    chosen = []
    while missing:
        best = max(combined, key=lambda case: len(missing & _pairs_of(case)))
        missing -= _pairs_of(best)
        chosen.append(best)
    return chosen


def _pairs_of(case: tuple[int, ...]) -> set[tuple[tuple[int, int], ...]]:
    return {*combinations(enumerate(case), 2)}
