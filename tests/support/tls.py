"""TLS before servers that are built without it, certificates that pass for Amazon's, and a stand-in for IAM."""

from __future__ import annotations

import hashlib
import hmac
import select
import socket
import ssl
import struct
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, urlsplit

import trustme

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# A name of Amazon's that no resolver knows: it is reached by hostaddr or a tunnel.
RDS_HOST = "db1.c9akciq32.eu-west-1.rds.amazonaws.com"

# postgresql.org/docs/current/protocol-message-formats.html
_SSL_REQUEST = struct.pack("!ii", 8, 80877103)
_ASK_CLEARTEXT_PASSWORD = struct.pack("!cii", b"R", 8, 3)

_READ_BYTES = 65_536


def amazon_like_authority() -> trustme.CA:
    """Return an authority whose certificate looks like one of Amazon RDS."""
    return trustme.CA(organization_name="Amazon Web Services, Inc.", organization_unit_name="Amazon RDS")


def write_roots(authority: trustme.CA, path: Path) -> Path:
    """Write an authority's certificate to a file, in folders that are made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    authority.cert_pem.write_to_path(str(path))
    return path


class TlsFront:
    """Speaks TLS, with a certificate for `name`, for a server at a Unix socket, and passes on what it decrypts.

    `admit` sees the user that a startup message names and the password that was asked for; what it returns refuses the
    client, in a server's words. Without it no password is asked for here.
    """

    def __init__(
        self, authority: trustme.CA, name: str, upstream: str, *, admit: Callable[[str, str], str | None] | None = None
    ) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert(name).configure_cert(self._context)
        self._upstream = upstream
        self._admit = admit
        self.plain_requests = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._clients: list[socket.socket] = []
        self._sessions: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept)
        self._accepting.start()

    def close(self) -> None:
        """End every connection and wait for it."""
        _shut_down(self._listener)
        self._accepting.join()
        self._listener.close()
        for client in self._clients:
            _shut_down(client)
        for session in self._sessions:
            session.join()
        for client in self._clients:
            client.close()

    def _accept(self) -> None:
        with suppress(OSError):  # what accept() raises after a shutdown
            while True:
                client, _ = self._listener.accept()
                # A session closes its own; this one ends the connection, from here too.
                handle = client.dup()
                self._clients.append(handle)
                session = threading.Thread(target=self._serve, args=(client, handle))
                self._sessions.append(session)
                session.start()

    def _serve(self, client: socket.socket, handle: socket.socket) -> None:
        try:
            with client, suppress(OSError, EOFError):
                if _receive(client, len(_SSL_REQUEST)) != _SSL_REQUEST:
                    self.plain_requests += 1
                    return
                client.sendall(b"S")
                with self._context.wrap_socket(client, server_side=True) as secure:
                    self._talk(secure)
        finally:
            _shut_down(handle)

    def _talk(self, client: ssl.SSLSocket) -> None:
        startup = _receive_message(client, tag_bytes=0)
        if self._admit is not None:
            client.sendall(_ASK_CLEARTEXT_PASSWORD)
            password = _receive_message(client, tag_bytes=1)[5:-1].decode()
            refusal = self._admit(_read_user(startup), password)
            if refusal is not None:
                client.sendall(_error(refusal))
                return
        with socket.socket(socket.AF_UNIX) as server:
            server.connect(self._upstream)
            server.sendall(startup)
            _exchange(client, server)


def _exchange(client: ssl.SSLSocket, server: socket.socket) -> None:
    """Pass on what either says until one has no more to say."""
    other = {client: server, server: client}
    while True:
        # What TLS has decrypted already, select() does not see.
        ready = [client] if client.pending() else select.select(list(other), [], [])[0]
        for source in ready:
            piece = source.recv(_READ_BYTES)
            if not piece:
                return
            other[source].sendall(piece)


def _shut_down(connection: socket.socket) -> None:
    with suppress(OSError):  # the other side may have done so before
        connection.shutdown(socket.SHUT_RDWR)


def _receive(source: socket.socket, count: int) -> bytes:
    received = b""
    while len(received) < count:
        piece = source.recv(count - len(received))
        if not piece:
            raise EOFError
        received += piece
    return received


def _receive_message(source: socket.socket, *, tag_bytes: int) -> bytes:
    head = _receive(source, tag_bytes + 4)
    (length,) = struct.unpack("!i", head[tag_bytes:])
    return head + _receive(source, length - 4)


def _read_user(startup: bytes) -> str:
    words = startup[8:].split(b"\0")
    return dict(zip(words[::2], words[1::2], strict=False))[b"user"].decode()


def _error(message: str) -> bytes:
    fields = b"".join(
        code + text.encode() + b"\0"
        for code, text in ((b"S", "FATAL"), (b"V", "FATAL"), (b"C", "28000"), (b"M", message))
    )
    return b"E" + struct.pack("!i", len(fields) + 5) + fields + b"\0"


@dataclass
class FakeTokenCheck:
    """Checks tokens as Amazon RDS does according to its documentation. It is a fake.

    Amazon's own check cannot run here. This one verifies the signature by the published rules of Signature Version 4
    with the one secret key it knows, and endpoint, user, age and lifetime. It knows no policies, no rds_iam and no
    throttle, and takes any session token; Amazon's words for a refusal are copied, its reasons for one may be others.
    """

    host: str
    port: int
    access_key: str
    secret_key: str
    users: set[str]
    accepted: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def __call__(self, user: str, token: str) -> str | None:
        """Return None for a token that is good, or what a server says."""
        reason = self._judge(user, token)
        if reason is None:
            self.accepted.append(token)
            return None
        self.refused.append(reason)
        return f'PAM authentication failed for user "{user}"'

    def _judge(self, user: str, token: str) -> str | None:
        parts = urlsplit(f"https://{token}")
        given = dict(parse_qsl(parts.query, keep_blank_values=True))
        if parts.netloc != f"{self.host}:{self.port}":
            return f"for {parts.netloc}"
        if user not in self.users or given.get("DBUser") != user or given.get("Action") != "connect":
            return f"for user {given.get('DBUser')}"
        made_at = datetime.strptime(given["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        if given.get("X-Amz-Expires") != "900" or abs(datetime.now(UTC) - made_at) > timedelta(seconds=900):
            return "too old"
        key, _, scope = given["X-Amz-Credential"].partition("/")
        if key != self.access_key or scope.split("/")[1:] != ["eu-west-1", "rds-db", "aws4_request"]:
            return f"credential {scope}"
        return None if self._sign(given, scope) == given["X-Amz-Signature"] else "signature"

    def _sign(self, given: dict[str, str], scope: str) -> str:
        query = "&".join(
            f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}"
            for name, value in sorted(given.items())
            if name != "X-Amz-Signature"
        )
        empty = hashlib.sha256(b"").hexdigest()
        request = f"GET\n/\n{query}\nhost:{self.host}:{self.port}\n\nhost\n{empty}"
        text = "\n".join(["AWS4-HMAC-SHA256", given["X-Amz-Date"], scope, hashlib.sha256(request.encode()).hexdigest()])
        key = f"AWS4{self.secret_key}".encode()
        for word in scope.split("/"):
            key = hmac.digest(key, word.encode(), "sha256")
        return hmac.digest(key, text.encode(), "sha256").hex()
