"""Counts, while objects are read, what contradicts a guessed format, and finds records that omit names.

The format is guessed from the first block, which cannot prove it. A format that was given by an option is not checked.
"""

from __future__ import annotations

import json
import shlex
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from penstock import _native
from penstock.core.slotted import slotted
from penstock.core.units import format_count
from penstock.core.values.dialect import Dialect
from penstock.core.values.notice import Notice, WarningCode
from penstock.loading.copy.payload import Encoder
from penstock.loading.files.encodings import windows_page
from penstock.loading.formats import format_of
from penstock.loading.formats.probe.content import BY_JQ, Content, describe_conversion
from penstock.loading.formats.probe.mangling import explain_controls, find_null_words
from penstock.loading.values.objects import Block, PlannedObject
from penstock.loading.warned import WarningLog

# The number of kinds of contradictions: those of the Rust core, and control characters.
_KINDS: Final = 7


@slotted
class _Kind:
    """One kind of contradiction, and its warning."""

    code: WarningCode
    message: str
    hint: str


_QUOTED: Final = _Kind(
    code="quote-kept",
    message="fields in quotes, which are kept as data",
    hint="Use --format=csv if they are quoting, or --format={format} if they are data.",
)
_ESCAPES: Final = _Kind(
    code="backslash-kept",
    message="backslash escapes, which format {format} keeps as they are",
    hint="Use --format=text if the file was written by COPY TO, or --format={format} if they are data.",
)
_OTHERS: Final = _Kind(
    code="backslash-escape",
    message="backslashes that format text decodes, though COPY TO never wrote them",
    hint="Use --format=tsv if backslashes are data, or --format=text if they are escapes.",
)

_STRAYS: Final = _Kind(
    code="quote-dropped",
    message="quotes that are not around a whole field, which csv drops",
    hint="Use --format=tsv if quotes are data, --escape '\\\\' if backslashes escape them, or --quote with a character"
    " that is not in the file.",
)
_APOSTROPHES: Final = _Kind(
    code="quote-kept",
    message="fields in single quotes, which are kept as data",
    hint="""Use --quote="'" if they are quoting, or --format={format} if they are data.""",
)
_NULLS: Final = _Kind(
    code="literal-null",
    message="fields that are a word for null, which this dialect takes for text",
    hint="Use --null with that word (with --null '' too, if empty fields do), and --force-null='*' if it is quoted, or "
    "--format={format} if it is text.",
)


def _controls_kind(encoding: str) -> _Kind:
    message, hint = explain_controls(encoding, windows_page(encoding) or "")
    return _Kind(code="control-bytes", message=message, hint=hint)


@dataclass(slots=True)
class _Contradictions:
    """For each kind of contradiction to a table's dialect: how often files have it, and where the first of them is."""

    dialect: Dialect
    counts: list[int]
    positions: list[tuple[int, int, str]]

    def add(self, doubts: Sequence[tuple[int, int]], block: Block, work: PlannedObject) -> None:
        for kind, (count, line) in enumerate(doubts):
            position = (work.number, block.first_line + line, work.source.uri)
            if count and (not self.counts[kind] or position < self.positions[kind]):
                self.positions[kind] = position
            self.counts[kind] += count

    def notices(self) -> Iterator[Notice]:
        quoted, escapes, others, strays, apostrophes, nulls, controls = self.counts
        is_text = self.dialect.format == "text"
        warnings = (
            (_QUOTED, quoted > 0),
            # If the text has backslashes that COPY TO never writes, all backslashes are data. For example, `\t` in
            # C:\temp could be an escape, but such a file also has paths such as C:\Users.
            (_ESCAPES, escapes > 0 and not others and not is_text),
            (_OTHERS, others > 0 and is_text),
            (_STRAYS, strays > 0),
            (_APOSTROPHES, apostrophes > 0),
            (_NULLS, nulls > 0),
            (_controls_kind(self.dialect.encoding), controls > 0),
        )
        for at, (kind, is_due) in enumerate(warnings):
            if is_due:
                yield self._notice(kind, at)

    def _notice(self, kind: _Kind, at: int) -> Notice:
        _, line, uri = self.positions[at]
        words = kind.message.format(format=self.dialect.format)
        message = f"{words}: {format_count(self.counts[at])} from this line on"
        hint = kind.hint.format(format=self.dialect.format)
        return Notice(code=kind.code, message=message, uri=uri, line=line, hint=hint)


