"""Leases on the settings of real servers: everything is as it was afterwards, whatever came in between."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import psycopg
import pytest

from penstock.api.ledger_view import LedgerView
from penstock.changes.records import TableStore, shape_lock
from penstock.changes.values import SERVER, Hold, server_change
from penstock.core.connect.connection import ConnectionFactory
from penstock.core.errors import TargetError
from penstock.core.values.server import ServerIdentity
from penstock.ledger.ledger import Ledger
from penstock.settings.decide import make_profile
from penstock.settings.kinds import SETTING
from support.changed_server import ChangedServer, records, release, request_for, restore, take

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
        with changed.connect() as connection:
            report, decision = take(connection, request_for())
            assert {change.name for change in decision.leased} >= {"max_wal_size", "checkpoint_timeout"}
            assert (changed.show("max_wal_size"), changed.show("checkpoint_timeout")) == ("4GB", "30min")
            ended = release(connection, report.lease_ids[0])
            assert changed.snapshot() == before
            assert all(result.note is None for result in ended.results)
            assert records(connection) == []
    finally:
        conf.write_text(text)


def test_other_lines_stay(changed18: ChangedServer) -> None:
    """Their order means nothing."""
    changed18.execute("ALTER SYSTEM SET max_wal_size = '2GB'", "ALTER SYSTEM SET work_mem = '5MB'")
    before = changed18.snapshot().auto_conf
    with changed18.connect() as connection:
        report, _ = take(connection, request_for())
        release(connection, report.lease_ids[0])
    assert changed18.snapshot().auto_conf == before


def test_leases_that_want_the_same_share_it_and_the_last_one_restores(changed: ChangedServer) -> None:
    """Whatever the order in which they come and go; settings that the other one does not want are its own."""
    before = changed.snapshot()
    wanted = {"max_wal_size": 5000.0}
    with changed.connect() as first, changed.connect() as second:
        one, _ = take(first, request_for(profile=make_profile(wanted)))
        two, _ = take(second, request_for(profile=make_profile(wanted | {"min_wal_size": 100.0})))
        assert (changed.show("max_wal_size"), changed.show("min_wal_size")) == ("5000MB", "100MB")
        ended = release(first, one.lease_ids[0])
        assert ended.results[0].note == "another lease needs it"
        again, _ = take(first, request_for(profile=make_profile(wanted)))
        release(second, two.lease_ids[0])
        assert (changed.show("max_wal_size"), changed.show("min_wal_size")) == ("5000MB", "80MB")
        release(first, again.lease_ids[0])
        assert records(first) == []
    assert changed.snapshot() == before


@pytest.mark.parametrize("value", [4500.0, 6000.0])
def test_lease_that_wants_another_value_is_refused(changed18: ChangedServer, value: float) -> None:
    """The first is named, and nothing is written down; when that has ended, it is taken."""
    before = changed18.snapshot()
    with changed18.connect() as first, changed18.connect() as second:
        one, _ = take(first, request_for("load 1", profile=make_profile({"max_wal_size": 5000.0})))
        other = request_for(profile=make_profile({"max_wal_size": value, "min_wal_size": 100.0}))
        with pytest.raises(TargetError, match="for load 1"):
            take(second, other)
        assert (changed18.show("max_wal_size"), changed18.show("min_wal_size")) == ("5000MB", "80MB")
        assert len(records(second)) == 2
        release(first, one.lease_ids[0])
        two, _ = take(second, other)
        release(second, two.lease_ids[0])
    assert changed18.snapshot() == before


@pytest.mark.part("rest")
def test_many_at_once(changed18: ChangedServer) -> None:
    """One changes settings at a time, and the ledger is created once."""
    before = changed18.snapshot()

    def come_and_go(number: int) -> None:
        with changed18.connect() as connection:
            wanted = {"max_wal_size": 5000.0} if number % 2 else {"min_wal_size": 100.0}
            report, _ = take(connection, request_for(profile=make_profile(wanted)))
            release(connection, report.lease_ids[0])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(come_and_go, range(12)))
    assert changed18.snapshot() == before
    with changed18.connect() as connection:
        assert records(connection) == []


@pytest.mark.parametrize(
    ("statement", "left", "kept"),
    [
        ("ALTER SYSTEM SET max_wal_size = '3GB'", "3GB", "changed by another session: its line is now 3GB"),
        ("ALTER SYSTEM RESET max_wal_size", "1GB", "it has the right value"),
    ],
)
def test_value_that_somebody_else_changed_stays(changed18: ChangedServer, statement: str, left: str, kept: str) -> None:
    """The value is reported, and the other settings are restored."""
    with changed18.connect() as connection:
        report, _ = take(connection, request_for())
        changed18.execute(statement)
        changed18.reload()
        ended = release(connection, report.lease_ids[0])
    assert changed18.show("max_wal_size") == left
    assert changed18.show("checkpoint_timeout") == "5min"
    notes = {result.name: result.note for result in ended.results}
    assert notes["checkpoint_timeout"] is None
    assert notes["max_wal_size"] == kept


def test_lease_whose_holder_has_gone_is_restored_by_the_next(changed: ChangedServer) -> None:
    """Its session ended without a word."""
    before = changed.snapshot()
    with changed.connect() as connection:
        take(connection, request_for("first"))
    _wait_for_locks(changed)
    assert changed.show("max_wal_size") == "4GB"
    with changed.connect() as connection:
        report, _ = take(connection, request_for("second", profile=make_profile({"min_wal_size": 100.0})))
        assert (changed.show("max_wal_size"), changed.show("min_wal_size")) == ("1GB", "100MB")
        assert "(first), which had ended" in report.warnings[0]
        release(connection, report.lease_ids[0])
    assert changed.snapshot() == before


def _wait_for_locks(server: ChangedServer) -> None:
    """Wait until a session that was closed has ended at the server."""
    while server.execute("SELECT FROM pg_locks WHERE locktype = 'advisory'"):
        time.sleep(0.01)


def test_standing_lease_stays_until_it_is_restored(changed18: ChangedServer) -> None:
    """No session holds it; a held one is not touched by restore."""
    before = changed18.snapshot()
    with changed18.connect() as connection:
        standing, _ = take(connection, request_for("standing", lasts_s=3600.0))
    with changed18.connect() as holder, changed18.connect() as connection:
        held, _ = take(holder, request_for("held", profile=make_profile({"min_wal_size": 100.0})))
        assert changed18.show("max_wal_size") == "4GB"
        report = restore(connection)
        assert report.lease_ids == standing.lease_ids
        assert (changed18.show("max_wal_size"), changed18.show("min_wal_size")) == ("1GB", "100MB")
        assert "is held by test host" in report.warnings[0]
        release(holder, held.lease_ids[0])
    assert changed18.snapshot() == before


def test_standing_lease_whose_time_is_up_is_restored_by_the_next(changed18: ChangedServer) -> None:
    """At once, here."""
    with changed18.connect() as connection:
        take(connection, request_for("over", lasts_s=0.0))
        report, _ = take(connection, request_for(profile=make_profile({"min_wal_size": 100.0})))
        assert changed18.show("max_wal_size") == "1GB"
        release(connection, report.lease_ids[0])


def test_lease_that_another_penstock_restored_is_no_error(changed18: ChangedServer) -> None:
    """As after a restart of the server, which ends all sessions."""
    with changed18.connect() as connection:
        report, _ = take(connection, request_for(lasts_s=3600.0))
        restore(connection)
        assert release(connection, report.lease_ids[0]).warnings


def test_nothing_to_change_is_no_lease(changed18: ChangedServer) -> None:
    """Nothing is written down."""
    changed18.execute("ALTER SYSTEM SET max_wal_size = '90GB'", "ALTER SYSTEM SET checkpoint_timeout = '1h'")
    changed18.reload()
    with changed18.connect() as connection:
        report, _ = take(connection, request_for())
        assert report.lease_ids == ()
        assert records(connection) == []


def test_broken_configuration_is_told_before_anything_is_changed(changed18: ChangedServer) -> None:
    """A reload would change nothing."""
    path = changed18.data_dir / "postgresql.conf"
    text = path.read_text()
    in_file(path, "this is no line\n")
    before = changed18.snapshot().auto_conf
    try:
        with (
            changed18.connect() as connection,
            pytest.raises(Exception, match="have an invalid line") as caught,
        ):
            take(connection, request_for())
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
    """The statements are run as they stand; then the role ends another role's lease, and takes one of its own."""
    conninfo = ordinary(changed)
    before = changed.snapshot()
    with ConnectionFactory(conninfo).connect() as connection:
        with pytest.raises(TargetError) as caught:
            take(connection, request_for())
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
            with changed.connect() as other:
                take(other, request_for(lasts_s=0.0, profile=make_profile({"max_wal_size": 5000.0})))
            report, _ = take(connection, request_for())
            assert changed.show("max_wal_size") == "4GB"
            release(connection, report.lease_ids[0])
            assert changed.snapshot() == before
            assert records(connection) == []
        finally:
            changed.reset()
            changed.execute("DROP OWNED BY loader CASCADE")


