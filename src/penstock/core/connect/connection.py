"""The connection factory: every connection to a server is created here.

libpq makes the connection (URIs, services, several hosts, TLS, .pgpass, PG* variables). The factory adds defaults for
the settings that the user did not give (conninfo.py). It also sets the session settings below, so that all sessions of
a load convert a text to the same value, and so that no timeout ends a session. Other modules run statements, and
package loading retries.
"""

from __future__ import annotations

import logging
import os
import re
import select
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from penstock.core.checks import check_pooler, check_read_only
from penstock.core.connect.conninfo import (
    check_settings,
    describe_target,
    given_settings,
    has_connection_settings,
    missing_defaults,
    over_own_socket,
    parse_conninfo,
)
from penstock.core.connect.endpoints import explain_refusal, is_rds_endpoint
from penstock.core.connect.errors import (
    TOO_MANY_CONNECTIONS,
    describe_report,
    hint_for,
    is_passing,
    read_report,
)
from penstock.core.connect.route import (
    Route,
    TokenMaker,
    Tunnel,
    is_loopback,
    named_routes,
    resolve_tunnel,
    tunnel_route,
)
from penstock.core.connect.search_path import OWN_PATH, TO_OWN_SETTINGS
from penstock.core.connect.tls import compose_is_direct, find_roots, tls_defaults
from penstock.core.connect.waiting import SessionWatch, WatchedConnection
from penstock.core.errors import ServerError, UsageError
from penstock.core.values.diagnosis import Diagnosis, refuse
from penstock.core.values.names import NAME_LIMIT_BYTES
from penstock.core.values.server import DateOrder, PoolerFacts

if TYPE_CHECKING:
    from psycopg.errors import Diagnostic


__all__ = [
    "Connection",
    "ConnectionFactory",
    "describe_connection",
    "has_connection_settings",
    "is_usable",
    "over_own_socket",
]

Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

_log = logging.getLogger(__name__)

# The severities of messages that are not reported as warnings. The server sends them if client_min_messages asks for
# them.
_NO_WARNINGS = frozenset(("DEBUG", "LOG", "INFO", "NOTICE"))

_SETTING_HINT = "Correct this setting in the connection string, the service file or PGOPTIONS."

# Parts of English messages of libpq and of the server, each with its hint. A failure to connect has no code, so only
# the message can choose the hint. None of these messages means that the password is wrong.
_NO_PLACE = r"too many c|remaining connection slots are reserved"
_REFUSALS = (
    (_NO_PLACE, hint_for(TOO_MANY_CONNECTIONS)),
    (r"server is in hot standby mode", hint_for("25006")),
    (r"session is read-only", hint_for("25006")),
    (r'FATAL:  database ".*" does not exist', hint_for("3D000")),
    (r"FATAL:  permission denied for database", "Have the database's owner grant CONNECT on it to the user."),
    (r'FATAL:  database ".*" is not currently accepting', "Name another database: this one allows no connections."),
    (r'FATAL:  role ".*" (does not exist|is not permitted)', hint_for("28000")),
    (r"FATAL:  no pg_hba.conf entry|pg_hba.conf rejects", hint_for("28000")),
    (r"FATAL:  invalid (value for parameter|command-line)|FATAL:  unrecognized configuration", _SETTING_HINT),
    (r"invalid (\w+|integer) value[ :]|invalid port number|service .* not found", _SETTING_HINT),
)

