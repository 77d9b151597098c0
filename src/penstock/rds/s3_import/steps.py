"""Plans the steps that prepare a server for imports from S3, or undo them. Pure.

This module also has the names of roles and policies, and the IAM documents.

Source: RDS User Guide, "Importing data from Amazon S3 into an RDS for PostgreSQL DB instance". IAM User Guide, "IAM
policy elements: Variables and tags", explains * ? $ in a policy.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from penstock.changes.values import Change, server_change
from penstock.core.errors import AwsError, TargetError
from penstock.rds.s3_import.values import (
    FEATURE,
    OWNER_TAG,
    BucketKey,
    Call,
    Found,
    Owner,
    PolicyFacts,
    RoleFacts,
    S3Prefix,
    SetupStatement,
    Step,
    Wait,
    digest,
)

# The longest name of a role. A name ends with a digest, which distinguishes servers with the same identifier in two
# regions.
_LONGEST_NAME = 64

# The Sid of the statement that a policy has only if the bucket has a KMS key.
_KMS = "PenstockDecrypt"

# The characters with a special meaning in a policy. In Version 2012-10-17 of the policy language, ${*} ${?} ${$} stand
# for these characters.
_SPECIAL = re.compile(r"[*?$]")


def name_role(owner: Owner) -> str:
    """Return the name of the IAM role of an instance or cluster. All its buckets and prefixes have the same role."""
    return _name(owner, digest(owner.resource_id))


def name_policy(owner: Owner, place: S3Prefix) -> str:
    """Return the name of the IAM policy that lets an instance or cluster read a bucket and prefix."""
    return _name(owner, name_holder(owner, place))


def name_holder(owner: Owner, place: S3Prefix) -> str:
    """Return the id by which the journal records that an instance or cluster may import from a bucket and prefix."""
    return digest(owner.resource_id, place.bucket, place.prefix)


def _name(owner: Owner, code: str) -> str:
    head = "penstock-s3import-"
    return f"{head}{owner.identifier[: _LONGEST_NAME - len(head) - 9]}-{code[:8]}"


def compose_trust(owner: Owner) -> dict[str, Any]:
    """Return the trust policy that lets RDS assume the role for this instance or cluster only, as a mapping."""
    only_it = {"aws:SourceAccount": owner.account, "aws:SourceArn": owner.arn}
    return _document(
        {
            "Effect": "Allow",
            "Principal": {"Service": "rds.amazonaws.com"},
            "Action": "sts:AssumeRole",
            "Condition": {"StringEquals": only_it},
        }
    )


def compose_policy(owner: Owner, place: S3Prefix, key_arn: str | None) -> dict[str, Any]:
    """Return the IAM policy that lets a role read a bucket and prefix, as a mapping.

    `key_arn` is the ARN of the bucket's KMS key, which the policy lets the role use for decryption; None if it has
    none.
    """
    bucket = f"arn:{owner.partition}:s3:::{place.bucket}"
    prefix = _SPECIAL.sub(lambda found: f"${{{found[0]}}}", place.prefix)
    listed: dict[str, Any] = {
        "Sid": "PenstockList",
        "Effect": "Allow",
        "Action": ["s3:ListBucket"],
        "Resource": [bucket],
    }
    if prefix:
        listed["Condition"] = {"StringLike": {"s3:prefix": [f"{prefix}*"]}}
    read = {
        "Sid": "PenstockRead",
        "Effect": "Allow",
        "Action": ["s3:GetObject"],
        "Resource": [f"{bucket}/{prefix}*"],
    }
    decrypt = {"Sid": _KMS, "Effect": "Allow", "Action": ["kms:Decrypt"], "Resource": [key_arn]}
    return _document(listed, read, *([] if key_arn is None else [decrypt]))


def without_key(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a policy of `compose_policy` without its statement for the bucket's key."""
    return _document(*(each for each in document.get("Statement", ()) if each.get("Sid") != _KMS))


def write_document(document: Mapping[str, Any]) -> str:
    """Return a policy as JSON in ASCII, because IAM accepts only Latin-1."""
    return json.dumps(document, separators=(",", ":"))


