"""Advances the sequences of loaded columns beyond the largest loaded value."""

from __future__ import annotations

from penstock.errors import PenstockError
from penstock.loading.claim.decide import NothingToDo
from penstock.loading.context import LoadTools
from penstock.loading.steps.step import RunningLoad, Step
from penstock.model.load.outcome import LoadOutcome
from penstock.model.load.plan import LoadPlan, TargetPlan
from penstock.server.connect.connection import Connection
from penstock.server.table.sequences import advance_sequences


class Sequences(Step):
    """Advances the sequences before the load's end if COPY fills the tables, else after it.

    If the load is killed before its end, the next run advances them.
    """

    def __init__(self, plan: LoadPlan, tools: LoadTools) -> None:
        self._tools = tools
        self._is_merged = plan.needs_more_than_copy
        self._fed = [
            (target.facts, _fed_columns(target))
            for target in plan.targets
            if target.facts is not None and any(column.sequence for column in target.facts.columns)
        ]

    def after(self, load: RunningLoad, connection: Connection) -> None:
        """Advance the sequences if the load has not ended yet.

        An error becomes a warning, unless the connection is lost: then it is raised.
        """
        if not load.is_ended:
            self._advance_or_warn(connection)

    def conclude(self, load: RunningLoad, outcome: LoadOutcome) -> LoadOutcome:
        """Advance after the load's end if the rows were stored with it."""
        if load.is_staged and self._fed:
            try:
                messages = load.at_end(self._advance)
            except (PenstockError, KeyboardInterrupt) as error:
                messages = [_describe(error)]
            self._warn(messages)
        return outcome

    def nothing_to_do(self, nothing: NothingToDo, connection: Connection) -> None:  # noqa: ARG002 (a step's)
        """Advance if the run that merged the rows may have been killed before it advanced the sequences."""
        if self._is_merged:
            self._advance_or_warn(connection)

    def _advance_or_warn(self, connection: Connection) -> None:
        try:
            messages = self._advance(connection)
        except (PenstockError, KeyboardInterrupt) as error:
            if connection.closed:
                # The connection is lost: the next attempt does this again.
                raise
            # The rows are stored: an error here must not make the load look failed.
            messages = [_describe(error)]
        self._warn(messages)

    def _advance(self, connection: Connection) -> list[str]:
        return [message for facts, columns in self._fed for message in advance_sequences(connection, facts, columns)]

    def _warn(self, messages: list[str]) -> None:
        for message in messages:
            self._tools.warnings.warn("sequences", message)


def _describe(error: BaseException) -> str:
    return f"sequences were not advanced: {error or 'interrupted'}"


def _fed_columns(target: TargetPlan) -> tuple[str, ...]:
    """Return the columns that the load may have given values; with a transform, all columns."""
    if target.job.transform is not None and target.facts is not None:
        return tuple(column.name for column in target.facts.columns)
    return target.column_map.columns
