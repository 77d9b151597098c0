"""Finds out from an object's first bytes how the object is compressed, or why it cannot be loaded. Pure.

The object's name is not used. compression.py decompresses. The formats that can be loaded recognize their own objects.
"""

from __future__ import annotations

import shlex

from penstock.core.errors import SourceError
from penstock.core.slotted import slotted
from penstock.core.values.source import Compression

# Enough bytes for every signature: tar's signature is at offset 257 and has 8 bytes.
SIGNATURE_BYTES = 512

_COMPRESSED: tuple[tuple[bytes, Compression], ...] = (
    (b"\x1f\x8b\x08", "gzip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"\x04\x22\x4d\x18", "lz4"),
)
_BZIP2_BLOCK = b"1AY&SY"
_BZIP2_END = b"\x17rE8P\x90"
_TAR_MAGICS = (b"ustar\x0000", b"ustar  \x00")
_TAR_MAGIC_OFFSET = 257
_TAR_NAME_BYTES = 100
_FIELD_ENDS = (b",", b";", b"|", b"\t", b"\r", b"\n")


@slotted
class Signature:
    """The first bytes (`magic`) by which files of a format that is not text are recognized.

    Text may begin with the same characters as a printable magic. A file with such a magic is of this format if the
    beginning also has a control character that text does not have. If `is_whole_word` is true, it is enough that
    neither a delimiter nor a line end follows the magic, because in text the magic would be a whole field.
    """

    magic: bytes
    is_printable: bool = False
    is_whole_word: bool = False

    def begins(self, head: bytes) -> bool:
        """Return whether a file that begins with `head` is of this format."""
        if not head.startswith(self.magic):
            return False
        if not self.is_printable or _has_binary_byte(head[:64]):
            return True
        following = head[len(self.magic) : len(self.magic) + 1]
        return self.is_whole_word and following not in _FIELD_ENDS


@slotted
class _Refused(Signature):
    """A format that cannot be loaded."""

    name: str
    hint: str


_PIPE = " | penstock load - --into TABLE"
_UNZIP = f"Load a file inside it through a pipe: unzip -p {{file}} {{entry}}{_PIPE}"
_UNTAR = f"Load a file inside it through a pipe: tar -xOf {{file}} {{entry}}{_PIPE}"
_RESTORE = "Restore it with pg_restore -d DATABASE {file}"
_SAVE_SHEET = (
    "Write its first sheet as CSV, in which numbers have the digits that its cells show: libreoffice --headless "
    "--convert-to 'csv:Text - txt - csv (StarCalc):44,34,76' {file}"
)
_CONVERT = "Convert it to CSV first."
_RECOMPRESS = 'Decompress it and pipe it in with "-" as the source, or compress it with gzip or zstd.'

_REFUSED = (
    _Refused(magic=b"PK\x03\x04", name="a zip archive", hint=_UNZIP),
    _Refused(magic=b"PK\x05\x06", name="an empty zip archive", hint="Check how it was written."),
    _Refused(magic=b"PK\x07\x08", name="a zip archive in several parts", hint=_UNZIP),
    _Refused(
        magic=b"7z\xbc\xaf\x27\x1c",
        name="a 7z archive",
        hint=f"Load a file inside it through a pipe: 7z x -so {{file}} NAME{_PIPE}",
    ),
    _Refused(
        magic=b"Rar!\x1a\x07",
        name="a RAR archive",
        hint=f"Load a file inside it through a pipe: unrar p -inul {{file}} NAME{_PIPE}",
    ),
    _Refused(magic=b"ORC", name="an ORC file", hint=_CONVERT, is_printable=True),
    _Refused(magic=b"Obj\x01", name="an Avro file", hint=_CONVERT),
    _Refused(
        magic=b"\xff\xff\xff\xff",
        name="an Arrow stream",
        hint="Write it as an Arrow file (IPC file format), or Parquet.",
    ),
    _Refused(magic=b"PARE", name="an encrypted Parquet file", hint="Write it without encryption.", is_printable=True),
    _Refused(
        magic=b"SQLite format 3\x00",
        name="an SQLite database",
        hint="Write each table as CSV: sqlite3 -header -csv {file} 'SELECT * FROM NAME' > NAME.csv",
    ),
    _Refused(magic=b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", name="an old Excel workbook", hint=_SAVE_SHEET),
    _Refused(magic=b"\x89HDF\r\n\x1a\n", name="an HDF5 file", hint=_CONVERT),
    _Refused(
        magic=b"%PDF-",
        name="a PDF document",
        hint="Ask for the data as CSV: a PDF has no columns.",
        is_printable=True,
        is_whole_word=True,
    ),
    _Refused(magic=b"PGDMP", name="a pg_dump archive", hint=_RESTORE, is_printable=True),
    _Refused(
        magic=b"PGCOPY\n\xff\r\n\x00",
        name="a file in COPY's binary format",
        hint="Load it with psql: \\copy ... FROM ... WITH (FORMAT binary).",
    ),
    _Refused(magic=b"\x1f\x9d", name="compressed by compress (.Z)", hint=_RECOMPRESS),
    _Refused(magic=b"\x89LZO\x00\r\n\x1a\n", name="compressed by lzop", hint=_RECOMPRESS),
    _Refused(magic=b"LZIP\x01", name="compressed by lzip", hint=_RECOMPRESS),
    _Refused(magic=b"\xff\x06\x00\x00sNaPpY", name="compressed by Snappy", hint=_RECOMPRESS),
    _Refused(magic=b"\x02\x21\x4c\x18", name="compressed by LZ4's legacy format", hint=_RECOMPRESS),
)


def sniff(head: bytes) -> Compression:
    """Return the codec by which an object is compressed, "none" for none. `head` are the object's first bytes.

    zstd and LZ4 both have skippable frames. A file that begins with such a frame is taken for zstd, because zstd's
    parallel writer (pzstd) makes such files, unless an LZ4 frame follows the skippable one in `head`.
    """
    if _is_skippable_frame(head):
        length_bytes = 8 + int.from_bytes(head[4:8], "little")
        return "lz4" if head[length_bytes:].startswith(b"\x04\x22\x4d\x18") else "zstd"
    # Text may begin with "BZh9" too, so the magic of the first block, or of an empty stream's end, must follow.
    if head.startswith(b"BZh") and head[3:4] in b"123456789" and head[4:10] in (_BZIP2_BLOCK, _BZIP2_END):
        return "bzip2"
    return next((name for magic, name in _COMPRESSED if head.startswith(magic)), "none")


def check_is_text(head: bytes, *, uri: str) -> None:
    """Raise SourceError if an object is an archive or binary file that cannot be loaded.

    `head` are its first bytes after decompression.
    """
    for refused in _REFUSED:
        if refused.begins(head):
            name, hint = _name_zip(head) or (refused.name, refused.hint)
            raise _not_text(name, hint, uri=uri, entry=_first_of_zip(head))
    if head[_TAR_MAGIC_OFFSET : _TAR_MAGIC_OFFSET + 8] in _TAR_MAGICS:
        entry = head[:_TAR_NAME_BYTES].rstrip(b"\0")
        if entry == b"toc.dat":
            raise _not_text("a pg_dump archive", _RESTORE, uri=uri)
        raise _not_text("a tar archive", _UNTAR, uri=uri, entry=entry)


def _not_text(name: str, hint: str, *, uri: str, entry: bytes = b"") -> SourceError:
    """Return the error for a file that is not text.

    `entry` is the name of the first file in an archive, for the hint.
    """
    file = shlex.quote(uri.rsplit("/", 1)[-1] if "://" in uri else uri)
    is_file = entry and not entry.endswith(b"/")
    inside = shlex.quote(entry.decode(errors="replace")) if is_file else "NAME"
    return SourceError(f'"{uri}" is {name}, not delimited text', hint=hint.format(file=file, entry=inside))


def _first_of_zip(head: bytes) -> bytes:
    """Return the name of the first file in a zip archive, no bytes for another file."""
    return head[30 : 30 + int.from_bytes(head[26:28], "little")] if head.startswith(b"PK\x03\x04") else b""


def _name_zip(head: bytes) -> tuple[str, str] | None:
    """Return what a zip archive is called, and the hint, if its first file is typical of a workbook; otherwise None."""
    first = _first_of_zip(head)
    if first.startswith((b"[Content_Types].xml", b"_rels/", b"docProps/", b"xl/")):
        return "an Excel workbook", _SAVE_SHEET
    if first == b"mimetype" and b"application/vnd.oasis.opendocument." in head[:128]:
        return "an OpenDocument file", _SAVE_SHEET
    return None


def check_is_not_compressed(head: bytes, *, uri: str, outer: Compression) -> None:
    """Raise SourceError if an object is compressed twice.

    `head` are its first bytes after decompression from the codec `outer`.
    """
    inner = sniff(head)
    if inner != "none":
        raise SourceError(f'"{uri}" is compressed twice', detail=f"Inside {outer} there is {inner}.", hint=_RECOMPRESS)


def _is_skippable_frame(head: bytes) -> bool:
    return len(head) >= 8 and 0x50 <= head[0] <= 0x5F and head[1:4] == b"\x2a\x4d\x18"


def _has_binary_byte(head: bytes) -> bool:
    """Return whether `head` has a control byte that does not occur at the beginning of delimited text."""
    return any(byte < 0x20 and byte not in b"\t\n\r\x0b\x0c\x1b\x1c\x1d\x1e\x1f\x01\x02" for byte in head)
