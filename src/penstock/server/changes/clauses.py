"""What follows ADD CONSTRAINT name in a record, held to be one clause before it becomes part of a statement. Pure.

Whoever may load writes records, and a superuser may carry them out. A further action of ALTER TABLE, such as a column
with a default to be computed, would run the writer's functions, from which RESET ROLE leads back to the superuser.
"""

from __future__ import annotations

import re

# As the server's scanner reads them (src/backend/parser/scan.l) with standard_conforming_strings on, as all sessions of
# ours have it. What it writes itself has no comments, dollar quotes, parameters or line ends, behind which an escape
# string would go on, and quotes what is not ASCII: none of these is let through.
_TOKEN = re.compile(
    r"""
    [eE]'(?:[^'\\]|\\.|'')*'
  | '[^']*'
  | "[^"]*"
  | [A-Za-z_][A-Za-z0-9_$]*
  | [0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![A-Za-z0-9_$.])
  | (?P<open>[(\[])
  | (?P<close>[)\]])
  | (?P<separator>,)
  | (?P<comment>--|/\*)
  | [-+*/<>=~!@\#%^&|`?:.]
  | [ ]+
    """,
    re.VERBOSE | re.DOTALL,
)


# As pg_get_constraintdef writes a foreign key, in src/backend/utils/adt/ruleutils.c.
_NAME = r'(?:"(?:[^"]|"")+"|[a-z_][a-z0-9_]*)'
_COLUMNS = rf"\((?:PERIOD )?{_NAME}(?:, (?:PERIOD )?{_NAME})*\)"
_ACTION = "(?:NO ACTION|RESTRICT|CASCADE|SET NULL|SET DEFAULT)"
_FOREIGN_KEY = re.compile(
    rf"FOREIGN KEY (?P<columns>{_COLUMNS}) REFERENCES {_NAME}(?:\.{_NAME})?{_COLUMNS}(?: MATCH (?:FULL|PARTIAL))?"
    rf"(?: ON UPDATE {_ACTION})?(?: ON DELETE {_ACTION}(?: {_COLUMNS})?)?"
    "(?: DEFERRABLE)?(?: INITIALLY DEFERRED)?(?: NOT ENFORCED)?(?: NOT VALID)?"
)


def read_referring_columns(definition: object) -> list[str] | None:
    """Return the columns of a foreign key as its definition quotes them, None where that is no foreign key's.

    >>> read_referring_columns('FOREIGN KEY (a, "B, c") REFERENCES s.t(a, b) ON DELETE CASCADE')
    ['a', '"B, c"']
    >>> read_referring_columns("FOREIGN KEY (a) REFERENCES t(a), ADD COLUMN b int DEFAULT f()")
    """
    match = _FOREIGN_KEY.fullmatch(definition) if isinstance(definition, str) else None
    return None if match is None else re.findall(rf"(?:PERIOD )?({_NAME})", match["columns"])


def is_one_clause(text: object, head: str) -> bool:
    """Return whether a text begins as it should, and is no more than one clause.

    >>> is_one_clause("EXCLUDE USING gist (a WITH =, b WITH &&)", "EXCLUDE ")
    True
    >>> is_one_clause("EXCLUDE USING gist (a WITH =), ADD COLUMN b int DEFAULT f()", "EXCLUDE ")
    False
    """
    if not isinstance(text, str) or not text.startswith(head):
        return False
    depth = place = 0
    while match := _TOKEN.match(text, place):
        kind, place = match.lastgroup, match.end()
        depth += (kind == "open") - (kind == "close")
        if depth < 0 or kind == "comment" or (kind == "separator" and depth == 0):
            return False
    return depth == 0 and place == len(text)