# The settings of every session, whatever the role, the database or postgresql.conf sets. Timeouts are off, because a
# timeout for interactive work would end a load. The isolation level is read committed, because serializable would slow
# a load. IntervalStyle is fixed too, but statements that turn text into values use the user's (search_path.py). With
# row_security off, a table with policies, such as the ledger's, could not be read at all. With quote_all_identifiers
# on, the server spells definitions differently.
#
# The server sends keepalives to a silent client, as the client does to the server (conninfo.py). With the kernel's
# defaults, the session of a lost machine would hold its load's lock for two hours. With these values, the server ends
# the session 80 s after the machine's last packet, even if the server waits for an acknowledgement. Other hosts of the
# same load can then take the lost machine's objects.
#
# Two settings of the user are kept: default_transaction_read_only, unless the user gives --read-write; and
# lock_timeout, because a user who sets it does not want a load to keep others waiting. What it ends is retried.
_SETTINGS = {
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "idle_session_timeout": "0",
    "default_transaction_isolation": "read committed",
    "default_transaction_deferrable": "off",
    "IntervalStyle": "postgres",
    "extra_float_digits": "1",
    "standard_conforming_strings": "on",
    "row_security": "on",
    "quote_all_identifiers": "off",
    "client_min_messages": "warning",
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "5",
    "tcp_user_timeout": "80s",
}
_SETTINGS_17 = {"transaction_timeout": "0"}
_READ_WRITE = {"default_transaction_read_only": "off"}


# The SQL expression for the source of DateStyle's value. A source in _CHOSEN means that somebody chose the setting for
# these sessions, not for the whole server (GucSource_Names in src/backend/utils/misc/guc_tables.c). PGDATESTYLE and
# PGOPTIONS are "client".
_DATE_ORDER_SOURCE = sql.SQL(
    "(SELECT source FROM pg_catalog.pg_settings WHERE name OPERATOR(pg_catalog.=) 'DateStyle')"
)
_CHOSEN = ("client", "database", "user", "database user", "session")

# The connect_timeout of a ping, in seconds: libpq's minimum. A ping holds Python's interpreter lock, so the other
# sessions of a load wait for it.
_PING_TIMEOUT_S = 2

# The first version in which a session can report its statistics at once: PostgreSQL 15, pg_stat_force_next_flush().
CAN_FLUSH_STATISTICS = 150_000


class _InputSettings(NamedTuple):
    """The user's own settings that decide how text becomes a value."""

    DateStyle: str
    TimeZone: str
    IntervalStyle: str
    search_path: str


