"""Keys that ON CONFLICT can use, and what is said of those it cannot."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg import sql

from penstock.core.errors import TargetError, UsageError
from penstock.loading.land.merge_key import check_key, find_key
from support.ddl import facts_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.core.connect.connection import Connection

pytestmark = pytest.mark.versions


# What CREATE INDEX CONCURRENTLY leaves when it fails.
INVALID_INDEX = (
    "CREATE UNIQUE INDEX near ON public.t (a, b);"
    " UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'public.near'::regclass"
)


def check(
    connection: Connection,
    key: Sequence[str],
    columns: Sequence[str] = ("a", "b", "c"),
    *,
    updates: bool = True,
    table: str = "t",
) -> None:
    """Check a key of public.t."""
    check_key(connection, facts_of(connection, table), key, columns=columns, updates=updates)


@pytest.fixture
def table(connection: Connection) -> Connection:
    """Provide a connection to where public.t has columns a, b, c."""
    connection.execute('CREATE TABLE public.t (a int, b text, c int, "D d" int)')
    return connection


@pytest.mark.parametrize(
    "definition",
    [
        "ALTER TABLE public.t ADD PRIMARY KEY (a, b)",
        "ALTER TABLE public.t ADD UNIQUE (b, a)",
        "CREATE UNIQUE INDEX ON public.t (a, b)",
        "CREATE UNIQUE INDEX ON public.t (b text_pattern_ops, a DESC) INCLUDE (c)",
        'CREATE UNIQUE INDEX ON public.t (b COLLATE "C", a)',
    ],
)
def test_unique_index_on_just_the_key_will_do(table: Connection, definition: str) -> None:
    """In any order, with any order of sorting."""
    table.execute(definition.encode())
    check(table, ["a", "b"])
    check(table, ["b", "a"], updates=False)


@pytest.mark.parametrize(
    ("definition", "said"),
    [
        ("CREATE INDEX near ON public.t (a, b)", "It has no unique index."),
        ("CREATE UNIQUE INDEX near ON public.t (a)", 'Unique index "near" is on (a).'),
        ("CREATE UNIQUE INDEX near ON public.t (a, b, c)", 'Unique index "near" is on (a, b, c).'),
        ("CREATE UNIQUE INDEX near ON public.t (a, b) WHERE c > 0", 'Unique index "near" is on (a, b) and is partial.'),
        ("CREATE UNIQUE INDEX near ON public.t (a, lower(b))", 'Unique index "near" is on (a, an expression).'),
        (
            INVALID_INDEX,
            'Unique index "near" is on (a, b) and is not valid.',
        ),
    ],
)
def test_other_indexes_are_refused_by_name(table: Connection, definition: str, said: str) -> None:
    """With what would do in their place."""
    table.execute(definition.encode())
    with pytest.raises(TargetError) as caught:
        check(table, ["a", "b"])
    assert caught.value.detail == said
    assert 'CREATE UNIQUE INDEX CONCURRENTLY ON "public"."t" ("a", "b");' in (caught.value.hint or "")
    assert "A table that --create makes gets one by --key." in (caught.value.hint or "")


def test_deferrable_constraint_is_refused_whatever_is_beside_it(table: Connection) -> None:
    """ON CONFLICT infers its index too, and fails at the first record."""
    table.execute(
        "ALTER TABLE public.t ADD CONSTRAINT near UNIQUE (a, b) DEFERRABLE; CREATE UNIQUE INDEX ON public.t (a, b);"
    )
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="deferrable"):
        table.execute("INSERT INTO public.t (a, b) VALUES (1, 'x') ON CONFLICT (a, b) DO NOTHING")
    with pytest.raises(TargetError, match='constraint "near" is deferrable') as caught:
        check(table, ["a", "b"])
    assert "without DEFERRABLE" in str(caught.value.hint)


def test_good_index_is_found_among_bad_ones(table: Connection) -> None:
    """The primary key first."""
    table.execute("CREATE UNIQUE INDEX bad ON public.t (a) WHERE a > 0; CREATE UNIQUE INDEX good ON public.t (a);")
    assert find_key(table, facts_of(table), ["a"]).index == "good"
    table.execute("ALTER TABLE public.t ADD CONSTRAINT best PRIMARY KEY (a)")
    assert find_key(table, facts_of(table), ["a"]).index == "best"


@pytest.mark.pg(">= 18")
def test_key_without_overlaps_is_refused(connection: Connection) -> None:
    """It is unique by an exclusion, which ON CONFLICT DO UPDATE does not know."""
    connection.execute("CREATE TABLE public.t (a int4range, b int4range, c int, UNIQUE (a, b WITHOUT OVERLAPS))")
    with pytest.raises(TargetError) as caught:
        check(connection, ["a", "b"])
    assert "is not a btree" in (caught.value.detail or "")


def test_partitioned_table_is_told_what_it_can_build(connection: Connection) -> None:
    """CREATE INDEX CONCURRENTLY is not for such tables."""
    connection.execute("CREATE TABLE public.t (a int, b int, c int) PARTITION BY LIST (a)")
    with pytest.raises(TargetError) as caught:
        check(connection, ["a"])
    assert "CREATE UNIQUE INDEX ON" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("tables", "key"),
    [
        ("CREATE TABLE public.t (a int, b int, c int) PARTITION BY LIST (b)", "a,b"),
        ("CREATE TABLE public.t (a int, b int, c int, PRIMARY KEY (a, b)) PARTITION BY LIST (b)", "a,b"),
        (
            (
                "CREATE TABLE public.t (a int, b int, c int) PARTITION BY RANGE (b);"
                "CREATE TABLE public.u PARTITION OF public.t FOR VALUES FROM (0) TO (9) PARTITION BY LIST (c)"
            ),
            "a,b,c",
        ),
    ],
)
def test_key_without_the_partitions_columns_is_told_to_have_them(connection: Connection, tables: str, key: str) -> None:
    """What the hint has created, if anything, PostgreSQL creates; then the key that it names is one."""
    connection.execute(tables.encode())
    with pytest.raises(TargetError) as caught:
        check(connection, ["a"])
    hint = caught.value.hint or ""
    assert f"--key {key}" in hint
    assert ("CREATE" in hint) == ("PRIMARY" not in tables)
    if "CREATE" in hint:
        connection.execute(re.findall("CREATE UNIQUE INDEX [^;]*;", hint)[0].encode())
    check(connection, key.split(","))


def test_table_that_is_divided_by_an_expression_can_have_no_key(connection: Connection) -> None:
    """PostgreSQL refuses any unique index there, so none is suggested."""
    connection.execute("CREATE TABLE public.t (a int, b int, c int) PARTITION BY RANGE ((a % 10))")
    with pytest.raises(TargetError) as caught:
        check(connection, ["a"])
    assert "CREATE" not in (caught.value.hint or "")


def test_view_has_no_key(table: Connection) -> None:
    """Nor can it get one."""
    table.execute("CREATE VIEW public.v AS SELECT a, b, c FROM public.t")
    with pytest.raises(TargetError) as caught:
        check(table, ["a"], table="v")
    assert "It is not a table." in (caught.value.detail or "")


@pytest.mark.parametrize(
    ("key", "error_class", "message"),
    [
        ([], UsageError, "--key has no column"),
        (["a", "a"], UsageError, 'column "a" is named twice in --key'),
        (["x"], TargetError, 'column "x" of --key does not exist in table "public.t"'),
        (["D d"], TargetError, 'column "D d" of --key is not in the file'),
    ],
)
def test_key_that_makes_no_sense_is_refused(
    connection18: Connection, key: list[str], error_class: type[Exception], message: str
) -> None:
    """Before any index is looked at."""
    connection18.execute('CREATE TABLE public.t (a int, b text, c int, "D d" int)')
    with pytest.raises(error_class, match=f"^{re.escape(message)}"):
        check(connection18, key)


def test_generated_key_is_said_to_be_computed(connection18: Connection) -> None:
    """No file can have it."""
    connection18.execute("CREATE TABLE public.t (a int, b int GENERATED ALWAYS AS (a + 1) STORED UNIQUE)")
    with pytest.raises(TargetError) as caught:
        check(connection18, ["b"], ["a"])
    assert caught.value.detail == "The table computes it."


def test_identity_that_update_would_refuse_is_refused_early(connection18: Connection) -> None:
    """INSERT may override it, so insert-new may have it in the file."""
    connection18.execute("CREATE TABLE public.t (a int PRIMARY KEY, b int GENERATED ALWAYS AS IDENTITY)")
    check(connection18, ["a"], ["a", "b"], updates=False)
    with pytest.raises(TargetError, match="GENERATED ALWAYS AS IDENTITY and cannot be updated"):
        check(connection18, ["a"], ["a", "b"])


def test_missing_privileges_show_before_the_load(connection: Connection, user_connection: Connection) -> None:
    """UPDATE is needed by upsert only, and SELECT on the key alone."""
    connection.execute("CREATE TABLE public.t (a int PRIMARY KEY, b text, c int)")
    user = sql.Identifier(user_connection.info.user)
    connection.execute(sql.SQL("GRANT INSERT ON public.t TO {}").format(user))
    with pytest.raises(TargetError) as caught:
        check(user_connection, ["a"], updates=False)
    assert caught.value.hint == 'Have the owner run GRANT SELECT ("a") ON "public"."t" TO ...;'
    connection.execute(sql.SQL("GRANT SELECT (a) ON public.t TO {}").format(user))
    check(user_connection, ["a"], updates=False)
    with pytest.raises(TargetError) as caught:
        check(user_connection, ["a"])
    assert caught.value.hint == 'Have the owner run GRANT UPDATE ("b", "c") ON "public"."t" TO ...;'
