"""Checks the new objects of a load, and resumes those that have changed or are missing since the load began."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import compress
from typing import TYPE_CHECKING

from penstock.errors import DataError, SourceError
from penstock.files.listing import is_remote
from penstock.loading.plan.dialects import Depth, refuse_other_dialects
from penstock.loading.plan.notices import unpublished_notice
from penstock.loading.reading.objects import compare_committed
from penstock.model.load.ledger import Claim, CommittedRange, Coverage
from penstock.server.connect.errors import in_transaction
from penstock.server.ledger.committed import move_end, read_ranges
from penstock.server.ledger.lookup import find_loaded
from penstock.server.ledger.targets import drop_ranges
from penstock.server.table.staging import delete_landed

if TYPE_CHECKING:
    from penstock.loading.claim.decide import ClaimFacts, Decision, LoadDecision
    from penstock.loading.context import LoadTools
    from penstock.loading.plan.work import ObjectWork
    from penstock.model.load.plan import LoadPlan
    from penstock.server.connect.connection import Connection
    from penstock.server.ledger.committed import OtherObject


def check_new_objects(facts: ClaimFacts, decision: LoadDecision, tools: LoadTools, *, depth: Depth = "columns") -> None:
    """Raise DataError if a new or changed object contradicts its target's dialect, and warn of renamed objects.

    An object is renamed if the same object was loaded into the same table under another name.
    """
    unseen = [each.action == "new" or each.is_changed for each in decision.objects]
    refuse_other_dialects(list(compress(facts.works, unseen)), tools.sources, tools.warnings, depth=depth)
    renamed = facts.found.renamed
    news = [each.item for each in decision.objects if each.action == "new" and each.number in decision.unshared]
    found = [item for item in news if item.number in renamed]
    if not found:
        return
    other, load_id = renamed[found[0].number]
    kept = "size and ETag" if is_remote(other) else "size, inode and time of modification"
    more = f" (and {len(found) - 1} more like it)" if len(found) > 1 else ""
    tools.warnings.warn(
        "renamed",
        f'"{found[0].uri}" may be "{other}" under another name, which load {load_id} has loaded'
        f" into the same table: {kept} are the same{more}",
        uri=found[0].uri,
    )


def warn_of_unpublished(plan: LoadPlan, tools: LoadTools, ledger: Connection | None = None) -> None:
    """Warn of tables that are not replicated although others are, except tables that have been loaded before."""
    facts = {target.table: target.facts for target in plan.targets if target.facts is not None}
    found = {table: notice for table, each in facts.items() if (notice := unpublished_notice(each)) is not None}
    if found and ledger is not None:
        for table in find_loaded(ledger, tools.ledger.schema, list(found)):
            del found[table]
    for notice in found.values():
        tools.warnings.add(notice)


def check_depth(plan: LoadPlan) -> Depth:
    """Return how much of each object's first block a plan checks.

    If the load stops at the first bad record, a bad record in a first block is an error of the plan.
    """
    return "records" if plan.job.rules.on_error == "stop" else "columns"


class ResumedLoad:
    """A load that this process has claimed, whose sources may have changed since it began."""

    def __init__(self, plan: LoadPlan, tools: LoadTools, connection: Connection, claim: Claim) -> None:
        self._plan = plan
        self._tools = tools
        self._schema = tools.ledger.schema
        self._connection = connection
        self._claim = claim

    def drop_missing(self, coverage: Mapping[int, Coverage], missing: Sequence[OtherObject]) -> None:
        """Remove from the load the objects that the sources no longer list, with a warning.

        Raises SourceError if a part of such an object is loaded. If several hosts load, nothing is removed: this host
        leaves them to those that have them.
        """
        if self._plan.job.rules.join:
            return
        for number, uri, _ in missing:
            found = coverage.get(number)
            if found is not None and not found.is_complete:
                raise SourceError(
                    f'"{uri}" does not exist any more, and a part of it is loaded',
                    detail=self._describe_part(found.rows),
                    hint="Restore it, or remove the load's rows and run "
                    f"penstock loads forget {self._claim.load_id} --keep-rows.",
                )
        unread = {number: uri for number, uri, _ in missing if number not in coverage}
        if unread:
            self._tools.ledger.drop_objects(self._connection, self._claim, list(unread))
            names = ", ".join(f'"{uri}"' for uri in unread.values())
            self._tools.warnings.warn("source-gone", f"skipping objects that were not begun and are missing: {names}")

    def resume_changed(self, work: ObjectWork, decision: Decision) -> ObjectWork:
        """Resume an object that may have changed, if its committed part is the same.

        If the committed part has changed, the object is loaded from its beginning, if its records are in a staging
        table and can be deleted there. Raises DataError if not.
        """
        committed = read_ranges(self._connection, self._schema, self._claim.load_id, work.number)
        if self._plan.job.rules.join:
            self._refuse_changed(work, committed)
            return work
        is_known = decision.item.version is not None
        if committed and is_known and self._plan.job.rules.changed == "skip":
            return self._leave_as_loaded(work)
        has_records = any(row.ranges for row in committed)
        # If nothing is committed, do not read the object to compare it: a pipe can be read only once.
        state = compare_committed(work, committed, self._tools) if has_records else "changed"
        if state == "changed" and has_records and not work.has_positions:
            raise self._changed(work)
        with in_transaction(self._connection, "resuming an object that has changed"):
            self._tools.ledger.hold_claim(self._connection, self._claim)
            self._tools.ledger.change_version(self._connection, self._claim, work.number, decision.item)
            if state != "changed":
                end = None if state == "grown" else work.coverage.ranges[-1][1]
                move_end(self._connection, self._schema, self._claim, work.number, end=end)
                return replace(work, coverage=replace(work.coverage, has_end=state == "same"))
            if committed:
                self._drop_committed(work)
        return replace(work, coverage=Coverage())

    def _refuse_changed(self, work: ObjectWork, committed: Sequence[CommittedRange]) -> None:
        """Raise DataError if the committed part of an object has changed, or if a complete object has grown.

        Another host may be loading the object now, so the ledger's record of it stays as it is.
        """
        if any(row.ranges for row in committed):
            state = compare_committed(work, committed, self._tools)
            if state == "changed" or (state == "grown" and work.coverage.has_end):
                raise self._changed(work)

    def _changed(self, work: ObjectWork) -> DataError:
        return DataError(
            f'"{work.source.uri}" has changed in a part that is already loaded',
            detail=f"Load {self._claim.load_id} has committed {work.coverage.rows} of its rows: these differ"
            " now, or the header does.",
            hint="Restore the object, or remove the load's rows and run "
            f"penstock loads forget {self._claim.load_id} --keep-rows.",
        )

    def _leave_as_loaded(self, work: ObjectWork) -> ObjectWork:
        if not work.coverage.is_complete:
            raise DataError(
                f'"{work.source.uri}" has changed, and a part of it is loaded',
                detail=self._describe_part(work.coverage.rows),
                hint="Restore the object, or use --changed load, which resumes if these rows are unchanged.",
            )
        return work

    def _describe_part(self, rows: int) -> str:
        if self._plan.fills_tables:
            return f"Load {self._claim.load_id} has committed {rows:,} of its rows."
        return f"Load {self._claim.load_id} has staged {rows:,} of its records."

    def _drop_committed(self, work: ObjectWork) -> None:
        """Delete the committed rows of an object, in the caller's transaction, to load it from its beginning."""
        if work.landing is not None and work.has_positions:
            delete_landed(self._connection, work.landing, work.number)
        drop_ranges(self._connection, self._schema, self._claim, [work.number])
        message = f'"{work.source.uri}" has changed: it is loaded from its beginning'
        self._tools.warnings.warn("source-changed", message, uri=work.source.uri)
