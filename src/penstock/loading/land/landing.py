"""Decides where COPY puts the records of each target, and swaps a new table for the old one.

A landing table is recorded in the ledger in the transaction that creates it, so that a resumed load finds it. If it was
dropped, or does not fit any more, it is created again, and its objects are loaded from their beginning.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from psycopg.sql import SQL

from penstock.changes.records import find_changed
from penstock.changes.tables.definition import TableDefinition, compose_create
from penstock.changes.tables.parts import IndexPart, capture_many
from penstock.core.catalogue.catalog import defer_constraints, find_references, read_partition_line
from penstock.core.catalogue.staging import find_landing_table
from penstock.core.catalogue.tables import analyze_table, freeze_table
from penstock.core.connect.connection import Connection
from penstock.core.connect.errors import in_transaction, translate_errors
from penstock.core.errors import DataError, PenstockError, TargetError
from penstock.core.sql import fetch_one, table_identifier
from penstock.core.values.mode import Where
from penstock.core.values.names import quote_table
from penstock.core.values.table import TableFacts, TableName
from penstock.ledger.committed import has_all
from penstock.ledger.ledger import finish
from penstock.ledger.targets import read_landings
from penstock.ledger.values import FinishedLoad, LandedCounts, LandingRecord
from penstock.loading.land.context import (
    LandingContext,
    LandingMethod,
    LockMode,
    NoteStatement,
    TableLocks,
    TargetLanding,
    check_truncatable,
    refuse_unended,
)
from penstock.loading.land.exchange import (
    add_foreign_keys,
    build_together,
    capture_table,
    create_replacement,
    enforce_early,
    find_obstacles,
    finish_replacement,
    refuse_obstacles,
    swap_replacement,
)
from penstock.loading.land.leaf import ReplacedPartition, find_partition
from penstock.loading.land.partition import (
    attach_partition,
    create_partition,
    model_partition,
    refuse_default,
    refuse_parent,
    refuse_partition,
)
from penstock.loading.land.staging import Staging
from penstock.loading.land.sync import describe_cascades, find_foreign_keys, refuse_reached
from penstock.loading.plan.modes import explain_rejected
from penstock.loading.values.plan import TargetPlan

_FOREIGN_KEY_VIOLATION = "23503"

_CORRECT = "Correct the record in the file."
_LATE_KEYS = (
    "Correct the record in the file, or use --mode truncate, which rejects it: with --mode replace a foreign key to a "
    "table of the load is checked behind the last row, when every row that may be referred to is there."
)


class Replacement(LandingMethod):
    """How targets with --mode replace are filled: COPY fills a new table, which replaces the old one at the end."""

    @staticmethod
    def check(target: TargetPlan, connection: Connection, *, ledger_schema: str) -> None:  # noqa: ARG004
        """Raise TargetError if the table cannot be replaced. Change nothing."""
        if target.facts is not None and target.refusal is None:
            definition = capture_table(connection, target.facts.oid, name=target.facts.name)
            _refuse_replacing(connection, definition, find_partition(connection, target.facts.oid))

    def foresee(self, target: TargetPlan, facts: TableFacts, suffix: str) -> None:  # noqa: ARG002 (of other ways)
        """Raise TargetError if a publication would publish the new table. Change nothing."""
        self._refuse_publications(capture_table(self._connection, facts.oid, name=facts.name), f"penstock_{suffix}")

    def _refuse_publications(self, definition: TableDefinition, name: str) -> None:
        self._context.refuse_publications(
            definition.implicit_publications,
            lambda: compose_create(definition, name).as_string() + ";",
        )

    def open(self, landing: TargetLanding, suffix: str) -> TargetLanding:
        """Create a table with the old table's present definition, and return `landing` with its name.

        A table that an earlier run of the load has created is used if the old table's definition has not changed since.
        `suffix` ends the name of the new table. Raises TargetError.
        """
        landing = self._define(landing)
        definition = landing.definition
        assert definition is not None
        # Check this after the definition is read. If a load has dropped a part, so that the definition lacks it, the
        # check finds the record of the part. If that load has restored the part since, the check before the swap finds
        # that the definition has changed.
        if find_changed(self._connection, self._context.schema, [landing.facts.oid]):
            table = landing.facts.parent or definition.name
            raise TargetError(
                f'indexes, keys or triggers of table "{table}" are dropped or disabled for a load',
                detail="The new table would lack them.",
                hint="Run the load again when that load has ended; penstock repair --plan shows them.",
            )
        retyped = landing.target.retyped
        further = tuple(each for each in (retyped, landing.replaced) if each)
        meaning = landing.partition.meaning if landing.partition else (definition, *further) if further else definition
        digest = hashlib.sha256(repr(meaning).encode()).hexdigest()
        made = landing.record.table or f"penstock_{suffix}"
        name = TableName(schema=definition.table.schema, name=made)
        found = find_landing_table(self._connection, schema=definition.table.schema, name=name.name)
        is_there = (
            found is not None
            and found.oid == landing.record.oid
            # The role that creates a new partition's table owns it. If another role resumes the load, the table is
            # dropped below and created again.
            and (landing.partition is not None or found.owner == definition.table.owner)
        )
        if is_there and landing.record.definition == digest:
            return landing
        if is_there:
            self._context.drop(landing.record)
        elif found is not None:
            raise TargetError(
                f'table "{name}" is in the way, and is not of this load',
                detail="A load has left it of which the ledger has no record, as after the ledger was dropped.",
                hint=f"Run DROP TABLE {quote_table(name)}; and then the same command.",
            )
        self._context.begin_anew(landing)
        oid = self._create(landing, name.name)
        self._enforce_early(landing, definition, oid)
        record = replace(landing.record, kind="replacement", definition=digest)
        return self._context.note(landing, record, table=name, oid=oid)

    def _define(self, landing: TargetLanding) -> TargetLanding:
        """Return `landing` with the present definition of the table to be replaced."""
        definition = capture_table(self._connection, landing.facts.oid, name=landing.facts.name)
        return replace(landing, definition=definition, replaced=find_partition(self._connection, landing.facts.oid))

    def _create(self, landing: TargetLanding, name: str) -> int:
        """Create the new table, and return its OID."""
        definition, retyped = landing.definition, landing.target.retyped
        assert definition is not None
        _refuse_replacing(self._connection, definition, landing.replaced)
        self._refuse_publications(definition, name)
        if retyped:
            types = ", ".join(f'"{each.column}" {each.type_name} (was {each.was})' for each in retyped)
            self._tools.notice(f'new types of columns in table "{definition.name}": {types}')
        return create_replacement(self._connection, definition, name=name, retyped=retyped, partition=landing.replaced)

    def _list_indexes(self, landing: TargetLanding) -> Sequence[IndexPart]:
        """Return the indexes of the old table."""
        parts = capture_many(self._connection, [landing.facts.oid], what="indexes")
        return [part for table in parts.values() for part in table.indexes]

    def _enforce_early(self, landing: TargetLanding, definition: TableDefinition, oid: int) -> None:
        """Before the rows are loaded, create the indexes and keys that may refuse some of them on the new table."""
        is_rejecting = self._context.plan.job.rules.on_error == "reject"
        early = {
            part.name
            for part in self._list_indexes(landing)
            if part.facts.runs_functions or (is_rejecting and part.may_refuse_records)
        }
        # Foreign keys to tables of this load are not created now: they would refuse rows that arrive before the
        # referenced row.
        loaded = {target.facts.oid for target in self._plan.targets if target.facts is not None}
        is_apart = landing.facts.references.isdisjoint(loaded)
        enforce_early(self._connection, definition, oid, indexes=early, with_foreign_keys=is_rejecting and is_apart)

    def finish(self) -> None:
        """Create the indexes and keys of the old tables on the new ones, before the transaction that swaps them.

        Several sessions build the indexes. `land` creates the foreign keys to staged tables of the load. Raises
        TargetError if a table would be emptied.
        """
        for landing in self._landings:
            assert landing.definition is not None and landing.record.oid is not None
            self._refuse_emptying(landing)
            build_together(
                self._connection,
                landing.definition,
                landing.record.oid,
                self._list_indexes(landing),
                opener=self._tools,
                is_local=self._plan.server.is_local,
            )
            self._finish_replacement(landing)

    def _refuse_emptying(self, landing: TargetLanding) -> None:
        """Raise TargetError if a table with rows would be replaced by none, because all records were rejected."""
        rules = self._plan.job.rules
        if rules.on_error != "reject" or rules.emptied == "load" or landing.partition is not None:
            return
        assert landing.table is not None
        query = SQL("SELECT EXISTS (SELECT FROM {}) AND NOT EXISTS (SELECT FROM {})")
        with translate_errors(f'looking whether "{landing.facts.name}" would be emptied'):
            tables = (table_identifier(landing.facts.name), table_identifier(landing.table))
            (is_emptying,) = fetch_one(self._connection, query.format(*tables))
        if is_emptying:
            raise explain_rejected(landing.target.job, self._context.claim.load_id)

    def list_locks(self) -> dict[int, LockMode]:
        """Return an ACCESS EXCLUSIVE lock for each table to be replaced and each table that it refers to, by OID.

        Dropping a foreign key locks both tables. Dropping a partition locks its parent and the default partition.
        """
        own = [landing.facts.oid for landing in self._landings]
        rest = [landing.replaced.default_oid for landing in self._landings if landing.replaced is not None]
        oids = [
            *own,
            *_list_parents(self._landings),
            *filter(None, rest),
            *(oid for each in own for oid in find_references(self._connection, each)),
        ]
        return dict.fromkeys(oids, "ACCESS EXCLUSIVE")

    def land(self, note_statement: NoteStatement) -> list[LandedCounts]:  # noqa: ARG002 (for other ways)
        """Swap the tables in the transaction that ends the load, after its merges.

        Return, for each target, counts of 0 and the OID of the new table.
        """
        self._add_late_keys()
        return self._swap() if self._landings else []

    def _add_late_keys(self) -> None:
        """Add foreign keys to staged tables of the load, which have their rows now."""
        for landing in self._landings:
            if landing.target.follows:
                assert landing.definition is not None and landing.record.oid is not None
                wait = self._waiting_for_keys(landing)
                with self._naming_late_keys(landing):
                    add_foreign_keys(self._connection, landing.definition, landing.record.oid, with_locks=wait)

    def _finish_replacement(self, landing: TargetLanding) -> None:
        assert landing.definition is not None and landing.record.oid is not None and landing.table is not None
        with self._naming_late_keys(landing):
            finish_replacement(
                self._connection,
                landing.definition,
                landing.record.oid,
                with_foreign_keys=not landing.target.follows,
                with_locks=self._waiting_for_keys(landing),
            )
        try:
            self._analyze(landing.table)
        except PenstockError as error:
            if error.is_transient:
                raise
            # Only warn: ANALYZE may fail because functions of the table's indexes need the user's search_path.
            self._tools.warnings.warn("upkeep", f'not analyzed: "{landing.facts.name}"; {error.message}')

    def _analyze(self, table: TableName) -> None:
        analyze_table(self._connection, table)

    @contextmanager
    def _naming_late_keys(self, landing: TargetLanding) -> Iterator[None]:
        """Add a hint to the error of a row without a referenced row: --on-error reject does not reject such rows."""
        try:
            yield
        except DataError as error:
            is_of_load = bool(landing.target.follows) or landing.facts.oid in landing.facts.references
            if error.sqlstate == _FOREIGN_KEY_VIOLATION and is_of_load:
                error.hint = _LATE_KEYS if self._context.plan.job.rules.on_error == "reject" else _CORRECT
            raise

    def _waiting_for_keys(self, landing: TargetLanding) -> Callable[[Callable[[], object]], object]:
        """Return a function that retries a call which adds a foreign key, until the call gets its locks."""
        relations = [*find_references(self._connection, landing.facts.oid)]
        return partial(
            self._context.with_locks, relations=relations, what=f'add a foreign key for "{landing.facts.name}"'
        )

    def _swap(self) -> list[LandedCounts]:
        """Swap all tables once all their locks are held. If a lock cannot be taken, swap none."""
        wanted = self.list_locks()
        locks = TableLocks(self._connection, wanted, alone=_list_parents(self._landings))

        def swap() -> None:
            locks.take()
            self._swap_all()

        names = ", ".join(f'"{landing.facts.name}"' for landing in self._landings)
        self._context.with_locks(swap, relations=list(wanted), what=f"replace {names}")
        return [
            LandedCounts(number=landing.record.number, target_oid=landing.record.oid)
            for landing in self._landings
            if landing.record.oid is not None
        ]

    def _swap_all(self) -> None:
        for landing in self._landings:
            assert landing.definition is not None and landing.record.oid is not None
            if landing.replaced is not None:
                refuse_partition(self._connection, landing.facts.name, landing.replaced)
            swap_replacement(
                self._connection,
                landing.definition,
                landing.record.oid,
                retyped=len(landing.target.retyped),
                partition=landing.replaced,
            )
            # A load into the parent may have put rows into the partition that is gone. The new one tells of the parent.
            for oid in (landing.facts.oid, landing.record.oid):
                refuse_unended(self._context, replace(landing.facts, oid=oid), verb="replace")


def _list_parents(landings: Iterable[TargetLanding]) -> set[int]:
    """Return the OIDs of the parents of the partitions that are replaced: other partitions need no lock."""
    return {landing.replaced.parent_oid for landing in landings if landing.replaced is not None}


def _refuse_replacing(connection: Connection, definition: TableDefinition, partition: ReplacedPartition | None) -> None:
    """Raise TargetError if the table cannot be replaced."""
    if partition is not None:
        refuse_partition(connection, definition.name, partition)
    refuse_obstacles(definition.name, find_obstacles(connection, definition))


class Partition(Replacement):
    """How new partitions are filled (--partition-of): COPY fills a table by itself, which is attached at the end."""

    @staticmethod
    def check(target: TargetPlan, connection: Connection, *, ledger_schema: str) -> None:  # noqa: ARG004
        """Raise TargetError if the parent cannot get the partition. Change nothing."""
        if target.facts is not None and target.job.for_values is not None and target.refusal is None:
            refuse_parent(connection, target.facts, skips_triggers=target.skips_triggers)
            model_partition(connection, target.facts, target.job.for_values)

    def foresee(self, target: TargetPlan, facts: TableFacts, suffix: str) -> None:
        """Do nothing: a published parent is refused by `check`."""

    def _define(self, landing: TargetLanding) -> TargetLanding:
        model = model_partition(self._connection, landing.facts, landing.target.job.for_values or "")
        return replace(landing, definition=model.definition, partition=model)

    def _create(self, landing: TargetLanding, name: str) -> int:
        assert landing.partition is not None
        return create_partition(self._connection, landing.partition, name=name)

    def _list_indexes(self, landing: TargetLanding) -> Sequence[IndexPart]:
        return () if landing.partition is None else landing.partition.indexes

    def _analyze(self, table: TableName) -> None:
        if self._plan.freeze.is_used or not self._plan.job.rules.vacuum:
            super()._analyze(table)
        else:
            freeze_table(self._connection, table)

    def finish(self) -> None:
        """Finish the tables, and refuse rows that the default partition has got since the load began."""
        super().finish()
        for landing in self._landings:
            assert landing.partition is not None
            refuse_default(self._connection, landing.partition.parent, landing.partition.check)

    def list_locks(self) -> dict[int, LockMode]:
        """Return no locks: ATTACH takes them itself, in its order."""
        return {}

    def land(self, note_statement: NoteStatement) -> list[LandedCounts]:  # noqa: ARG002 (for other ways)
        """Attach the tables in the transaction that ends the load, and return counts of 0 and the tables' OIDs."""
        self._add_late_keys()
        return [self._attach(landing) for landing in self._landings]

    def _attach(self, landing: TargetLanding) -> LandedCounts:
        model, oid, facts = landing.partition, landing.record.oid, landing.facts
        assert model is not None and oid is not None
        refuse_parent(self._connection, facts, skips_triggers=landing.target.skips_triggers)
        # ATTACH locks the partitions of the default partition, too.
        rest = read_partition_line(self._connection, [*filter(None, [model.parent.default_oid])])
        self._context.with_locks(
            partial(attach_partition, self._connection, model, oid),
            relations=sorted({facts.oid, *rest, *facts.references}),
            what=f'attach "{facts.name}" to "{facts.parent}"',
        )
        return LandedCounts(number=landing.record.number, target_oid=oid)


