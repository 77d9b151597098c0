"""Numbers and dates as people write them load as the model reads them, and what it does not read is rejected."""

from __future__ import annotations

import csv
import io
import re
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from penstock import _native
from penstock.core.values.dialect import DialectOptions
from penstock.core.values.job import LoadRules, TargetJob
from penstock.core.values.names import parse_table_name
from penstock.loading.copy.payload import list_separators
from support.loads import AGAIN, Loads

if TYPE_CHECKING:
    from pathlib import Path

NOTATIONS = ("1234,5", "1.234,5", "1 234,5", "1'234.5", "1,234.5")
ORDERS = {"dmy": (2, 1, 0), "mdy": (2, 0, 1), "ymd": (0, 1, 2)}
BLANKS = " \t\f"
LIKE = {" ": " \u00a0\u202f", "'": "'\u2019"}


def read_number(text: str, notation: str) -> str | None:
    """Return a number with a point and without separators, None if it is not written in the notation."""
    mark, separators = notation[-2], notation[1:-5]
    separators = LIKE.get(separators, separators)
    group = rf"[1-9]\d{{0,2}}(?:[{separators}]\d{{3}})+|" if separators else ""
    number = rf"([+-]?)((?:{group}\d*))(?:{re.escape(mark)}(\d+))?((?:[eE][+-]?\d{{1,4}})?)"
    text = text.strip(BLANKS)
    if re.fullmatch("[+-]?(nan|inf|infinity)", text, re.IGNORECASE | re.ASCII):
        return text
    match = re.fullmatch(number, text, re.ASCII)
    if match is None or not (match[2] or match[3]):
        return None
    return match[1] + re.sub(r"\D", "", match[2]) + ("." + match[3] if match[3] else "") + match[4]


def read_moment(text: str, order: str) -> tuple[datetime, bool] | None:
    """Return a date with its time, and whether it has one; None if it is not written in the order."""
    time = r"(?:[ T]\s*(\d\d?):([0-5]\d)(?::([0-5]\d)(\.\d+)?)?\s*(am|pm)?)?"
    pattern = rf"(\d\d?|\d{{4}})([./-])(\d\d?)\2(\d\d?|\d{{4}}){time}"
    match = re.fullmatch(pattern, text.strip(BLANKS), re.ASCII | re.IGNORECASE)
    if match is None or "t" in text:
        return None
    parts = [match[1], match[3], match[4]]
    year, month, day = (parts[place] for place in ORDERS[order])
    if len(year) not in (2, 4) or max(len(month), len(day)) > 2:
        return None
    number = int(year) if len(year) == 4 else int(year) + (2000 if int(year) < 70 else 1900)
    hour, half = int(match[5] or 0), (match[9] or "").lower()
    if half and not 1 <= hour <= 12:
        return None
    hour = hour % 12 + 12 * (half == "pm") if half else hour
    time = f"{hour:02}:{match[6] or '00'}:{match[7] or '00'}{(match[8] or '.0')[:7]:0<7}"
    try:
        moment = datetime.fromisoformat(f"{number:04}-{int(month):02}-{int(day):02} {time}")
    except ValueError:
        return None
    return moment, bool(match[5])


@st.composite
def numbers(draw: st.DrawFn, notation: str) -> str:
    """Draw a number that is written in a notation, or nearly so."""
    whole = draw(st.from_regex(r"0|[1-9][0-9]{0,9}", fullmatch=True))
    given = notation[1:-5]
    separator = draw(st.sampled_from(["", *LIKE.get(given, given), " "]))
    grouped = re.sub(r"(?<=\d)(?=(?:\d{3})+$)", separator, whole) if draw(st.booleans()) else whole
    fraction = draw(st.sampled_from(("", f"{notation[-2]}5", f"{notation[-2]}075", ".5", ",25", notation[-2])))
    return (
        draw(st.sampled_from(("", "-", "+", " "))) + grouped + fraction + draw(st.sampled_from(("", "e3", "E-2", " ")))
    )


@st.composite
def moments(draw: st.DrawFn) -> str:
    """Draw a date in any order, mostly one of the calendar, with or without a time."""
    year, month, day = (
        draw(st.sampled_from(("26", "1999", "2024", "069"))),
        draw(st.integers(1, 13)),
        draw(st.integers(0, 31)),
    )
    mark = draw(st.sampled_from("./-"))
    short = draw(st.booleans())
    parts = [year, str(month) if short else f"{month:02}", str(day) if short else f"{day:02}"]
    order = draw(st.sampled_from(list(ORDERS.values())))
    written: list[str] = [""] * 3
    for part, place in zip(parts, order, strict=True):
        written[place] = part
    times = (
        "",
        " 9:05",
        "T23:59:59",
        " 12:00 am",
        "  1:02:03 PM",
        " 24:00",
        " 10:60",
        " 8:07:06.25",
        " 8",
        " x",
        "t9:05",
    )
    return mark.join(written) + draw(st.sampled_from(times))


