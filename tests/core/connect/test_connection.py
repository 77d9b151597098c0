"""The connection factory against real servers, and what it makes of connection strings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from penstock.core.connect import connection as connections
from penstock.core.connect.connection import ConnectionFactory, describe_connection, has_connection_settings
from penstock.core.connect.conninfo import describe_target, given_settings, missing_defaults, parse_conninfo
from penstock.core.connect.search_path import users_settings
from penstock.core.errors import ServerError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.core.connect.connection import Connection
    from support.servers import PgServer


def show(connection: Connection, setting: str) -> str:
    """Return a setting's value."""
    (value,) = connection.execute("SELECT current_setting(%s)", [setting]).fetchone() or ("",)
    return str(value)


def alter_role(connection: Connection, role: str, setting: str, value: str) -> None:
    """Give a role its own default for a setting."""
    connection.execute(
        sql.SQL("ALTER ROLE {} SET {} = {}").format(sql.Identifier(role), sql.Identifier(setting), sql.Literal(value))
    )


def test_server_asks_whether_a_silent_client_lives(database18: str) -> None:
    """It is said on a Unix socket too, where it means nothing."""
    query = "SELECT DISTINCT source FROM pg_catalog.pg_settings WHERE name LIKE 'tcp\\_keepalives\\_%'"
    with ConnectionFactory(database18).connect() as session:
        assert session.execute(query).fetchall() == [("session",)]


@pytest.mark.parametrize(
    ("setting", "hurtful", "wanted"),
    [
        ("statement_timeout", "5min", "0"),
        ("idle_in_transaction_session_timeout", "5min", "0"),
        ("idle_session_timeout", "5min", "0"),
        ("default_transaction_read_only", "on", "on"),
        ("default_transaction_isolation", "serializable", "read committed"),
        ("default_transaction_deferrable", "on", "off"),
        ("IntervalStyle", "sql_standard", "postgres"),
        ("extra_float_digits", "-3", "1"),
        ("row_security", "off", "on"),
        ("quote_all_identifiers", "on", "off"),
        ("lock_timeout", "5min", "5min"),
    ],
)
def test_session_overrides_what_a_role_sets_to_a_loads_harm(
    connection: Connection, user_name: str, user_conninfo: str, setting: str, hurtful: str, wanted: str
) -> None:
    """A role's timeouts and transaction defaults do not reach a session, its lock_timeout does."""
    alter_role(connection, user_name, setting, hurtful)
    with ConnectionFactory(user_conninfo).connect() as session:
        assert show(session, setting) == wanted


def test_read_write_is_said_aloud(connection: Connection, user_name: str, user_conninfo: str) -> None:
    """Every session of the factory then writes, the first one too."""
    alter_role(connection, user_name, "default_transaction_read_only", "on")
    factory = ConnectionFactory(user_conninfo, read_write=True)
    for _ in range(2):
        with factory.connect() as session:
            assert show(session, "transaction_read_only") == "off"
    assert factory.explain_unwritable("load") is None


@pytest.mark.pg(">= 17")
def test_session_has_no_transaction_timeout(connection: Connection, user_name: str, user_conninfo: str) -> None:
    """transaction_timeout is switched off where there is one."""
    alter_role(connection, user_name, "transaction_timeout", "5min")
    with ConnectionFactory(user_conninfo).connect() as session:
        assert show(session, "transaction_timeout") == "0"


def test_later_sessions_read_input_as_the_first_one_does(
    connection: Connection, user_name: str, user_conninfo: str
) -> None:
    """The user's field order and time zone are kept, and pinned for a factory's sessions."""
    alter_role(connection, user_name, "DateStyle", "German, DMY")
    alter_role(connection, user_name, "TimeZone", "Asia/Tokyo")
    alter_role(connection, user_name, "IntervalStyle", "iso_8601")
    factory = ConnectionFactory(user_conninfo)
    with factory.connect():
        pass
    connection.execute(sql.SQL("ALTER ROLE {} RESET ALL").format(sql.Identifier(user_name)))
    with factory.connect() as second:
        values = [show(second, setting) for setting in ("DateStyle", "TimeZone", "IntervalStyle")]
    assert values == ["ISO, DMY", "Asia/Tokyo", "postgres"]


