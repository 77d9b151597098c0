"""One object's share of a load: where it goes, its number in the ledger, and what is committed of it already."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.model.ledger import Coverage

if TYPE_CHECKING:
    from penstock.model.plan import TargetPlan
    from penstock.model.source import SourceObject


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectWork:
    """An object to load; blocks within `coverage` are not sent again."""

    target: TargetPlan
    source: SourceObject
    number: int
    coverage: Coverage = field(default_factory=Coverage)


def all_objects(targets: tuple[TargetPlan, ...]) -> list[ObjectWork]:
    """Return every object of a plan, numbered in the order of the job, with nothing committed."""
    pairs = [(target, source) for target in targets for source in target.objects]
    return [ObjectWork(target=target, source=source, number=number) for number, (target, source) in enumerate(pairs)]
