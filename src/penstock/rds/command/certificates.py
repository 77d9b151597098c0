"""`penstock rds certificates`: shows Amazon's root certificates, and verifies a server by them."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.options import Json  # noqa: TC001 (typer reads annotations)
from penstock.cli.output import write_result
from penstock.core.connect.certificate import look_at_server
from penstock.core.connect.route import parse_tunnel, resolve_tunnel
from penstock.core.connect.tls import bundle_url, missing_roots, search_roots
from penstock.core.errors import ServerError, UsageError

if TYPE_CHECKING:
    from penstock.core.connect.tls import RootFile, RootSearch, ServerCertificate

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


Port = Annotated[int, typer.Option("--port", metavar="PORT", help="Use this endpoint port.", min=1, max=65535)]
Tunnel = Annotated[
    str | None,
    typer.Option("--tunnel", metavar="localhost:PORT", help="Connect to this end of a tunnel to the server."),
]


def certificates(
    host: Annotated[
        str | None,
        typer.Option("--host", metavar="HOST", help="Connect to this endpoint, and verify its certificate."),
    ] = None,
    port: Port = 5432,
    tunnel: Tunnel = None,
    as_json: Json = False,
) -> None:
    """Show where Amazon's root certificates were found, what they are, and whether sslmode=verify-full works.

    Exit codes: 0 it works, 7 it does not.
    """
    if tunnel is not None and host is None:
        raise UsageError("--tunnel needs the server's name", hint="Name the server at its far end with --host.")

    search = find_certificates(host)
    lines, found = _describe(search), _search_object(search)
    failure: ServerError | None = None
    if host is not None:
        try:
            server = verify_server(search, host=host, port=port, tunnel=tunnel)
        except ServerError as error:
            failure = error
        else:
            lines.append(_describe_server(host, server))
            found["server"] = {"name": server.name, "issuer": server.issuer, "expires_at": server.expires_at}
    elif search.chosen is None:
        lines.append("sslmode=verify-full would not work: no root certificates of Amazon RDS were found")
        lines.append(f"download them from {bundle_url(None)} (docs/access.md)")
    found["verify_full"] = failure is None and search.chosen is not None
    if failure is None or not as_json:
        write_result(found if as_json else lines)
    if failure is not None:
        raise failure
    if search.chosen is None:
        raise typer.Exit(ServerError.exit_code)


def _describe(search: RootSearch) -> list[str]:
    """Return a line for each file searched, and a line for each of Amazon's certificates in the file that is used."""
    lines = ["named by PGSSLROOTCERT:" if search.is_given else "searched:"]
    lines += [f"  {file.path}: {_content(file, is_chosen=file is search.chosen)}" for file in search.files]
    if search.chosen is not None:
        amazons = [each for each in search.chosen.certificates if each.is_amazons]
        others = len(search.chosen.certificates) - len(amazons)
        lines.append(f"root certificates in {search.chosen.path}:")
        lines += [f"  {each.name}, expires {_day(each.expires_at)}" for each in amazons]
        lines += [f"  and {others} that are not Amazon's"] if others else []
    return lines


def _content(file: RootFile, *, is_chosen: bool) -> str:
    if file.problem is not None:
        return file.problem[:1].lower() + file.problem[1:]
    count = f"certificates: {len(file.certificates)}"
    return f"{count}, used for servers of Amazon RDS" if is_chosen else f"{count}, none that would verify the server"


def _describe_server(host: str, server: ServerCertificate) -> str:
    return (
        f"sslmode=verify-full works: {host} showed a certificate for {server.name}, issued by {server.issuer}, which "
        f"expires {_day(server.expires_at)}"
    )


def _search_object(search: RootSearch) -> dict[str, Any]:
    return {
        "looked_at": [{"path": file.path, "problem": file.problem} for file in search.files],
        "file": None if search.chosen is None else search.chosen.path,
        "is_given": search.is_given,
        "certificates": [
            {"name": each.name, "unit": each.unit, "expires_at": each.expires_at}
            for each in (search.chosen.certificates if search.chosen is not None else ())
        ],
    }


def _day(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d}"
