"""Connection strings and service files: their settings, the defaults to add, and a description without secrets.

Pure, except that it reads the service file. connection.py connects.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from penstock.core.connect.endpoints import is_dsql_endpoint
from penstock.core.errors import UsageError
from penstock.core.values.server import DSQL_LOADER


def read_service(name: str, environ: Mapping[str, str], *, service_file: str | None = None) -> dict[str, str]:
    """Return the settings of service `name` by libpq's keywords, or an empty dict if no file has the service.

    libpq reports a missing service itself. The files are searched in libpq's order: the given file, otherwise
    PGSERVICEFILE, otherwise ~/.pg_service.conf; then PGSYSCONFDIR. libpq's compiled-in directory is not known here, so
    it is not searched.
    """
    for path in _candidate_paths(environ, service_file):
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        settings = parse_service(text.splitlines(), name)
        if settings is not None:
            return settings
    return {}


def parse_service(lines: Iterable[str], name: str) -> dict[str, str] | None:
    """Return the settings of the first section `[name]`, or None if there is none.

    >>> parse_service(["# ours", "[prod]", "host=db1", "port=6432", "[dev]", "host=db2"], "prod")
    {'host': 'db1', 'port': '6432'}
    """
    settings: dict[str, str] | None = None
    for line in map(str.strip, lines):
        if not line or line.startswith("#"):
            continue
        if line.startswith("["):
            if settings is not None:
                break
            settings = {} if line == f"[{name}]" else None
        elif settings is not None and "=" in line:
            key, _, value = line.partition("=")
            settings.setdefault(key.strip(), value.strip())
    return settings


def _candidate_paths(environ: Mapping[str, str], service_file: str | None) -> list[Path]:
    user_file = service_file or environ.get("PGSERVICEFILE")
    paths = [Path(user_file)] if user_file else []
    if not user_file and "HOME" in environ:
        paths.append(Path(environ["HOME"]) / ".pg_service.conf")
    if system_dir := environ.get("PGSYSCONFDIR"):
        paths.append(Path(system_dir) / "pg_service.conf")
    return paths


# Matches libpq's variables. A user who sets one of them, even only PGUSER or PGPASSWORD, means a server of their own,
# not the embedded one. A variable counts even if its value is empty: for libpq, PGHOST= means the default socket.
_LIBPQ_VARIABLE = re.compile(r"PG[A-Z]+|PGCONNECT_TIMEOUT")
# The variables that set what holds in a session, such as DateStyle, of whichever server.
_SESSION_VARIABLES = ("PGOPTIONS", "PGDATESTYLE", "PGTZ", "PGGEQO")

# The libpq settings that are needed here and that an environment variable can give, each with its variable.
_VARIABLE_OF_SETTING = {
    "host": "PGHOST",
    "hostaddr": "PGHOSTADDR",
    "port": "PGPORT",
    "dbname": "PGDATABASE",
    "user": "PGUSER",
    "service": "PGSERVICE",
    "application_name": "PGAPPNAME",
    "connect_timeout": "PGCONNECT_TIMEOUT",
    "target_session_attrs": "PGTARGETSESSIONATTRS",
    "sslmode": "PGSSLMODE",
    "sslrootcert": "PGSSLROOTCERT",
}

# Matches a URI, also one without slashes or scheme, that was given as a database name.
_MISTYPED_URI = re.compile(r"\w[\w+.-]*://|postgres(?:ql)?:|[^\s/@:]+:[^\s@]*@", re.IGNORECASE)

# Matches a URI with a slash before an @, or a second @. libpq takes what follows these for a database or a host.
_UNENCODED = re.compile(r"postgres(?:ql)?://(?:[^@?]*/[^?]*@|[^@?]*@[^@?/]*@)", re.IGNORECASE)

# Settings that penstock adds if the user did not give them.
_DEFAULTS = {
    # A standby cannot accept a load.
    "target_session_attrs": "primary",
    # Seconds for each host: a wrong name or a firewall that drops packets must not look like a long load.
    "connect_timeout": "15",
    # A session that waits for others sends nothing for minutes, and firewalls drop silent connections (AWS network load
    # balancers after 350 s). So probe after 30 s of silence. Linux gives up after tcp_user_timeout, other systems after
    # three unanswered probes.
    "keepalives": "1",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    # How many milliseconds sent data may stay unacknowledged. By default Linux takes 15 minutes or more to notice a
    # lost server. With a limit of seconds, Linux would also end the connection to a live server that answers every
    # probe but accepts no data, such as a backend that waits for a lock during a COPY. So the limit is ten minutes.
    "tcp_user_timeout": "600000",
}

# The values of the connection parameter `replication` with which libpq opens an ordinary session.
_NO_REPLICATION = ("", "0", "off", "no", "false")

# Settings for the embedded server that switch off requirements which users set by environment variables for all their
# servers (PGCHANNELBINDING, PGREQUIREAUTH ...). The embedded server cannot fulfil them, because it accepts its owner on
# a Unix socket without a password.
_OVER_OWN_SOCKET = {
    "channel_binding": "prefer",
    "gssencmode": "disable",
    "require_auth": "",
    "requirepeer": "",
    "sslcertmode": "allow",
    "sslnegotiation": "postgres",
}


def has_connection_settings(environ: Mapping[str, str]) -> bool:
    """Return whether a PG* variable or a connection service file names a server for libpq."""
    has_variable = any(_LIBPQ_VARIABLE.fullmatch(name) and name not in _SESSION_VARIABLES for name in environ)
    return has_variable or any(map(os.path.isfile, _candidate_paths(environ, None)))


def over_own_socket(conninfo: str) -> str:
    """Return the connection string of the embedded server, with settings that its Unix socket needs.

    These settings override PG* variables that would not work there, such as PGREQUIREPEER. Settings that the installed
    libpq does not know are left out.
    """
    # Older versions of libpq refuse the settings that they do not know.
    known = {option.keyword.decode() for option in psycopg.pq.Conninfo.get_defaults()}
    return make_conninfo(conninfo, **{key: value for key, value in _OVER_OWN_SOCKET.items() if key in known})


def parse_conninfo(conninfo: str) -> dict[str, str]:
    """Return the settings of a URI, a key=value string or (as in psql) a bare database name.

    Raises UsageError. Its message never contains the string, a part of which may be a password.
    """
    is_bare_name = bool(conninfo) and "=" not in conninfo and not _MISTYPED_URI.match(conninfo)
    if is_bare_name:
        return {"dbname": conninfo}
    try:
        settings = conninfo_to_dict(conninfo)
    except psycopg.ProgrammingError:
        # The error has no cause attached, because libpq's message quotes the text that libpq could not read.
        raise UsageError(
            "cannot read the connection string",
            detail="It is not a URI or a list of keyword=value settings that libpq accepts.",
            # The hint does not suggest USER@HOST, because messages hide what comes before an @.
            hint="Write postgresql://HOST:PORT/DBNAME?user=USER with special characters percent-encoded, or "
            '"host=HOST dbname=DBNAME user=USER" with values that hold spaces in single quotes.',
        ) from None
    found = {key: str(value) for key, value in settings.items() if value is not None}
    if _UNENCODED.match(conninfo):
        raise UsageError(
            "cannot read the connection string",
            detail="A user name, password or database name in it has a / or @ that is not encoded.",
            hint="Write / as %2F, and @ as %40.",
        )
    hosts = [host for host in found.get("host", "").split(",") if not host.startswith(("/", "@"))]
    if any("@" in text for text in (*hosts, found.get("port", ""))):
        raise UsageError(
            "cannot read the connection string",
            detail="Its host or port has an @.",
            hint="Give the user as user=USER, and the password in PGPASSWORD or ~/.pgpass.",
        )
    return found


def check_settings(given: Mapping[str, str], *, writes: bool, read_write: bool) -> None:
    """Raise UsageError if sessions with these settings cannot do anything, or cannot write although `writes` is true.

    A session for replication runs no statements. If `read_write` is true, transactions can write although they are
    read-only by default. Aurora DSQL is refused by its host name. A connection string that was given as the database
    name is refused, because libpq would send it and the server would write it to its log, password included.
    """
    if given.get("replication", "").lower() not in _NO_REPLICATION:
        raise UsageError(
            "the connection string asks for a replication connection",
            detail=f"replication={given['replication']}: such a session runs no statements.",
            hint="Take replication out of the connection string or the service file.",
        )
    if any(map(is_dsql_endpoint, given.get("host", "").split(","))):
        # Connections to DSQL are refused here, because DSQL lacks functions that every command calls first.
        raise UsageError("penstock does not work with Aurora DSQL", hint=DSQL_LOADER)
    kind = given.get("target_session_attrs")
    if writes and (kind == "standby" or (kind == "read-only" and not read_write)):
        raise UsageError(
            f"target_session_attrs={kind} asks for a server that cannot be written",
            hint="Use target_session_attrs=primary, or take the setting out.",
        )
    if _may_hold_secret(given.get("dbname", "")):
        raise UsageError(
            "a connection string was given as the database name",
            detail="It was given as dbname or PGDATABASE.",
            hint="Give it in --to, or give only the name.",
        )


def given_settings(settings: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that the user gave, by libpq's keywords.

    `settings` are those of the connection string. They override those of the service file, which override the PG*
    variables in `environ`.
    """
    by_variable = {key: environ[name] for key, name in _VARIABLE_OF_SETTING.items() if environ.get(name)}
    service = settings.get("service") or by_variable.get("service")
    by_service = read_service(service, environ, service_file=settings.get("servicefile")) if service else {}
    return {**by_variable, **by_service, **settings}


