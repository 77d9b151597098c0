"""How a format is added (ARCHITECTURE.md): lines of fields of fixed width, planned, checked, loaded and resumed.

The class belongs into a file of src/penstock/loading/formats/, and an object of it into FORMATS there.
Run as a program, this file is a slow load of such a file.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.core.errors import DataError, FileLocation
from penstock.core.values.job import LoadJob
from penstock.loading.formats import FORMATS
from penstock.loading.formats.format import Edges, Format
from penstock.loading.formats.probe.columnar import SENT_DIALECT
from penstock.loading.formats.probe.probing import ProbeResult
from penstock.loading.formats.sent import make_object_encoder, make_row_block, make_row_form, watch_rows
from penstock.loading.views.plan import describe_plan
from support.loads import IMPATIENT, Loads, await_end_of_backends, target

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from penstock.core.values.dialect import DialectOptions
    from penstock.core.values.job import TargetJob
    from penstock.core.values.server import ServerFacts
    from penstock.core.values.source import ObjectSample
    from penstock.core.values.table import TableFacts
    from penstock.loading.formats.format import Opened, RangeSums, ReadTools
    from penstock.loading.values.objects import Block, PlannedObject
    from penstock.loading.values.plan import TargetPlan


class FixedWidth(Format):
    """Lines of fields of fixed width; the first line has their names and widths: #fixed id:4 name:10."""

    name = "fixed"

    def recognize(self, head: bytes, options: DialectOptions, *, is_whole: bool) -> bool:
        return options.format is None and head.startswith(b"#fixed ")

    def probe(
        self, sample: ObjectSample, job: TargetJob, facts: TableFacts | None, *, server: ServerFacts, rejects: bool
    ) -> ProbeResult:
        names = tuple(read_widths(sample.head))
        return ProbeResult(
            dialect=SENT_DIALECT,
            header=names,
            field_count=len(names),
            shapes=frozenset(),
            has_row_names=False,
            notices=(),
            reason="the first line has widths of fields",
        )

    def find_header(self, sample: ObjectSample, target: TargetPlan) -> Sequence[str] | None:
        return tuple(read_widths(sample.head))

    def open(self, work: PlannedObject, tools: ReadTools, *, sums: RangeSums | None = None) -> Opened:
        uri = work.source.uri
        stream = tools.sources.open(work.source, work.target.job.dialect)
        try:
            lines = split_lines(stream)
            widths = read_widths(next(lines, b""))
            form = make_row_form(list(widths), self.map_object(list(widths), work.target, uri=uri), work)
            encoder = make_object_encoder(form, work)
        except BaseException:
            stream.close()
            raise
        blocks = self._make_blocks(lines, list(widths.values()), uri=uri, rejects=tools.rejects_torn)
        watched, committed = watch_rows(blocks, form, sums), Edges(work.coverage.ranges)
        left = (block for block in watched if not committed.contain(block.start, block.end) or not block.records)
        return stream, left, encoder, form

    def _make_blocks(
        self, lines: Iterator[bytes], widths: Sequence[int], *, uri: str, rejects: bool
    ) -> Iterator[Block]:
        line, number = next(lines, None), 0
        if line is None:
            yield make_row_block(b"", 0, 0, is_last=True)
        while line is not None:
            following, fault = next(lines, None), None
            if len(line) != sum(widths):
                fault = f"the line has {len(line)} bytes, and its fields {sum(widths)}"
                location = FileLocation(file=uri, line=number + 2)
                if not rejects:
                    raise DataError(fault, detail=f"{location}.", location=location)
            row = write_row(line, widths)
            block = make_row_block(row, number, number + 1, is_last=following is None)
            # Row 0 is on line 2.
            yield replace(block, first_line=number + 2, fault=fault)
            line, number = following, number + 1


def read_widths(head: bytes) -> dict[str, int]:
    """Return the widths of the fields by name, as the first line has them."""
    words = head.partition(b"\n")[0].decode().split()[1:]
    return {name: int(width) for name, _, width in (word.partition(":") for word in words)}