def test_planted_trigger_is_not_run(changed18: ChangedServer) -> None:
    """Tables of leases are trusted as the ledger is."""
    with changed18.connect() as connection:
        Ledger().ensure(connection)
        changed18.execute(
            "CREATE FUNCTION public.f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
            "CREATE TRIGGER planted BEFORE INSERT ON penstock.changes FOR EACH ROW EXECUTE FUNCTION public.f()",
        )
        with pytest.raises(TargetError, match="code run"):
            take(connection, request_for())
    changed18.execute("DROP SCHEMA penstock CASCADE", "DROP FUNCTION public.f()")


def test_publication_for_all_tables_is_no_place_for_leases(changed18: ChangedServer) -> None:
    """Its subscribers would stop."""
    changed18.execute("CREATE PUBLICATION everything FOR ALL TABLES")
    try:
        with changed18.connect() as connection, pytest.raises(TargetError, match="subscribers"):
            take(connection, request_for())
        assert changed18.show("max_wal_size") == "1GB"
    finally:
        changed18.execute("DROP PUBLICATION everything")


@pytest.mark.parametrize("text", ["0x400", "1e3MB", "1024MB "])
def test_line_that_could_not_be_put_back_is_no_ones_lease(changed18: ChangedServer, text: str) -> None:
    """Leases put back plain numbers alone, and the server reads more."""
    changed18.execute(f"ALTER SYSTEM SET max_wal_size = '{text}'")
    changed18.reload()
    before = changed18.snapshot()
    with changed18.connect() as connection:
        with pytest.raises(TargetError, match="max_wal_size"):
            take(connection, request_for())
        assert not TableStore(connection=connection).exists() or records(connection) == []
    assert changed18.snapshot() == before


