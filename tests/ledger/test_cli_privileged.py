"""Privileged sessions and a ledger of an ordinary role: its owner's code never runs with more than its own rights."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from penstock.core.connect.connection import ConnectionFactory
from penstock.core.errors import TargetError
from penstock.core.values.job import LoadRules, Transform
from penstock.ledger.ledger import Ledger
from support.changed_server import make_changed_server, request_for, take
from support.files import write_to
from support.loads import ORIGIN, Loads, share_ledger, target
from support.modes import Killed, mode_target
from support.servers import USUAL_MAJOR

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from support.changed_server import ChangedServer
    from support.command import Finished
    from support.servers import ServerPool

    Run = Callable[..., Finished]

# Becomes the session's login, and counts if that is privileged: sequences are not rolled back.
_SPY = """
    CREATE SCHEMA spying;
    GRANT USAGE ON SCHEMA spying TO public;
    CREATE SEQUENCE spying.seen;
    GRANT ALL ON SEQUENCE spying.seen TO public;
    CREATE FUNCTION spying.spy() RETURNS int LANGUAGE plpgsql AS $$
    BEGIN
        IF (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = session_user) THEN
            PERFORM pg_catalog.nextval('spying.seen');
        END IF;
        RETURN 1;
    END $$;
    CREATE FUNCTION spying.spy_of(int) RETURNS boolean IMMUTABLE LANGUAGE plpgsql
        AS 'BEGIN RETURN spying.spy() > 0; END';
    CREATE FUNCTION spying.spy_on_row() RETURNS trigger LANGUAGE plpgsql
        AS 'BEGIN PERFORM spying.spy(); RETURN coalesce(NEW, OLD); END';
    CREATE DOMAIN spying.word AS text CHECK (spying.spy() > 0);
"""
_NOW = "pg_catalog.now() + spying.spy() * interval '0'"
_ON_ROW = "BEFORE INSERT OR UPDATE OR DELETE ON penstock.{} FOR EACH ROW EXECUTE FUNCTION spying.spy_on_row()"

_PLANTS = {
    "check": "ALTER TABLE penstock.ranges ADD CHECK (spying.spy() > 0) NOT VALID",
    "default": f"ALTER TABLE penstock.loads ALTER began_at SET DEFAULT {_NOW}",
    "domain": "ALTER TABLE penstock.loads ALTER client TYPE spying.word",
    "trigger": f"CREATE TRIGGER planted {_ON_ROW.format('loads')}",
    # Its predicate is evaluated when any query of the table is planned.
    "index": "CREATE INDEX ON penstock.loads (identity) WHERE spying.spy_of(1)",
    "child": "CREATE TABLE penstock.child () INHERITS (penstock.loads);"
    "CREATE INDEX ON penstock.child (id) WHERE spying.spy_of(1)",
    "view": "ALTER TABLE penstock.changes RENAME TO c;"
    "CREATE VIEW penstock.changes AS SELECT * FROM penstock.c WHERE spying.spy() > 0",
    "forged load": "ALTER TABLE penstock.loads DISABLE ROW LEVEL SECURITY;"
    "UPDATE penstock.loads SET owner = 'postgres', login = 'postgres'",
    "forged change": "ALTER TABLE penstock.changes DISABLE ROW LEVEL SECURITY;"
    "INSERT INTO penstock.changes"
    " (origin, target_oid, number, target_schema, target_table, kind, relation_oid, name, record, owner, load)"
    f" SELECT {ORIGIN}, 't'::regclass, 1, 'public', 't', 'trigger', 't'::regclass, 'x', '{{}}', 'postgres',"
    " gen_random_uuid()",
}


@dataclass(frozen=True, slots=True)
class Tenant:
    """An ordinary role that owns its database, with a table and functions of its own."""

    name: str
    admin: Loads
    conninfo: str

    def execute(self, statements: str) -> None:
        """Run statements as the role."""
        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            connection.execute(statements.encode())

    def has_spied(self) -> bool:
        """Return whether a function of the role was run in a superuser's session."""
        return self.admin.execute("SELECT is_called FROM spying.seen") == [(True,)]


