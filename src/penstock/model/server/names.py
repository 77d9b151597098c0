"""Table names as SQL spells them."""

from __future__ import annotations

import re
import string

from penstock.errors import UsageError
from penstock.model.server.table import TableName

_PART = re.compile(r'"((?:[^"]|"")+)"|([^".]+)')

_FOLDED = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


def parse_table_name(text: str) -> TableName:
    """Return the table that `text` names: unquoted parts in lower case, quoted ones as they are. Raises UsageError.

    >>> parse_table_name('staging."Title"')
    TableName(schema='staging', name='Title')
    """
    parts = []
    position = 0
    while True:
        match = _PART.match(text, position)
        if match is None:
            break
        quoted, plain = match.groups()
        parts.append(quoted.replace('""', '"') if quoted else fold_name(plain.strip()))
        position = match.end()
        if text[position : position + 1] != ".":
            break
        position += 1
    if position != len(text) or text.endswith(".") or not parts or len(parts) > 2 or not all(parts):
        raise UsageError(
            f'"{text}" is not a table name',
            hint="Write TABLE or SCHEMA.TABLE; quote a part that needs it: '\"My Table\"'.",
        )
    return TableName(schema=parts[0] if len(parts) == 2 else None, name=parts[-1])


def fold_name(name: str) -> str:
    """Return what an unquoted name becomes: of UTF-8, PostgreSQL folds the letters of ASCII alone.

    Source: downcase_identifier in src/backend/parser/scansup.c

    >>> fold_name("ÄRZTE")
    'Ärzte'
    """
    return name.translate(_FOLDED)


def quote_name(name: str) -> str:
    """Return a name as SQL takes it whatever it is, as psycopg's Identifier writes it.

    >>> print(quote_name('a "b" c'))
    "a ""b"" c"
    """
    doubled = name.replace('"', '""')
    return f'"{doubled}"'
