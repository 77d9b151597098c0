"""The user's own statement: one, about the staging table, with errors placed in its file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.core.catalogue.catalog import find_table
from penstock.core.catalogue.staging import make_landing_table
from penstock.core.errors import DataError, TargetError, UsageError
from penstock.core.values.job import Transform
from penstock.core.values.table import TableName
from penstock.loading.land.merge import check_transform, locate_character, place_table, run_transform, to_original

if TYPE_CHECKING:
    from penstock.core.connect.connection import Connection

pytestmark = pytest.mark.versions

STAGING = TableName(schema="land", name='s "1"')

LAST_OF_EACH = """
-- The last record of each id; :staging is the files' records
INSERT INTO public.t AS old (id, v)
SELECT DISTINCT ON (id) id::int, nullif(v, 'none')::numeric
  FROM :staging AS s /* :staging, /* and again */ :staging */
 WHERE id <> ':staging'
 ORDER BY id, penstock_object DESC, penstock_block DESC, penstock_seq DESC
ON CONFLICT (id) DO UPDATE SET v = EXCLUDED.v WHERE old.v IS DISTINCT FROM EXCLUDED.v; -- done
"""


@pytest.fixture
def staged(connection: Connection) -> Connection:
    """Provide a connection to where five records of (id, v) are staged as text, for table public.t."""
    connection.execute("CREATE TABLE public.t (id int PRIMARY KEY, v numeric); CREATE SCHEMA land")
    target = find_table(connection, TableName(schema="public", name="t"))
    assert target is not None
    make_landing_table(connection, schema="land", name=STAGING.name, target=target, columns=["id", "v"], as_text=True)
    connection.execute(
        'INSERT INTO land."s ""1""" (id, v, penstock_object, penstock_block)'
        " VALUES ('1', '1.5', 2, 0), ('1', '2.5', 1, 0), ('2', 'none', 1, 0), ('3', '7', 1, 9), ('3', '8', 1, 0)"
    )
    return connection


def run(connection: Connection, text: str) -> int:
    """Run a statement that stands in up.sql; return the number of rows in its command tag."""
    return run_transform(connection, Transform(name="up.sql", text=text), staging=STAGING).rows


def test_statement_refines_and_merges(staged: Connection) -> None:
    """The placeholder stands for the table where SQL would have a name, and nowhere else."""
    assert run(staged, LAST_OF_EACH) == 3
    assert staged.execute("SELECT id, v::text FROM public.t ORDER BY id").fetchall() == [
        (1, "1.5"),
        (2, None),
        (3, "7"),
    ]
    assert run(staged, LAST_OF_EACH) == 0


@pytest.mark.pg(">= 15")
def test_merge_may_do_the_work(staged: Connection) -> None:
    """It reports its rows as INSERT does."""
    text = (
        "MERGE INTO public.t USING (SELECT DISTINCT id::int FROM :staging) AS s ON t.id = s.id"
        " WHEN NOT MATCHED THEN INSERT VALUES (s.id)"
    )
    assert run(staged, text) == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("INSERT INTO public.t SELECT 1", "up.sql does not use :staging"),
        ("INSERT INTO public.t SELECT 1 -- :staging", "up.sql does not use :staging"),
        ("SELECT FROM :staging", "is neither an INSERT nor a MERGE"),
        ("DELETE FROM :staging", "is neither an INSERT nor a MERGE"),
        (
            "WITH w AS (INSERT INTO public.t SELECT 9 RETURNING 1) SELECT FROM w, :staging",
            "is neither an INSERT nor a MERGE",
        ),
        ("COMMIT; INSERT INTO public.t SELECT 1 FROM :staging", "syntax error"),
        ("INSERT INTO public.t SELECT 1 FROM :staging; DROP TABLE :staging", "cannot insert multiple commands"),
        ("TRUNCATE :staging", "syntax error"),
        ("COMMIT /**/ AND CHAIN :staging", "syntax error"),
    ],
)
def test_what_is_not_one_insert_is_refused(staged: Connection, text: str, message: str) -> None:
    """Unseen by the caller's transaction."""
    with staged.transaction(force_rollback=True):
        staged.execute("SAVEPOINT s")
        with pytest.raises(UsageError, match=message):
            run(staged, text)
        staged.execute("ROLLBACK TO s")
        assert staged.execute("SELECT count(*) FROM public.t").fetchone() == (0,)


@pytest.mark.parametrize(
    ("text", "error_class", "place"),
    [
        ("-- é\nINSERT INTO public.t\n  SELEC 1 FROM :staging", UsageError, "line 3, column 3"),
        ("INSERT INTO public.t\nSELECT nix FROM :staging", TargetError, "line 2, column 8"),
        (
            "INSERT INTO public.t SELECT 1 FROM :staging AS a, :staging AS b\n WHERE c = 1",
            TargetError,
            "line 2, column 8",
        ),
        ("INSERT INTO public.t SELECT :staging.x FROM :staging AS s", TargetError, "line 1, column 29"),
        ("INSERT INTO public.t SELECT 'x'::int FROM :staging", DataError, "line 1, column 29"),
    ],
)
def test_errors_have_a_place_in_the_file(
    staged: Connection, text: str, error_class: type[UsageError], place: str
) -> None:
    """As the user counts, without what was put in."""
    with pytest.raises(error_class) as caught:
        check_transform(staged, Transform(name="up.sql", text=text), staging=STAGING)
    assert (caught.value.detail or "").startswith(f"up.sql {place}.\n")


def test_error_of_a_record_names_the_file(staged: Connection) -> None:
    """The server knows no place for it."""
    with pytest.raises(DataError, match="invalid input syntax for type integer") as caught:
        run(staged, "INSERT INTO public.t SELECT v::int FROM :staging")
    assert (caught.value.detail or "").startswith("up.sql.\n")


def test_check_changes_nothing(staged: Connection) -> None:
    """It is for the load's beginning."""
    check_transform(staged, Transform(name="up.sql", text=LAST_OF_EACH), staging=STAGING)
    assert staged.execute("SELECT count(*) FROM public.t").fetchone() == (0,)


@pytest.mark.parametrize(
    "text",
    [
        "a::staging",
        "':staging'",
        "''':staging'",
        "E'\\':staging'",
        '":staging"":staging"',
        "$$:staging$$",
        "$a$ $$ :staging $a$",
        "-- :staging",
        "/* /* */ :staging */",
        "/* :staging",
        ":staging_2",
    ],
)
def test_placeholder_is_no_part_of_something_else(text: str) -> None:
    """Strings, names, comments and casts keep what they have."""
    assert place_table(text, "T") == (text, [])


def test_placeholder_behind_tricky_tokens_is_found() -> None:
    """What looks like a string may have ended."""
    text = "'\\' :staging e'\\\\' a$b$:staging; -- '\n:staging,a[1:staging]"
    placed, found = place_table(text, "T")
    assert placed == text.replace(":staging", "T")
    assert len(found) == 4


@pytest.mark.parametrize("table", ["T", '"a long schema"."and table"'])
def test_places_lead_back_to_the_file(table: str) -> None:
    """Every character outside of the names put in, however long these are."""
    text = "SELECT a\nFROM :staging x,\n :staging y\nWHERE b"
    placed, found = place_table(text, table)
    for word in ("a\n", " x", " y", "WHERE b"):
        original = to_original(placed.index(word), table=table, found=found)
        assert original == text.index(word)
    assert locate_character(text, to_original(placed.rindex(table), table=table, found=found)) == (3, 2)
