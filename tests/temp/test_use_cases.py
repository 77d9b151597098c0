"""What statements spill for, by plans, and whose temporary work goes where."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.core.values.device import DeviceRates
from penstock.temp.usage.compare import find_use_case
from penstock.temp.usage.usage import find_routes, strip_explain
from penstock.temp.usage.values import (
    SettingRow,
    StatementUse,
    TablespaceDevice,
    TablespaceUse,
    TempTablespaces,
    UsageReport,
)
from penstock.temp.view import describe_usage


def use(query: str, *, local: int = 0, temp: int = 20 * 1024 * 1024) -> StatementUse:
    return StatementUse(
        database="d",
        role="r",
        queryid=1,
        query=query,
        calls=2,
        total_exec_time_ms=1.0,
        rows=0,
        temp_read_bytes=0,
        temp_written_bytes=temp,
        local_read_bytes=0,
        local_written_bytes=local,
        temp_read_time_ms=None,
        temp_write_time_ms=None,
    )


def test_what_only_writes_temporary_tables_does_not_spill_its_sort() -> None:
    """As a query over a function that fills them: less work_mem would make the sort spill."""
    sort = {"Node Type": "Sort", "Sort Key": ["a"], "Plans": [{"Node Type": "Function Scan"}]}
    found = find_use_case(use("SELECT * FROM report() ORDER BY 1", local=8192, temp=0), sort, memory_bytes=None)
    assert found.names == ("temporary table",)
    assert "temp_buffers" in found.remedy


@pytest.mark.parametrize(("busy", "is_little"), [(0.01, True), (0.95, False)])
def test_no_gain_is_foretold_and_a_disk_that_is_not_busy_is_named(busy: float, *, is_little: bool) -> None:
    """What others have measured on their machines says nothing of this one."""
    rates = DeviceRates(
        elapsed_s=10.0,
        read_iops=0.0,
        write_iops=1.0,
        read_bytes_per_s=0.0,
        write_bytes_per_s=8e3,
        read_latency_s=None,
        write_latency_s=0.001,
        request_bytes=8e3,
        queue=busy,
        busy=busy,
    )
    device = TablespaceDevice(
        tablespace="pg_default", device="vda", kind="unknown", free_bytes=None, rates=rates, temporary_iops=1.0
    )
    report = UsageReport(
        elapsed_s=10.0,
        temp_tablespaces="",
        statements=(),
        databases=(),
        tablespaces=(),
        missing=(),
        routes=(TempTablespaces(whose="this session", tablespaces=("pg_default",), ignored=()),),
        devices=(device,),
    )
    shown = "\n".join(describe_usage(report))
    assert ("was 1% busy" in shown) == is_little
    assert "times as fast" not in shown


def node(kind: str, *below: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"Node Type": kind, "Plans": [*below], **more}


def test_a_plan_tells_its_use_cases_and_what_an_index_would_be_on() -> None:
    plan = node("Limit", node("Unique", node("Sort", node("Seq Scan"), **{"Sort Key": ["pad", "k DESC"]})))
    found = find_use_case(use("SELECT DISTINCT pad FROM t"), plan)
    assert found.names == ("grouping", "sort")
    assert found.remedy.startswith("an index on pad, k DESC, if it is sorted so often; or SET LOCAL work_mem = '25MB'")


@pytest.mark.parametrize(
    ("kind", "more", "name"),
    [
        ("Aggregate", {"Strategy": "Hashed"}, "grouping"),
        ("Hash", {}, "hash join"),
        ("CTE Scan", {}, "CTE"),
        ("Materialize", {}, "materialise"),
        ("Incremental Sort", {}, "sort"),
    ],
)
def test_nodes_that_may_spill_are_named(kind: str, more: dict[str, str], name: str) -> None:
    assert find_use_case(use("SELECT 1"), node("Gather", node(kind, **more))).names == (name,)


def test_temporary_tables_are_told_by_their_blocks() -> None:
    found = find_use_case(use("SELECT * FROM scratch", local=8192), node("Seq Scan"))
    assert found.names == ("temporary table",)
    assert found.remedy.startswith("temp_buffers")


@pytest.mark.parametrize("before", ["EXPLAIN (ANALYZE, BUFFERS) ", "explain analyze verbose ", "EXPLAIN\n", ""])
def test_an_explained_statement_is_the_statement(before: str) -> None:
    assert strip_explain(f"{before}SELECT 1") == "SELECT 1"


def test_settings_that_the_server_ignores_are_told() -> None:
    spaces = [
        TablespaceUse(name=name, directory=None, size_bytes=None, temp_files=None, temp_bytes=None)
        for name in ("pg_default", "fast")
    ]
    rows = [
        SettingRow(database=None, role="ann", value="fast", denied=["fast"]),
        SettingRow(database="shop", role="bob", value="gone, fast", denied=[]),
    ]
    (denied, *_) = find_routes(rows, spaces, session="fast", denied=["fast"])
    assert (denied.tablespaces, denied.ignored) == (("pg_default",), ('no CREATE on "fast"',))
    session, ann, bob = find_routes(rows, spaces, session="")
    assert (session.whose, session.tablespaces, session.ignored) == ("this session", ("pg_default",), ())
    assert (ann.whose, ann.tablespaces, ann.ignored) == ('role "ann"', ("pg_default",), ('no CREATE on "fast"',))
    assert bob.whose == 'role "bob" in database "shop"'
    assert (bob.tablespaces, bob.ignored) == (("fast",), ('"gone" does not exist',))
