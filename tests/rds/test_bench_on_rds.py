"""`penstock bench bulk-load --to --s3` at an endpoint of RDS: moto's RDS, and a lab's server with aws_s3."""

from __future__ import annotations

import threading
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from penstock.core.connect.connection import ConnectionFactory, over_own_socket
from penstock.core.errors import TargetError
from penstock.settings.backend import open_backend
from penstock_lab.bench.bulk_load.plan import BulkLoadExperiment
from penstock_lab.bench.bulk_load.run import BulkLoadResult, measure_bulk_load
from penstock_lab.bench.bulk_load.users import users_target
from penstock_lab.bench.command import describe_bulk_load
from rds.conftest import _client, put_metric
from rds.test_settings_moto import _apply
from support.moto_rds import applied_groups
from support.tls import TlsFront, amazon_like_authority, write_roots

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rds.conftest import MotoRds
    from support.s3_lab import S3Lab

pytestmark = pytest.mark.part("rest")


@pytest.fixture
def own_instance(moto_rds: MotoRds, s3_lab18: S3Lab, clean_aws: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """Provide a conninfo of instance `loads`, with a parameter group of its own; S3 is the lab's."""
    assert s3_lab18.status.s3 is not None
    clean_aws.setenv("AWS_ENDPOINT_URL", s3_lab18.status.s3["AWS_ENDPOINT_URL"])
    clean_aws.setenv("AWS_REGION", s3_lab18.region)
    for service in ("RDS", "EC2", "CLOUDWATCH"):
        clean_aws.setenv(f"AWS_ENDPOINT_URL_{service}", moto_rds.url)
    rds = _client("rds", moto_rds.url)
    rds.create_db_parameter_group(DBParameterGroupName="bulk", DBParameterGroupFamily="postgres16", Description="-")
    host = rds.create_db_instance(
        DBInstanceIdentifier="loads",
        Engine="postgres",
        DBInstanceClass="db.r6g.2xlarge",
        AllocatedStorage=250,
        MasterUsername="master",
        MasterUserPassword="planted-secret",
        DBParameterGroupName="bulk",
    )["DBInstance"]["Endpoint"]["Address"]
    given = conninfo_to_dict(over_own_socket(s3_lab18.conninfo))
    authority = amazon_like_authority()
    roots = write_roots(authority, tmp_path / "roots.pem")
    with closing(TlsFront(authority, host, f"{given['host']}/.s.PGSQL.{given['port']}")) as front:
        reached = {"host": host, "hostaddr": "127.0.0.1", "port": front.port, "sslrootcert": str(roots)}
        yield make_conninfo(user=given["user"], dbname=given["dbname"], **reached)
    rds.delete_db_instance(DBInstanceIdentifier="loads", SkipFinalSnapshot=True)
    rds.delete_db_parameter_group(DBParameterGroupName="bulk")


def measure(conninfo: str, place: str) -> BulkLoadResult:
    """Measure the instance, in small."""
    connect = ConnectionFactory(conninfo)
    open_target = partial(users_target, connect, conninfo, open_settings=lambda: open_backend(connect), s3=place)
    return measure_bulk_load(BulkLoadExperiment(imdb_scale=0.00002, rounds=1), open_target=open_target)


@pytest.mark.timeout(600)
def test_an_instance_imports_with_and_without_its_parameter_group(
    own_instance: str, s3_lab18: S3Lab, moto_rds: MotoRds
) -> None:
    """Refused without the role; with it every step runs, and CloudWatch has the queue, also at its highest."""
    place = f"s3://{s3_lab18.bucket}/raw"
    with pytest.raises(TargetError, match="loads has no role for feature s3Import") as caught:
        measure(own_instance, place)
    assert "penstock rds prepare-s3-import --bucket" in str(caught.value.hint)
    role = "arn:aws:iam::123456789012:role/s3-import"
    rds: Any = _client("rds", moto_rds.url)
    rds.add_role_to_db_instance(DBInstanceIdentifier="loads", RoleArn=role, FeatureName="s3Import")
    ended = threading.Event()

    def report() -> None:
        while not ended.wait(1.0):
            put_metric(moto_rds.url, "loads", "DiskQueueDepth", 7.0, at=datetime.now(UTC))

    with psycopg.connect(s3_lab18.conninfo, autocommit=True) as admin, applied_groups(partial(_apply, admin)):
        admin.execute("DROP ROLE IF EXISTS rds_superuser")
        admin.execute("CREATE ROLE rds_superuser")
        reporter = threading.Thread(target=report)
        reporter.start()
        try:
            result = measure(own_instance, place)
        finally:
            ended.set()
            reporter.join()
            admin.execute("DROP ROLE rds_superuser")
    (target,) = result.targets
    assert target.lacks is None
    assert [each.step.has_settings for each in target.steps] == [False] * 3 + [True] * 3 + [False, True]
    assert {(each.median.mean_queue, each.median.peak_queue) for each in target.steps} == {(7.0, 7.0)}
    assert "in Enhanced Monitoring rdsdev.avgQueueLen" in "\n".join(describe_bulk_load(result))
