"""zstd: frames cut into their blocks, so that memory stays bounded and a truncated frame is noticed.

The binding's decompressors either expand all they are given at once (a few bytes can stand for gigabytes) or
end silently at a truncated frame. A block holds at most 128 KiB, and says where it ends: RFC 8878, section
3.1.1.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import zstandard

from penstock.errors import SourceError
from penstock.files.compression import WINDOW_LIMIT_BYTES, corrupt, needs_memory, trailing_garbage, truncated

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_FRAME_MAGIC = b"\x28\xb5\x2f\xfd"

_RLE_BLOCK, _RESERVED_BLOCK = 1, 3
_CHECKSUM_BYTES = 4
_DICTIONARY_ID_BYTES = (0, 1, 2, 4)


class _StoredBytes:
    """The object's stored bytes, taken in exact lengths; `offset` is the next one's position."""

    def __init__(self, pieces: Iterable[bytes], uri: str) -> None:
        self._pieces = iter(pieces)
        self._piece = b""
        self._position = 0
        self._uri = uri
        self.offset = 0

    def take(self, length_bytes: int) -> bytes:
        """Return the next `length_bytes` bytes, or raise SourceError where the object ends before them."""
        taken = self.take_up_to(length_bytes)
        if len(taken) < length_bytes:
            raise truncated(compression="zstd", uri=self._uri, offset=self.offset)
        return taken

    def take_up_to(self, length_bytes: int) -> bytes:
        """Return the next `length_bytes` bytes, or what there is until the object's end."""
        end = self._position + length_bytes
        taken = self._piece[self._position : end]
        self._position = min(end, len(self._piece))
        if len(taken) < length_bytes:
            taken = self._take_across(taken, length_bytes)
        self.offset += len(taken)
        return taken

    def skip(self, length_bytes: int) -> None:
        """Pass over `length_bytes` bytes a bounded step at a time (a skippable frame may be 4 GiB long)."""
        step_bytes = 1 << 18
        for start in range(0, length_bytes, step_bytes):
            self.take(min(step_bytes, length_bytes - start))

    def _take_across(self, head: bytes, length_bytes: int) -> bytes:
        parts, missing = [head], length_bytes - len(head)
        while missing:
            self._piece = next(self._pieces, b"")
            if not self._piece:
                self._position = 0
                break
            parts.append(self._piece[:missing])
            self._position = len(parts[-1])
            missing -= self._position
        return b"".join(parts)


def decompress_zstd(pieces: Iterable[bytes], *, uri: str) -> Iterator[bytes]:
    """Yield what the frames hold, a block at a time (at most 128 KiB)."""
    # A piece of no bytes would read as the end
    stored = _StoredBytes(filter(None, pieces), uri)
    while magic := stored.take_up_to(4):
        if magic == _FRAME_MAGIC:
            yield from _decompress_frame(stored, uri)
        elif len(magic) == 4 and 0x50 <= magic[0] <= 0x5F and magic[1:] == b"\x2a\x4d\x18":
            stored.skip(int.from_bytes(stored.take(4), "little"))
        elif _FRAME_MAGIC.startswith(magic):
            raise truncated(compression="zstd", uri=uri, offset=stored.offset)
        else:
            raise trailing_garbage(compression="zstd", uri=uri, offset=stored.offset - len(magic))


def _decompress_frame(stored: _StoredBytes, uri: str) -> Iterator[bytes]:
    """Yield one frame's blocks; `stored` stands behind the frame's magic number."""
    decoder = zstandard.ZstdDecompressor(max_window_size=WINDOW_LIMIT_BYTES).decompressobj()
    descriptor = stored.take(1)
    header = _FRAME_MAGIC + descriptor + stored.take(_header_length(descriptor[0]))
    # A header that is none is the decoder's to name
    with suppress(zstandard.ZstdError):
        if zstandard.get_frame_parameters(header).window_size > WINDOW_LIMIT_BYTES:
            raise needs_memory(compression="zstd", uri=uri)
    _decompress_part(decoder, header, uri, stored.offset)
    is_last = False
    while not is_last:
        start = stored.offset
        block_header = stored.take(3)
        is_last, length_bytes = _read_block_header(block_header, uri, start)
        if piece := _decompress_part(decoder, block_header + stored.take(length_bytes), uri, start):
            yield piece
    if descriptor[0] & 0x04:
        start = stored.offset
        _decompress_part(decoder, stored.take(_CHECKSUM_BYTES), uri, start)
    if not decoder.eof:
        raise corrupt(compression="zstd", uri=uri, offset=stored.offset, reason="the frame does not end here")


def _header_length(descriptor: int) -> int:
    """Return the length of the frame header behind its descriptor (RFC 8878, section 3.1.1.1)."""
    is_single_segment = bool(descriptor & 0x20)
    size_flag = descriptor >> 6
    content_size_bytes = (1 if is_single_segment else 0) if size_flag == 0 else 1 << size_flag
    window_bytes = 0 if is_single_segment else 1
    return window_bytes + _DICTIONARY_ID_BYTES[descriptor & 0x03] + content_size_bytes


def _read_block_header(header: bytes, uri: str, offset: int) -> tuple[bool, int]:
    """Return whether the block is the frame's last, and its stored length."""
    value = int.from_bytes(header, "little")
    is_last, block_type, size = bool(value & 1), (value >> 1) & 3, value >> 3
    if block_type == _RESERVED_BLOCK:
        raise corrupt(compression="zstd", uri=uri, offset=offset, reason="reserved block type")
    return is_last, 1 if block_type == _RLE_BLOCK else size


def _decompress_part(decoder: zstandard.ZstdDecompressionObj, part: bytes, uri: str, offset: int) -> bytes:
    try:
        return decoder.decompress(part)
    except zstandard.ZstdError as exc:
        if "dictionary" in str(exc).lower():
            raise SourceError(
                f'"{uri}" needs the zstd dictionary it was compressed with',
                hint='Decompress it with that dictionary and pipe it in with "-" as the source.',
            ) from exc
        raise corrupt(compression="zstd", uri=uri, offset=offset, reason=exc) from exc
