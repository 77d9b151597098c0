"""Runs a block of statements with local settings, and several statements together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from psycopg import sql
from psycopg.pq import TransactionStatus

from penstock.errors import ServerError, TargetError
from penstock.server.connect.connection import Connection
from penstock.server.connect.errors import in_transaction
from penstock.server.sql.queries import change_setting

if TYPE_CHECKING:
    from psycopg.sql import Composed


_Result = TypeVar("_Result")

# How many times look_again reads. A transaction that drops several parts has usually ended by the second attempt.
_LOOKS = 3

# The server reports "cache lookup failed" with this code if a part was dropped meanwhile.
_INTERNAL_ERROR = "XX000"


class Unread(TargetError):
    """A part of a definition could not be read: it is not understood, or was dropped while it was read."""


def look_again(read: Callable[[], _Result], connection: Connection | None = None) -> _Result:
    """Return the result of `read`. If it raises Unread, call it again, at most three times in all.

    A part that another transaction drops during a query is visible in the query's snapshot, but has no definition any
    more. If it is dropped while the server composes the definition, the server raises an internal error. In a
    transaction of the caller's, each call is in a savepoint, so the transaction survives such an error.
    """
    if connection is not None and connection.info.transaction_status is TransactionStatus.INTRANS:
        return look_again(partial(_in_savepoint, read, connection))
    for _ in range(_LOOKS - 1):
        try:
            return read()
        except Unread:
            continue
        except ServerError as error:
            if error.sqlstate != _INTERNAL_ERROR:
                raise
    return read()


def _in_savepoint(read: Callable[[], _Result], connection: Connection) -> _Result:
    with in_transaction(connection, "reading a definition"):
        return read()


@contextmanager
def local_settings(connection: Connection, **settings: str) -> Iterator[None]:
    """Run the block in one transaction, or a part of the caller's, with these settings, and restore them afterwards.

    SET LOCAL alone would last until the caller's transaction ends. An error rolls back the block's changes.
    """
    with in_transaction(connection):
        before = {name: change_setting(connection, name, value) for name, value in settings.items()}
        yield
        for name, value in before.items():
            change_setting(connection, name, value)


def run_all(connection: Connection, statements: Iterable[Composed | str]) -> None:
    """Run statements in order in one round trip, so locks are held only while the statements run."""
    if found := [sql.SQL(each) if isinstance(each, str) else each for each in statements]:
        connection.execute(sql.SQL("; ").join(found))
