"""A TCP relay of a limited rate, or with a delay, as a slow link is."""

from __future__ import annotations

import contextlib
import math
import socket
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_PIECE_BYTES = 32 * 1024


@contextmanager
def slow_link(port: int, *, bytes_per_s: float = math.inf, delay_s: float = 0.0) -> Iterator[int]:
    """Provide a port of 127.0.0.1 that leads to `port`; each connection carries so many bytes a second each way.

    What is sent at a time is carried `delay_s` later, and what follows waits for it.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    # A large buffer would take what the link has not carried yet.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _PIECE_BYTES)
    ends: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                server = socket.create_connection(("127.0.0.1", port))
                ends.extend((client, server))
                for source, sink in ((client, server), (server, client)):
                    threads.append(threading.Thread(target=_carry, args=(source, sink, bytes_per_s, delay_s)))
                    threads[-1].start()

    accepting = threading.Thread(target=accept)
    accepting.start()
    try:
        yield listener.getsockname()[1]
    finally:
        _shut(listener)
        accepting.join()
        for end in ends:
            _shut(end)
        for thread in threads:
            thread.join()
        for end in (listener, *ends):
            end.close()


def _carry(source: socket.socket, sink: socket.socket, bytes_per_s: float, delay_s: float) -> None:
    with contextlib.suppress(OSError):
        while piece := source.recv(_PIECE_BYTES):
            time.sleep(delay_s)
            sink.sendall(piece)
            time.sleep(len(piece) / bytes_per_s)
    _shut(source)
    _shut(sink)


def _shut(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
