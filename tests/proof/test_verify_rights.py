"""Verification by roles with few rights, under row security, on a standby: it works, or says what is lacking."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import psycopg
import pytest

import penstock
from penstock.core.errors import PenstockError, TargetError
from support.campaign.plant import Pair
from support.loads import Loads, share_ledger, target
from support.modes import mode_target
from support.proofs import copy_again, load, said, verify, write_records

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.servers import ServerPool


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Provide a csv file of 200 records."""
    return write_records(tmp_path)


@pytest.fixture
def admin(database: str, user_name: str) -> Loads:
    """Provide loads by a superuser, with table t and a ledger that the ordinary role may fill."""
    admin = Loads(database, setup=f'CREATE TABLE t (a int PRIMARY KEY, b text); GRANT ALL ON t TO "{user_name}"')
    share_ledger(admin, f'"{user_name}"')
    admin.execute(f'GRANT CREATE ON SCHEMA penstock TO "{user_name}"')
    return admin


@pytest.fixture
def loads(admin: Loads, user_conninfo: str) -> Loads:
    """Provide loads by the ordinary role, in tiny blocks."""
    return Loads(user_conninfo, piece_bytes=101)


def leave_reading(admin: Loads, user: str) -> None:
    """Leave a role SELECT on the table, and USAGE and SELECT on the ledger."""
    admin.execute(
        f'REVOKE ALL ON t FROM "{user}"; GRANT SELECT ON t TO "{user}";'
        f'REVOKE ALL ON ALL TABLES IN SCHEMA penstock FROM "{user}";'
        f'GRANT SELECT ON ALL TABLES IN SCHEMA penstock TO "{user}";'
        f'REVOKE CREATE ON SCHEMA penstock FROM "{user}"'
    )


# ---------------------------------------------------------------- rights


@pytest.mark.part("rest")
@pytest.mark.parametrize("mode", ["append", "truncate", "upsert"])
def test_reading_the_table_and_the_ledger_is_enough(
    admin: Loads, loads: Loads, user_name: str, path: Path, mode: str
) -> None:
    """With temporary tables, also for the values, and for a file that was copied again; what is missing is found."""
    load_id = load(loads, mode_target(path, mode, key=("a",) if mode == "upsert" else ()))
    leave_reading(admin, user_name)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        loads.execute("INSERT INTO t VALUES (-1, 'x')")
    copy_again(path)
    assert verify(loads, load_id, values=False).problems == ()
    outcome = verify(loads, load_id)
    assert (outcome.problems, outcome.tables[0].compared) == ((), 200)
    admin.execute("UPDATE t SET b = 'other' WHERE a = 40")
    assert said(verify(loads, load_id))[0] == ("is not in the table", 42)


def test_sequence_of_a_default_needs_no_right(admin: Loads, loads: Loads, user_name: str, path: Path) -> None:
    """The load needs USAGE on it; to read needs none."""
    admin.execute(f'ALTER TABLE t ADD c serial; GRANT USAGE ON SEQUENCE t_c_seq TO "{user_name}"')
    load_id = load(loads, target(path))
    admin.execute(f'REVOKE ALL ON SEQUENCE t_c_seq FROM "{user_name}"')
    assert verify(loads, load_id).problems == ()


def test_missing_right_is_named(admin: Loads, loads: Loads, database: str, user_name: str, path: Path) -> None:
    """SELECT on the table for the counts, and TEMPORARY on the database for the values, before a row is read."""
    load_id = load(loads, target(path))
    name = psycopg.conninfo.conninfo_to_dict(database)["dbname"]
    admin.execute(f'REVOKE TEMPORARY ON DATABASE "{name}" FROM PUBLIC')
    assert verify(loads, load_id, values=False).problems == ()
    with pytest.raises(TargetError) as caught:
        verify(loads, load_id)
    assert caught.value.message == f'permission denied to create temporary tables in database "{name}"'
    assert f'GRANT TEMPORARY ON DATABASE "{name}" TO "{user_name}"' in str(caught.value.hint)
    admin.execute(f'REVOKE SELECT ON t FROM "{user_name}"')
    with pytest.raises(TargetError, match="permission denied for table t") as caught:
        verify(loads, load_id, values=False)
    assert "grant SELECT on the table" in str(caught.value.hint)


def test_missing_right_on_the_ledger_is_named(admin: Loads, loads: Loads, user_name: str, path: Path) -> None:
    """Its schema, or one of its tables."""
    load_id = load(loads, target(path))
    admin.execute(f'REVOKE ALL ON ALL TABLES IN SCHEMA penstock FROM "{user_name}"')
    with pytest.raises(TargetError) as caught:
        verify(loads, load_id)
    assert "penstock init" in str(caught.value.hint)


