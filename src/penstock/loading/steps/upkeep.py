"""The step that runs VACUUM (ANALYZE) on the tables that a load filled, and writes a checkpoint if one is due.

Errors and interrupts here are warnings, because the load is complete.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from psycopg import sql

from penstock.core.catalogue.locking import describe_blocker, find_blockers
from penstock.core.connect.connection import Connection, is_usable
from penstock.core.connect.errors import translate_errors
from penstock.core.errors import PenstockError
from penstock.core.slotted import slotted
from penstock.core.sql import fetch_rows, run_query
from penstock.core.units import format_count, format_duration
from penstock.core.values.accounts import PlanPart, Rows
from penstock.core.values.table import TableName
from penstock.ledger.targets import find_filled
from penstock.loading.context import LoadTools
from penstock.loading.plan.notices import PAGE_BYTES, decide_checkpoint, decide_vacuum, describe_vacuum
from penstock.loading.steps.step import PlanFacts, RunningLoad, Step
from penstock.loading.values.outcome import LoadOutcome, LoadProgress
from penstock.loading.values.plan import CheckpointDecision, LoadPlan, Relation, VacuumPlan, VacuumStep

_log = logging.getLogger(__name__)


def read_relations(connection: Connection, oids: Sequence[int]) -> list[Relation]:
    """Return tables and their partitions with the numbers of pages and rows that decide how they are vacuumed.

    `oids` are the OIDs of the tables. Views and foreign tables are not returned. The query waits for locks on the
    tables. Raises ServerError.
    """
    with translate_errors("reading the tables to vacuum"):
        return fetch_rows(connection, "loading/upkeep_relations", Relation, oids=list(oids))


@contextmanager
def limited_lock_wait(connection: Connection, timeout_s: float) -> Iterator[None]:
    """Limit the session's lock_timeout in the block to `timeout_s` seconds, or to less if the user has set less.

    Raises ServerError.
    """
    limit_ms = round(timeout_s * 1000)
    with translate_errors("limiting the wait for locks"):
        run_query(connection, "loading/limit_lock_wait", limit=limit_ms)
    try:
        yield
    finally:
        if is_usable(connection):
            with translate_errors("restoring lock_timeout"):
                connection.execute("RESET lock_timeout")


def run_vacuum(connection: Connection, step: VacuumStep) -> None:
    """Run VACUUM, ANALYZE or both on a table, as `step` says. With `step.freezes`, VACUUM freezes all rows.

    The role must own the table or the database or, since PostgreSQL 17, have MAINTAIN. Raises ServerError.
    """
    if step.vacuums:
        command = sql.SQL("VACUUM (ANALYZE) {}") if step.analyzes else sql.SQL("VACUUM {}")
    else:
        command = sql.SQL("ANALYZE ONLY {}") if step.is_only else sql.SQL("ANALYZE {}")
    relation = step.relation
    with translate_errors(f"vacuuming table {relation}"):
        if step.freezes:
            # This setting makes VACUUM freeze all rows. VACUUM (FREEZE) also freezes all rows, but it waits for each
            # page that a cursor of another session has pinned, until the cursor moves on.
            connection.execute("SET vacuum_freeze_min_age = 0")
        try:
            connection.execute(command.format(sql.Identifier(relation.schema, relation.name)))
        finally:
            if step.freezes and is_usable(connection):
                connection.execute("RESET vacuum_freeze_min_age")
    _log.info("vacuumed %s", relation)


def run_checkpoint(connection: Connection) -> None:
    """Run CHECKPOINT. Needs a superuser or, since PostgreSQL 15, the role pg_checkpoint.

    Raises TargetError if the role lacks the right, and ServerError.
    """
    with translate_errors("writing a checkpoint"):
        connection.execute("CHECKPOINT")
    _log.info("wrote a checkpoint")


_LOCK_NOT_AVAILABLE = "55P03"
_QUERY_CANCELED = "57014"


@slotted
class UpkeepDone:
    """The tables that were vacuumed and analyzed, and the seconds of VACUUM and of the checkpoint (0 if none)."""

    vacuumed: tuple[str, ...]
    analyzed: tuple[str, ...]
    vacuum_s: float
    checkpoint_s: float

    def describe(self) -> Sequence[str | Rows]:
        """Return a line for VACUUM and ANALYZE and a line for the checkpoint, each only if it was done."""
        lines = []
        both = [name for name in self.vacuumed if name in self.analyzed]
        vacuumed = [name for name in self.vacuumed if name not in both]
        analyzed = [name for name in self.analyzed if name not in both]
        parts = [
            f"{what} {_name(names)}"
            for what, names in (("vacuumed and analyzed", both), ("vacuumed", vacuumed), ("analyzed", analyzed))
            if names
        ]
        if parts:
            lines.append(f"{', '.join(parts)} in {format_duration(self.vacuum_s)}")
        if self.checkpoint_s:
            lines.append(f"wrote a checkpoint in {format_duration(self.checkpoint_s)}")
        return lines


@slotted
class UpkeepPlan(PlanPart):
    """Whether a VACUUM and a CHECKPOINT follow the load, each with the reason in words."""

    vacuum: str
    checkpoint: str

    def describe(self) -> list[str]:
        """Return the line for VACUUM and the line for CHECKPOINT."""
        return [f"then  {self.vacuum}", f"then  {self.checkpoint}"]


def _name(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{format_count(len(names))} tables"


class Upkeep(Step):
    """When the load is complete, vacuums and analyzes the tables it filled, and writes a checkpoint if one is due."""

    name = "upkeep"

    def __init__(self, plan: LoadPlan, tools: LoadTools) -> None:
        self._plan = plan
        self._tools = tools
        # The tables and partitions before the load, by oid. Empty if an earlier run began the load.
        self._relations: Mapping[int, Relation] = {}

    def plan(self, facts: PlanFacts) -> UpkeepPlan:
        """Return whether VACUUM and CHECKPOINT follow the load. A CHECKPOINT may depend on how much it will load."""
        from penstock.loading.plan.settings import LoadSettings  # noqa: PLC0415 (for --plan only)

        settings = facts.find_part(LoadSettings)
        is_leased = settings is not None and settings.is_changing
        decision = _decide_checkpoint(self._plan, self._tools, stored_bytes=float("inf"), is_leased=is_leased)
        size = "" if self._plan.job.rules.checkpoint else ", if at least 1 GiB is loaded"
        return UpkeepPlan(
            vacuum=describe_vacuum(self._plan),
            checkpoint=f"{f'CHECKPOINT{size}' if decision.is_due else 'no CHECKPOINT'}: {decision.reason}",
        )

    def before(self, load: RunningLoad, connection: Connection) -> None:
        """Read the sizes of tables and partitions, to know after the load which were empty and which got rows."""
        if not load.claimed.claim.is_resumed and self._plan.job.rules.vacuum:
            self._relations = _read_before(self._plan, connection)

    def conclude(self, load: RunningLoad, outcome: LoadOutcome) -> LoadOutcome:
        """Vacuum, analyze and write a checkpoint. Return the outcome with what was done and how long it took.

        Errors and interrupts become warnings, because the load is complete.
        """
        rules = self._plan.job.rules
        if not rules.vacuum and not (rules.checkpoint or load.lease_id):
            return outcome
        return outcome.with_part(self.name, _Upkeep(load, outcome, self._relations).run())


def _decide_checkpoint(plan: LoadPlan, tools: LoadTools, *, stored_bytes: float, is_leased: bool) -> CheckpointDecision:
    server = tools.server
    return decide_checkpoint(
        asked=plan.job.rules.checkpoint,
        stored_bytes=stored_bytes,
        is_leased=is_leased,
        is_aurora=server is not None and server.is_aurora,
        may_checkpoint=server is not None and server.may_checkpoint,
        tuning=plan.tuning,
    )


def _read_before(plan: LoadPlan, connection: Connection) -> dict[int, Relation]:
    """Return the tables to be loaded, with their partitions, by oid. Return nothing if one of them is locked.

    If the load is small, tables without partitions are not returned, because freezing them gains nothing. Raises
    ServerError.
    """
    size_bytes = plan.size_bytes
    is_small = size_bytes is not None and size_bytes < plan.tuning.least_freezing_bytes
    kinds = ("p",) if is_small else ("p", "r")
    oids = [target.facts.oid for target in plan.targets if target.facts is not None and target.facts.kind in kinds]
    if not oids:
        return {}
    try:
        with limited_lock_wait(connection, plan.tuning.vacuum_lock_timeout_s):
            return {relation.oid: relation for relation in read_relations(connection, oids)}
    except PenstockError as error:
        if error.sqlstate not in (_LOCK_NOT_AVAILABLE, _QUERY_CANCELED):
            raise
        return {}


def _has_name(relation: Relation, names: Collection[TableName]) -> bool:
    return any((name.schema, name.name) == (relation.schema, relation.name) for name in names)


class _Upkeep:
    def __init__(self, load: RunningLoad, outcome: LoadOutcome, before: Mapping[int, Relation]) -> None:
        self._load = load
        self._plan = load.plan
        self._tools = load.tools
        self._outcome = outcome
        self._before = before
        self._vacuumed: list[str] = []
        self._analyzed: list[str] = []
        # The seconds of the checkpoint. It stays 0 if none is written or if it fails.
        self._checkpoint_s = 0.0
        self._began_s = load.tools.clock()

    def run(self) -> UpkeepDone:
        rules = self._plan.job.rules
        vacuum_s = 0.0
        if rules.vacuum:
            vacuum_s = self._measure(self._vacuum, "vacuuming")
        # The checkpoint comes last, because a VACUUM after it would write every page in full to the WAL
        # (docs/decisions/0015).
        if self._is_checkpoint_due():
            self._measure(self._checkpoint, "the checkpoint")
        return UpkeepDone(
            vacuumed=tuple(self._vacuumed),
            analyzed=tuple(self._analyzed),
            vacuum_s=vacuum_s,
            checkpoint_s=self._checkpoint_s,
        )

    def _measure(self, act: Callable[[Connection], None], what: str) -> float:
        """Call `act` with a session, and return the seconds that it took. An error becomes a warning."""
        began_s, timeout_s = self._tools.clock(), self._plan.tuning.vacuum_lock_timeout_s

        def run() -> None:
            with self._tools.connect.borrow() as connection, limited_lock_wait(connection, timeout_s):
                try:
                    act(connection)
                except PenstockError as error:
                    # Retry only if the connection was lost; report a lock of another session at once.
                    error.is_transient = connection.closed
                    raise

        try:
            self._tools.patiently(run, retry_for_s=self._plan.job.rules.retry_for)
        except PenstockError as error:
            self._tools.warnings.warn("upkeep", f"the load is complete, but {what} failed: {error.message}")
        except KeyboardInterrupt:
            self._tools.warnings.warn("upkeep", f"the load is complete, but {what} was interrupted")
        return self._tools.clock() - began_s

    # ---------------------------------------------------------------- vacuum

    def _vacuum(self, connection: Connection) -> None:
        self._vacuumed, self._analyzed = [], []
        plan = self._decide(connection)
        for text in plan.left_out:
            self._tools.warnings.warn("upkeep", text)
        for step in plan.steps:
            self._run_step(step, connection)

    def _run_step(self, step: VacuumStep, connection: Connection) -> None:
        name, what = str(step.relation), "vacuumed" if step.vacuums else "analyzed"
        if step.relation.pages * PAGE_BYTES >= self._plan.tuning.long_vacuum_bytes:
            self._show(f"{'vacuuming' if step.vacuums else 'analyzing'} {name}")
        try:
            run_vacuum(connection, step)
        except PenstockError as error:
            if connection.closed:
                raise
            if step.vacuums and step.analyzes and error.sqlstate not in (_LOCK_NOT_AVAILABLE, _QUERY_CANCELED):
                # Try VACUUM without ANALYZE. ANALYZE runs functions of indexes, and fails if they need the user's
                # search_path.
                self._run_step(replace(step, analyzes=False), connection)
                what = "analyzed"
            why = self._explain(error, step.relation.oid, connection)
            self._tools.warnings.warn("upkeep", f'not {what}: "{name}"; {why}')
            return
        self._vacuumed += [name] if step.vacuums else []
        self._analyzed += [name] if step.analyzes else []

    def _decide(self, connection: Connection) -> VacuumPlan:
        filled = find_filled(connection, self._tools.ledger.schema, self._load.load_id)
        relations = read_relations(connection, filled) if filled else []
        targets, made = self._plan.targets, {table.oid for table in self._load.claimed.created.values()}
        replaced = {target.table for target in targets if target.is_replaced}
        emptied = {target.table for target in targets if target.landing.is_fresh}
        return decide_vacuum(
            relations,
            filled,
            before=self._before,
            stored_bytes=self._stored_bytes(),
            tuning=self._plan.tuning,
            major=self._tools.server_major,
            # Tables that have replaced others were analyzed before they replaced them.
            analyzed={relation.oid for relation in relations if _has_name(relation, replaced)},
            emptied={relation.oid for relation in relations if relation.oid in made or _has_name(relation, emptied)},
        )

    def _stored_bytes(self) -> float:
        """Return the bytes that the load has copied. The bytes of earlier runs are estimated from their row count."""
        outcome = self._outcome
        rows = outcome.rows + sum(statement.rows for statement in outcome.statements)
        if not rows:
            return float("inf") if outcome.rows_before else 0.0
        return outcome.bytes_copied * (rows + outcome.rows_before) / rows

    def _explain(self, error: PenstockError, oid: int, connection: Connection) -> str:
        """Return why a table was not vacuumed, and which sessions have it locked, if that is the reason."""
        if error.sqlstate != _LOCK_NOT_AVAILABLE:
            return error.message
        blockers = "; ".join(describe_blocker(blocker) for blocker in find_blockers(connection, [oid]))
        return f"locked by another session: {blockers}" if blockers else "it was locked by another session"

    # ---------------------------------------------------------------- checkpoint

    def _is_checkpoint_due(self) -> bool:
        is_leased = self._load.lease_id is not None
        decision = _decide_checkpoint(self._plan, self._tools, stored_bytes=self._stored_bytes(), is_leased=is_leased)
        if decision.is_refused:
            self._tools.warnings.warn("upkeep", f"checkpoint skipped: {decision.reason}")
        return decision.is_due

    def _checkpoint(self, connection: Connection) -> None:
        self._show("writing a checkpoint")
        began_s = self._tools.clock()
        run_checkpoint(connection)
        self._checkpoint_s = self._tools.clock() - began_s

    def _show(self, activity: str) -> None:
        """Report the present activity as progress."""
        if self._tools.on_progress is None:
            return
        outcome = self._outcome
        self._tools.on_progress(
            LoadProgress(
                rows=outcome.rows,
                bytes_read=outcome.bytes_read,
                bytes_copied=outcome.bytes_copied,
                size_bytes=self._plan.size_bytes,
                elapsed_s=outcome.seconds + self._tools.clock() - self._began_s,
                sessions=1,
                files=(),
                file_count=0,
                activity=activity,
            )
        )
