"""Finds the root certificates of Amazon RDS, and verifies a server with them, independently of any load."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from penstock.server.connect.certificate import look_at_server
from penstock.server.connect.roots import bundle_url, missing_roots, search_roots
from penstock.server.connect.route import parse_tunnel, resolve_tunnel

if TYPE_CHECKING:
    from penstock.model.server.roots import RootSearch, ServerCertificate

__all__ = ["bundle_url", "find_certificates", "verify_server"]


def find_certificates(host: str | None) -> RootSearch:
    """Return where root certificates for a host were searched, and which file would be used.

    None is any host of RDS.
    """
    given = os.environ.get("PGSSLROOTCERT")
    return search_roots(host, os.environ, given=given or None, now=datetime.now(UTC))


def verify_server(search: RootSearch, *, host: str, port: int, tunnel: str | None = None) -> ServerCertificate:
    """Return a server's certificate, verified as sslmode=verify-full does. Raises ServerError, UsageError."""
    if search.chosen is None:
        raise missing_roots(host, search)
    end = None if tunnel is None else parse_tunnel(tunnel)
    address = None if end is None else (resolve_tunnel(end), end.port)
    return look_at_server(host, port, roots=search.chosen.path, address=address)
