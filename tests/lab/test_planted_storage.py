"""Bottlenecks of storage, planted on real volumes: each is what the recording is diagnosed as."""

from __future__ import annotations

import os
import shutil
import signal
import time
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from penstock.core.errors import LabError
from penstock.core.units import MIB
from penstock.core.values.device import VolumeLimits
from penstock.diagnose.examination import diagnose
from penstock_lab.topology.processes import Processes
from penstock_lab.volumes import PACKAGES, cgroup_of, check_machine
from support.recorded import execute, recording, working

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.embedded.installations import Installation
    from penstock.embedded.server import EmbeddedServer
    from penstock.watch.values import Recording
    from penstock_lab.topology.lab import Lab
    from support.recorded import Taken

pytestmark = pytest.mark.part("rest")

VOLUMES = {"volume-iops", "volume-throughput", "instance-limit", "volume-balance"}

_PATIENCE_S = 60
_SECONDS = 8
_MEMORY_BYTES = 400 * MIB

FILL = "INSERT INTO t SELECT generate_series(1, 100000000), repeat('x', 800)"


@pytest.fixture
def _root() -> None:
    """Skip, by name, where the machine or the account cannot have volumes."""
    try:
        check_machine("volumes", PACKAGES)
        cgroup_of(Path("/"))
    except LabError as error:
        pytest.skip(str(error))


@contextmanager
def lab_on(lab: Lab, installation: Installation, volume: str) -> Iterator[str]:
    """Provide the conninfo of a server whose data directory is on a volume."""
    lab.up("single", installation, parameters="postgres", volume=volume, memory_bytes=_MEMORY_BYTES)
    try:
        yield lab.conninfo()
    finally:
        lab.down()


def record(conninfo: str, *statements: str, until: Callable[[Taken], bool] | None = None) -> Recording:
    """Record what a server does while each statement runs in a session of its own, for some seconds or `until`."""
    work = [partial(execute, conninfo, statement) for statement in statements]
    with recording(conninfo, interval_s=0.1) as taken, working(conninfo, *work):
        deadline_s = time.monotonic() + (_PATIENCE_S if until else _SECONDS)
        while time.monotonic() < deadline_s and not (until and until(taken)):
            time.sleep(0.1)
    return taken.recording


def codes(recorded: Recording, volume: VolumeLimits | None = None) -> list[str]:
    """Return the codes of what is found, given the limits of the volume."""
    recorded.header = replace(recorded.header, volume=volume)
    return [found.code for found in diagnose(recorded)]


@pytest.mark.usefixtures("_root")
def test_random_reads_on_a_volume_of_300_iops_are_limited_by_iops(lab: Lab, installation: Installation) -> None:
    """By a steady rate, by the known limit, and by the lower limit of an instance; not if the limit is far away."""
    search = (
        "DO $$DECLARE x text; drawn int; BEGIN LOOP drawn := 1 + (random() * 999999)::int;"
        " SELECT pad INTO x FROM t WHERE id = drawn; END LOOP; END$$"
    )
    with lab_on(lab, installation, "gp3:2GiB:300:125") as conninfo:
        create = "CREATE TABLE t AS SELECT n AS id, repeat('x', 400) AS pad FROM generate_series(1, 1000000) n"
        execute(conninfo, create, "ALTER TABLE t ADD PRIMARY KEY (id)", "VACUUM ANALYZE t", "CHECKPOINT")
        recorded = record(conninfo, *[search] * 6)
    assert codes(recorded)[0] == "volume-iops"
    found = diagnose(recorded)[0]
    assert found.confidence != "too few samples"
    numbers = {each.name: each.value for each in found.evidence}
    assert numbers["reads per second"] == pytest.approx(300, rel=0.1)
    # The device's own queue: requests per second times the time of each.
    queue = numbers["reads per second"] * numbers["read latency"] / 1000
    assert numbers["requests in the queue"] == pytest.approx(queue, rel=0.2)
    assert codes(recorded, VolumeLimits(iops=300, bytes_per_s=125 * MIB))[0] == "volume-iops"
    assert codes(recorded, VolumeLimits(iops=3000, instance_iops=300))[0] == "instance-limit"
    assert not VOLUMES & set(codes(recorded, VolumeLimits(iops=3000, bytes_per_s=125 * MIB)))


@pytest.mark.usefixtures("_root")
def test_a_table_filled_on_a_volume_of_16_mib_per_s_is_limited_by_throughput(
    lab: Lab, installation: Installation
) -> None:
    """Data and WAL are on the volume. With requests of 1 MiB, the limits distinguish IOPS from throughput."""
    with lab_on(lab, installation, "gp3:3GiB:4000:16") as conninfo:
        execute(conninfo, "CREATE TABLE t (id int, pad text)")
        recorded = record(conninfo, FILL, FILL)
    assert codes(recorded)[0] == "volume-throughput"
    assert codes(recorded, VolumeLimits(iops=4000, bytes_per_s=16 * MIB))[0] == "volume-throughput"
    assert codes(recorded, VolumeLimits(iops=64, bytes_per_s=500 * MIB))[0] == "volume-iops"


