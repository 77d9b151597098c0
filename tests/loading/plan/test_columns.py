"""Which field goes into which column, and what is refused before anything is sent."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.core.errors import PenstockError, TargetError, UsageError
from penstock.core.values.job import TargetJob
from penstock.core.values.table import Column, ColumnMap, TableFacts, TableName
from penstock.loading.formats.columns import map_columns, name_created_columns

NAME = TableName(schema="public", name="t")
TABLE = TableFacts(
    oid=1,
    name=NAME,
    kind="r",
    columns=(
        Column(name="id", type_name="int4", identity="a"),
        Column(name="title", type_name="text"),
        Column(name="Year", type_name="int4"),
        Column(name="made", type_name="date", has_default=True),
        Column(name="twice", type_name="int4", is_generated=True),
    ),
)


def _map(header: tuple[str, ...] | None, **options: Any) -> ColumnMap:
    job = TargetJob(sources=("s3://b/dir/file.csv",), into=NAME, **options)
    return map_columns(header, job=job, table=TABLE, uri="s3://b/dir/file.csv")


def test_header_names_columns_in_any_order() -> None:
    """The fields are sent as they come; the COPY column list follows them."""
    mapped = _map(("Year", "id", "title"))
    assert (mapped.columns, mapped.keep, mapped.field_count) == (("Year", "id", "title"), None, 3)


def test_names_match_but_for_case_and_blanks() -> None:
    """Where only one column is alike."""
    assert _map((" TITLE ", "year")).columns == ("title", "Year")


def test_file_without_header_fills_columns_in_order() -> None:
    """Generated ones and those of --set left out."""
    mapped = _map(None, set={"made": "2024-01-01"})
    assert mapped.columns == ("id", "title", "Year", "made")
    assert (mapped.constants, mapped.field_count) == (("2024-01-01",), 3)


def test_skipped_fields_are_left_out() -> None:
    """Their number still counts for each record."""
    mapped = _map(("x", "title", "Year"), skip=("x",))
    assert (mapped.columns, mapped.keep, mapped.field_count) == (("title", "Year"), (1, 2), 3)


def test_constants_stand_behind_the_fields() -> None:
    """{filename} is the object's last part, {null} is null, {default} leaves the column to its default."""
    mapped = _map(("id",), set={"title": "{filename}", "Year": "{null}", "made": "{default}"})
    assert (mapped.columns, mapped.constants) == (("id", "title", "Year"), ("file.csv", None))


@pytest.mark.parametrize(
    ("header", "options", "error", "says"),
    [
        (("titel", "Year"), {}, TargetError, '"titel"'),
        (("title",), {}, TargetError, '"Year" of table'),
        (("title", "title", "Year"), {}, TargetError, "twice"),
        (("title", "Year", "twice"), {}, TargetError, "generated"),
        (("title", "Year"), {"set": {"title": "x"}}, TargetError, "both in the file and in --set"),
        (("title", "Year"), {"set": {"none": "x"}}, TargetError, "does not exist"),
        (("title", "Year"), {"set": {"twice": "1"}}, TargetError, "generated"),
        (("title", "Year"), {"skip": ("none",)}, UsageError, "is not in the file"),
        (None, {"skip": ("title",)}, UsageError, "without a header"),
    ],
)
def test_what_does_not_fit_is_refused(
    header: tuple[str, ...] | None, options: dict[str, Any], error: type[PenstockError], says: str
) -> None:
    """Naming the column."""
    with pytest.raises(error, match=says):
        _map(header, **options)


def test_near_name_is_suggested() -> None:
    """For a header that misspells a column."""
    with pytest.raises(TargetError) as caught:
        _map(("titel", "Year"))
    assert caught.value.hint == 'Perhaps you meant the column "title".'


def test_created_columns_are_lower_case() -> None:
    """With those of --set behind them and those of --skip left out."""
    job = TargetJob(sources=("f",), into=NAME, skip=("X",), set={"origin": "{filename}"})
    assert name_created_columns(("Id", "X", " Name"), job, uri="f") == ("id", "name", "origin")


def test_created_columns_answer_to_their_names_without_quotes() -> None:
    """Which fold the letters of ASCII alone."""
    names = name_created_columns(("ÄNDERUNG", "Straße"), TargetJob(sources=("f",), into=NAME), uri="f")
    assert names == ("Änderung", "straße")


@pytest.mark.parametrize(
    ("header", "names"),
    [
        (("a", ""), ("a", "column_2")),
        (("a", "A", "a_2", "a"), ("a", "a_3", "a_2", "a_4")),
        (("x" * 64, "x" * 65), ("x" * 63, "x" * 61 + "_2")),
        (("é" * 32,), ("é" * 31,)),
        (("column_2", ""), ("column_2", "column_2_2")),
    ],
)
def test_created_columns_have_names_of_their_own(header: tuple[str, ...], names: tuple[str, ...]) -> None:
    """Where the header's are empty, doubled, or longer than PostgreSQL keeps."""
    assert name_created_columns(header, TargetJob(sources=("f",), into=NAME), uri="f") == names


@pytest.mark.parametrize("columns", [("a", "A"), ("x" * 64,), ("a", "XMIN")])
def test_names_that_the_user_gave_are_not_changed(columns: tuple[str, ...]) -> None:
    """They are refused."""
    with pytest.raises(TargetError, match="--columns"):
        name_created_columns(columns, TargetJob(sources=("f",), into=NAME, columns=columns), uri="f")


def test_names_that_the_file_has_are_listed_once() -> None:
    """Not those of a table that would be created, too."""
    with pytest.raises(UsageError) as caught:
        _map(("title", "Year"), skip=("none",))
    assert caught.value.detail == "s3://b/dir/file.csv has: title, Year."


def test_skipped_column_may_be_spelled_as_it_was_created() -> None:
    """In lower case, or with the number of a name that repeats."""
    assert _map(("title", "Year", "ODD", "Odd"), skip=("odd", "odd_2")).columns == ("title", "Year")
