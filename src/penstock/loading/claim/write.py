"""Takes the claim of a load, and writes the decision: objects, columns of tables, the tables that COPY fills.

A new load is recorded in the same transaction that creates its tables. A resumed load is claimed first. Then its
objects are added, removed, or resumed from another version, as decided.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import field, replace
from functools import partial

from penstock.changes.records import read_changes
from penstock.changes.tables.parts import PART_KINDS
from penstock.core.catalogue.locking import telling_once, with_lock_retries
from penstock.core.catalogue.staging import delete_landed
from penstock.core.catalogue.tables import CreatedTable, LoadedTable
from penstock.core.connect.errors import in_transaction
from penstock.core.errors import DataError, SourceError, TargetError
from penstock.core.slotted import slotted
from penstock.core.values.table import TableFacts, TableName
from penstock.ledger.committed import OtherObject, find_others, move_end, read_coverage, read_ranges
from penstock.ledger.locks import find_workers
from penstock.ledger.targets import drop_landing, drop_ranges, find_landings
from penstock.ledger.values import UNKNOWN_CHECKSUM, Claim, Coverage
from penstock.loading.claim.decide import ClaimFacts, LoadDecision, ObjectDecision, group_objects
from penstock.loading.claim.facts import FactsReader, map_tables, read_targets
from penstock.loading.claim.member import Member
from penstock.loading.formats import format_of
from penstock.loading.imports.route import refuse_parts
from penstock.loading.land.context import LandingContext, TargetLanding
from penstock.loading.plan.identity import digest
from penstock.loading.types.alter import alter_table
from penstock.loading.values.objects import PlannedObject
from penstock.loading.values.types import ColumnChange


@slotted
class ClaimedLoad:
    """A load that this process has claimed: its objects, what is left to load, and the tables that COPY fills."""

    claim: Claim
    member: Member
    # The objects that are not complete. Empty if this process claims objects later.
    work: Sequence[PlannedObject] = ()
    # Each object that this host has by its number, including complete ones.
    objects: Mapping[int, PlannedObject]
    # The URIs of this host's objects that are not part of the load, because it began without them.
    left: tuple[str, ...]
    # How many objects earlier loads have loaded.
    skipped: int
    # The rows that earlier runs of this load have committed, including those in landing tables.
    rows_before: int = 0
    # The tables created for the load, by their names in the job.
    created: Mapping[TableName, CreatedTable] = field(default_factory=dict)
    landings: tuple[TargetLanding, ...]
    # The table that each name in a COPY command means.
    tables: Mapping[TableName, LoadedTable]
    # What is not restored yet; see LedgerFindings.
    changed_by: Mapping[int, Collection[str]] = field(default_factory=dict)
    server_holds: Sequence[str] = ()


class _ObjectTakenError(Exception):
    """Another load has recorded one of the objects meanwhile."""


class ClaimWriter:
    """Writes the decisions about one load into the ledger, in the session that holds the load's lock.

    `unreadable` are the ledger's numbers of the objects that cannot be read to their end. Methods raise PenstockError.
    """

    def __init__(
        self,
        reader: FactsReader,
        facts: ClaimFacts,
        decision: LoadDecision,
        member: Member,
        unreadable: Collection[int],
    ) -> None:
        self._plan, self._tools, self._connection = reader.plan, reader.tools, reader.connection
        self._ledger = reader.tools.ledger
        self._reader = reader
        self._facts = facts
        self._decision = decision
        self._member = member
        self._unreadable = unreadable
        self._identity = digest(facts.meaning)

    def write(self) -> ClaimedLoad | None:
        """Begin or resume the load in the ledger, create the tables that COPY fills, and return what is left to load.

        Returns None if another load has claimed one of the objects since the facts were read. The caller then reads the
        facts and decides again.
        """
        running = self._facts.found.running
        if running is not None:
            self._refuse_disabled(running)
        self._restore_replaced()
        self._check_landings()
        tables = read_targets(self._plan, self._facts.created, self._connection)
        return self._begin(tables) if running is None else self._resume(running, tables)

    def _refuse_disabled(self, load_id: str) -> None:
        """Raise TargetError if an earlier run of the load has disabled triggers, and this one is not to do so."""
        if any(load_id in loads for loads in self._facts.found.changed_by.values()):
            from penstock.loading.indexes.table_changes import TableChanges  # noqa: PLC0415 (32 ms, after a load that died)

            TableChanges(self._plan, self._tools).refuse_disabled(load_id, self._connection)

    def _restore_replaced(self) -> None:
        if oids := [each.facts.oid for each in self._plan.targets if each.is_replaced and each.facts is not None]:
            from penstock.loading.indexes.table_changes import TableChanges  # noqa: PLC0415 (32 ms, after a load that died)

            TableChanges(self._plan, self._tools).restore_replaced(oids, self._connection)

    def _check_landings(self) -> None:
        if self._plan.needs_more_than_copy:
            from penstock.loading.land.landing import check_landings  # noqa: PLC0415 (20 ms, for who merges or replaces)

            check_landings(self._plan.targets, self._connection, ledger_schema=self._ledger.schema)

    def _begin(self, tables: Sequence[TableFacts]) -> ClaimedLoad | None:
        """Record a new load in the transaction that creates the tables which COPY fills instead of the targets."""
        is_one = any(target.changes or not target.fills_table for target in self._plan.targets)
        try:
            with in_transaction(self._connection, "recording the load") if is_one else nullcontext():
                claim, landings = self._record(tables)
        except _ObjectTakenError:
            return None
        return self._describe(claim, tables, landings, {}, ())

    def _record(self, tables: Sequence[TableFacts]) -> tuple[Claim, tuple[TargetLanding, ...]]:
        """Alter the tables and record the load. Raises _ObjectTakenError, so that nothing is altered without a load."""
        made = {name: table.name for name, table in self._facts.created.items()}
        # This comes first: while it waits for another load's batch on the table, no row of the ledger is locked.
        self._alter()
        claim = self._ledger.begin(
            self._connection,
            load_id=self._plan.load_id,
            identity=self._identity,
            lock=self._reader.lock,
            process=self._member.process,
            tables=[(str(made.get(target.table, target.table)), target.table in made) for target in self._plan.targets],
            meaning=self._facts.meaning,
            job=self._reader.job_text(),
            objects=self._decision.new,
            unshared=self._decision.unshared,
            seen=self._seen(),
        )
        if claim is None:
            raise _ObjectTakenError
        return claim, self._open_landings(claim, tables, ())

    def _resume(self, load_id: str, tables: Sequence[TableFacts]) -> ClaimedLoad | None:
        """Take over a load, then find or create its tables."""
        claim = self._take_over(load_id)
        if self._facts.found.is_copied:
            self._ledger.adopt(self._connection, claim, identity=self._identity, meaning=self._facts.meaning)
        if self._decision.new and not self._ledger.add_objects(
            self._connection, claim, self._decision.new, unshared=self._decision.unshared, seen=self._seen()
        ):
            return None
        self._alter()
        numbers = [each.number for each in self._decision.objects if each.is_part]
        others = find_others(self._connection, self._ledger.schema, claim.load_id, numbers)
        gone = [] if self._plan.job.rules.join else [each.number for each in others]
        self._remove_landed(claim, [*self._unreadable, *gone])
        landings = self._open_landings(claim, tables, others)
        coverage = read_coverage(self._connection, self._ledger.schema, claim.load_id)
        if not self._plan.job.rules.join:
            self._drop_missing(claim, coverage, others)
        return self._describe(claim, tables, landings, coverage, others)

    def _seen(self) -> set[str]:
        return {each.load_id for each in self._facts.found.known}

    def _take_over(self, load_id: str) -> Claim:
        """Wait until no transaction of an earlier loader of the load is open, and return a claim of the load.

        If the load is joint, its other members continue. The sessions of a killed loader may still be committing, and
        the rows that they commit count as loaded. Raises TargetError if such sessions exist and the load must not wait.
        """
        is_shown = False
        take = partial(
            self._ledger.take_over,
            self._connection,
            load_id,
            process=self._member.process,
            is_joint=self._plan.job.rules.join,
            job=self._reader.job_text(),
            is_own_job=self._tools.resumes is None,
        )
        claim = take()
        while claim is None:
            workers = find_workers(self._connection, load_id)
            calls = " ".join(f"SELECT pg_terminate_backend({pid});" for pid in workers)
            if not self._plan.job.rules.wait:
                raise TargetError(
                    f"sessions of load {load_id} are still running",
                    detail=f"Backends: {', '.join(map(str, workers)) or 'just ended'}.",
                    hint=f"Wait for them, or end them: {calls}" if calls else "Try again.",
                )
            if not is_shown and workers:
                self._tools.notice(
                    f"waiting for sessions of load {load_id} that are still running; to end them: {calls}"
                )
                is_shown = True
            # Without such sessions, a session of somebody else has locked the load's row: wait as for any other lock.
            claim = take(is_patient=not workers)
        return claim

    # ---------------------------------------------------------------- tables

    def _alter(self) -> None:
        """Add and widen columns.

        If the locks are not free, roll back to a savepoint and retry, so that readers can run.
        """
        for target in {target.table: target for target in self._plan.targets if target.changes}.values():
            facts = target.facts
            if facts is not None:
                with_lock_retries(
                    self._connection,
                    partial(
                        alter_table,
                        self._connection,
                        facts.name,
                        facts.oid,
                        target.changes,
                        partial(self._refuse_dropped, facts),
                    ),
                    relations=[facts.oid],
                    deadline_s=self._plan.job.rules.retry_for,
                    on_blocked=telling_once(self._tools.notice, f"alter table {facts.name}"),
                )

    def _refuse_dropped(self, facts: TableFacts, missing: Sequence[ColumnChange]) -> None:
        """Raise TargetError if columns get other types while dropped indexes or keys may need the present ones."""
        if facts.oid not in self._facts.found.changed_by or all(change.was is None for change in missing):
            return
        changes = read_changes(self._connection, self._ledger.schema, target_oid=facts.oid)
        if any(change.kind in PART_KINDS and not change.is_copied for change in changes):
            raise TargetError(
                f'columns of table "{facts.name}" cannot get other types now',
                detail="A load has dropped indexes or keys, which are not restored yet.",
                hint="Run penstock repair when no load into the table runs, and then the load again.",
            )

    def _open_landings(
        self, claim: Claim, tables: Sequence[TableFacts], others: Sequence[OtherObject]
    ) -> tuple[TargetLanding, ...]:
        """Find or create the tables that COPY fills, for each target that has objects in this load.

        This includes objects that the sources no longer have, because their records are stored at the load's end.
        """
        if not self._plan.needs_more_than_copy:
            return ()
        from penstock.loading.land.landing import open_landings  # noqa: PLC0415 (20 ms, for who merges or replaces)

        objects = group_objects(self._facts, self._decision)
        for other in others:
            for index, table in enumerate(tables):
                if table.oid == other.target_oid:
                    objects.setdefault(index, []).append(other.number)
        context = LandingContext(plan=self._plan, tools=self._tools, connection=self._connection, claim=claim)
        return open_landings(context, tables, objects, identity=self._identity)

    # ---------------------------------------------------------------- objects of a resumed load

    def _remove_landed(self, claim: Claim, numbers: Sequence[int]) -> None:
        """Delete the committed records of objects that cannot be read or are gone, but not those in the targets.

        If a table that will replace another has rows of such an object, all rows of that table are loaded again.
        """
        connection, schema = self._connection, self._ledger.schema
        if not numbers or not (begun := read_coverage(connection, schema, claim.load_id, numbers=list(numbers))):
            return
        with in_transaction(connection, "removing objects that cannot be read"):
            self._ledger.hold_claim(connection, claim)
            for record, number in find_landings(connection, schema, claim.load_id, list(begun)):
                if record.kind == "replacement":
                    drop_landing(connection, schema, record, load_id=claim.load_id)
                elif record.table is not None:
                    delete_landed(connection, TableName(schema=record.schema, name=record.table), number)
                    drop_ranges(connection, schema, claim, [number])

    def _drop_missing(self, claim: Claim, coverage: Mapping[int, Coverage], missing: Sequence[OtherObject]) -> None:
        """Remove from the load the objects that the sources no longer list, with a warning.

        One whose rows are all in the table stays. Raises SourceError if a part of such an object is loaded.
        """
        for number, uri, _ in missing:
            found = coverage.get(number)
            if found is not None and not found.is_complete:
                raise SourceError(
                    f'"{uri}" does not exist any more, and a part of it is loaded',
                    detail=self._describe_part(claim, found.rows),
                    hint="Restore it, or remove the load's rows and run "
                    f"penstock loads forget {claim.load_id} --keep-rows.",
                )
        unread = {number: uri for number, uri, _ in missing if number not in coverage}
        if unread:
            self._ledger.drop_objects(self._connection, claim, list(unread))
            names = ", ".join(f'"{uri}"' for uri in unread.values())
            self._tools.warnings.warn("source-gone", f"skipping objects that do not exist any more: {names}")

    def _resume_changed(self, claim: Claim, work: PlannedObject, decision: ObjectDecision) -> PlannedObject:
        """Resume an object that may have changed, if its committed part is the same.

        If the committed part has changed, the object is loaded from its beginning, if its records are in a staging
        table and can be deleted there, or if all of them were rejected. In a joint load, another host may be loading
        the object now, so its record in the ledger is not changed. Raises DataError if the object cannot be resumed.
        """
        connection, schema = self._connection, self._ledger.schema
        committed = read_ranges(connection, schema, claim.load_id, work.number)
        has_records = any(row.ranges for row in committed)
        if self._plan.job.rules.join:
            state = format_of(work.target).compare(work, committed, self._tools) if has_records else "same"
            if state == "changed" or (state == "grown" and work.coverage.has_end):
                raise _changed(work, claim)
            return work
        if committed and decision.item.version is not None and self._plan.job.rules.changed == "skip":
            if not work.coverage.is_complete:
                raise self._changed_in_part(work, claim)
            return work
        # If nothing is committed, do not read the object to compare it: a pipe can be read only once.
        state = format_of(work.target).compare(work, committed, self._tools) if has_records else "changed"
        # What triggers have stored elsewhere is not counted if the server imported the object.
        is_moved = work.target.allows_suppressed_rows and any(row.checksum == UNKNOWN_CHECKSUM for row in committed)
        is_stored = is_moved or any(row.rows or row.suppressed for row in committed)
        if state == "changed" and is_stored and not work.has_positions:
            raise _changed(work, claim)
        with in_transaction(connection, "resuming an object that has changed"):
            self._ledger.hold_claim(connection, claim)
            self._ledger.change_version(connection, claim, work.number, decision.item)
            if state != "changed":
                end = None if state == "grown" else work.coverage.ranges[-1][1]
                move_end(connection, schema, claim, work.number, end=end)
                return replace(work, coverage=replace(work.coverage, has_end=state == "same"))
            if committed:
                self._drop_committed(claim, work)
        return replace(work, coverage=Coverage())

    def _drop_committed(self, claim: Claim, work: PlannedObject) -> None:
        """Delete the committed rows of an object in the caller's transaction, to load it from its beginning."""
        if work.landing is not None and work.has_positions:
            delete_landed(self._connection, work.landing, work.number)
        drop_ranges(self._connection, self._ledger.schema, claim, [work.number])
        message = f'"{work.source.uri}" has changed: it is loaded from its beginning'
        self._tools.warnings.warn("source-changed", message, uri=work.source.uri)

    def _changed_in_part(self, work: PlannedObject, claim: Claim) -> DataError:
        return DataError(
            f'"{work.source.uri}" has changed, and a part of it is loaded',
            detail=self._describe_part(claim, work.coverage.rows),
            hint="Restore the object, or use --changed load, which resumes if these rows are unchanged.",
        )

    def _describe_part(self, claim: Claim, rows: int) -> str:
        if self._plan.fills_tables:
            return f"Load {claim.load_id} has committed {rows:,} of its rows."
        return f"Load {claim.load_id} has staged {rows:,} of its records."

    # ---------------------------------------------------------------- what is left

    def _describe(
        self,
        claim: Claim,
        tables: Sequence[TableFacts],
        landings: tuple[TargetLanding, ...],
        coverage: Mapping[int, Coverage],
        others: Sequence[OtherObject],
    ) -> ClaimedLoad:
        """Return what is left of the load, in the order in which it is loaded."""
        plan, facts, decision = self._plan, self._facts, self._decision
        objects = self._find_objects(claim, landings, coverage)
        if plan.route.is_import:
            # The number of rows does not show whether an object is begun: triggers may have stored all its rows in
            # other tables.
            begun = [each for each in objects.values() if each.coverage.ranges and not each.coverage.is_complete]
            refuse_parts([each.source.uri for each in begun])
        unreadable = self._unreadable
        work = [each for each in objects.values() if not (each.coverage.is_complete or each.number in unreadable)]
        if plan.is_in_job_order:
            work.sort(key=lambda each: plan.load_order(each.target_index))
        self._member.bind(claim, objects, tuple(work), unseen=others, left=decision.left)
        landed = {number for landing in landings if landing.table is not None for number in landing.objects}
        return ClaimedLoad(
            claim=claim,
            member=self._member,
            work=tuple(work),
            objects=objects,
            left=decision.left,
            skipped=decision.skipped,
            rows_before=sum(each.rows for number, each in coverage.items() if number not in landed),
            created=facts.created,
            landings=landings,
            tables=map_tables(plan, tables, facts.created, landings),
            changed_by=facts.found.changed_by,
            server_holds=facts.found.server_holds,
        )

    def _find_objects(
        self, claim: Claim, landings: Sequence[TargetLanding], coverage: Mapping[int, Coverage]
    ) -> dict[int, PlannedObject]:
        """Return the objects that are not skipped, by number. Objects that have changed are resumed."""
        by_target = {landing.record.number: landing for landing in landings}
        objects = {}
        for work, each in zip(self._facts.works, self._decision.objects, strict=True):
            if not each.is_part:
                continue
            landing, made = by_target.get(work.target_index), self._facts.created.get(work.target.table)
            table = None if landing is None else landing.table
            left = replace(
                work,
                number=each.number,
                coverage=coverage.get(each.number, Coverage()),
                # The functions that find rejected records do not use the user's search_path.
                landing=made.name if table is None and made is not None else table,
                working_names=() if landing is None else landing.working_names,
            )
            objects[each.number] = self._resume_changed(claim, left, each) if each.is_changed else left
        return objects


def _changed(work: PlannedObject, claim: Claim) -> DataError:
    # The records of a table that is to replace another, or to become a partition, are in no table of the user's yet.
    other = (
        "run penstock repair, which drops what is staged, and load again with --changed load"
        if work.working_names
        else f"remove the load's rows and run penstock loads forget {claim.load_id} --keep-rows"
    )
    return DataError(
        f'"{work.source.uri}" has changed in a part that is already loaded',
        detail=f"Load {claim.load_id} has committed {work.coverage.rows} of its rows: these differ"
        " now, or the header does.",
        hint=f"Restore the object, or {other}.",
    )
