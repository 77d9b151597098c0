"""Merging: which record counts, what the table then holds, and that every record is accounted for."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from penstock.core.catalogue.staging import make_landing_table
from penstock.core.errors import DataError, TargetError
from penstock.core.values.table import TableFacts, TableName
from penstock.ledger.values import MergeCounts
from penstock.loading.land.merge import PlanCounts, check_merge, count_upserted, find_parts
from support.codes import has_code
from support.ddl import facts_of
from support.merging import merge

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.core.connect.connection import Connection
    from penstock.core.values.job import Keep

pytestmark = pytest.mark.versions

STAGING = TableName(schema="land", name="s 1")

# A record of a file: object, block, values.
Record = tuple[Any, ...]


def stage(connection: Connection, columns: Sequence[str], records: Sequence[Record]) -> TableFacts:
    """Stage records for public.t, in the order given, and return the table's facts."""
    target = facts_of(connection)
    connection.execute("CREATE SCHEMA IF NOT EXISTS land")
    make_landing_table(connection, schema="land", name=STAGING.name, target=target, columns=columns, as_text=False)
    listed = ", ".join(["penstock_object", "penstock_block", *(f'"{name}"' for name in columns)])
    with connection.cursor() as cursor, cursor.copy(f'COPY land."s 1" ({listed}) FROM STDIN'.encode()) as copy:
        for record in records:
            copy.write_row(record)
    return target


def upsert(
    connection: Connection, columns: Sequence[str], records: Sequence[Record], *, key: str = "id", keep: Keep = "last"
) -> MergeCounts:
    """Stage records and upsert them."""
    target = stage(connection, columns, records)
    return merge(
        connection, staging=STAGING, target=target, columns=columns, key=key.split(","), updates=True, keep=keep
    )


def rows(connection: Connection, columns: str = "*") -> list[tuple[Any, ...]]:
    """Return the rows of public.t, ordered."""
    return connection.execute(f"SELECT {columns} FROM public.t ORDER BY t".encode()).fetchall()


def test_rows_are_updated_or_inserted(connection: Connection) -> None:
    """Columns that the file lacks keep what they had, or get their default."""
    connection.execute("CREATE TABLE public.t (id int PRIMARY KEY, v text, n int DEFAULT 7)")
    connection.execute("INSERT INTO public.t VALUES (1, 'old', 1), (2, 'old', 2)")
    counts = upsert(connection, ["v", "id"], [(1, 0, "new", 2), (1, 0, "new", 3)])
    assert rows(connection) == [(1, "old", 1), (2, "new", 2), (3, "new", 7)]
    assert counts == MergeCounts(staged=2, inserted=1, updated=1)


# The same key in two objects and two blocks, staged out of order.
SCATTERED = [(2, 0, 1, "d"), (1, 90, 1, "c"), (1, 0, 1, "a"), (1, 0, 1, "b"), (1, 0, 2, "z")]


@pytest.mark.parametrize(("keep", "kept"), [("first", "a"), ("last", "d")])
def test_record_that_counts_is_chosen_by_file_order(connection: Connection, keep: Keep, kept: str) -> None:
    """By object, block and then the order in the block, whatever order they were sent in."""
    connection.execute("CREATE TABLE public.t (id int PRIMARY KEY, v text)")
    counts = upsert(connection, ["id", "v"], SCATTERED, keep=keep)
    assert rows(connection) == [(1, kept), (2, "z")]
    assert counts == MergeCounts(staged=5, duplicates=3, inserted=2)


def test_duplicates_are_an_error_where_they_must_not_be(connection: Connection) -> None:
    """With both places of the one met first, and nothing merged."""
    connection.execute("CREATE TABLE public.t (id int PRIMARY KEY, v text)")
    target = stage(connection, ["id", "v"], [(3, 0, 7, "x"), (3, 0, 7, "x"), *SCATTERED])
    with pytest.raises(DataError) as caught:
        merge(
            connection,
            staging=STAGING,
            target=target,
            columns=["id", "v"],
            key=["id"],
            updates=True,
            keep="error",
            name_record=lambda place: f"file{place.object_number}.csv line {place.record}",
        )
    assert caught.value.message == "key (id)=(1) is duplicated in the files"
    assert caught.value.detail == "First in file1.csv line 1, then in file1.csv line 2."
    assert rows(connection) == []


