"""Reads the certificate that a server shows, and verifies it as libpq's sslmode=verify-full does."""

from __future__ import annotations

import socket
import ssl
import struct
from datetime import UTC, datetime
from pathlib import Path

from penstock.core.connect.tls import ServerCertificate, read_name, show_name
from penstock.core.errors import ServerError

# How many seconds to wait for each answer of the server.
_LOOK_TIMEOUT_S = 10
# postgresql.org/docs/current/protocol-message-formats.html, "SSLRequest".
_SSL_REQUEST = struct.pack("!ii", 8, 80877103)


def look_at_server(host: str, port: int, *, roots: Path, address: tuple[str, int] | None = None) -> ServerCertificate:
    """Return the certificate of a server, verified as libpq verifies it with sslmode=verify-full.

    After the TLS handshake nothing is sent to the server. `address` is the address to connect to instead of `host` and
    `port`, such as the near end of a tunnel. Raises ServerError.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cafile=roots)
    target = f"{host}:{port}" if address is None else f"{host} at {address[0]}:{address[1]}"
    try:
        with socket.create_connection(address or (host, port), timeout=_LOOK_TIMEOUT_S) as plain:
            plain.sendall(_SSL_REQUEST)
            if plain.recv(1) != b"S":
                raise ServerError(f"{target} does not speak TLS", hint="Set rds.force_ssl or ssl on the server.")
            with context.wrap_socket(plain, server_hostname=host) as encrypted:
                fields = encrypted.getpeercert() or {}
    except ssl.SSLCertVerificationError as exc:
        raise ServerError(
            f"the certificate of {target} could not be verified",
            detail=f"{exc.verify_message[:1].upper()}{exc.verify_message[1:]}, with the roots of {roots}.",
            hint="Check that the host name is the server's own, and that the file has the root that its certificate "
            "was issued by; aws rds describe-db-instances shows its CACertificateIdentifier.",
        ) from exc
    except OSError as exc:
        raise ServerError(
            f"could not read the certificate of {target}",
            detail=f"{exc.strerror or exc}.",
            hint="Check the host name and port, and that no firewall or security group blocks the connection.",
            is_transient=True,
        ) from exc
    names: dict[str, tuple[tuple[tuple[str, str], ...], ...]] = fields  # type: ignore[assignment]
    return ServerCertificate(
        name=show_name(read_name(names["subject"])),
        issuer=show_name(read_name(names["issuer"])),
        expires_at=datetime.fromtimestamp(ssl.cert_time_to_seconds(str(fields["notAfter"])), UTC),
    )
