"""Ledgers that older versions of penstock have written are upgraded, and what they know survives.

tests/ledgers has a dump of each version from 11 on, which support/write_ledger.py has made with that version.
"""

from __future__ import annotations

import itertools
import re
import secrets
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

import penstock
from penstock.api.ledger_view import LedgerView
from penstock.changes.context import Context, Restored
from penstock.changes.records import TableStore
from penstock.changes.values import SERVER
from penstock.core.connect.connection import ConnectionFactory
from penstock.core.errors import ServerError, TakenOverError, TargetError
from penstock.core.recorded import to_json
from penstock.core.values.job import LoadRules
from penstock.ledger.ledger import Ledger
from penstock.ledger.members import compose_fence, register
from penstock.ledger.schema import OLDEST, VERSION, open_ledger, upgrade_ledger
from penstock.ledger.values import Claim
from penstock.loading.files.listing import ctime_ns, lasting_version
from penstock.loading.files.streams import SourceReader
from penstock.loading.plan.identity import digest
from penstock.restore.repair import repair
from support.files import write_to
from support.loads import ORIGIN, Loads, target
from support.write_ledger import COMPLETE, FILES, ROWS, TABLES, files_of, write_files

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.servers import PgServer

pytestmark = pytest.mark.versions

DUMPS = Path(__file__).parents[1] / "ledgers"
VERSIONS = sorted(int(path.stem) for path in DUMPS.glob("*.sql") if path.stem.isdigit() and int(path.stem) >= OLDEST)
_BEGUN = [table for table in TABLES if table not in COMPLETE]

# Everything of a ledger that its version decides, as lines of text. Minor versions of November 2026 keep a mark of
# their own, pg_attver, among the options of columns.
_CATALOGUE = """
    WITH tables AS (
        SELECT c.*, n.nspname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
         WHERE n.nspname = 'penstock' AND c.relkind IN ('r', 'S') AND NOT starts_with(c.relname, 'staging_')
    )
    SELECT concat_ws(' ', 'table', t.relname, t.relkind, t.relpersistence, t.relrowsecurity, t.relforcerowsecurity,
                     t.relreplident, t.reloptions, t.relowner::regrole, t.relacl, obj_description(t.oid, 'pg_class'))
      FROM tables AS t
     UNION ALL
    SELECT concat_ws(' ', 'column', t.relname, a.attname, row_number() OVER (PARTITION BY t.oid ORDER BY a.attnum),
                     format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity, a.attgenerated, a.attstorage,
                     a.attcollation::regcollation, a.attacl, pg_get_expr(d.adbin, d.adrelid),
                     col_description(t.oid, a.attnum),
                     ARRAY(SELECT o FROM unnest(a.attoptions) AS o WHERE NOT starts_with(o, 'pg_attver=')))
      FROM tables AS t
      JOIN pg_attribute AS a ON a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped
      LEFT JOIN pg_attrdef AS d ON d.adrelid = t.oid AND d.adnum = a.attnum
     UNION ALL
    SELECT concat_ws(' ', 'constraint', t.relname, k.conname, k.convalidated, pg_get_constraintdef(k.oid))
      FROM tables AS t JOIN pg_constraint AS k ON k.conrelid = t.oid
     UNION ALL
    SELECT concat_ws(' ', 'index', t.relname, pg_get_indexdef(i.indexrelid), i.indisvalid, i.indisreplident)
      FROM tables AS t JOIN pg_index AS i ON i.indrelid = t.oid
     UNION ALL
    SELECT concat_ws(' ', 'policy', to_jsonb(p)) FROM pg_policies AS p WHERE p.schemaname = 'penstock'
     UNION ALL
    SELECT concat_ws(' ', 'schema', n.nspacl, n.nspowner::regrole, obj_description(n.oid, 'pg_namespace'))
      FROM pg_namespace AS n WHERE n.nspname = 'penstock'
     ORDER BY 1
"""
_OWNED = ("loads", "rejects", "changes", "holds")
# The comments that have versions, at the end of a line of the catalogue.
_VERSIONED = re.compile(r" (?:penstock ledger, version|created by penstock) \S+$")


def describe(loads: Loads) -> list[str]:
    """Return the catalogue of a ledger, and its rows but for those of the catalogue's own numbers."""
    return [line for (line,) in loads.execute(_CATALOGUE)]


