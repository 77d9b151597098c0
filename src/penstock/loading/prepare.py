"""Prepares a load before its first row: opens the ledger, claims the load, finds what is left of each object.

All of this runs in one session, which then holds the load's lock until the session ends. A new load is recorded in the
same transaction that creates its tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from penstock.errors import TargetError
from penstock.loading.claim.claims import client_name, host_name, open_ledger, take_over
from penstock.loading.claim.decide import ClaimFacts, LoadDecision, decide_load
from penstock.loading.claim.facts import FactsReader, created_names, find_facts, find_tables, tables_made
from penstock.loading.claim.objects import ResumedLoad, check_depth, check_new_objects, warn_of_unpublished
from penstock.loading.claim.prepared import NothingToDo, PreparedLoad, TargetLanding
from penstock.loading.imports.route import refuse_parts
from penstock.loading.plan.dialects import refuse_other_dialects
from penstock.loading.plan.identity import digest
from penstock.loading.plan.work import ObjectWork, all_objects
from penstock.model.load.ledger import Claim, Coverage, LedgerOutlook, LoaderProcess
from penstock.model.server.table import TableName
from penstock.server.connect.errors import in_transaction
from penstock.server.connect.search_path import find_creation_schema
from penstock.server.ledger.committed import OtherObject, find_others, read_coverage
from penstock.server.ledger.lookup import read_meaning
from penstock.server.ledger.schema import check_creation, check_staging, has_ledger
from penstock.server.ledger.targets import drop_landing, drop_ranges, find_landings
from penstock.server.table.alter import alter_table
from penstock.server.table.catalog import find_table
from penstock.server.table.locking import telling_once, with_lock_retries
from penstock.server.table.staging import delete_landed
from penstock.server.table.tables import CreatedTable, create_table

if TYPE_CHECKING:
    from penstock.loading.claim.membership import Membership
    from penstock.loading.context import LoadTools
    from penstock.model.load.plan import LoadPlan, TargetPlan
    from penstock.model.server.table import TableFacts
    from penstock.server.connect.connection import Connection


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
    reader = FactsReader(plan, tools, connection, resumes=resumes)
    if plan.job.rules.join:
        from penstock.loading.claim.joining import find_role, join_load  # noqa: PLC0415 (for loads by several hosts)
        from penstock.loading.claim.membership import Membership  # noqa: PLC0415 (as the last)

        role = find_role(reader.lock, tools, connection)
        with Membership.opening(tools, load_lock=reader.lock) as member:
            if not role.leads:
                return join_load(plan, tools, connection, reader, member=member, load_id=role.load_id)
            return _prepare(plan, tools, connection, reader, created, (begun, role.load_id), member)
    open_ledger(reader.lock, tools, connection, waits=plan.job.rules.wait)
    return _prepare(plan, tools, connection, reader, created, (begun,), None)


def _prepare(
    plan: LoadPlan,
    tools: LoadTools,
    connection: Connection,
    reader: FactsReader,
    created: tuple[CreatedTable, ...],
    begun: Sequence[str | None],
    member: Membership | None,
) -> PreparedLoad | NothingToDo:
    """Do what `prepare_load` does, with the load's lock held; one of the loads in `begun` may be complete now."""
    for load_id in filter(None, begun):
        known = read_meaning(connection, tools.ledger.schema, load_id)
        if known is not None and known.state == "complete":
            if member is not None:
                member.close()
            left = () if member is None else reader.find_left(load_id, created)
            return NothingToDo(skipped=len(all_objects(plan.targets)) - len(left), waited_for=load_id, left=left)
    preparation = _Preparation(plan, tools, connection, reader, member)
    if not created and created_names(plan):
        with in_transaction(connection, "recording the load"):
            return preparation.claim(_create_or_find(plan, tools, connection))
    return preparation.claim(created)


