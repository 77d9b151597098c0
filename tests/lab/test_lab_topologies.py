"""Topologies as real processes: who a commit waits for, what is lost with a zone, who takes over."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import psycopg
import pytest

from penstock.cli.main import main
from penstock.core.errors import LabError, UsageError
from penstock.embedded.users import is_root
from penstock_lab.topology.lab import Lab

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.embedded.installations import Installation
    from support.servers import ServerPool

pytestmark = pytest.mark.part("rest")

_WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"


@contextmanager
def _committing(conninfo: str) -> Iterator[threading.Thread]:
    """Commit a row in a thread, and wait for it at the end."""

    def commit() -> None:
        with psycopg.connect(conninfo, autocommit=True) as connection:
            connection.execute("INSERT INTO kept SELECT count(*) FROM kept")

    thread = threading.Thread(target=commit)
    thread.start()
    yield thread
    thread.join()


def _execute(conninfo: str, statement: str) -> object:
    with psycopg.connect(conninfo, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        row = cursor.fetchone() if cursor.description else None
        return None if row is None else row[0]


@pytest.mark.part("main")
def test_commits_of_a_quorum_go_on_without_a_zone_and_stop_without_one_more(
    lab: Lab, installation: Installation, capfd: pytest.CaptureFixture[str]
) -> None:
    """Four of six are enough; with three the missing are named, and healing lets the commit through."""
    lab.up("quorum", installation, parameters="postgres")
    conninfo = lab.conninfo()
    _execute(conninfo, "CREATE TABLE kept (n bigint)")
    assert lab.kill("zone-b").can_commit
    _execute(conninfo, "INSERT INTO kept VALUES (-1)")
    assert not lab.kill("c1").can_commit
    with _committing(conninfo) as commit:
        while _execute(conninfo, _WAITING) != 1:
            assert commit.is_alive()
            time.sleep(0.01)
        assert main(["lab", "status"]) == 0
        assert "3 connected; missing: b1, b2, c1" in capfd.readouterr().out
        # What was killed stays down whatever else is asked.
        assert lab.up("quorum", installation, parameters="postgres").missing == ("b1", "b2", "c1")
        assert commit.is_alive()
        healed = lab.heal()
    assert healed.can_commit
    assert healed.missing == ()
    assert _execute(conninfo, "SELECT count(*) FROM kept") == 2


def test_a_promoted_standby_has_all_that_was_acknowledged(lab: Lab, installation: Installation) -> None:
    """The lost primary comes back as a standby, and commits wait for one of two again."""
    lab.up("cluster", installation, parameters="rds", zone_latency_s=0.001)
    _execute(lab.conninfo(), "CREATE TABLE kept (n bigint)")
    _execute(lab.conninfo(), "INSERT INTO kept SELECT generate_series(1, 1000)")
    for expected in (1001, 1002):
        old = lab.conninfo()
        found = lab.failover()
        assert found.conninfo is not None
        assert found.conninfo != old
        assert (found.missing, found.can_commit) == ((), True)
        _execute(found.conninfo, "INSERT INTO kept VALUES (0)")
        assert _execute(found.conninfo, "SELECT count(*) FROM kept") == expected
    standby = next(member.conninfo for member in found.members if member.kind == "standby")
    assert standby is not None
    assert _execute(standby, "SELECT pg_is_in_recovery()") is True


def test_latency_of_zones_is_paid_by_each_commit(lab: Lab, installation: Installation) -> None:
    """There and back: a commit takes twice the delay at least."""
    lab.up("quorum", installation, parameters="postgres", zone_latency_s=0.05)
    with psycopg.connect(lab.conninfo(), autocommit=True) as connection:
        connection.execute("CREATE TABLE kept (n bigint)")
        connection.execute("SELECT pg_stat_reset()")
        before = connection.execute("SELECT clock_timestamp()").fetchone()
        connection.execute("INSERT INTO kept VALUES (1)")
        after = connection.execute("SELECT clock_timestamp()").fetchone()
    assert before is not None
    assert after is not None
    assert (after[0] - before[0]).total_seconds() >= 0.1


def test_a_second_up_of_another_shape_is_refused(lab: Lab, installation: Installation) -> None:
    """The lab that is up goes on; the same shape is printed again."""
    first = lab.up("single", installation, parameters="postgres")
    with pytest.raises(LabError, match="is up with other options") as refused:
        lab.up("quorum", installation, parameters="postgres")
    assert refused.value.detail == "shape: single, not quorum"
    assert lab.up("single", installation, parameters="postgres") == first


def test_unknown_zones_and_labs_are_named(lab: Lab, installation: Installation) -> None:
    """With what there is."""
    with pytest.raises(UsageError, match='lab "lab" does not exist'):
        lab.status()
    lab.up("single", installation, parameters="postgres")
    with pytest.raises(UsageError, match='no zone or member "zone-d"') as unknown:
        lab.kill("zone-d")
    assert unknown.value.detail == "It has no zones; members: primary."
    with pytest.raises(LabError, match="no standby to promote"):
        lab.failover()
    with pytest.raises(UsageError, match='lab "other" does not exist'):
        Lab.named("other", lab.files.home).kill("zone-a")


def test_a_postgresql_without_pg_receivewal_is_refused_before_anything(
    lab: Lab, installation: Installation, tmp_path: Path
) -> None:
    """Some packages put the client's programs elsewhere."""
    bare = replace(installation, bin_dir=tmp_path)
    (tmp_path / "pg_ctl").touch()
    with pytest.raises(LabError, match=f"PostgreSQL {installation.major} has no pg_receivewal"):
        lab.up("quorum", bare, parameters="postgres")
    assert not lab.files.folder.exists()


@pytest.mark.skipif(
    not is_root() or shutil.which("mount") is None, reason="needs root, to mount a disk (Debian's package mount)"
)
@pytest.mark.parametrize("size", ["16m", "40m", "120m"])
def test_a_full_disk_is_named_and_nothing_is_left(servers: ServerPool, installation: Installation, size: str) -> None:
    """On the smallest the programs' copy has no room, then the first WAL of initdb, then that of the receivers."""
    disk = servers.new_home()
    disk.mkdir(mode=0o755)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=755", "tmpfs", str(disk)], check=True)
    try:
        lab = Lab.named("lab", disk)
        with pytest.raises(LabError) as refused:
            lab.up("quorum", installation, parameters="postgres")
        assert "No space left on device" in str(refused.value)
        assert not lab.files.folder.exists()
    finally:
        subprocess.run(["umount", str(disk)], check=True)
