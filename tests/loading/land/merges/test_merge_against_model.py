"""Merged tables hold what a model of files, keys and order says, whatever order the blocks arrived in."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.core.catalogue.catalog import find_table
from penstock.core.catalogue.staging import make_landing_table
from penstock.core.errors import DataError
from penstock.core.values.table import TableFacts, TableName
from penstock.ledger.values import MergeCounts
from penstock.loading.land.merge_errors import RecordPosition, name_by_number
from support.merging import merge

if TYPE_CHECKING:
    from collections.abc import Callable

    from hypothesis.strategies import DrawFn

    from penstock.core.connect.connection import Connection
    from penstock.core.values.job import Keep

pytestmark = pytest.mark.versions

STAGING = TableName(schema="public", name="staged")

# One session serves all examples: each works in a transaction that is rolled back.
AGAINST_SERVER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])

# Rows are dictionaries: the key's columns a and b, what the file may have besides (v, w), and a default (d).
Row = dict[str, Any]
DEFAULT = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Files as (object, block) to records, the order of arrival, the rows before, and how to merge."""

    blocks: dict[tuple[int, int], list[Row]]
    arrival: list[tuple[int, int]]
    existing: list[Row]
    columns: list[str]
    key: list[str]
    has_equal_nulls: bool
    is_partitioned: bool

    @property
    def records(self) -> list[Row]:
        """Return the records in file order."""
        return [record for position in sorted(self.blocks) for record in self.blocks[position]]

    def key_of(self, row: Row) -> tuple[Any, ...] | None:
        """Return the row's key, or None where it is no other row's."""
        values = tuple(row[name] for name in self.key)
        return None if None in values and not self.has_equal_nulls else values


@st.composite
def _cases(draw: DrawFn) -> Case:
    key = draw(st.sampled_from((["a"], ["a", "b"], ["b", "a"])))
    is_partitioned = draw(st.booleans())
    values: dict[str, st.SearchStrategy[Any]] = {
        "a": st.integers(0, 3) if is_partitioned else st.none() | st.integers(0, 3),
        "b": st.none() | st.sampled_from(["", "x", "X"]),
        "v": st.none() | st.integers(0, 99),
        "w": st.integers(0, 99),
    }
    others = draw(st.lists(st.sampled_from([name for name in values if name not in key]), unique=True))
    columns = draw(st.permutations([*key, *others]))
    record = st.fixed_dictionaries({name: values[name] for name in columns})
    place = st.tuples(st.integers(0, 2), st.sampled_from([0, 10, 9, 2**33]))
    blocks = draw(st.dictionaries(place, st.lists(record, min_size=1, max_size=4), max_size=5))
    return Case(
        blocks=blocks,
        arrival=draw(st.permutations(sorted(blocks))),
        existing=draw(st.lists(st.fixed_dictionaries({**values, "d": st.just(1)}), max_size=5)),
        columns=columns,
        key=key,
        has_equal_nulls=draw(st.booleans()),
        is_partitioned=is_partitioned,
    )


def _prepare(connection: Connection, case: Case, *, is_unique: bool = True) -> TableFacts:
    """Make table and staging table, and fill both; rows that break the key are left out of the first."""
    partitions = " PARTITION BY RANGE (a)" if case.is_partitioned else ""
    nulls = " NULLS NOT DISTINCT" if case.has_equal_nulls else ""
    connection.execute(
        f"CREATE TABLE public.t (a int, b text, v int, w int, d int DEFAULT {DEFAULT}){partitions}".encode()
    )
    if case.is_partitioned:
        connection.execute("CREATE TABLE public.t1 PARTITION OF public.t FOR VALUES FROM (0) TO (2)")
        connection.execute("CREATE TABLE public.t2 PARTITION OF public.t FOR VALUES FROM (2) TO (9)")
    if is_unique:
        connection.execute(f"CREATE UNIQUE INDEX ON public.t ({', '.join(case.key)}){nulls}".encode())
    for row in case.existing:
        connection.execute(
            "INSERT INTO public.t VALUES (%(a)s, %(b)s, %(v)s, %(w)s, %(d)s) ON CONFLICT DO NOTHING", row
        )
    target = find_table(connection, TableName(schema="public", name="t"))
    assert target is not None
    make_landing_table(
        connection, schema="public", name=STAGING.name, target=target, columns=case.columns, as_text=False
    )
    listed = ", ".join([*case.columns, "penstock_object", "penstock_block"])
    for position in case.arrival:
        with connection.cursor() as cursor, cursor.copy(f"COPY staged ({listed}) FROM STDIN".encode()) as copy:
            for record in case.blocks[position]:
                copy.write_row([*(record[name] for name in case.columns), *position])
    return target


def _rows(connection: Connection) -> list[Row]:
    names = ("a", "b", "v", "w", "d")
    return [dict(zip(names, row, strict=True)) for row in connection.execute("SELECT * FROM public.t").fetchall()]


def _multiset(rows: list[Row]) -> Counter[tuple[tuple[str, Any], ...]]:
    return Counter(tuple(sorted(row.items())) for row in rows)


