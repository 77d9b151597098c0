"""Staging tables have the target's types, can be read by their owner only, and can be dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg import sql

from penstock.core.catalogue.staging import (
    POSITION_COLUMNS,
    drop_landing_table,
    find_landing_table,
    make_landing_table,
)
from penstock.core.errors import TargetError
from support.ddl import facts_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.core.connect.connection import Connection

NAME = 'Landing "1"'

TYPES = {
    "Id": "integer",
    "price": "numeric(8,2)",
    "code": "character varying(10)",
    "fixed": "character(3)",
    "tags": "text[]",
    "at": "timestamp(3) with time zone",
    "span": "interval day to second(1)",
    "kind": "public.kind",
    "positive": "public.positive",
}


def make(connection: Connection, columns: Sequence[str], *, as_text: bool = False) -> int:
    """Make a staging table for public.t in schema land and return its oid."""
    connection.execute("CREATE SCHEMA IF NOT EXISTS land")
    target = facts_of(connection)
    return make_landing_table(connection, schema="land", name=NAME, target=target, columns=columns, as_text=as_text)


def described(connection: Connection, oid: int) -> list[tuple[str, str, bool]]:
    """Return name, type and whether NOT NULL or a default stands on each column of a table."""
    return connection.execute(
        "SELECT attname::text, format_type(atttypid, atttypmod), attnotnull OR atthasdef FROM pg_attribute"
        " WHERE attrelid = %s AND attnum > 0 ORDER BY attnum",
        [oid],
    ).fetchall()


def make_typed_table(connection: Connection) -> None:
    """Make public.t with a column of each of TYPES, and what staging must not have of it."""
    connection.execute(
        "CREATE TYPE public.kind AS ENUM ('a', 'b'); CREATE DOMAIN public.positive AS int CHECK (VALUE > 0)"
    )
    columns = ", ".join(f'"{name}" {type_name}' for name, type_name in TYPES.items())
    connection.execute(f'CREATE TABLE public.t ({columns}, PRIMARY KEY ("Id"), CHECK (price > 0))'.encode())
    connection.execute("ALTER TABLE public.t ALTER code SET DEFAULT 'x', ALTER fixed SET NOT NULL, ADD extra int")


def test_columns_have_the_targets_types_and_nothing_else(connection: Connection) -> None:
    """In the file's order; no constraint, no default."""
    make_typed_table(connection)
    names = list(reversed(TYPES))
    oid = make(connection, names)
    *columns, object_number, block, sequence = described(connection, oid)
    # The test's own search_path finds the types of schema public.
    assert columns == [(name, TYPES[name].removeprefix("public."), False) for name in names]
    assert (object_number[:2], block[:2], sequence[:2]) == (
        ("penstock_object", "integer"),
        ("penstock_block", "bigint"),
        ("penstock_seq", "bigint"),
    )
    assert connection.execute(
        "SELECT relpersistence::text, relkind::text, reloptions FROM pg_class WHERE oid = %s", [oid]
    ).fetchone() == ("p", "r", None)


def test_collation_is_the_targets(connection: Connection) -> None:
    """So that staging compares as the target does."""
    connection.execute('CREATE TABLE public.t (a text COLLATE "C", b text)')
    oid = make(connection, ["b", "a"])
    collations = connection.execute(
        "SELECT attname::text, attcollation::regcollation::text FROM pg_attribute"
        " WHERE attrelid = %s AND attnum > 0 AND attcollation <> 0 ORDER BY attnum",
        [oid],
    ).fetchall()
    assert collations == [("b", '"default"'), ("a", '"C"')]


def test_text_staging_takes_any_column(connection: Connection) -> None:
    """The user's statement makes of them what the target has."""
    connection.execute("CREATE TABLE public.t (a int)")
    oid = make(connection, ["Whatever it is", "a"], as_text=True)
    assert [column[:2] for column in described(connection, oid)[:2]] == [("Whatever it is", "text"), ("a", "text")]


def test_default_privileges_hand_out_nothing(connection: Connection, user_name: str) -> None:
    """Neither the table nor its sequence, neither to a role nor to everyone."""
    for kind in ("TABLES", "SEQUENCES"):
        grant = "ALTER DEFAULT PRIVILEGES GRANT ALL ON {} TO {}, PUBLIC"
        connection.execute(sql.SQL(grant).format(sql.SQL(kind), sql.Identifier(user_name)))
    connection.execute("CREATE TABLE public.t (a int)")
    oid = make(connection, ["a"])
    grants = connection.execute(
        "SELECT c.relname, g.grantee::regrole::text, g.privilege_type FROM pg_class c, aclexplode(c.relacl) g"
        " WHERE c.relnamespace = 'land'::regnamespace AND g.grantee <> c.relowner"
    ).fetchall()
    assert grants == []
    assert connection.execute("SELECT relacl IS NOT NULL FROM pg_class WHERE oid = %s", [oid]).fetchone() == (True,)
    for kind in ("TABLES", "SEQUENCES"):
        revoke = "ALTER DEFAULT PRIVILEGES REVOKE ALL ON {} FROM {}, PUBLIC"
        connection.execute(sql.SQL(revoke).format(sql.SQL(kind), sql.Identifier(user_name)))


