"""What a step of a load says of itself: its part of the outcome."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of text whose columns are to be lined up; `align` has "<" or ">" for each column."""

    rows: Sequence[Sequence[str]]
    align: str


class StepPart(Protocol):
    """A dataclass with what one step did. --json has its fields, and the text of the outcome its description."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def describe(self) -> Sequence[str | Rows]:
        """Return the lines to show, none if the step did nothing."""
