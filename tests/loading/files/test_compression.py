"""Decompression gives back what was compressed, in bounded pieces, and refuses what is damaged."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
import struct
import tarfile
import zipfile
import zlib
from typing import TYPE_CHECKING

import lz4.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import SourceError
from penstock.core.zstd import zstd
from penstock.loading.files.compression import OUTPUT_PIECE_BYTES, decompress
from penstock.loading.files.signatures import SIGNATURE_BYTES, check_is_text, sniff

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.core.values.source import Compression


def _zstd(data: bytes) -> bytes:
    return zstd.compress(data, options={zstd.CompressionParameter.checksum_flag: 1})


def _lz4(data: bytes) -> bytes:
    return lz4.frame.compress(data, content_checksum=True, block_size=lz4.frame.BLOCKSIZE_MAX64KB)


_COMPRESS: dict[Compression, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "zstd": _zstd,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "lz4": _lz4,
}
_CODECS = sorted(_COMPRESS)
_SKIPPABLE = b"\x50\x2a\x4d\x18\x05\x00\x00\x00abcde"


def _cut(data: bytes, piece_bytes: int) -> Iterator[bytes]:
    return (data[at : at + piece_bytes] for at in range(0, len(data), piece_bytes))


def _decompress(data: bytes, compression: Compression, *, piece_bytes: int = 1 << 18) -> bytes:
    return b"".join(decompress(_cut(data, piece_bytes), compression=compression, uri="data.csv"))


@pytest.mark.part("rest")
@pytest.mark.parametrize("compression", _CODECS)
@given(
    members=st.lists(st.binary(max_size=2000) | st.binary(max_size=4).map(lambda unit: unit * 40_000), min_size=1),
    piece_bytes=st.integers(1, 100_000),
)
def test_concatenated_members_give_back_the_original(
    compression: Compression, members: list[bytes], piece_bytes: int
) -> None:
    """Any members, cut into pieces of any size, decompress to what was compressed."""
    stored = b"".join(_COMPRESS[compression](member) for member in members)
    assert sniff(stored[:SIGNATURE_BYTES]) == compression
    assert _decompress(stored, compression, piece_bytes=piece_bytes) == b"".join(members)


@pytest.mark.parametrize("compression", _CODECS)
def test_truncation_at_every_offset_is_an_error(compression: Compression) -> None:
    """No prefix of a compressed object passes for the whole, and the error names object and byte."""
    stored = _COMPRESS[compression](b"tt0000001\tcarmencita\t1894\n" * 40)
    for end in range(1, len(stored)):
        with pytest.raises(SourceError, match=rf'(?m)"data.csv" is truncated.* at byte {end}$'):
            _decompress(stored[:end], compression)


@pytest.mark.parametrize("compression", _CODECS)
def test_truncated_second_member_is_an_error(compression: Compression) -> None:
    """A member that is cut short is noticed after a complete one too."""
    member = _COMPRESS[compression](b"1,2,3\n" * 1000)
    with pytest.raises(SourceError, match="truncated"):
        _decompress(member + member[:-1], compression)


@pytest.mark.parametrize("compression", _CODECS)
def test_corruption_never_passes_unnoticed(compression: Compression) -> None:
    """A changed bit raises SourceError, or (in a header's idle bits) leaves the data as it was."""
    original = random.Random(7).randbytes(3000) + b"abc" * 1000
    stored = _COMPRESS[compression](original)
    noticed = 0
    for at in range(0, len(stored), 3):
        damaged = bytearray(stored)
        damaged[at] ^= 0x10
        try:
            assert _decompress(bytes(damaged), compression) == original
        except SourceError:
            noticed += 1
    assert noticed > 0.99 * (len(stored) // 3)


def test_corruption_is_before_the_end_of_what_was_read() -> None:
    """The decompressor does not report the place, so the error names the end of the part that it was given."""
    stored = _COMPRESS["gzip"](b"1,2,3\n")
    with pytest.raises(SourceError, match=f"(?m)bad gzip data before byte {len(stored)}$"):
        _decompress(stored[:-8] + bytes(4) + stored[-4:], "gzip")


@pytest.mark.parametrize("compression", _CODECS)
def test_trailing_garbage_is_an_error(compression: Compression) -> None:
    """Bytes after the last member that begin no further one are refused, at their byte."""
    stored = _COMPRESS[compression](b"1,2,3\n" * 10)
    with pytest.raises(SourceError, match=f"(?m)follows at byte {len(stored)}$"):
        _decompress(stored + b"garbage", compression)


@pytest.mark.parametrize("compression", ["gzip", "xz"])
@pytest.mark.parametrize("piece_bytes", [1, 7, 1 << 18])
def test_zero_padding_is_allowed(compression: Compression, piece_bytes: int) -> None:
    """Zero bytes may follow a member and stand between two."""
    member = _COMPRESS[compression](b"1,2,3\n")
    stored = member + bytes(512) + member + bytes(1024)
    assert _decompress(stored, compression, piece_bytes=piece_bytes) == b"1,2,3\n" * 2


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
@pytest.mark.parametrize("piece_bytes", [1, 1 << 18])
def test_skippable_frames_are_skipped(compression: Compression, piece_bytes: int) -> None:
    """Frames of user data may stand before, between and after the others."""
    frame = _COMPRESS[compression](b"1,2,3\n")
    stored = _SKIPPABLE + frame + _SKIPPABLE + frame + _SKIPPABLE
    assert sniff(stored) == compression
    assert _decompress(stored, compression, piece_bytes=piece_bytes) == b"1,2,3\n" * 2


def _gzip_member(data: bytes, flags: int) -> bytes:
    """Return a member whose header has the fields of `flags` (RFC 1952, section 2.3.1)."""
    header = b"\x1f\x8b\x08" + bytes([flags]) + b"\1\2\3\4\0\3"
    header += b"\x04\x00ab\0c" if flags & 4 else b""
    header += b"name.csv\0" if flags & 8 else b""
    header += b"a comment\0" if flags & 16 else b""
    header += struct.pack("<H", zlib.crc32(header) & 0xFFFF) if flags & 2 else b""
    return header + gzip.compress(data)[10:]


def test_gzip_headers_of_every_form_are_read_in_parts(subtests: pytest.Subtests) -> None:
    """A decompressor forgets which fields are to come when a header of several comes in parts."""
    for flags in range(32):
        first = _gzip_member(b"a,b\n", flags)
        data = first + _gzip_member(b"1,2\n" * 100, flags)
        with subtests.test(flags=flags):
            for piece_bytes in (1, 3, 16, 100_000):
                assert _decompress(data, "gzip", piece_bytes=piece_bytes) == b"a,b\n" + b"1,2\n" * 100
            for end in range(len(first) + 1, len(data), 5):
                with pytest.raises(SourceError, match=f"(?m)ends early at byte {end}$"):
                    _decompress(data[:end], "gzip")


@pytest.mark.parametrize("compression", _CODECS)
def test_bomb_is_expanded_piece_by_piece(compression: Compression) -> None:
    """However well an object is compressed, no piece exceeds OUTPUT_PIECE_BYTES."""
    length_bytes = 40 * OUTPUT_PIECE_BYTES
    stored = _COMPRESS[compression](bytes(length_bytes))
    lengths = [len(piece) for piece in decompress(iter([stored]), compression=compression, uri="bomb")]
    assert max(lengths) <= OUTPUT_PIECE_BYTES
    assert sum(lengths) == length_bytes


def test_zstd_frames_of_every_header_form_are_read() -> None:
    """Frames with and without content size and checksum, streamed or with a long window, decompress."""
    data = random.Random(1).randbytes(500) * 2000
    parameter = zstd.CompressionParameter
    frames = [
        zstd.compress(data[:length], options={parameter.checksum_flag: checksum, parameter.content_size_flag: size})
        for checksum in (0, 1)
        for size in (0, 1)
        for length in (0, 1, 255, 256, 70_000, len(data))
    ]
    streamed = zstd.ZstdCompressor(options={parameter.window_log: 27, parameter.enable_long_distance_matching: 1})
    frames.append(streamed.compress(data) + streamed.flush())
    lengths = [0, 1, 255, 256, 70_000, len(data)] * 4 + [len(data)]
    for frame, length in zip(frames, lengths, strict=True):
        assert _decompress(frame, "zstd", piece_bytes=1000) == data[:length]


@pytest.mark.parametrize("compression", ["zstd", "xz"])
def test_frame_that_needs_much_memory_is_refused(compression: Compression) -> None:
    """Beyond 128 MiB: a few bytes could ask for 2 GiB."""

    def compress(window_log: int) -> bytes:
        if compression == "xz":
            return lzma.compress(b"1,2\n", filters=[{"id": lzma.FILTER_LZMA2, "dict_size": 1 << window_log}])
        streamed = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: window_log})
        return streamed.compress(b"1,2\n") + streamed.flush()

    assert _decompress(compress(27), compression) == b"1,2\n"
    with pytest.raises(SourceError, match="needs more than 128 MiB of memory") as caught:
        _decompress(compress(28), compression)
    assert compression in (caught.value.detail or "")


