"""What the Rust core says that a column keeps, held against what real servers store."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation, localcontext
from typing import TYPE_CHECKING

import psycopg
import pytest

from penstock import _native
from penstock.loading.values.types import DAY_ORDERS, KEPT, REJECTS

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

pytestmark = pytest.mark.versions

_ORDERS = ("MDY", "DMY", "YMD")
# The name of a type in the Rust core and its limit, by the type of a column.
_NUMBERS = {
    "smallint": ("integer", -1),
    "integer": ("integer", -1),
    "bigint": ("integer", -1),
    "numeric": ("numeric", 2**31 - 1),
    "numeric(12,2)": ("numeric", 2),
    "real": ("float4", -1),
    "double precision": ("float8", -1),
}
_MOMENTS = {
    "date": ("date", -1),
    "timestamp": ("timestamp", -1),
    "timestamp(2)": ("timestamp", 2),
    "timestamptz": ("timestamptz", -1),
}


def _read_all(connection: psycopg.Connection[object], type_name: str, values: Sequence[str]) -> list[str | None]:
    """Return what a column of a type says of values, None if it refuses one."""
    connection.execute(
        f"""
        CREATE OR REPLACE FUNCTION pg_temp.say(v text) RETURNS text LANGUAGE plpgsql AS $$
        BEGIN
            RETURN v::{type_name}::text;
        EXCEPTION WHEN data_exception THEN
            RETURN NULL;
        END $$
        """.encode()
    )
    query = "SELECT pg_temp.say(v) FROM unnest(%s::text[]) WITH ORDINALITY AS t (v, at) ORDER BY at"
    return [row[0] for row in connection.execute(query, [list(values)]).fetchall()]  # type: ignore[index]


# ---------------------------------------------------------------- numbers


def _digits(rng: random.Random, most: int) -> str:
    return "".join(rng.choices("0123456789", k=rng.randint(0, most)))


def _number(rng: random.Random) -> str:
    kind = rng.random()
    if kind < 0.15:
        return rng.choice(["", "-", "+"]) + rng.choice(["0x", "0o", "0b", "0X"]) + _digits(rng, 3)
    if kind < 0.25:
        return f"{_digits(rng, 3)}_{_digits(rng, 3)}"
    if kind < 0.45:
        return repr(rng.uniform(-1, 1) * 10.0 ** rng.randint(-30, 30))
    if kind < 0.55:
        return f"{rng.uniform(-200, 200):.{rng.randint(10, 20)}g}"
    text = rng.choice(["", "", "-", "+", " ", "0", "00", "-0"]) + _digits(rng, rng.choice([1, 3, 8, 18]))
    text += rng.choice(["", "", ".", ".", ".0", ".000"]) + _digits(rng, rng.choice([0, 2, 3, 18]))
    return text + rng.choice(["", "", "", " ", "e3", "E-2", "e+05", "e-330"])


def _says_the_same(value: str, read: str, type_name: str) -> bool:
    """Return whether a number that was read back is the one of the text, in its form."""
    text = value.strip()
    rest = text.lstrip("+-")
    if "_" in rest or rest[:2].lower() in ("0x", "0o", "0b") or (rest[:1] == "0" and rest[1:2].isdigit()):
        return False
    try:
        before, after = Decimal(text), Decimal(read)
    except InvalidOperation:
        return True
    if before.is_zero() and after.is_zero():
        return before.is_signed() == after.is_signed()
    if type_name not in ("real", "double precision"):
        return before == after
    # A float keeps a text if it has the same digits when it is rounded to as many.
    after = _widen(after) if type_name == "real" else Decimal(float(after))
    with localcontext(prec=max(1, len(before.normalize().as_tuple().digits)), rounding=ROUND_HALF_EVEN):
        return +after == before


def _widen(number: Decimal) -> Decimal:
    return Decimal(struct.unpack("f", struct.pack("f", float(number)))[0])


@pytest.mark.parametrize("type_name", _NUMBERS)
def test_a_number_is_kept_if_the_column_says_the_same(database: str, rng: random.Random, type_name: str) -> None:
    """Of 3,000 numbers, what the server takes and reads back otherwise is what the Rust core calls changed."""
    values = [_number(rng) for _ in range(3000)]
    kept = changed = 0
    with psycopg.connect(database, autocommit=True) as connection:
        for value, read in zip(values, _read_all(connection, type_name, values), strict=True):
            if read is None:
                continue
            is_kept = not _native.find_change(value.encode(), *_NUMBERS[type_name])
            assert is_kept == _says_the_same(value, read, type_name), (value, read)
            kept, changed = kept + is_kept, changed + (not is_kept)
            if is_kept and type_name in KEPT:
                assert _native.recognize(value.encode(), KEPT[type_name])[0], value
    assert kept > 50
    assert changed > 20


# ---------------------------------------------------------------- days and times


@dataclass(frozen=True)
class _Moment:
    """A text, and what it says: the only one that a careful reader could mean, None if there are several."""

    text: str
    says: tuple[datetime, str] | None
    offset: timedelta | None


_FORMS = (
    *("%Y-%m-%d", "%Y-%m-%d", "%Y/%m/%d", "%Y%m%d", "%d/%m/%Y", "%m.%d.%Y"),
    *("%d-%b-%Y", "%B %d, %Y", "%a %b %d %Y", "%d.%m.%y", "%m/%d/%y"),
)
_ZONES = (("", None), ("", None), ("", None), ("Z", 0), ("+02", 2), ("-05:30", -5.5), (" UTC", 0), (" EST", -5))


def _moment(rng: random.Random) -> _Moment:
    day = datetime(rng.randint(1990, 2030), rng.randint(1, 12), rng.randint(1, 28), tzinfo=UTC)
    form = rng.choice(_FORMS)
    text = day.strftime(form)
    is_clear = form in ("%Y-%m-%d", "%Y/%m/%d", "%Y%m%d") or "b" in form.lower()
    is_clear = is_clear or (form.endswith("Y") and (day.day > 12 or day.day == day.month))
    fraction, offset = "", None
    if rng.random() < 0.7:
        clock = rng.choice([timedelta(), timedelta(seconds=rng.randrange(86_400))])
        day += clock
        as_twelve = rng.random() < 0.2
        text += rng.choice([" ", "T"]) if form == "%Y-%m-%d" and not as_twelve else " "
        text += day.strftime("%I:%M:%S" if as_twelve else "%H:%M:%S")
        fraction = rng.choice(["", "", "", "0", "000000000", "5", "12", "123456", "1234560", "1234567"])
        text += f".{fraction}" if fraction else ""
        text += day.strftime(" %p") if as_twelve else ""
        zone, hours = rng.choice(_ZONES)
        text += f" {zone}" if as_twelve else zone
        offset = None if hours is None else timedelta(hours=hours)
    return _Moment(text, (day, fraction.rstrip("0")) if is_clear else None, offset)


def _says(moment: _Moment, type_name: str) -> str | None:
    """Return the text of a column that says what a moment says, in UTC; None if no text of the type can."""
    assert moment.says is not None
    day, fraction = moment.says
    if type_name == "date":
        return (
            f"{day:%Y-%m-%d}"
            if not (day.hour or day.minute or day.second or fraction or moment.offset is not None)
            else None
        )
    most = 2 if type_name == "timestamp(2)" else 6
    if len(fraction) > most or (moment.offset is not None and type_name != "timestamptz"):
        return None
    day -= moment.offset or timedelta()
    return (
        f"{day:%Y-%m-%d %H:%M:%S}"
        + (f".{fraction}" if fraction else "")
        + ("+00" if type_name == "timestamptz" else "")
    )


@pytest.mark.parametrize("type_name", _MOMENTS)
def test_a_moment_is_kept_if_the_column_says_the_same(database: str, rng: random.Random, type_name: str) -> None:
    """Of 2,000 texts, those that are kept are read back with all they say, whatever DateStyle is."""
    moments = [_moment(rng) for _ in range(2000)]
    read: dict[str, list[str | None]] = {}
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("SET timezone = 'UTC'")
        for order in _ORDERS:
            connection.execute(f"SET datestyle = 'ISO, {order}'".encode())
            read[order] = _read_all(connection, type_name, [moment.text for moment in moments])
    kept = changed = 0
    for number, moment in enumerate(moments):
        found = {read[order][number] for order in _ORDERS} - {None}
        if not found:
            continue
        is_kept = not _native.find_change(moment.text.encode(), *_MOMENTS[type_name])
        says = None if moment.says is None else _says(moment, type_name)
        assert is_kept == (says is not None and found == {says}), (moment, found)
        assert is_kept == bool(_native.recognize(moment.text.encode(), KEPT.get(type_name, 0))[0]) or "(" in type_name
        kept, changed = kept + is_kept, changed + (not is_kept)
    assert kept > 100
    assert changed > 100


_NAMES = (
    "UTC",
    "EST",
    "Z",
    "Europe/Berlin",
    "america/new_york",
    "EST5EDT",
    "utc+3",
    "GMT-12:30",
    "foo",
    "BERLIN",
    "Es",
)
_OFFSETS = ("+02", "-3", "+0530", "-930", "+05:30", "+15:59:59", "+16", "+99", "+12:60", "-05305", "+1:2:3:4")


def _any_moment(rng: random.Random) -> str:
    """Return a text shaped like a moment, with a day, a time or a zone that may not exist."""
    year = rng.choice([0, 26, 99, 126, 2024, 2025, 2026, 9999, 10_000, 294_275, 294_278, 5_874_897, 5_874_898])
    month, day = rng.choice([0, 1, 2, 2, 4, 7, 12, 13]), rng.choice([0, 1, 5, 28, 29, 30, 31, 32])
    name = rng.choice(["Jan", "february", "APRIL", "Sept", "Dec"])
    dated = rng.choice(
        [
            *(f"{year:04}-{month:02}-{day:02}", f"{year:04}-{month}-{day}", f"{year:04}/{month:02}/{day:02}"),
            *(f"{day}.{month}.{year}", f"{month:02}/{day:02}/{year % 100:02}", f"{year % 10_000:04}{month:02}{day:02}"),
            *(
                f"{day}-{name}-{year:04}",
                f"{name}-{day}-{year:04}",
                f"{name} {day}, {year:04}",
                f"{day} {name} {year:04}",
                f"{name} {year:04}",
            ),
            *(f"Mon {name} {day} {year:04}", f"{year:04}.{month}", "infinity"),
        ]
    )
    hour, minute, second = (
        rng.choice([0, 9, 12, 13, 23, 24, 25]),
        rng.choice([0, 0, 5, 59, 60]),
        rng.choice([0, 5, 59, 60, 61]),
    )
    timed = rng.choice(
        [
            *("", "", f" {hour:02}:{minute:02}", f" {hour}:{minute:02}:{second:02}", f" {hour}:{minute}:{second}.25"),
            *(f"T{hour:02}:{minute:02}:{second:02}", f" {hour}:{minute:02} PM", f" {hour}:{minute:02}am", " 10"),
        ]
    )
    zone = rng.choice(["", "", "", rng.choice(_OFFSETS), f" {rng.choice(_OFFSETS)}", f" {rng.choice(_NAMES)}", " BC"])
    is_apart = timed.lower().endswith("m") or (timed in ("", " 10") and any(map(str.isalpha, dated)))
    zone = f" {zone}" if is_apart else zone
    return dated if dated == "infinity" else f"{dated}{timed}{zone}"


@pytest.mark.parametrize("type_name", ["date", "timestamptz"])
def test_a_moment_is_refused_if_the_server_refuses_it(database: str, rng: random.Random, type_name: str) -> None:
    """In each order of days. Of what is refused, a column keeps nothing, and rejected records alter no column."""
    values = sorted({_any_moment(rng) for _ in range(6000)})
    every = sum(KEPT[name] for name in ("date", "timestamp", "timestamptz"))
    with psycopg.connect(database, autocommit=True) as connection:
        for order, bits in DAY_ORDERS.items():
            connection.execute(f"SET datestyle = 'ISO, {order}'".encode())
            pairs = zip(values, _read_all(connection, type_name, values), strict=True)
            taken = {value for value, read in pairs if read is not None}
            for value in values:
                kept = _native.recognize(value.encode(), every | bits)[0] & every
                taken_rejecting = _native.recognize(value.encode(), every | bits | REJECTS)[0] & every
                is_refused = not kept and taken_rejecting == every
                if type_name == "date":
                    assert value in taken or not kept & KEPT["date"], (order, value)
                else:
                    assert is_refused == (value not in taken) or kept == KEPT["date"], (order, value)
            assert 500 < len(taken) < len(values) - 500


@pytest.mark.parametrize(
    ("type_name", "kept", "changed"),
    [
        ("time", ["10:15", "10:15:00.5", "040506"], ["10:15:00+02", "2026-11-02 10:15:00", "10:15:00.1234567"]),
        ("timetz", ["10:15:00+02"], ["2026-11-02 10:15:00+02", "10:15:00.1234567+02"]),
        ("date", ["infinity", "January 8, 1999", "2026-11-02 00:00"], ["today", "2026-11-02+02", "epoch"]),
        ("timestamp", ["-infinity", "2026-11-02 24:00:00"], ["now", "2026-12-31 23:59:60"]),
    ],
)
def test_other_forms_are_told_apart(database: str, type_name: str, kept: list[str], changed: list[str]) -> None:
    """The server takes all of these."""
    with psycopg.connect(database, autocommit=True) as connection:
        for value in (*kept, *changed):
            assert _read_all(connection, type_name, [value]) != [None], value
            assert bool(_native.find_change(value.encode(), type_name, -1)) == (value in changed), value


def test_blanks_are_cut_where_the_core_says_so(database: str) -> None:
    """A varchar that is too short drops blanks at the end of a value, and nothing else."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (v varchar(3))")
        for value in ("abc", "ab ", "abc  ", "    ", "\u00e9\u00e9\u00e9 ", "\u00e9\u00e9\u00e9"):
            stored = connection.execute("INSERT INTO t VALUES (%s) RETURNING v", [value]).fetchone()
            assert stored is not None
            assert bool(_native.find_change(value.encode(), "varchar", 3)) == (stored[0] != value), value
