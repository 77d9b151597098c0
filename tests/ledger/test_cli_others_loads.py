"""Loads of other roles: what a ledger's rows say is done by their own role, and with nobody's further rights."""

from __future__ import annotations

import secrets
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from penstock.core.values.job import LoadRules, Transform
from support.files import write_to
from support.loads import ORIGIN, Loads, share_ledger, target
from support.modes import Killed, mode_target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.core.values.job import TargetJob
    from support.command import Finished

    Run = Callable[..., Finished]

ROWS = 100
_PLANTED = "11111111-1111-4111-8111-111111111111"
# Leads from the role that was taken back to whoever logged in.
_ESCAPE = "CREATE FUNCTION {0}.f() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RESET ROLE; RETURN true; END $$"


@pytest.fixture
def admin(database18: str) -> Loads:
    """Provide a superuser's loads into a database with a ledger."""
    return Loads(database18)


@pytest.fixture
def roles(admin: Loads) -> Iterator[tuple[str, str]]:
    """Provide a role that shares the ledger and has a schema with a table of its own, and a member of it."""
    suffix = secrets.token_hex(4)
    bob, alice = f"bob_{suffix}", f"alice_{suffix}"
    admin.execute(f"CREATE ROLE {bob} LOGIN PASSWORD 'x'; CREATE ROLE {alice} LOGIN PASSWORD 'x' IN ROLE {bob}")
    share_ledger(admin, bob)
    admin.execute(f"GRANT CREATE ON SCHEMA penstock TO {bob}; CREATE SCHEMA {bob} AUTHORIZATION {bob}")
    admin.execute(f"SET ROLE {bob}; CREATE TABLE {bob}.t (a int, b text); {_ESCAPE.format(bob)}")
    yield bob, alice
    admin.execute(f"DROP OWNED BY {alice}, {bob} CASCADE; DROP ROLE {alice}, {bob}")


def login(admin: Loads, role: str) -> str:
    """Return the connection string of a role."""
    return make_conninfo(admin.conninfo, user=role, password="x")


def cut_short(loads: Loads, job: TargetJob, rules: LoadRules = LoadRules()) -> str:  # noqa: B008 (it is frozen)
    """Kill a load after some batches; return its id."""
    doomed = Loads(loads.conninfo, role=loads.role, piece_bytes=64)

    def die(number: int) -> None:
        if number == 8:
            while not loads.execute("SELECT FROM penstock.ranges"):
                time.sleep(0.01)
            raise Killed

    doomed.at_piece = die
    with pytest.raises(Killed):
        doomed.run(job, batch_bytes=1, rules=replace(rules, retry_for=0.0))
    return str(loads.execute("SELECT id::text FROM penstock.loads WHERE state = 'running'")[0][0])


@pytest.fixture
def path() -> Iterator[Path]:
    """Provide a csv file that everybody may read: pytest's own folders nobody else may enter."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        path = write_to(Path(folder) / "rows.csv", "a,b\n" + "".join(f"{n},value {n}\n" for n in range(ROWS)))
        path.chmod(0o644)
        yield path


def error_of(finished: Finished) -> str:
    """Return the first line of a command's error."""
    return next(line for line in finished.err.splitlines() if line.startswith("error: "))


# ---------------------------------------------------------------- resume


def test_resume_of_another_roles_load_is_refused(
    penstock: Run, admin: Loads, roles: tuple[str, str], path: Path
) -> None:
    """Also to a superuser, whom the row's SQL would serve; the role itself resumes it."""
    bob, _ = roles
    text = f"INSERT INTO {bob}.t SELECT a::int, b FROM :staging WHERE {bob}.f()"
    job = mode_target(path, "append", into=f"{bob}.t", transform=Transform(name="t.sql", text=text))
    load_id = cut_short(Loads(login(admin, bob)), job)
    refused = penstock("resume", load_id, "--to", admin.conninfo)
    assert (refused.code, error_of(refused)) == (
        6,
        f'error: cannot resume load {load_id}: it belongs to role "{bob}"',
    )
    assert f'--role "{bob}"' in refused.err
    assert admin.count(f"{bob}.t") == 0
    assert penstock("resume", load_id, "--to", login(admin, bob)).code == 0
    assert admin.count(f"{bob}.t") == ROWS


