"""A database in SQL_ASCII has texts of any bytes: what reads them shows those that are not UTF-8 as escapes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from penstock.core.connect.connection import ConnectionFactory
from penstock.core.connect.texts import receive_any_text
from support.files import write_to

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from support.command import Finished


@pytest.fixture
def any_bytes(database18: str) -> Iterator[str]:
    """Provide the connection string of a database in SQL_ASCII."""
    name = f"{conninfo_to_dict(database18)['dbname']}_bytes"
    with psycopg.connect(database18, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name} ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0")  # type: ignore[call-overload]
        conninfo = make_conninfo(database18, dbname=name)
        with psycopg.connect(conninfo, client_encoding="SQL_ASCII", autocommit=True) as session:
            session.execute("CREATE TABLE t (a int)")
        yield conninfo
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")  # type: ignore[call-overload]


def test_texts_are_str_with_escapes(any_bytes: str) -> None:
    """Names, texts, JSON and types that psycopg does not know, in both formats of results."""
    query = b"SELECT E'caf\\351'::name, E'caf\\351', E'caf\\351'::varchar, ARRAY[E'caf\\351'], 'caf\xc3\xa9'::text"
    with ConnectionFactory(any_bytes).connect() as connection:
        receive_any_text(connection)
        for is_binary in (False, True):
            row = connection.execute(query, binary=is_binary).fetchone()
            assert row == ("caf<e9>", "caf<e9>", "caf<e9>", ["caf<e9>"], "café")
        row = connection.execute(b"SELECT E'{\"a\": \"\\351\"}'::json, '0/12345678'::pg_lsn").fetchone()
        assert row == ({"a": "<e9>"}, "0/12345678")


@pytest.mark.part("rest")
def test_commands_that_look_at_the_server_work(
    any_bytes: str, penstock: Callable[..., Finished], tmp_path: Path
) -> None:
    """What they record can be read."""
    recording = tmp_path / "r.jsonl"
    with psycopg.connect(any_bytes, client_encoding="SQL_ASCII") as session:
        session.execute(b"SET application_name = 'caf\xe9'")
        session.execute(b"SELECT E'caf\\351'")
        for argv in (
            ("watch", "--for", "1s", "--record", recording),
            ("doctor",),
            ("temp", "usage", "--interval", "0"),
            ("load", write_to(tmp_path / "f.csv", "a\n1\n"), "--into", "t", "--add-columns"),
            ("loads",),
        ):
            done = penstock(*map(str, argv), "--to", any_bytes)
            assert done.code in (0, 1), (argv, done)
            assert "Traceback" not in done.err
    done = penstock("diagnose", str(recording))
    assert (done.code, "Traceback" in done.err) == (0, False)


@pytest.mark.part("rest")
def test_recording_of_a_load_is_kept(any_bytes: str, penstock: Callable[..., Finished], tmp_path: Path) -> None:
    """A load that is longer than the interval of samples."""
    path = write_to(tmp_path / "f.csv", "a\n" + "".join(f"{number}\n" for number in range(400_000)))
    recording = tmp_path / "r.jsonl"
    done = penstock("load", str(path), "--into", "t", "--to", any_bytes, "--record", str(recording))
    assert (done.code, "Traceback" in done.err) == (0, False)
    assert recording.exists()
    assert penstock("diagnose", str(recording)).code == 0
