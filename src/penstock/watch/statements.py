"""Removes literals and comments from the text of statements. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

# A word begins with a letter, an underscore or a character beyond ASCII. In later places, digits and $ are allowed too.
# The tag of a dollar-quoted string ($tag$) has no $. The sets list the characters that they exclude, because compiling
# the range of all characters beyond ASCII takes 8 ms.
_FIRST, _NEXT, _NEXT_OF_TAG = r"[^\x00-@[-^`{-\x7f]", r"[^\x00-#%-/:-@[-^`{-\x7f]", r"[^\x00-/:-@[-^`{-\x7f]"

# The tokens of PostgreSQL's scanner, as far as they are needed to find literals. Words are matched before numbers, so
# that the digit of t1 belongs to the word. All characters beyond ASCII belong to words. Comments are removed, because
# they may contain secrets. Source: "Lexical Structure" in PostgreSQL's documentation.
_TOKEN = re.compile(
    rf"""
    (?P<comment>--[^\r\n]* | /\*)
  | (?P<escaped>[eE]'(?:[^'\\]|\\.|'')*(?:'|\\?\Z))
  | (?P<string>(?:[bBxXnN]|[uU]&)?'(?P<inside>(?:[^']|'')*)(?:'|\Z))
  | (?P<name>(?:[uU]&)?"(?:[^"]|"")*(?:"|\Z))
  | (?P<dollar>\$(?P<tag>(?:{_FIRST}{_NEXT_OF_TAG}*)?)\$.*?(?:\$(?P=tag)\$|\Z))
  | (?P<parameter>\$\d+)
  | (?P<word>{_FIRST}{_NEXT}*)
  | (?P<number>(?:\d|\.\d)(?:[eE][+-]\d|[\w.])*)
  | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_LIST = re.compile(r"\(\s*\?(?:\s*,\s*\?)+\s*\)")
_SPACES = re.compile(r"\s+")
_COMMENT_PART = re.compile(r"/\*|\*/")


def strip_literals(statement: str) -> str:
    r"""Return a statement with ? for each literal, (?, ...) for a list of them, and without comments.

    A literal that is cut off at the end of the text is replaced too. If a string without E contains a backslash, the
    text from there on is removed: where such a string ends depends on standard_conforming_strings, which is not known
    here.

    >>> strip_literals("SELECT * FROM t1 WHERE a IN (1, 2, 3) AND b = 'secret' -- note")
    'SELECT * FROM t1 WHERE a IN (?, ...) AND b = ?'
    """
    parts = []
    for kind, token in read_tokens(statement):
        if kind == "comment":
            parts.append(" ")
        elif kind == "string" and "\\" in token:
            parts.append("? ...")
            break
        elif kind in ("escaped", "string", "dollar", "number"):
            parts.append("?")
        else:
            parts.append(token)
    return _LIST.sub("(?, ...)", _SPACES.sub(" ", "".join(parts)).strip())


def read_tokens(statement: str) -> Iterator[tuple[str, str]]:
    """Yield the tokens of a text, each with its kind (a group of _TOKEN). All tokens joined are the text again."""
    position = 0
    while match := _TOKEN.match(statement, position):
        start, position = position, match.end()
        kind = match.lastgroup or "other"
        if kind == "comment":
            position = _end_of_comment(statement, match)
        yield kind, statement[start:position]


def _end_of_comment(statement: str, match: re.Match[str]) -> int:
    """Return where a comment ends. Comments in /* */ may be nested."""
    if match[0] != "/*":
        return match.end()
    depth, position = 1, match.end()
    while depth and (part := _COMMENT_PART.search(statement, position)):
        depth += 1 if part[0] == "/*" else -1
        position = part.end()
    return len(statement) if depth else position
