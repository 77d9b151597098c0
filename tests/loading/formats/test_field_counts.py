"""Headers and records that differ by one field, and objects of which no record has the fields that the table takes."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from penstock.api.connect import connect_to
from penstock.api.ledger_view import LedgerView
from penstock.core.errors import DataError, TargetError
from support.files import write_to
from support.loads import AGAIN, IMPATIENT, Loads, target
from support.pairs import pairs

if TYPE_CHECKING:
    from pathlib import Path

REJECT = replace(IMPATIENT, on_error="reject")
STORED = [("1", "x"), ("2", "y")]


@pytest.fixture
def loads(ledger18: str) -> Loads:
    """Provide loads in tiny blocks into a database with table t of two texts."""
    return Loads(ledger18, piece_bytes=501, setup="CREATE TABLE t (a text, b text)")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Provide a file's path."""
    return tmp_path / "file"


# ---------------------------------------------------------------- one empty field more


@pairs(
    on_error=["stop", "reject"],
    into=["t", "made"],
    data={
        "records": "a,b\n1,x,\n2,y,\n",
        "header": "a,b,\n1,x\n2,y\n",
        "both": "a,b,\n1,x,\n2,y,\n",
        "quoted": 'a,b\n1,x,"\n"\n2,y,""\n',
        "tabs": "a\tb\n1\tx\t\n2\ty\t\n",
    },
)
def test_empty_field_behind_the_last_is_dropped_with_a_warning(
    loads: Loads, path: Path, data: str, into: str, on_error: str
) -> None:
    """A delimiter at the end of the records, of the header, or of both."""
    outcome = loads.run(
        target(write_to(path, data), into=into, create=into == "made"), rules=replace(IMPATIENT, on_error=on_error)
    )
    assert loads.execute(f"SELECT a, b FROM {into} ORDER BY a") == STORED
    assert loads.execute(f"SELECT count(*) FROM pg_attribute WHERE attrelid = '{into}'::regclass AND attnum > 0") == [
        (2,)
    ]
    assert [warning.code for warning in outcome.warnings] == ["empty-field"]


@pytest.mark.parametrize("columns", [None, ["a", "b"]])
def test_empty_field_behind_the_last_is_dropped_without_a_header(
    loads: Loads, path: Path, columns: list[str] | None
) -> None:
    """The table's columns, or --columns, determine the number of fields."""
    outcome = loads.run(target(write_to(path, "1,x,\n2,y,\n"), columns=columns, header=False))
    assert loads.rows() == STORED
    assert [warning.code for warning in outcome.warnings] == ["empty-field"]


@pytest.mark.parametrize("into", ["t", "made"])
def test_value_behind_the_last_field_is_never_dropped(loads: Loads, path: Path, into: str) -> None:
    """This applies to a value far behind the lines that showed an empty field."""
    rows = "".join(f"{number},x,\n" for number in range(100_000))
    job = target(write_to(path, f"a,b\n{rows}last,y,value\n"), into=into, create=into == "made")
    with pytest.raises(DataError):
        loads.run(job)
    outcome = loads.run(job, rules=replace(AGAIN, on_error="reject"))
    assert (outcome.rows, outcome.rejected) == (100_000, 1)


def test_column_that_a_value_stands_under_is_kept(loads: Loads, path: Path) -> None:
    """Though the header has no name for it."""
    loads.run(target(write_to(path, "a,b,\n1,x,\n2,y,value\n"), into="made", create=True))
    assert loads.rows("made") == [("1", "x", None), ("2", "y", "value")]
    refused = loads.refuse(target(path))
    assert isinstance(refused, TargetError)
    assert "delimiter" in refused.message


# ---------------------------------------------------------------- row names


ROW_NAMES = "a,b\nfirst,1,x\nsecond,2,y\n"


def test_row_names_without_a_name_are_refused_with_the_columns_to_type(loads: Loads, path: Path) -> None:
    """As R writes them; the hint's options load the file."""
    refused = loads.refuse(
        target(write_to(path, ROW_NAMES)),
    )
    assert isinstance(refused, TargetError)
    assert "--columns row,a,b" in (refused.hint or "")
    loads.run(target(path, columns=["row", "a", "b"], skip=["row"], header=True))
    assert loads.rows() == STORED


