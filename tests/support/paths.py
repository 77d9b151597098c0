"""Lets a test call functions that penstock runs with its own search_path."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from psycopg.pq import TransactionStatus

from penstock.core.connect.search_path import OWN_PATH

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.core.connect.connection import Connection

_Rest = ParamSpec("_Rest")
_Result = TypeVar("_Result")


def in_own_path(
    act: Callable[Concatenate[Connection, _Rest], _Result],
) -> Callable[Concatenate[Connection, _Rest], _Result]:
    """Return the function as a session of penstock's runs it; the session has its search_path again afterwards."""

    @wraps(act)
    def run(connection: Connection, *args: _Rest.args, **kwargs: _Rest.kwargs) -> _Result:
        row = connection.execute("SELECT pg_catalog.current_setting('search_path')").fetchone()
        assert row is not None
        connection.execute(f"SET search_path = {OWN_PATH}".encode())
        try:
            return act(connection, *args, **kwargs)
        finally:
            if not connection.closed and connection.info.transaction_status != TransactionStatus.INERROR:
                connection.execute("SELECT pg_catalog.set_config('search_path', %s, false)", [row[0]])

    return run
