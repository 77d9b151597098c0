"""COPY's binary format stores the same rows as text, whatever the values, and is used whenever it can be."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from loading.formats.columnar.kinds import ARROW_ONLY, KINDS, TEXT_ONLY, make_array, make_values, random_text
from penstock.core.values.job import LoadRules
from penstock.loading.files.columnar.reader import ColumnarFile
from support.loads import Loads, target

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator
    from pathlib import Path

# With rejects, rows are sent as text.
_AS_TEXT = LoadRules(on_error="reject", retry_for=0.0, again=True)

# Besides the types that --create chooses: what a table may have instead.
_OTHERS: dict[str, list[str]] = {
    "int8": ["integer", "bigint", "numeric", "numeric(10,2)"],
    "uint8": ["integer", "bigint", "numeric"],
    "int16": ["integer", "bigint"],
    "uint16": ["bigint", "numeric(7,1)"],
    "int32": ["bigint", "numeric"],
    "uint32": ["numeric"],
    "int64": ["numeric(25,3)", "numeric"],
    "uint64": ["numeric"],
    "decimal32": ["numeric"],
    "decimal128": ["numeric", "numeric(80,40)"],
    "string": ["character varying", "character varying(400)", "character(400)"],
    "dictionary": ["character varying"],
    "json": ["json", "text"],
    "timestamp_us": ["timestamp(6) without time zone"],
    "timestamptz_us": ["timestamp(6) with time zone"],
    "time_us": ["time(6) without time zone"],
}


@pytest.fixture
def loads(ledger18: str) -> Loads:
    """Provide loads into a database with nothing but a ledger."""
    return Loads(ledger18)


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Provide the number of rows of each block that was written in the binary format."""
    counts: list[int] = []
    read = ColumnarFile.read

    def note(opened: ColumnarFile, *args: Any, is_binary: bool, **options: Any) -> Iterator[Any]:
        for rows in read(opened, *args, is_binary=is_binary, **options):
            counts.extend([rows.end - rows.start] * is_binary)
            yield rows

    monkeypatch.setattr(ColumnarFile, "read", note)
    yield counts


def _assert_same(loads: Loads, one: str, other: str) -> None:
    names = [
        name
        for (name,) in loads.execute(
            f"SELECT attname FROM pg_attribute WHERE attrelid = '{one}'::regclass AND attnum > 0 ORDER BY attnum"
        )
    ]
    listed = ", ".join(f'"{name}"' for name in names)
    for first, second in ((one, other), (other, one)):
        assert loads.execute(f"SELECT {listed} FROM {first} EXCEPT ALL SELECT {listed} FROM {second}") == []


def _load_both(loads: Loads, path: Path, definition: str) -> None:
    for table in ("b", "t"):
        loads.execute(f"CREATE TABLE {table} ({definition})")
    loads.run(target(path, into="b"))
    loads.run(target(path, into="t"), rules=_AS_TEXT)
    assert loads.execute("SELECT count(*) FROM penstock.rejects") == [(0,)]


@pytest.mark.parametrize(
    ("type_name", "kind"),
    [
        ("numeric(9,1)", pa.decimal128(9, 2)),
        ("timestamp(3)", pa.timestamp("us")),
        ("timestamptz(1)", pa.timestamp("ms", tz="UTC")),
        ("time(2)", pa.time64("us")),
    ],
)
def test_columns_that_may_round_are_sent_as_text(
    loads: Loads, written: list[int], write_parquet: Callable[..., Path], type_name: str, kind: Any
) -> None:
    """Their values are looked through for what is rounded."""
    loads.execute(f"CREATE TABLE t (a {type_name})")
    assert loads.run(target(write_parquet(pa.table({"a": pa.nulls(3, kind)})), into="t")).rows == 3
    assert written == []


