"""Which statements are replayed, and where one ends."""

from __future__ import annotations

import pytest

from penstock.core.errors import UsageError
from penstock.temp.statements import check_places, refuse_unreadable, split_statements, why_not


def test_semicolons_in_literals_names_and_comments_end_nothing() -> None:
    text = """
        SELECT ';', E'\\';', $a$;$a$, "a;b" FROM t; -- one; two
        /* ; /* ; */ ; */ TABLE t;;
        VALUES (1)
    """
    assert split_statements(text) == ["""SELECT ';', E'\\';', $a$;$a$, "a;b" FROM t""", "TABLE t", "VALUES (1)"]


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT 1",
        "select 1",
        "((SELECT 1))",
        "VALUES (1)",
        "table t",
        "WITH a AS (SELECT 1) TABLE a",
        "EXECUTE report(1)",
    ],
)
def test_statements_that_read_are_replayed(statement: str) -> None:
    assert why_not(statement) is None


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("COPY t TO PROGRAM 'x'", "begins with COPY"),
        ("SELECT 1; DROP TABLE t", "more than one statement"),
        ("EXPLAIN ANALYZE DELETE FROM t", "begins with EXPLAIN"),
        ("DO $$ BEGIN END $$", "begins with DO"),
        ("SET ROLE postgres", "begins with SET"),
        ("\\! rm -rf /", "begins with \\"),
        ("/* SELECT */ DELETE FROM t", "begins with DELETE"),
        ("(DELETE FROM t)", "begins with DELETE"),
        ("", "begins with nothing"),
        ("SELECT * FROM t WHERE a = $1", "PREPARE it in --setup"),
    ],
)
def test_everything_else_is_refused_with_the_reason(statement: str, why: str) -> None:
    assert why in str(why_not(statement))
    with pytest.raises(UsageError, match="cannot replay") as caught:
        refuse_unreadable(statement, source="q.sql")
    assert why in str(caught.value.detail)


@pytest.mark.parametrize(("first", "second"), [(["pg_default"], ["pg_default"]), (["a", "b"], ["b", "a"])])
def test_the_same_place_twice_is_refused(first: list[str], second: list[str]) -> None:
    with pytest.raises(UsageError, match="both places are the same"):
        check_places(first, second)
