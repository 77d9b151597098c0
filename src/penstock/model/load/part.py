"""The part of a load's plan or outcome in which one step, such as VACUUM, reports what it does, and its progress."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from penstock.frozen import frozen


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of text. Their columns are to be aligned."""

    rows: Sequence[Sequence[str]]
    # "<" or ">" for each column.
    align: str


class StepPart(Protocol):
    """A dataclass with what one step will do or did. --json prints its fields, and the text its description."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def describe(self) -> Sequence[str | Rows]:
        """Return the lines to show; no lines if the step does nothing."""


class PlanPart(StepPart, Protocol):
    """A part of a plan. It may be a reason why the load would not begin."""

    @property
    def is_refusing(self) -> bool:
        """Whether the load would not begin, because of what the step has found."""
        return False


@frozen
class StepProgress:
    """The progress of one step after the last row, such as the build of an index."""

    name: str
    phase: str
    # The part of the current phase that is done, from 0 to 1; None if the server does not report it.
    fraction: float | None
