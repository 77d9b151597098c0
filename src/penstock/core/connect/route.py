"""How a server is reached: its own endpoint, the address to connect to, and the password for it.

With a tunnel, libpq connects to the tunnel's near end, TLS verifies the name of the server at the tunnel's far end, and
IAM tokens are created for that server's own name and port.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Mapping
from typing import Protocol

from penstock.core.errors import ServerError, UsageError
from penstock.core.slotted import slotted

_DEFAULT_PORT = 5432


class TokenMaker(Protocol):
    """Creates a token of IAM database authentication. `RdsTokens` (core/aws/token.py) implements it."""

    def __call__(self, *, host: str, port: int, user: str) -> str:
        """Return a token for an endpoint and a user. Raises ServerError."""


@slotted
class Tunnel:
    """The near end of a tunnel, to which libpq connects instead of the server."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@slotted
class Route:
    """How one server is reached: its own host and port, and libpq's settings for the connection."""

    # The server's own host, not the host of a tunnel.
    host: str
    # The server's own port.
    port: int
    # libpq's settings to reach the server.
    settings: Mapping[str, str]


def parse_tunnel(text: str) -> Tunnel:
    """Return the tunnel whose near end is given as HOST:PORT or PORT. Raises UsageError.

    >>> str(parse_tunnel("[::1]:6000")), str(parse_tunnel("6000"))
    ('::1:6000', 'localhost:6000')
    """
    host, _, port = text.rpartition(":")
    if "@" in text:
        # The text is not shown, because it may contain a password.
        raise UsageError(
            "--tunnel takes no user name",
            hint="Write --tunnel localhost:PORT; the user is that of the connection string.",
        )
    if not port.isdecimal() or not 0 < int(port) < 65_536:
        raise UsageError(f'invalid value "{text}" for --tunnel', hint="Write --tunnel localhost:PORT.")
    return Tunnel(host=host.strip("[]") or "localhost", port=int(port))


def tunnel_route(given: Mapping[str, str], tunnel: Tunnel, resolve: Callable[[Tunnel], str]) -> Route:
    """Return the route through a tunnel to the one server that the user's settings name.

    `given` has the user's settings by libpq's keywords. `resolve` returns the address of the tunnel's near end. Raises
    UsageError if the settings name several servers, none, or a hostaddr, and ServerError.
    """
    hosts = [host for host in given.get("host", "").split(",") if host]
    if given.get("hostaddr"):
        raise UsageError("--tunnel cannot be used with hostaddr", hint="Use one of the two; host names the server.")
    if len(hosts) > 1 or "," in given.get("port", ""):
        raise UsageError(
            "--tunnel needs a single host and port",
            detail=f"Hosts named: {', '.join(hosts)}.",
            hint="Name the one at the tunnel's far end.",
        )
    if not hosts or _is_socket(hosts[0]):
        raise UsageError(
            "--tunnel needs the name of the server at its far end",
            hint="Give that server's own host and port in --to, or in PGHOST and PGPORT.",
        )
    settings = {"host": hosts[0], "hostaddr": resolve(tunnel), "port": str(tunnel.port)}
    return Route(host=hosts[0], port=_read_port(given.get("port", "")), settings=settings)


def named_routes(given: Mapping[str, str]) -> tuple[Route, ...]:
    """Return a route to each server that the user's settings name. Raises UsageError.

    `given` has the settings by libpq's keywords. If a hostaddr is a loopback address, hostaddr and port are those of a
    tunnel's near end. The server's own port is then assumed to be 5432.
    """
    hosts = [host for host in given.get("host", "").split(",") if host]
    addresses = given["hostaddr"].split(",") if given.get("hostaddr") else [""] * len(hosts)
    ports = (given.get("port") or str(_DEFAULT_PORT)).split(",")
    ports = ports * len(hosts) if len(ports) == 1 else ports
    if not hosts or any(map(_is_socket, hosts)) or not len(hosts) == len(addresses) == len(ports):
        raise UsageError(
            "IAM authentication needs the host name of the server's endpoint",
            detail="A token is created for the endpoint's name and port.",
            hint="Name it with host=, in a URI or in PGHOST.",
        )
    return tuple(map(_named_route, hosts, addresses, ports))


def _named_route(host: str, address: str, port: str) -> Route:
    dialled = _read_port(port)
    settings = {"host": host, "port": str(dialled)} | ({"hostaddr": address} if address else {})
    own_port = _DEFAULT_PORT if is_loopback(address) and not is_loopback(host) else dialled
    return Route(host=host, port=own_port, settings=settings)


def resolve_tunnel(tunnel: Tunnel) -> str:
    """Return the address of a tunnel's near end. Raises ServerError.

    An IPv4 address takes precedence, because most tunnels listen only on IPv4.
    """
    try:
        found = socket.getaddrinfo(tunnel.host, tunnel.port, type=socket.SOCK_STREAM)
    except OSError as exc:
        raise ServerError(
            f"could not find the tunnel's host {tunnel.host}", detail=f"{exc.strerror}.", hint="Write localhost:PORT."
        ) from exc
    found.sort(key=lambda entry: entry[0] != socket.AF_INET)
    return str(found[0][4][0])


def is_loopback(address: str) -> bool:
    """Return whether an address is a loopback address."""
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _read_port(text: str) -> int:
    if text and not text.strip().isdecimal():
        raise UsageError(f'invalid port "{text}"')
    return int(text or _DEFAULT_PORT)


def _is_socket(host: str) -> bool:
    return host.startswith(("/", "@"))
