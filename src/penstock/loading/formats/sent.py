"""How an object's records are sent, and blocks of rows that a format writes itself, in COPY's own dialect. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.copyformat import Encoder, make_form_encoder
from penstock.copyformat.kept import find_kept_types
from penstock.files.probe.columnar import SENT_DIALECT
from penstock.loading.formats.sums import RangeSums, RowSums
from penstock.model.load.plan import table_after_creation
from penstock.model.load.reject import RecordForm
from penstock.model.source.block import Block

if TYPE_CHECKING:
    from penstock.loading.work import ObjectWork
    from penstock.model.server.table import ColumnMap


def make_object_encoder(form: RecordForm, work: ObjectWork) -> Encoder:
    """Return the encoder of an object's blocks; it knows the types of the columns that may change values."""
    encoder = make_form_encoder(form, positions=work.number if work.has_positions else None)
    if work.target.facts is None:
        # A table that the load creates has types that keep all values, or text.
        return encoder
    fed, table = len(form.column_map.columns) - len(form.column_map.constants), table_after_creation(work.target)
    return replace(encoder, kept=find_kept_types([table.column(name) for name in form.column_map.columns[:fed]]))


def make_row_form(names: Sequence[str], column_map: ColumnMap, work: ObjectWork) -> RecordForm:
    """Return how rows with these fields are sent."""
    escapes = {ord("\\"): "\\\\", ord("\t"): "\\t", ord("\n"): "\\n", ord("\r"): "\\r"}
    target = work.target
    return RecordForm(
        dialect=SENT_DIALECT,
        column_map=column_map,
        table=target.table if work.landing is None else work.landing,
        encoding="UTF8",
        # Files of rejected rows begin with the names.
        header=("\t".join(name.translate(escapes) for name in names) + "\n").encode(),
        allows_suppressed_rows=target.allows_suppressed_rows,
        working_names=work.working_names,
    )


def make_row_block(data: bytes, start: int, end: int, *, is_last: bool, part: str | None = None) -> Block:
    """Return the block of the rows from number `start` to the one before `end`, counted from 0.

    `part` names the part of the file that has them, None if a row is a line of the file.
    """
    return Block(
        segments=((data, 0, len(data)),) if data else (),
        start=start,
        end=end,
        first_line=start + 1,
        lines=end - start,
        server_lines=end - start,
        records=end - start,
        line_end="lf",
        stray_backslashes=0,
        is_unended=False,
        is_first=start == 0,
        is_last=is_last,
        unit="rows",
        part=part,
    )


def watch_rows(blocks: Iterable[Block], form: RecordForm, sums: RangeSums | None) -> Iterable[Block]:
    """Return blocks of rows, which `sums` gets as they are taken. They must be cut at its edges."""
    if sums is None:
        return blocks
    assert isinstance(sums, RowSums)
    sums.header = form.header
    return sums.watch_rows(blocks)
