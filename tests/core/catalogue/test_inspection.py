"""What a server shows of itself: to a superuser, to an ordinary role, right by right, and with standbys."""

from __future__ import annotations

import dataclasses
import time
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import sql

from penstock import doctor, load
from penstock.core.catalogue.settings import recognise_flavour, recognise_managers
from penstock.core.connect.connection import ConnectionFactory
from penstock.core.errors import PenstockError, ServerError, TargetError
from penstock.core.values.inspection import Mark
from penstock.embedded.control import make_reachable
from penstock.embedded.programs import run_program
from penstock.embedded.users import choose_server_user
from penstock.ledger.ledger import Ledger
from penstock.preflight.doctor import examine_server, find_directories, inspect_server
from penstock.preflight.view import describe_facts
from support.campaign.plant import Pair
from support.tls import TlsFront, amazon_like_authority

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock.core.connect.connection import Connection
    from penstock.core.values.inspection import Archiver, Inspection
    from penstock.embedded.server import EmbeddedServer
    from support.servers import PgServer, ServerPool


_PATIENCE_S = 60


def until(condition: Callable[[], bool]) -> None:
    """Wait for the server to get there."""
    deadline_s = time.monotonic() + _PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s, "it did not come about"
        time.sleep(0.05)


def inspect(conninfo: str, **options: object) -> Inspection:
    """Return what the server shows to the role of a connection string."""
    with closing(ConnectionFactory(conninfo, allows_standby=True, **options)) as factory:  # type: ignore[arg-type]
        return examine_server(factory)


# ---------------------------------------------------------------- what each role can see


def test_superuser_is_told_everything(database: str, pg: PgServer) -> None:
    """Nothing is left unread, and the settings that later steps decide by are there with source and context."""
    found = inspect(database)
    assert found.unread == ()
    assert (found.server.major, found.flavour.kind, found.managers) == (pg.major, "postgresql", ())
    assert found.rights.is_superuser
    setting = found.setting("max_wal_size")
    assert setting is not None
    assert (setting.unit, setting.context, setting.may_alter_system) == ("MB", "sighup", True)
    if pg.server is not None:
        assert (setting.source, setting.value) == ("configuration file", "1024")
    assert found.autovacuum_workers is not None
    assert found.connections is not None
    assert 0 < found.connections.used <= found.connections.maximum


def test_ordinary_role_is_told_what_it_may_see(user_conninfo: str) -> None:
    """What is hidden is None, not false or zero; nothing fails."""
    found = inspect(user_conninfo)
    assert found.unread == ()
    assert not any(
        getattr(found.rights, field.name)
        for field in dataclasses.fields(found.rights)
        if field.name not in ("creation_schema", "may_make_temporary", "may_create_table", "session_user")
    )
    assert found.value("max_wal_size") is not None
    assert found.value("data_directory") is None
    assert found.autovacuum_workers is None
    assert not any(setting.may_alter_system for setting in found.settings)


GRANTS = {
    "may_create_schema": "GRANT CREATE ON DATABASE {database} TO {role}",
    "reads_statistics": "GRANT pg_read_all_stats TO {role}",
    "reads_settings": "GRANT pg_read_all_settings TO {role}",
    "signals_backends": "GRANT pg_signal_backend TO {role}",
    "may_reload": "GRANT EXECUTE ON FUNCTION pg_catalog.pg_reload_conf() TO {role}",
    "may_replicate": "ALTER ROLE {role} REPLICATION",
    "bypasses_row_security": "ALTER ROLE {role} BYPASSRLS",
}


@pytest.mark.parametrize("right", GRANTS)
def test_each_grant_gives_one_right(connection: Connection, user_conninfo: str, user_name: str, right: str) -> None:
    """A right is there with its grant, not before, and no other comes with it."""
    before = inspect(user_conninfo).rights
    names = {"database": sql.Identifier(connection.info.dbname), "role": sql.Identifier(user_name)}
    connection.execute(sql.SQL(GRANTS[right]).format(**names))
    try:
        assert inspect(user_conninfo).rights == replace(before, **{right: True})
    finally:
        connection.execute(sql.SQL("REVOKE ALL ON FUNCTION pg_catalog.pg_reload_conf() FROM {role}").format(**names))


