"""A table that is renamed, or replaced by another load, while a load fills it: rows go to the one that was meant."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from penstock.core.errors import OtherTableError, PenstockError, TargetError
from penstock.core.values.job import LoadRules, Transform
from support.loads import IMPATIENT, Loads, target
from support.modes import mode_target

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.core.values.job import TargetJob

ROWS = 400
_RENAME = "ALTER TABLE t RENAME TO old_t; CREATE TABLE t (LIKE old_t INCLUDING ALL)"
_TRANSFORM = Transform(name="f.sql", text="INSERT INTO t SELECT k::int, v FROM :staging")

REJECT = replace(IMPATIENT, on_error="reject")
WAYS = {
    "append": ("append", {}, IMPATIENT),
    "append with rejects": ("append", {}, REJECT),
    "truncate": ("truncate", {}, IMPATIENT),
    "truncate at once": ("truncate", {}, replace(IMPATIENT, atomic=True)),
    "upsert": ("upsert", {"key": ("k",)}, IMPATIENT),
    "upsert with rejects": ("upsert", {"key": ("k",)}, REJECT),
    "insert-new": ("insert-new", {"key": ("k",)}, IMPATIENT),
    "transform": ("append", {"transform": _TRANSFORM}, IMPATIENT),
}


@pytest.fixture
def loads(ledger18: str) -> Loads:
    """Provide loads in tiny blocks and commands into a database with table t."""
    return Loads(ledger18, piece_bytes=100, chunk_bytes=100, setup="CREATE TABLE t (k int PRIMARY KEY, v text)")


def write(path: Path, *, first: int = 0, bad: bool = False) -> Path:
    """Write a csv file of a few hundred records; every tenth is `bad` for its key's type."""
    keys = ("x" if bad and n % 10 == 5 else str(n) for n in range(first, first + ROWS))
    path.write_text("k,v\n" + "".join(f"{key},value\n" for key in keys))
    return path


def act_at(loads: Loads, wanted: int, act: Callable[[], object]) -> Loads:
    """Return loads whose source has something done, once, before its piece of that number; 0 is while planning."""
    done: list[int] = []

    def look(piece: int) -> None:
        if piece == wanted and not done:
            done.append(piece)
            act()

    acting = Loads(loads.conninfo, piece_bytes=100, chunk_bytes=100)
    acting.at_piece = look
    return acting


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("piece", [0, 20], ids=["while planning", "while loading"])
def test_rows_do_not_go_to_a_table_that_was_given_the_name(loads: Loads, tmp_path: Path, way: str, piece: int) -> None:
    """The load ends with what became of the one that it began with, and the new one stays as it was made."""
    mode, options, rules = WAYS[way]
    acting = act_at(loads, piece, lambda: loads.execute(f"{_RENAME}; INSERT INTO t VALUES (-1, 'new')"))
    with pytest.raises(TargetError, match=r'table "public\.t" is not the table that this load began with') as caught:
        acting.run(mode_target(write(tmp_path / "f"), mode, **options), sessions=2, rules=rules, batch_bytes=1)
    assert 'is now "public.old_t"' in str(caught.value.detail)
    assert loads.rows() == [(-1, "new")]
    # What is left of it, if anything, cannot be resumed as it is.
    assert "Resume with" not in str(caught.value.hint)
    if left := loads.execute("SELECT id::text FROM penstock.loads WHERE state = 'running'"):
        assert f"penstock loads forget {left[0][0]}" in str(caught.value.hint)


def test_sorted_out_records_do_not_go_there_either(loads: Loads, tmp_path: Path) -> None:
    """They are not copied into the table but inserted."""
    acting = act_at(loads, 0, lambda: loads.execute(_RENAME))
    loads.execute("ALTER TABLE t ADD CHECK (k % 7 <> 3)")
    with pytest.raises(OtherTableError):
        acting.run(target(write(tmp_path / "f", bad=True)), rules=REJECT)
    assert loads.count() == 0


def test_dropped_table_is_told_from_a_renamed_one(loads: Loads, tmp_path: Path) -> None:
    """Another of the same name has been made."""
    acting = act_at(loads, 20, lambda: loads.execute("DROP TABLE t; CREATE TABLE t (k int, v text)"))
    with pytest.raises(OtherTableError) as caught:
        acting.run(target(write(tmp_path / "f")), batch_bytes=1)
    assert "was dropped" in str(caught.value.detail)
    assert loads.count() == 0


_EXCHANGE = "ALTER TABLE u RENAME a TO c; ALTER TABLE u RENAME b TO a; ALTER TABLE u RENAME c TO b"


def write_two(path: Path) -> Path:
    """Write a csv file of two texts, each of which names its column."""
    path.write_text("a,b\n" + "".join(f"a{n},b{n}\n" for n in range(ROWS)))
    return path


@pytest.mark.parametrize("change", [_EXCHANGE, "ALTER TABLE u ALTER a TYPE varchar(20)"], ids=["renamed", "altered"])
@pytest.mark.parametrize("rules", [IMPATIENT, REJECT], ids=["load", "load with rejects"])
def test_columns_changed_between_two_batches_end_the_load(
    loads: Loads, tmp_path: Path, change: str, rules: LoadRules
) -> None:
    """The batch that met them is undone."""
    loads.execute("CREATE TABLE u (a text, b text, other int DEFAULT 1)")
    acting = act_at(loads, 20, lambda: loads.execute(change))
    with pytest.raises(TargetError, match=r'columns of table "public\.u" are not those') as caught:
        acting.run(target(write_two(tmp_path / "f"), into="u"), rules=rules, batch_bytes=1)
    assert "a" in str(caught.value.detail)
    assert loads.count("u") > 0
    if change == _EXCHANGE:
        loads.execute(_EXCHANGE)
    assert loads.execute("SELECT count(*) FROM u WHERE a NOT LIKE 'a%' OR b NOT LIKE 'b%'") == [(0,)]


