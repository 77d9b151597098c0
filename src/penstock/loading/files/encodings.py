"""Recognizes names of encodings and byte-order marks, and transcodes files to UTF-8.

A file can be cut at newlines and delimiters only if each of its bytes below 128 is always that ASCII character. A file
in such an encoding is sent unchanged, and the server converts and checks it. A file in another encoding is transcoded
here first, if Python's codec converts every code as the server does; otherwise (Shift-JIS, Big5, ...) the encoding is
refused. loading/formats/probe finds out which encoding a file has.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache

from penstock.core.errors import DataError, SourceError, UsageError
from penstock.loading.files.compression import OUTPUT_PIECE_BYTES

_WINDOWS_PAGES = (866, 874, *range(1250, 1259))

# PostgreSQL's server encodings, all of which extend ASCII (documentation, "Character Set Support").
_SERVER_ENCODINGS = (
    *("EUC_CN", "EUC_JP", "EUC_JIS_2004", "EUC_KR", "EUC_TW"),
    *("KOI8R", "KOI8U", "MULE_INTERNAL", "SQL_ASCII", "UTF8"),
    *(f"LATIN{number}" for number in range(1, 11)),
    *(f"ISO_8859_{part}" for part in range(5, 9)),
    *(f"WIN{page}" for page in _WINDOWS_PAGES),
)

# The Python codec of each encoding that is transcoded: PostgreSQL's client-only encodings for which the codec converts
# every code as the server does (tests/loading/files/test_encoding_tables.py compares them), and the forms of Unicode.
_TRANSCODED = {
    "GB18030": "gb18030",
    "GBK": "gbk",
    "UTF16": "utf-16-le",
    "UTF16BE": "utf-16-be",
    "UTF16LE": "utf-16-le",
    "UTF32": "utf-32-le",
    "UTF32BE": "utf-32-be",
    "UTF32LE": "utf-32-le",
}

# The characters that Python's codec returns for the codes of GB18030 that its edition of 2022 moved or removed: A3A0,
# A6D9-A6DF, A6EC-A6F3, A8BC, eight from FE59 on, 8135F437. PostgreSQL 19 reads these codes by the edition of 2022.
# Python and earlier versions of PostgreSQL read them by the edition of 2000. A file with one of them is refused.
_MOVED_CODES = {
    "GB18030": re.compile("[\ue5e5\ue78d-\ue796\ue7c7\ue81e\ue826\ue82b\ue82c\ue832\ue843\ue854\ue864\u1e3f]")
}

# PostgreSQL's encodings that are refused, because no Python codec converts them as the server does. The values are
# iconv's names.
_REFUSED = {"BIG5": "CP950", "JOHAB": "JOHAB", "SHIFT_JIS_2004": "SHIFT_JISX0213", "SJIS": "CP932", "UHC": "CP949"}

# iconv's names of encodings, if they differ from PostgreSQL's in more than WIN and CP, or _ and -.
_ICONV_NAMES = {
    "EUC_JIS_2004": "EUC-JISX0213",
    "KOI8R": "KOI8-R",
    "KOI8U": "KOI8-U",
    "LATIN9": "ISO-8859-15",
}

# Other names of encodings: first those that PostgreSQL accepts (src/common/encnames.c), then other common ones.
_SPELLINGS = {
    "BIG5": "win950 windows950 cp950",
    "EUC_CN": "gb2312",
    "EUC_JIS_2004": "eucjisx0213",
    "GBK": "win936 windows936 cp936",
    "KOI8R": "koi8",
    "LATIN1": "iso88591",
    "LATIN2": "iso88592",
    "LATIN3": "iso88593",
    "LATIN4": "iso88594",
    "LATIN5": "iso88599",
    "LATIN6": "iso885910",
    "LATIN7": "iso885913",
    "LATIN8": "iso885914",
    "LATIN9": "iso885915",
    "LATIN10": "iso885916",
    "SHIFT_JIS_2004": "shiftjisx0213",
    "SJIS": "mskanji shiftjis win932 windows932 cp932 ms932 windows31j",
    "UHC": "win949 windows949 cp949",
    "UTF8": "unicode ascii usascii utf8sig utf8bom",
    "UTF16": "ucs2",
    "UTF32": "ucs4",
    "WIN866": "alt",
    "WIN1251": "win",
    "WIN1258": "abc tcvn tcvn5712 vscii",
}

_BOMS = (
    (codecs.BOM_UTF8, "UTF8"),
    # These come before UTF-16, because the mark of UTF-32LE begins with that of UTF-16LE.
    (codecs.BOM_UTF32_LE, "UTF32LE"),
    (codecs.BOM_UTF32_BE, "UTF32BE"),
    (codecs.BOM_UTF16_LE, "UTF16LE"),
    (codecs.BOM_UTF16_BE, "UTF16BE"),
    (b"\x84\x31\x95\x33", "GB18030"),
)

# The names of PostgreSQL's encodings in Python, if they differ by more than WIN and cp, and what decoding does with
# invalid bytes. Python cannot decode the last three encodings. For the names of columns, the ASCII characters are
# enough.
_CODECS = {
    "KOI8R": ("koi8_r", "strict"),
    "KOI8U": ("koi8_u", "strict"),
    "SQL_ASCII": ("utf-8", "replace"),
    "EUC_TW": ("ascii", "replace"),
    "MULE_INTERNAL": ("ascii", "replace"),
}

# The code page of Windows for the same languages as an encoding of ISO 8859. It has letters and signs at the bytes 0x80
# to 0x9F, which are control characters in ISO 8859.
_WINDOWS_PAGE = {
    **dict.fromkeys(("LATIN1", "LATIN3", "LATIN8", "LATIN9"), "WIN1252"),
    **dict.fromkeys(("LATIN2", "LATIN10"), "WIN1250"),
    **dict.fromkeys(("LATIN4", "LATIN6", "LATIN7"), "WIN1257"),
    "LATIN5": "WIN1254",
    "ISO_8859_5": "WIN1251",
    "ISO_8859_6": "WIN1256",
    "ISO_8859_7": "WIN1253",
    "ISO_8859_8": "WIN1255",
}

# How many stored bytes are transcoded at a time. Two of them become at most three bytes of UTF-8.
_TRANSCODE_FEED_BYTES = OUTPUT_PIECE_BYTES // 2


@cache
def normalize_encoding(name: str) -> str:
    """Return PostgreSQL's name of an encoding, or UTF16, UTF16BE, UTF16LE, UTF32, UTF32BE or UTF32LE.

    As in PostgreSQL, only letters and digits of `name` count, in any case. Raises UsageError if files in the encoding
    cannot be loaded.
    """
    found = _NAMES.get(_encoding_key(name))
    if found is None:
        with suppress(LookupError, ValueError):
            found = _NAMES.get(_encoding_key(codecs.lookup(name).name))
    if found is not None and found not in _REFUSED:
        return found
    raise UsageError(
        f'encoding "{name}" cannot be loaded',
        detail="Supported are PostgreSQL's server encodings, and GBK, GB18030, UTF16 and UTF32.",
        hint="Convert the file first, and check that its backslashes are unchanged: "
        f"iconv -f {_REFUSED.get(found or '', name)} -t UTF-8 FILE > FILE.utf8",
    )


def is_ascii_safe(encoding: str) -> bool:
    """Return whether each byte below 128 is an ASCII character, so that the file can be cut without transcoding."""
    return normalize_encoding(encoding) in _SERVER_ENCODINGS


def client_encoding(encoding: str) -> str:
    """Return the client_encoding in which a file of this encoding is sent."""
    name = normalize_encoding(encoding)
    return name if name in _SERVER_ENCODINGS else "UTF8"


def windows_page(encoding: str) -> str | None:
    """Return the Windows code page that is often stated as this encoding of ISO 8859, None for other encodings.

    >>> windows_page("iso-8859-1"), windows_page("UTF8")
    ('WIN1252', None)
    """
    return _WINDOWS_PAGE.get(normalize_encoding(encoding))


def iconv_name(encoding: str) -> str:
    """Return iconv's name of an encoding. An encoding that is not known here keeps its name.

    >>> iconv_name("latin1"), iconv_name("windows-1251"), iconv_name("KOI8R")
    ('LATIN1', 'CP1251', 'KOI8-R')
    """
    name = client_encoding(encoding)
    return _ICONV_NAMES.get(name, name.replace("WIN", "CP").replace("_", "-"))


def detect_bom(head: bytes) -> tuple[str, int] | None:
    """Return the encoding of the byte-order mark that `head` begins with and the mark's length, None without a mark."""
    return next(((encoding, len(mark)) for mark, encoding in _BOMS if head.startswith(mark)), None)