class FormatCheck:
    """Counts what contradicts guessed formats in the blocks of one load, such as quotes in a format without quotes.

    Each block counts once. Any thread may call its methods. `known` are the warnings of the plan: a warning with the
    code and object of one of them is not repeated.
    """

    def __init__(self, warnings: WarningLog, known: Iterable[Notice] = ()) -> None:
        self._warnings = warnings
        self._known = {(notice.code, notice.uri) for notice in known}
        self._lock = threading.Lock()
        self._found: dict[int, _Contradictions] = {}
        # The targets for which the warning of a record without all names was given.
        self._partial: set[int] = set()
        # The offset up to which each object was checked, because the next attempt reads again what was not committed.
        self._read: dict[int, int] = {}

    def watch(self, blocks: Iterable[Block], work: PlannedObject, encoder: Encoder) -> Iterable[Block]:
        """Return an iterable of the same blocks of an object, which checks each block when it is taken.

        Delimited text is checked if its format was guessed, and for control characters if its encoding is one of ISO
        8859, because they mean a code page of Windows. Records of JSON Lines that update rows are checked for omitted
        names.
        """
        found = format_of(work.target)
        if found.is_by_name and work.target.landing.updates:
            assert isinstance(encoder.rewriter, _native.JsonRewriter)
            return self._look_at_names(blocks, work, encoder.rewriter)
        if not found.is_delimited:
            return blocks
        options = work.target.job.dialect
        is_guessed = options.format is None and options.quote is None and options.escape is None
        has_controls = windows_page(work.target.dialect.encoding) is not None
        return self._look_through(blocks, work, is_guessed=is_guessed) if is_guessed or has_controls else blocks

    def _look_at_names(
        self, blocks: Iterable[Block], work: PlannedObject, rewriter: _native.JsonRewriter
    ) -> Iterator[Block]:
        """Yield the blocks. Warn once for each table, at the first record that does not name all of its columns."""
        for block in blocks:
            is_open = work.target_index not in self._partial
            if is_open and (partial := rewriter.find_partial(block.segments)) is not None:
                with self._lock:
                    is_open = work.target_index not in self._partial
                    self._partial.add(work.target_index)
                if is_open:
                    line, column = partial
                    self._warnings.add(_describe_partial(work, line=block.first_line + line, column=column))
            yield block

    def conclude(self) -> None:
        """Add a warning to the load's warnings for each kind of contradiction that was found since the last call."""
        with self._lock:
            found, self._found = self._found, {}
        for each in found.values():
            for notice in each.notices():
                if (notice.code, notice.uri) not in self._known:
                    self._warnings.add(notice)

    def _look_through(self, blocks: Iterable[Block], work: PlannedObject, *, is_guessed: bool) -> Iterator[Block]:
        dialect = work.target.dialect
        has_controls = windows_page(dialect.encoding) is not None
        for block in blocks:
            doubts = _find_doubts(block, dialect) if is_guessed else [(0, 0)] * (_KINDS - 1)
            doubts += [_native.find_controls(block.segments, line_end=block.line_end) if has_controls else (0, 0)]
            if any(count for count, _ in doubts):
                self._add(doubts, block, work)
                if self._warnings.is_strict:
                    # Warn before the block is sent, so that the load ends before its next commit.
                    self.conclude()
            yield block

    def _add(self, doubts: Sequence[tuple[int, int]], block: Block, work: PlannedObject) -> None:
        with self._lock:
            if block.start < self._read.get(work.number, 0):
                return
            self._read[work.number] = block.end
            found = self._found.setdefault(
                work.target_index, _Contradictions(work.target.dialect, [0] * _KINDS, [(0, 0, "")] * _KINDS)
            )
            found.add(doubts, block, work)


def _describe_partial(work: PlannedObject, *, line: int, column: int) -> Notice:
    target, uri = work.target, work.source.uri
    name = target.column_map.columns[column]
    named = [each for each, index in target.column_map.names or () if index == column]
    select = f"select(has({json.dumps(named[0] if named else name)})"
    split = Content(
        name="JSON Lines",
        advice=f"To keep the values of such rows, load these records by themselves, and the others too{BY_JQ}",
        command=f"jq -c {shlex.quote(f'{select} | not)')}",
        suffix=".part.jsonl",
    )
    hint = f"{describe_conversion(split, uri=uri, compression=target.sample.compression)}."
    if target.landing.deletes:
        # A sync of a part would delete the rows of the other records.
        hint = "Name the column in every record. A column that no record names keeps its values."
    return Notice(
        code="omitted-names",
        message=f'a record does not name column "{name}", which becomes null in its row',
        uri=uri,
        line=line,
        hint=hint,
    )


def _find_doubts(block: Block, dialect: Dialect) -> list[tuple[int, int]]:
    """Return each kind's count and first line within the block."""
    return _native.find_doubts(
        block.segments,
        is_csv=dialect.format == "csv",
        delimiter=dialect.delimiter.encode(),
        line_end=block.line_end,
        nulls=[word.encode() for word in find_null_words(dialect.nulls, dialect.format)],
        # In format tsv, backslashes are counted when the records are cut.
        with_backslashes=dialect.format != "tsv" or block.stray_backslashes > 0,
    )
