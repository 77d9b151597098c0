"""A place for temporary work: a tablespace, and whose temp_tablespaces names it. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, cast

from penstock.errors import TargetError, UsageError
from penstock.model.server.names import fold_name, quote_name

ScopeKind = Literal["server", "database", "role"]

# placing: under way, or interrupted; removing: the same of its end. penstock repair undoes both.
Stage = Literal["placing", "placed", "removing"]

SETTING = "temp_tablespaces"

# PostgreSQL's own place, where no setting names another.
DEFAULT_TABLESPACE = "pg_default"
TABLESPACE = "penstock_temp"

_LIST_ITEM = re.compile(r'\s*(?:"((?:[^"]|"")*)"|([^",\s]+))\s*(?:,(?=.)|$)', re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Whose setting it is: the whole server's (`name` is None), a database's or a role's."""

    kind: ScopeKind
    name: str | None = None

    def __str__(self) -> str:
        return "the server" if self.name is None else f"{self.kind} {quote_name(self.name)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """What is written down of a place before anything is made.

    `prior` are the tablespaces that the setting named before, None where the scope had no setting of its own.
    `granted` are the roles that may use it, none where everybody may. `shares_disk`: it was on the data's disk then.
    """

    location: str
    scope: Scope
    granted: tuple[str, ...]
    prior: tuple[str, ...] | None
    owner: str = ""
    stage: Stage = "placing"
    shares_disk: bool = False

    def is_same_as(self, other: Placement) -> bool:
        """Whether both ask for the same; what was before is no part of that."""
        return (self.location, self.scope, self.granted) == (other.location, other.scope, other.granted)


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupant:
    """Something in a tablespace; `move` is the statement that moves it, None for what is temporary."""

    what: str
    move: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What is wrong with a place, and what mends it."""

    what: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceReport:
    """A placement with the statements that were run for it, or would be; `left` is what was not undone, and why."""

    placement: Placement
    statements: tuple[str, ...]
    left: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """A placement with what is wrong with it, and what was mended; `free_bytes` is None where it cannot be known."""

    placement: Placement
    problems: tuple[Problem, ...]
    mended: tuple[str, ...]
    free_bytes: int | None


def parse_scope(text: str) -> Scope:
    """Return a scope as it is typed. Raises UsageError.

    >>> parse_scope("role:reports")
    Scope(kind='role', name='reports')
    """
    kind, _, name = text.partition(":")
    if text == "server":
        return Scope(kind="server")
    if kind in {"database", "role"} and name:
        return Scope(kind=cast("ScopeKind", kind), name=parse_name(name))
    raise UsageError(f'invalid value "{text}" for --scope', hint="Use server, database:NAME or role:NAME.")


def parse_name(text: str) -> str:
    """Return a name as SQL reads it: folded unless it is in quotes."""
    if len(text) > 2 and text.startswith('"') and text.endswith('"'):
        return text[1:-1].replace('""', '"')
    return fold_name(text)


def parse_setting(text: str) -> tuple[str, ...]:
    """Return the names in a setting's text, as PostgreSQL reads them. Raises TargetError for a text that is no list.

    >>> parse_setting('fast, "Big One"')
    ('fast', 'Big One')
    """
    names: list[str] = []
    position = 0
    while text[position:].strip():
        match = _LIST_ITEM.match(text, position)
        if match is None:
            raise TargetError(f"{SETTING} is not a list of names: '{text}'", hint="Correct or reset it first.")
        quoted, plain = match.groups()
        names.append(fold_name(plain) if quoted is None else quoted.replace('""', '"'))
        position = match.end()
    # An empty name stands for the default, as no name does.
    return tuple(name for name in names if name)


def spell_setting(names: tuple[str, ...] | None) -> str:
    """Return a setting to be shown."""
    return "not set" if names is None else ", ".join(map(quote_name, names)) or "empty"
