"""Prepares a server of the user for experiment A: its files in S3 if it imports them, and what must be there first."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from penstock.core.aws.credentials import AwsCredentials
from penstock.core.connect.conninfo import parse_conninfo
from penstock.core.connect.endpoints import is_rds_endpoint
from penstock.core.errors import AwsError, PenstockError, TargetError
from penstock.embedded.installations import default_installation
from penstock.embedded.server import format_conninfo
from penstock.loading.imports.route import RouteFacts, await_answer, begin_asking, find_lack, roles_of
from penstock.loading.imports.server import S3Object, read_import_rights
from penstock_lab.bench.bulk_load.plan import StepRuns, steps_without_volumes, summarize_minutes
from penstock_lab.bench.bulk_load.run import Target
from penstock_lab.bench.ways import SCHEMA, LoadTask, own_schema, why_no_settings
from penstock_lab.datasets.datafiles import DataFile, S3Folder
from penstock_lab.programs import Psql

if TYPE_CHECKING:
    from penstock.core.connect.connection import ConnectionFactory
    from penstock.settings.backend import SettingsBackend

_AWS_TIMEOUT_S = 30.0

# CloudWatch has the metrics of a minute some minutes later.
_METRICS_TIMEOUT_S = 300.0
_METRICS_LOOK_S = 20.0


@contextmanager
def users_target(
    connect: ConnectionFactory,
    to: str,
    files: tuple[DataFile, ...],
    *,
    open_settings: Callable[[], SettingsBackend],
    s3: str | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Iterator[Target]:
    """Provide the server that a connection string names, with its present storage.

    With `s3`, a URL s3://bucket/prefix, the server imports the files from there: they are uploaded, and removed at the
    end. Steps with settings are left out if the settings cannot be changed. At the end, drop the schema and close the
    connection. Raises TargetError if the server lacks what imports need. Raises UsageError, LabError, ServerError.
    """
    given = parse_conninfo(to)
    password = given.pop("password", None)
    # A distribution's psql supports TLS; the wheel's does not.
    program = shutil.which("psql") or default_installation().program("psql")
    # The samples show psql's sessions by this name.
    given["application_name"] = "psql"
    psql = Psql(program=program, conninfo=format_conninfo(**given), password=password, is_users=True)
    setting = LoadTask(files=files, schema=SCHEMA, psql=psql, connect=connect, open_settings=open_settings)
    with connect.borrow() as connection:
        host = connection.info.host
    with closing(connect), ExitStack() as stack:
        if s3 is not None:
            setting = replace(setting, objects=stack.enter_context(_offered(connect, files, s3, host, say)))
        lacks, steps = why_no_settings(setting), steps_without_volumes(has_s3=s3 is not None)
        with own_schema(connect, purpose="measure a bulk load", setup=""):
            yield Target(
                name=connect.safe_description,
                setting=setting,
                steps=tuple(step for step in steps if lacks is None or not step.has_settings),
                lacks=lacks,
                complete=lambda found: _add_metrics(found, host, say) if is_rds_endpoint(host) else found,
            )


@contextmanager
def _offered(
    connect: ConnectionFactory, files: Sequence[DataFile], url: str, host: str, say: Callable[[str], None]
) -> Iterator[dict[str, S3Object]]:
    """Upload files, and provide the S3 object of each table. Remove the objects at the end."""
    # The folder is penstock's own: what has the same names beside it stays.
    place = f"{url.rstrip('/')}/{SCHEMA}"
    folder = S3Folder(place)
    bucket, _, prefix = place.removeprefix("s3://").partition("/")
    region = _check_imports(connect, host, bucket, prefix, say)
    uploaded: list[DataFile] = []
    try:
        for file in files:
            say(f"uploading {file.path.name}")
            # Ctrl-C arrives when the upload is complete.
            uploaded.append(file)
            try:
                folder.upload(file.path)
            except PenstockError:
                uploaded.pop()
                raise
        yield {file.table: S3Object(bucket=bucket, key=f"{prefix}/{file.path.name}", region=region) for file in files}
    finally:
        for file in uploaded:
            folder.remove(file.path.name)


def _check_imports(connect: ConnectionFactory, host: str, bucket: str, prefix: str, say: Callable[[str], None]) -> str:
    """Return the region of the bucket. Raises TargetError, with the command that prepares all, if anything lacks."""
    described = await_answer(begin_asking(host, is_worth=True, patience_s=_AWS_TIMEOUT_S), on_notice=say)
    instance, roles = roles_of(described)
    region = AwsCredentials().s3_config().get("region")
    with connect.borrow() as connection:
        facts = RouteFacts(
            rights=read_import_rights(connection),
            region=region,
            server_major=connection.info.server_version // 10_000,
            roles=roles,
            instance=instance,
        )
    if (lack := find_lack(facts)) is not None:
        command = f"penstock rds prepare-s3-import --bucket {bucket} --prefix {prefix}/"
        raise TargetError(
            lack.claim, detail=lack.detail, hint=f"{lack.remedy} On Amazon RDS, this makes all of it: {command}"
        )
    assert region is not None
    return str(region)


def _add_metrics(steps: tuple[StepRuns, ...], host: str, say: Callable[[str], None]) -> tuple[StepRuns, ...]:
    """Return the steps with CloudWatch's figures for each run, as far as CloudWatch has them within five minutes."""
    from penstock.rds.metrics import read_extremes  # noqa: PLC0415 (70 ms, botocore)

    began = [(datetime.fromisoformat(run.began_at), run.seconds) for each in steps for run in each.runs]
    since, until = min(began)[0], max(at + timedelta(seconds=seconds) for at, seconds in began)
    say("waiting for CloudWatch's metrics of the last minute")
    deadline_s = time.monotonic() + _METRICS_TIMEOUT_S
    while True:
        try:
            means, highest = read_extremes(host, since=since, until=datetime.now(UTC))
        except AwsError as error:
            say(f"CloudWatch's metrics are not known: {error.message}")
            return steps
        last = max((datetime.fromisoformat(str(row["measured_at"])) for row in means), default=since)
        if last + timedelta(minutes=1) >= until or time.monotonic() > deadline_s:
            break
        time.sleep(_METRICS_LOOK_S)
    return tuple(
        replace(each, runs=tuple(summarize_minutes(means, highest, run) for run in each.runs)) for each in steps
    )