def byte_order_mark(encoding: str | None) -> bytes:
    """Return the byte-order mark of an encoding that `detect_bom` returned, or no bytes for None."""
    return next((mark for mark, name in _BOMS if name == encoding), b"")


def encode_again(text: bytes, *, encoding: str) -> bytes:
    """Return text in the file's encoding, which reverses `transcode`.

    Text that was not transcoded is returned unchanged.
    """
    codec = _TRANSCODED.get(_NAMES.get(_encoding_key(encoding), ""))
    return text if codec is None else text.decode().encode(codec)


def decode(value: bytes, encoding: str) -> str:
    """Return the text of a field. `encoding` is that of the file.

    If the encoding is not ASCII-safe, the file was transcoded, and `value` is in UTF-8. Raises DataError for bytes that
    are invalid in the encoding.
    """
    name = client_encoding(encoding)
    codec, errors = _CODECS.get(name, (name.replace("WIN", "cp"), "strict"))
    try:
        return value.decode(codec, errors)
    except UnicodeDecodeError as exc:
        raise DataError(
            f'invalid byte sequence for encoding "{name}": {show_bytes(value[exc.start : exc.end])}',
            hint="Give the file's encoding with --encoding.",
        ) from exc


def show_bytes(value: bytes) -> str:
    """Return bytes as PostgreSQL's messages show them, for example 0xe9 0x20."""
    return " ".join(f"0x{byte:02x}" for byte in value)