def _document(*statements: Any) -> dict[str, Any]:
    return {"Version": "2012-10-17", "Statement": list(statements)}


# The kinds of change in the journal. The name of an extension's change is the OID of its database.
ROLE, POLICY, EXTENSION = "s3-role", "s3-policy", "s3-extension"

_AGAIN = "Run the command with --undo, and then again."


def tag_call(owner: Owner, tags: Mapping[str, str]) -> Call:
    """Return the call that adds tags to an instance or a cluster."""
    given = {"ResourceName": owner.arn, "Tags": _pairs(tags)}
    return Call(
        service="rds",
        operation="add_tags_to_resource",
        parameters=given,
        done=f"tagged {owner.kind} {owner.identifier}",
    )


def untag_call(owner: Owner, keys: Sequence[str]) -> Call:
    """Return the call that removes tags of an instance or a cluster."""
    given = {"ResourceName": owner.arn, "TagKeys": list(keys)}
    done = f"removed the tags of {owner.kind} {owner.identifier}"
    return Call(service="rds", operation="remove_tags_from_resource", parameters=given, done=done)


def find_changes(found: Found, place: S3Prefix, holder_id: str) -> list[Change]:
    """Return the records that the journal must have before the steps of `plan_steps` are taken.

    `holder_id` is the id of the hold that keeps these changes.
    """
    changes = [
        server_change(POLICY, name_policy(found.owner, place), {}, holder_id),
        server_change(ROLE, name_role(found.owner), {}, holder_id),
    ]
    for each in found.extensions:
        if not each.is_installed:
            existed = "existed" if each.has_commons else "created"
            record = {"commons": existed, "schemas": ":".join(["before", *each.schemas])}
            changes.append(server_change(EXTENSION, str(each.database_oid), record, holder_id))
    return changes


def plan_steps(found: Found, place: S3Prefix, key: BucketKey) -> list[Step]:
    """Return the steps that are missing, in order, so that the server may import from a bucket and prefix.

    `found` is what exists, and `key` the bucket's key. Raises AwsError or TargetError if something prevents the steps.
    """
    owner = found.owner
    role_name, policy_name = name_role(owner), name_policy(owner, place)
    role_arn, policy_arn = owner.role_arn(role_name), owner.policy_arn(policy_name)
    _refuse_foreign(found, place, key)
    status = _find_status(owner, role_arn)
    if status == "INVALID":
        raise AwsError(
            f"{owner.kind} {owner.identifier} cannot use role {role_name}: AWS calls it INVALID", hint=_AGAIN
        )
    tags = _pairs({OWNER_TAG: owner.resource_id})
    steps: list[Step] = []
    if not found.policies:
        document = write_document(compose_policy(owner, place, key.arn))
        given = {"PolicyName": policy_name, "PolicyDocument": document, "Tags": tags}
        steps.append(_iam("create_policy", f"created policy {policy_name}", given))
    if found.role is None:
        given = {"RoleName": role_name, "AssumeRolePolicyDocument": write_document(compose_trust(owner)), "Tags": tags}
        steps.append(_iam("create_role", f"created role {role_name}", given))
    if found.role is None or policy_arn not in found.role.attached:
        given = {"RoleName": role_name, "PolicyArn": policy_arn}
        steps.append(_iam("attach_role_policy", f"attached the policy {policy_name}", given))
    if status is None:
        _refuse_unavailable(owner)
        steps.append(_role_call(owner, "add_role_to", role_arn, f"added the role to {owner.kind} {owner.identifier}"))
    if status != "ACTIVE":
        steps.append(Wait(owner=owner, role_arn=role_arn, until="active"))
    for each in found.extensions:
        if not each.is_installed:
            done = f"created extension aws_s3 in database {each.database}"
            steps.append(SetupStatement(database=each.database, text="CREATE EXTENSION aws_s3 CASCADE", done=done))
    return steps


