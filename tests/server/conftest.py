"""Fixtures for tests that speak SQL."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from penstock.core.connect.connection import ConnectionFactory
from penstock.embedded.users import choose_server_user, give_to, is_root
from support.loads import Loads
from support.small_disk import small_disk

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg

    from support.servers import PgServer
    from support.small_disk import SmallDisk


@pytest.fixture
def user_connection(user_conninfo: str) -> Iterator[psycopg.Connection]:
    """Provide a session of the ordinary role, as penstock makes it."""
    with ConnectionFactory(user_conninfo).connect() as opened:
        yield opened


@pytest.fixture
def disk(pg18: PgServer) -> Iterator[SmallDisk]:
    """Provide a disk of 16 MB with tablespace `small` on it."""
    if pg18.server is None or not is_root() or shutil.which("mount") is None:
        pytest.skip("needs a server on this machine, and root, to mount a disk (Debian's package mount)")
    with small_disk(16 * 2**20) as disk:
        folder = disk.path / "space"
        folder.mkdir()
        give_to(folder, choose_server_user(pg18.server.data_dir))
        disk.path.chmod(0o755)
        admin = Loads(pg18.conninfo, setup=f"CREATE TABLESPACE penstock_small LOCATION '{folder}'")
        yield disk
        admin.execute("DROP TABLESPACE penstock_small")
