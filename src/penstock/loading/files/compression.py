"""Decompresses objects in constant memory: it takes stored pieces, and returns decompressed pieces of bounded size.

Supports gzip (by igzip), bzip2, xz, zstd and LZ4 frames, each with concatenated members. Every member must have its end
mark and checksum: a truncated or corrupt object is a SourceError that names the stored byte. signatures.py finds out
which codec an object needs.
"""

from __future__ import annotations

import bz2
import lzma
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

import lz4.frame
from isal import igzip_lib

from penstock.core.errors import SourceError
from penstock.core.slotted import slotted
from penstock.core.units import KIB, MIB
from penstock.core.values.source import Compression
from penstock.core.zstd import zstd

# The size of the pieces that blocks are made of. Each piece costs the interpreter about 120 us. With 512 KiB, a load
# takes 7 % less client CPU time than with 256 KiB. With 1 MiB, it takes 10 % more, because such pieces do not fit into
# a second-level cache of 2 MiB.
OUTPUT_PIECE_BYTES = 512 * KIB

# The largest window of a decompressor; the window is most of its memory. The highest levels of zstd (--ultra -22) and
# xz need this much. Without a limit, a file of 500 kB can ask for 2 GB and more.
WINDOW_LIMIT_BYTES = 128 * MIB

# How many bytes of a member are given to its decompressor first. The decompressor copies the input that it does not
# use, so giving it whole pieces would be slow for files of many tiny members (appended logs, BGZF).
_MIN_FEED_BYTES = 4 * KIB

_GZIP_MAGIC = b"\x1f\x8b\x08"
_GZIP_FIXED_BYTES = 10
_GZIP_CHECKSUM, _GZIP_EXTRA, _GZIP_NAME, _GZIP_COMMENT = 2, 4, 8, 16
# No file name or comment in a gzip header is expected to have more bytes than this.
_GZIP_TEXT_LIMIT_BYTES = 64 * KIB


class Decompressor(Protocol):
    """The interface of the incremental decompressors of all codecs. It is that of bz2 in the standard library.

    A decompressor reads one member: gzip, for example, allows several in one file.
    """

    @property
    def eof(self) -> bool:
        """Return whether the end of the member was reached, and its checksum was correct."""

    @property
    def needs_input(self) -> bool:
        """Return whether more input is needed for more output."""

    @property
    def unused_data(self) -> bytes | None:
        """Return the given bytes that follow the end of the member."""

    def decompress(self, data: bytes | memoryview, max_length: int, /) -> bytes:
        """Return at most `max_length` decompressed bytes. `data` are the next compressed bytes."""


# The first bytes of the sixteen kinds of skippable frames of zstd and LZ4.
_SKIPPABLE = bytes(range(0x50, 0x60))


@slotted
class _Codec:
    """A codec: how its decompressor is created, which errors the decompressor raises, and how a member begins.

    `header_length` returns how many bytes the decompressor must get first, None if the header is not complete.
    """

    name: Compression
    new: Callable[[], Decompressor]
    errors: tuple[type[Exception], ...]
    first_bytes: bytes
    allows_zero_padding: bool = False
    header_length: Callable[[memoryview], int | None] = lambda _: 0


def decompress(pieces: Iterable[bytes], *, compression: Compression, uri: str) -> Iterator[bytes]:
    """Return an iterator of the decompressed pieces, each of at most OUTPUT_PIECE_BYTES.

    `pieces` begins with the object's first byte. The iterator raises SourceError if the object is truncated or corrupt.
    """
    if compression == "none":
        return _split(pieces)
    return _decompress_members(pieces, _CODECS[compression], uri)


def _damaged(uri: str, how: str, *, detail: str | None = None) -> SourceError:
    return SourceError(f'"{uri}" is {how}', detail=detail, hint="Fetch or write the file again.")


