"""Verifies all loads together that have filled one table: each by itself, and the number of all their rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial

from penstock.core.catalogue.catalog import find_table, read_facts
from penstock.core.connect.connection import Connection, ConnectionFactory
from penstock.core.connect.errors import translate_errors
from penstock.core.errors import DataError, SourceError, TargetError
from penstock.core.sql import fetch_rows
from penstock.core.units import count_nouns
from penstock.core.values.notice import Notice
from penstock.core.values.table import TableName
from penstock.ledger.listing import list_objects
from penstock.ledger.schema import has_ledger
from penstock.ledger.values import ObjectRecord
from penstock.loading.values.outcome import LoadProgress
from penstock.proof.compare import rows_of, seeing_all_rows
from penstock.proof.decide import count_expected, refuse_hidden, refuse_none
from penstock.proof.later import LaterLoads
from penstock.proof.values import FillingLoad, TableOutcome, VerifiedTable, VerifyOutcome, differs
from penstock.proof.verify import verify_before


def verify_table(
    connect: ConnectionFactory,
    name: TableName,
    *,
    ledger_schema: str,
    values: bool = False,
    on_progress: Callable[[LoadProgress], None] | None = None,
) -> TableOutcome:
    """Verify each load whose rows must be in a table, and count the table's rows against those of all loads together.

    If a load cannot be verified, the outcome has this as a problem, and the other loads are verified. With `values`,
    each value is compared too. Raises TargetError if no load has filled the table, and PenstockError.
    """
    with connect.borrow() as connection:
        server = read_facts(connect, connection)
        loads = _find_loads(connection, ledger_schema, name)
    table, removed = loads[0][1], tuple(load.load_id for load, found in loads if found.is_gone)
    refuse_hidden(table, role=server.user)
    staying = [load for load, _ in loads if load.load_id not in removed]
    numbers = {load.load_id: found.objects for load, found in loads}
    refuse_none(table, [load.load_id for load in staying])
    verified: list[VerifyOutcome] = []
    problems: list[Notice] = []
    counts_rows = values and any(load.has_versions or (found.existing and found.inserted) for load, found in loads)
    with LaterLoads(connect, are_several=len(staying) > 1, counts_rows=counts_rows) as later:
        verify = partial(verify_before, later, connect, ledger_schema=ledger_schema, values=values, only=table.oid)
        for load in reversed(staying):
            done = None
            found: tuple[Notice, ...] = ()
            if not load.is_complete:
                found = (differs(f"load {load.load_id}", "has not ended"),)
            elif load.has_job:
                done, found = _try(partial(verify, load.load_id, on_progress=on_progress), load.load_id)
                verified = [*filter(None, [done]), *verified]
            else:
                later.note_objects(_read_objects(connect, ledger_schema, load.load_id, numbers[load.load_id]))
            problems = [*found, *problems]
            if load.updates and not (done is not None and done.has_all_records):
                later.has_obstacle = True
        if values and not problems and not later.has_obstacle:
            problems += _find_doubled(later, table)
        compared = _count_compared(later, table) if counts_rows and not problems else None
    tables = [found for each in verified for found in each.tables]
    expected = count_expected(tables) if len(verified) == len(staying) else None
    problems += _check_rows(later, table, expected)
    return TableOutcome(
        table=str(table.table),
        server=server.name,
        database=server.database,
        loads=tuple(verified),
        removed=removed,
        is_partial=any(found.is_gone_in_part for _, found in loads),
        has_parts=table.has_parts,
        unknown=tuple(load.load_id for load in staying if load.is_complete and not load.has_job),
        expected=expected,
        compared=compared,
        problems=tuple(problems),
    )


def _try(verify: Callable[[], VerifyOutcome], load_id: str) -> tuple[VerifyOutcome | None, tuple[Notice, ...]]:
    """Return what was verified of a load, None if it cannot be, and the problems."""
    try:
        done = verify()
    except (DataError, SourceError, TargetError) as error:
        why = f"{error.message} ({error.detail})" if error.detail else error.message
        return None, (differs(f"load {load_id}", f"cannot be verified: {why}"),)
    return done, done.problems


def _read_objects(
    connect: ConnectionFactory, schema: str, load_id: str, numbers: Collection[int]
) -> list[ObjectRecord]:
    """Return objects of a load whose sources the ledger does not have any more: it has their versions."""
    with connect.borrow() as connection:
        return [each for each in list_objects(connection, schema, load_id) if each.number in numbers]


def _check_rows(later: LaterLoads, table: VerifiedTable, expected: int | None) -> Iterator[Notice]:
    if expected is not None and (rows := later.counted[table.oid][0]) != expected:
        message = f"has {count_nouns(rows, 'row')}, and all loads together have stored {expected:,}"
        yield differs(str(table.table), message)


def _find_doubled(later: LaterLoads, table: VerifiedTable) -> Iterator[Notice]:
    with seeing_all_rows(later.open(), table, "comparing"):
        doubled = later.count_doubled(rows_of(table))
    if doubled:
        message = f"lacks {count_nouns(doubled, 'row')}, because records of several loads are equal to one row"
        yield differs(str(table.table), message)


def _count_compared(later: LaterLoads, table: VerifiedTable) -> int:
    with seeing_all_rows(later.open(), table, "comparing"):
        return later.count_rows(rows_of(table))


def _find_loads(connection: Connection, schema: str, name: TableName) -> list[tuple[FillingLoad, VerifiedTable]]:
    """Return the loads that have filled a table, each with what the ledger says of the table after it."""
    has_ledger(connection, schema)
    facts = find_table(connection, name)
    if facts is None:
        raise TargetError(f'table "{name}" does not exist')
    with translate_errors("reading what loads have stored"):
        loads = fetch_rows(connection, "proof/loads_of_table", FillingLoad, ledger=schema, oid=facts.oid)
        found = [
            (load, table)
            for load in loads
            for table in fetch_rows(connection, "ledger/proof_tables", VerifiedTable, ledger=schema, load=load.load_id)
            if table.oid == facts.oid
        ]
    if not found:
        raise TargetError(f'no load of the ledger has filled table "{facts.name}"')
    return found
