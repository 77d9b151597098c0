"""Loads into databases that are not in UTF8: what the ledger says is in any encoding, and so are names and messages."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from penstock.api.ledger_view import LedgerView
from penstock.core.connect.connection import ConnectionFactory
from penstock.core.errors import DataError, TargetError, UsageError
from penstock.core.values.job import LoadRules, Transform
from support.files import write_to
from support.loads import Loads, target
from support.modes import mode_target

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

REJECTS = LoadRules(retry_for=0.0, on_error="reject", indexes="rebuild")


def _in_encoding(database: str, encoding: str) -> Iterator[Loads]:
    """Provide loads into a database of an encoding, beside a given one."""
    name = f"{conninfo_to_dict(database)['dbname']}_{encoding.lower()}"
    with psycopg.connect(database, autocommit=True) as connection:
        # The names are ours.
        connection.execute(f"CREATE DATABASE {name} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0")  # type: ignore[call-overload]
    yield Loads(make_conninfo(database, dbname=name, client_encoding="UTF8"))
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")  # type: ignore[call-overload]


@pytest.fixture(params=["SQL_ASCII", "LATIN1"])
def loads(database18: str, request: pytest.FixtureRequest) -> Iterator[Loads]:
    """Provide loads into a database that knows é by its bytes, or as a character."""
    yield from _in_encoding(database18, request.param)


def _load_id(loads: Loads) -> str:
    return str(loads.execute("SELECT id::text FROM penstock.loads ORDER BY began_at DESC LIMIT 1")[0][0])


def test_names_and_messages_beyond_ascii_are_written_down(loads: Loads, tmp_path: Path) -> None:
    """Those of files, columns, indexes and constraints, what stands for null, and what the table says of a record."""
    loads.execute(
        'CREATE TABLE t (a int, "é" text CONSTRAINT "nicht ü" CHECK ("é" <> \'ö\')); CREATE INDEX "ï" ON t ("é")'
    )
    path = write_to(tmp_path / "é.csv", "a,é\n1,é\né,x\n3,ö\n4,ñ\n")
    outcome = loads.run(target(path, nulls=("ñ",)), rules=REJECTS)
    assert (outcome.rows, outcome.rejected) == (2, 2)
    assert loads.rows() == [(1, "é"), (4, None)]
    with LedgerView(ConnectionFactory(loads.conninfo)) as view:
        causes = view.rejects(_load_id(loads))
        assert sorted(cause.example for cause in causes) == [
            'invalid input syntax for type integer: "é"',
            'new row for relation "t" violates check constraint "nicht ü"',
        ]
        file = tmp_path / "rejects.csv"
        view.write_rejects(_load_id(loads), file)
        assert file.read_text() == "a,é\né,x\n3,ö\n"
        file.write_text("a,é\n2,x\n3,ü\n")
        assert view.retry(_load_id(loads), file).left == 0
    assert loads.count() == 4


def test_reason_that_quotes_a_character_which_the_database_lacks_is_written_down(loads: Loads, tmp_path: Path) -> None:
    """It does not end the load."""
    loads.execute("CREATE TABLE t (n numeric)")
    path = write_to(tmp_path / "f.csv", "n\n1,5\n2 €\n".replace(",", "."))
    outcome = loads.run(target(path, format="csv", has_header=True, decimal_comma=("*",)), rules=REJECTS)
    assert outcome.rejected >= 1


def test_a_merge_and_a_transform_beyond_ascii_are_written_down(loads: Loads, tmp_path: Path) -> None:
    """What a merge refuses, and a statement's own text."""
    loads.execute("CREATE TABLE t (a int PRIMARY KEY, b text CHECK (b <> 'ö'))")
    path = write_to(tmp_path / "f", "a,b\n1,é\n2,ö\n")
    outcome = loads.run(mode_target(path, "upsert", key=("a",)), rules=REJECTS)
    assert (outcome.rows, outcome.rejected) == (1, 1)
    text = "INSERT INTO t SELECT a::int + 10, 'ü' || a FROM :staging"
    job = replace(target(path), transform=Transform(name="x.sql", text=text))
    (statement,) = loads.run(job, rules=LoadRules(retry_for=0.0, again=True)).statements
    assert statement.tag == "INSERT 0 2"
    assert loads.rows() == [(1, "é"), (11, "ü1"), (12, "ü2")]


def test_header_that_the_database_has_no_characters_for_is_kept_by_its_bytes(database18: str, tmp_path: Path) -> None:
    """It goes to columns of other names, and above the rejected records again."""
    for loads in _in_encoding(database18, "WIN1251"):
        loads.execute("CREATE TABLE t (a int, b text)")
        path = write_to(tmp_path / "f", "é,ü\n1,x\nbad,y\n")
        loads.run(target(path, columns=("a", "b"), has_header=True), rules=REJECTS)
        file = tmp_path / "rejects.csv"
        with LedgerView(ConnectionFactory(loads.conninfo)) as view:
            view.write_rejects(_load_id(loads), file)
        assert file.read_text() == "é,ü\nbad,y\n"


