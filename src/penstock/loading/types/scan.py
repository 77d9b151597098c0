"""Checks which types every value of the files allows, by one pass of the Rust core over the blocks of a load."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from penstock import _native
from penstock.core.errors import Interrupted
from penstock.core.files.listing import is_remote
from penstock.core.files.parallel import map_at_once
from penstock.core.host import cpu_count
from penstock.loading.copy.payload import Encoder, make_form_encoder, python_codec
from penstock.loading.formats import format_of
from penstock.loading.formats.columns import find_stated, refuse_many_names
from penstock.loading.formats.probe.columnar import read_folder_values
from penstock.loading.read.objects import open_blocks
from penstock.loading.values.plan import table_after_creation
from penstock.loading.values.types import BITS, ColumnFindings, Position, Witness

if TYPE_CHECKING:
    from concurrent.futures import Future

    from penstock.ledger.rejects import RecordForm
    from penstock.loading.context import LoadTools
    from penstock.loading.values.block import Block
    from penstock.loading.values.work import ObjectWork

# How many remote objects are read at once. Reading them is mostly waiting for answers, while local objects wait for
# processors.
_REMOTE_READERS = 8
# How many blocks of one object may wait for a thread. A block has at most 512 KiB.
_BLOCKS_AHEAD = 8

Findings = dict[str, ColumnFindings]

# A value that the Rust core has seen: the number of its line in the block, counted from 0, and its first bytes.
_Seen = tuple[int, bytes]


def scan_objects(works: Sequence[ObjectWork], tools: LoadTools, *, wanted: int) -> Findings:
    """Return, for each column of a table that the objects fill, which of the types `wanted` take all its values.

    If the objects are JSON Lines, return this for each name in their records.

    Reads every object to its end, in threads. Raises SourceError, and DataError for a record that cannot be cut.
    """
    cpus, found, stop = cpu_count(), Findings(), threading.Event()
    readers = _REMOTE_READERS if any(is_remote(work.source.location) for work in works) else cpus
    with ThreadPoolExecutor(max_workers=cpus, thread_name_prefix="penstock-types") as pool:
        try:
            for each in map_at_once(
                lambda work: tools.sources.try_to(lambda: _scan_object(work, tools, pool, wanted=wanted, stop=stop)),
                works,
                threads=readers,
            ):
                # An object that cannot be read is not loaded, so its values do not count.
                merge_findings(found, each or Findings())
        finally:
            stop.set()
    return found


def _scan_object(
    work: ObjectWork, tools: LoadTools, pool: ThreadPoolExecutor, *, wanted: int, stop: threading.Event
) -> Findings:
    stream, blocks, _, form = open_blocks(work, tools)
    found = Findings()
    scan = (_NameScan if format_of(work.target).is_by_name else _FieldScan)(work, form, wanted=wanted)
    running: deque[Future[Findings]] = deque()
    with stream:
        for block in blocks:
            if stop.is_set():
                raise Interrupted("load interrupted")
            if block.records and block.fault is None:
                running.append(pool.submit(scan.find, block))
            # Only a few blocks are in memory at a time, so memory does not grow with the file.
            if len(running) > _BLOCKS_AHEAD:
                merge_findings(found, running.popleft().result())
                scan.check(found)
    for each in running:
        merge_findings(found, each.result())
    scan.check(found)
    return found


class _Scan:
    """Turns what the Rust core finds in blocks of one object into findings."""

    def __init__(self, work: ObjectWork, form: RecordForm, *, wanted: int) -> None:
        self._uri, self._number, self._wanted = work.source.uri, work.number, wanted
        self._codec = python_codec(form.encoding)

    def check(self, found: Findings) -> None:
        """Raise TargetError if there are more names than a table may have columns.

        Names that are data would fill the memory.
        """
        refuse_many_names(len(found), uri=self._uri)

    def _note(self, block: Block, types: _native.Types) -> ColumnFindings:
        return _read_types(types, partial(self._see, block))

    def _see(self, block: Block, seen: _Seen) -> tuple[Position, Witness]:
        line = block.first_line + seen[0]
        value = seen[1].decode(self._codec, errors="replace")
        return (self._number, line), Witness(uri=self._uri, line=line, value=value)


class _NameScan(_Scan):
    """Finds the names in blocks of JSON Lines, and the types of their values."""

    def find(self, block: Block) -> Findings:
        """Return which types the values of a block allow."""
        found = _native.find_json_types(block.segments, wanted=self._wanted)
        return {name.decode(errors="replace"): self._note(block, types) for name, types in found}


class _FieldScan(_Scan):
    """Finds the types in blocks of delimited text."""

    def __init__(self, work: ObjectWork, form: RecordForm, *, wanted: int) -> None:
        super().__init__(work, form, wanted=wanted)
        mapped = form.column_map
        self._columns = mapped.columns[: len(mapped.columns) - len(mapped.constants)]
        own = replace(form, column_map=replace(mapped, columns=self._columns, constants=()))
        encoder: Encoder = make_form_encoder(own, checks_width=True)
        assert isinstance(encoder.rewriter, _native.Rewriter)
        self._rewriter = encoder.rewriter
        self._forced = [name in encoder.spec.force_null for name in self._columns]

    def find(self, block: Block) -> Findings:
        """Return which types the values of a block allow."""
        columns = self._rewriter.find_types(block.segments, block.line_end, wanted=self._wanted, forced=self._forced)
        return {name: self._note(block, types) for name, types in zip(self._columns, columns, strict=bool(columns))}


def scan_folders(works: Sequence[ObjectWork], *, wanted: int) -> Findings:
    """Return what `scan_objects` returns for the columns that names of folders fill. No object is read."""
    stated = []
    for work in works:
        mapped, table = work.target.column_map, table_after_creation(work.target)
        fed = mapped.columns[: len(mapped.columns) - len(mapped.constants)]
        stated.append(find_stated(read_folder_values(work.source.uri), fed=fed, job=work.target.job, table=table))
    # In JSON Lines, a text has the type that the same text has in a file.
    lines = "".join(f"{json.dumps(values)}\n" for values in stated).encode()

    def see(seen: _Seen) -> tuple[Position, Witness]:
        work = works[seen[0]]
        return (work.number, 0), Witness(uri=work.source.uri, line=None, value=seen[1].decode(errors="replace"))

    types = _native.find_json_types([(lines, 0, len(lines))], wanted=wanted)
    return {name.decode(): _read_types(each, see) for name, each in types}


def _read_types(types: _native.Types, see: Callable[[_Seen], tuple[Position, Witness]]) -> ColumnFindings:
    """Return the Rust core's findings about a column. `see` returns the position and the text of a value."""
    fits, first, lost = types
    each = ColumnFindings(fits=fits)
    if first is not None:
        each.first = see(first)
    for bits, seen in lost:
        position = see(seen)
        each.lost.update((bit, position) for bit in BITS if bits & bit)
    return each


def merge_findings(found: Findings, other: Findings) -> Findings:
    """Add the findings `other` to `found`, and return `found`."""
    for name, each in other.items():
        if name in found:
            found[name].add(each)
        else:
            found[name] = each
    return found
