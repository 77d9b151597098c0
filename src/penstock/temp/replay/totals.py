"""Pairs the same statements in pg_stat_statements of two servers. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.model.temp.replay import StatementTotals

if TYPE_CHECKING:
    from collections.abc import Mapping

# As many as a screen shows.
_MOST = 10


def pair_totals(
    first: Mapping[str, tuple[int, float]], second: Mapping[str, tuple[int, float]]
) -> list[StatementTotals]:
    """Return the statements that both servers have, with the calls and total milliseconds of each server.

    They are in descending order of the first server's total. They are paired by their text: query ids of two servers
    agree only if one is a copy of the other.
    """
    paired = [
        StatementTotals(
            statement=text,
            first_calls=first[text][0],
            first_ms=first[text][1],
            second_calls=second[text][0],
            second_ms=second[text][1],
        )
        for text in first.keys() & second.keys()
    ]
    return sorted(paired, key=lambda each: (-each.first_ms, each.statement))[:_MOST]
