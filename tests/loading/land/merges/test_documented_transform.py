"""What docs/transforms.md shows does what it says."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.core.values.job import Transform
from support.loads import Loads, target

_PAGE = Path(__file__).parents[4] / "docs" / "transforms.md"


def _block(kind: str) -> str:
    (found,) = re.findall(rf"^```{kind}\n(.*?)^```", _PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
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
