"""Which nulls a screen may call bad, and which fields it knows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from penstock.copyformat import make_encoder
from penstock.loading.screen import make_screen
from penstock.model.dialect import Dialect
from penstock.model.job import TargetJob
from penstock.model.plan import TargetPlan
from penstock.model.reject import RecordForm
from penstock.model.table import Column, ColumnMap, TableFacts, TableName

TABLE = TableName(schema="public", name="t")
DIALECT = Dialect(format="csv", delimiter=",", quote='"', escape='"', nulls=("",), has_header=False, encoding="UTF8")
FACTS = TableFacts(
    oid=1,
    name=TABLE,
    kind="r",
    columns=(
        Column(name="a", type_name="integer"),
        Column(name="b", type_name="text", is_not_null=True),
        Column(name="c", type_name="text", is_not_null=True),
    ),
)


def screen_of(column_map: ColumnMap, *, encoding: str = "UTF8", **changes: Any) -> Any:
    """Return the screen of an object with these columns; `changes` are the plan's."""
    plan = TargetPlan(
        job=TargetJob(sources=("f",), table=TABLE),
        table=TABLE,
        facts=FACTS,
        create_columns=None,
        dialect=DIALECT,
        header=None,
        column_map=column_map,
        objects=(),
        sample_compression="none",
        allows_suppressed_rows=False,
    )
    form = RecordForm(dialect=DIALECT, column_map=column_map, table=TABLE, encoding=encoding)
    encoder = make_encoder(DIALECT, column_map, table=TABLE, encoding=encoding)
    return make_screen(replace(plan, **changes), form, encoder)


def test_fields_are_those_of_the_file() -> None:
    """In its order, with those that are not sent, and without constants."""
    assert screen_of(ColumnMap(columns=("c", "a"))).columns == ("c", "a")
    kept = ColumnMap(columns=("b", "a", "c"), keep=(2, 0), constants=("x",), field_count=4)
    screen = screen_of(kept)
    assert (screen.columns, screen.not_null) == (("a", None, "b", None), (2,))


@pytest.mark.parametrize(
    "changes",
    [
        {"facts": None},
        {"facts": replace(FACTS, suppressing_triggers=("fill",))},
        {"allows_suppressed_rows": True},
        {"landing": "staging"},
    ],
)
def test_nulls_are_the_servers_business_where_it_may_take_them(changes: dict[str, Any]) -> None:
    """A trigger may fill them, and a staging table takes them."""
    everything = ColumnMap(columns=("a", "b", "c"))
    assert screen_of(everything).not_null == (1, 2)
    assert screen_of(everything, **changes).not_null == ()


def test_bytes_are_looked_at_where_they_are_utf8() -> None:
    """Other encodings are the server's to know."""
    assert screen_of(ColumnMap(columns=("a",))).is_utf8
    assert not screen_of(ColumnMap(columns=("a",)), encoding="LATIN1").is_utf8
