"""Claims a load for this process, and claims it again after an attempt has lost its sessions."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from penstock.errors import PenstockError
from penstock.loading.claim.prepared import NothingToDo, PreparedLoad
from penstock.loading.context import LoadTools
from penstock.loading.prepare import prepare_load
from penstock.loading.reading.unreadable import UnreadableError
from penstock.loading.retry import Patience, fewer_sessions
from penstock.loading.stream.formats import RefusedInBinaryError
from penstock.model.load.ledger import Claim, FinishedLoad
from penstock.model.load.plan import LoadPlan
from penstock.server.connect.connection import Connection
from penstock.server.ledger.ending import confirm

_NOTHING = FinishedLoad(rows=0, suppressed=0, is_local_only=False)


class Retrying:
    """Waits between the attempts of one load, and decides how many sessions the next attempt has."""

    def __init__(self, plan: LoadPlan, tools: LoadTools) -> None:
        self.sessions = plan.sessions
        self._rejects = plan.job.rules.on_error == "reject"
        self._tools = tools
        self.patience = Patience(plan.job.rules.retry_for if plan.is_repeatable else 0.0, tools.clock)

    def wait(self, error: PenstockError) -> None:
        """Wait before another attempt, or raise the error if there must not be one."""
        if isinstance(error, RefusedInBinaryError):
            # Each time it is another object, and as text the error is the server's own.
            self._tools.notice(f"{error.message}: sending the objects of this batch as text")
            self._tools.as_text.update(error.objects)
            return
        if isinstance(error, UnreadableError) and self._tools.unreadable is not None:
            self._tools.notice(f"{error.message}: loading the other objects")
            self._tools.unreadable[error.number] = error.cause
            return
        fewer = fewer_sessions(self.sessions, error)
        if error.is_transient and self._rejects and fewer.maximum < self.sessions.maximum:
            # Sessions wait for each other because they send the same key, and one of the records will be rejected.
            # Waiting does not help, so the next attempt begins at once, with fewer sessions.
            words = "one session" if fewer.maximum == 1 else f"{fewer.maximum} sessions"
            self._tools.notice(f"{error.message}: continuing with {words}")
        else:
            self.patience.wait_out(error, sleep=self._tools.sleep, notice=self._tools.on_notice)
        self.sessions = fewer


class Claimed(NamedTuple):
    """What is left to load, and the session that holds the load's lock; the caller closes the session."""

    prepared: PreparedLoad
    connection: Connection


def claim_load(
    plan: LoadPlan,
    tools: LoadTools,
    retrying: Retrying,
    *,
    on_nothing: Callable[[NothingToDo, Connection], None],
) -> Claimed | NothingToDo:
    """Claim a load for the first time; after a transient error, wait and retry for --retry-for.

    `on_nothing` is called if every row is loaded already. Raises PenstockError.
    """
    begun: str | None = None
    while True:
        try:
            connection = tools.connect.take(label="session 1")
            try:
                prepared = prepare_load(plan, tools, connection, resumes=tools.resumes, begun=begun)
                if isinstance(prepared, NothingToDo):
                    on_nothing(prepared, connection)
                    connection.close()
                    return prepared
            except BaseException:
                connection.close()
                raise
        except PenstockError as error:
            retrying.wait(error)
            # The claim may be committed although the connection was lost before the answer.
            begun = plan.load_id
        else:
            return Claimed(prepared, connection)


def claim_again(
    plan: LoadPlan, tools: LoadTools, retrying: Retrying, before: PreparedLoad, *, let_go: Callable[[Connection], None]
) -> Claimed | FinishedLoad:
    """Claim a load again after this process has lost its sessions, and find what is missing.

    The lost sessions may still be committing; what they commit counts. If the load is complete, `let_go` is called
    with the new session. Raises PenstockError.
    """
    while True:
        try:
            connection = tools.connect.connect(label="session 1")
            try:
                taken = _prepare_again(plan, tools, connection, before)
            except BaseException:
                connection.close()
                raise
        except PenstockError as error:
            retrying.wait(error)
            continue
        if isinstance(taken, FinishedLoad):
            let_go(connection)
            return taken
        retrying.patience.note_progress(taken.rows_committed)
        return Claimed(taken, connection)


def _prepare_again(
    plan: LoadPlan, tools: LoadTools, connection: Connection, before: PreparedLoad
) -> PreparedLoad | FinishedLoad:
    is_joint = before.member is not None
    if (finished := _confirm(tools, connection, before.claim, is_joint=is_joint)) is not None:
        return finished
    begun = before.claim.load_id
    # Only this load may be resumed. If it was removed from the ledger meanwhile, a new load would store its rows twice.
    prepared = prepare_load(plan, tools, connection, created=before.created, resumes=begun, begun=begun)
    # Another process may have completed the load since `_confirm` looked.
    if isinstance(prepared, NothingToDo):
        return _confirm(tools, connection, before.claim, is_joint=is_joint) or _NOTHING
    return prepared


def _confirm(tools: LoadTools, connection: Connection, claim: Claim, *, is_joint: bool = False) -> FinishedLoad | None:
    """Return the load's totals if it is complete, else None; show a notice if another process completed it."""
    finished = confirm(tools.ledger, connection, claim)
    if finished is not None and finished.is_others and not is_joint:
        tools.notice(f"load {claim.load_id} was completed by another process")
    return finished
