"""What a connection string says: its settings, the defaults to add, and words for it that hold no secret.

Pure but for the service file. Connecting is connection.py's.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from penstock.errors import UsageError
from penstock.server.connect.service_file import has_service_file, read_service

if TYPE_CHECKING:
    from collections.abc import Mapping

# Whoever sets one of libpq's variables, PGUSER or PGPASSWORD alone too, has a server of their own in mind.
# An empty one counts, as for libpq: PGHOST= asks for the default socket.
_LIBPQ_VARIABLE = re.compile(r"PG[A-Z]+|PGCONNECT_TIMEOUT")

# The libpq settings of interest here that a variable can give.
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

# A URI, also one that lacks slashes: it is no database's name.
_MISTYPED_URI = re.compile(r"\w[\w+.-]*://|postgres(?:ql)?:", re.IGNORECASE)

# What penstock asks of libpq where the user is silent.
_DEFAULTS = {
    # A standby cannot be loaded into.
    "target_session_attrs": "primary",
    # Seconds for each host: a wrong name or a firewall that drops packets should not look like a long load.
    "connect_timeout": "15",
    # A session that waits for others sends nothing for minutes, and firewalls forget silent connections (AWS
    # network load balancers after 350 s): ask after 30 s of silence, give up after three unanswered probes.
    "keepalives": "1",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    # A vanished server must be noticed (Linux alone takes 15 minutes or more), but not sooner than a live one
    # may stall: with this option Linux also ends a connection whose peer answers every probe while its window
    # stays closed, as a backend's does while it waits for a lock in the middle of a COPY. So minutes, not
    # seconds.
    "tcp_user_timeout": "600000",
}

# What people ask by variable of all their servers (PGCHANNELBINDING, PGREQUIREAUTH ...), and a server behind a Unix
# socket that lets its owner in without a password cannot give.
_OVER_OWN_SOCKET = {
    "channel_binding": "prefer",
    "gssencmode": "disable",
    "require_auth": "",
    "requirepeer": "",
    "sslcertmode": "allow",
    "sslnegotiation": "postgres",
}


def has_connection_settings(environ: Mapping[str, str]) -> bool:
    """Return whether libpq is told of a server: by any PG* variable, or by a connection service file."""
    has_variable = any(_LIBPQ_VARIABLE.fullmatch(name) for name in environ)
    return has_variable or has_service_file(environ)


def over_own_socket(conninfo: str) -> str:
    """Return how to connect to the embedded server, whatever the environment asks of other servers."""
    # Older libpqs know fewer settings, and refuse those that they do not know.
    known = {option.keyword.decode() for option in psycopg.pq.Conninfo.get_defaults()}
    return make_conninfo(conninfo, **{key: value for key, value in _OVER_OWN_SOCKET.items() if key in known})


def parse_conninfo(conninfo: str) -> dict[str, str]:
    """Return the settings of a URI, a key=value string or (as psql takes it) a bare database name.

    Raises UsageError, which never repeats the string: a part of it may be a password.
    """
    is_bare_name = bool(conninfo) and "=" not in conninfo and not _MISTYPED_URI.match(conninfo)
    if is_bare_name:
        return {"dbname": conninfo}
    try:
        settings = conninfo_to_dict(conninfo)
    except psycopg.ProgrammingError:
        # Without the cause: libpq quotes what it could not read.
        raise UsageError(
            "cannot read the connection string",
            detail="It is not a URI or a list of keyword=value settings that libpq accepts.",
            # Without USER@, which messages hide.
            hint="Write postgresql://HOST:PORT/DBNAME?user=USER with special characters percent-encoded, or "
            '"host=HOST dbname=DBNAME user=USER" with values that hold spaces in single quotes.',
        ) from None
    return {key: str(value) for key, value in settings.items() if value is not None}


def check_database_name(given: Mapping[str, str]) -> None:
    """Raise UsageError where a connection string was given as the database name.

    libpq would take it for a name, and the server repeat it in its log, password and all.
    """
    if _may_hold_secret(given.get("dbname", "")):
        raise UsageError(
            "a connection string was given as the database name",
            detail="It was given as dbname or PGDATABASE.",
            hint="Give it in --to, or give only the name.",
        )


def given_settings(settings: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return what the user said by connection string, service file or variable, in libpq's precedence."""
    by_variable = {key: environ[name] for key, name in _VARIABLE_OF_SETTING.items() if environ.get(name)}
    service = settings.get("service") or by_variable.get("service")
    by_service = read_service(service, environ, service_file=settings.get("servicefile")) if service else {}
    return {**by_variable, **by_service, **settings}


def missing_defaults(
    given: Mapping[str, str], *, application_name: str, allows_standby: bool = False
) -> dict[str, str]:
    """Return penstock's settings for what the user left open; `allows_standby`: for who only looks."""
    defaults = {**_DEFAULTS, "application_name": application_name}
    is_list = any("," in given.get(key, "") for key in ("host", "hostaddr"))
    if is_list and not allows_standby:
        # Of several primaries the one that was not made read-only, as after a move by logical replication. Of one host
        # that is not asked: a role's own default_transaction_read_only fails it too, and is refused in our words.
        defaults["target_session_attrs"] = "read-write"
    return {key: value for key, value in defaults.items() if key not in given}


def describe_target(given: Mapping[str, str]) -> str:
    """Return which server, database and user are meant, in libpq's words, without any secret.

    >>> describe_target({"host": "db1", "user": "ann", "password": "x"})
    'host=db1 user=ann'
    """
    keys = ("service", "host", "hostaddr", "port", "dbname", "user")
    # A connection string in the place of a database name is not expanded by libpq, and may hold a password.
    words = [f"{key}={given[key]}" for key in keys if given.get(key) and not _may_hold_secret(given[key])]
    return " ".join(words) or "the local default server"


def _may_hold_secret(value: str) -> bool:
    return "://" in value or "=" in value or _MISTYPED_URI.match(value) is not None
