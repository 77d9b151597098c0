"""A fake AWS for what moto's server does not do.

That is: Performance Insights and the mode of Database Insights, shared and default parameter groups, apply states,
Multi-AZ DB clusters, custom endpoints, valid modifications of instances, windows over Sunday midnight, pending
maintenance, DbiResourceIds that differ, denied calls, several pages.

botocore's own clients ask it, and what it answers must have the shape that botocore's model of AWS says. It differs
from AWS in that nothing is sent, signed or written as XML: retries, timeouts and wrong credentials are not its matter.
It knows the identifiers and filters by which penstock asks, and no rights but those a test takes away. CloudWatch has
the values that a test gave it, one a minute from NOW on, whatever time is asked for, and so has Performance Insights,
which does not align times, scale the load or leave out small waits.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import botocore
import botocore.session
from botocore.awsrequest import AWSResponse
from botocore.loaders import create_loader
from botocore.validate import ParamValidator

Raw = dict[str, Any]

# Reading EC2's model takes a while, so it is read once.
_LOADER = create_loader()

ACCOUNT = "c7tj4example"
REGION = "eu-west-1"

# Saturday.
NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)

R6G_2XLARGE: Raw = {
    "InstanceType": "r6g.2xlarge",
    "VCpuInfo": {"DefaultVCpus": 8},
    "MemoryInfo": {"SizeInMiB": 65536},
    "EbsInfo": {
        "EbsOptimizedInfo": {
            "BaselineThroughputInMBps": 296.875,
            "BaselineIops": 12000,
            "MaximumThroughputInMBps": 593.75,
            "MaximumIops": 20000,
        }
    },
    "NetworkInfo": {"NetworkCards": [{"BaselineBandwidthInGbps": 2.5, "PeakBandwidthInGbps": 10.0}]},
}
R6GD_2XLARGE: Raw = {**R6G_2XLARGE, "InstanceType": "r6gd.2xlarge", "InstanceStorageInfo": {"TotalSizeInGB": 474}}


def instance(name: str, **more: Any) -> Raw:
    """Return an instance as DescribeDBInstances has it."""
    return {
        "DBInstanceIdentifier": name,
        "DbiResourceId": resource_id("db", name),
        "DBInstanceArn": f"arn:aws:rds:{REGION}:111122223333:db:{name}",
        "DBInstanceClass": "db.r6g.2xlarge",
        "DBInstanceStatus": "available",
        "Engine": "postgres",
        "EngineVersion": "16.4",
        "Endpoint": {"Address": f"{name}.{ACCOUNT}.{REGION}.rds.amazonaws.com", "Port": 5432},
        "AllocatedStorage": 400,
        "StorageType": "gp3",
        "Iops": 12000,
        "StorageThroughput": 500,
        "MultiAZ": False,
        "BackupRetentionPeriod": 7,
        "PreferredBackupWindow": "03:00-03:30",
        "PreferredMaintenanceWindow": "tue:04:00-tue:04:30",
        "PubliclyAccessible": False,
        "DBSubnetGroup": {"DBSubnetGroupName": "private"},
        "DBParameterGroups": [{"DBParameterGroupName": "default.postgres16", "ParameterApplyStatus": "in-sync"}],
        "IAMDatabaseAuthenticationEnabled": False,
        **more,
    }


def cluster(name: str, members: list[str], **more: Any) -> Raw:
    """Return an Aurora cluster as DescribeDBClusters has it; its first member is the writer."""
    return {
        "DBClusterIdentifier": name,
        "DbClusterResourceId": resource_id("cluster", name),
        "DBClusterArn": f"arn:aws:rds:{REGION}:111122223333:cluster:{name}",
        "Status": "available",
        "Engine": "aurora-postgresql",
        "EngineVersion": "16.4",
        "Endpoint": f"{name}.cluster-{ACCOUNT}.{REGION}.rds.amazonaws.com",
        "ReaderEndpoint": f"{name}.cluster-ro-{ACCOUNT}.{REGION}.rds.amazonaws.com",
        "DBClusterParameterGroup": "default.aurora-postgresql16",
        "StorageType": "aurora",
        "BackupRetentionPeriod": 7,
        "PreferredBackupWindow": "05:00-05:30",
        "PreferredMaintenanceWindow": "sun:23:45-mon:00:15",
        "DBClusterMembers": [
            {
                "DBInstanceIdentifier": member,
                "IsClusterWriter": member == members[0],
                "DBClusterParameterGroupStatus": "in-sync",
                "PromotionTier": 1,
            }
            for member in members
        ],
        **more,
    }


def member(name: str, of: str, **more: Any) -> Raw:
    """Return an instance of an Aurora cluster."""
    return instance(name, DBClusterIdentifier=of, Engine="aurora-postgresql", StorageType="aurora", **more)


def resource_id(prefix: str, name: str) -> str:
    """Return an id as AWS makes them, a different one for each name."""
    return f"{prefix}-{name.upper().replace('-', ''):A<26}"


@dataclass
class FakeAws:
    """What there is, and what may be asked. `asked` are the operations in the order they came, with parameters."""

    instances: list[Raw] = field(default_factory=list)
    clusters: list[Raw] = field(default_factory=list)
    custom_endpoints: list[Raw] = field(default_factory=list)
    types: list[Raw] = field(default_factory=lambda: [R6G_2XLARGE, R6GD_2XLARGE])
    orderable: list[str] = field(default_factory=list)
    maintenance: dict[str, list[Raw]] = field(default_factory=dict)
    security_groups: list[Raw] = field(default_factory=list)
    metrics: dict[str, list[float]] = field(default_factory=dict)
    load: dict[str, list[float]] = field(default_factory=dict)
    options: dict[str, list[Raw]] = field(default_factory=dict)
    denied: dict[str, str] = field(default_factory=dict)
    page_size: int = 100
    asked: list[tuple[str, Raw]] = field(default_factory=list)

    def make_clients(self, *, region: str | None = None, **_: Any) -> FakeClients:
        """Return what stands in for AwsClients."""
        return FakeClients(self, region or REGION)

    def answer(self, operation: str, parameters: Raw) -> Raw:
        """Return an operation's answer; it raises Refused."""
        self.asked.append((operation, parameters))
        if operation in self.denied:
            raise Refused(403, "AccessDenied", self.denied[operation])
        answer: Raw = getattr(self, f"_{botocore.xform_name(operation)}")(parameters)
        return answer

    def _describe_db_instances(self, parameters: Raw) -> Raw:
        found = _named(self.instances, parameters, "DBInstanceIdentifier", "dbi-resource-id", "DbiResourceId")
        if not found and "DBInstanceIdentifier" in parameters:
            raise Refused(404, "DBInstanceNotFound", f"DBInstance {parameters['DBInstanceIdentifier']} not found.")
        start = int(parameters.get("Marker", 0))
        page: Raw = {"DBInstances": found[start : start + self.page_size]}
        return page if start + self.page_size >= len(found) else {**page, "Marker": str(start + self.page_size)}

    def _describe_db_clusters(self, parameters: Raw) -> Raw:
        found = _named(
            self.clusters, parameters, "DBClusterIdentifier", "db-cluster-resource-id", "DbClusterResourceId"
        )
        if not found and "DBClusterIdentifier" in parameters:
            raise Refused(404, "DBClusterNotFoundFault", f"DBCluster {parameters['DBClusterIdentifier']} not found.")
        return {"DBClusters": found}

    def _describe_db_cluster_endpoints(self, parameters: Raw) -> Raw:
        name = parameters["DBClusterEndpointIdentifier"]
        return {
            "DBClusterEndpoints": [one for one in self.custom_endpoints if one["DBClusterEndpointIdentifier"] == name]
        }

    def _describe_pending_maintenance_actions(self, parameters: Raw) -> Raw:
        arn = parameters["ResourceIdentifier"]
        if arn not in self.maintenance:
            return {"PendingMaintenanceActions": []}
        found = {"ResourceIdentifier": arn, "PendingMaintenanceActionDetails": self.maintenance[arn]}
        return {"PendingMaintenanceActions": [found]}

    def _describe_orderable_db_instance_options(self, parameters: Raw) -> Raw:
        wanted = {name: parameters[name] for name in ("Engine", "EngineVersion", "DBInstanceClass")}
        return {"OrderableDBInstanceOptions": [wanted] if wanted["DBInstanceClass"] in self.orderable else []}

    def _describe_valid_db_instance_modifications(self, parameters: Raw) -> Raw:
        name = parameters["DBInstanceIdentifier"]
        if name not in self.options:
            raise Refused(400, "InvalidDBInstanceState", f"DB instance {name} is not available.")
        return {"ValidDBInstanceModificationsMessage": {"Storage": self.options[name]}}

    def _describe_instance_types(self, parameters: Raw) -> Raw:
        (name,) = parameters["Filters"][0]["Values"] if "Filters" in parameters else parameters["InstanceTypes"]
        found = [one for one in self.types if one["InstanceType"] == name]
        if not found and "InstanceTypes" in parameters:
            raise Refused(400, "InvalidInstanceType", f"The following supplied instance types do not exist: [{name}]")
        return {"InstanceTypes": found}

    def _describe_security_groups(self, parameters: Raw) -> Raw:
        return {"SecurityGroups": [one for one in self.security_groups if one["GroupId"] in parameters["GroupIds"]]}

    def _get_metric_statistics(self, parameters: Raw) -> Raw:
        assert parameters["Dimensions"][0]["Name"] == "DBInstanceIdentifier"
        key = f"{parameters['Dimensions'][0]['Value']} {parameters['MetricName']}"
        # Not in order, as CloudWatch gives them.
        points = [
            {"Timestamp": NOW.replace(minute=minute), parameters["Statistics"][0]: value, "Unit": "Bytes"}
            for minute, value in enumerate(self.metrics.get(key, []))
        ]
        return {"Label": parameters["MetricName"], "Datapoints": points[::-1]}

    def _get_resource_metrics(self, parameters: Raw) -> Raw:
        (query,) = parameters["MetricQueries"]
        assert (query["Metric"], query["GroupBy"]["Group"]) == ("db.load.avg", "db.wait_event")
        if parameters["Identifier"] not in {one["DbiResourceId"] for one in self.instances}:
            raise Refused(400, "InvalidArgumentException", "The identifier is not valid.")
        # The first list is the total, which has no dimensions.
        keys: list[Raw] = [{"Metric": "db.load.avg"}]
        keys += [{"Metric": "db.load.avg", "Dimensions": {"db.wait_event.name": wait}} for wait in self.load]
        points = [
            [{"Timestamp": NOW.replace(minute=minute), "Value": value} for minute, value in enumerate(values)]
            for values in ([1.0], *self.load.values())
        ]
        found = [{"Key": key, "DataPoints": each} for key, each in zip(keys, points, strict=True)]
        return {"Identifier": parameters["Identifier"], "MetricList": found}


