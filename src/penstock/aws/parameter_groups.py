"""The parameter group of one server of Amazon RDS: what it sets, its tags, and changes to both.

Rights: those of describe_instance, and rds:DescribeDBParameters, DescribeDBParameterGroups, ModifyDBParameterGroup,
ResetDBParameterGroup, ListTagsForResource, AddTagsToResource and RemoveTagsFromResource on the group; of a
cluster's group, those of the same names with DBClusterParameter.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from penstock.aws.calls import Calls
from penstock.aws.clients import AwsClients
from penstock.aws.rds import describe_instance
from penstock.errors import AwsError
from penstock.model.server.endpoints import parse_endpoint
from penstock.model.server.settings import AttachedGroup

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.aws.calls import Raw
    from penstock.model.server.rds import RdsDescription

# ModifyDBParameterGroup takes no more at a time.
_PARAMETERS_AT_ONCE = 20


class _Words(NamedTuple):
    """How RDS names what it does to groups of one kind: method and parameter names."""

    name: str
    describe: str
    listed: str
    arn: str
    parameters: str
    modify: str
    reset: str
    create: str


_WORDS = {
    "instance": _Words(
        name="DBParameterGroupName",
        describe="describe_db_parameter_groups",
        listed="DBParameterGroups",
        arn="DBParameterGroupArn",
        parameters="describe_db_parameters",
        modify="modify_db_parameter_group",
        reset="reset_db_parameter_group",
        create="create_db_parameter_group",
    ),
    "cluster": _Words(
        name="DBClusterParameterGroupName",
        describe="describe_db_cluster_parameter_groups",
        listed="DBClusterParameterGroups",
        arn="DBClusterParameterGroupArn",
        parameters="describe_db_cluster_parameters",
        modify="modify_db_cluster_parameter_group",
        reset="reset_db_cluster_parameter_group",
        create="create_db_cluster_parameter_group",
    ),
}


class _LentClients:
    """Clients that whoever borrows them does not close: making them anew costs a tenth of a second."""

    def __init__(self, clients: AwsClients) -> None:
        self._clients = clients

    @property
    def region(self) -> str:
        return self._clients.region

    def __call__(self, service: str) -> Any:
        return self._clients(service)

    def close(self) -> None:
        """Leave that to the owner."""


class RdsParameterGroups:
    """The group of the server behind an endpoint. Methods raise AwsError. `host` tells the region."""

    def __init__(self, host: str, *, make_clients: Callable[..., AwsClients] = AwsClients) -> None:
        self._host = host
        endpoint = parse_endpoint(host)
        self._clients = make_clients(region=None if endpoint is None else endpoint.region)
        self._calls = Calls(self._clients)

    @property
    def region(self) -> str:
        """Return where the server is."""
        return self._clients.region

    def describe(self, *, is_brief: bool = False) -> AttachedGroup:
        """Return the group that decides the server's settings: a Multi-AZ DB cluster's own, else the instance's.

        `is_brief`: who else has it is not asked.
        """
        now = datetime.now(UTC)
        found = describe_instance(self._host, now=now, is_brief=is_brief, make_clients=self._lend)
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

    def _lend(self, **_: object) -> AwsClients:
        # As far as describe_instance goes it is one.
        return cast("AwsClients", _LentClients(self._clients))

    def read_values(self, group: AttachedGroup) -> dict[str, str]:
        """Return the parameters that are set in the group, those at their defaults left out."""
        words = _WORDS[group.owner]
        asked: dict[str, Any] = {words.name: group.name, "Source": "user"}
        found = self._calls.need("rds", words.parameters, "Parameters", **asked)
        return {one["ParameterName"]: one["ParameterValue"] for one in found if "ParameterValue" in one}

    def write(self, group: AttachedGroup, values: Mapping[str, str | None]) -> None:
        """Set dynamic parameters, None to their defaults, at once."""
        words = _WORDS[group.owner]
        changed: list[Raw] = [
            {"ParameterName": name, "ParameterValue": text, "ApplyMethod": "immediate"}
            for name, text in values.items()
            if text is not None
        ]
        reset: list[Raw] = [
            {"ParameterName": name, "ApplyMethod": "immediate"} for name, text in values.items() if text is None
        ]
        # ResetDBParameterGroup's reference: "By default, all parameters in the DB parameter group are reset".
        named_only = {"ResetAllParameters": False}
        for operation, parameters, more in ((words.modify, changed, {}), (words.reset, reset, named_only)):
            for start in range(0, len(parameters), _PARAMETERS_AT_ONCE):
                part = parameters[start : start + _PARAMETERS_AT_ONCE]
                self._calls.act("rds", operation, **{words.name: group.name, "Parameters": part, **more})

    def read_tags(self, group: AttachedGroup) -> dict[str, str]:
        """Return the group's tags; AWS's own have none for us."""
        if group.is_default:
            return {}
        found = self._calls.need("rds", "list_tags_for_resource", "TagList", ResourceName=self._find_arn(group))
        return {tag["Key"]: tag.get("Value", "") for tag in found}

    def write_tags(self, group: AttachedGroup, tags: Mapping[str, str]) -> None:
        """Add tags, or give them another value, in one call."""
        pairs = [{"Key": key, "Value": value} for key, value in tags.items()]
        self._calls.act("rds", "add_tags_to_resource", ResourceName=self._find_arn(group), Tags=pairs)

    def remove_tags(self, group: AttachedGroup, keys: Sequence[str]) -> None:
        """Remove tags in one call."""
        arn = self._find_arn(group)
        self._calls.act("rds", "remove_tags_from_resource", ResourceName=arn, TagKeys=list(keys))

    def create_like(self, group: AttachedGroup, name: str) -> None:
        """Make a group of the same family as another, with nothing set in it."""
        words = _WORDS[group.owner]
        family = self._find(group)["DBParameterGroupFamily"]
        described = f"settings of {group.identifier}, created by penstock"
        given = {words.name: name, "DBParameterGroupFamily": family, "Description": described}
        self._calls.act("rds", words.create, **given)

    def close(self) -> None:
        """Let go of connections."""
        self._clients.close()

    def _find_arn(self, group: AttachedGroup) -> str:
        arn: str = self._find(group)[_WORDS[group.owner].arn]
        return arn

    def _find(self, group: AttachedGroup) -> Raw:
        words = _WORDS[group.owner]
        found = self._calls.need("rds", words.describe, words.listed, **{words.name: group.name})
        if not found:
            raise AwsError(f"AWS does not know parameter group {group.name}")
        return found[0]


def _lacks_its_cluster(found: RdsDescription) -> bool:
    """Whether the instance is one of a Multi-AZ DB cluster that AWS did not tell of: its own group decides nothing."""
    if found.cluster is not None or found.instance is None or found.instance.engine.startswith("aurora"):
        return False
    # That is asked for instances of a cluster only.
    return any(gap.call == "rds:DescribeDBClusters" for gap in found.gaps)


def _find_free_bytes(found: RdsDescription) -> int | None:
    storage = None if found.instance is None else found.instance.storage
    return None if storage is None else storage.free_bytes