def count_rows(loads: Loads) -> list[tuple[Any, ...]]:
    """Return how many rows each of the ledger's tables has, and the sum of the loads' epochs."""
    tables = ("changes", "claims", "holds", "loads", "members", "objects", "ranges", "rejects", "targets")
    return loads.execute(
        " UNION ALL ".join(f"SELECT '{table}', count(*) FROM penstock.{table}" for table in tables)
        + " UNION ALL SELECT 'epochs', sum(epoch) FROM penstock.loads ORDER BY 1"
    )


def restore(conninfo: str, name: str, folder: Path) -> Loads:
    """Restore a dump into an empty database, as if it had loaded the files that are written into `folder`.

    What its user has written is the current user's.
    """
    write_files(folder)
    loads = Loads(conninfo)
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute((DUMPS / f"{name}.sql").read_text().replace(FILES, str(folder)).encode())
        with connection.cursor() as cursor, SourceReader() as sources:
            cursor.executemany(
                "UPDATE penstock.objects SET version = %s, ctime_ns = %s WHERE uri = %s",
                [(lasting_version(each), ctime_ns(each), each.uri) for each in sources.list([str(folder)])],
            )
            # A load is found by the key of its lock, which is made from the names of its files.
            cursor.execute("SELECT id, meaning FROM penstock.loads")
            cursor.executemany(
                "UPDATE penstock.loads SET lock_key = %s WHERE id = %s",
                [(digest_anywhere(meaning), load_id) for load_id, meaning in cursor.fetchall()],
            )
    loads.execute(
        "SET search_path = penstock;"
        + "".join(f"UPDATE {table} SET owner = CURRENT_USER;" for table in _OWNED)
        + "UPDATE loads SET login = SESSION_USER"
    )
    return loads


def digest_anywhere(meaning: dict[str, Any]) -> str:
    """Return the digest of a load's meaning that is the same in each database."""
    targets = [each | {"oid": 0, "numbers": None} for each in meaning["targets"]]
    return digest(to_json(meaning | {"targets": targets}))