def test_zstd_frame_whose_content_is_its_window_is_refused() -> None:
    """A frame in one segment asks for as much memory as it holds; here 2 GiB of one byte, in 68 kB."""
    block = (1 | 1 << 1 | (1 << 17) << 3).to_bytes(3, "little") + b"x"
    frame = b"\x28\xb5\x2f\xfd" + bytes([0b1010_0000]) + (1 << 31).to_bytes(4, "little") + block
    with pytest.raises(SourceError, match="needs more than 128 MiB of memory"):
        _decompress(frame, "zstd")


def test_zstd_frame_that_needs_a_dictionary_says_so() -> None:
    """A frame made with a dictionary cannot be read without, which the error says."""
    samples = [f"row {number},{number * 7},name{number % 10}\n".encode() * 3 for number in range(2000)]
    stored = zstd.compress(samples[0] * 50, zstd_dict=zstd.train_dict(samples, 2000))
    with pytest.raises(SourceError, match="needs the zstd dictionary"):
        _decompress(stored, "zstd")


def test_many_tiny_members_are_read() -> None:
    """A log to which thousands of gzip members were appended decompresses whole."""
    members = [gzip.compress(f"line {number}\n".encode()) for number in range(5000)]
    assert _decompress(b"".join(members), "gzip").count(b"\n") == 5000


