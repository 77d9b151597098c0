"""Values that describe what limits a workload, with the evidence."""

from __future__ import annotations

from typing import Literal

from penstock.frozen import frozen

Confidence = Literal["too few samples", "low", "medium", "high"]


@frozen
class Evidence:
    """A number that supports a diagnosis: its name, its value, and its unit."""

    name: str
    value: float
    unit: str


@frozen
class Diagnosis:
    """One thing that limits a workload.

    `code` stays the same between releases. `share` is the share of the active sessions' time that this limit costs,
    from 0 to 1. `proof` says how to see that the remedy has worked. `source` names the source of the rule.
    """

    code: str
    claim: str
    share: float
    evidence: tuple[Evidence, ...]
    samples: int
    confidence: Confidence
    remedy: str
    proof: str
    source: str

    @property
    def verdict(self) -> str:
        """Return the claim as a verdict states it: with what it rests on, if that is not samples."""
        return self.claim if self.samples else f"{self.claim} (by counts alone)"
