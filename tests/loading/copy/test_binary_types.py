"""What the encoder makes of a value is, byte for byte, what PostgreSQL makes of its text; all else is declined."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg import sql

from penstock import _native
from penstock.loading.copy.encoded import KINDS
from support.binary_values import STREAMS, TYPES, mutate

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# Settings that decide how a text is read, or written; the encoder may depend on none of them.
_SETTINGS = (
    {"DateStyle": "ISO, MDY", "TimeZone": "UTC", "IntervalStyle": "postgres"},
    {"DateStyle": "SQL, DMY", "TimeZone": "America/New_York", "IntervalStyle": "iso_8601"},
    {"DateStyle": "German, YMD", "TimeZone": "Asia/Kathmandu", "extra_float_digits": "-15"},
    {"DateStyle": "Postgres, MDY", "TimeZone": "Africa/Monrovia", "lc_numeric": "C", "lc_monetary": "C"},
)
_HEADER = b"PGCOPY\n\xff\r\n\x00" + bytes(8)


def _encoder(*kinds: str, format: str = "text", delimiter: bytes = b"\t") -> _native.BinaryEncoder:  # noqa: A002
    is_csv = format == "csv"
    null = b"" if is_csv else b"\\N"
    return _native.BinaryEncoder(
        format=format, delimiter=delimiter, quote=b'"' if is_csv else None, null=null, kinds=kinds
    )


def _encode(encoder: _native.BinaryEncoder, text: str) -> bytes | None:
    data = text.encode(errors="surrogatepass")
    return encoder.encode([(data, 0, len(data))], "lf", text.count("\n"))


def _values(name: str, count: int, rng: random.Random) -> tuple[list[str], int]:
    """Return canonical values and mutations that the encoder takes too, and how many mutations it declined."""
    values = TYPES[name]
    canonical = [values.make(rng) for _ in range(count // 2)]
    encoder = _encoder(values.kind)
    mutated = [mutate(value, rng) for value in canonical]
    mutated = [value for value in mutated if not any(byte in value for byte in "\t\n\\")]
    taken = [value for value in mutated if _encode(encoder, f"{value}\n") is not None]
    return [*canonical, *taken], len(mutated) - len(taken)


@pytest.fixture
def differing(connection: psycopg.Connection, database: str) -> Iterator[object]:
    """Provide a function that stores values as text and encoded, and returns those that differ."""

    def compare(name: str, values: Sequence[str]) -> list[tuple[object, ...]]:
        sql_type = sql.SQL(TYPES[name].sql_type)  # type: ignore[arg-type]
        create = sql.SQL("DROP TABLE IF EXISTS a, b; CREATE TABLE a (id int, v {t}); CREATE TABLE b (id int, v {t})")
        connection.execute(create.format(t=sql_type))
        encoder = _encoder("int4", TYPES[name].kind)
        part = len(values) // len(_SETTINGS) + 1
        for number, settings in enumerate(_SETTINGS):
            chunk = values[number * part : (number + 1) * part]
            text = "".join(f"{number * part + index}\t{value}\n" for index, value in enumerate(chunk))
            rows = _encode(encoder, text)
            assert rows is not None
            with psycopg.connect(database) as session:
                for setting, value in settings.items():
                    session.execute("SELECT set_config(%s, %s, false)", [setting, value])
                with session.cursor().copy("COPY a FROM STDIN") as copy:
                    copy.write(text)
            with connection.cursor().copy("COPY b FROM STDIN (FORMAT binary)") as copy:
                copy.write(_HEADER + rows + b"\xff\xff")
        find = sql.SQL(
            "SELECT a.id, a.v::text, b.v::text FROM a FULL JOIN b USING (id) "
            "WHERE {send}(a.v) IS DISTINCT FROM {send}(b.v) LIMIT 5"
        )
        return connection.execute(find.format(send=sql.Identifier(f"{_send_name(name)}"))).fetchall()

    yield compare


def _send_name(name: str) -> str:
    separator = "_" if name in ("numeric", "date", "timestamp", "timestamptz", "uuid") else ""
    return f"{name}{separator}send"


@pytest.mark.parametrize("name", TYPES)
def test_100_000_values_are_encoded_as_the_server_reads_them(name: str, differing: object, rng: random.Random) -> None:
    """*_send of both rows is equal under settings that change how dates, times and numbers are read and written."""
    values, declined = _values(name, 100_000, rng)
    assert differing(name, values) == []  # type: ignore[operator]
    assert len(values) > 50_000
    assert declined or name == "text"


@pytest.mark.part("rest")
@pytest.mark.parametrize("name", TYPES)
def test_1_000_000_values_are_encoded_as_the_server_reads_them(name: str, differing: object, seed: int) -> None:
    """The same with other values."""
    rng = random.Random(seed + 1)
    for _ in range(10):
        values, _ = _values(name, 100_000, rng)
        assert differing(name, values) == []  # type: ignore[operator]


@pytest.mark.parametrize("name", [name for name, values in TYPES.items() if values.others])
def test_values_in_other_forms_are_declined(name: str) -> None:
    """Each rule of the list in docs/copy-format.md has values, and none of them is encoded."""
    values = TYPES[name]
    encoder = _encoder(values.kind)
    met = {
        rule: [text for text in texts if _encode(encoder, f"{text}\n") is None] for rule, texts in values.others.items()
    }
    assert met == {rule: list(texts) for rule, texts in values.others.items()}


def test_streams_that_only_the_server_reads_are_declined() -> None:
    """Each rule about records has a block, and none of them is encoded."""
    for rule, (format, line_end, data) in STREAMS.items():  # noqa: A001
        encoder = _encoder("text", format=format, delimiter=b",")
        records = max(1, data.count(b"\n"))
        assert encoder.encode([(data, 0, len(data))], line_end, records) is None, rule  # type: ignore[arg-type]
    encoder = _encoder("text", format="csv", delimiter=b",")
    assert _encode(encoder, '""\n') == b"\0\x01\0\0\0\0", "a quoted empty field is no null"


@pytest.mark.parametrize(
    ("sql_type", "kind", "values"),
    [
        ("varchar(3)", "text", ("", "abc", "abcd", "abc  ", "\u00e9\u00e9\u00e9", "\u00e9\u00e9\u00e9\u00e9", "ab  d")),
        ("char(3)", "text", ("", "a", "abc", "abc   ", "abcd", "\u20ac", "\u20ac\u20ac\u20ac\u20ac")),
        ("numeric(5,2)", "numeric", ("0", "1.005", "-1.005", "999.994", "999.995", "1000", "0.001", "-0.004")),
        ("numeric(3)", "numeric", ("1.5", "-0.5", "999.4", "999.5")),
        (
            "timestamp(2)",
            "timestamp",
            ("2026-01-31 23:59:59.994999", "2026-01-31 23:59:59.995", "1999-12-31 00:00:00.005"),
        ),
        ("timestamptz(0)", "timestamptz", ("2026-12-31 23:59:59.5+00", "0001-01-01 00:00:00.499999+00")),
    ],
)
def test_modifiers_of_types_are_applied_alike(
    sql_type: str, kind: str, values: tuple[str, ...], connection: psycopg.Connection
) -> None:
    """Lengths, scales and decimals are padded, rounded or refused by the receive function as by the input function."""
    connection.execute(sql.SQL("CREATE TABLE t (v {})").format(sql.SQL(sql_type)))  # type: ignore[arg-type]
    encoder = _encoder(kind)
    for value in values:
        rows = _encode(encoder, f"{value}\n")
        assert rows is not None
        found = []
        for options, data in (("", f"{value}\n".encode()), ("(FORMAT binary)", _HEADER + rows + b"\xff\xff")):
            try:
                with connection.cursor().copy(f"COPY t FROM STDIN {options}") as copy:
                    copy.write(data)
            except psycopg.Error as error:
                found.append([error.sqlstate])
            else:
                found.append(connection.execute("DELETE FROM t RETURNING v::text, octet_length(v::text)").fetchall())
        assert found[0] == found[1], value


def test_types_have_the_oids_and_functions_that_the_encoder_was_written_for(connection: psycopg.Connection) -> None:
    """The kinds' oids are those of pg_type; the input function is the one that the encoder's comments name."""
    rows = connection.execute(
        "SELECT oid, typname, typinput::text, typreceive::text FROM pg_type WHERE oid = ANY(%s)", [list(KINDS)]
    ).fetchall()
    texts = {1042: "bpchar", 1043: "varchar"}
    expected = set()
    for oid, kind in KINDS.items():
        name = texts.get(oid, kind)
        stem = f"{name}_" if name in ("numeric", "date", "timestamp", "timestamptz", "uuid") else name
        expected.add((oid, name, f"{stem}in", f"{stem}recv"))
    assert set(rows) == expected
