"""Rejected records of loads that land by another table, tried again: staged and merged as the load's own were.

All of them in one transaction: a temporary staging table takes the place of the load's, which is gone, and the ledger's
counts are corrected with it. A record counts as if its file were loaded now: what the load has stored was there before.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from penstock.errors import TargetError
from penstock.loading.again import committing, make_pieces, replace_raw
from penstock.loading.form import form_from_json, make_origin
from penstock.loading.identity import job_from_json
from penstock.loading.merge_rejects import begin_sorting
from penstock.loading.reasons import describe_refused
from penstock.loading.salvage import Salvage
from penstock.loading.ways import merge_mode
from penstock.model.ledger import LandedCounts
from penstock.model.reject import Correction
from penstock.model.table import TableName
from penstock.server.catalog import find_table
from penstock.server.copy import CopySession
from penstock.server.identity import LoadedTable, send_check
from penstock.server.landing import drop_landing_table, make_landing_table
from penstock.server.ledger.ending import commit_durably
from penstock.server.ledger.rejects import RejectStore
from penstock.server.ledger.targets import add_counts
from penstock.server.merge import MergeCounts, count_staged
from penstock.server.merge_key import check_key
from penstock.server.merge_sorting import MergeSorter, can_sort_into, can_sort_merges, settle
from penstock.server.merge_transform import run_transform

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.loading.tools import LoadTools
    from penstock.model.job import TargetJob
    from penstock.model.ledger import Claim, LandedTarget
    from penstock.model.reject import RecordForm, StoredForm
    from penstock.model.table import TableFacts
    from penstock.server.connection import Connection

# How many refused records are written down at once.
_WRITTEN_RECORDS = 1000


@dataclass(slots=True, kw_only=True)
class _Target:
    """A target, and the records of it that are tried: the table they are staged in, once it is made, and its merge."""

    landed: LandedTarget
    job: TargetJob
    facts: TableFacts
    forms: Mapping[int, RecordForm]
    staging: TableName
    oid: int = 0
    merge: MergeSorter | MergeCounts | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns that the files fill."""
        return next(iter(self.forms.values())).column_map.columns


def retry_landed(
    claim: Claim,
    landed: Sequence[LandedTarget],
    tools: LoadTools,
    connection: Connection,
    *,
    job: str | None,
    raws: Mapping[tuple[int, int], bytes] | None,
) -> LandedCounts:
    """Load rejected records of a load's targets once more, with the bytes of `raws`; return the sum of their counts.

    `job` is the load's as JSON. Raises PenstockError, and then nothing has changed.
    """
    forms = RejectStore(tools.ledger.schema, claim.load_id).read_forms(connection)
    wanted = [target for target in landed if any(number in forms for number in target.objects)]
    total = LandedCounts(number=0, target_oid=0)
    if not wanted:
        return total
    for counts in _LandedAgain(claim, tools, connection, job=job, raws=raws, forms=forms).run(wanted):
        total = _sum(total, counts)
    return total


