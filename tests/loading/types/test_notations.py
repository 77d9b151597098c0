"""Numbers and dates as people write them: decimal commas, separated thousands, the order of dates."""

from __future__ import annotations

import shlex
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

import penstock
from penstock.api.connect import connect_to
from penstock.api.ledger_view import LedgerView
from penstock.cli.main import main
from penstock.core.errors import DataError, TargetError, UsageError
from penstock.core.values.dialect import DialectOptions
from penstock.core.values.job import LoadJob, LoadRules
from penstock.loading.steps.columns import ColumnChanges
from support.files import write_to
from support.loads import AGAIN, IMPATIENT
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


def read_options(words: str) -> dict[str, list[str]]:
    """Return the options of a command line by their names in Python."""
    pairs = shlex.split(words)
    return {
        name.removeprefix("--").replace("-", "_"): [value] for name, value in zip(pairs[::2], pairs[1::2], strict=True)
    }


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
    outcome = loads.run(_target(path, options=options, copy_format=copy_format), rules=rules)
    assert loads.execute("SELECT * FROM t ORDER BY a") == [
        (1.5, "1,5", date(2026, 1, 2), Decimal("1234.56"), None),
        (None, "1/2/26", None, Decimal("-0.50"), 7),
    ]
    assert outcome.load_id is not None
    assert penstock.verify(outcome.load_id, to=loads.conninfo, values=True).is_verified


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


def test_a_zone_may_follow_a_date(loads: Loads, write: Write) -> None:
    """Its name, abbreviation or offset; another word is refused."""
    loads.execute("CREATE TABLE t (at timestamptz)")
    options = {"date_order": "at=dmy"}
    values = ["01.02.2026 10:00 CET", "01.02.2026 04:00 America/New_York", "1/2/26 10:00:00.5+01"]
    loads.run(_target(write("at\n" + "".join(f"{value}\n" for value in values)), options=options))
    found = loads.execute("SELECT to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.MS') FROM t ORDER BY 1")
    assert [row[0] for row in found] == [
        "2026-02-01 09:00:00.000",
        "2026-02-01 09:00:00.000",
        "2026-02-01 09:00:00.500",
    ]
    with pytest.raises(DataError, match="is not written as dmy"):
        loads.run(_target(write("at\n01.02.2026 10:00 foo\n", "g.csv"), options=options))


def test_an_error_quotes_the_value_with_its_notation(loads: Loads, write: Write) -> None:
    """The server has seen the plain value; what decides a type is quoted as the file has it."""
    loads.execute("CREATE TABLE t (n int)")
    target = _target(write("n;m\n5,0;\n"), options={"decimal_comma": "n"}, skip=("m",))
    assert 'column "n": "5.0" (in the file written as 1234,5).' in (loads.refuse(target).detail or "")
    outcome = loads.run(replace(target, types="widen"))
    part = outcome.steps["columns"]
    assert isinstance(part, ColumnChanges)
    seen = part.tables[0].changes[0].decided_by
    assert seen is not None
    assert seen.value == "5,0"


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


_ALL = {"decimal_comma": "*", "thousands": ".", "date_order": "dmy"}


def test_notations_for_all_columns_apply_to_the_inferred_columns_that_fit(loads: Loads, write: Write) -> None:
    """The types are those of the plain values, and a load of the same file for the same table replaces it."""
    path = write(
        "n;price;sold;at;zip;name\n1.000;1,5;31.12.2025;1.2.26 9:05;01067;a\n2;1.234,50;1.2.26;1.2.26;12345;7\n"
    )
    target = _target(path, options=_ALL, create=True, types="infer")
    numbers_and_dates = ["integer", "numeric", "date", "timestamp without time zone"]
    rows = [
        (1000, Decimal("1.5"), date(2025, 12, 31), datetime.fromisoformat("2026-02-01 09:05"), "01067", "a"),
        (2, Decimal("1234.50"), date(2026, 2, 1), datetime.fromisoformat("2026-02-01"), "12345", "7"),
    ]
    for mode in ("append", "replace"):
        outcome = loads.run(replace(target, mode=mode))
        assert (types_of(loads), outcome.warnings) == ([*numbers_and_dates, "text", "text"], ())
        assert sorted(loads.rows(), reverse=True) == rows
    assert outcome.load_id is not None
    assert penstock.verify(outcome.load_id, to=loads.conninfo, values=True).is_verified


