"""Fixtures for tests that speak SQL."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from penstock.server.connection import ConnectionFactory

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def connection(database: str) -> Iterator[psycopg.Connection]:
    """Provide an autocommit connection to an empty database, on each version in turn."""
    with psycopg.connect(database, autocommit=True) as opened:
        yield opened


@pytest.fixture
def connection18(database18: str) -> Iterator[psycopg.Connection]:
    """Provide an autocommit connection to an empty database on the newest version."""
    with psycopg.connect(database18, autocommit=True) as opened:
        yield opened


@pytest.fixture
def user_name(database: str) -> Iterator[str]:
    """Provide an ordinary role that may log in and has been granted nothing."""
    name = f"ordinary {secrets.token_hex(4)}"
    role = sql.Identifier(name)
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'hunter2'").format(role))
        yield name
        admin.execute(sql.SQL("DROP OWNED BY {} CASCADE").format(role))
        admin.execute(sql.SQL("DROP ROLE {}").format(role))


@pytest.fixture
def user_conninfo(database: str, user_name: str) -> str:
    """Provide the connection string of the ordinary role."""
    return make_conninfo(database, user=user_name, password="hunter2")


@pytest.fixture
def user_connection(user_conninfo: str) -> Iterator[psycopg.Connection]:
    """Provide a session of the ordinary role, as penstock makes it."""
    with ConnectionFactory(user_conninfo).connect() as opened:
        yield opened