class ConnectionFactory:
    """Creates connections with equal settings. Threads may share a factory. A factory never shows a secret.

    The user's own DateStyle field order, TimeZone, IntervalStyle and search_path (from role, database, PGOPTIONS ...)
    decide what a COPY that the user runs would store, so penstock uses them too. DateStyle and TimeZone are read on the
    first connection and set on every later one. Only a few statements run with the user's IntervalStyle and search_path
    (search_path.py). Opening a session takes about nine round trips, so a borrowed session is kept for the next use;
    `close` ends the kept session. The attribute `on_warning` is called with each warning that a server sends; by
    default warnings are logged. The attribute `watch` looks at the sessions that wait.
    """

    def __init__(
        self,
        # A connection string of libpq or a bare database name.
        conninfo: str,
        *,
        # The role of each session, which it takes with SET ROLE.
        role: str | None = None,
        application_name: str = "penstock",
        # Whether the server may be a standby. Commands that only read allow that.
        allows_standby: bool = False,
        # If given, the connection goes to the tunnel instead of the server in the connection string.
        tunnel: Tunnel | None = None,
        # Returns the password for IAM authentication. It is called for every connection, because a token soon expires.
        make_token: TokenMaker | None = None,
        # Whether transactions can write even if the database, the role or PGOPTIONS makes them read-only by default.
        read_write: bool = False,
        # Whether the server is penstock's embedded one.
        is_embedded: bool = False,
    ) -> None:
        self._settings = parse_conninfo(conninfo)
        self._role = role
        self._application_name = application_name
        self._allows_standby = allows_standby
        self._tunnel = tunnel
        self._make_token = make_token
        self._read_write = read_write
        self.is_embedded = is_embedded
        self._is_read_only = False
        self._roots: str | None = None
        self._input_settings: _InputSettings | None = None
        self._has_date_order = False
        self._pooler: PoolerFacts | None = None
        self._kept: Connection | None = None
        # Whether a session was connected to the same server before `in_database` created this factory.
        self._knows_server = False
        self._lock = threading.Lock()
        self.on_warning: Callable[[str], None] = _log_warning
        self.watch: SessionWatch | None = None

    def __repr__(self) -> str:
        return f"ConnectionFactory({self.safe_description!r}, role={self._role!r})"

    @property
    def safe_description(self) -> str:
        """Return the server, database and user as libpq keywords, and the tunnel if any, without any secret."""
        target = describe_target(given_settings(self._settings, os.environ))
        return target if self._tunnel is None else f"{target} through {self._tunnel}"

    @property
    def application(self) -> str:
        """Return the text with which the application_name of each session begins: the user's, or penstock's."""
        name = given_settings(self._settings, os.environ).get("application_name", "")
        # The server replaces characters that are not printable ASCII, and cuts the name as it cuts a table's.
        return re.sub(r"[^ -~].*", "", name, flags=re.DOTALL)[:NAME_LIMIT_BYTES] or self._application_name

    @property
    def input_settings(self) -> dict[str, str]:
        """Return the user's settings that decide how text becomes a value; empty before the first connection."""
        return {} if self._input_settings is None else self._input_settings._asdict()

    @property
    def date_order(self) -> DateOrder:
        """Return the sessions' DateStyle, and whether the connection, the role or the database sets it.

        Before the first connection, DateStyle is empty.
        """
        style = "" if self._input_settings is None else self._input_settings.DateStyle
        return DateOrder(date_style=style, is_chosen=self._has_date_order)

    @property
    def pooler(self) -> PoolerFacts | None:
        """Return the connection pooler in front of the server, or None if there is none or nothing has connected."""
        return self._pooler

    def refuse_pooler(self, what: str) -> None:
        """Raise ServerError if there is a pooler. `what` completes the message "cannot ... through a pooler"."""
        refuse(check_pooler(self._pooler, what), ServerError)

    def explain_unwritable(self, what: str) -> Diagnosis | None:
        """Return why these connections cannot write rows, None if they can or if nothing has connected yet.

        The reason is a pooler, a standby or read-only transactions. `what` is the refused action; it completes the
        message "cannot ...".
        """
        return check_pooler(self._pooler, what) or check_read_only(self._is_read_only and not self._read_write, what)

    def refuse_unwritable(self, what: str) -> None:
        """Raise an error if `explain_unwritable` finds a reason: ServerError for a pooler, otherwise TargetError."""
        self.refuse_pooler(what)
        refuse(self.explain_unwritable(what), sqlstate="25006")

    def in_database(self, name: str) -> ConnectionFactory:
        """Return a factory for another database of the same server, with its own sessions. The caller closes it."""
        other = copy(self)
        other._settings = {**self._settings, "dbname": name}  # noqa: SLF001 (one of our own)
        other._knows_server = self._knows_server or self._input_settings is not None  # noqa: SLF001
        other._input_settings = other._pooler = other._kept = None  # noqa: SLF001
        other._lock = threading.Lock()  # noqa: SLF001
        return other

    @contextmanager
    def borrow(self) -> Iterator[Connection]:
        """Lend a session to the block for a few statements, and then keep it for the next use.

        Raises ServerError. If the block raises an error, the session is closed.
        """
        # A new session gets the label of its likely next use, because changing the label later would take a round trip.
        connection = self._take_kept() or self.connect(label="session 1")
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        with self._lock:
            is_wanted = self._kept is None
            if is_wanted:
                self._kept = connection
        if not is_wanted:
            connection.close()

    def keep(self, connection: Connection) -> None:
        """Release a session's advisory locks and keep the session for the next use. Close it if it cannot be kept.

        Only one session is kept. The server's statistics views count its work before its next use. On PostgreSQL 14
        they do so only when the session ends, so the session is closed there.
        """
        is_wanted = connection.info.server_version >= CAN_FLUSH_STATISTICS
        try:
            if is_wanted:
                connection.execute("SELECT pg_catalog.pg_advisory_unlock_all(), pg_catalog.pg_stat_force_next_flush()")
        except psycopg.Error:
            is_wanted = False
        except BaseException:
            # If the session were not closed, it would keep its advisory locks.
            connection.close()
            raise
        with self._lock:
            is_wanted = is_wanted and self._kept is None
            if is_wanted:
                self._kept = connection
        if not is_wanted:
            connection.close()

    def close(self) -> None:
        """Close the kept session, if there is one."""
        with self._lock:
            kept, self._kept = self._kept, None
        if kept is not None:
            kept.close()

    def take(self, *, label: str) -> Connection:
        """Return the kept session, or a new one. The caller closes it. Raises ServerError."""
        return self._take_kept() or self.connect(label=label)

    def _take_kept(self) -> Connection | None:
        with self._lock:
            kept, self._kept = self._kept, None
        if kept is None or _is_ready(kept):
            return kept
        kept.close()
        return None

    def connect(self, *, encoding: str = "UTF8", label: str | None = None) -> Connection:
        """Open a session in autocommit mode, set penstock's settings and the role, and return the session.

        `encoding` becomes client_encoding. `label` is added to application_name, to distinguish sessions in
        pg_stat_activity. Raises ServerError.
        """
        given = given_settings(self._settings, os.environ)
        check_settings(given, writes=not self._allows_standby, read_write=self._read_write)
        defaults = self._defaults(given, label)
        settings = {**self._settings, **defaults, "client_encoding": encoding}
        connection = self._open_first(settings, defaults, given=given)
        if self.watch is not None and isinstance(connection, WatchedConnection):
            self.watch.add(connection)
            connection.watch = self.watch
        try:
            self._prepare(connection)
        except psycopg.Error as error:
            connection.close()
            raise _preparation_error(error, self.safe_description, role=self._role) from error
        except BaseException:
            connection.close()
            raise
        return connection

    def _defaults(self, given: Mapping[str, str], label: str | None) -> dict[str, str]:
        """Return the settings to add to the user's connection settings. Raises UsageError, ServerError."""
        name = f"{self._application_name} {label}" if label else self._application_name
        sends_token = self._make_token is not None
        tls = tls_defaults(given, sends_token=sends_token, find_roots=self._find_roots)
        return missing_defaults(given, application_name=name, allows_standby=self._allows_standby) | tls

    def _find_roots(self, hosts: Sequence[str]) -> str:
        if self._roots is None:
            self._roots = find_roots(hosts, os.environ)
        return self._roots

    def _open_first(
        self, settings: dict[str, str], defaults: dict[str, str], *, given: Mapping[str, str]
    ) -> Connection:
        """Connect to the first host that accepts the connection.

        Normally libpq tries the hosts in turn. With IAM authentication each host needs its own token, so this method
        tries them one by one. With a tunnel there is only one route.
        """
        if self._tunnel is not None:
            routes: tuple[Route, ...] = (tunnel_route(given, self._tunnel, resolve_tunnel),)
        elif self._make_token is not None:
            routes = named_routes(given)
        else:
            return self._open(settings, defaults, given=given)
        for route in routes[:-1]:
            try:
                # Pass no defaults, so that _open does not retry this host with another target_session_attrs: a later
                # host may be of the preferred kind.
                return self._open(settings | self._route_settings(route, given), {}, given=given, route=route)
            except ServerError as error:
                _log.info("%s; trying the next host", error.message)
        last = routes[-1]
        return self._open(settings | self._route_settings(last, given), defaults, given=given, route=last)

    def _route_settings(self, route: Route, given: Mapping[str, str]) -> dict[str, str]:
        """Return libpq's settings for one server, with a new token if IAM authentication is used."""
        if self._make_token is None:
            return dict(route.settings)
        if "password" in self._settings:
            raise UsageError(
                "a password cannot be used with IAM authentication",
                detail="With --iam-auth the password is a token that is created for each connection.",
                hint="Take the password out of the connection string.",
            )
        token = self._make_token(host=route.host, port=route.port, user=_user(given))
        return {**route.settings, "password": token}

    def _open(
        self,
        settings: dict[str, str],
        defaults: dict[str, str],
        *,
        given: Mapping[str, str],
        route: Route | None = None,
    ) -> Connection:
        try:
            return _connect(settings)
        except psycopg.Error as error:
            # Try once more, even if only one kind of server is acceptable: after a broken connection, the second
            # attempt may succeed.
            other = self._find_other_kind(defaults)
            again = {**settings, "target_session_attrs": other} if other else settings
            # libpq looks at the session only after the server has accepted the password.
            is_accepted = "session is read-only" in str(error)
            tries_password = self._allows_standby or self._knows_server or is_accepted
            if not _is_certain_failure(error, tries_password=tries_password):
                with suppress(psycopg.Error):
                    return _connect(again)
            failure = _connection_error(error, self.safe_description)
            if re.search(_NO_PLACE, str(error)):
                failure.sqlstate = TOO_MANY_CONNECTIONS
            failure.is_transient = self._may_pass(error, settings)
            failure.hint = _find_refusal_hint(str(error)) or self._explain(error, given, route) or failure.hint
            raise failure from error

    def _may_pass(self, error: psycopg.Error, settings: dict[str, str]) -> bool:
        """Return whether a later attempt to connect may succeed.

        It may succeed if an earlier attempt succeeded, or if the server answers but is not ready. libpq reports no code
        for the cause of a failed connection, and penstock must not keep retrying a mistyped host name.
        """
        if error.pgconn is None or isinstance(error, psycopg.errors.ConnectionTimeout):
            # psycopg looks up the addresses of names itself. Without an address there is no pgconn.
            return self._knows_server or self._input_settings is not None
        if error.pgconn.needs_password:
            return False
        if self._input_settings is not None:
            return True
        if error.pgconn.used_password and not self._knows_server:
            # The server asks for a password only once it is ready. A ping would send a wrong one again.
            return False
        quick = {**settings, "connect_timeout": str(_PING_TIMEOUT_S)}
        answer = psycopg.pq.PGconn.ping(make_conninfo("", **quick).encode())
        return answer == psycopg.pq.Ping.REJECT or (self._knows_server and answer != psycopg.pq.Ping.OK)

    def _find_other_kind(self, defaults: Mapping[str, str]) -> str | None:
        """Return the target_session_attrs of a second attempt after no preferred server was found, or None.

        The first attempt may fail only because the role has set default_transaction_read_only: libpq checks that
        setting before penstock can change it, and reports no code for this failure. If the second attempt fails too,
        the first error is raised.
        """
        if "target_session_attrs" not in defaults:
            return None
        if self._allows_standby:
            return "any"
        return "primary" if defaults["target_session_attrs"] != "primary" else None

    def _explain(self, error: psycopg.Error, given: Mapping[str, str], route: Route | None) -> str | None:
        """Return a hint for a failed connection: to RDS, with a token, or to libpq's default host. None for others."""
        has_asked = error.pgconn is not None and error.pgconn.used_password
        if self._make_token is not None and route is not None and has_asked:
            now = datetime.now(UTC).isoformat(timespec="seconds")
            return explain_refusal(host=route.host, user=_user(given), now=now)
        host = given.get("host", "")
        if has_asked or isinstance(error, psycopg.errors.ConnectionTimeout):
            return None
        if not (host or given.get("hostaddr")):
            return (
                "Name the server with --to or PGHOST: no host is named, so this was libpq's default. The embedded "
                "server is used without --to, PG* variables and a service file."
            )
        if not is_rds_endpoint(host):
            return None
        return (
            "Check that the server runs there and that its security group allows this machine; if its certificate is "
            f"the reason, see penstock rds certificates --host {host}."
        )

    def _prepare(self, connection: Connection) -> None:
        connection.add_notice_handler(self._report_warning)
        version_num = connection.info.server_version
        with self._lock:
            is_first = self._input_settings is None
            if is_first:
                first = _make_first_settings(connection, version_num=version_num, read_write=self._read_write)
                self._input_settings, self._pooler, self._is_read_only, self._has_date_order = first
        if self._pooler is not None:
            # Behind a pooler, settings last only until the transaction ends, so all queries run in this transaction.
            connection.execute(f"BEGIN READ ONLY; {TO_OWN_SETTINGS}")
        elif not is_first:
            assert self._input_settings is not None
            settings = self._input_settings
            connection.execute(_compose_settings(settings, version_num=version_num, read_write=self._read_write))
        if self._role is not None:
            self.refuse_pooler(f'become role "{self._role}"')
            connection.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(self._role)))

    def _report_warning(self, diagnostic: Diagnostic) -> None:
        # NOTICEs are handled by the session that requested them. DEBUG, LOG and INFO can arrive before
        # client_min_messages is set, and are no warnings. A shutdown of the server (57P01, 57P02) is reported by the
        # error that follows, because the load may wait until the server is back.
        severity = diagnostic.severity_nonlocalized or "NOTICE"
        if severity not in _NO_WARNINGS and not (diagnostic.sqlstate or "").startswith("57P"):
            self.on_warning(f"{severity}: {diagnostic.message_primary}")


