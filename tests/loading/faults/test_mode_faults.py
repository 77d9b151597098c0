"""Loads of every mode that die at any point: what was made is found again, and the table is right in the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from penstock.core.connect.connection import ConnectionFactory
from penstock.core.errors import PenstockError, TargetError
from penstock.core.values.job import LoadRules, Transform
from penstock.ledger.ledger import Ledger, finish
from penstock.ledger.listing import forget_load
from penstock.ledger.values import Claim, LoaderProcess
from support.codes import has_code
from support.files import write_to
from support.loads import Loads, Row
from support.modes import Killed, killing_at, landing_tables, mode_target

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from penstock.core.values.job import Freeze, OnError, TargetJob

_SETUP = "CREATE TABLE t (k int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'old'), (2, 'old')"
_OLD: list[Row] = [(1, "old"), (2, "old")]
_RECORDS: list[Row] = [(n, f"new {n}") for n in range(2, 40)]
_NEW = Transform(name="t.sql", text="INSERT INTO t SELECT k::int, v FROM :staging WHERE k::int > 2")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeCase:
    """A mode with its options, whether readers see all or nothing, and the rows that it leaves."""

    mode: str
    options: dict[str, Any]
    is_atomic: bool
    rows: list[Row]
    on_error: OnError = "stop"
    freeze: Freeze = "never"

    def target(self, path: Path) -> TargetJob:
        """Return the target of a job."""
        return mode_target(path, self.mode, **self.options)

    @property
    def rules(self) -> LoadRules:
        """Return rules by which all is seen at once where the mode does not do so by itself."""
        return LoadRules(retry_for=0.0, atomic=self.is_atomic, on_error=self.on_error, freeze=self.freeze)

    @property
    def batch_bytes(self) -> int | None:
        """Return how many bytes are a batch: of a table that COPY freezes, it is all of the table."""
        return None if self.freeze == "always" else 1


_WAYS = {
    "truncate": ModeCase(mode="truncate", options={}, is_atomic=False, rows=_RECORDS),
    "atomic truncate": ModeCase(mode="truncate", options={}, is_atomic=True, rows=_RECORDS),
    "replace": ModeCase(mode="replace", options={}, is_atomic=False, rows=_RECORDS),
    "frozen truncate": ModeCase(mode="truncate", options={}, is_atomic=False, rows=_RECORDS, freeze="always"),
    "frozen replace": ModeCase(mode="replace", options={}, is_atomic=False, rows=_RECORDS, freeze="always"),
    # Its keys are there from the start.
    "rejecting replace": ModeCase(mode="replace", options={}, is_atomic=False, rows=_RECORDS, on_error="reject"),
    "upsert": ModeCase(mode="upsert", options={"key": ("k",)}, is_atomic=False, rows=[_OLD[0], *_RECORDS]),
    "sync": ModeCase(mode="sync", options={"key": ("k",), "max_delete": 100}, is_atomic=False, rows=_RECORDS),
    "insert-new": ModeCase(mode="insert-new", options={"key": ("k",)}, is_atomic=False, rows=[*_OLD, *_RECORDS[1:]]),
    "transform": ModeCase(mode="append", options={"transform": _NEW}, is_atomic=False, rows=[*_OLD, *_RECORDS[1:]]),
}

# The piece of the file at which a loader dies, of about ten.
_MIDDLE = 6

# Points of one way at which a loader dies, of the fifty or so statements that it sends.
_POINTS = 4


@pytest.fixture
def loads(ledger18: str) -> Loads:
    """Provide loads into a database with table t."""
    return Loads(ledger18, piece_bytes=32, setup=_SETUP)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Provide a csv file of keys 2 to 39."""
    return write_to(tmp_path / "file.csv", "k,v\n" + "".join(f"{k},{v}\n" for k, v in _RECORDS))


def _run(loads: Loads, way: ModeCase, path: Path) -> None:
    loads.run(way.target(path), sessions=2, batch_bytes=way.batch_bytes, rules=way.rules)


