"""The .sql files of both packages, and what their headers say."""

from __future__ import annotations

import re
import shlex

from penstock.core.sql import put_parts
from support.repository import ROOT

FOLDER = ROOT / "src"
FILES = sorted(path.relative_to(FOLDER).as_posix() for path in FOLDER.glob("*/*/sql/*.sql"))
PARTS = sorted(path.relative_to(FOLDER).as_posix() for path in FOLDER.glob("*/*/sql/parts/*.sql"))
_HEADER = re.compile(
    r"-- (?P<file>\S+): .+\n"
    r"-- returns (?P<returns>[^;]+); needs [^;]+; PostgreSQL (?P<since>\d+)\+\n"
    r"-- psql(?P<variables>(?:(?: \\\n-- +| )-v \w+=\S+)*)(?: \\\n-- +| )-f (?P=file)\n"
)


def read_header(file: str) -> re.Match[str]:
    """Return the parts of a file's header."""
    header = _HEADER.match((FOLDER / file).read_text())
    assert header is not None, f"{file} has no header in the common form"
    return header


def read_variables(file: str) -> dict[str, str]:
    """Return the values of psql's variables in a file's header."""
    words = shlex.split(re.sub(r"\\\n--", "", read_header(file)["variables"]))
    return dict(word.split("=", 1) for word in words if word != "-v")


def read_text(file: str) -> str:
    """Return a file's text with its parts."""
    path = FOLDER / file
    return put_parts(path.read_text(), lambda part: (path.parent / part).read_text())
