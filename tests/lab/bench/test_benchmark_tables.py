"""The tables of indexed_load and rebuild_schedules: each way leaves the indexes and keys that were there before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from benchmarks import rebuild_schedules
from benchmarks.indexed_load import psql_argv
from benchmarks.processes import run_measured
from benchmarks.tpch import ADD_KEYS, CREATE, DROP, HALVES, INDEXES, LINEITEM, Warehouse, write_lineitem

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_ROWS = 40


@pytest.fixture
def warehouse(database18: str) -> Iterator[Warehouse]:
    """Provide the tables with their indexes and keys, without rows of lineitem."""
    with Warehouse(database18) as found:
        found.make(_ROWS)
        found.renew(has_indexes=True)
        yield found


def test_by_hand_all_is_dropped_and_created_again(warehouse: Warehouse, database18: str, tmp_path: Path) -> None:
    """Nothing is left out that a load by penstock rebuilds, and two psql create as much as one."""
    whole = warehouse.describe()
    path = write_lineitem(tmp_path, _ROWS / 27_000_000)
    run_measured(psql_argv(database18, *DROP, f"\\copy {LINEITEM} FROM '{path}' (FORMAT csv)"))
    assert warehouse.describe() == []
    run_measured(psql_argv(database18, *CREATE.values(), *ADD_KEYS))
    assert warehouse.describe() == whole
    assert warehouse.count() == _ROWS
    assert sorted(name for half in HALVES for name in half) == sorted(INDEXES)


def test_a_schedule_makes_what_was_dropped(warehouse: Warehouse, database18: str) -> None:
    """By penstock, and by a schedule of the benchmark's own."""
    names = ("penstock", "two sessions, largest first")
    found = []
    for name in names:
        rebuild_schedules._time(name, database18, warehouse)
        found.append(warehouse.describe())
    assert found[0] == found[1] != []