def test_planted_lease_of_another_server_is_no_advice(changed18: ChangedServer) -> None:
    """A reader may run the statements that are shown for it."""
    names = ("archive_command", "checkpoint_timeout", "max_wal_size")
    priors = ("rm", None, "1GB'; ALTER SYSTEM SET archive_command = 'rm")
    lease = request_for("r").lease_id
    elsewhere = ServerIdentity(system_identifier=1, timeline=1, address=None, port=None)
    hold = Hold(holder_id=lease, target_oid=SERVER, lock="1", names=names, reason="r", server=elsewhere)
    with changed18.connect() as connection:
        store = TableStore(connection=connection)
        store.ensure()
        store.write(
            hold,
            [server_change(SETTING, name, {"prior": text}, lease) for name, text in zip(names, priors, strict=True)],
        )
        (told,) = restore(connection).warnings
    assert "archive_command" not in told
    assert "ALTER SYSTEM RESET checkpoint_timeout;" in told


def test_interrupt_that_leaves_a_statement_under_way_lets_others_change_settings(changed18: ChangedServer) -> None:
    """The session is of no use any more, and its locks end with it."""
    connection = changed18.connect()
    with pytest.raises(KeyboardInterrupt), shape_lock(connection, SERVER):
        connection.pgconn.send_query(b"SELECT pg_sleep(0.1)")
        raise KeyboardInterrupt
    assert connection.closed
    with changed18.connect() as other, shape_lock(other, SERVER):
        assert not other.closed