def test_a_column_that_fits_only_in_part_stays_text_with_the_first_value_that_does_not(
    loads: Loads, write: Write
) -> None:
    """A plain number is none with a decimal comma; a column of another order is told with its option."""
    path = write("k;a;b;c;d\n1;1,5;1.5;2026-01-31;1.2.26\n2;k.A.;2.5;2026-02-01;1.3.26\n3;;2,5;;1.4.26 x\n")
    outcome = loads.run(_target(path, options=_ALL, create=True, types="infer"))
    assert types_of(loads) == ["integer", "text", "text", "text", "text"]
    assert [(each.line, each.message) for each in outcome.warnings] == [
        (3, 'column "a" of table "t" stays text: "k.A." is not written as 1.234,5'),
        (2, 'column "b" of table "t" stays text: "1.5" is not written as 1.234,5'),
        (4, 'column "d" of table "t" stays text: "1.4.26 x" is not written as dmy'),
        (2, 'column "c" of table "t" stays text: its dates are written as ymd'),
        (None, '--date-order applies to no column of table "t": none has a type of dates'),
    ]
    named = _ALL | {"date_order": ["dmy", "c=ymd"], "null": ["", "k.A."]}
    loads.run(_target(path, options=named, create=True, types="infer", mode="replace"))
    assert types_of(loads) == ["integer", "numeric", "text", "date", "text"]


def test_an_option_that_names_a_column_of_numbers_goes_with_the_one_for_all(loads: Loads, write: Write) -> None:
    """A decimal comma and what separates thousands may be given in two ways."""
    path = write("a;b\n1.234,5;1 234,5\n")
    options = {"decimal_comma": ["a", "*"], "thousands": [".", "b= "]}
    loads.run(_target(path, options=options, create=True, types="infer"))
    assert loads.rows() == [(Decimal("1234.5"), Decimal("1234.5"))]


def test_an_option_for_all_columns_that_means_nothing_is_refused_after_inference(loads: Loads, write: Write) -> None:
    """A point between thousands needs another decimal mark."""
    target = _target(write("k;a\n1;1.5\n"), options={"thousands": "."}, create=True, types="infer")
    assert loads.refuse(target).message == '--thousands of column "k" is its decimal mark, too'
    assert not loads.has_table("t")


def test_notations_for_all_columns_hold_from_the_first_night_to_the_next(loads: Loads, write: Write) -> None:
    """A later file brings a new column, decimals, and a type."""
    widen = {"types": "widen", "create": True, "add_columns": True}
    loads.run(_target(write("n;sold\n1.000;1.1.26\n"), options=_ALL, **widen))
    assert types_of(loads) == ["integer", "date"]
    loads.run(_target(write("n;sold;new\n1,5;1.1.26 8:00;2.000,5\n", "2.csv"), options=_ALL, **widen))
    assert types_of(loads) == ["numeric", "timestamp without time zone", "numeric"]
    assert loads.execute("SELECT n, new FROM t ORDER BY n") == [(Decimal("1.5"), Decimal("2000.5")), (1000, None)]


@pytest.mark.parametrize(
    ("options", "example"),
    [
        ({"decimal_comma": "*"}, "--decimal-comma 'price'"),
        ({"thousands": "."}, "--thousands 'price=.'"),
        ({"thousands": "'"}, '--thousands "price=\'"'),
        ({"date_order": "ymd"}, "--date-order 'sold=ymd'"),
    ],
)
def test_all_columns_of_a_type_need_a_type(loads: Loads, write: Write, options: dict[str, Any], example: str) -> None:
    """The hint has an option that names a column."""
    with pytest.raises(UsageError, match="applies to no column") as caught:
        loads.run(_target(write("price;sold\n1;\n"), options=options, create=True))
    assert (caught.value.hint or "").endswith(
        f"Use --types infer, which finds such columns. Or name the columns, as in {example}."
    )


