"""How far commands have come, and how long they still take."""

from __future__ import annotations

import pytest

from penstock.watch.rates import find_work
from support import made_samples


def test_time_left_follows_from_the_rate_in_the_phase() -> None:
    """From 10 % to 30 % in ten seconds: 35 s are left."""
    rows = [
        {
            "pid": 7,
            "relname": "t",
            "command": "CREATE INDEX",
            "phase": "building",
            "blocks_done": done,
            "blocks_total": 100,
        }
        for done in (10, 30)
    ]
    samples = [
        made_samples.sample(10.0 * number, counters={"pg_stat_progress_create_index": (row,)})
        for number, row in enumerate(rows)
    ]
    (work,) = find_work(samples)
    assert (work.command, work.table, work.fraction) == ("CREATE INDEX", "t", pytest.approx(0.3))
    assert work.left_s == pytest.approx(35.0)


def test_new_phase_has_no_time_left_yet() -> None:
    """The rate of the phase before says nothing."""
    rows = [
        {"pid": 7, "relid": 5, "phase": phase, "heap_blks_scanned": 50, "heap_blks_total": 100, "heap_blks_vacuumed": 0}
        for phase in ("scanning heap", "vacuuming indexes")
    ]
    samples = [
        made_samples.sample(float(number), counters={"pg_stat_progress_vacuum": (row,)})
        for number, row in enumerate(rows)
    ]
    (work,) = find_work(samples)
    assert (work.command, work.table, work.left_s) == ("VACUUM", "relation 5", None)


def test_copy_from_a_client_has_rows_and_no_fraction() -> None:
    """The server does not know how much comes."""
    row = {"pid": 7, "relname": "t", "bytes_processed": 5, "bytes_total": 0, "tuples_processed": 12}
    (work,) = find_work([made_samples.sample(0.0, counters={"pg_stat_progress_copy": (row,)})])
    assert (work.fraction, work.left_s, work.rows) == (None, None, 12)


@pytest.mark.parametrize(
    ("command", "phase", "expected"),
    [
        ("create_index", "building index: scanning table", 1.0),
        ("create_index", "waiting for old snapshots", 0.25),
        ("vacuum", "scanning heap", 0.6),
        ("vacuum", "vacuuming heap", 0.4),
        ("vacuum", "vacuuming indexes", 0.5),
        ("vacuum", "truncating heap", 0.5),
    ],
)
def test_numbers_of_earlier_phases_do_not_count(command: str, phase: str, expected: float) -> None:
    """An index that waits for others' snapshots is not done because its table was read whole."""
    numbers = {"tuples_done": 0, "tuples_total": 0, "blocks_done": 100, "blocks_total": 100, "lockers_done": 1}
    numbers |= {"lockers_total": 4, "heap_blks_scanned": 60, "heap_blks_vacuumed": 40, "heap_blks_total": 100}
    row = {"pid": 7, "relname": "t", "phase": phase, "indexes_processed": 1, "indexes_total": 2, **numbers}
    (work,) = find_work([made_samples.sample(0.0, counters={f"pg_stat_progress_{command}": (row,)})])
    assert work.fraction == pytest.approx(expected)
