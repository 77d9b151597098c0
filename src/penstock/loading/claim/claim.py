"""Claims a load for this process: takes the load's lock, reads the ledger, decides, and writes what is decided.

All of this runs in one session, which then holds the load's lock until the session ends. After a failed attempt, the
load is claimed again. With --join, a process that does not get the lock joins the load that another process leads.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

from penstock.changes.records import find_changed
from penstock.core.catalogue.catalog import find_table
from penstock.core.catalogue.tables import CreatedTable, create_table
from penstock.core.connect.connection import Connection
from penstock.core.connect.errors import explain_end, in_transaction
from penstock.core.connect.search_path import find_creation_schema
from penstock.core.errors import PenstockError, TableExistsError, TakenOverError, TargetError
from penstock.core.host.machine import host_name
from penstock.core.values.table import TableFacts, TableName
from penstock.ledger.committed import find_others
from penstock.ledger.ledger import confirm
from penstock.ledger.locks import LockPatience, try_lock
from penstock.ledger.lookup import read_meaning
from penstock.ledger.members import find_joinable, register
from penstock.ledger.schema import check_creation, check_staging, foresee_opening
from penstock.ledger.targets import read_landings
from penstock.ledger.values import Claim, FinishedLoad, LedgerOutlook
from penstock.loading.claim.decide import ClaimFacts, NothingToDo, decide_load, group_objects
from penstock.loading.claim.facts import (
    FactsReader,
    check_depth,
    check_importable,
    check_objects,
    map_tables,
    read_targets,
    warn_of_unpublished,
)
from penstock.loading.claim.member import JointMember, Member
from penstock.loading.claim.write import ClaimedLoad, ClaimWriter
from penstock.loading.context import LoadTools, Retrying
from penstock.loading.land.context import LandingContext, TargetLanding
from penstock.loading.plan.dialects import refuse_other_dialects
from penstock.loading.plan.identity import digest
from penstock.loading.values.objects import all_objects
from penstock.loading.values.plan import LoadPlan

# How often to check if another process has ended, or has opened the load to others.
_WAIT_S = 0.2

# A wait for another process is shown only after this many checks, so that short waits are not shown. The other process
# may be about to end. If it leads the load, it may be dropping indexes before it lets others claim objects.
_LOOKS_BEFORE_NOTICE = 4
_LOOKS_TO_JOIN = 10

_NOTHING = FinishedLoad(rows=0, suppressed=0, is_local_only=False)


class Claimed(NamedTuple):
    """A load that this process has claimed, and the session that holds the load's lock.

    The caller closes the session.
    """

    load: ClaimedLoad
    connection: Connection


def claim_load(
    plan: LoadPlan,
    tools: LoadTools,
    retrying: Retrying,
    *,
    on_nothing: Callable[[NothingToDo, Connection], None],
) -> Claimed | NothingToDo:
    """Claim a load for the first time: take its lock, and record in the ledger what this process will load.

    Returns the claimed load, or NothingToDo if this process has nothing to load. In the second case, `on_nothing` is
    called with the result and the session, which is then closed. After a transient error, waits and retries for the
    time of --retry-for. Raises PenstockError; then nothing was recorded.
    """
    begun: str | None = None
    while True:
        try:
            connection = tools.connect.take(label="session 1")
            with _closing_if_it_fails(connection):
                claimed = _claim(plan, tools, connection, resumes=tools.resumes, begun=begun)
                if isinstance(claimed, ClaimedLoad):
                    return Claimed(claimed, connection)
                on_nothing(claimed, connection)
                connection.close()
                return claimed
        except PenstockError as error:
            retrying.wait(error)
            # The claim may be committed although the connection was lost before the answer. Or this process has waited
            # for a load that may be complete by now.
            begun = error.load_id or plan.load_id


def claim_again(
    plan: LoadPlan, tools: LoadTools, retrying: Retrying, before: ClaimedLoad, *, let_go: Callable[[Connection], None]
) -> Claimed | FinishedLoad:
    """Claim a load again after this process has lost its sessions, and return what is left to load.

    The lost sessions may still be committing; the rows that they commit count as loaded. If the load is complete,
    `let_go` is called with the new session, and the load's totals are returned. After a transient error, waits and
    retries for the time of --retry-for. Raises PenstockError.
    """
    while True:
        try:
            connection = tools.connect.connect(label="session 1")
            with _closing_if_it_fails(connection):
                taken = _claim_left(plan, tools, connection, before, unreadable=retrying.next.unreadable)
        except PenstockError as error:
            retrying.wait(error)
            continue
        if isinstance(taken, FinishedLoad):
            let_go(connection)
            return taken
        return Claimed(taken, connection)


def _claim_left(
    plan: LoadPlan, tools: LoadTools, connection: Connection, before: ClaimedLoad, *, unreadable: Collection[int]
) -> ClaimedLoad | FinishedLoad:
    if (finished := _confirm(plan, tools, connection, before)) is not None:
        return finished
    # Only this load may be resumed. If it was removed from the ledger meanwhile, a new load would store its rows twice.
    load_id = before.claim.load_id
    claimed = _claim(
        plan, tools, connection, created=before.created, resumes=load_id, begun=load_id, unreadable=unreadable
    )
    # Another process may have completed the load since the first call of `_confirm`.
    return claimed if isinstance(claimed, ClaimedLoad) else _confirm(plan, tools, connection, before) or _NOTHING


def _confirm(plan: LoadPlan, tools: LoadTools, connection: Connection, before: ClaimedLoad) -> FinishedLoad | None:
    """Return the load's totals if it is complete, otherwise None.

    If another process has completed it, show a notice.
    """
    finished = confirm(tools.ledger, connection, before.claim)
    if finished is not None and finished.is_others and not plan.job.rules.join:
        tools.notice(f"load {before.claim.load_id} was completed by another process")
    return finished


def foresee_load(plan: LoadPlan, tools: LoadTools, connection: Connection) -> LedgerOutlook:
    """Return what a load would do with each object if it ran now, according to the ledger. Nothing is changed.

    Reads the beginning of each new or changed object. Raises PenstockError if `claim_load` would.
    """
    depth = check_depth(plan)
    if not foresee_opening(connection, tools.ledger.schema):
        check_creation(connection, tools.ledger.schema, is_publishing_allowed=tools.is_publishing_allowed)
        works = all_objects(plan.targets)
        refuse_other_dialects(works, tools.sources, tools.warnings, depth=depth, targets=plan.targets)
        check_importable(plan, works, tools)
        warn_of_unpublished(plan, tools)
        return LedgerOutlook(exists=False, resumes=None, actions=tuple("new" for _ in works))
    schema = find_creation_schema(connection)
    # Treat the tables as created, with oids that no table of a user has.
    created = {
        name: CreatedTable(oid=oid, name=replace(name, schema=name.schema or schema), has_new_schema=False)
        for oid, name in enumerate(plan.created_names, 1)
    }
    facts = FactsReader(plan, tools, connection, resumes=tools.resumes).read(created)
    decision = decide_load(facts, plan.job.rules, host=host_name())
    if not decision.is_nothing:
        if any(target.is_staged for target in plan.targets):
            check_staging(connection, tools.ledger.schema)
        if plan.needs_more_than_copy:
            _foresee_landings(facts, plan, tools, connection)
        check_objects(facts, decision, plan, tools, depth=depth)
        warn_of_unpublished(plan, tools, connection)
    actions = tuple(each.action for each in decision.objects)
    return LedgerOutlook(exists=True, resumes=facts.found.running, actions=actions)


def _foresee_landings(facts: ClaimFacts, plan: LoadPlan, tools: LoadTools, connection: Connection) -> None:
    from penstock.loading.land.landing import foresee_landings  # noqa: PLC0415 (20 ms, for who merges or replaces)

    running = facts.found.running
    claim = Claim(load_id=running or plan.load_id, epoch=0, is_resumed=running is not None)
    context = LandingContext(plan=plan, tools=tools, connection=connection, claim=claim)
    foresee_landings(context, identity=digest(facts.meaning))


# ---------------------------------------------------------------- with a session


def _claim(
    plan: LoadPlan,
    tools: LoadTools,
    connection: Connection,
    *,
    created: Mapping[TableName, CreatedTable] | None = None,
    resumes: str | None = None,
    begun: str | None = None,
    unreadable: Collection[int] = (),
) -> ClaimedLoad | NothingToDo:
    """Claim a load and return what is left of it. `created` are the tables that this process has created for it.

    If `resumes` is given, the load must be that one. `begun` is the id of the load that this process has claimed, or
    may have claimed. If another process has completed that load since, nothing is left to do. The objects in
    `unreadable` are skipped. Raises PenstockError; then nothing was recorded.
    """
    tools.connect.refuse_unwritable("load")
    reader = FactsReader(plan, tools, connection, resumes=resumes)
    member = _enter_jointly(reader) if plan.job.rules.join else _enter_alone(reader)
    with _closing_if_it_fails(member):
        claimed = _lead(reader, member, created or {}, begun, unreadable) if member.leads else _join(reader, member)
    if isinstance(claimed, NothingToDo):
        member.close()
    return claimed


@contextmanager
def _closing_if_it_fails(session: Connection | Member) -> Iterator[None]:
    try:
        yield
    except BaseException:
        session.close()
        raise


def _enter_alone(reader: FactsReader) -> Member:
    """Create the ledger if it does not exist, and take the load's lock until this session ends.

    If another process has the lock, wait for it, unless the job forbids it. Raises TargetError, ServerError.
    """
    tools, connection, lock = reader.tools, reader.connection, reader.lock
    looks, is_shown = 0, False
    is_locked = tools.ledger.open(connection, lock=lock, is_publishing_allowed=tools.is_publishing_allowed)
    patience = LockPatience(connection, tools.ledger.schema, identity=lock, clock=tools.clock)
    while not is_locked:
        holder = patience.look()
        if not reader.plan.job.rules.wait:
            raise TargetError(
                "another process is running this load",
                detail=f"One of its sessions is {holder or 'just ended'}.",
                hint=explain_end([holder.gid])
                if holder is not None and holder.gid is not None
                else "Wait for it, or end it with pg_terminate_backend.",
            )
        looks += 1
        if looks >= _LOOKS_BEFORE_NOTICE and holder is not None and not is_shown:
            tools.notice(f"waiting for another process that is running this load ({holder})")
            is_shown = True
        tools.sleep(_WAIT_S)
        is_locked = try_lock(connection, lock)
    return Member(tools, lock=lock)


def _enter_jointly(reader: FactsReader) -> JointMember:
    """Take the load's lock, or wait until the process that has it lets others claim objects.

    Raises TargetError, ServerError.
    """
    tools, connection, lock, looks = reader.tools, reader.connection, reader.lock, 0
    seen, is_open = None, False
    is_locked = tools.ledger.open(connection, lock=lock, is_publishing_allowed=tools.is_publishing_allowed)
    patience = LockPatience(connection, tools.ledger.schema, identity=lock, clock=tools.clock)
    while not is_locked:
        holder = patience.look()
        if (found := find_joinable(connection, tools.ledger.schema, lock)) is not None:
            seen, is_open = found
            if is_open:
                break
        looks += 1
        if looks == _LOOKS_TO_JOIN:
            tools.notice(f"waiting for the process that leads this load ({holder or 'just ended'})")
        tools.sleep(_WAIT_S)
        is_locked = try_lock(connection, lock)
    session = tools.connect.connect(label="member")
    with _closing_if_it_fails(session):
        return JointMember(tools, session, load_lock=lock, leads=is_locked, waited_for=seen)


def _lead(
    reader: FactsReader,
    member: Member,
    created: Mapping[TableName, CreatedTable],
    begun: str | None,
    unreadable: Collection[int],
) -> ClaimedLoad | NothingToDo:
    """Claim the load whose lock this process has.

    `begun` is the load that this process has claimed before. If that load, or a load that this process has waited for,
    is complete, nothing is left to do.
    """
    plan, connection = reader.plan, reader.connection
    for load_id in filter(None, (begun, member.waited_for)):
        known = read_meaning(connection, reader.tools.ledger.schema, load_id)
        if known is not None and known.state == "complete":
            left = reader.find_left(load_id, created)
            # The process that led may have died after the load's end, before it restored the tables.
            oids = [target.facts.oid for target in plan.targets if target.facts is not None]
            changed_by = dict.fromkeys(find_changed(connection, reader.tools.ledger.schema, oids), ())
            skipped = len(all_objects(plan.targets)) - len(left)
            return NothingToDo(skipped=skipped, waited_for=load_id, left=left, changed_by=changed_by)
    if not created and plan.created_names:
        with in_transaction(connection, "recording the load"):
            return _claim_objects(reader, member, _create_or_find(reader), unreadable)
    return _claim_objects(reader, member, created, unreadable)


def _claim_objects(
    reader: FactsReader, member: Member, created: Mapping[TableName, CreatedTable], unreadable: Collection[int]
) -> ClaimedLoad | NothingToDo:
    """Read the facts, decide, and write the decisions.

    Start again if another load has claimed one of the objects since the facts were read.
    """
    plan, tools = reader.plan, reader.tools
    while True:
        facts = reader.read(created)
        decision = decide_load(facts, plan.job.rules, host=host_name())
        found = facts.found
        if found.running is None and decision.is_nothing:
            return NothingToDo(skipped=decision.skipped, changed_by=found.changed_by, server_holds=found.server_holds)
        check_objects(facts, decision, plan, tools)
        if found.running is None:
            warn_of_unpublished(plan, tools, reader.connection)
        claimed = ClaimWriter(reader, facts, decision, member, unreadable).write()
        if claimed is not None:
            return claimed


def _join(reader: FactsReader, member: Member) -> ClaimedLoad:
    """Join a running load, and return it without objects, because objects are claimed as they are needed.

    Raises TableExistsError if the load has created a table that this plan would create, and TargetError if an object of
    the load is a different one on this host.
    """
    plan, tools, connection, schema = reader.plan, reader.tools, reader.connection, reader.tools.ledger.schema
    if created := plan.created_names:
        raise TableExistsError(f'table "{created[0]}" exists now')
    facts = reader.read({})
    load_id = facts.found.running
    if load_id is None or load_id != member.waited_for:
        # The load has ended since, or its lock now belongs to another load.
        raise _passing(member.waited_for)
    decision = decide_load(facts, replace(plan.job.rules, emptied="skip"), host=host_name())
    tables = read_targets(plan, {}, connection)
    landings = _read_landings(reader, tables, load_id, group_objects(facts, decision))
    number = register(connection, schema, load_id, lock=member.process.lock, client=member.process.client)
    claim = Claim(load_id=load_id, epoch=0, is_resumed=True, member=number)
    filled = {landing.record.number: landing.table for landing in landings}
    objects = {
        each.number: replace(work, number=each.number, landing=filled.get(work.target_index))
        for work, each in zip(facts.works, decision.objects, strict=True)
        if each.is_part
    }
    others = find_others(connection, schema, load_id, list(objects))
    member.bind(claim, objects, (), unseen=others, left=decision.left)
    tools.notice(f"joined load {load_id} as member {claim.member}")
    return ClaimedLoad(
        claim=claim,
        member=member,
        objects=objects,
        left=decision.left,
        skipped=decision.skipped,
        landings=landings,
        tables=map_tables(plan, tables, {}, landings),
    )


def _read_landings(
    reader: FactsReader, tables: Sequence[TableFacts], load_id: str, objects: Mapping[int, Sequence[int]]
) -> tuple[TargetLanding, ...]:
    """Return the tables that the leading process has created for the targets."""
    if not reader.plan.needs_more_than_copy:
        return ()
    return tuple(
        TargetLanding(
            target=reader.plan.targets[number],
            facts=tables[number],
            record=record,
            objects=tuple(objects.get(number, ())),
        )
        for number, record in read_landings(reader.connection, reader.tools.ledger.schema, load_id).items()
    )


def _passing(load_id: str | None) -> TakenOverError:
    error = TakenOverError(f"load {load_id} has ended or changed while this process joined it")
    error.is_transient, error.load_id = True, load_id
    return error


def _create_or_find(reader: FactsReader) -> dict[TableName, CreatedTable]:
    """Create the tables that --create requests. They must exist before the sessions' transactions begin.

    If an earlier COMMIT created them and its answer was lost, find them.
    """
    plan, connection = reader.plan, reader.connection
    wanted = {
        target.table: (target.create_columns, target.create_types, target.created_key)
        for target in plan.targets
        if target.create_columns is not None
    }
    try:
        return {table: create_table(connection, table, *columns) for table, columns in wanted.items()}
    except TargetError:
        if not reader.tools.ledger.has(connection, plan.load_id):
            raise
        found = {table: facts for table in wanted if (facts := find_table(connection, table)) is not None}
        if len(found) < len(wanted):
            raise
    # Whether the schema was created too is no longer known, so it is never dropped.
    return {table: CreatedTable(oid=facts.oid, name=facts.name, has_new_schema=False) for table, facts in found.items()}
