"""Stores changes and holds as tags of a parameter group of Amazon RDS, which several instances may share.

Tags of RDS consist of letters, digits, blanks and _ . : / = + - @. A key has at most 128 characters, a value 256. A
holder is alive while its session has an advisory lock on its instance. Instances that share a group see each other's
tags, but not each other's locks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import ClassVar, Protocol

from penstock.changes.records import read_time
from penstock.changes.values import SERVER, Change, Hold, lock_of, server_change
from penstock.core.connect.connection import Connection
from penstock.core.slotted import slotted
from penstock.core.values.server import ServerIdentity
from penstock.ledger.locks import find_lock_holder

_HOLD = "penstock:lease:"
_NAMES = "penstock:names:"
# The beginning of a tag's key. The kind and the name of the change follow. The tag's value is the record of the change.
_CHANGE = "penstock:change:"

_TIME = "%Y-%m-%dT%H:%M:%SZ"

# The greatest length of a word, in characters, with which all words of a hold fit into the value of a tag.
_WORD_LENGTH = 56

_FORBIDDEN = re.compile(r"[^A-Za-z0-9_.:/@-]")


class Tags(Protocol):
    """The tags of one AWS resource. Methods raise AwsError."""

    def exists(self) -> bool:
        """Return whether the resource can have tags."""

    def read(self) -> dict[str, str]:
        """Return the values of the tags, by key."""

    def write(self, tags: Mapping[str, str]) -> None:
        """Add tags, or change their values. `tags` has the values by key."""

    def remove(self, keys: Sequence[str]) -> None:
        """Remove the tags with these keys."""


@slotted
class TagStore:
    """A Store in the tags of an AWS resource. Its changes are those of the whole server."""

    # The session in which the holders' locks are looked up.
    connection: Connection
    tags: Tags
    schema: ClassVar[str] = ""

    def exists(self) -> bool:
        return self.tags.exists()

    def open(self) -> bool:
        """Return whether the resource can have tags. Nothing is upgraded."""
        return self.exists()

    def ensure(self) -> None:
        """Do nothing: tags can be written at once."""

    def read_changes(self, oid: int | None = None) -> list[Change]:  # noqa: ARG002 (the server's alone)
        return read_changes(self.tags.read())

    def read_holds(self, oid: int | None = None) -> list[Hold]:  # noqa: ARG002 (the server's alone)
        now = read_time(self.connection)
        return [
            replace(
                hold,
                pid=find_lock_holder(self.connection, hold.lock or ""),
                stands=hold.stands and (hold.until is None or hold.until > now),
            )
            for hold in read_holds(self.tags.read())
        ]

    def write(self, hold: Hold, changes: Sequence[Change], stale: Sequence[Change] = ()) -> None:
        if stale:
            self.tags.remove([_change_key(change) for change in stale])
        self.tags.write(hold_tags(hold) | change_tags(changes))

    def forget(self, oid: int, changes: Sequence[Change], holders: Sequence[str]) -> None:  # noqa: ARG002 (see Store)
        keys = [f"{head}{holder}" for holder in sorted(holders) for head in (_HOLD, _NAMES)]
        if keys := [*keys, *map(_change_key, changes)]:
            self.tags.remove(keys)


def hold_tags(hold: Hold) -> dict[str, str]:
    """Return the tags that record a hold: their values by key."""
    until = "removed" if hold.stands and hold.until is None else _write_time(hold.until)
    words = {
        "by": hold.client,
        "for": hold.reason,
        "on": "" if hold.server is None else hold.server.resource_id or "",
        "began": _write_time(hold.made_at),
        "until": until,
    }
    return {f"{_HOLD}{hold.holder_id}": _join(words), f"{_NAMES}{hold.holder_id}": " ".join(hold.names)}


def change_tags(changes: Sequence[Change]) -> dict[str, str]:
    """Return the tags that record changes: their values by key.

    A tag cannot be null, so an empty text stands for None in a record.
    """
    return {_change_key(change): _join({**change.record, "by": change.load_id}) for change in changes}


def read_holds(tags: Mapping[str, str]) -> list[Hold]:
    """Return the holds that tags record, the oldest first. Other tags are ignored."""
    holds = [
        _read_hold(key.removeprefix(_HOLD), _split(value), tags.get(key.replace(_HOLD, _NAMES, 1), "").split())
        for key, value in tags.items()
        if key.startswith(_HOLD)
    ]
    return sorted(holds, key=lambda hold: (hold.made_at or _EPOCH, hold.holder_id))


def read_changes(tags: Mapping[str, str]) -> list[Change]:
    """Return the changes that tags record. Other tags are ignored."""
    changes: list[Change] = []
    for key, value in sorted(tags.items()):
        kind, _, name = key.removeprefix(_CHANGE).partition(":")
        if key.startswith(_CHANGE) and name:
            words = _split(value)
            holder_id = words.pop("by", "")
            record = {word: text or None for word, text in words.items()}
            changes.append(server_change(kind, name, record, holder_id, number=len(changes) + 1))
    return changes


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _change_key(change: Change) -> str:
    return f"{_CHANGE}{change.kind}:{change.name}"


def _read_hold(holder_id: str, words: Mapping[str, str], names: Sequence[str]) -> Hold:
    return Hold(
        holder_id=holder_id,
        target_oid=SERVER,
        lock=lock_of(holder_id),
        names=tuple(names),
        stands=bool(words.get("until")),
        until=_read_time(words.get("until")),
        client=words.get("by", ""),
        reason=words.get("for", ""),
        made_at=_read_time(words.get("began")),
        server=ServerIdentity.of_resource(words.get("on") or "an instance"),
    )


def _write_time(time: datetime | None) -> str:
    return "" if time is None else time.astimezone(UTC).strftime(_TIME)


def _read_time(text: str | None) -> datetime | None:
    try:
        return datetime.strptime(text or "", _TIME).replace(tzinfo=UTC)
    except ValueError:
        return None


def _join(words: Mapping[str, str | None]) -> str:
    return " ".join(f"{name}={_FORBIDDEN.sub('_', word or '')[:_WORD_LENGTH]}" for name, word in words.items())


def _split(text: str) -> dict[str, str]:
    return {name: value for name, equals, value in (word.partition("=") for word in text.split()) if equals}