def _assert_done(loads: Loads, way: ModeCase) -> None:
    assert loads.rows() == sorted(way.rows, key=repr)
    assert landing_tables(loads) == []
    assert loads.execute("SELECT DISTINCT state FROM penstock.loads") == [("complete",)]


@pytest.mark.part("rest")
@pytest.mark.parametrize("name", _WAYS)
def test_loader_that_dies_at_any_statement_is_gone_on_with(
    loads: Loads, path: Path, name: str, rng: random.Random
) -> None:
    """Before that the table is as it was, where all is to be seen or nothing; afterwards it is right."""
    way = _WAYS[name]
    with killing_at(-1) as sent:
        _run(loads, way, path)
    _assert_done(loads, way)
    sees_all_or_nothing = way.is_atomic or way.mode != "truncate"
    for point in rng.sample(range(sent[0]), _POINTS):
        loads.execute("DROP SCHEMA IF EXISTS penstock CASCADE; DROP TABLE t;" + _SETUP)
        with killing_at(point), pytest.raises(Killed):
            _run(loads, way, path)
        rows = loads.rows()
        if sees_all_or_nothing and rows != sorted(way.rows, key=repr):
            assert rows == _OLD
        elif way.freeze == "always":
            assert rows in (_OLD, [], sorted(way.rows, key=repr))
        _run(loads, way, path)
        assert loads.rows() == sorted(way.rows, key=repr), f"died at statement {point}"
        assert landing_tables(loads) == [], f"died at statement {point}"


@pytest.mark.part("rest")
@pytest.mark.parametrize("name", _WAYS)
def test_loader_that_is_killed_while_it_sends_is_gone_on_with(loads: Loads, path: Path, name: str) -> None:
    """By kill -9, with batches committed and others under way; what was committed is not sent again."""
    way = _WAYS[name]
    process = subprocess.run(
        [sys.executable, __file__, loads.conninfo, name, str(path)], check=False, env=_environment()
    )
    assert process.returncode == -signal.SIGKILL
    staged = loads.execute("SELECT coalesce(sum(records), 0)::int FROM penstock.ranges")[0][0]
    assert loads.rows() == _OLD or way.mode == "truncate"
    if way.freeze == "always":
        assert loads.rows() in (_OLD, [])
    outcome = loads.run(way.target(path), sessions=2, batch_bytes=way.batch_bytes, rules=way.rules)
    _assert_done(loads, way)
    assert outcome.bytes_read > 0
    assert (staged > 0) is (way.freeze == "never")


def _environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}


@pytest.mark.part("rest")
def test_truncate_happens_once_for_a_load(loads: Loads, path: Path) -> None:
    """Rows that others add after it stay when the load is taken up again."""
    way = _WAYS["truncate"]
    loads.at_piece = _dying(loads, _die)
    with pytest.raises(Killed):
        _run(loads, way, path)
    loads.execute("INSERT INTO t VALUES (1000, 'by others')")
    loads.at_piece = None
    _run(loads, way, path)
    assert (1000, "by others") in loads.rows()
    _run(loads, way, path)
    assert loads.rows() == sorted(_RECORDS, key=repr)


@pytest.mark.part("rest")
@pytest.mark.parametrize("name", ["upsert", "replace"])
def test_landing_table_that_vanished_is_made_anew(loads: Loads, path: Path, name: str) -> None:
    """And everything is sent again."""
    way = _WAYS[name]
    loads.at_piece = _dying(loads, _die)
    with pytest.raises(Killed):
        _run(loads, way, path)
    loads.at_piece = None
    ((table,),) = landing_tables(loads)
    loads.execute(f"DROP TABLE {table}")
    _run(loads, way, path)
    _assert_done(loads, way)
    assert any("its objects are loaded again" in notice for notice in loads.notices)


