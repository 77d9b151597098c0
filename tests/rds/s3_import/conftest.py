"""Servers to prepare: instances and clusters of moto's server, with what that lacks (support/moto_rds.py).

The databases are of PostgreSQL 18. Extension aws_s3 has one function there, and not RDS's.
"""

from __future__ import annotations

import itertools
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import psycopg
import pytest
from botocore.loaders import create_loader
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from penstock.cli.main import main
from support.moto_rds import Parts, lacking_parts
from support.tls import TlsFront, amazon_like_authority, write_roots

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

REGION = "eu-west-1"
_LOADER = create_loader()
_NUMBERS = itertools.count(1)
_NEEDS_COMMONS = "requires = 'aws_commons'\n"
_EXTENSIONS = {"aws_commons": "", "aws_s3": _NEEDS_COMMONS, "aws_lambda": _NEEDS_COMMONS}
_FUNCTION = "CREATE FUNCTION {}.probe() RETURNS int LANGUAGE sql RETURN 1;\n"


@dataclass(frozen=True)
class Place:
    """An instance or a cluster, its bucket, and the connection to its database."""

    url: str
    owner: str
    kind: str
    bucket: str
    to: str
    database: str

    def client(self, service: str) -> Any:
        """Return a client of moto's server."""
        return boto3.client(
            service,
            region_name=REGION,
            endpoint_url=self.url,
            aws_access_key_id="AKIAEXAMPLE",
            aws_secret_access_key="planted-secret-key",
        )

    def run(self, *options: str) -> int:
        """Run the command in this process."""
        return main(["rds", "prepare-s3-import", "--to", self.to, "--bucket", self.bucket, *options])

    def kill(self, number: int, *options: str) -> None:
        """Run the command in a process of its own, which is killed before a call, counted from 0."""
        words = ["rds", "prepare-s3-import", "--to", self.to, "--bucket", self.bucket, *options]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        module = Path(__file__).parents[2] / "support" / "moto_rds.py"
        ended = subprocess.run([sys.executable, module, str(number), *words], env=environment, check=False)
        assert ended.returncode == -signal.SIGKILL

    @property
    def arn(self) -> str:
        """Return the ARN of the owner."""
        return str(self.describe()["DBClusterArn" if self.kind == "cluster" else "DBInstanceArn"])

    def describe(self) -> dict[str, Any]:
        """Return RDS's description of the owner."""
        rds = self.client("rds")
        if self.kind == "cluster":
            found = rds.describe_db_clusters(DBClusterIdentifier=self.owner)["DBClusters"][0]
        else:
            found = rds.describe_db_instances(DBInstanceIdentifier=self.owner)["DBInstances"][0]
        return dict(found)

    def state(self) -> dict[str, Any]:
        """Return all that the command may change."""
        iam, rds, owner = self.client("iam"), self.client("rds"), self.describe()
        roles = [each["RoleName"] for each in iam.list_roles()["Roles"]]
        with psycopg.connect(self.database) as connection:
            extensions = connection.execute("SELECT extname FROM pg_extension ORDER BY 1").fetchall()
            schemas = connection.execute("SELECT nspname FROM pg_namespace ORDER BY 1").fetchall()
        return {
            "roles": {
                name: (
                    iam.get_role(RoleName=name)["Role"]["AssumeRolePolicyDocument"],
                    iam.list_attached_role_policies(RoleName=name)["AttachedPolicies"],
                )
                for name in roles
            },
            "policies": {each["PolicyName"]: each["Arn"] for each in iam.list_policies(Scope="Local")["Policies"]},
            "associated": [(each["RoleArn"], each["FeatureName"]) for each in owner.get("AssociatedRoles", [])],
            "tags": rds.list_tags_for_resource(ResourceName=self.arn)["TagList"],
            "extensions": extensions,
            "schemas": schemas,
        }

    def policy(self) -> dict[str, Any]:
        """Return the document of the one policy."""
        iam = self.client("iam")
        (found,) = iam.list_policies(Scope="Local")["Policies"]
        version = iam.get_policy_version(PolicyArn=found["Arn"], VersionId=found["DefaultVersionId"])
        return dict(version["PolicyVersion"]["Document"])


