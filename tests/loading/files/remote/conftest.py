"""Remote sources to read from: an S3 endpoint (moto's server), an HTTP server with habits, a relay that cuts."""

from __future__ import annotations

import base64
import contextlib
import re
import socket
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import boto3
import pytest
from moto.server import ThreadedMotoServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from mypy_boto3_s3 import S3Client

BUCKET = "landing"


class Relay:
    """A TCP relay to a local port that ends its first connections after given counts of response bytes."""

    def __init__(self, port: int, cuts: list[int]) -> None:
        self._upstream = ("127.0.0.1", port)
        self._cuts = list(cuts)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._clients: list[socket.socket] = []
        self._connections: list[threading.Thread] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Accept no further connections, and wait until those there are have ended."""
        if self._thread.is_alive():
            self._listener.shutdown(socket.SHUT_RDWR)
            self._thread.join()
            self._listener.close()
            for end in self._clients:
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
            for connection in self._connections:
                connection.join()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._clients.append(client)
                limit = self._cuts.pop(0) if self._cuts else None
                self._connections.append(
                    threading.Thread(target=_relay, args=(client, self._upstream, limit), daemon=True)
                )
                self._connections[-1].start()

    @property
    def connection_count(self) -> int:
        """Return how many connections were made."""
        return len(self._connections)


def _relay(client: socket.socket, upstream: tuple[str, int], limit: int | None) -> None:
    with client, socket.create_connection(upstream) as server:
        requests = threading.Thread(target=_pump, args=(client, server, None), daemon=True)
        requests.start()
        _pump(server, client, limit)
        requests.join()


def _pump(source: socket.socket, sink: socket.socket, limit: int | None) -> None:
    """Copy until either end closes or `limit` bytes have passed, then end both."""
    passed = 0
    with suppress(OSError):
        while data := source.recv(65536 if limit is None else min(65536, limit - passed)):
            sink.sendall(data)
            passed += len(data)
            if passed == limit:
                break
    for end in (source, sink):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


@dataclass
class Web:
    """An HTTP server of one body; the path's parts switch its habits on. `requests` are what came in."""

    body: bytes
    port: int = 0
    etag: str = '"v1"'
    modified: str = "Wed, 21 Oct 2015 07:28:00 GMT"
    requests: list[tuple[str, str]] = field(default_factory=list)
    failures_left: int = 0
    companions: threading.Barrier | None = None

    def url(self, path: str) -> str:
        """Return the URL of a path."""
        return f"http://127.0.0.1:{self.port}/{path}"


class _Handler(BaseHTTPRequestHandler):
    """Habits: noranges, noetag, modified, weak, chunked, encoded, redirect, denied, flaky, drop, auth, empty, longer.

    And together. ?sig= signs.
    """

    protocol_version = "HTTP/1.1"
    web: Web

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base class's name)
        """Keep quiet."""

    def do_HEAD(self) -> None:
        """Refuse, as signed URLs do."""
        self._answer(403, b"")

    def do_GET(self) -> None:
        """Serve the body as the path's habits say."""
        parts = urlsplit(self.path)
        habits = set(parts.path.strip("/").split("/"))
        self.web.requests.append((self.path, self.headers.get("Range", "")))
        if "together" in habits and self.web.companions is not None:
            self.web.companions.wait(timeout=30)
        if "redirect" in habits:
            self._answer(302, b"", Location=self.path.replace("redirect", "found"))
        elif "denied" in habits or ("signed" in habits and parse_qs(parts.query).get("sig") != ["top+secret"]):
            self._answer(403, b"<Error><Code>AccessDenied</Code></Error>")
        elif "auth" in habits and self.headers["Authorization"] != "Basic " + base64.b64encode(b"me:p@ss").decode():
            self._answer(401, b"")
        elif "flaky" in habits and self.web.failures_left > 0:
            self.web.failures_left -= 1
            self._answer(503, b"")
        elif "chunked" in habits:
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"2\r\na\n\r\n0\r\n\r\n")
        else:
            self._serve(habits)

    def _serve(self, habits: set[str]) -> None:
        body = b"" if "empty" in habits else self.web.body
        headers = {"Content-Encoding": "gzip"} if "encoded" in habits else {}
        if "noetag" not in habits:
            headers["ETag"] = f"W/{self.web.etag}" if "weak" in habits else self.web.etag
        if "modified" in habits:
            headers["Last-Modified"] = self.web.modified
        wanted = self.headers.get("If-Match")
        if wanted is not None and wanted != headers.get("ETag"):
            self._answer(412, b"")
            return
        match = re.match(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if match is None or "noranges" in habits:
            self._answer(200, body, is_dropped="drop" in habits, **headers)
            return
        start, end = int(match[1]), min(int(match[2]) + 1, len(body))
        if start >= len(body):
            self._answer(416, b"")
            return
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(body)}"
        # A request for one byte gets the true answer
        behind = 10 if "longer" in habits and end > 1 else 0
        self._answer(206, body[start : end + behind], **headers)

    def _answer(self, status: int, body: bytes, *, is_dropped: bool = False, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[: len(body) // 2] if is_dropped else body)
        if is_dropped:
            self.close_connection = True
            # The client may have been quicker.
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def web() -> Iterator[Web]:
    """Return an HTTP server with half a MiB of rows."""
    served = Web(body=b"".join(b"%d,name\n" % number for number in range(50_000)))
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"web": served}))
    served.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield served
    server.shutdown()
    thread.join()
    server.server_close()


@dataclass
class S3:
    """An S3 endpoint with one bucket."""

    port: int
    client: S3Client

    def put(self, key: str, body: bytes) -> None:
        """Store one object."""
        self.client.put_object(Bucket=BUCKET, Key=key, Body=body)


@pytest.fixture(scope="session")
def moto_port() -> Iterator[int]:
    """Return the port of moto's server."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    yield server.get_host_and_port()[1]
    server.stop()


@pytest.fixture
def s3(moto_port: int, aws_environment: pytest.MonkeyPatch) -> Iterator[S3]:
    """Return an S3 endpoint with an empty bucket, configured in the environment."""
    endpoint = f"http://127.0.0.1:{moto_port}"
    aws_environment.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    aws_environment.setenv("AWS_SECRET_ACCESS_KEY", "very-secret")
    aws_environment.setenv("AWS_ENDPOINT_URL", endpoint)
    client = boto3.client("s3", region_name="us-east-1", endpoint_url=endpoint)
    client.create_bucket(Bucket=BUCKET)
    yield S3(port=moto_port, client=client)
    for item in client.list_objects_v2(Bucket=BUCKET).get("Contents", []):
        client.delete_object(Bucket=BUCKET, Key=item["Key"])
    client.delete_bucket(Bucket=BUCKET)
    client.close()


@pytest.fixture
def relay_to_s3(s3: S3, aws_environment: pytest.MonkeyPatch) -> Iterator[Callable[[list[int]], Relay]]:
    """Return a function that puts a cutting relay before the S3 endpoint, for all that connects from then on."""
    relays: list[Relay] = []

    def start(cuts: list[int]) -> Relay:
        relays.append(Relay(s3.port, cuts))
        aws_environment.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{relays[0].port}")
        return relays[0]

    yield start
    for relay in relays:
        relay.close()


@pytest.fixture
def aws_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """Take this machine's AWS configuration out of the way; nobody asks for instance metadata."""
    for name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return monkeypatch
