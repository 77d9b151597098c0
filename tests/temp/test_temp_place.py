"""A place for temporary work: made and proved, refused with reasons, checked and removed."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from penstock.changes.records import TableStore
from penstock.changes.values import SERVER, Hold
from penstock.cli.main import main
from penstock.core.connect.connection import ConnectionFactory
from penstock.core.connect.errors import translate_errors
from penstock.core.errors import TargetError, UsageError
from penstock.core.values.temp_place import TABLESPACE, Placement, Scope
from penstock.ledger.ledger import Ledger
from penstock.restore.repair import Repairer
from penstock.temp.place.kind import make_change
from support.changed_server import ChangedServer
from support.codes import has_code
from support.placed import PlacedServer, make_directory, placed_server
from support.servers import TEST_SETTINGS, USUAL_MAJOR

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.embedded.server import EmbeddedServer
    from support.servers import ServerPool


# Another user of the machine.
_NOBODY = 65534


@pytest.fixture
def placed(servers: ServerPool) -> Iterator[PlacedServer]:
    """Provide a server of the newest version, and a directory."""
    with placed_server(servers, USUAL_MAJOR) as server:
        yield server


@pytest.fixture
def roles(placed: PlacedServer) -> Iterator[PlacedServer]:
    """Provide a server with roles reports and other."""
    placed.server.execute("CREATE ROLE reports LOGIN", "CREATE ROLE other LOGIN")
    yield placed
    for role in ("reports", "other"):
        placed.server.execute(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


@pytest.fixture
def penstock(capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Provide a function (*arguments) that runs the command line and returns exit code, results and messages."""

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        return (code, *capfd.readouterr())

    return run


def _spill_and_find(placed: PlacedServer, conninfo: str) -> int:
    """Return how many temporary files of a session's sort lie in the place while it is open."""
    with psycopg.connect(conninfo) as session:
        session.execute("SET work_mem = '64kB'")
        session.execute("DECLARE c CURSOR FOR SELECT g FROM generate_series(1, 100000) AS g ORDER BY -g")
        session.execute("FETCH 1 FROM c")
        return len(list(placed.directory.glob(f"PG_*/pgsql_tmp/pgsql_tmp{session.info.backend_pid}.*")))


@pytest.mark.part("rest")
def test_temporary_work_goes_there_and_back_again(servers: ServerPool, pg_major: int | None) -> None:
    """On each version; what was before is restored in all four places where it can be seen."""
    with placed_server(servers, pg_major or USUAL_MAJOR) as placed:
        before = placed.snapshot()
        assert _spill_and_find(placed, placed.server.conninfo) == 0
        report = placed.place()
        assert report.placement.is_placed
        assert _spill_and_find(placed, placed.server.conninfo) > 0
        assert placed.check().problems == ()
        assert placed.remove().left == ()
        assert placed.snapshot() == before
        assert list(placed.directory.iterdir()) == []


@pytest.mark.part("rest")
def test_role_and_database_have_settings_of_their_own(roles: PlacedServer) -> None:
    """Of others nothing changes; what the setting was is restored, whatever its names."""
    roles.server.execute("""ALTER ROLE reports SET temp_tablespaces = 'Big "One"', 'pg_default'""")
    before = roles.snapshot()
    for scope, mine in (("role:reports", "user=reports"), ("database:postgres", "")):
        roles.place(scope)
        assert _spill_and_find(roles, f"{roles.server.conninfo} {mine}") > 0
        roles.remove()
        assert roles.snapshot() == before
    roles.place("role:reports")
    assert _spill_and_find(roles, f"{roles.server.conninfo} user=other") == 0
    roles.remove()


@pytest.mark.part("rest")
def test_placing_again_changes_nothing_more(placed: PlacedServer) -> None:
    """The same directory and scope; another scope is refused."""
    placed.place()
    before = placed.snapshot()
    assert not any("CREATE" in text for text in placed.place().statements if "GRANT" not in text)
    assert placed.snapshot() == before
    with pytest.raises(TargetError, match="of the server is placed in"):
        placed.place("database:postgres")
    placed.remove()