def plan_undo(found: Found, changes: Sequence[Change]) -> list[Step]:
    """Return the steps that undo recorded changes, as far as they were made, in reverse order.

    `found` is what exists. Raises AwsError or TargetError if something prevents the steps.
    """
    owner = found.owner
    names = {kind: {each.name for each in changes if each.kind == kind} for kind in (ROLE, POLICY, EXTENSION)}
    policies = [each for each in found.policies if each.name in names[POLICY] and _is_ours(owner, each.owner_tag)]
    role = found.role if found.role is not None and _is_ours(owner, found.role.owner_tag) else None
    detached = [each for each in policies if role is not None and each.arn in role.attached]
    steps = list(_drop_extensions(found, changes))
    if role is not None and role.name in names[ROLE]:
        _refuse_attached(role, detached)
    for name in sorted(names[ROLE]):
        # If somebody has deleted the role in IAM, the instance or cluster may still list it.
        is_ours = role is not None or found.role is None
        if is_ours and _find_status(owner, owner.role_arn(name)) is not None:
            _refuse_unavailable(owner)
            done = f"removed the role from {owner.kind} {owner.identifier}"
            steps.append(_role_call(owner, "remove_role_from", owner.role_arn(name), done))
            steps.append(Wait(owner=owner, role_arn=owner.role_arn(name), until="removed"))
    for policy in detached:
        assert role is not None
        given = {"RoleName": role.name, "PolicyArn": policy.arn}
        steps.append(_iam("detach_role_policy", f"detached policy {policy.name}", given))
    if role is not None and role.name in names[ROLE]:
        steps.append(_iam("delete_role", f"deleted role {role.name}", {"RoleName": role.name}))
    for policy in policies:
        # The document has several versions if somebody has changed it. IAM deletes a policy only if it has a single
        # version.
        for version in policy.other_versions:
            done = f"deleted version {version} of policy {policy.name}"
            steps.append(_iam("delete_policy_version", done, {"PolicyArn": policy.arn, "VersionId": version}))
        steps.append(_iam("delete_policy", f"deleted policy {policy.name}", {"PolicyArn": policy.arn}))
    return steps


def list_made(found: Found) -> list[str]:
    """Return the names of the policies and the role that penstock has created, by their tags."""
    owner = found.owner
    made = [f"policy {each.name}" for each in found.policies if _is_ours(owner, each.owner_tag)]
    if found.role is not None and _is_ours(owner, found.role.owner_tag):
        made.append(f"role {found.role.name}")
        if _find_status(owner, found.role.arn) is not None:
            made.append(f"that role at {owner.kind} {owner.identifier}")
    return made


def find_left(found: Found, changes: Sequence[Change]) -> list[str]:
    """Return a sentence for each policy or role that has a recorded name, but that penstock did not create.

    Also one for each extension that another role needs. `plan_undo` does not remove these.
    """
    names = {each.name for each in changes}
    facts = [("policy", each) for each in found.policies] + ([] if found.role is None else [("role", found.role)])
    left = [
        f"{kind} {each.name} is left: it has no tag {OWNER_TAG} of {found.owner.kind} {found.owner.identifier}"
        for kind, each in facts
        if each.name in names and not _is_ours(found.owner, each.owner_tag)
    ]
    other = _find_other_role(found.owner)
    created = [each for each in found.extensions if each.is_installed and str(each.database_oid) in names]
    left += [
        f"extension aws_s3 in database {each.database} is left: role {other} imports by it"
        for each in created
        if other is not None
    ]
    return left


def _find_other_role(owner: Owner) -> str | None:
    """Return the ARN of a role by which a server may import from S3, and which penstock has not added to it."""
    own_arn = owner.role_arn(name_role(owner))
    return next((each.arn for each in owner.roles if each.feature == FEATURE and each.arn != own_arn), None)


def _drop_extensions(found: Found, changes: Sequence[Change]) -> Iterator[Step]:
    """Yield the steps that drop extensions which were created, unless others need them meanwhile."""
    if _find_other_role(found.owner) is not None:
        return
    records = {change.name: change.record for change in changes if change.kind == EXTENSION}
    for each in found.extensions:
        record = records.get(str(each.database_oid))
        if record is None:
            continue
        if each.is_installed:
            yield _drop(each.database, "EXTENSION aws_s3")
        if each.has_commons and not each.is_commons_needed and record.get("commons") == "created":
            yield _drop(each.database, "EXTENSION aws_commons")
        before = (record.get("schemas") or "").split(":")
        for name in each.schemas:
            if before[0] and name not in before and not (name == "aws_commons" and each.is_commons_needed):
                yield _drop(each.database, f"SCHEMA IF EXISTS {name}")