@pytest.mark.parametrize("value", ["dym", "price=", "=", 7, ["a=dmy", "a=mdy"]])
def test_orders_are_words(value: Any) -> None:
    """Each column has one."""
    with pytest.raises(UsageError, match="invalid value"):
        DialectOptions(date_order=value)


_TOLD = [
    (["1,5", "2"], "--decimal-comma v"),
    (["1,234", "1,5"], "--decimal-comma v"),
    (["1.234,50"], "--decimal-comma v --thousands v=."),
    (["1.234.567", "1.234"], "--decimal-comma v --thousands v=."),
    (["1 234,5"], "--decimal-comma v --thousands 'v= '"),
    (["1\u202f234"], "--thousands 'v= '"),
    (["1,234,567", "1.5"], "--thousands v=,"),
    (["1'234.5", "-1\u2019000"], "--thousands " + shlex.quote("v='")),
    (["1,234", "5,678"], "--decimal-comma v or --thousands v=,"),
    (["31.12.2025", "01.01.2026"], "--date-order v=dmy"),
    (["1/31/26 9:05 PM"], "--date-order v=mdy"),
    (["01.02.2026", "3.4.2026"], "--date-order v=dmy or --date-order v=mdy"),
    (["99.12.31"], "--date-order v=ymd"),
    (["2026-01-31", "2026/1/31"], "--date-order v=ymd"),
]


@pytest.mark.parametrize(("values", "options"), _TOLD)
def test_a_warning_names_the_options_or_that_it_cannot_tell(
    loads: Loads, write: Write, values: list[str], options: str
) -> None:
    """From all values; with these options the column has a type."""
    path = write("k;v\n" + "".join(f'{k};"{value}"\n' for k, value in enumerate(values)))
    with loads.loader() as loader:
        (notice,) = loader.plan(LoadJob(targets=(make_target(path),))).notices
    is_told = " or " not in options
    end = " to read them so." if is_told else "; with --mode replace if this load has created the table."
    command = f" To load the table again, run: penstock load --into t --create --types infer --mode replace {options}"
    hint = notice.hint or ""
    assert hint.startswith(f"Use {options}{end}{command if is_told else ''}")
    is_date = options.startswith("--date")
    assert notice.code == ("unclear-date" if is_date and " or " in options else "notation")
    given = read_options(options.partition(" or ")[0])
    outcome = loads.run(make_target(path, dialect=DialectOptions(**given)))
    assert (types_of(loads)[1] != "text", outcome.warnings) == (True, ())


_UNTOLD = [
    ["007", "010"],
    ["1,5", "a"],
    ["1,5", "1.5"],
    ["-0", "12345678901234567890123"],
    ["31.12.2025", "12/31/2025"],
]


@pytest.mark.parametrize("values", [*_UNTOLD, ["1.2.3.4"], ["1,2,3"], ["0,12.5"], ["2026-01-31", "2026-01-31T10:00Z"]])
def test_other_texts_are_no_warning(loads: Loads, write: Write, values: list[str]) -> None:
    """Codes, lists, and what no one notation has."""
    loads.run(make_target(write("k;v\n" + "".join(f"{k};{value}\n" for k, value in enumerate(values)))))
    assert (types_of(loads), loads.warnings) == (["integer", "text"], ())


@pytest.mark.parametrize(
    ("type_name", "value", "options"),
    [
        ("numeric", "1.234,5", "--decimal-comma v --thousands v=."),
        ("integer", "1,234", "--decimal-comma v or --thousands v=,"),
        ("timestamp", "31.12.2025", "--date-order v=dmy"),
        ("date", "01/02/2026", None),
        ("numeric", "1.5", None),
        ("numeric", "31.12.2025", None),
        ("text", "1,5", None),
    ],
)
def test_a_plan_for_a_table_warns_of_values_that_it_does_not_take(
    loads: Loads, write: Write, type_name: str, value: str, options: str | None
) -> None:
    """Of columns of numbers and dates, with the line of the first such value."""
    loads.execute(f"CREATE TABLE t (k int, v {type_name})")
    with loads.loader() as loader:
        notices = loader.plan(LoadJob(targets=(_target(write(f"k;v\n1;\n2;{value}\n")),))).notices
    assert [(each.code, each.line, each.hint) for each in notices] == (
        [] if options is None else [("notation", 3, f"Use {options} to read them so.")]
    )


