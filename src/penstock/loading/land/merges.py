"""Stores staged records by one statement for each target, and can reject the records that the table refuses.

By default the whole staging table is merged by one statement, and any bad record makes the merge fail. Then the merge
runs again with the sorter (merge_sorting.py), until the sorter finds a record that fails with the same SQLSTATE. The
error names this record. The second run is rolled back.

With --on-error reject, the server merges the records in groups. If a group fails, the server finds the bad records in
it. A merge without bad records takes no longer than by default (docs/decisions/0012). The bytes of refused records are
found in their objects (locate.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby, islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import psycopg

from penstock.changes.records import find_changed
from penstock.core.connect.connection import Connection
from penstock.core.connect.errors import in_transaction, rolled_back, translate_errors
from penstock.core.connect.search_path import TO_OWN_SETTINGS, users_settings
from penstock.core.errors import PenstockError, TargetError
from penstock.core.slotted import slotted
from penstock.core.sql import table_identifier
from penstock.core.tuning import DEFAULT_TUNING
from penstock.core.values.job import TargetJob, Transform
from penstock.core.values.table import TableFacts, TableName
from penstock.ledger.rejects import Correction, Reject, RejectStore
from penstock.ledger.schema import has_ledger
from penstock.ledger.values import MergeCounts
from penstock.loading.land.context import LandingContext, NoteStatement
from penstock.loading.land.locate import find_staged
from penstock.loading.land.merge import (
    COUNTING,
    MergeParts,
    check_merge,
    check_transform,
    count_staged,
    find_parts,
    read_plan,
    run_transform,
)
from penstock.loading.land.merge_errors import (
    NameRecord,
    RecordPosition,
    explain_merge,
    name_by_number,
    refuse_duplicates,
)
from penstock.loading.land.merge_key import check_key
from penstock.loading.land.merge_sorting import MergeSorter, check_constraints_at_once, settle
from penstock.loading.land.refusals import check_statements
from penstock.loading.plan.modes import check_key_names
from penstock.loading.rejects.explain import RECORD_CODES, is_own_code, too_many_rejects
from penstock.loading.rejects.pieces import form_to_json
from penstock.loading.rejects.sorting import find_hindrance
from penstock.loading.values.outcome import StatementOutcome
from penstock.loading.values.plan import TargetPlan, table_after_creation

if TYPE_CHECKING:
    from psycopg import sql


_log = logging.getLogger(__name__)

# How many bytes the sorter merges by one statement. A small portion is enough, because the sorter stops between
# portions once it has found one bad record.
_PORTION_BYTES = 1024 * 1024


def merge_whole(
    connection: Connection,
    parts: MergeParts,
    *,
    name_record: NameRecord = name_by_number,
    note_stored: Callable[[], None] = lambda: None,
) -> MergeCounts:
    """Store all staged records in the table by one statement, and return how many were inserted, updated and so on.

    Without a key, they are stored in file order. Unlike COPY, the statement works with row-level security: its policies
    apply. A key with a null equals no other key, unless the index is NULLS NOT DISTINCT. `name_record` describes a
    record's position in errors. `note_stored` is called in the savepoint that has stored the rows, and can read its
    transaction ID. Needs the rights that check_key checks; without a key, only INSERT on the columns. Raises DataError,
    TargetError, ServerError.
    """
    if parts.key is None:
        # Do not count with RETURNING as other merges do, because it would need SELECT privileges and policies.
        inserted = _run(connection, parts, parts.compose(), name_record, note_stored).rowcount
        staged = count_staged(connection, parts.staging) if parts.target.suppressing_triggers else inserted
        return MergeCounts(staged=staged, inserted=inserted, suppressed=staged - inserted)
    refuse_duplicates(connection, parts, name_record=name_record)
    row = _run(connection, parts, COUNTING + parts.compose(), name_record, note_stored).fetchone()
    assert row is not None
    plan = row[0][0]["Plan"]
    _log.debug("merged by plan %s", plan)
    return parts.count(read_plan(plan))


def _run(
    connection: Connection,
    parts: MergeParts,
    statement: sql.Composed,
    name_record: NameRecord,
    note_stored: Callable[[], None],
) -> psycopg.Cursor[Any]:
    try:
        with in_transaction(connection), users_settings(connection):
            result = connection.execute(statement)
            # The savepoint of the user's settings has stored the rows, so this must be called within it.
            connection.execute(TO_OWN_SETTINGS)
            note_stored()
            return result
    except psycopg.Error as error:
        find_refused = partial(_find_refused, connection, parts)
        raise explain_merge(error, parts, name_record=name_record, find_refused=find_refused) from error


def _find_refused(connection: Connection, parts: MergeParts, sqlstate: str) -> RecordPosition | None:
    """Return a record that the table refuses with an SQLSTATE, or None if the sorter cannot be used or finds none."""
    table = table_identifier(parts.target.name).as_string(connection)
    found: RecordPosition | None = None
    # Errors here are ignored, because the original error is reported.
    with suppress(psycopg.Error, PenstockError), rolled_back(connection):
        if find_hindrance(connection, table) is None:
            sorter = MergeSorter(connection, parts, own_codes=[sqlstate], portion_bytes=_PORTION_BYTES)
            sorter.merge(limit=0)
            if not sorter.noted:
                settle([sorter])
            found = next((record.position for record in sorter.read_refused()), None)
    return found


@slotted
class StagedRecords:
    """The staged records of one target: its number in the job, its table's facts, and the staging table."""

    number: int
    job: TargetJob
    facts: TableFacts
    # The columns that the files fill. The staging table has them too.
    columns: tuple[str, ...]
    staging: TableName


