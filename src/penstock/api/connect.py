"""Which server is meant, and how it is reached: the one that was named, the environment's, or the embedded one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from penstock.errors import UsageError
from penstock.server.connection import ConnectionFactory, has_connection_settings, over_own_socket
from penstock.server.route import parse_tunnel

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.server.route import TokenMaker


def connect_to(
    to: str | None = None,
    *,
    role: str | None = None,
    pg_bin: Path | None = None,
    iam_auth: bool = False,
    tunnel: str | None = None,
    allows_standby: bool = False,
) -> ConnectionFactory:
    """Return the factory for a target: `to` as libpq takes it, else PG* variables, else the embedded server.

    The embedded server is started where it is not running; `pg_bin` names another PostgreSQL's programs for it.
    `iam_auth`: the password of each connection is a token of AWS IAM. `tunnel` ("localhost:6000") is connected to in
    place of the server that is named. `allows_standby`: a standby will do where there is no primary. Raises UsageError,
    LabError.
    """
    if to is None and (pg_bin is not None or not has_connection_settings(os.environ)):
        if iam_auth or tunnel is not None:
            raise UsageError(
                f"{'--iam-auth' if iam_auth else '--tunnel'} needs a server's name",
                hint="Name the server with --to or PGHOST.",
            )
        from penstock.lab import default_server  # noqa: PLC0415 (15 ms, for who names no server)

        to = over_own_socket(default_server(pg_bin).ensure_running())
    return ConnectionFactory(
        to or "",
        role=role,
        tunnel=None if tunnel is None else parse_tunnel(tunnel),
        make_token=_token_maker() if iam_auth else None,
        allows_standby=allows_standby,
    )


def _token_maker() -> TokenMaker:
    from penstock.aws.rds_token import RdsTokens  # noqa: PLC0415 (47 ms, botocore)

    return RdsTokens()
