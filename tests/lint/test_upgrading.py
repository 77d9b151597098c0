"""docs/upgrading.md: what it says of exit codes and formats is what the code has."""

from __future__ import annotations

import re

import penstock
from penstock.cli.output import EXIT_CODES, JSON_FORMAT
from penstock.ledger.schema import VERSION
from penstock.loading.plan.identity import JOB_FORMAT
from penstock.watch.values import FORMAT
from support.repository import read_document

_PAGE = read_document("docs/upgrading.md")
# The cells of the table of what is kept: its first column, and its last.
_NUMBERS = dict(re.findall(r"^\|([^|]+)\|[^|]+\|([^|]+)\|$", _PAGE, re.MULTILINE))


def test_exit_codes_of_the_page_are_those_of_the_code() -> None:
    """A new one is a promise, and one that is gone breaks scripts."""
    assert _NUMBERS["exit codes"] == ", ".join(str(code) for code, _ in EXIT_CODES)


def test_formats_of_the_page_are_those_of_the_code() -> None:
    """In the table, and where an object of --json and a recording are described."""
    assert _NUMBERS["objects of `--json`"] == str(JSON_FORMAT)
    assert _NUMBERS["[the ledger](#the-ledger)"] == str(VERSION)
    assert _NUMBERS["jobs in the ledger"] == str(JOB_FORMAT)
    assert _NUMBERS["recordings"] == FORMAT
    assert f'begins with `"format": {JSON_FORMAT}`' in _PAGE
    assert f"the number of its format, `{FORMAT}` now" in _PAGE


def test_names_that_the_page_promises_exist() -> None:
    """All that is exported."""
    assert [name for name in penstock.__all__ if not hasattr(penstock, name)] == []
