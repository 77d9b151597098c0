"""Fixtures for tests of diagnoses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.core.errors import LabError
from penstock.embedded.installations import default_installation
from penstock_lab.topology.lab import Lab
from penstock_lab.volumes import check_machine
from support.small_disk import mounted_device

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.servers import ServerPool


@pytest.fixture
def quorum(servers: ServerPool, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """Provide a lab whose commits wait for four of six receivers, 2 ms away."""
    home = servers.new_home()
    monkeypatch.setenv("PENSTOCK_HOME", str(home))
    lab = Lab.named("lab", home)
    try:
        lab.up("quorum", default_installation(), parameters="postgres", zone_latency_s=0.001)
        yield lab
    finally:
        lab.down()


@pytest.fixture
def small_device() -> Iterator[Path]:
    """Provide a file system of 48 MB on a device of its own; skip, by name, where there can be none."""
    try:
        check_machine("a device", ("mkfs.ext4", "mount", "umount"))
    except LabError as error:
        pytest.skip(str(error))
    with mounted_device(48_000_000) as path:
        yield path
