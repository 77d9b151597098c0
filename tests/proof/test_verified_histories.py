"""After any history of loads, no load that nobody has disturbed has a problem, and a row that is lost is noticed."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest

import penstock
from penstock.core.errors import TargetError
from penstock.core.values.job import LoadRules
from support.loads import Loads, write_csv
from support.modes import mode_target
from support.parts import rest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.proof.values import VerifyOutcome

_SETUP = """
    CREATE TABLE p (a int, b text, PRIMARY KEY (a)) PARTITION BY RANGE (a);
    CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (20);
    CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (20) TO (40);
    CREATE TABLE t (a int PRIMARY KEY, b text);
"""
# The numbers that each table takes.
_RANGES = {"p": (0, 40), "p1": (0, 20), "p2": (20, 40), "t": (0, 40)}
_MODES = ("append", "append", "upsert", "insert-new", "sync", "truncate", "replace")


@dataclass
class History:
    """Loads into some tables, in a random order of modes."""

    loads: Loads
    folder: Path
    random: random.Random
    ids: list[str] = field(default_factory=list)

    def step(self) -> None:
        """Run a load of a few records."""
        into, mode = self.random.choice([*_RANGES]), self.random.choice(_MODES)
        if mode == "replace" and into != "t":
            mode = "truncate"
        numbers = set(self.random.sample(range(*_RANGES[into]), self.random.randint(1, 12)))
        if mode == "append":
            numbers -= {a for (a,) in self.loads.execute(f"SELECT a FROM {into}")}
        if not numbers:
            return
        job = mode_target(self.write(numbers), mode, into=into)
        if mode in ("upsert", "insert-new", "sync"):
            job = replace(job, key=("a",), max_delete=100.0 if mode == "sync" else job.max_delete)
        self.ids.append(str(self.loads.run(job, rules=LoadRules(retry_for=0.0)).load_id))

    def write(self, numbers: set[int]) -> Path:
        """Write a file of records with these numbers."""
        name = f"{len(self.ids)}.csv"
        return write_csv(self.folder / name, [f"{number},{len(self.ids)}" for number in sorted(numbers)])

    def verify(self) -> Iterator[tuple[str, VerifyOutcome]]:
        """Yield what counts say of each complete load whose rows are not gone. One load has not ended meanwhile."""
        change = "UPDATE penstock.loads SET state = '{}' WHERE id = '{}'"
        unended = self.random.choice(self.ids)
        self.loads.execute(change.format("running", unended))
        for load_id in self.ids:
            try:
                yield load_id, penstock.verify(load_id, to=self.loads.conninfo)
            except TargetError as error:
                assert ("has not ended" if load_id == unended else "may not have the rows") in error.message
        self.loads.execute(change.format("complete", unended))


@pytest.mark.parametrize("number", [0, *map(rest, range(1, 6))])
def test_counts_of_undisturbed_loads_agree(database18: str, tmp_path: Path, seed: int, number: int) -> None:
    """The floors are never too high, and the newest load is verified by its values."""
    history = History(Loads(database18, setup=_SETUP), tmp_path, random.Random(f"{seed} {number}"))
    for _ in range(8):
        history.step()
        for load_id, outcome in history.verify():
            assert outcome.agrees, (load_id, outcome)
        newest = penstock.verify("latest", to=database18, values=True)
        # Of what insert-new has stored beside rows that had keys of the files, the keys alone are compared.
        assert newest.agrees
        assert newest.is_verified is not newest.has_stored_unseen
    history.loads.execute("DELETE FROM p; DELETE FROM t")
    for load_id, outcome in history.verify():
        (table,) = outcome.tables
        assert bool(outcome.problems) == (table.floor > 0), load_id
