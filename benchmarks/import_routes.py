"""Both routes of a load from S3, by the loader and by the server (aws_s3): IMDb's seven files, and one large object.

The server is an embedded PostgreSQL with the lab's aws_s3, the S3 is moto's: both, and the loader, share this machine.
So this compares what the routes cost, not how a server on RDS is connected to S3. The files are read as csv with a
quote that they do not have, since COPY has no format tsv.
"""

from __future__ import annotations

import os
import shutil
import socket
import statistics
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import boto3
import psycopg
from botocore.exceptions import BotoCoreError

from benchmarks.data import PENSTOCK
from benchmarks.processes import run_measured
from benchmarks.record import save, summarize
from benchmarks.rounds import WrongRows
from benchmarks.server import SCHEMA, SETTINGS, Target, make_open_dir
from benchmarks.ways import AS_COPY
from penstock.embedded.installations import default_installation
from penstock.embedded.server import EmbeddedServer
from penstock.embedded.users import choose_server_user
from penstock_lab.datasets.people import IMDB_TABLES, expected_rows
from penstock_lab.topology.s3 import S3StandIn

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from benchmarks.options import Options
    from benchmarks.processes import Cost

_BUCKET = "bench"
_LARGE = "title.principals"
_SETS = {"seven files": tuple(IMDB_TABLES), "one large object": (_LARGE,)}
_ROUTES = ("client", "server")
_DIALECT = r"""
format = "csv"
delimiter = "\\t"
quote = "\\x01"
null = '\N'
header = true
"""


def run(options: Options) -> None:
    """Run it and write the results."""
    folder = _imdb(options.data, options.scale)
    costs: dict[str, list[Cost]] = {f"{what}, {route}": [] for what in _SETS for route in _ROUTES}
    with _moto(options.data) as port, _server(options.data, port) as server, Target(server.conninfo()) as target:
        _upload(folder, port)
        for number in range(-1, options.runs):
            for what, tables in _SETS.items():
                for route in _ROUTES:
                    job = _write_job(folder, server.conninfo(), tables, route)
                    _renew(server.conninfo(), tables)
                    cost = run_measured([PENSTOCK, "load", str(job), "--quiet", "--no-record", *AS_COPY])
                    _check(server.conninfo(), tables, options.scale)
                    print(f"{what}, {route}: {cost.seconds:.2f} s", flush=True)
                    if number >= 0:
                        costs[f"{what}, {route}"].append(cost)
        save(
            "import_routes",
            options=options,
            postgresql=target.settings(),
            settings={"tables": list(IMDB_TABLES), "large": _LARGE},
            results={name: summarize(found) for name, found in costs.items()},
            table=[("load, --via", "median s", "client CPU s", "peak MB"), *map(_row, costs.items())],
            notes=["The S3 (moto), the server and the loader share one machine; the server reads by `penstock cat`."],
        )


def _row(found: tuple[str, list[Cost]]) -> tuple[str, ...]:
    name, costs = found
    return (
        name,
        f"{statistics.median(cost.seconds for cost in costs):.2f}",
        f"{statistics.median(cost.cpu_s or 0.0 for cost in costs):.2f}",
        f"{max(cost.peak_rss_bytes or 0 for cost in costs) / 1e6:.0f}",
    )


def _imdb(data: Path, scale: float) -> Path:
    """Return a folder with IMDb's seven files at a scale."""
    folder = data / f"seven-{scale:.9f}"
    if not folder.exists():
        make_open_dir(data)
        unfinished = folder.with_suffix(".new")
        argv = [PENSTOCK, "lab", "imdb", f"--scale={scale!r}", f"--out={unfinished}"]
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
        unfinished.rename(folder)
    return folder


@contextmanager
def _moto(data: Path) -> Iterator[int]:
    """Provide the port of moto's server, a process of its own; the environment leads to it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    os.environ |= {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "bench",
        "AWS_SECRET_ACCESS_KEY": "bench",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    argv = [sys.executable, "-I", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    log = data / "moto.log"
    with log.open("wb") as out, subprocess.Popen(argv, stdout=out, stderr=out) as process:
        try:
            yield port
        finally:
            process.terminate()


@contextmanager
def _server(data: Path, port: int) -> Iterator[EmbeddedServer]:
    """Provide a running server with aws_s3, made anew."""
    home, folder = data / "import-server", data / "import-s3"
    for each in (home, folder):
        shutil.rmtree(each, ignore_errors=True)
    make_open_dir(folder)
    s3, installation = S3StandIn(lab=folder, port=port), default_installation()
    s3.create(installation, choose_server_user(home / "data"))
    server = EmbeddedServer.create(
        home,
        s3.programs(installation),
        {**SETTINGS, **s3.settings},
        listens_on_tcp=True,
        copies=folder / "copies",
    )
    server.ensure_running()
    try:
        with psycopg.connect(server.conninfo(), autocommit=True) as connection:
            connection.execute("CREATE EXTENSION aws_s3 CASCADE")
        yield server
    finally:
        server.stop()


def _upload(folder: Path, port: int) -> None:
    client = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}", region_name="us-east-1")
    while True:
        try:
            client.create_bucket(Bucket=_BUCKET)
            break
        except BotoCoreError:
            # moto imports for a second before it listens.
            time.sleep(0.1)
    for name in IMDB_TABLES:
        path = folder / f"{name}.tsv.gz"
        client.upload_file(str(path), _BUCKET, path.name, ExtraArgs={"ContentEncoding": "gzip"})
    client.close()


def _write_job(folder: Path, conninfo: str, tables: Sequence[str], route: str) -> Path:
    path = folder / "job.toml"
    targets = "".join(
        f'[[target]]\nsources = "s3://{_BUCKET}/{name}.tsv.gz"\ninto = "{_table(name)}"\n{_DIALECT}' for name in tables
    )
    path.write_text(f'to = "{conninfo}"\nvia = "{route}"\n{targets}', encoding="utf-8")
    return path


def _table(name: str) -> str:
    return f"{SCHEMA}.{name.replace('.', '_')}"


def _renew(conninfo: str, tables: Sequence[str]) -> None:
    """Make the tables anew, forget what was loaded, and let the server write what is dirty."""
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
        connection.execute("DROP SCHEMA IF EXISTS penstock CASCADE")
        for name in tables:
            columns = ", ".join(f'"{column}" text' for column in IMDB_TABLES[name])
            connection.execute(f"DROP TABLE IF EXISTS {_table(name)}")
            connection.execute(f"CREATE TABLE {_table(name)} ({columns})")
        connection.execute("CHECKPOINT")


def _check(conninfo: str, tables: Sequence[str], scale: float) -> None:
    """Raise WrongRows if a table has other than its file's rows."""
    with psycopg.connect(conninfo, autocommit=True) as connection:
        for name in tables:
            row = connection.execute(f"SELECT count(*) FROM {_table(name)}").fetchone()
            if row != (expected_rows(name, scale),):
                raise WrongRows(f"{name}: {row} rows, {expected_rows(name, scale)} expected")
