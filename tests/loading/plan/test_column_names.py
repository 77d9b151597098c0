"""Names of a file's columns become names of the table's: --names snake and --rename."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import load, retry
from penstock.core.errors import TargetError, UsageError
from support.files import write_to
from support.loads import IMPATIENT, Loads, target
from support.pairs import pairs

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.core.values.job import TargetJob

PENGUINS = 'Species,"Culmen Length (mm)",IndividualID\nAdelie,39.1,N1\nGentoo,46.1,N2\n'
TABLE = "CREATE TABLE t (individual_id text, species text, culmen_length_mm numeric)"
ROWS = [("N1", "Adelie", 39.1), ("N2", "Gentoo", 46.1)]


@pytest.fixture
def loads(ledger18: str) -> Loads:
    """Provide loads into an empty database on the newest version."""
    return Loads(ledger18)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Provide a CSV file whose header has blanks, parentheses and capitals."""
    return write_to(tmp_path / "penguins.csv", PENGUINS)


def _columns(loads: Loads) -> list[str]:
    query = "SELECT attname FROM pg_attribute WHERE attrelid = 't'::regclass AND attnum > 0 ORDER BY attnum"
    return [name for (name,) in loads.execute(query)]


def test_snake_names_a_created_table(loads: Loads, path: Path) -> None:
    """Nobody is warned of names that were asked for."""
    loads.run(target(path, create=True, names="snake"))
    assert _columns(loads) == ["species", "culmen_length_mm", "individual_id"]
    assert not loads.warnings


def test_snake_finds_the_columns_of_a_table_that_exists(loads: Loads, path: Path) -> None:
    """In any order."""
    loads.execute(TABLE)
    loads.run(target(path, names="snake"))
    found = loads.execute("SELECT individual_id, species, culmen_length_mm::float FROM t ORDER BY 1")
    assert found == ROWS


def test_a_header_of_words_is_one_if_snake_names_its_columns(loads: Loads, tmp_path: Path) -> None:
    """Without the names of the table, it could be a record like the others."""
    loads.execute("CREATE TABLE t (first_name text, last_name text)")
    loads.run(target(write_to(tmp_path / "f.csv", "First Name,Last Name\nAda,Lovelace\n"), names="snake"))
    assert loads.execute("SELECT first_name, last_name FROM t") == [("Ada", "Lovelace")]


def test_a_column_with_the_name_in_the_file_comes_before_its_snake_name(loads: Loads, tmp_path: Path) -> None:
    """A table that an earlier load made without the option goes on to be filled."""
    loads.execute('CREATE TABLE t ("order id" int, order_id int)')
    job = target(write_to(tmp_path / "f.csv", "Order ID\n1\n"), names="snake")
    loads.run(replace(job, missing="default"))
    assert loads.execute("TABLE t") == [(1, None)]


def test_an_error_names_the_option_that_finds_the_column(loads: Loads, path: Path) -> None:
    """Its hint is followed as it stands."""
    loads.execute(TABLE)
    error = loads.refuse(target(path))
    assert isinstance(error, TargetError)
    assert "--names snake" in (error.hint or "")


def test_snake_is_not_offered_where_it_is_used(loads: Loads, path: Path) -> None:
    """A table whose names differ from those too gets another hint or none."""
    loads.execute("CREATE TABLE t (individual_id text, species text, culmen_depth_mm numeric)")
    error = loads.refuse(target(path, names="snake"))
    assert 'column "Culmen Length (mm)"' in error.message
    assert "--names snake" not in (error.hint or "")


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_a_renamed_column_of_any_format_goes_to_its_new_one(loads: Loads, tmp_path: Path, suffix: str) -> None:
    """A column of the table that has the old name gets nothing."""
    loads.execute("CREATE TABLE t (id int, customer text, name text DEFAULT 'kept')")
    path = tmp_path / f"f.{suffix}"
    match suffix:
        case "csv":
            path.write_text("ID,name\n1,Ada\n")
        case "jsonl":
            path.write_text('{"ID": 1, "name": "Ada"}\n')
        case _:
            pq.write_table(pa.table({"ID": [1], "name": ["Ada"]}), path)
    loads.run(target(path, rename={"name": "customer"}))
    assert loads.execute("SELECT id, customer, name FROM t") == [(1, "Ada", "kept")]


def test_two_columns_may_exchange_their_names(loads: Loads, tmp_path: Path) -> None:
    """All are renamed at once."""
    loads.execute("CREATE TABLE t (a int, b int)")
    loads.run(target(write_to(tmp_path / "f.csv", "a,b\n1,2\n"), rename={"a": "b", "b": "a"}))
    assert loads.execute("SELECT a, b FROM t") == [(2, 1)]


def test_a_renamed_column_names_the_one_of_a_created_table(loads: Loads, path: Path) -> None:
    """The new name is taken as it is given, in lower case, also with snake."""
    loads.run(target(path, create=True, names="snake", rename={"Culmen Length (mm)": "Culmen"}))
    assert _columns(loads) == ["species", "culmen", "individual_id"]