@pytest.fixture
def tenant(database18: str) -> Iterator[Tenant]:
    """Provide the owner of a database in which a superuser loads too."""
    admin, name = Loads(database18), f"tenant_{secrets.token_hex(4)}"
    database = conninfo_to_dict(database18)["dbname"]
    admin.execute(f"CREATE ROLE {name} LOGIN; ALTER DATABASE {database} OWNER TO {name}")
    tenant = Tenant(name, admin, make_conninfo(database18, user=name))
    tenant.execute(f"{_SPY}; CREATE TABLE t (a int, b text)")
    yield tenant
    admin.execute(f"ALTER DATABASE {database} OWNER TO postgres; DROP OWNED BY {name} CASCADE; DROP ROLE {name}")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Provide a csv file of 100 records."""
    return write_to(tmp_path / "rows.csv", "a,b\n" + "".join(f"{n},value {n}\n" for n in range(100)))


def cut_short(tenant: Tenant, path: Path) -> str:
    """Kill a load of the tenant, which has a transform, after some batches; return its id."""
    doomed = Loads(tenant.conninfo, piece_bytes=64)

    def die(number: int) -> None:
        if number == 8:
            while not tenant.admin.execute("SELECT FROM penstock.ranges"):
                time.sleep(0.01)
            raise Killed

    doomed.at_piece = die
    transform = Transform(name="t.sql", text="INSERT INTO t SELECT a::int, b FROM :staging WHERE spying.spy() > 0")
    with pytest.raises(Killed):
        doomed.run(mode_target(path, "append", transform=transform), batch_bytes=1, rules=LoadRules(retry_for=0.0))
    return str(tenant.admin.execute("SELECT id::text FROM penstock.loads")[0][0])


@pytest.mark.part("rest")
@pytest.mark.parametrize("kind", _PLANTS)
def test_superuser_runs_nothing_of_who_owns_the_ledger(
    penstock: Run, tenant: Tenant, path: Path, tmp_path: Path, kind: str
) -> None:
    """Every command refuses that ledger before it reads a row, and doctor reports it; the owner's loads go on."""
    load_id = cut_short(tenant, path)
    tenant.execute(_PLANTS[kind])
    to = ("--to", tenant.admin.conninfo)
    for command in (
        ("load", str(path), "--into", "t"),
        ("load", str(path), "--into", "t", "--plan"),
        ("resume", load_id),
        ("retry", load_id),
        ("verify", load_id),
        ("repair",),
        ("repair", "--plan"),
        ("loads",),
        ("loads", "show", load_id),
        ("loads", "forget", load_id, "--keep-rows"),
        ("loads", "prune", "--older-than", "0d"),
        ("rejects", load_id),
        ("rejects", load_id, "--reject-file", str(tmp_path / "rejects.csv")),
    ):
        refused = penstock(*command, *to)
        assert (command, refused.code) == (command, TargetError.exit_code), refused.err
        assert "cannot trust the ledger" in refused.err
    doctor = penstock("doctor", "--into", "t", "--json", *to).object
    assert [finding["code"] for finding in doctor["findings"] if finding["severity"] == "refusal"] == ["ledger"]
    assert not tenant.has_spied()
    if kind in ("check", "default", "domain", "index", "child"):
        resumed = penstock("resume", load_id, "--to", tenant.conninfo)
        assert resumed.code == 0, resumed.err


def test_superusers_load_into_a_schema_of_its_own(penstock: Run, tenant: Tenant, path: Path) -> None:
    """As the hint says."""
    cut_short(tenant, path)
    tenant.execute(_PLANTS["check"])
    done = penstock("load", str(path), "--into", "t", "--ledger-schema", "mine", "--to", tenant.admin.conninfo)
    assert done.code == 0, done.err
    assert not tenant.has_spied()


