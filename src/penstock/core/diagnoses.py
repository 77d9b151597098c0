"""Writes diagnoses as lines of text, for all commands that show them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.words import WIDTH, hang, line_up

if TYPE_CHECKING:
    from penstock.core.values.diagnosis import Diagnosis


def describe_diagnosis(diagnosis: Diagnosis, head: str, width: int = WIDTH) -> list[str]:
    """Return a diagnosis as lines: its claim behind a head, then what to do, and the proof and source if there are.

    Its numbers are shown if it is of a workload. The claim of a risk contains them.
    """
    indent = " " * len(head)
    texts = (("do", diagnosis.remedy), ("proof", diagnosis.proof), ("source", diagnosis.source))
    numbers = [(each.name, f"{each.value:,.2f}", each.unit) for each in diagnosis.evidence if diagnosis.confidence]
    return [
        *hang(head, ". ".join(filter(None, [diagnosis.claim, diagnosis.detail])), width),
        *line_up(numbers, align="<><", indent=f"{indent}  "),
        *(line for name, text in texts if text for line in hang(f"{indent}{name:7}", text, width)),
    ]
