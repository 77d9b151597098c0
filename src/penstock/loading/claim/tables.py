"""Creates the tables that --create asks for, and finds the tables of a load."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.errors import TargetError
from penstock.loading.plan.plan import table_after_creation
from penstock.server.table.catalog import find_table
from penstock.server.table.identity import LoadedTable
from penstock.server.table.tables import CreatedTable, create_text_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.loading.claim.prepared import TargetLanding
    from penstock.loading.context import LoadTools
    from penstock.model.load.plan import LoadPlan
    from penstock.model.server.table import TableFacts, TableName
    from penstock.server.connect.connection import Connection


def create_or_find(plan: LoadPlan, tools: LoadTools, connection: Connection) -> tuple[CreatedTable, ...]:
    """Create the tables, or find them if an earlier COMMIT created them and its answer was lost."""
    try:
        return _create(plan, connection)
    except TargetError:
        if not tools.ledger.has(connection, plan.load_id):
            raise
        wanted = created_names(plan)
        found = [facts for table in wanted if (facts := find_table(connection, table)) is not None]
        if len(found) < len(wanted):
            raise
    # It is not known any more if the schema was created too, so it is never dropped.
    return tuple(CreatedTable(oid=facts.oid, name=facts.name, has_new_schema=False) for facts in found)


def _create(plan: LoadPlan, connection: Connection) -> tuple[CreatedTable, ...]:
    """Create the tables that --create asks for; they must exist before the sessions' transactions begin."""
    wanted = {target.table: target.create_columns for target in plan.targets if target.create_columns is not None}
    return tuple(create_text_table(connection, table, columns) for table, columns in wanted.items())


def target_oids(plan: LoadPlan, created: Sequence[CreatedTable]) -> list[int]:
    """Return the oid of each target's table, including tables just created."""
    made = tables_made(plan, created)
    return [target.facts.oid if target.facts is not None else made[target.table].oid for target in plan.targets]


def find_facts(plan: LoadPlan, created: Sequence[CreatedTable], connection: Connection) -> list[TableFacts]:
    """Return the facts of all targets, including tables just created."""
    facts = []
    for target, oid in zip(plan.targets, target_oids(plan, created), strict=True):
        found = target.facts
        if found is None and (not target.fills_table or target.job.traits.truncates):
            made = next(table.name for table in created if table.oid == oid)
            found = find_table(connection, made)
        facts.append(found or replace(table_after_creation(target), oid=oid))
    return facts


def find_tables(
    plan: LoadPlan, facts: Sequence[TableFacts], created: Sequence[CreatedTable], landings: Sequence[TargetLanding]
) -> dict[TableName, LoadedTable]:
    """Return the table that each name in a COPY command stands for."""
    made = {table.oid: table.name for table in created}
    tables = {
        made.get(found.oid, target.table): LoadedTable(made.get(found.oid, found.name), found.oid, found.columns)
        for target, found in zip(plan.targets, facts, strict=True)
    }
    for landing in landings:
        if landing.table is not None and landing.record.oid is not None:
            tables[landing.table] = LoadedTable(landing.table, landing.record.oid)
    return tables


def created_names(plan: LoadPlan) -> list[TableName]:
    """Return the names of the tables that --create asks for, each once."""
    return list(dict.fromkeys(target.table for target in plan.targets if target.create_columns is not None))


def tables_made(plan: LoadPlan, created: Sequence[CreatedTable]) -> dict[TableName, CreatedTable]:
    """Return the tables that were created for a load, by their names in the job."""
    return dict(zip(created_names(plan), created, strict=True))
