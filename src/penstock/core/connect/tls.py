"""Finds the root certificates of Amazon RDS, and chooses the TLS settings that use them."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import psycopg
from psycopg import pq, sql

from penstock.core.connect.endpoints import is_rds_endpoint, is_rds_proxy, region_of
from penstock.core.errors import ServerError, UsageError
from penstock.core.slotted import slotted


@slotted
class RootCertificate:
    """One root certificate of a certificate authority.

    Amazon RDS has its own authorities. RDS Proxy uses Amazon's public authorities, "Amazon Root CA 1" and so on.
    """

    # The common name, or the whole subject if there is none.
    name: str
    # The organizational unit (OU).
    unit: str | None
    expires_at: datetime

    @property
    def is_for_rds(self) -> bool:
        """Return whether the certificate belongs to an authority of Amazon RDS."""
        return self.unit == "Amazon RDS"

    @property
    def is_public_amazon(self) -> bool:
        """Return whether the certificate belongs to one of Amazon's public authorities."""
        return self.name.startswith("Amazon Root CA ")

    @property
    def is_amazons(self) -> bool:
        """Return whether the certificate belongs to Amazon: to an authority of RDS or to a public one."""
        return self.is_for_rds or self.is_public_amazon


@slotted
class RootFile:
    """A file of root certificates, and the certificates that were read from it."""

    path: Path
    certificates: tuple[RootCertificate, ...] = ()
    # Why the file cannot be read, None if it can.
    problem: str | None = None


@slotted
class RootSearch:
    """Which files were searched for the root certificates of an endpoint, and which file is used."""

    # The files in the order of the search.
    files: tuple[RootFile, ...]
    # The file that is used, None if there is none.
    chosen: RootFile | None
    # Whether the user named the file, so that no other file was searched.
    is_given: bool = False


@slotted
class ServerCertificate:
    """The certificate that a server sent. The certificate has been verified, and the server's name in it too."""

    name: str
    issuer: str
    expires_at: datetime


_BUNDLE = "global-bundle.pem"

# The site from which AWS offers the bundle, by the prefix of the region's name. Other regions use the last site.
_BUNDLE_SITES = {
    "cn-": "https://rds-truststore.s3.cn-north-1.amazonaws.com.cn",
    "us-gov-": "https://truststore.pki.us-gov-west-1.rds.amazonaws.com",
    "": "https://truststore.pki.rds.amazonaws.com",
}

# sslrootcert=system means the default store of libpq's OpenSSL. The OpenSSL in psycopg's binary wheel has an empty one.
# So penstock accepts this value from the user, but passes libpq the path of the system's file instead.
_SYSTEM = "system"

# The folders in which the bundle is usually stored. AWS's own examples use /certs.
_COMMON_FOLDERS = (Path("/certs"), Path("/etc/ssl/certs"), Path("/etc/pki/tls/certs"))

# The system's store as one file: Debian, Red Hat and Amazon Linux, SUSE, Alpine and macOS.
_SYSTEM_FILES = (
    Path("/etc/ssl/certs/ca-certificates.crt"),
    Path("/etc/pki/tls/certs/ca-bundle.crt"),
    Path("/etc/ssl/ca-bundle.pem"),
    Path("/etc/ssl/cert.pem"),
)


def search_roots(
    host: str | None, environ: Mapping[str, str], *, given: str | None = None, now: datetime
) -> RootSearch:
    """Search files for a root certificate of an endpoint. Return the files that were read, and which is used.

    The search ends with the first file that has a certificate that is valid at `now`. If `host` is None, a root of any
    server of RDS is searched. `given` is the file that the user named. Only that file is read, and it is used whatever
    certificates it contains.
    """
    if given is not None:
        file = _read_system(environ) if given == _SYSTEM else read_roots(Path(given))
        return RootSearch(files=(file,), chosen=None if file.problem else file, is_given=True)
    files: list[RootFile] = []
    for path in _candidates(host, environ):
        file = read_roots(path)
        files.append(file)
        if any(_is_wanted(certificate, host, now) for certificate in file.certificates):
            return RootSearch(files=tuple(files), chosen=file)
    return RootSearch(files=tuple(files), chosen=None)