def read_version(loads: Loads) -> int:
    """Return the ledger's version, as its comment says it."""
    ((comment,),) = loads.execute("SELECT obj_description('penstock.loads'::regclass)")
    return int(re.findall(r"\d+", comment)[0])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Provide the folder of the files that the older penstock has loaded."""
    folder = tmp_path / "files"
    folder.mkdir()
    return folder


@pytest.fixture(params=VERSIONS)
def old(request: pytest.FixtureRequest, database: str, folder: Path) -> Loads:
    """Provide a database as an older penstock has left it."""
    return restore(database, str(request.param), folder)


def upgrade(loads: Loads, **options: Any) -> None:
    """Upgrade the ledger as a load or penstock init would."""
    with ConnectionFactory(loads.conninfo).connect() as connection:
        upgrade_ledger(connection, "penstock", **options)


def find_load(loads: Loads, table: str) -> str:
    """Return the id of the load of a table."""
    return str(loads.execute(f"SELECT id FROM penstock.loads WHERE 'public.{table}' = ANY (tables)")[0][0])


def test_there_is_a_dump_of_each_older_version() -> None:
    """Whoever raises the version writes one with the version before."""
    assert list(range(OLDEST, VERSION)) == VERSIONS


@pytest.fixture
def role(database: str) -> Iterator[str]:
    """Provide an ordinary role that logs in."""
    name, admin = f"ann_{secrets.token_hex(4)}", Loads(database)
    admin.execute(f"CREATE ROLE {name} LOGIN")
    yield name
    admin.execute(f"DROP OWNED BY {name} CASCADE; DROP ROLE {name}")


def test_upgraded_ledger_equals_a_new_one(old: Loads, pg: PgServer) -> None:
    """Columns, constraints, indexes, policies, comments, owners and the privileges of a role; no row is lost.

    The role is one that each server has: one of the test's own could not be dropped while two databases know it.
    """
    new = Loads(pg.fresh_database())
    with ConnectionFactory(new.conninfo).connect() as connection:
        Ledger().ensure(connection)
    for loads in (old, new):
        loads.execute("GRANT USAGE, CREATE ON SCHEMA penstock TO pg_monitor")
        loads.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA penstock TO pg_monitor")
    before = dict(count_rows(old))
    upgrade(old)
    assert describe(old) == describe(new)
    before["epochs"] += before["loads"]
    assert dict(count_rows(old)) == before


@pytest.mark.part("rest")
def test_loads_of_an_older_penstock_are_resumed(old: Loads, folder: Path) -> None:
    """Reading changes nothing; the first resumed load upgrades. Nothing is lost or repeated, and the rejects stay."""
    version, before = read_version(old), count_rows(old)
    with LedgerView(ConnectionFactory(old.conninfo)) as view:
        assert len(view.loads()) == len(TABLES)
        assert view.totals()
        assert [cause.count for cause in view.rejects(find_load(old, "strict"))] == [1]
        assert view.left_staging()
        assert view.verify(find_load(old, "complete")).agrees
        assert view.find_newest("latest") == find_load(old, "leased")
    assert penstock.doctor("complete", to=old.conninfo).would_load
    old.plan(target(files_of(folder, "complete"), into="complete"), rules=LoadRules(retry_for=0.0, changed="skip"))
    assert (read_version(old), count_rows(old)) == (version, before)
    # A restored copy that is changed is repaired first; a test below does so.
    with pytest.raises(TargetError, match="came with a dump"):
        penstock.resume(find_load(old, "unfinished"), to=old.conninfo, changed="load", retry_for=0.0)
    old.execute("DELETE FROM penstock.changes")
    for table in _BEGUN:
        penstock.resume(find_load(old, table), to=old.conninfo, changed="load", retry_for=0.0)
    assert read_version(old) == VERSION
    assert old.execute("SELECT count(*) FROM penstock.loads WHERE state <> 'complete'") == [(0,)]
    for table in TABLES:
        assert old.execute(f"SELECT count(*), count(DISTINCT a) FROM {table}") == [(ROWS, ROWS)], table
        job = target(files_of(folder, table), into=table)
        assert old.run(job, rules=LoadRules(retry_for=0.0, changed="skip")).objects_skipped == len(
            files_of(folder, table)
        )
    old.execute("ALTER TABLE strict DROP CONSTRAINT strict_pkey; ALTER TABLE strict ALTER a TYPE text")
    assert penstock.retry(find_load(old, "strict"), to=old.conninfo).rows == 1


def test_repair_restores_what_an_older_penstock_has_changed(old: Loads) -> None:
    """As if it had died in this database: the records are moved to its own tables."""
    indexes = "SELECT count(*) FROM pg_index WHERE indrelid = 'indexed'::regclass"
    assert old.execute(indexes) == [(0,)]
    ((dropped,),) = old.execute("SELECT count(*) FROM penstock.changes")
    old.execute(
        f"UPDATE penstock.holds AS h SET origin = {ORIGIN}, target_oid = to_regclass(c.target_table::text)"
        " FROM penstock.changes AS c WHERE c.target_oid = h.target_oid;"
        f"UPDATE penstock.changes SET origin = {ORIGIN}, target_oid = to_regclass(target_table::text),"
        " relation_oid = to_regclass(target_table::text)"
    )
    done = old.repair()
    assert (done.errors, len(done.rebuilt)) == ([], dropped)
    assert old.execute(indexes) == [(2,)]
    assert old.execute("SELECT count(*) FROM penstock.changes") == [(0,)]
    assert read_version(old) == VERSION


@pytest.mark.parametrize("version", VERSIONS)
def test_lease_of_an_older_penstock_stays_recorded(version: int, database: str, folder: Path) -> None:
    """In the ledger of database postgres, which an upgrade of its own takes along."""
    loads = restore(database, f"{version}-server", folder)
    with ConnectionFactory(database).connect() as connection:
        store = TableStore(connection=connection)
        before = store.read_holds(SERVER), store.read_changes(SERVER)
        assert {change.kind for change in before[1]} == {"setting"}
        assert read_version(loads) == version
        assert store.open()
        assert (store.read_holds(SERVER), store.read_changes(SERVER)) == before
    assert read_version(loads) == VERSION


@pytest.mark.parametrize("version", VERSIONS)
def test_repair_without_anything_to_restore_upgrades_nothing(
    version: int, database: str, role: str, folder: Path
) -> None:
    """Otherwise each repair of a role that does not own the server's ledger would have an error."""
    loads = restore(database, f"{version}-server", folder)
    loads.execute(
        f"DELETE FROM penstock.changes; GRANT USAGE ON SCHEMA penstock TO {role};"
        f"GRANT SELECT ON ALL TABLES IN SCHEMA penstock TO {role}"
    )
    ((name,),) = loads.execute("SELECT current_database()")
    with ConnectionFactory(make_conninfo(database, user=role)).connect() as connection:
        store = TableStore(connection=connection)
        repair(Context(store=store, kinds=[], notice=print, concerns=lambda _: True), Restored())
        with pytest.raises(TargetError, match=f'of database "{name}" has version {version}'):
            store.open()
    assert read_version(loads) == version