def test_without_duplicates_none_are_complained_of(connection: Connection) -> None:
    """And all is merged."""
    connection.execute("CREATE TABLE public.t (id int PRIMARY KEY, v text)")
    counts = upsert(connection, ["id", "v"], [(1, 0, 2, "b"), (1, 0, 1, "a")], keep="error")
    assert counts == MergeCounts(staged=2, inserted=2)


@pytest.mark.parametrize("keep", ["first", "error"])
def test_nulls_in_a_key_are_no_duplicates(connection: Connection, keep: Keep) -> None:
    """As the unique index has it; such records are inserted each time."""
    connection.execute("CREATE TABLE public.t (a int, b int, UNIQUE (a, b))")
    connection.execute("INSERT INTO public.t VALUES (1, NULL)")
    records = [(1, 0, 1, None), (1, 0, 1, None), (1, 0, None, None)]
    counts = upsert(connection, ["a", "b"], records, key="b,a", keep=keep)
    assert rows(connection) == [(1, None), (1, None), (1, None), (None, None)]
    assert counts == MergeCounts(staged=3, inserted=3)


@pytest.mark.pg(">= 15")
def test_equal_nulls_are_duplicates(connection: Connection) -> None:
    """Where the index says NULLS NOT DISTINCT."""
    connection.execute("CREATE TABLE public.t (a int, b int, v text, UNIQUE NULLS NOT DISTINCT (a, b))")
    connection.execute("INSERT INTO public.t VALUES (1, NULL, 'old')")
    records = [(1, 0, 1, None, "x"), (1, 0, None, None, "p"), (1, 0, 1, None, "y"), (1, 0, None, None, "q")]
    counts = upsert(connection, ["a", "b", "v"], records, key="a,b")
    assert rows(connection) == [(1, None, "y"), (None, None, "q")]
    assert counts == MergeCounts(staged=4, duplicates=2, inserted=1, updated=1)
    connection.execute('DROP TABLE land."s 1"')
    with pytest.raises(DataError, match=r"key \(a, b\)=\(1, null\)"):
        upsert(connection, ["a", "b", "v"], records, key="a,b", keep="error")


@pytest.mark.parametrize("mode", ["upsert", "insert-new"])
def test_records_that_get_their_key_from_a_trigger_are_no_duplicates(connection: Connection, mode: str) -> None:
    """The column is NOT NULL, and none of the records has a value there."""
    connection.execute("CREATE TABLE public.t (id int PRIMARY KEY, v text)")
    connection.execute(
        "CREATE SEQUENCE s; CREATE FUNCTION fill() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN NEW.id := coalesce(NEW.id, 100 + nextval('s')); RETURN NEW; END $$;"
        " CREATE TRIGGER fill BEFORE INSERT ON public.t FOR EACH ROW EXECUTE FUNCTION fill()"
    )
    records = [(1, 0, None, "a"), (1, 0, 7, "x"), (1, 0, None, "b"), (1, 0, 7, "y"), (2, 0, None, "c")]
    if mode == "upsert":
        counts = upsert(connection, ["id", "v"], records, keep="first")
    else:
        target = stage(connection, ["id", "v"], records)
        counts = merge(connection, staging=STAGING, target=target, columns=["id", "v"], key=["id"])
    assert rows(connection) == [(7, "x"), (101, "a"), (102, "b"), (103, "c")]
    assert counts == MergeCounts(staged=5, duplicates=1, inserted=4)


def test_composite_of_nulls_is_a_value(connection: Connection) -> None:
    """To an index it is not null, whatever IS NULL says of it."""
    connection.execute(
        "CREATE TYPE public.pair AS (x int, y int); CREATE TABLE public.t (id public.pair UNIQUE, v int)"
    )
    counts = upsert(connection, ["id", "v"], [(1, 0, "(,)", 1), (1, 0, "(,)", 2)])
    assert rows(connection, "v") == [(2,)]
    assert counts == MergeCounts(staged=2, duplicates=1, inserted=1)


