"""A load that would fill a disk is refused before its first row; one that goes on is judged by what is left."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from penstock.core.errors import ServerError, TargetError
from penstock.core.values.job import LoadJob, LoadRules
from penstock.loading.plan.space import DiskSpace
from support.loads import IMPATIENT, Loads, target

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.small_disk import SmallDisk

CARELESS = LoadRules(retry_for=0.0, ignore_space=True)

# 24 MB of text, 31 MB of rows; 38 MB are forecast.
ROWS = 350_000


@pytest.fixture
def loads(disk: SmallDisk, database18: str) -> Iterator[Loads]:
    """Provide loads into table t (a int, b text) on the small disk."""
    loads = Loads(database18, setup="CREATE TABLE t (a int, b text) TABLESPACE penstock_small")
    yield loads
    loads.execute("DROP TABLE t")


def write(path: Path) -> Path:
    """Write a file that does not fit; return its path."""
    path.write_text("".join(f"{number},{number:060}\n" for number in range(ROWS)))
    return path


def test_load_that_would_fill_a_disk_is_refused(loads: Loads, tmp_path: Path) -> None:
    """Nothing is loaded, and nothing is left in the ledger. The error names the parts of the expected size."""
    job = target(write(tmp_path / "file"), format="csv", has_header=False)
    with pytest.raises(TargetError, match="the load would fill tmpfs") as caught:
        loads.run(job, rules=IMPATIENT)
    assert "table public.t: 3" in str(caught.value.detail)
    assert "--ignore-space" in str(caught.value.hint)
    assert loads.count() == 0
    assert loads.execute("SELECT count(*) FROM penstock.loads") == [(0,)]


@pytest.mark.part("rest")
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


@pytest.mark.part("rest")
def test_load_that_takes_more_than_half_is_warned_of(loads: Loads, disk: SmallDisk, tmp_path: Path) -> None:
    """And begins."""
    disk.resize(44 * 2**20)
    outcome = loads.run(target(write(tmp_path / "file"), format="csv", has_header=False), sessions=1)
    assert outcome.rows == ROWS
    (warning,) = outcome.warnings
    assert (warning.code, "more than half of what is free on tmpfs" in warning.message) == ("disk-short", True)


@pytest.mark.part("rest")
def test_plan_counts_what_is_not_loaded_yet(loads: Loads, disk: SmallDisk, tmp_path: Path) -> None:
    """As the load does: the loaded file takes no room once more."""
    job = target(write(tmp_path / "file"), format="csv", has_header=False)
    disk.resize(80 * 2**20)
    loads.run(job, sessions=1)
    disk.resize(44 * 2**20)
    small = tmp_path / "small"
    small.write_text("1,x\n")
    both = replace(job, sources=(*job.sources, str(small)))
    with loads.loader() as loader:
        foreseen = loader.foresee(loader.plan(LoadJob(targets=(both,), rules=IMPATIENT)))
    assert not any(notice.code == "disk-short" for notice in foreseen.notices)
    space = foreseen.find_part(DiskSpace)
    assert space is None or not space.is_refusing
    assert loads.run(both, sessions=1).rows == 1
