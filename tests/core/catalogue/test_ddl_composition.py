"""What a definition is turned into, without a server."""

from __future__ import annotations

import pytest

from penstock.changes.tables.definition import (
    ConstraintRow,
    DdlTableRow,
    PartRow,
    TableDefinition,
    compose_foreign_key,
    find_differences,
)
from penstock.core.errors import TargetError


def definition(*parts: PartRow, oid: int = 1, owner: str = "o") -> TableDefinition:
    """Return the definition of table s."T a" with these parts alone."""
    table = DdlTableRow(
        oid=oid,
        name="T a",
        schema="s",
        quoted_name='s."T a"',
        owner=owner,
        persistence="p",
        access_method="heap",
        tablespace="",
    )
    return TableDefinition(table=table, indexes=(), constraints=(), publications=(), parts=parts)


def foreign_key(text: str) -> ConstraintRow:
    """Return a valid foreign key."""
    return ConstraintRow(
        name="k",
        kind="f",
        definition=text,
        is_deferrable=False,
        is_deferred=False,
        is_validated=True,
        is_enforced=True,
        is_temporal=False,
        comment=None,
    )


def test_foreign_key_to_itself_refers_to_the_new_table() -> None:
    """Also where a column's name looks like the table's."""
    head = 'FOREIGN KEY (" REFERENCES s.""T a""(") REFERENCES '
    add, validate = compose_foreign_key(foreign_key(f'{head}s."T a"(id)'), definition(), ("s", "new"))
    assert add.as_string() == f'ALTER TABLE "s"."new" ADD CONSTRAINT "k" {head}"s"."new"(id) NOT VALID'
    assert validate is not None
    assert validate.as_string() == 'ALTER TABLE "s"."new" VALIDATE CONSTRAINT "k"'


def test_foreign_key_that_cannot_be_told_apart_is_refused() -> None:
    """Its column is called like what stands behind it."""
    own = DdlTableRow(
        oid=1, name="t", schema="s", quoted_name="s.t", owner="o", persistence="p", access_method=None, tablespace=""
    )
    table = TableDefinition(table=own, indexes=(), constraints=(), publications=(), parts=())
    key = foreign_key('FOREIGN KEY (") REFERENCES s.t(") REFERENCES s.t(id)')
    with pytest.raises(TargetError, match="cannot tell"):
        compose_foreign_key(key, table, ("s", "new"))


def test_oids_make_no_difference() -> None:
    """All else does."""
    column = PartRow(part="columns", step="like", statement="a")
    assert definition() == definition(oid=77)
    assert find_differences(definition(), definition(oid=77)) == ()
    assert find_differences(definition(), definition(column, owner="x")) == ("columns", "table")
