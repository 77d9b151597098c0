"""Columns of domains: their values are read as those of the base type."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.core.catalogue.catalog import find_table
from penstock.core.connect.connection import ConnectionFactory
from penstock.core.errors import DataError, UsageError
from penstock.core.values.dialect import DialectOptions
from penstock.core.values.names import parse_table_name
from support.typed import make_target, types_of

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.core.values.job import TargetJob
    from support.loads import Loads

Write = Any

_DOMAINS = """
    CREATE DOMAIN amount AS numeric(10,2) CHECK (VALUE >= 0);
    CREATE DOMAIN price AS amount NOT NULL;
    CREATE DOMAIN day AS date;
    CREATE DOMAIN size AS int;
    CREATE DOMAIN sizes AS size[];
    CREATE DOMAIN words AS text;
    CREATE DOMAIN document AS jsonb;
    CREATE DOMAIN wage AS money;
"""


@pytest.fixture
def loads(loads: Loads) -> Loads:
    """Provide loads into a database with domains."""
    loads.execute(_DOMAINS)
    return loads


def _target(*paths: Path, options: dict[str, Any] | None = None, **job: Any) -> TargetJob:
    return make_target(*paths, dialect=DialectOptions(**options or {}), **({"create": False, "types": "text"} | job))


_ALL = {"decimal_comma": "*", "thousands": ".", "date_order": "dmy"}


@pytest.mark.parametrize("on", ["t", "part"])
def test_notations_of_all_columns_are_those_of_domains(loads: Loads, write: Write, on: str) -> None:
    """Of domains over domains and of a partition's columns, too."""
    loads.execute("""
        CREATE TABLE t (n numeric, x price, y amount, d date, e day) PARTITION BY LIST (d);
        CREATE TABLE part PARTITION OF t DEFAULT
    """)
    loads.run(_target(write("n;x;y;d;e\n1.234;1.234;1.234,5;01/02/2026;01/02/2026\n"), options=_ALL, into=on))
    thousand, day = Decimal("1234.00"), date(2026, 2, 1)
    assert loads.rows() == [(Decimal(1234), thousand, Decimal("1234.50"), day, day)]


def test_a_table_of_domains_has_types(loads: Loads, write: Write) -> None:
    """An option for all columns applies to it, and where it does not, nothing is said of types that are inferred."""
    loads.execute("CREATE TABLE t (x price); CREATE TABLE u (w words)")
    loads.run(_target(write('x\n"1,5"\n'), options={"decimal_comma": "*"}))
    assert loads.rows() == [(Decimal("1.50"),)]
    with pytest.raises(UsageError, match=r"has a type of numbers\n") as caught:
        loads.run(_target(write("w\nx\n", "u.csv"), options={"decimal_comma": "*"}, into="u"))
    assert "inferred" not in (caught.value.hint or "")


@pytest.mark.parametrize("type_name", ["money", "wage", "numeric(9,2)[]", "sizes", "amount[]", "numrange"])
def test_columns_that_are_not_written_again_are_refused_by_name_and_else_named(
    loads: Loads, write: Write, type_name: str
) -> None:
    """What money, arrays and ranges read depends on the server's rules and settings, so no notation is promised."""
    loads.execute(f"CREATE TABLE t (n numeric, v {type_name})")
    path = write("n;v\n1,5;\n")
    with pytest.raises(UsageError, match=r'--decimal-comma cannot be used with column "v" of type'):
        loads.run(_target(path, options={"decimal_comma": "v"}))
    loads.run(_target(path, options={"decimal_comma": "*", "thousands": "n=."}))
    assert [each.message.split(",")[0] for each in loads.warnings] == [
        '--decimal-comma leave out column "v" of table "public.t"'
    ]