@pytest.mark.part("rest")
@pytest.mark.parametrize("file_format", ["parquet", "arrow"])
def test_random_tables_are_the_same_as_by_text(
    loads: Loads,
    rng: random.Random,
    written: list[int],
    write_parquet: Callable[..., Path],
    write_arrow: Callable[..., Path],
    file_format: str,
) -> None:
    """Each type into each type of column that can be sent so, with nulls, in slices that begin anywhere."""
    kinds = [name for name in KINDS if name not in TEXT_ONLY and (file_format == "arrow" or name not in ARROW_ONLY)]
    arrays, definitions = {}, []
    for name in kinds:
        values = make_array(make_values(name, rng, 2_000), name)
        for number, type_name in enumerate([KINDS[name][2], *_OTHERS.get(name, [])]):
            arrays[f"{name}_{number}"] = values
            definitions.append(f"{name}_{number} {type_name}")
    table = pa.table(arrays)
    path = write_parquet(table, row_group_size=707) if file_format == "parquet" else write_arrow(table, rows=707)
    _load_both(loads, path, ", ".join(definitions))
    assert sum(written) == 2_000
    # There is no equality of json.
    loads.execute("ALTER TABLE b ALTER json_1 TYPE text; ALTER TABLE t ALTER json_1 TYPE text")
    _assert_same(loads, "b", "t")


def test_numerics_are_the_same_as_by_text(
    loads: Loads, rng: random.Random, written: list[int], write_parquet: Callable[..., Path]
) -> None:
    """Every scale and length, zeros at either end, and their display scale."""
    arrays = {}
    for scale in range(39):
        values = [
            Decimal(
                rng.choice([-1, 1]) * int(rng.choice("123456789") + "0" * rng.randrange(digits)) + rng.randrange(2)
            ).scaleb(-scale)
            for digits in (rng.randrange(1, 38) for _ in range(50))
        ]
        arrays[f"s{scale}"] = pa.array([*values, Decimal(0), None], pa.decimal128(38, scale))
    path = write_parquet(arrays)
    _load_both(loads, path, ", ".join(f"{name} numeric" for name in arrays))
    assert sum(written) == 52
    texts = ", ".join(f"{name}::text" for name in arrays)
    assert loads.execute(f"SELECT {texts} FROM b EXCEPT ALL SELECT {texts} FROM t") == []


def test_nested_values_are_the_same_as_by_text(
    loads: Loads, rng: random.Random, written: list[int], write_parquet: Callable[..., Path]
) -> None:
    """Structs and maps fill jsonb in either format."""
    structs = [None if rng.random() < 0.1 else {"a": rng.random(), "b": [random_text(rng)]} for _ in range(500)]
    path = write_parquet({"s": pa.array(structs), "l": [[n] * (n % 3) for n in range(500)]}, row_group_size=100)
    _load_both(loads, path, "s jsonb, l jsonb")
    assert sum(written) == 500
    _assert_same(loads, "b", "t")


@pytest.mark.parametrize(
    ("column", "type_name"),
    [
        (pa.array([0.1], pa.float32()), "double precision"),
        (pa.array([0.1]), "real"),
        (pa.array([1.0]), "numeric"),
        (pa.array(["1"]), "integer"),
        (pa.array([1]), "text"),
        (pa.array([0], pa.timestamp("us")), "timestamp with time zone"),
        (pa.array([0], pa.timestamp("us", "UTC")), "timestamp without time zone"),
        (pa.array([[1]]), "integer[]"),
        (pa.array([Decimal("1e70")], pa.decimal256(76, 0)), "numeric"),
        (pa.array([1]), "small"),
        (pa.array([2**64 - 1], pa.uint64()), "numeric"),
    ],
    ids=str,
)
def test_other_types_are_sent_as_text(
    loads: Loads, written: list[int], write_parquet: Callable[..., Path], column: pa.Array, type_name: str
) -> None:
    """Where a conversion of the server's decides what is stored, or the type is a domain."""
    loads.execute(f"CREATE DOMAIN small AS smallint; CREATE TABLE t (a {type_name})")
    assert loads.run(target(write_parquet({"a": column}))).rows == 1
    assert bool(written) == (pa.types.is_uint64(column.type))


@pytest.mark.part("rest")
def test_no_infinity_is_made_of_a_number(loads: Loads, written: list[int], write_arrow: Callable[..., Path]) -> None:
    """The largest and least counts of a date or timestamp are PostgreSQL's infinities."""
    loads.execute("CREATE TABLE t (d date, s timestamp)")
    stamp = -(2**63) + 10_957 * 86_400 * 10**6
    for day, count in ((-(2**31) + 10_957, 0), (0, stamp), (0, -(2**63)), (2**31 - 1, 0)):
        table = {
            "d": pa.array([day], pa.int32()).view(pa.date32()),
            "s": pa.array([count], pa.int64()).view(pa.timestamp("us")),
        }
        error = loads.refuse(target(write_arrow(table)))
        assert error.message.startswith("the value is out of range for type")