class MergeStatement:
    """Stores the staged records of one target in its table by one statement. Methods raise PenstockError.

    `note_stored` is called in the savepoint in which a merge has stored the rows (see `merge_whole`).
    """

    def __init__(
        self, connection: Connection, staged: StagedRecords, note_stored: Callable[[], None] = lambda: None
    ) -> None:
        self._connection = connection
        self.staged = staged
        self._note_stored = note_stored

    @staticmethod
    def check_table(target: TargetPlan, connection: Connection, *, ledger_schema: str) -> None:
        """Raise TargetError if the table lacks what the statement needs. Change nothing."""

    def check(self) -> None:
        """Raise the error with which the server would refuse the statement at the load's end. Change nothing."""

    def find_parts(self) -> MergeParts | None:
        """Return the parts of the merge, None if bad records cannot be rejected because this is no merge."""
        return None

    def run(self, name_record: NameRecord, note: NoteStatement) -> MergeCounts:
        """Store all staged records in the caller's transaction, and return their counts.

        `name_record` describes a record's position in errors. A transform calls `note` with the target's number and its
        outcome.
        """
        raise NotImplementedError


class Merge(MergeStatement):
    """Inserts all records. With a key, rows that have a record's key are updated or kept, as the mode says."""

    @staticmethod
    def check_table(target: TargetPlan, connection: Connection, *, ledger_schema: str) -> None:
        """Raise TargetError if the table lacks the key, or if rules, publications or rights rule out the statement."""
        facts, job = target.facts, target.job
        if facts is not None:
            check_statements(connection, facts, job)
        if not job.merge_key:
            return
        if facts is None:
            # The key becomes the primary key of the table that the load creates.
            check_key_names(table_after_creation(target), job.key, target.column_map.columns)
            return
        try:
            columns = target.column_map.columns
            check_key(connection, facts, job.key, columns=columns, updates=job.landing.updates)
        except TargetError as error:
            if has_ledger(connection, ledger_schema) and find_changed(connection, ledger_schema, [facts.oid]):
                error.hint = "A load has dropped keys of the table, to rebuild them: see penstock repair --plan."
            raise

    def check(self) -> None:
        """Look for rules that would rewrite the merge, and let the server plan it."""
        check_statements(self._connection, self.staged.facts, self.staged.job)
        check_merge(self._connection, self.find_parts())

    def find_parts(self) -> MergeParts:
        """Return the parts of the merge."""
        staged, job = self.staged, self.staged.job
        return find_parts(
            self._connection,
            staging=staged.staging,
            target=staged.facts,
            columns=staged.columns,
            key=job.merge_key,
            updates=job.landing.updates,
            keep=job.keep,
        )

    def run(self, name_record: NameRecord, note: NoteStatement) -> MergeCounts:  # noqa: ARG002 (of other statements)
        """Merge all records, and return their counts."""
        return merge_whole(self._connection, self.find_parts(), name_record=name_record, note_stored=self._note_stored)