def test_plan_runs_nothing(placed: PlacedServer, penstock: Callable[..., tuple[int, str, str]]) -> None:
    """It prints the statements in order, as they can be run."""
    before = placed.snapshot()
    to = ("--to", placed.server.conninfo)
    code, out, _ = penstock("temp", "place", str(placed.directory), "--same-device", "--plan", *to)
    assert code == 0
    starts = [line.split()[0] for line in out.splitlines()]
    assert starts == ["CREATE", "GRANT", "ALTER", "SELECT"]
    to = (*to, "--grant", '"Ann, of ""x""",Bob', "--grant", "eve")
    _, out, _ = penstock("temp", "place", str(placed.directory), "--same-device", "--plan", *to)
    assert 'TO "Ann, of ""x""", "bob", "eve"' in out
    assert placed.snapshot() == before
    assert not placed.server.execute("SELECT FROM pg_namespace WHERE nspname = 'penstock'")


def test_who_receives_wal_is_named(placed: PlacedServer, penstock: Callable[..., tuple[int, str, str]]) -> None:
    """A standby without the directory would stop replaying: before the first statement, and in the plan."""
    to = ("--to", placed.server.conninfo)
    with psycopg.connect(placed.server.conninfo, replication="true", application_name="az_b", autocommit=True):
        _, _, err = penstock("temp", "place", str(placed.directory), "--same-device", "--plan", *to)
    assert f"az_b; a standby without {placed.directory} stops replaying" in err


def test_commands_place_check_and_remove(placed: PlacedServer, penstock: Callable[..., tuple[int, str, str]]) -> None:
    """As text and as JSON; a problem is exit code 5."""
    to = ("--to", placed.server.conninfo)
    code, out, err = penstock("temp", "place", str(placed.directory), "--same-device", *to)
    assert (code, "a sort that spilled" in out) == (0, True)
    assert "CREATE TABLESPACE" in err
    assert penstock("temp", "check", *to)[0] == 0
    placed.server.execute("ALTER SYSTEM RESET temp_tablespaces")
    code, out, _ = penstock("temp", "check", "--json", *to)
    assert code == 5
    assert "not set" in json.loads(out)["problems"][0]["claim"]
    code, out, _ = penstock("temp", "remove", "--json", *to)
    assert (code, json.loads(out)["statements"][-1]) == (0, "DROP TABLESPACE penstock_temp")


def test_undone_if_temporary_work_goes_elsewhere(placed: PlacedServer) -> None:
    """Here the database's own setting is stronger than the server's: the proof fails, and nothing is left."""
    placed.server.execute("ALTER DATABASE postgres SET temp_tablespaces = ''")
    before = placed.snapshot()
    with pytest.raises(TargetError, match="does not go to") as caught:
        placed.place()
    assert caught.value.hint == "Everything was undone."
    assert placed.snapshot() == before
    assert placed.is_placed() is None
    placed.server.execute("ALTER DATABASE postgres RESET temp_tablespaces")


def test_undone_if_the_role_may_not_use_it(roles: PlacedServer) -> None:
    """Its work would go elsewhere without a word."""
    before = roles.snapshot()
    with pytest.raises(TargetError, check=has_code("42501")):
        roles.place("role:reports", granted=("other",))
    assert roles.snapshot() == before
    assert roles.is_placed() is None


def test_what_somebody_changed_since_stays(placed: PlacedServer) -> None:
    """The setting is left as it is, and this is said."""
    placed.place()
    placed.server.execute("ALTER SYSTEM SET temp_tablespaces = 'pg_default'")
    assert placed.remove().left == ('temp_tablespaces of the server is "pg_default" now',)
    assert placed.server.execute("SELECT setting FROM pg_file_settings WHERE name = 'temp_tablespaces'") == [
        ("pg_default",)
    ]


@pytest.mark.part("rest")
def test_remove_restores_the_setting_before_it_waits_for_what_is_temporary(placed: PlacedServer) -> None:
    """Otherwise reports that spill all the time could never be brought to stop; what is there meanwhile is named."""
    before = placed.snapshot()
    placed.place()
    with psycopg.connect(placed.server.conninfo) as session:
        session.execute("CREATE TEMPORARY TABLE mine (a int)")
        session.execute("SET work_mem = '64kB'")
        session.execute("DECLARE c CURSOR FOR SELECT g FROM generate_series(1, 100000) AS g ORDER BY -g")
        session.execute("FETCH 1 FROM c")
        with pytest.raises(TargetError, match="is in use") as caught:
            placed.remove()
        assert f"temporary files of backend {session.info.backend_pid}" in str(caught.value.detail)
        assert "temp_tablespaces of the server is restored" in str(caught.value.hint)
        assert _spill_and_find(placed, placed.server.conninfo) == 0
        session.rollback()
        session.execute("SET temp_tablespaces = penstock_temp")
        session.execute("CREATE TEMPORARY TABLE mine (a int)")
        session.commit()
        with pytest.raises(TargetError) as caught:
            placed.remove()
        assert "temporary table" in str(caught.value.detail)
    placed.await_alone()
    while placed.server.execute("SELECT FROM pg_class WHERE relname = 'mine'"):
        pass
    placed.remove()
    assert placed.snapshot() == before