def test_names_of_the_file_are_quoted_in_the_command_to_type(loads: Loads, path: Path) -> None:
    """A shell runs nothing of them, and a comma does not divide one."""
    refused = loads.refuse(target(write_to(path, '"a $(id)","b, c"\nfirst,1,x\nsecond,2,y\n')))
    assert """--columns 'row,a $(id),"b, c"'; if""" in (refused.hint or "")


def test_row_names_are_a_column_of_a_created_table(loads: Loads, path: Path) -> None:
    """A warning names it; the same command finds it there the next time."""
    job = target(write_to(path, ROW_NAMES), into="made", create=True)
    outcome = loads.run(job)
    assert loads.execute('SELECT "row", a, b FROM made ORDER BY a') == [("first", "1", "x"), ("second", "2", "y")]
    assert [warning.code for warning in outcome.warnings] == ["column-names"]
    assert loads.run(job, rules=AGAIN).rows == 2


@pytest.mark.parametrize("data", ["a,b\nfirst,1,x\n", "a,b\nfirst,1,x\nfirst,2,y\n"], ids=["one", "repeated"])
def test_first_fields_that_name_no_rows_are_an_error(loads: Loads, path: Path, data: str) -> None:
    """One record proves nothing, and no two rows have one name."""
    with pytest.raises(DataError):
        loads.run(target(write_to(path, data)))


# ---------------------------------------------------------------- no record fits


@pytest.mark.parametrize("into", ["t", "made"])
def test_file_without_a_record_that_fits_ends_the_load(loads: Loads, path: Path, into: str) -> None:
    """Rejecting every record would be a success that stores nothing."""
    other = write_to(path.with_name("other"), "a,b\n3,z\n")
    write_to(path, "a,b\n" + "1,x,y,z\n" * 500)
    with pytest.raises(DataError) as caught:
        loads.run(target([other, path], into=into, create=into == "made"), rules=REJECT, sessions=1)
    assert caught.value.location is not None
    assert (caught.value.location.file, caught.value.location.line) == (str(path), 2)
    assert loads.execute("SELECT count(*) FROM penstock.rejects") == [(0,)]


@pytest.mark.parametrize(("misfits", "is_refused"), [(1000, True), (999, False)])
def test_first_thousand_records_prove_it(loads: Loads, path: Path, misfits: int, *, is_refused: bool) -> None:
    """Fewer are rejected, if another follows that fits."""
    job = target(write_to(path, "a,b\n" + "1\n" * misfits + "2,x\n"), format="csv", header=True)
    if is_refused:
        with pytest.raises(DataError):
            loads.run(job, rules=REJECT)
        assert loads.count() == 0
    else:
        outcome = loads.run(job, rules=REJECT)
        assert (outcome.rows, outcome.rejected) == (1, misfits)


def test_one_record_that_does_not_fit_is_rejected(loads: Loads, path: Path) -> None:
    """It proves nothing of the others that come in the next file."""
    outcome = loads.run(target(write_to(path, "a,b\n1\n"), format="csv", header=True), rules=REJECT)
    assert (outcome.rows, outcome.rejected) == (0, 1)


def test_records_that_a_type_refuses_stay_rejects(loads: Loads, path: Path) -> None:
    """All of them may be: their fields are those of the table."""
    loads.execute("ALTER TABLE t ALTER a TYPE int USING NULL")
    outcome = loads.run(target(write_to(path, "a,b\nx,1\ny,2\n")), rules=REJECT)
    assert (outcome.rows, outcome.rejected) == (0, 2)


def test_retry_of_records_that_do_not_fit_leaves_them_rejected(loads: Loads, path: Path) -> None:
    """It is no error there: nothing is lost, and the records can be corrected in a file."""
    outcome = loads.run(target(write_to(path, "a,b\n1\n2\n3,x\n"), format="csv", header=True), rules=REJECT)
    assert outcome.load_id is not None
    with LedgerView(connect_to(loads.conninfo)) as ledger:
        assert ledger.retry(outcome.load_id).left == 2