def test_a_name_that_only_later_records_of_json_lines_have_is_renamed(loads: Loads, tmp_path: Path) -> None:
    """The head of the file does not show it."""
    loads.execute("CREATE TABLE t (id int, customer text)")
    records = [f'{{"id": {number}}}' for number in range(20_000)]
    path = write_to(tmp_path / "f.jsonl", "\n".join([*records, '{"id": -1, "name": "Ada"}']) + "\n")
    loads.run(target(path, rename={"name": "customer"}))
    assert loads.execute("SELECT id, customer FROM t WHERE customer IS NOT NULL") == [(-1, "Ada")]


def test_a_rejected_record_is_retried_under_its_new_names(loads: Loads, path: Path, tmp_path: Path) -> None:
    """The file of rejected records has the names of the loaded file."""
    loads.execute(TABLE)
    path.write_text(PENGUINS.replace("46.1", "x"))
    rejects = tmp_path / "rejects.csv"
    outcome = load(path, into="t", to=loads.conninfo, names="snake", on_error="reject", reject_file=rejects)
    assert outcome.rows == 1
    rejects.write_text(rejects.read_text().replace("x", "46.1"))
    retry(outcome.load_id, rejects, to=loads.conninfo)
    found = loads.execute("SELECT individual_id, species, culmen_length_mm::float FROM t ORDER BY 1")
    assert found == ROWS


def test_a_load_that_was_cut_short_is_another_one_with_other_names(loads: Loads, tmp_path: Path) -> None:
    """Rows that are committed stay where they were loaded: the same file is not loaded into other columns as well."""
    loads.execute("CREATE TABLE t (a int, b int)")
    path = write_to(tmp_path / "f.csv", "a,b\n1,2\n")
    loads.run(target(path, rename={"a": "b", "b": "a"}))
    assert loads.run(target(path)).rows == 0


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"rename": {"nope": "species"}, "names": "snake"}, UsageError),
        ({"rename": {"Species": "nope"}}, TargetError),
        ({"rename": {"Species": "individual_id"}, "names": "snake"}, TargetError),
        ({"rename": {"a": "species"}, "header": False}, UsageError),
    ],
)
def test_a_rename_that_does_not_fit_is_refused(
    loads: Loads, path: Path, options: dict[str, object], error: type[Exception]
) -> None:
    """A column that the file or the table lacks, one that is filled twice, and a file without names."""
    loads.execute(TABLE)
    assert isinstance(loads.refuse(target(path, **options)), error)  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{"rename": {"a": "b"}}, {"names": "snake"}])
def test_columns_exclude_other_names(path: Path, options: dict[str, object]) -> None:
    """They are the names of the table's columns already."""
    with pytest.raises(UsageError):
        target(path, columns=("a", "b"), **options)  # type: ignore[arg-type]


def test_a_file_without_a_renamed_column_is_loaded_if_files_may_lack_it(loads: Loads, tmp_path: Path) -> None:
    """--missing default is for both."""
    loads.execute("CREATE TABLE t (a int, b int)")
    write_to(tmp_path / "1.csv", "a,c\n1,2\n")
    write_to(tmp_path / "2.csv", "a\n3\n")
    job = target(tmp_path / "*.csv", rename={"c": "b"})
    loads.run(replace(job, missing="default"))
    assert loads.execute("SELECT a, b FROM t ORDER BY a") == [(1, 2), (3, None)]


_FILES = {"csv": "a,b\n1,2\n", "jsonl": '{"a": 1, "b": 2}\n', "parquet": ""}
_ABSENT: list[dict[str, object]] = [{"rename": {"zz": "c"}}, {"rename": {"A": "c"}}, {"skip": ("zz",)}]


def _write(folder: Path, suffix: str) -> Path:
    path = folder / f"f.{suffix}"
    if suffix == "parquet":
        pq.write_table(pa.table({"a": [1], "b": [2]}), path)
        return path
    return write_to(path, _FILES[suffix])


@pairs(missing=["error", "default"], options=_ABSENT, suffix=[*_FILES], create=[False, True])
def test_name_that_no_file_has_is_refused(
    loads: Loads,
    tmp_path: Path,
    suffix: str,
    options: dict[str, object],
    missing: Literal["error", "default"],
    create: bool,
) -> None:
    """By the error that names the file, whether or not files may lack columns. The plan and a check refuse it alike."""
    if not create:
        loads.execute("CREATE TABLE t (a int, b int, c int)")
    job = replace(target(_write(tmp_path, suffix), create=create, **options), missing=missing)  # type: ignore[arg-type]
    error = loads.refuse(job)
    assert isinstance(error, UsageError)
    assert "file" in error.message
    if not create:
        assert loads.execute("SELECT count(*) FROM t") == [(0,)]


