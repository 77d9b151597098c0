"""Finds the server to connect to: the one in --to, the one in the PG* variables, or the embedded server."""

from __future__ import annotations

import os
from typing import Any

from penstock.core.catalogue.lock_watch import watch_locks
from penstock.core.connect.connection import ConnectionFactory, has_connection_settings, over_own_socket
from penstock.core.connect.route import TokenMaker, parse_tunnel
from penstock.core.errors import UsageError
from penstock.core.values.job import Access


def connect_to(to: str | None = None, *, allows_standby: bool = False, **options: Any) -> ConnectionFactory:
    """Return the factory that opens sessions on a server.

    `to` is a connection string of libpq. If it is None, the server is the one that the PG* variables or a service file
    name. If these name no server, it is the embedded server, which is started if it is not running. `options` are those
    of Access. If `allows_standby` is true, a standby is used if no primary can be reached. Raises UsageError, LabError.
    """
    access = Access(to=to, **options)
    is_embedded = to is None and (access.pg_bin is not None or not has_connection_settings(os.environ))
    if is_embedded:
        if access.iam_auth or access.tunnel is not None:
            raise UsageError(
                f"{'--iam-auth' if access.iam_auth else '--tunnel'} needs a server's name",
                hint="Name the server with --to or PGHOST.",
            )
        from penstock.embedded.server import default_server  # noqa: PLC0415 (15 ms, needed only if no server is named)

        to = over_own_socket(default_server(access.pg_bin).ensure_running())
    factory = ConnectionFactory(
        to or "",
        role=access.role,
        tunnel=None if access.tunnel is None else parse_tunnel(access.tunnel),
        make_token=_token_maker() if access.iam_auth else None,
        allows_standby=allows_standby,
        read_write=access.read_write,
        is_embedded=is_embedded,
    )
    watch_locks(factory)
    return factory


def _token_maker() -> TokenMaker:
    from penstock.core.aws.token import RdsTokens  # noqa: PLC0415 (47 ms, botocore)

    return RdsTokens()
