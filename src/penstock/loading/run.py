"""Runs a plan: claims the load, attempts it until nothing is left, and concludes it. Other modules decide.

A transient error ends the attempt, not the load: the ledger is read again, and the missing rows are loaded. Only the
ledger says what is committed, because a server that crashed may have lost rows that it had acknowledged. The work
before and after the rows is a list of steps (steps/order.py). The steps run in the list's order before the rows, and in
the reverse order after them. The last act of a load, behind all its steps, is to ask the ledger of the server that is
writable then: a step may have reconnected, and a failover may have lost the load's last commits.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from penstock.core.connect.connection import Connection
from penstock.core.errors import Interrupted, PenstockError, ServerError
from penstock.core.host.machine import host_name
from penstock.core.host.process import holding_interrupts
from penstock.core.values.accounts import Stopwatch
from penstock.ledger.committed import has_all, read_coverage
from penstock.ledger.ledger import confirm, finish
from penstock.ledger.values import FinishedLoad
from penstock.loading.attempt import LoadAttempt
from penstock.loading.claim.claim import Claimed, claim_again, claim_load
from penstock.loading.claim.decide import NothingToDo, left_out
from penstock.loading.context import LoadTools, Retrying
from penstock.loading.giving_up import give_up
from penstock.loading.land.context import LandingContext
from penstock.loading.read.format_check import FormatCheck
from penstock.loading.read.objects import describe_unreadable, refuse_emptying, refuse_partial
from penstock.loading.read.value_check import ValueCheck
from penstock.loading.send.session import Sending
from penstock.loading.steps.order import make_steps
from penstock.loading.steps.step import RunningLoad, Step, When
from penstock.loading.tally import Tally
from penstock.loading.values.outcome import LoadOutcome
from penstock.loading.values.plan import LoadPlan

_NOTHING = FinishedLoad(rows=0, suppressed=0, is_local_only=False)


def run_load(plan: LoadPlan, tools: LoadTools) -> LoadOutcome:
    """Load all objects of the plan that are not loaded yet, and return what was done.

    Raises PenstockError. Rows that were committed before the error stay in the tables and in the ledger, and the error
    says how to resume. Raises LeftOutError if a load by several hosts is complete without some objects of this host.
    """
    tally, steps = Tally(began_s=tools.clock()), make_steps(plan, tools)
    retrying = Retrying(plan, clock=tools.clock, sleep=tools.sleep, notice=tools.notice)

    def run_steps_without_rows(nothing: NothingToDo, connection: Connection) -> None:
        for step in steps:
            step.nothing_to_do(nothing, connection)

    tally.note_unreadable(plan.unreadable, {})
    if not plan.targets:
        return tally.outcome(None, _NOTHING, now_s=tools.clock())
    claimed = claim_load(plan, tools, retrying, on_nothing=run_steps_without_rows)
    if isinstance(claimed, NothingToDo):
        if claimed.left:
            raise left_out(claimed.left, claimed.waited_for, host=host_name())
        tally.note_before(skipped=claimed.skipped, rows=0)
        return tally.outcome(None, _NOTHING, now_s=tools.clock())
    tally.note_before(skipped=claimed.load.skipped, rows=claimed.load.rows_before)
    load = RunningLoad(plan, tools, tally, claimed.load)
    retrying.patience.note_progress(tally.rows_seen)
    outcome = _LoadRun(load, steps, retrying).run(claimed)
    if load.claimed.left:
        raise left_out(load.claimed.left, load.load_id, host=host_name())
    return outcome


class _LoadRun:
    """One load in this process: its attempts, and their totals."""

    def __init__(self, load: RunningLoad, steps: tuple[Step, ...], retrying: Retrying) -> None:
        self._load = load
        self._steps = steps
        self._retrying = retrying
        self._plan = load.plan
        self._tools = load.tools
        self._format_check = FormatCheck(load.tools.warnings, load.plan.notices)
        self._value_check = ValueCheck(
            load.tools.warnings,
            load.tools.connect.date_order,
            is_rejecting=load.plan.job.rules.on_error == "reject",
        )

    def run(self, claimed: Claimed) -> LoadOutcome:
        load = self._load
        try:
            outcome = self._conclude(self._attempt_until_done(claimed))
            while (kept := self._confirm_at_end()) is None:
                outcome = self._conclude(self._attempt_until_done(self._claim_again()))
            outcome = replace(outcome, is_local_only=kept.is_local_only)
            outcome = load.tally.account(outcome, now_s=self._tools.clock())
        except PenstockError as error:
            raise give_up(load, self._steps, error) from error
        except KeyboardInterrupt as exc:
            raise give_up(load, self._steps, Interrupted("load interrupted")) from exc
        except BaseException as exc:
            # What the handler of a signal has raised, such as SystemExit or the timeout of a scheduler, or an internal
            # error.
            why = "load interrupted" if isinstance(exc, SystemExit) else f"load ended by {type(exc).__name__}"
            exc.add_note(str(give_up(load, self._steps, Interrupted(why))))
            raise
        finally:
            self._format_check.conclude()
            self._value_check.conclude()
        return outcome

    def _conclude(self, finished: FinishedLoad) -> LoadOutcome:
        """Let the steps do what follows the load's end, and return the outcome."""
        load = self._load
        load.is_ended = True
        outcome = load.tally.outcome(load.load_id, finished, now_s=self._tools.clock())
        for step in self._steps_at_end():
            with self._timing(step.name):
                outcome = step.conclude(load, outcome)
        return replace(outcome, share=load.claimed.member.read_share(load.load_id, load.at_end))

    def _confirm_at_end(self) -> FinishedLoad | None:
        """Return the load's totals if the server that is writable now has the load as complete.

        Otherwise wait as after any other transient error, and return None. Raises PenstockError after the time of
        --retry-for, if the load cannot be repeated, or if the server has no ledger.
        """
        load = self._load
        load.is_ended = False

        def confirm_last(connection: Connection) -> FinishedLoad | None:
            for step in self._steps_at_end():
                step.before_confirming(load, connection)
            return confirm(self._tools.ledger, connection, load.claimed.claim)

        kept = load.at_end(confirm_last)
        load.is_ended = kept is not None
        if kept is None:
            error = ServerError(
                f"load {load.load_id} was complete, and the server has lost that",
                detail="After a failover, the new primary may lack commits that the former one had acknowledged.",
                is_transient=True,
            )
            self._retrying.patience.note_progress(load.tally.rows_seen)
            self._retrying.wait(error)
        return kept

    def _steps_at_end(self) -> list[Step]:
        leads = self._load.claimed.member.leads
        return [step for step in reversed(self._steps) if leads or step.concludes_for_all]

    def _attempt_until_done(self, claimed: Claimed | FinishedLoad) -> FinishedLoad:
        """Attempt the load until nothing is left according to the ledger.

        Raises PenstockError after the time of --retry-for.
        """
        while not isinstance(claimed, FinishedLoad):
            finished = None
            try:
                if (finished := self._attempt(claimed.connection)) is not None:
                    return finished
                if self._load.claimed.member.leads:
                    self._tools.notice("the server lost rows that it had acknowledged: loading them again")
            except PenstockError as error:
                self._retrying.patience.note_progress(self._load.tally.rows_seen)
                self._retrying.wait(self._load.claimed.member.outlive(error))
            finally:
                self._let_go(claimed.connection, is_done=finished is not None)
            claimed = self._claim_again()
        return claimed

    def _claim_again(self) -> Claimed | FinishedLoad:
        """Claim what is missing. If other processes lead the load now, let the steps forget what they have changed."""
        taken = claim_again(
            self._plan,
            self._tools,
            self._retrying,
            self._load.claimed,
            let_go=lambda connection: self._let_go(connection, is_done=True),
        )
        if isinstance(taken, FinishedLoad):
            return taken
        if self._load.claimed.member.leads and not taken.load.member.leads:
            for step in reversed(self._steps):
                step.lose_lead(self._load)
        self._load.claimed = taken.load
        return taken

    def _attempt(self, connection: Connection) -> FinishedLoad | None:
        """Load what is left, in rounds.

        Return None if a part is missing in the ledger afterwards, or if no process leads.

        If this member is alone, it has one round. Otherwise each round loads what other members have left, and the
        leading member ends the load.
        """
        load, member, is_stopped = self._load, self._load.claimed.member, False
        self._tools.warnings.refuse()
        for step in self._steps:
            if member.leads or step.begins_for_all:
                # What a step does before the rows is not what its diagnosis names: it may only wait for a lock.
                with self._timing(step.name and f"{step.name} before"):
                    step.before(load, connection)
        member.open(limit=self._plan.sessions.connections)
        while (turn := member.await_turn()) == "load":
            is_stopped = self._load_rows(connection).is_stopped
            if not member.end_round(is_stopped=is_stopped):
                # The server has lost commits that it had acknowledged. Join the load again, so that the objects are
                # free to be claimed.
                return None
        if turn == "complete":
            return confirm(self._tools.ledger, connection, load.claimed.claim)
        if turn == "lead":
            return None
        # If an interrupt came when the last records were sent already, the load ends as any other.
        if not is_stopped or has_all(connection, self._tools.ledger.schema, load.load_id):
            self._give_up_unreadable(connection)
            self._walk_back("sent", connection)
        finished = self._finish(connection)
        if finished is None and is_stopped:
            raise Interrupted("load interrupted")
        return finished

    def _give_up_unreadable(self, connection: Connection) -> None:
        """Remove the unreadable objects from the load, and record why. Raises PenstockError if that is not possible."""
        errors, claimed, ledger = self._retrying.next.unreadable, self._load.claimed, self._tools.ledger
        planned = self._plan.unreadable
        if self._plan.job.rules.join or not (errors or planned or claimed.claim.is_resumed):
            # A joint load keeps the objects with which it began, so the record of an earlier run is still correct.
            return
        refuse_emptying(errors, claimed.objects, is_all=not claimed.skipped)
        coverage = read_coverage(connection, ledger.schema, claimed.claim.load_id, numbers=list(errors))
        found = {
            number: describe_unreadable(claimed.objects[number], error, coverage.get(number))
            for number, error in errors.items()
        }
        # An object without a committed row loses its number. If the load is claimed again, the object is read again.
        self._retrying.next = replace(self._retrying.next, unreadable={})
        ledger.give_up_objects(connection, claimed.claim, planned, found)
        refuse_partial(errors, coverage)
        self._load.tally.note_unreadable(planned, found)

    def _load_rows(self, connection: Connection) -> LoadAttempt:
        """Run one attempt, and return it. Raises PenstockError."""
        load, given = self._load, self._retrying.next
        with holding_interrupts() as interrupts:
            sending = Sending(
                plan=self._plan,
                claimed=load.claimed,
                tools=self._tools,
                given=replace(given, sessions=load.claimed.member.limit(given.sessions)),
                first=connection,
                format_check=self._format_check,
                value_check=self._value_check,
            )
            attempt = LoadAttempt(sending, interrupts=interrupts, began_s=load.tally.began_s)
            try:
                attempt.run()
            except BaseException:
                attempt.abandon()
                raise
            finally:
                load.tally.note_attempt(attempt)
                self._retrying.note_unreadable(attempt.unreadable)
            attempt.close()
        load.report = attempt.report if self._tools.on_progress is not None else None
        return attempt

    def _finish(self, connection: Connection) -> FinishedLoad | None:
        """End the load if nothing is missing, and run the steps that follow when the rows are in their tables."""
        load, ledger, claimed = self._load, self._tools.ledger, self._load.claimed
        claim = claimed.claim
        if not load.is_staged:
            if any(step.needs_all_rows for step in self._steps) and not has_all(
                connection, ledger.schema, claim.load_id
            ):
                ledger.check_claim(connection, claim)
                return None
            self._walk_back("stored", connection)
        if not claimed.landings:
            return finish(ledger, connection, claim)
        from penstock.loading.land.landing import finish_load  # noqa: PLC0415 (24 ms, for who merges or replaces)

        context = LandingContext(
            plan=self._plan,
            tools=self._tools,
            connection=connection,
            claim=claim,
            objects=claimed.objects,
            lack=load.tally.lack,
            note_deleted=load.tally.note_deleted,
        )
        landed = [each.target.landing for each in claimed.landings if each.table is not None]
        replaces = all(each.where != "staging" for each in landed)
        if load.report is not None and landed:
            load.report("replacing tables" if replaces else "storing staged rows")
        with self._timing("replace" if replaces else "store"):
            finished = finish_load(context, claimed.landings, note_statement=load.tally.note_statement)
        load.is_ended = finished is not None
        if load.is_staged and load.is_ended:
            self._walk_back("stored", connection)
        return finished

    def _walk_back(self, when: When, connection: Connection) -> None:
        for step in reversed(self._steps):
            if step.when == when:
                with self._timing(step.name):
                    step.after(self._load, connection)

    @contextmanager
    def _timing(self, step: str) -> Iterator[None]:
        """Count the time of a block for a step, also if it fails."""
        watch = Stopwatch(self._tools.clock)
        try:
            yield
        finally:
            self._load.tally.note_step(step, watch.lap())

    def _let_go(self, connection: Connection, *, is_done: bool) -> None:
        """Close the session that held the load's lock, or keep it for the load's end, which does not need the lock."""
        self._load.claimed.member.close()
        try:
            if is_done:
                self._tools.connect.keep(connection)
                return
        except KeyboardInterrupt:
            # Ignore the interrupt, because the load is complete.
            pass
        connection.close()
