"""Every .sql file begins with a header that says what it is and how psql runs it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from support.sql_files import FILES, FOLDER, PARTS, read_header, read_text, read_variables

if TYPE_CHECKING:
    import pytest


def test_there_are_sql_files() -> None:
    """The files are part of the packages."""
    assert "penstock_lab/topology/sql/received.sql" in FILES
    assert "penstock/core/sql/server.sql" in FILES
    assert "penstock/ledger/sql/parts/origin.sql" in PARTS


def test_headers_name_their_files_and_variables(subtests: pytest.Subtests) -> None:
    """The variables that a header sets for psql are those that the text uses."""
    for file in FILES:
        with subtests.test(file):
            used = set(re.findall(r"""(?<!:):(?:'(\w+)'|"(\w+)")""", read_text(file)))
            assert read_header(file)["file"] == file.rpartition("/")[2]
            assert set(read_variables(file)) == {name or identifier for name, identifier in used}


def test_every_part_is_used() -> None:
    """Some file sets each part."""
    text = "".join((FOLDER / file).read_text() for file in FILES)
    assert [part for part in PARTS if f"parts/{Path(part).name}`" not in text] == []