class TransformStatement(MergeStatement):
    """Runs the statement of a transform, which the user wrote."""

    def check(self) -> None:
        """Let the server plan the statement."""
        check_transform(self._connection, self._sql, staging=self.staged.staging)

    def run(self, name_record: NameRecord, note: NoteStatement) -> MergeCounts:  # noqa: ARG002 (of other statements)
        """Run the statement, call `note` with its outcome, and return its counts: all rows count as inserted."""
        staging = self.staged.staging
        staged = count_staged(self._connection, staging)
        done = run_transform(self._connection, self._sql, staging=staging)
        table = str(self.staged.facts.name)
        said = StatementOutcome(name=self._sql.name, table=table, records=staged, tag=done.text, rows=done.rows)
        note(self.staged.number, said)
        return MergeCounts(staged=staged, inserted=done.rows)

    @property
    def _sql(self) -> Transform:
        assert self.staged.job.transform is not None
        return self.staged.job.transform


# The class for each value of Landing.statement (core/values/mode.py).
STATEMENTS: dict[str, type[MergeStatement]] = {"merge": Merge, "transform": TransformStatement}


# The SQLSTATE of a row that a policy refuses. For a table without policies it means that the role lacks a privilege, so
# every record would fail.
_POLICY = "42501"

# How many rejected records, and how many bytes of them, one INSERT into the ledger has.
_WRITTEN_RECORDS = 1000
_WRITTEN_BYTES = 4 * 1024 * 1024

# How many records an error quotes.
_SHOWN = 3


class SortingMerges:
    """The merges of one transaction, which continue if a table refuses records. Methods raise PenstockError.

    `name_record` describes a record's position in errors. `note` is called with the target's number and the outcome of
    each transform. The attribute `sorters` has the sorters of the merges, which keep the refused records.
    `portion_bytes` is how many bytes of records one statement merges at most.
    """

    # How many records may be refused, None for any number.
    limit: int | None = None

    def __init__(
        self,
        connection: Connection,
        *,
        name_record: NameRecord,
        note: NoteStatement = lambda _number, _said: None,
        portion_bytes: int = DEFAULT_TUNING.batch.merge_portion_bytes,
    ) -> None:
        self._connection = connection
        self._name_record = name_record
        self._note = note
        self._portion_bytes = portion_bytes
        self.sorters: list[MergeSorter] = []

    def run(self, statements: Sequence[MergeStatement]) -> list[MergeCounts]:
        """Run the statements, and return for each the counts of its records except those that were refused."""
        check_constraints_at_once(self._connection)
        results = [self._begin(statement) for statement in statements]
        settle(self.sorters)
        if self.limit is not None and sum(sorter.count_refused() for sorter in self.sorters) > self.limit:
            raise self._too_many(next(sorter for sorter in self.sorters if sorter.count_refused()))
        return [result.counts() if isinstance(result, MergeSorter) else result for result in results]

    def _begin(self, statement: MergeStatement) -> MergeCounts | MergeSorter:
        """Begin a merge, and return its sorter. If its records cannot be sorted out, run it, and return its counts.

        Raises DataError if --keep error is given and two records have the same key.
        """
        facts = statement.staged.facts
        hint = self._find_hindrance(facts)
        parts = statement.find_parts() if hint is None else None
        # The beginnings of the SQLSTATEs of errors that a record itself causes.
        own_codes = (*RECORD_CODES, _POLICY) if facts.row_security_applies else RECORD_CODES
        if parts is None:
            try:
                return statement.run(self._name_record, self._note)
            except PenstockError as error:
                if hint is not None and error.sqlstate is not None and is_own_code(error.sqlstate, own_codes):
                    error.hint = hint
                raise
        refuse_duplicates(self._connection, parts, name_record=self._name_record)
        sorter = MergeSorter(self._connection, parts, own_codes=own_codes, portion_bytes=self._portion_bytes)
        self.sorters.append(sorter)
        sorter.merge(limit=self.limit)
        if self.limit is not None and sorter.noted > self.limit:
            raise self._too_many(sorter)
        return sorter

    def _find_hindrance(self, facts: TableFacts) -> str | None:
        """Return a hint that says why a table's records cannot be rejected, or None if they can."""
        with translate_errors(f"looking up table {facts.name}"):
            return find_hindrance(self._connection, table_identifier(facts.name).as_string(self._connection))

    def _too_many(self, sorter: MergeSorter) -> PenstockError:
        """Return the error for more refused records than the limit. The sorter has refused some of them."""
        raise NotImplementedError