@pytest.mark.pg(">= 15")
def test_checkpoint_and_parameters_can_be_granted(connection: Connection, user_conninfo: str, user_name: str) -> None:
    """Since 15 there are pg_checkpoint and GRANT ALTER SYSTEM ON PARAMETER."""
    role = sql.Identifier(user_name)
    connection.execute(sql.SQL("GRANT pg_checkpoint TO {}").format(role))
    connection.execute(sql.SQL("GRANT ALTER SYSTEM ON PARAMETER max_wal_size TO {}").format(role))
    found = inspect(user_conninfo)
    connection.execute(sql.SQL("REVOKE ALL ON PARAMETER max_wal_size FROM {}").format(role))
    assert found.rights.may_checkpoint
    assert [setting.name for setting in found.settings if setting.may_alter_system] == ["max_wal_size"]


def test_temporary_right_is_the_databases(connection: Connection, user_conninfo: str) -> None:
    """Everybody has it until it is taken from PUBLIC."""
    assert inspect(user_conninfo).rights.may_make_temporary
    name = sql.Identifier(connection.info.dbname)
    connection.execute(sql.SQL("REVOKE TEMPORARY ON DATABASE {} FROM PUBLIC").format(name))
    assert not inspect(user_conninfo).rights.may_make_temporary


def test_membership_without_inherit_is_no_right(connection: Connection, user_conninfo: str, user_name: str) -> None:
    """The server asks for USAGE of a predefined role: what SET ROLE alone would give does not count."""
    role = sql.Identifier(user_name)
    connection.execute(sql.SQL("ALTER ROLE {} NOINHERIT").format(role))
    connection.execute(sql.SQL("GRANT pg_read_all_stats TO {}").format(role))
    assert not inspect(user_conninfo).rights.reads_statistics


def test_password_that_expires_is_told(connection: Connection, user_conninfo: str, user_name: str) -> None:
    """That of the role that has logged in, also if it has taken another."""
    until = sql.SQL("ALTER ROLE {} VALID UNTIL {}")
    role = sql.Identifier(user_name)
    connection.execute(until.format(role, sql.Literal("infinity")))
    assert inspect(user_conninfo).rights.password_ends_in_s is None
    ((tomorrow,),) = connection.execute("SELECT (now() + '1 day')::text").fetchall()
    connection.execute(until.format(role, sql.Literal(tomorrow)))
    connection.execute(sql.SQL("GRANT pg_monitor TO {}").format(role))
    rights = inspect(user_conninfo, role="pg_monitor").rights
    assert rights.session_user == user_name
    assert rights.password_ends_in_s == pytest.approx(86_400, abs=3_600)


