"""Which Python codecs are PostgreSQL's conversions, code for code: what loading/files/encodings.py is written from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.core.errors import SourceError
from penstock.loading.copy.payload import python_codec
from penstock.loading.files.encodings import _TRANSCODED, client_encoding, transcode

if TYPE_CHECKING:
    from collections.abc import Sequence

    import psycopg

# In which penstock sends files as they are; MULE_INTERNAL has no conversion to UTF8
_SERVER_ENCODINGS = (
    *("EUC_CN", "EUC_JP", "EUC_JIS_2004", "EUC_KR", "EUC_TW", "KOI8R", "KOI8U"),
    *(f"LATIN{number}" for number in range(1, 11)),
    *(f"ISO_8859_{part}" for part in range(5, 9)),
    *(f"WIN{page}" for page in (866, 874, *range(1250, 1259))),
)

# Python's nearest codec of each encoding that only clients can use
_CLIENT_ONLY = {
    "BIG5": "cp950",
    "GB18030": "gb18030",
    "GBK": "gbk",
    "JOHAB": "johab",
    "SHIFT_JIS_2004": "shift_jis_2004",
    "SJIS": "cp932",
    "UHC": "cp949",
}

_ONE_BYTE = [bytes([code]) for code in range(1, 256)]
_TWO_BYTES = [bytes([lead, trail]) for lead in range(0x80, 256) for trail in range(1, 256)]
# GB18030's of four bytes: all that lie below U+10000, and one in 97 of the others
_FOUR_BYTES = [
    bytes([a, b, c, d])
    for a in (0x81, 0x82, 0x83, 0x84)
    for b in range(0x30, 0x3A)
    for c in range(0x81, 0xFF)
    for d in range(0x30, 0x3A)
] + [chr(point).encode("gb18030") for point in range(0x10000, 0x110000, 97)]

_CONVERT = """
    CREATE FUNCTION pg_temp.convert(codes bytea[], encoding name) RETURNS text[] LANGUAGE plpgsql AS $$
    DECLARE
        code bytea;
        texts text[] := '{}';
    BEGIN
        FOREACH code IN ARRAY codes LOOP
            BEGIN
                texts := texts || convert_from(code, encoding);
            EXCEPTION WHEN OTHERS THEN
                texts := texts || NULL::text;
            END;
        END LOOP;
        RETURN texts;
    END $$
"""


@pytest.fixture
def server(connection: psycopg.Connection) -> psycopg.Connection:
    """Provide a session that converts code by code, on each version in turn."""
    connection.execute(_CONVERT)
    return connection


def _convert(server: psycopg.Connection, codes: Sequence[bytes], encoding: str) -> list[str | None]:
    """Return what the server makes of codes, each by itself; None for what it refuses."""
    texts: list[str | None] = []
    for start in range(0, len(codes), 2000):
        (converted,) = server.execute(
            "SELECT pg_temp.convert(%s, %s)", [codes[start : start + 2000], encoding]
        ).fetchall()[0]
        texts += converted
    return texts


def _longest_bytes(server: psycopg.Connection, encoding: str) -> int:
    """Return how many bytes a character has at the most."""
    query = "SELECT pg_encoding_max_length(pg_char_to_encoding(%s))"
    ((longest,),) = server.execute(query, [encoding]).fetchall()
    return int(longest)


def _decode(code: bytes, codec: str) -> str | None:
    try:
        return code.decode(codec)
    except UnicodeDecodeError:
        return None


def _refuses(code: bytes, encoding: str) -> bool:
    """Return whether penstock refuses a file with this code, which the editions of its encoding read differently."""
    try:
        list(transcode([code], encoding=encoding, uri="f"))
    except SourceError:
        return True
    return False


@pytest.mark.part("rest")
def test_encodings_that_are_transcoded_are_the_servers_code_for_code(server: psycopg.Connection) -> None:
    """Those with a single code that differs, and that is not refused, are not in the list, and those without are."""
    equal = {}
    for encoding, codec in _CLIENT_ONLY.items():
        codes = _ONE_BYTE + _TWO_BYTES + (_FOUR_BYTES if encoding == "GB18030" else [])
        texts = zip(codes, _convert(server, codes, encoding), strict=True)
        differing = [code for code, text in texts if _decode(code, codec) != text]
        if encoding in _TRANSCODED:
            readable = [code for code in codes if _decode(code, codec) is not None]
            refused = [code for code in readable if _refuses(code, encoding)]
            # Before PostgreSQL 19 the server reads them as Python does.
            assert differing in ([], refused)
            differing = []
        if not differing:
            equal[encoding] = codec
    ours = {encoding: codec for encoding, codec in _TRANSCODED.items() if not encoding.startswith("UTF")}
    assert ours == equal


@pytest.mark.parametrize("encoding", ["GBK", "GB18030"])
def test_what_is_transcoded_is_encoded_again_as_it_was(encoding: str) -> None:
    """A reject file has the source's bytes: no two codes are one character."""
    codec = _TRANSCODED[encoding]
    codes = _ONE_BYTE + _TWO_BYTES + (_FOUR_BYTES if encoding == "GB18030" else [])
    texts = [(code, text) for code in codes if (text := _decode(code, codec)) is not None]
    assert [code for code, text in texts if text.encode(codec) != code] == []


@pytest.mark.part("rest")
def test_what_is_written_in_a_servers_encoding_is_read_there_as_it_was_meant(server: psycopg.Connection) -> None:
    """Constants and nulls go among a file's own bytes, which the server converts."""
    for encoding in _SERVER_ENCODINGS:
        assert client_encoding(encoding) == encoding
        codec = python_codec(encoding)
        # Where no character has more than a byte, two bytes are two characters
        two_bytes = _TWO_BYTES if _longest_bytes(server, encoding) > 1 else []
        texts = {text for text in _convert(server, _ONE_BYTE + two_bytes, encoding) if text and len(text) == 1}
        # What Python reads there may not be what the server does
        texts |= {text for code in two_bytes if (text := _decode(code, codec)) and len(text) == 1}
        written = [(text, code) for text in texts if (code := text.encode(codec, "ignore"))]
        assert _convert(server, [code for _, code in written], encoding) == [text for text, _ in written], encoding
