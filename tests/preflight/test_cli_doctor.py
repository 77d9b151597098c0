"""`penstock doctor` on real servers: the screen, the object, the exit code."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from penstock.api.connect import connect_to
from penstock.core.errors import PenstockError
from penstock.core.values.diagnosis import Diagnosis
from penstock.core.values.job import LoadJob
from penstock.loading.loader import Loader
from penstock.preflight.command import render
from support.files import write_to
from support.loads import target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock.embedded.server import EmbeddedServer
    from support.command import Finished


@pytest.fixture
def ordinary(database: str) -> Iterator[str]:
    """Provide the database as a role that has been granted nothing."""
    with psycopg.connect(database, autocommit=True) as admin:
        name = f"clerk_{admin.info.backend_pid}"
        admin.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'hunter2'")
        yield make_conninfo(database, user=name, password="hunter2")
        admin.execute(f"DROP OWNED BY {name} CASCADE")
        admin.execute(f"DROP ROLE {name}")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Provide a small file."""
    return write_to(tmp_path / "t.csv", "a,b\n1,x\n2,y\n")


def test_sound_server_would_be_loaded_into(database: str, penstock: Callable[..., Finished]) -> None:
    """One screen, and exit code 0."""
    shown = penstock("doctor", "--to", database)
    assert shown.code == 0
    assert shown.out.rstrip().endswith("Ready to load.")
    assert len(shown.out.splitlines()) < 40


def test_object_has_facts_findings_and_verdict(database18: str, penstock: Callable[..., Finished]) -> None:
    """For machines: the same, whole."""
    shown = penstock("doctor", "--to", database18, "--json")
    assert shown.object["would_load"] is True
    assert shown.object["facts"]["rights"]["is_superuser"] is True
    assert {finding["severity"] for finding in shown.object["findings"]} <= {"ok", "note", "warning"}


def test_remedies_make_a_refused_load_go(
    database: str, ordinary: str, file: Path, penstock: Callable[..., Finished]
) -> None:
    """The statements that doctor prints are run as they stand; then it says that a load goes, and it does."""
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute("CREATE SCHEMA sales; CREATE TABLE sales.t (a int, b text)")
        shown = penstock("doctor", "--to", ordinary, "--into", "sales.t", "--json")
        assert shown.code == 9
        refused = [finding for finding in shown.object["findings"] if finding["severity"] == "refusal"]
        assert {finding["code"] for finding in refused} == {"ledger", "table"}
        with pytest.raises(PenstockError):
            _load(ordinary, file)
        for finding in shown.object["findings"]:
            # Test servers have fsync off, which is to stay.
            if finding["code"] == "ledger":
                _, _, command = finding["remedy"].rstrip(".").partition(" run penstock ")
                assert penstock(*command.split(), "--to", database).code == 0
            elif finding["remedy"] is not None and finding["code"] != "settings":
                statements = finding["remedy"].removeprefix("Have the owner run ")
                admin.execute(statements.partition(" Or use")[0])
    again = penstock("doctor", "--to", ordinary, "--into", "sales.t")
    assert (again.code, "GRANT" in again.out) == (0, False)
    _load(ordinary, file)


def _load(conninfo: str, file: Path) -> None:
    with Loader(connect_to(conninfo)) as loader:
        loader.run(loader.plan(LoadJob(targets=(target(file, into="sales.t"),))))


def test_missing_table_is_a_refusal(database18: str, penstock: Callable[..., Finished]) -> None:
    """With the two ways to have one."""
    shown = penstock("doctor", "--to", database18, "--into", "nowhere")
    assert shown.code == 9
    assert 'table "nowhere" does not exist' in shown.out


def test_tables_costs_are_told(database18: str, penstock: Callable[..., Finished]) -> None:
    """Indexes, keys and triggers that each row passes, row security, publications."""
    with psycopg.connect(database18, autocommit=True) as admin:
        admin.execute("CREATE TABLE t (a int PRIMARY KEY, b int REFERENCES t); CREATE INDEX ON t (b)")
        admin.execute("CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'")
        admin.execute("CREATE TRIGGER g BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION f()")
        admin.execute("CREATE PUBLICATION p FOR TABLE t")
    shown = penstock("doctor", "--to", database18, "--into", "t", "--json")
    texts = [finding["claim"] for finding in shown.object["findings"] if finding["code"] == "table"]
    assert shown.code == 0
    assert any("2 indexes, 1 foreign key, 1 trigger" in text for text in texts)
    assert any("g ON public.t" in text or "g ON t" in text for text in texts)
    assert any('published by "p"' in text for text in texts)


@pytest.mark.part("rest")
def test_table_that_cannot_be_read_is_a_refusal(database: str, penstock: Callable[..., Finished]) -> None:
    """It names the session that keeps readers out, and the rest is shown."""
    with psycopg.connect(database) as holder:
        holder.execute("CREATE TABLE t (a int)")
        holder.commit()
        holder.execute("LOCK TABLE t")
        shown = penstock("doctor", "--to", database, "--into", "t")
        assert shown.code == 9
        assert f"pid {holder.info.backend_pid}" in shown.out
        assert "could not get a lock within 2 s" in shown.out
        assert "autovacuum" in shown.out


