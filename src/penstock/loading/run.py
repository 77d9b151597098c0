"""Carries out a plan: prepare, attempt until nothing is left, finish; no decisions beyond those of `retry.py`.

A fault that may pass ends the attempt, not the load: the ledger is read again and what is missing is loaded. It alone
says what is committed, since a server that crashed may have lost what it had acknowledged.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from penstock.errors import Interrupted, PenstockError
from penstock.loading.after import keep_up, read_partitions
from penstock.loading.attempt import LoadAttempt
from penstock.loading.claim.prepared import NothingToDo
from penstock.loading.failure import fills_tables, tell_unknown, tell_what_stays
from penstock.loading.leases.left_leases import end_left_leases
from penstock.loading.plan.modes import needs_more_than_copy
from penstock.loading.prepare import prepare_load
from penstock.loading.retry import Patience, fewer_sessions
from penstock.loading.tally import Tally
from penstock.model.load.ledger import FinishedLoad
from penstock.server.connect.errors import in_transaction
from penstock.server.ledger.committed import count_rows, has_all, read_coverage
from penstock.server.ledger.ending import confirm, finish
from penstock.server.ledger.rejects import RejectStore
from penstock.server.table.sequences import advance_sequences
from penstock.server.table.tables import drop_created

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.loading.claim.prepared import PreparedLoad, TargetLanding
    from penstock.loading.context import LoadTools, Report
    from penstock.loading.shape.shape import LoadShape
    from penstock.model.load.ledger import Claim
    from penstock.model.load.outcome import LoadOutcome
    from penstock.model.load.plan import LoadPlan, TargetPlan
    from penstock.model.load.upkeep import Relation
    from penstock.server.connect.connection import Connection
    from penstock.server.table.tables import CreatedTable

_Result = TypeVar("_Result")

_NOTHING = FinishedLoad(rows=0, suppressed=0, is_local_only=False)

# The ledger's own tables are not there any more.
_UNDEFINED_TABLE = "42P01"


def run_load(plan: LoadPlan, tools: LoadTools) -> LoadOutcome:
    """Load everything the plan names that is not loaded yet, and return what was done.

    Raises PenstockError; what is committed then stays, is in the ledger, and the error says how to go on.
    """
    return _LoadRun(plan, tools).run()


class _LoadRun:
    """One load in this process: its claim, its attempts, and what they added up to."""

    def __init__(self, plan: LoadPlan, tools: LoadTools) -> None:
        self._plan = plan
        self._tools = tools
        self._sessions = plan.sessions
        self._tally = Tally(began_s=tools.clock())
        self._patience = Patience(plan.job.rules.retry_for if plan.is_repeatable else 0.0, tools.clock)
        self._created: tuple[CreatedTable, ...] = ()
        self._claim: Claim | None = None
        self._landings: tuple[TargetLanding, ...] = ()
        self._shape: LoadShape | None = None
        self._is_complete = False
        self._partitions: Mapping[int, Relation] = {}

    def run(self) -> LoadOutcome:
        prepared, connection = self._begin()
        if isinstance(prepared, NothingToDo):
            connection.close()
            self._tally.note_before(skipped=prepared.skipped, rows=0)
            return self._tally.outcome(None, _NOTHING, now_s=self._tools.clock())
        self._claim, self._created = prepared.claim, prepared.created
        self._landings = prepared.landings
        self._tally.note_before(skipped=prepared.skipped, rows=prepared.rows_before)
        try:
            finished = self._load(prepared, connection)
            self._is_complete = True
            if self._shape is not None and self._shape.is_holding:
                self._at_end(lambda connection: self._put_back(connection, None))
        except PenstockError as error:
            raise self._explain_end(error) from error
        except KeyboardInterrupt as exc:
            raise self._explain_end(Interrupted("load interrupted")) from exc
        self._count_rejected()
        if self._is_staged():
            self._advance_sequences()
        outcome = self._tally.outcome(self._claim.load_id, finished, now_s=self._tools.clock())
        gains = [target.parking.gain for target in self._plan.targets if target.parking and target.parking.gain]
        return self._keep_up(replace(outcome, gains=tuple(dict.fromkeys(gains))))

    def _begin(self) -> tuple[PreparedLoad | NothingToDo, Connection]:
        """Prepare the load for the first time; a fault that passes is waited out, as any later one is."""
        begun: str | None = None
        while True:
            try:
                connection = self._tools.connect.take(label="session 1")
                try:
                    prepared = prepare_load(
                        self._plan, self._tools, connection, resumes=self._tools.resumes, begun=begun
                    )
                    if isinstance(prepared, NothingToDo):
                        self._see_to_rest(prepared, connection)
                    else:
                        self._note_partitions(prepared, connection)
                except BaseException:
                    connection.close()
                    raise
            except PenstockError as error:
                self._wait_to_retry(error)
                # It may have been written down though the answer was lost.
                begun = self._plan.load_id
            else:
                return prepared, connection

    def _see_to_rest(self, nothing: NothingToDo, connection: Connection) -> None:
        """See to what runs that were cut short have left, where every row is loaded."""
        self._end_left_leases(nothing.leases, connection)
        if nothing.changed_by:
            self._open_shape().put_back_left(nothing, connection)
        if needs_more_than_copy(self._plan.targets):
            # The run that merged the rows may have died before it came to the sequences.
            self._advance_sequences(connection)

    def _end_left_leases(self, noted: Sequence[str], connection: Connection) -> None:
        others = [lease_id for lease_id in noted if lease_id != self._tools.lease_id]
        if others:
            end_left_leases(self._tools, connection, others)

    def _refuse_shortage(self, prepared: PreparedLoad, connection: Connection) -> None:
        guard = self._tools.guard
        if guard is not None and not self._plan.job.rules.ignore_space:
            guard.refuse_shortage(self._plan, prepared.work, connection, self._tools.warnings)

    def _at_end(self, act: Callable[[Connection], _Result]) -> _Result:
        """Return what `act` does on a session behind the last row, where it may be done again."""

        def run() -> _Result:
            with self._tools.connect.borrow() as connection:
                return act(connection)

        return self._tools.patiently(run, retry_for_s=self._plan.job.rules.retry_for)

    # ---------------------------------------------------------------- attempts

    def _load(self, prepared: PreparedLoad, connection: Connection) -> FinishedLoad:
        """Attempt until the ledger says that nothing is left. Raises PenstockError where patience has run out."""
        is_first = True
        while True:
            finished = None
            try:
                if is_first:
                    self._end_left_leases(prepared.leases, connection)
                    self._refuse_shortage(prepared, connection)
                    is_first = False
                if (finished := self._attempt(prepared, connection)) is not None:
                    return finished
                self._tools.notice("the server lost rows that it had acknowledged: loading them again")
            except PenstockError as error:
                self._wait_to_retry(error)
            finally:
                self._let_go(connection, is_done=finished is not None)
            taken = self._take_up_again()
            if isinstance(taken, FinishedLoad):
                return taken
            prepared, connection = taken

    def _attempt(self, prepared: PreparedLoad, connection: Connection) -> FinishedLoad | None:
        """Load what is left; return None where the ledger then lacks a part of it."""
        self._landings = prepared.landings
        self._tools.warnings.refuse()
        self._truncate(prepared, connection)
        if prepared.changed_by or self._plan.changes_shape:
            self._open_shape().prepare(prepared, connection)
        attempt = LoadAttempt(
            self._plan,
            prepared,
            self._tools,
            sessions=self._sessions,
            first=connection,
            began_s=self._tally.began_s,
        )
        try:
            attempt.run()
        except BaseException:
            attempt.abandon()
            raise
        finally:
            self._tally.note_attempt(attempt)
        attempt.close()
        if not attempt.is_stopped:
            self._retry_references(prepared, connection)
        report = attempt.report if self._tools.on_progress is not None else None
        finished = self._finish(prepared, connection, report=report)
        if finished is None and attempt.is_stopped:
            raise Interrupted("load interrupted")
        may_have_rejected = bool(prepared.landings) and self._plan.job.rules.on_error == "reject"
        if finished is not None and (self._tally.attempts > 1 or may_have_rejected):
            coverage = read_coverage(connection, self._tools.ledger.schema, prepared.claim.load_id)
            self._tally.set_file_rows({number: found.rows for number, found in coverage.items()})
        return finished

    # What only some loads need is imported when one does: it would make every start slower by a tenth.

    def _truncate(self, prepared: PreparedLoad, connection: Connection) -> None:
        if prepared.landings:
            from penstock.loading.landing.landing import truncate_targets  # noqa: PLC0415 (20 ms, for who merges or replaces)

            truncate_targets(
                prepared.landings, plan=self._plan, tools=self._tools, connection=connection, claim=prepared.claim
            )

    def _retry_references(self, prepared: PreparedLoad, connection: Connection) -> None:
        rules = self._plan.job.rules
        if rules.on_error == "reject":
            from penstock.loading.rejects.retry import retry_references  # noqa: PLC0415

            retry_references(prepared.claim, self._tools, connection, max_rejects=rules.max_rejects)

    def _open_shape(self) -> LoadShape:
        if self._shape is None:
            from penstock.loading.shape.shape import LoadShape  # noqa: PLC0415 (32 ms, for who rebuilds indexes or merges)

            self._shape = LoadShape(self._plan, self._tools)
        return self._shape

    def _finish(self, prepared: PreparedLoad, connection: Connection, *, report: Report | None) -> FinishedLoad | None:
        """End the load where nothing is missing. It is complete only when what was parked stands again.

        Rows that come from a staging table come with the end, and what was parked after them.
        """
        ledger, claim = self._tools.ledger, prepared.claim
        is_staged = self._is_staged()
        if self._shape is not None and not is_staged:
            if not has_all(connection, ledger.schema, claim.load_id):
                ledger.check_claim(connection, claim)
                return None
            self._put_back(connection, report)
        if not is_staged:
            # While the load is incomplete: after a kill it is run again, and comes by here once more.
            self._advance_sequences(connection)
        if not prepared.landings:
            return finish(ledger, connection, claim)
        from penstock.loading.landing.finish import finish_load  # noqa: PLC0415 (24 ms, for who merges or replaces)

        finished = finish_load(self._plan, prepared, self._tools, connection, note_statement=self._tally.note_statement)
        self._is_complete = finished is not None
        if self._shape is not None and is_staged and finished is not None:
            self._put_back(connection, report)
        return finished

    def _put_back(self, connection: Connection, report: Report | None) -> None:
        assert self._shape is not None and self._claim is not None
        began_s = self._tools.clock()
        try:
            self._tally.rebuilt += self._shape.put_back(self._claim.load_id, connection, report=report)
        finally:
            self._tally.rebuild_s += self._tools.clock() - began_s

    def _take_up_again(self) -> tuple[PreparedLoad, Connection] | FinishedLoad:
        """Take the load over from our own lost sessions, which may still be committing, and see what is missing."""
        assert self._claim is not None
        while True:
            try:
                connection = self._tools.connect.connect(label="session 1")
                try:
                    taken = self._look_again(connection)
                except BaseException:
                    connection.close()
                    raise
            except PenstockError as error:
                self._wait_to_retry(error)
                continue
            if isinstance(taken, FinishedLoad):
                self._let_go(connection, is_done=True)
                return taken
            self._claim = taken.claim
            self._patience.note_progress(taken.rows_committed)
            return taken, connection

    def _look_again(self, connection: Connection) -> PreparedLoad | FinishedLoad:
        assert self._claim is not None
        if (finished := self._confirm(connection)) is not None:
            return finished
        begun = self._claim.load_id
        # None but this one: a load that was forgotten meanwhile would begin anew, and store its rows twice.
        prepared = prepare_load(self._plan, self._tools, connection, created=self._created, resumes=begun, begun=begun)
        # Somebody else may have completed it since.
        return (self._confirm(connection) or _NOTHING) if isinstance(prepared, NothingToDo) else prepared

    def _confirm(self, connection: Connection) -> FinishedLoad | None:
        """Return what the load came to where it is complete; say so where another process did that."""
        assert self._claim is not None
        finished = confirm(self._tools.ledger, connection, self._claim)
        if finished is not None and finished.is_others:
            self._tools.notice(f"load {self._claim.load_id} was completed by another process")
        return finished

    def _wait_to_retry(self, error: PenstockError) -> None:
        """Wait before another attempt, or raise the error where there should be none."""
        fewer = fewer_sessions(self._sessions, error)
        if error.is_transient and self._plan.job.rules.on_error == "reject" and fewer.maximum < self._sessions.maximum:
            # Duplicates, of which one will be rejected: no fault that time would heal, and each time fewer sessions.
            self._sessions = fewer
            words = "one session" if fewer.maximum == 1 else f"{fewer.maximum} sessions"
            self._tools.notice(f"{error.message}: continuing with {words}")
            return
        self._patience.wait_out(error, sleep=self._tools.sleep, notice=self._tools.on_notice)
        self._sessions = fewer

    # ---------------------------------------------------------------- the end

    def _explain_end(self, error: PenstockError) -> PenstockError:
        """Return the error with what stays and how to go on; where nothing was committed, nothing is left behind."""
        rows, is_gone = None, False
        try:
            with self._tools.connect.connect(label="end") as connection:
                rows = self._tidy(connection)
                is_gone = rows is None
                if self._shape is not None and self._claim is not None:
                    self._shape.put_back_after(self._claim.load_id, connection)
        except (PenstockError, KeyboardInterrupt) as lost:
            why = lost.message if isinstance(lost, PenstockError) else "interrupted"
            is_gone = is_gone or getattr(lost, "sqlstate", None) == _UNDEFINED_TABLE
            names = ", ".join(f'"{table.name}"' for table in self._created)
            if names and rows is None:
                self._tools.warnings.warn("table-left", f"not dropped after the load: {names} ({why})")
            if self._shape is not None:
                self._shape.tell_left(why)
        assert self._claim is not None
        if is_gone and not self._is_complete:
            return tell_unknown(error, self._claim.load_id, rows=self._tally.rows_seen, tables=self._filled_tables())
        return tell_what_stays(
            error,
            self._plan,
            self._claim.load_id,
            rows=rows,
            has_all_rows=self._shape is not None and self._shape.has_failed,
            is_complete=self._is_complete,
            has_begun=self._tally.attempts > 0,
        )

    def _filled_tables(self) -> list[str]:
        """Return the tables that COPY has filled."""
        landed = {landing.record.number: landing.table for landing in self._landings if landing.table is not None}
        tables = [landed.get(place, target.table) for place, target in enumerate(self._plan.targets)]
        return list(dict.fromkeys(map(str, tables)))

    def _tidy(self, connection: Connection) -> int | None:
        """Return how many rows stay; where none do, remove the load from the ledger and the tables made for it.

        None where the ledger does not have the load any more. What a pipe has sent into staging can neither be
        completed nor be seen, and so does not stay.
        """
        assert self._claim is not None
        is_lost = not self._plan.is_repeatable and not fills_tables(self._plan)
        with in_transaction(connection, "removing the load from the ledger"):
            if not self._tools.ledger.forget_unused(connection, self._claim, even_if_used=is_lost):
                return count_rows(connection, self._tools.ledger.schema, self._claim.load_id)
            if self._landings:
                from penstock.loading.landing.landing import give_up_landings  # noqa: PLC0415 (20 ms, for who merges or replaces)

                give_up_landings(
                    self._landings,
                    plan=self._plan,
                    tools=self._tools,
                    connection=connection,
                    load_id=self._claim.load_id,
                )
        for table in reversed(self._created):
            drop_created(connection, table)
        return 0

    def _count_rejected(self) -> None:
        """Have the outcome tell how many records are rejected, earlier runs' too."""
        assert self._claim is not None
        if self._plan.job.rules.on_error == "reject" or self._claim.is_resumed:
            try:
                store = RejectStore(self._tools.ledger.schema, self._claim.load_id)
                self._tally.rejected = self._at_end(store.count_rejected)
            except (PenstockError, KeyboardInterrupt) as error:
                # The load is complete; nothing that happens here must look like a failed one.
                self._tools.warnings.warn("rejects", f"rejected records were not counted: {error or 'interrupted'}")

    # What follows the load, VACUUM above all: see loading/after.py.

    def _note_partitions(self, prepared: PreparedLoad, connection: Connection) -> None:
        """Look at partitions before they are loaded, so that it can be told which of them were."""
        has_partitions = any(target.facts is not None and target.facts.kind == "p" for target in self._plan.targets)
        if not prepared.claim.is_resumed and has_partitions and self._plan.job.rules.vacuum:
            self._partitions = read_partitions(self._plan, connection)

    def _let_go(self, connection: Connection, *, is_done: bool) -> None:
        """End the session that held the load's lock; without that lock it can do what follows the load."""
        try:
            if is_done and self._plan.job.rules.vacuum:
                self._tools.connect.keep(connection)
                return
        except KeyboardInterrupt:
            # The load is complete: there is nothing left to interrupt.
            pass
        connection.close()

    def _keep_up(self, outcome: LoadOutcome) -> LoadOutcome:
        rules = self._plan.job.rules
        if not rules.vacuum and not (rules.checkpoint or self._tools.lease_id):
            return outcome

        return keep_up(self._plan, self._tools, outcome, before=self._partitions)

    def _is_staged(self) -> bool:
        """Whether rows come to some table with the load's end."""
        return any(landing.table is not None for landing in self._landings)

    def _advance_sequences(self, connection: Connection | None = None) -> None:
        fed = [
            (target.facts, _fed_columns(target))
            for target in self._plan.targets
            if target.facts is not None and any(column.sequence for column in target.facts.columns)
        ]
        if not fed:
            return

        def advance(connection: Connection) -> list[str]:
            return [message for facts, columns in fed for message in advance_sequences(connection, facts, columns)]

        try:
            messages = self._at_end(advance) if connection is None else advance(connection)
        except (PenstockError, KeyboardInterrupt) as error:
            if connection is not None and connection.closed:
                # The caller's attempt has ended, and what it did is done again.
                raise
            # The rows are in; nothing that happens here must look like a failed load.
            messages = [f"sequences were not advanced: {error or 'interrupted'}"]
        for message in messages:
            self._tools.warnings.warn("sequences", message)


def _fed_columns(target: TargetPlan) -> tuple[str, ...]:
    """Return the columns that a load may have given values; a transform any of them."""
    if target.job.transform is not None and target.facts is not None:
        return tuple(column.name for column in target.facts.columns)
    return target.column_map.columns