def test_search_path_is_penstocks_own_but_where_the_users_is_asked_for(
    connection: Connection, user_name: str, user_conninfo: str
) -> None:
    """On the first session and on later ones; an error in between leaves the session as it was."""
    connection.execute(
        sql.SQL("ALTER ROLE {} SET search_path = public, information_schema").format(sql.Identifier(user_name))
    )
    factory = ConnectionFactory(user_conninfo)
    with factory.connect() as first, factory.connect() as second:
        for session in (first, second):
            with users_settings(session):
                assert show(session, "search_path") == "public, information_schema"
            with pytest.raises(psycopg.errors.DivisionByZero), users_settings(session):
                session.execute("SELECT 1 / 0")
            assert show(session, "search_path") == "pg_catalog, pg_temp"
            with session.transaction():
                with users_settings(session):
                    pass
                assert show(session, "search_path") == "pg_catalog, pg_temp"


def test_pgtz_decides_the_time_zone(database18: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Libpq's PGTZ is the user's word on TimeZone."""
    monkeypatch.setenv("PGTZ", "America/Lima")
    with ConnectionFactory(database18).connect() as session:
        assert show(session, "TimeZone") == "America/Lima"


def test_session_is_in_autocommit_mode_with_the_asked_encoding(database18: str) -> None:
    """Callers begin transactions themselves; the encoding is the session's."""
    with ConnectionFactory(database18).connect(encoding="LATIN1") as session:
        assert session.autocommit
        assert show(session, "client_encoding") == "LATIN1"


def test_label_tells_sessions_apart(database18: str) -> None:
    """A label ends the application name."""
    with ConnectionFactory(database18).connect(label="session 2") as session:
        assert show(session, "application_name") == "penstock session 2"


def test_users_application_name_is_kept(database18: str) -> None:
    """A name in the connection string wins."""
    factory = ConnectionFactory(make_conninfo(database18, application_name="nightly"))
    with factory.connect(label="1") as session:
        assert show(session, "application_name") == factory.application == "nightly"
    assert ConnectionFactory(database18).application == "penstock"


def test_role_is_taken(database: str, user_name: str) -> None:
    """A role whose name needs quotes becomes the current user."""
    with ConnectionFactory(database, role=user_name).connect() as session:
        assert session.execute("SELECT current_user").fetchone() == (user_name,)


def test_role_that_may_not_be_taken_is_named(user_conninfo: str) -> None:
    """An ordinary user cannot become a superuser. The error names the grant that is needed."""
    with pytest.raises(ServerError) as caught:
        ConnectionFactory(user_conninfo, role="pg_monitor").connect()
    assert caught.value.sqlstate == "42501"
    assert '"pg_monitor"' in (caught.value.hint or "")


def test_failed_connection_names_target_and_hides_password() -> None:
    """Nobody listens on port 1."""
    with pytest.raises(ServerError) as caught:
        ConnectionFactory("postgresql://ann:hunter2@127.0.0.1:1/shop").connect()
    assert caught.value.message == "could not connect to host=127.0.0.1 port=1 dbname=shop user=ann"
    assert "hunter2" not in str(caught.value)


def test_refusal_by_a_connection_limit_names_the_limit(database: str, user_name: str, user_conninfo: str) -> None:
    """The password was right, and libpq reports no SQLSTATE."""
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute(sql.SQL("ALTER ROLE {} CONNECTION LIMIT 0").format(sql.Identifier(user_name)))
    with pytest.raises(ServerError) as caught:
        ConnectionFactory(user_conninfo).connect()
    assert "connection limit" in (caught.value.hint or "")


def test_server_without_the_wanted_kind_of_session_points_to_the_primary(
    database: str, user_name: str, user_conninfo: str
) -> None:
    """As a standby does, a role's read-only default misses target_session_attrs=read-write."""
    with psycopg.connect(database, autocommit=True) as admin:
        alter_role(admin, user_name, "default_transaction_read_only", "on")
    with pytest.raises(ServerError) as caught:
        ConnectionFactory(make_conninfo(user_conninfo, target_session_attrs="read-write")).connect()
    assert "primary" in (caught.value.hint or "")
    assert "password" not in (caught.value.hint or "")


@pytest.fixture
def over_tcp(pg: PgServer, database: str, user_name: str) -> str:
    """Provide a connection string with which a role with a password connects over TCP, which asks for it."""
    return make_conninfo(pg.over_tcp(database), user=user_name, password="hunter2")


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"dbname": "no such database"}, "existing database"),
        ({"dbname": "template0"}, "another database"),
        ({"password": "wrong"}, "password"),
        ({"options": "-c statement_timeout=abc"}, "setting"),
        ({"options": "-c nothing_at_all=1"}, "setting"),
        ({"sslmode": "nonsense"}, "setting"),
        ({"port": "70000"}, "setting"),
    ],
)
def test_refusal_over_tcp_says_what_is_refused(over_tcp: str, setting: dict[str, str], words: str) -> None:
    """The server asks for a password before it looks for the database; the password is at fault only if it is wrong."""
    with pytest.raises(ServerError) as caught:
        ConnectionFactory(make_conninfo(over_tcp, **setting)).connect()
    assert words in (caught.value.hint or "")
    assert ("right password" in (caught.value.hint or "")) == ("password" in setting)
    assert not caught.value.is_transient


