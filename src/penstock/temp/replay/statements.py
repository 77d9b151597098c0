"""Splits a file of SQL into statements, decides which may be run, and pairs the statements of two servers. Pure.

Statements are run in a read-only transaction. That still allows COPY TO PROGRAM and SET, so only statements that begin
with SELECT, VALUES, TABLE or WITH are accepted. This also rejects text that is not SQL, such as psql's backslash
commands. Functions that a query calls are not checked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.errors import UsageError
from penstock.model.temp.replay import StatementTotals
from penstock.observe.statements import read_tokens

_READING = frozenset(("select", "values", "table", "with"))
# The number of paired statements to return: as many as a screen shows.
_MOST = 10


def split_statements(text: str) -> list[str]:
    r"""Return the statements of a text without comments and semicolons. Empty statements are skipped.

    >>> split_statements("SELECT ';'; -- one;\nTABLE t;")
    ["SELECT ';'", 'TABLE t']
    """
    statements: list[str] = []
    parts: list[str] = []
    for kind, part in read_tokens(text):
        if kind == "other" and part == ";":
            statements.append("".join(parts).strip())
            parts.clear()
        else:
            parts.append(" " if kind == "comment" else part)
    statements.append("".join(parts).strip())
    return [statement for statement in statements if statement]


def refuse_unreadable(statement: str, *, source: str) -> None:
    """Raise UsageError for a statement that may not be replayed."""
    if why := why_not(statement):
        raise UsageError(
            f"{source}: cannot replay {shorten(statement)}",
            detail=f"{why[0].upper()}{why[1:]}.",
            hint="Name statements that begin with SELECT, VALUES, TABLE or WITH.",
        )


def why_not(statement: str) -> str | None:
    """Return why a statement may not be replayed, or None if it may.

    >>> why_not("(SELECT 1)"), why_not("COPY t TO PROGRAM 'rm'")
    (None, 'it begins with COPY')
    """
    words = [(kind, part) for kind, part in read_tokens(statement) if kind != "comment" and not part.isspace()]
    if any(kind == "other" and part == ";" for kind, part in words):
        return "it is more than one statement"
    if any(kind == "parameter" for kind, _ in words):
        return "it has parameters, whose values nobody has kept"
    first = _first_word(statement)
    return None if begins_to_read(statement) else f"it begins with {first.upper() or 'nothing'}"


def begins_to_read(statement: str) -> bool:
    """Return whether a statement begins with SELECT, VALUES, TABLE or WITH."""
    return _first_word(statement).lower() in _READING


def _first_word(statement: str) -> str:
    words = ((kind, part) for kind, part in read_tokens(statement) if kind != "comment" and not part.isspace())
    return next((part for kind, part in words if not (kind == "other" and part == "(")), "")


def shorten(statement: str, *, length: int = 60) -> str:
    """Return a statement's beginning on one line."""
    line = " ".join(statement.split())
    return line if len(line) <= length else f"{line[: length - 1]}…"


def check_places(first: Sequence[str], second: Sequence[str]) -> None:
    """Raise UsageError if the tablespaces of both places are the same."""
    if set(first) == set(second):
        raise UsageError(
            f"both places are the same: {', '.join(second)}",
            hint="Place temporary work elsewhere with penstock temp place, or name a tablespace with --place.",
        )


def pair_totals(
    first: Mapping[str, tuple[int, float]], second: Mapping[str, tuple[int, float]]
) -> list[StatementTotals]:
    """Return the statements that both servers have, with the calls and total milliseconds of each server.

    They are in descending order of the first server's total. They are paired by their text, because query ids of two
    servers agree only if one server is a copy of the other.
    """
    paired = [
        StatementTotals(
            statement=text,
            first_calls=first[text][0],
            first_ms=first[text][1],
            second_calls=second[text][0],
            second_ms=second[text][1],
        )
        for text in first.keys() & second.keys()
    ]
    return sorted(paired, key=lambda each: (-each.first_ms, each.statement))[:_MOST]
