"""The screens in docs/doctor.md are what real servers show; PENSTOCK_WRITE_DOCS=1 writes them anew.

Numbers, sizes, disks and addresses differ from machine to machine and are not compared.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from support import pgbouncer
from support.campaign.plant import Pair
from support.command import run_process
from support.screens import hold

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.embedded.server import EmbeddedServer
    from support.servers import ServerPool


@pytest.fixture
def server(new_server: Callable[..., EmbeddedServer]) -> EmbeddedServer:
    """Provide a running server of the newest version with its usual settings."""
    made = new_server(
        fsync="on", full_page_writes="on", shared_buffers="256MB", max_wal_size="4GB", min_wal_size="512MB"
    )
    made.ensure_running()
    return made


@pytest.mark.part("rest")
def test_embedded_server(servers: ServerPool) -> None:
    """As whoever tries penstock sees it first."""
    clean = {name: "" for name in os.environ if name.startswith("PG")}
    environment = {**clean, "PENSTOCK_HOME": str(servers.new_home())}
    try:
        shown = run_process("doctor", environment=environment)
    finally:
        run_process("server", "stop", environment=environment)
    assert shown.code == 0, shown.err
    hold("embedded", shown.out)


def test_ordinary_role(server: EmbeddedServer) -> None:
    """With nothing granted."""
    with psycopg.connect(server.conninfo(), autocommit=True) as admin:
        admin.execute("CREATE DATABASE shop")
        admin.execute("CREATE ROLE clerk LOGIN")
    conninfo = make_conninfo(server.conninfo(), dbname="shop")
    with psycopg.connect(conninfo, autocommit=True) as admin:
        admin.execute("CREATE TABLE customers (id int PRIMARY KEY)")
        admin.execute("CREATE TABLE orders (id int PRIMARY KEY, customer int REFERENCES customers, placed_at date)")
        admin.execute("CREATE INDEX ON orders (placed_at)")
    shown = run_process("doctor", "--to", make_conninfo(conninfo, user="clerk"), "--into", "orders")
    assert shown.code == 9, shown.err
    hold("ordinary", shown.out)


@pytest.mark.part("rest")
def test_standby(servers: ServerPool) -> None:
    """It is connected to, though a load would look for a primary."""
    pair = Pair(servers, 18)
    with psycopg.connect(pair.standby.conninfo(), autocommit=True) as connection:
        # What makes the pair of the campaign forget is nothing that a document should warn of.
        for name in ("fsync", "full_page_writes", "autovacuum"):
            connection.execute(f"ALTER SYSTEM SET {name} = on")
        connection.execute("SELECT pg_reload_conf()")
        while connection.execute("SHOW autovacuum").fetchone() != ("on",):
            connection.execute("SELECT pg_sleep(0.02)")
    try:
        shown = run_process("doctor", "--to", pair.standby.conninfo())
    finally:
        for each in pair.servers:
            each.stop("immediate")
    assert shown.code == 9, shown.err
    hold("standby", shown.out)


@pytest.mark.part("rest")
def test_pgbouncer(server: EmbeddedServer, servers: ServerPool) -> None:
    """In transaction mode."""
    with psycopg.connect(server.conninfo(), autocommit=True) as admin:
        admin.execute("CREATE DATABASE shop")
    direct = make_conninfo(server.conninfo(), dbname="shop")
    try:
        with pgbouncer.pgbouncer(direct, servers.directory, mode="transaction", data_dir=server.data_dir) as conninfo:
            shown = run_process("doctor", "--to", conninfo)
    except pgbouncer.Unavailable as reason:
        pytest.skip(f"PgBouncer: {reason}")
    assert shown.code == 9, shown.err
    hold("pooler", shown.out)
