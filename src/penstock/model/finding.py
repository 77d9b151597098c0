"""What was found out about a server, in words: for the screen of doctor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["ok", "note", "warning", "refusal"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing found; `remedy` is the exact command or the sentence that would mend it.

    A refusal is what a load would be refused for, or what it would never get past.
    """

    severity: Severity
    subject: str
    text: str
    remedy: str | None = None
