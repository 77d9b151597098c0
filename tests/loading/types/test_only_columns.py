"""--only: the columns of files that are loaded, and what is refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.api.functions import retry
from penstock.core.errors import DataError, PenstockError, TargetError, UsageError
from penstock.core.values.dialect import DialectOptions
from penstock.core.values.job import LoadRules
from penstock.loading.files.columnar.reader import ColumnarFile
from support.typed import make_target, types_of

if TYPE_CHECKING:
    from pathlib import Path

    from support.loads import Loads

Write = Any
_WIDE = ",".join(f"Question {number}" for number in range(2_000))


def _values(start: int) -> str:
    return ",".join(str(number) for number in range(start, start + 2_000))


def _names(loads: Loads) -> list[str]:
    query = "SELECT attname FROM pg_attribute WHERE attrelid = 't'::regclass AND attnum > 0 ORDER BY attnum"
    return [row[0] for row in loads.execute(query)]


def _lines(*records: dict[str, Any]) -> str:
    return "".join(f"{json.dumps(record)}\n" for record in records)


def test_three_of_two_thousand_columns_are_loaded_and_typed_in_one_load(loads: Loads, write: Write) -> None:
    """A table could not have all of them; names are those of the header, or of the columns that they become."""
    path = write(f"{_WIDE}\n{_values(0)}\n{_values(7)}\n")
    given = make_target(path, only="question_3,Question 1999,Question 5", dialect=DialectOptions(names="snake"))
    assert loads.run(given).rows == 2
    assert (_names(loads), types_of(loads)) == (["question_3", "question_5", "question_1999"], ["integer"] * 3)
    assert loads.execute("SELECT * FROM t ORDER BY 1") == [(3, 5, 1999), (10, 12, 2006)]


def test_load_is_not_resumed_with_other_columns(loads: Loads, write: Write) -> None:
    """The rows that it has stored have the columns that it began with; the order of the names does not count."""
    loads.execute("CREATE TABLE t (a int, b int DEFAULT 0, c int DEFAULT 0)")
    path = write("a,b,c\n" + "1,2,3\n" * 300_000 + "x,2,3\n")
    given: dict[str, Any] = {"create": False, "types": "text"}
    with pytest.raises(DataError):
        loads.run(make_target(path, only="a,b", **given), batch_bytes=10_000)
    for other in ({"only": "a,c"}, {}):
        with pytest.raises(TargetError, match="belongs to unfinished load"):
            loads.run(make_target(path, **given | other))
    with pytest.raises(DataError):
        loads.run(make_target(path, only="b,a", **given), batch_bytes=10_000)


def test_names_are_refused_that_no_file_has(loads: Loads, write: Write) -> None:
    """With five names of the file, and how many more there are."""
    error = loads.refuse(make_target(write(f"{_WIDE}\n{_values(0)}\n"), only="question"))
    assert error.message == 'column "question" of --only is not in the file'
    assert (error.detail or "").endswith("Question 3, Question 4 and 1,995 more.")


def test_the_name_is_suggested_whose_first_word_or_part_before_a_comma_is_given(loads: Loads, write: Write) -> None:
    """A shell takes the quotes of id,"Age, in years", and the names are then Age and in years."""
    path = write('id,"Age, in years",Q7: How?,Q70: Why?\n1,2,3,4\n')
    assert loads.refuse(make_target(path, only="q7")).hint == 'Perhaps you meant "Q7: How?".'
    error = loads.refuse(make_target(path, only="id,Age, in years"))
    assert error.hint == """Perhaps you meant '"Age, in years"'."""
    assert 'id, "Age, in years", Q7: How?' in (error.detail or "")


@pytest.mark.parametrize("only", ["userId", "userid"])
def test_name_that_differs_in_case_alone_is_another_column(loads: Loads, write: Write, only: str) -> None:
    """The option means the one that is written so, whatever its column in a new table is named."""
    loads.execute('CREATE TABLE t ("userId" int, userid int)')
    path = write("userId,userid,x\n1,2,3\n")
    loads.run(make_target(path, only=only, create=False, types="text", missing="default"))
    assert loads.execute("TABLE t") == [(1, None) if only == "userId" else (None, 2)]
    loads.execute("DROP TABLE t")
    loads.run(make_target(path, only=only))
    assert loads.execute("SELECT to_json(t)::text FROM t") == [
        ('{"userid":1}',) if only == "userId" else ('{"userid_2":2}',)
    ]


def test_one_file_has_no_other_that_could_have_the_column(loads: Loads, write: Write) -> None:
    """The hint does not name another."""
    assert loads.refuse(make_target(write("a,b\n1,2\n"), only="zzz")).hint is None


def test_file_without_header_needs_columns(loads: Loads, write: Write) -> None:
    """--columns names its fields."""
    path = write("1,2,3\n")
    error = loads.refuse(make_target(path, only="a", dialect=DialectOptions(header=False)))
    assert (type(error), "without a header" in error.message) == (UsageError, True)
    loads.run(make_target(path, columns="a,b,c", only="c,a", dialect=DialectOptions(header=False)))
    assert (_names(loads), loads.execute("SELECT * FROM t")) == (["a", "c"], [(1, 3)])


def test_only_and_skip_exclude_each_other() -> None:
    """All other columns are skipped."""
    with pytest.raises(UsageError, match="exclude each other"):
        make_target("a.csv", only="a", skip="b")


def test_column_of_the_table_that_is_not_chosen_is_said_to_be_skipped(loads: Loads, write: Write) -> None:
    """The file has it; with --missing default it becomes null."""
    loads.execute("CREATE TABLE t (a int, b int, c int DEFAULT 9)")
    path = write("a,b,c\n1,2,3\n")
    error = loads.refuse(make_target(path, only="a", create=False, types="text"))
    assert (type(error), error.message) == (TargetError, 'column "b" of table "public.t" is skipped')
    loads.run(make_target(path, only="a", create=False, types="text", missing="default"))
    assert loads.execute("SELECT * FROM t") == [(1, None, 9)]


def test_files_may_lack_columns_that_another_file_has(loads: Loads, write: Write) -> None:
    """With --missing default; columns that are not chosen are not added to the table."""
    paths = [write("a,x\n1,2\n", "1.csv"), write("a,b,y\n3,4,5\n", "2.csv")]
    loads.run(make_target(*paths, only="a,b", add_columns=True, missing="default"))
    assert sorted(loads.execute("SELECT a, b FROM t"), key=str) == [(1, None), (3, 4)]
    assert _names(loads) == ["a", "b"]


# ---------------------------------------------------------------- JSON Lines


@pytest.mark.parametrize("types", ["text", "infer"])
def test_names_of_records_that_come_late_are_found_and_others_ignored(loads: Loads, write: Write, types: str) -> None:
    """Wherever they appear, and however many they are: a table could not have them all."""
    many = {f"k{number}": number for number in range(2_000)}
    padding = [{"id": number, "pad": "x" * 200} for number in range(5_000)]
    path = write(_lines(many | {"id": -1}, *padding, {"id": -2, "Late": 7, "later": 1}), "1.jsonl")
    loads.run(make_target(path, only="id,late", types=types))
    assert _names(loads) == ["id", "late"]
    query = "SELECT count(*), count(late), max(late)::text FROM t"
    assert loads.execute(query) == [(5_002, 1, "7")]


def test_name_that_no_record_has_is_refused(loads: Loads, write: Write) -> None:
    """A name of the table's column is one too, if no record has it: its values would be null without a word."""
    loads.execute("CREATE TABLE t (id int, typo text)")
    path = write(_lines({"id": 1, "x": 1}), "1.jsonl")
    error = loads.refuse(make_target(path, only="id,typo", create=False, types="text"))
    assert error.message == 'column "typo" of --only is not in the file'


