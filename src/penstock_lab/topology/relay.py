"""Forwards connections from one socket to another. It can delay, slow down, stall or reset them.

A lab runs it by its path as the relay of a zone: `relay.py LISTEN TARGET DELAY_S`. LISTEN and TARGET are each the path
of a Unix socket or a TCP port of 127.0.0.1. It uses threads and imports nothing of penstock, so any interpreter can run
it.
"""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import struct
import sys
import threading
import time
from pathlib import Path

_READ_BYTES = 64 * 1024

# How many pieces of data may wait in each direction. They have at most 16 MiB, eight times what a network of 200 MB/s
# carries in 10 ms.
_PIECES_IN_FLIGHT = 256

_LEAST_WAIT_S = 0.005

# SO_LINGER with a timeout of 0: close() sends RST and drops unsent data.
_RESET = struct.pack("ii", 1, 0)

End = Path | int
_Pair = tuple[socket.socket, socket.socket]


class Relay:
    """Listens on a TCP port or a Unix socket, and forwards each connection to another, with a delay and a limit."""

    def __init__(
        self,
        target: End,
        *,
        # Where the relay listens: the path of a Unix socket or a TCP port. 0 chooses a free port.
        listen: End = 0,
        # How long each piece of data is delayed, in both directions, without limiting bandwidth.
        delay_s: float = 0.0,
        # How many bytes a second all connections together may carry in both directions. It stands for the limit of a
        # host's network. None means no limit. The value may be changed while the relay runs.
        bytes_per_s: float | None = None,
    ) -> None:
        self._target = target
        self.bytes_per_s = bytes_per_s
        self._free_s = 0.0
        self._delay_s = delay_s
        self._listener = _listen(listen)
        self._lock = threading.Lock()
        self._pairs: list[_Pair] = []
        self._resetting: set[socket.socket] = set()
        self._flowing = threading.Event()
        self._flowing.set()
        self._carried = 0
        self._cut_at: int | None = None
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def port(self) -> int:
        """Return the TCP port that the relay listens on."""
        port: int = self._listener.getsockname()[1]
        return port

    def reset(self) -> int:
        """Reset all connections on both sides and return how many there were."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        return self._reset(pairs)

    def cut_at(self, packet: int | None) -> int:
        """From now on, reset the connection that carries packet number `packet`, instead of forwarding this packet.

        If `packet` is None, packets are only counted. Return how many packets were counted since the last call. The
        count restarts at 0 and includes both directions of all connections.
        """
        with self._lock:
            carried, self._carried, self._cut_at = self._carried, 0, packet
        return carried

    def stall(self) -> None:
        """Forward nothing until `resume` is called."""
        self._flowing.clear()

    def resume(self) -> None:
        """Resume forwarding, beginning with the data that waited."""
        self._flowing.set()

    def close(self) -> None:
        """Reset all connections, stop listening and wait for the threads."""
        self._flowing.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self.reset()
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def wait(self) -> None:
        """Wait until the listener has been closed."""
        self._threads[0].join()

    def _await_turn(self, length_bytes: int) -> None:
        """Wait until the relay may carry this many bytes more."""
        if (bytes_per_s := self.bytes_per_s) is None:
            return
        with self._lock:
            now_s = time.monotonic()
            self._free_s = max(self._free_s, now_s) + length_bytes / bytes_per_s
            wait_s = self._free_s - now_s
        # A very short sleep lasts longer than requested, so it is skipped. The time is added to the wait for the next
        # pieces.
        if wait_s > _LEAST_WAIT_S:
            time.sleep(wait_s)

    def _is_cut(self) -> bool:
        with self._lock:
            self._carried += 1
            return self._carried == self._cut_at

    def _reset(self, pairs: list[_Pair]) -> int:
        with self._lock:
            self._resetting.update(client for client, _ in pairs)
        for client, server in pairs:
            with contextlib.suppress(OSError):
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                # SHUT_RD wakes the thread that reads from the client, and sends nothing. RST is sent when _carry_both
                # closes the socket, after both directions have ended.
                client.shutdown(socket.SHUT_RD)
            _end(server)
        return len(pairs)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                _send_at_once(client)
                try:
                    server = _connect(self._target)
                except OSError:
                    # The target is down, so the client's connection is closed as well.
                    client.close()
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

    def _carry(self, source: socket.socket, sink: socket.socket, pair: _Pair) -> None:
        """Forward one direction. With a delay, this thread reads data, and another thread sends it when it is due."""
        waiting: queue.Queue[tuple[float, bytes]] = queue.Queue(maxsize=_PIECES_IN_FLIGHT)
        sender = threading.Thread(target=_send_due, args=(waiting, sink), daemon=True)
        if self._delay_s:
            sender.start()
        with contextlib.suppress(OSError):
            while piece := source.recv(_READ_BYTES):
                self._flowing.wait()
                self._await_turn(len(piece))
                if self._is_cut():
                    self._reset([pair])
                    break
                if self._delay_s:
                    waiting.put((time.monotonic() + self._delay_s, piece))
                else:
                    sink.sendall(piece)
        if self._delay_s:
            waiting.put((time.monotonic() + self._delay_s, b""))
            sender.join()
        for end in (source, sink):
            if end not in self._resetting:
                _end(end)


def _send_due(waiting: queue.Queue[tuple[float, bytes]], sink: socket.socket) -> None:
    is_open = True
    while True:
        due_s, piece = waiting.get()
        time.sleep(max(0.0, due_s - time.monotonic()))
        if not piece:
            return
        if is_open:
            try:
                sink.sendall(piece)
            except OSError:
                # The receiver has closed. Later data is dropped, so the sender is not blocked.
                is_open = False


def _listen(end: End) -> socket.socket:
    if isinstance(end, int):
        return socket.create_server(("127.0.0.1", end))
    # Remove the socket of a relay that was killed.
    end.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    # Let any account connect, because the servers' account may differ from the relay's. The folder's mode restricts
    # access.
    mask = os.umask(0)
    listener.bind(str(end))
    os.umask(mask)
    listener.listen(64)
    return listener


def _connect(end: End) -> socket.socket:
    if isinstance(end, Path):
        server = socket.socket(socket.AF_UNIX)
        try:
            server.connect(str(end))
        except OSError:
            server.close()
            raise
        return server
    server = socket.create_connection(("127.0.0.1", end))
    _send_at_once(server)
    return server


def _send_at_once(end: socket.socket) -> None:
    if end.family == socket.AF_INET:
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _end(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)


def _parse_end(text: str) -> End:
    return int(text) if text.isdigit() else Path(text)


def main() -> None:
    """Run a relay as a process of its own, until the process is ended."""
    listen, target, delay_s = sys.argv[1:]
    Relay(_parse_end(target), listen=_parse_end(listen), delay_s=float(delay_s)).wait()


if __name__ == "__main__":
    main()
