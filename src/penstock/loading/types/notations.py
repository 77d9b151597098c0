"""Warns of columns whose values are numbers or dates in a notation that PostgreSQL does not read. Pure.

The warning names the option to give. Where two notations fit, it says that they cannot be told apart.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from penstock import _native
from penstock.core.values.notice import Notice
from penstock.core.values.server import DateOrder
from penstock.core.values.table import Column
from penstock.loading.copy.payload import make_encoder, python_codec
from penstock.loading.files.encodings import client_encoding
from penstock.loading.formats import format_of
from penstock.loading.formats.columns import (
    DATE_OIDS,
    NUMBER_OIDS,
    UNREAD_DATE_OIDS,
    UNREAD_NUMBER_OIDS,
    explain_unused,
    has_types,
)
from penstock.loading.formats.probe.form import make_form
from penstock.loading.plan.modes import notation_options, null_option, solve_notation, solve_null
from penstock.loading.values.plan import TargetPlan, table_after_creation
from penstock.loading.values.types import (
    GROUPED,
    NO_WORD,
    NOTATED,
    NOTATIONS,
    ORDERS,
    PLAIN,
    DecidingValue,
    Misfit,
    is_grouped,
    list_notations,
)

_COLUMNS_SHOWN = 3
# What a hint says of a column that is text, by the verb of the message.
_ENDS: Final = {"stays": "; with --mode replace if this load has created the table", "becomes": " to keep its type"}
# JSON Lines and folders have no notations.
_OTHER_HINT: Final = (
    "Create the table with a column of dates, and set datestyle: PGOPTIONS='-c datestyle=ISO,DMY', or MDY or YMD."
)


def notation_notices(target: TargetPlan) -> Iterator[Notice]:
    """Yield a warning for each column that is text, or becomes text, because of how its numbers or dates are written.

    Also for each numeric column whose points may separate thousands, if other columns have decimal commas.
    """
    for each in target.typed:
        if each.misfit is not None:
            yield _compose_misfit(target, each.name, each.misfit)
    noted = [each for each in target.typed if each.notations]
    found = {each.name: ("stays", each.decided_by, each.notations) for each in noted if each.type_name == "text"}
    given = _find_given(target)
    for change in target.changes:
        seen = change.decided_by
        if (
            change.column not in (*found, *given)
            and change.was is not None
            and change.type_name == "text"
            and seen is not None
        ):
            fits, _ = _native.recognize(seen.value.encode(), NOTATED)
            found[change.column] = ("becomes", seen, list_notations(fits))
    for name, (verb, seen, notations) in found.items():
        if notations and seen is not None and (format_of(target).is_delimited or notations[0] in ORDERS):
            # If the notation is told, the command that has the options of all warnings replaces the table.
            end = " to read them so" if verb == "stays" and len(notations) == 1 else _ENDS[verb]
            yield _compose(target, name, f"{verb} text", notations, seen, end=end)
    if _has_commas(given, [each.notations for each in noted if each.type_name == "text"]):
        for each in noted:
            if each.type_name != "text" and each.name not in given and each.decided_by is not None:
                state = f"is {each.type_name}"
                yield _compose(target, each.name, state, each.notations, each.decided_by, is_told=False)


def _compose_misfit(target: TargetPlan, column: str, misfit: Misfit) -> Notice:
    seen, notation = misfit.seen, misfit.notation
    return Notice(
        code="notation",
        message=f'column "{column}" of table "{target.table}" stays text: {seen.shown} is not written as {notation}',
        uri=seen.uri,
        line=seen.line,
        hint=f"Correct the value, use --null {shlex.quote(seen.value)} if it stands for null, or name the columns "
        "that are written so in place of all.",
    )


def unused_notices(target: TargetPlan) -> Iterator[Notice]:
    """Yield a warning for each option that is given for all columns (*) but applies to none of the table.

    The options are --decimal-comma and --thousands, for columns of numbers, and --date-order, for columns of dates.
    """
    options, table = target.job.dialect, table_after_creation(target)
    numbers = (("--decimal-comma", options.decimal_comma), ("--thousands", options.thousands))
    dates = ("--date-order", options.date_order, DATE_OIDS)
    for option, words, oids in (*((*each, NUMBER_OIDS) for each in numbers), dates):
        if "*" in words and not has_types(table, oids):
            yield Notice(code="notation", message=explain_unused(option, oids, table))


def unread_notices(target: TargetPlan) -> Iterator[Notice]:
    """Yield a warning for each column that an option for all columns (*) does not apply to because of its type.

    An example is --decimal-comma '*' and a column of type money. Also yield the warnings of `unused_notices`, if no
    types are found in the files.
    """
    options, table = target.job.dialect, table_after_creation(target)
    if target.job.types == "text" and not target.job.add_columns:
        yield from unused_notices(target)
    numbers = (("--decimal-comma", options.decimal_comma), ("--thousands", options.thousands))
    dates = (("--date-order", options.date_order),)
    for given, oids in ((numbers, UNREAD_NUMBER_OIDS), (dates, UNREAD_DATE_OIDS)):
        names = [option for option, words in given if "*" in words]
        for column in map(table.column, target.column_map.columns if names else ()):
            if column is not None and column.base.oid in oids and column.name not in target.job.set:
                kind = "dates" if oids is UNREAD_DATE_OIDS else "numbers"
                where = f'column "{column.name}" of table "{target.table}"'
                yield Notice(
                    code="notation",
                    message=f"{' and '.join(names)} leave out {where}, as its type is {column.type_name}",
                    hint=f"If its values are written in that way, load them into a column of {kind} first.",
                )


def sample_notices(target: TargetPlan, order: DateOrder) -> Iterator[Notice]:
    """Yield a warning for each column of numbers or dates that does not take the values in the target's sample.

    The values are written in another notation, or are a word for null. `order` is the order of dates of the load's
    sessions: dates in this order are taken. Dates whose order cannot be told are taken too; the load warns of them.
    """
    mapped, dialect, sample, table = target.column_map, target.dialect, target.sample, table_after_creation(target)
    fed = [table.column(name) for name in mapped.columns[: len(mapped.columns) - len(mapped.constants)]]
    is_known = target.facts is not None and bool(target.unloaded) and format_of(target).is_delimited
    has_types = any(column is not None and column.base.oid in NUMBER_OIDS | DATE_OIDS for column in fed)
    if not is_known or not has_types or target.job.types == "widen":
        return
    form = make_form(dialect.format, dialect.delimiter, dialect)
    cut = form.cut(sample.head, is_whole=sample.is_whole, first_line=sample.first_line)
    records = cut.whole[1 if dialect.has_header else 0 :]
    encoding = client_encoding(dialect.encoding)
    encoder = make_encoder(dialect, mapped, table=target.table, encoding=encoding, checks_width=True)
    if not records or not isinstance(encoder.rewriter, _native.Rewriter):
        return
    segments = [(sample.head, records[0].start, records[-1].end)]
    forced = [column is not None and column.name in encoder.spec.force_null for column in fed]
    found = encoder.rewriter.find_types(segments, cut.line_end or "lf", wanted=NOTATED | NO_WORD, forced=forced)

    def see(line: int, value: bytes) -> DecidingValue:
        text = value.decode(python_codec(encoding), errors="replace")
        return DecidingValue(uri=sample.source.uri, line=records[0].line + line, value=text)

    words: dict[str, list[tuple[str, DecidingValue]]] = {}
    given = _find_given(target)
    has_commas = _has_commas(given, [list_notations(fits) for fits, _, _ in found])
    for column, (fits, _, lost) in zip(fed, found, strict=False):
        may_group = has_commas and is_grouped(fits) and column is not None and column.name not in given
        notations = (GROUPED,) if may_group else list_notations(fits)
        word = next((seen for bits, seen in lost if bits == NO_WORD and seen[1] and fits), None)
        if column is not None and column.base.oid in NUMBER_OIDS | DATE_OIDS and word is not None:
            seen = see(*word)
            words.setdefault(seen.value, []).append((column.name, seen))
        if column is None or not notations or _takes(column, notations, order):
            continue
        # The value is one that PostgreSQL does not read, or one with a point.
        line, value = next(seen for bits, seen in lost if bits & (NOTATIONS["1234,5"] if may_group else PLAIN))
        state = f"is {column.type_name}"
        yield _compose(target, column.name, state, notations, see(line, value), is_told=not may_group)
    yield from (compose_word(target, word, columns, is_typed=True) for word, columns in words.items())


def compose_word(
    target: TargetPlan, word: str, columns: Sequence[tuple[str, DecidingValue]], *, is_typed: bool = False
) -> Notice:
    """Return the warning that columns have the text `word`, which probably means null.

    `columns` has the names of the columns, each with the value. The columns are text because of it, or with `is_typed`,
    have a type that does not take it.
    """
    names, seen = [name for name, _ in columns], columns[0][1]
    shown = ", ".join(f'"{name}"' for name in names[:_COLUMNS_SHOWN])
    shown += f" and {len(names) - _COLUMNS_SHOWN} more" if len(names) > _COLUMNS_SHOWN else ""
    is_one = len(names) == 1
    listed = f'{"column" if is_one else "columns"} {shown} of table "{target.table}"'
    so = (
        f"{listed} {'has' if is_one else 'have'} another type"
        if is_typed
        else f"so {'is' if is_one else 'are'} {listed}"
    )
    return Notice(
        code="literal-null",
        message=f"{word or 'an empty text'} is text in this dialect, and {so}",
        uri=seen.uri,
        line=seen.line,
        hint=f"Use {null_option(word, names[0], target.dialect)}.",
        options=solve_null(word, names, target.dialect),
    )


def _find_given(target: TargetPlan) -> dict[str, str]:
    """Return the notations that options give, by the columns."""
    mapped = target.column_map
    return {name: notation for name, notation in zip(mapped.columns, mapped.notations, strict=False) if notation}


def _has_commas(given: Mapping[str, str], notations: Iterable[tuple[str, ...]]) -> bool:
    """Return whether a column of the file has decimal commas, because an option says so or its values do."""
    told = (each[0] for each in notations if len(each) == 1)
    return any(each.endswith(",5") for each in (*given.values(), *told))


def _takes(column: Column, notations: tuple[str, ...], order: DateOrder) -> bool:
    """Return whether a column takes the values in a notation, or whether that is not asked of its type."""
    if column.base.oid in NUMBER_OIDS:
        return notations[0] in ORDERS
    is_told = notations in (("dmy",), ("mdy",)) and notations[0].upper() not in order.date_style
    return not is_told or column.base.oid not in DATE_OIDS


def _compose(
    target: TargetPlan,
    column: str,
    state: str,
    notations: tuple[str, ...],
    seen: DecidingValue,
    *,
    end: str = " to read them so",
    is_told: bool = True,
) -> Notice:
    is_date, is_delimited = notations[0] in ORDERS, format_of(target).is_delimited
    is_told = is_told and len(notations) == 1
    how = f"{'are' if is_told else 'may be'} written as {' or '.join(notations)}"
    return Notice(
        code="notation" if is_told or not is_date else "unclear-date",
        message=f'column "{column}" of table "{target.table}" {state}: its {"dates" if is_date else "numbers"} {how}',
        uri=seen.uri,
        line=seen.line,
        hint=f"Use {notation_options(column, notations)}{end}." if is_delimited else _OTHER_HINT,
        options=solve_notation(column, notations) if is_delimited and is_told else None,
    )