class _LandedAgain:
    def __init__(
        self,
        claim: Claim,
        tools: LoadTools,
        connection: Connection,
        *,
        job: str | None,
        raws: Mapping[tuple[int, int], bytes] | None,
        forms: Mapping[int, StoredForm],
    ) -> None:
        self._claim = claim
        self._tools = tools
        self._connection = connection
        self._job = job
        self._raws = raws
        self._forms = forms
        self._store = RejectStore(tools.ledger.schema, claim.load_id)
        self._session = CopySession(connection, fence=tools.ledger.fence(claim), is_protected=True)

    def run(self, landed: Sequence[LandedTarget]) -> list[LandedCounts]:
        self._refuse_unfit(landed)
        targets = [self._find(target) for target in landed]
        with committing(self._session, self._claim):
            for target in targets:
                self._stage(target)
            with self._session.between_copies() as connection:
                merged = [target.facts.oid for target in targets]
                for number, target in enumerate(targets):
                    target.merge = self._merge(target, number=number, merged=merged)
                settle([target.merge for target in targets if isinstance(target.merge, MergeSorter)])
                counts = [self._write(connection, target) for target in targets]
            self._session.execute(commit_durably())
        return counts

    # ---------------------------------------------------------------- before it

    def _refuse_unfit(self, landed: Sequence[LandedTarget]) -> None:
        numbers = [number for target in landed for number in target.objects]
        if self._job is None or len(set(numbers)) < len(numbers):
            reason = "Its sources were a pipe." if self._job is None else "Two of its targets have the same table."
            raise TargetError(
                "it is not known how the records of this load are to be merged",
                detail=reason,
                hint="Write them to a file with penstock rejects --reject-file, and load that with the same --mode.",
            )
        if not can_sort_merges(self._connection):
            raise TargetError(
                "rejected records of this load need a temporary table to be merged from",
                hint="Grant the role TEMPORARY on the database and USAGE on language plpgsql.",
            )

    def _find(self, landed: LandedTarget) -> _Target:
        assert self._job is not None
        job = job_from_json(self._job).targets[landed.number]
        name = TableName(schema=landed.schema, name=landed.table)
        facts = find_table(self._connection, name)
        if facts is None or facts.oid != landed.target_oid:
            raise TargetError(
                f'table "{name}" is gone or not the one that the load was for',
                hint="Write the records to a file with penstock rejects --reject-file, and load that.",
            )
        if not can_sort_into(self._connection, facts):
            raise TargetError(
                f'table "{name}" is a view, has foreign partitions, or rules on INSERT',
                detail="It is not certain what becomes of each of several records there.",
                hint="Write the records to a file with penstock rejects --reject-file, and load that.",
            )
        target = _Target(
            landed=landed,
            job=job,
            facts=facts,
            forms={
                number: form_from_json(self._forms[number].form) for number in landed.objects if number in self._forms
            },
            staging=TableName(schema="pg_temp", name=f"penstock_again_{landed.number}"),
        )
        if (mode := merge_mode(job)) is not None:
            check_key(self._connection, facts, job.key, columns=target.columns, mode=mode)
        return target

    # ---------------------------------------------------------------- within it

    def _stage(self, target: _Target) -> None:
        """Copy a target's records to a table of their own; those that COPY refuses stay as they are now."""
        staging = target.staging
        with self._session.between_copies() as connection:
            target.oid = make_landing_table(
                connection,
                schema=staging.schema or "",
                name=staging.name,
                target=target.facts,
                columns=target.columns,
                as_text=target.job.transform is not None,
            )
        origins = {
            number: make_origin(
                form,
                number=number,
                uri=self._forms[number].uri,
                server_major=self._tools.server_major,
                landing=staging,
            )
            for number, form in target.forms.items()
        }
        beyond = None
        salvage = Salvage(self._session, parks=False)
        while True:
            with self._session.between_copies() as connection:
                found = self._store.read(connection, beyond=beyond)
            if not found:
                return
            beyond = found[-1].object_number, found[-1].start
            rejects = replace_raw([reject for reject in found if reject.object_number in origins], self._raws)
            pieces, unwritable = make_pieces(rejects, origins)
            salvaged = salvage.send(pieces)
            with self._session.between_copies() as connection:
                if self._raws is not None:
                    self._store.renew(connection, rejects)
                self._store.renew(connection, [*unwritable, *salvaged.rejects])

    def _merge(self, target: _Target, *, number: int, merged: Sequence[int]) -> MergeSorter | MergeCounts:
        connection = self._connection
        if target.job.transform is not None:
            staged = count_staged(connection, target.staging)
            inserted = run_transform(connection, target.job.transform, staging=target.staging).rows
            return MergeCounts(staged=staged, inserted=inserted)
        sorter = begin_sorting(
            connection,
            target.job,
            target.facts,
            columns=target.columns,
            staging=target.staging,
            number=number,
            merged=merged,
            name_object=lambda number: self._forms[number].uri,
        )
        sorter.merge()
        return sorter

    def _write(self, connection: Connection, target: _Target) -> LandedCounts:
        """Take what went in out of the rejects, note why the others did not, and correct the counts."""
        merge = target.merge
        if isinstance(merge, MergeSorter):
            counted = merge.counts()
            self._note_refused(connection, merge)
            merge.refused.discard()
        else:
            assert merge is not None
            counted = merge
        gone = self._store.remove_landed(connection, target.staging)
        if sum(gone.values()) != counted.staged:
            raise TargetError("rejected records of this load were loaded or removed just now", hint="Try again.")
        counts = counted.landed(number=target.landed.number, target_oid=target.facts.oid)
        corrections = [Correction(object_number=number, rows=count, suppressed=0) for number, count in gone.items()]
        self._store.correct(connection, corrections, stored=counts.inserted + counts.updated)
        add_counts(connection, self._tools.ledger.schema, self._claim.load_id, counts)
        send_check(connection, LoadedTable(target.facts.name, target.facts.oid))()
        staging = target.staging
        drop_landing_table(connection, schema=staging.schema or "", name=staging.name, oid=target.oid)
        return counts

    def _note_refused(self, connection: Connection, sorter: MergeSorter) -> None:
        notes = []
        for record in sorter.refused.read():
            # Each was a block by itself, so its block's offset is its own.
            notes.append((record.object_number, record.block_start, describe_refused(record)))
            if len(notes) == _WRITTEN_RECORDS:
                self._store.note_reasons(connection, notes)
                notes = []
        self._store.note_reasons(connection, notes)


def _sum(one: LandedCounts, other: LandedCounts) -> LandedCounts:
    names = [item.name for item in fields(LandedCounts) if item.name not in ("number", "target_oid")]
    return replace(one, **{name: getattr(one, name) + getattr(other, name) for name in names})
