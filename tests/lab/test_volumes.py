"""Volumes with limits, local storage, less memory: each delivers what was asked, and none of them stays."""

from __future__ import annotations

import filecmp
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import psutil
import psycopg
import pytest
from benchmarks.direct_io import Delivered, fill, measure

from penstock.cli.main import main
from penstock.core.errors import LabError, UsageError
from penstock.core.host.disks import find_devices
from penstock.rds.volumes import Bucket, Throttle
from penstock_lab.topology.processes import Launch, Processes
from penstock_lab.volumes import (
    PACKAGES,
    VolumeFiles,
    cgroup_of,
    check_machine,
    create_image,
    daemon_argv,
    loops_below,
    mounts_below,
    release_volumes,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.embedded.installations import Installation
    from penstock_lab.topology.lab import Lab

pytestmark = pytest.mark.part("rest")

_ALL_OPTIONS = ("--volume", "gp3:512MiB:300:20", "--local-storage", "300MiB", "--memory", "512MiB")
_MOMENTS = 8


@pytest.fixture
def _root() -> None:
    """Skip, by name, where the machine or the account cannot have volumes."""
    try:
        check_machine("volumes", PACKAGES)
        cgroup_of(Path("/"))
    except LabError as error:
        pytest.skip(str(error))


def _best_of(attempts: int, run: Callable[[], Delivered], *, least_iops: float) -> Delivered:
    """Return the fastest of some attempts: other work on the machine makes each slower, and none faster."""
    best = run()
    for _ in range(attempts - 1):
        if best.iops < least_iops:
            best = max(best, run(), key=lambda found: found.iops)
    return best


def _left(home: Path) -> tuple[list[Path], list[Path], bool, list[str]]:
    """Return mounts, loop devices, whether there is a control group, and processes of the labs of a home."""
    names = [f"{process.name()}" for process in psutil.process_iter() if _names(process, home)]
    groups = [cgroup_of(home / "labs" / name).exists() for name in ("lab", "killed")]
    return mounts_below(home), loops_below(home), any(groups), names


def _names(process: psutil.Process, home: Path) -> bool:
    try:
        return process.pid != os.getpid() and any(str(home) in part for part in (process.cwd(), *process.cmdline()))
    except psutil.Error:
        return False


_NOTHING = ([], [], False, [])


@pytest.mark.usefixtures("_root")
@pytest.mark.parametrize("what", ["read", "write"])
def test_a_volume_delivers_the_iops_and_the_throughput_that_were_asked_for(
    lab: Lab, installation: Installation, what: Literal["read", "write"]
) -> None:
    """Within a tenth, by direct I/O on the server's own file system."""
    lab.up("single", installation, parameters="postgres", volume="gp3:512MiB:300:8")
    path = lab.files.folder / "primary" / "measured"
    fill(path, 32 * 1024 * 1024)
    small = _best_of(3, lambda: measure(path, what, ios=1500, io_bytes=8192), least_iops=270)
    assert small.iops == pytest.approx(300, rel=0.1)
    # 8 MiB/s
    large = _best_of(3, lambda: measure(path, what, ios=120, io_bytes=256 * 1024), least_iops=28.8)
    assert large.iops == pytest.approx(32, rel=0.1)


@pytest.mark.usefixtures("_root")
def test_a_volumes_burst_lasts_as_long_as_the_model_of_its_bucket_says(home: Path) -> None:
    """A bucket of 2,000 I/Os: 1,000 a second until it is empty, then 100."""
    bucket = Bucket(capacity_ios=2000, baseline_iops=100, burst_iops=1000)
    files = VolumeFiles(home, "bucket")
    create_image(files, size_bytes=256 * 1024 * 1024)
    fill(files.image, 32 * 1024 * 1024)
    throttle = Throttle(iops=100, bytes_per_s=2**30, burst_iops=1000, burst_ios=2000)
    argv = daemon_argv(files, throttle, is_mirrored=False)
    processes = Processes(home)
    processes.start([Launch(name="daemon", argv=argv, folder=files.folder, user=None)])
    try:
        while not files.is_exported():
            processes.check_alive("daemon")
            time.sleep(0.05)
        found = measure(files.export, "read", ios=2500, io_bytes=4096)
    finally:
        processes.end_all()
        release_volumes(home)
    expected_ios, _ = bucket.run(balance_ios=2000, demand_iops=5000, elapsed_s=found.elapsed_s)
    # Fewer where the machine was too busy to use the burst; more are never let through.
    assert found.ios <= 1.1 * expected_ios
    # At the baseline alone it would have been this many.
    assert found.ios > 2 * 100 * found.elapsed_s


@pytest.mark.usefixtures("_root")
@pytest.mark.parametrize("shape", ["single", "multi-az"])
def test_a_volume_in_use_changes_its_limits(
    lab: Lab, installation: Installation, shape: Literal["single", "multi-az"]
) -> None:
    """As a modified EBS volume does: each copy delivers the new rate, and the lab knows it."""
    lab.up(shape, installation, parameters="postgres", volume="gp3:512MiB:1000000:4000")
    lab.change_volume("gp3:512MiB:300:8")
    path = lab.files.folder / "primary" / "measured"
    fill(path, 8 * 1024 * 1024)
    slow = _best_of(3, lambda: measure(path, "write", ios=900, io_bytes=8192), least_iops=270)
    assert slow.iops == pytest.approx(300, rel=0.1)
    assert lab.status().volume == "gp3:512MiB:300:8"
    lab.change_volume("gp3:512MiB:1000000:4000")
    assert measure(path, "write", ios=900, io_bytes=8192).iops > 330
    with pytest.raises(UsageError, match="cannot change between limited and unlimited"):
        lab.change_volume("unlimited")


@pytest.mark.usefixtures("_root")
@pytest.mark.parametrize("shape", ["single", "multi-az"])
def test_each_flush_of_a_volume_with_a_latency_takes_it(
    lab: Lab, installation: Installation, shape: Literal["single", "multi-az"]
) -> None:
    """The server works on it, what it wrote is read back, and the latency stays what it is."""
    found = lab.up(shape, installation, parameters="postgres", volume="gp3:512MiB:100000:1000@5ms")
    path = lab.files.folder / "primary" / "flushed"
    with path.open("wb", buffering=0) as file:
        began_s = time.monotonic()
        for number in range(10):
            file.write(bytes([number]) * 8192)
            os.fdatasync(file.fileno())
        assert time.monotonic() - began_s >= 10 * 0.005
    assert path.read_bytes() == b"".join(bytes([number]) * 8192 for number in range(10))
    assert found.volume == "gp3:512MiB:100000:1000@5ms"
    with pytest.raises(UsageError, match="cannot change the latency"):
        lab.change_volume("gp3:512MiB:100000:1000@1ms")
    lab.change_volume("gp3:512MiB:1000:100@5ms")


@pytest.mark.part("main")
@pytest.mark.usefixtures("_root")
def test_servers_lie_on_their_volume_and_run_in_their_memory_beside_local_storage(
    home: Path, lab: Lab, capfd: pytest.CaptureFixture[str]
) -> None:
    """Each where it was asked for; `up` prints the directory, which takes a tablespace, and `down` removes all."""
    assert main(["lab", "up", "single", *_ALL_OPTIONS]) == 0
    folder = lab.files.folder
    local = folder / "local" / "temp"
    assert f"local storage: {local}" in capfd.readouterr().out
    devices = {path.stat().st_dev for path in (folder, folder / "primary" / "data", local)}
    assert len(devices) == 3
    # A file system on a loop device, and what the loop device's file lies on.
    assert [device.name.startswith("loop") for device in find_devices(local)][:2] == [True, False]
    assert (local.stat().st_mode & 0o777, list(local.iterdir())) == (0o700, [])
    group = cgroup_of(folder)
    with psycopg.connect(lab.conninfo(), autocommit=True) as connection:
        connection.execute(f"CREATE TABLESPACE local LOCATION '{local}'".encode())
        members = {int(line) for line in (group / "cgroup.procs").read_text().split()}
        assert connection.info.backend_pid in members
    [limit] = [path for path in group.iterdir() if path.name in ("memory.limit_in_bytes", "memory.max")]
    assert int(limit.read_text()) == 512 * 1024 * 1024
    assert main(["lab", "up", "single", "--volume", "gp3:512MiB:301:20"]) == 8
    assert main(["lab", "down"]) == 0
    assert _left(home) == _NOTHING


@pytest.mark.usefixtures("_root")
def test_both_copies_of_a_multi_az_volume_have_every_block(lab: Lab, installation: Installation) -> None:
    """Temporary data, too: the mirror is below the file system."""
    lab.up("multi-az", installation, parameters="postgres", volume="gp3:512MiB:3000:125")
    files = VolumeFiles(lab.files.folder, "primary")
    with psycopg.connect(lab.conninfo(), autocommit=True) as connection:
        connection.execute("CREATE TABLE kept AS SELECT n, md5(n::text) FROM generate_series(1, 100000) n")
    subprocess.run(["sync", "--file-system", files.mount_point], check=True)
    [postmaster] = [int(line) for line in (files.mount_point / "data" / "postmaster.pid").read_text().split()[:1]]
    os.kill(postmaster, signal.SIGINT)
    while psutil.pid_exists(postmaster):
        time.sleep(0.05)
    subprocess.run(["sync", "--file-system", files.mount_point], check=True)
    assert files.image.stat().st_blocks > 100_000
    assert filecmp.cmp(files.image, files.mirror, shallow=False)


@pytest.mark.usefixtures("_root")
def test_a_lab_whose_volume_died_says_so_and_is_taken_down(
    home: Path, lab: Lab, capfd: pytest.CaptureFixture[str]
) -> None:
    """The server on it gets errors of I/O, and `down` waits for none of them."""
    assert main(["lab", "up", "single", *_ALL_OPTIONS]) == 0
    daemon = Processes(lab.files.folder).find("volume_primary")
    assert daemon is not None
    daemon.kill()
    daemon.wait()
    assert [member.state for member in lab.status().members] == ["volume lost"]
    assert main(["lab", "up", "single", *_ALL_OPTIONS]) == 8
    assert 'the volume of primary of lab "lab" is lost' in capfd.readouterr().err
    assert main(["lab", "down", "--all"]) == 0
    assert _left(home) == _NOTHING


@pytest.fixture(scope="module")
def whole_s() -> list[float]:
    """Provide how long a whole `up` took, once that is known."""
    return []


@pytest.mark.usefixtures("_root")
@pytest.mark.parametrize("moment", range(_MOMENTS))
def test_nothing_stays_of_volumes_whose_up_was_killed(home: Path, seed: int, moment: int, whole_s: list[float]) -> None:
    """No mount, loop device, control group, process or file, at any moment."""

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "penstock", "lab", "up", "single", "--name", "killed", *_ALL_OPTIONS],
            env={**os.environ, "PENSTOCK_HOME": str(home)},
            stdout=subprocess.DEVNULL,
        )

    if not whole_s:
        began_s = time.monotonic()
        assert start().wait() == 0
        whole_s.append(time.monotonic() - began_s)
        assert all(_left(home))
        assert main(["lab", "down", "--all"]) == 0
    up = start()
    time.sleep(random.Random(seed + moment).uniform(0.05, 1.05) * whole_s[0])
    up.kill()
    up.wait()
    assert main(["lab", "down", "--all"]) == 0
    assert _left(home) == _NOTHING
    assert [path.name for path in (home / "labs").glob("*")] in ([".lock"], [])


