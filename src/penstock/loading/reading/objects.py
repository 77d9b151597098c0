"""Opens an object for loading, by its format, and compares it with what is committed of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from penstock.loading.formats import format_of
from penstock.loading.plan.dialects import refuse_other_pipe

if TYPE_CHECKING:
    from penstock.loading.context import LoadTools
    from penstock.loading.formats.format import Opened
    from penstock.loading.formats.sums import RangeSums
    from penstock.loading.reading.format_check import FormatCheck
    from penstock.loading.work import ObjectWork
    from penstock.model.load.ledger import CommittedRange


def open_blocks(
    work: ObjectWork, tools: LoadTools, *, sums: RangeSums | None = None, format_check: FormatCheck | None = None
) -> Opened:
    """Open an object; see Format.open. `format_check` looks at the blocks."""
    refuse_other_pipe(work, tools.sources, tools.warnings)
    stream, blocks, encoder, form = format_of(work.target).open(work, tools, sums=sums)
    if format_check is not None:
        blocks = format_check.watch(blocks, work, encoder)
    return stream, blocks, encoder, form


def compare_committed(
    work: ObjectWork, committed: Sequence[CommittedRange], tools: LoadTools
) -> Literal["same", "grown", "changed"]:
    """Compare an object with what is committed of it; see RangeSums.state. Raises SourceError, DataError."""
    return format_of(work.target).compare(work, committed, tools)
