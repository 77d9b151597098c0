"""The kind of change of an import from S3: what was made in IAM, at RDS and in databases, undone in reverse order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.changes.s3_import.steps import EXTENSION, POLICY, ROLE, plan_undo

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.changes.context import Context, Restored
    from penstock.model.load.shape import Change, RepairAction
    from penstock.model.s3_import import Found, Step


class S3Import:
    """See Kind. `look` returns what exists of changes, and `run` takes steps."""

    def __init__(self, look: Callable[[Sequence[Change]], Found], run: Callable[[Sequence[Step]], None]) -> None:
        self._look = look
        self._run = run

    def handles(self, change: Change) -> bool:
        return change.kind in (ROLE, POLICY, EXTENSION)

    def restore(self, context: Context, changes: Sequence[Change], done: Restored) -> Sequence[Change]:  # noqa: ARG002
        self._run(plan_undo(self._look(changes), changes))
        return changes

    def restore_rest(self, context: Context, oids: set[int], done: Restored) -> None:
        """Do nothing more."""

    def describe(self, context: Context, change: Change) -> tuple[RepairAction, str]:  # noqa: ARG002 (see Kind)
        return "restore", "penstock rds prepare-s3-import made it"
