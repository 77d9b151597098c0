"""The statements that store staged records in their table: a merge, and a transform; STATEMENTS lists them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import TargetError
from penstock.model.load.outcome import StatementOutcome
from penstock.model.load.plan import table_after_creation
from penstock.server.changes.records import find_changed
from penstock.server.ledger.schema import has_ledger
from penstock.server.merge.merge import MergeCounts, MergeParts, check_merge, count_staged, find_parts
from penstock.server.merge.merge_key import check_key, check_key_names
from penstock.server.merge.merge_transform import check_transform, run_transform
from penstock.server.merge.merge_whole import merge_whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.loading.landing.context import NoteStatement
    from penstock.model.load.job import TargetJob
    from penstock.model.load.job import Transform as Sql
    from penstock.model.load.plan import TargetPlan
    from penstock.model.server.table import TableFacts, TableName
    from penstock.server.connect.connection import Connection
    from penstock.server.merge.merge_errors import NameRecord


class Statement:
    """Stores the staged records of one target in its table. Methods raise PenstockError.

    `number` is the target's number in the job, `columns` are those of the staging table.
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
    ) -> None:
        self._connection = connection
        self._number = number
        self._job = job
        self.facts = facts
        self._columns = columns
        self._staging = staging

    @staticmethod
    def check_table(target: TargetPlan, connection: Connection, *, ledger_schema: str) -> None:
        """Raise TargetError if the table lacks what the statement needs; changes nothing."""

    def check(self) -> None:
        """Raise what the server would refuse at the load's end; changes nothing."""

    def find_parts(self) -> MergeParts | None:
        """Return the parts of a merge whose bad records can be sorted out, or None if it is not such a merge."""
        return None

    def run(self, name_record: NameRecord, note: NoteStatement) -> MergeCounts:
        """Store all records. `name_record` names a record in errors, `note` is told of a statement of the user's."""
        raise NotImplementedError


class Merge(Statement):
    """Inserts all records, or looks for the rows with their keys."""

    @staticmethod
    def check_table(target: TargetPlan, connection: Connection, *, ledger_schema: str) -> None:
        """Raise TargetError if the table lacks the key."""
        facts, job = target.facts, target.job
        if not job.key:
            return
        if facts is None:
            # The key becomes the primary key of the table that the load creates.
            check_key_names(table_after_creation(target), job.key, target.column_map.columns)
            return
        try:
            check_key(connection, facts, job.key, columns=target.column_map.columns, updates=job.landing.updates)
        except TargetError as error:
            if has_ledger(connection, ledger_schema) and find_changed(connection, ledger_schema, [facts.oid]):
                error.hint = "A load has dropped keys of the table, to rebuild them: see penstock repair --plan."
            raise

    def check(self) -> None:
        """Let the server plan the merge."""
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
        return merge_whole(self._connection, self.find_parts(), name_record=name_record)


class Transform(Statement):
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
    def _sql(self) -> Sql:
        assert self._job.transform is not None
        return self._job.transform


# Each statement by the name that landings have for it (model/load/mode.py).
STATEMENTS: dict[str, type[Statement]] = {"merge": Merge, "transform": Transform}
