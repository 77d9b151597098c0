"""What docs/transforms.md and docs/merging.md show does what they say."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.core.values.job import Transform
from support.loads import Loads, target

_DOCS = Path(__file__).parents[4] / "docs"


def _block(kind: str, page: str = "transforms.md") -> str:
    text = (_DOCS / page).read_text(encoding="utf-8")
    (found,) = re.findall(rf"^```{kind}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return str(found)


@pytest.mark.parametrize("parts", [1, 5])
def test_last_record_of_each_key_decides(database18: str, tmp_path: Path, parts: int) -> None:
    """This applies to one file, and to a folder of files in the order of their names."""
    header, *records = _block("csv").splitlines()
    for number in range(parts):
        share = records[number * len(records) // parts : (number + 1) * len(records) // parts]
        (tmp_path / f"{number}.csv").write_text("\n".join([header, *share]) + "\n")
    loads = Loads(database18, setup="CREATE TABLE public.account (id int PRIMARY KEY, name text, amount numeric)")
    job = replace(target(tmp_path, into="account"), transform=Transform(name="apply.sql", text=_block("sql")))
    loads.run(job)
    assert loads.execute("SELECT id, name, amount FROM account ORDER BY id") == [(1, "Anna", 15), (3, "Cyd", None)]


def test_rows_without_a_record_are_marked_and_unmarked(database18: str, tmp_path: Path) -> None:
    """By one MERGE, in place of the deletions of a sync."""
    loads = Loads(
        database18,
        setup="CREATE SCHEMA shop;"
        "CREATE TABLE shop.products (id int PRIMARY KEY, name text, deleted_at timestamptz);"
        "INSERT INTO shop.products VALUES (1, 'kept', NULL), (2, 'gone', NULL), (3, 'back', '2026-01-01')",
    )
    path = tmp_path / "products.csv"
    path.write_text("id,name\n1,new\n3,new\n4,new\n")
    transform = Transform(name="sync.sql", text=_block("sql", "merging.md"))
    loads.run(replace(target(path, into="shop.products"), transform=transform))
    rows = loads.execute("SELECT id, name, deleted_at IS NOT NULL FROM shop.products ORDER BY id")
    assert rows == [(1, "new", False), (2, "gone", True), (3, "new", False), (4, "new", False)]
