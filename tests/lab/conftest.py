"""Fixtures for tests that bring topologies up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from penstock_lab.topology.lab import Lab, list_labs
from support.servers import USUAL_MAJOR

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.embedded.installations import Installation
    from support.s3_lab import S3Lab
    from support.servers import ServerPool


@pytest.fixture
def home(servers: ServerPool, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Provide an empty PENSTOCK_HOME, whose labs end with the test."""
    folder = servers.new_home()
    monkeypatch.setenv("PENSTOCK_HOME", str(folder))
    yield folder
    for lab in list_labs(folder):
        lab.down()


@pytest.fixture
def lab(home: Path) -> Lab:
    """Provide a lab that is not up."""
    return Lab.named("lab", home)


@pytest.fixture(scope="session")
def installation(servers: ServerPool) -> Installation:
    """Provide the PostgreSQL of labs."""
    return servers.installation(USUAL_MAJOR)


@pytest.fixture
def session(s3_lab: S3Lab) -> Iterator[psycopg.Connection]:
    """Provide a session of a lab with aws_s3, with a table t of two columns."""
    with psycopg.connect(s3_lab.conninfo, autocommit=True) as opened:
        opened.execute("CREATE TABLE t (a int, b text)")
        yield opened