def _fresh(record: Row) -> Row:
    return {"a": None, "b": None, "v": None, "w": None, "d": DEFAULT, **record}


def _choose(case: Case, records: list[Row]) -> list[Row]:
    """Return the records that count where the first of each key does."""
    seen: set[tuple[Any, ...]] = set()
    chosen = []
    for record in records:
        key = case.key_of(record)
        if key is None or key not in seen:
            chosen.append(record)
        if key is not None:
            seen.add(key)
    return chosen


def _model(case: Case, before: list[Row], records: list[Row], *, updates: bool) -> tuple[list[Row], MergeCounts]:
    """Return rows and counts after a merge of records of which the first of each key counts."""
    after = [dict(row) for row in before]
    by_key = {key: row for row in after if (key := case.key_of(row)) is not None}
    chosen = _choose(case, records)
    met = 0
    for record in chosen:
        row = by_key.get(case.key_of(record) or ())
        if row is None:
            after.append(_fresh(record))
            continue
        met += 1
        if updates:
            row.update(record)
    is_updating = updates and set(case.columns) != set(case.key)
    counts = MergeCounts(
        staged=len(records),
        duplicates=len(records) - len(chosen),
        inserted=len(chosen) - met,
        updated=met if is_updating else 0,
        existing=0 if is_updating else met,
    )
    return after, counts


def _check(
    connection: Connection,
    case: Case,
    merge: Callable[[TableFacts], MergeCounts],
    model: Callable[[list[Row]], tuple[list[Row], MergeCounts]],
) -> None:
    """Hold a merge against the model, counts and all."""
    with connection.transaction(force_rollback=True):
        target = _prepare(connection, case)
        rows, counts = model(_rows(connection))
        assert merge(target) == counts
        assert _multiset(_rows(connection)) == _multiset(rows)


def _fit(connection: Connection, case: Case) -> Case:
    """Return the case as the server can have it: NULLS NOT DISTINCT came with 15."""
    if connection.info.server_version >= 150000 or not case.has_equal_nulls:
        return case
    return replace(case, has_equal_nulls=False)


@pytest.mark.part("rest")
@AGAINST_SERVER
@given(drawn=_cases(), keep=st.sampled_from(["first", "last"]))
def test_upsert_equals_the_model(connection: Connection, drawn: Case, keep: Keep) -> None:
    """Of a key's records the first or the last counts; columns that the file lacks stay."""
    case = _fit(connection, drawn)
    records = case.records if keep == "first" else case.records[::-1]
    _check(
        connection,
        case,
        lambda target: merge(
            connection, staging=STAGING, target=target, columns=case.columns, key=case.key, updates=True, keep=keep
        ),
        lambda before: _model(case, before, records, updates=True),
    )


@AGAINST_SERVER
@given(drawn=_cases())
def test_insert_new_equals_the_model(connection: Connection, drawn: Case) -> None:
    """Rows that are there stay as they are."""
    case = _fit(connection, drawn)
    _check(
        connection,
        case,
        lambda target: merge(connection, staging=STAGING, target=target, columns=case.columns, key=case.key),
        lambda before: _model(case, before, case.records, updates=False),
    )


@pytest.mark.part("rest")
@AGAINST_SERVER
@given(drawn=_cases())
def test_duplicates_are_found_as_the_model_finds_them(connection: Connection, drawn: Case) -> None:
    """The first record with an earlier one's key, and that one; else all is merged."""
    case = _fit(connection, drawn)
    placed = [
        (record, RecordPosition(object_number=position[0], block_start=position[1], record=number))
        for position in sorted(case.blocks)
        for number, record in enumerate(case.blocks[position], 1)
    ]
    expected = None
    first: dict[tuple[Any, ...], RecordPosition] = {}
    for record, place in placed:
        key = case.key_of(record)
        if key is not None and key in first:
            expected = (first[key], place)
            break
        if key is not None:
            first[key] = place
    with connection.transaction(force_rollback=True):
        target = _prepare(connection, case)
        rows, _ = _model(case, _rows(connection), case.records, updates=True)
        found = None
        try:
            merge(
                connection,
                staging=STAGING,
                target=target,
                columns=case.columns,
                key=case.key,
                updates=True,
                keep="error",
            )
        except DataError as error:
            found = error.detail
        first_and_second = expected and "First in {}, then in {}.".format(*map(name_by_number, expected))
        assert found == first_and_second
        if expected is None:
            assert _multiset(_rows(connection)) == _multiset(rows)


@pytest.mark.part("rest")
@AGAINST_SERVER
@given(case=_cases())
def test_insert_all_equals_the_model(connection: Connection, case: Case) -> None:
    """Every record becomes a row."""
    with connection.transaction(force_rollback=True):
        target = _prepare(connection, case, is_unique=False)
        before = _rows(connection)
        count = len(case.records)
        counts = merge(connection, staging=STAGING, target=target, columns=case.columns)
        assert counts == MergeCounts(staged=count, inserted=count)
        assert _multiset(_rows(connection)) == _multiset([*before, *map(_fresh, case.records)])
