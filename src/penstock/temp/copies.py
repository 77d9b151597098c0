"""A copy of an instance of Amazon RDS to replay on: the commands that make it, and how it differs. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.core.errors import AwsError
from penstock.core.slotted import slotted
from penstock.core.values.diagnosis import Diagnosis, note, ok, warning
from penstock.rds.findings import compose_command

if TYPE_CHECKING:
    from penstock.rds.values import RdsDescription, RdsInstance

# What is appended to the name of an instance for its snapshot and its copy.
_SUFFIX = "penstock-replay"


@slotted
class CopyFacts:
    """What two servers must have in common for their times to be comparable."""

    version: str
    # The values of settings that decide about plans and memory, by their names.
    settings: Mapping[str, str]


def compose_copy(found: RdsDescription, *, replay: Sequence[str], to: str) -> list[str]:
    """Return the commands that replay an instance's statements on a copy of it with local storage, step by step.

    `replay` are the options of penstock temp replay that name the statements, and `to` is the connection string of the
    instance, without a password. Raises AwsError if there is no such copy.
    """
    source = found.instance
    if source is None or found.cluster is not None or source.endpoint is None:
        raise AwsError("only an instance that is in no cluster has such a copy", hint="Of Aurora, make a clone.")
    if source.optimized_reads.is_on:
        raise AwsError(
            f"{source.identifier} has {source.optimized_reads.reason} already", hint="Replay there without --against."
        )
    if source.local_sibling is None:
        raise AwsError(
            f"AWS offers no class like {source.instance_class.name} with local storage",
            detail=f"Optimized Reads: {source.optimized_reads.reason}.",
            hint="Name another server with --against.",
        )
    name = f"{source.identifier}-{_SUFFIX}"
    host = f"{name}.{source.endpoint.partition('.')[2]}"
    snapshot = ("--db-snapshot-identifier", name)
    copy = ("--db-instance-identifier", name)
    steps = [
        ("1. a snapshot", ("create-db-snapshot", "--db-instance-identifier", source.identifier, *snapshot)),
        ("", ("wait", "db-snapshot-available", *snapshot)),
        (
            f"2. a copy in {source.local_sibling.name}",
            ("restore-db-instance-from-db-snapshot", *copy, *snapshot, *_restore_words(source)),
        ),
        ("", ("wait", "db-instance-available", *copy)),
    ]
    lines = []
    for title, words in steps:
        lines += [f"# {title}"] if title else []
        lines.append(compose_command(*words, region=found.region))
    against = to.replace(f"host={source.endpoint}", f"host={host}")
    if against == to or "hostaddr=" in to:
        # The copy would not be what the second server is.
        hint = f"Write host={source.endpoint}, and no hostaddr."
        raise AwsError("--to must name the instance by its endpoint", hint=hint)
    lines.append("# 3. check the copy, read the blocks of its tables, replay and compare")
    lines.append(shlex.join(["penstock", "temp", "replay", "--to", to, "--against", against, *replay]))
    lines.append("# 4. remove both")
    lines.append(compose_command("delete-db-instance", *copy, "--skip-final-snapshot", region=found.region))
    lines.append(compose_command("delete-db-snapshot", *snapshot, region=found.region))
    return lines


def _restore_words(source: RdsInstance) -> Iterator[str]:
    assert source.local_sibling is not None
    yield from ("--db-instance-class", source.local_sibling.name, "--no-multi-az")
    if source.is_publicly_accessible is not None:
        yield "--publicly-accessible" if source.is_publicly_accessible else "--no-publicly-accessible"
    if source.subnet_group is not None:
        yield from ("--db-subnet-group-name", source.subnet_group)
    if source.nearness is not None and source.nearness.security_groups:
        yield from ("--vpc-security-group-ids", *source.nearness.security_groups)
    for group in source.parameter_groups:
        yield from ("--db-parameter-group-name", group.name)


def judge_copy(
    first: CopyFacts, second: CopyFacts, *, is_copy: bool | None, described: RdsDescription | None
) -> Iterator[Diagnosis]:
    """Yield what makes times of the second server comparable with the first's, or not, in the order of the steps.

    `is_copy` is whether both have one system identifier, None if that is not known. `described` is AWS's description of
    the second, None if it is not on Amazon RDS or AWS does not answer.
    """
    if is_copy is not None:
        text = f"the second server is {'a' if is_copy else 'no'} copy of the first"
        yield ok("copy", text) if is_copy else warning("copy", f"{text}: its data and statistics may differ")
    if first.version != second.version:
        yield warning("version", f"the servers have PostgreSQL {first.version} and {second.version}")
    if described is not None and described.instance is not None:
        yield from _judge_instance(described.instance, region=described.region)
    differing = [
        f"{name} ({value} and {second.settings.get(name)})"
        for name, value in first.settings.items()
        if value != second.settings.get(name)
    ]
    if differing:
        yield note("settings", f"settings differ: {', '.join(differing)}")


def _judge_instance(copy: RdsInstance, *, region: str) -> Iterator[Diagnosis]:
    if copy.status != "available":
        wait = compose_command(
            "wait", "db-instance-available", "--db-instance-identifier", copy.identifier, region=region
        )
        yield warning("status", f"AWS calls {copy.identifier} {copy.status}", wait)
    if copy.optimized_reads.is_on is not None:
        text = f"Optimized Reads of {copy.identifier}: {copy.optimized_reads.reason}"
        remedy = None
        if copy.local_sibling is not None:
            words = ["modify-db-instance", "--db-instance-identifier", copy.identifier, "--apply-immediately"]
            words += ["--db-instance-class", copy.local_sibling.name]
            remedy = compose_command(*words, region=region)
        yield ok("class", text) if copy.optimized_reads.is_on else warning("class", text, remedy)
    if copy.storage is not None and copy.storage.operation is not None:
        done = "" if copy.storage.operation_percent is None else f", {copy.storage.operation_percent} % done"
        yield warning(
            "blocks",
            f"RDS is {copy.storage.operation.lower()} the volumes of {copy.identifier}{done}",
            "Blocks of a snapshot come when they are first read, as those of the statements' tables are below.",
        )