# The class for each value of Landing.where (core/values/mode.py), in the order in which the load's end calls them.
LANDING_METHODS: dict[Where, type[LandingMethod]] = {
    "table": LandingMethod,
    "staging": Staging,
    "replacement": Replacement,
    "partition": Partition,
}


def check_landings(targets: Sequence[TargetPlan], connection: Connection, *, ledger_schema: str) -> None:
    """Raise TargetError if a table cannot be filled in the requested mode. Change nothing."""
    truncated = [
        (each, each.facts)
        for each in targets
        if each.facts is not None and each.refusal is None and each.landing.truncates
    ]
    for target in targets:
        LANDING_METHODS[target.landing.where].check(target, connection, ledger_schema=ledger_schema)
        _refuse_shared_partitions(target, targets, connection)
        _refuse_shared_parent(target, targets)
        if target.facts is not None and target.landing.deletes:
            refuse_reached(target.table, find_foreign_keys(connection, target.facts.oid), targets)
    for target, facts in truncated:
        # Tables that COPY fills are truncated before the rows, and tables of staged targets after them. So one
        # statement does not truncate both groups.
        together = [other.oid for each, other in truncated if each.fills_table == target.fills_table]
        check_truncatable(connection, facts, together=together)


def _refuse_shared_partitions(target: TargetPlan, targets: Sequence[TargetPlan], connection: Connection) -> None:
    """Raise TargetError if a sync or a replacement would remove rows of a target that is a partition or a parent."""
    # A staged target is truncated at the end, when rows are in tables that COPY fills.
    truncates_late = target.landing.truncates and target.is_staged and any(each.fills_table for each in targets)
    removes = target.landing.deletes or target.landing.where == "replacement" or truncates_late
    if target.facts is None or not removes or len(targets) == 1:
        return
    verb = "sync" if target.landing.deletes else "truncate" if truncates_late else "replace"
    line = read_partition_line(connection, [target.facts.oid])
    for other in targets:
        # The facts of a new partition are those of its parent. It is attached behind the others, so a sync of a parent
        # would not have seen its rows.
        is_new = other.landing.where == "partition" and not (target.landing.deletes and target.facts.kind == "p")
        is_apart = is_new or other.facts is None or other.facts.oid == target.facts.oid
        if not is_apart and other.facts is not None and other.facts.oid in line:
            raise TargetError(
                f'cannot {verb} table "{target.table}" and fill table "{other.table}" by the same load',
                detail=f"One is, or becomes, a partition of the other, so that the {verb} would remove rows of both.",
                hint="Run two loads."
                if verb != "sync"
                else f'Name all sources in the target "{target.table}", or run two loads.',
            )


