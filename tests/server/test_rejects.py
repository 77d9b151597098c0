r"""Records that a table refuses are put aside with place, reason and bytes; all others load."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.model.job import LoadRules
from support.loads import Loads, chop_commands, target

if TYPE_CHECKING:
    from pathlib import Path

REJECT = LoadRules(retry_for_s=0.0, on_error="reject")


@pytest.fixture
def loads(database: str) -> Loads:
    """Provide loads in tiny blocks into a database with table t (a int primary key, b text), on each version."""
    loads = Loads(database, piece_bytes=501)
    loads.execute("CREATE TABLE t (a int PRIMARY KEY, b varchar(20) NOT NULL CHECK (b <> 'wrong'))")
    return loads


def read_rejects(loads: Loads) -> list[tuple[int, str | None, str | None, bytes]]:
    """Return line, SQLSTATE, column and bytes of what is put aside, in the order of the file."""
    return loads.execute('SELECT line, sqlstate, "column", raw FROM penstock.rejects ORDER BY object, start')  # type: ignore[return-value]


BAD = {
    100: ("x1,y", "22P02", "a"),
    101: ("17000000000,y", "22003", "a"),
    300: ("5", "22P04", None),
    301: ("5,y,z", "22P04", None),
    500: ("6,", "23502", "b"),
    700: ("7,wrong", "23514", None),
    900: ("100099,twice", "23505", None),
    1100: ("8," + "z" * 30, "22001", "b"),
}


@pytest.mark.parametrize("chunk_bytes", [100, 4000, 10**9])
@pytest.mark.parametrize("sessions", [1, 3])
def test_every_kind_is_put_aside_with_its_reason(
    loads: Loads, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk_bytes: int, sessions: int
) -> None:
    """Types, count of columns, NOT NULL, CHECK and keys, in one file; whatever commands and sessions part it."""
    chop_commands(monkeypatch, chunk_bytes)
    records = [f"{100_000 + n},value {n}" for n in range(1500)]
    for number, (record, _, _) in BAD.items():
        records[number] = record
    path = tmp_path / "file.csv"
    path.write_text("a,b\n" + "".join(f"{record}\n" for record in records))
    outcome = loads.run(target(path, format="csv"), sessions=sessions, rules=REJECT)
    assert (outcome.rows, outcome.rejected, loads.count()) == (1500 - len(BAD), len(BAD), 1500 - len(BAD))
    found = read_rejects(loads)
    twice = next(item for item in found if item[1] == "23505")
    # Which of two duplicates stays is open.
    assert twice[0] in (101, 902)
    assert [item for item in found if item is not twice] == [
        (number + 2, sqlstate, column, f"{record}\n".encode())
        for number, (record, sqlstate, column) in BAD.items()
        if sqlstate != "23505"
    ]
