"""Opens an object for loading, by its format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.loading.formats import format_of
from penstock.loading.plan.dialects import refuse_other_pipe

if TYPE_CHECKING:
    from penstock.loading.context import LoadTools
    from penstock.loading.formats.format import Opened
    from penstock.loading.formats.sums import RangeSums
    from penstock.loading.reading.format_check import FormatCheck
    from penstock.loading.work import ObjectWork


def open_blocks(
    work: ObjectWork, tools: LoadTools, *, sums: RangeSums | None = None, format_check: FormatCheck | None = None
) -> Opened:
    """Open an object; see Format.open. `format_check` looks at the blocks."""
    refuse_other_pipe(work, tools.sources, tools.warnings)
    stream, blocks, encoder, form = format_of(work.target).open(work, tools, sums=sums)
    if format_check is not None:
        blocks = format_check.watch(blocks, work, encoder)
    return stream, blocks, encoder, form