def test_names_of_records_are_spelled_as_they_are(loads: Loads, write: Write) -> None:
    """The name of the column that they become would not find records with another spelling of it."""
    path = write(_lines({"Customer No.": 1, "x": 2}), "1.jsonl")
    error = loads.refuse(make_target(path, only="customer_no", dialect=DialectOptions(names="snake")))
    assert error.hint == 'Perhaps you meant "Customer No.".'
    loads.run(make_target(path, only="Customer No.", dialect=DialectOptions(names="snake")))
    assert (_names(loads), loads.execute("SELECT * FROM t")) == (["customer_no"], [(1,)])


def test_chosen_name_without_a_column_is_never_ignored(loads: Loads, write: Write) -> None:
    """With --on-error reject neither, although it comes late."""
    loads.execute("CREATE TABLE t (id int)")
    padding = [{"id": number, "pad": "x" * 200} for number in range(5_000)]
    path = write(_lines(*padding, {"id": -2, "late": 7}), "1.jsonl")
    given = make_target(path, only="id,late", create=False, types="text")
    for on_error in ("stop", "reject"):
        with pytest.raises(PenstockError) as caught:
            loads.run(given, rules=LoadRules(on_error=on_error, retry_for=0.0))  # type: ignore[arg-type]
        assert caught.value.message == 'name "late" of the file belongs to no column of table "public.t"'
    loads.run(make_target(path, only="id,late", create=False, types="text", add_columns=True))
    assert loads.execute("SELECT late FROM t WHERE id = -2") == [("7",)]