def test_load_of_another_role_is_refused(admin: Loads, loads: Loads, user_name: str, path: Path) -> None:
    """By the load's role, which a superuser's login does not replace: the ledger's rows act with its rights."""
    load_id = load(loads, target(path))
    with pytest.raises(TargetError) as caught:
        verify(admin, load_id)
    assert f'it belongs to role "{user_name}"' in caught.value.message
    assert f'role="{user_name}"' in str(caught.value.hint)


# ---------------------------------------------------------------- row security


@pytest.mark.part("rest")
def test_table_whose_policies_hide_rows_is_refused(admin: Loads, loads: Loads, user_name: str, path: Path) -> None:
    """Hidden rows are not missing ones; a role that bypasses policies verifies its counts and its values."""
    admin.execute(
        "ALTER TABLE t ENABLE ROW LEVEL SECURITY; CREATE POLICY sees ON t FOR SELECT USING (a < 100);"
        "CREATE POLICY writes ON t FOR INSERT WITH CHECK (true)"
    )
    load_id = load(loads, target(path))
    assert loads.count() == 100
    for values in (False, True):
        with pytest.raises(TargetError) as caught:
            verify(loads, load_id, values=values)
        assert f'row-level security applies to role "{user_name}"' in caught.value.message
        assert f'ALTER ROLE "{user_name}" BYPASSRLS' in str(caught.value.hint)
    admin.execute(f'ALTER ROLE "{user_name}" BYPASSRLS')
    outcome = verify(loads, load_id)
    assert (outcome.problems, outcome.tables[0].rows) == ((), 200)
    admin.execute("DELETE FROM t WHERE a = 150")
    assert said(verify(loads, load_id))[-1] == ("is not in the table", 152)


def test_owner_is_refused_only_if_policies_are_forced(admin: Loads, loads: Loads, user_name: str, path: Path) -> None:
    """As PostgreSQL does."""
    admin.execute(f'ALTER TABLE t OWNER TO "{user_name}"; ALTER TABLE t ENABLE ROW LEVEL SECURITY')
    load_id = load(loads, target(path))
    assert verify(loads, load_id).problems == ()
    admin.execute("ALTER TABLE t FORCE ROW LEVEL SECURITY")
    with pytest.raises(TargetError, match="row-level security applies"):
        verify(loads, load_id)


# ---------------------------------------------------------------- standby


@pytest.fixture
def pair(servers: ServerPool) -> Iterator[Pair]:
    """Provide a primary and its synchronous standby."""
    made = Pair(servers, 18)
    yield made
    for server in made.servers:
        server.stop("immediate")


def await_replay(pair: Pair) -> None:
    """Wait until the standby has replayed what the primary has written."""
    with (
        psycopg.connect(pair.primary.conninfo(), autocommit=True) as primary,
        psycopg.connect(pair.standby.conninfo(), autocommit=True) as standby,
    ):
        (written,) = primary.execute("SELECT pg_current_wal_insert_lsn()").fetchone() or (None,)
        while standby.execute("SELECT pg_last_wal_replay_lsn() < %s::pg_lsn", [written]).fetchone() == (True,):
            time.sleep(0.02)


@pytest.mark.part("rest")
def test_standby_counts_and_refuses_to_compare_values(pair: Pair, path: Path) -> None:
    """It has no temporary tables, and says so; a file that was copied again is compared with the ledger there too."""
    loads = Loads(pair.conninfo, setup="CREATE TABLE t (a int, b text)")
    load_id = load(loads, target(path))
    copy_again(path)
    await_replay(pair)
    outcome = penstock.verify(load_id, to=pair.standby.conninfo())
    assert (outcome.problems, outcome.tables[0].rows) == ((), 200)
    for to, message in [
        (pair.standby.conninfo(), "could not connect"),
        (f"{pair.standby.conninfo()} target_session_attrs=any", "cannot compare values on a standby"),
    ]:
        with pytest.raises(PenstockError, match=message) as caught:
            penstock.verify(load_id, to=to, values=True)
        assert "primary" in str(caught.value.hint)
    loads.execute("DELETE FROM t WHERE a = 7")
    await_replay(pair)
    (problem,) = penstock.verify(load_id, to=pair.standby.conninfo()).problems
    assert problem.message == "has 199 rows, and the load has stored 200"
