"""Servers whose answers make no sense, or a proxy that garbles them: an error of ours, and nothing is stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.core.errors import PenstockError, ServerError
from support.hostile import count_fields, make_message, make_row, rewriting
from support.loads import Loads, target

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.servers import PgServer

_ROWS = 500


@pytest.fixture
def loads(pg18: PgServer, database18: str) -> Loads:
    """Provide loads over TCP into a database with table t."""
    return Loads(pg18.over_tcp(database18), setup="CREATE TABLE t (a int, b text)")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Provide a csv file."""
    path = tmp_path / "f.csv"
    path.write_text("a,b\n" + "".join(f"{n},value\n" for n in range(_ROWS)))
    return path


def change_rows(change: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    """Return what rewrites rows alone."""
    return lambda message: change(message) if message[:1] == b"D" else message


def tell_encoding(message: bytes) -> bytes:
    """Have the server say that it sends bytes of no encoding."""
    is_encoding = message[:1] == b"S" and message[5:].startswith(b"client_encoding\0")
    return make_message(b"S", b"client_encoding\0SQL_ASCII\0") if is_encoding else message


ANSWERS = {
    "nulls": change_rows(lambda row: make_row(*[None] * count_fields(row))),
    "garbage": change_rows(lambda row: make_row(*[b"\x1b[31"] * count_fields(row))),
    "huge numbers": change_rows(lambda row: make_row(*[b"9" * 5000] * count_fields(row))),
    "no rows": change_rows(lambda _: b""),
    "rows twice": change_rows(lambda row: row + row),
    "another encoding": tell_encoding,
}


@pytest.mark.parametrize("answers", ANSWERS)
def test_answers_that_make_no_sense_are_an_error(loads: Loads, path: Path, answers: str) -> None:
    """The session is not used."""
    with rewriting(loads.conninfo, ANSWERS[answers]) as conninfo, pytest.raises(ServerError, match="make no sense"):
        Loads(conninfo).run(target(path))
    assert loads.count() == 0


@pytest.mark.part("rest")
@pytest.mark.parametrize("tag", ["COPY", "COPY -1", f"COPY {_ROWS - 1}", f"COPY {_ROWS + 1}", f"COPY {'9' * 30}"])
def test_copy_that_reports_other_rows_stores_none(loads: Loads, path: Path, tag: str) -> None:
    """What it reports is held against what was sent."""

    def lie(message: bytes) -> bytes:
        is_copy = message[:1] == b"C" and message[5:].startswith(b"COPY ")
        return make_message(b"C", tag.encode() + b"\0") if is_copy else message

    with rewriting(loads.conninfo, lie) as conninfo, pytest.raises(PenstockError):
        Loads(conninfo).run(target(path))
    assert loads.count() == 0
