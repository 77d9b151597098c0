"""Writes hints so that they can be typed as shown: commands with the options that name the server and the ledger.

In a load of a job file, options that belong in a [[target]] are written as the file's keys. The packages below the
command line compose hints without knowing these options, or whether there is a job file.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

from penstock.core.values.job import TARGET_KINDS
from penstock.core.values.options import Option, find_option, option_fields
from penstock.core.words import hide_secrets

# Matches the commands that find a load, a change or a lease, with the beginning of a load's id or ID if one follows,
# and whole commands that load. A command that has these options already is skipped.
_COMMAND = re.compile(
    r"\bpenstock (resume|retry|rejects|repair|loads(?: show| forget| prune)?|settings (?:restore|leases)"
    r"|load(?= --into ))\b"
    r"(?: (?:ID\b|[0-9a-f][0-9a-f-]{7,}))?+(?! --(?:to|role|tunnel|ledger-schema|iam-auth)\b)"
)

# Matches an option and its value: quoted, with = or a comma inside, in capitals or digits, or a word.
_OPTION = re.compile(r"(?<![\w-])--([a-z][a-z-]*)(?:[ =]('[^']*'|[\w{}]+[=,][\w{}=,:/-]+|[A-Z0-9_]+\b|[a-z-]+\b))?")

_named: dict[str, Any] = {}
_keys: dict[str, Option] = {}


def remember_target(options: Mapping[str, Any]) -> None:
    """Keep the options with which this run reaches its server and ledger. Empty `options` delete the earlier ones."""
    _named.clear()
    _named.update(options)


def spell_as_keys(*, is_job_file: bool) -> None:
    """From now on, write options of a target as keys of a job file, or as options if there is no job file."""
    _keys.clear()
    if is_job_file:
        fields = (field for kind in TARGET_KINDS for field in option_fields(kind).values())
        _keys.update({field.name: option for field in fields if (option := find_option(field)) is not None})


def complete_commands(text: str) -> str:
    """Return a text in which each command has the options that this run used to reach its server and ledger.

    Secrets are left out. In a load of a job file, options of a target are written as the file's keys.

    >>> remember_target({"to": "dbname=shop password=x", "ledger_schema": "own"})
    >>> complete_commands("Resume with: penstock resume 0a1b2c3d4e.")
    'Resume with: penstock resume 0a1b2c3d4e --to dbname=shop --ledger-schema own.'
    >>> complete_commands("run penstock settings restore")
    'run penstock settings restore --to dbname=shop'
    >>> remember_target({})
    >>> complete_commands("See penstock loads.")
    'See penstock loads.'
    >>> spell_as_keys(is_job_file=True)
    >>> complete_commands("Add it with --add-columns, or use --missing default, --no-header, --skip or --columns a,b.")
    'Add it with add_columns = true, or use missing = "default", header = false, key "skip" or columns = "a,b".'
    >>> spell_as_keys(is_job_file=False)
    """
    if _keys and "--" in text:
        text = _OPTION.sub(_spell, text)
    if not _named or "penstock " not in text:
        return text
    return _COMMAND.sub(lambda found: f"{found[0]}{_compose(has_ledger=not found[1].startswith('settings'))}", text)


def _spell(found: re.Match[str]) -> str:
    """Return an option and its value as a line of a job file.

    Other text, and options of the whole load, are unchanged.
    """
    name, value = found[1].removeprefix("no-").replace("-", "_"), found[2]
    if (option := _keys.get(found[1].replace("-", "_"), _keys.get(name))) is None:
        return found[0]
    metavar = option.kind.metavar
    if metavar is None:
        rest = "" if value is None else found[0][-len(value) - 1 :]
        return f"{name} = {'false' if found[1].startswith('no-') else 'true'}{rest}"
    is_word = value is not None and value.isalpha() and value.islower()
    if value is None or (is_word and value not in metavar.split("|")):
        return f'key "{name}"' + ("" if value is None else f" {value}")
    return f"{name} = {value}" if value[0] == "'" else f'{name} = "{value}"'


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

    If it has a secret, only the words that name the server are returned; None if no word names it.
    """
    from penstock.core.connect.conninfo import describe_target, parse_conninfo

    given = parse_conninfo(to)
    if not given.keys() & {"password", "sslpassword"} and hide_secrets(to) == to:
        return to
    return describe_target(given) if given.keys() & {"service", "host", "hostaddr", "port", "dbname", "user"} else None
