"""Leases on the settings of real servers: everything is as it was afterwards, whatever came in between."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import psycopg
import pytest

from penstock.api.ledger_view import LedgerView
from penstock.changes.settings.profiles import make_profile
from penstock.errors import TargetError
from penstock.server.connect.connection import ConnectionFactory
from penstock.server.leases import LeaseStore
from support.changed_server import ChangedServer, release, request_for, restore, take

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def in_file(path: Path, lines: str) -> None:
    """Add lines to a file of the server's, whose owner it stays."""
    with path.open("a") as file:
        file.write(lines)


def set_nothing(_: ChangedServer) -> None:
    """Leave everything at its default."""


def set_in_conf(server: ChangedServer) -> None:
    """Write into postgresql.conf."""
    in_file(server.data_dir / "postgresql.conf", "max_wal_size = '1536MB'\ncheckpoint_timeout = 400\n")


def set_in_auto(server: ChangedServer) -> None:
    """Write into postgresql.auto.conf, as administrators do."""
    server.execute(
        "ALTER SYSTEM SET checkpoint_completion_target = 0.5",
        "ALTER SYSTEM SET max_wal_size = '2 GB'",
        "ALTER SYSTEM SET checkpoint_timeout = '6min'",
    )


def set_in_include(server: ChangedServer) -> None:
    """Write into a file that postgresql.conf includes."""
    (server.data_dir / "more.conf").write_text("max_wal_size = 1GB\n")
    (server.data_dir / "more.conf").chmod(0o644)
    in_file(server.data_dir / "postgresql.conf", "include 'more.conf'\n")


@pytest.mark.parametrize("prepare", [set_nothing, set_in_conf, set_in_auto, set_in_include])
def test_everything_is_as_it_was(changed: ChangedServer, prepare: Callable[[ChangedServer], None]) -> None:
    """Values, sources, lines and the text of postgresql.auto.conf, wherever the prior values came from."""
    conf = changed.data_dir / "postgresql.conf"
    text = conf.read_text()
    try:
        prepare(changed)
        changed.reload()
        before = changed.snapshot()
        with changed.store().connection as connection:
            store = LeaseStore(connection)
            report, decision = take(store, request_for())
            assert {change.name for change in decision.leased} >= {"max_wal_size", "checkpoint_timeout"}
            assert (changed.show("max_wal_size"), changed.show("checkpoint_timeout")) == ("4GB", "30min")
            ended = release(store, report.lease_ids[0])
            assert changed.snapshot() == before
            assert all(result.note is None for result in ended.results)
            assert store.read() == ([], [])
    finally:
        conf.write_text(text)


def test_other_lines_stay(changed18: ChangedServer) -> None:
    """Ours may then stand behind them, which means nothing."""
    changed18.execute("ALTER SYSTEM SET max_wal_size = '2GB'", "ALTER SYSTEM SET work_mem = '5MB'")
    before = changed18.snapshot().auto_conf.splitlines()
    with changed18.store().connection as connection:
        report, _ = take(LeaseStore(connection), request_for())
        release(LeaseStore(connection), report.lease_ids[0])
    assert sorted(changed18.snapshot().auto_conf.splitlines()) == sorted(before)


def test_largest_wish_wins_and_the_last_one_restores(changed: ChangedServer) -> None:
    """Whatever the order in which they come and go."""
    before = changed.snapshot()
    with changed.store().connection as first, changed.store().connection as second:
        small, _ = take(LeaseStore(first), request_for(profile=make_profile({"max_wal_size": 5000.0})))
        large, _ = take(
            LeaseStore(second), request_for(profile=make_profile({"max_wal_size": 6000.0, "min_wal_size": 100.0}))
        )
        assert changed.show("max_wal_size") == "6000MB"
        release(LeaseStore(second), large.lease_ids[0])
        assert (changed.show("max_wal_size"), changed.show("min_wal_size")) == ("5000MB", "80MB")
        again, _ = take(LeaseStore(second), request_for(profile=make_profile({"max_wal_size": 4500.0})))
        assert changed.show("max_wal_size") == "5000MB"
        ended = release(LeaseStore(first), small.lease_ids[0])
        assert changed.show("max_wal_size") == "4500MB"
        assert ended.results[0].note == "another lease needs it"
        release(LeaseStore(second), again.lease_ids[0])
    assert changed.snapshot() == before


def test_many_at_once(changed18: ChangedServer) -> None:
    """One changes settings at a time, and the tables are made once."""
    before = changed18.snapshot()

    def come_and_go(number: int) -> None:
        with changed18.store().connection as connection:
            store = LeaseStore(connection)
            report, _ = take(store, request_for(profile=make_profile({"max_wal_size": 5000.0 + number})))
            release(store, report.lease_ids[0])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(come_and_go, range(12)))
    assert changed18.snapshot() == before
    assert changed18.execute("SELECT FROM penstock.lease_priors") == []


