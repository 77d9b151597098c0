"""Reads the facts of a server that a load needs, in one query that an ordinary user may run."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import asdict, replace

from penstock.core.connect.connection import Connection, ConnectionFactory, describe_connection
from penstock.core.connect.errors import translate_errors
from penstock.core.connect.route import is_loopback
from penstock.core.slotted import slotted
from penstock.core.sql import send_query
from penstock.core.values.server import Distributed, ServerFacts


@slotted
class ServerRow:
    """The row of server.sql: the server, the database, and how many more connections the role could open."""

    version_num: int
    version: str
    database: str
    user: str
    server_encoding: str
    free_connections: int
    is_in_recovery: bool
    # The server's address, None on a Unix socket.
    server_address: str | None
    may_checkpoint: bool
    is_aurora: bool
    wal_level: str
    distributed: Distributed | None


def read_server_facts(connection: Connection) -> ServerFacts:
    """Return the facts of a connection's server. The free connections do not include this connection.

    Raises ServerError.
    """
    return ask_server_facts(connection)()


def read_facts(connect: ConnectionFactory, connection: Connection) -> ServerFacts:
    """Return what `read_server_facts` returns, and whether it is penstock's embedded server. Raises ServerError."""
    return replace(read_server_facts(connection), is_embedded=connect.is_embedded)


def ask_server_facts(connection: Connection) -> Callable[[], ServerFacts]:
    """Send the query of `read_server_facts`, and return the function that fetches the facts. Both raise ServerError.

    In a pipeline, sending does not wait for the server.
    """
    address = describe_connection(connection)
    with translate_errors(f"reading the facts of {address}"):
        fetch = send_query(connection, "core/server", ServerRow)

    def facts() -> ServerFacts:
        with translate_errors(f"reading the facts of {address}"):
            (row,) = fetch()
        info = connection.info
        fields = asdict(row)
        is_local = is_local_server(
            server_address=fields.pop("server_address"),
            dialled_address=info.hostaddr,
            named_host=info.host,
            own_name=socket.gethostname(),
        )
        host = f"{info.host or info.hostaddr}:{info.port}"
        return ServerFacts(**fields, is_local=is_local, address=address, host=host)

    return facts


def is_local_server(*, server_address: str | None, dialled_address: str, named_host: str, own_name: str) -> bool:
    """Return whether a server runs on this machine.

    `server_address` is the server's end of the connection, None for a Unix socket. `dialled_address` is the address to
    which libpq has connected, empty for a Unix socket. `named_host` is the host in the connection string, and
    `own_name` is the name of this machine.

    A server is local if the connection uses a Unix socket, or if both addresses are loopback addresses and `named_host`
    is a name of this machine. One loopback address does not suffice, because either end of an SSH tunnel may have one.
    A tunnel that is named localhost looks local.
    """
    if server_address is None:
        return not dialled_address
    ends_are_loopback = is_loopback(server_address) and is_loopback(dialled_address)
    return ends_are_loopback and _is_own_name(named_host, own_name)


def _is_own_name(host: str, own_name: str) -> bool:
    name = host.rstrip(".").lower()
    return is_loopback(name) or name in ("", "localhost", own_name.lower()) or name.endswith(".localhost")