def test_remove_refuses_what_would_be_lost(placed: PlacedServer) -> None:
    """Nothing is changed before all of it is gone: a table and an index."""
    placed.place()
    before = placed.snapshot()
    placed.server.execute(
        'CREATE TABLE public."Kept" (a int) TABLESPACE penstock_temp',
        'CREATE INDEX kept_a ON public."Kept" (a) TABLESPACE penstock_temp',
    )
    with pytest.raises(TargetError) as caught:
        placed.remove()
    detail = str(caught.value.detail)
    move = 'ALTER TABLE public."Kept" SET TABLESPACE pg_default;'
    assert move in detail
    assert placed.snapshot() == before
    assert any(problem.remedy == move for problem in placed.check().problems)
    placed.server.execute(move, "ALTER INDEX public.kept_a SET TABLESPACE pg_default")
    placed.remove()
    placed.server.execute('DROP TABLE public."Kept"')


def test_ordinary_role_is_refused_with_what_it_needs(roles: PlacedServer) -> None:
    """Before anything is written down."""
    with roles.keeper(role="reports") as keeper, pytest.raises(TargetError, match="only a superuser"):
        keeper.place(roles.request())
    assert not roles.server.execute("SELECT FROM pg_namespace WHERE nspname = 'penstock'")


def test_unfit_directories_are_refused(placed: PlacedServer) -> None:
    """Each with its reason."""

    def refusal(directory: str, **more: bool) -> str:
        with placed.keeper() as keeper, pytest.raises((TargetError, UsageError)) as caught:
            keeper.plan(placed.request(directory=directory, **more))
        return caught.value.message

    path = placed.directory
    assert "not an absolute path" in refusal("somewhere")
    assert "does not exist" in refusal(str(path / "missing"))
    assert "inside the data directory" in refusal(f"{placed.server.data_dir}/base/x")
    (path.parent / "link").symlink_to(placed.server.data_dir)
    assert "inside the data directory" in refusal(str(path.parent / "link"))
    beside = make_directory(placed.server.data_dir.parent, like=placed.server.data_dir)
    assert "on the disk that has the data" in refusal(str(beside), allows_same_device=False)
    beside.rmdir()
    path.chmod(0o755)
    assert "open to other users" in refusal(str(path))
    path.chmod(0o700)
    (path / "file").touch()
    assert "not empty" in refusal(str(path))


def test_directory_that_others_may_replace_is_refused(placed: PlacedServer) -> None:
    """Below one that others may write to, sticky or not, and behind a symbolic link."""

    def refusal(directory: Path) -> str:
        with placed.keeper() as keeper, pytest.raises(TargetError, match="can be replaced") as caught:
            keeper.plan(placed.request(directory=str(directory)))
        return str(caught.value.detail)

    parent = placed.directory.parent
    for mode in (0o1777, 0o775, 0o757):
        parent.chmod(mode)
        assert f"{mode:04o}" in refusal(placed.directory)
    parent.chmod(0o755)
    link = parent / "link"
    link.symlink_to(parent)
    assert f"{link} is a symbolic link" in refusal(link / placed.directory.name)
    itself = parent / "itself"
    itself.symlink_to(placed.directory)
    assert f"{itself} is a symbolic link" in refusal(itself)


def _plant_directory(placed: PlacedServer, _: Path) -> None:
    placed.directory.mkdir(mode=0o777)
    os.chown(placed.directory, _NOBODY, -1)


def _plant_version_folder(placed: PlacedServer, _: Path) -> None:
    own = make_directory(placed.directory.parent, like=placed.server.data_dir)
    folder = own / "PG_18_202506291"
    folder.mkdir(mode=0o777)
    os.chown(folder, _NOBODY, -1)


