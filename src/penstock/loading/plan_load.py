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
from penstock.changes.tables.look import refuse_changed_elsewhere, refuse_missing
from penstock.core.catalogue.locking import telling_once, with_lock_retries
from penstock.core.catalogue.tables import refuse_creation
from penstock.core.checks import check_columns, check_sequences
from penstock.core.closing import log_notice
from penstock.core.connect.connection import Connection, ConnectionFactory
from penstock.core.host.machine import cpu_count
from penstock.core.slotted import slotted
from penstock.core.tuning import DEFAULT_TUNING, LoadTuning
from penstock.core.values.diagnosis import refuse
from penstock.core.values.job import Housekeeping, LoadJob
from penstock.core.values.mode import CLIENT_ROUTE
from penstock.core.values.notice import Notice, WarningCode
from penstock.ledger.lookup import Ledgers, look_for_ledgers, refuse_known_elsewhere
from penstock.loading.claim.decide import refuse_changed, refuse_joint
from penstock.loading.context import LoadTools
from penstock.loading.files.streams import SourceReader
from penstock.loading.imports.route import (
    await_answer,
    begin_asking,
    class_of,
    find_near_windows,
    import_sessions,
    plan_route,
)
from penstock.loading.indexes.plan import plan_indexes
from penstock.loading.plan.dialects import naming_strays
from penstock.loading.plan.freeze import choose_freeze, send_whole_tables
from penstock.loading.plan.gather import Inputs, collect_objects, gather_inputs
from penstock.loading.plan.notices import server_notices
from penstock.loading.plan.order import TargetOrder, choose_batch, choose_sessions, order_targets, stage_together
from penstock.loading.plan.remedies import with_command
from penstock.loading.plan.target import plan_target
from penstock.loading.send.formats import choose_formats
from penstock.loading.types.notations import sample_notices, unread_notices
from penstock.loading.values.plan import LoadPlan, RowFacts, SessionPlan, TargetPlan, total_size
from penstock.loading.warned import WarningLog

if TYPE_CHECKING:
    from penstock.core.values.table import TableFacts
    from penstock.rds.describe import BriefQuestion
    from penstock.rds.values import RdsDescription


@slotted
class PlanTools:
    """The connections, sources and callbacks with which a load is planned."""

    connect: ConnectionFactory
    sources: SourceReader
    ledger_schema: str = "penstock"
    tuning: LoadTuning = DEFAULT_TUNING
    # How long to wait for AWS's description of an RDS instance.
    aws_timeout_s: float = Housekeeping().aws_timeout
    # Keeps the warnings of the sources and of the server.
    warnings: WarningLog = field(default_factory=WarningLog)
    # Shows what the planning waits for.
    on_notice: Callable[[str], None] = log_notice
    # Whether an object that has changed since it was loaded is an error of the plan. A check reads it all the same.
    refuses_changed: bool = True


def plan_load(job: LoadJob, tools: PlanTools) -> LoadPlan:
    """Examine a job's sources, its tables and the server, and return what a load would do. Raises PenstockError."""
    notices: list[Notice] = []
    with tools.connect.borrow() as connection:
        ledgers = look_for_ledgers(connection, tools.ledger_schema)
        inputs = _gather(job, connection, tools, ledger_schema=tools.ledger_schema if ledgers.exists else None)
        job, server = inputs.job, inputs.server
        question = _begin_asking(inputs, connection, tools)
        _look_into_ledgers(ledgers, inputs, connection)
        order = _plan_targets(inputs, connection, tools, notices)
        described = await_answer(question, on_notice=tools.on_notice)
        sessions = _choose_sessions(order, inputs, described, notices)
        route = CLIENT_ROUTE
        if job.rules.via == "server":
            route = plan_route(order.targets, job.rules, connection, described=described)
    refuse_joint(order, job.rules, route)
    if route.is_import:
        sessions = import_sessions(order.targets, sessions)
    notices += _note_samples(order.targets, tools.connect)
    targets = _find_columns(order.targets, inputs, tools, notices)
    facts = RowFacts(
        rules=job.rules,
        server=server,
        route=route,
        sessions=sessions,
        is_repeatable=order.is_repeatable,
        tuning=tools.tuning,
    )
    targets, freeze = choose_formats(targets, facts), choose_freeze(targets, facts)
    batch = choose_batch(order, tools.tuning)
    if freeze.is_used:
        batch, sessions = send_whole_tables(targets, batch, sessions)
    return LoadPlan(
        load_id=str(uuid.uuid4()),
        job=job,
        server=server,
        targets=tuple(targets),
        sessions=sessions,
        batch=batch,
        is_repeatable=order.is_repeatable,
        notices=(*with_command(notices, targets, job), *tools.warnings.notices),
        is_in_job_order=order.is_in_job_order,
        ranks=order.ranks,
        defers_keys=order.defers_keys,
        tuning=tools.tuning,
        route=route,
        unreadable=inputs.unreadable,
        freeze=freeze,
    )


