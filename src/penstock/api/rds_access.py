"""Access to servers of Amazon RDS, looked at by itself: tokens, and the certificates that verify a server."""

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
    """Return a token for IAM database authentication, a secret for 15 minutes. Raises ServerError, UsageError."""
    return RdsTokens(region=region)(host=host, port=port, user=user)


def check_token_user(conninfo: str, *, user: str) -> None:
    """Ask a server, as whoever `conninfo` names, whether a role may log in with tokens. Raises ServerError."""
    with connect_to(conninfo).connect() as connection:
        check_iam_role(connection, user)


def find_certificates(host: str | None) -> RootSearch:
    """Return where root certificates for an endpoint were looked for (None: any of RDS) and which would be used."""
    given = os.environ.get("PGSSLROOTCERT")
    return search_roots(host, os.environ, given=given or None, now=datetime.now(UTC))


def verify_server(search: RootSearch, *, host: str, port: int, tunnel: str | None = None) -> ServerCertificate:
    """Return the certificate of a server that can be verified as verify-full does. Raises ServerError, UsageError."""
    if search.chosen is None:
        raise missing_roots(host, search)
    end = None if tunnel is None else parse_tunnel(tunnel)
    address = None if end is None else (resolve_tunnel(end), end.port)
    return look_at_server(host, port, roots=search.chosen.path, address=address)