def foresee_load(plan: LoadPlan, tools: LoadTools, connection: Connection) -> LedgerOutlook:
    """Return what a load would do with each object, given the present ledger; changes nothing.

    Raises PenstockError if `prepare_load` would.
    """
    if not has_ledger(connection, tools.ledger.schema):
        check_creation(connection, tools.ledger.schema, is_publishing_allowed=tools.is_publishing_allowed)
        works = all_objects(plan.targets)
        refuse_other_dialects(works, tools.sources, tools.warnings, depth=check_depth(plan))
        _check_importable(plan, works, tools)
        warn_of_unpublished(plan, tools)
        return LedgerOutlook(exists=False, resumes=None, actions=tuple("new" for _ in works))
    schema = find_creation_schema(connection)
    # Treat the tables as created, with oids that no table of a user has.
    created = tuple(
        CreatedTable(oid=oid, name=replace(name, schema=name.schema or schema), has_new_schema=False)
        for oid, name in enumerate(created_names(plan), 1)
    )
    facts = FactsReader(plan, tools, connection, resumes=tools.resumes).read(created)
    decision = decide_load(facts, plan.job.rules, host=host_name())
    if not decision.is_nothing:
        if any(target.is_staged for target in plan.targets):
            check_staging(connection, tools.ledger.schema)
        check_new_objects(facts, decision, tools, depth=check_depth(plan))
        _check_importable(plan, _works_left(facts, decision), tools)
        warn_of_unpublished(plan, tools, connection)
    actions = tuple(each.action for each in decision.objects)
    return LedgerOutlook(exists=True, resumes=facts.found.running, actions=actions)


def _works_left(facts: ClaimFacts, decision: LoadDecision) -> list[ObjectWork]:
    """Return the objects of the load, those of a resumed load too: the client's route may have begun it."""
    return [work for work, each in zip(facts.works, decision.objects, strict=True) if each.is_part]


def _check_importable(plan: LoadPlan, works: Sequence[ObjectWork], tools: LoadTools) -> None:
    """Raise SourceError or DataError if the server is to import objects, and cannot import one as it is."""
    if plan.route.is_import:
        from penstock.loading.imports.fit import check_importable  # noqa: PLC0415 (for who imports from S3)

        check_importable(works, tools.sources)


def _create_or_find(plan: LoadPlan, tools: LoadTools, connection: Connection) -> tuple[CreatedTable, ...]:
    """Create the tables, or find them if an earlier COMMIT created them and its answer was lost."""
    try:
        return _create(plan, connection)
    except TargetError:
        if not tools.ledger.has(connection, plan.load_id):
            raise
        wanted = created_names(plan)
        found = [facts for table in wanted if (facts := find_table(connection, table)) is not None]
        if len(found) < len(wanted):
            raise
    # It is not known any more if the schema was created too, so it is never dropped.
    return tuple(CreatedTable(oid=facts.oid, name=facts.name, has_new_schema=False) for facts in found)


def _create(plan: LoadPlan, connection: Connection) -> tuple[CreatedTable, ...]:
    """Create the tables that --create asks for; they must exist before the sessions' transactions begin."""
    wanted = {
        target.table: (target.create_columns, target.create_types, target.created_key)
        for target in plan.targets
        if target.create_columns is not None
    }
    return tuple(create_table(connection, table, *columns) for table, columns in wanted.items())


