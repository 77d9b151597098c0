"""Devices by the texts of /proc and /sys, and those of this machine."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from penstock.core.host.disks import find_device, find_mount, judge_kind, parse_counters, read_counters
from penstock.core.values.device import rates

if TYPE_CHECKING:
    from pathlib import Path

MOUNTS = r"""
22 1 254:1 / / rw,relatime - ext4 /dev/vda1 rw
23 22 259:0 / /pg rw - xfs /dev/nvme1n1 rw
24 23 259:2 / /pg/with\040space rw - xfs /dev/nvme2n1 rw
25 22 0:60 / /home/data rw - nfs4 filer:/export rw
26 23 7:0 / /pg rw - ext4 /dev/loop0 rw
""".strip()


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("/var", "/dev/vda1"),
        ("/pgdata", "/dev/vda1"),
        ("/pg/with space/16", "/dev/nvme2n1"),
        ("/home/data", "filer:/export"),
        ("/pg/base", "/dev/loop0"),
    ],
)
def test_a_path_is_on_the_deepest_and_last_mount_that_has_it(path: str, source: str) -> None:
    assert find_mount(MOUNTS, path)[0] == source


@pytest.mark.parametrize(
    ("file_system", "disks", "kind"),
    [
        ("xfs", [("/sys/devices/pci0/nvme/nvme1/nvme1n1", "Amazon EC2 NVMe Instance Storage")] * 2, "local"),
        ("xfs", [("/sys/devices/pci0/nvme/nvme0/nvme0n1", "Amazon Elastic Block Store")], "network"),
        ("ext4", [("/sys/devices/pci0/ata1/host0/sda", "Samsung SSD 870")], "local"),
        ("ext4", [("/sys/devices/pci0/virtio3/block/vda", "")], "unknown"),
        ("ext4", [("/sys/devices/pci0/host0/sda", "QEMU HARDDISK")], "unknown"),
        ("ext4", [("/sys/devices/platform/host9/session4/target9/sdc", "LUN")], "network"),
        ("nfs4", [], "network"),
        ("tmpfs", [], "memory"),
        ("ext4", [("/sys/devices/virtual/block/zram0", "")], "memory"),
        ("zfs", [], "unknown"),
    ],
)
def test_a_device_is_local_only_if_its_disks_say_so(file_system: str, disks: list[tuple[str, str]], kind: str) -> None:
    assert judge_kind(file_system, disks) == kind


def test_rates_are_what_happened_between_two_readings() -> None:
    before = parse_counters("100 0 8000 50 200 0 16000 400 0 1000 2000 1 2 3 4 5 6", at_s=10.0)
    after = parse_counters("300 0 16000 150 600 9 80000 1600 3 1500 4000 1 2 3 4 5 6", at_s=12.0)
    seen = rates(before, after)
    assert (seen.read_iops, seen.write_iops) == (100.0, 200.0)
    assert seen.read_bytes_per_s == 8000 * 512 / 2
    assert seen.write_bytes_per_s == 64000 * 512 / 2
    assert seen.read_latency_s == pytest.approx(0.0005)
    assert seen.write_latency_s == pytest.approx(0.003)
    assert seen.request_bytes == 72000 * 512 / 600
    assert seen.queue == pytest.approx(1.0)
    assert seen.busy == pytest.approx(0.25)


def test_a_flush_that_the_kernel_counts_as_a_write_is_no_io_of_a_volume() -> None:
    """Each of 400 fdatasyncs writes 8 KiB, and flushes: the kernel counts 800 writes."""
    before = parse_counters("0 0 0 0 200 0 16000 400 0 1000 2000 1 2 3 4 50 6", at_s=10.0)
    after = parse_counters("0 0 0 0 1000 0 22400 1200 0 2000 3000 1 2 3 4 450 9", at_s=11.0)
    seen = rates(before, after)
    assert (seen.write_iops, seen.request_bytes, seen.write_latency_s) == (400.0, 8192.0, pytest.approx(0.001))
    # Linux before 5.5 does not count them.
    old = [parse_counters(f"0 0 0 0 {writes} 0 0 0 0 0 0", at_s=at_s) for writes, at_s in ((0, 0.0), (9, 1.0))]
    assert [each.flushes for each in old] == [0, 0]


def test_a_device_that_did_nothing_has_no_latency() -> None:
    idle = "1 0 8 1 1 0 8 1 0 1 1"
    seen = rates(parse_counters(idle, at_s=0), parse_counters(idle, at_s=1))
    assert (seen.read_latency_s, seen.write_latency_s, seen.request_bytes, seen.busy) == (None, None, None, 0.0)


def test_the_device_of_a_directory_here_counts_what_is_written(tmp_path: Path) -> None:
    device = find_device(tmp_path)
    assert device is not None
    if device.number is None:
        pytest.skip(f"{device.file_system} has no block device")
    before = read_counters(device)
    assert before is not None
    with (tmp_path / "file").open("wb", buffering=0) as file:
        for _ in range(8):
            file.write(b"x" * (1 << 20))
        os.fsync(file.fileno())
    after = read_counters(device)
    assert after is not None
    assert after.write_bytes - before.write_bytes >= 8 << 20


def test_a_path_that_is_not_there_has_no_device(tmp_path: Path) -> None:
    assert find_device(tmp_path / "missing") is None
