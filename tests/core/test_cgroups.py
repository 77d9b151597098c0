"""Where the limits of a process are, by the texts of /proc, and what they say."""

from __future__ import annotations

from pathlib import Path

from penstock.core.host.machine import find_folders, parse_limit, parse_quota

V2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = (
    "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "36 31 0:33 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
)
HYBRID = V1 + "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"


def folders(groups: str, mounts: str, controller: str = "memory") -> list[str]:
    return [str(folder) for folder, _ in find_folders(groups, mounts, controller)]


def test_version_2_limits_of_all_groups_up_to_the_top_count() -> None:
    found = find_folders("0::/system.slice/postgresql.service\n", V2, "memory")
    assert found == [
        (Path("/sys/fs/cgroup/system.slice/postgresql.service"), True),
        (Path("/sys/fs/cgroup/system.slice"), True),
        (Path("/sys/fs/cgroup"), True),
    ]


def test_version_1_is_found_by_the_controllers_own_line() -> None:
    groups = "4:memory:/lab/a\n1:cpu,cpuacct:/b\n0::/\n"
    assert folders(groups, V1) == [f"/sys/fs/cgroup/memory{path}" for path in ("/lab/a", "/lab", "")]
    assert folders(groups, V1, "cpu") == ["/sys/fs/cgroup/cpu/b", "/sys/fs/cgroup/cpu"]


def test_a_machine_with_both_versions_has_the_limits_of_both() -> None:
    groups = "4:memory:/lab\n0::/user\n"
    assert folders(groups, HYBRID) == [
        "/sys/fs/cgroup/memory/lab",
        "/sys/fs/cgroup/memory",
        "/sys/fs/cgroup/unified/user",
        "/sys/fs/cgroup/unified",
    ]


def test_a_container_whose_own_group_is_mounted_at_the_top_finds_it_there() -> None:
    mounts = "35 31 0:32 /docker/1234 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
    assert folders("4:memory:/docker/1234/x\n", mounts) == ["/sys/fs/cgroup/memory/x", "/sys/fs/cgroup/memory"]
    # A group that is not below what is mounted
    assert folders("0::/../other\n", V2) == ["/sys/fs/cgroup"]


def test_no_limit_has_different_words() -> None:
    assert parse_limit("max\n") is None
    assert parse_limit("9223372036854771712\n") is None
    assert parse_limit("9223372036854710272\n") is None  # pages of 64 kB
    assert parse_limit("943718400\n") == 943_718_400
    assert parse_quota("max 100000\n") is None
    assert parse_quota("150000 100000\n") == 1.5
