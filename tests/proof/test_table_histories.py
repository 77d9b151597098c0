"""Random histories of loads into one table: none has a problem, and a tampered one is not verified."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import penstock
from penstock.api.ledger_view import LedgerView
from penstock.core.values.job import LoadRules
from penstock.core.values.table import TableName
from support.loads import Loads, target

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.core.values.job import TargetJob
    from penstock.proof.values import TableOutcome

_COLUMNS = ("a", "b", "c")
_RULES = LoadRules(retry_for=0.0, changed="load")


class _History:
    """Loads into table t, with a key or without one, of files that lack columns; upserts correct some of them."""

    def __init__(self, loads: Loads, folder: Path, seed: int) -> None:
        self._loads, self._folder, self._random = loads, folder, random.Random(seed)
        self._has_key = seed % 4 != 0
        self._names: list[str] = []
        self._keys: set[int] = set()
        loads.execute(f"CREATE TABLE t (id int {'PRIMARY KEY' if self._has_key else ''}, a text, b text, c text)")

    def play(self) -> None:
        """Load some files."""
        self._load("truncate")
        for _ in range(self._random.randint(0, 5)):
            self._load(self._random.choice(("append", "upsert", "insert-new", "truncate")[: 4 if self._has_key else 1]))

    def _load(self, mode: Any) -> None:
        ids = set(self._random.sample(range(25), self._random.randint(1, 6)))
        if mode == "append" and self._has_key:
            ids = ids - self._keys or {max(self._keys) + 1}
        self._keys = ids if mode == "truncate" else self._keys | ids
        is_corrected = mode == "upsert" and self._random.random() < 0.4
        name = self._random.choice(self._names) if is_corrected else f"{len(self._names)}.csv"
        self._names.append(name)
        job = self._write(name, ids)
        keyed: dict[str, Any] = {"key": ("id",)} if mode in ("upsert", "insert-new") else {}
        self._loads.run(replace(job, mode=mode, **keyed), rules=_RULES)

    def _write(self, name: str, ids: set[int]) -> TargetJob:
        columns = self._random.sample(_COLUMNS, self._random.randint(1, 3))
        lines = [
            ",".join([str(each), *(f"{column}{self._random.randint(0, 3)}" for column in columns)]) for each in ids
        ]
        path = self._folder / name
        path.write_text("\n".join([",".join(["id", *columns]), *lines]) + "\n")
        return replace(target(path, format="csv"), missing="default")

    def tamper(self) -> None:
        """Change a value that a load has stored, remove a row, or put another one in its place."""
        column = self._random.choice(_COLUMNS)
        row = "(SELECT ctid FROM t ORDER BY id LIMIT 1)"
        change = f"UPDATE t SET {column} = 'zz' WHERE ctid = (SELECT ctid FROM t WHERE {column} IS NOT NULL LIMIT 1)"
        removal = f"DELETE FROM t WHERE ctid = {row}"
        swap = f"{removal}; INSERT INTO t VALUES (777, 'q', 'q', 'q')"
        filled = self._loads.execute(f"SELECT FROM t WHERE {column} IS NOT NULL")
        self._loads.execute(self._random.choice([removal, swap, *([change] if filled else [])]))


def _verify(loads: Loads) -> TableOutcome:
    with LedgerView(penstock.connect_to(loads.conninfo)) as view:
        return view.verify_table(TableName(schema=None, name="t"), values=True)


@pytest.mark.part("rest")
@pytest.mark.parametrize("seed", range(24))
def test_history_has_no_problem_and_a_tampered_one_is_not_verified(database18: str, tmp_path: Path, seed: int) -> None:
    """Whatever loads have made of one another's rows."""
    loads = Loads(database18)
    history = _History(loads, tmp_path, seed)
    history.play()
    assert _verify(loads).problems == ()
    history.tamper()
    assert not _verify(loads).is_verified
