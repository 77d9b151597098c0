"""One session's thread: blocks into COPY commands, rows accounted for, failures put into the file's words."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from penstock import _native
from penstock.errors import DataError, PenstockError
from penstock.files.blocks import make_cutter, record_error
from penstock.loading.chunk import Chunk
from penstock.loading.explain import explain_failure
from penstock.loading.feed import NothingReady
from penstock.server.copy import CopyFailed, CopySession

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.loading.feed import BlockFeed, OpenObject
    from penstock.model.block import Block, CopySpec, LineEnd

# A COPY command's two round trips should cost under 2 % of it: it lasts at least this many times one of them ...
_ROUND_TRIPS_PER_CHUNK = 100
# ... and carries at least this much, below which not even a local server's start of a COPY is worth its while.
_CHUNK_BYTES = 64 * 1024 * 1024

# How long a COPY command stays open without data: a source may be silent for hours (a pipe), and libpq may hold an
# error that the socket no longer shows.
_PATIENCE_S = 1.0

_T = TypeVar("_T")


@dataclass(slots=True)
class SessionTotals:
    """What a session did: rows the server reported, rows its triggers kept out, payload bytes, seconds not waiting."""

    rows: int = 0
    suppressed: int = 0
    bytes_copied: int = 0
    busy_s: float = 0.0


class LoadSession:
    """Runs one CopySession until the feed is empty; its transaction stays open for the load's end."""

    def __init__(
        self,
        number: int,
        session: CopySession,
        feed: BlockFeed,
        *,
        server_major: int,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.number = number
        self.session = session
        self.totals = SessionTotals()
        self.is_in_conflict = False
        self._feed = feed
        self._server_major = server_major
        self._clock = clock
        self._chunk: Chunk | None = None
        self._spec: CopySpec | None = None
        self._line_end: LineEnd | None = None
        self._began_s = 0.0
        self._current: OpenObject | None = None

    def run(self) -> None:
        """Send blocks until there are none; raises PenstockError, or Abandoned when the load failed elsewhere."""
        self._guarded(self.session.begin)
        while (taken := self._take()) is not None:
            began_s = self._clock()
            self._send(*taken)
            self.totals.busy_s += self._clock() - began_s
        began_s = self._clock()
        self._end_chunk()
        self._guarded(self.session.prepare_commit)
        self.totals.busy_s += self._clock() - began_s

    def _take(self) -> tuple[OpenObject, Block] | None:
        """Return the next block; where none comes for a while, end the COPY command first, to hear of its errors."""
        if self._chunk is not None:
            try:
                return self._feed.take(session=self.number, prefer=self._spec, patience_s=_PATIENCE_S)
            except NothingReady:
                self._end_chunk()
        return self._feed.take(session=self.number, prefer=self._spec)

    def _send(self, opened: OpenObject, block: Block) -> None:
        encoder = opened.encoder
        assert encoder is not None
        is_untouched = encoder.is_untouched(block)
        line_end: LineEnd = block.line_end if is_untouched else "lf"
        if self._chunk is not None and not self._continues(opened, encoder.spec, line_end):
            self._end_chunk()
        self._current = opened
        if self._chunk is None:
            self._begin_chunk(encoder.spec, line_end)
        chunk = self._chunk
        assert chunk is not None
        try:
            parts = encoder.encode(block)
        except _native.RecordError as exc:
            raise record_error(exc, uri=opened.source.uri, first_line=block.first_line) from exc
        chunk.add(
            block,
            uri=opened.source.uri,
            payload=parts,
            was_rewritten=not is_untouched,
            make_cutter=partial(make_cutter, opened.target.dialect, server_major=self._server_major),
        )
        self._guarded(lambda: self.session.send(parts))
        self.totals.bytes_copied += sum(map(len, parts))
        self._feed.note_sent(opened, block.records)
        if (is_untouched and block.is_unended) or self._is_long_enough(chunk) or self.session.has_answer():
            self._end_chunk()

    def _continues(self, opened: OpenObject, spec: CopySpec, line_end: LineEnd) -> bool:
        """Whether a block may travel in the COPY command that is open; triggers' rows are counted per object."""
        if spec != self._spec or line_end != self._line_end:
            return False
        return opened is self._current or not opened.target.allows_suppressed_rows

    def _is_long_enough(self, chunk: Chunk) -> bool:
        lasted_s = self._clock() - self._began_s
        return chunk.bytes_sent >= _CHUNK_BYTES and lasted_s >= _ROUND_TRIPS_PER_CHUNK * self.session.round_trip_s

    def _begin_chunk(self, spec: CopySpec, line_end: LineEnd) -> None:
        self._spec, self._line_end, self._began_s = spec, line_end, self._clock()
        self._chunk = Chunk(spec)
        self._guarded(lambda: self.session.start_copy(spec))

    def _end_chunk(self) -> None:
        chunk = self._chunk
        if chunk is None:
            return
        reported = self._guarded(self.session.finish_copy)
        self._chunk = None
        self._account(chunk, reported)

    def _account(self, chunk: Chunk, reported: int) -> None:
        """Hold the rows that COPY reported against the records that were cut."""
        opened = self._current
        assert opened is not None
        missing = chunk.records - reported
        if missing < 0 or (missing and not opened.target.allows_suppressed_rows):
            raise DataError(
                f"COPY reported {reported} rows for {chunk.records} records",
                detail=f"{opened.source.uri}: the server and penstock disagree about where records end.",
                hint="Check --format, --quote and --escape; please report this as a bug if they are right.",
            )
        self.totals.rows += reported
        self.totals.suppressed += missing
        if missing:
            self._feed.note_suppressed(opened, missing)

    def _guarded(self, act: Callable[[], _T]) -> _T:
        try:
            return act()
        except CopyFailed as failure:
            raise self._explain(failure) from failure

    def _explain(self, failure: CopyFailed) -> PenstockError:
        return explain_failure(
            failure,
            where=self._where(failure.place.line),
            constants=self._current.target.job.constants if self._current is not None else (),
            is_in_conflict=self.is_in_conflict,
        )

    def _where(self, line: int | None) -> str | None:
        """Return the place in the files: object and line, or the object alone where the server told no line."""
        if self._chunk is None or not self._chunk.uris:
            return None
        found = self._chunk.locate(line) if line is not None else None
        if found is not None:
            return f"{found.uri} line {found.line}"
        uris = self._chunk.uris
        return uris[0] if len(uris) == 1 else f"One of {len(uris)} objects, from {uris[0]} to {uris[-1]}"