@pytest.mark.parametrize("options", [{}, {"decimal_comma": "price"}])
@pytest.mark.parametrize("is_new", [True, False])
def test_points_that_may_separate_thousands_are_a_warning_beside_decimal_commas(
    loads: Loads, write: Write, options: dict[str, Any], is_new: bool
) -> None:
    """PostgreSQL reads 1.234 as a number, and it may be a thousand times as large. Beside 0.5 it is none of these."""
    if not is_new:
        loads.execute("CREATE TABLE t (price numeric, n numeric, m numeric)")
    path = write("price;n;m\n0,5;7;0.5\n1,5;1.234;1.234\n")
    types = {"create": is_new, "types": "infer" if is_new else "text"}

    def plan(**more: Any) -> list[str]:
        with loads.loader() as loader:
            notices = loader.plan(LoadJob(targets=(_target(path, options=options | more, **types),))).notices
        return [f"{each.line} {each.message}; {each.hint}" for each in notices if 'column "price"' not in each.message]

    (said,) = plan()
    assert said.startswith('3 column "n" of table ')
    assert " is numeric: its numbers may be written as 1.234,5; Use --decimal-comma n --thousands n=." in said
    assert plan(decimal_comma="price,n", thousands="n=.") == []


def test_points_are_decimal_points_in_a_file_without_decimal_commas(loads: Loads, write: Write) -> None:
    """Weights in kg have three decimals."""
    with loads.loader() as loader:
        assert loader.plan(LoadJob(targets=(make_target(write("k;v\n1;1.234\n2;2.500\n")),))).notices == ()


def test_a_column_that_is_widened_to_text_could_keep_its_type(loads: Loads, write: Write) -> None:
    """The options that keep it are named, and keep it."""
    loads.execute("CREATE TABLE t (k int, price numeric)")
    path = write("k;price\n1;1,5\n")
    with loads.loader() as loader:
        (notice,) = loader.plan(LoadJob(targets=(_target(path, types="widen"),))).notices
    assert (notice.code, notice.hint) == ("notation", "Use --decimal-comma price to keep its type.")
    loads.run(_target(path, types="widen", options={"decimal_comma": "price"}))
    assert types_of(loads) == ["integer", "numeric"]


def test_a_load_with_other_notations_is_another_load(loads: Loads, write: Write) -> None:
    """Its rows may be others, so that objects are not taken for loaded in part."""
    loads.execute("CREATE TABLE t (price numeric, sold date)")
    path = write("price;sold\n1;1.2.26\n")
    loads.run(_target(path, options={"date_order": "dmy"}))
    loads.run(_target(path, options={"date_order": "mdy"}), rules=AGAIN)
    assert [row[1] for row in loads.rows()] == [date(2026, 1, 2), date(2026, 2, 1)]


_SALES = "k;price;day;qty\n1;1.234,50;31.12.2025;5\n2;NA;01.02.2026;NA\n3;2,5;15.02.2026;7\n4;NA;NA;8\n"
_SOLVED = [(1, 1234.5, "2025-12-31", 5), (2, None, "2026-02-01", None), (3, 2.5, "2026-02-15", 7), (4, None, None, 8)]


def _run_hint(hint: str, loads: Loads, capfd: pytest.CaptureFixture[str]) -> list[Any]:
    """Type the command that ends a hint, and return the rows that it has loaded."""
    command = hint.rpartition("run: ")[2]
    words = shlex.split(command)
    assert words[:2] == ["penstock", "load"], hint
    code = main([*words[1:], "--to", loads.conninfo])
    err = capfd.readouterr().err
    assert (code, "warning" in err) == (0, False), err
    return loads.execute("SELECT k, price::float, day::text, qty FROM t ORDER BY k")