def read_again(job: LoadJob, tools: PlanTools) -> LoadPlan:
    """Return a plan with which all objects of a job are read again and no rows are stored.

    What would keep rows from being stored, such as a missing privilege, is no error. Neither the ledger nor AWS's
    description of the server is read. Raises PenstockError.
    """
    with tools.connect.borrow() as connection:
        inputs = _gather(_as_read_again(job), connection, tools, stores=False)
        planned = [plan_target(each, inputs.job.rules, inputs.server) for each in inputs.targets]
        order = order_targets(stage_together([target for target, _ in planned], is_atomic=job.rules.atomic), job.rules)
    sessions = choose_sessions(order, 1, inputs.server, cpu_count=None, instance_class=None)
    return LoadPlan(
        load_id=str(uuid.uuid4()),
        job=inputs.job,
        server=inputs.server,
        targets=order.targets,
        sessions=sessions,
        batch=choose_batch(order, tools.tuning),
        is_repeatable=order.is_repeatable,
        ranks=order.ranks,
        tuning=tools.tuning,
        unreadable=inputs.unreadable,
    )


def _as_read_again(job: LoadJob) -> LoadJob:
    """Return a job whose plan reads all objects and changes no table."""
    rules = replace(
        job.rules,
        again=True,
        join=False,
        via="client",
        indexes="keep",
        triggers="keep",
        autovacuum="keep",
        freeze="never",
    )
    # Of a table that exists, create decides like add_columns how records become columns, and adds none.
    targets = tuple(
        replace(each, types="text", create=each.create or each.add_columns, add_columns=False, missing="default")
        for each in job.targets
    )
    return replace(job, rules=rules, targets=targets)


def _gather(
    job: LoadJob, connection: Connection, tools: PlanTools, *, ledger_schema: str | None = None, stores: bool = True
) -> Inputs:
    return gather_inputs(
        job,
        sources=tools.sources,
        connection=connection,
        on_notice=tools.warnings.add,
        ledger_schema=ledger_schema,
        is_embedded=tools.connect.is_embedded,
        stores=stores,
        refuse_changed=partial(refuse_changed, rules=job.rules) if tools.refuses_changed else None,
    )


def _begin_asking(inputs: Inputs, connection: Connection, tools: PlanTools) -> BriefQuestion | None:
    """Begin to ask AWS about the server. AWS answers while the targets and their indexes are planned."""
    size_bytes = total_size(source for gathered in inputs.targets for source in gathered.objects)
    is_large = size_bytes is None or size_bytes >= tools.tuning.least_asking_bytes
    return begin_asking(
        connection.info.host,
        is_worth=inputs.job.rules.via == "server" or (is_large and not inputs.server.is_local),
        patience_s=tools.aws_timeout_s,
    )


def _look_into_ledgers(ledgers: Ledgers, inputs: Inputs, connection: Connection) -> None:
    """Raise TargetError if an earlier load left a table changed, or if another ledger knows it."""
    if inputs.oids and ledgers.exists:
        refuse_copied(connection, refuse_missing(connection, ledgers.schema, inputs.oids), inputs.oids)
    if ledgers.others and not inputs.job.rules.is_repeating:
        tables, items = collect_objects(inputs.targets)
        refuse_known_elsewhere(connection, ledgers, tables, items)
    refuse_changed_elsewhere(connection, ledgers.others, inputs.oids)