def test_role_that_does_not_exist_is_named_where_no_password_is_asked_for(database18: str) -> None:
    """The embedded server trusts those who reach its socket."""
    with pytest.raises(ServerError) as caught:
        ConnectionFactory(make_conninfo(database18, user="nobody_at_all")).connect()
    assert "role that exists" in (caught.value.hint or "")


def test_database_that_a_role_may_not_use_is_not_blamed_on_its_password(database: str, over_tcp: str) -> None:
    """The privilege to connect is missing."""
    name = str(conninfo_to_dict(over_tcp)["dbname"])
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute(sql.SQL("REVOKE CONNECT ON DATABASE {} FROM PUBLIC").format(sql.Identifier(name)))
    with pytest.raises(ServerError) as caught:
        ConnectionFactory(over_tcp).connect()
    assert "grant CONNECT" in (caught.value.hint or "")


@pytest.mark.parametrize("value", ["database", "true", "ON", "1"])
@pytest.mark.parametrize("allows_standby", [False, True])
def test_replication_connection_is_refused_before_it_is_opened(value: str, *, allows_standby: bool) -> None:
    """No server is asked: nobody listens on port 1."""
    conninfo = f"host=127.0.0.1 port=1 replication={value}"
    with pytest.raises(UsageError):
        ConnectionFactory(conninfo, allows_standby=allows_standby).connect()


@pytest.mark.parametrize("kind", ["standby", "read-only"])
def test_server_that_cannot_be_written_is_asked_for_by_readers_only(kind: str) -> None:
    """A load would be retried for minutes, because a standby may be promoted."""
    conninfo = f"host=127.0.0.1 port=1 target_session_attrs={kind}"
    with pytest.raises(UsageError):
        ConnectionFactory(conninfo).connect()
    with pytest.raises(ServerError):
        ConnectionFactory(conninfo, allows_standby=True).connect()


def test_debug_lines_of_a_server_are_no_warnings(database: str) -> None:
    """PGOPTIONS may ask for them until the session's own settings are made."""
    heard: list[str] = []
    factory = ConnectionFactory(make_conninfo(database, options="-c client_min_messages=debug5"))
    factory.on_warning = heard.append
    with factory.connect() as session:
        session.execute("SELECT 1")
    assert heard == []


def test_missing_database_is_a_server_error(database18: str) -> None:
    """Libpq's words are the detail."""
    with pytest.raises(ServerError) as caught:
        ConnectionFactory(make_conninfo(database18, dbname="no such database")).connect()
    assert '"no such database"' in (caught.value.detail or "")


