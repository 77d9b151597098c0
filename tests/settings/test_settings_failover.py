"""Leases after a failover: both servers are named, and nothing is reset on the one that did not make them."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import psycopg
import pytest

from penstock.core.connect.connection import ConnectionFactory
from penstock.core.errors import TargetError
from support.changed_server import records, release, request_for, restore, take

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.embedded.server import EmbeddedServer
    from support.servers import ServerPool


def _show(conninfo: str) -> str:
    with psycopg.connect(conninfo, autocommit=True) as connection:
        row = connection.execute("SHOW max_wal_size").fetchone()
    assert row is not None
    return str(row[0])


def test_promoted_standby_is_another_server(new_server: Callable[..., EmbeddedServer], servers: ServerPool) -> None:
    """A copy with the lease and the values in it; the old primary lives on, and is restored by itself."""
    primary = new_server(max_wal_size="1GB")
    with ConnectionFactory(primary.ensure_running()).connect() as connection:
        report, _ = take(connection, request_for(lasts_s=3600.0))
    primary.stop("fast")
    standby = servers.new_server(primary.spec.installation, settings=dict(primary.spec.settings))
    standby.spec.files.home.mkdir(mode=0o755)
    subprocess.run(["cp", "-a", str(primary.data_dir), str(standby.data_dir)], check=True)
    subprocess.run(
        ["cp", "-a", str(standby.data_dir / "PG_VERSION"), str(standby.data_dir / "standby.signal")], check=True
    )
    primary.ensure_running()
    conninfo = standby.ensure_running()
    try:
        with psycopg.connect(conninfo, autocommit=True) as connection:
            connection.execute("SELECT pg_promote()")
        with ConnectionFactory(conninfo).connect() as connection:
            (untouched,) = release(connection, report.lease_ids[0]).warnings
            (warning,) = restore(connection).warnings
            assert untouched == warning
            assert "timeline 1" in warning
            assert "timeline 2" in warning
            assert "ALTER SYSTEM RESET max_wal_size;" in warning
            assert _show(conninfo) == "4GB"
            with pytest.raises(TargetError, match="leases of another server"):
                take(connection, request_for())
            restore(connection, forgets=True)
            assert records(connection) == []
            assert _show(conninfo) == "4GB"
        with ConnectionFactory(primary.conninfo()).connect() as connection:
            assert not restore(connection).warnings
        assert _show(primary.conninfo()) == "1GB"
    finally:
        standby.stop("immediate")
