"""Values of an import from S3 in Amazon RDS: the request, what exists in AWS and on the server, and the steps."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from penstock.core.errors import UsageError
from penstock.core.slotted import slotted

if TYPE_CHECKING:
    from penstock.rds.values import AssociatedRole

# The feature by which a role lets the functions of aws_s3 read from S3. An instance can have one role for it.
FEATURE = "s3Import"

# The tag of roles and policies that penstock created. Its value is the resource id of their instance or cluster.
OWNER_TAG = "penstock:s3-import"

# Matches the name of a bucket. Source: S3 User Guide, "General purpose bucket naming rules"
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_LONGEST_KEY_BYTES = 1024

# Matches where a word begins in the name of a parameter. On AWS's command line, words are separated by hyphens:
# DBInstanceIdentifier is --db-instance-identifier.
_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


@slotted
class S3Prefix:
    """A bucket, and how the keys begin that the server may read. An empty prefix stands for all keys."""

    bucket: str
    prefix: str = ""

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}"


def parse_place(bucket: str, prefix: str | None) -> S3Prefix:
    """Return the bucket and prefix that --bucket and --prefix name. Raises UsageError if S3 allows no such names."""
    if _BUCKET.fullmatch(bucket) is None:
        raise UsageError(
            f'"{bucket}" is not the name of a bucket',
            hint="Give the name alone, without s3://, and the beginning of the keys with --prefix.",
        )
    prefix = prefix or ""
    if not prefix.isprintable() or len(prefix.encode("utf-8", "surrogatepass")) > _LONGEST_KEY_BYTES:
        raise UsageError(
            "invalid value for --prefix", detail=f"Keys have printable characters, and {_LONGEST_KEY_BYTES} bytes."
        )
    return S3Prefix(bucket=bucket, prefix=prefix)


@slotted
class Owner:
    """The instance, or the cluster, that gets the IAM role."""

    kind: Literal["instance", "cluster"]
    identifier: str
    arn: str
    resource_id: str
    region: str
    # The status in AWS's word, such as available.
    status: str | None
    roles: tuple[AssociatedRole, ...]

    @property
    def partition(self) -> str:
        """Return the AWS partition of the owner, such as aws or aws-cn."""
        return self.arn.split(":")[1]

    @property
    def account(self) -> str:
        """Return the number of the owner's AWS account."""
        return self.arn.split(":")[4]

    def role_arn(self, name: str) -> str:
        """Return the ARN that an IAM role with this name has in the owner's account."""
        return f"arn:{self.partition}:iam::{self.account}:role/{name}"

    def policy_arn(self, name: str) -> str:
        """Return the ARN that an IAM policy with this name has in the owner's account."""
        return f"arn:{self.partition}:iam::{self.account}:policy/{name}"


@slotted
class RoleFacts:
    """An IAM role that exists, with its policies."""

    name: str
    arn: str
    # The value of OWNER_TAG, None if the role does not have the tag.
    owner_tag: str | None
    trust: Mapping[str, Any]
    # The ARNs of the role's managed policies.
    attached: tuple[str, ...]
    # The names of the policies that are in the role itself.
    inline: tuple[str, ...] = ()


@slotted
class PolicyFacts:
    """An IAM policy that exists, with its document."""

    name: str
    arn: str
    owner_tag: str | None
    # The document of the policy's default version.
    document: Mapping[str, Any]
    # The ids of the policy's other versions.
    other_versions: tuple[str, ...] = ()


@slotted
class BucketKey:
    """The user's KMS key with which objects of a bucket are encrypted by default, if there is one."""

    # The key's ARN. None if the bucket has no key of the user's own, or if that is not known.
    arn: str | None = None
    # Why the key is not known, None if it is known.
    reason: str | None = None


@slotted
class ExtensionFacts:
    """The row of aws_extension.sql: extension aws_s3 in a database, and aws_commons, which it needs."""

    database_oid: int
    database: str
    is_available: bool
    is_installed: bool
    has_commons: bool
    # Whether another extension, such as aws_lambda, needs aws_commons.
    is_commons_needed: bool
    # The existing schemas that have the name of one of the two extensions. Dropping an extension leaves its schema.
    schemas: list[str]


@slotted
class Found:
    """The objects of an import that already exist in AWS and on the server."""

    owner: Owner
    role: RoleFacts | None
    # The requested policies that exist.
    policies: tuple[PolicyFacts, ...]
    # The requested extensions that exist.
    extensions: tuple[ExtensionFacts, ...]


@slotted
class Call:
    """A step of the setup: a call of AWS's API, by botocore's names of service, method and parameters."""

    service: str
    operation: str
    parameters: Mapping[str, Any]
    # What the call has done, for the report.
    done: str


@slotted
class SetupStatement:
    """A step of the setup: a statement in a database of the server."""

    database: str
    text: str
    # What the statement has done, for the report.
    done: str


@slotted
class Wait:
    """A step of the setup: wait until a role of the owner is active, or until it is removed from the owner."""

    owner: Owner
    role_arn: str
    until: Literal["active", "removed"]


Step = Call | SetupStatement | Wait


@slotted
class S3Route:
    """Which subnets of an instance have a route to S3."""

    vpc: str = ""
    # The routes to S3 that were found.
    ways: tuple[str, ...] = ()
    # The subnets without a route to S3.
    lacking: tuple[str, ...] = ()
    # The route tables of these subnets.
    tables: tuple[str, ...] = ()
    # Why it is not known whether there is a route, None if it is known.
    reason: str | None = None


@slotted
class S3ImportReport:
    """What was done so that a server may import, or undone. A plan has the commands that would do so."""

    place: S3Prefix
    owner: Owner
    role_name: str
    policy_name: str
    # The commands of a plan, empty if nothing is missing. Only a plan has commands.
    commands: tuple[str, ...] = ()
    done: tuple[str, ...] = ()
    # What could not be found out or removed.
    notes: tuple[str, ...] = ()
    route: S3Route | None = None


def digest(*words: str) -> str:
    """Return 16 hexadecimal digits that depend on the words and their order, from SHA-256."""
    return hashlib.sha256("\0".join(words).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def compose_command(step: Step, *, owner: Owner, server: str, profile: str | None = None) -> str:
    """Return the `aws` or `psql` command that does what a step does, quoted for a shell.

    `server` is the connection string for psql, without a database. `profile` is a profile of the AWS configuration.
    """
    if isinstance(step, SetupStatement):
        return shlex.join(["psql", f"{server} dbname={_quote_value(step.database)}", "-c", step.text])
    if isinstance(step, Wait):
        name = "DBInstance" if owner.kind == "instance" else "DBCluster"
        listed = f"describe_{'db_instances' if owner.kind == 'instance' else 'db_clusters'}"
        given = {f"{name}Identifier": owner.identifier}
        look = _compose(Call(service="rds", operation=listed, parameters=given, done=""), owner, profile)
        look += f" --query {shlex.quote(f'{name}s[0].AssociatedRoles')}"
        return f"{look}  # repeat until the role is {'ACTIVE' if step.until == 'active' else 'gone'}"
    return _compose(step, owner, profile)


def _compose(call: Call, owner: Owner, profile: str | None) -> str:
    words = ["aws", call.service, call.operation.replace("_", "-")]
    for name, value in call.parameters.items():
        text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
        words += [f"--{_WORD.sub('-', name).lower()}", text]
    words += ["--region", owner.region, *([] if profile is None else ["--profile", profile])]
    return shlex.join(words)


def _quote_value(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return text if re.fullmatch(r"[\w.-]+", text, re.ASCII) else f"'{escaped}'"
