"""Which tables are watched for autovacuum, and where it is paused once it is seen."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from penstock.loading.autovacuum_plan import choose_paused, estimate_remaining_s, may_pause
from penstock.model.dialect import Dialect
from penstock.model.job import TargetJob
from penstock.model.plan import TargetPlan
from penstock.model.table import ColumnMap, TableFacts, TableName
from penstock.server.autovacuum import Visit

if TYPE_CHECKING:
    from collections.abc import Collection

TABLE = TableName(schema="public", name="t")
DIALECT = Dialect(format="csv", delimiter=",", quote='"', escape='"', nulls=("",), has_header=False, encoding="UTF8")
FACTS = TableFacts(oid=1, name=TABLE, kind="r", columns=())


def make_target(facts: TableFacts | None, **options: Any) -> TargetPlan:
    """Return a target of one table."""
    return TargetPlan(
        job=TargetJob(sources=("a.csv",), table=TABLE),
        table=TABLE,
        facts=facts,
        create_columns=None,
        dialect=DIALECT,
        header=None,
        column_map=ColumnMap(columns=()),
        objects=(),
        sample_compression="none",
        allows_suppressed_rows=False,
        **options,
    )


def make_visit(oid: int, *, prevents_wraparound: bool = False) -> Visit:
    """Return a visit to a table."""
    return Visit(
        target_oid=oid,
        relation_oid=oid,
        schema="public",
        relation=f"t{oid}",
        is_at_work=True,
        prevents_wraparound=prevents_wraparound,
    )


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (make_target(FACTS), True),
        (make_target(None), True),
        (make_target(replace(FACTS, kind="p")), True),
        (make_target(replace(FACTS, kind="v")), False),
        (make_target(replace(FACTS, kind="f")), False),
        (make_target(replace(FACTS, is_owner=False)), False),
        (make_target(FACTS, landing="staging"), False),
        (make_target(FACTS, landing="replacement"), False),
    ],
)
def test_tables_that_are_filled_by_their_owner_are_watched(target: TargetPlan, expected: bool) -> None:
    """None that gets its rows at the end, none that autovacuum never comes to."""
    assert may_pause(target) is expected


@pytest.mark.parametrize(
    ("left", "remaining_s", "expected"),
    [((), None, [1, 2]), ((), 3600.0, [1, 2]), ((1,), None, [2]), ((), 9.9, []), ((), 0.0, [])],
)
def test_pause_is_for_loads_that_go_on(left: Collection[int], remaining_s: float | None, expected: list[int]) -> None:
    """Nor is it made twice; where it is not known how long a load goes on, it is made."""
    visits = [make_visit(1), make_visit(2), make_visit(3, prevents_wraparound=True)]
    chosen = choose_paused(visits, left=left, remaining_s=remaining_s)
    assert [visit.relation_oid for visit in chosen] == expected


@pytest.mark.parametrize(
    ("bytes_read", "size_bytes", "expected"), [(0, 100, None), (50, None, None), (50, 100, 20.0), (120, 100, 0.0)]
)
def test_rest_of_a_load_is_told_by_what_is_read(
    bytes_read: int, size_bytes: int | None, expected: float | None
) -> None:
    """A pipe does not tell, nor does a load that has read nothing; an object may have grown."""
    assert estimate_remaining_s(bytes_read=bytes_read, size_bytes=size_bytes, elapsed_s=20.0) == expected