def _refuse_shared_parent(target: TargetPlan, targets: Sequence[TargetPlan]) -> None:
    """Raise TargetError if the load makes a new partition, and fills its parent or makes another partition of it.

    Until the partition is attached, the ledger has its objects under the OID of its parent.
    """
    for other in targets:
        is_shared = other.facts is not None and target.facts is not None and other.facts.oid == target.facts.oid
        if target.landing.where == "partition" and other is not target and is_shared:
            raise TargetError(
                f'cannot make partition "{target.table}" and fill table "{other.table}" by the same load',
                detail="A load that makes a partition makes no other of the same parent, and does not fill the parent.",
                hint="Run two loads.",
            )


def note_cascades(target: TargetPlan, connection: Connection) -> TargetPlan:
    """Return the target with its `cascades`: the tables whose rows ON DELETE changes if --mode sync deletes rows.

    Other targets are returned unchanged. Raises ServerError.
    """
    if target.facts is None or not target.landing.deletes:
        return target
    return replace(target, cascades=describe_cascades(find_foreign_keys(connection, target.facts.oid)))


def open_landings(
    context: LandingContext, facts: Sequence[TableFacts], objects: Mapping[int, Sequence[int]], *, identity: str
) -> tuple[TargetLanding, ...]:
    """Create the staging tables and new tables of a load, and return the targets that need more than COPY.

    A table that an earlier run of the load has created is used again if it still fits. `facts` are the facts of the
    tables, in the order of the targets. `objects` has, by the target's number, the numbers of its objects in this load.
    The first characters of `identity`, the load's identity, become a part of the tables' names. Raises ServerError, and
    TargetError, UsageError or DataError if the statement at the load's end would fail.
    """
    connection, claim = context.connection, context.claim
    with in_transaction(connection, "opening the tables to land in"):
        context.tools.ledger.hold_claim(connection, claim)
        records = read_landings(connection, context.schema, claim.load_id)
        return tuple(
            _open(
                context,
                TargetLanding(
                    target=target,
                    facts=facts[number],
                    record=records.get(
                        number, LandingRecord(number=number, target_oid=facts[number].oid, target=facts[number].name)
                    ),
                    objects=tuple(objects[number]),
                ),
                identity,
            )
            for number, target in enumerate(context.plan.targets)
            if objects.get(number) and target.needs_more_than_copy
        )


