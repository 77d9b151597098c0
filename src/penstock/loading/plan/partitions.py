"""Finds the parents of new partitions (--partition-of), and the facts that the plan has of such partitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from penstock.core.catalogue.catalog import find_table
from penstock.core.connect.connection import Connection
from penstock.core.connect.errors import translate_errors
from penstock.core.errors import TargetError
from penstock.core.values.job import TargetJob
from penstock.core.values.table import TableFacts, TableName


def find_parents(
    targets: Sequence[TargetJob], connection: Connection
) -> tuple[tuple[TargetJob, ...], dict[TableName, TableFacts]]:
    """Return the targets, each new partition with a schema in its name, and the facts of their parents by name.

    A name without a schema means the parent's schema. Raises TargetError if a parent does not exist or is not
    partitioned, or if a partition is to have another schema than its parent. Raises ServerError.
    """
    named: list[TargetJob] = []
    parents: dict[TableName, TableFacts] = {}
    for target in targets:
        if target.partition_of is None:
            named.append(target)
            continue
        parent = find_table(connection, target.partition_of)
        if parent is None:
            raise TargetError(f'table "{target.partition_of}" of --partition-of does not exist')
        if parent.kind != "p":
            raise TargetError(f'table "{parent.name}" of --partition-of is not partitioned')
        if target.into.schema not in (None, parent.name.schema):
            raise TargetError(
                f'partition "{target.into}" is not in the schema of its parent "{parent.name}"',
                hint="Move it afterwards by ALTER TABLE ... SET SCHEMA.",
            )
        parents[target.partition_of] = parent
        named.append(replace(target, into=replace(target.into, schema=parent.name.schema)))
    return tuple(named), parents


def describe_partition(
    target: TargetJob, found: TableFacts | None, parent: TableFacts, connection: Connection
) -> TableFacts:
    """Return the facts of a partition: as they are found, or those of the parent for a table that the load makes.

    Raises TargetError if a table of that name exists that is not a partition of the parent, and ServerError.
    """
    if found is None:
        return replace(
            parent,
            name=target.into,
            kind="r",
            parent=parent.name,
            suppressing_triggers=(),
            row_triggers=(),
            statement_triggers=(),
            unlogged_partitions=(),
        )
    query = "SELECT FROM pg_catalog.pg_inherits WHERE inhrelid = %s AND inhparent = %s"
    with translate_errors("looking up a partition"):
        is_attached = connection.execute(query, [found.oid, parent.oid]).fetchone() is not None
    if not is_attached:
        raise TargetError(
            f'table "{found.name}" exists, and is not a partition of "{parent.name}"',
            hint="Choose another name for the partition.",
        )
    return found


def refuse_existing(job: TargetJob, facts: TableFacts | None) -> TargetError | None:
    """Return the error for a file that is to be loaded into a new partition, if that exists, otherwise None."""
    if job.partition_of is None or facts is None or facts.parent is not None:
        return None
    return TargetError(
        f'partition "{facts.name}" exists',
        detail="--partition-of makes a new partition.",
        hint="Leave out --partition-of and --for-values to add rows to it or, with --mode replace, to replace them.",
    )
