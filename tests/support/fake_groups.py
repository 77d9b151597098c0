"""A fake RDS that has parameter groups which take effect, for what moto's server does not do.

That is: parameters that reach a server (here an embedded one, by ALTER SYSTEM and a reload), ResetDBParameterGroup,
apply states, refused changes of default groups and of more than 20 parameters. It differs from RDS in that a change is
in force before the state says so, and that it knows no parameter's type.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from support.fake_aws import FakeAws, Raw, Refused

if TYPE_CHECKING:
    from collections.abc import Callable

_ARN = "arn:aws:rds:eu-west-1:111122223333:pg:"


@dataclass
class FakeGroups(FakeAws):
    """What there is in a FakeAws, and groups: parameters and tags by the group's name.

    `apply` is called with each change of a parameter, None for its default. `lags` is how many more looks find
    instances "applying" after a change, and `throttled` how many more times an operation is refused.
    """

    parameters: dict[str, dict[str, str]] = field(default_factory=dict)
    tags: dict[str, dict[str, str]] = field(default_factory=dict)
    apply: Callable[[dict[str, str | None]], None] = lambda _: None
    lags: int = 0
    dies_after: int | None = None
    throttled: dict[str, int] = field(default_factory=dict)
    _looks_left: int = 0

    def answer(self, operation: str, parameters: Raw) -> Raw:
        """Return an operation's answer; none any more after `dies_after` operations."""
        if self.dies_after is not None and len(self.asked) >= self.dies_after:
            raise Refused(503, "ServiceUnavailable", "gone")
        if self.throttled.get(operation):
            self.throttled[operation] -= 1
            raise Refused(400, "Throttling", "Rate exceeded")
        return super().answer(operation, parameters)

    def _describe_db_instances(self, parameters: Raw) -> Raw:
        answer = super()._describe_db_instances(parameters)
        if "DBInstanceIdentifier" in parameters and self._looks_left:
            self._looks_left -= 1
            groups = answer["DBInstances"][0]["DBParameterGroups"]
            lagging = [{**group, "ParameterApplyStatus": "applying"} for group in groups]
            return {"DBInstances": [{**answer["DBInstances"][0], "DBParameterGroups": lagging}]}
        return answer

    def _describe_db_parameter_groups(self, parameters: Raw) -> Raw:
        name = parameters["DBParameterGroupName"]
        found = {
            "DBParameterGroupName": name,
            "DBParameterGroupFamily": "postgres16",
            "DBParameterGroupArn": _ARN + name,
        }
        return {"DBParameterGroups": [found]}

    def _describe_db_parameters(self, parameters: Raw) -> Raw:
        assert parameters["Source"] == "user"
        found = self.parameters.get(parameters["DBParameterGroupName"], {})
        return {"Parameters": [{"ParameterName": name, "ParameterValue": value} for name, value in found.items()]}

    def _create_db_parameter_group(self, parameters: Raw) -> Raw:
        self.parameters[parameters["DBParameterGroupName"]] = {}
        return {"DBParameterGroup": parameters}

    def _modify_db_parameter_group(self, parameters: Raw) -> Raw:
        return self._change(
            parameters, {one["ParameterName"]: one["ParameterValue"] for one in parameters["Parameters"]}
        )

    def _reset_db_parameter_group(self, parameters: Raw) -> Raw:
        names = {one["ParameterName"] for one in parameters["Parameters"]}
        # As RDS's reference has it: that is the default.
        if parameters.get("ResetAllParameters", True):
            names |= self.parameters[parameters["DBParameterGroupName"]].keys()
        return self._change(parameters, dict.fromkeys(names))

    def _change(self, parameters: Raw, values: dict[str, str | None]) -> Raw:
        name = parameters["DBParameterGroupName"]
        if name.startswith("default."):
            raise Refused(
                400, "InvalidParameterValue", "The parameter group with DBParameterGroupName is a default group"
            )
        assert len(values) <= 20
        assert all(one["ApplyMethod"] == "immediate" for one in parameters["Parameters"])
        group = self.parameters.setdefault(name, {})
        for parameter, value in values.items():
            group.pop(parameter, None)
            if value is not None:
                group[parameter] = value
        self._looks_left = self.lags
        self.apply(values)
        return {"DBParameterGroupName": name}

    def _list_tags_for_resource(self, parameters: Raw) -> Raw:
        found = self.tags.get(parameters["ResourceName"].removeprefix(_ARN), {})
        return {"TagList": [{"Key": key, "Value": value} for key, value in found.items()]}

    def _add_tags_to_resource(self, parameters: Raw) -> Raw:
        tags = self.tags.setdefault(parameters["ResourceName"].removeprefix(_ARN), {})
        for tag in parameters["Tags"]:
            assert len(tag["Key"]) <= 128
            assert len(tag["Value"]) <= 256
            assert all(letter.isalnum() or letter in " _.:/=+-@" for letter in tag["Key"] + tag["Value"])
            tags[tag["Key"]] = tag["Value"]
        return {}

    def _remove_tags_from_resource(self, parameters: Raw) -> Raw:
        tags = self.tags.setdefault(parameters["ResourceName"].removeprefix(_ARN), {})
        for key in parameters["TagKeys"]:
            tags.pop(key, None)
        return {}