def _plan_targets(inputs: Inputs, connection: Connection, tools: PlanTools, notices: list[Notice]) -> TargetOrder:
    """Return the planned targets in their order, with what is done with their indexes. Add what is noticed."""
    rules, server = inputs.job.rules, inputs.server
    planned: list[tuple[TargetPlan, tuple[Notice, ...]]] = []
    for gathered in inputs.targets:
        with naming_strays(gathered.objects, first=gathered.sample.source.uri):
            planned.append(plan_target(gathered, rules, server))
    targets = stage_together([target for target, _ in planned], is_atomic=rules.atomic)
    _refuse_denied(targets, role=server.user)
    for table in {target.table.schema: target.table for target in targets if target.facts is None}.values():
        refuse_creation(connection, table)
    # A definition cannot be read while another session has locked the table against readers, so retry these reads.
    read_definitions = partial(
        with_lock_retries,
        connection,
        relations=inputs.oids,
        deadline_s=rules.retry_for,
        on_blocked=telling_once(tools.on_notice, "read the definition of the tables"),
    )
    while True:
        # Order the targets after their indexes and keys are planned: foreign keys that the load drops do not count.
        indexed = read_definitions(partial(plan_indexes, targets, rules, connection, tuning=tools.tuning))
        order = order_targets(indexed, rules)
        # A target that follows a staged one is staged too. Then its table is truncated at the end, and is not empty
        # while rows are sent: plan its indexes again.
        late = [each.is_truncated_first and new.is_staged for each, new in zip(targets, order.targets, strict=True)]
        if not any(late):
            break
        targets = [each.staged() if is_late else each for each, is_late in zip(targets, late, strict=True)]
    notices += [notice for _, of_target in planned for notice in of_target]
    notices += [*order.notices, *server_notices(server)]
    for target in order.targets:
        if target.job.for_values is not None and target.facts is not None and target.facts.parent is None:
            read_definitions(partial(_refuse_other_bounds, connection, target.facts, target.job.for_values))
    if any(target.needs_more_than_copy for target in order.targets):
        checked = read_definitions(partial(_check_landings, order.targets, connection, tools))
        return replace(order, targets=checked)
    return order


def _refuse_other_bounds(connection: Connection, facts: TableFacts, for_values: str) -> None:
    """Raise TargetError if a partition that exists has other bounds than those that the job gives."""
    from penstock.loading.land.partition import refuse_other_bounds  # noqa: PLC0415 (20 ms, for who makes partitions)

    refuse_other_bounds(connection, facts, for_values)


def _check_landings(targets: Sequence[TargetPlan], connection: Connection, tools: PlanTools) -> tuple[TargetPlan, ...]:
    """Raise TargetError if a table cannot be filled as planned. Return the targets with what deletions change."""
    from penstock.loading.land.landing import check_landings, note_cascades  # noqa: PLC0415 (20 ms, for who merges)

    check_landings(targets, connection, ledger_schema=tools.ledger_schema)
    return tuple(note_cascades(target, connection) for target in targets)


def _choose_sessions(
    order: TargetOrder, inputs: Inputs, described: RdsDescription | None, notices: list[Notice]
) -> SessionPlan:
    """Return how many sessions send the rows, as the hardware of the server allows. Add what is noticed."""
    is_local = inputs.server.is_local
    if not is_local:
        notices += find_near_windows(described)
    return choose_sessions(
        order,
        inputs.job.sessions,
        inputs.server,
        cpu_count=cpu_count() if is_local else None,
        instance_class=None if is_local else class_of(described),
    )


def _refuse_denied(targets: Sequence[TargetPlan], *, role: str) -> None:
    """Raise TargetError if the role may not fill a column, or not use the sequence that gives a column its default."""
    for target in targets:
        if target.facts is not None and target.job.transform is None:
            for check in (check_columns, check_sequences):
                refuse(check(target.facts, target.column_map.columns, role=role), sqlstate="42501")


def _note_samples(targets: Sequence[TargetPlan], connect: ConnectionFactory) -> list[Notice]:
    """Return a notice for each column that does not take the values of its sample, or is left out.

    A further notice says if this connection can plan but not load, such as one through a pooler.
    """
    notices = [notice for target in targets for notice in sample_notices(target, connect.date_order)]
    notices += [notice for target in targets for notice in unread_notices(target)]
    refusal = connect.explain_unwritable("load")
    if refusal is not None:
        is_pooler = connect.pooler is not None
        code: WarningCode = "pooler" if is_pooler else "read-only"
        notices.append(Notice(code=code, message=refusal.claim, hint=refusal.remedy))
    return notices


def _find_columns(
    targets: Sequence[TargetPlan], inputs: Inputs, tools: PlanTools, notices: list[Notice]
) -> Sequence[TargetPlan]:
    """Return the targets with the columns and types that were found in their files. Add what is noticed."""
    if not any(target.job.types != "text" or target.job.add_columns for target in targets):
        return targets
    from penstock.loading.types.find import find_columns  # noqa: PLC0415 (for who asks for types)

    rules, server = inputs.job.rules, inputs.server
    reading = LoadTools(
        connect=tools.connect,
        sources=tools.sources,
        server_major=server.major,
        on_notice=tools.on_notice,
        max_record_bytes=rules.max_record,
        rejects_torn=rules.on_error == "reject",
    )
    found, noted = find_columns(targets, inputs.job, reading, server_encoding=server.server_encoding, noted=notices)
    notices += noted
    return found
