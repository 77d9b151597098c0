"""Facts of real servers, as an ordinary user reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from psycopg import sql

from penstock.core.catalogue.catalog import is_local_server, read_server_facts
from penstock.core.connect.connection import ConnectionFactory

if TYPE_CHECKING:
    from penstock.core.connect.connection import Connection

pytestmark = pytest.mark.versions


def test_facts_name_version_database_and_user(user_connection: Connection, user_name: str) -> None:
    """An ordinary user learns what loading must know."""
    facts = read_server_facts(user_connection)
    assert facts.version_num == user_connection.info.server_version
    assert (facts.database, facts.user) == (user_connection.info.dbname, user_name)
    assert (facts.server_encoding, facts.is_in_recovery) == ("UTF8", False)
    assert f"user={user_name}" in facts.address


def test_user_after_set_role_is_the_role(database: str, user_name: str) -> None:
    """The rights that count are the role's."""
    with ConnectionFactory(database, role=user_name).connect() as connection:
        assert read_server_facts(connection).user == user_name


def test_free_connections_leave_the_reserved_ones(user_connection: Connection) -> None:
    """Some are free, fewer than max_connections less those kept for superusers."""
    facts = read_server_facts(user_connection)
    (limit,) = user_connection.execute(
        "SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int"
    ).fetchone() or (0,)
    assert 0 < facts.free_connections < limit


def test_role_limit_bounds_free_connections(
    connection: Connection, user_connection: Connection, user_name: str
) -> None:
    """The connection that asks has taken one of three."""
    connection.execute(sql.SQL("ALTER ROLE {} CONNECTION LIMIT 3").format(sql.Identifier(user_name)))
    assert read_server_facts(user_connection).free_connections == 2


def test_database_limit_bounds_free_connections(
    connection: Connection, user_connection: Connection, user_conninfo: str
) -> None:
    """Another session on the database takes one; beyond the limit none is free."""
    database = sql.Identifier(connection.info.dbname)
    connection.execute(sql.SQL("ALTER DATABASE {} CONNECTION LIMIT 4").format(database))
    before = read_server_facts(user_connection).free_connections
    with ConnectionFactory(user_conninfo).connect():
        after = read_server_facts(user_connection).free_connections
    connection.execute(sql.SQL("ALTER DATABASE {} CONNECTION LIMIT 1").format(database))
    assert (before - after, read_server_facts(user_connection).free_connections) == (1, 0)


def test_server_behind_a_socket_is_local(user_connection: Connection) -> None:
    """A Unix socket does not leave the machine."""
    if user_connection.info.host.startswith("/"):
        assert read_server_facts(user_connection).is_local


@pytest.mark.parametrize(
    ("schema", "relation", "expected"),
    [("rds_aurora", "limitless_subclusters", "limitless"), ("sys", "iam_pg_role_mappings", "dsql")],
)
def test_distributed_auroras_are_told_by_their_catalogues(
    connection: Connection, user_connection: Connection, schema: str, relation: str, expected: str
) -> None:
    """Stand-ins in a schema that the user may not use."""
    assert read_server_facts(user_connection).distributed is None
    connection.execute(f"CREATE SCHEMA {schema}")
    connection.execute(f"CREATE VIEW {schema}.{relation} AS SELECT 1 AS id")
    assert read_server_facts(user_connection).distributed == expected
    connection.execute(f"DROP SCHEMA {schema} CASCADE")


@pytest.mark.parametrize(
    ("server_address", "dialled_address", "named_host", "is_local"),
    [
        (None, "", "/run/postgresql", True),
        (None, "127.0.0.1", "localhost", False),
        ("127.0.0.1", "127.0.0.1", "localhost", True),
        ("127.0.0.1", "127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "127.0.0.1", "", True),
        ("127.0.1.1", "127.0.1.1", "Laptop", True),
        ("::1", "::1", "::1", True),
        ("127.0.0.1", "127.0.0.1", "db1.c9akciq32.eu-west-1.rds.amazonaws.com", False),
        ("10.0.0.5", "127.0.0.1", "localhost", False),
        ("127.0.0.1", "10.0.0.5", "db1", False),
        ("10.0.0.5", "10.0.0.5", "10.0.0.5", False),
        ("127.0.0.1", "", "localhost", False),
    ],
)
def test_local_needs_loopback_at_both_ends(
    server_address: str | None, dialled_address: str, named_host: str, is_local: bool
) -> None:
    """A tunnel's near end alone does not make its server local, and neither do both where another host was named."""
    found = is_local_server(
        server_address=server_address, dialled_address=dialled_address, named_host=named_host, own_name="laptop"
    )
    assert found is is_local
