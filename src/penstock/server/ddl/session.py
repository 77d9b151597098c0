"""Settings that hold for a few statements, and how statements are run."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from psycopg import sql

from penstock.errors import TargetError
from penstock.server.connect.errors import in_transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from psycopg.sql import Composed

    from penstock.server.connect.connection import Connection


_Result = TypeVar("_Result")

# Whoever drops several things does so in one transaction, which is over by the second look.
_LOOKS = 3


class Unread(TargetError):
    """A part of a definition was not read: it is not understood, or was dropped while it was read."""


def look_again(read: Callable[[], _Result]) -> _Result:
    """Return what `read` finds in the catalogue, which it looks at again where it raises Unread.

    What another transaction drops meanwhile has a row in the statement's snapshot, and no definition any more.
    """
    for _ in range(_LOOKS - 1):
        try:
            return read()
        except Unread:
            continue
    return read()


@contextmanager
def local_settings(connection: Connection, **settings: str) -> Iterator[None]:
    """Run the block in one transaction, or a part of the caller's, under other settings; they are put back.

    SET LOCAL alone would last until the caller's transaction ends. An error takes the block's changes back.
    """
    with in_transaction(connection):
        before = {name: _change_setting(connection, name, value) for name, value in settings.items()}
        yield
        for name, value in before.items():
            _change_setting(connection, name, value)


def run_all(connection: Connection, statements: Iterable[Composed | str]) -> None:
    """Run statements in turn, in one round trip: locks are held no longer than it takes."""
    if found := [sql.SQL(each) if isinstance(each, str) else each for each in statements]:
        connection.execute(sql.SQL("; ").join(found))


def _change_setting(connection: Connection, name: str, value: str) -> str:
    """Change a setting for the transaction and return what it was."""
    row = connection.execute(
        "SELECT pg_catalog.current_setting(%s), pg_catalog.set_config(%s, %s, true)", [name, name, value]
    ).fetchone()
    assert row is not None
    return str(row[0])