@pytest.mark.part("rest")
def test_upgrade_that_is_killed_leaves_the_old_version_whole(old: Loads) -> None:
    """At each of its statements. The next one upgrades all of it."""
    before = describe(old), count_rows(old)
    for fault in itertools.count(1):
        with ConnectionFactory(old.conninfo).connect() as connection:
            if _upgrade_until(fault, connection, old):
                break
        assert (describe(old), count_rows(old)) == before
    assert fault > 10
    assert read_version(old) == VERSION


def test_step_that_fails_leaves_the_old_version_whole(old: Loads) -> None:
    """For example because somebody has added a column of that name. The error says that an upgrade has failed."""
    old.execute("ALTER TABLE penstock.ranges ADD COLUMN transaction text")
    before = describe(old), count_rows(old)
    with pytest.raises(TargetError, match="already exists") as caught:
        upgrade(old)
    assert "While upgrading the ledger" in str(caught.value.detail)
    assert (describe(old), count_rows(old)) == before
    old.execute("ALTER TABLE penstock.ranges DROP COLUMN transaction")
    upgrade(old)


def test_sessions_that_upgrade_at_once_do_it_once(old: Loads) -> None:
    """The epochs are raised once: a load that the first session has resumed goes on."""
    before = dict(count_rows(old))
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(upgrade, [old] * 4)) == [None] * 4
    assert dict(count_rows(old))["epochs"] == before["epochs"] + before["loads"]


def _upgrade_until(fault: int, connection: Any, loads: Loads) -> bool:
    """Upgrade, and end the session before its statement `fault`. Return whether it had fewer statements."""
    execute, numbers = connection.execute, itertools.count(1)

    def execute_or_die(*arguments: Any, **options: Any) -> Any:
        if next(numbers) == fault:
            loads.execute(f"SELECT pg_terminate_backend({connection.info.backend_pid}, 5000)")
        return execute(*arguments, **options)

    connection.execute = execute_or_die
    try:
        upgrade_ledger(connection, "penstock")
    except ServerError:
        return False
    return True


def test_older_process_is_fenced(old: Loads) -> None:
    """Its member has ended, its load has another epoch, and it cannot begin, resume or join a load."""
    load_id = find_load(old, "unfinished")
    ((epoch, member),) = old.execute(
        "SELECT l.epoch, m.number FROM penstock.loads AS l JOIN penstock.members AS m ON m.load = l.id"
        f" WHERE l.id = '{load_id}' AND m.ended_at IS NULL"
    )
    claim = Claim(load_id=load_id, epoch=epoch, is_resumed=False, member=member)
    fence = compose_fence("penstock", claim)
    with ConnectionFactory(old.conninfo).connect() as connection:
        assert connection.execute(fence).fetchone() is not None
        Ledger().hold_claim(connection, claim)
        upgrade(old)
        assert connection.execute(fence).fetchone() is None
        with pytest.raises(TakenOverError):
            Ledger().hold_claim(connection, claim)
        with pytest.raises(psycopg.errors.IntegrityError):
            connection.execute(
                "INSERT INTO penstock.members (load, number, lock_key, client) VALUES (%s, 9, '00', 'c')", [load_id]
            )


# What a later version would make of a ledger.
_LATER = f"""
    UPDATE penstock.members SET ended_at = now() WHERE ended_at IS NULL;
    ALTER TABLE penstock.members DROP CONSTRAINT members_version,
        ADD CONSTRAINT members_version CHECK (ended_at IS NOT NULL OR ledger_version = {VERSION + 1});
    COMMENT ON TABLE penstock.loads IS 'penstock ledger, version {VERSION + 1}';
    COMMENT ON TABLE penstock.objects IS 'created by penstock 7.2.0'
"""


