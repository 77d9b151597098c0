"""Answers flushes of a volume late, so that each flush of the volume takes longer, as on a volume across a network.

A lab runs it by its path beside a volume's daemon: `slow_flush.py SOCKET SIZE_BYTES DELAY_S`. It is a server of the
network block device protocol for one client, without data: the daemon has it as one more copy of the volume, to which
no write is sent. A flush is answered with an error after the delay, so it does not count as a copy's, and its other
copies decide. It imports nothing of penstock, so any interpreter can run it.

Source: github.com/NetworkBlockDevice/nbd, doc/proto.md.
"""

from __future__ import annotations

import socket
import struct
import sys
import time
from pathlib import Path

_OPTION = struct.Struct(">8sII")
_REQUEST = struct.Struct(">IHHQQI")
_REPLY_MAGIC, _OPTION_REPLY_MAGIC = 0x67446698, 0x3E889045565A9
_GO, _FLUSH, _DISCONNECT = 7, 3, 2
_ACK, _INFO, _UNSUPPORTED = 1, 3, 2**31 + 1
_NEWSTYLE_WITHOUT_ZEROES, _HAS_FLAGS_AND_FLUSH = 3, 5
_EIO = 5


def serve(client: socket.socket, *, size_bytes: int, delay_s: float) -> None:
    """Serve one client until it disconnects. Raises EOFError if it ends within a message."""
    client.sendall(b"NBDMAGIC" + b"IHAVEOPT" + struct.pack(">H", _NEWSTYLE_WITHOUT_ZEROES))
    _receive(client, 4)
    option = None
    while option != _GO:
        _, option, length = _OPTION.unpack(_receive(client, _OPTION.size))
        _receive(client, length)
        if option == _GO:
            _answer(client, option, _INFO, struct.pack(">HQH", 0, size_bytes, _HAS_FLAGS_AND_FLUSH))
        _answer(client, option, _ACK if option == _GO else _UNSUPPORTED, b"")
    while True:
        _, _, kind, handle, _, _ = _REQUEST.unpack(_receive(client, _REQUEST.size))
        if kind == _DISCONNECT:
            return
        if kind == _FLUSH:
            time.sleep(delay_s)
        client.sendall(struct.pack(">IIQ", _REPLY_MAGIC, _EIO, handle))


def _answer(client: socket.socket, option: int, kind: int, data: bytes) -> None:
    client.sendall(struct.pack(">QIII", _OPTION_REPLY_MAGIC, option, kind, len(data)) + data)


def _receive(client: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        piece = client.recv(length - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data


def main() -> None:
    """Serve one client on a Unix socket, and exit when it disconnects."""
    path, size_bytes, delay_s = sys.argv[1:]
    Path(path).unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(1)
        client, _ = listener.accept()
    with client:
        serve(client, size_bytes=int(size_bytes), delay_s=float(delay_s))


if __name__ == "__main__":
    main()