def foresee_landings(context: LandingContext, *, identity: str) -> None:
    """Raise TargetError if a load may not empty its tables, or create the tables that it needs. Change nothing.

    It may not empty a table in which another load that has not ended has rows. It may not create a table that a
    publication would publish, unless --publish-ledger is given.
    """
    is_new = not context.claim.is_resumed
    for number, target in enumerate(context.plan.targets):
        facts = target.facts
        if facts is not None and ((target.landing.truncates and is_new) or target.landing.where == "replacement"):
            refuse_unended(context, facts, verb="replace" if target.is_replaced else "truncate")
        if facts is not None and not target.fills_table and is_new:
            LANDING_METHODS[target.landing.where](context).foresee(target, facts, _suffix(identity, number))


def _suffix(identity: str, number: int) -> str:
    """Return the end of the name of a target's table. It is the same for each run of a load."""
    return f"{identity[:16]}_{number}"


def _open(context: LandingContext, landing: TargetLanding, identity: str) -> TargetLanding:
    if landing.target.fills_table:
        return landing
    way = LANDING_METHODS[landing.target.landing.where](context)
    return context.with_locks(
        partial(way.open, landing, _suffix(identity, landing.record.number)),
        relations=[landing.facts.oid, *landing.facts.references],
        what=f'look at "{landing.facts.name}"',
    )


