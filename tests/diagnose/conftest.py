"""Fixtures for tests of diagnoses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.lab.installations import default_installation
from penstock.lab.topology.lab import Lab

if TYPE_CHECKING:
    from collections.abc import Iterator

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