def test_load_is_not_resumed_into_exchanged_columns(loads: Loads, tmp_path: Path) -> None:
    """Nor by the same command; once they are as they were, it is."""
    loads.execute("CREATE TABLE u (a text, b text)")
    path = write_two(tmp_path / "f")
    acting = act_at(loads, 20, lambda: loads.execute(_EXCHANGE))
    with pytest.raises(TargetError, match="are not those that this load began with"):
        acting.run(target(path, into="u"), batch_bytes=1)
    before = loads.count("u")
    with pytest.raises(TargetError, match="belongs to unfinished load"):
        loads.run(target(path, into="u"))
    assert loads.count("u") == before
    loads.execute(_EXCHANGE)
    loads.run(target(path, into="u"))
    assert loads.execute("SELECT count(*), count(DISTINCT a) FROM u WHERE a LIKE 'a%'") == [(ROWS, ROWS)]


def test_column_that_is_not_loaded_may_change(loads: Loads, tmp_path: Path) -> None:
    """One is added, and one is dropped, between two batches."""
    loads.execute("CREATE TABLE u (a text, b text, other int DEFAULT 1)")
    acting = act_at(loads, 20, lambda: loads.execute("ALTER TABLE u ADD more int DEFAULT 5, DROP other"))
    assert acting.run(target(write_two(tmp_path / "f"), into="u"), batch_bytes=1).rows == ROWS


def test_table_of_a_load_that_creates_it_is_looked_at_too(loads: Loads, tmp_path: Path) -> None:
    """Without a schema in its name as well."""
    acting = act_at(loads, 20, lambda: loads.execute(_RENAME.replace("old_t", "old_u").replace(" t ", " u ")))
    with pytest.raises(OtherTableError):
        acting.run(target(write(tmp_path / "f"), into="u", create=True), batch_bytes=1)
    assert loads.count("u") == 0


# ---------------------------------------------------------------- two loads of one table


def try_run(loads: Loads, job: TargetJob, ended: list[PenstockError], **options: Any) -> None:
    """Run a load whose error, if it has one, is kept."""
    try:
        Loads(loads.conninfo).run(job, **options)
    except PenstockError as error:
        ended.append(error)


@pytest.mark.parametrize("rules", [IMPATIENT, REJECT], ids=["stop", "reject"])
def test_replace_is_refused_while_another_load_has_rows_there(loads: Loads, tmp_path: Path, rules: LoadRules) -> None:
    """They would be gone, and that load ends well; afterwards the replacement is resumed."""
    replacing = mode_target(write(tmp_path / "r", first=1000), "replace")
    ended: list[PenstockError] = []
    acting = act_at(loads, 30, lambda: try_run(loads, replacing, ended))
    assert acting.run(target(write(tmp_path / "f")), rules=rules, batch_bytes=1).rows == ROWS
    assert [row[0] for row in loads.rows()] == sorted(range(ROWS), key=lambda n: repr((n, "value")))
    assert 'cannot replace table "public.t": another load into it has not ended' in ended[0].message
    assert loads.run(replacing).rows == ROWS
    assert {row[0] for row in loads.rows()} == set(range(1000, 1000 + ROWS))


@pytest.mark.parametrize("way", [name for name in WAYS if not name.startswith("truncate")])
def test_load_ends_where_another_replaces_the_table_first(loads: Loads, tmp_path: Path, way: str) -> None:
    """It has nothing in the table yet; its rows would come to the new one unseen, and be looked for in the old."""
    mode, options, rules = WAYS[way]
    acting = act_at(loads, 0, lambda: loads.run(mode_target(write(tmp_path / "r", first=1000), "replace")))
    with pytest.raises(OtherTableError) as caught:
        acting.run(mode_target(write(tmp_path / "f"), mode, **options), rules=rules)
    assert "replaced by another load" in str(caught.value.detail)
    assert {row[0] for row in loads.rows()} == set(range(1000, 1000 + ROWS))


def test_two_replacements_at_once_leave_the_one_that_was_first(loads: Loads, tmp_path: Path) -> None:
    """The other says that the table is another now, and does not take its rows away."""
    first = mode_target(write(tmp_path / "r", first=1000), "replace")
    acting = act_at(loads, 20, lambda: loads.run(first))
    with pytest.raises(TargetError):
        acting.run(mode_target(write(tmp_path / "f"), "replace"))
    assert {row[0] for row in loads.rows()} == set(range(1000, 1000 + ROWS))


@pytest.mark.parametrize(("into", "emptied"), [("p", "p1"), ("p1", "p")], ids=["partition", "whole table"])
@pytest.mark.parametrize("mode", ["truncate", "replace"])
def test_partitions_of_a_running_load_are_not_emptied(
    loads: Loads, tmp_path: Path, into: str, emptied: str, mode: str
) -> None:
    """Nor the table that a load fills a partition of."""
    loads.execute("CREATE TABLE p (k int, v text) PARTITION BY RANGE (k)")
    loads.execute("CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10000)")
    ended: list[PenstockError] = []
    other = mode_target(write(tmp_path / "r", first=1000), mode, into=emptied)
    acting = act_at(loads, 30, lambda: try_run(loads, other, ended))
    assert acting.run(target(write(tmp_path / "f"), into=into), batch_bytes=1).rows == ROWS
    assert loads.count("p") == ROWS
    assert ended
