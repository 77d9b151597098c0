"""A relay between loader and server, over TCP, whose connections can be reset, also at one packet, or stall."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_READ_BYTES = 64 * 1024

# SO_LINGER with no time: close() sends RST and drops what was not sent.
_RESET = struct.pack("ii", 1, 0)


class Relay:
    """Listens at `port` of 127.0.0.1 and carries every connection to a server's Unix socket."""

    def __init__(self, upstream: Path) -> None:
        self._upstream = str(upstream)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._resetting: set[socket.socket] = set()
        self._flowing = threading.Event()
        self._flowing.set()
        self._carried = 0
        self._cut_at: int | None = None
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def reset(self) -> int:
        """Reset all connections, on both sides; return how many."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        return self._reset(pairs)

    def cut_at(self, packet: int | None) -> int:
        """Count packets anew, from 1, either way and of all connections; in place of one, reset the connection.

        Return how many there were since the last call.
        """
        with self._lock:
            carried, self._carried, self._cut_at = self._carried, 0, packet
        return carried

    def _is_cut(self) -> bool:
        with self._lock:
            self._carried += 1
            return self._carried == self._cut_at

    def _reset(self, pairs: list[tuple[socket.socket, socket.socket]]) -> int:
        with self._lock:
            self._resetting.update(client for client, _ in pairs)
        for client, server in pairs:
            with contextlib.suppress(OSError):
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                # Wakes who reads, and sends nothing: the RST comes when both directions have let go.
                client.shutdown(socket.SHUT_RD)
            _end(server)
        return len(pairs)

    def stall(self) -> None:
        """Carry nothing until `go_on`."""
        self._flowing.clear()

    def go_on(self) -> None:
        """Carry again, what waited first."""
        self._flowing.set()

    def close(self) -> None:
        """End everything."""
        self._flowing.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self.reset()
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX)
                try:
                    server.connect(self._upstream)
                except OSError:
                    # The server is down: so is whoever asks for it here.
                    client.close()
                    server.close()
                    continue
                with self._lock:
                    self._pairs.append((client, server))
                self._threads.append(threading.Thread(target=self._carry_both, args=(client, server), daemon=True))
                self._threads[-1].start()

    def _carry_both(self, client: socket.socket, server: socket.socket) -> None:
        pair = client, server
        back = threading.Thread(target=self._carry, args=(server, client, pair), daemon=True)
        back.start()
        self._carry(client, server, pair)
        back.join()
        with self._lock:
            self._pairs = [pair for pair in self._pairs if pair[0] is not client]
            self._resetting.discard(client)
        client.close()
        server.close()

    def _carry(self, source: socket.socket, sink: socket.socket, pair: tuple[socket.socket, socket.socket]) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(_READ_BYTES):
                self._flowing.wait()
                if self._is_cut():
                    self._reset([pair])
                    break
                sink.sendall(data)
        for end in (source, sink):
            if end not in self._resetting:
                _end(end)


def _end(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
