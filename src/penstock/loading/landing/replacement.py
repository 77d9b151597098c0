"""Targets of --mode replace: a new table is filled, and replaces the old one at the load's end."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from penstock.errors import DataError, PenstockError, TargetError
from penstock.loading.landing.context import TargetLanding, Way
from penstock.loading.landing.direct import refuse_unended
from penstock.model.load.ledger import LandedCounts
from penstock.model.server.table import TableName
from penstock.server.changes.parts import capture_many
from penstock.server.changes.records import find_changed
from penstock.server.ddl.capture import capture_table, find_obstacles, refuse_obstacles
from penstock.server.ddl.compose import compose_create
from penstock.server.ddl.replacement import (
    add_foreign_keys,
    create_replacement,
    enforce_early,
    finish_replacement,
    swap_replacement,
)
from penstock.server.table.conflicts import find_references
from penstock.server.table.staging import find_landing_table
from penstock.server.table.table_locks import LockMode, TableLocks
from penstock.server.table.tables import analyze_table

if TYPE_CHECKING:
    from penstock.loading.landing.context import NoteStatement
    from penstock.model.load.plan import TargetPlan
    from penstock.server.connect.connection import Connection
    from penstock.server.ddl.definition import TableDefinition

_FOREIGN_KEY_VIOLATION = "23503"

_CORRECT = "Correct the record in the file."
_LATE_KEYS = (
    "Correct the record in the file, or use --mode truncate, which rejects it: with --mode replace a foreign key to a "
    "table of the load is checked behind the last row, when every row that may be referred to is there."
)


class Replacement(Way):
    """A new table is filled, and replaces the old one at the load's end."""

    @staticmethod
    def check(target: TargetPlan, connection: Connection, *, ledger_schema: str) -> None:  # noqa: ARG004
        """Raise TargetError if the table cannot be replaced; changes nothing."""
        if target.facts is not None and target.refusal is None:
            definition = capture_table(connection, target.facts.oid, name=target.facts.name)
            refuse_obstacles(definition.name, find_obstacles(connection, definition))

    def open(self, landing: TargetLanding, suffix: str) -> TargetLanding:
        """Return the landing with a table that has the old table's present definition. Raises TargetError."""
        definition = capture_table(self._connection, landing.facts.oid, name=landing.facts.name)
        # Check this after the definition is read. If the definition lacks a part that a load has dropped, there is a
        # record of the part now. Or that load has restored the part since, and the check before the tables are
        # exchanged finds that the definition has changed.
        if find_changed(self._connection, self._context.schema, [landing.facts.oid]):
            raise TargetError(
                f'indexes, keys or triggers of table "{definition.name}" are dropped or disabled for a load',
                detail="The new table would lack them.",
                hint="Run the load again when that load has ended; penstock repair --plan shows them.",
            )
        landing = replace(landing, definition=definition)
        retyped = landing.target.retyped
        digest = hashlib.sha256(repr((definition, retyped) if retyped else definition).encode()).hexdigest()
        made = landing.record.table or f"penstock_{suffix}"
        name = TableName(schema=definition.table.schema, name=made)
        found = find_landing_table(self._connection, schema=definition.table.schema, name=name.name)
        is_there = found is not None and found.oid == landing.record.oid and found.owner == definition.table.owner
        if is_there and landing.record.definition == digest:
            return landing
        if is_there:
            self._context.drop(landing.record)
        self._context.begin_anew(landing)
        refuse_obstacles(definition.name, find_obstacles(self._connection, definition))
        self._context.refuse_publications(
            definition.implicit_publications,
            lambda: compose_create(definition, name.name).as_string() + ";",
        )
        if retyped:
            types = ", ".join(f'"{each.column}" {each.type_name} (was {each.was})' for each in retyped)
            self._tools.notice(f'new types of columns in table "{definition.name}": {types}')
        oid = create_replacement(self._connection, definition, name=name.name, retyped=retyped)
        self._enforce_early(landing, definition, oid)
        record = replace(landing.record, kind="replacement", definition=digest)
        return self._context.note(landing, record, table=name, oid=oid)

    def _enforce_early(self, landing: TargetLanding, definition: TableDefinition, oid: int) -> None:
        """Create on the new table, before its rows, the indexes and keys that may refuse some of the rows."""
        is_rejecting = self._context.plan.job.rules.on_error == "reject"
        parts = capture_many(self._connection, [landing.facts.oid], what="indexes")
        early = {
            part.name
            for table in parts.values()
            for part in table.indexes
            if part.facts.runs_functions or (is_rejecting and part.refuses_rows)
        }
        # Not the foreign keys to tables of this load: they would refuse rows that arrive before the referenced row.
        loaded = {target.facts.oid for target in self._plan.targets if target.facts is not None}
        is_apart = landing.facts.references.isdisjoint(loaded)
        enforce_early(self._connection, definition, oid, indexes=early, with_foreign_keys=is_rejecting and is_apart)

    def finish(self) -> None:
        """Create on the new tables all parts of the old ones, before the transaction that exchanges them."""
        for landing in self._landings:
            self._finish_replacement(landing)

    def find_locks(self) -> dict[int, LockMode]:
        """Return the locks of the tables to be replaced and of the tables they refer to: dropping a key locks both."""
        own = [landing.facts.oid for landing in self._landings]
        oids = [*own, *(oid for each in own for oid in find_references(self._connection, each))]
        return dict.fromkeys(oids, "ACCESS EXCLUSIVE")

    def land(self, note_statement: NoteStatement) -> list[LandedCounts]:  # noqa: ARG002 (for other ways)
        """Exchange the tables, in the transaction that ends the load, after its merges."""
        for landing in self._landings:
            if landing.target.follows:
                assert landing.definition is not None and landing.record.oid is not None
                wait = self._waiting_for_keys(landing)
                with self._naming_late_keys(landing):
                    add_foreign_keys(self._connection, landing.definition, landing.record.oid, with_locks=wait)
        return self._swap() if self._landings else []

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
            analyze_table(self._connection, landing.table)
        except PenstockError as error:
            if error.is_transient:
                raise
            # ANALYZE may fail because functions of the table's indexes need the user's search_path.
            self._tools.warnings.warn("upkeep", f'not analyzed: "{landing.facts.name}"; {error.message}')

    @contextmanager
    def _naming_late_keys(self, landing: TargetLanding) -> Iterator[None]:
        """Have the error of a row that refers to no row of this load say that such rows are not rejected."""
        try:
            yield
        except DataError as error:
            is_of_load = bool(landing.target.follows) or landing.facts.oid in landing.facts.references
            if error.sqlstate == _FOREIGN_KEY_VIOLATION and is_of_load:
                error.hint = _LATE_KEYS if self._context.plan.job.rules.on_error == "reject" else _CORRECT
            raise

    def _waiting_for_keys(self, landing: TargetLanding) -> Callable[[Callable[[], object]], object]:
        """Return a function that calls another one, which adds a foreign key, and waits for its locks."""
        relations = [*find_references(self._connection, landing.facts.oid)]
        return partial(
            self._context.with_locks, relations=relations, what=f'add a foreign key for "{landing.facts.name}"'
        )

    def _swap(self) -> list[LandedCounts]:
        """Exchange all tables once all their locks are held; if a lock cannot be taken, none is exchanged."""
        wanted = self.find_locks()
        locks = TableLocks(self._connection, wanted)

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
            retyped = len(landing.target.retyped)
            swap_replacement(self._connection, landing.definition, landing.record.oid, retyped=retyped)
            refuse_unended(self._context, landing.facts, verb="replace")