def guess_utf16(head: bytes) -> str | None:
    """Return UTF16LE or UTF16BE for text that is probably UTF-16 without a byte-order mark, otherwise None.

    An ASCII character of UTF-16 has one zero byte. So text is taken for UTF-16 if more than a quarter of its bytes are
    zero.
    """
    odd, even = head[1::2].count(0), head[::2].count(0)
    if 4 * (odd + even) <= len(head):
        return None
    return "UTF16LE" if odd >= even else "UTF16BE"


def resolve_encoding(*, stated: str | None, bom: str | None, uri: str) -> str | None:
    """Return the encoding in which a stream is read, None if neither --encoding nor a byte-order mark names it.

    `stated` is that of --encoding, `bom` that of the mark. The mark adds the byte order of UTF16 and UTF32. Bytes that
    are not converted (SQL_ASCII) may have a mark of UTF-8. Raises SourceError if the mark contradicts --encoding.
    """
    if stated is None or bom is None:
        return stated if bom is None else bom
    name = normalize_encoding(stated)
    if bom == name or (bom == "UTF8" and name == "SQL_ASCII"):
        return name
    if name in ("UTF16", "UTF32") and bom.startswith(name):
        return bom
    raise SourceError(
        f'"{uri}" begins with a byte-order mark of {bom}, but --encoding is {name}',
        hint="Do not use --encoding, or give the encoding of the mark.",
    )


def transcode(pieces: Iterable[bytes], *, encoding: str, uri: str, offset: int = 0) -> Iterator[bytes]:
    """Yield `pieces` in UTF-8, each at most OUTPUT_PIECE_BYTES long. In an ASCII-safe encoding, yield them unchanged.

    `offset` is the offset of the first piece in the decompressed object; errors name such offsets. Raises SourceError
    for bytes that are invalid in the encoding.
    """
    name = normalize_encoding(encoding)
    if name in _SERVER_ENCODINGS:
        yield from pieces
        return
    decoder = codecs.getincrementaldecoder(_TRANSCODED[name])("strict")
    for piece in pieces:
        for start in range(0, len(piece), _TRANSCODE_FEED_BYTES):
            part = piece[start : start + _TRANSCODE_FEED_BYTES]
            offset += len(part)
            if text := _decode(decoder, part, name, uri, offset):
                yield text
    if text := _decode(decoder, b"", name, uri, offset, is_final=True):
        yield text


def _decode(
    decoder: codecs.IncrementalDecoder, part: bytes, name: str, uri: str, end: int, *, is_final: bool = False
) -> bytes:
    """Decode `part`, which ends before offset `end` of the object, and return it in UTF-8."""
    try:
        text = decoder.decode(part, is_final)
        if name in _MOVED_CODES and (moved := _MOVED_CODES[name].search(text)) is not None:
            codec = _TRANSCODED[name]
            # The offset of the character. The decoder has kept the first bytes of the character after `text`.
            at = end - len(decoder.getstate()[0]) - len(text[moved.start() :].encode(codec))
            raise SourceError(
                f'"{uri}" has a code at decompressed byte {at} that editions of {name} read differently',
                detail=f"The bytes there are {moved[0].encode(codec).hex(' ')}. PostgreSQL 19 reads them by the "
                "edition of 2022, earlier versions by that of 2000.",
                hint=f"Convert the file first, and check this character: iconv -f {name} -t UTF-8 FILE > FILE.utf8",
            )
        return text.encode()
    except UnicodeDecodeError as exc:
        # exc.object is the bytes that the decoder had kept, followed by `part`.
        at = end - len(exc.object) + exc.start
        shown = exc.object[exc.start : exc.start + 4].hex(" ")
        raise SourceError(
            f'"{uri}" is not valid {name} at decompressed byte {at}',
            detail=f"The bytes there are {shown}: {exc.reason}.",
            hint="Give the file's encoding with --encoding.",
        ) from exc


def _encoding_key(name: str) -> str:
    return "".join(character for character in name.lower() if character.isalnum())


# The name of the encoding that a spelling means, by the spelling's key.
_NAMES = {
    **{f"{vendor}{page}": f"WIN{page}" for vendor in ("cp", "windows") for page in _WINDOWS_PAGES},
    **{spelling: name for name, spellings in _SPELLINGS.items() for spelling in spellings.split()},
    **{_encoding_key(name): name for name in (*_SERVER_ENCODINGS, *_TRANSCODED, *_REFUSED)},
}
