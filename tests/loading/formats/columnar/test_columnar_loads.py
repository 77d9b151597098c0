"""Loads of columnar files: into tables and columns of all kinds, cut short and resumed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.core.connect.connection import ConnectionFactory
from penstock.core.errors import DataError, SourceError, TargetError
from penstock.core.values.job import LoadJob, LoadRules
from penstock.loading.files.columnar.reader import ColumnarFile, RangedFile
from penstock.loading.loader import Loader
from support.loads import IMPATIENT, Loads, target
from support.modes import mode_target
from support.typed import types_of

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence
    from pathlib import Path

# A loader that kills itself when it has written the given number of row groups.
_PROGRAM = """
import os, signal, sys
from penstock.api import functions
from penstock.loading import loader
from penstock.loading.formats import rows
from penstock.core.tuning import BatchPlan, LoadTuning

left = int(sys.argv[3])

def write(*args, **options):
    global left
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    left -= 1
    return make_row_block(*args, **options)

make_row_block, rows.make_row_block = rows.make_row_block, write
batch = BatchPlan(limit_bytes=2_000, duration_s=None, chunk_bytes=500, round_trips_per_chunk=0)
tuning = LoadTuning(batch=batch)
functions.Loader = lambda *args: loader.Loader(*args, tuning=tuning)
functions.load(sys.argv[1], "t", to=sys.argv[2], sessions=2, retry_for=0, no_record=True, vacuum=False)
"""


def _write(path: Path, count: int, *, group: int = 50, offset: int = 0) -> Path:
    table = pa.table(
        {
            "id": pa.array(range(offset, offset + count), pa.int64()),
            "v": [f"value\t{n}" if n % 3 else None for n in range(count)],
            "t": pa.array([n * 1_000_003 for n in range(count)], pa.timestamp("us")),
        }
    )
    pq.write_table(table, path, row_group_size=group)
    return path


_SETUP = "CREATE TABLE t (id bigint, v text, t timestamp)"


def _ids(loads: Loads, table: str = "t") -> list[int]:
    return [row[0] for row in loads.execute(f"SELECT id FROM {table} ORDER BY id")]


def _kill(path: Path, loads: Loads, at: int) -> int:
    argv = [sys.executable, "-c", _PROGRAM, str(path), loads.conninfo, str(at)]
    return subprocess.run(argv, check=False, env=os.environ | {"PYTHONPATH": "src"}).returncode


def _kill_and_resume(conninfo: str, folder: Path, moments: Sequence[int]) -> None:
    loads = Loads(conninfo, setup=_SETUP)
    for number, moment in enumerate(moments):
        path = _write(folder / f"{number}.parquet", 3_000)
        assert _kill(path, loads, moment) == -signal.SIGKILL
        before = loads.count()
        assert before < 3_000
        assert loads.run(target(path)).rows == 3_000 - before
        assert _ids(loads) == list(range(3_000))
        loads.execute("DELETE FROM t; UPDATE penstock.loads SET changed_at = now()")


@pytest.mark.part("rest")
def test_killed_loader_is_resumed_without_a_row_lost_or_repeated(
    database18: str, tmp_path: Path, rng: random.Random, some: Callable[[Sequence[int], int], list[int]]
) -> None:
    """Kill -9 between any two of 60 row groups, seeded; each time another load ends what is left."""
    _kill_and_resume(database18, tmp_path, some(rng.sample(range(60), 20), 5))


@pytest.mark.part("rest")
def test_loader_is_killed_200_times_between_row_groups(database18: str, tmp_path: Path, rng: random.Random) -> None:
    """As above."""
    _kill_and_resume(database18, tmp_path, rng.choices(range(60), k=200))


@pytest.mark.parametrize("is_staged", [False, True])
def test_rows_that_are_committed_are_not_decoded_again(
    database18: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_staged: bool
) -> None:
    """A row group that is committed as a whole is passed over; a part of one is decoded, and not sent."""
    loads = Loads(database18, setup=_SETUP, chunk_bytes=300)
    loads.execute("ALTER TABLE t ADD PRIMARY KEY (id)")
    path = _write(tmp_path / "a.parquet", 2_000)
    job = mode_target(path, mode="upsert", key=["id"]) if is_staged else target(path)
    read, sent = ColumnarFile.read, list[str]()

    def stop(opened: ColumnarFile, *args: Any, **options: Any) -> Any:
        for rows in read(opened, *args, **options):
            if len(sent) == 20:
                raise DataError("enough")
            sent.append(rows.part)
            yield rows

    monkeypatch.setattr(ColumnarFile, "read", stop)
    with pytest.raises(DataError, match="enough"):
        loads.run(job, sessions=1, batch_bytes=2_000)
    committed = loads.execute("SELECT count(*), sum(upper(p) - lower(p)) FROM penstock.ranges, unnest(ranges) AS p")
    assert committed[0][1] > 0
    monkeypatch.undo()
    read_at, places = RangedFile.read_at, list[int]()

    def note(file: RangedFile, start: int, length_bytes: int) -> bytes:
        # The footer is read with all of a file that is as short as this one.
        places.extend([start] * (length_bytes < file.size_bytes))
        return read_at(file, start, length_bytes)

    monkeypatch.setattr(RangedFile, "read_at", note)
    loads.run(job)
    assert len(places) <= 3 * (40 - int(committed[0][1]) // 50)
    assert _ids(loads) == list(range(2_000))


def test_ledger_counts_rows(database18: str, tmp_path: Path) -> None:
    """The unit of a columnar object is its rows."""
    loads = Loads(database18, setup=_SETUP)
    loads.run(target(_write(tmp_path / "a.parquet", 2_000)), batch_bytes=20_000)
    assert loads.execute("SELECT unit FROM penstock.objects") == [("rows",)]
    assert loads.execute(
        "SELECT range_agg(p)::text, sum(upper(p) - lower(p)) FROM penstock.ranges, unnest(ranges) AS p"
    ) == [("{[0,2000)}", 2_000)]


def _begin(loads: Loads, path: Path) -> int:
    """Load a file in part, until a value does not fit; return how many rows are committed."""
    with pytest.raises(DataError):
        loads.run(target(path), sessions=1, batch_bytes=2_000)
    return loads.count()


@pytest.fixture
def begun(database18: str, tmp_path: Path) -> tuple[Loads, Path, pa.Table]:
    """Provide a load that is cut short by row 1,500, with its file and the rows of this."""
    loads = Loads(
        database18, setup="CREATE TABLE t (id bigint CHECK (id <> 1500), v text, t timestamp)", chunk_bytes=300
    )
    path = _write(tmp_path / "a.parquet", 2_000)
    assert 0 < _begin(loads, path) <= 1_500
    loads.execute("ALTER TABLE t DROP CONSTRAINT t_id_check")
    return loads, path, pq.read_table(path)


def _changed(path: Path, loads: Loads) -> Any:
    return loads.run(target(path), rules=LoadRules(changed="load", retry_for=0.0))


def test_file_written_anew_with_the_same_rows_is_resumed(begun: tuple[Loads, Path, pa.Table]) -> None:
    """In other row groups and with another codec: the checksum is that of the rows."""
    loads, path, table = begun
    pq.write_table(table, path, row_group_size=999, compression="zstd")
    _changed(path, loads)
    assert _ids(loads) == list(range(2_000))


def test_file_that_has_grown_is_resumed(begun: tuple[Loads, Path, pa.Table]) -> None:
    """Rows that follow the committed ones are loaded."""
    loads, path, table = begun
    more = table.slice(0, 10).set_column(0, "id", pa.array(range(2_000, 2_010), pa.int64()))
    pq.write_table(pa.concat_tables([table, more]), path)
    _changed(path, loads)
    assert _ids(loads) == list(range(2_010))


@pytest.mark.parametrize("change", ["value", "name", "shorter"])
def test_file_that_changed_in_a_committed_part_is_refused(begun: tuple[Loads, Path, pa.Table], change: str) -> None:
    """One value of the first rows, a column of another name, or fewer rows."""
    loads, path, table = begun
    if change == "value":
        table = table.set_column(1, "v", pa.array(["other", *table.column("v").to_pylist()[1:]]))
    elif change == "name":
        table = table.rename_columns(["id", "V", "t"])
    else:
        table = table.slice(0, 10)
    pq.write_table(table, path)
    with pytest.raises(DataError, match="has changed in a part that is already loaded"):
        _changed(path, loads)


# ---------------------------------------------------------------- tables, columns, modes


def test_files_with_other_columns_are_matched_by_name(database18: str, write_parquet: Callable[..., Path]) -> None:
    """In another order and of other types; one that lacks a column needs --missing default."""
    loads = Loads(database18, setup="CREATE TABLE t (a int, b text, c date)")
    first = write_parquet({"a": pa.array([1], pa.int8()), "b": ["x"], "c": pa.array([0], pa.date32())}, name="1")
    second = write_parquet({"c": ["2020-01-01"], "b": pa.array([7]), "A": [2.0]}, name="2")
    loads.run(target([first, second]))
    assert loads.execute("SELECT a, b, c::text FROM t ORDER BY a") == [(1, "x", "1970-01-01"), (2, "7", "2020-01-01")]
    third = write_parquet({"a": [3]}, name="3")
    assert isinstance(_refusal(loads, target(third)), TargetError)
    unknown = write_parquet({"a": [3], "b": ["x"], "c": ["2020-01-01"], "d": [1]}, name="4")
    assert 'column "d"' in _refusal(loads, target([first, unknown])).message


def _refusal(loads: Loads, job: Any) -> TargetError:
    with pytest.raises(TargetError) as caught:
        loads.run(job, rules=LoadRules(retry_for=0.0, again=True))
    return caught.value


@pytest.mark.parametrize("is_new", [True, False])
def test_added_columns_have_the_types_of_the_files(
    database18: str, write_parquet: Callable[..., Path], is_new: bool
) -> None:
    """Into a table that exists, and one that is created for several files."""
    loads = Loads(database18)
    first = write_parquet({"id": [1]}, name="1")
    second = write_parquet(
        {
            "id": [2],
            "amount": pa.array([Decimal("1.50")], pa.decimal128(10, 2)),
            "tags": [["a"]],
            "at": pa.array([0], pa.timestamp("us", "UTC")),
        },
        name="2",
    )
    if not is_new:
        loads.execute("CREATE TABLE t (id bigint)")
    loads.run(replace(target([first, second], create=is_new), add_columns=True))
    types = ["bigint", "numeric(10,2)", "text[]", "timestamp with time zone"]
    assert types_of(loads) == types
    assert loads.execute("SELECT amount::text, tags, extract(epoch FROM at)::int FROM t WHERE id = 2") == [
        ("1.50", ["a"], 0)
    ]
    odd = write_parquet({"id": [3], "took": pa.array([1], pa.duration("s"))}, name="3")
    with pytest.raises(SourceError, match='column "took" has type'):
        loads.run(replace(target(odd), add_columns=True))


def test_constants_and_names_for_columns(database18: str, write_parquet: Callable[..., Path]) -> None:
    """--set appends to each row, --columns names the columns in their order."""
    loads = Loads(database18, setup="CREATE TABLE t (a int, b text, f text)")
    path = write_parquet({"x": [1, 2], "y": ["a\tb", None]})
    loads.run(target(path, columns=["a", "b"], constants={"f": "{filename}"}))
    assert loads.rows() == [(1, "a\tb", "f.parquet"), (2, None, "f.parquet")]
    loads.run(target(path, into="u", create=True, constants={"z": "0"}))
    assert loads.rows("u") == [(1, "a\tb", "0"), (2, None, "0")]


@pytest.mark.parametrize("mode", ["truncate", "replace", "upsert", "insert-new"])
def test_modes(database18: str, tmp_path: Path, mode: str) -> None:
    """A table with one row of the same key."""
    loads = Loads(database18, setup=_SETUP)
    loads.execute("ALTER TABLE t ADD PRIMARY KEY (id); INSERT INTO t VALUES (5, 'old')")
    key = {"key": ["id"]} if mode in ("upsert", "insert-new") else {}
    loads.run(mode_target(_write(tmp_path / "a.parquet", 500), mode=mode, **key))
    assert _ids(loads) == list(range(500))
    value = loads.execute("SELECT v FROM t WHERE id = 5")[0][0]
    assert value == ("old" if mode == "insert-new" else "value\t5")


@pytest.mark.parametrize("change", ["double precision", "timestamp USING NULL"])
def test_no_row_is_stored_by_a_type_of_the_plan_that_the_table_no_longer_has(
    ledger18: str, tmp_path: Path, change: str
) -> None:
    """COPY checks no types in the binary format, and a table that replaces another has the present ones."""
    loads = Loads(ledger18, setup=_SETUP)
    job = mode_target(_write(tmp_path / "f.parquet", 10), "replace")
    with Loader(ConnectionFactory(loads.conninfo), tuning=loads.tuning) as loader:
        plan = loader.plan(LoadJob(targets=(job,), sessions=2, rules=IMPATIENT))
        loads.execute(f"ALTER TABLE t ALTER id TYPE {change}")
        with pytest.raises(TargetError, match="other types than when the load was planned"):
            loader.run(plan)
    assert loads.count() == 0
    loads.execute("ALTER TABLE t ALTER id TYPE bigint USING NULL")
    assert (loads.run(job).rows, _ids(loads)) == (10, list(range(10)))


def test_row_that_a_merge_refuses_is_named(database18: str, tmp_path: Path) -> None:
    """It is found again in the file by its number."""
    loads = Loads(database18, setup="CREATE TABLE t (id bigint PRIMARY KEY CHECK (id <> 333), v text, t timestamp)")
    path = _write(tmp_path / "a.parquet", 500)
    outcome = loads.run(mode_target(path, mode="upsert", key=["id"]), rules=LoadRules(on_error="reject", retry_for=0.0))
    assert (outcome.rows, outcome.rejected) == (499, 1)
    assert loads.execute("SELECT line, raw FROM penstock.rejects") == [(334, b"333\t\\N\t1970-01-01 00:05:33.000999\n")]


def test_object_that_is_loaded_is_skipped(database18: str, tmp_path: Path) -> None:
    """Also if it is written anew with the same bytes under the same name."""
    loads = Loads(database18, setup=_SETUP)
    path = _write(tmp_path / "a.parquet", 100)
    loads.run(target(path))
    path.write_bytes(path.read_bytes())
    outcome = loads.run(target([path, _write(tmp_path / "b.parquet", 100, offset=100)]))
    assert (outcome.rows, outcome.objects_skipped) == (100, 1)
    assert _ids(loads) == list(range(200))
