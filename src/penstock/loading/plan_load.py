"""Plans a load: gathers facts, plans each target, then decides indexes, order, route, types and formats of COPY.

`--plan` prints the plan, and `run.py` carries it out.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from functools import partial
from typing import TYPE_CHECKING

from penstock.changes.tables.copied import refuse_copied
from penstock.changes.tables.look import refuse_missing
from penstock.core.catalogue.locking import telling_once, with_lock_retries
from penstock.core.checks import check_columns, check_sequences
from penstock.core.closing import log_notice
from penstock.core.frozen import frozen
from penstock.core.host.machine import cpu_count
from penstock.core.tuning import DEFAULT_TUNING, LoadTuning
from penstock.core.values.finding import refuse
from penstock.core.values.job import Housekeeping
from penstock.core.values.notice import Notice
from penstock.ledger.lookup import look_for_ledgers, refuse_known_elsewhere
from penstock.loading.claim.decide import refuse_joint
from penstock.loading.context import LoadTools
from penstock.loading.imports.instance import await_answer, begin_asking, plan_by_instance
from penstock.loading.indexes.plan import plan_indexes
from penstock.loading.plan.freeze import choose_freeze
from penstock.loading.plan.gather import find_objects, gather_inputs
from penstock.loading.plan.order import order_load, stage_together
from penstock.loading.plan.remedies import with_command
from penstock.loading.plan.target import plan_target
from penstock.loading.send.formats import choose_formats
from penstock.loading.types.notations import sample_notices, unread_notices
from penstock.loading.values.plan import total_size
from penstock.loading.warned import WarningLog

if TYPE_CHECKING:
    from penstock.core.connect.connection import Connection, ConnectionFactory
    from penstock.core.values.accounts import UnreadableObject
    from penstock.core.values.job import LoadJob, LoadRules
    from penstock.core.values.server import ServerFacts
    from penstock.ledger.lookup import Ledgers
    from penstock.loading.files.streams import SourceReader
    from penstock.loading.plan.target import TargetInput
    from penstock.loading.values.plan import LoadPlan, TargetPlan
    from penstock.rds.describe import BriefQuestion


@frozen
class World:
    """The connections, sources and callbacks with which a load is planned."""

    connect: ConnectionFactory
    sources: SourceReader
    ledger_schema: str = "penstock"
    tuning: LoadTuning = DEFAULT_TUNING
    # Whether rows are to be stored. If not, the plan only says how the objects are read. What keeps rows from being
    # stored, such as a missing privilege, is then no error.
    stores: bool = True
    # How long to wait for AWS's description of an RDS instance.
    aws_timeout_s: float = Housekeeping().aws_timeout
    # Keeps the warnings of the sources and of the server.
    warnings: WarningLog = field(default_factory=WarningLog)
    # Shows what the planning waits for.
    on_notice: Callable[[str], None] = log_notice


def plan_load(job: LoadJob, world: World) -> LoadPlan:
    """Return what a load would do, given its sources, its tables and the server. Raises PenstockError."""
    unreadable: list[UnreadableObject] = []
    with world.connect.borrow() as connection:
        ledgers = look_for_ledgers(connection, world.ledger_schema)
        server, job, inputs = gather_inputs(
            job,
            sources=world.sources,
            connection=connection,
            on_notice=world.warnings.add,
            on_unreadable=unreadable.append,
            ledger_schema=world.ledger_schema if ledgers.exists else None,
            stores=world.stores,
        )
        server = replace(server, is_embedded=world.connect.is_embedded)
        question = _begin_asking(job, inputs, server, connection, world)
        oids = [gathered.facts.oid for gathered in inputs if gathered.facts is not None]
        if world.stores:
            _look_into_ledgers(ledgers, inputs, oids, connection, job.rules)
        planned = [plan_target(gathered, job.rules, server) for gathered in inputs]
        targets = stage_together([target for target, _ in planned], is_atomic=job.rules.atomic)

        # A definition cannot be read while another session has locked the table against readers, so retry these reads.
        read_definitions = partial(
            with_lock_retries,
            connection,
            relations=oids,
            deadline_s=job.rules.retry_for,
            on_blocked=telling_once(world.on_notice, "read the definition of the tables"),
        )
        if world.stores:
            _refuse_denied(targets, role=server.user)
            targets = read_definitions(partial(plan_indexes, targets, job.rules, connection, tuning=world.tuning))

        # Order the targets after their indexes and keys are planned: foreign keys that the load drops do not count.
        plan = order_load(
            job,
            targets,
            server=server,
            cpu_count=cpu_count() if server.is_local else None,
            load_id=str(uuid.uuid4()),
            tuning=world.tuning,
        )
        notices = tuple(notice for _, of_target in planned for notice in of_target)
        plan = replace(plan, notices=(*notices, *plan.notices), unreadable=tuple(unreadable))
        if world.stores and plan.needs_more_than_copy:
            plan = read_definitions(partial(_check_landings, plan, connection, world))
        plan = _choose_route(plan, question, connection, world)
    refuse_joint(plan)
    plan = _note_refusal(_note_samples(plan, world.connect), world.connect)
    if any(target.job.types != "text" or target.job.add_columns for target in plan.targets):
        from penstock.loading.types.find import find_columns  # noqa: PLC0415 (for who asks for types)

        plan = find_columns(plan, _reading_tools(plan, world))
    plan = choose_freeze(choose_formats(plan))
    return replace(plan, notices=with_command(plan.notices, plan))


def _check_landings(plan: LoadPlan, connection: Connection, world: World) -> LoadPlan:
    """Raise TargetError if a table cannot be filled as planned. Return the plan with what deletions change."""
    from penstock.loading.land.landing import check_landings, note_cascades  # noqa: PLC0415 (20 ms, for who merges)

    check_landings(plan, connection, ledger_schema=world.ledger_schema)
    return note_cascades(plan, connection)


def _begin_asking(
    job: LoadJob, inputs: tuple[TargetInput, ...], server: ServerFacts, connection: Connection, world: World
) -> BriefQuestion | None:
    """Begin to ask AWS about the server. AWS answers while the targets and their indexes are planned."""
    size_bytes = total_size(source for gathered in inputs for source in gathered.objects)
    is_large = size_bytes is None or size_bytes >= world.tuning.least_asking_bytes
    return begin_asking(
        connection.info.host,
        is_worth=job.rules.via != "client" or (is_large and not server.is_local),
        patience_s=world.aws_timeout_s,
    )


def _choose_route(plan: LoadPlan, question: BriefQuestion | None, connection: Connection, world: World) -> LoadPlan:
    """Return the plan as the instance's hardware allows it, with objects that the server imports itself."""
    described = await_answer(question, on_notice=world.on_notice)
    if not plan.server.is_local:
        plan = plan_by_instance(plan, plan.server, described)
    if plan.job.rules.via != "client":
        from penstock.loading.imports.choose import plan_route  # noqa: PLC0415 (for who imports from S3)

        plan = plan_route(plan, plan.server, connection, world.sources, described)
    return plan


