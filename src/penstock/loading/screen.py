"""Records that the table is certain to refuse, found by penstock itself: COPY gives up a whole command for each. Pure.

Only what needs no knowledge of types: how many fields there are, nulls where the column takes none, bytes that are no
characters. The reasons are in the server's words, of which the code counts and not the language.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.model.reject import Reason

if TYPE_CHECKING:
    from penstock.copyformat import Encoder
    from penstock.model.block import Block
    from penstock.model.plan import TargetPlan
    from penstock.model.reject import RecordForm

# Too few or too many fields: "bad copy file format".
BAD_FORMAT = "22P04"
_BAD_BYTES = "22021"
_NULL = "23502"

# The codes of what a screen finds.
SCREENED = frozenset((BAD_FORMAT, _BAD_BYTES, _NULL))


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """What is known of one object's records and their table. `columns` has each field's, None where it is not sent."""

    encoder: Encoder
    table: str
    columns: tuple[str | None, ...]
    not_null: tuple[int, ...]
    is_utf8: bool

    def find(self, block: Block) -> list[tuple[int, Reason]]:
        """Return the records of a block that would be refused, by their index, and why."""
        found = self.encoder.rewriter.screen(
            block.segments,
            block.line_end,
            width=len(self.columns),
            not_null=self.not_null,
            is_utf8=self.is_utf8,
        )
        return [(record, self._describe(kind, number)) for record, kind, number in found]

    def _describe(self, kind: str, number: int) -> Reason:
        if kind == "bytes":
            return Reason(message='invalid byte sequence for encoding "UTF8"', sqlstate=_BAD_BYTES)
        if kind == "null":
            column = self.columns[number]
            message = f'null value in column "{column}" of relation "{self.table}" violates not-null constraint'
            return Reason(message=message, sqlstate=_NULL, column=column)
        message = "extra data after last expected column"
        if number < len(self.columns):
            column = self.columns[number]
            message = f'missing data for column "{column}"' if column is not None else "missing data"
        detail = f"The record has {number} fields, and {len(self.columns)} are expected."
        return Reason(message=message, sqlstate=BAD_FORMAT, detail=detail)


def make_screen(target: TargetPlan, form: RecordForm, encoder: Encoder) -> Screen | None:
    """Return what is known to be refused of an object's records; None where that depends on the server."""
    sent = form.column_map.columns
    fields = sent[: len(sent) - len(form.column_map.constants)]
    columns: tuple[str | None, ...] = fields
    if form.column_map.keep is not None:
        if form.column_map.field_count is None:
            return None
        by_field = dict(zip(form.column_map.keep, fields, strict=True))
        columns = tuple(by_field.get(index) for index in range(form.column_map.field_count))
    if not columns:
        return None
    return Screen(
        encoder=encoder,
        table=target.table.name,
        columns=columns,
        not_null=_find_not_null(target, columns),
        is_utf8=form.encoding.upper() == "UTF8",
    )


def _find_not_null(target: TargetPlan, columns: tuple[str | None, ...]) -> tuple[int, ...]:
    """Return the fields whose nulls the table refuses; none where a trigger may fill or drop them before it looks."""
    facts = target.facts
    if facts is None or target.landing != "table" or facts.suppressing_triggers or target.allows_suppressed_rows:
        return ()
    strict = {column.name for column in facts.columns if column.is_not_null}
    return tuple(index for index, name in enumerate(columns) if name in strict)
