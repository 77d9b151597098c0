"""Values as JSON that any database takes."""

from __future__ import annotations

import json


def to_json(value: object) -> str:
    """Return a value as compact JSON with sorted keys, in which no character is escaped that need not be.

    A database in SQL_ASCII takes any character, and no escape of one (SQLSTATE 22P05).

    >>> to_json({"b": "é", "a": 1})
    '{"a":1,"b":"é"}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
