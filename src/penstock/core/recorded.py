"""Writes and reads what penstock records as JSON, and refuses parts that this version does not know.

Ignoring an unknown part, such as an option of a job, could change which rows are stored.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

from penstock import __version__
from penstock.core.errors import TargetError, UsageError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_Made = TypeVar("_Made", bound="DataclassInstance")


class UnknownPart(Exception):
    """A part of a record, such as an option of a job, is unknown to this version of penstock. The message names it."""


@contextmanager
def reading_record(what: str, *, writer: object = None) -> Iterator[None]:
    """Raise TargetError instead of the errors that a faulty record causes in the block.

    `what` names the record in the message. `writer` is the version of penstock that wrote it, if it is known.
    """
    try:
        yield
    except UnknownPart as unknown:
        raise _refuse(what, str(unknown), writer) from None
    except UsageError as error:
        raise _refuse(what, error.message, writer) from None
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _refuse(what, "its form is unknown", writer) from error


def refuse_unknown(given: Collection[str], known: Collection[str], *, part: str = "option") -> None:
    """Raise UnknownPart if `given` contains a name that is not in `known`. `part` says what the names are."""
    if unknown := sorted(set(given) - set(known)):
        raise UnknownPart(f'{part} "{unknown[0]}" is unknown')


def make_recorded(kind: type[_Made], given: Mapping[str, Any], *, part: str = "option") -> _Made:
    """Return an object of a dataclass from its fields as JSON has them: lists become tuples.

    Raises UnknownPart if the class does not have one of the fields. `part` says in the message what the fields are.
    """
    refuse_unknown(given, [each.name for each in fields(kind)], part=part)
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in given.items()})


def _refuse(what: str, why: str, writer: object) -> TargetError:
    by = f"penstock {writer}" if isinstance(writer, str) else "another version of penstock"
    return TargetError(
        f"cannot read {what}: {why}",
        detail=f"It was recorded by {by}; this is penstock {__version__}.",
        hint=f"Install {by if isinstance(writer, str) else 'the penstock that recorded it'}, or a later one.",
    )


def to_json(value: object) -> str:
    r"""Return a value as compact JSON with sorted keys, in which characters are escaped only if JSON requires it.

    A database in SQL_ASCII accepts any character, but no \u escape of a character beyond ASCII (SQLSTATE 22P05).

    >>> to_json({"b": "é", "a": 1})
    '{"a":1,"b":"é"}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
