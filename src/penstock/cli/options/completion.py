"""What the shell offers when the user presses Tab: values of options, and tables and loads of the named server.

The server's answer is used only if it comes fast. The embedded server is not started for this.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from threading import Timer
from typing import TYPE_CHECKING, Any

import typer  # noqa: TC002 (typer reads annotations)

from penstock.errors import PenstockError
from penstock.model.load.job import Access, Housekeeping
from penstock.model.options import pick

if TYPE_CHECKING:
    from penstock.api.ledger_view import LedgerView

# Nobody waits longer for the offers of Tab.
_LIMIT_S = 2.0
_LOADS = 50

_WORD = re.compile(r"[a-z][a-z-]*")


def words_of(metavar: str | None) -> Callable[[str], list[str]] | None:
    """Return the completion of an option with words as values, such as append|truncate; None for other options.

    >>> words_of("auto|N")("")
    ['auto']
    """
    words = [word for word in (metavar or "").split("|") if _WORD.fullmatch(word)]
    if not words:
        return None

    def offer(incomplete: str) -> list[str]:
        return [word for word in words if word.startswith(incomplete)]

    return offer


def tables(ctx: typer.Context, incomplete: str) -> list[str]:
    """Offer the tables of the database."""
    return _ask(ctx, lambda view: view.tables(incomplete))


def loads(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Offer the ids of the newest loads, each with its state and tables."""
    found = _ask(ctx, lambda view: view.loads(limit=_LOADS))
    return [
        (record.load_id, f"{record.state}, {', '.join(record.tables)}")
        for record in reversed(found)
        if record.load_id.startswith(incomplete)
    ]


def rejecting_loads(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Offer `latest`, and the ids of loads."""
    return _latest("the newest load with rejected records", incomplete) + loads(ctx, incomplete)


def unfinished_loads(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Offer `latest`, and the ids of loads."""
    return _latest("the newest load that was cut short", incomplete) + loads(ctx, incomplete)


def _latest(meaning: str, incomplete: str) -> list[tuple[str, str]]:
    return [("latest", meaning)] if "latest".startswith(incomplete) else []


def _ask(ctx: typer.Context, question: Callable[[LedgerView], list[Any]]) -> list[Any]:
    """Return the answer of the server that the options name; an empty list if it does not answer in time or refuses."""
    from penstock.api import connect_to
    from penstock.api.ledger_view import LedgerView
    from penstock.lab import default_server
    from penstock.server.connect.connection import has_connection_settings

    options = {name: value for name, value in ctx.params.items() if value not in (None, [], ())}
    access, house = pick(Access, options), pick(Housekeeping, options)
    timer = Timer(_LIMIT_S, _leave)
    timer.daemon = True
    timer.start()
    try:
        is_embedded = access.get("to") is None and not has_connection_settings(os.environ)
        if is_embedded and not default_server(access.get("pg_bin")).status().is_running:
            return []
        with LedgerView(connect_to(**access), ledger_schema=Housekeeping(**house).ledger_schema) as view:
            return question(view)
    except PenstockError:
        # A message would be printed into the line that is being typed.
        return []
    finally:
        timer.cancel()


def _leave() -> None:
    """End the process with what is printed so far, although libpq or the resolver is still waiting."""
    sys.stdout.flush()
    os._exit(0)
