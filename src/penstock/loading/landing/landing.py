"""Before the first row: what a load truncates, and the tables it makes for records to land in.

Each is written down in the ledger in its own transaction, so that a load that is taken up again finds what was made,
and truncates nothing a second time. A landing table that has vanished, or that does not fit any more, is made anew, and
its objects begin anew with it.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from penstock.errors import TargetError
from penstock.loading.claim.prepared import TargetLanding
from penstock.loading.plan.modes import merge_mode
from penstock.model.load.landing import POSITION_COLUMNS
from penstock.model.load.ledger import LandingRecord
from penstock.model.server.table import TableName
from penstock.server.connect.errors import in_transaction
from penstock.server.ddl.capture import capture_table, find_obstacles, refuse_obstacles
from penstock.server.ddl.compose import compose_create
from penstock.server.ddl.replacement import create_replacement, enforce_early
from penstock.server.ledger.schema import CHANGES_VERSION, find_publications, find_version
from penstock.server.ledger.targets import (
    drop_landing,
    drop_ranges,
    find_unended,
    note_truncated,
    read_landings,
    write_landing,
)
from penstock.server.merge.merge import check_merge
from penstock.server.merge.merge_key import check_key
from penstock.server.merge.merge_transform import check_transform
from penstock.server.shape import find_changed
from penstock.server.shape.parts import capture_many
from penstock.server.table.locking import describe_blocker, with_lock_retries
from penstock.server.table.staging import describe_landing_table, find_landing_table, make_landing_table
from penstock.server.table.truncate import check_truncatable, truncate_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from penstock.loading.context import LoadTools
    from penstock.model.load.ledger import Claim
    from penstock.model.load.plan import LoadPlan
    from penstock.model.server.table import TableFacts
    from penstock.server.connect.connection import Connection
    from penstock.server.ddl.definition import TableDefinition
    from penstock.server.table.locking import Blocker

_Result = TypeVar("_Result")


def check_ways(plan: LoadPlan, connection: Connection, *, ledger_schema: str) -> None:
    """Raise TargetError where a table cannot be filled in the way that was asked for; changes nothing."""
    for target in plan.targets:
        job, facts = target.job, target.facts
        if facts is None:
            continue
        if job.mode == "truncate":
            check_truncatable(connection, facts)
        elif (mode := merge_mode(job)) is not None:
            try:
                check_key(connection, facts, job.key, columns=target.column_map.columns, mode=mode)
            except TargetError as error:
                if _lacks_parts(connection, ledger_schema, facts.oid):
                    error.hint = "A load has dropped keys of the table, to rebuild them: see penstock repair --plan."
                raise
        elif job.mode == "replace":
            definition = capture_table(connection, facts.oid, name=facts.name)
            refuse_obstacles(definition.name, find_obstacles(connection, definition))


def with_locks(
    act: Callable[[], _Result],
    *,
    plan: LoadPlan,
    tools: LoadTools,
    connection: Connection,
    relations: Sequence[int],
    what: str,
    is_patient: bool = True,
) -> _Result:
    """Return what `act` does once it gets its locks; say who is in the way. Raises ServerError that names them.

    It tries for as long as the load waits for faults to pass; but once where it `is_patient` not.
    """
    told: set[int | None] = set()

    def tell(blockers: tuple[Blocker, ...]) -> None:
        if news := [blocker for blocker in blockers if blocker.pid not in told]:
            told.update(blocker.pid for blocker in news)
            tools.notice(f"waiting to {what}: {'; '.join(map(describe_blocker, news))}")

    return with_lock_retries(
        connection,
        act,
        relations=relations,
        deadline_s=plan.job.rules.retry_for if is_patient else 0.0,
        on_blocked=tell,
        clock=tools.clock,
        sleep=tools.sleep,
    )


def _lacks_parts(connection: Connection, ledger_schema: str, oid: int) -> bool:
    """Whether a load has changed something at a table that is not put back."""
    has_changes = find_version(connection, ledger_schema) >= CHANGES_VERSION
    return has_changes and bool(find_changed(connection, ledger_schema, [oid]))


# ---------------------------------------------------------------- made, or found again


class LandingMaker:
    """Finds or makes what the targets of one load need; within the transaction of `open`."""

    def __init__(
        self, plan: LoadPlan, tools: LoadTools, connection: Connection, *, claim: Claim, identity: str
    ) -> None:
        self._plan = plan
        self._tools = tools
        self._connection = connection
        self._claim = claim
        self._identity = identity
        self._schema = tools.ledger.schema
        self._loaded: frozenset[int] = frozenset()

    def open(self, facts: Sequence[TableFacts], objects: Mapping[int, Sequence[int]]) -> tuple[TargetLanding, ...]:
        """Return the targets that need more than COPY, with what was made for them.

        `facts` are all targets', `objects` the numbers of the objects that each target has in this load. Raises
        TargetError, UsageError, DataError where the statement at the end would be refused, ServerError.
        """
        with in_transaction(self._connection, "opening the tables to land in"):
            self._tools.ledger.hold_claim(self._connection, self._claim)
            self._loaded = frozenset(each.oid for each in facts)
            records = read_landings(self._connection, self._schema, self._claim.load_id)
            return tuple(
                self._open(
                    TargetLanding(
                        target=target,
                        facts=facts[place],
                        record=records.get(place, LandingRecord(number=place, target_oid=facts[place].oid)),
                        objects=tuple(objects[place]),
                    )
                )
                for place, target in enumerate(self._plan.targets)
                if objects.get(place) and (target.landing != "table" or target.job.mode == "truncate")
            )

    def _open(self, landing: TargetLanding) -> TargetLanding:
        if landing.target.landing == "table":
            return landing

        def act() -> TargetLanding:
            return (
                self._open_staging(landing) if landing.target.landing == "staging" else self._open_replacement(landing)
            )

        return with_locks(
            act,
            plan=self._plan,
            tools=self._tools,
            connection=self._connection,
            relations=[landing.facts.oid, *landing.facts.references],
            what=f'look at "{landing.facts.name}"',
        )

    def _begin_anew(self, landing: TargetLanding) -> None:
        """Forget what was committed to a landing table that is gone, or does not fit."""
        if landing.record.kind is None:
            return
        name = f"{landing.record.schema}.{landing.record.table}"
        self._tools.notice(f'table "{name}" of this load was dropped or changed: its objects are loaded again')
        drop_ranges(self._connection, self._schema, self._claim, landing.objects)

    def _note(self, landing: TargetLanding, *, table: TableName, oid: int, digest: str | None = None) -> TargetLanding:
        record = replace(
            landing.record,
            kind="staging" if landing.target.landing == "staging" else "replacement",
            schema=table.schema,
            table=table.name,
            oid=oid,
            definition=digest,
        )
        write_landing(self._connection, self._schema, self._claim, record)
        return replace(landing, record=record)

    # ---------------------------------------------------------------- staging

    def _open_staging(self, landing: TargetLanding) -> TargetLanding:
        columns = landing.target.column_map.columns
        # Of the identity, so that subscribers can be told of it before it is there.
        name = TableName(schema=self._schema, name=f"staging_{self._identity[:16]}_{landing.record.number}")
        found = find_landing_table(self._connection, schema=self._schema, name=name.name)
        is_ours = found is not None and found.is_ours
        is_same = found is not None and is_ours and found.oid == landing.record.oid
        if found is not None and is_same and set(found.columns) == {*columns, *POSITION_COLUMNS}:
            self._check_statement(landing, name)
            return landing
        if found is not None and not is_ours:
            raise _not_ours(name, owner=found.owner)
        self._begin_anew(landing)
        if found is not None:
            # Left over by this same load, under another name in the ledger or none.
            left = replace(landing.record, kind="staging", schema=self._schema, table=name.name, oid=found.oid)
            self._drop(left)
        as_text = landing.target.job.transform is not None
        self._refuse_publications(
            find_publications(self._connection),
            lambda: describe_landing_table(
                self._connection, table=name, target=landing.facts, columns=columns, as_text=as_text
            ),
        )
        oid = self._make_staging(name, landing, columns=columns, as_text=as_text)
        self._check_statement(landing, name)
        return self._note(landing, table=name, oid=oid)

    def _make_staging(self, name: TableName, landing: TargetLanding, *, columns: Sequence[str], as_text: bool) -> int:
        try:
            return make_landing_table(
                self._connection,
                schema=self._schema,
                name=name.name,
                target=landing.facts,
                columns=columns,
                as_text=as_text,
            )
        except TargetError as error:
            if error.sqlstate == "42501":
                error.hint = (
                    f"Have the owner grant CREATE on schema {self._schema}, for staging tables, and USAGE on"
                    " the types of the table's columns; or use a schema of your own with --ledger-schema."
                )
            raise

    def _check_statement(self, landing: TargetLanding, staging: TableName) -> None:
        job = landing.target.job
        if job.transform is not None:
            check_transform(self._connection, job.transform, staging=staging)
            return
        check_merge(
            self._connection,
            staging=staging,
            target=landing.facts,
            columns=landing.target.column_map.columns,
            mode=merge_mode(job),
            key=job.key,
        )

    # ---------------------------------------------------------------- replacement

    def _open_replacement(self, landing: TargetLanding) -> TargetLanding:
        definition = capture_table(self._connection, landing.facts.oid, name=landing.facts.name)
        # Behind the capture: what was gone by then has its record still, or is back when the tables are exchanged.
        if find_changed(self._connection, self._schema, [landing.facts.oid]):
            raise TargetError(
                f'indexes, keys or triggers of table "{definition.name}" are dropped or disabled for a load',
                detail="The new table would lack them.",
                hint="Run the load again when that load has ended; penstock repair --plan shows them.",
            )
        landing = replace(landing, definition=definition)
        digest = hashlib.sha256(repr(definition).encode()).hexdigest()
        name = TableName(schema=definition.table.schema, name=f"penstock_{self._identity[:16]}_{landing.record.number}")
        found = find_landing_table(self._connection, schema=definition.table.schema, name=name.name)
        is_there = found is not None and found.oid == landing.record.oid and found.owner == definition.table.owner
        if is_there and landing.record.definition == digest:
            return landing
        self._begin_anew(landing)
        if is_there:
            self._drop(landing.record)
        refuse_obstacles(definition.name, find_obstacles(self._connection, definition))
        self._refuse_publications(
            definition.implicit_publications,
            lambda: compose_create(definition, name.name).as_string() + ";",
        )
        oid = create_replacement(self._connection, definition, name=name.name)
        self._enforce_early(landing, definition, oid)
        return self._note(landing, table=name, oid=oid, digest=digest)

    def _enforce_early(self, landing: TargetLanding, definition: TableDefinition, oid: int) -> None:
        """Give the new table, before its rows, what would refuse or fail over them later."""
        is_rejecting = self._plan.job.rules.on_error == "reject"
        parts = capture_many(self._connection, [landing.facts.oid], what="indexes")
        early = {
            part.name
            for table in parts.values()
            for part in table.indexes
            if part.facts.runs_functions or (is_rejecting and part.refuses_rows)
        }
        # One that refers to rows of this load would refuse those that come before what they refer to.
        is_apart = landing.facts.references.isdisjoint(self._loaded)
        enforce_early(self._connection, definition, oid, indexes=early, with_foreign_keys=is_rejecting and is_apart)

    def _drop(self, record: LandingRecord) -> None:
        drop_landing(self._connection, self._schema, record, load_id=self._claim.load_id)

    def _refuse_publications(self, publications: Iterable[str], describe: Callable[[], str]) -> None:
        """Refuse where a new table would stop subscribers, which lack it."""
        names = ", ".join(f'"{name}"' for name in publications)
        if self._tools.is_publishing_allowed or not names:
            return
        raise TargetError(
            "a table that this load creates would stop the subscribers of a publication",
            detail=f"Publication {names} would publish it, and the subscribers lack it. They need: {describe()}",
            hint="Create this table on every subscriber, then use --publish-ledger.",
        )


def _not_ours(name: TableName, *, owner: str) -> TargetError:
    return TargetError(
        f'table "{name}" was not created by this role for this load, or was altered',
        detail=f'Its owner is "{owner}".',
        hint="Resume the load as the role that began it (--role), or have the owner drop the table.",
    )


# ---------------------------------------------------------------- truncated


def truncate_targets(
    landings: Sequence[TargetLanding], *, plan: LoadPlan, tools: LoadTools, connection: Connection, claim: Claim
) -> None:
    """Truncate the tables that this load has not truncated yet, each in a transaction with its mark in the ledger."""
    done: set[int] = set()
    for landing in landings:
        is_due = landing.target.job.mode == "truncate" and landing.table is None and not landing.record.is_truncated
        if is_due and landing.facts.oid not in done:
            done.add(landing.facts.oid)
            truncate_target(landing, landings, plan=plan, tools=tools, connection=connection, claim=claim)


def truncate_target(
    landing: TargetLanding,
    landings: Sequence[TargetLanding],
    *,
    plan: LoadPlan,
    tools: LoadTools,
    connection: Connection,
    claim: Claim,
) -> None:
    """Truncate one table, and write that down for every target of the load that it is, in one transaction."""
    facts, schema = landing.facts, tools.ledger.schema

    def act() -> None:
        tools.ledger.hold_claim(connection, claim)
        truncate_table(connection, facts)
        refuse_unended(connection, schema, claim, facts, verb="truncate")
        for other in landings:
            if other.facts.oid == facts.oid:
                note_truncated(connection, schema, claim, number=other.record.number, oid=facts.oid)

    tools.notice(f'truncating table "{facts.name}"')
    with_locks(
        act,
        plan=plan,
        tools=tools,
        connection=connection,
        relations=[facts.oid],
        what=f'truncate "{facts.name}"',
    )


def refuse_unended(connection: Connection, schema: str, claim: Claim, facts: TableFacts, *, verb: str) -> None:
    """Raise TargetError if a load that has not ended has rows in a table; the caller has locked it against them."""
    if others := find_unended(connection, schema, claim, oid=facts.oid):
        raise TargetError(
            f'cannot {verb} table "{facts.name}": another load into it has not ended',
            detail=f"Load {others[0]} has committed rows to it, which would be missing when it is resumed.",
            hint=f"Finish it with penstock resume {others[0]}, or run penstock loads forget {others[0]} --keep-rows.",
        )


def give_up_landings(
    landings: Sequence[TargetLanding], *, plan: LoadPlan, tools: LoadTools, connection: Connection, load_id: str
) -> None:
    """Drop the tables that were made for records to land in. Raises TargetError, ServerError."""
    for landing in landings:
        record = landing.record
        if record.oid is not None:
            with_locks(
                partial(drop_landing, connection, tools.ledger.schema, record, load_id=load_id),
                plan=plan,
                tools=tools,
                connection=connection,
                relations=[record.oid],
                what=f'drop "{landing.table}"',
                is_patient=False,
            )