def test_nothing_can_be_planted_while_a_superuser_loads(tenant: Tenant, path: Path) -> None:
    """Who may use a superuser's ledger does not own it, though it owns the database."""
    share_ledger(tenant.admin, tenant.name)
    refusals: list[type[Exception]] = []

    def plant(number: int) -> None:
        if number == 8:
            for kind, statements in _PLANTS.items():
                with psycopg.connect(tenant.conninfo, autocommit=True) as connection:
                    try:
                        connection.execute(statements.encode())
                    except psycopg.Error as error:
                        refusals.append(type(error))
                    else:
                        refusals.append(AssertionError(kind))  # type: ignore[arg-type]

    loads = Loads(tenant.admin.conninfo, piece_bytes=64)
    loads.at_piece = plant
    assert loads.run(target(path), batch_bytes=1).rows == 100
    assert refusals == [psycopg.errors.InsufficientPrivilege] * len(_PLANTS)
    assert not tenant.has_spied()


# ---------------------------------------------------------------- who is privileged


def ensure(conninfo: str, *, role: str | None = None) -> None:
    """Make the ledger, or look at the one that is there."""
    with ConnectionFactory(conninfo, role=role).connect() as connection:
        Ledger().ensure(connection)


@pytest.mark.parametrize(
    "power",
    ["CREATEROLE", "BYPASSRLS", "REPLICATION", "IN ROLE rds_superuser", "IN ROLE pg_execute_server_program", ""],
)
def test_who_has_powers_does_not_trust_the_databases_owner(tenant: Tenant, power: str) -> None:
    """Who has none does: an ordinary role gives the owner nothing that it has not got."""
    other = f"other_{secrets.token_hex(4)}"
    has_group = "rds_superuser" in power
    tenant.admin.execute(f"{'CREATE ROLE rds_superuser;' if has_group else ''} CREATE ROLE {other} LOGIN {power}")
    try:
        share_ledger(Loads(tenant.conninfo), other)
        conninfo = make_conninfo(tenant.conninfo, user=other)
        if not power:
            ensure(conninfo)
            return
        with pytest.raises(TargetError, match="privileged login") as caught:
            ensure(conninfo)
        assert "--ledger-schema" in str(caught.value.hint)
        assert tenant.name in str(caught.value.hint)
    finally:
        tenant.admin.execute(f"DROP OWNED BY {other}; DROP ROLE {other}")
        if has_group:
            tenant.admin.execute("DROP ROLE rds_superuser")


def test_set_role_does_not_make_a_superuser_ordinary(tenant: Tenant) -> None:
    """Neither for a ledger of that role nor for a new one, of which nothing stays."""
    with pytest.raises(TargetError, match="privileged login"):
        ensure(tenant.admin.conninfo, role=tenant.name)
    assert not tenant.admin.has_table("penstock.loads")
    ensure(tenant.conninfo)
    with pytest.raises(TargetError, match="privileged login"):
        ensure(tenant.admin.conninfo, role=tenant.name)


def test_member_of_a_superuser_is_privileged(tenant: Tenant) -> None:
    """Code in its session could SET ROLE."""
    ensure(tenant.conninfo)
    other = f"other_{secrets.token_hex(4)}"
    tenant.admin.execute(f"CREATE ROLE {other} LOGIN IN ROLE postgres")
    try:
        with pytest.raises(TargetError, match="privileged login"):
            ensure(make_conninfo(tenant.conninfo, user=other))
    finally:
        tenant.admin.execute(f"DROP ROLE {other}")


def test_group_with_powers_keeps_its_ledger(tenant: Tenant) -> None:
    """Its members load as the group, which has all that they could be robbed of."""
    group, member = (f"{name}_{secrets.token_hex(4)}" for name in ("group", "member"))
    tenant.admin.execute(f"CREATE ROLE {group} CREATEROLE; CREATE ROLE {member} LOGIN IN ROLE {group}")
    tenant.admin.execute(f"CREATE SCHEMA penstock AUTHORIZATION {group}")
    try:
        for _ in range(2):
            ensure(make_conninfo(tenant.conninfo, user=member), role=group)
        tenant.admin.execute(f"ALTER ROLE {member} BYPASSRLS")
        with pytest.raises(TargetError, match="privileged login"):
            ensure(make_conninfo(tenant.conninfo, user=member), role=group)
    finally:
        tenant.admin.execute(f"DROP OWNED BY {group} CASCADE; DROP ROLE {member}, {group}")


