"""SQLSTATEs as penstock's errors, and COPY's CONTEXT in the languages of PostgreSQL."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import psycopg
import pytest

from penstock.core.connect.errors import (
    CopyContext,
    choose_class,
    hint_for,
    in_pipeline,
    parse_copy_context,
    read_report,
    translate_errors,
)
from penstock.core.errors import DataError, PenstockError, ServerError, TargetError

if TYPE_CHECKING:
    from penstock.core.connect.connection import Connection

pytestmark = pytest.mark.versions


@pytest.mark.parametrize(
    ("sqlstate", "error_class"),
    [
        ("22001", DataError),
        ("22P02", DataError),
        ("22P04", DataError),
        ("23505", DataError),
        ("22023", ServerError),
        ("42P01", TargetError),
        ("42703", TargetError),
        ("42501", TargetError),
        ("3F000", TargetError),
        ("0A000", TargetError),
        ("53100", ServerError),
        ("57P01", ServerError),
        ("08006", ServerError),
        ("28P01", ServerError),
        ("3D000", ServerError),
        (None, ServerError),
    ],
)
def test_sqlstate_decides_the_class(sqlstate: str | None, error_class: type[PenstockError]) -> None:
    """Data, target or server: each has its exit code."""
    assert choose_class(sqlstate) is error_class


def test_hint_for_a_code_goes_before_its_class() -> None:
    """53100 has a hint of its own; any 57P code has its class's; a syntax error of ours has none."""
    assert "volume" in (hint_for("53100") or "")
    assert "stopping" in (hint_for("57P02") or "")
    assert hint_for("42601") is None


def test_server_error_keeps_message_detail_and_code(connection: Connection) -> None:
    """The server's own words stay searchable."""
    with pytest.raises(TargetError) as caught, translate_errors("testing"):
        connection.execute("SELECT * FROM nowhere")
    assert caught.value.message == 'relation "nowhere" does not exist'
    assert "While testing (SQLSTATE 42P01)." in (caught.value.detail or "")


def test_killed_backend_is_a_server_error(database: str, connection: Connection) -> None:
    """A session that an administrator ends is the server's doing."""
    with (
        psycopg.connect(database, autocommit=True) as other,
        pytest.raises(ServerError) as caught,
        translate_errors("testing"),
    ):
        connection.execute("SELECT pg_terminate_backend(%s)", [other.info.backend_pid])
        other.execute("SELECT 1")
    assert caught.value.hint is not None


def test_index_that_another_session_creates_at_the_same_time_is_a_passing_error(
    database: str, connection: Connection
) -> None:
    """The unique index that is violated is the catalog's: no row of the table is wrong."""
    connection.execute("CREATE TABLE t (v int)")
    with psycopg.connect(database) as first, psycopg.connect(database) as second:
        first.execute("CREATE INDEX i ON t (v)")

        def commit_when_waited_for() -> None:
            query = "SELECT FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid))"
            while not connection.execute(query, [first.info.backend_pid]).fetchall():
                time.sleep(0.01)
            first.commit()

        thread = threading.Thread(target=commit_when_waited_for)
        thread.start()
        with pytest.raises(ServerError) as caught, translate_errors("testing"):
            second.execute("CREATE INDEX i ON t (v)")
        thread.join()
    assert (caught.value.sqlstate, caught.value.is_transient) == ("23505", True)


def copy_report(connection: Connection, data: bytes) -> CopyContext:
    """Return what a failing COPY of `data` into a table with awkward names says of its place."""
    connection.execute(
        "CREATE DOMAIN public.present AS int NOT NULL;"
        'CREATE TABLE public."t, line 7" (id int PRIMARY KEY, "a: ""b""" present, n text CHECK (n <> $$x$$))'
    )
    columns = ["id", 'a: "b"', "n"]
    with (
        pytest.raises(psycopg.Error) as caught,
        connection.cursor() as cursor,
        cursor.copy('COPY public."t, line 7" FROM STDIN') as copy,
    ):
        copy.write(data)
    report = read_report(caught.value)
    return parse_copy_context(report.context, table="t, line 7", columns=columns)


@pytest.mark.parametrize(
    ("data", "place"),
    [
        (b"1\t1\tn\n2\tx, y: z\tn\n", CopyContext(line=2, column='a: "b"', value="x, y: z")),
        (b"1\t1\tn\n2\t\\N\tn\n", CopyContext(line=2, column='a: "b"', value=None)),
        (b"1\t1\tn\n2\n", CopyContext(line=2, column=None, value="2")),
        (b"1\t1\tn\n2\t3\tx\n", CopyContext(line=2, column=None, value="2\t3\tx")),
        (b"1\t1\tn\n1\t3\ty\n", CopyContext(line=2, column=None, value=None)),
    ],
    ids=["field", "null", "missing", "record", "unique"],
)
def test_place_is_read_from_a_real_context(connection: Connection, data: bytes, place: CopyContext) -> None:
    """A table and a column whose names look like the context's own words do not mislead."""
    assert copy_report(connection, data) == place