@pytest.mark.parametrize(
    ("statement", "left", "kept"),
    [
        ("ALTER SYSTEM SET max_wal_size = '3GB'", "3GB", "changed by another session: its line is now 3GB"),
        ("ALTER SYSTEM RESET max_wal_size", "1GB", "it has the right value"),
    ],
)
def test_value_that_somebody_else_changed_stays(changed18: ChangedServer, statement: str, left: str, kept: str) -> None:
    """It is told, and the others go back."""
    with changed18.store().connection as connection:
        report, _ = take(LeaseStore(connection), request_for())
        changed18.execute(statement)
        changed18.reload()
        ended = release(LeaseStore(connection), report.lease_ids[0])
    assert changed18.show("max_wal_size") == left
    assert changed18.show("checkpoint_timeout") == "5min"
    notes = {result.name: result.note for result in ended.results}
    assert notes["checkpoint_timeout"] is None
    assert notes["max_wal_size"] == kept


def test_lease_whose_holder_has_gone_is_restored_by_the_next(changed: ChangedServer) -> None:
    """Its session ended without a word."""
    before = changed.snapshot()
    with changed.store().connection as connection:
        take(LeaseStore(connection), request_for("first"))
    _wait_for_locks(changed)
    assert changed.show("max_wal_size") == "4GB"
    with changed.store().connection as connection:
        report, _ = take(LeaseStore(connection), request_for("second", profile=make_profile({"min_wal_size": 100.0})))
        assert (changed.show("max_wal_size"), changed.show("min_wal_size")) == ("1GB", "100MB")
        assert "(first), which had ended" in report.warnings[0]
        release(LeaseStore(connection), report.lease_ids[0])
    assert changed.snapshot() == before


def _wait_for_locks(server: ChangedServer) -> None:
    """Wait until a session that was closed has ended at the server."""
    while server.execute("SELECT FROM pg_locks WHERE locktype = 'advisory'"):
        pass


def test_standing_lease_stays_until_it_is_restored(changed18: ChangedServer) -> None:
    """No session holds it; a held one is not touched by restore."""
    before = changed18.snapshot()
    with changed18.store().connection as connection:
        standing, _ = take(LeaseStore(connection), request_for("standing", lasts_s=3600.0))
    with changed18.store().connection as holder, changed18.store().connection as connection:
        held, _ = take(LeaseStore(holder), request_for("held", profile=make_profile({"min_wal_size": 100.0})))
        assert changed18.show("max_wal_size") == "4GB"
        report = restore(LeaseStore(connection))
        assert report.lease_ids == standing.lease_ids
        assert (changed18.show("max_wal_size"), changed18.show("min_wal_size")) == ("1GB", "100MB")
        assert "is held by test host" in report.warnings[0]
        release(LeaseStore(holder), held.lease_ids[0])
    assert changed18.snapshot() == before


def test_standing_lease_whose_time_is_up_is_restored_by_the_next(changed18: ChangedServer) -> None:
    """At once, here."""
    with changed18.store().connection as connection:
        take(LeaseStore(connection), request_for("over", lasts_s=0.0))
        report, _ = take(LeaseStore(connection), request_for(profile=make_profile({"min_wal_size": 100.0})))
        assert changed18.show("max_wal_size") == "1GB"
        release(LeaseStore(connection), report.lease_ids[0])


def test_lease_that_another_penstock_restored_is_no_error(changed18: ChangedServer) -> None:
    """As after a restart of the server, which ends all sessions."""
    with changed18.store().connection as connection:
        report, _ = take(LeaseStore(connection), request_for(lasts_s=3600.0))
        restore(LeaseStore(connection))
        assert release(LeaseStore(connection), report.lease_ids[0]).warnings


def test_nothing_to_change_is_no_lease(changed18: ChangedServer) -> None:
    """Nothing is written down."""
    changed18.execute("ALTER SYSTEM SET max_wal_size = '90GB'", "ALTER SYSTEM SET checkpoint_timeout = '1h'")
    changed18.reload()
    with changed18.store().connection as connection:
        report, _ = take(LeaseStore(connection), request_for())
        assert report.lease_ids == ()
        assert LeaseStore(connection).read() == ([], [])


def test_broken_configuration_is_told_before_anything_is_changed(changed18: ChangedServer) -> None:
    """A reload would change nothing."""
    path = changed18.data_dir / "postgresql.conf"
    text = path.read_text()
    in_file(path, "this is no line\n")
    before = changed18.snapshot().auto_conf
    try:
        with (
            changed18.store().connection as connection,
            pytest.raises(Exception, match="have an invalid line") as caught,
        ):
            take(LeaseStore(connection), request_for())
        assert "postgresql.conf line" in caught.value.detail
    finally:
        path.write_text(text)
    assert changed18.snapshot().auto_conf == before