def test_name_that_only_a_loaded_file_has_is_taken(loads: Loads, tmp_path: Path) -> None:
    """The same command loads the next file of a folder."""
    loads.execute("CREATE TABLE t (a int, b int)")
    write_to(tmp_path / "1.csv", "a,c\n1,2\n")
    job = replace(target(tmp_path / "*.csv", rename={"c": "b"}, skip=("c2",)), missing="default")
    assert isinstance(loads.refuse(job), UsageError)
    job = replace(job, skip=())
    loads.run(job)
    write_to(tmp_path / "2.csv", "a\n3\n")
    assert loads.run(job).rows == 1


def test_name_that_another_target_has_is_taken(loads: Loads, tmp_path: Path) -> None:
    """The tables of an export have the same options, and not the same generated columns."""
    loads.execute("CREATE TABLE t (a int); CREATE TABLE u (a int)")
    one, two = write_to(tmp_path / "1.csv", "a,g\n1,2\n"), write_to(tmp_path / "2.csv", "a\n3\n")

    def job(*skip: str) -> list[TargetJob]:
        given = (target(one, skip=skip), target(two, into="u", skip=skip))
        return [replace(each, missing="default") for each in given]

    assert isinstance(loads.refuse(*job("g", "zz")), UsageError)
    assert loads.run(*job("g")).rows == 2
    # The first target is loaded already.
    write_to(tmp_path / "2.csv", "a\n3\n4\n")
    assert loads.run(*job("g"), rules=replace(IMPATIENT, changed="load")).rows == 2


def test_json_lines_are_read_on_for_a_name_that_no_record_has(loads: Loads, tmp_path: Path) -> None:
    """The beginning of the file cannot tell."""
    loads.execute("CREATE TABLE t (id int, customer text)")
    path = write_to(tmp_path / "f.jsonl", "".join(f'{{"id": {number}}}\n' for number in range(20_000)))
    assert isinstance(loads.refuse(target(path, rename={"name": "customer"})), UsageError)
    assert loads.execute("SELECT count(*) FROM t") == [(0,)]


def test_json_lines_of_whole_records_are_not_renamed_in_silence(loads: Loads, tmp_path: Path) -> None:
    """Records get values by name if an option names one."""
    loads.execute("CREATE TABLE t (id int GENERATED ALWAYS AS IDENTITY, doc jsonb)")
    path = write_to(tmp_path / "f.jsonl", '{"d": {"a": 1}}\n')
    loads.run(target(path, rename={"d": "doc"}))
    assert loads.execute("SELECT doc FROM t") == [({"a": 1},)]


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_new_name_that_the_table_lacks_is_named(loads: Loads, tmp_path: Path, suffix: str) -> None:
    """Not the name in the file, which belongs to a column."""
    loads.execute("CREATE TABLE t (a int, b int)")
    error = loads.refuse(target(_write(tmp_path, suffix), rename={"b": "zz"}))
    assert (type(error), error.message) == (TargetError, 'column "zz" of --rename does not exist in table "public.t"')


@pytest.mark.parametrize(
    "options",
    [
        {"constants": {"zz": "1"}},
        {"force_null": ("zz",)},
        {"decimal_comma": ("zz",)},
        {"thousands": {"zz": "."}},
        {"date_order": {"zz": "dmy"}},
        {"columns": ("a", "zz")},
    ],
)
def test_option_that_names_a_column_that_the_table_lacks_is_refused(
    loads: Loads, path: Path, options: dict[str, object]
) -> None:
    """Each option with names of columns."""
    loads.execute("CREATE TABLE t (a int, b int)")
    write_to(path, "a,b\n1,2\n")
    assert isinstance(loads.refuse(replace(target(path, **options), missing="default")), TargetError)  # type: ignore[arg-type]


def test_key_that_the_table_lacks_is_refused(loads: Loads, path: Path) -> None:
    """As the columns of other options are."""
    loads.execute("CREATE TABLE t (a int PRIMARY KEY, b int)")
    write_to(path, "a,b\n1,2\n")
    assert isinstance(loads.refuse(replace(target(path), mode="upsert", key=("zz",))), TargetError)


_GENERATED = "a int GENERATED ALWAYS AS (1) STORED"


@pytest.mark.parametrize(
    ("columns", "text", "options"),
    [
        (_GENERATED, "a,b\n1,2\n", {"skip": ("a", "b")}),
        ("a int, b int", "a,b\n1,2\n", {"skip": ("a", "b")}),
        (_GENERATED, "1\n", {"header": False}),
    ],
)
def test_load_that_fills_no_column_is_refused(
    loads: Loads, path: Path, columns: str, text: str, options: dict[str, object]
) -> None:
    """COPY would have an empty list of columns, which is a syntax error."""
    loads.execute(f"CREATE TABLE t ({columns})")
    error = loads.refuse(replace(target(write_to(path, text), **options), missing="default"))  # type: ignore[arg-type]
    assert (type(error), "gets a value" in error.message) == (TargetError, True)
