"""How a binary format is added: records of fixed width, recognized by their first bytes, are one class and one line."""

from __future__ import annotations

import gzip
import struct
from typing import TYPE_CHECKING

import pytest

from penstock.core.errors import DataError, SourceError
from penstock.core.values.dialect import DialectOptions
from penstock.loading.files.streams import SourceReader
from penstock.loading.formats import FORMATS
from penstock.loading.formats.columnar import Columnar
from penstock.loading.formats.format import Edges, Format
from penstock.loading.formats.probe.columnar import SENT_DIALECT
from penstock.loading.formats.probe.probing import ProbeResult
from penstock.loading.formats.sent import make_object_encoder, make_row_block, make_row_form, watch_rows
from support.loads import AGAIN, Loads, target

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.core.values.job import TargetJob
    from penstock.core.values.server import ServerFacts
    from penstock.core.values.source import ObjectSample
    from penstock.core.values.table import TableFacts
    from penstock.loading.formats.format import Opened, RangeSums, ReadTools
    from penstock.loading.values.objects import Block, PlannedObject

_MAGIC = b"\xfeREC"
_RECORD = struct.Struct("<i6s")
_NAMES = ("id", "name")


class FixedRecords(Format):
    """A magic, the number of records, and records: a little-endian number, and a name of 6 bytes."""

    name = "records"
    is_binary = True

    def recognize(self, head: bytes, options: DialectOptions, *, is_whole: bool) -> bool:
        return head.startswith(_MAGIC)

    def read_own(self, sample: ObjectSample, options: DialectOptions, sources: SourceReader) -> int:
        return int.from_bytes(sample.head[4:8], "little")

    def probe(
        self, sample: ObjectSample, job: TargetJob, facts: TableFacts | None, *, server: ServerFacts, rejects: bool
    ) -> ProbeResult:
        return ProbeResult(
            dialect=SENT_DIALECT,
            header=_NAMES,
            field_count=len(_NAMES),
            shapes=frozenset(),
            has_row_names=False,
            notices=(),
            reason="the first bytes are those of fixed records",
        )

    def open(self, work: PlannedObject, tools: ReadTools, *, sums: RangeSums | None = None) -> Opened:
        stream = tools.sources.open(work.source, work.target.job.dialect, format_name=self.name)
        form = make_row_form(_NAMES, self.map_object(_NAMES, work.target, uri=work.source.uri), work)
        watched, committed = watch_rows(_make_blocks(iter(stream)), form, sums), Edges(work.coverage.ranges)
        left = (block for block in watched if not committed.contain(block.start, block.end) or not block.records)
        return stream, left, make_object_encoder(form, work), form


def _make_blocks(pieces: Iterator[bytes]) -> Iterator[Block]:
    held = b"".join(pieces)
    count = int.from_bytes(held[4:8], "little")
    records = list(_RECORD.iter_unpack(held[8:]))
    if count != len(records):
        raise DataError(f"the file has {len(records)} of {count} records")
    for start, (number, name) in enumerate(records):
        row = f"{number}\t{name.rstrip(b' ').decode()}\n".encode()
        yield make_row_block(row, start, start + 1, is_last=start + 1 == count)
    if not count:
        yield make_row_block(b"", 0, 0, is_last=True)


def _pack(*rows: tuple[int, str]) -> bytes:
    records = (_RECORD.pack(number, name.encode().ljust(6)) for number, name in rows)
    return _MAGIC + len(rows).to_bytes(4, "little") + b"".join(records)


@pytest.fixture
def loads(database18: str) -> Iterator[Loads]:
    """Provide a table, and have the format in the list."""
    added = FixedRecords()
    FORMATS.insert(0, added)
    yield Loads(database18, setup="CREATE TABLE t (id int, name text)")
    FORMATS.remove(added)


def test_new_binary_format_is_loaded(loads: Loads, tmp_path: Path) -> None:
    """Its bytes are not decoded as text, compressed or not, and a file is not loaded twice."""
    path, packed, empty = (tmp_path / name for name in ("a.rec", "b.rec.gz", "c.rec"))
    path.write_bytes(_pack((-2, "Ada"), (10, "Zoë"), (2_000_000_000, "")))
    packed.write_bytes(gzip.compress(_pack(*((number, "x") for number in range(256)))))
    empty.write_bytes(_pack())
    assert loads.run(target([path, packed, empty])).rows == 259
    assert loads.rows("t WHERE name <> 'x'") == [(-2, "Ada"), (10, "Zoë"), (2_000_000_000, "")]
    assert loads.run(target([path, packed, empty])).objects_skipped == 3
    loads.run(target(path, into="u", create=True), rules=AGAIN)
    assert loads.execute("SELECT sum(id::bigint) FROM u") == [(2_000_000_008,)]


def test_new_binary_format_is_not_mixed_with_another(loads: Loads, tmp_path: Path) -> None:
    """And its damage is an error of the format."""
    path, other = tmp_path / "a.rec", tmp_path / "b.csv"
    path.write_bytes(_pack((1, "Ada")))
    other.write_text("id,name\n3,Edsger\n")
    for paths, found in (([path, other], "delimited text; the first file records"), ([other, path], "records; the")):
        assert found in str(loads.refuse(target(paths)).detail)
    path.write_bytes(_pack((1, "Ada")).replace(b"\x01", b"\x02", 1))
    assert loads.refuse(target(path)).message == "the file has 1 of 2 records"


@pytest.mark.parametrize(
    ("data", "asked", "message"),
    [
        (_pack((1, "Ada")), None, "has format records, not text"),
        (b"1,Ada\n", "records", "has format text, not records"),
    ],
)
def test_object_that_is_no_longer_of_its_format_is_refused(
    tmp_path: Path, data: bytes, asked: str | None, message: str
) -> None:
    """A binary file is never read as text, nor text as a binary file."""
    path = tmp_path / "a"
    path.write_bytes(data)
    with SourceReader(formats=[FixedRecords()]) as reader, pytest.raises(SourceError, match=message):
        reader.open(reader.list([str(path)])[0], format_name=asked)


@pytest.mark.parametrize(
    ("head", "is_columnar"),
    [
        (b"PAR1\x15\x04\x15\x00", True),
        (b"PAR1", True),
        (b"PAR1 and text", True),
        (b"PAR1,PAR2\n", False),
        (b"ARROW1\x00\x00", True),
        (b"ARROW1,x\n", False),
        (b"", False),
    ],
)
def test_columnar_file_is_recognized_by_its_format(head: bytes, is_columnar: bool) -> None:
    """By its first bytes alone, or because the options say so."""
    assert Columnar().recognize(head, DialectOptions(), is_whole=True) is is_columnar
    assert Columnar().recognize(head, DialectOptions(format="arrow"), is_whole=True)