def test_description_of_a_session_has_no_password(user_conninfo: str, user_name: str) -> None:
    """Messages name host, port, database and user."""
    factory = ConnectionFactory(user_conninfo)
    with factory.connect() as session:
        texts = [describe_connection(session), factory.safe_description, repr(factory)]
    assert all(f"user={user_name}" in text and "hunter2" not in text for text in texts)


def test_notices_are_logged(database18: str, caplog: pytest.LogCaptureFixture) -> None:
    """A warning of the server reaches the log."""
    with ConnectionFactory(database18).connect() as session:
        session.execute("DO $$ BEGIN RAISE WARNING 'mind the gap'; END $$")
    assert "WARNING: mind the gap" in caplog.text


def test_service_file_names_server_and_keeps_its_own_settings(
    database18: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service's application_name is not overridden by penstock's."""
    settings = psycopg.conninfo.conninfo_to_dict(database18)
    lines = [f"{key}={value}" for key, value in settings.items()]
    service_file = tmp_path / "services.conf"
    service_file.write_text("\n".join(["[ours]", *lines, "application_name=by service", ""]))
    monkeypatch.setenv("PGSERVICEFILE", str(service_file))
    with ConnectionFactory("service=ours").connect(label="1") as session:
        assert show(session, "application_name") == "by service"


@pytest.mark.parametrize(
    "conninfo",
    [
        "host=h password=two hunter2",
        "postgresql://ann:hunter2%zz@h/db",
        "postgresql://ann:hunter2@[::1/db",
        "postgre://ann:hunter2@h/db",
        "ann:hunter2@h:5432/db",
        "postgresql://ann:p/hunter2@h/db",
        "postgresql://ann:p@hunter2@h/db",
        "postgresql://ann:p@x:hunter2@h/db",
        "host=ann:hunter2@h dbname=db",
    ],
)
def test_unreadable_connection_string_is_not_repeated(conninfo: str) -> None:
    """What libpq cannot read may be a password, so that neither message nor cause shows it."""
    with pytest.raises(UsageError) as caught:
        parse_conninfo(conninfo)
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("conninfo", "host"),
    [
        ("postgresql://h/db", "h"),
        ("postgresql://h:5432/db?user=u", "h"),
        ("postgresql:///db?user=a@b", None),
        ("postgresql://u@h1,h2/db", "h1,h2"),
        ("postgresql://u:p%2Fq%40r@h/db", "h"),
        ("host=@abstract dbname=db", "@abstract"),
        ("host=/run/a@b dbname=db", "/run/a@b"),
    ],
)
def test_what_is_no_part_of_a_password_is_read(conninfo: str, host: str | None) -> None:
    """A slash or an @ in its place."""
    found = parse_conninfo(conninfo)
    assert (found.get("host"), found["dbname"]) == (host, "db")


def test_bare_word_is_a_database_name() -> None:
    """As psql takes it."""
    assert parse_conninfo("shop") == {"dbname": "shop"}


@pytest.mark.parametrize(
    ("environ", "is_named"),
    [
        ({"PGHOST": "h"}, True),
        ({"PGSERVICE": "s"}, True),
        ({"PGDATABASE": "d"}, True),
        ({"PGUSER": "u"}, True),
        ({"PGPASSWORD": "p"}, True),
        ({"PGSERVICEFILE": "f"}, True),
        ({"PG_COLOR": "always", "PENSTOCK_HOME": "h"}, False),
        ({"PGHOST": ""}, True),
        ({"PGCONNECT_TIMEOUT": "5"}, True),
        ({"PGOPTIONS": "-c datestyle=ISO,DMY", "PGDATESTYLE": "ISO", "PGTZ": "UTC", "PGGEQO": "off"}, False),
        ({"PGOPTIONS": "-c datestyle=ISO,DMY", "PGHOST": "h"}, True),
    ],
)
def test_variables_that_name_a_server(environ: dict[str, str], is_named: bool) -> None:
    """Any of libpq's own counts, except settings of a session, which a hint names for whichever server is used."""
    assert has_connection_settings(environ) is is_named


def test_service_file_means_libpqs_default(tmp_path: Path) -> None:
    """Whoever has one has servers of their own."""
    environ = {"HOME": str(tmp_path)}
    assert not has_connection_settings(environ)
    (tmp_path / ".pg_service.conf").touch()
    assert has_connection_settings(environ)


def test_defaults_fill_only_what_the_user_left_open() -> None:
    """Connection string and variables both outrank penstock's defaults."""
    given = given_settings({"keepalives_idle": "5"}, {"PGTARGETSESSIONATTRS": "any", "PGCONNECT_TIMEOUT": "2"})
    defaults = missing_defaults(given, application_name="penstock")
    assert {"keepalives_idle", "target_session_attrs", "connect_timeout"}.isdisjoint(defaults)
    assert defaults["keepalives_count"] == "3"


@pytest.mark.parametrize(
    ("host", "allows_standby", "kind"),
    [("db1", False, "primary"), ("db1,db2", False, "read-write"), ("db1,db2", True, "primary")],
)
def test_defaults_ask_for_a_primary(host: str, allows_standby: bool, kind: str) -> None:
    """Of several hosts for one that is not made read-only; a role's own default_transaction_read_only fails that."""
    defaults = missing_defaults({"host": host}, application_name="penstock", allows_standby=allows_standby)
    assert defaults["target_session_attrs"] == kind


def test_connection_string_outranks_service_outranks_variable(tmp_path: Path) -> None:
    """Libpq's own precedence."""
    service_file = tmp_path / "services.conf"
    service_file.write_text("# comment\n[other]\nuser=x\n[ours]\nhost=by-service\nport=1\n[last]\nport=9\n")
    environ = {
        "PGSERVICEFILE": str(service_file),
        "PGSERVICE": "ours",
        "PGHOST": "by-variable",
        "PGUSER": "u",
    }
    given = given_settings({"port": "2"}, environ)
    assert (given["host"], given["port"], given["user"]) == ("by-service", "2", "u")


def test_description_leaves_out_what_could_hold_a_password() -> None:
    """A URI in the place of a database name is not shown."""
    assert describe_target({"dbname": "postgresql://u:hunter2@h/db", "host": "h"}) == "host=h"


def test_borrowed_session_is_kept_for_the_next(database18: str) -> None:
    """Who borrows or takes after another gets the same session, and no session is left at the end."""
    factory = ConnectionFactory(database18)
    with factory.borrow() as first:
        pid = first.info.backend_pid
    with factory.borrow() as second:
        assert second.info.backend_pid == pid
    with factory.take(label="third") as third:
        assert third.info.backend_pid == pid
    with factory.borrow() as fourth:
        assert fourth.info.backend_pid != pid
    factory.close()
    assert fourth.closed


def test_kept_session_that_the_server_ended_is_replaced(database18: str) -> None:
    """A kept session that has ended meanwhile is noticed without a statement failing."""
    factory = ConnectionFactory(database18)
    with factory.borrow() as first:
        pid = first.info.backend_pid
    with psycopg.connect(database18, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
    with factory.borrow() as second:
        assert second.execute("SELECT 1").fetchone() == (1,)
    factory.close()


def test_borrowed_session_that_failed_is_not_kept(database18: str) -> None:
    """A session whose borrower met an error is closed."""
    factory = ConnectionFactory(database18)
    with pytest.raises(psycopg.errors.DivisionByZero), factory.borrow() as first:
        first.execute("SELECT 1 / 0")
    assert first.closed
    factory.close()


def test_session_lost_while_it_is_prepared_is_a_fault_that_passes(
    database18: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever loads waits and connects again, as after any lost connection."""
    make_settings = connections._make_first_settings

    def lose_first(session: Connection, **given: Any) -> object:
        with psycopg.connect(database18, autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(%s, 10000)", [session.info.backend_pid])
        return make_settings(session, **given)

    monkeypatch.setattr(connections, "_make_first_settings", lose_first)
    with pytest.raises(ServerError) as caught:
        ConnectionFactory(database18).connect()
    assert caught.value.is_transient