def ordinary(server: ChangedServer) -> str:
    """Return the conninfo of a role that has been granted nothing."""
    if not server.execute("SELECT FROM pg_roles WHERE rolname = 'loader'"):
        server.execute("CREATE ROLE loader LOGIN")
    server.execute("DROP OWNED BY loader CASCADE")
    return psycopg.conninfo.make_conninfo(server.conninfo, user="loader")


def test_ordinary_role_is_told_what_it_needs_and_then_has_it(changed: ChangedServer) -> None:
    """The statements are run as they stand; then the role takes a lease and gives it back."""
    conninfo = ordinary(changed)
    before = changed.snapshot()
    with ConnectionFactory(conninfo).connect() as connection:
        with pytest.raises(TargetError) as caught:
            take(LeaseStore(connection), request_for())
        assert caught.value.hint is not None
        assert caught.value.detail == "It would change max_wal_size, checkpoint_timeout."
        if changed.major == 14:
            assert "superuser" in caught.value.hint
            return
        steps = [step.strip() for step in caught.value.hint.replace("In database postgres: ", "").split(";")]
        assert "penstock init --grant loader" in steps
        changed.execute(*(step for step in steps if step and not step.startswith("penstock ")))
        with LedgerView(ConnectionFactory(changed.conninfo)) as view:
            view.share(("loader",), is_publishing_allowed=False)
        try:
            report, _ = take(LeaseStore(connection), request_for())
            assert changed.show("max_wal_size") == "4GB"
            release(LeaseStore(connection), report.lease_ids[0])
            assert changed.snapshot() == before
        finally:
            changed.reset()
            changed.execute("DROP OWNED BY loader CASCADE")


def test_planted_trigger_is_not_run(changed18: ChangedServer) -> None:
    """Tables of leases are trusted as the ledger is."""
    with changed18.store().connection as connection:
        LeaseStore(connection).ensure()
        changed18.execute(
            "CREATE FUNCTION public.f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
            "CREATE TRIGGER planted BEFORE INSERT ON penstock.leases FOR EACH ROW EXECUTE FUNCTION public.f()",
        )
        with pytest.raises(TargetError, match="code run"):
            take(LeaseStore(connection), request_for())
    changed18.execute("DROP SCHEMA penstock CASCADE", "DROP FUNCTION public.f()")


def test_publication_for_all_tables_is_no_place_for_leases(changed18: ChangedServer) -> None:
    """Its subscribers would stop."""
    changed18.execute("CREATE PUBLICATION everything FOR ALL TABLES")
    try:
        with changed18.store().connection as connection, pytest.raises(TargetError, match="subscribers"):
            take(LeaseStore(connection), request_for())
        assert changed18.show("max_wal_size") == "1GB"
    finally:
        changed18.execute("DROP PUBLICATION everything")


@pytest.mark.parametrize("text", ["0x400", "1e3MB", "1024MB "])
def test_line_that_could_not_be_put_back_is_no_ones_lease(changed18: ChangedServer, text: str) -> None:
    """Leases put back plain numbers alone, and the server reads more."""
    changed18.execute(f"ALTER SYSTEM SET max_wal_size = '{text}'")
    changed18.reload()
    before = changed18.snapshot()
    with changed18.store().connection as connection:
        with pytest.raises(TargetError, match="max_wal_size"):
            take(LeaseStore(connection), request_for())
        assert LeaseStore(connection).read()[0] == []
    assert changed18.snapshot() == before


def test_planted_lease_of_another_server_is_no_advice(changed18: ChangedServer) -> None:
    """The statements that are told for it are run by whoever reads them."""
    with changed18.store().connection as connection:
        LeaseStore(connection).ensure()
        connection.execute(
            "WITH planted AS (INSERT INTO penstock.leases (id, client, reason, profile, system_identifier, timeline)"
            " VALUES (gen_random_uuid(), 'c', 'r', 'p', 1, 1) RETURNING id)"
            " INSERT INTO penstock.lease_values SELECT id, name, 1 FROM planted,"
            " unnest(ARRAY['archive_command', 'checkpoint_timeout', 'max_wal_size']) AS name"
        )
        connection.execute(
            "INSERT INTO penstock.lease_priors (name, value, source, auto_text, ours) VALUES"
            " ('archive_command', 'x', 'y', 'rm', '{}'),"
            " ('max_wal_size', 'x', 'y', '1GB''; ALTER SYSTEM SET archive_command = ''rm', '{}')"
        )
        (told,) = restore(LeaseStore(connection)).warnings
    assert "archive_command" not in told
    assert "ALTER SYSTEM RESET checkpoint_timeout;" in told


def test_interrupt_that_leaves_a_statement_under_way_lets_others_change_settings(changed18: ChangedServer) -> None:
    """The session is of no use any more, and its locks end with it."""
    store = changed18.store()
    with pytest.raises(KeyboardInterrupt), store.alone():
        store.connection.pgconn.send_query(b"SELECT pg_sleep(0.1)")
        raise KeyboardInterrupt
    assert store.connection.closed
    with changed18.store().connection as other, LeaseStore(other).alone():
        assert not other.closed
