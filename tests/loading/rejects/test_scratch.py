"""The temporary table that --check tries records on: the target's columns and rules, without what it makes up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from penstock.core.values.table import Column, TableFacts, TableName
from penstock.loading.rejects.sorting import ScratchTables, made_up_columns

if TYPE_CHECKING:
    from penstock.core.connect.connection import Connection

pytestmark = pytest.mark.versions

FACTS = TableFacts(
    oid=1,
    name=TableName(schema="public", name="t"),
    kind="r",
    columns=(
        Column(name="id", type_name="bigint", is_not_null=True, identity="a"),
        Column(name="a", type_name="integer"),
        Column(name="d", type_name="text", has_default=True),
        Column(name="g", type_name="integer", is_generated=True),
    ),
)


@pytest.mark.parametrize(
    ("filled", "made_up"),
    [(("a",), ("id", "d", "g")), (("id", "a"), ("d", "g")), (("d", "id"), ())],
)
def test_server_makes_up_what_a_load_does_not_fill(filled: tuple[str, ...], made_up: tuple[str, ...]) -> None:
    """Columns with a default or identity, and then the generated ones too; a column without either is null."""
    assert made_up_columns(FACTS, filled) == made_up


def test_table_is_made_once_for_each_set_of_columns(connection: Connection) -> None:
    """Whatever their order; what the load does not fill may be null in one and not in the other."""
    connection.execute(
        "CREATE TABLE t (id bigint GENERATED ALWAYS AS IDENTITY, a int, d text DEFAULT 'x',"
        " g int GENERATED ALWAYS AS (a + 1) STORED)"
    )
    scratch = ScratchTables(connection)
    some, every = scratch.name_for(FACTS, ["a", "d"]), scratch.name_for(FACTS, ["id", "a", "d"])
    assert scratch.name_for(FACTS, ["d", "a"]) == some
    connection.execute(f"INSERT INTO pg_temp.{some} (a) VALUES (1)")
    with pytest.raises(psycopg.errors.NotNullViolation):
        connection.execute(f"INSERT INTO pg_temp.{every} (a) VALUES (1)")