def _drop(database: str, what: str) -> SetupStatement:
    kind, *_, name = what.split()
    return SetupStatement(
        database=database, text=f"DROP {what}", done=f"dropped {kind.lower()} {name} in database {database}"
    )


def _refuse_attached(role: RoleFacts, detached: Sequence[PolicyFacts]) -> None:
    if others := sorted({*role.attached, *role.inline} - {each.arn for each in detached}):
        raise AwsError(
            f"role {role.name} has policies that are not part of this",
            detail=f"They are {', '.join(others)}.",
            hint="Detach or delete them, or undo their places first; then run it again.",
        )


def _refuse_foreign(found: Found, place: S3Prefix, key: BucketKey) -> None:
    """Raise AwsError if others have created or changed a role or policy that penstock needs for this place."""
    owner, role = found.owner, found.role
    for policy in found.policies:
        _refuse_untagged(owner, "policy", policy.name, policy.owner_tag)
        if not _allows(policy, owner, place, key):
            raise AwsError(f"policy {policy.name} has changed: it does not allow what {place} needs", hint=_AGAIN)
    if role is not None:
        _refuse_untagged(owner, "role", role.name, role.owner_tag)
        if role.trust != compose_trust(owner):
            raise AwsError(f"role {role.name} has changed: others than {owner.arn} may use it", hint=_AGAIN)
    own_arn = owner.role_arn(name_role(owner))
    for other in owner.roles:
        if other.feature == FEATURE and other.arn != own_arn:
            raise AwsError(
                f"{owner.kind} {owner.identifier} has another role with feature {FEATURE}",
                detail=f"It is {other.arn}; RDS allows one.",
                hint=f"Let that role read {place}, or remove it from the {owner.kind}, then run this again.",
            )
    for each in found.extensions:
        if not each.is_available and not each.is_installed:
            raise TargetError(
                "this server has no extension aws_s3",
                hint="Connect to Amazon RDS for PostgreSQL or Aurora PostgreSQL, of a version that has it.",
            )


def _allows(policy: PolicyFacts, owner: Owner, place: S3Prefix, key: BucketKey) -> bool:
    document, wanted = policy.document, compose_policy(owner, place, key.arn)
    return document == wanted or (key.reason is not None and without_key(document) == wanted)


def _refuse_untagged(owner: Owner, kind: str, name: str, tag: str | None) -> None:
    if not _is_ours(owner, tag):
        raise AwsError(
            f"{kind} {name} exists, and is not penstock's of this {owner.kind}",
            detail=f"Its tag {OWNER_TAG} is {tag or 'missing'}; this is {owner.resource_id}.",
            hint=f"Find out who made it, and delete it if nothing needs it: aws iam delete-{kind}.",
        )


def _refuse_unavailable(owner: Owner) -> None:
    if owner.status != "available":
        raise AwsError(
            f"{owner.kind} {owner.identifier} is {owner.status or 'in an unknown state'}, not available",
            detail="RDS adds and removes roles only while it is available.",
            hint="Wait until it is, then run this again.",
        )


def _is_ours(owner: Owner, tag: str | None) -> bool:
    return tag == owner.resource_id


def _find_status(owner: Owner, role_arn: str) -> str | None:
    """Return the status of a role at the instance or cluster, None if it is not there for this feature."""
    found = [each for each in owner.roles if each.arn == role_arn and each.feature == FEATURE]
    return (found[0].status or "PENDING") if found else None


def _iam(operation: str, done: str, parameters: Mapping[str, Any]) -> Call:
    return Call(service="iam", operation=operation, parameters=parameters, done=done)


def _role_call(owner: Owner, verb: str, role_arn: str, done: str) -> Call:
    name = "DBInstanceIdentifier" if owner.kind == "instance" else "DBClusterIdentifier"
    given = {name: owner.identifier, "RoleArn": role_arn, "FeatureName": FEATURE}
    return Call(service="rds", operation=f"{verb}_db_{owner.kind}", parameters=given, done=done)


def _pairs(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]
