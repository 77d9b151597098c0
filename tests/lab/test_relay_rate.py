"""A relay carries no more than it may."""

from __future__ import annotations

import socket
import threading
import time
from typing import TYPE_CHECKING

from penstock_lab.topology.relay import Relay

if TYPE_CHECKING:
    from pathlib import Path


def test_rate_is_shared_by_all_connections(tmp_path: Path) -> None:
    """What two connections carry takes as long as if one did; a slow machine only takes longer."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "server"))
    listener.listen()

    def drain() -> None:
        taken, _ = listener.accept()
        while taken.recv(65536):
            pass
        taken.close()

    drains = [threading.Thread(target=drain) for _ in range(2)]
    for thread in drains:
        thread.start()
    relay = Relay(tmp_path / "server", bytes_per_s=10e6)
    began_s = time.monotonic()
    ends = [socket.create_connection(("127.0.0.1", relay.port)) for _ in range(2)]
    for end in ends:
        end.sendall(b"x" * 1_000_000)
        end.shutdown(socket.SHUT_WR)
    for end in ends:
        assert end.recv(1) == b""
        end.close()
    assert time.monotonic() - began_s >= 0.19
    for thread in drains:
        thread.join()
    relay.close()
    listener.close()
