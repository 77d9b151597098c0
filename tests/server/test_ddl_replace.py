"""A table of every kind of part is replaced, and nothing about it has changed but its rows."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import psycopg
import pytest

from penstock.server.ddl import find_differences, find_obstacles
from support.ddl import RICH_TABLE, capture, replace, table_oid

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.server.connection import Connection
    from penstock.server.ddl import TableDefinition

RICH = 'shop."Order s"'
ROWS = (
    "INSERT INTO {} (customer, price, span) VALUES (1, 10, '[1,3)'), (2, 11, '[3,9)')",
    "INSERT INTO {} (id, customer, parent, price) VALUES (5000, 2, 7, 12)",
)


@pytest.fixture
def roles(connection: Connection) -> Iterator[dict[str, str]]:
    """Provide three ordinary roles: owner, reader, keeper."""
    suffix = secrets.token_hex(4)
    names = {role: f'"ddl {role} {suffix}"' for role in ("owner", "reader", "keeper")}
    for name in names.values():
        connection.execute(f"CREATE ROLE {name}".encode())
    yield names
    for name in names.values():
        connection.execute(f"DROP OWNED BY {name} CASCADE".encode())
        connection.execute(f"DROP ROLE {name}".encode())


@pytest.fixture
def rich(connection: Connection, roles: dict[str, str]) -> TableDefinition:
    """Provide the definition of the table that has everything."""
    major = connection.info.server_version // 10_000
    for since, statement in RICH_TABLE:
        if major >= since:
            connection.execute(statement.replace("%%", "%").format(**roles).encode())
    return capture(connection, RICH)


def test_replaced_table_is_like_the_old_one(connection: Connection, rich: TableDefinition) -> None:
    """Names, grants, comments, order: all that is captured is equal, and the rows are the new ones."""
    assert find_obstacles(connection, rich) == ()
    replace(connection, RICH, *ROWS)
    after = capture(connection, RICH)
    assert find_differences(rich, after) == ()
    assert after == rich
    assert after.oid != rich.oid
    assert connection.execute(f"SELECT count(*) FROM {RICH}".encode()).fetchone() == (3,)
