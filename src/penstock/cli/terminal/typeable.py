"""Adds the options that name the server and the ledger to the commands in messages, so that they can be typed as shown.

Rooms below the command line compose hints without knowing these options.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

from penstock.model.redaction import hide_secrets

# The commands that find a load, a change or a lease, with the beginning of a load's id or ID if one follows. A command
# that has these options already is passed over.
_COMMAND = re.compile(
    r"\bpenstock (resume|retry|rejects|repair|loads(?: show| forget| prune)?|settings (?:restore|leases))\b"
    r"(?: (?:ID\b|[0-9a-f][0-9a-f-]{7,}))?+(?! --(?:to|role|tunnel|ledger-schema|iam-auth)\b)"
)

_named: dict[str, Any] = {}


def remember_target(options: Mapping[str, Any]) -> None:
    """Keep the options by which this run reaches its server and ledger; without options, forget them."""
    _named.clear()
    _named.update(options)


def complete_commands(text: str) -> str:
    """Return a text with these options behind each command that needs them, without secrets.

    >>> remember_target({"to": "dbname=shop password=x", "ledger_schema": "own"})
    >>> complete_commands("Resume with: penstock resume 0a1b2c3d4e.")
    'Resume with: penstock resume 0a1b2c3d4e --to dbname=shop --ledger-schema own.'
    >>> complete_commands("run penstock settings restore")
    'run penstock settings restore --to dbname=shop'
    >>> remember_target({})
    >>> complete_commands("See penstock loads.")
    'See penstock loads.'
    """
    if not _named or "penstock " not in text:
        return text
    return _COMMAND.sub(lambda found: f"{found[0]}{_compose(has_ledger=not found[1].startswith('settings'))}", text)


def _compose(*, has_ledger: bool) -> str:
    to, schema = _named.get("to"), _named.get("ledger_schema")
    words = {
        "--to": None if to is None else _without_secrets(to),
        "--role": _named.get("role"),
        "--tunnel": _named.get("tunnel"),
        "--ledger-schema": schema if has_ledger and schema != "penstock" else None,
    }
    flag = " --iam-auth" if _named.get("iam_auth") else ""
    return "".join(f" {name} {shlex.quote(value)}" for name, value in words.items() if value) + flag


def _without_secrets(to: str) -> str | None:
    """Return a connection string as it was typed, or without its secrets.

    If it has a secret, only the words that name the server are returned; None if no word does.
    """
    from penstock.server.connect.conninfo import describe_target, parse_conninfo

    given = parse_conninfo(to)
    if not given.keys() & {"password", "sslpassword"} and hide_secrets(to) == to:
        return to
    return describe_target(given) if given.keys() & {"service", "host", "hostaddr", "port", "dbname", "user"} else None
