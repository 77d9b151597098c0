"""Decides for each table whether its files are sent as text, as csv without quotes, or in COPY's binary format.

The result of a load does not depend on the format. If the server refuses a batch with encoded blocks, the batch is
undone. The next attempt sends the batch's objects as text, so that the error names file, line and column.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

from penstock import _native
from penstock.core.errors import PenstockError, TargetError, UsageError
from penstock.core.values.server import ServerFacts
from penstock.core.values.table import Column
from penstock.ledger.rejects import RecordForm
from penstock.loading.copy.encoded import (
    EncodedBlocks,
    find_obstacle,
    find_plain_obstacle,
    gain_per_row,
    gains_of,
    make_binary,
    make_native,
    make_plain,
)
from penstock.loading.copy.payload import Encoder, make_encoder
from penstock.loading.files.encodings import client_encoding
from penstock.loading.formats import format_of
from penstock.loading.values.objects import PlannedObject
from penstock.loading.values.plan import CopyChoice, RowFacts, TargetPlan, stored_size, table_after_creation

# Since PostgreSQL 19, lines are scanned by SIMD up to the first quote or backslash of a COPY command
# (copyfromparse.c, CopyReadLineText). Earlier versions gain nothing.
_FAST_SCAN_MAJOR: Final = 19


def choose_formats(targets: Sequence[TargetPlan], facts: RowFacts) -> list[TargetPlan]:
    """Return the targets with `copy` set: the format of COPY in which their rows are sent, and why.

    Raises UsageError or TargetError if --copy-format names a format that cannot be used.
    """
    size_bytes = stored_size(targets)
    return [replace(target, copy=_choose(target, facts, size_bytes=size_bytes)) for target in targets]


def _choose(target: TargetPlan, facts: RowFacts, *, size_bytes: int | None) -> CopyChoice:
    asked = target.job.copy_format
    what = format_of(target).own_copy or ("imports from S3" if facts.route.is_import else None)
    if what is not None:
        if asked != "auto":
            raise UsageError(f"--copy-format is for text files that penstock sends, not for {what}")
        return CopyChoice()
    if target.refusal is not None or asked == "text":
        return CopyChoice(reason="as requested" if asked == "text" else "every object is loaded already")
    columns = _find_columns(target, target.column_map.columns)
    rule = _find_rule(target, facts)
    obstacle = rule or _find_encoding(facts.server) or find_obstacle(target.dialect, target.column_map, columns)
    if asked == "binary":
        if obstacle is not None:
            raise _refuse_binary(target, columns, obstacle)
        return CopyChoice(format="binary", reason="as requested")
    is_small = size_bytes is not None and size_bytes < facts.tuning.least_binary_bytes
    if obstacle is not None:
        choice = CopyChoice(reason=obstacle)
    elif is_small:
        choice = CopyChoice(reason="the load is too small to gain from another format")
    else:
        choice = _weigh(target, [column for column in columns if column is not None], major=facts.server.major)
    is_fast = facts.server.major >= _FAST_SCAN_MAJOR and not is_small and rule is None
    if choice.format == "text" and is_fast and find_plain_obstacle(target.dialect, target.column_map) is None:
        words = f"{choice.reason}; written without quotes and backslashes, which this server scans faster"
        return CopyChoice(reason=words, is_plain=True)
    return choice


def _find_rule(target: TargetPlan, facts: RowFacts) -> str | None:
    """Return the rule or option that requires that text is sent as it is in the files, None if none does."""
    rules = (
        ("rejected records are lines of text (--on-error reject)", facts.rules.on_error == "reject"),
        ("records are staged with their positions (--mode, --atomic, --transform)", target.is_staged),
        ("a source can be read only once, and a refused batch is sent again as text", not facts.is_repeatable),
    )
    return next((words for words, is_so in rules if is_so), None)


def _find_encoding(server: ServerFacts) -> str | None:
    encoding = server.server_encoding
    return None if encoding == "UTF8" else f"the database's encoding is {encoding}"


def _refuse_binary(target: TargetPlan, columns: Sequence[Column | None], obstacle: str) -> PenstockError:
    message = f'table "{target.table}" cannot be loaded with --copy-format binary'
    hint = "Use --copy-format auto, which sends it as text."
    is_column = any(column is not None and f'column "{column.name}"' in obstacle for column in columns)
    error = TargetError if is_column else UsageError
    return error(message, detail=f"{obstacle[:1].upper()}{obstacle[1:]}.", hint=hint)


def _weigh(target: TargetPlan, columns: Sequence[Column], *, major: int) -> CopyChoice:
    """Choose the format by the cost model, the widths of values in the sample, and whether the encoder accepts them."""
    dialect, sample = target.dialect, target.sample
    head = sample.head
    form = _native.Form(
        format=dialect.format,
        delimiter=dialect.delimiter.encode(),
        quote=None if dialect.quote is None else dialect.quote.encode(),
        escape=None if dialect.escape is None else dialect.escape.encode(),
    )
    cut = form.cut(head, is_whole=sample.is_whole, first_line=sample.first_line)
    records = cut.whole[1 if dialect.has_header else 0 :]
    if not records:
        return CopyChoice(reason="the first file's sample has no records")
    # A record's line end is just before the start of the next record.
    stop = records[-1].start if len(records) > 1 else records[-1].end
    segments, line_end = [(head, records[0].start, stop)], cut.line_end or "lf"
    if target.column_map.notations:
        encoding = client_encoding(dialect.encoding)
        encoder = make_encoder(dialect, target.column_map, table=target.table, encoding=encoding)
        try:
            plain = encoder.rewriter.rewrite(segments, line_end)
        except _native.RecordError as error:
            return CopyChoice(reason=f"in the first file's sample, {error.args[0]}")
        segments, line_end = [(plain, 0, len(plain))], "lf"
    count, widths, refusal = make_native(dialect, columns).examine(segments, line_end)
    if refusal is not None:
        number, index, rule = refusal
        name = "" if index is None else f', column "{target.column_map.columns[index]}"'
        place = f"line {records[min(number, len(records) - 1)].line}{name}" if index is not None else "the sample"
        return CopyChoice(reason=f"{place} of the first file is not in a form that is encoded ({rule})")
    gains = gains_of(major)
    gain = gain_per_row([column.type_oid for column in columns], widths, records=count, gains=gains)
    if gain <= 0:
        return CopyChoice(reason="the binary format would not save time by the cost model")
    return CopyChoice(format="binary", reason=f"saves about {gain:.0f} ns for each row by the cost model")


def _find_columns(target: TargetPlan, names: Sequence[str]) -> list[Column | None]:
    table = table_after_creation(target)
    return [table.column(name) for name in names]


def open_encoded(
    work: PlannedObject, encoder: Encoder, form: RecordForm, *, as_text: Collection[int]
) -> EncodedBlocks | None:
    """Return what encodes an object's blocks in the format of COPY of its target, None if they are sent as text.

    `as_text` are the numbers of objects that are sent as text, because an earlier attempt has failed for them.
    """
    choice = work.target.copy
    if work.has_positions or work.number in as_text:
        return None
    if choice.is_plain:
        return make_plain(form.dialect, form.column_map, encoder)
    if choice.format != "binary":
        return None
    columns = _find_columns(work.target, form.column_map.columns)
    return make_binary(form.dialect, form.column_map, columns, encoder)
