"""Values of the types that penstock encodes: canonical ones, those of each rule that must go as text, and mutations."""

from __future__ import annotations

import struct
import uuid
from dataclasses import dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class TypeValues:
    """A type's name in SQL, its kind for the encoder, canonical values, and values that break a rule, by the rule."""

    sql_type: str
    kind: str
    make: Callable[[random.Random], str]
    others: dict[str, tuple[str, ...]]


def _integer(bits: int) -> Callable[[random.Random], str]:
    def make(rng: random.Random) -> str:
        if rng.random() < 0.05:
            return str(rng.choice((-(1 << (bits - 1)), (1 << (bits - 1)) - 1, 0)))
        value = rng.randrange(1 << rng.randrange(bits))
        return ("-" if rng.random() < 0.4 else "") + "0" * (value < 1 << 30 and rng.random() < 0.2) + str(value)

    return make


def _numeric(rng: random.Random) -> str:
    whole = "".join(rng.choices("0123456789", k=rng.choice((1, 1, 2, 3, 5, 9, 15, 18))))
    behind = "".join(rng.choices("0012345678900", k=rng.choice((0, 0, 1, 2, 2, 3, 4, 6, 9, 15))))
    return rng.choice(("", "", "-")) + whole + ("." + behind if behind else "")


def _float8(rng: random.Random) -> str:
    choice = rng.random()
    if choice < 0.3:
        return _numeric(rng)
    if choice < 0.6:
        return repr(rng.uniform(-1e6, 1e6))
    value = struct.unpack("<d", rng.randbytes(8))[0]
    # Halfway between two doubles, and next to it.
    digits = "".join(rng.choices("0123456789", k=rng.randrange(1, 30)))
    text = repr(value) if choice < 0.8 else f"{digits[0]}.{digits}e{rng.randrange(-289, 299)}"
    return text if 1e-290 <= abs(float(text)) <= 1e300 else "-0"


def _float4(rng: random.Random) -> str:
    choice = rng.random()
    if choice < 0.4:
        return _numeric(rng)
    value = struct.unpack("<f", rng.randbytes(4))[0]
    text = repr(value) if choice < 0.8 else f"{value:.7e}"
    # A text halfway between two floats is rounded wrongly by way of a double.
    text = f"{float(text):.25e}" if choice > 0.9 else text
    return text if 1e-35 <= abs(float(text)) <= 1e37 else "0"


def _day(rng: random.Random) -> str:
    return (date(1, 1, 1) + timedelta(days=rng.randrange(3_652_059))).isoformat()


def _timestamp(rng: random.Random) -> str:
    decimals = "".join(rng.choices("0123456789", k=rng.randrange(7)))
    clock = f"{rng.randrange(24):02}:{rng.randrange(60):02}:{rng.randrange(60):02}"
    return f"{_day(rng)} {clock}" + ("." + decimals if decimals else "")


def _uuid(rng: random.Random) -> str:
    text = str(uuid.UUID(bytes=rng.randbytes(16)))
    return text.upper() if rng.random() < 0.2 else text


def _text(rng: random.Random) -> str:
    return "".join(rng.choices(" abcxyz019'\"-,\u00e9\u20ac\U0001f600\u0301", k=rng.randrange(40)))


_NUMBERS = {
    "plus": ("+1", "+0"),
    "spaces": (" 1", "1 "),
    "underscore": ("1_000",),
    "other base": ("0x1F", "0o17", "0b101"),
}
_INTEGERS = {**_NUMBERS, "fraction": ("1.0", "1."), "exponent": ("1e3",)}
_FLOATS = {
    "plus": ("+1.5",),
    "spaces": (" 1.5", "1.5 "),
    "bare point": (".5", "5.", "-.5"),
    "hexadecimal": ("0x1p3", "0x10"),
    "not a number": ("NaN", "nan"),
    "infinity": ("Infinity", "-Infinity", "inf", "-inf", "infinity"),
}
_TIMES = {
    "24:00:00": ("2026-01-31 24:00:00",),
    "second 60": ("2026-01-31 23:59:60",),
    "seven decimals": ("2026-01-31 00:00:00.1234567",),
    "BC": ("2026-01-31 00:00:00 BC",),
    "year": ("0000-01-01 00:00:00", "10000-01-01 00:00:00"),
    "word": ("infinity", "-infinity", "now", "epoch", "today"),
    "T": ("2026-01-31T00:00:00",),
    "slashes": ("2026/01/31 00:00:00", "01/02/2026 00:00:00"),
    "day alone": ("2026-01-31",),
    "no seconds": ("2026-01-31 00:00",),
    "no such day": ("2026-02-30 00:00:00", "2023-02-29 00:00:00"),
}

