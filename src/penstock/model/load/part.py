"""The part of a load's outcome in which one step, such as VACUUM, reports what it did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of text whose columns are to be aligned; `align` has "<" or ">" for each column."""

    rows: Sequence[Sequence[str]]
    align: str


class StepPart(Protocol):
    """A dataclass with what one step did. --json prints its fields, and the text of the outcome its description."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def describe(self) -> Sequence[str | Rows]:
        """Return the lines to show; no lines if the step did nothing."""