def finish_load(
    context: LandingContext, landings: Sequence[TargetLanding], *, note_statement: NoteStatement
) -> FinishedLoad | None:
    """Store the staged records, swap in the new tables, record that the load is complete, and return its counts.

    All of this is one transaction; indexes of new tables are built before it. Readers see the result of all of it or of
    nothing; only rows that COPY put into a target's own table are visible before. Return None, and change nothing, if
    the ledger says that some range of an object is not committed. `note_statement` is called with the target's number
    and the outcome of each transform. Raises PenstockError; then the staging tables and new tables keep their rows.
    """
    tools, connection, claim = context.tools, context.connection, context.claim
    landed = [landing for landing in landings if landing.table is not None]
    if not landed:
        return finish(tools.ledger, connection, claim)
    if not has_all(connection, context.schema, claim.load_id):
        tools.ledger.check_claim(connection, claim)
        return None
    ways = [
        way(context, [each for each in landed if each.target.landing.where == where])
        for where, way in LANDING_METHODS.items()
    ]
    for way in ways:
        way.finish()

    def land() -> list[LandedCounts]:
        _lock_tables(context, landed, ways)
        if context.plan.defers_keys:
            defer_constraints(connection)
        counts = [count for way in ways for count in way.land(note_statement)]
        tools.warnings.refuse()
        return counts

    return finish(tools.ledger, connection, claim, act=land)


def _lock_tables(context: LandingContext, landed: Sequence[TargetLanding], ways: Sequence[LandingMethod]) -> None:
    """Take all locks of the last transaction first if it truncates a table, because readers wait until it ends."""
    if not any(landing.target.landing.truncates for landing in landed):
        return
    wanted = {oid: mode for way in ways for oid, mode in way.list_locks().items()}
    names = ", ".join(f'"{landing.facts.name}"' for landing in landed)
    locks = TableLocks(context.connection, wanted, alone=_list_parents(landed))
    context.with_locks(locks.take, relations=list(wanted), what=f"lock {names}")


def give_up_landings(context: LandingContext, landings: Sequence[TargetLanding]) -> None:
    """Drop the staging tables and new tables of a load. Raises TargetError, ServerError."""
    for landing in landings:
        if landing.record.oid is not None:
            context.with_locks(
                partial(context.drop, landing.record),
                relations=[landing.record.oid],
                what=f'drop "{landing.table}"',
                is_patient=False,
            )
