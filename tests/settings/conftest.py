"""Fixtures for tests that change a server's settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.core.host.disks import Disk
from penstock.loading.steps import lease as server_settings
from support.changed_server import MAJORS, make_changed_server
from support.parts import rest
from support.servers import USUAL_MAJOR

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.changed_server import ChangedServer
    from support.servers import ServerPool


@pytest.fixture(autouse=True)
def roomy_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give loads of this process 100 GiB for WAL, however full this machine's disk is: max_wal_size goes by it."""
    disk = Disk(path="/", device="/dev/roomy", size_bytes=200 << 30, free_bytes=100 << 30)
    monkeypatch.setattr(server_settings, "measure_disk", lambda _: disk)


_PARAMS = [MAJORS[0], *(rest(major) for major in MAJORS[1:])]


@pytest.fixture(params=_PARAMS, ids=lambda major: f"pg{major}")
def changed(request: pytest.FixtureRequest, servers: ServerPool) -> Iterator[ChangedServer]:
    """Provide a server whose settings may be changed, of several versions in turn."""
    server = make_changed_server(servers, request.param)
    server.reset()
    yield server
    server.reset()


@pytest.fixture
def changed18(servers: ServerPool) -> Iterator[ChangedServer]:
    """Provide a server of the usual version whose settings may be changed."""
    server = make_changed_server(servers, USUAL_MAJOR)
    server.reset()
    yield server
    server.reset()
