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
from contextlib import contextmanager, suppress
from itertools import groupby, islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import psycopg

from penstock.changes.records import find_changed
from penstock.core.connect.connection import Connection
from penstock.core.connect.errors import rolled_back, translate_errors
from penstock.core.connect.search_path import TO_OWN_SETTINGS, users_settings
from penstock.core.errors import PenstockError, TargetError
from penstock.core.sql import table_identifier
from penstock.ledger.rejects import Correction, Reject, RejectStore
from penstock.ledger.schema import has_ledger
from penstock.loading.land.locate import make_finder
from penstock.loading.land.merge import (
    COUNTING,
    MergeCounts,
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
from penstock.loading.land.merge_key import check_key, check_key_names
from penstock.loading.land.merge_sorting import MergeSorter, check_constraints_at_once, settle
from penstock.loading.land.refusals import check_statements
from penstock.loading.land.sync import read_assignments
from penstock.loading.rejects.explain import RECORD_CODES, is_own_code, too_many_rejects
from penstock.loading.rejects.sorting import find_hindrance
from penstock.loading.values.outcome import StatementOutcome
from penstock.loading.values.plan import TargetPlan, table_after_creation

if TYPE_CHECKING:
    from psycopg import sql

    from penstock.core.values.job import TargetJob, Transform
    from penstock.core.values.table import TableFacts, TableName
    from penstock.loading.land.context import LandingContext, NoteStatement

_log = logging.getLogger(__name__)

# How many bytes the sorter merges by one statement. A small portion is enough, because the sorter stops between
# portions once it has found one bad record.
_PORTION_BYTES = 1024 * 1024


def _ignore() -> None:
    pass


def merge_whole(
    connection: Connection,
    parts: MergeParts,
    *,
    name_record: NameRecord = name_by_number,
    note_stored: Callable[[], None] = _ignore,
) -> MergeCounts:
    """Store all staged records in the table; without a key, in file order.

    Unlike COPY, the statement works with row-level security: its policies apply. A key with a null equals no other key,
    unless the index is NULLS NOT DISTINCT. `name_record` describes a record's position in errors. `note_stored` is
    called in the savepoint that has stored the rows. Raises DuplicateKey, DataError, TargetError, ServerError. Needs
    the rights that check_key checks; without a key, only INSERT on the columns.
    """
    if parts.key is None:
        # Do not count with RETURNING as other merges do, because it would need SELECT privileges and policies.
        inserted = _run(connection, parts, parts.compose(), name_record, note_stored).rowcount
        staged = count_staged(connection, parts.staging) if parts.target.suppressing_triggers else inserted
        return MergeCounts(staged=staged, inserted=inserted, suppressed=staged - inserted)
    if parts.refuses_duplicates:
        refuse_duplicates(connection, parts.staging, parts.key, name_record=name_record)
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
    with (
        explain_merge(
            connection,
            parts.columns,
            what=f"{'merging' if parts.key else 'inserting'} into {parts.target.name}",
            name_record=name_record,
            find_refused=lambda sqlstate: _find_refused(connection, parts, sqlstate),
            has_key=parts.key is not None,
        ),
        users_settings(connection),
    ):
        result = connection.execute(statement)
        # The savepoint of the user's settings has stored the rows, so this must be called within it.
        connection.execute(TO_OWN_SETTINGS)
        note_stored()
        return result


def _find_refused(connection: Connection, parts: MergeParts, sqlstate: str) -> RecordPosition | None:
    """Return a record that the table refuses with an SQLSTATE, or None if the sorter cannot be used or finds none."""
    table = table_identifier(parts.target.name).as_string(connection)
    found: RecordPosition | None = None
    # Errors here are ignored, because the original error is reported.
    with suppress(psycopg.Error, PenstockError), rolled_back(connection):
        if find_hindrance(connection, table) is None:
            sorter = MergeSorter(connection, parts, number=0, own_codes=[sqlstate], portion_bytes=_PORTION_BYTES)
            sorter.merge(limit=0)
            if not sorter.noted:
                settle([sorter])
            for record in sorter.refused.read():
                found = record.position
                break
    return found


class MergeStatement:
    """Stores the staged records of one target in its table. Methods raise PenstockError.

    `number` is the target's number in the job. `columns` are the columns of the staging table. `note_stored` is called
    in the savepoint in which a merge has stored the rows.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        number: int,
        job: TargetJob,
        facts: TableFacts,
        columns: Sequence[str],
        staging: TableName,
        note_stored: Callable[[], None] = _ignore,
    ) -> None:
        self._connection = connection
        self._number = number
        self._job = job
        self.facts = facts
        self._columns = columns
        self._staging = staging
        self._note_stored = note_stored

    @staticmethod
    def check_table(target: TargetPlan, connection: Connection, *, ledger_schema: str) -> None:
        """Raise TargetError if the table lacks what the statement needs. Change nothing."""

    def check(self) -> None:
        """Raise the error with which the server would refuse the statement at the load's end. Change nothing."""

    def find_parts(self) -> MergeParts | None:
        """Return the parts of the merge, None if bad records of this statement cannot be sorted out."""
        return None

    def run(self, name_record: NameRecord, note: NoteStatement) -> MergeCounts:
        """Store all records.

        `name_record` names a record in errors. `note` is called with the report of a user's statement.
        """
        raise NotImplementedError


class Merge(MergeStatement):
    """Inserts all records. With a key, updates or keeps the rows that have the records' keys."""

    @staticmethod
    def check_table(target: TargetPlan, connection: Connection, *, ledger_schema: str) -> None:
        """Raise TargetError if the table lacks the key, or if rules, publications or rights rule out the statement."""
        facts, job = target.facts, target.job
        if facts is not None:
            check_statements(connection, facts, job)
        if not job.key:
            return
        if facts is None:
            # The key becomes the primary key of the table that the load creates.
            check_key_names(table_after_creation(target), job.key, target.column_map.columns)
            return
        try:
            marked = tuple(read_assignments(job.sync_delete))
            columns = target.column_map.columns
            check_key(connection, facts, job.key, columns=columns, updates=job.landing.updates, marked=marked)
        except TargetError as error:
            if has_ledger(connection, ledger_schema) and find_changed(connection, ledger_schema, [facts.oid]):
                error.hint = "A load has dropped keys of the table, to rebuild them: see penstock repair --plan."
            raise

    def check(self) -> None:
        """Look for rules that would rewrite the merge, and let the server plan it."""
        check_statements(self._connection, self.facts, self._job)
        check_merge(self._connection, self.find_parts())

    def find_parts(self) -> MergeParts:
        """Return the parts of the merge."""
        return find_parts(
            self._connection,
            staging=self._staging,
            target=self.facts,
            columns=self._columns,
            key=self._job.key,
            updates=self._job.landing.updates,
            keep=self._job.keep,
        )

    def run(self, name_record: NameRecord, note: NoteStatement) -> MergeCounts:  # noqa: ARG002 (of other statements)
        """Merge all records."""
        return merge_whole(self._connection, self.find_parts(), name_record=name_record, note_stored=self._note_stored)


class TransformStatement(MergeStatement):
    """Runs the user's statement."""

    def check(self) -> None:
        """Let the server plan the statement."""
        check_transform(self._connection, self._sql, staging=self._staging)

    def run(self, name_record: NameRecord, note: NoteStatement) -> MergeCounts:  # noqa: ARG002 (of other statements)
        """Run the statement, and note what it has done."""
        staged = count_staged(self._connection, self._staging)
        done = run_transform(self._connection, self._sql, staging=self._staging)
        table = str(self.facts.name)
        said = StatementOutcome(name=self._sql.name, table=table, records=staged, tag=done.text, rows=done.rows)
        note(self._number, said)
        return MergeCounts(staged=staged, inserted=done.rows)

    @property
    def _sql(self) -> Transform:
        assert self._job.transform is not None
        return self._job.transform


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


class RejectingMerges:
    """The merges of one load that may reject records. Methods raise PenstockError."""

    def __init__(self, context: LandingContext) -> None:
        self._context = context
        self._plan = context.plan
        self._connection = context.connection
        self._store = RejectStore(context.schema, context.claim.load_id)
        self._sorters: list[MergeSorter] = []

    def run(
        self, statements: Sequence[MergeStatement], *, name_record: NameRecord, note: NoteStatement
    ) -> list[MergeCounts]:
        """Run the statements, and return for each the counts of the records that are not rejected.

        `name_record` names a record in errors. `note` is called with the report of each user's statement.
        """
        check_constraints_at_once(self._connection)
        results: list[MergeCounts | MergeSorter] = []
        for statement in statements:
            facts = statement.facts
            refusal = self._find_refusal(facts)
            parts = statement.find_parts() if refusal is None else None
            if parts is None:
                with explaining(refusal, facts):
                    results.append(statement.run(name_record, note))
            else:
                results.append(self._sort(parts, name_record))
        settle(self._sorters)
        self._refuse_too_many()
        for sorter in self._sorters:
            if sorter.refused.count():
                self._reject(sorter)
        return [result.counts() if isinstance(result, MergeSorter) else result for result in results]

    def _find_refusal(self, facts: TableFacts) -> str | None:
        """Return a hint that says why a table's records cannot be rejected, or None if they can."""
        if not self._plan.is_repeatable:
            return "Say --spool: a record is rejected byte for byte, and a pipe cannot be read again for that."
        return find_refusal(self._connection, facts)

    def _sort(self, parts: MergeParts, name_record: NameRecord) -> MergeSorter:
        """Begin a merge. Raises DataError if --keep error is given and two records have the same key."""
        sorter = open_sorter(
            self._connection,
            parts,
            number=len(self._sorters),
            portion_bytes=self._plan.batch.merge_portion_bytes,
            name_record=name_record,
        )
        self._sorters.append(sorter)
        limit = self._find_limit()
        sorter.merge(limit=limit)
        if limit is not None and sorter.noted > limit:
            raise self._too_many(sorter)
        return sorter

    # ---------------------------------------------------------------- how many

    def _find_limit(self) -> int | None:
        most = self._plan.job.rules.max_rejects
        return None if most is None else max(0, most - self._store.count(self._connection))

    def _refuse_too_many(self) -> None:
        limit = self._find_limit()
        if limit is not None and sum(sorter.refused.count() for sorter in self._sorters) > limit:
            raise self._too_many(next(sorter for sorter in self._sorters if sorter.refused.count()))

    def _too_many(self, sorter: MergeSorter) -> PenstockError:
        most = self._plan.job.rules.max_rejects
        assert most is not None
        number, records = next(groupby(sorter.refused.read(), attrgetter("position.object_number")))
        finder = make_finder(self._context, number, sorter.refused.read_blocks()[number])
        shown = list(islice(finder.find(records), _SHOWN))
        return too_many_rejects(most, shown, uris={number: self._context.objects[number].source.uri})

    # ---------------------------------------------------------------- rejected

    def _reject(self, sorter: MergeSorter) -> None:
        """Insert refused records into the ledger's rejects, and subtract them from the rows of their ranges."""
        blocks = sorter.refused.read_blocks()
        for number, records in groupby(sorter.refused.read(), attrgetter("position.object_number")):
            finder = make_finder(self._context, number, blocks[number])
            count = self._write(finder.find(records))
            correction = Correction(object_number=number, rows=-count, suppressed=0, form=finder.form)
            self._store.correct(self._connection, [correction])

    def _write(self, rejects: Iterator[Reject]) -> int:
        """Insert records into the ledger's rejects in groups, and return how many there were."""
        count = 0
        for group in _groups(rejects):
            self._store.insert(self._connection, group)
            count += len(group)
        return count


def open_sorter(
    connection: Connection, parts: MergeParts, *, number: int, portion_bytes: int, name_record: NameRecord
) -> MergeSorter:
    """Return the sorter of a merge. `number` distinguishes the merges of a transaction.

    Raises DataError if --keep error is given and two records have the same key, ServerError.
    """
    if parts.key is not None and parts.refuses_duplicates:
        refuse_duplicates(connection, parts.staging, parts.key, name_record=name_record)
    own_codes = _find_own_codes(parts.target)
    return MergeSorter(connection, parts, number=number, own_codes=own_codes, portion_bytes=portion_bytes)


def find_refusal(connection: Connection, facts: TableFacts) -> str | None:
    """Return a hint that says why a table's records cannot be rejected, or None if they can. Raises ServerError."""
    with translate_errors(f"looking up table {facts.name}"):
        return find_hindrance(connection, table_identifier(facts.name).as_string(connection))


@contextmanager
def explaining(hint: str | None, facts: TableFacts) -> Iterator[None]:
    """Add `hint`, which says why records are not rejected, to an error that a record of the table causes."""
    try:
        yield
    except PenstockError as error:
        if hint is not None and error.sqlstate is not None and is_own_code(error.sqlstate, _find_own_codes(facts)):
            error.hint = hint
        raise


def _find_own_codes(facts: TableFacts) -> tuple[str, ...]:
    """Return the beginnings of the SQLSTATEs of errors that a record itself causes."""
    return (*RECORD_CODES, _POLICY) if facts.row_security_applies else RECORD_CODES


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
