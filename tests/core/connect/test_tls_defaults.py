"""What TLS asks where the user is silent, and the routes by which servers are reached."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.core.connect.conninfo import given_settings
from penstock.core.connect.route import Tunnel, named_routes, tunnel_route
from penstock.core.connect.tls import tls_defaults
from penstock.core.errors import ServerError, UsageError
from support.tls import RDS_HOST

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_OTHER_HOST = "db2.c9akciq32.eu-west-1.rds.amazonaws.com"
_TUNNEL = Tunnel(host="localhost", port=6000)


def roots(hosts: Sequence[str]) -> str:
    """Return a file as if it had been found."""
    return f"/roots of {hosts[0]}"


def no_roots(_hosts: Sequence[str]) -> str:
    """Find nothing."""
    raise ServerError("no root certificates")


FULL = {"sslmode": "verify-full", "sslrootcert": f"/roots of {RDS_HOST}"}


@pytest.mark.parametrize(
    ("given", "added"),
    [
        ({"host": RDS_HOST}, FULL),
        ({"host": f"{RDS_HOST},{_OTHER_HOST}"}, FULL),
        ({"host": RDS_HOST, "hostaddr": "127.0.0.1"}, FULL),
        ({"host": RDS_HOST, "sslmode": "", "sslrootcert": ""}, FULL),
        ({"host": RDS_HOST, "sslmode": "verify-full"}, {"sslrootcert": FULL["sslrootcert"]}),
        ({"host": RDS_HOST, "sslmode": "require"}, {}),
        ({"host": RDS_HOST, "sslmode": "disable"}, {}),
        ({"host": RDS_HOST, "sslrootcert": "mine"}, {"sslmode": "verify-full"}),
        ({"host": f"{RDS_HOST},db.example.org"}, {}),
        ({"host": "db.example.org"}, {}),
        ({"host": "/run/postgresql"}, {}),
        ({}, {}),
    ],
)
def test_amazons_servers_are_verified_where_the_user_is_silent(given: dict[str, str], added: dict[str, str]) -> None:
    """verify-full with Amazon's roots for RDS; libpq's own rules for all others; the user's word is the last."""
    assert tls_defaults(given, sends_token=False, find_roots=roots) == added


def test_connection_that_cannot_be_verified_is_not_made() -> None:
    """Without roots there is an error and no weaker mode."""
    with pytest.raises(ServerError, match="no root certificates"):
        tls_defaults({"host": RDS_HOST}, sends_token=False, find_roots=no_roots)


@pytest.mark.parametrize("mode", ["disable", "allow", "prefer"])
def test_token_is_never_sent_in_the_clear(mode: str) -> None:
    """IAM authentication refuses the modes that may do without TLS."""
    with pytest.raises(UsageError, match=f"sslmode is {mode}"):
        tls_defaults({"host": RDS_HOST, "sslmode": mode}, sends_token=True, find_roots=roots)


def test_token_is_sent_to_verified_servers_of_any_name() -> None:
    """Also where the endpoint hides behind a name of one's own."""
    assert tls_defaults({"host": "db.example.org"}, sends_token=True, find_roots=roots) == {"sslmode": "verify-full"}


def test_variables_and_services_are_the_users_word(tmp_path: Path) -> None:
    """PGSSLMODE, PGSSLROOTCERT and a service file count as the connection string does."""
    services = tmp_path / "services"
    services.write_text(f"[rds]\nhost={RDS_HOST}\nsslmode=require\n")
    by_service = given_settings({"service": "rds"}, {"PGSERVICEFILE": str(services)})
    assert tls_defaults(by_service, sends_token=False, find_roots=no_roots) == {}
    by_variable = given_settings({"host": RDS_HOST}, {"PGSSLROOTCERT": "mine", "PGSSLMODE": "verify-ca"})
    assert tls_defaults(by_variable, sends_token=False, find_roots=no_roots) == {}


def test_tunnel_is_dialled_and_the_server_named() -> None:
    """The near end's address and port for libpq; the server's own host and port for TLS and tokens."""
    route = tunnel_route({"host": RDS_HOST, "port": "5433"}, _TUNNEL, lambda _: "127.0.0.1")
    assert (route.host, route.port) == (RDS_HOST, 5433)
    assert route.settings == {"host": RDS_HOST, "hostaddr": "127.0.0.1", "port": "6000"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"host": f"{RDS_HOST},{_OTHER_HOST}"}, "needs a single host and port"),
        ({"host": RDS_HOST, "port": "5432,5433"}, "needs a single host and port"),
        ({"host": RDS_HOST, "hostaddr": "10.0.0.5"}, "--tunnel cannot be used with hostaddr"),
        ({"host": "/run/postgresql"}, "needs the name"),
        ({"dbname": "shop"}, "needs the name"),
    ],
)
def test_tunnel_leads_to_one_named_server(given: dict[str, str], message: str) -> None:
    """Anything else is refused."""
    with pytest.raises(UsageError, match=message):
        tunnel_route(given, _TUNNEL, lambda _: "127.0.0.1")


@pytest.mark.parametrize(
    ("given", "endpoints"),
    [
        ({"host": RDS_HOST}, [(RDS_HOST, 5432)]),
        ({"host": f"{RDS_HOST},{_OTHER_HOST}", "port": "5433"}, [(RDS_HOST, 5433), (_OTHER_HOST, 5433)]),
        ({"host": f"{RDS_HOST},{_OTHER_HOST}", "port": "1,2"}, [(RDS_HOST, 1), (_OTHER_HOST, 2)]),
        ({"host": RDS_HOST, "hostaddr": "127.0.0.1", "port": "6000"}, [(RDS_HOST, 5432)]),
        ({"host": RDS_HOST, "hostaddr": "10.0.0.5", "port": "5433"}, [(RDS_HOST, 5433)]),
    ],
)
def test_each_host_has_a_token_of_its_own(given: dict[str, str], endpoints: list[tuple[str, int]]) -> None:
    """Tokens are for an endpoint's own port; a loopback hostaddr is a tunnel's, and so is its port."""
    assert [(route.host, route.port) for route in named_routes(given)] == endpoints


@pytest.mark.parametrize("given", [{}, {"hostaddr": "10.0.0.5"}, {"host": "/run"}, {"host": "a,b", "port": "1,2,3"}])
def test_token_needs_a_host_name(given: dict[str, str]) -> None:
    """A socket or a bare address has none."""
    with pytest.raises(UsageError, match="host name"):
        named_routes(given)
