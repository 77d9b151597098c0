"""Joins a load that another host leads: waits until objects can be claimed, and compares them with this host's."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.errors import TableExistsError, TakenOverError
from penstock.loading.claim.claims import client_name, host_name
from penstock.loading.claim.decide import decide_load
from penstock.loading.claim.facts import FactsReader, created_names, find_facts, find_tables
from penstock.loading.claim.prepared import PreparedLoad, TargetLanding
from penstock.model.load.ledger import Claim
from penstock.server.ledger.committed import find_others
from penstock.server.ledger.locks import try_lock
from penstock.server.ledger.members import find_joinable, register
from penstock.server.ledger.targets import read_landings

if TYPE_CHECKING:
    from penstock.loading.claim.membership import Membership
    from penstock.loading.context import LoadTools
    from penstock.loading.plan.work import ObjectWork
    from penstock.model.load.plan import LoadPlan
    from penstock.server.connect.connection import Connection

_WAIT_S = 0.2

# A wait is shown only after this many looks, so that short waits are not shown.
_LOOKS_BEFORE_NOTICE = 10


@dataclass(frozen=True, slots=True)
class Role:
    """What this process is for a load: it leads if it holds the load's lock. `load_id` is the load that was seen."""

    leads: bool
    load_id: str | None


def find_role(lock: str, tools: LoadTools, connection: Connection) -> Role:
    """Take the load's lock, or wait until the process that has it lets others claim objects.

    Raises TargetError, ServerError.
    """
    schema, seen, looks = tools.ledger.schema, None, 0
    is_locked = tools.ledger.open(connection, lock=lock, is_publishing_allowed=tools.is_publishing_allowed)
    while not is_locked:
        found = find_joinable(connection, schema, lock)
        if found is not None:
            seen, is_open = found
            if is_open:
                return Role(leads=False, load_id=seen)
        looks += 1
        if looks == _LOOKS_BEFORE_NOTICE:
            tools.notice("waiting for the process that leads this load")
        tools.sleep(_WAIT_S)
        is_locked = try_lock(connection, lock)
    return Role(leads=True, load_id=seen)


def join_load(
    plan: LoadPlan,
    tools: LoadTools,
    connection: Connection,
    reader: FactsReader,
    *,
    member: Membership,
    load_id: str | None,
) -> PreparedLoad:
    """Join a running load, and return it without work: objects are claimed as they are needed.

    Raises TableExistsError if the load has created a table that this plan would create, and TargetError if an object is
    another one on this host.
    """
    if created := created_names(plan):
        raise TableExistsError(f'table "{created[0]}" exists now')
    facts = reader.read(())
    if facts.found.running is None or facts.found.running != load_id:
        # The load has ended since, or is another one.
        raise _passing(load_id)
    decision = decide_load(facts, replace(plan.job.rules, emptied="skip"), host=host_name())
    works = [(work, each.number) for work, each in zip(facts.works, decision.objects, strict=True) if each.is_part]
    tables = find_facts(plan, (), connection)
    landings = _read_landings(plan, tools, connection, load_id=facts.found.running, works=works)
    number = register(connection, tools.ledger.schema, facts.found.running, lock=member.lock, client=client_name())
    claim = Claim(load_id=facts.found.running, epoch=0, is_resumed=True, member=number)
    by_target = {landing.record.number: landing for landing in landings}
    objects = {
        number: replace(
            work,
            number=number,
            landing=by_target[work.target_index].table if work.target_index in by_target else None,
        )
        for work, number in works
    }
    others = find_others(connection, tools.ledger.schema, claim.load_id, list(objects))
    member.bind(claim, objects, unseen=others, left=decision.left)
    tools.notice(f"joined load {claim.load_id} as member {claim.member}")
    return PreparedLoad(
        claim=claim,
        work=(),
        created=(),
        skipped=decision.skipped,
        rows_before=0,
        landings=landings,
        objects=objects,
        tables=find_tables(plan, tables, (), landings),
        member=member,
        leads=False,
        left=decision.left,
    )


def _read_landings(
    plan: LoadPlan, tools: LoadTools, connection: Connection, *, load_id: str, works: list[tuple[ObjectWork, int]]
) -> tuple[TargetLanding, ...]:
    """Return the tables that the process which leads has created for the targets."""
    if not plan.needs_more_than_copy:
        return ()
    facts = find_facts(plan, (), connection)
    objects: dict[int, list[int]] = {}
    for work, number in works:
        objects.setdefault(work.target_index, []).append(number)
    return tuple(
        TargetLanding(
            target=plan.targets[number], facts=facts[number], record=record, objects=tuple(objects.get(number, ()))
        )
        for number, record in read_landings(connection, tools.ledger.schema, load_id).items()
    )


def _passing(load_id: str | None) -> TakenOverError:
    error = TakenOverError(f"load {load_id} has ended or changed while this process joined it")
    error.is_transient = True
    return error