@pytest.mark.parametrize("folder", ["plain", "it's here"])
def test_the_last_warning_has_a_command_with_the_options_of_all(
    loads: Loads, capfd: pytest.CaptureFixture[str], tmp_path: Path, folder: str
) -> None:
    """For a table that is created: typed as it stands, it loads all values."""
    (tmp_path / folder).mkdir()
    path = write_to(tmp_path / folder / "sales.csv", _SALES)
    outcome = loads.run(make_target(path))
    hints = [notice.hint or "" for notice in outcome.warnings]
    assert [("run: penstock load" in hint) for hint in hints] == [False] * (len(hints) - 1) + [True]
    assert _run_hint(hints[-1], loads, capfd) == _SOLVED


@pytest.mark.parametrize("types", ["infer", "widen"])
def test_the_command_for_a_created_table_gives_it_types_and_its_key(
    loads: Loads, capfd: pytest.CaptureFixture[str], write: Write, types: Any
) -> None:
    """A load every night widens types: it would keep the columns text for ever."""
    path = write("k;price;day;qty\n1;1.234,50;31.12.2025;5\n2;2,5;NA;7\n")
    outcome = loads.run(make_target(path, types=types, key=("k",), mode="upsert"))
    rows = _run_hint(outcome.warnings[-1].hint or "", loads, capfd)
    assert rows == [(1, 1234.5, "2025-12-31", 5), (2, 2.5, None, 7)]
    assert types_of(loads) == ["integer", "numeric", "date", "integer"]
    key = "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = 't'::regclass AND contype = 'p'"
    assert loads.execute(key) == [("PRIMARY KEY (k)",)]


def test_no_command_replaces_a_table_whose_load_chose_among_duplicates(loads: Loads, write: Write) -> None:
    """A load that replaces the table would fail at the second record with the key."""
    outcome = loads.run(make_target(write("k;v\n1;1,5\n1;2,5\n"), key=("k",), mode="upsert", keep="last"))
    assert [notice.code for notice in outcome.warnings if notice.options] == ["notation"]
    assert [notice.hint for notice in outcome.warnings if "run: penstock load" in (notice.hint or "")] == []


@pytest.mark.parametrize("types", ["text", "widen"])
def test_an_error_has_a_command_with_the_options_of_all_warnings(
    loads: Loads, capfd: pytest.CaptureFixture[str], write: Write, types: Any
) -> None:
    """So has the plan of the load: one reading tells everything."""
    loads.execute("CREATE TABLE t (k int, price numeric, day date, qty int)")
    job = _target(write(_SALES), types=types)
    error = loads.refuse(job)
    if types == "text":
        with loads.loader() as loader:
            hint = loader.plan(LoadJob(targets=(job,), sessions=2, rules=IMPATIENT)).notices[-1].hint or ""
        assert hint.partition("run: ")[2] == (error.hint or "").partition("run: ")[2]
    assert _run_hint(error.hint or "", loads, capfd) == _SOLVED


@pytest.mark.parametrize("null", ["NULL", None])
def test_no_command_is_shown_that_would_drop_a_null_string_of_the_user(
    loads: Loads, write: Write, null: str | None
) -> None:
    """COPY has one null string for quoted fields, also if it is the default."""
    path = write('a;b;c\n1;"NULL";1,5\n\\N;;2,5\n3;NULL;3,5\n')
    options = {"null": null, "force_null": "b"} if null else {"force_null": "b"}
    outcome = loads.run(make_target(path, dialect=DialectOptions(**options)))
    hints = [notice.hint or "" for notice in outcome.warnings]
    assert any("--null '\\N'" in hint for hint in hints)
    assert [hint for hint in hints if "run: penstock load" in hint] == []


