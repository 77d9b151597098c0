"""Values as JSON that a database of any encoding accepts."""

from __future__ import annotations

import json


def to_json(value: object) -> str:
    r"""Return a value as compact JSON with sorted keys, in which characters are escaped only if JSON requires it.

    A database in SQL_ASCII accepts any character, but no \u escape of a character beyond ASCII (SQLSTATE 22P05).

    >>> to_json({"b": "é", "a": 1})
    '{"a":1,"b":"é"}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
