"""What runs come to, and what plans say of spills."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from penstock.core.values.device import Device
from penstock.temp.replay.run import find_shared
from penstock.temp.statements import find_spills, sum_field
from penstock.temp.values import Comparison, ReplayResult, StatementRun
from penstock.temp.view import describe_replay


def runs(*seconds: float, written: int = 8192) -> tuple[StatementRun, ...]:
    return tuple(
        StatementRun(
            elapsed_s=each,
            session_s=(each,),
            written_bytes=written,
            read_bytes=written,
            local_bytes=0,
            workers_planned=0,
            workers_launched=0,
        )
        for each in seconds
    )


@pytest.mark.parametrize(
    ("first", "second", "verdict"),
    [
        ((2.0, 2.2, 2.1), (1.0, 1.9, 1.2), "faster"),
        ((1.0, 1.9, 1.2), (2.0, 2.2, 2.1), "slower"),
        ((2.0, 2.2, 2.1), (1.0, 2.0, 1.2), "no difference"),
    ],
)
def test_a_difference_is_one_only_beyond_the_spread(
    first: tuple[float, ...], second: tuple[float, ...], verdict: str
) -> None:
    compared = Comparison(number=1, statement="", sessions=1, first=runs(*first), second=runs(*second))
    assert compared.verdict == verdict


@pytest.mark.parametrize(("rounds", "chance"), [(3, "10.0%"), (5, "0.8%")])
def test_chance_that_equal_places_differ_so_is_shown(rounds: int, chance: str) -> None:
    """All orders of the runs are alike then; in two of them, one place has all the fastest."""
    compared = Comparison(number=1, statement="", sessions=1, first=runs(*[2.0] * rounds), second=runs(*[1.0] * rounds))
    result = ReplayResult(first_place="a", second_place="b", rounds=rounds, seed=7, comparisons=(compared,))
    text = "\n".join(describe_replay(result))
    assert f"by chance in {chance} of comparisons" in text
    assert "seed 7" in text


def test_what_does_not_spill_has_no_other_verdict() -> None:
    compared = Comparison(number=1, statement="", sessions=1, first=runs(9.0, written=0), second=runs(1.0, written=0))
    assert (compared.verdict, compared.speed_up) == ("does not spill", 9.0)


def test_a_place_that_was_full_is_neither_faster_nor_slower() -> None:
    """The times are of the default place then."""
    second = (*runs(1.0, 1.1), replace(runs(1.2)[0], is_elsewhere=True))
    assert Comparison(number=1, statement="", sessions=1, first=runs(9.0), second=second).verdict == "was full"


def test_a_failure_is_no_result() -> None:
    assert Comparison(number=1, statement="", sessions=1, first=(), second=(), failure="x").verdict == "failed"


def node(kind: str, *below: dict[str, Any], written: int = 0, read: int | None = None, **more: Any) -> dict[str, Any]:
    blocks = {"Temp Written Blocks": written, "Temp Read Blocks": written if read is None else read}
    return {"Node Type": kind, **blocks, "Plans": [*below], **more}


def test_blocks_are_those_of_the_node_itself_and_the_largest_is_first() -> None:
    plan = node(
        "Limit",
        node(
            "Sort",
            node("Hash Join", node("Hash", written=30, **{"Hash Batches": 8}), written=40),
            written=140,
            **{"Sort Space Type": "Disk", "Sort Method": "external merge", "Sort Space Used": 900},
        ),
        written=140,
        **{"Workers Planned": 2},
    )
    spills = find_spills(plan, block_bytes=8192)
    assert [(each.node, each.how, each.written_bytes // 8192) for each in spills] == [
        ("Sort", "external merge", 100),
        ("Hash", "8 batches", 30),
        ("Hash Join", None, 10),
    ]
    assert spills[0].needed_bytes > spills[0].written_bytes
    assert sum_field(plan, "Workers Planned") == 2


def test_one_device_below_both_places_is_named() -> None:
    """It is named by its own name, or by the disks below it. A device that cannot be seen is not named."""

    def on(name: str, *disks: str) -> Device:
        return Device(name=name, number="8:0", file_system="ext4", disks=disks, kind="unknown")

    assert find_shared(on("vda1", "vda"), on("vda2", "vda")) == "vda2"
    assert find_shared(on("vda1", "vda"), on("vdb1", "vdb")) is None
    assert find_shared(on("tmpfs"), on("tmpfs")) == "tmpfs"
    assert find_shared(None, on("vda")) is None
    result = ReplayResult(
        first_place="a", second_place="b", rounds=3, seed=1, comparisons=(), skipped=(), shared_device="vda2"
    )
    assert describe_replay(result)[-1] == "both places are on device vda2: what differs is not the disk"


def _spills(plan: dict[str, Any]) -> list[tuple[str, int, int]]:
    return [(each.node, each.written_bytes, each.read_bytes) for each in find_spills(plan, block_bytes=1)]


def test_files_of_a_cte_are_those_of_its_nodes_alone() -> None:
    """Of its two scans the first runs it, and has its blocks in its total. What each stores and reads is its own."""
    made = node("Sort", written=100, **{"Parent Relationship": "InitPlan"})
    first = node("CTE Scan", written=140, read=130, **{"CTE Name": "c"})
    second = node("CTE Scan", read=120, **{"CTE Name": "c"})
    join = node("Nested Loop", made, first, second, written=140, read=250)
    assert _spills(join) == [("Sort", 100, 100), ("CTE Scan on c", 40, 30), ("CTE Scan on c", 0, 120)]


def test_files_of_a_recursive_cte_and_of_a_subquery_count_once() -> None:
    """A scan of the work table has the name of the CTE, too, and is below the node that makes it."""
    work = node("WorkTable Scan", read=70, **{"CTE Name": "r"})
    union = node("Recursive Union", work, written=80, read=70, **{"Parent Relationship": "InitPlan"})
    plan = node("Limit", union, node("CTE Scan", written=80, read=70, **{"CTE Name": "r"}), written=80, read=70)
    assert _spills(plan) == [("Recursive Union", 80, 0), ("WorkTable Scan on r", 0, 70)]
    inner = node("Sort", written=9, **{"Parent Relationship": "InitPlan"})
    assert _spills(node("Aggregate", inner, node("Seq Scan", written=9), written=9)) == [("Sort", 9, 9)]