def test_collation_of_the_index_decides(connection: Connection) -> None:
    """Not that of the column."""
    collation = "CREATE COLLATION public.ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
    try:
        connection.execute(collation)
    except psycopg.errors.FeatureNotSupported as reason:
        pytest.skip(str(reason))
    connection.execute("CREATE TABLE public.t (id text, v int)")
    connection.execute("CREATE UNIQUE INDEX ON public.t (id COLLATE public.ci)")
    counts = upsert(connection, ["id", "v"], [(1, 0, "b", 0), (1, 0, "A", 1), (1, 0, "a", 2)], keep="first")
    assert rows(connection) == [("A", 1), ("b", 0)]
    assert counts == MergeCounts(staged=3, duplicates=1, inserted=2)
    connection.execute('DROP TABLE land."s 1"')
    with pytest.raises(DataError, match=r"\(id\)=\(a\)"):
        upsert(connection, ["id", "v"], [(1, 0, "A", 1), (1, 0, "a", 2)], keep="error")


def test_operator_class_of_the_index_decides(connection: Connection) -> None:
    """Its equality may be a finer one than the type's."""
    connection.execute("CREATE TYPE public.price AS (amount numeric)")
    connection.execute("CREATE TABLE public.t (id public.price, v int)")
    connection.execute("CREATE UNIQUE INDEX ON public.t (id record_image_ops)")
    counts = upsert(connection, ["id", "v"], [(1, 0, "(1.0)", 1), (1, 0, "(1.00)", 2), (1, 0, "(1.0)", 3)])
    assert rows(connection, "v") == [(2,), (3,)] or rows(connection, "v") == [(3,), (2,)]
    assert counts == MergeCounts(staged=3, duplicates=1, inserted=2)


def test_upsert_of_key_columns_alone_inserts_what_is_new(connection: Connection) -> None:
    """There is nothing to update."""
    connection.execute("CREATE TABLE public.t (a int, b int, PRIMARY KEY (a, b)); INSERT INTO public.t VALUES (1, 1)")
    counts = upsert(connection, ["b", "a"], [(1, 0, 1, 1), (1, 0, 2, 1)], key="a,b")
    assert rows(connection) == [(1, 1), (1, 2)]
    assert counts == MergeCounts(staged=2, inserted=1, existing=1)


def test_identity_always_takes_the_files_value(connection: Connection) -> None:
    """As COPY does."""
    connection.execute(
        "CREATE TABLE public.t (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v int,"
        " twice int GENERATED ALWAYS AS (v * 2) STORED); INSERT INTO public.t (v) VALUES (1)"
    )
    counts = upsert(connection, ["id", "v"], [(1, 0, 1, 5), (1, 0, 40, 6)])
    assert rows(connection) == [(1, 5, 10), (40, 6, 12)]
    assert counts == MergeCounts(staged=2, inserted=1, updated=1)


def test_partitions_are_counted_right(connection: Connection) -> None:
    """For partitions, the system columns of a row would show nothing."""
    connection.execute(
        "CREATE TABLE public.t (id int PRIMARY KEY, v int) PARTITION BY RANGE (id);"
        " CREATE TABLE public.p1 (v int, id int NOT NULL);"
        " ALTER TABLE public.t ATTACH PARTITION public.p1 FOR VALUES FROM (0) TO (10);"
        " CREATE TABLE public.p2 PARTITION OF public.t FOR VALUES FROM (10) TO (20);"
        " INSERT INTO public.t VALUES (1, 0), (11, 0)"
    )
    counts = upsert(connection, ["id", "v"], [(1, 0, id_, id_) for id_ in (1, 2, 11, 12, 13, 13)])
    assert rows(connection) == [(id_, id_) for id_ in (1, 2, 11, 12, 13)]
    assert counts == MergeCounts(staged=6, duplicates=1, inserted=3, updated=2)


def add_trigger(connection: Connection, events: str) -> None:
    """Give public.t a trigger that keeps out rows whose v is negative."""
    connection.execute(
        "CREATE OR REPLACE FUNCTION public.keep_out() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN IF NEW.v < 0 THEN RETURN NULL; END IF; RETURN NEW; END'"
    )
    connection.execute(
        f"CREATE TRIGGER keep_out BEFORE {events} ON public.t FOR EACH ROW EXECUTE FUNCTION public.keep_out()".encode()
    )