@pytest.mark.parametrize("privilege", ["ALL", "TRIGGER", "REFERENCES", "REFERENCES (load)"])
def test_who_may_create_triggers_or_foreign_keys_is_as_good_as_an_owner(tenant: Tenant, privilege: str) -> None:
    """That is enough to have code run in the loads of a superuser."""
    share_ledger(tenant.admin, tenant.name)
    ensure(tenant.admin.conninfo)
    tenant.admin.execute(f"GRANT {privilege} ON penstock.ranges TO {tenant.name}")
    with pytest.raises(TargetError, match="code run") as caught:
        ensure(tenant.admin.conninfo)
    assert tenant.name in str(caught.value.detail)


def test_foreign_key_of_another_role_is_refused(tenant: Tenant) -> None:
    """Its table's deferred triggers would run at the commit, though the privilege to refer was taken back."""
    share_ledger(tenant.admin, tenant.name)
    tenant.admin.execute(f"GRANT REFERENCES ON penstock.loads TO {tenant.name}")
    tenant.execute("CREATE TABLE referring (id uuid REFERENCES penstock.loads ON DELETE CASCADE)")
    tenant.admin.execute(f"REVOKE REFERENCES ON penstock.loads FROM {tenant.name}")
    with pytest.raises(TargetError, match="code run") as caught:
        ensure(tenant.admin.conninfo)
    assert "referring" in str(caught.value.detail)


# ---------------------------------------------------------------- leases and placements

_LEASE_PLANTS = {
    "check": "ALTER TABLE penstock.{} ADD CHECK (spying.spy() > 0) NOT VALID",
    "trigger": f"CREATE TRIGGER planted {_ON_ROW}",
    "index": "CREATE INDEX ON penstock.{} ((1)) WHERE spying.spy_of(1)",
    "view": "ALTER TABLE penstock.{0} RENAME TO {0}_o; CREATE VIEW penstock.{0} AS SELECT * FROM penstock.{0}_o"
    " WHERE spying.spy() > 0",
}


@pytest.fixture
def changed(servers: ServerPool) -> Iterator[ChangedServer]:
    """Provide a server whose settings may be changed, whose database postgres an ordinary role owns."""
    server = make_changed_server(servers, USUAL_MAJOR)
    server.reset()
    server.execute("CREATE ROLE lease_tenant LOGIN", "ALTER DATABASE postgres OWNER TO lease_tenant")
    yield server
    server.execute(
        "ALTER DATABASE postgres OWNER TO postgres", "DROP OWNED BY lease_tenant CASCADE", "DROP ROLE lease_tenant"
    )
    server.reset()


@pytest.mark.parametrize("kind", _LEASE_PLANTS)
def test_superuser_runs_nothing_of_who_owns_leases_and_placements(
    penstock: Run, changed: ChangedServer, tmp_path: Path, kind: str
) -> None:
    """Settings and the place for temporary work are left as they are."""
    with changed.connect() as connection:
        take(connection, request_for(lasts_s=3600.0))
    for name in ("SCHEMA penstock", "TABLE penstock.changes", "TABLE penstock.holds"):
        changed.execute(f"ALTER {name} OWNER TO lease_tenant")
    with psycopg.connect(changed.conninfo, user="lease_tenant", autocommit=True) as connection:
        connection.execute(_SPY.encode())
        for table in ("changes", "holds"):
            connection.execute(_LEASE_PLANTS[kind].format(table).encode())
    before = changed.snapshot()
    directory = tmp_path / "place"
    directory.mkdir()
    for command in (
        ("settings", "show"),
        ("settings", "apply", "bulk-load"),
        ("settings", "restore"),
        ("settings", "leases"),
        ("temp", "place", str(directory), "--same-device"),
        ("temp", "check"),
        ("temp", "remove"),
    ):
        refused = penstock(*command, "--to", changed.conninfo)
        assert (command, refused.code) == (command, TargetError.exit_code), refused.err
    assert changed.execute("SELECT is_called FROM spying.seen") == [(False,)]
    assert changed.snapshot() == before
