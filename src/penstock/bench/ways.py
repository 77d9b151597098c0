"""The three ways of experiment A to load many files, each as one call. `bulk_load` times and checks them."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.files import SourceReader
from penstock.host import cpu_count
from penstock.lab.datasets.imdb import IMDB_TABLES
from penstock.lab.psql_copy import copy_with_psql
from penstock.loading.context import LoadTools
from penstock.loading.plan.gather import gather_inputs
from penstock.loading.plan.plan import plan_load
from penstock.loading.run import run_load
from penstock.model.load.job import LoadJob, LoadRules, TargetJob
from penstock.model.server.table import TableName
from penstock.model.source.block import CopySpec
from penstock.server.benchmarks.tables import describe_copy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.lab import EmbeddedServer
    from penstock.lab.datasets.datafiles import DataFile
    from penstock.server.connect.connection import ConnectionFactory

# COPY has no option for "no quoting", so the quote is a byte that does not occur in IMDb's files. The article's own
# FORMAT csv would load \N as text and remove quotes, so the rows could not be compared.
_QUOTE = "\x01"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSetting:
    """What every way loads: these files, into empty tables that exist."""

    files: tuple[DataFile, ...]
    schema: str
    server: EmbeddedServer
    connect: ConnectionFactory


def table_of(file: DataFile) -> str:
    """Return the name of a file's table: title_principals for title.principals."""
    return file.table.replace(".", "_")


def load_in_turn(setting: LoadSetting) -> None:
    """Load one file after another, each with its own psql."""
    for file, statement in _statements(setting):
        copy_with_psql(setting.server, file.path, statement)


def load_in_parallel(setting: LoadSetting) -> None:
    """Load all files at once, each with its own psql: the article's `psql ... &`."""
    with ThreadPoolExecutor(max_workers=len(setting.files)) as threads:
        runs = [
            threads.submit(copy_with_psql, setting.server, file.path, statement)
            for file, statement in _statements(setting)
        ]
    for run in runs:
        run.result()


def load_with_penstock(setting: LoadSetting) -> None:
    """Load all files as one job with the number of sessions that penstock chooses."""
    load_files(setting.connect, setting.schema, setting.files)


def load_files(connect: ConnectionFactory, schema: str, files: Sequence[DataFile]) -> None:
    """Load files into the tables of the same names as one job, without VACUUM. Raises PenstockError."""
    job = LoadJob(
        targets=tuple(
            TargetJob(sources=(str(file.path),), into=TableName(schema=schema, name=table_of(file))) for file in files
        ),
        # Every round loads the same files into new tables. psql does not run VACUUM either.
        rules=LoadRules(again=True, vacuum=False),
    )
    sources = SourceReader()
    try:
        with connect.connect(label="plan") as connection:
            server, job, inputs = gather_inputs(job, sources=sources, connection=connection, on_notice=lambda _: None)
        plan = plan_load(job, inputs, server=server, cpu_count=cpu_count(), load_id=str(uuid.uuid4()))
        run_load(plan, LoadTools(connect=connect, sources=sources, server_major=server.major))
    finally:
        sources.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way to load: its name, its description, its function, and the published seconds, if any."""

    name: str
    description: str
    published_s: int | None
    run: Callable[[LoadSetting], None]


# Experiment A: Amazon RDS for PostgreSQL 14, db.r6g.2xlarge, the real seven files.
WAYS: Sequence[Way] = (
    Way(
        name="one session per file, in turn",
        description='gzip -dc FILE | psql -c "COPY ...", one after another',
        published_s=129,
        run=load_in_turn,
    ),
    Way(
        name="one session per file, in parallel",
        description='gzip -dc FILE | psql -c "COPY ...", all at once',
        published_s=57,
        run=load_in_parallel,
    ),
    Way(
        name="penstock",
        description="one job, all sessions inside each file",
        published_s=None,
        run=load_with_penstock,
    ),
)


def staging_tables(files: Sequence[DataFile]) -> Mapping[str, Sequence[str]]:
    """Return the staging table of each file with its columns."""
    return {table_of(file): IMDB_TABLES[file.table] for file in files}


def _statements(setting: LoadSetting) -> list[tuple[DataFile, str]]:
    return [(file, _copy_statement(setting.schema, file)) for file in setting.files]


def _copy_statement(schema: str, file: DataFile) -> str:
    spec = CopySpec(
        schema=schema,
        table=table_of(file),
        columns=IMDB_TABLES[file.table],
        format="csv",
        delimiter="\t",
        null=r"\N",
        quote=_QUOTE,
        escape=_QUOTE,
        encoding="UTF8",
    )
    return describe_copy(spec)