def test_file_column_with_a_position_columns_name_is_refused(connection18: Connection) -> None:
    """A clash shows before the server is asked."""
    connection18.execute("CREATE TABLE public.t (penstock_seq int)")
    with pytest.raises(TargetError, match="also one of every staging table"):
        make(connection18, ["penstock_seq"])


def test_column_that_the_target_lacks_is_refused(connection18: Connection) -> None:
    """The error names it."""
    connection18.execute("CREATE TABLE public.t (a int)")
    with pytest.raises(TargetError, match='column "b" does not exist in table'):
        make(connection18, ["a", "b"])


def test_making_leaves_no_half(connection18: Connection) -> None:
    """A name that is taken is the caller's to see, and his transaction goes on."""
    connection18.execute("CREATE TABLE public.t (a int)")
    make(connection18, ["a"])
    with connection18.transaction():
        with pytest.raises(TargetError, match="already exists"):
            make(connection18, ["a"])
        assert connection18.execute("SELECT 1").fetchone() == (1,)


def test_found_table_tells_what_it_is(connection: Connection) -> None:
    """As made it is ours; with a trigger or a policy it is not."""
    connection.execute("CREATE TABLE public.t (a int)")
    assert find_landing_table(connection, schema="land", name=NAME) is None
    oid = make(connection, ["a"])
    found = find_landing_table(connection, schema="land", name=NAME)
    assert found is not None
    assert (found.oid, found.columns, found.is_ours) == (oid, ["a", *POSITION_COLUMNS], True)
    connection.execute(sql.SQL("ALTER TABLE {} ENABLE ROW LEVEL SECURITY").format(sql.Identifier("land", NAME)))
    found = find_landing_table(connection, schema="land", name=NAME)
    assert found is not None and not found.is_ours


def test_somebody_elses_table_is_not_ours(connection: Connection, user_name: str) -> None:
    """Whatever it looks like."""
    connection.execute("CREATE TABLE public.t (a int)")
    make(connection, ["a"])
    owner = sql.SQL("ALTER TABLE {} OWNER TO {}").format(sql.Identifier("land", NAME), sql.Identifier(user_name))
    connection.execute(owner)
    found = find_landing_table(connection, schema="land", name=NAME)
    assert found is not None
    assert (found.owner, found.is_ours) == (user_name, False)


def test_drop_takes_the_table_that_was_made_only(connection: Connection) -> None:
    """Another that goes by the name since stays, and a second drop finds nothing."""
    connection.execute("CREATE TABLE public.t (a int)")
    oid = make(connection, ["a"])
    assert not drop_landing_table(connection, schema="land", name=NAME, oid=oid + 1)
    assert drop_landing_table(connection, schema="land", name=NAME, oid=oid)
    assert not drop_landing_table(connection, schema="land", name=NAME, oid=oid)
    assert not drop_landing_table(connection, schema="nowhere", name=NAME, oid=oid)


def test_drop_is_undone_with_the_callers_transaction(connection18: Connection) -> None:
    """It belongs to the merge's transaction."""
    connection18.execute("CREATE TABLE public.t (a int)")
    oid = make(connection18, ["a"])
    with connection18.transaction(force_rollback=True):
        assert drop_landing_table(connection18, schema="land", name=NAME, oid=oid)
    assert find_landing_table(connection18, schema="land", name=NAME) is not None


def test_ordinary_role_needs_create_on_the_schema_only(connection: Connection, user_connection: Connection) -> None:
    """Not even SELECT on the target, whose rows it may never read."""
    connection.execute("CREATE TABLE public.t (a int); CREATE SCHEMA land")
    grant = sql.SQL("GRANT USAGE, CREATE ON SCHEMA land TO {}")
    connection.execute(grant.format(sql.Identifier(user_connection.info.user)))
    target = facts_of(user_connection)
    oid = make_landing_table(user_connection, schema="land", name=NAME, target=target, columns=["a"], as_text=False)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        user_connection.execute("SELECT FROM public.t")
    assert drop_landing_table(user_connection, schema="land", name=NAME, oid=oid)