def test_superuser_who_becomes_the_role_does_not_run_its_code(
    penstock: Run, admin: Loads, roles: tuple[str, str], path: Path
) -> None:
    """RESET ROLE in a trigger of the table would lead back to the superuser."""
    bob, _ = roles
    load_id = cut_short(Loads(login(admin, bob)), target(path, into=f"{bob}.t"))
    refused = penstock("resume", load_id, "--to", admin.conninfo, "--role", bob)
    assert (refused.code, error_of(refused)) == (
        6,
        f"error: cannot resume load {load_id}: by the ledger, another login began it",
    )
    assert "penstock load" in refused.err


def test_superuser_is_told_the_plain_command_for_a_load_of_its_own(penstock: Run, admin: Loads, path: Path) -> None:
    """One of before the ledger said who logged in: no role is to be taken."""
    admin.execute("CREATE TABLE t (a int, b text)")
    load_id = cut_short(admin, target(path))
    admin.execute("UPDATE penstock.loads SET login = NULL")
    refused = penstock("resume", load_id, "--to", admin.conninfo)
    assert refused.code == 6
    assert "run its own penstock load command." in refused.err


def test_member_reads_by_the_rules_of_the_load(penstock: Run, admin: Loads, roles: tuple[str, str], path: Path) -> None:
    """With --on-error reject, an object that cannot be read is skipped, as it was when the load began."""
    bob, alice = roles
    broken = path.parent / "broken.csv.gz"
    broken.write_bytes(b"\x1f\x8b\x08\x00 no gzip")
    broken.chmod(0o644)
    job = target(path.parent, into=f"{bob}.t")
    load_id = cut_short(Loads(login(admin, bob)), job, LoadRules(on_error="reject"))
    resumed = penstock("resume", load_id, "--to", login(admin, alice), "--role", bob)
    assert (resumed.code, "broken.csv.gz" in resumed.err) == (3, True), resumed.err
    assert admin.count(f"{bob}.t") == ROWS


def test_member_resumes_as_the_role(penstock: Run, admin: Loads, roles: tuple[str, str], path: Path) -> None:
    """Once it says so: what is stored is stored by the role."""
    bob, alice = roles
    admin.execute(f"ALTER TABLE {bob}.t ADD COLUMN by name DEFAULT CURRENT_USER")
    load_id = cut_short(Loads(login(admin, bob)), target(path, into=f"{bob}.t"))
    refused = penstock("resume", load_id, "--to", login(admin, alice))
    assert refused.code == 6
    assert f'Use --role "{bob}".' in refused.err
    resumed = penstock("resume", load_id, "--to", login(admin, alice), "--role", bob)
    assert resumed.code == 0, resumed.err
    assert admin.execute(f"SELECT by, count(*) FROM {bob}.t GROUP BY 1") == [(bob, ROWS)]


@pytest.mark.parametrize("mode", [0o600, 0o644], ids=["file", "folder"])
def test_member_reads_no_private_file_for_the_role(
    penstock: Run, admin: Loads, roles: tuple[str, str], path: Path, mode: int
) -> None:
    """The row may name whatever the member may read; its own command names the file itself."""
    bob, alice = roles
    load_id = cut_short(Loads(login(admin, bob)), target(path, into=f"{bob}.t"))
    before = admin.count(f"{bob}.t")
    path.chmod(mode)
    path.parent.chmod(0o755 if mode == 0o600 else 0o700)
    refused = penstock("resume", load_id, "--to", login(admin, alice), "--role", bob)
    assert refused.code == 4
    assert "not every user may read it" in error_of(refused)
    assert admin.count(f"{bob}.t") == before < ROWS
    command = ["load", str(path), "--into", f"{bob}.t", "--to", login(admin, alice), "--role", bob]
    done = penstock(*command)
    assert done.code == 0, done.err
    assert admin.count(f"{bob}.t") == ROWS


