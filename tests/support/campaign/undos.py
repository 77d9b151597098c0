"""Undos that are struck at chance moments: exactly the rows of the load are removed, or none, and the ledger agrees.

`python -m support.campaign.undos --points N` counts a point only if the undo, or the load that is then undone, was at
work when it was struck.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
from benchmarks.record import RECORDS, require_commit
from psycopg.conninfo import make_conninfo

import penstock
from penstock.core.errors import PenstockError
from support.campaign.plant import Plant
from support.loads import IMPATIENT, Loads, target
from support.servers import installed, server_pool

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.campaign.plant import Single

_MEANINGS = {
    "kill": "kill -9 of the undo",
    "terminate": "pg_terminate_backend of its sessions",
    "crash": "immediate stop of the server during the undo, and a new start",
    "late": "immediate stop of the server at once after the undo has succeeded, and a new start",
    "two": "another undo of the same load at the same time",
    "load": "kill -9 of the load, and an undo of what it had committed",
}
_ROWS, _OTHERS, _BATCH_BYTES = 6000, 500, 4000
_PATIENCE_S = 60.0

# Rows of others have negative numbers. The load's first keys exist in table keyed, and those rows stay.
_TABLES = f"""
    CREATE TABLE plain (a int, b text);
    CREATE INDEX ON plain (a);
    CREATE TABLE keyed (a int PRIMARY KEY, b text);
    CREATE TABLE parted (a int, b text) PARTITION BY RANGE (a);
    CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (-100000) TO (2000);
    CREATE TABLE parted_2 PARTITION OF parted FOR VALUES FROM (2000) TO (100000);
    INSERT INTO plain SELECT -n, 'other' FROM generate_series(1, {_OTHERS}) AS n;
    INSERT INTO keyed SELECT n - 400, 'other' FROM generate_series(1, {_OTHERS}) AS n;
    INSERT INTO parted SELECT -n, 'other' FROM generate_series(1, {_OTHERS}) AS n;
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One fault: how many rows the load had stored, and whether the undo had removed them when all was calm again."""

    commit: str
    seed: int
    fault: str
    table: str
    rows: int
    was_undone: bool


class Undos:
    """A server with three tables, and loads into them that are undone over and over."""

    def __init__(self, place: Single, path: Path, *, commit: str) -> None:
        self._place, self._path, self._commit = place, path, commit
        self._conninfo = make_conninfo(place.conninfo, dbname="postgres")
        path.write_text("a,b\n" + "".join(f"{n},row {n}\n" for n in range(_ROWS)))
        self._loads = Loads(self._conninfo, piece_bytes=2000, chunk_bytes=2000, setup=_TABLES)
        self._undo_s = 0.5

    def play(self, seed: int) -> Point | None:
        """Load, strike, and check; return the point, None if nothing was at work when it was struck."""
        rng = random.Random(seed)
        fault, table = rng.choice([*_MEANINGS]), rng.choice(["plain", "keyed", "parted"])
        was_at_work = self._load(table, rng if fault == "load" else None)
        load_id, rows = self._find_load(table)
        if load_id is None:
            return None
        strike = {"kill": self._kill, "terminate": self._terminate, "crash": self._crash, "two": self._two}.get(fault)
        process = _start(partial(penstock.undo, load_id, to=self._conninfo))
        if strike is not None:
            time.sleep(rng.random() * self._undo_s)
            was_at_work = process.is_alive()
            strike(process, load_id)
        began_s = time.monotonic()
        process.join(_PATIENCE_S)
        assert process.exitcode is not None, "the undo has not ended"
        if fault == "late":
            assert process.exitcode == 0
            self._place.lose()
        elif strike is None:
            self._undo_s = max(0.02, min(self._undo_s, time.monotonic() - began_s))
        was_undone = self._check(table, load_id, rows, must=process.exitcode == 0)
        if not was_undone:
            self._undo_at_last(load_id)
            assert self._check(table, load_id, rows, must=True)
        point = Point(commit=self._commit, seed=seed, fault=fault, table=table, rows=rows, was_undone=was_undone)
        return point if was_at_work else None

    def _load(self, table: str, rng: random.Random | None) -> bool:
        """Load the file; with `rng` kill the load at a chance moment. Return whether it was at work until then."""
        keyed: dict[str, Any] = {"mode": "insert-new", "key": ("a",)} if table == "keyed" else {}
        job = replace(target(self._path, into=table), **keyed)
        rules = replace(IMPATIENT, again=True)
        run = partial(self._loads.run, job, batch_bytes=_BATCH_BYTES, rules=rules)
        if rng is None:
            run()
            return True
        process = _start(run)
        time.sleep(0.05 + 0.6 * rng.random())
        was_at_work = process.is_alive()
        process.kill()
        process.join()
        return was_at_work

    def _find_load(self, table: str) -> tuple[str | None, int]:
        """Return the load, and how many rows it has in the table, by the ledger. No session of it is left then."""
        self._end_sessions()
        with psycopg.connect(self._conninfo, autocommit=True) as connection:
            found = connection.execute("SELECT id::text FROM penstock.loads").fetchall()
            assert len(found) <= 1, found
        return (found[0][0] if found else None), self._count(table)

    def _end_sessions(self) -> None:
        ended_s = time.monotonic() + _PATIENCE_S
        with psycopg.connect(self._conninfo, autocommit=True) as connection:
            look = "SELECT count(*) FROM pg_stat_activity WHERE datname = 'postgres' AND pid <> pg_backend_pid()"
            while connection.execute(look).fetchone() != (0,):
                assert time.monotonic() < ended_s, "sessions are left"
                time.sleep(0.01)

    def _kill(self, process: Any, _load_id: str) -> None:
        process.kill()

    def _terminate(self, _process: Any, _load_id: str) -> None:
        with psycopg.connect(self._conninfo, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = 'postgres' AND pid <> pg_backend_pid()"
            )

    def _crash(self, _process: Any, _load_id: str) -> None:
        self._place.lose()

    def _two(self, _process: Any, load_id: str) -> None:
        other = _start(partial(penstock.undo, load_id, to=self._conninfo))
        other.join(_PATIENCE_S)
        assert other.exitcode is not None, "the other undo has not ended"

    def _undo_at_last(self, load_id: str) -> None:
        self._end_sessions()
        penstock.undo(load_id, to=self._conninfo)

    def _count(self, table: str) -> int:
        with psycopg.connect(self._conninfo, autocommit=True) as connection:
            row = connection.execute(f"SELECT count(*) FROM {table} WHERE b <> 'other'".encode()).fetchone()
        assert row is not None
        return int(row[0])

    def _check(self, table: str, load_id: str, rows: int, *, must: bool) -> bool:
        """Return whether the load is undone. It is so in the table and the ledger, or in neither."""
        self._end_sessions()
        with psycopg.connect(self._conninfo, autocommit=True) as connection:
            others = connection.execute(
                f"SELECT count(*), count(DISTINCT a) FROM {table} WHERE b = 'other'".encode()
            ).fetchone()
            known = connection.execute("SELECT count(*) FROM penstock.loads WHERE id = %s", [load_id]).fetchone()
        assert others == (_OTHERS, _OTHERS), f"rows of others: {others}"
        left = self._count(table)
        assert (left, known) in ((0, (0,)), (rows, (1,))), f"{left} of {rows} rows are left, the ledger has {known}"
        assert known == (0,) or not must, "false success"
        return known == (0,)


def _start(act: Callable[[], object]) -> Any:
    def run() -> None:
        with suppress(PenstockError):
            act()
            sys.exit(0)
        sys.exit(1)

    process = multiprocessing.get_context("fork").Process(target=run)
    process.start()
    return process


def summarize(points: list[Point]) -> str:
    """Return the summary of the points as text."""
    lines = [
        "# Faults of undos",
        "",
        "Written by `make faults` from [undo_faults.jsonl](undo_faults.jsonl), which has a line for each point.",
        "",
        f"{len(points)} points. After each, the table had exactly the rows of others, and all of the load or none,",
        "as the ledger had the load or not. What was not undone was then undone, exactly.",
        "",
        "| fault | points | undone before the fault took effect | rows of the load, most |",
        "|---|---|---|---|",
    ]
    undone = Counter(each.fault for each in points if each.was_undone)
    for fault, meaning in _MEANINGS.items():
        of_fault = [each.rows for each in points if each.fault == fault]
        lines.append(f"| {meaning} | {len(of_fault)} | {undone[fault]} | {max(of_fault, default=0):,} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Strike until there are enough points; write the record, and return the process's exit status."""
    parser = argparse.ArgumentParser(prog="python -m support.campaign.undos", description=__doc__)
    parser.add_argument("--points", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--record", action="store_true", help="write the record; needs a clean working tree")
    options = parser.parse_args()
    commit = require_commit() if options.record else "unknown"
    points: list[Point] = []
    with server_pool() as pool, tempfile.TemporaryDirectory(prefix="penstock-undos-") as folder:
        plant = Plant(pool)
        try:
            undos = Undos(plant.single(max(installed())), Path(folder) / "rows.csv", commit=commit)
            seed = options.seed
            while len(points) < options.points:
                if (point := undos.play(seed)) is not None:
                    points.append(point)
                seed += 1
        finally:
            plant.close()
    if options.record:
        lines = [json.dumps({name: getattr(each, name) for name in each.__slots__}) for each in points]
        (RECORDS / "undo_faults.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        (RECORDS / "undo_faults.md").write_text(summarize(points), encoding="utf-8")
    print(summarize(points))
    return 0


if __name__ == "__main__":
    sys.exit(main())
