"""Statement text is stored without its literals."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.watch.sampler import Cleaner
from penstock.watch.statements import strip_literals

SECRET = "zqsecretqz"
NUMBER = "8675309"

_noise = st.text(alphabet="ab0 ,()$\"'\\-*/\n;éE", max_size=8)
_secret_text = st.builds(lambda before, after: f"{before}{SECRET}{after}", _noise, _noise)


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _escape(text: str) -> str:
    return "E'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _dollars(text: str, tag: str) -> str:
    return f"${tag}${text.replace('$', '')}${tag}$"


def _comment(text: str) -> str:
    return "/* " + text.replace("*", "").replace("/", "") + " /* nested */ */"


_literal = st.one_of(
    _secret_text.map(_quote),
    _secret_text.map(_escape),
    st.builds(_dollars, _secret_text, st.sampled_from(["", "a", "body", "é1", "\N{GRINNING FACE}", "\ufffd", "a\xa0"])),
    _secret_text.map(_comment),
    _secret_text.map(lambda text: "--" + text.replace("\n", " ") + "\n"),
    _secret_text.map(lambda text: "U&" + _quote(text)),
    st.sampled_from([NUMBER, f"{NUMBER}.5", f".{NUMBER}", f"1e{NUMBER}", f"0x{NUMBER}", f"-{NUMBER}e-3"]),
    st.just(f"({NUMBER}, {NUMBER}, '{SECRET}')"),
)
_structure = st.sampled_from(
    [
        "SELECT",
        "INSERT INTO t1 VALUES (",
        ")",
        ",",
        "=",
        '"a ""name"',
        "x",
        "IN",
        "$1",
        "::int",
        "a$b",
        "/",
        "-",
        ";",
        "*",
    ]
)
_statement = st.lists(st.one_of(_structure, _literal), max_size=12).map(" ".join)


@given(_statement, st.integers(0, 400))
def test_no_literal_survives_also_where_the_text_was_cut(statement: str, length: int) -> None:
    """PostgreSQL cuts a statement at track_activity_query_size bytes, which may be in a literal."""
    stripped = strip_literals(statement[:length])
    assert SECRET not in stripped
    assert NUMBER not in stripped


@pytest.mark.parametrize(
    ("statement", "stripped"),
    [
        ("select a1, $1 from t2 where b=3.5e-1", "select a1, $1 from t2 where b=?"),
        ("insert into t values (1, 'a'),\n  (2, 'b')", "insert into t values (?, ...), (?, ...)"),
        ("select x'1F', b'01', n'x', E'a\\'b', 'it''s'", "select ?, ?, ?, ?, ?"),
        ("do $a$ begin perform 1; end $a$ -- done", "do ?"),
        ('select "a 1"."b" /* 1 /* 2 */ 3 */ from c', 'select "a 1"."b" from c'),
        ("select 'a\\' , secret, 'b'", "select ? ..."),
        ("alter role ann password 'x", "alter role ann password ?"),
        ("select /* cut", "select"),
    ],
)
def test_shape_of_a_statement_stays(statement: str, stripped: str) -> None:
    """Names, parameters and keywords remain. What cannot be distinguished from a literal is removed."""
    assert strip_literals(statement) == stripped


def test_word_is_whatever_is_beyond_ascii() -> None:
    """To the server, so that no quote behind it is one of an escape string."""
    assert strip_literals(f"SELECT \N{GRINNING FACE}e'x\\', '{SECRET}'") == "SELECT \N{GRINNING FACE}e? ..."


@pytest.mark.part("rest")
def test_remembered_texts_have_a_bound_in_bytes() -> None:
    """A night of statements of 100 kB, each other than the last, must not take the watcher's machine."""
    clean = Cleaner()
    tracemalloc.start()
    try:
        for number in range(600):
            assert clean(f"SELECT {number} FROM {'x' * 100_000}").startswith("SELECT ? FROM x")
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept_bytes < 50_000_000