def _split(pieces: Iterable[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        if len(piece) <= OUTPUT_PIECE_BYTES:
            if piece:
                yield piece
        else:
            yield from (piece[at : at + OUTPUT_PIECE_BYTES] for at in range(0, len(piece), OUTPUT_PIECE_BYTES))


def _decompress_members(pieces: Iterable[bytes], codec: _Codec, uri: str) -> Iterator[bytes]:
    """Decompress one member after another; `offset` is the offset of the current piece in the object's stored bytes."""
    decoder: Decompressor | None = None
    offset = member_start = 0
    feed_bytes = OUTPUT_PIECE_BYTES
    # The part of a member's header that continues in the next piece.
    held = b""
    for piece in pieces:
        view = memoryview(held + piece if held else piece)
        position, held = 0, b""
        while position < len(view):
            if decoder is None:
                position += _padding_length(view[position:], codec)
                if position == len(view):
                    break
                member_start = offset + position
                if view[position] not in codec.first_bytes:
                    raise _damaged(uri, f"corrupt: data other than {codec.name} follows at byte {member_start}")
                if (header_bytes := codec.header_length(view[position:])) is None:
                    held = bytes(view[position:])
                    break
                decoder, feed_bytes = codec.new(), max(feed_bytes, header_bytes)
            taken = view[position : position + feed_bytes]
            yield from _feed(decoder, taken, codec, uri, offset + position)
            position += len(taken)
            feed_bytes *= 2
            if decoder.eof:
                position -= len(decoder.unused_data or b"")
                feed_bytes = max(_MIN_FEED_BYTES, 2 * (offset + position - member_start))
                decoder = None
        offset += position
    if decoder is not None:
        yield from _feed(decoder, b"", codec, uri, offset)
    if held or (decoder is not None and not decoder.eof):
        raise _damaged(uri, f"truncated: its {codec.name} data ends early at byte {offset + len(held)}")


def _feed(decoder: Decompressor, data: bytes | memoryview, codec: _Codec, uri: str, offset: int) -> Iterator[bytes]:
    """Pass `data`, which begins at `offset`, to the decompressor, and yield all its output."""
    end = offset + len(data)
    while True:
        try:
            piece = decoder.decompress(data, OUTPUT_PIECE_BYTES)
        except codec.errors as exc:
            # The bindings raise the same class for every error, so recognize a lack of memory by the text.
            if codec.name in ("xz", "zstd") and "memory" in str(exc).lower():
                raise SourceError(
                    f'"{uri}" needs more than 128 MiB of memory to decompress',
                    detail=f"Its {codec.name} window is larger.",
                    hint="Compress it again as zstd does without --long and xz with -9 at most, or pipe it in"
                    " decompressed.",
                ) from exc
            if codec.name == "zstd" and "dictionary" in str(exc).lower():
                raise SourceError(
                    f'"{uri}" needs the zstd dictionary it was compressed with',
                    hint='Decompress it with that dictionary and pipe it in with "-" as the source.',
                ) from exc
            how = f"corrupt: bad {codec.name} data before byte {end}"
            raise _damaged(uri, how, detail=f"The decompressor said: {exc}.") from exc
        if piece:
            yield piece
        if decoder.eof or (decoder.needs_input and len(piece) < OUTPUT_PIECE_BYTES):
            return
        data = b""


def _padding_length(view: memoryview, codec: _Codec) -> int:
    if not codec.allows_zero_padding or view[0] != 0:
        return 0
    return len(view) - len(bytes(view).lstrip(b"\0"))


def _gzip_header_length(view: memoryview) -> int | None:
    """Return the length of a member's header (RFC 1952, section 2.3), None if it continues after `view`.

    igzip must get a whole header: if the header comes in parts, igzip forgets which fields follow. The length is 0 for
    data that is not a header or is too long for one; igzip then reports the error.
    """
    head = bytes(view[:_GZIP_FIXED_BYTES])
    if not (_GZIP_MAGIC.startswith(head[:3]) or head.startswith(_GZIP_MAGIC)):
        return 0
    if len(head) < _GZIP_FIXED_BYTES:
        return None
    length, flags = _GZIP_FIXED_BYTES, head[3]
    if flags & _GZIP_EXTRA:
        length += 2 + int.from_bytes(view[length : length + 2], "little")
    for flag in (_GZIP_NAME, _GZIP_COMMENT):
        if flags & flag:
            ends = bytes(view[length : length + _GZIP_TEXT_LIMIT_BYTES]).find(0)
            if ends < 0:
                return 0 if len(view) >= length + _GZIP_TEXT_LIMIT_BYTES else None
            length += ends + 1
    if flags & _GZIP_CHECKSUM:
        length += 2
    return length if length <= len(view) else None


_CODECS: dict[Compression, _Codec] = {
    "gzip": _Codec(
        name="gzip",
        new=lambda: igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP),
        # The stub declares the class as an instance
        errors=(igzip_lib.IsalError,),  # type: ignore[arg-type]
        first_bytes=b"\x1f",
        allows_zero_padding=True,
        header_length=_gzip_header_length,
    ),
    "bzip2": _Codec(name="bzip2", new=bz2.BZ2Decompressor, errors=(OSError,), first_bytes=b"B"),
    "xz": _Codec(
        name="xz",
        # The decoder needs a little more memory than its dictionary.
        new=lambda: lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=WINDOW_LIMIT_BYTES + MIB),
        errors=(lzma.LZMAError,),
        first_bytes=b"\xfd",
        allows_zero_padding=True,
    ),
    "zstd": _Codec(
        name="zstd",
        new=lambda: zstd.ZstdDecompressor(
            options={zstd.DecompressionParameter.window_log_max: WINDOW_LIMIT_BYTES.bit_length() - 1}
        ),
        errors=(zstd.ZstdError,),
        first_bytes=b"\x28" + _SKIPPABLE,
    ),
    # The binding raises RuntimeError for every error of liblz4.
    "lz4": _Codec(
        name="lz4",
        new=lz4.frame.LZ4FrameDecompressor,
        errors=(RuntimeError,),
        first_bytes=b"\x04" + _SKIPPABLE,
    ),
}