# The msgstr of each form in PostgreSQL 15's src/backend/po: table t, line 5, column age, value "a, b: c".
LANGUAGES = {
    "en": ("COPY t, line 5", ", column age", ': "a, b: c"', ": null input"),
    "de": ("COPY t, Zeile 5", ", Spalte age", ": »a, b: c«", ": NULL Eingabe"),
    "es": ("COPY t, línea 5", ", columna age", ": «a, b: c»", ": entrada nula"),
    "fr": ("COPY t, ligne 5", ", colonne age", " : « a, b: c »", " : NULL en entrée"),
    "it": ("COPY t, riga 5", ", colonna age", ': "a, b: c"', ": input nullo"),
    "ja": ("tのCOPY、行 5", "、列 age", ': "a, b: c"', ": null が入力されました"),
    "ka": ("COPY t, ხაზი 5", ", სვეტი age", ': "a, b: c"', ": ნულოვანი შეყვანა"),
    "ko": ("t 복사, 5번째 줄", ", age 열", ': "a, b: c"', ": null 입력"),
    "ru": ("COPY t, строка 5", ", столбец age", ': "a, b: c"', ": значение NULL"),
    "sv": ("COPY t, rad 5", ", kolumn age", ': "a, b: c"', ": null-indata"),
    "uk": ("COPY t, рядок 5", ", стовпець age", ': "a, b: c"', ": null введення"),
    "zh": ("COPY t, 行 5", ", 列 age", ': "a, b: c"', ": 空的输入"),
}


@pytest.mark.parametrize("known_columns", [("age", "a", "line"), ()], ids=["known", "unknown"])
@pytest.mark.parametrize("language", LANGUAGES)
def test_place_is_read_in_every_language(language: str, known_columns: tuple[str, ...]) -> None:
    """Field, null, bare column, record and bare line, translated."""
    head, column, value, null = LANGUAGES[language]
    contexts = [head + column + value, head + column + null, head + column, head + value, head]
    places = [
        (place.line, place.column, place.value)
        for place in (parse_copy_context(text, table="t", columns=known_columns) for text in contexts)
    ]
    assert places == [
        (5, "age", "a, b: c"),
        (5, "age", None),
        (5, "age", None),
        (5, None, "a, b: c"),
        (5, None, None),
    ]


def test_inner_contexts_are_passed_over() -> None:
    """A trigger's own line number is not the input's."""
    context = 'PL/pgSQL function t() line 3 at RAISE\nCOPY t, line 2: "1"'
    assert parse_copy_context(context, table="t") == CopyContext(line=2, value="1")


def test_value_may_hold_line_breaks() -> None:
    """A quoted field that spans lines is one value."""
    context = 'COPY t, line 4, column n: "a\nCOPY t, line 9, column x: "y""'
    place = parse_copy_context(context, table="t", columns=["n"])
    assert place == CopyContext(line=4, column="n", value='a\nCOPY t, line 9, column x: "y"')


def test_table_name_is_needed_only_for_odd_names() -> None:
    """Without it a plain name is read all the same."""
    assert parse_copy_context('COPY t2, line 5, column age: "x"') == CopyContext(line=5, column="age", value="x")


@pytest.mark.parametrize("context", [None, "", "while scanning block 5"])
def test_other_contexts_name_no_place(context: str | None) -> None:
    """No COPY, no line."""
    assert parse_copy_context(context, table="t") == CopyContext()


def test_error_in_a_pipeline_is_raised_alone(connection: Connection, caplog: pytest.LogCaptureFixture) -> None:
    """What is queued behind it fails too, which psycopg logs where both leave a pipeline of its own."""
    with pytest.raises(psycopg.errors.DivisionByZero), in_pipeline(connection):
        for query in ("SELECT 1 / 0", "SELECT 2", "SELECT 3", "SELECT 4"):
            connection.execute(query)
            # The error arrives while the rest is being sent.
            time.sleep(0.2)
    assert not caplog.records
    assert connection.execute("SELECT 3").fetchone() == (3,)


@pytest.mark.parametrize(
    "error", [psycopg.errors.AdminShutdown, psycopg.errors.QueryCanceled, psycopg.errors.SerializationFailure]
)
def test_hints_on_what_passes_are_not_of_loads_alone(error: type[psycopg.Error]) -> None:
    """Watching, temporary work and the lab meet them too."""
    with pytest.raises(PenstockError) as caught, translate_errors("reading temporary work"):
        raise error("gone")
    assert "run it again" in str(caught.value.hint)
    assert "load" not in str(caught.value.hint)