def find_roots(hosts: Sequence[str], environ: Mapping[str, str]) -> str:
    """Return the path of the file with the root certificates of these endpoints. Raises ServerError if there is none.

    libpq uses one file for several endpoints, so the first endpoint determines it.
    """
    search = search_roots(hosts[0], environ, now=datetime.now(UTC))
    if search.chosen is None:
        raise missing_roots(hosts[0], search)
    return str(search.chosen.path)


def missing_roots(host: str, search: RootSearch) -> ServerError:
    """Return the error for an endpoint that cannot be verified. Its hint says what to download or install."""
    looked = ", ".join(str(file.path) for file in search.files)
    if is_rds_proxy(host):
        hint = "Install the operating system's root certificates (ca-certificates), which RDS Proxy is verified with"
    else:
        hint = f"Download {bundle_url(region_of(host))} to {Path('~/.postgresql') / _BUNDLE}"
    return ServerError(
        f"no root certificates to verify {host} with",
        detail=f"Amazon's are in none of {looked}. Without them any host could pose as the server, so nothing was "
        "sent to it.",
        hint=f"{hint}, or name their file with sslrootcert=FILE or PGSSLROOTCERT; see penstock rds certificates.",
    )


def bundle_url(region: str | None) -> str:
    """Return the URL of the roots of a region's servers.

    >>> bundle_url("us-gov-east-1")
    'https://truststore.pki.us-gov-west-1.rds.amazonaws.com/global/global-bundle.pem'
    """
    site = next(site for start, site in _BUNDLE_SITES.items() if (region or "").startswith(start))
    return f"{site}/global/{_BUNDLE}"


def read_roots(path: Path) -> RootFile:
    """Return a file with the certificates that OpenSSL reads from it, or with the reason why it cannot be read."""
    try:
        stat = path.stat()
        return _read_cached(path, stat.st_mtime_ns, stat.st_size)
    except OSError as exc:
        return RootFile(path=path, problem=exc.strerror or "cannot be read")


def _read_system(environ: Mapping[str, str]) -> RootFile:
    """Return the file that sslrootcert=system stands for, OpenSSL's default store, if it can be determined."""
    if named := environ.get("SSL_CERT_FILE"):
        return read_roots(Path(named))
    if psycopg.pq.__impl__ == "binary":
        return RootFile(
            path=Path(_SYSTEM), problem="psycopg's OpenSSL has no store; name the system's with SSL_CERT_FILE"
        )

    found = ssl.get_default_verify_paths().cafile
    return read_roots(Path(found)) if found else RootFile(path=Path(_SYSTEM), problem="is not a single file here")


@lru_cache(maxsize=32)
def _read_cached(path: Path, _changed_ns: int, _size_bytes: int) -> RootFile:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cafile=path)
    except ssl.SSLError:
        return RootFile(path=path, problem="holds no certificates in PEM form")
    return RootFile(path=path, certificates=tuple(map(_describe, context.get_ca_certs())))


def _describe(fields: dict[str, Any]) -> RootCertificate:
    subject = read_name(fields["subject"])
    return RootCertificate(
        name=show_name(subject),
        unit=subject.get("organizationalUnitName"),
        expires_at=datetime.fromtimestamp(ssl.cert_time_to_seconds(fields["notAfter"]), UTC),
    )


def read_name(name: Sequence[Sequence[tuple[str, str]]]) -> dict[str, str]:
    """Return a certificate's name by its attributes, such as commonName. `name` is as Python's ssl module has it."""
    return {key: value for part in name for key, value in part}


