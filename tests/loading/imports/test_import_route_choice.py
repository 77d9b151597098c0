"""Which route a load takes, and why: a pure decision. And the statement of an import, and the text that it returns."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.core.errors import ServerError, TargetError, UsageError
from penstock.core.tuning import BatchPlan
from penstock.core.values.dialect import Dialect
from penstock.core.values.job import LoadJob, LoadRules, TargetJob
from penstock.core.values.mode import ImportRights, RoutePlan
from penstock.core.values.names import parse_table_name
from penstock.core.values.source import ColumnarSample, SourceObject
from penstock.core.values.table import ColumnMap
from penstock.loading.imports.route import RouteFacts, import_sessions, plan_import
from penstock.loading.imports.server import S3Object, compose_import, read_result
from penstock.loading.values.objects import CopySpec
from penstock.loading.values.plan import LoadPlan, SessionPlan
from penstock.rds.values import AssociatedRole
from support.plans import SERVER

_RIGHTS = ImportRights(role="etl", is_available=True, exists=True, is_trusted=True, may_use=True, may_execute=True)
_FACTS = RouteFacts(rights=_RIGHTS, region="eu-west-1", server_major=18)
_DIALECT = Dialect(format="csv", delimiter=",", quote='"', escape='"', nulls=("",), has_header=True, encoding="UTF8")


def make_plan(*, objects: int = 8, dialect: Dialect = _DIALECT) -> LoadPlan:
    """Return the plan of a load of so many objects by four sessions."""
    job = TargetJob(sources=("s3://b/d/",), into=parse_table_name("t"))
    sources = tuple(
        SourceObject(uri=f"s3://b/d/{n}", location=f"s3://b/d/{n}", size_bytes=1, version="v") for n in range(objects)
    )
    target: Any = SimpleNamespace(
        job=job,
        table=job.into,
        objects=sources,
        dialect=dialect,
        column_map=ColumnMap(columns=("a",)),
        format="text",
        own=None,
        is_staged=False,
        fills_table=True,
        allows_suppressed_rows=False,
        skips_triggers=False,
    )
    return LoadPlan(
        load_id="1",
        job=LoadJob(targets=(job,), rules=LoadRules(via="server")),
        server=SERVER,
        targets=(target,),
        sessions=SessionPlan(initial=4, maximum=9, is_adaptive=True, reason="server has 5 CPUs"),
        batch=BatchPlan(),
        is_repeatable=True,
    )


def choose(plan: LoadPlan, facts: RouteFacts) -> RoutePlan:
    """Return the route of a plan."""
    return plan_import(plan.targets, plan.job.rules, facts)


def test_server_gets_a_session_for_each_object_at_most() -> None:
    """Their number is fixed, as objects end in steps that measure nothing."""
    plans = [make_plan(objects=count) for count in (3, 8)]
    few, many = (import_sessions(plan.targets, plan.sessions) for plan in plans)
    route = choose(plans[0], _FACTS)
    assert (route.via, route.region, few.initial, few.maximum) == ("server", "eu-west-1", 3, 3)
    assert (many.initial, many.maximum, many.is_adaptive) == (4, 4, False)


def test_columnar_files_are_left_to_the_client() -> None:
    """COPY on the server has no Parquet."""
    plan = make_plan()
    plan.targets[0].format = "columnar"  # type: ignore[misc]
    plan.targets[0].own = ColumnarSample(format="parquet", fields=(), rows=1, parts=1)  # type: ignore[misc]
    with pytest.raises(UsageError, match="--via server cannot be used with format parquet"):
        choose(plan, _FACTS)


def test_header_in_text_needs_postgresql_15() -> None:
    """COPY refuses it before."""
    plan = make_plan(dialect=replace(_DIALECT, format="text", quote=None, escape=None, nulls=("\\N",)))
    assert choose(plan, replace(_FACTS, server_major=15)).is_import
    with pytest.raises(UsageError, match="a header in format text"):
        choose(plan, replace(_FACTS, server_major=14))


@pytest.mark.parametrize(
    ("roles", "told"),
    [
        ((), "db-1 has no role for feature s3Import"),
        ((AssociatedRole(arn="arn:r", feature="s3Export", status="ACTIVE"),), "db-1 has no role for feature s3Import"),
        ((AssociatedRole(arn="arn:r", feature="s3Import", status="PENDING"),), "is PENDING"),
        ((AssociatedRole(arn="arn:r", feature="s3Import", status="INVALID"),), "is INVALID"),
    ],
)
def test_role_of_the_instance_must_be_active(roles: tuple[AssociatedRole, ...], told: str) -> None:
    """On RDS, if AWS answers."""
    with pytest.raises(TargetError, match=told) as caught:
        choose(make_plan(), replace(_FACTS, roles=roles, instance="db-1"))
    assert caught.value.hint
    active = AssociatedRole(arn="arn:r", feature="s3Import", status="ACTIVE")
    assert choose(make_plan(), replace(_FACTS, roles=(*roles, active), instance="db-1")).is_import


def test_names_and_values_of_the_call_are_quoted() -> None:
    r"""Null \N as E'\\N', which standard_conforming_strings does not change; hostile names stay names."""
    spec = CopySpec(
        schema="s; DROP",
        table="t'",
        columns=("a, b", 'c"'),
        format="text",
        delimiter="\t",
        null="\\N",
        quote=None,
        escape=None,
        encoding="UTF8",
    )
    text = compose_import(spec, S3Object("b'", "k'); --", "eu-west-1"), has_header=True).as_string(None)
    assert "'\"s; DROP\".\"t''\"'::pg_catalog.text" in text
    assert '\'"a, b", "c"""\'::pg_catalog.text' in text
    # The options are a literal with a literal in it: each backslash and quote of E'\\N' is doubled once more.
    assert r"NULL  E''\\\\N''" in text
    assert "HEADER true)" in text
    assert text.endswith("'b'''::pg_catalog.text, 'k''); --'::pg_catalog.text, 'eu-west-1'::pg_catalog.text)")


@pytest.mark.parametrize("text", [None, "", "imported", "-1 rows imported into relation", "x\n3 rows"])
def test_result_without_a_count_is_an_error(text: str | None) -> None:
    """And so is any other text."""
    with pytest.raises(ServerError, match="did not report"):
        read_result(text)


def test_count_is_read_whatever_the_names_contain() -> None:
    """Line ends and quotes, too."""
    assert read_result('12 rows imported into relation "a"".b" from file x\ny of 0 bytes of 7 bytes') == 12