def test_rejected_record_with_other_names_is_retried(loads: Loads, write: Write) -> None:
    """The ledger knows that they are passed over."""
    loads.execute("CREATE TABLE t (id int)")
    padding = [{"id": number, "pad": "x" * 200} for number in range(5_000)]
    path = write(_lines(*padding, {"id": "x", "late": 7}), "1.jsonl")
    given = make_target(path, only="id", create=False, types="text")
    outcome = loads.run(given, rules=LoadRules(on_error="reject", retry_for=0.0))
    assert (outcome.rows, outcome.rejected) == (5_000, 1)
    loads.execute("ALTER TABLE t ALTER COLUMN id TYPE text")
    assert outcome.load_id is not None
    assert retry(outcome.load_id, to=loads.conninfo).rows == 1


def test_renamed_name_is_chosen_by_either_name(loads: Loads, write: Write) -> None:
    """Although the sample lacks it."""
    padding = [{"id": number, "pad": "x" * 200} for number in range(5_000)]
    path = write(_lines(*padding, {"id": -2, "Customer No.": 7}), "1.jsonl")
    for only in ("id,customer", "id,Customer No."):
        loads.execute("DROP TABLE IF EXISTS t; CREATE TABLE t (id int, customer int)")
        given = make_target(
            path, only=only, dialect=DialectOptions(rename={"Customer No.": "customer"}), create=False, types="text"
        )
        loads.run(given, rules=LoadRules(again=True))
        assert loads.execute("SELECT customer FROM t WHERE id = -2") == [(7,)]


# ---------------------------------------------------------------- Parquet


def test_no_other_columns_of_parquet_are_read(loads: Loads, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their types may be ones that cannot be loaded, and values in names of folders are columns, too."""
    path = tmp_path / "year=2026" / "a.parquet"
    path.parent.mkdir()
    union = pa.array([{"a": 1}], pa.map_(pa.string(), pa.int32()))
    pq.write_table(pa.table({"a": [1], "b": pa.array([b"x"]), "c": [2.5], "d": union}), path)
    noted, read = [], ColumnarFile.read

    def note(self: ColumnarFile, columns: Any, ranges: Any, **options: Any) -> Any:
        noted.append([column.name for column in columns])
        return read(self, columns, ranges, **options)

    monkeypatch.setattr(ColumnarFile, "read", note)
    loads.run(make_target(path, only="c", types="text"))
    assert (noted, _names(loads), loads.execute("SELECT * FROM t")) == ([["c"]], ["c"], [(2.5,)])
    loads.execute("DROP TABLE t")
    loads.run(make_target(path, only="year,a", types="text"), rules=LoadRules(again=True))
    assert loads.execute("SELECT a, year FROM t") == [(1, "2026")]
