"""Encodings: names, byte-order marks, and transcoding that counts bytes."""

from __future__ import annotations

import codecs
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import SourceError, UsageError
from penstock.loading.files.compression import OUTPUT_PIECE_BYTES
from penstock.loading.files.encodings import (
    client_encoding,
    detect_bom,
    encode_again,
    is_ascii_safe,
    normalize_encoding,
    resolve_encoding,
    transcode,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


def _transcode(data: bytes, encoding: str, *, piece_bytes: int = 1 << 18) -> bytes:
    pieces: Iterator[bytes] = (data[at : at + piece_bytes] for at in range(0, len(data), piece_bytes))
    return b"".join(transcode(pieces, encoding=encoding, uri="data.csv"))


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("utf-8", "UTF8"),
        ("Unicode", "UTF8"),
        ("iso-8859-1", "LATIN1"),
        ("ISO_8859_15", "LATIN9"),
        ("latin-9", "LATIN9"),
        ("windows-1252", "WIN1252"),
        ("cp1252", "WIN1252"),
        ("WIN1251", "WIN1251"),
        ("euc-jp", "EUC_JP"),
        ("gbk", "GBK"),
        ("cp819", "LATIN1"),
        ("sql_ascii", "SQL_ASCII"),
        ("koi8-r", "KOI8R"),
        ("utf-16", "UTF16"),
        ("UTF-16LE", "UTF16LE"),
        ("U16", "UTF16"),
    ],
)
def test_names_are_normalized(spelling: str, name: str) -> None:
    """PostgreSQL's names, its aliases and common spellings mean the same encoding."""
    assert normalize_encoding(spelling) == name


@pytest.mark.parametrize("name", ["nonsense", "hex", "rot13", "cp037", "utf-7", "nul\0", ""])
def test_unknown_encoding_is_an_error(name: str) -> None:
    """What PostgreSQL has no conversion of is refused, though Python may have a codec."""
    with pytest.raises(UsageError, match=f"iconv -f {name} "):
        normalize_encoding(name)


@pytest.mark.parametrize(
    ("name", "converter"),
    [
        ("Shift_JIS", "CP932"),
        ("cp932", "CP932"),
        ("SHIFT_JIS_2004", "SHIFT_JISX0213"),
        ("big5", "CP950"),
        ("UHC", "CP949"),
        ("johab", "JOHAB"),
    ],
)
def test_encoding_that_python_reads_otherwise_than_the_server_is_refused(name: str, converter: str) -> None:
    """The command that converts the file is named, and runs."""
    with pytest.raises(UsageError, match=f"iconv -f {converter} -t UTF-8 ") as caught:
        normalize_encoding(name)
    iconv = shutil.which("iconv")
    if iconv is None:
        pytest.skip("there is no iconv here")
    assert caught.value.hint is not None
    command = [iconv, *caught.value.hint.split("iconv ")[1].split(" FILE")[0].split()]
    assert subprocess.run(command, input=b"a,b\n", capture_output=True, check=True).stdout == b"a,b\n"


def test_ascii_safe_encodings_are_sent_as_they_are() -> None:
    """The server converts its own encodings; those with ASCII bytes inside characters are sent as UTF8."""
    assert is_ascii_safe("win1252")
    assert client_encoding("win1252") == "WIN1252"
    for encoding in ("UTF16", "GBK", "GB18030"):
        assert not is_ascii_safe(encoding)
        assert client_encoding(encoding) == "UTF8"


@pytest.mark.parametrize(
    ("encoding", "codec"),
    [
        ("UTF16LE", "utf-16-le"),
        ("UTF16BE", "utf-16-be"),
        ("UTF32LE", "utf-32-le"),
        ("GB18030", "gb18030"),
        ("GBK", "gbk"),
    ],
)
# Some editions of GB18030 read a few codes of the private use area, and of \u1e3f, differently: they are refused.
@given(
    text=st.text(st.characters(exclude_categories=["Cs", "Co"], exclude_characters="\u1e3f")),
    piece_bytes=st.integers(1, 50),
)
def test_transcoding_gives_the_same_text(encoding: str, codec: str, text: str, piece_bytes: int) -> None:
    """Whatever the pieces, the text comes out as UTF-8."""
    stored = text.encode(codec, "ignore")
    # A codec may write two characters alike, so that the text is what Python reads back
    transcoded = _transcode(stored, encoding, piece_bytes=piece_bytes)
    assert transcoded.decode() == stored.decode(codec)
    assert encode_again(transcoded, encoding=encoding) == stored