def show_name(name: Mapping[str, str]) -> str:
    """Return the common name, or the whole name if it has no common name."""
    return name.get("commonName") or ", ".join(name.values())


def _is_wanted(certificate: RootCertificate, host: str | None, now: datetime) -> bool:
    if certificate.expires_at <= now:
        return False
    if host is not None and is_rds_proxy(host):
        return certificate.is_public_amazon
    region = None if host is None else region_of(host)
    # Names look like "Amazon RDS eu-west-1 Root CA RSA2048 G1". A name without a region is for all regions.
    words = certificate.name.split()
    is_for_region = region is None or region in words or not any(word.count("-") >= 2 for word in words)
    return certificate.is_for_rds and is_for_region


def _candidates(host: str | None, environ: Mapping[str, str]) -> Iterator[Path]:
    """Yield the files to search: libpq's own first, then bundles with AWS's names, then the system's store."""
    folders = list(_COMMON_FOLDERS)
    if home := environ.get("HOME"):
        user = Path(home)
        yield user / ".postgresql" / "root.crt"
        settings = Path(environ.get("XDG_CONFIG_HOME") or user / ".config")
        folders[:0] = [user / ".postgresql", settings / "penstock", user / ".aws"]
    region = None if host is None else region_of(host)
    names = [_BUNDLE, *([f"{region}-bundle.pem"] if region else [])]
    yield from (folder / name for folder in folders for name in names)
    system = [Path(environ["SSL_CERT_FILE"])] if environ.get("SSL_CERT_FILE") else []
    yield from dict.fromkeys([*system, *_SYSTEM_FILES])


# The values of sslmode with which libpq may send a password unencrypted.
_MODES_WITHOUT_TLS = ("disable", "allow", "prefer")


def tls_defaults(
    given: Mapping[str, str], *, sends_token: bool, find_roots: Callable[[Sequence[str]], str]
) -> dict[str, str]:
    """Return the TLS settings to add to what the user gave.

    `find_roots` returns the path of the file of root certificates, or raises an error. It is called only if that file
    is needed. `sends_token` says whether an IAM token will be sent. Raises UsageError if the token would be sent
    unencrypted, because anybody who reads the token could use it. Also raises the errors of `find_roots`.
    """
    mode = given.get("sslmode") or None
    if sends_token and mode in _MODES_WITHOUT_TLS:
        raise UsageError(
            f"IAM authentication needs TLS, but sslmode is {mode}",
            detail="The token would be sent unencrypted.",
            hint="Do not set sslmode; it is verify-full then.",
        )
    hosts = [host for host in given.get("host", "").split(",") if host]
    is_amazon = bool(hosts) and all(map(is_rds_endpoint, hosts))
    if not (is_amazon or sends_token) or mode not in (None, "verify-ca", "verify-full"):
        return {}
    defaults = {} if mode else {"sslmode": "verify-full"}
    if is_amazon and not given.get("sslrootcert"):
        defaults["sslrootcert"] = find_roots(hosts)
    return defaults


def compose_is_direct(connected: pq.abc.PGconn) -> sql.Composed:
    """Return an SQL condition, for a connection's first statement, that is true if there is no pooler.

    The condition compares the backend's pid with the pid that libpq received. Every endpoint of Neon is behind a proxy
    that sends a pid of its own, but only hosts whose names end with -pooler are behind PgBouncer. Source:
    neondatabase/neon, proxy (a new cancel key for each client); neon.com/docs, "Connection pooling".
    """
    is_backend = sql.SQL("pg_catalog.pg_backend_pid() OPERATOR(pg_catalog.=) {}").format(
        sql.Literal(connected.backend_pid)
    )
    if connected.host.decode(errors="replace").partition(".")[0].endswith("-pooler"):
        return sql.SQL("({})").format(is_backend)
    neon = sql.SQL("pg_catalog.current_setting('neon.timeline_id', true) IS NOT NULL")
    return sql.SQL("({} OR {})").format(is_backend, neon)
