"""Fixtures for tests that speak SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from penstock.server.connect.connection import ConnectionFactory

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
def user_connection(user_conninfo: str) -> Iterator[psycopg.Connection]:
    """Provide a session of the ordinary role, as penstock makes it."""
    with ConnectionFactory(user_conninfo).connect() as opened:
        yield opened