def _plant_link(placed: PlacedServer, victim: Path) -> None:
    placed.directory.symlink_to(victim)


def _open_parent(placed: PlacedServer, _: Path) -> None:
    placed.directory.parent.chmod(0o1777)


@pytest.mark.parametrize("plant", [_plant_directory, _plant_version_folder, _plant_link, _open_parent])
def test_check_finds_what_another_user_put_in_place_of_the_directory(
    placed: PlacedServer, plant: Callable[[PlacedServer, Path], None]
) -> None:
    """As after a reboot, before the directory is created again: it is a problem, and nothing is created there."""
    if os.geteuid() != 0:
        pytest.skip("needs the right to give directories away")
    placed.place()
    shutil.rmtree(placed.directory)
    victim = placed.directory.with_name("victim")
    victim.mkdir(mode=0o755)
    plant(placed, victim)
    report = placed.check()
    assert report.mended == ()
    assert any("other users may read or replace" in problem.claim for problem in report.problems)
    assert (list(victim.iterdir()), victim.stat().st_uid) == ([], 0)


def test_directory_that_was_given_away_is_named_and_the_setting_restored(placed: PlacedServer) -> None:
    """The file system refuses it with the SQLSTATE of a privilege, and no GRANT helps."""
    if os.geteuid() != 0:
        pytest.skip("needs the right to give directories away")
    before = placed.snapshot()
    placed.place()
    owner = placed.directory.stat().st_uid
    os.chown(placed.directory, _NOBODY, -1)
    assert any("may not read" in problem.claim and "chown" in problem.remedy for problem in placed.check().problems)
    with ConnectionFactory(placed.server.conninfo).connect() as session:
        with pytest.raises(TargetError, check=has_code("42501")) as caught, translate_errors("staging"):
            session.execute("CREATE TEMPORARY TABLE mine (a int)")
        assert "penstock temp check" in str(caught.value.hint)
    for _ in range(2):
        with pytest.raises(TargetError, check=has_code("42501")) as caught:
            placed.remove()
        assert "temp_tablespaces of the server is restored" in str(caught.value.hint)
        assert _setting(placed) == []
    os.chown(placed.directory, owner, -1)
    with Repairer(ConnectionFactory(placed.server.conninfo)) as repairer:
        assert repairer.run().errors == []
    assert placed.snapshot() == before


def _setting(placed: PlacedServer) -> list[tuple[object, ...]]:
    return placed.server.execute("SELECT setting FROM pg_file_settings WHERE name = 'temp_tablespaces'")


def test_taken_name_and_missing_role_are_refused(placed: PlacedServer) -> None:
    """Before anything is changed."""
    placed.server.execute(f"CREATE TABLESPACE penstock_temp LOCATION '{placed.directory}'")
    with placed.keeper() as keeper:
        with pytest.raises(TargetError, match="was not created by penstock"):
            keeper.place(placed.request())
        with pytest.raises(TargetError, match='role "nobody" does not exist') as caught:
            keeper.place(placed.request("role:Nobody"))
    assert "quote capitals" in str(caught.value.hint)


@pytest.mark.part("rest")
def test_repair_leaves_a_place_that_was_completed(
    placed: PlacedServer, penstock: Callable[..., tuple[int, str, str]]
) -> None:
    """Its plan says so."""
    placed.place()
    before = placed.snapshot()
    assert placed.repair() is None
    assert placed.snapshot() == before
    (step,) = json.loads(penstock("repair", "--plan", "--json", "--to", placed.server.conninfo)[1])["steps"]
    assert (step["kind"], step["action"]) == ("temp place", "keep")
    placed.remove()


def test_record_that_no_superuser_wrote_is_refused(roles: PlacedServer) -> None:
    """What it names would be run by a superuser: repair says so, and runs nothing."""
    with ConnectionFactory(roles.server.conninfo).connect() as connection:
        Ledger().ensure(connection)
    roles.server.execute("GRANT USAGE ON SCHEMA penstock TO reports")
    roles.server.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA penstock TO reports")
    placement = Placement(location="/planted", scope=Scope(kind="server"), granted=(), prior=("planted",))
    holder = "00000000-0000-0000-0000-000000000001"
    with ConnectionFactory(roles.server.conninfo, role="reports").connect() as connection:
        hold = Hold(holder_id=holder, target_oid=SERVER, lock="1", names=(TABLESPACE,))
        TableStore(connection=connection).write(hold, [make_change(placement, holder)])
    before = roles.snapshot()
    with Repairer(ConnectionFactory(roles.server.conninfo)) as repairer:
        (error,) = repairer.run().errors
    assert "no superuser" in error.message
    assert roles.snapshot() == before