class Refused(Exception):
    """An answer that is an error, as AWS has them."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


class FakeClients:
    """botocore's clients, whose calls end at a FakeAws."""

    def __init__(self, aws: FakeAws, region: str) -> None:
        self.region = region
        self._aws = aws
        self._lock = threading.Lock()
        self._session = botocore.session.Session()
        self._session.register_component("data_loader", _LOADER)
        self._session.set_credentials("AKIAEXAMPLE", "very-secret")
        self._clients: dict[str, Any] = {}

    def __call__(self, service: str) -> Any:
        """Return the client of a service."""
        with self._lock:
            if service not in self._clients:
                client = self._session.create_client(service, region_name=self.region)
                client.meta.events.register("before-parameter-build", self._remember)
                client.meta.events.register("before-call", self._answer)
                self._clients[service] = client
            return self._clients[service]

    def has_prompt(self) -> bool:
        """Say that nobody is asked for a device's code."""
        return False

    def close(self) -> None:
        """Let go of the clients."""
        for client in self._clients.values():
            client.close()

    def _remember(self, params: Raw, context: Raw, **_: Any) -> None:
        context["given"] = dict(params)

    def _answer(self, model: Any, context: Raw, **_: Any) -> tuple[AWSResponse, Raw]:
        try:
            answer = self._aws.answer(model.name, context["given"])
        except Refused as refused:
            error = {"Code": refused.code, "Message": refused.message}
            return AWSResponse("", refused.status, {}, None), {"Error": error, "ResponseMetadata": {}}
        if model.output_shape is None:
            # Some answers are nothing but a success.
            return AWSResponse("", 200, {}, None), {"ResponseMetadata": {"HTTPStatusCode": 200}}
        report = ParamValidator().validate(answer, model.output_shape)
        assert not report.has_errors(), report.generate_report()
        return AWSResponse("", 200, {}, None), {**answer, "ResponseMetadata": {"HTTPStatusCode": 200}}


def _named(all_of_them: list[Raw], parameters: Raw, key: str, filter_name: str, id_key: str) -> list[Raw]:
    """Return those of an identifier, which may be spelled in any case, or of a resource's id."""
    found = all_of_them
    if key in parameters:
        found = [one for one in found if one[key] == parameters[key].lower()]
    for given in parameters.get("Filters", []):
        assert given["Name"] == filter_name
        found = [one for one in found if one[id_key] in given["Values"]]
    return found
