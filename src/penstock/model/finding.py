"""What doctor finds out about a server, in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["ok", "note", "warning", "refusal"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding; `remedy` is the command or the sentence that corrects it.

    Severity "refusal": a load would be refused for it, or would wait for ever.
    """

    severity: Severity
    subject: str
    text: str
    remedy: str | None = None