def test_login_resumes_what_it_began_as_a_role(penstock: Run, admin: Loads, roles: tuple[str, str], path: Path) -> None:
    """With files of its own and its own transform."""
    bob, alice = roles
    path.chmod(0o600)
    text = f"INSERT INTO {bob}.t SELECT a::int, b FROM :staging"
    job = mode_target(path, "append", into=f"{bob}.t", transform=Transform(name="t.sql", text=text))
    load_id = cut_short(Loads(login(admin, alice), role=bob), job)
    resumed = penstock("resume", load_id, "--to", login(admin, alice), "--role", bob)
    assert resumed.code == 0, resumed.err
    assert admin.count(f"{bob}.t") == ROWS


def test_member_runs_no_transform_that_another_login_chose(
    penstock: Run, admin: Loads, roles: tuple[str, str], path: Path
) -> None:
    """It could RESET ROLE to the member."""
    bob, alice = roles
    text = f"INSERT INTO {bob}.t SELECT a::int, b FROM :staging WHERE {bob}.f()"
    job = mode_target(path, "append", into=f"{bob}.t", transform=Transform(name="t.sql", text=text))
    load_id = cut_short(Loads(login(admin, bob)), job)
    refused = penstock("resume", load_id, "--to", login(admin, alice), "--role", bob)
    assert (refused.code, admin.count(f"{bob}.t")) == (6, 0)
    assert "RESET ROLE" in refused.err


def test_same_command_of_another_role_does_not_take_the_load(
    penstock: Run, admin: Loads, roles: tuple[str, str], path: Path
) -> None:
    """What the other role's sessions commit, and its staging table, are that role's."""
    bob, _ = roles
    load_id = cut_short(Loads(login(admin, bob)), target(path, into=f"{bob}.t"))
    refused = penstock("load", str(path), "--into", f"{bob}.t", "--to", admin.conninfo)
    assert (refused.code, error_of(refused)) == (
        6,
        f'error: cannot resume load {load_id}: it belongs to role "{bob}"',
    )


def test_rejects_of_another_roles_load_are_not_retried(
    penstock: Run, admin: Loads, roles: tuple[str, str], tmp_path: Path
) -> None:
    """A superuser may read them, and would store them with a superuser's rights."""
    bob, _ = roles
    bad = write_to(tmp_path / "bad.csv", "a,b\n1,x\nx,y\n")
    command = ["load", str(bad), "--into", f"{bob}.t", "--on-error", "reject", "--json", "--to", login(admin, bob)]
    load_id = penstock(*command).object["load_id"]
    admin.execute(f"ALTER TABLE {bob}.t ALTER a TYPE text")
    refused = penstock("retry", load_id, "--to", admin.conninfo)
    assert (refused.code, error_of(refused)) == (
        6,
        f'error: cannot retry load {load_id}: it belongs to role "{bob}"',
    )
    assert penstock("retry", load_id, "--to", login(admin, bob)).code == 0


# ---------------------------------------------------------------- what is planted


def plant(connection: psycopg.Connection, schema: str, table: str, kind: str) -> None:
    """Write a load of one's own, with a table that it would have made."""
    connection.execute(
        "INSERT INTO penstock.loads (id, identity, lock_key, client, tables, meaning)"
        f" VALUES ('{_PLANTED}', repeat('a', 64), repeat('b', 64), 'host 1', '{{t}}', '{{}}')"
    )
    connection.execute(
        "INSERT INTO penstock.targets (load, number, origin, target_oid, target_schema, target_table, kind,"
        " landing_schema, landing_table, landing_oid)"
        f" VALUES (%s, 0, {ORIGIN}, 1, 'public', 't', %s, %s, %s,"
        " (quote_ident(%s) || '.' || quote_ident(%s))::regclass::oid)",
        [_PLANTED, kind, schema, table, schema, table],
    )


