"""A temp place: a tablespace for temporary work, and the scope in which temp_tablespaces names it. Pure."""

from __future__ import annotations

import re
from typing import Literal, cast

from penstock.core.errors import TargetError, UsageError
from penstock.core.slotted import slotted
from penstock.core.values.diagnosis import Diagnosis
from penstock.core.values.names import fold_name, quote_name

ScopeKind = Literal["server", "database", "role"]

SETTING = "temp_tablespaces"

# The tablespace of temporary work if temp_tablespaces is not set and the database has no default tablespace of its own.
DEFAULT_TABLESPACE = "pg_default"
TABLESPACE = "penstock_temp"

_LIST_ITEM = re.compile(r'\s*(?:"((?:[^"]|"")*)"|([^",\s]+))\s*(?:,(?=.)|$)', re.DOTALL)


@slotted
class Scope:
    """The scope for which temp_tablespaces is set: the whole server, a database or a role."""

    kind: ScopeKind
    # The name of the database or role, None for the whole server.
    name: str | None = None

    def __str__(self) -> str:
        return "the server" if self.name is None else f"{self.kind} {quote_name(self.name)}"


@slotted
class Placement:
    """The record of a tablespace for temporary work, which is written before anything is created."""

    location: str
    scope: Scope
    # The roles that may use the tablespace, empty if every role may.
    granted: tuple[str, ...]
    # The tablespaces that temp_tablespaces named before, None if the scope had no value of its own.
    prior: tuple[str, ...] | None
    owner: str = ""
    # Whether the place was completed and is not being removed. If false, penstock repair removes it.
    is_placed: bool = False
    # Whether the directory was on the disk of the data directory when the place was created.
    shares_disk: bool = False

    def is_same_as(self, other: Placement) -> bool:
        """Return whether both records have the same location, scope and roles."""
        return (self.location, self.scope, self.granted) == (other.location, other.scope, other.granted)


@slotted
class Occupant:
    """An object in a tablespace."""

    what: str
    # The statement that moves the object elsewhere, None for a temporary object.
    move: str | None = None


@slotted
class PlaceReport:
    """A tablespace for temporary work, with the statements that were run for it, or would be run with --plan."""

    placement: Placement
    statements: tuple[str, ...]
    # What could not be removed or restored, and why.
    left: tuple[str, ...] = ()


@slotted
class CheckReport:
    """A tablespace for temporary work, and what is wrong with it."""

    placement: Placement
    problems: tuple[Diagnosis, ...]
    # What was corrected.
    mended: tuple[str, ...]
    # The free bytes of the disk, None if they are not known.
    free_bytes: int | None


def parse_scope(text: str) -> Scope:
    """Return the scope that a value of --scope names. Raises UsageError.

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
    """Return a name as SQL reads it: folded to lower case unless it is in quotes."""
    if len(text) > 2 and text.startswith('"') and text.endswith('"'):
        return text[1:-1].replace('""', '"')
    return fold_name(text)


def parse_setting(text: str) -> tuple[str, ...]:
    """Return the names in a value of temp_tablespaces. Raises TargetError if the text is not a list of names.

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
    # An empty name means the default tablespace. An empty list means the same.
    return tuple(names) if any(names) else ()


def spell_setting(names: tuple[str, ...] | None) -> str:
    """Return a value of temp_tablespaces as text to show: "not set" for None, "empty" for no names."""
    return "not set" if names is None else ", ".join(map(quote_name, names)) or "empty"
