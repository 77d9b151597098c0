"""Speaks TLS for a server that cannot (the wheel's is built without): `python -m benchmarks.tls_front PORT PEM`.

PEM holds the key and the certificates. It answers PostgreSQL's SSLRequest, as a pooler in front of a server would, and
passes on what it decrypts. It prints the port it listens at and runs until its standard input ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import struct
import sys

# postgresql.org/docs/current/protocol-message-formats.html, "SSLRequest".
_SSL_REQUEST = struct.pack("!ii", 8, 80877103)

_READ_BYTES = 256 * 1024


async def _forward(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while piece := await source.read(_READ_BYTES):
            target.write(piece)
            await target.drain()
    target.close()


async def _serve(port: int, context: ssl.SSLContext) -> None:
    async def on_client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.read(len(_SSL_REQUEST))
        if request != _SSL_REQUEST:
            # A cancel request, or a client without TLS: not served.
            writer.close()
            return
        writer.write(b"S")
        await writer.start_tls(context)
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", port, limit=_READ_BYTES)
        await asyncio.gather(_forward(reader, server_writer), _forward(server_reader, writer))

    server = await asyncio.start_server(on_client, "127.0.0.1", 0, limit=_READ_BYTES)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await asyncio.to_thread(sys.stdin.read)


def main() -> None:
    """Listen until standard input ends."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[2])
    asyncio.run(_serve(int(sys.argv[1]), context))


if __name__ == "__main__":
    main()