@pytest.mark.pg(">= 19")
def test_effective_level_of_wal_is_told(new_server: Callable[..., EmbeddedServer], pg_major: int) -> None:
    """A logical slot raises it, without a change of the setting."""
    conninfo = new_server(pg_major, wal_level="replica").ensure_running()
    with psycopg.connect(conninfo, autocommit=True) as admin:
        assert inspect(conninfo).value("effective_wal_level") == "replica"
        admin.execute("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    found = inspect(conninfo)
    assert (found.value("wal_level"), found.value("effective_wal_level")) == ("replica", "logical")
    assert "wal_level replica, effective_wal_level logical, " in dict(describe_facts(found))["settings"]


def test_rights_are_the_taken_roles(database: str, user_name: str) -> None:
    """After SET ROLE the rights that count are the role's."""
    assert not inspect(database, role=user_name).rights.is_superuser


# ---------------------------------------------------------------- what is there


def test_ledger_is_told_with_rights(connection: Connection, database: str, user_conninfo: str, user_name: str) -> None:
    """Missing and out of reach; then granted on the database; then there, and usable when its tables are granted."""
    role, name = sql.Identifier(user_name), sql.Identifier(connection.info.dbname)

    def ledger() -> tuple[bool, bool, bool]:
        state = inspect(user_conninfo).ledger
        assert state is not None
        return state.exists, state.may_create, state.may_write

    assert ledger() == (False, False, False)
    connection.execute(sql.SQL("GRANT CREATE ON DATABASE {} TO {}").format(name, role))
    assert ledger() == (False, True, False)
    with ConnectionFactory(database).connect() as session:
        Ledger().ensure(session)
    assert ledger()[2] is False
    connection.execute(sql.SQL("GRANT USAGE ON SCHEMA penstock TO {}").format(role))
    connection.execute(
        sql.SQL("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA penstock TO {}").format(role)
    )
    assert (ledger()[0], ledger()[2]) == (True, True)


def test_ledger_of_somebody_else_is_distrusted(connection: Connection, database: str, user_name: str) -> None:
    """As a load would say it."""
    connection.execute(sql.SQL("CREATE SCHEMA penstock AUTHORIZATION {}").format(sql.Identifier(user_name)))
    state = inspect(database).ledger
    assert state is not None
    assert state.distrust is not None
    assert state.distrust.claim.startswith("cannot trust the ledger")


def test_slot_keeps_wal(connection: Connection, database: str, user_name: str) -> None:
    """Every role sees a physical slot that reserves WAL, and how much WAL it retains."""
    slot = f"kept_{connection.info.backend_pid}"
    connection.execute("SELECT pg_create_physical_replication_slot(%s, true)", [slot])
    try:
        found = {each.name: each for each in inspect(database, role=user_name).slots or ()}[slot]
    finally:
        connection.execute("SELECT pg_drop_replication_slot(%s)", [slot])
    assert (found.kind, found.is_active, found.wal_status) == ("physical", False, "reserved")
    assert found.retained_bytes is not None
    assert found.retained_bytes >= 0


def test_publications_are_told(connection: Connection, user_conninfo: str) -> None:
    """Those for all tables are marked."""
    connection.execute("CREATE TABLE public.t (a int); CREATE PUBLICATION one FOR TABLE public.t")
    connection.execute("CREATE PUBLICATION everything FOR ALL TABLES")
    found = inspect(user_conninfo).publications or ()
    assert [(each.name, each.is_all_tables) for each in found] == [("everything", True), ("one", False)]


@pytest.mark.part("rest")
def test_archiver_that_fails_is_told(new_server: Callable[..., EmbeddedServer]) -> None:
    """A command that fails is counted, with the time; one that works after it ends the failing."""
    server = new_server(archive_mode="on", archive_command="false", wal_level="replica")
    conninfo = server.ensure_running()
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS a")
        connection.execute("SELECT pg_switch_wal()")
        until(lambda: _archiver(conninfo).failed > 0)
        failing = _archiver(conninfo)
        assert failing.is_failing
        # The first segment has failed, so all WAL since its begin waits.
        assert failing.lag_bytes is not None
        assert 16 * 1024 * 1024 <= failing.lag_bytes < 3 * 16 * 1024 * 1024
        connection.execute("ALTER SYSTEM SET archive_command = 'true'")
        connection.execute("SELECT pg_reload_conf()")
        until(lambda: _archiver(conninfo).archived > 0)
        connection.execute("INSERT INTO t SELECT generate_series(1, 1000)")
        archiver = _archiver(conninfo)
    assert not archiver.is_failing
    assert archiver.lag_bytes is not None
    # All within the segment after the last one archived
    assert 0 <= archiver.lag_bytes < 2 * 16 * 1024 * 1024


def _archiver(conninfo: str) -> Archiver:
    found = inspect(conninfo).archiver
    assert found is not None
    return found


@pytest.mark.part("rest")
def test_setting_that_waits_for_a_restart_is_told(new_server: Callable[..., EmbeddedServer]) -> None:
    """pending_restart is pg_settings' word, once the new value was read."""
    conninfo = new_server().ensure_running()
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET max_connections = 55")
        connection.execute("SELECT pg_reload_conf()")

        def is_pending() -> bool:
            setting = inspect(conninfo).setting("max_connections")
            return setting is not None and setting.is_pending_restart

        until(is_pending)


def test_clock_difference_is_the_servers_lead(user_connection: Connection) -> None:
    """Between two looks at our clock the server's is taken to be in the middle."""
    real = inspect_server(user_connection, pooler=None).clock
    ticks = iter([1000.0, 1000.5])
    faked = inspect_server(user_connection, pooler=None, clock=lambda: next(ticks)).clock
    assert real is not None
    assert faked is not None
    # The embedded server has this host's clock.
    assert abs(real.ahead_s) <= real.error_s + 1.0
    assert faked.error_s == 0.25
    assert faked.ahead_s > 1e9


def test_query_that_a_server_refuses_is_named(
    connection: Connection, user_connection: Connection, user_name: str
) -> None:
    """On Aurora, for example, some functions of replication do not exist. The rest is reported nevertheless."""
    connection.execute("REVOKE EXECUTE ON FUNCTION pg_catalog.pg_get_replication_slots() FROM PUBLIC")
    found = inspect_server(user_connection, pooler=None)
    assert [note.what for note in found.unread] == ["replication slots"]
    assert "pg_get_replication_slots" in found.unread[0].why
    assert found.slots is None
    assert found.standbys == ()


# ---------------------------------------------------------------- standbys


@pytest.fixture(scope="module", params=[18, 16])
def pair(request: pytest.FixtureRequest, servers: ServerPool) -> Iterator[Pair]:
    """Provide a primary and its synchronous standby."""
    made = Pair(servers, request.param)
    yield made
    for server in made.servers:
        server.stop("immediate")


@pytest.mark.part("rest")
def test_standby_is_told_with_lag(pair: Pair) -> None:
    """By its application name, with what it has not replayed."""
    [standby] = inspect(pair.primary.conninfo()).standbys or ()
    assert (standby.name, standby.state, standby.sync_state) == ("standby", "streaming", "sync")
    assert standby.lag_bytes is not None
    assert standby.lag_bytes >= 0


def test_standby_is_hidden_from_an_ordinary_role(pair: Pair) -> None:
    """That there is one is seen; all else is None."""
    with psycopg.connect(pair.primary.conninfo(), autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS onlooker")
        connection.execute("CREATE ROLE onlooker LOGIN")
    [standby] = inspect(pair.primary.conninfo(), role="onlooker").standbys or ()
    assert (standby.state, standby.sync_state, standby.lag_bytes) == (None, None, None)


def test_standby_itself_is_told_with_its_primary(pair: Pair) -> None:
    """It is in recovery, its receiver streams, and nothing of the inspection fails there."""
    found = inspect(pair.standby.conninfo())
    assert found.server.is_in_recovery
    assert found.unread == ()
    assert found.receiver is not None
    assert found.receiver.status == "streaming"
    assert found.receiver.sender_host == str(pair.primary.spec.files.socket_dir)
    assert (found.receiver.lag_bytes or 0) >= 0


def test_load_and_doctor_refuse_a_standby_with_the_same_words(pair: Pair, tmp_path: Path) -> None:
    """The load refuses it before it looks for the table, if the connection string accepts a standby."""
    (tmp_path / "t.csv").write_text("a\n1\n")
    where: dict[str, Any] = {"to": f"{pair.standby.conninfo()} target_session_attrs=any", "into": "t", "create": True}
    (found,) = (each for each in doctor(**where).findings if each.severity == "refusal")
    with pytest.raises(TargetError) as caught:
        load(tmp_path / "t.csv", **where)
    assert (caught.value.message, found.code) == (found.claim, "server")


@pytest.mark.parametrize(
    "options",
    ["", " target_session_attrs=any", " target_session_attrs=any options='-c default_transaction_read_only=on'"],
)
def test_load_into_a_standby_is_not_told_to_use_read_write(pair: Pair, tmp_path: Path, options: str) -> None:
    """No option makes a standby writable."""
    (tmp_path / "t.csv").write_text("a\n1\n")
    with pytest.raises(PenstockError) as caught:
        load(tmp_path / "t.csv", to=f"{pair.standby.conninfo()}{options}", into="t", create=True)
    assert "primary" in (caught.value.hint or "")
    assert "--read-write" not in (caught.value.hint or "")


@pytest.mark.part("rest")
def test_standby_that_asks_for_a_password_is_told(pair: Pair) -> None:
    """As every read replica of Amazon RDS does; the first attempt, for a primary, has used the password."""
    socket = str(pair.standby.spec.files.socket_dir / ".s.PGSQL.5432")
    admit: Callable[[str, str], str | None] = lambda _, password: None if password == "right" else "wrong"  # noqa: E731
    front = TlsFront(amazon_like_authority(), "replica", socket, admit=admit)
    given = f"host=replica hostaddr=127.0.0.1 port={front.port} user=postgres dbname=postgres"
    try:
        assert inspect(f"{given} password=right").server.is_in_recovery
        with pytest.raises(ServerError):
            ConnectionFactory(f"{given} password=right").connect()
        with pytest.raises(ServerError):
            inspect(f"{given} password=wrong")
    finally:
        front.close()


def test_primary_of_several_hosts_is_preferred(pair: Pair) -> None:
    """Who will do with a standby still gets the primary where there is one."""
    hosts = ",".join(str(server.spec.files.socket_dir) for server in (pair.standby, pair.primary))
    assert not inspect(f"host={hosts} port=5432,5432 user=postgres dbname=postgres").server.is_in_recovery


# ---------------------------------------------------------------- the host


def test_local_servers_disks_are_measured(database: str, pg: PgServer) -> None:
    """Data directory and WAL of a server on this machine, with free space."""
    if pg.server is None:
        pytest.skip("only an embedded server's files are sure to be here")
    host = inspect(database).host
    assert host is not None
    assert (host.cpu_count >= 1, host.memory_bytes > 0) == (True, True)
    assert [volume.holds for volume in host.volumes] == ["data directory", "WAL"]
    assert all(0 < volume.free_bytes <= volume.size_bytes for volume in host.volumes)
    assert host.volumes[0].path == str(pg.server.data_dir.resolve())


def test_paths_that_are_hidden_have_no_disks(user_conninfo: str) -> None:
    """An ordinary role does not learn where the data directory is."""
    assert find_directories(inspect(user_conninfo)) == []


# ---------------------------------------------------------------- recognition


def marks(*pairs: str) -> list[Mark]:
    """Return marks written as "kind name"; the command line's kind has two words."""
    made = []
    for pair in pairs:
        kind, _, name = pair.rpartition(" ") if pair.startswith("command line") else pair.partition(" ")
        made.append(Mark(kind=kind, name=name))
    return made


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        ([], "postgresql"),
        (["setting rds.extensions", "role rds_superuser"], "rds"),
        (["setting rds.extensions", "role rds_superuser", "function pg_catalog.aurora_version()"], "aurora"),
        (["setting rds.extensions", "setting rds.extensions with aurora_stat_utils"], "aurora"),
        (["role cloudsqlsuperuser"], "cloud-sql"),
        (["role alloydbsuperuser", "role cloudsqlsuperuser"], "alloydb"),
        (["setting azure.extensions", "extension citus"], "azure"),
        (["setting neon.timeline_id"], "neon"),
        (["role supabase_admin"], "supabase"),
        (["extension citus"], "citus"),
    ],
)
def test_flavour_is_told_by_its_marks(found: list[str], kind: str) -> None:
    """What only a service has names it, the more particular one first."""
    assert recognise_flavour(marks(*found)).kind == kind


