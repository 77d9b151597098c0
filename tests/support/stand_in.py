"""A stand-in for extension aws_s3: the SQL functions, and the program by which they read objects of moto's S3."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

if TYPE_CHECKING:
    from support.servers import ServerPool

_HERE = Path(__file__).parent


def install_stand_in(conninfo: str, pool: ServerPool, *, endpoint: str) -> None:
    """Create schema aws_s3 in a database whose server runs as another account than the tests."""
    script = pool.directory / "aws_s3_cat.py"
    if not script.exists():
        shutil.copyfile(_HERE / "aws_s3_cat.py", script)
        script.chmod(0o644)
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute((_HERE / "aws_s3.sql").read_bytes())
        for name, value in (("script", str(script)), ("endpoint_url", endpoint)):
            connection.execute(f"ALTER DATABASE {connection.info.dbname} SET aws_s3.{name} = '{value}'".encode())
