"""Findings about a server or a table: what is right, what is worth knowing, what refuses a load."""

from __future__ import annotations

from typing import Literal

from penstock.core.errors import PenstockError, TargetError
from penstock.core.frozen import frozen

Severity = Literal["ok", "note", "warning", "refusal"]


@frozen
class Finding:
    """One finding about a server."""

    # "refusal" means that penstock load would be refused, or would wait for ever, for the reason found.
    severity: Severity
    subject: str
    text: str
    # The facts behind the text.
    detail: str | None = None
    # The command or the sentence that says how to correct what was found.
    remedy: str | None = None


def ok(subject: str, text: str) -> Finding:
    """Return a finding that needs no action."""
    return Finding(severity="ok", subject=subject, text=text)


def note(subject: str, text: str, remedy: str | None = None) -> Finding:
    """Return a finding that the user should know."""
    return Finding(severity="note", subject=subject, text=text, remedy=remedy)


def warning(subject: str, text: str, remedy: str | None = None) -> Finding:
    """Return a finding that should be corrected, but does not prevent a load."""
    return Finding(severity="warning", subject=subject, text=text, remedy=remedy)


def refusal(subject: str, text: str, remedy: str | None = None, *, detail: str | None = None) -> Finding:
    """Return a finding that prevents a load."""
    return Finding(severity="refusal", subject=subject, text=text, detail=detail, remedy=remedy)


def refusal_of(error: PenstockError, subject: str) -> Finding:
    """Return the finding that a load would be refused with an error."""
    return refusal(subject, error.message, error.hint, detail=error.detail)


def refuse(finding: Finding | None, error: type[PenstockError] = TargetError, *, sqlstate: str | None = None) -> None:
    """Raise a finding as an error of the given class; do nothing if the finding is None."""
    if finding is not None:
        raise error(finding.text, detail=finding.detail, hint=finding.remedy, sqlstate=sqlstate)
