"""Servers that have the lab's extension aws_s3, which imports from moto's S3."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg

from penstock.embedded.server import EmbeddedServer
from penstock.embedded.users import choose_server_user
from penstock_lab.topology.s3 import S3StandIn

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from penstock.embedded.installations import Installation


def make_import_server(
    home: Path, installation: Installation, *, port: int, settings: Mapping[str, str]
) -> EmbeddedServer:
    """Return a server, not started, whose installation is a copy with the extension; `port` is moto's."""
    folder = home.with_name(f"{home.name}-s3")
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    s3 = S3StandIn(lab=folder, port=port)
    s3.create(installation, choose_server_user(home / "data"))
    return EmbeddedServer.create(home, s3.programs(installation), {**settings, **s3.settings}, copies=folder / "copies")


def create_extension(conninfo: str) -> None:
    """Create the extension in a database, as its superuser."""
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION aws_s3 CASCADE")
