"""Writes diagnoses as lines of text, for all commands that show them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.words import WIDTH, hang, line_up

if TYPE_CHECKING:
    from penstock.core.values.diagnosis import Diagnosis


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