@pytest.mark.parametrize("name", ["upsert", "replace"])
def test_forgetting_a_load_drops_what_it_made(loads: Loads, path: Path, name: str) -> None:
    """The table is as it was."""
    loads.at_piece = _dying(loads, _die)
    with pytest.raises(Killed):
        _run(loads, _WAYS[name], path)
    ((load_id,),) = loads.execute("SELECT id::text FROM penstock.loads")
    with ConnectionFactory(loads.conninfo).connect() as connection:
        forget_load(connection, "penstock", load_id)
    assert landing_tables(loads) == []
    assert loads.rows() == _OLD


@pytest.mark.part("rest")
def test_swap_names_who_holds_the_table(loads: Loads, path: Path) -> None:
    """What has landed stays, and the load goes on from there without sending anything again."""
    way = _WAYS["replace"]
    with psycopg.connect(loads.conninfo) as holder:
        holder.execute("SELECT FROM t")
        with pytest.raises(PenstockError, check=has_code("55P03")) as caught:
            _run(loads, way, path)
        assert f"pid {holder.info.backend_pid}" in str(caught.value)
        assert "No table was changed" in str(caught.value)
    assert loads.run(way.target(path), rules=way.rules).bytes_copied == 0
    _assert_done(loads, way)


@pytest.mark.part("rest")
def test_last_transaction_is_closed_to_a_loader_that_was_superseded(loads: Loads, path: Path) -> None:
    """It neither merges nor says that the load is complete; whoever took the load over does."""
    loads.at_piece = _dying(loads, _die)
    with pytest.raises(Killed):
        _run(loads, _WAYS["upsert"], path)
    loads.at_piece = None
    ((load_id,),) = loads.execute("SELECT id::text FROM penstock.loads")
    ledger = Ledger()
    with ConnectionFactory(loads.conninfo).connect() as connection:
        ledger.take_over(connection, load_id, process=LoaderProcess(client="another", lock="0" * 64))
        stale = Claim(load_id=load_id, epoch=1, is_resumed=False)
        with pytest.raises(TargetError, match="taken over"):
            finish(ledger, connection, stale, act=lambda: pytest.fail("acted"))
    assert loads.rows() == _OLD
    _run(loads, _WAYS["upsert"], path)
    _assert_done(loads, _WAYS["upsert"])


@pytest.mark.part("rest")
def test_truncate_does_not_take_the_rows_of_a_load_that_has_not_ended(loads: Loads, path: Path) -> None:
    """It would go on without them."""
    loads.execute("TRUNCATE t")
    append = ModeCase(mode="append", options={}, is_atomic=False, rows=_RECORDS)
    loads.at_piece = _dying(loads, _die)
    with pytest.raises(Killed):
        _run(loads, append, path)
    loads.at_piece = None
    before = loads.count()
    other = path.with_name("other.csv")
    other.write_text("k,v\n1,x\n")
    with pytest.raises(TargetError, match="has not ended"):
        _run(loads, _WAYS["truncate"], other)
    assert loads.count() == before > 0
    _run(loads, append, path)
    assert loads.rows() == sorted(_RECORDS, key=repr)
    _run(loads, _WAYS["truncate"], other)
    # What the first load has put there is gone now.
    with pytest.raises(TargetError, match="was emptied"):
        _run(loads, append, path)


def _dying(loads: Loads, die: Callable[[], object], *, waits: bool = True) -> Callable[[int], None]:
    """Return what dies in the middle of a file, and `waits` until a batch is committed."""

    def at_piece(number: int) -> None:
        if number == _MIDDLE:
            while waits and not loads.execute("SELECT 1 FROM penstock.ranges LIMIT 1"):
                time.sleep(0.01)
            die()

    return at_piece


def _die() -> None:
    raise Killed


def _die_by_signal() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    conninfo, way_name, source = sys.argv[1:]
    doomed = Loads(conninfo, piece_bytes=32)
    doomed.at_piece = _dying(doomed, _die_by_signal, waits=_WAYS[way_name].freeze == "never")
    _run(doomed, _WAYS[way_name], Path(source))