class _Preparation:
    def __init__(
        self,
        plan: LoadPlan,
        tools: LoadTools,
        connection: Connection,
        reader: FactsReader,
        member: Membership | None = None,
    ) -> None:
        self._plan = plan
        self._tools = tools
        self._ledger = tools.ledger
        self._connection = connection
        self._reader = reader
        self._member = member
        # Of a load with one member, the lock that shows that the process lives is the load's own.
        self._process = LoaderProcess(client=client_name(), lock=reader.lock if member is None else member.lock)

    def claim(self, created: tuple[CreatedTable, ...]) -> PreparedLoad | NothingToDo:
        facts = self._reader.read(created)
        decision = decide_load(facts, self._plan.job.rules, host=host_name())
        found = facts.found
        if found.running is None and decision.is_nothing:
            if self._member is not None:
                self._member.close()
            return NothingToDo(skipped=decision.skipped, changed_by=found.changed_by, server_holds=found.server_holds)
        check_new_objects(facts, decision, self._tools)
        _check_importable(self._plan, _works_left(facts, decision), self._tools)
        if found.running is None:
            warn_of_unpublished(self._plan, self._tools, self._connection)
        self._restore_replaced()
        self._check_landings()
        tables = find_facts(self._plan, created, self._connection)
        # A new load is recorded in the transaction that creates the tables which COPY fills instead of the targets. A
        # resumed load is claimed first; those tables are found or created afterwards.
        altered = {target.table: target for target in self._plan.targets if target.changes}
        is_one = found.running is None and (
            bool(altered) or any(not target.fills_table for target in self._plan.targets)
        )
        landings: tuple[TargetLanding, ...] = ()
        others: Sequence[OtherObject] = ()
        with in_transaction(self._connection, "recording the load") if is_one else nullcontext():
            if found.running is None:
                # First, so that nothing of the ledger is locked while another load's batch holds the table.
                self._alter(altered.values())
            claim = self._begin_or_resume(facts, decision)
            if found.running is not None:
                self._alter(altered.values())
            if claim is not None:
                self._remove_unreadable(claim)
                others = self._find_others(claim, decision)
                landings = self._open_landings(claim, facts, decision, tables, others)
        if claim is None:
            # Another load has just begun with one of the objects: decide again for each object.
            return self.claim(created)
        return self._find_left(claim, facts, decision, tables, landings, others)

    def _alter(self, targets: Iterable[TargetPlan]) -> None:
        """Add and widen columns, in a savepoint that waits for locks as everything does that keeps readers out."""
        for target in targets:
            facts = target.facts
            if facts is not None:
                with_lock_retries(
                    self._connection,
                    partial(alter_table, self._connection, facts.name, facts.oid, target.changes),
                    relations=[facts.oid],
                    deadline_s=self._plan.job.rules.retry_for,
                    on_blocked=telling_once(self._tools.notice, f"alter table {facts.name}"),
                )

    def _remove_unreadable(self, claim: Claim) -> None:
        """Delete what is committed of unreadable objects, except from targets themselves.

        If a table that will replace another has rows of such an object, all rows of that table are loaded again.
        """
        numbers = list(self._tools.unreadable or ())
        schema = self._ledger.schema
        if not numbers or not (begun := read_coverage(self._connection, schema, claim.load_id, numbers=numbers)):
            return
        with in_transaction(self._connection, "removing objects that cannot be read"):
            self._ledger.hold_claim(self._connection, claim)
            for record, number in find_landings(self._connection, schema, claim.load_id, list(begun)):
                if record.kind == "replacement":
                    drop_landing(self._connection, schema, record, load_id=claim.load_id)
                elif record.table is not None:
                    delete_landed(self._connection, TableName(schema=record.schema, name=record.table), number)
                    drop_ranges(self._connection, schema, claim, [number])

    def _find_left(
        self,
        claim: Claim,
        facts: ClaimFacts,
        decision: LoadDecision,
        tables: list[TableFacts],
        landings: tuple[TargetLanding, ...],
        others: Sequence[OtherObject],
    ) -> PreparedLoad:
        resumed = ResumedLoad(self._plan, self._tools, self._connection, claim)
        coverage: Mapping[int, Coverage] = {}
        if claim.is_resumed:
            coverage = read_coverage(self._connection, self._ledger.schema, claim.load_id)
            resumed.drop_missing(coverage, others)
        prepared = self._prepare_objects(facts, decision, resumed, coverage, landings)
        if self._plan.route.is_import:
            # Not by rows: triggers may have put all rows of a part elsewhere.
            begun = [work for work in prepared if work.coverage.ranges and not work.coverage.is_complete]
            parts = [work.source.uri for work in begun]
            refuse_parts(parts)
        landed = {number for landing in landings if landing.table is not None for number in landing.objects}
        unreadable = self._tools.unreadable or {}
        objects = {work.number: work for work in prepared}
        if self._member is not None:
            self._member.bind(claim, objects, unseen=others, left=decision.left)
        return PreparedLoad(
            claim=claim,
            work=tuple(work for work in prepared if not (work.coverage.is_complete or work.number in unreadable)),
            created=facts.created,
            skipped=decision.skipped,
            rows_before=sum(each.rows for number, each in coverage.items() if number not in landed),
            rows_committed=sum(work.coverage.rows for work in prepared),
            landings=landings,
            changed_by=facts.found.changed_by,
            server_holds=facts.found.server_holds,
            objects=objects,
            tables=find_tables(self._plan, tables, facts.created, landings),
            member=self._member,
            left=decision.left,
        )

    def _find_others(self, claim: Claim, decision: LoadDecision) -> Sequence[OtherObject]:
        """Return the objects of the load that the sources do not have."""
        if not claim.is_resumed:
            return ()
        numbers = [each.number for each in decision.objects if each.is_part]
        return find_others(self._connection, self._ledger.schema, claim.load_id, numbers)

    def _prepare_objects(
        self,
        facts: ClaimFacts,
        decision: LoadDecision,
        resumed: ResumedLoad,
        coverage: Mapping[int, Coverage],
        landings: Sequence[TargetLanding],
    ) -> list[ObjectWork]:
        """Return what is left to load of the objects that are not skipped."""
        by_target = {landing.record.number: landing for landing in landings}
        made = tables_made(self._plan, facts.created)
        prepared = []
        for work, each in zip(facts.works, decision.objects, strict=True):
            if not each.is_part:
                continue
            landing, own = by_target.get(work.target_index), made.get(work.target.table)
            table = None if landing is None else landing.table
            left = replace(
                work,
                number=each.number,
                coverage=coverage.get(each.number, Coverage()),
                # The functions that sort out rejected records do not use the user's search_path.
                landing=own.name if table is None and own is not None else table,
                working_names=() if landing is None else landing.working_names,
            )
            prepared.append(resumed.resume_changed(left, each) if each.is_changed else left)
        return prepared

    def _begin_or_resume(self, facts: ClaimFacts, decision: LoadDecision) -> Claim | None:
        """Claim the load; return None if a load that the facts do not have has one of its objects."""
        found, identity, job = facts.found, digest(facts.meaning), self._reader.job_text()
        made = {name: table.name for name, table in tables_made(self._plan, facts.created).items()}
        seen = {each.load_id for each in found.known}
        if found.running is not None:
            waits = self._plan.job.rules.wait
            claim = take_over(
                found.running,
                self._tools,
                self._connection,
                waits=waits,
                process=self._process,
                is_joint=self._member is not None,
                job=job,
            )
            if found.is_copied:
                self._ledger.adopt(self._connection, claim, identity=identity, meaning=facts.meaning)
            if decision.new and not self._ledger.add_objects(
                self._connection, claim, decision.new, unshared=decision.unshared, seen=seen
            ):
                return None
            return claim
        return self._ledger.begin(
            self._connection,
            load_id=self._plan.load_id,
            identity=identity,
            lock=self._reader.lock,
            process=self._process,
            tables=[str(made.get(target.table, target.table)) for target in self._plan.targets],
            meaning=facts.meaning,
            job=job,
            objects=decision.new,
            unshared=decision.unshared,
            seen=seen,
        )

    def _restore_replaced(self) -> None:
        if oids := [each.facts.oid for each in self._plan.targets if each.is_replaced and each.facts is not None]:
            from penstock.loading.table_changes import TableChanges  # noqa: PLC0415 (32 ms, after a load that died)

            TableChanges(self._plan, self._tools).restore_replaced(oids, self._connection)

    def _check_landings(self) -> None:
        if self._plan.needs_more_than_copy:
            from penstock.loading.landing.landing import check_landings  # noqa: PLC0415 (20 ms, for who merges or replaces)

            check_landings(self._plan, self._connection, ledger_schema=self._ledger.schema)

    def _open_landings(
        self,
        claim: Claim,
        facts: ClaimFacts,
        decision: LoadDecision,
        tables: list[TableFacts],
        others: Sequence[OtherObject],
    ) -> tuple[TargetLanding, ...]:
        """Find or create the tables that COPY fills, for the targets that have objects in this load.

        Objects that the sources do not have any more count, too: their records are stored at the load's end.
        """
        if not self._plan.needs_more_than_copy:
            return ()
        from penstock.loading.landing.context import LandingContext  # noqa: PLC0415 (as the next)
        from penstock.loading.landing.landing import open_landings  # noqa: PLC0415 (20 ms, for who merges or replaces)

        objects: dict[int, list[int]] = {}
        for work, each in zip(facts.works, decision.objects, strict=True):
            if each.is_part:
                objects.setdefault(work.target_index, []).append(each.number)
        for other in others:
            for index, table in enumerate(tables):
                if table.oid == other.target_oid:
                    objects.setdefault(index, []).append(other.number)
        context = LandingContext(plan=self._plan, tools=self._tools, connection=self._connection, claim=claim)
        return open_landings(context, tables, objects, identity=digest(facts.meaning))