def missing_defaults(
    given: Mapping[str, str], *, application_name: str, allows_standby: bool = False
) -> dict[str, str]:
    """Return penstock's defaults, by libpq's keywords, for the settings that the user did not give.

    With `allows_standby`, the server may be a standby. Commands that only read allow this.
    """
    defaults = {**_DEFAULTS, "application_name": application_name}
    is_list = any("," in given.get(key, "") for key in ("host", "hostaddr"))
    if is_list and not allows_standby:
        # Of several primaries, choose one that is not read-only: after a move by logical replication, the old primary
        # may be read-only. A single host is not checked, because a role's own default_transaction_read_only would make
        # the check fail too; explain_unwritable reports that case.
        defaults["target_session_attrs"] = "read-write"
    return {key: value for key, value in defaults.items() if key not in given}


def describe_target(given: Mapping[str, str]) -> str:
    """Return the server, database and user as libpq keywords, without any secret.

    >>> describe_target({"host": "db1", "user": "ann", "password": "x"})
    'host=db1 user=ann'
    """
    keys = ("service", "host", "hostaddr", "port", "dbname", "user")
    # libpq does not expand a connection string that was given as a database name. Such a string may contain a password,
    # so it is not shown.
    words = [f"{key}={given[key]}" for key in keys if given.get(key) and not _may_hold_secret(given[key])]
    return " ".join(words) or "the local default server"


def _may_hold_secret(value: str) -> bool:
    return "://" in value or "=" in value or _MISTYPED_URI.match(value) is not None