def test_a_command_says_that_a_choice_is_left(loads: Loads, write: Write) -> None:
    """1.234 may be a thousand times as large, and 01.02.2026 a day of February or of January."""
    outcome = loads.run(make_target(write("a;n;d\n0,5;1.234;01.02.2026\n1,5;2;03.04.2026\n")))
    (hint,) = [hint for notice in outcome.warnings if "run: penstock load" in (hint := notice.hint or "")]
    assert " With the options of all warnings that leave no choice, run: " in hint
    assert "--decimal-comma a " in hint.partition("run: ")[2]


def test_a_command_has_the_other_options_of_the_load(loads: Loads, write: Write) -> None:
    """As they are typed: a size has a unit."""
    rules = replace(IMPATIENT, on_error="reject", max_record=300_000_000, max_rejects=7)
    outcome = loads.run(make_target(write(_SALES), skip=["qty"]), rules=rules)
    hint = outcome.warnings[-1].hint or ""
    for option in ("--skip qty", "--on-error reject", "--max-record 300MB", "--max-rejects 7", "--sessions 2"):
        assert option in hint


@pytest.mark.parametrize(
    ("text", "options", "hint"),
    [
        ('k;v\n1;31.12.2025\n2;""\n', {"date_order": "dmy"}, "Use --force-null v if it stands for null"),
        ("k;v\n1;31.12.2025\n2;NA\n", {"date_order": "dmy"}, "Use --null NA if it stands for null"),
        ("k;v\n1;31.12.2025\n2;x\n", {"date_order": "dmy"}, "Correct the value, or check"),
    ],
)
def test_a_word_for_null_in_a_notation_has_the_option_for_it(
    loads: Loads, write: Write, text: str, options: dict[str, Any], hint: str
) -> None:
    """As it has without the notation."""
    loads.execute("CREATE TABLE t (k int, v date)")
    assert (loads.refuse(_target(write(text), options=options)).hint or "").startswith(hint)


def test_numbers_with_blanks_are_no_notation(loads: Loads, write: Write) -> None:
    """They have neither commas nor points, and no option is asked for."""
    loads.run(make_target(write("k;v\n1; 1\n2;2 \n")))
    assert loads.warnings == ()


def test_a_word_for_null_in_a_table_of_numbers_is_one_warning(loads: Loads, write: Write) -> None:
    """For all its columns; in a column of texts it is one."""
    loads.execute("CREATE TABLE t (a int, b numeric, c text, d date)")
    path = write("a,b,c,d\n1,2,NA,2026-01-01\nNA,NA,x,NA\n")
    with loads.loader() as loader:
        notices = loader.plan(LoadJob(targets=(_target(path),))).notices
    message = 'NA is text in this dialect, and columns "a", "b", "d" of table "public.t" have another type'
    assert [(each.code, each.line, each.message) for each in notices] == [("literal-null", 3, message)]


def test_a_word_for_null_in_domains_over_numbers_and_dates_is_a_warning(loads: Loads, write: Write) -> None:
    """A domain, and a domain over a domain, is its base type."""
    loads.execute("CREATE DOMAIN price AS numeric; CREATE DOMAIN net AS price; CREATE DOMAIN day AS date")
    loads.execute("CREATE TABLE t (a net, b day, c text)")
    with loads.loader() as loader:
        notices = loader.plan(LoadJob(targets=(_target(write("a,b,c\n1,2026-01-01,NA\nNA,NA,x\n")),))).notices
    message = 'NA is text in this dialect, and columns "a", "b" of table "public.t" have another type'
    assert [(each.code, each.line, each.message) for each in notices] == [("literal-null", 3, message)]


def test_the_command_of_a_refused_word_has_the_zero_date_of_another_column(loads: Loads, write: Write) -> None:
    """Otherwise the command would make the column of dates text."""
    loads.execute("CREATE TABLE t (a int, d date)")
    path = write("a,d\n1,2026-01-01\nNA,0000-00-00\n")
    error = loads.refuse(_target(path, types="widen"))
    assert "--null '' --null 0000-00-00 --null NA" in (error.hint or "").partition("run: penstock load")[2]
