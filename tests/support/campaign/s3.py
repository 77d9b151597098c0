"""An S3 endpoint (moto's server) behind a front that answers chosen requests with an error, a reset or half a body."""

from __future__ import annotations

import contextlib
import http.client
import logging
import socket
import struct
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Literal

import boto3
from moto.server import ThreadedMotoServer

if TYPE_CHECKING:
    from collections.abc import Mapping

Trouble = Literal["error", "reset", "truncated"]

TROUBLES: tuple[Trouble, ...] = ("error", "reset", "truncated")

BUCKET = "campaign"

_KEY_ID, _SECRET = "AKIAEXAMPLE", "very-secret"

# SO_LINGER with no time: close() sends RST.
_RESET = struct.pack("ii", 1, 0)


class Store:
    """A bucket, and the environment that leads a loader to it; `arm` spoils the next body that is asked for."""

    def __init__(self) -> None:
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self._moto.start()
        port = self._moto.get_host_and_port()[1]
        self._client = boto3.client(
            "s3",
            region_name="us-east-1",
            endpoint_url=f"http://127.0.0.1:{port}",
            aws_access_key_id=_KEY_ID,
            aws_secret_access_key=_SECRET,
        )
        self._client.create_bucket(Bucket=BUCKET)
        self._lock = threading.Lock()
        self._armed: list[Trouble] = []
        self._hit = threading.Event()
        handler = type("Handler", (_Front,), {"store": self, "upstream": port})
        self._front = _FrontServer(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._front.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
        self._thread.start()

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables that a loader needs."""
        return {
            "AWS_ACCESS_KEY_ID": _KEY_ID,
            "AWS_SECRET_ACCESS_KEY": _SECRET,
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._front.server_port}",
            "AWS_CONFIG_FILE": "/dev/null",
            "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    @property
    def port(self) -> int:
        """Return the port of the front."""
        return self._front.server_port

    def put(self, prefix: str, bodies: Mapping[str, bytes]) -> str:
        """Store objects under a prefix; return the URL of all of them."""
        for name, body in bodies.items():
            encoding = {"ContentEncoding": "gzip"} if name.endswith(".gz") else {}
            self._client.put_object(Bucket=BUCKET, Key=f"{prefix}/{name}", Body=body, **encoding)
        return f"s3://{BUCKET}/{prefix}/"

    def delete(self, prefix: str, names: Mapping[str, bytes]) -> None:
        """Remove objects."""
        for name in names:
            self._client.delete_object(Bucket=BUCKET, Key=f"{prefix}/{name}")

    def arm(self, *troubles: Trouble) -> None:
        """Spoil the next bodies that are asked for, one after another."""
        with self._lock:
            self._armed = list(troubles)
            self._hit.clear()

    def disarm(self) -> int:
        """Spoil no further ones; return how many were left."""
        with self._lock:
            left, self._armed = len(self._armed), []
            return left

    def await_hit(self, timeout_s: float) -> bool:
        """Wait until a body was spoilt; return whether one was."""
        return self._hit.wait(timeout_s)

    def take_trouble(self) -> Trouble | None:
        """Return what the request that is being answered is to meet."""
        with self._lock:
            return self._armed.pop(0) if self._armed else None

    def note_hit(self) -> None:
        """Wake the threads that wait until a body is spoilt."""
        self._hit.set()

    def close(self) -> None:
        """End both servers."""
        self._front.shutdown()
        self._thread.join()
        self._front.server_close()
        self._client.close()
        self._moto.stop()


class _FrontServer(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Let a loader that was killed in the middle of a request go in silence."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Front(BaseHTTPRequestHandler):
    """Passes requests on to moto; spoils bodies of objects, never listings."""

    protocol_version = "HTTP/1.1"
    store: Store
    upstream: int

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base class's name)
        """Keep quiet."""

    def do_HEAD(self) -> None:
        """Pass on."""
        self._pass_on()

    def do_GET(self) -> None:
        """Pass on, or spoil an object's body."""
        self._pass_on()

    def _pass_on(self) -> None:
        upstream = http.client.HTTPConnection("127.0.0.1", self.upstream, timeout=60)
        upstream.request(self.command, self.path, headers=dict(self.headers.items()))
        answer = upstream.getresponse()
        body = answer.read()
        headers, status = answer.getheaders(), answer.status
        upstream.close()
        is_body = self.command == "GET" and "?" not in self.path and status in (200, 206) and len(body) > 1
        trouble = self.store.take_trouble() if is_body else None
        with contextlib.suppress(OSError):
            self._answer(status, headers, body, trouble)
        if trouble is not None:
            self.store.note_hit()

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes, trouble: Trouble | None) -> None:
        if trouble == "error":
            status, headers, body = 503, [], b"<Error><Code>SlowDown</Code></Error>"
        if trouble == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self.close_connection = True
            self.connection.close()
            return
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in ("content-length", "connection", "transfer-encoding"):
                self.send_header(name, value)
        length = next((value for name, value in headers if name.lower() == "content-length"), str(len(body)))
        self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[: len(body) // 2] if trouble == "truncated" else body)
        if trouble == "truncated":
            self.close_connection = True