def split_lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield lines without their ends."""
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        yield from lines
    if rest:
        yield rest


def write_row(line: bytes, widths: Sequence[int]) -> bytes:
    """Return a line as COPY text; blank fields are null."""
    ends = [sum(widths[: number + 1]) for number in range(len(widths))]
    fields = (line[end - width : end].strip() for end, width in zip(ends, widths, strict=True))
    return b"\t".join(field.replace(b"\\", b"\\\\") or b"\\N" for field in fields) + b"\n"


# ---------------------------------------------------------------- what a load does with it

_SETUP = "CREATE TABLE t (id int, name text)"


@pytest.fixture
def loads(database18: str) -> Iterator[Loads]:
    """Provide a table, and have the format in the list."""
    added = FixedWidth()
    FORMATS.insert(0, added)
    yield Loads(database18, setup=_SETUP)
    FORMATS.remove(added)


def write(path: Path, rows: Iterable[tuple[object, object]]) -> Path:
    """Write a file of two fields."""
    path.write_text("#fixed id:6 name:8\n" + "".join(f"{number!s:>6}{name!s:<8}\n" for number, name in rows))
    return path


def test_new_format_is_planned(loads: Loads, tmp_path: Path) -> None:
    """And a file of another format does not go with it."""
    path = write(tmp_path / "a.txt", [(1, "Ada"), (2, "")])
    with loads.loader() as loader:
        lines = describe_plan(loader.foresee(loader.plan(LoadJob(targets=(target(path),), rules=IMPATIENT))))
    assert any(line.split() == ["dialect", "fixed,", "UTF8,", "not", "compressed"] for line in lines)
    assert any(line.split() == ["name", "->", "name", "text"] for line in lines)
    other = tmp_path / "b.csv"
    other.write_text("id,name\n3,Edsger\n")
    for paths, found in (([path, other], "delimited text; the first file fixed"), ([other, path], "fixed; the first")):
        with pytest.raises(DataError) as caught:
            loads.plan(target(paths))
        assert found in str(caught.value.detail)


def test_new_format_is_loaded(loads: Loads, tmp_path: Path) -> None:
    """Each file has its own order of fields; types are found in its values, and it is not loaded twice."""
    path = write(tmp_path / "a.txt", [(1, "Ada"), (2, ""), (3, "a\\b")])
    other = tmp_path / "b.txt"
    other.write_text("#fixed name:8 id:2\nGrace    4")
    assert loads.run(target([path, other])).rows == 4
    assert loads.rows() == [(1, "Ada"), (2, None), (3, "a\\b"), (4, "Grace")]
    os.utime(path, (0, 0))
    assert loads.run(target([path, other])).objects_skipped == 2
    loads.run(replace(target(path, into="u", create=True), types="infer"))
    assert loads.execute("SELECT sum(id) + 1 FROM u") == [(7,)]
    assert loads.run(target(write(tmp_path / "c.txt", []))).rows == 0


def test_new_format_is_checked_and_its_bad_lines_are_rejected(loads: Loads, tmp_path: Path) -> None:
    """By the lines of the file, whether the server or the format refuses them."""
    path = write(tmp_path / "a.txt", [(1, "Ada"), ("x", "Grace"), (3, "Edsger")])
    (problem,) = loads.check(target(path)).problems
    assert (problem.line, problem.column) == (3, "id")
    assert f"{path} line 3" in str(loads.refuse(target(path)).detail)
    short = write(tmp_path / "b.txt", [(7, "Alan")])
    for each in (path, short):
        with each.open("a") as file:
            file.write("     4Tony\n     5Barbara \n")
    assert "the line has 10 bytes" in loads.refuse(target(short)).message
    outcome = loads.run(target(path), rules=replace(IMPATIENT, on_error="reject"))
    assert (outcome.rows, outcome.rejected) == (3, 2)
    assert loads.execute("SELECT line FROM penstock.rejects ORDER BY line") == [(3,), (5,)]
    assert [number for number, _ in loads.rows()] == [1, 3, 5]


@pytest.mark.part("rest")
def test_new_format_is_resumed_after_a_kill(loads: Loads, tmp_path: Path) -> None:
    """What was committed is not sent again, and a file that has changed there is refused."""
    count = 400
    path = write(tmp_path / "a.txt", [(number, "x") for number in range(count)])
    argv = [sys.executable, __file__, loads.conninfo, str(path)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(argv, env=environment) as loading:
        try:
            while not loads.has_table("penstock.ranges") or not loads.count("penstock.ranges"):
                assert loading.poll() is None
                time.sleep(0.02)
        finally:
            loading.send_signal(signal.SIGKILL)
    await_end_of_backends(loads)
    committed = loads.count()
    assert 0 < committed < count
    content, rules = path.read_bytes(), replace(IMPATIENT, changed="load")
    path.write_bytes(content.replace(b"     0x", b"     0y"))
    with pytest.raises(DataError, match="has changed in a part that is already loaded"):
        loads.run(target(path), rules=rules)
    path.write_bytes(content)
    outcome = loads.run(target(path), rules=rules)
    assert (outcome.rows_before, outcome.rows) == (committed, count - committed)
    assert [number for (number,) in loads.execute("SELECT id FROM t ORDER BY id")] == list(range(count))


if __name__ == "__main__":
    FORMATS.insert(0, FixedWidth())
    slow = Loads(sys.argv[1], piece_bytes=16)
    slow.at_piece = lambda _number: time.sleep(0.02)
    slow.run(target(Path(sys.argv[2])), sessions=1, batch_bytes=200)
