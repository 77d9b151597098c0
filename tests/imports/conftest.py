"""A database with the stand-in for aws_s3, and a bucket of moto's S3."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from files.conftest import aws_environment, moto_port, s3  # noqa: F401 (fixtures)
from support.loads import Loads
from support.stand_in import install_stand_in

if TYPE_CHECKING:
    from files.conftest import S3
    from support.servers import ServerPool


@pytest.fixture
def loads(s3: S3, servers: ServerPool, database18: str, aws_environment: pytest.MonkeyPatch) -> Loads:  # noqa: F811
    """Provide a database in which a server can import from the bucket."""
    aws_environment.setenv("AWS_REGION", "us-east-1")
    install_stand_in(database18, servers, endpoint=f"http://127.0.0.1:{s3.port}")
    return Loads(database18, setup="CREATE TABLE t (a int, b text)")