def find_plain(text: str, notation: str) -> str | None:
    """Return what the Rust core makes of a value, None if it is refused."""
    named = ("a", notation, list_separators(notation, codec="utf-8"), False)
    rewriter = _native.Rewriter(format="text", delimiter=b"|", nulls=[b"\\N"]).with_notations([named])
    data = text.encode() + b"\n"
    try:
        return rewriter.rewrite([(data, 0, len(data))], "lf").decode().removesuffix("\n")
    except _native.RecordError:
        return None


ANY = st.text(alphabet="0123456789.,'/:- \u00a0eTaAmMpP+", max_size=12)


@given(value=st.data(), notation=st.sampled_from(NOTATIONS))
def test_a_number_is_plain_as_the_model_reads_it(value: st.DataObject, notation: str) -> None:
    """With its sign and all its digits, and only if the notation has it."""
    text = value.draw(st.one_of(numbers(notation), ANY))
    assert find_plain(text, notation) == read_number(text, notation)


@given(text=st.one_of(moments(), ANY), order=st.sampled_from(sorted(ORDERS)))
@example(text="31/12/1999 12:30 pm", order="dmy")
def test_a_date_is_plain_as_the_model_reads_it(text: str, order: str) -> None:
    """In ISO 8601, by the calendar."""
    plain, expected = find_plain(text, order), read_moment(text, order)
    if plain is None or expected is None:
        assert plain is expected
        return
    moment, has_time = expected
    assert datetime.fromisoformat(plain) == moment
    assert (len(plain) > 10) == has_time


EXAMPLES = settings(
    phases=[Phase.explicit, Phase.generate],
    max_examples=max(10, settings().max_examples // 4),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)

SETUP = "DROP TABLE IF EXISTS t; CREATE TABLE t (k int, price numeric, at timestamp, note text)"


@st.composite
def files(draw: st.DrawFn) -> tuple[str, str, str, list[tuple[str, str]]]:
    """Draw a format, a notation, an order, and pairs of a number and a date."""
    notation, order = draw(st.sampled_from(NOTATIONS)), draw(st.sampled_from(sorted(ORDERS)))
    good = draw(st.booleans())
    texts = numbers(notation).filter(lambda text: not good or read_number(text, notation) is not None)
    dates = moments().filter(lambda text: not good or read_moment(text, order) is not None)
    pairs = draw(st.lists(st.tuples(st.one_of(texts, st.just("")), st.one_of(dates, st.just(""))), max_size=12))
    return draw(st.sampled_from(("csv", "text", "tsv"))), notation, order, pairs


def write(file_format: str, pairs: list[tuple[str, str]]) -> bytes:
    """Return a file with a header, and a record of four fields for each pair."""
    out = io.StringIO()
    rows = [("k", "price", "at", "note"), *((str(k), *pair, "1,5") for k, pair in enumerate(pairs))]
    if file_format == "csv":
        csv.writer(out, delimiter=";", lineterminator="\r\n", quoting=csv.QUOTE_MINIMAL).writerows(rows)
    else:
        lines = ("\t".join(field or "\\N" for field in row) + "\n" for row in rows)
        out.write("".join(lines))
    return out.getvalue().encode()


@EXAMPLES
@given(file=files(), piece_bytes=st.sampled_from((20, 10_000)))
def test_files_load_as_the_model_reads_them(
    ledger18: str, tmp_path: Path, file: tuple[str, str, str, list[tuple[str, str]]], piece_bytes: int
) -> None:
    """As text and binary; each value that the model does not read rejects its record, and changes no other."""
    file_format, notation, order, pairs = file
    path = tmp_path / "file"
    path.write_bytes(write(file_format, pairs))
    loads = Loads(ledger18, piece_bytes=piece_bytes, setup=SETUP)
    rows, bad = [], []
    for k, (price, at) in enumerate(pairs):
        number, moment = read_number(price, notation), read_moment(at, order)
        if (price and number is None) or (at and moment is None):
            bad.append(k + 2)
        else:
            rows.append((k, Decimal(number) if number else None, moment[0] if moment else None, "1,5"))
    separator = notation[1:-5]
    job = TargetJob(
        sources=(str(path),),
        into=parse_table_name("t"),
        dialect=DialectOptions(
            format=file_format,  # type: ignore[arg-type]
            header=True,
            delimiter=";" if file_format == "csv" else "\t",
            decimal_comma=("price",) if notation[-2] == "," else (),
            thousands={"price": separator} if separator else {},
            date_order={"at": order},
        ),
        copy_format="text" if bad else "binary",
    )
    if not pairs:
        return
    reject = LoadRules(retry_for=0.0, again=True, vacuum=False, on_error="reject")
    outcome = loads.run(job, rules=reject if bad else AGAIN)
    assert loads.execute("SELECT * FROM t ORDER BY k") == rows
    found = f"SELECT line FROM penstock.rejects WHERE load = '{outcome.load_id}' ORDER BY line"
    assert [line for (line,) in loads.execute(found)] == bad
