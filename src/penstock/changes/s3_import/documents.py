"""The names and IAM documents of an import from S3. Pure.

Source: RDS User Guide, "Importing data from Amazon S3 into an RDS for PostgreSQL DB instance". IAM User Guide, "IAM
policy elements: Variables and tags", explains * ? $ in a policy.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from penstock.model.s3_import import Owner, S3Place, digest

# A role's name has at most 64 characters. The digest distinguishes servers with the same identifier in two regions.
_LONGEST_NAME = 64

# The Sid of the statement that a policy has only if the bucket has a KMS key.
_KMS = "PenstockDecrypt"

# In Version 2012-10-17 of the policy language, ${*} ${?} ${$} mean the characters themselves.
_SPECIAL = re.compile(r"[*?$]")


def name_role(owner: Owner) -> str:
    """Return the name of the role. It is the same for every place."""
    return _name(owner, digest(owner.resource_id))


def name_policy(owner: Owner, place: S3Place) -> str:
    """Return the name of the policy for a place."""
    return _name(owner, name_holder(owner, place))


def name_holder(owner: Owner, place: S3Place) -> str:
    """Return the id by which the journal records that the server may import from a place."""
    return digest(owner.resource_id, place.bucket, place.prefix)


def _name(owner: Owner, code: str) -> str:
    head = "penstock-s3import-"
    return f"{head}{owner.identifier[: _LONGEST_NAME - len(head) - 9]}-{code[:8]}"


def compose_trust(owner: Owner) -> dict[str, Any]:
    """Return the document that lets RDS assume the role for this instance or cluster only."""
    only_it = {"aws:SourceAccount": owner.account, "aws:SourceArn": owner.arn}
    return _document(
        {
            "Effect": "Allow",
            "Principal": {"Service": "rds.amazonaws.com"},
            "Action": "sts:AssumeRole",
            "Condition": {"StringEquals": only_it},
        }
    )


def compose_policy(owner: Owner, place: S3Place, key_arn: str | None) -> dict[str, Any]:
    """Return the document that lets a role read the objects of a place, and decrypt them with the bucket's key."""
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
    """Return a document of `compose_policy` as it would be if the bucket had no key."""
    return _document(*(each for each in document.get("Statement", ()) if each.get("Sid") != _KMS))


def write_document(document: Mapping[str, Any]) -> str:
    """Return a document as JSON in ASCII. IAM accepts only Latin-1."""
    return json.dumps(document, separators=(",", ":"))


def _document(*statements: Any) -> dict[str, Any]:
    return {"Version": "2012-10-17", "Statement": list(statements)}
