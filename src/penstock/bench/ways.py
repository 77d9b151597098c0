"""The ways to load files in experiment A, each as one call. Package `bulk_load` measures them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import field
from typing import TYPE_CHECKING

from penstock.bench.tables import describe_copy, import_as_published
from penstock.core.errors import LabError
from penstock.core.files.streams import SourceReader
from penstock.core.frozen import frozen
from penstock.core.host import client_name
from penstock.core.values.accounts import LoadCounts
from penstock.core.values.job import Housekeeping, LoadJob, LoadRules, TargetJob
from penstock.core.values.table import TableName
from penstock.lab.datasets.people import IMDB_TABLES
from penstock.loading.choices import find_setting
from penstock.loading.context import LoadTools
from penstock.loading.plan_load import World, plan_load
from penstock.loading.run import run_load
from penstock.loading.values.block import CopySpec
from penstock.settings.decide import BULK_LOAD
from penstock.settings.lease import LeaseRequest

if TYPE_CHECKING:
    from penstock.core.connect.connection import ConnectionFactory
    from penstock.lab.datasets.datafiles import DataFile
    from penstock.lab.psql_copy import Psql
    from penstock.loading.imports.server import S3Object
    from penstock.settings.backend import SettingsBackend

# COPY has no option for "no quoting", so the quote is a byte that does not occur in IMDb's files. The article's own
# FORMAT csv would load \N as text and remove quotes, so rows could not be compared.
_QUOTE = "\x01"

# The expected WAL of text that is loaded into tables without indexes, as a multiple of the text.
_WAL_OF_TEXT = 2


@frozen
class LoadTask:
    """What every function of this module loads: these files, into existing empty tables."""

    files: tuple[DataFile, ...]
    schema: str
    psql: Psql
    connect: ConnectionFactory
    open_settings: Callable[[], SettingsBackend]
    # The place in S3 of each file that the server can import, by the name of its table. Empty without S3.
    objects: Mapping[str, S3Object] = field(default_factory=dict)


def table_of(file: DataFile) -> str:
    """Return the name of a file's table: title_principals for title.principals."""
    return file.table.replace(".", "_")


def import_on_server(setting: LoadTask) -> None:
    """Have the server import one file after another from S3, with the article's call."""
    with setting.connect.connect(label="bench") as connection:
        for file in setting.files:
            import_as_published(connection, setting.schema, table_of(file), setting.objects[file.table])


def import_with_settings(setting: LoadTask) -> None:
    """Have the server import from S3 while its settings are those of profile bulk-load.

    This is the article's last step.
    """
    with bulk_load_settings(setting):
        import_on_server(setting)


def load_in_turn(setting: LoadTask) -> None:
    """Load one file after the other, each with its own psql."""
    for file in setting.files:
        setting.psql.copy(file.path, _copy_statement(setting.schema, file))


def load_in_parallel(setting: LoadTask) -> None:
    """Load all files at once, each with its own psql: the article's `psql ... &`."""
    with ThreadPoolExecutor(max_workers=len(setting.files)) as threads:
        runs = [
            threads.submit(setting.psql.copy, file.path, _copy_statement(setting.schema, file))
            for file in setting.files
        ]
    for run in runs:
        run.result()


def load_with_penstock(setting: LoadTask) -> LoadCounts | None:
    """Load all files as one job with the number of sessions that penstock chooses."""
    return load_files(setting.connect, setting.schema, setting.files)


def load_with_settings(setting: LoadTask) -> LoadCounts | None:
    """Load all files as one job while the server's settings are those of profile bulk-load."""
    with bulk_load_settings(setting):
        return load_with_penstock(setting)


@contextmanager
def bulk_load_settings(setting: LoadTask) -> Iterator[None]:
    """Change the server's settings by profile bulk-load, and restore them at the end of the block."""
    wal_bytes = _WAL_OF_TEXT * sum(file.plain_bytes for file in setting.files)
    request = LeaseRequest(
        profile=BULK_LOAD,
        client=client_name(),
        reason="penstock bench bulk-load",
        expected_wal_bytes=wal_bytes,
    )
    with closing(setting.open_settings()) as backend:
        report, _ = backend.take(request)
        try:
            yield
        finally:
            for lease_id in report.lease_ids:
                backend.release(lease_id)


def load_files(connect: ConnectionFactory, schema: str, files: Sequence[DataFile]) -> LoadCounts | None:
    """Load files into the tables of the same names as one job, without VACUUM. Return what the loader counted.

    Raises PenstockError.
    """
    job = LoadJob(
        targets=tuple(
            TargetJob(sources=(str(file.path),), into=TableName(schema=schema, name=table_of(file))) for file in files
        ),
        # Every round loads the same files into new tables. psql does not run VACUUM either.
        rules=LoadRules(again=True, vacuum=False),
    )
    with SourceReader() as sources:
        plan = plan_load(job, World(connect=connect, sources=sources))
        outcome = run_load(plan, LoadTools(connect=connect, sources=sources, server_major=plan.server.major))
    if outcome.accounts is None:
        return None
    setting = find_setting(plan, Housekeeping(), outcome.accounts, is_recorded=False)
    return LoadCounts(accounts=outcome.accounts, setting=setting)


def check_rows(what: str, counts: Mapping[str, int], files: Sequence[DataFile]) -> None:
    """Raise LabError if a table's number of rows differs from its file's."""
    for file in files:
        if counts[table_of(file)] != file.rows:
            raise LabError(
                f'"{what}" did not load every row of {file.table}',
                detail=f"{counts[table_of(file)]} rows in the table, {file.rows} in the file",
            )


def staging_tables(files: Sequence[DataFile]) -> Mapping[str, Sequence[str]]:
    """Return the staging table of each file with its columns."""
    return {table_of(file): IMDB_TABLES[file.table] for file in files}


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
