"""Diagnoses of servers, tables and workloads: a claim, its evidence, its remedy. Notices are about input."""

from __future__ import annotations

from typing import Literal

from penstock.core.errors import PenstockError, TargetError
from penstock.core.slotted import slotted
from penstock.core.words import WIDTH, hang, line_up

Severity = Literal["ok", "note", "warning", "refusal"]
Confidence = Literal["too few samples", "low", "medium", "high"]


@slotted
class Evidence:
    """A number that supports a diagnosis: its name, its value, and its unit."""

    name: str
    value: float
    unit: str


@slotted
class Diagnosis:
    """One thing that is right or wrong with a server, a table or a workload."""

    # The code stays the same between releases. A check before a load has the word for what it is about, such as ledger.
    code: str
    claim: str
    # "refusal" means that penstock load would be refused, or would wait for ever, for the reason in the claim.
    severity: Severity = "warning"
    # The facts behind the claim, as a sentence.
    detail: str | None = None
    # The numbers behind the claim.
    evidence: tuple[Evidence, ...] = ()
    # The command or the sentence that says what to do.
    remedy: str | None = None
    # The share of the active sessions' time that this costs, from 0 to 1; 0 if no session is seen to wait for it.
    share: float = 0.0
    # The most of that time that the remedy can gain, from 0 to 1, by the server's counters; None if they do not say it.
    bound: float | None = None
    # How many samples of sessions the share is of.
    samples: int = 0
    # None if the claim does not rest on samples or counts of a workload.
    confidence: Confidence | None = None
    # How to see that the remedy has worked.
    proof: str | None = None
    # The source of the rule.
    source: str | None = None

    @property
    def verdict(self) -> str:
        """Return the claim, with the words "by counts alone" if no samples of sessions support it."""
        return self.claim if self.samples else f"{self.claim} (by counts alone)"

    @property
    def rank(self) -> float:
        """Return the part of the time that decides the order: what can be gained, or the share if that is not known."""
        return self.share if self.bound is None else min(self.share, self.bound)

    @property
    def headline(self) -> str:
        """Return the diagnosis in one line, without its remedy."""
        return f"{self.code}: {self.claim}"

    def number(self, name: str) -> float | None:
        """Return the value of the evidence of that name, None if there is none."""
        return next((each.value for each in self.evidence if each.name == name), None)


def ok(code: str, claim: str) -> Diagnosis:
    """Return a diagnosis that needs no action."""
    return Diagnosis(severity="ok", code=code, claim=claim)


def note(code: str, claim: str, remedy: str | None = None) -> Diagnosis:
    """Return a diagnosis of something that the user should know."""
    return Diagnosis(severity="note", code=code, claim=claim, remedy=remedy)


def warning(code: str, claim: str, remedy: str | None = None) -> Diagnosis:
    """Return a diagnosis of something that should be corrected, but does not prevent a load."""
    return Diagnosis(code=code, claim=claim, remedy=remedy)


def refusal(code: str, claim: str, remedy: str | None = None, *, detail: str | None = None) -> Diagnosis:
    """Return a diagnosis of something that prevents a load."""
    return Diagnosis(severity="refusal", code=code, claim=claim, detail=detail, remedy=remedy)


def refusal_of(error: PenstockError, code: str) -> Diagnosis:
    """Return a refusal that has the message, the detail and the hint of an error."""
    return refusal(code, error.message, error.hint, detail=error.detail)


def refuse(found: Diagnosis | None, error: type[PenstockError] = TargetError, *, sqlstate: str | None = None) -> None:
    """Raise a diagnosis as an error of the class `error`; do nothing if `found` is None."""
    if found is not None:
        raise error(found.claim, detail=found.detail, hint=found.remedy, sqlstate=sqlstate)


def describe_diagnosis(diagnosis: Diagnosis, head: str, width: int = WIDTH) -> list[str]:
    """Return the lines that show a diagnosis: `head` and the claim, the evidence, the remedy, the proof and the source.

    The evidence is shown only for diagnoses that have a confidence. The claims of others contain their numbers. `width`
    is the width of a line in cells.
    """
    indent = " " * len(head)
    texts = (("do", diagnosis.remedy), ("proof", diagnosis.proof), ("source", diagnosis.source))
    numbers = [(each.name, f"{each.value:,.2f}", each.unit) for each in diagnosis.evidence if diagnosis.confidence]
    return [
        *hang(head, ". ".join(filter(None, [diagnosis.claim, diagnosis.detail])), width),
        *line_up(numbers, align="<><", indent=f"{indent}  "),
        *(line for name, text in texts if text for line in hang(f"{indent}{name:7}", text, width)),
    ]