def is_usable(connection: Connection) -> bool:
    """Return whether a connection is open and runs no statement. After Ctrl-C, a statement may still run."""
    return not connection.closed and connection.info.transaction_status != psycopg.pq.TransactionStatus.ACTIVE


def _is_ready(connection: Connection) -> bool:
    """Return whether an idle session can be used. Unread data means that the server has ended the session."""
    if connection.closed or connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
        return False
    unread = select.poll()
    unread.register(connection.fileno(), select.POLLIN)
    return not unread.poll(0)


def describe_connection(connection: Connection) -> str:
    """Return the server, database and user of a session as libpq keywords, without any secret."""
    info = connection.info
    words = {"host": info.host, "port": str(info.port), "dbname": info.dbname, "user": info.user}
    # If the session uses a tunnel, the port is that of the tunnel's near end, so add the near end's address.
    is_tunnelled = is_loopback(info.hostaddr) and not is_loopback(info.host) and info.host != "localhost"
    return describe_target(words | ({"hostaddr": info.hostaddr} if is_tunnelled else {}))


def describe_driver() -> dict[str, str]:
    """Return the versions of psycopg and libpq, under the keys `psycopg` and `libpq`.

    psycopg's version has the name of the implementation that is used: c, binary or python.
    """
    major, minor = divmod(psycopg.pq.version(), 10_000)
    return {"psycopg": f"{psycopg.__version__} ({psycopg.pq.__impl__})", "libpq": f"{major}.{minor}"}


