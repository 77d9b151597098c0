"""`penstock bench bulk-load` on a server of the user, on IMDb's own files, and on the lab's volumes."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from penstock.core.connect.connection import ConnectionFactory
from penstock.core.errors import LabError, TargetError
from penstock.settings.backend import SystemSettings
from penstock_lab.bench.bulk_load.plan import BulkLoadExperiment
from penstock_lab.bench.bulk_load.run import measure_bulk_load
from penstock_lab.bench.bulk_load.users import users_target
from penstock_lab.bench.command import describe_bulk_load
from penstock_lab.bench.ways import SCHEMA
from penstock_lab.datasets.people import IMDB_TABLES
from penstock_lab.datasets.writer import read_imdb, write_imdb
from penstock_lab.volumes import check_machine

if TYPE_CHECKING:
    from pathlib import Path

    from penstock_lab.bench.bulk_load.run import BulkLoadResult
    from support.s3_lab import S3Lab

TINY = BulkLoadExperiment(imdb_scale=0.00002, rounds=1)


def measure(conninfo: str, files: Path | None = None, *, s3: str | None = None) -> BulkLoadResult:
    """Measure a server of the user."""
    connect = ConnectionFactory(conninfo)
    return measure_bulk_load(
        TINY,
        files_from=files,
        open_target=lambda found: users_target(
            connect, conninfo, found, open_settings=lambda: SystemSettings(connect), s3=s3
        ),
    )


@pytest.mark.part("rest")
def test_a_server_of_the_user_is_measured_without_volumes_and_keeps_nothing(database18: str) -> None:
    """One file, then the seven; no limits are known, and nobody kills it."""
    result = measure(database18)
    (target,) = result.targets
    assert [each.step.name for each in target.steps] == [
        "one file",
        "seven files in turn",
        "seven files in parallel",
        "seven files, penstock",
        "seven files, penstock, bulk-load",
    ]
    assert [each.median.rows for each in target.steps[1:]] == [result.rows] * 4
    assert [(each.limits, each.recoveries) for each in target.steps] == [(None, ())] * 5
    with psycopg.connect(database18) as connection:
        assert connection.execute("SELECT to_regnamespace(%s)", [SCHEMA]).fetchone() == (None,)


@pytest.mark.part("rest")
def test_a_server_of_the_user_imports_from_its_bucket_with_and_without_settings(
    s3_lab18: S3Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every file by the article's call; objects of the same names beside penstock's folder stay."""
    for name, value in s3_lab18.environment.items():
        monkeypatch.setenv(name, value)
    s3_lab18.put("try/title.ratings.tsv.gz", b"mine")
    result = measure(s3_lab18.conninfo, s3=f"s3://{s3_lab18.bucket}/try/")
    (target,) = result.targets
    assert [(each.step.load, each.step.has_settings) for each in target.steps[:6]] == [
        *(("aws_s3 in turn", False), ("aws_s3 in turn", False), ("aws_s3 in parallel", False)),
        *(("aws_s3 in turn", True), ("aws_s3 in turn", True), ("aws_s3 in parallel", True)),
    ]
    assert [each.median.rows for each in target.steps if not each.step.is_one_file] == [result.rows] * 6
    kept = s3_lab18.client.list_objects_v2(Bucket=s3_lab18.bucket)["Contents"]
    assert [each["Key"] for each in kept] == ["try/title.ratings.tsv.gz"]


