"""That transactions are opened in one way, which turns a connection lost at BEGIN or COMMIT into an error of ours."""

from __future__ import annotations

import ast
import re

from support.repository import parsed_sources

# The way itself; and the session that copies, which sends its own BEGIN with its first command.
_OPENING = "penstock/core/connect/errors.py"
# The last prints what an owner runs in psql.
_SPEAKING = {_OPENING, "penstock/loading/copy/copy.py", "penstock/loading/command/loads.py"}

# Whoever calls these says what is being done.
_CALLED = {"penstock/core/connect/search_path.py", "penstock/changes/tables/definition.py"}

_STATEMENT = re.compile(r"\s*(BEGIN|START TRANSACTION|COMMIT|ROLLBACK)\s*(;|$)", re.IGNORECASE)


def test_transactions_are_opened_in_one_place() -> None:
    """Neither psycopg's own way nor a statement does it elsewhere; each says what is being done."""
    found = [f"{place}:{line}: {what}" for place, tree in parsed_sources() for line, what in _find(place, tree)]
    assert not found


def test_ways_around_are_noticed() -> None:
    """What the test above looks for is found where it stands."""
    tree = ast.parse(
        "with connection.transaction():\n    pass\n"
        "connection.execute('COMMIT')\n"
        "with in_transaction(connection):\n    pass"
    )
    assert [line for line, _ in _find("loading/x.py", tree)] == [1, 3, 4]


def _find(place: str, tree: ast.Module) -> list[tuple[int, str]]:
    found = []
    # A caller's translate_errors in the same module says what is being done.
    translates = place in _CALLED or any(
        isinstance(node, ast.Name) and node.id == "translate_errors" for node in ast.walk(tree)
    )
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "transaction":
            found += [(node.lineno, "transaction()")] if place != _OPENING else []
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "in_transaction":
            is_told = len(node.args) + len(node.keywords) > 1
            found += [] if is_told or translates else [(node.lineno, "does not say what is being done")]
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _STATEMENT.match(node.value):
            found += [(node.lineno, node.value)] if place not in _SPEAKING else []
    return sorted(found)