def test_rejected_record_with_a_row_name_is_merged_by_retry(loads: Loads, path: Path) -> None:
    """One record alone does not show that its first field is a row name."""
    loads.execute("CREATE TABLE u (row text, a int PRIMARY KEY, b int)")
    upsert = replace(target(write_to(path, "a,b\nr1,1,10\nr2,2,20\nr3,3,x\n"), into="u"), mode="upsert", key=("a",))
    outcome = loads.run(upsert, rules=REJECT)
    assert (outcome.rejected, outcome.load_id is not None) == (1, True)
    loads.execute("ALTER TABLE u ALTER b TYPE text")
    with LedgerView(connect_to(loads.conninfo)) as ledger:
        assert ledger.retry(str(outcome.load_id)).left == 0
    assert loads.execute("SELECT row, b FROM u WHERE a = 3") == [("r3", "x")]


# ---------------------------------------------------------------- hints


@pytest.mark.parametrize("word", ["NA", "n/a", "#N/A"])
def test_word_for_null_in_a_column_of_numbers_names_the_option(loads: Loads, path: Path, word: str) -> None:
    """What R, spreadsheets and people write for null."""
    loads.execute("ALTER TABLE t ALTER a TYPE int USING NULL")
    refused = loads.refuse(target(write_to(path, f"a,b\n1,x\n{word},y\n")))
    assert "--null " in (refused.hint or "")
    assert word in (refused.hint or "")
    loads.run(target(path, null=[word]))
    assert loads.count() == 2


def test_trailing_delimiter_of_one_record_names_itself(loads: Loads, path: Path) -> None:
    """Others have none, so it is not dropped."""
    refused = loads.refuse(target(write_to(path, "a,b\n1,x\n2,y,\n")))
    assert "delimiter" in (refused.hint or "")


@pytest.mark.parametrize("word", ["", "NA"])
@pytest.mark.parametrize("column", ["a", "price, net"])
def test_quoted_word_for_null_names_the_option_for_quoted_fields(
    loads: Loads, path: Path, word: str, column: str
) -> None:
    """With --null alone it is refused again. The option reads a list, so a name with a comma is in quotes there."""
    loads.execute("ALTER TABLE t ALTER a TYPE int USING NULL")
    if column != "a":
        loads.execute(f'ALTER TABLE t RENAME a TO "{column}"')
    refused = loads.refuse(target(write_to(path, f'"{column}",b\n1,x\n"{word}",y\n'), null=[word]))
    words = shlex.split(refused.hint or "")
    loads.run(target(path, null=[word], force_null=words[words.index("--force-null") + 1]))
    assert loads.count() == 2


def test_word_for_null_of_a_constant_names_no_option_of_the_file(loads: Loads, path: Path) -> None:
    """The value is of --set."""
    loads.execute("ALTER TABLE t ADD c int")
    refused = loads.refuse(target(write_to(path, "a,b\n1,x\n"), constants={"c": "NA"}))
    assert "--null" not in (refused.hint or "")


def test_record_that_lacks_fields_and_ends_with_a_delimiter_has_none_too_many(loads: Loads, path: Path) -> None:
    """Its last field is empty, and others are missing."""
    loads.execute("ALTER TABLE t ADD c text")
    refused = loads.refuse(target(write_to(path, "a,b,c\n1,x,z\n2,\n")))
    assert "one more field" not in (refused.hint or "")


@pytest.mark.parametrize("data", [",a,b\n1,x,z\n2,y,z\n", "a,,b\n1,x,z\n2,y,z\n"], ids=["first", "middle"])
def test_field_without_a_name_is_no_trailing_delimiter(loads: Loads, path: Path, data: str) -> None:
    """As pandas and R write row names: the header ends with a name."""
    refused = loads.refuse(target(write_to(path, data), header=True))
    assert isinstance(refused, TargetError)
    assert "delimiter" not in refused.message
    assert "--columns" in (refused.hint or "")
