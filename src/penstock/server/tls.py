"""What TLS asks of a connection where the user is silent, and a look at the certificate that a server shows.

Servers of Amazon RDS are verified, name included; libpq's own rules hold elsewhere. docs/decisions/0011-tls-defaults.md
tells why.
"""

from __future__ import annotations

import socket
import struct
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from penstock.errors import ServerError, UsageError
from penstock.model.endpoint import is_rds_endpoint
from penstock.model.roots import ServerCertificate
from penstock.server.roots import read_name, show_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

# Seconds to wait for each answer of a server that is only looked at.
_LOOK_TIMEOUT_S = 10

# postgresql.org/docs/current/protocol-message-formats.html, "SSLRequest".
_SSL_REQUEST = struct.pack("!ii", 8, 80877103)

# The modes in which libpq may send a password to a server in the clear.
_MODES_WITHOUT_TLS = ("disable", "allow", "prefer")


def tls_defaults(
    given: Mapping[str, str], *, sends_token: bool, find_roots: Callable[[Sequence[str]], str]
) -> dict[str, str]:
    """Return the TLS settings to add to what the user gave.

    `find_roots` returns the file to verify servers with, or raises; it is called only where its answer is needed.
    `sends_token`: an IAM token will be sent, which whoever reads it may use. Raises UsageError where it would be sent
    in the clear, and what `find_roots` raises.
    """
    mode = given.get("sslmode") or None
    if sends_token and mode in _MODES_WITHOUT_TLS:
        raise UsageError(
            f"IAM authentication needs TLS, and sslmode is {mode}",
            detail="The token would be sent in the clear.",
            hint="Leave sslmode out; it is verify-full then.",
        )
    hosts = [host for host in given.get("host", "").split(",") if host]
    is_amazon = bool(hosts) and all(map(is_rds_endpoint, hosts))
    if not (is_amazon or sends_token) or mode not in (None, "verify-ca", "verify-full"):
        return {}
    defaults = {} if mode else {"sslmode": "verify-full"}
    if is_amazon and not given.get("sslrootcert"):
        defaults["sslrootcert"] = find_roots(hosts)
    return defaults


def look_at_server(host: str, port: int, *, roots: Path, address: tuple[str, int] | None = None) -> ServerCertificate:
    """Return the certificate of a server, verified as verify-full does; nothing else is sent to it.

    `address` is where to connect in place of host and port, such as a tunnel's end. Raises ServerError.
    """
    import ssl  # noqa: PLC0415 (few look)

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
            "was issued by; aws rds describe-db-instances tells its CACertificateIdentifier.",
        ) from exc
    except OSError as exc:
        raise ServerError(
            f"could not look at the certificate of {target}",
            detail=f"{exc.strerror or exc}.",
            hint="Check the host name and port, and that no firewall or security group stands between.",
            is_transient=True,
        ) from exc
    names: dict[str, tuple[tuple[tuple[str, str], ...], ...]] = fields  # type: ignore[assignment]
    return ServerCertificate(
        name=show_name(read_name(names["subject"])),
        issuer=show_name(read_name(names["issuer"])),
        expires_at=datetime.fromtimestamp(ssl.cert_time_to_seconds(str(fields["notAfter"])), UTC),
    )
