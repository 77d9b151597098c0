"""Jobs that make no sense are refused where they are made, by a library's users too."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.core.errors import UsageError
from penstock.core.values.job import LoadJob, LoadRules, TargetJob
from penstock.core.values.table import TableName

if TYPE_CHECKING:
    from collections.abc import Callable

_TABLE = TableName(schema=None, name="t")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TargetJob(sources=("a",), into=_TABLE, mode="truncat"), 'invalid value "truncat" for mode'),
        (lambda: TargetJob(sources=("a",), into=_TABLE, keep="frist"), 'invalid value "frist" for keep'),
        (lambda: TargetJob(sources=(), into=_TABLE), "no source to load"),
        (lambda: LoadRules(on_error="rejct"), 'invalid value "rejct" for on_error'),
        (lambda: LoadRules(indexes="none"), 'invalid value "none" for indexes'),
        (lambda: LoadRules(max_record=1000), 'invalid value "1000" for max_record'),
        (lambda: LoadJob(targets=(), sessions=0), 'invalid value "0" for sessions'),
    ],
)
def test_word_that_means_nothing_is_refused(make: Callable[[], object], message: str) -> None:
    """Taken for another it would add rows to a table that was to be emptied."""
    with pytest.raises(UsageError, match=message):
        make()
