"""Reads the footer of a Parquet file: its row groups, what their columns take, and what Arrow's types do not say.

pyarrow's own accessors of a column's metadata (RowGroupMetaData.column) end the process if they throw, which they do
for encrypted columns and for some damaged footers. So nothing here calls them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types

from penstock import _native
from penstock.errors import SourceError
from penstock.files.columnar.types import is_encoded
from penstock.frozen import frozen
from penstock.units import KIB

if TYPE_CHECKING:
    from penstock.files.columnar.ranged import RangedFile

# Most footers are in the end of this length, which is one request to an object store. pyarrow reads as much.
_TAIL_BYTES: Final = 64 * KIB

_MAGIC: Final = b"PAR1"
_ENCRYPTED: Final = b"PARE"
# The length of the footer and the magic, which end a file.
_END_BYTES: Final = 8


class Chunk(NamedTuple):
    """The part of a column that is in a row group. `path` has the names of what the column is nested in, with dots."""

    path: str
    has_strings: bool
    has_dictionary: bool
    values: int
    decompressed_bytes: int
    compressed_bytes: int


@frozen
class Group:
    """A row group: its rows, its length decompressed, and its columns' chunks."""

    rows: int
    size_bytes: int
    chunks: Sequence[Chunk]


@frozen
class Footer:
    """What a footer says: pyarrow's metadata, and the row groups."""

    metadata: Any
    groups: Sequence[Group]


@frozen
class Leaves:
    """Indexes of columns by what Parquet has in them, at any depth, and Arrow's type does not say.

    `int96` have a timestamp of 96 bits, `intervals` an INTERVAL, `binaries` BINARY without a logical type.
    """

    int96: frozenset[int]
    intervals: frozenset[int]
    binaries: frozenset[int]


def read_footer(file: RangedFile, *, uri: str) -> Footer:
    """Return the footer of a file. Raises SourceError if the file is encrypted, ValueError if it is not valid."""
    tail = _read_tail(file, _TAIL_BYTES)
    if tail.endswith(_ENCRYPTED):
        raise _encrypted(uri)
    if not tail.endswith(_MAGIC) or len(tail) < _END_BYTES:
        raise ValueError("it does not end with a footer")
    length_bytes = int.from_bytes(tail[-_END_BYTES : -len(_MAGIC)], "little")
    if length_bytes > file.size() - _END_BYTES:
        raise ValueError(f"its footer is longer than the file: {length_bytes} bytes")
    if length_bytes > len(tail) - _END_BYTES:
        tail = _read_tail(file, length_bytes + _END_BYTES)
    footer = tail[-length_bytes - _END_BYTES :]
    is_encrypted, groups = _native.read_footer(footer[:-_END_BYTES])
    if is_encrypted:
        raise _encrypted(uri)
    return Footer(
        metadata=pq.read_metadata(pa.BufferReader(_MAGIC + footer)),
        groups=[
            Group(rows=rows, size_bytes=size_bytes, chunks=[Chunk(*chunk) for chunk in chunks])
            for rows, size_bytes, chunks in groups
        ],
    )


def find_leaves(metadata: Any, schema: Any) -> Leaves:
    """Return which columns of an Arrow schema have what Parquet's own schema says of them."""
    owners = [index for index, field in enumerate(schema) for _ in range(_count_leaves(field.type))]
    leaves = [metadata.schema.column(number) for number in range(metadata.num_columns)]

    def find(is_such: Any) -> frozenset[int]:
        return frozenset(owner for owner, leaf in zip(owners, leaves, strict=True) if is_such(leaf))

    return Leaves(
        int96=find(lambda leaf: leaf.physical_type == "INT96"),
        intervals=find(lambda leaf: leaf.converted_type == "INTERVAL"),
        binaries=find(lambda leaf: leaf.physical_type == "BYTE_ARRAY" and leaf.logical_type.type == "NONE"),
    )


def _count_leaves(kind: Any) -> int:
    """Return how many columns Parquet stores for a column of an Arrow type."""
    if isinstance(kind, pa.BaseExtensionType):
        return _count_leaves(kind.storage_type)
    if is_encoded(kind):
        return _count_leaves(kind.value_type)
    if not types.is_nested(kind):
        return 1
    return sum(_count_leaves(part) for part in _list_parts(kind))


def _list_parts(kind: Any) -> Iterator[Any]:
    if types.is_map(kind):
        return iter((kind.key_type, kind.item_type))
    return (kind.field(number).type for number in range(kind.num_fields))


def _read_tail(file: RangedFile, length_bytes: int) -> bytes:
    file.seek(max(file.size() - length_bytes, 0))
    return file.read(length_bytes)


def _encrypted(uri: str) -> SourceError:
    return SourceError(f'"{uri}" is an encrypted Parquet file', hint="Write it without encryption.")