def test_what_volumes_need_is_named_with_its_package(
    home: Path, lab: Lab, installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ordinary account, then a machine without the daemon; nothing is half up."""
    with monkeypatch.context() as patched:
        patched.setattr(os, "geteuid", lambda: 1000)
        with pytest.raises(LabError, match="--volume and --memory needs root"):
            lab.up("single", installation, parameters="postgres", volume="gp2:250GiB", memory_bytes=2**30)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(LabError, match="qemu-storage-daemon is not installed") as caught:
        lab.up("multi-az", installation, parameters="postgres")
    assert caught.value.hint == "Install it; Debian's package is qemu-system-common."
    with pytest.raises(UsageError, match="is not a valid volume"):
        lab.up("single", installation, parameters="postgres", volume="floppy")
    assert not lab.files.folder.exists()


def test_servers_of_a_cluster_get_no_local_storage_to_share(
    home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A standby that starts would delete the primary's temporary tables there."""
    monkeypatch.setenv("PENSTOCK_HOME", str(home))
    assert main(["lab", "up", "cluster", "--local-storage", "300MiB"]) == 2
    assert "--local-storage is not possible with cluster" in capfd.readouterr().err
    assert main(["lab", "list"]) == 0
    assert capfd.readouterr().out.strip() in {"", "no lab is up"}