def test_partitioned_tables_size_is_its_partitions(database18: str, penstock: Callable[..., Finished]) -> None:
    """The parent itself has none."""
    with psycopg.connect(database18, autocommit=True) as admin:
        admin.execute("CREATE TABLE t (a int) PARTITION BY RANGE (a)")
        admin.execute("CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (100000)")
        admin.execute("INSERT INTO t SELECT generate_series(1, 10000)")
        (size,) = admin.execute("SELECT pg_total_relation_size('t1')").fetchone() or (0,)
    shown = penstock("doctor", "--to", database18, "--into", "t", "--json")
    assert shown.object["facts"]["table"]["costs"]["size_bytes"] == size


def test_plan_is_shown_for_sources(database18: str, file: Path, penstock: Callable[..., Finished]) -> None:
    """As penstock load --plan shows it."""
    with psycopg.connect(database18, autocommit=True) as admin:
        admin.execute("CREATE TABLE t (a int, b text)")
    shown = penstock("doctor", "--to", database18, "--into", "t", "--for", str(file))
    assert shown.code == 0
    assert "dialect  csv" in shown.out
    described = penstock("doctor", "--to", database18, "--into", "t", "--for", str(file), "--json").object
    assert described["plan"]["targets"][0]["fields"][0]["column"] == "a"


def test_load_that_would_fill_a_disk_is_refused(
    database18: str, tmp_path: Path, penstock: Callable[..., Finished]
) -> None:
    """As penstock load refuses it; the file has holes, which take no room."""
    with psycopg.connect(database18, autocommit=True) as admin:
        admin.execute("CREATE TABLE t (a int, b text)")
    path = tmp_path / "t.csv"
    with path.open("wb") as file:
        file.write(b"a,b\n" + b"1,x\n" * 500_000)
        file.truncate(8 * 10**12)
    described = penstock("doctor", "--to", database18, "--into", "t", "--for", str(path), "--json")
    found = [one for one in described.object["findings"] if one["code"] == "disks" and one["severity"] == "refusal"]
    assert described.code == 9
    assert "the load would fill" in found[0]["claim"]
    assert "--ignore-space" in found[0]["remedy"]
    assert penstock("load", str(path), "--into", "t", "--to", database18).code == 6


def test_disks_that_suffice_are_told(database18: str, file: Path, penstock: Callable[..., Finished]) -> None:
    """With what is expected."""
    with psycopg.connect(database18, autocommit=True) as admin:
        admin.execute("CREATE TABLE t (a int, b text)")
    described = penstock("doctor", "--to", database18, "--into", "t", "--for", str(file), "--json").object
    texts = [one["claim"] for one in described["findings"] if one["code"] == "disks" and one["severity"] == "ok"]
    assert "expected of" in texts[0]
    assert described["plan"]["steps"]["space"]["disks"]


def test_load_that_cannot_be_planned_is_a_refusal(
    database18: str, tmp_path: Path, penstock: Callable[..., Finished]
) -> None:
    """What the plan's error says is a finding."""
    with psycopg.connect(database18, autocommit=True) as admin:
        admin.execute("CREATE TABLE t (a int)")
    shown = penstock("doctor", "--to", database18, "--into", "t", "--for", str(tmp_path / "missing.csv"))
    assert shown.code == 9
    assert "refusal  plan" in shown.out


def test_sources_need_a_table(penstock: Callable[..., Finished]) -> None:
    """There is nothing to plan into."""
    assert penstock("doctor", "--for", "x.csv").code == 2


def test_screen_is_plain_text_for_who_is_no_terminal(
    database: str, ordinary: str, penstock: Callable[..., Finished]
) -> None:
    """No escape sequence, no line longer than the screen is wide, no password."""
    shown = penstock("doctor", "--to", ordinary)
    assert "\x1b" not in shown.out
    assert "hunter2" not in shown.out + shown.err
    assert all(len(line) <= 110 for line in shown.out.splitlines())


def test_brackets_are_no_markup() -> None:
    """Whatever a server's message holds is shown as it is."""
    finding = Diagnosis(severity="warning", code="slots", claim="slot [red]x[/red]", remedy="SELECT a[1];")
    screen = render([("server", "[bold]")], [finding], verdict="Ready to load.")
    assert "[red]x[/red]" in screen
    assert "SELECT a[1];" in screen
    assert "[bold]" in screen


def test_a_slot_beyond_its_limit_is_named_before_it_is_lost(
    new_server: Callable[..., EmbeddedServer], penstock: Callable[..., Finished]
) -> None:
    """As watch names it: it keeps more than max_slot_wal_keep_size, until a checkpoint removes what it needs."""
    conninfo = new_server(18, max_slot_wal_keep_size="64MB").ensure_running()
    with psycopg.connect(conninfo, autocommit=True) as admin:
        admin.execute("SELECT pg_create_physical_replication_slot('idle', true)")
        for number in range(5):
            admin.execute(f"CREATE TABLE t{number} (); SELECT pg_switch_wal()".encode())
        assert admin.execute("SELECT wal_status <> 'lost' FROM pg_replication_slots").fetchone() == (True,)
    shown = " ".join(penstock("doctor", "--to", conninfo).out.split())
    assert "slot-keeps-wal slot idle, not in use, has" in shown
    assert "then the slot is lost" in shown
