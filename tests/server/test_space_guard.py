"""A load that would fill a disk is refused before its first row; one that goes on is judged by what is left."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.errors import ServerError, TargetError
from penstock.lab.users import choose_server_user, give_to, is_root
from penstock.model.load.job import LoadRules
from support.loads import IMPATIENT, Loads, target

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.servers import PgServer

CARELESS = LoadRules(retry_for=0.0, ignore_space=True)

# 24 MB of text, 31 MB of rows; 38 MB are forecast.
ROWS = 350_000


class SmallDisk:
    """A file system in memory, of a size that can be changed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def resize(self, size_bytes: int) -> None:
        """Make it larger, or as small as what is on it allows."""
        subprocess.run(["mount", "-o", f"remount,size={size_bytes}", str(self.path)], check=True)


@contextmanager
def small_disk(size_bytes: int) -> Iterator[SmallDisk]:
    """Provide a small disk that a server's account can use; it ends with the test."""
    path = Path(tempfile.mkdtemp(prefix="penstock-disk-"))
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(path)], check=True)
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)
        path.rmdir()


@pytest.fixture
def disk(pg18: PgServer) -> Iterator[SmallDisk]:
    """Provide a disk of 16 MB with tablespace `small` on it."""
    if pg18.server is None or not is_root() or shutil.which("mount") is None:
        pytest.skip("needs a server of its own machine, and the right to mount")
    with small_disk(16 * 2**20) as disk:
        folder = disk.path / "space"
        folder.mkdir()
        give_to(folder, choose_server_user(pg18.server.data_dir))
        disk.path.chmod(0o755)
        admin = Loads(pg18.conninfo)
        admin.execute(f"CREATE TABLESPACE penstock_small LOCATION '{folder}'")
        yield disk
        admin.execute("DROP TABLESPACE penstock_small")


@pytest.fixture
def loads(disk: SmallDisk, database18: str) -> Iterator[Loads]:
    """Provide loads into table t (a int, b text) on the small disk."""
    loads = Loads(database18)
    loads.execute("CREATE TABLE t (a int, b text) TABLESPACE penstock_small")
    yield loads
    loads.execute("DROP TABLE t")


def write(path: Path) -> Path:
    """Write a file that does not fit; return its path."""
    path.write_text("".join(f"{number},{number:060}\n" for number in range(ROWS)))
    return path


def test_load_that_would_fill_a_disk_is_refused(loads: Loads, tmp_path: Path) -> None:
    """Nothing is loaded, and nothing is left in the ledger; what is expected is told by its parts."""
    job = target(write(tmp_path / "file"), format="csv", has_header=False)
    with pytest.raises(TargetError, match="the load would fill tmpfs") as caught:
        loads.run(job, rules=IMPATIENT)
    assert "table public.t: 3" in str(caught.value.detail)
    assert "--ignore-space" in str(caught.value.hint)
    assert loads.count() == 0
    assert loads.execute("SELECT count(*) FROM penstock.loads") == [(0,)]


def test_load_that_goes_on_is_judged_by_its_rest(loads: Loads, disk: SmallDisk, tmp_path: Path) -> None:
    """On a disk with room for what is left, and not for all of it once more."""
    job = target(write(tmp_path / "file"), format="csv", has_header=False)
    with pytest.raises(ServerError) as caught:
        loads.run(job, sessions=1, rules=CARELESS, batch_bytes=2**20)
    assert caught.value.sqlstate == "53100"
    stayed = loads.count()
    assert 0 < stayed < ROWS
    disk.resize(44 * 2**20)
    assert loads.run(job, sessions=1, rules=IMPATIENT).rows == ROWS - stayed
    assert loads.count() == ROWS


def test_load_that_takes_more_than_half_is_warned_of(loads: Loads, disk: SmallDisk, tmp_path: Path) -> None:
    """And begins."""
    disk.resize(44 * 2**20)
    outcome = loads.run(target(write(tmp_path / "file"), format="csv", has_header=False), sessions=1)
    assert outcome.rows == ROWS
    (warning,) = outcome.warnings
    assert (warning.code, "more than half of what is free on tmpfs" in warning.message) == ("disk-short", True)
