"""Table names as SQL writes them."""

from __future__ import annotations

import re
import shlex
import string
from collections.abc import Sequence
from itertools import count

from penstock.core.errors import UsageError
from penstock.core.values.table import TableName

_PART = re.compile(r'"((?:[^"]|"")+)"|([^".]+)')

# After a schema and a dot, a reserved word needs no quotes.
_PLAIN = re.compile("[a-z_][a-z0-9_]*")

# The most bytes of a name, NAMEDATALEN - 1. The server would truncate a longer name with only a notice.
NAME_LIMIT_BYTES = 63

# The limit of user columns in a table (MaxHeapAttributeNumber in src/include/access/htup_details.h).
MOST_COLUMNS = 1600

# The system columns of every table. No other column may have such a name (SystemAttributeByName in
# src/backend/catalog/heap.c).
SYSTEM_COLUMNS = frozenset({"tableoid", "ctid", "xmin", "xmax", "cmin", "cmax"})

# Where a word ends inside a name such as orderID or HTTPServer. Blanks and punctuation end words too.
_WORD_END = re.compile(r"(?<=[^\W\d_])(?=[A-Z][a-z])|(?<=[a-z0-9])(?=[A-Z])")
_NO_WORD = re.compile(r"[\W_]+")

_FOLDED = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


def quote_text(text: str) -> str:
    """Return a text as a literal of SQL for a message. The server must have standard_conforming_strings on.

    >>> quote_text("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"


def parse_table_name(text: str) -> TableName:
    """Return the table that `text` names. Unquoted parts become lower case, quoted parts are kept. Raises UsageError.

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
    """Return an unquoted name as PostgreSQL folds it: in UTF8, only ASCII letters change to lower case.

    Source: downcase_identifier in src/backend/parser/scansup.c

    >>> fold_name("ÄRZTE")
    'Ärzte'
    """
    return name.translate(_FOLDED)


def init_command(schema: str, role: str) -> str:
    """Return the shell command that creates a ledger for a role.

    >>> init_command("penstock", "ann")
    'penstock init --grant ann'
    """
    option = "" if schema == "penstock" else f" --ledger-schema {shlex.quote(schema)}"
    return f"penstock init --grant {shlex.quote(role)}{option}"


def upgrade_command(schema: str) -> str:
    """Return the shell command that upgrades a ledger.

    >>> upgrade_command("sales")
    'penstock init --upgrade --ledger-schema sales'
    """
    option = "" if schema == "penstock" else f" --ledger-schema {shlex.quote(schema)}"
    return f"penstock init --upgrade{option}"


def quote_name(name: str) -> str:
    """Return a name in double quotes for SQL, as psycopg's Identifier writes it.

    >>> print(quote_name('a "b" c'))
    "a ""b"" c"
    """
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def spell_name(schema: object, name: object) -> str:
    """Return a name with its schema for SQL and for people: a part is quoted only if it needs it.

    >>> print(spell_name("public", "order"), spell_name("public", "Order lines"))
    public.order public."Order lines"
    """
    return f"{spell_part(schema)}.{spell_part(name)}"


def spell_part(name: object) -> str:
    """Return a name without its schema, quoted only if it needs it."""
    return str(name) if _PLAIN.fullmatch(str(name)) else quote_name(str(name))


def quote_table(name: TableName) -> str:
    """Return a table's name for SQL.

    >>> print(quote_table(TableName(schema="a", name="T")))
    "a"."T"
    """
    return ".".join(quote_name(part) for part in (name.schema, name.name) if part is not None)


def name_columns(header: Sequence[str]) -> tuple[str, ...]:
    """Return column names for a new table from a header: in lower case, unique, not too long and not reserved.

    They are in lower case so that SQL finds them without quotes.
    >>> name_columns(["ID", " name", "Name", ""])
    ('id', 'name', 'name_2', 'column_4')
    >>> name_columns(["xmin"])
    ('xmin_2',)
    """
    wanted = [_cut(fold_name(name.strip())) or f"column_{number}" for number, name in enumerate(header, start=1)]
    names: list[str] = []
    used = set(SYSTEM_COLUMNS)
    for name in wanted:
        tries = (f"{_cut(name, NAME_LIMIT_BYTES - len(ending))}{ending}" for ending in map("_{}".format, count(2)))
        free = name if name not in used else next(each for each in tries if each not in used and each not in wanted)
        names.append(free)
        used.add(free)
    return tuple(names)


def snake_name(name: str) -> str:
    """Return a name of a file as words in lower case, joined by underscores, so that SQL needs no quotes for it.

    Characters other than letters and digits separate words. A name that begins with a digit gets a _ before it.

    >>> [snake_name(name) for name in ("Culmen Length (mm)", "CustomerID", "HTTPServer2", "2020 Sales", "Größe", "%")]
    ['culmen_length_mm', 'customer_id', 'http_server2', '_2020_sales', 'größe', '']
    """
    words = _NO_WORD.sub("_", _WORD_END.sub("_", name)).strip("_").lower()
    return f"_{words}" if words[:1].isdigit() else words


def _cut(name: str, limit_bytes: int = NAME_LIMIT_BYTES) -> str:
    return name.encode()[:limit_bytes].decode(errors="ignore").rstrip()