@pytest.mark.part("rest")
def test_a_server_that_cannot_import_is_refused_with_the_command_that_prepares_it(
    s3_lab18: S3Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a file is uploaded."""
    for name, value in s3_lab18.environment.items():
        monkeypatch.setenv(name, value)
    with psycopg.connect(s3_lab18.conninfo, autocommit=True) as connection:
        connection.execute("DROP EXTENSION aws_s3")
    with pytest.raises(TargetError, match="aws_s3 does not exist") as caught:
        measure(s3_lab18.conninfo, s3=f"s3://{s3_lab18.bucket}/try")
    command = f"penstock rds prepare-s3-import --bucket {s3_lab18.bucket} --prefix try/penstock_bench/"
    assert caught.value.hint is not None
    assert caught.value.hint.endswith(command)
    assert "Contents" not in s3_lab18.client.list_objects_v2(Bucket=s3_lab18.bucket)


@pytest.mark.part("rest")
def test_a_role_that_may_not_change_settings_measures_the_other_steps(database18: str) -> None:
    """And the result says what is lacking."""
    with psycopg.connect(database18, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS bench_loader")
        connection.execute("CREATE ROLE bench_loader LOGIN PASSWORD 'p' IN ROLE pg_checkpoint, pg_monitor")
        connection.execute(
            "DO $$ BEGIN EXECUTE format('GRANT ALL ON DATABASE %I TO bench_loader', current_database()); END $$"
        )
    result = measure(make_conninfo(database18, user="bench_loader", password="p"))
    (target,) = result.targets
    assert [each.step.load for each in target.steps] == ["psql in turn", "psql in turn", "psql in parallel", "penstock"]
    assert target.lacks is not None
    assert "GRANT" in target.lacks
    assert target.lacks in "\n".join(describe_bulk_load(result))


def test_somebody_elses_schema_is_refused(database18: str) -> None:
    """Only the comment makes it ours."""
    with psycopg.connect(database18, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {SCHEMA}".encode())
    with pytest.raises(TargetError, match="was not created by penstock"):
        measure(database18)


@pytest.mark.part("rest")
def test_files_of_imdb_are_counted_before_they_are_loaded(tmp_path: Path) -> None:
    """Rows without the header, bytes before and after compression; a missing or damaged file is named."""
    written = write_imdb(tmp_path, scale=0.00002)
    assert read_imdb(tmp_path) == written
    damaged = tmp_path / f"{next(iter(IMDB_TABLES))}.tsv.gz"
    damaged.write_bytes(damaged.read_bytes()[:-9])
    with pytest.raises(LabError, match=damaged.name):
        read_imdb(tmp_path)
    damaged.unlink()
    with pytest.raises(LabError, match=damaged.name):
        read_imdb(tmp_path)


@pytest.mark.part("rest")
def test_files_are_loaded_from_a_directory(database18: str, tmp_path: Path) -> None:
    """IMDb's own, if they are there."""
    written = write_imdb(tmp_path, scale=0.00002)
    result = measure(database18, files=tmp_path)
    assert (result.is_imdbs, result.rows) == (True, sum(file.rows for file in written))


def _missing() -> str | None:
    try:
        check_machine("this test", ["qemu-storage-daemon", "mkfs.ext4", "mount", "umount", "setpriv"])
    except LabError as error:
        return str(error)
    return None


@pytest.mark.part("rest")
@pytest.mark.timeout(600)
def test_a_faster_volume_loads_faster_and_kept_wal_is_replayed() -> None:
    """The published order on real volumes: sessions wait for the first, and the second's IOPS are not its limit."""
    if (why := _missing()) is not None:
        pytest.skip(why)
    argv = [sys.executable, "-m", "penstock", "bench", "bulk-load", "--quick", "--json"]
    shown = subprocess.run(argv, stdout=subprocess.PIPE, check=True)
    (target,) = json.loads(shown.stdout)["targets"]
    first, second, *rest = target["steps"]
    # Other tests keep the processors busy: then sessions wait for WAL while the volume is not always at its limit, or
    # the busy processors, or the one session, are named. That a volume is named by itself is in
    # tests/lab/test_planted_storage.py.
    assert first["step"]["load"] == "aws_s3 in turn"
    assert first["runs"][0]["code"] in ("volume-iops", "wal-write", "waits-disagree-with-cpu", "few-sessions")
    assert first["runs"][0]["ios_per_s"] <= 1.1 * first["limits"]["iops"]
    assert first["runs"][0]["bytes_per_s"] <= first["runs"][0]["peak_bytes_per_s"]
    assert second["median_s"] < first["median_s"]
    assert "IOPS" not in second["runs"][0]["at_limit"]
    assert [len(step["recoveries"]) for step in rest] == [0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0]
    plain, kept = (step["recoveries"][0]["wal_bytes"] for step in rest[7:9])
    assert kept > plain
    vacuumed, _, frozen = (step["runs"][0]["bytes_per_s"] * step["median_s"] for step in rest[9:])
    assert frozen < vacuumed
