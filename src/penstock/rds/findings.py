"""Judges AWS's description of a server, for a load and for the server's administrator. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.core.units import GIB, format_bytes, format_count
from penstock.core.values.diagnosis import Diagnosis, note, ok, warning

if TYPE_CHECKING:
    from penstock.core.aws.calls import Gap
    from penstock.core.errors import PenstockError
    from penstock.rds.values import (
        ParameterGroup,
        PendingMaintenance,
        RdsCluster,
        RdsDescription,
        RdsInstance,
        Storage,
    )

_SUBJECT = "AWS"

# RDS's storage autoscaling grows a volume if less than this share of it is free, and penstock warns at the same share.
# Source: RDS User Guide, "Managing capacity automatically with Amazon RDS storage autoscaling"
_FREE_SHARE = 0.1

# The share by which a remedy enlarges a volume. RDS requires at least 10 percent.
_GROWTH_PERCENT = 20

# If several instances use a parameter group, messages name at most this many of the others.
_SHARERS_SHOWN = 5


def judge_rds(found: RdsDescription, *, uses_iam: bool) -> Iterator[Diagnosis]:
    """Yield findings on what AWS's description of a server means for a load.

    `uses_iam` is whether sessions authenticate by IAM tokens.
    """
    owners = [owner for owner in (found.cluster, found.instance) if owner is not None]
    for owner in owners:
        yield from _judge_status(owner)
    for owner in owners:
        for group in owner.parameter_groups:
            yield from _judge_group(group, found)
    for owner in owners:
        yield from _judge_pending(owner)
    if uses_iam:
        yield from _judge_iam(found)
    if found.instance is not None and found.instance.storage is not None:
        yield from _judge_storage(found.instance.storage, found)
    if len(found.may_reach) > 1:
        text = f"the endpoint leads to one of {', '.join(found.may_reach)}; hardware shown is the first's"
        yield note(_SUBJECT, text)
    for gap in found.gaps:
        yield _describe_gap(gap)


def describe_silence(error: PenstockError) -> Diagnosis:
    """Return a note that AWS could not be asked. It has the message, detail and hint of the error."""
    detail = "" if error.detail is None else f". {error.detail}"
    text = f"{error.message}{detail}".rstrip(".")
    return note(_SUBJECT, text, error.hint)


def find_iam_fault(found: RdsDescription) -> Diagnosis | None:
    """Return the warning that IAM authentication is off for this server, None if it is on."""
    return next((finding for finding in _judge_iam(found) if finding.severity != "ok"), None)


def compose_command(*words: str, region: str) -> str:
    """Return an `aws rds` command, quoted for a shell."""
    return shlex.join(["aws", "rds", *words, "--region", region])


def compose_growth(found: RdsDescription, size_gib: int) -> str | None:
    """Return the `aws` command that enlarges the storage of a server to `size_gib`, None if AWS described no server."""
    size = str(size_gib)
    if found.cluster is not None:
        name = found.cluster.identifier
        words = ["modify-db-cluster", "--db-cluster-identifier", name]
    elif found.instance is not None:
        words = ["modify-db-instance", "--db-instance-identifier", found.instance.identifier]
    else:
        return None
    return compose_command(*words, "--allocated-storage", size, "--apply-immediately", region=found.region)


def larger_size(size_gib: int, missing_bytes: int = 0) -> int:
    """Return the size in GiB to propose for a volume of `size_gib` that lacks `missing_bytes`.

    It is the sum of both, and a fifth of `size_gib`. RDS requires a growth of at least 10 %.

    >>> larger_size(400), larger_size(400, 100 * 2**30)
    (480, 580)
    """
    return size_gib + -(-missing_bytes // GIB) + -(-size_gib * _GROWTH_PERCENT // 100)


def _judge_status(owner: RdsInstance | RdsCluster) -> Iterator[Diagnosis]:
    if owner.status not in ("available", None):
        text = f"AWS calls {owner.identifier} {owner.status}"
        yield warning(_SUBJECT, f"{text}, and not available")


def _judge_group(group: ParameterGroup, found: RdsDescription) -> Iterator[Diagnosis]:
    name = f"{group.owner} parameter group {group.name}"
    if group.apply_state is not None and "pending-reboot" in group.apply_state.split(", "):
        remedy = None
        if found.instance is not None:
            words = ("reboot-db-instance", "--db-instance-identifier", found.instance.identifier)
            remedy = compose_command(*words, region=found.region)
        text = f"{name} has changes that wait for a reboot, which ends all sessions: they are not yet in effect"
        yield warning(_SUBJECT, text, remedy)
    if group.is_default:
        yield note(
            _SUBJECT,
            f"{name} is AWS's own: its parameters cannot be changed",
            "To change a setting, create a parameter group and attach it to the server, which takes a reboot.",
        )
    elif group.users is not None and len(group.users) > 1:
        others = group.users[1:]
        names = ", ".join(others[:_SHARERS_SHOWN]) + (", ..." if len(others) > _SHARERS_SHOWN else "")
        text = f"{name} is shared by {len(group.users)} {group.owner}s: a change there also changes {names}"
        yield note(_SUBJECT, text)


def _judge_pending(owner: RdsInstance | RdsCluster) -> Iterator[Diagnosis]:
    if owner.pending_changes:
        changes = ", ".join(f"{change.name} {change.value}" for change in owner.pending_changes)
        text = (
            f"changes of {owner.identifier} wait for its maintenance window or a reboot: {changes}. A command with "
            "--apply-immediately applies all that wait for the window"
        )
        yield note(_SUBJECT, text)
    for action in owner.pending_maintenance or ():
        text = f"maintenance of {owner.identifier} is pending: {action.action}{_describe_time(action)}"
        yield note(_SUBJECT, text)


def _describe_time(action: PendingMaintenance) -> str:
    if action.applies_at is not None:
        return f", scheduled for {action.applies_at:%a %Y-%m-%d %H:%M} UTC"
    if action.forced_at is not None:
        return f", forced at {action.forced_at:%a %Y-%m-%d %H:%M} UTC"
    return ""


def _judge_iam(found: RdsDescription) -> Iterator[Diagnosis]:
    owner = found.cluster or found.instance
    if owner is None:
        return
    if owner.is_iam_auth_on:
        text = f"IAM authentication of {owner.identifier} is on"
        yield ok(_SUBJECT, text)
        return
    kind = "instance" if found.cluster is None else "cluster"
    words = (f"modify-db-{kind}", f"--db-{kind}-identifier", owner.identifier, "--enable-iam-database-authentication")
    yield warning(
        _SUBJECT,
        f"IAM authentication of {owner.identifier} is off: its tokens are no passwords there",
        compose_command(*words, "--apply-immediately", region=found.region),
    )


def _judge_storage(storage: Storage, found: RdsDescription) -> Iterator[Diagnosis]:
    if storage.free_bytes is None or storage.size_gib is None:
        return
    if storage.free_bytes >= storage.size_gib * GIB * _FREE_SHARE:
        return
    grows = (
        "" if storage.ceiling_gib is None else f"; it grows automatically up to {format_count(storage.ceiling_gib)} GiB"
    )
    yield warning(
        "disks",
        f"{format_bytes(storage.free_bytes)} of {format_bytes(storage.size_gib * GIB)} of storage are free{grows}",
        compose_growth(found, larger_size(storage.size_gib)),
    )


def _describe_gap(gap: Gap) -> Diagnosis:
    remedy = f"Allow {gap.call} in an IAM policy: docs/rds.md has one." if gap.is_denied else None
    return note(_SUBJECT, f"{gap.call} failed: {gap.reason}", remedy)
