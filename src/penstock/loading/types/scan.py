"""Looks at every value of the files: one pass of the Rust core over the blocks that a load would send."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock import _native
from penstock.copyformat import Encoder, make_form_encoder
from penstock.copyformat.encoder import python_codec
from penstock.errors import Interrupted
from penstock.files.listing import is_remote
from penstock.files.parallel import map_at_once
from penstock.host import cpu_count
from penstock.loading.plan.columns import refuse_many_names
from penstock.loading.reading.objects import open_blocks
from penstock.model.source.types import BITS, ColumnFindings, Witness

if TYPE_CHECKING:
    from concurrent.futures import Future

    from penstock.loading.context import LoadTools
    from penstock.loading.plan.work import ObjectWork
    from penstock.model.load.reject import RecordForm
    from penstock.model.source.block import Block

# Objects that are read at once: local ones wait for processors, remote ones for answers.
_REMOTE_READERS = 8
# Blocks of one object that wait for a thread, of at most 512 KiB each.
_BLOCKS_AHEAD = 8

Findings = dict[str, ColumnFindings]


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
                # Nothing of an object that cannot be read is loaded.
                _merge(found, each or Findings())
        finally:
            stop.set()
    return found


def _scan_object(
    work: ObjectWork, tools: LoadTools, pool: ThreadPoolExecutor, *, wanted: int, stop: threading.Event
) -> Findings:
    stream, blocks, _, form = open_blocks(work, tools)
    found = Findings()
    scan = (_JsonScan if form.dialect.format == "jsonl" else _ObjectScan)(work, form, wanted=wanted)
    running: deque[Future[Findings]] = deque()
    with stream:
        for block in blocks:
            if stop.is_set():
                raise Interrupted("load interrupted")
            if block.records and block.fault is None:
                running.append(pool.submit(scan.find, block))
            # A few blocks at a time: memory does not grow with the file.
            if len(running) > _BLOCKS_AHEAD:
                _merge(found, running.popleft().result())
                scan.check(found)
    for each in running:
        _merge(found, each.result())
    scan.check(found)
    return found


class _Scan:
    """Turns what the Rust core finds in blocks of one object into findings."""

    def __init__(self, work: ObjectWork, form: RecordForm, *, wanted: int) -> None:
        self._uri, self._number, self._wanted = work.source.uri, work.number, wanted
        self._codec = python_codec(form.encoding)

    def check(self, found: Findings) -> None:
        """Raise TargetError if there are more names than columns: names that are data would fill the memory."""
        refuse_many_names(len(found), uri=self._uri)

    def _note(self, block: Block, types: _native.Types) -> ColumnFindings:
        fits, first, lost = types
        each = ColumnFindings(fits=fits)
        if first is not None:
            each.first = self._see(block, first)
        for bits, seen in lost:
            position = self._see(block, seen)
            each.lost.update((bit, position) for bit in BITS if bits & bit)
        return each

    def _see(self, block: Block, seen: tuple[int, bytes]) -> tuple[tuple[int, int], Witness]:
        line = block.first_line + seen[0]
        value = seen[1].decode(self._codec, errors="replace")
        return (self._number, line), Witness(uri=self._uri, line=line, value=value)


class _JsonScan(_Scan):
    """Finds the names in blocks of JSON Lines, and the types of their values."""

    def find(self, block: Block) -> Findings:
        """Return what the values of a block allow."""
        found = _native.find_json_types(block.segments, wanted=self._wanted)
        return {name.decode(errors="replace"): self._note(block, types) for name, types in found}


class _ObjectScan(_Scan):
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
        """Return what the values of a block allow."""
        columns = self._rewriter.find_types(block.segments, block.line_end, wanted=self._wanted, forced=self._forced)
        return {name: self._note(block, types) for name, types in zip(self._columns, columns, strict=bool(columns))}


def _merge(found: Findings, other: Findings) -> None:
    for name, each in other.items():
        if name in found:
            found[name].add(each)
        else:
            found[name] = each
