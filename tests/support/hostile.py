"""A server whose answers make no sense: a relay that has its messages rewritten on their way to the client."""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from psycopg.conninfo import conninfo_to_dict, make_conninfo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Edit = Callable[[bytes], bytes]


def make_message(kind: bytes, body: bytes) -> bytes:
    """Return a message of the protocol."""
    return kind + struct.pack("!I", len(body) + 4) + body


def make_row(*values: bytes | None) -> bytes:
    """Return a DataRow message."""
    fields = (struct.pack("!i", -1) if value is None else struct.pack("!I", len(value)) + value for value in values)
    return make_message(b"D", struct.pack("!H", len(values)) + b"".join(fields))


def count_fields(row: bytes) -> int:
    """Return how many values a DataRow message has."""
    return int(struct.unpack("!H", row[5:7])[0])


@contextmanager
def rewriting(conninfo: str, edit: Edit) -> Iterator[str]:
    """Provide a conninfo by which each message of a server, reached over TCP, is what `edit` makes of it."""
    parts = conninfo_to_dict(conninfo)
    place = (str(parts["host"]), int(str(parts["port"])))
    with socket.create_server(("127.0.0.1", 0)) as front:
        threading.Thread(target=_accept, args=(front, place, edit), daemon=True).start()
        yield make_conninfo(
            conninfo, host="127.0.0.1", port=front.getsockname()[1], sslmode="disable", gssencmode="disable"
        )


def _accept(front: socket.socket, place: tuple[str, int], edit: Edit) -> None:
    with suppress(OSError):
        while True:
            client, _ = front.accept()
            threading.Thread(target=_relay, args=(client, place, edit), daemon=True).start()


def _relay(client: socket.socket, place: tuple[str, int], edit: Edit) -> None:
    with client, socket.create_connection(place) as server:
        up = threading.Thread(target=_pass_on, args=(client, server), daemon=True)
        up.start()
        _rewrite(server, client, edit)
        up.join()


def _pass_on(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


def _rewrite(source: socket.socket, sink: socket.socket, edit: Edit) -> None:
    unread = b""
    with suppress(OSError):
        while data := source.recv(65536):
            unread += data
            while len(unread) >= 5 and len(unread) > (length := struct.unpack("!I", unread[1:5])[0]):
                sink.sendall(edit(unread[: length + 1]))
                unread = unread[length + 1 :]
        sink.shutdown(socket.SHUT_RDWR)
