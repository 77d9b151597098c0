"""--mode sync leaves the rows that a statement by hand leaves, whatever the key, the nulls and the partitions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import sql

from support.loads import AGAIN, Loads
from support.modes import landing_tables, mode_target

if TYPE_CHECKING:
    from pathlib import Path

    from hypothesis.strategies import DrawFn

pytestmark = pytest.mark.versions

# Columns a and b, of which the key consists, v, and a column that no file has.
Row = tuple[Any, Any, Any]

EXAMPLES = settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])

_NAMES = ("a", "b", "v")

# What a person writes; a row without a key is left alone, as no record can have its key.
_MERGE = """
    MERGE INTO by_hand AS t USING records AS s ON {same}
     WHEN MATCHED THEN UPDATE SET {updates}
     WHEN NOT MATCHED BY TARGET THEN INSERT (a, b, v) VALUES (s.a, s.b, s.v)
     WHEN NOT MATCHED BY SOURCE AND {has_key} THEN DELETE
"""
_STATEMENTS = """
    UPDATE by_hand AS t SET {updates} FROM records AS s WHERE {same};
    INSERT INTO by_hand (a, b, v) SELECT s.* FROM records AS s WHERE NOT EXISTS (SELECT FROM by_hand AS t WHERE {same});
    DELETE FROM by_hand AS t WHERE {has_key} AND NOT EXISTS (SELECT FROM records AS s WHERE {same})
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """The files' records, the rows before, and the table's key."""

    files: list[list[Row]]
    existing: list[Row]
    key: list[str]
    has_equal_nulls: bool
    is_partitioned: bool
    sessions: int
    batch_bytes: int


@st.composite
def _cases(draw: DrawFn) -> Case:
    key = draw(st.sampled_from((["a"], ["a", "b"], ["b", "a"])))
    is_partitioned = draw(st.booleans())
    has_equal_nulls = draw(st.booleans())
    numbers = st.integers(0, 8)
    row = st.tuples(
        numbers if is_partitioned else st.none() | numbers,
        st.none() | st.sampled_from(["", "x", "X"]),
        st.none() | st.integers(0, 99),
    )

    def key_of(row: Row) -> object:
        values = tuple(row[_NAMES.index(name)] for name in key)
        return object() if None in values and not has_equal_nulls else values

    rows = draw(st.lists(row, max_size=20, unique_by=key_of))
    count = draw(st.integers(1, 3))
    return Case(
        files=[rows[number::count] for number in range(count)],
        existing=draw(st.lists(row, max_size=12, unique_by=key_of)),
        key=key,
        has_equal_nulls=has_equal_nulls,
        is_partitioned=is_partitioned,
        sessions=draw(st.integers(1, 3)),
        batch_bytes=draw(st.sampled_from([1, 30, 10_000])),
    )


@EXAMPLES
@given(case=_cases())
def test_sync_equals_a_statement_by_hand(database: str, tmp_path_factory: pytest.TempPathFactory, case: Case) -> None:
    """The column that no file has keeps its value or gets its default."""
    loads = Loads(database, piece_bytes=40)
    with psycopg.connect(database, autocommit=True) as connection:
        if case.has_equal_nulls and connection.info.server_version < 150000:
            return
        _prepare(connection, case)
        before = loads.count("by_hand")
        _sync_by_hand(connection, case)
    paths = _write(tmp_path_factory.mktemp("files"), case)
    job = mode_target(paths, "sync", key=case.key, max_delete=100, has_header=True, format="csv", delimiter=",")
    outcome = loads.run(job, sessions=case.sessions, batch_bytes=case.batch_bytes, rules=AGAIN)
    assert loads.rows() == loads.rows("by_hand")
    assert before + outcome.inserted - outcome.deleted == loads.count()
    assert outcome.rows == sum(map(len, case.files))
    assert landing_tables(loads) == []


def _prepare(connection: psycopg.Connection, case: Case) -> None:
    """Make both tables with the same rows, and one with the files' records."""
    nulls = " NULLS NOT DISTINCT" if case.has_equal_nulls else ""
    connection.execute("DROP TABLE IF EXISTS t, by_hand, records; CREATE TABLE records (a int, b text, v int)")
    for table in ("t", "by_hand"):
        divided = " PARTITION BY RANGE (a)" if case.is_partitioned else ""
        connection.execute(f"CREATE TABLE {table} (a int, b text, v int, d int DEFAULT 7){divided}".encode())
        if case.is_partitioned:
            connection.execute(f"CREATE TABLE {table}_1 PARTITION OF {table} FOR VALUES FROM (0) TO (4)".encode())
            connection.execute(f"CREATE TABLE {table}_2 PARTITION OF {table} DEFAULT".encode())
        connection.execute(f"CREATE UNIQUE INDEX ON {table} ({', '.join(case.key)}){nulls}".encode())
        _insert(connection, f"{table} (a, b, v, d)", [(*row, 1) for row in case.existing])
    _insert(connection, "records (a, b, v)", [row for rows in case.files for row in rows])


def _insert(connection: psycopg.Connection, into: str, rows: list[Any]) -> None:
    for row in rows:
        values = sql.SQL(", ").join(map(sql.Literal, row))
        connection.execute(sql.SQL("INSERT INTO {} VALUES ({})").format(sql.SQL(into), values))


def _sync_by_hand(connection: psycopg.Connection, case: Case) -> None:
    equals = "IS NOT DISTINCT FROM" if case.has_equal_nulls else "="
    columns = [name for name in _NAMES if name not in case.key]
    # MERGE joins by operators that can be hashed or sorted, as IS NOT DISTINCT FROM cannot.
    can_merge = connection.info.server_version >= 170000 and not case.has_equal_nulls
    statement = (_MERGE if can_merge else _STATEMENTS).format(
        same=" AND ".join(f"t.{name} {equals} s.{name}" for name in case.key),
        updates=", ".join(f"{name} = s.{name}" for name in columns),
        has_key="true" if case.has_equal_nulls else " AND ".join(f"t.{name} IS NOT NULL" for name in case.key),
    )
    connection.execute(statement.encode())


def _write(folder: Path, case: Case) -> list[Path]:
    paths = []
    for number, rows in enumerate(case.files):
        lines = (",".join("" if v is None else f'"{v}"' if isinstance(v, str) else str(v) for v in r) for r in rows)
        path = folder / f"{number}.csv"
        path.write_text("a,b,v\n" + "".join(f"{line}\n" for line in lines))
        paths.append(path)
    return paths