@pytest.mark.parametrize("piece_bytes", [1, 3, 100, 1 << 18])
def test_invalid_bytes_are_named_by_their_offset(piece_bytes: int) -> None:
    """The error gives the decompressed byte, whichever pieces the bytes came in."""
    data = "测试,文\n".encode("gbk") * 20
    bad = data + b"\x81\x20" + data
    with pytest.raises(SourceError, match=f"(?m)is not valid GBK at decompressed byte {len(data)}$"):
        _transcode(bad, "GBK", piece_bytes=piece_bytes)


def test_text_that_ends_inside_a_character_is_an_error() -> None:
    """A lone last byte of UTF-16 is noticed."""
    with pytest.raises(SourceError, match="not valid UTF16LE at decompressed byte 4"):
        _transcode("ab".encode("utf-16-le") + b"c", "UTF16LE")


def test_transcoded_pieces_stay_bounded() -> None:
    """Characters that grow most in UTF-8 do not make pieces larger than OUTPUT_PIECE_BYTES."""
    wide = ("文" * OUTPUT_PIECE_BYTES).encode("gbk")
    assert max(map(len, transcode([wide], encoding="GBK", uri="x"))) <= OUTPUT_PIECE_BYTES


@pytest.mark.parametrize(
    ("mark", "found"),
    [
        (codecs.BOM_UTF8, ("UTF8", 3)),
        (codecs.BOM_UTF16_LE, ("UTF16LE", 2)),
        (codecs.BOM_UTF16_BE, ("UTF16BE", 2)),
        (codecs.BOM_UTF32_LE, ("UTF32LE", 4)),
        (codecs.BOM_UTF32_BE, ("UTF32BE", 4)),
        (b"", None),
    ],
)
def test_byte_order_marks_are_told_apart(mark: bytes, found: tuple[str, int] | None) -> None:
    """For each mark, the encoding and the length are found."""
    assert detect_bom(mark + b"a\x00b\x00") == found


def test_stated_encoding_must_agree_with_the_mark() -> None:
    """A mark refines UTF16 to its byte order, and contradicts another encoding."""
    assert resolve_encoding(stated="UTF-16", bom="UTF16BE", uri="x") == "UTF16BE"
    assert resolve_encoding(stated=None, bom="UTF16LE", uri="x") == "UTF16LE"
    assert resolve_encoding(stated="SQL_ASCII", bom="UTF8", uri="x") == "SQL_ASCII"
    with pytest.raises(SourceError, match="byte-order mark of UTF8, but --encoding is LATIN1"):
        resolve_encoding(stated="LATIN1", bom="UTF8", uri="x")
    with pytest.raises(SourceError, match="byte-order mark of UTF16LE, but --encoding is UTF8"):
        resolve_encoding(stated="UTF8", bom="UTF16LE", uri="x")


@pytest.mark.parametrize("piece_bytes", [1, 3, 100])
@pytest.mark.parametrize("code", ["A6D9", "A3A0", "FEA0", "8135F437"])
def test_code_that_editions_of_gb18030_read_differently_is_refused(code: str, piece_bytes: int) -> None:
    """PostgreSQL 19 reads it by another edition than earlier versions, so none of the two is silently chosen."""
    data = "测试,文\n".encode("gb18030") * 20
    with pytest.raises(SourceError, match=f"at decompressed byte {len(data)} that editions of GB18030") as caught:
        _transcode(data + bytes.fromhex(code) + data, "GB18030", piece_bytes=piece_bytes)
    assert bytes.fromhex(code).hex(" ") in str(caught.value.detail)