def _connect(settings: dict[str, str]) -> Connection:
    # Statements are not prepared: each runs once, and poolers in transaction mode may not support prepared statements.
    return WatchedConnection.connect("", autocommit=True, prepare_threshold=None, **settings)  # type: ignore[arg-type]


def _user(given: Mapping[str, str]) -> str:
    """Return the user name: the given one, or libpq's default."""
    if named := given.get("user"):
        return named
    defaults = {option.keyword: option.val for option in psycopg.pq.Conninfo.get_defaults()}
    return (defaults.get(b"user") or b"").decode()


def _is_certain_failure(error: psycopg.Error, *, tries_password: bool) -> bool:
    """Return whether a second attempt is no use, or (unless `tries_password`) would send a wrong password again."""
    is_timeout = isinstance(error, psycopg.errors.ConnectionTimeout)
    pgconn = error.pgconn
    return is_timeout or pgconn is None or pgconn.needs_password or (pgconn.used_password and not tries_password)


def _find_refusal_hint(message: str) -> str | None:
    """Return the hint for what the server or libpq refuses, by its message; None if the message is not known."""
    return next((hint for words, hint in _REFUSALS if re.search(words, message)), None)


def _connection_error(error: psycopg.Error, target: str) -> ServerError:
    pgconn = error.pgconn
    if pgconn is not None and (pgconn.needs_password or pgconn.used_password):
        hint = "Give the right password in PGPASSWORD or ~/.pgpass; if the server is a standby, name its primary."
    elif isinstance(error, psycopg.errors.ConnectionTimeout):
        hint = "Check the host name and port, and that no firewall or security group blocks the connection."
    else:
        hint = "Check that the server runs there and that database, user and pg_hba.conf allow this connection."
    return ServerError(
        f"could not connect to {target}",
        detail=str(error).strip(),
        hint=hint,
        sqlstate=error.sqlstate,
    )