def test_uncompressed_pieces_are_split() -> None:
    """Without compression, pieces pass as they are, cut only where they exceed the bound."""
    pieces = list(decompress(iter([b"a", b"", bytes(OUTPUT_PIECE_BYTES + 1)]), compression="none", uri="data"))
    assert [len(piece) for piece in pieces] == [1, OUTPUT_PIECE_BYTES, 1]


@pytest.mark.parametrize("text", [b"", b"B", b"BZh9,title\n1,2\n", b"ORC,elf\n", b"PK,name\n", b"PGDMP,x\n"])
def test_text_that_begins_like_a_binary_format_is_text(text: bytes) -> None:
    """Letters alone do not make an archive."""
    assert sniff(text) == "none"
    check_is_text(text, uri="data.csv")


@pytest.mark.parametrize(
    ("head", "named"),
    [
        (b"PK\x03\x04rest", "zip archive"),
        (b"7z\xbc\xaf\x27\x1crest", "7z archive"),
        (b"ORC\x08\x03\x10\x00", "ORC file"),
        (b"Obj\x01rest", "Avro file"),
        (b"PGDMP\x01\x0e\x00", "pg_dump archive"),
        (b"PGCOPY\n\xff\r\n\x00", "COPY's binary format"),
        (bytes(257) + b"ustar\x0000" + bytes(247), "tar archive"),
        (b"\x1f\x9d\x90rest", "compress"),
        (b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n", "PDF document"),
        (b"\x89HDF\r\n\x1a\nrest", "HDF5 file"),
    ],
)
def test_other_formats_are_named(head: bytes, named: str) -> None:
    """An archive or a file of a format that cannot be loaded is refused by its name, with a hint."""
    with pytest.raises(SourceError, match=named) as caught:
        check_is_text(head, uri="data.csv")
    assert caught.value.hint


def _zip(*entries: tuple[str, str]) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        for name, content in entries:
            archive.writestr(name, content)
    return held.getvalue()


def _tar(name: str) -> bytes:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as archive:
        archive.addfile(tarfile.TarInfo(name))
    return held.getvalue()


@pytest.mark.parametrize(
    ("content", "named", "command"),
    [
        (_zip(("a b.csv", "1,2")), "zip archive", "unzip -p 'my data' 'a b.csv' | penstock load - "),
        (_zip(("folder/", ""), ("folder/a.csv", "1")), "zip archive", "unzip -p 'my data' NAME | "),
        (_zip(("[Content_Types].xml", "<x/>")), "Excel workbook", "(StarCalc):44,34,76' 'my data'"),
        (_zip(("docProps/app.xml", "<x/>")), "Excel workbook", "(StarCalc):44,34,76' 'my data'"),
        (
            _zip(("mimetype", "application/vnd.oasis.opendocument.spreadsheet")),
            "OpenDocument file",
            "(StarCalc):44,34,76' 'my data'",
        ),
        (_tar("a.csv"), "tar archive", "tar -xOf 'my data' a.csv | penstock load - "),
        (_tar("toc.dat"), "pg_dump archive", "pg_restore -d DATABASE 'my data'"),
        (b"PGDMP\x01\x0e\x00", "pg_dump archive", "pg_restore -d DATABASE 'my data'"),
        (b"SQLite format 3\x00", "SQLite database", "sqlite3 -header -csv 'my data'"),
    ],
)
def test_archive_is_named_by_its_content_and_its_hint_is_a_command(content: bytes, named: str, command: str) -> None:
    """The first file in an archive shows what the archive is. If that file can be loaded, the command names it."""
    for uri in ("my data", "s3://bucket/my data"):
        with pytest.raises(SourceError, match=named) as caught:
            check_is_text(content[:SIGNATURE_BYTES], uri=uri)
        assert command in (caught.value.hint or "")
