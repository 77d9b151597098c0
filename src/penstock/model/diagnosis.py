"""What limits a workload, with the evidence for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Confidence = Literal["too few samples", "low", "medium", "high"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """A number that supports a claim: its name, its value, and its unit."""

    name: str
    value: float
    unit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """One thing that limits a workload.

    `code` stays the same between releases. `share` is the part of the active sessions' time that this limit costs, 0 to
    1. `proof` is what shows that the remedy worked. `source` is where the rule comes from.
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
