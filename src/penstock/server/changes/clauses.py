"""Checks that the definition of a constraint in a record is one clause, before it follows ADD CONSTRAINT name. Pure.

Each role that may load can write records, and a superuser may restore them. A definition could contain a further action
of ALTER TABLE, such as a new column with a computed default. That action would run functions of the role that wrote the
record, and these could use RESET ROLE to become the superuser.
"""

from __future__ import annotations

import re

# The tokens of the server's scanner (src/backend/parser/scan.l) with standard_conforming_strings on, as in all sessions
# of penstock. The definitions that the server writes have no comments, dollar quotes, parameters or line ends (an
# escape string could continue after a line end), and identifiers that are not ASCII are quoted. All of these are
# refused.
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


# A foreign key as pg_get_constraintdef in src/backend/utils/adt/ruleutils.c writes it.
_NAME = r'(?:"(?:[^"]|"")+"|[a-z_][a-z0-9_]*)'
_COLUMNS = rf"\((?:PERIOD )?{_NAME}(?:, (?:PERIOD )?{_NAME})*\)"
_ACTION = "(?:NO ACTION|RESTRICT|CASCADE|SET NULL|SET DEFAULT)"
_FOREIGN_KEY = re.compile(
    rf"FOREIGN KEY (?P<columns>{_COLUMNS}) REFERENCES {_NAME}(?:\.{_NAME})?{_COLUMNS}(?: MATCH (?:FULL|PARTIAL))?"
    rf"(?: ON UPDATE {_ACTION})?(?: ON DELETE {_ACTION}(?: {_COLUMNS})?)?"
    "(?: DEFERRABLE)?(?: INITIALLY DEFERRED)?(?: NOT ENFORCED)?(?: NOT VALID)?"
)


def read_referring_columns(definition: object) -> list[str] | None:
    """Return the columns of a foreign key, quoted as in its definition; None if the text is not one foreign key.

    >>> read_referring_columns('FOREIGN KEY (a, "B, c") REFERENCES s.t(a, b) ON DELETE CASCADE')
    ['a', '"B, c"']
    >>> read_referring_columns("FOREIGN KEY (a) REFERENCES t(a), ADD COLUMN b int DEFAULT f()")
    """
    match = _FOREIGN_KEY.fullmatch(definition) if isinstance(definition, str) else None
    return None if match is None else re.findall(rf"(?:PERIOD )?({_NAME})", match["columns"])


def is_one_clause(text: object, head: str) -> bool:
    """Return whether a text begins with `head` and is a single clause.

    >>> is_one_clause("EXCLUDE USING gist (a WITH =, b WITH &&)", "EXCLUDE ")
    True
    >>> is_one_clause("EXCLUDE USING gist (a WITH =), ADD COLUMN b int DEFAULT f()", "EXCLUDE ")
    False
    """
    if not isinstance(text, str) or not text.startswith(head):
        return False
    depth = position = 0
    while match := _TOKEN.match(text, position):
        kind, position = match.lastgroup, match.end()
        depth += (kind == "open") - (kind == "close")
        if depth < 0 or kind == "comment" or (kind == "separator" and depth == 0):
            return False
    return depth == 0 and position == len(text)