TYPES = {
    "int2": TypeValues("smallint", "int2", _integer(16), {**_INTEGERS, "range": ("32768", "-32769")}),
    "int4": TypeValues("integer", "int4", _integer(32), {**_INTEGERS, "range": ("2147483648", "-2147483649")}),
    "int8": TypeValues(
        "bigint", "int8", _integer(64), {**_INTEGERS, "range": ("9223372036854775808", "-9223372036854775809")}
    ),
    "float4": TypeValues("real", "float4", _float4, {**_FLOATS, "range": ("1e39", "1e-46", "1e38")}),
    "float8": TypeValues("double precision", "float8", _float8, {**_FLOATS, "range": ("1e301", "1e-291", "1e400")}),
    "numeric": TypeValues(
        "numeric",
        "numeric",
        _numeric,
        {**_FLOATS, **_NUMBERS, "exponent": ("1e3", "1.5E-2"), "long": ("1" * 40, "0." + "1" * 40)},
    ),
    "bool": TypeValues(
        "boolean",
        "bool",
        lambda rng: rng.choice("tf"),
        {"word": ("true", "false", "yes", "no", "on", "off", "T", "F", "TRUE"), "digit": ("1", "0")},
    ),
    "date": TypeValues(
        "date",
        "date",
        _day,
        {
            "order": ("01-02-2026", "31.01.2026", "1/2/2026", "2026/01/31", "20260131"),
            "short": ("2026-1-31", "26-01-31"),
            "BC": ("2026-01-31 BC",),
            "year": ("0000-01-01", "10000-01-01"),
            "word": ("infinity", "-infinity", "today", "epoch"),
            "no such day": ("2026-02-29", "1900-02-29", "2026-04-31", "2026-13-01"),
        },
    ),
    "timestamp": TypeValues(
        "timestamp", "timestamp", _timestamp, {**_TIMES, "offset": ("2026-01-31 00:00:00+00", "2026-01-31 00:00:00Z")}
    ),
    "timestamptz": TypeValues(
        "timestamptz",
        "timestamptz",
        lambda rng: f"{_timestamp(rng)}+00",
        {
            **_TIMES,
            "no offset": ("2026-01-31 00:00:00",),
            "other offset": tuple(
                f"2026-01-31 00:00:00{offset}" for offset in ("Z", " UTC", "+01", "-00", "+00:00", "+0000", " +00")
            ),
        },
    ),
    "uuid": TypeValues(
        "uuid",
        "uuid",
        _uuid,
        {
            "braces": ("{00112233-4455-6677-8899-aabbccddeeff}",),
            "no hyphens": ("00112233445566778899aabbccddeeff",),
            "other hyphens": ("0011-2233-4455-6677-8899-aabb-ccdd-eeff",),
        },
    ),
    "text": TypeValues("text", "text", _text, {}),
}

# Blocks that must go as text whatever their columns (here one text), by the rule: format, line end, bytes.
STREAMS = {
    "carriage return in data": ("csv", "lf", b'"a\rb"\n'),
    "carriage returns end records": ("csv", "cr", b"a\rb\r"),
    "escape": ("text", "lf", b"a\\tb\n"),
    "end marker": ("text", "lf", b"a\n\\.\n"),
    "ragged": ("csv", "lf", b"a\nb,c\n"),
    "quote inside a field": ("csv", "lf", b'a"b"\n'),
    "text behind a quote": ("csv", "lf", b'"a"b\n'),
    "not UTF-8": ("csv", "lf", b"\xe9\n"),
    "surrogate": ("csv", "lf", b"\xed\xa0\x80\n"),
    "NUL": ("csv", "lf", b"a\0b\n"),
}


def mutate(text: str, rng: random.Random) -> str:
    """Return a text with some characters changed, inserted or removed; it may still be a value."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        at = rng.randrange(len(text) + 1)
        keep = rng.randrange(2)
        text = text[:at] + rng.choice(("", *"0019-+.:eEx_ /TZaFn~\u0660")) + text[at + 1 - keep :]
    return text
