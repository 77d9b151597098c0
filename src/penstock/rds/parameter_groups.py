"""Reads and changes the parameter group of one server of Amazon RDS: its parameters and its tags.

Needs the permissions of describe_instance. For an instance's group, it also needs rds:DescribeDBParameters,
DescribeDBParameterGroups, ModifyDBParameterGroup, ResetDBParameterGroup, ListTagsForResource, AddTagsToResource and
RemoveTagsFromResource. For a cluster's group, the names of these actions have DBClusterParameter in place of
DBParameter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from penstock.core.aws.calls import Calls, Raw
from penstock.core.catalogue.settings import AttachedGroup
from penstock.core.connect.endpoints import parse_endpoint
from penstock.core.errors import AwsError
from penstock.rds.clients import AwsClients, find_endpoint, resolve_names
from penstock.rds.describe import describe_by

if TYPE_CHECKING:
    from penstock.rds.values import RdsDescription

# ModifyDBParameterGroup accepts at most this many parameters in one call.
_PARAMETERS_AT_ONCE = 20


# For each kind of group, how names begin in RDS's API (DBParameterGroupName) and in botocore's methods
# (describe_db_parameters).
_NAMES = {"instance": ("DB", "db"), "cluster": ("DBCluster", "db_cluster")}


class RdsParameterGroups:
    """Reads and changes the parameter group of an endpoint's server. Methods raise AwsError.

    `host` is the endpoint, which determines the region.
    """

    def __init__(self, host: str, *, make_clients: Callable[..., AwsClients] = AwsClients) -> None:
        self._host = host
        endpoint = parse_endpoint(host)
        self._clients = make_clients(region=None if endpoint is None else endpoint.region)
        self._calls = Calls(self._clients)

    @property
    def region(self) -> str:
        """Return the name of the server's AWS region."""
        return self._clients.region

    def describe(self, *, is_brief: bool = False) -> AttachedGroup:
        """Return the parameter group that applies to the server: a Multi-AZ DB cluster's, otherwise the instance's.

        With `is_brief`, AWS is not asked which other servers use the group.
        """
        endpoint = find_endpoint(self._host, resolve=resolve_names)
        found = describe_by(self._clients, self._host, endpoint, now=datetime.now(UTC), is_brief=is_brief)
        cluster, instance = found.cluster, found.instance
        owner = cluster if cluster is not None and not cluster.is_aurora else instance
        groups = () if owner is None else owner.parameter_groups
        if owner is None or not groups or owner.resource_id is None or _lacks_its_cluster(found):
            raise AwsError(
                f"AWS does not report which parameter group {self._host} has",
                hint="Allow rds:DescribeDBInstances and rds:DescribeDBClusters, or name the writer's endpoint.",
            )
        group = groups[0]
        return AttachedGroup(
            name=group.name,
            owner=group.owner,
            identifier=owner.identifier,
            resource_id=owner.resource_id,
            is_default=group.is_default,
            users=group.users,
            apply_state=group.apply_state,
            free_bytes=_find_free_bytes(found),
        )

    def read_values(self, group: AttachedGroup) -> dict[str, str]:
        """Return the parameters that are set in the group, by name, without those at their defaults."""
        _, names = _NAMES[group.owner]
        asked: dict[str, Any] = {**_named(group), "Source": "user"}
        found = self._calls.need("rds", f"describe_{names}_parameters", "Parameters", **asked)
        return {one["ParameterName"]: one["ParameterValue"] for one in found if "ParameterValue" in one}

    def write(self, group: AttachedGroup, values: Mapping[str, str | None]) -> None:
        """Set dynamic parameters with immediate effect. A value of None resets the parameter to its default."""
        _, names = _NAMES[group.owner]
        changed: list[Raw] = [
            {"ParameterName": name, "ParameterValue": text, "ApplyMethod": "immediate"}
            for name, text in values.items()
            if text is not None
        ]
        reset: list[Raw] = [
            {"ParameterName": name, "ApplyMethod": "immediate"} for name, text in values.items() if text is None
        ]
        # ResetAllParameters must be given, because it is true by default. ResetDBParameterGroup's reference says: "By
        # default, all parameters in the DB parameter group are reset".
        named_only = {"ResetAllParameters": False}
        for verb, parameters, more in (("modify", changed, {}), ("reset", reset, named_only)):
            for start in range(0, len(parameters), _PARAMETERS_AT_ONCE):
                part = parameters[start : start + _PARAMETERS_AT_ONCE]
                self._calls.act("rds", f"{verb}_{names}_parameter_group", **_named(group), Parameters=part, **more)

    def read_tags(self, group: AttachedGroup) -> dict[str, str]:
        """Return the group's tags, by key.

        AWS's default groups cannot be tagged, so AWS is not asked for their tags.
        """
        if group.is_default:
            return {}
        found = self._calls.need("rds", "list_tags_for_resource", "TagList", ResourceName=self._find_arn(group))
        return {tag["Key"]: tag.get("Value", "") for tag in found}

    def write_tags(self, group: AttachedGroup, tags: Mapping[str, str]) -> None:
        """Add tags, or change their values, in one call."""
        pairs = [{"Key": key, "Value": value} for key, value in tags.items()]
        self._calls.act("rds", "add_tags_to_resource", ResourceName=self._find_arn(group), Tags=pairs)

    def remove_tags(self, group: AttachedGroup, keys: Sequence[str]) -> None:
        """Remove tags in one call."""
        arn = self._find_arn(group)
        self._calls.act("rds", "remove_tags_from_resource", ResourceName=arn, TagKeys=list(keys))

    def create_like(self, group: AttachedGroup, name: str) -> None:
        """Create a parameter group `name` of the same family as `group`, in which no parameter is set."""
        _, names = _NAMES[group.owner]
        family = self._find(group)["DBParameterGroupFamily"]
        described = f"settings of {group.identifier}, created by penstock"
        given = {**_named(group, name), "DBParameterGroupFamily": family, "Description": described}
        self._calls.act("rds", f"create_{names}_parameter_group", **given)

    def close(self) -> None:
        """Close all connections to AWS."""
        self._clients.close()

    def _find_arn(self, group: AttachedGroup) -> str:
        arn: str = self._find(group)[f"{_NAMES[group.owner][0]}ParameterGroupArn"]
        return arn

    def _find(self, group: AttachedGroup) -> Raw:
        kind, names = _NAMES[group.owner]
        operation, listed = f"describe_{names}_parameter_groups", f"{kind}ParameterGroups"
        found = self._calls.need("rds", operation, listed, **_named(group))
        if not found:
            raise AwsError(f"AWS does not know parameter group {group.name}")
        return found[0]


def _named(group: AttachedGroup, name: str | None = None) -> dict[str, str]:
    """Return a call's parameter that names a group: `group`, or the group of the same kind with this `name`."""
    return {f"{_NAMES[group.owner][0]}ParameterGroupName": name or group.name}


def _lacks_its_cluster(found: RdsDescription) -> bool:
    """Return whether AWS did not describe the Multi-AZ DB cluster of an instance.

    In such a cluster, the cluster's parameter group applies, not the instance's.
    """
    if found.cluster is not None or found.instance is None or found.instance.engine.startswith("aurora"):
        return False
    # DescribeDBClusters is only called for an instance of a cluster, so a gap of this call shows that there is a
    # cluster.
    return any(gap.call == "rds:DescribeDBClusters" for gap in found.gaps)


def _find_free_bytes(found: RdsDescription) -> int | None:
    storage = None if found.instance is None else found.instance.storage
    return None if storage is None else storage.free_bytes
