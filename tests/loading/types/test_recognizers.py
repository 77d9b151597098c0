"""What the recognisers of types take, held against the input functions of real servers."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

import psycopg
import pytest

from penstock import _native
from penstock.loading.values.types import ALL_TYPES, TYPE_OIDS, TYPES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.versions

# Settings that change how dates and times are read, and how they and doubles are written.
_SETTINGS = (
    "SET datestyle = 'ISO, DMY'; SET timezone = 'America/St_Johns'",
    "SET datestyle = 'ISO, MDY'; SET timezone = 'UTC'; SET extra_float_digits = 1",
    "SET datestyle = 'ISO, YMD'; SET timezone = 'Asia/Kathmandu'",
)
_WRONG = ["", " ", "-", "+", "e", ".", "NaN", "inf", "Infinity", "-0", "-0.0", "0x1F", "1_0", "null", "\\N", "\u00e9"]


def _digits(rng: random.Random, most: int) -> str:
    return "".join(rng.choices("0123456789", k=rng.randint(0, most)))


def _number(rng: random.Random) -> str:
    limits = [2**15, 2**31, 2**63, 10**15, 10**17, 2**53]
    if rng.random() < 0.3:
        return str(rng.choice([-1, 1]) * rng.choice(limits) + rng.randint(-2, 2))
    if rng.random() < 0.2:
        return repr(random.Random(rng.random()).uniform(-1, 1) * 10.0 ** rng.randint(-320, 308))
    text = rng.choice(["", "-", "-", "", "+"]) + _digits(rng, rng.choice([1, 3, 10, 20, 40]))
    text += rng.choice(["", ".", "."]) + _digits(rng, rng.choice([0, 2, 7, 20]))
    exponent = rng.choice(["e", "E"]) + rng.choice(["", "-", "+"]) + _digits(rng, 4)
    return text + (exponent if rng.random() < 0.3 else "")


def _time(rng: random.Random) -> str:
    year = rng.choice([f"{rng.randint(0, 9999):04}", str(rng.randint(0, 20000))])
    one, two = rng.choice(["--", "--", "--", "//", "-/"])
    day = f"{year}{one}{rng.randint(0, 13):02}{two}{rng.randint(0, 32):02}"
    if rng.random() < 0.3:
        return day
    time = rng.choice([" ", "T", "  ", "t"]) + f"{rng.randint(0, 25):02}:{rng.randint(0, 61):02}"
    if rng.random() < 0.8:
        time += f":{rng.randint(0, 61):02}" + rng.choice(["", "", "." + _digits(rng, 8)])
    hours, minutes = f"{rng.randint(0, 17):02}", f"{rng.randint(0, 61):02}"
    zone = rng.choice(["", "Z", "z", " UTC", *(f"{rng.choice(['', ' '])}{sign}{hours}" for sign in "+-")])
    return day + time + zone + rng.choice(["", "", f":{minutes}", minutes])


def _json_value(rng: random.Random, depth: int = 0) -> object:
    kind = rng.randint(0, 6 if depth < 4 else 4)
    if kind == 5:
        return [_json_value(rng, depth + 1) for _ in range(rng.randint(0, 3))]
    if kind == 6:
        return {rng.choice("abcde\u00e9"): _json_value(rng, depth + 1) for _ in range(rng.randint(0, 4))}
    return [
        None,
        True,
        rng.randint(-5, 10**20),
        rng.random() * 1e300,
        "".join(rng.choices('ab"\\\u00e9\n\U0001f600', k=3)),
    ][kind]


def _json(rng: random.Random) -> str:
    value = rng.choice([[], {}, _json_value(rng)])
    text = json.dumps(value, ensure_ascii=rng.random() < 0.5)
    inserts = [
        '{"a":1,"a":2}',
        "\\u0000",
        "\\ud800",
        "\\u0061",
        "01",
        "1e9999",
        ",",
        "\t",
        '"',
        "}",
        "[",
        "nul",
        "-",
        ".",
    ]
    for _ in range(rng.choice([0, 0, 1, 2])):
        at = rng.randint(0, len(text))
        text = text[:at] + rng.choice(inserts) + text[at + rng.randint(0, 1) :]
    return text


def _uuid(rng: random.Random) -> str:
    text = "-".join("".join(rng.choices("0123456789abcdefABCDEF", k=length)) for length in (8, 4, 4, 4, 12))
    return rng.choice([text, text.lower(), text.replace("-", ""), "{" + text + "}", text[:-1] + "g"])


def _boolean(rng: random.Random) -> str:
    return rng.choice(["t", "f", "true", "false", "True", "FALSE", "T", "yes", "on", "1", "tru", "tRUE", "no"])


_MAKERS: dict[str, Callable[[random.Random], str]] = {
    "boolean": _boolean,
    "integer": _number,
    "bigint": _number,
    "numeric": _number,
    "double precision": _number,
    "date": _time,
    "timestamp": _time,
    "timestamptz": _time,
    "uuid": _uuid,
    "jsonb": _json,
}

# How a value of a type is compared with its text: by what it means, apart from the type's own input function.
_MEANS = {
    "boolean": "v::boolean = (lower(left(v, 1)) = 't')",
    "integer": "v::integer = v::numeric",
    "bigint": "v::bigint = v::numeric",
    "numeric": "v::numeric::text = regexp_replace(v, '^(-?)\\.', '\\10.')",
    # A double has 15 digits at least; of what is not a number there is nothing to compare.
    "double precision": "v !~ '[0-9]' OR round(v::float8::numeric - v::numeric, 400) = 0"
    " OR abs((v::float8::numeric - v::numeric) / v::numeric) < 1e-14",
    "date": "to_char(v::date, 'YYYY-MM-DD') = replace(v, '/', '-')",
    "timestamp": "to_char(v::timestamp, 'YYYY-MM-DD HH24:MI') = rpad(translate(left(v, 16), 'T/', ' -'), 16, ' 00:00')",
    "timestamptz": "v::timestamptz AT TIME ZONE 'UTC' = translate(substring(v FROM '^.{10}[ T][0-9:.]+'), 'T/', ' -')"
    "::timestamp - CASE WHEN v ~ '-[0-9:]{2,5}$' THEN -1 ELSE 1 END * make_interval("
    "hours => coalesce(substring(v FROM '[+-]([0-9]{2}):?[0-9]{0,2}$'), '0')::int, "
    "mins => coalesce(substring(v FROM '[+-][0-9]{2}:?([0-9]{2})$'), '0')::int)",
    "uuid": "v::uuid::text = lower(v)",
    "jsonb": "v::jsonb = v::json::text::jsonb",
}


def _batches(name: str, rng: random.Random, count: int) -> Iterator[list[str]]:
    made = 0
    while made < count:
        size = min(20_000, count - made)
        made += size
        yield [_MAKERS[name](rng) if rng.random() < 0.99 else rng.choice(_WRONG) for _ in range(size)]


def _hold_against_server(conninfo: str, name: str, values: list[str], settings: str) -> int:
    """Have the server read what is taken, and return how many values were."""
    bit = 1 << TYPES.index(name)
    found = [(value, *_native.recognize(value.encode(), bit)) for value in values]
    taken = [value for value, fits, _ in found if fits]
    canonical = [bool(is_canonical) for _, fits, is_canonical in found if fits]
    assert not any(is_canonical and not fits for _, fits, is_canonical in found)
    with psycopg.connect(conninfo) as connection:
        connection.execute(settings)
        query = f"""
            SELECT v, v::{name}::text, {_MEANS[name]}
              FROM unnest(%s::text[], %s::boolean[]) AS t (v, is_canonical)
             WHERE NOT coalesce({_MEANS[name]}, false) OR (is_canonical AND v::{name}::text <> v)
             LIMIT 5
        """
        if name == "boolean":
            query = query.replace("v::boolean::text", "left(v::boolean::text, 1)")
        wrong = connection.execute(query.encode(), [taken, canonical]).fetchall()
    assert wrong == []
    return len(taken)


@pytest.mark.parametrize("name", TYPES)
def test_what_is_taken_the_server_takes_and_means_the_same(database: str, rng: random.Random, name: str) -> None:
    """20,000 values of each type; a canonical one is what the server writes."""
    taken = sum(
        _hold_against_server(database, name, values, rng.choice(_SETTINGS)) for values in _batches(name, rng, 20_000)
    )
    assert taken > 500


@pytest.mark.part("rest")
@pytest.mark.parametrize("name", TYPES)
def test_a_million_values_of_each_type(database18: str, rng: random.Random, name: str) -> None:
    """As above."""
    for number, values in enumerate(_batches(name, rng, 1_000_000)):
        assert _hold_against_server(database18, name, values, _SETTINGS[number % len(_SETTINGS)]) > 500


def test_oids_and_bits_are_those_of_the_server_and_of_rust(database: str) -> None:
    """Names of types, their oids, and their bits."""
    with psycopg.connect(database) as connection:
        for name, oid in TYPE_OIDS.items():
            assert connection.execute("SELECT %s::regtype::oid", [name]).fetchone() == (oid,)
    for number, value in enumerate(["t", "1", "3000000000", "1.5", "1e5", "2024-01-01", "2024-01-01 10:00"]):
        assert (
            _native.recognize(value.encode(), ALL_TYPES)[0] & -_native.recognize(value.encode(), ALL_TYPES)[0]
            == 1 << number
        )