def test_grant_is_refused_where_others_have_a_place(roles: PlacedServer) -> None:
    """They could not use the new one, and PostgreSQL would move their work to the disk of the data."""
    roles.server.execute("ALTER SYSTEM SET temp_tablespaces = 'pg_default', nvme")
    roles.server.reload()
    before = roles.snapshot()
    with pytest.raises(TargetError, match="of other roles would move"):
        roles.place(granted=("reports",))
    assert roles.snapshot() == before
    roles.place("role:reports")
    roles.remove()
    roles.server.execute("ALTER SYSTEM RESET temp_tablespaces")


def test_a_list_that_has_the_default_is_put_back(placed: PlacedServer) -> None:
    """PostgreSQL writes an empty name for it, and takes turns."""
    placed.server.execute("ALTER SYSTEM SET temp_tablespaces = 'pg_default', ''")
    placed.server.reload()
    before = placed.snapshot()
    placed.place()
    placed.remove()
    assert placed.snapshot() == before
    placed.server.execute("ALTER SYSTEM RESET temp_tablespaces")


def test_check_names_roles_that_may_not_use_it(roles: PlacedServer) -> None:
    """Of those for whom it is meant; the statement shown mends it."""
    roles.place(granted=("reports", "other"))
    roles.server.execute("REVOKE CREATE ON TABLESPACE penstock_temp FROM reports")
    (problem,) = roles.check().problems
    assert 'role "reports" may not create there' in problem.claim
    roles.server.execute(problem.remedy)
    assert roles.check().problems == ()
    roles.remove()


def _own(server: EmbeddedServer, servers: ServerPool) -> PlacedServer:
    conninfo = server.ensure_running()
    parent = servers.new_closed_home()
    parent.mkdir(mode=0o755)
    major = server.spec.installation.major
    return PlacedServer(ChangedServer(conninfo, server.data_dir, major), make_directory(parent, like=server.data_dir))


@pytest.mark.part("rest")
def test_directory_lost_while_the_server_runs_or_is_stopped(
    new_server: Callable[[], EmbeddedServer], servers: ServerPool
) -> None:
    """As at a reboot of instance storage: temporary tables fail until check has created it again."""
    server = new_server()
    placed = _own(server, servers)
    try:
        placed.place()
        for is_stopped in (False, True):
            if is_stopped:
                server.stop()
            shutil.rmtree(placed.directory)
            placed.server.conninfo = server.ensure_running()
            with pytest.raises(psycopg.Error):
                placed.server.execute("CREATE TEMPORARY TABLE t (a int)")
            report = placed.check()
            if not report.mended:
                # The path is on the disk of /, and the data is not: so a mount point looks while nothing is mounted.
                (problem,) = report.problems
                assert "is on the disk of /" in problem.claim
                owner = server.data_dir.stat()
                for folder in shlex.split(problem.remedy.partition("mkdir -m 700 -p ")[2]):
                    Path(folder).mkdir(mode=0o700)
                    os.chown(folder, owner.st_uid, owner.st_gid)
                report = placed.check()
            assert report.problems == ()
            placed.server.execute("CREATE TEMPORARY TABLE t (a int)")
        shutil.rmtree(placed.directory)
        placed.remove()
        assert not placed.server.execute("SELECT FROM pg_tablespace WHERE spcname = 'penstock_temp'")
    finally:
        server.stop("immediate")
        shutil.rmtree(placed.directory, ignore_errors=True)


