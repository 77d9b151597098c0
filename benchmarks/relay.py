"""A relay that holds every byte back for a time and limits no bandwidth: `python -m benchmarks.relay PORT DELAY_MS`.

It prints the port it listens at and runs until its standard input ends. In a process of its own, so that it shares no
interpreter with what is measured.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

_READ_BYTES = 64 * 1024
# 16 MiB in flight each way: eight times what 200 MB/s put into 10 ms.
_PIECES_IN_FLIGHT = 256


@contextmanager
def helper(module: str, *arguments: str) -> Iterator[int]:
    """Provide the port of a helper process, this module's or tls_front's, which ends with its standard input."""
    argv = [sys.executable, "-m", module, *arguments]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.stdin.close()


def relay(port: int, *, delay_ms: float) -> AbstractContextManager[int]:
    """Provide the port of a relay to 127.0.0.1:`port` that delays each direction by `delay_ms`."""
    return helper("benchmarks.relay", str(port), str(delay_ms))


def _forward(source: socket.socket, target: socket.socket, delay_s: float) -> None:
    """Carry one direction: this thread reads and stamps, another one sends what is due."""
    waiting: queue.Queue[tuple[float, bytes]] = queue.Queue(maxsize=_PIECES_IN_FLIGHT)
    threading.Thread(target=_send_due, args=(waiting, target), daemon=True).start()
    piece = b"first"
    while piece:
        try:
            piece = source.recv(_READ_BYTES)
        except ConnectionError:
            piece = b""
        waiting.put((time.monotonic() + delay_s, piece))


def _send_due(waiting: queue.Queue[tuple[float, bytes]], target: socket.socket) -> None:
    is_open = True
    while True:
        due_s, piece = waiting.get()
        time.sleep(max(0.0, due_s - time.monotonic()))
        if not piece:
            break
        if is_open:
            try:
                target.sendall(piece)
            except OSError:
                # Gone; what still comes is read and dropped, so that the other side is not held up.
                is_open = False
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def _accept(listener: socket.socket, port: int, delay_s: float) -> None:
    while True:
        client, _ = listener.accept()
        server = socket.create_connection(("127.0.0.1", port))
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for source, target in ((client, server), (server, client)):
            threading.Thread(target=_forward, args=(source, target, delay_s), daemon=True).start()


def main() -> None:
    """Listen until standard input ends."""
    port, delay_ms = int(sys.argv[1]), float(sys.argv[2])
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        threading.Thread(target=_accept, args=(listener, port, delay_ms / 1000), daemon=True).start()
        sys.stdin.read()


if __name__ == "__main__":
    main()
