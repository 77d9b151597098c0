"""Makes IAM tokens, and checks rights and certificates of servers of Amazon RDS, apart from any load."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from penstock.api.connect import connect_to
from penstock.aws.rds_token import RdsTokens
from penstock.server.connect.certificate import look_at_server
from penstock.server.connect.roots import bundle_url, missing_roots, search_roots
from penstock.server.connect.route import parse_tunnel, resolve_tunnel
from penstock.server.inspect.iam_role import check_iam_role

if TYPE_CHECKING:
    from penstock.model.server.roots import RootSearch, ServerCertificate

__all__ = ["bundle_url", "check_token_user", "find_certificates", "make_token", "verify_server"]


def make_token(*, host: str, port: int, user: str, region: str | None = None) -> str:
    """Return a token for IAM database authentication: a password that is valid for 15 minutes.

    Raises ServerError, UsageError.
    """
    return RdsTokens(region=region)(host=host, port=port, user=user)


def check_token_user(conninfo: str, *, user: str) -> None:
    """Log in by `conninfo` and check that role `user` may log in with tokens. Raises ServerError if it may not."""
    with connect_to(conninfo).connect() as connection:
        check_iam_role(connection, user)


def find_certificates(host: str | None) -> RootSearch:
    """Return where root certificates for a host (None: any of RDS) were looked for, and which file would be used."""
    given = os.environ.get("PGSSLROOTCERT")
    return search_roots(host, os.environ, given=given or None, now=datetime.now(UTC))


def verify_server(search: RootSearch, *, host: str, port: int, tunnel: str | None = None) -> ServerCertificate:
    """Return a server's certificate, verified as sslmode=verify-full does. Raises ServerError, UsageError."""
    if search.chosen is None:
        raise missing_roots(host, search)
    end = None if tunnel is None else parse_tunnel(tunnel)
    address = None if end is None else (resolve_tunnel(end), end.port)
    return look_at_server(host, port, roots=search.chosen.path, address=address)
