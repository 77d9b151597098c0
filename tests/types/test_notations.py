"""Numbers and dates as people write them: decimal commas, separated thousands, the order of dates."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from penstock.api.connect import connect_to
from penstock.api.ledger_view import LedgerView
from penstock.core.errors import DataError, TargetError, UsageError
from penstock.core.values.dialect import DialectOptions
from penstock.core.values.job import LoadRules
from support.loads import AGAIN
from support.typed import make_target, types_of

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.core.values.job import TargetJob
    from support.loads import Loads

Write = Any

REJECT = LoadRules(retry_for=0.0, on_error="reject", again=True)


def _target(path: Path, *, options: dict[str, Any] | None = None, **job: Any) -> TargetJob:
    """Return a target for a table that exists."""
    job = {"create": False, "types": "text"} | job
    return make_target(path, dialect=DialectOptions(**options or {}), **job)


_GERMAN = {"decimal_comma": "price", "thousands": "price=.", "date_order": "sold=dmy"}


def test_types_are_those_of_the_plain_values(loads: Loads, write: Write) -> None:
    """Of a column without decimals they are integers, and a date with a time is a timestamp."""
    path = write('n;price;sold;at\n1.000;1,5;31.12.2025;31.12.2025 9:05\n2;"1.234,50";1.2.26;01.02.2026\n')
    options = _GERMAN | {
        "thousands": ["n=.", "price=."],
        "decimal_comma": "n,price",
        "date_order": ["sold=dmy", "at=dmy"],
    }
    outcome = loads.run(_target(path, options=options, create=True, types="infer"))
    assert types_of(loads) == ["integer", "numeric", "date", "timestamp without time zone"]
    assert loads.rows() == [
        (1000, Decimal("1.5"), date(2025, 12, 31), datetime.fromisoformat("2025-12-31 09:05")),
        (2, Decimal("1234.50"), date(2026, 2, 1), datetime.fromisoformat("2026-02-01")),
    ]
    assert outcome.warnings == ()


@pytest.mark.parametrize("copy_format", ["text", "binary"])
def test_columns_of_numbers_and_dates_may_be_meant_together(loads: Loads, write: Write, copy_format: str) -> None:
    """Texts stay as they are, and nothing is left for DateStyle to decide."""
    loads.execute("CREATE TABLE t (a float8, b text, c date, d numeric(9,2), e int)")
    path = write("a;b;c;d;e\n1,5;1,5;01/02/2026;1 234,56;\n;1/2/26;;-0,5;7\n")
    options = {"decimal_comma": "*", "thousands": " ", "date_order": "mdy"}
    rules = LoadRules(retry_for=0.0, warnings="error")
    loads.run(_target(path, options=options, copy_format=copy_format), rules=rules)
    assert loads.execute("SELECT * FROM t ORDER BY a") == [
        (1.5, "1,5", date(2026, 1, 2), Decimal("1234.56"), None),
        (None, "1/2/26", None, Decimal("-0.50"), 7),
    ]


@pytest.mark.parametrize(("value", "sold"), [("1.5", "1.1.26"), ("1,5", "12/31/2025"), ("1.23", "1.1.26"), ("x", "")])
def test_a_value_that_does_not_fit_is_rejected_and_never_guessed(
    loads: Loads, write: Write, value: str, sold: str
) -> None:
    """A load without rejects names the file, the line and the column; and types are those of the other values."""
    path = write(f"price;sold\n2,5;31.12.2025\n{value};{sold}\n")
    target = _target(path, options=_GERMAN, create=True, types="infer")
    with pytest.raises(DataError, match=r'of column "(price|sold)" is not written as (1\.234,5|dmy)') as caught:
        loads.run(target)
    assert caught.value.location is not None
    assert (caught.value.location.line, loads.has_table("t")) == (3, False)
    assert "--date-order" in (caught.value.hint or "")
    outcome = loads.run(target, rules=REJECT)
    assert (outcome.rows, outcome.rejected, types_of(loads)) == (1, 1, ["numeric", "date"])
    raw = f"{value};{sold}\n".encode()
    assert loads.execute("SELECT line, sqlstate, raw FROM penstock.rejects") == [(3, "22P04", raw)]


def test_a_rejected_record_is_corrected_in_its_notation(loads: Loads, write: Write, tmp_path: Path) -> None:
    """The ledger has the notations of the record's columns."""
    loads.execute("CREATE TABLE t (price numeric, sold date)")
    outcome = loads.run(_target(write("price;sold\n1.5;1.1.26\n"), options=_GERMAN), rules=REJECT)
    assert (outcome.rows, outcome.rejected) == (0, 1)
    corrected = tmp_path / "corrected.csv"
    corrected.write_text("price;sold\n1.234,5;1.1.26\n")
    with LedgerView(connect_to(loads.conninfo)) as ledger:
        assert outcome.load_id is not None
        ledger.retry(outcome.load_id, corrected)
    assert loads.rows() == [(Decimal("1234.5"), date(2026, 1, 1))]