@pytest.mark.usefixtures("_root")
def test_a_gp2_volume_whose_balance_is_spent_is_limited_by_iops(lab: Lab, installation: Installation) -> None:
    """A request of 1 MiB counts as four of its 100 IOPS, so 25 MiB a second are left, far below its throughput."""
    with lab_on(lab, installation, "gp2:3GiB:spent") as conninfo:
        execute(conninfo, "CREATE TABLE t (id int, pad text)")
        recorded = record(conninfo, FILL, FILL)
    found = codes(recorded, VolumeLimits(iops=100, bytes_per_s=128 * MIB))
    assert found[0] == "volume-iops"
    assert "volume-balance" not in found


@pytest.mark.usefixtures("_root")
def test_an_index_larger_than_memory_is_named_before_the_volume(lab: Lab, installation: Installation) -> None:
    """Random keys are inserted: each needs a leaf of the index that is not in memory."""
    insert = "INSERT INTO t SELECT gen_random_uuid() FROM generate_series(1, 1000000)"
    with lab_on(lab, installation, "gp3:3GiB:1500:250") as conninfo:
        create = "CREATE TABLE t AS SELECT gen_random_uuid() AS id FROM generate_series(1, 6000000)"
        execute(conninfo, create, "ALTER TABLE t ADD CONSTRAINT t_key PRIMARY KEY (id)", "CHECKPOINT")
        recorded = record(conninfo, insert, insert)
    found = diagnose(recorded)
    assert found[0].code == "index-reads"
    assert "t_key of public.t" in found[0].claim


@pytest.mark.usefixtures("_root")
def test_checkpoints_that_wal_forces_are_named_before_the_volume(lab: Lab, installation: Installation) -> None:
    """Updates of pages all over the table, with max_wal_size at 32 MB."""
    update = (
        "DO $$BEGIN LOOP UPDATE t SET n = n + 1"
        " WHERE id %% 2 = {} AND id %% 15 = (random() * 14)::int; COMMIT; END LOOP; END$$"
    ).replace("%%", "%")

    def has_checkpoints(taken: Taken) -> bool:
        seen = [
            row["num_requested"]
            for sample in list(taken.samples)
            for row in sample.counters.get("pg_stat_checkpointer", ())
        ]
        return bool(seen) and seen[-1] - seen[0] >= 5  # type: ignore[operator]

    with lab_on(lab, installation, "gp3:2GiB:3000:60") as conninfo:
        settings = ("max_wal_size", "min_wal_size")
        execute(conninfo, *(f"ALTER SYSTEM SET {name} = '32MB'" for name in settings), "SELECT pg_reload_conf()")
        rows = "SELECT n AS id, 0 AS n, repeat('x', 300) AS pad FROM generate_series(1, 300000) n"
        execute(conninfo, f"CREATE TABLE t WITH (fillfactor = 80) AS {rows}", "CHECKPOINT")
        recorded = record(conninfo, update.format(0), update.format(1), until=has_checkpoints)
    found = {each.code: each for each in diagnose(recorded)}
    assert next(iter(found)) == "checkpoints-forced"
    images = [each.value for each in found["checkpoints-forced"].evidence if "full-page images" in each.name]
    assert images[0] > 50


@pytest.mark.usefixtures("_root")
def test_wal_alone_on_a_slow_volume_is_told_from_a_slow_volume_of_data(
    lab: Lab, installation: Installation, new_server: Callable[..., EmbeddedServer]
) -> None:
    """The data is elsewhere: pg_wal is a symbolic link, as initdb --waldir makes it."""
    server = new_server(fsync="on", full_page_writes="on", max_wal_size="1GB")
    server.ensure_running()
    server.stop()
    with lab_on(lab, installation, "gp3:3GiB:4000:8"):
        wal, slow = server.data_dir / "pg_wal", lab.files.folder / "primary" / "wal"
        shutil.copytree(wal, slow)
        owner = wal.stat()
        for path in (slow, *slow.rglob("*")):
            os.chown(path, owner.st_uid, owner.st_gid)
        shutil.rmtree(wal)
        wal.symlink_to(slow)
        conninfo = server.ensure_running()
        execute(conninfo, "CREATE TABLE t (id int, pad text)")
        recorded = record(conninfo, FILL, FILL)
        server.stop("immediate")
    found = [code for code in codes(recorded) if code != "waits-disagree-with-cpu"]
    assert found[0] == "wal-write"
    assert not VOLUMES & set(found)


def test_standbys_that_are_stopped_are_behind_and_not_only_far_away(lab: Lab, installation: Installation) -> None:
    """Three of six receivers take no WAL any more: a commit of much WAL waits for the fourth best."""
    conninfo = lab.up("quorum", installation, parameters="postgres", zone_latency_s=0.0005).conninfo
    assert conninfo is not None
    execute(conninfo, "CREATE TABLE t (id int, pad text)")
    receivers = [Processes(lab.files.folder).find(name) for name in ("a1", "a2", "b1")]
    processes = [process for process in receivers if process is not None]
    assert len(processes) == 3
    for process in processes:
        process.send_signal(signal.SIGSTOP)
    try:
        with recording(conninfo, interval_s=0.1) as taken, psycopg.connect(conninfo) as client:
            client.execute("INSERT INTO t SELECT generate_series(1, 100000), repeat('x', 800)")
            with working(conninfo, client.commit):
                taken.await_sessions(40, lambda session: session.wait_event == "SyncRep")
                for process in processes:
                    process.send_signal(signal.SIGCONT)
    finally:
        for process in processes:
            process.send_signal(signal.SIGCONT)
    assert codes(taken.recording)[0] == "standby-behind"