def _refuse_denied(targets: Sequence[TargetPlan], *, role: str) -> None:
    """Raise TargetError if the role may not fill a column, or not use the sequence that gives a column its default."""
    for target in targets:
        if target.facts is not None and target.job.transform is None:
            for check in (check_columns, check_sequences):
                refuse(check(target.facts, target.column_map.columns, role=role), sqlstate="42501")


def _look_into_ledgers(
    ledgers: Ledgers, inputs: tuple[TargetInput, ...], oids: Sequence[int], connection: Connection, rules: LoadRules
) -> None:
    """Raise TargetError if a table lacks an index that an earlier load dropped, or if another ledger knows it."""
    if oids and ledgers.exists:
        refuse_copied(connection, refuse_missing(connection, ledgers.schema, oids), oids)
    if ledgers.others and not rules.is_repeating:
        tables, items = find_objects(inputs)
        refuse_known_elsewhere(connection, ledgers, tables, items)


def _note_samples(plan: LoadPlan, connect: ConnectionFactory) -> LoadPlan:
    """Return the plan, with a notice for each column that does not take its sample's values, or is left out."""
    notices = [notice for target in plan.targets for notice in sample_notices(target, connect.date_order)]
    notices += [notice for target in plan.targets for notice in unread_notices(target)]
    return replace(plan, notices=(*plan.notices, *notices))


def _note_refusal(plan: LoadPlan, connect: ConnectionFactory) -> LoadPlan:
    """Return the plan, with a notice if this connection can plan but not load, such as one through a pooler."""
    refusal = connect.find_refusal("load")
    if refusal is None:
        return plan
    is_pooler = connect.pooler is not None
    notice = Notice(code="pooler" if is_pooler else "read-only", message=refusal.text, hint=refusal.remedy)
    return replace(plan, notices=(*plan.notices, notice))


def _reading_tools(plan: LoadPlan, world: World) -> LoadTools:
    """Return the tools that read every value of the files."""
    rules = plan.job.rules
    return LoadTools(
        connect=world.connect,
        sources=world.sources,
        server_major=plan.server.major,
        on_notice=world.on_notice,
        max_record_bytes=rules.max_record,
        rejects_torn=rules.on_error == "reject",
    )