class RejectingMerges(SortingMerges):
    """The merges of a load with --on-error reject. Refused records become rejected records in the ledger."""

    def __init__(self, context: LandingContext, *, name_record: NameRecord, note: NoteStatement) -> None:
        portion_bytes = context.plan.batch.merge_portion_bytes
        super().__init__(context.connection, name_record=name_record, note=note, portion_bytes=portion_bytes)
        self._context = context
        self._store = RejectStore(context.schema, context.claim.load_id)
        self._most = context.plan.job.rules.max_rejects
        if self._most is not None:
            self.limit = max(0, self._most - self._store.count(self._connection))

    def run(self, statements: Sequence[MergeStatement]) -> list[MergeCounts]:
        """Run the statements, insert the refused records into the ledger, and return the counts of the others.

        The result has counts for each statement.
        """
        counts = super().run(statements)
        for sorter in self.sorters:
            if sorter.count_refused():
                self._reject(sorter)
        return counts

    def _find_hindrance(self, facts: TableFacts) -> str | None:
        if not self._context.plan.is_repeatable:
            return "Say --spool: a record is rejected byte for byte, and a pipe cannot be read again for that."
        return super()._find_hindrance(facts)

    def _too_many(self, sorter: MergeSorter) -> PenstockError:
        assert self._most is not None
        number, records = next(groupby(sorter.read_refused(), attrgetter("position.object_number")))
        _, found = find_staged(self._context, number, records, sorter.read_blocks()[number])
        shown = list(islice(found, _SHOWN))
        return too_many_rejects(self._most, shown, uris={number: self._context.objects[number].source.uri})

    def _reject(self, sorter: MergeSorter) -> None:
        """Insert refused records into the ledger's rejects, and subtract them from the rows of their ranges."""
        blocks = sorter.read_blocks()
        for number, records in groupby(sorter.read_refused(), attrgetter("position.object_number")):
            form, found = find_staged(self._context, number, records, blocks[number])
            count = 0
            for group in _groups(found):
                self._store.insert(self._connection, group)
                count += len(group)
            correction = Correction(object_number=number, rows=-count, suppressed=0, form=form_to_json(form))
            self._store.correct(self._connection, [correction])


def _groups(rejects: Iterator[Reject]) -> Iterator[list[Reject]]:
    group: list[Reject] = []
    length_bytes = 0
    for reject in rejects:
        group.append(reject)
        length_bytes += len(reject.raw)
        if len(group) >= _WRITTEN_RECORDS or length_bytes >= _WRITTEN_BYTES:
            yield group
            group, length_bytes = [], 0
    if group:
        yield group
