"""What is undone behind a load that failed, whatever else fails then."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from penstock.core.errors import ServerError
from penstock.loading.giving_up import undo
from penstock.loading.indexes.table_changes import TableChanges
from penstock.loading.steps.step import Step

if TYPE_CHECKING:
    from penstock.loading.steps.step import RunningLoad


class Undone(Step):
    """A step that notes its turn, and may fail."""

    def __init__(self, name: str, turns: list[str], error: BaseException | None = None) -> None:
        self._name, self._turns, self._error = name, turns, error

    def on_failure(self, *_: object) -> None:
        """Note the turn."""
        self._turns.append(self._name)
        if self._error is not None:
            raise self._error


def test_every_step_has_its_turn_and_the_first_error_is_raised() -> None:
    """The lease on settings is the last to go: what fails before it must not keep it."""
    turns: list[str] = []
    steps = [
        Undone("settings", turns),
        Undone("changes", turns, KeyboardInterrupt()),
        Undone("upkeep", turns, ServerError("gone")),
    ]
    with pytest.raises(ServerError, match="gone"):
        undo(cast("RunningLoad", None), steps, None, "why")
    assert turns == ["upkeep", "changes", "settings"]


def test_what_is_not_restored_is_told_once() -> None:
    """Undoing may begin again without a connection, after it has failed with one."""
    told: list[str] = []

    class Log:
        def warn(self, code: str, message: str) -> None:
            told.append(f"{code}: {message}")

    class Tools:
        warnings = Log()

        class ledger:  # noqa: N801 (an attribute's name)
            schema = "penstock"

    class Plan:
        class job:  # noqa: N801 (an attribute's name)
            class rules:  # noqa: N801 (an attribute's name)
                triggers, autovacuum = "keep", "leave"

    changes = TableChanges(cast("Any", Plan()), cast("Any", Tools()))
    changes._held.add(1)
    changes.warn_left("interrupted")
    changes.warn_left("interrupted")
    assert told == ["not-restored: indexes, keys or triggers were not restored (interrupted): run penstock repair"]