@pytest.mark.parametrize(
    ("schema", "table", "kind"),
    [
        ("public", "accounts", "staging"),
        ("public", "accounts", "replacement"),
        ("public", "staging_0123456789abcdef_0", "staging"),
        ("public", "penstock_0123456789abcdef_0", "replacement"),
        ("penstock", "staging_0123456789abcdef_0", "staging"),
        ("penstock", "rejects", "staging"),
    ],
)
def test_planted_row_drops_no_table(
    penstock: Run, admin: Loads, roles: tuple[str, str], schema: str, table: str, kind: str
) -> None:
    """The error names the row; its load is there still."""
    bob, _ = roles
    if table != "rejects":
        admin.execute(f"CREATE TABLE {schema}.{table} (id int)")
    with psycopg.connect(login(admin, bob)) as connection:
        plant(connection, schema, table, kind)
    refused = penstock("loads", "forget", _PLANTED, "--to", admin.conninfo)
    assert (refused.code, error_of(refused)) == (
        6,
        f'error: table "{schema}.{table}" is not dropped: load {_PLANTED} cannot have created it',
    )
    assert f'DELETE FROM ONLY "penstock"."targets" WHERE load = \'{_PLANTED}\' AND number = 0;' in refused.err
    assert admin.has_table(f"{schema}.{table}")
    assert admin.execute("SELECT id::text FROM penstock.loads") == [(_PLANTED,)]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE penstock.loads SET owner = 'postgres'",
        "UPDATE penstock.loads SET login = 'postgres'",
        "INSERT INTO penstock.targets SELECT '{admins}', 7, '', 1, '', ''",
        "INSERT INTO penstock.objects SELECT '{admins}', 7, '', 1, '', '', ''",
        "INSERT INTO penstock.ranges SELECT '{admins}', 7, 0, '{{}}', true, true, 0, 0, 0, 0, 0",
        "INSERT INTO penstock.members SELECT '{admins}', 7, '', ''",
        "INSERT INTO penstock.claims SELECT '{admins}', 0, 7",
        "INSERT INTO penstock.rejects (load, object, start, line, message, raw) SELECT '{admins}', 7, 0, 0, '', ''",
    ],
    ids=["owner", "login", "targets", "objects", "ranges", "members", "claims", "rejects"],
)
def test_nobody_writes_in_anothers_name(admin: Loads, roles: tuple[str, str], path: Path, statement: str) -> None:
    """Row security keeps each load, and all that belongs to it, to its role."""
    bob, _ = roles
    admin.execute("CREATE TABLE u (a int, b text)")
    admins = admin.run(target(path, into="u")).load_id
    with psycopg.connect(login(admin, bob), autocommit=True) as connection:
        plant(connection, "penstock", "rejects", "staging")
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
            connection.execute(statement.format(admins=admins).encode())
        assert connection.execute(b"UPDATE penstock.members SET ended_at = now()").rowcount == 0
        for table in ("claims", "members", "objects", "ranges", "targets"):
            assert connection.execute(f"DELETE FROM penstock.{table} WHERE load = '{admins}'".encode()).rowcount == 0
        assert connection.execute(f"DELETE FROM penstock.loads WHERE id = '{admins}'".encode()).rowcount == 0


def test_load_of_another_role_is_not_forgotten(penstock: Run, admin: Loads, roles: tuple[str, str], path: Path) -> None:
    """It says whose it is; a superuser may."""
    bob, alice = roles
    share_ledger(admin, alice)
    load_id = cut_short(Loads(login(admin, bob)), target(path, into=f"{bob}.t"))
    refused = penstock("loads", "forget", load_id, "--keep-rows", "--to", login(admin, alice))
    assert (refused.code, error_of(refused)) == (
        6,
        f'error: cannot forget load {load_id}: it belongs to role "{bob}"',
    )
    assert penstock("loads", "forget", load_id, "--keep-rows", "--to", admin.conninfo).code == 0