def _preparation_error(error: psycopg.Error, target: str, *, role: str | None) -> ServerError:
    report = read_report(error)
    detail = describe_report(report, f"preparing a session on {target}")
    # A server that is shutting down counts as a lost connection: the load waits for it.
    is_lost = report.sqlstate is None and isinstance(error, psycopg.OperationalError)
    is_transient = is_passing(report.sqlstate, is_disconnect=is_lost)
    hint = report.hint
    if role is not None and not is_transient:
        hint = f'Have "{role}" granted to the user who connects, or do not use --role.'
    return ServerError(report.message, detail=detail, hint=hint, sqlstate=report.sqlstate, is_transient=is_transient)


def _make_first_settings(
    connection: Connection, *, version_num: int, read_write: bool
) -> tuple[_InputSettings, PoolerFacts | None, bool, bool]:
    """Read the user's own settings and set penstock's, in one round trip.

    The same query detects a pooler, and reads two facts: whether transactions are read-only by default, and whether
    DateStyle was chosen.

    A select list is evaluated from left to right, so the user's settings are read before penstock's are set. Behind a
    pooler no setting is changed, because other clients use the same backend. Only this statement runs with the user's
    search_path.
    """
    is_direct = compose_is_direct(connection.pgconn)
    # A standby does not count as read-only by default: it is read-only in any case, and no option changes that.
    read_only = sql.SQL(
        "pg_catalog.current_setting('default_transaction_read_only')::pg_catalog.bool"
        " AND NOT pg_catalog.pg_is_in_recovery()"
    )
    head = sql.SQL("pg_catalog.pg_backend_pid(), {}, {}, {}").format(is_direct, read_only, _DATE_ORDER_SOURCE)
    reads = [sql.SQL("pg_catalog.current_setting({})").format(sql.Literal(name)) for name in _InputSettings._fields]
    settings = _fixed_settings(version_num, read_write=read_write) | {"DateStyle": "ISO", "search_path": OWN_PATH}
    makes = [sql.SQL("CASE WHEN {} THEN {} END").format(is_direct, call) for call in _calls(settings)]
    row = _read_first(connection.execute(sql.SQL("SELECT {}").format(sql.SQL(", ").join([head, *reads, *makes]))))
    backend_pid, has_own_session, is_read_only, source, *values = row
    pooler = None if has_own_session else PoolerFacts(told_pid=connection.info.backend_pid, backend_pid=backend_pid)
    return _InputSettings(*values), pooler, is_read_only, source in _CHOSEN


