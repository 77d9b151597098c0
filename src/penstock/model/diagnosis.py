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
    """One thing that limits a workload."""

    # It stays the same between releases.
    code: str
    claim: str
    # The share of the active sessions' time that this limit costs, from 0 to 1.
    share: float
    evidence: tuple[Evidence, ...]
    samples: int
    confidence: Confidence
    remedy: str
    # How to see that the remedy has worked.
    proof: str
    # The source of the rule.
    source: str

    @property
    def verdict(self) -> str:
        """Return the claim as a verdict states it, which adds the words "by counts alone" if there are no samples."""
        return self.claim if self.samples else f"{self.claim} (by counts alone)"
