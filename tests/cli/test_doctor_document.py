"""The screens in docs/doctor.md are what real servers show; PENSTOCK_WRITE_DOCS=1 writes them anew.

Numbers, sizes, disks and addresses differ from machine to machine and are not compared.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from cli.conftest import run_process
from support import pgbouncer
from support.campaign.plant import Pair

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.lab import EmbeddedServer
    from support.servers import ServerPool

DOCUMENT = Path(__file__).parents[2] / "docs" / "doctor.md"

# What differs from machine to machine, in the order in which it is masked.
MASKS = (
    (r"host=\S+( port=\d+)?", "HOST"),
    (r"PostgreSQL \d+(\.\d+)?", "PostgreSQL N"),
    (r"standby of \S+", "standby of HOST,"),
    (r"backend -?\d+", "backend N"),
    (r"\d[\d.,]* (B|kB|MB|GB|TB|GiB|MiB)\b", "SIZE"),
    (r"\(\d[\d.]* s\)", "(N s)"),
    (r" on \S+, SIZE of SIZE free", " on DISK, SIZE of SIZE free"),
    (r"(ahead of|behind) this host's", "from this host's"),
    (r"\d[\d.,]*", "N"),
)

# The addresses in the document's commands.
ADDRESSES = {"ordinary": "db1 port=5432", "standby": "db2 port=5432", "pooler": "db1 port=6432"}


def mask(screen: str) -> str:
    """Return a screen without what differs, on one line: where lines break depends on it too.

    Disks are one or several, and nearly full or not.
    """
    text = " ".join(screen.split())
    for pattern, word in MASKS:
        text = re.sub(pattern, word, text)
    text = re.sub(r"memory; .*? (published|table|refusal|warning|note|ok) ", r"memory; DISKS \1 ", text)
    return re.sub(r"warning disks .*? (?=warning|note|ok)", "", text)


def find_transcript(name: str) -> re.Match[str]:
    """Return a transcript of the document: its command, if it has one, and its screen."""
    pattern = rf"(<!-- transcript: {name} -->\n```text\n)(\$ [^\n]*\n)?(.*?)(\n?```)"
    match = re.search(pattern, DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    assert match is not None, f"docs/doctor.md has no transcript {name}"
    return match


def rename(screen: str, name: str) -> str:
    """Return a screen with addresses as people have them in place of a test's."""
    screen = re.sub(r"(address .*)\n +(user=\S+)", r"\1 \2", screen)
    if name == "embedded":
        return re.sub(r"host=\S+", "host=/home/ann/.local/share/penstock/server-18/run", screen)
    screen = re.sub(r"standby of [^\s,]+", "standby of db1", screen)
    screen = re.sub(r"host=/\S+ port=\d+\s+\.\.\.", "host=db1 port=5432 ...", screen)
    return re.sub(r"host=\S+ port=\d+ dbname", f"host={ADDRESSES[name]} dbname", screen)


def hold(name: str, shown: str) -> None:
    """Compare a screen with the document's, or write it there."""
    match = find_transcript(name)
    if os.environ.get("PENSTOCK_WRITE_DOCS"):
        text = DOCUMENT.read_text(encoding="utf-8")
        written = f"{match[1]}{match[2] or ''}{rename(shown.rstrip(), name)}\n```"
        DOCUMENT.write_text(text[: match.start()] + written + text[match.end() :], encoding="utf-8")
        return
    assert mask(match[3]) == mask(shown)


@pytest.fixture
def server(new_server: Callable[..., EmbeddedServer]) -> EmbeddedServer:
    """Provide a running server of the newest version with its usual settings."""
    made = new_server(
        fsync="on", full_page_writes="on", shared_buffers="256MB", max_wal_size="4GB", min_wal_size="512MB"
    )
    made.ensure_running()
    return made


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


def test_standby(servers: ServerPool) -> None:
    """It is connected to, though a load would look for a primary."""
    pair = Pair(servers, 18)
    with psycopg.connect(pair._standby.conninfo(), autocommit=True) as connection:
        # What makes the pair of the campaign forget is nothing that a document should warn of.
        for name in ("fsync", "full_page_writes", "autovacuum"):
            connection.execute(f"ALTER SYSTEM SET {name} = on")
        connection.execute("SELECT pg_reload_conf()")
        while connection.execute("SHOW autovacuum").fetchone() != ("on",):
            connection.execute("SELECT pg_sleep(0.02)")
    try:
        shown = run_process("doctor", "--to", pair._standby.conninfo())
    finally:
        for each in pair._servers:
            each.stop("immediate")
    assert shown.code == 9, shown.err
    hold("standby", shown.out)


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