@pytest.mark.parametrize(
    ("events", "counts"),
    [
        ("INSERT", MergeCounts(staged=4, inserted=1, updated=1, suppressed=2)),
        ("UPDATE", MergeCounts(staged=4, inserted=2, updated=1, suppressed=1)),
    ],
)
def test_rows_that_triggers_keep_out_are_counted(connection: Connection, events: str, counts: MergeCounts) -> None:
    """Those of INSERT fire before a row is found to exist."""
    connection.execute("CREATE TABLE public.t (id int PRIMARY KEY, v int); INSERT INTO public.t VALUES (1, 0), (2, 0)")
    add_trigger(connection, events)
    records = [(1, 0, 1, 1), (1, 0, 2, -1), (1, 0, 3, 3), (1, 0, 4, -4)]
    assert upsert(connection, ["id", "v"], records) == counts


def test_suppressed_rows_are_those_of_updates_without_insert_triggers() -> None:
    """No row was skipped on INSERT, so both counts are exact."""
    counted = PlanCounts(staged=10, proposed=10, conflicts=4, stored=8)
    assert count_upserted(counted, has_insert_triggers=False) == MergeCounts(
        staged=10, inserted=6, updated=2, suppressed=2
    )


def test_insert_new_leaves_rows_as_they_are(connection: Connection) -> None:
    """The first of duplicates in the files is inserted.

    Rows skipped by triggers and existing rows are counted separately.
    """
    connection.execute("CREATE TABLE public.t (id int PRIMARY KEY, v int); INSERT INTO public.t VALUES (1, 0)")
    add_trigger(connection, "INSERT")
    columns = ["id", "v"]
    target = stage(connection, columns, [(2, 0, 2, 8), (1, 9, 2, 7), (1, 0, 1, 1), (1, 0, 3, -1), (1, 0, 4, 4)])
    counts = merge(connection, staging=STAGING, target=target, columns=columns, key=["id"])
    assert rows(connection) == [(1, 0), (2, 7), (4, 4)]
    assert counts == MergeCounts(staged=5, duplicates=1, inserted=2, existing=1, suppressed=1)


def test_all_are_inserted_in_file_order(connection: Connection) -> None:
    """A serial column shows it."""
    connection.execute("CREATE TABLE public.t (n serial, v text)")
    target = stage(connection, ["v"], [(2, 0, "d"), (1, 9, "c"), (1, 0, "a"), (1, 0, "b")])
    assert merge(connection, staging=STAGING, target=target, columns=["v"]) == MergeCounts(staged=4, inserted=4)
    assert rows(connection) == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]


def test_rows_that_insert_all_loses_to_triggers_are_counted(connection: Connection) -> None:
    """The staging table knows how many there were."""
    connection.execute("CREATE TABLE public.t (v int)")
    add_trigger(connection, "INSERT")
    target = stage(connection, ["v"], [(1, 0, 1), (1, 0, -1)])
    counts = merge(connection, staging=STAGING, target=target, columns=["v"])
    assert counts == MergeCounts(staged=2, inserted=1, suppressed=1)


def test_null_that_the_table_refuses_is_found_in_the_files(connection: Connection) -> None:
    """The caller's transaction goes on."""
    connection.execute("CREATE TABLE public.t (id int PRIMARY KEY, v int NOT NULL)")
    records = [(2, 0, 9, None), (1, 5, 1, 1), (1, 5, 2, None)]
    with connection.transaction():
        with pytest.raises(DataError) as caught:
            upsert(connection, ["id", "v"], records)
        assert rows(connection) == []
    assert "One such record: object 1, record 2 from byte 5 on." in (caught.value.detail or "")
    assert caught.value.sqlstate == "23502"


def test_column_that_the_file_lacks_needs_a_default(connection: Connection) -> None:
    """Even where all rows exist: the hint says why."""
    connection.execute("CREATE TABLE public.t (id int PRIMARY KEY, v int, w int NOT NULL)")
    connection.execute("INSERT INTO public.t VALUES (1, 1, 1)")
    with pytest.raises(DataError) as caught:
        upsert(connection, ["id", "v"], [(1, 0, 1, 2)])
    assert "before it looks for a row with the key" in (caught.value.hint or "")