@pytest.fixture(scope="session")
def control_files() -> Iterator[Path]:
    """Provide a folder with the two extensions, which the servers' account can read."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-aws-s3-"))
    folder.chmod(0o755)
    (folder / "extension").mkdir(mode=0o755)
    for name, more in _EXTENSIONS.items():
        control = f"default_version = '1.1'\nschema = '{name}'\nrelocatable = false\n{more}"
        (folder / "extension" / f"{name}.control").write_text(control)
        (folder / "extension" / f"{name}--1.1.sql").write_text(_FUNCTION.format(name))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Parts]:
    """Provide how moto's RDS behaves, with what it lacks."""
    # Reading the models of AWS's services takes most of a run, so they are read once.
    monkeypatch.setattr("botocore.session.create_loader", lambda _: _LOADER)
    # The lines of requests would go to the streams of the test that came first.
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    with lacking_parts() as made:
        yield made


@pytest.fixture
def make_place(
    parts: Parts, moto_url: str, clean_aws: pytest.MonkeyPatch, database18: str, control_files: Path, tmp_path: Path
) -> Iterator[Callable[..., Place]]:
    """Provide a function (kind=, has_extension=) that makes a place; what it made in moto ends with the test."""
    clean_aws.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    clean_aws.setenv("AWS_SECRET_ACCESS_KEY", "planted-secret-key")
    clean_aws.setenv("AWS_ENDPOINT_URL", moto_url)
    authority = amazon_like_authority()
    write_roots(authority, tmp_path / "roots.pem")
    fronts: list[TlsFront] = []

    def make(kind: str = "instance", *, has_extension: bool = True) -> Place:
        name = f"loads-{next(_NUMBERS)}"
        given = conninfo_to_dict(database18)
        with psycopg.connect(database18, autocommit=True) as admin:
            path = f"{control_files}:$system" if has_extension else "$system"
            admin.execute(f"ALTER DATABASE \"{given['dbname']}\" SET extension_control_path = '{path}'")
        place = Place(url=moto_url, owner=name, kind=kind, bucket=f"bucket-{name}", to="", database=database18)
        place.client("s3").create_bucket(Bucket=place.bucket, CreateBucketConfiguration={"LocationConstraint": REGION})
        rds = place.client("rds")
        member: dict[str, Any] = {
            "AllocatedStorage": 20,
            "MasterUserPassword": "planted-secret",
            "MasterUsername": "master",
        }
        if kind == "cluster":
            rds.create_db_cluster(DBClusterIdentifier=name, Engine="aurora-postgresql", **_master(member))
            member = {"DBClusterIdentifier": name}
        rds.create_db_instance(
            DBInstanceIdentifier=name if kind == "instance" else f"{name}-1",
            Engine="postgres" if kind == "instance" else "aurora-postgresql",
            DBInstanceClass="db.r6g.large",
            DBSubnetGroupName=_make_subnets(place),
            Tags=[{"Key": "team", "Value": "loads"}],
            **member,
        )
        owner = place.describe()["Endpoint"]
        host = owner if kind == "cluster" else owner["Address"]
        front = TlsFront(authority, host, f"{given['host']}/.s.PGSQL.{given['port']}")
        fronts.append(front)
        to = make_conninfo(
            database18, host=host, hostaddr="127.0.0.1", port=front.port, sslrootcert=str(tmp_path / "roots.pem")
        )
        return Place(url=moto_url, owner=name, kind=kind, bucket=place.bucket, to=to, database=database18)

    yield make
    for front in fronts:
        front.close()


@pytest.fixture
def place(make_place: Callable[..., Place]) -> Place:
    """Provide an instance."""
    return make_place()


def _master(given: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name.startswith("Master")}


def _make_subnets(place: Place) -> str:
    """Make a VPC with two subnets and a gateway endpoint for S3."""
    ec2 = place.client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    subnets = [
        ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.0.{number}.0/24", AvailabilityZone=f"{REGION}{zone}")["Subnet"]
        for number, zone in enumerate("ab")
    ]
    table = ec2.describe_route_tables(Filters=[{"Name": "vpc-id", "Values": [vpc]}])["RouteTables"][0]
    ec2.create_vpc_endpoint(VpcId=vpc, ServiceName=f"com.amazonaws.{REGION}.s3", RouteTableIds=[table["RouteTableId"]])
    place.client("rds").create_db_subnet_group(
        DBSubnetGroupName=f"group-{place.owner}",
        DBSubnetGroupDescription="-",
        SubnetIds=[each["SubnetId"] for each in subnets],
    )
    return f"group-{place.owner}"