@pytest.mark.parametrize("mode", ["upsert", "replace"])
def test_staged_records_are_plain(loads: Loads, write: Write, mode: str) -> None:
    """The last record of a key is the one that is stored."""
    loads.execute("CREATE TABLE t (k int PRIMARY KEY, price numeric, sold date)")
    path = write("k;price;sold\n1;1,5;31.12.2025\n2;;\n" + ("1;2.000,5;1.1.26\n" if mode == "upsert" else ""))
    keyed = {"key": ("k",), "keep": "last"} if mode == "upsert" else {}
    loads.run(_target(path, options=_GERMAN, mode=mode, **keyed))
    expected = ("2000.5", date(2026, 1, 1)) if mode == "upsert" else ("1.5", date(2025, 12, 31))
    assert loads.execute("SELECT price::text, sold FROM t ORDER BY k") == [expected, (None, None)]


def test_nulls_are_no_values_and_no_break_blanks_separate(loads: Loads, tmp_path: Path) -> None:
    """Whether a null is quoted or not; in the file's own encoding."""
    loads.execute("CREATE TABLE t (price numeric, name text)")
    path = tmp_path / "f.csv"
    path.write_bytes('price;name\n1\xa0234,5;Z\xfcrich\n"";\nNULL;\n'.encode("latin-1"))
    options = {"decimal_comma": "price", "thousands": " ", "encoding": "WIN1252", "force_null": "price", "null": [""]}
    loads.run(_target(path, options=options), rules=REJECT)
    assert loads.execute("SELECT price::text, name FROM t ORDER BY 1") == [("1234.5", "Zürich"), (None, None)]


def test_widening_follows_the_plain_values(loads: Loads, write: Write) -> None:
    """A whole number in the notation changes no type, and decimals do."""
    loads.execute("CREATE TABLE t (price int, sold date)")
    options, widen = _GERMAN, {"types": "widen", "create": True}
    loads.run(_target(write("price;sold\n1.000;1.1.26\n"), options=options, **widen))
    assert types_of(loads) == ["integer", "date"]
    loads.run(_target(write("price;sold\n1,5;1.1.26 8:00\n", "2.csv"), options=options, **widen))
    assert types_of(loads) == ["numeric", "timestamp without time zone"]


def test_values_that_columns_change_are_found_in_their_plain_form(loads: Loads, write: Write) -> None:
    """With the line of the first."""
    loads.execute("CREATE TABLE t (price numeric(9,1), sold date)")
    outcome = loads.run(_target(write("price;sold\n1,5;1.1.26\n1,55;1.1.26 8:00\n007;\n"), options=_GERMAN))
    found = {(each.line, each.message.split('"')[1], "all digits" in each.message) for each in outcome.warnings}
    assert found == {(3, "price", True), (3, "sold", False)}


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"decimal_comma": "prize"}, TargetError),
        ({"thousands": "prize=."}, TargetError),
        ({"date_order": "prize=dmy"}, TargetError),
        ({"thousands": "price=."}, UsageError),
        ({"decimal_comma": "price", "thousands": "price=,"}, UsageError),
        ({"decimal_comma": "price", "date_order": "price=dmy"}, UsageError),
        ({"date_order": "ymd"}, UsageError),
        ({"format": "jsonl", "date_order": "price=dmy"}, UsageError),
    ],
)
def test_options_that_mean_nothing_are_refused(
    loads: Loads, write: Write, options: dict[str, Any], error: type[Exception]
) -> None:
    """Of a column that does not exist, or of two notations for one column."""
    loads.execute("CREATE TABLE t (price numeric)")
    text = '{"price": 1}\n' if "format" in options else "price\n1\n"
    with pytest.raises(error):
        loads.run(_target(write(text), options=options))


@pytest.mark.parametrize("value", ["dym", "price=", "=", 7, ["a=dmy", "a=mdy"]])
def test_orders_are_words(value: Any) -> None:
    """Each column has one."""
    with pytest.raises(UsageError, match="invalid value"):
        DialectOptions(date_order=value)


def test_a_load_with_other_notations_is_another_load(loads: Loads, write: Write) -> None:
    """Its rows may be others, so that objects are not taken for loaded in part."""
    loads.execute("CREATE TABLE t (price numeric, sold date)")
    path = write("price;sold\n1;1.2.26\n")
    loads.run(_target(path, options={"date_order": "dmy"}))
    loads.run(_target(path, options={"date_order": "mdy"}), rules=AGAIN)
    assert [row[1] for row in loads.rows()] == [date(2026, 1, 2), date(2026, 2, 1)]
