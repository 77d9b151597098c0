"""The value in which doctor reports one finding about a server, in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["ok", "note", "warning", "refusal"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding; `remedy` is the command or the sentence that says how to correct it.

    Severity "refusal" means that penstock load would be refused, or would wait for ever, for the reason found.
    """

    severity: Severity
    subject: str
    text: str
    remedy: str | None = None