def test_dates_in_arrays_are_named(loads: Loads, write: Write) -> None:
    """An order for all columns does not reach them."""
    loads.execute("CREATE TABLE t (d date, e day[])")
    loads.run(_target(write("d;e\n01.02.2026;{01.02.2026}\n"), options={"date_order": "dmy"}))
    assert ['column "e"' in each.message for each in loads.warnings if each.code == "notation"] == [True]


@pytest.mark.parametrize(
    ("type_name", "value"), [("amount", "1.005"), ("price", "007"), ("day", "2026-01-02 10:00"), ("size", "007")]
)
def test_what_a_domain_changes_is_a_warning(loads: Loads, write: Write, type_name: str, value: str) -> None:
    """The hint gives no statement that would drop the domain's constraints."""
    loads.execute(f"CREATE TABLE t (a {type_name})")
    (notice,) = loads.run(_target(write(f"a\n{value}\n"))).warnings
    assert notice.code == "value-changed"
    assert "ALTER" not in (notice.hint or "")


def test_the_order_of_dates_in_a_domain_is_unclear(loads: Loads, write: Write) -> None:
    """As it is in the base type."""
    loads.execute("CREATE TABLE t (d day)")
    assert [each.code for each in loads.run(_target(write("d\n01/02/2026\n"))).warnings] == ["unclear-date"]


def test_a_plan_names_the_notation_of_values_for_a_domain(loads: Loads, write: Write) -> None:
    """So does the error of the load."""
    loads.execute("CREATE TABLE t (x price)")
    error = loads.refuse(_target(write('x;y\n"1.234,50";\n'), skip=("y",)))
    assert loads.warnings[0].code == "notation"
    assert "--decimal-comma x --thousands x=." in (error.hint or "")


def test_widen_alters_no_column_of_a_domain(loads: Loads, write: Write) -> None:
    """Its constraints would be gone."""
    loads.execute("CREATE TABLE t (a size, b int)")
    with pytest.raises(DataError, match="out of range") as caught:
        loads.run(_target(write("a,b\n3000000000,3000000000\n"), types="widen"))
    assert "ALTER" not in (caught.value.hint or "")
    assert types_of(loads)[0] == "size"


def test_columns_of_files_fill_domains_as_their_base_types(loads: Loads, tmp_path: Path) -> None:
    """Whole numbers of doubles, bytes that are text, lists as JSON or as arrays."""
    columns = {
        "a": pa.array([5.0]),
        "b": pa.array([[1.0, 2.0]]),
        "c": pa.array([b"x"]),
        "d": pa.array([[1, 2]]),
        "e": pa.array([[3.0]]),
    }
    pq.write_table(pa.table(columns), tmp_path / "f.parquet")
    loads.execute("CREATE TABLE t (a size, b sizes, c words, d document, e size[])")
    loads.run(_target(tmp_path / "f.parquet"))
    assert loads.execute("SELECT a, b::int[], c, d, e::int[] FROM t") == [(5, [1, 2], "x", [1, 2], [3])]


@pytest.mark.parametrize(
    ("type_name", "base"),
    [
        ("int", ("integer", 23, -1)),
        ("price", ("numeric(10,2)", 1700, 10 << 16 | 2 + 4)),
        ("sizes", ("integer[]", 1007, -1)),
        ("price[]", ("numeric(10,2)[]", 1231, 10 << 16 | 2 + 4)),
        ("varchar(3)[][]", ("character varying(3)[]", 1015, 3 + 4)),
        ("int2vector", ("int2vector", 22, -1)),
    ],
)
def test_the_catalogue_gives_the_base_type(loads: Loads, type_name: str, base: tuple[str, int, int]) -> None:
    """Below domains over domains, in arrays and of arrays."""
    loads.execute(f"CREATE TABLE t (a {type_name})")
    with ConnectionFactory(loads.conninfo).connect() as connection:
        facts = find_table(connection, parse_table_name("t"))
    assert facts is not None
    found = facts.columns[0].base
    assert (found.name, found.oid, found.modifier) == base
