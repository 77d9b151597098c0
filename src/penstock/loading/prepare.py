"""Prepares a load before its first row: opens the ledger, claims the load, finds what is left of each object.

All of this runs in one session, which then holds the load's lock until the session ends. A new load is recorded in the
same transaction that creates its tables.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from itertools import compress
from typing import TYPE_CHECKING

from penstock.errors import DataError, SourceError, TargetError
from penstock.files.listing import is_remote, lasting_name
from penstock.loading.claim.claims import client_name, open_ledger, take_over
from penstock.loading.claim.decide import Decision, decide_objects, find_known
from penstock.loading.claim.prepared import NothingToDo, PreparedLoad, tables_made
from penstock.loading.plan.dialects import refuse_other_dialects
from penstock.loading.plan.identity import describe_changes, describe_meaning, digest, job_to_json
from penstock.loading.plan.notices import unpublished_notice
from penstock.loading.plan.plan import table_after_creation
from penstock.loading.plan.work import ObjectWork, all_objects, ledger_object
from penstock.loading.reading.objects import compare_committed
from penstock.model.load.ledger import Claim, Coverage, LedgerOutlook
from penstock.server.connect.errors import in_transaction
from penstock.server.connect.search_path import find_creation_schema
from penstock.server.ledger.committed import find_others, move_end, read_coverage, read_ranges
from penstock.server.ledger.listing import no_such_load
from penstock.server.ledger.lookup import find_loaded, read_meaning
from penstock.server.ledger.rights import read_rights
from penstock.server.ledger.schema import check_creation, check_staging, has_ledger
from penstock.server.ledger.targets import drop_ranges
from penstock.server.table.catalog import find_table
from penstock.server.table.identity import LoadedTable
from penstock.server.table.staging import delete_landed
from penstock.server.table.tables import CreatedTable, create_text_table, is_empty

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from penstock.loading.claim.prepared import TargetLanding
    from penstock.loading.context import LoadTools
    from penstock.loading.plan.dialects import Depth
    from penstock.model.load.job import LoadJob
    from penstock.model.load.ledger import KnownObject, LedgerObject
    from penstock.model.load.plan import LoadPlan
    from penstock.model.server.table import TableFacts, TableName
    from penstock.server.connect.connection import Connection
    from penstock.server.ledger.lookup import LedgerFindings


def prepare_load(
    plan: LoadPlan,
    tools: LoadTools,
    connection: Connection,
    *,
    created: tuple[CreatedTable, ...] = (),
    resumes: str | None = None,
    begun: str | None = None,
) -> PreparedLoad | NothingToDo:
    """Claim a load and return what is left of it; `created` are the tables that this process has created for it.

    If `resumes` is given, the load must be that one. `begun` is the id of the load that this process has claimed, or
    may have claimed: if another process has completed it since, there is nothing to do. Raises PenstockError; then
    nothing was recorded.
    """
    tools.connect.refuse_unwritable("load")
    return _Preparation(plan, tools, connection, created, resumes=resumes, begun=begun).run()


def foresee_load(plan: LoadPlan, tools: LoadTools, connection: Connection) -> LedgerOutlook:
    """Return what a load would do with each object, given the present ledger; changes nothing.

    Raises PenstockError if `prepare_load` would.
    """
    if not has_ledger(connection, tools.ledger.schema):
        check_creation(connection, tools.ledger.schema, is_publishing_allowed=tools.is_publishing_allowed)
        works = all_objects(plan.targets)
        refuse_other_dialects(works, tools.sources, tools.warnings, depth=_check_depth(plan))
        _warn_of_unpublished(plan, tools)
        return LedgerOutlook(exists=False, resumes=None, actions=tuple("new" for _ in works))
    schema = find_creation_schema(connection)
    wanted = dict.fromkeys(target.table for target in plan.targets if target.create_columns is not None)
    # Treat the tables as created, with oids that no table of a user has.
    created = tuple(
        CreatedTable(oid=oid, name=replace(name, schema=name.schema or schema), has_new_schema=False)
        for oid, name in enumerate(wanted, 1)
    )
    return _Preparation(plan, tools, connection, created, resumes=tools.resumes, begun=None).foresee()


class _Preparation:
    def __init__(
        self,
        plan: LoadPlan,
        tools: LoadTools,
        connection: Connection,
        created: tuple[CreatedTable, ...],
        *,
        resumes: str | None,
        begun: str | None,
    ) -> None:
        self._resumes = resumes
        self._begun = begun
        self._plan = plan
        self._tools = tools
        self._ledger = tools.ledger
        self._connection = connection
        self._created = created
        self._sources = [[lasting_name(source) for source in target.job.sources] for target in plan.targets]
        # The lock is on names, since a table that is not created yet has no oid.
        self._lock = digest(self._meaning([0] * len(plan.targets)))

    def run(self) -> PreparedLoad | NothingToDo:
        open_ledger(self._lock, self._tools, self._connection, waits=self._plan.job.rules.wait)
        if self._begun is not None:
            known = read_meaning(self._connection, self._ledger.schema, self._begun)
            if known is not None and known.state == "complete":
                return NothingToDo(skipped=len(all_objects(self._plan.targets)))
        if not self._created and any(target.create_columns is not None for target in self._plan.targets):
            with in_transaction(self._connection, "recording the load"):
                return self._claim(self._create_or_find())
        return self._claim(self._created)

    def _meaning(self, oids: list[int]) -> str:
        settings = self._tools.connect.input_settings
        return describe_meaning(self._plan, oids=oids, sources=self._sources, settings=settings)

    def _create_or_find(self) -> tuple[CreatedTable, ...]:
        """Create the tables, or find them if an earlier COMMIT created them and its answer was lost."""
        try:
            return self._create()
        except TargetError:
            if not self._ledger.has(self._connection, self._plan.load_id):
                raise
            wanted = dict.fromkeys(target.table for target in self._plan.targets if target.create_columns is not None)
            found = [facts for table in wanted if (facts := find_table(self._connection, table)) is not None]
            if len(found) < len(wanted):
                raise
        # It is not known any more if the schema was created too, so it is never dropped.
        return tuple(CreatedTable(oid=facts.oid, name=facts.name, has_new_schema=False) for facts in found)

    def _create(self) -> tuple[CreatedTable, ...]:
        """Create the tables that --create asks for; they must exist before the sessions' transactions begin."""
        wanted = {
            target.table: target.create_columns for target in self._plan.targets if target.create_columns is not None
        }
        return tuple(create_text_table(self._connection, table, columns) for table, columns in wanted.items())

    def foresee(self) -> LedgerOutlook:
        works = all_objects(self._plan.targets)
        found, decisions, _ = self._decide(works, self._created)
        if any(decision.action != "skip" for decision in decisions):
            if any(target.is_staged for target in self._plan.targets):
                check_staging(self._connection, self._ledger.schema)
            self._check_new_objects(works, decisions, found.renamed, depth=_check_depth(self._plan))
            _warn_of_unpublished(self._plan, self._tools, self._connection)
        return LedgerOutlook(
            exists=True, resumes=found.running, actions=tuple(decision.action for decision in decisions)
        )

    def _decide(
        self, works: list[ObjectWork], created: tuple[CreatedTable, ...]
    ) -> tuple[LedgerFindings, list[Decision], str]:
        """Return what the ledger has recorded, the decision for each object, and the load's meaning (plan/identity)."""
        items = self._objects(created)
        oids = {item.number: item.target_oid for item in items}
        meaning = self._meaning(self._target_oids(created))
        found = self._ledger.look_up(self._connection, digest(meaning), items, lock=self._lock)
        found = replace(found, known=self._match_unchanged_files(works, items, found.known))
        running, known = found.running, found.known
        _refuse_unknown(works, items, known)
        if self._resumes is not None and running != self._resumes:
            raise self._refuse_resuming(self._resumes, meaning)
        if running is not None and (rights := read_rights(self._connection, self._ledger.schema, running)) is not None:
            rights.refuse_other_role("resume")
        decisions = decide_objects(
            items,
            known,
            running=running,
            next_number=found.next_number,
            emptied=self._find_emptied(oids, has_rows={each.target_oid for each in known if each.rows}),
            rules=self._plan.job.rules,
            landed=frozenset(work.number for work in works if not work.target.fills_table),
            fresh=frozenset(work.number for work in works if work.is_fresh),
        )
        for work, decision in zip(works, decisions, strict=True):
            if decision.action != "skip" and work.target.refusal is not None:
                raise work.target.refusal
        return found, decisions, meaning

    def _match_unchanged_files(
        self, works: list[ObjectWork], items: list[LedgerObject], known: Sequence[KnownObject]
    ) -> list[KnownObject]:
        """Return `known`, with the present version of each file if only its inode or times have changed.

        A loaded file that has the same size now is read and compared with the checksums in the ledger.
        """
        rules, matched = self._plan.job.rules, list(known)
        for work, item, at in zip(works, items, find_known(items, known), strict=True):
            is_asked = not (rules.again or rules.changed == "skip" or is_remote(work.source.location) or work.is_fresh)
            if not is_asked or item.version is None or any(matched[each].version == item.version for each in at):
                continue
            for each in at:
                former = matched[each]
                if former.state == "complete" and former.size_bytes == item.size_bytes:
                    committed = read_ranges(self._connection, self._ledger.schema, former.load_id, former.number)
                    has_records = any(row.ranges for row in committed)
                    if has_records and compare_committed(work, committed, self._tools) == "same":
                        matched[each] = replace(former, version=item.version)
        return matched

    def _claim(self, created: tuple[CreatedTable, ...]) -> PreparedLoad | NothingToDo:
        works = all_objects(self._plan.targets)
        found, decisions, meaning = self._decide(works, created)
        running, known, identity = found.running, found.known, digest(meaning)
        skipped = sum(decision.action == "skip" for decision in decisions)
        if running is None and skipped == len(decisions):
            return NothingToDo(skipped=skipped, changed_by=found.changed_by, server_holds=found.server_holds)
        self._check_new_objects(works, decisions, found.renamed)
        if running is None:
            _warn_of_unpublished(self._plan, self._tools, self._connection)
        self._restore_replaced()
        self._check_landings()
        facts = self._find_facts(created)
        # A new load is recorded in the transaction that creates its tables. A resumed load is claimed before that.
        is_one = running is None and any(not target.fills_table for target in self._plan.targets)
        landings: tuple[TargetLanding, ...] = ()
        with in_transaction(self._connection, "recording the load") if is_one else nullcontext():
            claim = self._begin_or_resume(
                found, identity=identity, meaning=meaning, decisions=decisions, seen={each.load_id for each in known}
            )
            if claim is not None:
                landings = self._open_landings(claim, identity, facts, works=works, decisions=decisions)
        if claim is None:
            # Another load has just begun with one of the objects: decide again for each object.
            return self._claim(created)
        coverage = read_coverage(self._connection, self._ledger.schema, claim.load_id) if claim.is_resumed else {}
        if claim.is_resumed:
            self._drop_missing_objects(claim, coverage, decisions)
        prepared = self._prepare_objects(works, decisions, claim, coverage, landings, tables_made(self._plan, created))
        landed = {number for landing in landings if landing.table is not None for number in landing.objects}
        return PreparedLoad(
            claim=claim,
            work=tuple(work for work in prepared if not work.coverage.is_complete),
            created=created,
            skipped=skipped,
            rows_before=sum(each.rows for number, each in coverage.items() if number not in landed),
            rows_committed=sum(work.coverage.rows for work in prepared),
            landings=landings,
            changed_by=found.changed_by,
            server_holds=found.server_holds,
            objects={work.number: work for work in prepared},
            tables=self._find_tables(facts, created, landings),
        )

    def _prepare_objects(
        self,
        works: Sequence[ObjectWork],
        decisions: Sequence[Decision],
        claim: Claim,
        coverage: Mapping[int, Coverage],
        landings: Sequence[TargetLanding],
        made: Mapping[TableName, CreatedTable],
    ) -> list[ObjectWork]:
        """Return what is left to load of the objects that are not skipped."""
        by_target = {landing.record.number: landing for landing in landings}
        prepared = []
        for work, decision in zip(works, decisions, strict=True):
            if decision.action != "skip":
                landing = by_target.get(work.target_index)
                left = self._prepare_object(work, decision, coverage.get(decision.number, Coverage()), landing)
                if left.landing is None and (own := made.get(work.target.table)) is not None:
                    # The functions that sort out rejected records do not use the user's search_path.
                    left = replace(left, landing=own.name)
                prepared.append(self._resume_changed(left, decision, claim) if decision.is_changed else left)
        return prepared

    def _restore_replaced(self) -> None:
        targets = [target for target in self._plan.targets if target.is_replaced]
        if oids := [target.facts.oid for target in targets if target.facts is not None]:
            from penstock.loading.table_changes import TableChanges  # noqa: PLC0415 (32 ms, after a load that died)

            TableChanges(self._plan, self._tools).restore_replaced(oids, self._connection)

    def _refuse_resuming(self, load_id: str, meaning: str) -> TargetError:
        """Return the error for a load that cannot be resumed: unknown, complete, or with other sources or options."""
        known = read_meaning(self._connection, self._ledger.schema, load_id)
        if known is None:
            return no_such_load(load_id)
        if known.state == "complete":
            return TargetError(f"load {load_id} is complete", hint="There is nothing to resume.")
        changes = describe_changes(known.meaning, meaning)
        return TargetError(
            f"cannot resume load {load_id}: source or options changed since",
            detail="\n".join(changes) or None,
            hint="Restore it as it was when the load began, or remove the load's rows and run "
            f"penstock loads forget {load_id} --keep-rows.",
        )

    def _check_landings(self) -> None:
        if self._plan.needs_more_than_copy:
            from penstock.loading.landing.landing import check_landings  # noqa: PLC0415 (20 ms, for who merges or replaces)

            check_landings(self._plan, self._connection, ledger_schema=self._ledger.schema)

    def _find_facts(self, created: tuple[CreatedTable, ...]) -> list[TableFacts]:
        """Return the facts of all targets, including tables just created."""
        facts = []
        for target, oid in zip(self._plan.targets, self._target_oids(created), strict=True):
            found = target.facts
            if found is None and target.needs_more_than_copy:
                made = next(table.name for table in created if table.oid == oid)
                found = find_table(self._connection, made)
            facts.append(found or replace(table_after_creation(target), oid=oid))
        return facts

    def _open_landings(
        self,
        claim: Claim,
        identity: str,
        facts: list[TableFacts],
        *,
        works: list[ObjectWork],
        decisions: list[Decision],
    ) -> tuple[TargetLanding, ...]:
        """Find or create the tables that COPY fills, for the targets that have objects in this load."""
        if not self._plan.needs_more_than_copy:
            return ()
        from penstock.loading.landing.context import LandingContext  # noqa: PLC0415 (as the next)
        from penstock.loading.landing.landing import open_landings  # noqa: PLC0415 (20 ms, for who merges or replaces)

        objects: dict[int, list[int]] = {}
        for work, decision in zip(works, decisions, strict=True):
            if decision.action != "skip":
                objects.setdefault(work.target_index, []).append(decision.number)
        context = LandingContext(plan=self._plan, tools=self._tools, connection=self._connection, claim=claim)
        return open_landings(context, facts, objects, identity=identity)

    def _prepare_object(
        self, work: ObjectWork, decision: Decision, coverage: Coverage, landing: TargetLanding | None
    ) -> ObjectWork:
        return replace(
            work,
            number=decision.number,
            coverage=coverage,
            landing=None if landing is None else landing.table,
            working_names=() if landing is None else landing.working_names,
        )

    def _find_tables(
        self, facts: Sequence[TableFacts], created: Sequence[CreatedTable], landings: Sequence[TargetLanding]
    ) -> dict[TableName, LoadedTable]:
        """Return the table that each name in a COPY command stands for."""
        made = {table.oid: table.name for table in created}
        tables = {
            made.get(found.oid, target.table): LoadedTable(made.get(found.oid, found.name), found.oid, found.columns)
            for target, found in zip(self._plan.targets, facts, strict=True)
        }
        for landing in landings:
            if landing.table is not None and landing.record.oid is not None:
                tables[landing.table] = LoadedTable(landing.table, landing.record.oid)
        return tables

    def _target_oids(self, created: tuple[CreatedTable, ...]) -> list[int]:
        made = tables_made(self._plan, created)
        return [
            target.facts.oid if target.facts is not None else made[target.table].oid for target in self._plan.targets
        ]

    def _objects(self, created: tuple[CreatedTable, ...]) -> list[LedgerObject]:
        items: list[LedgerObject] = []
        for target, oid in zip(self._plan.targets, self._target_oids(created), strict=True):
            schema = target.table.schema
            if schema is None:
                schema = next((made.name.schema for made in created if made.oid == oid), "")
            for source in target.objects:
                table = replace(target.table, schema=schema)
                items.append(ledger_object(source, number=len(items), target_oid=oid, target=table))
        return items

    def _check_new_objects(
        self,
        works: list[ObjectWork],
        decisions: list[Decision],
        renamed: Mapping[int, tuple[str, str]],
        *,
        depth: Depth = "columns",
    ) -> None:
        """Raise DataError if a new or changed object contradicts its target's dialect, and warn of renamed objects.

        An object is renamed if the same object was loaded into the same table under another name.
        """
        unseen = [each.action == "new" or each.is_changed for each in decisions]
        refuse_other_dialects(list(compress(works, unseen)), self._tools.sources, self._tools.warnings, depth=depth)
        unshared = self._find_unshared(decisions)
        news = [each.item for each in decisions if each.action == "new" and each.number in unshared]
        found = [item for item in news if item.number in renamed]
        if not found:
            return
        other, load_id = renamed[found[0].number]
        kept = "size and ETag" if is_remote(other) else "size, inode and time of modification"
        more = f" (and {len(found) - 1} more like it)" if len(found) > 1 else ""
        self._tools.warnings.warn(
            "renamed",
            f'"{found[0].uri}" may be "{other}" under another name, which load {load_id} has loaded'
            f" into the same table: {kept} are the same{more}",
            uri=found[0].uri,
        )

    def _find_emptied(self, oids: dict[int, int], *, has_rows: set[int]) -> frozenset[int]:
        """Return the oids of the targets that are empty although the ledger says that they have been given rows."""
        return frozenset(oid for oid in set(oids.values()) & has_rows if is_empty(self._connection, oid))

    def _begin_or_resume(
        self, found: LedgerFindings, *, identity: str, meaning: str, decisions: list[Decision], seen: Collection[str]
    ) -> Claim | None:
        """Claim the load; return None if a load that is not in `seen` has one of its objects."""
        new = [replace(each.item, number=each.number) for each in decisions if each.action == "new"]
        unshared = self._find_unshared(decisions)
        if found.running is not None:
            waits = self._plan.job.rules.wait
            claim = take_over(found.running, self._tools, self._connection, waits=waits, job=self._job_text())
            if found.is_copied:
                self._ledger.adopt(self._connection, claim, identity=identity, meaning=meaning)
            if new and not self._ledger.add_objects(self._connection, claim, new, unshared=unshared, seen=seen):
                return None
            return claim
        return self._ledger.begin(
            self._connection,
            load_id=self._plan.load_id,
            identity=identity,
            lock=self._lock,
            client=client_name(),
            tables=[str(target.table) for target in self._plan.targets],
            meaning=meaning,
            job=self._job_text(),
            objects=new,
            unshared=unshared,
            seen=seen,
        )

    def _find_unshared(self, decisions: list[Decision]) -> frozenset[int]:
        """Return the numbers of the new objects that no other load may have.

        The result is empty with --again. It lacks objects that are loaded whatever was loaded before.
        """
        if self._plan.job.rules.again:
            return frozenset()
        works = all_objects(self._plan.targets)
        return frozenset(
            decision.number
            for work, decision in zip(works, decisions, strict=True)
            if decision.action == "new" and not work.is_fresh
        )

    def _job_text(self) -> str | None:
        return job_to_json(self._lasting_job()) if self._plan.is_repeatable else None

    def _lasting_job(self) -> LoadJob:
        targets = tuple(
            replace(target, sources=tuple(names))
            for target, names in zip(self._plan.job.targets, self._sources, strict=True)
        )
        return replace(self._plan.job, targets=targets)

    def _drop_missing_objects(self, claim: Claim, coverage: Mapping[int, Coverage], decisions: list[Decision]) -> None:
        """Remove from the load the objects that the sources no longer list, with a warning.

        Raises SourceError if a part of such an object is loaded.
        """
        listed = [decision.number for decision in decisions]
        missing = find_others(self._connection, self._ledger.schema, claim.load_id, listed)
        for number, uri in missing:
            found = coverage.get(number)
            if found is not None and not found.is_complete:
                raise SourceError(
                    f'"{uri}" does not exist any more, and a part of it is loaded',
                    detail=self._describe_part(claim, found.rows),
                    hint="Restore it, or remove the load's rows and run "
                    f"penstock loads forget {claim.load_id} --keep-rows.",
                )
        unread = {number: uri for number, uri in missing if number not in coverage}
        if unread:
            self._ledger.drop_objects(self._connection, claim, list(unread))
            names = ", ".join(f'"{uri}"' for uri in unread.values())
            self._tools.warnings.warn("source-gone", f"skipping objects that were not begun and are missing: {names}")

    def _resume_changed(self, work: ObjectWork, decision: Decision, claim: Claim) -> ObjectWork:
        """Resume an object that may have changed, if its committed part is the same.

        If the committed part has changed, the object is loaded from its beginning, if its records are in a staging
        table and can be deleted there. Raises DataError if not.
        """
        committed = read_ranges(self._connection, self._ledger.schema, claim.load_id, work.number)
        is_known = decision.item.version is not None
        if committed and is_known and self._plan.job.rules.changed == "skip":
            return self._leave_as_loaded(work, claim)
        has_records = any(row.ranges for row in committed)
        # If nothing is committed, do not read the object to compare it: a pipe can be read only once.
        state = compare_committed(work, committed, self._tools) if has_records else "changed"
        if state == "changed" and has_records and not work.has_positions:
            raise DataError(
                f'"{work.source.uri}" has changed in a part that is already loaded',
                detail=f"Load {claim.load_id} has committed {work.coverage.rows} of its rows: these differ"
                " now, or the header does.",
                hint="Restore the object, or remove the load's rows and run "
                f"penstock loads forget {claim.load_id} --keep-rows.",
            )
        with in_transaction(self._connection, "resuming an object that has changed"):
            self._ledger.hold_claim(self._connection, claim)
            self._ledger.change_version(self._connection, claim, work.number, decision.item)
            if state != "changed":
                end = None if state == "grown" else work.coverage.ranges[-1][1]
                move_end(self._connection, self._ledger.schema, claim, work.number, end=end)
                return replace(work, coverage=replace(work.coverage, has_end=state == "same"))
            if committed:
                self._drop_committed(work, claim)
        return replace(work, coverage=Coverage())

    def _leave_as_loaded(self, work: ObjectWork, claim: Claim) -> ObjectWork:
        if not work.coverage.is_complete:
            raise DataError(
                f'"{work.source.uri}" has changed, and a part of it is loaded',
                detail=self._describe_part(claim, work.coverage.rows),
                hint="Restore the object, or use --changed load, which resumes if these rows are unchanged.",
            )
        return work

    def _describe_part(self, claim: Claim, rows: int) -> str:
        if self._plan.fills_tables:
            return f"Load {claim.load_id} has committed {rows:,} of its rows."
        return f"Load {claim.load_id} has staged {rows:,} of its records."

    def _drop_committed(self, work: ObjectWork, claim: Claim) -> None:
        """Delete the committed rows of an object, in the caller's transaction, to load it from its beginning."""
        if work.landing is not None and work.has_positions:
            delete_landed(self._connection, work.landing, work.number)
        drop_ranges(self._connection, self._ledger.schema, claim, [work.number])
        message = f'"{work.source.uri}" has changed: it is loaded from its beginning'
        self._tools.warnings.warn("source-changed", message, uri=work.source.uri)


def _warn_of_unpublished(plan: LoadPlan, tools: LoadTools, ledger: Connection | None = None) -> None:
    """Warn of tables that are not replicated although others are, except tables that have been loaded before."""
    facts = {target.table: target.facts for target in plan.targets if target.facts is not None}
    found = {table: notice for table, each in facts.items() if (notice := unpublished_notice(each)) is not None}
    if found and ledger is not None:
        for table in find_loaded(ledger, tools.ledger.schema, list(found)):
            del found[table]
    for notice in found.values():
        tools.warnings.add(notice)


def _check_depth(plan: LoadPlan) -> Depth:
    """Return how much of each object's first block a plan checks.

    If the load stops at the first bad record, a bad record in a first block is an error of the plan.
    """
    return "records" if plan.job.rules.on_error == "stop" else "columns"


def _refuse_unknown(works: list[ObjectWork], items: list[LedgerObject], known: Sequence[KnownObject]) -> None:
    """Raise the error that the plan has found for a target, if no load has completed one of the target's objects."""
    complete = {(each.uri, each.target_oid) for each in known if each.state == "complete"}
    for work, item in zip(works, items, strict=True):
        if work.target.refusal is not None and (item.uri, item.target_oid) not in complete:
            raise work.target.refusal
