"""An RDS with instances and an Aurora cluster in it, as moto's server has them, and an environment that names it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import boto3
import psycopg
import pytest
from moto.server import ThreadedMotoServer
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from support.tls import TlsFront, amazon_like_authority, write_roots

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock.embedded.server import EmbeddedServer

REGION = "eu-west-1"
GIB = 1024**3


@dataclass(frozen=True)
class MotoRds:
    """moto's server; `instance` and `writer`, `reader` are endpoints of orders and of the cluster shop."""

    url: str
    instance: str
    writer: str
    reader: str


@pytest.fixture(scope="session")
def moto_url() -> Iterator[str]:
    """Provide the address of moto's server."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(scope="session")
def filled_moto(moto_url: str) -> MotoRds:
    """Provide the server with what the tests look at."""
    rds = _client("rds", moto_url)
    rds.create_db_parameter_group(DBParameterGroupName="loads16", DBParameterGroupFamily="postgres16", Description="-")
    for name in ("orders", "orders-copy"):
        rds.create_db_instance(
            DBInstanceIdentifier=name,
            Engine="postgres",
            EngineVersion="16.4",
            DBInstanceClass="db.m6gd.2xlarge",
            AllocatedStorage=400,
            MaxAllocatedStorage=1000,
            StorageType="gp3",
            Iops=12000,
            StorageThroughput=500,
            MultiAZ=True,
            MasterUsername="master",
            MasterUserPassword="planted-secret",
            DBParameterGroupName="loads16",
            PreferredMaintenanceWindow="sun:02:00-sun:02:30",
            PreferredBackupWindow="03:00-03:30",
            BackupRetentionPeriod=7,
            EnableIAMDatabaseAuthentication=True,
        )
    rds.add_role_to_db_instance(
        DBInstanceIdentifier="orders", RoleArn="arn:aws:iam::123456789012:role/s3-import", FeatureName="s3Import"
    )
    rds.create_db_cluster(
        DBClusterIdentifier="shop",
        Engine="aurora-postgresql",
        EngineVersion="16.4",
        MasterUsername="master",
        MasterUserPassword="planted-secret",
    )
    for name in ("shop-1", "shop-2"):
        rds.create_db_instance(
            DBInstanceIdentifier=name,
            Engine="aurora-postgresql",
            DBInstanceClass="db.r6g.large",
            DBClusterIdentifier="shop",
        )
    shop = rds.describe_db_clusters(DBClusterIdentifier="shop")["DBClusters"][0]
    orders = rds.describe_db_instances(DBInstanceIdentifier="orders")["DBInstances"][0]
    return MotoRds(
        url=moto_url,
        instance=orders["Endpoint"]["Address"],
        writer=shop["Endpoint"],
        reader=shop["ReaderEndpoint"],
    )


@pytest.fixture
def moto_rds(filled_moto: MotoRds, clean_aws: pytest.MonkeyPatch) -> MotoRds:
    """Provide the server, named in the environment as users name theirs."""
    clean_aws.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    clean_aws.setenv("AWS_SECRET_ACCESS_KEY", "planted-secret-key")
    clean_aws.setenv("AWS_ENDPOINT_URL", filled_moto.url)
    # For each test anew: values grow old.
    put_metric(filled_moto.url, "orders", "FreeStorageSpace", 312 * GIB)
    return filled_moto


@pytest.fixture
def clean_aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """Take this machine's AWS configuration out of the way; nobody asks for instance metadata."""
    for name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_RDS", "AWS_DEFAULT_REGION", "AWS_DEFAULT_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("PGHOST", "PGHOSTADDR", "PGPORT", "PGDATABASE", "PGSERVICE", "PGUSER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return monkeypatch


@pytest.fixture
def reach(moto_rds: MotoRds, new_server: Callable[..., EmbeddedServer], tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Provide a function (host=, admit=) that returns a conninfo of the endpoint orders, or another name.

    The server is an embedded one behind TLS, with a certificate like Amazon's and table orders (a int, b text).
    """
    server = new_server(fsync="on", full_page_writes="on", max_wal_size="4GB")
    given = conninfo_to_dict(server.ensure_running())
    with psycopg.connect(server.conninfo(), autocommit=True) as admin:
        admin.execute("CREATE TABLE orders (a int, b text)")
    authority = amazon_like_authority()
    roots = write_roots(authority, tmp_path / "roots.pem")
    fronts: list[TlsFront] = []

    def start(*, host: str = moto_rds.instance, admit: Callable[[str, str], str | None] | None = None) -> str:
        front = TlsFront(authority, host, f"{given['host']}/.s.PGSQL.{given['port']}", admit=admit)
        fronts.append(front)
        return make_conninfo(
            host=host, hostaddr="127.0.0.1", port=front.port, user="postgres", dbname="postgres", sslrootcert=str(roots)
        )

    yield start
    for front in fronts:
        front.close()


def put_metric(url: str, identifier: str, name: str, value: float, *, at: datetime | None = None) -> None:
    """Give an instance a value of a metric, by default one minute old."""
    point: dict[str, Any] = {
        "MetricName": name,
        "Dimensions": [{"Name": "DBInstanceIdentifier", "Value": identifier}],
        "Value": value,
        "Timestamp": at or datetime.now(UTC) - timedelta(minutes=1),
    }
    _client("cloudwatch", url).put_metric_data(Namespace="AWS/RDS", MetricData=[point])


def _client(service: str, url: str) -> Any:
    return boto3.client(
        service,
        region_name=REGION,
        endpoint_url=url,
        aws_access_key_id="AKIAEXAMPLE",
        aws_secret_access_key="planted-secret-key",
    )