def test_other_unique_index_is_named(connection: Connection) -> None:
    """The key's own cannot stand in the way."""
    connection.execute("CREATE TABLE public.t (id int PRIMARY KEY, v int CONSTRAINT only_one UNIQUE)")
    connection.execute("INSERT INTO public.t VALUES (1, 1)")
    with pytest.raises(DataError) as caught:
        upsert(connection, ["id", "v"], [(1, 0, 2, 1)])
    assert '"only_one"' in (caught.value.hint or "")


@pytest.mark.parametrize(
    "constraint", ["CHECK (v + id > 0)", "CHECK (v > -5)", "REFERENCES public.other (w) DEFERRABLE"]
)
@pytest.mark.parametrize("partition", ["", " PARTITION BY LIST (id)"])
def test_record_that_breaks_a_constraint_is_found(connection: Connection, constraint: str, partition: str) -> None:
    """The table itself says which."""
    connection.execute("CREATE TABLE public.other (w int PRIMARY KEY); INSERT INTO public.other VALUES (1)")
    connection.execute(f"CREATE TABLE public.t (id int PRIMARY KEY, v int {constraint}){partition}".encode())
    if partition:
        connection.execute("CREATE TABLE public.p PARTITION OF public.t DEFAULT")
    with pytest.raises(DataError) as caught:
        upsert(connection, ["id", "v"], [(2, 0, 1, -9), (1, 7, 2, None), (1, 7, 3, 1), (1, 7, 4, -5)])
    assert "One such record: object 1, record 3 from byte 7 on." in (caught.value.detail or "")


@pytest.mark.parametrize("constraint", ["CHECK (v < d)", "REFERENCES public.t (id)"])
def test_record_is_found_by_what_the_table_says(connection: Connection, constraint: str) -> None:
    """Other columns, or the other records, have a say."""
    connection.execute(f"CREATE TABLE public.t (id int PRIMARY KEY, v int {constraint}, d int DEFAULT 3)".encode())
    with pytest.raises(DataError) as caught:
        upsert(connection, ["id", "v"], [(1, 0, 1, 2), (1, 0, 2, 2), (1, 7, 3, 5)])
    assert "One such record: object 1, record 1 from byte 7 on." in (caught.value.detail or "")


def test_failing_search_does_not_hide_the_error(connection: Connection, user_connection: Connection) -> None:
    """The role may not read the table that it must refer to."""
    user = user_connection.info.user.replace('"', '""')
    connection.execute(
        f"CREATE TABLE public.other (w int PRIMARY KEY);"
        f" CREATE TABLE public.t (id int PRIMARY KEY, v int REFERENCES public.other);"
        f' GRANT ALL ON public.t TO "{user}"; CREATE SCHEMA land; GRANT ALL ON SCHEMA land TO "{user}"'.encode()
    )
    target = facts_of(user_connection)
    columns = ["id", "v"]
    make_landing_table(user_connection, schema="land", name=STAGING.name, target=target, columns=columns, as_text=False)
    user_connection.execute('INSERT INTO land."s 1" (id, v, penstock_object, penstock_block) VALUES (1, 5, 1, 0)')
    with pytest.raises(DataError, match="violates foreign key constraint"):
        merge(user_connection, staging=STAGING, target=target, columns=columns)


def test_row_level_security_lets_in_what_its_policies_do(connection: Connection, user_connection: Connection) -> None:
    """By INSERT, since COPY refuses such a table."""
    user = user_connection.info.user.replace('"', '""')
    connection.execute(
        f"CREATE TABLE public.t (v int); ALTER TABLE public.t ENABLE ROW LEVEL SECURITY;"
        f" CREATE POLICY small ON public.t FOR INSERT WITH CHECK (v < 10);"
        f' GRANT INSERT ON public.t TO "{user}"; CREATE SCHEMA land; GRANT ALL ON SCHEMA land TO "{user}"'.encode()
    )
    target = facts_of(user_connection)
    assert target.row_security_applies
    make_landing_table(user_connection, schema="land", name=STAGING.name, target=target, columns=["v"], as_text=False)
    put = b'INSERT INTO land."s 1" (v, penstock_object, penstock_block) VALUES (%s, 1, 0)'
    user_connection.execute(put, [5])
    counts = merge(user_connection, staging=STAGING, target=target, columns=["v"])
    assert counts == MergeCounts(staged=1, inserted=1)
    user_connection.execute(put, [50])
    with pytest.raises(TargetError, check=has_code("42501")):
        merge(user_connection, staging=STAGING, target=target, columns=["v"])
    assert rows(connection) == [(5,)]


