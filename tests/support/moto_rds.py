"""What moto's RDS lacks, added to the classes of moto's server, and what reaches it, counted.

moto has no RemoveRoleFromDBInstance, RemoveRoleFromDBCluster and ResetDBParameterGroup, makes a role ACTIVE at once,
adds roles that do not exist, deletes policies that have several versions, and applies no parameter to a server.
`lacking_parts` and `applied_groups` are stand-ins for these, by the operations, errors and defaults of botocore's model
of RDS. IAM in moto allows everything: `Events` denies calls before they are sent, notes which calls change something,
and kills the process before one of them. It acts in this process, or in one that runs this module with the number of a
call and the arguments of penstock.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import botocore.session
from botocore.awsrequest import AWSResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_READS = ("Get", "List", "Describe")


@dataclass
class Events:
    """What botocore's clients of a process ask: all operations in order, and those that change something.

    Operations in `denied` are answered as AWS denies the action that stands there. If `deadly` is given, the process is
    killed before that call.
    """

    asked: list[str] = field(default_factory=list)
    denied: dict[str, str] = field(default_factory=dict)
    deadly: int | None = None

    @property
    def writes(self) -> list[str]:
        """Return the operations that change something."""
        return [name for name in self.asked if not name.startswith(_READS)]

    @contextmanager
    def watching(self) -> Iterator[Events]:
        """Watch the clients that are created while the block runs."""
        create = botocore.session.Session.create_client

        def create_watched(session: Any, *args: Any, **more: Any) -> Any:
            client = create(session, *args, **more)
            client.meta.events.register("before-call", self._before)
            return client

        botocore.session.Session.create_client = create_watched
        try:
            yield self
        finally:
            botocore.session.Session.create_client = create

    def _before(self, model: Any, **_: Any) -> tuple[AWSResponse, dict[str, Any]] | None:
        if self.deadly == len(self.asked):
            os.kill(os.getpid(), signal.SIGKILL)
        self.asked.append(model.name)
        if model.name not in self.denied:
            return None
        text = f"User: arn:aws:iam::123456789012:user/ann is not authorized to perform: {self.denied[model.name]} on: x"
        error = {"Error": {"Code": "AccessDenied", "Message": text}, "ResponseMetadata": {"HTTPStatusCode": 403}}
        return AWSResponse("", 403, {}, None), error


@dataclass
class Parts:
    """How moto's RDS behaves: for how many looks a role is PENDING."""

    pending_looks: int = 0


@contextmanager
def lacking_parts() -> Iterator[Parts]:
    """Give moto's RDS what it lacks while the block runs."""
    from moto.core.responses import EmptyResult
    from moto.iam.exceptions import DeleteConflictException
    from moto.iam.models import IAMBackend, iam_backends
    from moto.rds.exceptions import InvalidParameterValue, RDSClientError
    from moto.rds.models import AssociatedRole, RDSBackend
    from moto.rds.responses import RDSResponse

    parts = Parts()

    def status(role: Any) -> str:
        role.looks = getattr(role, "looks", 0) + 1
        return "PENDING" if role.looks <= parts.pending_looks else "ACTIVE"

    def remove(response: Any, kind: str) -> Any:
        name, arn = response.params[f"DB{kind}Identifier"], response.params["RoleArn"]
        describe = (
            response.backend.describe_db_instances if kind == "Instance" else response.backend.describe_db_clusters
        )
        (found,) = describe(name)
        feature = response.params.get("FeatureName", "")
        kept = [role for role in found._associated_roles if (role.role_arn, role.feature_name or "") != (arn, feature)]
        if len(kept) == len(found._associated_roles):
            raise RDSClientError(f"DB{kind}RoleNotFound", f"{arn} is not at {name}")
        found._associated_roles[:] = kept
        return EmptyResult()

    def adding(add: Any) -> Any:
        def run(backend: Any, name: str = "", role_arn: str = "", feature_name: str = "", **given: str) -> None:
            roles = iam_backends[backend.account_id][backend.partition].roles.values()
            if role_arn not in {role.arn for role in roles}:
                raise InvalidParameterValue(f"IAM role ARN value is invalid: {role_arn} for: {feature_name}")
            add(backend, role_arn=role_arn, feature_name=feature_name, **given)

        return run

    delete_policy = IAMBackend.delete_policy

    def delete_last_version(backend: Any, policy_arn: str) -> None:
        if len(backend.get_policy(policy_arn).versions) > 1:
            raise DeleteConflictException("This policy has more than one version.")
        delete_policy(backend, policy_arn)

    IAMBackend.delete_policy = delete_last_version
    plain = {name: getattr(RDSBackend, name) for name in ("add_role_to_db_instance", "add_role_to_db_cluster")}
    for name, add in plain.items():
        setattr(RDSBackend, name, adding(add))
    AssociatedRole.status = property(status, lambda *_: None)
    RDSResponse.remove_role_from_db_instance = lambda response: remove(response, "Instance")
    RDSResponse.remove_role_from_db_cluster = lambda response: remove(response, "Cluster")
    try:
        yield parts
    finally:
        IAMBackend.delete_policy = delete_policy
        for name, add in plain.items():
            setattr(RDSBackend, name, add)
        del AssociatedRole.status, RDSResponse.remove_role_from_db_instance, RDSResponse.remove_role_from_db_cluster


@contextmanager
def applied_groups(apply: Callable[[dict[str, str | None]], None]) -> Iterator[None]:
    """Let moto's RDS reset parameters while the block runs, and call `apply` with the parameters that change.

    A parameter of None is reset.
    """
    from moto.core.responses import ActionResult
    from moto.rds.exceptions import DBParameterGroupNotFoundError, InvalidParameterValue
    from moto.rds.models import RDSBackend
    from moto.rds.responses import RDSResponse

    def reset(response: Any) -> Any:
        name = response.params["DBParameterGroupName"]
        if name not in response.backend.db_parameter_groups:
            raise DBParameterGroupNotFoundError(name)
        group = response.backend.db_parameter_groups[name].parameters
        named = [parameter.original_dict() for parameter in response.params.get("Parameters", [])]
        if len(named) > 20:
            raise InvalidParameterValue("A maximum of 20 parameters can be modified in a single request.")
        # The model: "By default, all parameters in the DB parameter group are reset to default values."
        is_all = response.params.get("ResetAllParameters", True)
        names = list(group) if is_all else [each["ParameterName"] for each in named]
        for each in names:
            group.pop(each, None)
        apply(dict.fromkeys(names))
        return ActionResult({"DBParameterGroupName": name})

    modify = RDSBackend.modify_db_parameter_group

    def modify_and_apply(backend: Any, name: str, given: Any) -> Any:
        found = modify(backend, name, given)
        apply({each["ParameterName"]: each["ParameterValue"] for each in given})
        return found

    RDSResponse.reset_db_parameter_group = reset
    RDSBackend.modify_db_parameter_group = modify_and_apply
    try:
        yield
    finally:
        RDSBackend.modify_db_parameter_group = modify
        del RDSResponse.reset_db_parameter_group


if __name__ == "__main__":
    from penstock.cli.main import main

    with Events(deadly=int(sys.argv[1])).watching():
        sys.exit(main(sys.argv[2:]))
