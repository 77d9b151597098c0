"""Columns of PostGIS: geometries and geographies are loaded by their text, and by EWKB in hexadecimal."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import psycopg
import pytest

from support.files import write_to

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.embedded.server import EmbeddedServer
    from support.command import Finished

pytestmark = pytest.mark.part("rest")

# A point of WGS 84 (SRID 4326) at longitude 13.4 and latitude 52.5, little-endian.
EWKB = struct.pack("<BIIdd", 1, 0x20000001, 4326, 13.4, 52.5).hex()
VALUES = ["SRID=4326;POINT(13.4 52.5)", EWKB, EWKB.upper(), "SRID=4326;LINESTRING(0 0,1 1)", None]
SHOWN = [*["SRID=4326;POINT(13.4 52.5)"] * 3, "SRID=4326;LINESTRING(0 0,1 1)", None]


@pytest.fixture
def postgis(new_server: Callable[..., EmbeddedServer], debian15: int) -> str:
    """Provide a database with PostGIS and a table of its types; skip where it is not installed."""
    conninfo = new_server(debian15).ensure_running()
    with psycopg.connect(conninfo, autocommit=True) as connection:
        if connection.execute("SELECT FROM pg_available_extensions WHERE name = 'postgis'").fetchone() is None:
            pytest.skip("PostGIS is not installed (Debian's package postgresql-15-postgis-3)")
        connection.execute("CREATE EXTENSION postgis")
        connection.execute("CREATE TABLE places (id int, shape geometry(Geometry, 4326), area geography)")
    return conninfo


def _csv() -> str:
    lines = (f'{number},"{value or ""}","{value or ""}"' for number, value in enumerate(VALUES))
    return "id,shape,area\n" + "\n".join(line.replace('""', "") for line in lines) + "\n"


def _json_lines() -> str:
    texts = ("null" if value is None else f'"{value}"' for value in VALUES)
    return "".join(f'{{"id": {number}, "shape": {text}, "area": {text}}}\n' for number, text in enumerate(texts))


@pytest.mark.parametrize("name", ["places.csv", "places.jsonl"])
@pytest.mark.parametrize("mode", ["append", "replace"])
def test_geometries_and_geographies_are_stored_from_text_and_ewkb(
    postgis: str, penstock: Callable[..., Finished], tmp_path: Path, name: str, mode: str
) -> None:
    """As PostGIS itself reads them."""
    path = write_to(tmp_path / name, (_csv() if name.endswith("csv") else _json_lines()).encode())
    done = penstock("load", str(path), "--into", "places", "--to", postgis, "--mode", mode)
    assert done.code == 0, done.err
    with psycopg.connect(postgis) as connection:
        rows = connection.execute("SELECT ST_AsEWKT(shape), ST_AsEWKT(area) FROM places ORDER BY id").fetchall()
    assert rows == [(shown, shown) for shown in SHOWN]


def test_a_value_that_postgis_refuses_ends_the_load_with_its_place(
    postgis: str, penstock: Callable[..., Finished], tmp_path: Path
) -> None:
    """PostGIS calls it an internal error, which is no rejected record."""
    path = write_to(tmp_path / "places.csv", b'id,shape,area\n1,SRID=4326;POINT(1 1),\n2,"POINT(1,",\n')
    done = penstock("load", str(path), "--into", "places", "--to", postgis, "--on-error", "reject")
    assert done.code == 7
    assert f'{path} line 3, column "shape": "POINT(1,"' in done.err
    with psycopg.connect(postgis) as connection:
        assert connection.execute("SELECT count(*) FROM places").fetchone() == (0,)