def test_multi_az_cluster_is_what_rds_tools_says() -> None:
    """The function exists on instances too; its answer decides."""
    found = marks("setting rds.extensions", "function rds_tools.multi_az_db_cluster_source_dbi_resource_id()")
    assert recognise_flavour(found).kind == "rds"
    assert recognise_flavour(found, is_multi_az_cluster=True).kind == "rds-cluster"


@pytest.mark.pg(">= 17")
def test_rds_tools_is_asked_on_a_real_server(connection: Connection) -> None:
    """A function of that name stands for Amazon's, which runs nowhere else; settings and role are as there."""
    connection.execute("CREATE SCHEMA rds_tools")
    connection.execute(
        "CREATE FUNCTION rds_tools.multi_az_db_cluster_source_dbi_resource_id("
        "OUT multi_az_db_cluster_source_dbi_resource_id text) LANGUAGE sql AS $$ SELECT 'db-ABC' $$"
    )
    connection.execute("SET rds.extensions = 'plpgsql, rds_tools'")
    assert inspect_server(connection, pooler=None).flavour.kind == "rds-cluster"


@pytest.mark.parametrize(
    ("found", "names"),
    [
        (["command line cluster_name"], []),
        (
            [f"command line {name}" for name in ("cluster_name", "hot_standby", "wal_level", "wal_log_hints")],
            ["Patroni"],
        ),
        (["setting cnpg.config_sha256"], ["CloudNativePG"]),
        (["command archive_command with /controller/manager"], ["CloudNativePG"]),
        (["role _crunchyrepl"], ["Crunchy Postgres for Kubernetes"]),
        (["role robot_zmon"], ["Zalando's operator or Spilo"]),
    ],
)
def test_manager_is_told_by_its_marks(found: list[str], names: list[str]) -> None:
    """One setting on the command line is anybody's; Patroni's always come together."""
    told = recognise_managers(marks(*found), cluster_name=None)
    assert [manager.name for manager in told] == names


@pytest.mark.part("rest")
def test_patroni_is_recognised_on_a_server_started_as_it_does(new_server: Callable[..., EmbeddedServer]) -> None:
    """The settings that Patroni passes on the command line have that source in pg_settings."""
    server = new_server()
    server.ensure_running()
    server.stop()
    user = choose_server_user(server.data_dir)
    installation = (
        server.spec.installation if user is None else make_reachable(server.spec.installation, user, server.spec.copies)
    )
    run_program(
        [
            installation.program("pg_ctl"),
            "start",
            f"--pgdata={server.data_dir}",
            f"--log={server.spec.files.log}",
            "--wait",
            "--silent",
            "--options=--cluster_name=batman --hot_standby=on --wal_level=replica --wal_log_hints=on",
        ],
        purpose="start a server",
        user=user,
        timeout_s=60,
        cwd=server.data_dir,
    )
    [manager] = inspect(server.conninfo()).managers
    assert manager.name == 'Patroni (cluster "batman")'
