"""Names this host and this process, as the ledger and errors do."""

from __future__ import annotations

import os
import socket


def host_name() -> str:
    """Return the name of this host."""
    return socket.gethostname()


def client_name() -> str:
    """Return the host name and process id of this process, which the ledger shows as the client of the load."""
    return f"{host_name()} {os.getpid()}"
