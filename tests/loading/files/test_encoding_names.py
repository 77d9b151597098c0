"""Our encodings' names are PostgreSQL's."""

from __future__ import annotations

import psycopg
import pytest

from penstock.core.errors import UsageError
from penstock.loading.files.encodings import _NAMES, _REFUSED, client_encoding, is_ascii_safe, normalize_encoding


def test_names_mean_what_the_server_takes_them_for(database18: str) -> None:
    """Every spelling that the server knows stands for the same encoding there and here."""
    spellings = sorted(spelling for spelling, name in _NAMES.items() if name not in _REFUSED)
    with psycopg.connect(database18) as connection:
        rows = connection.execute(
            "SELECT name, pg_encoding_to_char(pg_char_to_encoding(name)) FROM unnest(%s::name[]) AS name"
            " WHERE pg_char_to_encoding(name) >= 0",
            [spellings],
        ).fetchall()
    assert len(rows) > 60
    assert [(name, normalize_encoding(name)) for name, _ in rows] == rows


def test_every_encoding_of_the_server_is_known(database18: str) -> None:
    """What a database can be encoded in is sent as it is; what only clients can use, as UTF8 or not at all."""
    with psycopg.connect(database18) as connection:
        rows = connection.execute(
            "SELECT pg_encoding_to_char(number) FROM generate_series(0, 60) AS number"
            " WHERE pg_encoding_to_char(number) <> ''"
        ).fetchall()
    names = [name for (name,) in rows]
    client_only = {"GB18030", "GBK"}
    refused = {"BIG5", "JOHAB", "SHIFT_JIS_2004", "SJIS", "UHC"}
    for name in refused:
        with pytest.raises(UsageError, match="iconv -f"):
            normalize_encoding(name)
    names = [name for name in names if name not in refused]
    assert [normalize_encoding(name) for name in names] == names
    assert {name for name in names if not is_ascii_safe(name)} == client_only
    assert {client_encoding(name) for name in names} == set(names) - client_only