@pytest.mark.part("rest")
def test_disk_that_is_not_mounted_is_told_and_nothing_is_created_on_the_datas(servers: ServerPool) -> None:
    """Its mount point is a directory of the data's disk then: spills would go there."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("needs root, to mount a disk (Debian's package mount)")
    server = servers.new_server(
        servers.installation(USUAL_MAJOR), settings=TEST_SETTINGS, home=servers.new_closed_home()
    )
    placed = _own(server, servers)
    mounted = placed.directory
    try:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(mounted)], check=True)
        try:
            mounted.chmod(0o755)
            placed = PlacedServer(placed.server, make_directory(mounted, like=server.data_dir))
            placed.place()
            assert placed.check().problems == ()
        finally:
            subprocess.run(["umount", "--lazy", str(mounted)], check=True)
        report = placed.check()
        assert report.mended == ()
        (problem,) = report.problems
        assert "is on the disk that has the data" in problem.claim
        assert "mkdir" not in problem.remedy
        assert not placed.directory.exists()
        placed.remove()
    finally:
        server.stop("immediate")
        shutil.rmtree(mounted)


def test_what_lies_in_a_database_without_connections_is_not_overlooked(placed: PlacedServer) -> None:
    """It cannot be listed; remove does not begin, and check does not call it well."""
    placed.place()
    placed.server.execute("CREATE DATABASE shut")
    with psycopg.connect(placed.server.conninfo, dbname="shut", autocommit=True) as inside:
        inside.execute("CREATE TABLE t (a int) TABLESPACE penstock_temp")
    placed.server.execute("ALTER DATABASE shut ALLOW_CONNECTIONS false")
    try:
        with pytest.raises(TargetError):
            placed.remove()
        (problem,) = placed.check().problems
        assert "in database shut, which accepts no connections" in problem.claim
        assert problem.remedy == 'ALTER DATABASE "shut" ALLOW_CONNECTIONS true;'
    finally:
        placed.server.execute("DROP DATABASE shut")
    placed.remove()


def test_setting_of_a_role_that_was_renamed_is_told(roles: PlacedServer) -> None:
    """It names a tablespace that does not exist any more; nobody else would say so."""
    roles.place("role:reports")
    roles.server.execute("ALTER ROLE reports RENAME TO renamed")
    try:
        assert roles.remove().left == ("temp_tablespaces of role renamed names it still",)
    finally:
        roles.server.execute("ALTER ROLE renamed RENAME TO reports", "ALTER ROLE reports RESET ALL")


def test_second_slash_at_the_start_is_none_of_the_directorys(placed: PlacedServer) -> None:
    """PostgreSQL leaves it out: remove would take the tablespace for somebody else's."""
    placed.place(directory=f"/{placed.directory}")
    assert placed.check().problems == ()
    assert placed.remove().left == ()
    assert not placed.server.execute("SELECT FROM pg_tablespace WHERE spcname = 'penstock_temp'")


def test_tablespace_that_was_renamed_is_left_and_named(placed: PlacedServer) -> None:
    placed.place()
    placed.server.execute("ALTER TABLESPACE penstock_temp RENAME TO mine")
    try:
        (left,) = placed.remove().left
        assert left == f'tablespace "mine" lies in {placed.directory}: it had another name'
    finally:
        placed.server.execute("DROP TABLESPACE IF EXISTS mine")


@pytest.mark.part("rest")
def test_standby_is_refused_and_checked(new_server: Callable[[], EmbeddedServer], servers: ServerPool) -> None:
    """Its places come from the primary; its directory is its own."""
    server = new_server()
    placed = _own(server, servers)
    try:
        placed.place()
        server.stop()
        shutil.copy2(server.data_dir / "PG_VERSION", server.data_dir / "standby.signal")
        placed.server.conninfo = server.ensure_running()
        with pytest.raises(TargetError, match="on a standby"):
            placed.place()
        assert placed.check().problems == ()
        with pytest.raises(TargetError, match="cannot remove a placement on a standby"):
            placed.remove()
        queries = placed.directory.parent / "queries.sql"
        queries.write_text("SELECT g FROM generate_series(1, 500000) AS g ORDER BY -g")
        argv = ["temp", "replay", "--sql", str(queries), "--concurrency", "1", "--as-superuser"]
        assert main([*argv, "--to", placed.server.conninfo]) == 0
        # As on a standby that was there before: ALTER SYSTEM is not replicated.
        placed.server.execute("ALTER SYSTEM RESET temp_tablespaces")
        (problem,) = placed.check().problems
        assert problem.claim == "temp_tablespaces of the server is not set, on this standby"
        for statement in problem.remedy.rstrip(";").split(";"):
            placed.server.execute(statement)
        assert placed.check().problems == ()
    finally:
        server.stop("immediate")
        shutil.rmtree(placed.directory, ignore_errors=True)
