"""Tables made for --create, and their removal after a failed load."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from threading import Barrier
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg import sql

from penstock.core.catalogue.catalog import find_table
from penstock.core.catalogue.tables import check_names, create_table, drop_created
from penstock.core.connect.connection import ConnectionFactory
from penstock.core.errors import TableExistsError, TargetError
from penstock.core.values.table import TableName
from support.codes import has_code

if TYPE_CHECKING:
    from penstock.core.catalogue.tables import CreatedTable
    from penstock.core.connect.connection import Connection

pytestmark = pytest.mark.versions

NAME = TableName(schema="Stag.ing", name='ti"tle %d')


def has_schema(connection: Connection, schema: str) -> bool:
    """Return whether a schema is there."""
    query = "SELECT FROM pg_namespace WHERE nspname = %s"
    return connection.execute(query, [schema]).fetchone() is not None


def test_table_and_schema_are_made(connection: Connection) -> None:
    """All columns are text, however they are named."""
    created = create_table(connection, NAME, ["tconst", "Ordering", 'a "b"; DROP'])
    facts = find_table(connection, NAME)
    assert facts is not None
    assert [(column.name, column.type_name) for column in facts.columns] == [
        ("tconst", "text"),
        ("Ordering", "text"),
        ('a "b"; DROP', "text"),
    ]
    assert (created.oid, created.name, created.has_new_schema) == (facts.oid, NAME, True)


def test_unqualified_table_goes_to_the_search_path(connection: Connection) -> None:
    """The result has the table's schema."""
    created = create_table(connection, TableName(schema=None, name="t"), ["a"])
    assert (created.name, created.has_new_schema) == (TableName(schema="public", name="t"), False)


def test_existing_schema_needs_no_right_on_the_database(
    connection: Connection, user_connection: Connection, user_name: str
) -> None:
    """CREATE on the schema is enough for an ordinary user."""
    connection.execute("CREATE SCHEMA s")
    connection.execute(sql.SQL("GRANT USAGE, CREATE ON SCHEMA s TO {}").format(sql.Identifier(user_name)))
    assert not create_table(user_connection, TableName(schema="s", name="t"), ["a"]).has_new_schema


def test_missing_right_is_a_target_error(user_connection: Connection) -> None:
    """Nothing is left of the attempt."""
    with pytest.raises(TargetError, check=has_code("42501")) as caught:
        create_table(user_connection, NAME, ["a"])
    assert str(caught.value.hint).startswith("Have the role granted CREATE on the schema")
    assert not has_schema(user_connection, "Stag.ing")


def test_existing_table_is_told(connection: Connection) -> None:
    """Another session may have been quicker."""
    create_table(connection, NAME, ["a"])
    with pytest.raises(TableExistsError):
        create_table(connection, NAME, ["a"])


def test_two_creators_of_one_schema_both_get_their_table(database: str, connection: Connection) -> None:
    """The second waits for the first's transaction and then finds the schema made."""
    with psycopg.connect(database) as first, ThreadPoolExecutor(1) as pool:
        first.execute("CREATE SCHEMA s")
        second = pool.submit(create_table, connection, TableName(schema="s", name="t"), ["a"])
        wait_for_lock(database)
        first.commit()
        assert not second.result().has_new_schema


def test_second_creator_of_one_table_is_told(database: str, connection: Connection) -> None:
    """Whichever unique index the race is lost on."""
    with psycopg.connect(database) as first, ThreadPoolExecutor(1) as pool:
        first.execute("CREATE TABLE public.t (a text)")
        second = pool.submit(create_table, connection, TableName(schema="public", name="t"), ["a"])
        wait_for_lock(database)
        first.commit()
        with pytest.raises(TableExistsError):
            second.result()


@pytest.mark.part("rest")
def test_creators_of_one_table_at_the_same_moment_are_one_creator_and_others_that_are_told(database: str) -> None:
    """Also if the first commits between the server's looks at names of relations and of types, as for 170 of 6,000."""
    starting = Barrier(4)

    def create(connection: Connection, number: int) -> str:
        starting.wait()
        try:
            create_table(connection, TableName(schema="public", name=f"t{number}"), ["a"])
        except TableExistsError:
            return "told"
        return "created"

    with ExitStack() as stack, ThreadPoolExecutor(4) as pool:
        sessions = [stack.enter_context(ConnectionFactory(database).connect()) for _ in range(4)]
        for number in range(300):
            assert sorted(pool.map(create, sessions, [number] * 4)) == ["created", "told", "told", "told"]


def wait_for_lock(database: str) -> None:
    """Return once a session of this database waits for another's transaction."""
    query = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    with psycopg.connect(database, autocommit=True) as watcher:
        while watcher.execute(query).fetchone() is None:
            watcher.execute("SELECT pg_sleep(0.01)")


def test_drop_leaves_nothing(connection: Connection) -> None:
    """Table and schema were made here and are empty."""
    created = create_table(connection, NAME, ["a"])
    assert drop_created(connection, created)
    assert not has_schema(connection, "Stag.ing")


def test_drop_keeps_a_schema_that_was_there(connection: Connection) -> None:
    """Only the table is taken away."""
    connection.execute("CREATE SCHEMA s")
    created = create_table(connection, TableName(schema="s", name="t"), ["a"])
    assert drop_created(connection, created)
    assert has_schema(connection, "s")


@pytest.mark.parametrize(
    "change",
    [
        "INSERT INTO s.t VALUES ('kept')",
        "DROP TABLE s.t; CREATE TABLE s.t (a text)",
        "CREATE VIEW public.v AS SELECT * FROM s.t",
    ],
    ids=["rows", "another", "dependent"],
)
def test_drop_leaves_a_table_that_others_use(connection: Connection, change: str) -> None:
    """Rows, a table of the same name that is not ours, a view on it."""
    created = create_table(connection, TableName(schema="s", name="t"), ["a"])
    connection.execute(change.encode())
    assert not drop_created(connection, created)
    assert find_table(connection, created.name) is not None


def test_drop_leaves_a_schema_that_others_use(connection: Connection) -> None:
    """Someone put a second table into it."""
    created = create_table(connection, TableName(schema="s", name="t"), ["a"])
    connection.execute("CREATE TABLE s.other ()")
    assert not drop_created(connection, created)
    assert find_table(connection, created.name) is None


def test_drop_of_a_table_that_is_gone(connection: Connection) -> None:
    """It says that it has not dropped all."""
    created: CreatedTable = create_table(connection, NAME, ["a"])
    connection.execute('DROP SCHEMA "Stag.ing" CASCADE')
    assert not drop_created(connection, created)


@pytest.mark.parametrize("columns", [["a", "a"], ["a", ""], ["a\0"], ["ä" * 32]], ids=["twice", "empty", "nul", "long"])
def test_names_that_postgresql_would_not_keep_are_refused(columns: list[str]) -> None:
    """Before anything is made."""
    with pytest.raises(TargetError):
        check_names(TableName(schema=None, name="t"), columns)


def test_system_columns_name_is_a_target_error(connection: Connection) -> None:
    """The server refuses ctid and the like."""
    with pytest.raises(TargetError, match="ctid"):
        create_table(connection, NAME, ["ctid"])