@pytest.mark.parametrize("way", ["begin", "resume", "join"])
def test_process_that_a_later_version_overtakes_names_it(
    old: Loads, folder: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """It has opened the ledger before the upgrade. It records nothing, opens the ledger again, and is refused."""
    open_it, load_id = Ledger.open, find_load(old, "unfinished")
    old.execute("DELETE FROM penstock.changes")

    def open_before_upgrade(ledger: Ledger, *args: Any, **options: Any) -> bool:
        is_locked = open_it(ledger, *args, **options)
        old.execute(_LATER)
        if way == "join":
            register(args[0], "penstock", load_id, lock="00", client="c")
        return is_locked

    monkeypatch.setattr(Ledger, "open", open_before_upgrade)
    with pytest.raises(TargetError, match=f"has version {VERSION + 1}") as refused:
        if way == "resume":
            penstock.resume(load_id, to=old.conninfo, changed="load", retry_for=60.0)
        else:
            job = target(files_of(folder, "complete"), into="complete")
            old.run(job, rules=LoadRules(retry_for=60.0, again=True))
    assert refused.value.hint == "Install penstock 7.2.0, or a later one."
    assert old.execute(f"SELECT count(*) FROM penstock.members WHERE ledger_version >= {VERSION}") == [(0,)]


def test_upgrade_does_not_wait_for_ever(old: Loads) -> None:
    """It names the session that holds a lock, and is carried out once that session has ended."""
    before = describe(old)
    with psycopg.connect(old.conninfo) as other:
        other.execute("SELECT FROM penstock.loads")
        with pytest.raises(ServerError, match="cannot upgrade the ledger") as caught:
            upgrade(old, lock_timeout_s=0.05, patience_s=0.0)
        assert f"pid {other.info.backend_pid}" in str(caught.value.detail)
    assert describe(old) == before
    upgrade(old, patience_s=0.0)


def test_role_that_does_not_own_the_ledger_gets_the_command(old: Loads, role: str, tmp_path: Path) -> None:
    """It may read, and plans and loads are refused. A member of the owner upgrades in the owner's name."""
    owner = f"owner_{secrets.token_hex(4)}"
    old.execute(
        f"CREATE ROLE {owner}; GRANT ALL ON complete TO {role}; GRANT ALL ON ALL TABLES IN SCHEMA penstock TO {role}"
    )
    tables = [table for (table,) in old.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'penstock'")]
    ((database,),) = old.execute("SELECT current_database()")
    old.execute(
        f"ALTER DATABASE {database} OWNER TO {owner}; ALTER SCHEMA penstock OWNER TO {owner};"
        f"GRANT USAGE, CREATE ON SCHEMA penstock TO {role};"
        + "".join(f"ALTER TABLE penstock.{table} OWNER TO {owner};" for table in tables)
    )
    ann = Loads(make_conninfo(old.conninfo, user=role))
    job = target(write_to(tmp_path / "new.csv", "a,b\n71,x\n"), into="complete")
    try:
        for act in (ann.run, ann.plan):
            with pytest.raises(TargetError, match="only its owner can upgrade it") as caught:
                act(job)
            assert "penstock init --upgrade" in str(caught.value.hint)
        report = penstock.doctor("complete", to=ann.conninfo)
        assert [each.remedy for each in report.findings if "only its owner" in each.claim] == [caught.value.hint]
        assert read_version(old) < VERSION
        old.execute(f"GRANT {owner} TO {role}")
        assert [
            each.claim
            for each in penstock.doctor("complete", to=ann.conninfo).findings
            if "the next load" in each.claim
        ]
        ann.plan(job)
        assert read_version(old) < VERSION
        assert ann.run(job).rows == 1
        assert old.execute("SELECT DISTINCT tableowner FROM pg_tables WHERE schemaname = 'penstock'") == [(owner,)]
    finally:
        old.execute(f"REASSIGN OWNED BY {owner} TO CURRENT_USER; DROP OWNED BY {owner}; DROP ROLE {owner}")


def test_privileged_session_does_not_upgrade_the_ledger_of_a_role(old: Loads, role: str) -> None:
    """Code of the owner could run in it; the owner does it."""
    tables = [table for (table,) in old.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'penstock'")]
    old.execute(
        f"ALTER SCHEMA penstock OWNER TO {role};"
        + "".join(f"ALTER TABLE penstock.{each} OWNER TO {role};" for each in tables)
    )
    for conninfo in (old.conninfo, make_conninfo(old.conninfo, options=f"-c role={role}")):
        with ConnectionFactory(conninfo).connect() as connection, pytest.raises(TargetError, match="cannot trust"):
            open_ledger(connection, "penstock")
    assert read_version(old) < VERSION
    upgrade(Loads(make_conninfo(old.conninfo, user=role)))
    assert read_version(old) == VERSION


def test_init_upgrades_when_asked(old: Loads) -> None:
    """Without the option, the older ledger is refused; a plan changes nothing and has the statements."""
    with LedgerView(ConnectionFactory(old.conninfo)) as view:
        with pytest.raises(TargetError, match="has version") as caught:
            view.share(())
        assert "penstock init --upgrade" in str(caught.value.hint)
        planned = view.share((), upgrades=True, only_planned=True)
        assert any("ALTER TABLE" in statement for statement in planned)
        assert read_version(old) < VERSION
        assert view.share((), upgrades=True) == planned
    assert read_version(old) == VERSION


def test_publication_of_all_tables_is_not_broken(old: Loads, folder: Path, pg: PgServer) -> None:
    """Its subscribers would stop; the error has the statements that they need, whatever members they know."""
    old.execute("CREATE PUBLICATION everything FOR ALL TABLES")
    subscriber = restore(pg.fresh_database(), str(read_version(old)), folder)
    with pytest.raises(TargetError, match="would stop the subscribers") as caught:
        upgrade(old)
    assert "penstock init --upgrade --publish-ledger" in str(caught.value.hint)
    subscriber.execute(str(caught.value.detail).partition("They need: ")[2])
    upgrade(old, is_publishing_allowed=True)
    here, there = ([_VERSIONED.sub("", line) for line in describe(each)] for each in (old, subscriber))
    assert here == there


def test_changes_of_the_ledger_upgrade_it(old: Loads) -> None:
    """Forgetting, pruning and discarding, each by itself."""
    with LedgerView(ConnectionFactory(old.conninfo)) as view:
        view.forget(find_load(old, "leased"))
        assert read_version(old) == VERSION
        assert view.discard_rejects(find_load(old, "strict")) == 1
        assert view.prune(age_s=0.0).loads == len(COMPLETE)


@pytest.mark.parametrize("schema", ["penstock", "new"])
def test_ledger_that_is_too_old_keeps_its_tables_from_a_second_load(
    database: str, folder: Path, tmp_path: Path, schema: str
) -> None:
    """The hint renames it. What it knows is refused by name, in any schema; a new file is loaded if that is meant."""
    loads, job, version = (
        restore(database, str(OLDEST), folder),
        target(files_of(folder, "complete"), into="complete"),
        5,
    )
    # A ledger of that version did not record where its oids are valid.
    loads.execute(
        f"COMMENT ON TABLE penstock.loads IS 'penstock ledger, version {version}';"
        "COMMENT ON TABLE penstock.objects IS NULL; ALTER TABLE penstock.objects DROP origin"
    )
    with pytest.raises(TargetError, match=f"has version {version}, and this penstock needs") as caught:
        loads.run(job)
    assert "older penstock" in str(caught.value.hint)
    (rename,) = re.findall("ALTER SCHEMA .*?;", str(caught.value.hint))
    loads.execute(rename)
    now = Loads(database, ledger_schema=schema)
    for table in ("complete", "unfinished"):
        with pytest.raises(TargetError, match=f'known to another ledger, in schema "penstock_version_{version}"'):
            now.run(target(files_of(folder, table), into=table))
    new = target(write_to(tmp_path / "new.csv", "a,b\n71,x\n"), into="complete")
    assert now.run(new, rules=LoadRules(retry_for=0.0, again=True)).rows == 1
    with pytest.raises(TargetError, match="known to another ledger"):
        now.run(job)
    assert now.run(target(write_to(tmp_path / "newer.csv", "a,b\n72,x\n"), into="complete")).rows == 1
    assert now.count("complete") == ROWS + 2