def test_bytes_that_are_no_text_are_data_where_the_database_is_sql_ascii(database18: str, tmp_path: Path) -> None:
    """As for COPY, which asks there for nothing; rejected ones are written out as they are."""
    for loads in _in_encoding(database18, "SQL_ASCII"):
        loads.execute("CREATE TABLE t (a int, b text)")
        path = write_to(tmp_path / "f", b"a,b\n1,caf\xe9\n\xff,\xfe\n2,\xc3\xa9\n")
        outcome = loads.run(target(path), rules=REJECTS)
        assert (outcome.rows, outcome.rejected) == (2, 1)
        assert loads.execute("SELECT a, encode(b::bytea, 'hex') FROM t ORDER BY a") == [(1, "636166e9"), (2, "c3a9")]
        file = tmp_path / "rejects.csv"
        with LedgerView(ConnectionFactory(loads.conninfo)) as view:
            view.write_rejects(_load_id(loads), file)
        assert file.read_bytes() == b"a,b\n\xff,\xfe\n"


def test_a_merge_refuses_bytes_that_are_no_text_as_it_does_others(database18: str, tmp_path: Path) -> None:
    """Also in the reason, and in the key that two records have."""
    for loads in _in_encoding(database18, "SQL_ASCII"):
        loads.execute("CREATE TABLE t (a bytea, b text PRIMARY KEY CHECK (length(b) < 5))")
        path = write_to(tmp_path / "f", b"b\ncaf\xe9\ncaf\xe9\xe9\n")
        job = mode_target(path, "upsert", key=("b",), has_header=True)
        outcome = loads.run(job, rules=REJECTS)
        assert (outcome.rows, outcome.rejected) == (1, 1)
        with LedgerView(ConnectionFactory(loads.conninfo)) as view:
            (cause,) = view.rejects(_load_id(loads))
            assert "t_b_check" in cause.example
        path.write_bytes(b"b\ncaf\xe9\ncaf\xe9\n")
        with pytest.raises(DataError, match="is duplicated in the files"):
            loads.run(job, rules=LoadRules(retry_for=0.0, changed="load"))


@pytest.mark.parametrize("encoding", ["UTF8", "LATIN1"])
def test_sql_ascii_is_refused_for_a_database_in_another_encoding(
    database18: str, tmp_path: Path, encoding: str
) -> None:
    """COPY would store the bytes unchecked, and no client could read the table."""
    for loads in _in_encoding(database18, encoding):
        loads.execute("CREATE TABLE t (a int, b text)")
        path = write_to(tmp_path / "f", b"a,b\n1,caf\xe9\n")
        with pytest.raises(UsageError, match=f"SQL_ASCII cannot be used with a database in {encoding}"):
            loads.run(target(path, encoding="sql_ascii"))
        assert loads.count() == 0


@pytest.mark.parametrize(
    ("mark", "codec", "encoding"),
    [
        (b"\xff\xfe", "utf-16-le", None),
        (b"", "utf-16-be", "UTF16BE"),
        (b"", "gbk", "GBK"),
        (b"\xef\xbb\xbf", "utf-8", None),
        (b"", "cp1252", "WIN1252"),
    ],
)
def test_reject_file_is_in_the_encoding_of_the_source(
    database18: str, tmp_path: Path, mark: bytes, codec: str, encoding: str | None
) -> None:
    """Byte for byte, below its mark and header; edited, it is read in that encoding again."""
    loads = Loads(database18, setup="CREATE TABLE t (a int, b text)")
    text = "é" if codec == "cp1252" else "文"
    path, file = tmp_path / "f", tmp_path / "rejects.csv"
    path.write_bytes(mark + f"a,b\n1,{text}\nbad,{text}\n2,x\n".encode(codec))
    outcome = loads.run(target(path, encoding=encoding), rules=REJECTS)
    assert (outcome.rows, outcome.rejected) == (2, 1)
    with LedgerView(ConnectionFactory(loads.conninfo)) as view:
        view.write_rejects(_load_id(loads), file)
        assert file.read_bytes() == mark + f"a,b\nbad,{text}\n".encode(codec)
        file.write_bytes(mark + f"a,b\n3,{text}\n".encode(codec))
        assert view.retry(_load_id(loads), file).left == 0
    assert loads.rows() == [(1, text), (2, "x"), (3, text)]


@pytest.mark.pg(">= 19")
def test_encoding_that_the_server_has_no_longer_is_named(database: str, tmp_path: Path) -> None:
    """Before the first row."""
    loads = Loads(database, setup="CREATE TABLE t (a text)")
    path = tmp_path / "f.csv"
    path.write_bytes(b"a\n\x81\xe9\n")
    with pytest.raises(TargetError, match="has no encoding MULE_INTERNAL"):
        loads.run(target(path, encoding="mule-internal"))