def _read_first(cursor: psycopg.Cursor[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Return the values of the first row. Raises ServerError if they cannot come from a PostgreSQL server."""
    expected = [int, bool, bool, str, *(str for _ in _InputSettings._fields)]
    try:
        rows = [row[: len(expected)] for row in cursor.fetchall()]
    except (ValueError, OverflowError):
        rows = []
    if [list(map(type, row)) for row in rows] != [expected]:
        raise ServerError(
            "the server's answers make no sense",
            detail="The first statement of the session returned other rows than it must, or in another encoding.",
            hint="Check that this is a PostgreSQL server, and what is between it and this machine.",
        )
    return rows[0]


def _compose_settings(pinned: _InputSettings, *, version_num: int, read_write: bool) -> sql.Composed:
    # The output format of DateStyle is always ISO. Only the order of day, month and year matters, for input.
    field_order = pinned.DateStyle.rpartition(", ")[2]
    settings = _fixed_settings(version_num, read_write=read_write) | pinned._asdict()
    settings |= {"DateStyle": f"ISO, {field_order}", "search_path": OWN_PATH}
    settings["IntervalStyle"] = _SETTINGS["IntervalStyle"]
    return sql.SQL("SELECT {}").format(sql.SQL(", ").join(_calls(settings)))


def _fixed_settings(version_num: int, *, read_write: bool) -> dict[str, str]:
    return _SETTINGS | (_SETTINGS_17 if version_num >= 170_000 else {}) | (_READ_WRITE if read_write else {})


def _calls(settings: dict[str, str]) -> list[sql.Composed]:
    return [
        sql.SQL("pg_catalog.set_config({}, {}, false)").format(sql.Literal(name), sql.Literal(value))
        for name, value in settings.items()
    ]


def _log_warning(text: str) -> None:
    _log.warning("%s", text)