def test_upsert_under_policies_is_counted_right(connection: Connection, user_connection: Connection) -> None:
    """Their subqueries stand in the same plan."""
    user = user_connection.info.user.replace('"', '""')
    connection.execute(
        f"CREATE TABLE public.allowed (id int); INSERT INTO public.allowed VALUES (1), (2), (3);"
        f" CREATE TABLE public.t (id int PRIMARY KEY, v int); INSERT INTO public.t VALUES (1, 0);"
        f" ALTER TABLE public.t ENABLE ROW LEVEL SECURITY;"
        f" CREATE POLICY those ON public.t USING (id IN (SELECT id FROM public.allowed) AND (SELECT true));"
        f' GRANT SELECT ON public.allowed TO "{user}"; GRANT SELECT, INSERT, UPDATE ON public.t TO "{user}";'
        f' CREATE SCHEMA land; GRANT ALL ON SCHEMA land TO "{user}"'.encode()
    )
    target = facts_of(user_connection)
    columns = ["id", "v"]
    make_landing_table(user_connection, schema="land", name=STAGING.name, target=target, columns=columns, as_text=False)
    user_connection.execute(
        'INSERT INTO land."s 1" (id, v, penstock_object, penstock_block)'
        " VALUES (1, 5, 1, 0), (2, 6, 1, 0), (2, 7, 1, 0)"
    )
    counts = merge(
        user_connection, staging=STAGING, target=target, columns=columns, key=["id"], updates=True, keep="last"
    )
    assert counts == MergeCounts(staged=3, duplicates=1, inserted=1, updated=1)
    assert rows(connection) == [(1, 5), (2, 7)]


@pytest.mark.parametrize(("key", "updates"), [(["id"], True), (["id"], False), ([], False)])
def test_what_the_server_would_refuse_shows_before_the_load(
    connection: Connection, key: Sequence[str], updates: bool
) -> None:
    """ON CONFLICT is not for tables with rules, INSERT alone is."""
    connection.execute("CREATE TABLE public.t (id int PRIMARY KEY, v int)")
    target = stage(connection, ["id", "v"], [(1, 0, 1, 1)])
    parts = find_parts(
        connection, staging=STAGING, target=target, columns=["id", "v"], key=key, updates=updates, keep="error"
    )
    check_merge(connection, parts)
    assert rows(connection) == []
    connection.execute("CREATE RULE r AS ON UPDATE TO public.t DO ALSO NOTIFY changed")
    if not key:
        check_merge(connection, parts)
        return
    with pytest.raises(TargetError, match="rules"):
        check_merge(connection, parts)


def test_row_of_another_session_is_counted_as_met(connection: Connection, database: str) -> None:
    """The row did not exist when the merge began, so no query beforehand could have found it."""
    connection.execute("CREATE TABLE public.t (id int PRIMARY KEY, v int)")
    columns = ["id", "v"]
    target = stage(connection, columns, [(1, 0, 1, 1), (1, 0, 2, 2)])
    with (
        psycopg.connect(database) as other,
        psycopg.connect(database, autocommit=True) as merging,
        ThreadPoolExecutor(1) as pool,
    ):
        other.execute("INSERT INTO public.t VALUES (1, 0)")
        result = pool.submit(
            merge, merging, staging=STAGING, target=target, columns=columns, key=["id"], updates=True, keep="last"
        )
        is_blocked = "SELECT pg_catalog.pg_blocking_pids(%s) <> '{}'"
        while connection.execute(is_blocked, [merging.info.backend_pid]).fetchone() == (False,):
            assert not result.done()
            time.sleep(0.01)
        other.commit()
        assert result.result() == MergeCounts(staged=2, inserted=1, updated=1)
    assert rows(connection) == [(1, 1), (2, 2)]
