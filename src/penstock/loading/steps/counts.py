"""Reads counts from the ledger: rows of each object, and rejected records, including those of earlier runs."""

from __future__ import annotations

from dataclasses import replace

from penstock.errors import PenstockError
from penstock.loading.steps.step import RunningLoad, Step
from penstock.model.load.outcome import LoadOutcome
from penstock.server.connect.connection import Connection
from penstock.server.ledger.committed import read_coverage
from penstock.server.ledger.rejects import RejectStore


class Counts(Step):
    """Reads the counts if those of this attempt are not complete."""

    concludes_for_all = True

    def after(self, load: RunningLoad, connection: Connection) -> None:
        """Count each object's rows if there was another attempt, or if a merge may have rejected records."""
        may_have_rejected = bool(load.claimed.landings) and load.plan.job.rules.on_error == "reject"
        if load.tally.attempts > 1 or may_have_rejected:
            coverage = read_coverage(connection, load.tools.ledger.schema, load.load_id)
            load.tally.set_file_rows({number: found.rows for number, found in coverage.items()})

    def conclude(self, load: RunningLoad, outcome: LoadOutcome) -> LoadOutcome:
        """Count rejected records."""
        if load.plan.job.rules.on_error != "reject" and not load.claimed.claim.is_resumed:
            return outcome
        store = RejectStore(load.tools.ledger.schema, load.load_id)
        try:
            try:
                return replace(outcome, rejected=load.at_end(store.count_rejected))
            except KeyboardInterrupt:
                # The load is complete: count once more, so that the user sees what was rejected despite the interrupt.
                return replace(outcome, rejected=load.at_end(store.count_rejected))
        except (PenstockError, KeyboardInterrupt) as error:
            # An error here must not make the load look failed.
            why = error.message if isinstance(error, PenstockError) else "interrupted"
            load.tools.warnings.warn("rejects", f"rejected records were not counted: {why}")
            return replace(outcome, rejected=None)
