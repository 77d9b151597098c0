"""Maps a file's fields to a table's columns. Pure."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from penstock.core.errors import TargetError, UsageError
from penstock.core.units import count_nouns
from penstock.core.values.dialect import DialectOptions
from penstock.core.values.job import TargetJob
from penstock.core.values.names import (
    MOST_COLUMNS,
    NAME_LIMIT_BYTES,
    SYSTEM_COLUMNS,
    fold_name,
    quote_table,
    snake_name,
)
from penstock.core.values.notice import Notice
from penstock.core.values.options import quote_name
from penstock.core.values.table import Column, ColumnMap, TableFacts
from penstock.core.words import list_names
from penstock.loading.formats.probe.probing import ProbeResult
from penstock.loading.values.plan import ROW_NAME, Edge, name_fields

_NAMES_SHOWN = 3
# The largest number of fields that a hint names. If a file has more, the hint names none.
_NAMES_LISTED = 30
_NO_VALUES: Final[Mapping[str, str | None]] = MappingProxyType({})

# The placeholders that --set accepts instead of a value.
NULL_PLACEHOLDER = "{null}"
FILENAME_PLACEHOLDER = "{filename}"
DEFAULT_PLACEHOLDER = "{default}"


def name_created_columns(header: Sequence[str], job: TargetJob, *, uri: str) -> tuple[str, ...]:
    """Return the names of the columns of a table that is created for this file.

    These are the columns for the fields of `header` that are not skipped, and those of --set. Raises TargetError if
    names of --columns or --set cannot be columns of a table, or if there are too many columns.
    """
    given = (*(fold_name(name.strip()) for name in job.columns or ()), *job.set)
    for position, name in enumerate(given):
        is_long = len(name.encode()) > NAME_LIMIT_BYTES
        if is_long or name in SYSTEM_COLUMNS or name in given[:position]:
            fault = f"is longer than {NAME_LIMIT_BYTES} bytes" if is_long else "appears twice"
            fault = "has the name of a system column" if name in SYSTEM_COLUMNS else fault
            raise TargetError(
                f'column "{name}" of --columns or --set {fault}', detail=f"It is to be created for {uri}."
            )
    named = zip(header, job.dialect.name_columns(header), strict=True)
    columns = (*(name for field, name in named if not is_skipped(field, name, job, fields=header)), *job.set)
    if len(columns) > MOST_COLUMNS:
        raise TargetError(
            f'cannot create table "{job.into}": {len(columns)} columns are too many',
            detail=f"A table has {MOST_COLUMNS} columns at most; {uri} has {len(header)} fields.",
            hint="Check --delimiter, or name the columns to load with --only.",
        )
    return columns


def find_loaded(names: Sequence[str], job: TargetJob) -> dict[str, int]:
    """Return the indexes of the fields that are not skipped, by the names of the columns to be created for them.

    `names` are the names of all fields of the file.
    """
    pairs = enumerate(zip(names, job.dialect.name_columns(names), strict=True))
    return {created: index for index, (name, created) in pairs if not is_skipped(name, created, job, fields=names)}


def name_folder_columns(values: Iterable[Mapping[str, str | None]], names: Sequence[str], job: TargetJob) -> list[str]:
    """Return the names in folders, such as year in year=2026, for which columns are created.

    These are the names that the file's own columns do not have. `values` has, for each object, the values in the names
    of its folders by their names. `names` are the names of the file's columns.
    """
    known = {*job.dialect.name_columns(names), *(fold_name(name.strip()) for name in (*names, *job.set, *job.skip))}
    stated = {job.dialect.name_columns([name])[0]: name for each in values for name in each}
    return [name for folded, name in stated.items() if folded not in known]


def find_edge(probe: ProbeResult, *, job: TargetJob, table: TableFacts | None) -> Edge | None:
    """Return how a file's header and its records differ by one field, None if they do not (see Edge).

    If the file has no header, the columns of `table` take its place.
    """
    header, shapes = probe.header, probe.shapes
    if job.columns is not None or header is None:
        names = job.columns if job.columns is not None or table is None else _columns_by_position(job, table)
        return "empty" if names is not None and shapes == {(len(names) + 1, True)} else None
    if not header:
        # The records of JSON Lines name no field.
        return None
    if not header[-1].strip():
        fitting = {(len(header) - 1, False), (len(header) - 1, True), (len(header), True)}
        return "empty" if shapes & fitting and (len(header), False) not in shapes else None
    if shapes == {(len(header) + 1, True)}:
        return "empty"
    is_short = {count for count, _ in shapes} == {len(header) + 1}
    return "row names" if is_short and probe.has_row_names else None


def edge_notice(edge: Edge | None, probe: ProbeResult, *, uri: str) -> Notice | None:
    """Return a warning that the header and the records differ by one field, None if `edge` is None.

    `edge` is the result of `find_edge`: either an empty field at the end is dropped, or the first field has no name in
    the header, and penstock names its column.
    """
    if edge is None:
        return None
    if edge == "row names":
        message = f'the header has no name for the first field: its column is "{ROW_NAME}"'
        return Notice(code="column-names", message=message, uri=uri, hint="Name all fields with --columns.")
    is_names = probe.header is not None and not probe.header[-1].strip()
    what = "name in the header" if is_names else "field of each record"
    message = f"a delimiter stands behind the last field: the empty {what} is dropped"
    return Notice(code="empty-field", message=message, uri=uri, hint="Use --columns with one name more to load it.")


def naming_notice(header: Sequence[str] | None, field_count: int, job: TargetJob, *, uri: str) -> Notice | None:
    """Return a warning that columns to be created have other names than in the header, None if they have not.

    If the file has no header (`header` is None), the warning says which names the columns have.
    """
    options = job.dialect
    if header is None:
        named = "column_1" if field_count == 1 else f"column_1 to column_{field_count}"
        hint = "Use --header if the first line names the columns; if it is data, name them with --columns."
        message = f"no header was found: created columns are named {named}"
        return Notice(code="column-names", message=message, uri=uri, hint=hint)
    pairs = zip(header, options.name_columns(header), strict=True)
    changed = [
        f'"{field.strip()}" is {name}'
        for field, name in pairs
        if fold_name(options.spell(field).strip()) != name and not is_skipped(field, name, job, fields=header)
    ]
    if not changed:
        return None
    message = f"created columns are not named as in the header: {list_names(changed, quote='')}"
    return Notice(code="column-names", message=message, uri=uri, hint="Name the columns with --columns.")


def is_skipped(field: str, name: str, job: TargetJob, *, fields: Sequence[str] = ()) -> bool:
    """Return whether --skip names a field, or whether --only is given and does not name it.

    `field` is its name in the header, and `name` that of its column. The options may have either name, but the column's
    name is ignored if it is the name of another field in `fields`.
    """
    names = {field, field.strip()}
    if name not in (each.strip() for each in fields):
        names.add(name)
    return not names.isdisjoint(job.skip) or (bool(job.only) and names.isdisjoint(job.only))


def map_columns(
    header: Sequence[str] | None,
    *,
    job: TargetJob,
    table: TableFacts,
    uri: str,
    edge: Edge | None = None,
    folder_values: Mapping[str, str | None] = _NO_VALUES,
    is_typed: bool = False,
) -> ColumnMap:
    """Return which column of the table each field of a file fills, and the constants that are added to each record.

    `header` has the names of the fields. If it is None, the fields are in the order of the table's columns. `edge` is
    the result of `find_edge`. `folder_values` has the values in the names of the file's folders, by their names. Such a
    value becomes a constant if the table has a column of that name, and the file and --set do not. With `is_typed`,
    hints name no option that says how text is written. Raises TargetError if fields and columns do not match. Raises
    UsageError if an option names a field that does not exist.
    """
    _check_constants(job, table)
    _check_named(job, table)
    names = job.columns if job.columns is not None else name_fields(header, edge)
    if edge == "row names" and header is not None:
        _refuse_row_names(header, job=job, table=table, uri=uri)
    given = {name: value for name, value in job.set.items() if value != DEFAULT_PLACEHOLDER}
    constants = {name: _constant(value, uri=uri) for name, value in given.items()}
    if names is None:
        columns = _columns_by_position(job, table)
        _refuse_none((*columns, *constants), (), table=table, uri=uri)
        return ColumnMap(
            columns=(*columns, *constants),
            constants=tuple(constants.values()),
            field_count=len(columns),
            ends_empty=edge == "empty",
            notations=_find_notations(columns, job=job, table=table),
        )
    if job.missing == "error":
        absent = find_absent((*names, *folder_values), job)
        refuse_absent(absent, names, uri=uri, is_all=job.sources == (uri,))
    _check_renames(job, table, names=(*names, *folder_values))
    found = _find_columns(names, job, table)
    unknown = [names[index] for index, column in found.items() if column is None]
    _refuse_unknown(unknown, names, job=job, table=table, uri=uri, is_typed=is_typed)
    columns = tuple(column.name for column in found.values() if column is not None)
    stated = pick_stated(folder_values, fed=columns, job=job, table=table)
    _refuse_unfit((*columns, *stated), job=job, table=table, uri=uri)
    constants = stated | constants
    _refuse_none((*columns, *constants), names, table=table, uri=uri)
    return ColumnMap(
        columns=columns + tuple(constants),
        keep=tuple(found) if len(found) < len(names) else None,
        constants=tuple(constants.values()),
        field_count=len(names),
        ends_empty=edge == "empty",
        notations=_find_notations(columns, job=job, table=table),
    )


def map_names(header: Sequence[str], *, job: TargetJob, table: TableFacts, uri: str) -> ColumnMap:
    """Return which column gets the value of each name in records of JSON Lines.

    `header` has the names that are known beforehand. A column without a default that matches none of them gets the
    values of the name that is exactly the column's. With a mode that uses a key it gets none, so that the column keeps
    its value if no record has that name. A name without a column is not in the result. Raises TargetError.
    """
    _check_constants(job, table)
    _check_renames(job, table, names=header)
    constants = {name: value for name, value in job.set.items() if value != DEFAULT_PLACEHOLDER}
    values = tuple(_constant(value, uri=uri) for value in constants.values())
    if (whole := find_whole_column(job, table)) is not None:
        _refuse_skipped(header, whole, job=job, table=table, uri=uri)
        return ColumnMap(columns=(whole, *constants), constants=values, names=(), takes_json=(0,))
    names = name_records(header, job)
    names = (*names, *(name for name in job.dialect.rename if name not in names))
    found = _find_columns(names, job, table)
    refuse_many_names(len(found), uri=uri)
    named = {names[index]: column.name for index, column in found.items() if column is not None}
    others = [
        column.name
        for column in table.columns
        if column.name not in named.values() and not (job.landing.is_keyed or _is_fed(column, job))
    ]
    columns = (*named.values(), *others)
    if not columns:
        raise TargetError(
            f'no record names a column of table "{table.name}"',
            detail=f"{uri}.",
            hint="Name the columns with --columns.",
        )
    _refuse_unfit(columns, job=job, table=table, uri=uri)
    named |= {name: name for name in others if name not in named}
    skipped = dict.fromkeys((*(name for index, name in enumerate(names) if index not in found), *job.skip))
    return ColumnMap(
        columns=(*columns, *constants),
        constants=values,
        names=(
            *((name, columns.index(column)) for name, column in named.items()),
            *((name, None) for name in skipped if name not in named),
        ),
        takes_json=tuple(
            columns.index(column.name) for column in table.columns if column.is_json and column.name in columns
        ),
        skips_others=bool(job.only),
    )


def _refuse_skipped(header: Sequence[str], whole: str, *, job: TargetJob, table: TableFacts, uri: str) -> None:
    """Raise UsageError if --skip names a value of records that are stored whole: it would be stored with them.

    `header` has the names that are known beforehand.
    """
    known = {name.strip().lower() for name in header}
    for name in job.skip:
        if name.strip().lower() in known or table.column(name) is None:
            raise UsageError(
                f'cannot skip "{name}": each record is stored whole in column "{whole}"',
                detail=f"{uri}.",
                hint="Remove it from the file, or load names into columns with --columns or --only. For a column of"
                " the table that is to be null, use --set 'COLUMN={null}'.",
            )


def name_records(header: Sequence[str], job: TargetJob) -> tuple[str, ...]:
    """Return the names in records of JSON Lines: those known beforehand, and those that only --only has.

    `header` has the names known beforehand. Later records may have the others. If --columns is given, the result is its
    names.
    """
    if job.columns is not None:
        return job.columns
    known = {*header, *(name.strip() for name in header), *job.dialect.name_columns(header)}
    old = {new: name for name, new in job.dialect.rename.items()}
    return (*header, *(old.get(name, name) for name in job.only if name not in known))


def refuse_many_names(count: int, *, uri: str) -> None:
    """Raise TargetError if records of JSON Lines have more names than a table may have columns."""
    if count > MOST_COLUMNS:
        raise TargetError(
            f"the records have more than {MOST_COLUMNS} names, which is the most that a table has columns",
            detail=f"{uri}.",
            hint="Load whole records: into a table whose only column without a default has type jsonb.",
        )


def _is_fed(column: Column, job: TargetJob) -> bool:
    """Return whether a column may be missing in records, because it gets its value elsewhere or must get none."""
    has_value = column.is_generated or column.has_default or bool(column.identity)
    return has_value or column.name in job.set or is_skipped(column.name, column.name, job)


def find_whole_column(job: TargetJob, table: TableFacts) -> str | None:
    """Return the json or jsonb column that gets whole records of JSON Lines, or None if columns get values by name.

    This is the only column without a default, if no option names columns. If an interrupted run of the load has created
    the table, columns get values by name.
    """
    if table.oid == 0 or job.create or job.columns is not None or job.only or job.add_columns or job.dialect.rename:
        return None
    unfed = [column for column in table.columns if not _is_fed(column, job)]
    return unfed[0].name if len(unfed) == 1 and unfed[0].is_json else None


def refuse_unknown_names(header: Sequence[str], *, job: TargetJob, table: TableFacts, uri: str) -> None:
    """Raise TargetError if records of JSON Lines have a name for which the table has no column.

    `header` has the names that are known beforehand. Names that --skip names do not count.
    """
    if find_whole_column(job, table) is not None:
        return
    _check_renames(job, table, names=header)
    names = name_records(header, job)
    found = _find_columns(names, job, table)
    refuse_many_names(len(found), uri=uri)
    unknown = [names[index] for index, column in found.items() if column is None]
    if unknown:
        raise TargetError(
            f'name "{unknown[0]}" of the file belongs to no column of table "{table.name}"',
            detail=f"{uri}: {len(unknown)} of its names are unknown to the table: {list_names(unknown)}.",
            hint=_suggest(unknown[0], job, table)
            or f"{_tell_skip(job)}, add it to the table with --add-columns, or use --on-error reject.",
        )


def unknown_columns(
    header: Sequence[str] | None, job: TargetJob, table: TableFacts, edge: Edge | None, *, is_by_name: bool
) -> dict[str, int]:
    """Return the fields for which a table has no column, in the file's order.

    The keys are the names that columns for them would have, the values the indexes of the fields. `edge` is the result
    of `find_edge`. `is_by_name` says whether records name their fields, so that later records may have a name of --only
    that `header` does not have.
    """
    names = job.columns if job.columns is not None else name_fields(header, edge)
    if names is None:
        return {}
    names = name_records(names, job) if is_by_name else tuple(names)
    created = job.dialect.name_columns(names)
    return {created[index]: index for index, column in _find_columns(names, job, table).items() if column is None}


def _columns_by_position(job: TargetJob, table: TableFacts) -> tuple[str, ...]:
    for verb, names in (("skip", job.skip), ("choose", job.only), ("rename", job.dialect.rename)):
        for name in names:
            raise UsageError(
                f'cannot {verb} column "{name}" of a file without a header',
                hint="Name the file's fields with --columns.",
            )
    return tuple(column.name for column in table.columns if not column.is_generated and column.name not in job.set)


def _constant(value: str, *, uri: str) -> str | None:
    if value == NULL_PLACEHOLDER:
        return None
    return value.replace(FILENAME_PLACEHOLDER, uri.rstrip("/").rsplit("/", 1)[-1])


def _find_columns(names: Sequence[str], job: TargetJob, table: TableFacts) -> dict[int, Column | None]:
    """Return the column of each field that is not skipped, by the field's index. None if the table has no such column.

    The column is the one that matches the field's name. If none matches, it is the column whose name a new table would
    have for the field.
    """
    found: dict[int, Column | None] = {}
    for index, (name, created) in enumerate(zip(names, job.dialect.name_columns(names), strict=True)):
        if is_skipped(name, created, job, fields=names):
            continue
        column = _find_column(name, job, table)
        if column is None or column in found.values():
            column = table.column(created) or column
        found[index] = column
    return found


def _find_column(name: str, job: TargetJob, table: TableFacts) -> Column | None:
    """Return the column with this name, or the only one with this name apart from case and surrounding blanks."""
    name = job.dialect.rename.get(name.strip(), name)
    if column := table.column(name):
        return column
    folded = name.strip().lower()
    alike = [column for column in table.columns if column.name.lower() == folded]
    return alike[0] if len(alike) == 1 else None


def pick_stated(
    folder_values: Mapping[str, str | None], *, fed: Sequence[str], job: TargetJob, table: TableFacts
) -> dict[str, str | None]:
    """Return the values in the names of a file's folders that become constants, by the names of their columns.

    These are values of columns that neither the file (`fed`) nor --set fills.
    """
    stated = {}
    for name, value in folder_values.items():
        created = job.dialect.name_columns([name])[0]
        column = _find_column(name, job, table) or table.column(created)
        is_free = column is not None and not column.is_generated and column.name not in (*fed, *job.set)
        if column is not None and is_free and not is_skipped(name, created, job):
            stated[column.name] = value
    return stated


def _check_constants(job: TargetJob, table: TableFacts) -> None:
    for name in job.set:
        column = table.column(name)
        if column is None:
            raise TargetError(
                f'column "{name}" of --set does not exist in table "{table.name}"', hint=_suggest(name, job, table)
            )
        if column.is_generated:
            raise TargetError(f'column "{name}" of --set is a generated column')


def _check_renames(job: TargetJob, table: TableFacts, *, names: Sequence[str]) -> None:
    """Raise TargetError if --rename names a column that does not exist.

    If the load creates columns, they depend on the files, so only the file's own `names` are checked.
    """
    is_open = job.create or job.add_columns or job.transform is not None
    known = {name.strip() for name in names} if is_open else job.dialect.rename
    for old, new in job.dialect.rename.items():
        if old in known and _find_column(old, job, table) is None:
            raise TargetError(
                f'column "{new}" of --rename does not exist in table "{table.name}"', hint=_suggest(new, job, table)
            )


def _check_named(job: TargetJob, table: TableFacts) -> None:
    """Raise TargetError if an option of the dialect names a column that does not exist."""
    options = job.dialect
    given = {
        "--force-null": options.force_null,
        "--decimal-comma": options.decimal_comma,
        "--thousands": options.thousands,
        "--date-order": options.date_order,
    }
    for option, names in given.items():
        for name in names:
            if name != "*" and table.column(name) is None:
                raise TargetError(
                    f'column "{name}" of {option} does not exist in table "{table.name}"',
                    hint=_suggest(name, job, table),
                )


# pg_type.oid of the types of numbers, and of dates and timestamps (pg_type.dat)
NUMBER_OIDS: Final = frozenset((20, 21, 23, 700, 701, 1700))
DATE_OIDS: Final = frozenset((1082, 1114, 1184))
# pg_type.oid of types with numbers or dates in their values that are not written again (pg_type.dat): arrays, ranges
# and multiranges, and money, which the server reads by lc_monetary.
_ARRAYS_OF_NUMBERS: Final = (1005, 1007, 1016, 1021, 1022, 1231)
UNREAD_NUMBER_OIDS: Final = frozenset((790, 791, *_ARRAYS_OF_NUMBERS, 3904, 3906, 3926, 4451, 4532, 4536))
UNREAD_DATE_OIDS: Final = frozenset((1115, 1182, 1185, 3908, 3910, 3912, 4533, 4534, 4535))


def _find_notations(columns: Sequence[str], *, job: TargetJob, table: TableFacts) -> tuple[str | None, ...]:
    """Return how the values of columns are written (see ColumnMap.notations). Raises UsageError."""
    options = job.dialect
    commas = dict.fromkeys(options.decimal_comma, ",")
    given = (("--decimal-comma", commas, NUMBER_OIDS), ("--thousands", options.thousands, NUMBER_OIDS))
    for option, words, oids in (*given, ("--date-order", options.date_order, DATE_OIDS)):
        _refuse_unread(option, words, table)
        if "*" in words and not _may_find_types(job, table) and not has_types(table, oids):
            name = "sold" if oids is DATE_OIDS else "price"
            example = name if words is commas else f"{name}={words['*']}"
            infer = "" if table.oid else "Use --types infer, which finds such columns. Or name"
            raise UsageError(
                explain_unused(option, oids, table),
                hint=f"{infer or 'Name'} the columns, as in {option} {example!r}.",
            )
    found = tuple(None if (column := table.column(name)) is None else _notation(column, options) for name in columns)
    return found if any(found) else ()


def _may_find_types(job: TargetJob, table: TableFacts) -> bool:
    """Return whether columns have a type that is found in files, or may get one."""
    return (job.create and (table.oid != 0 or job.types != "text")) or job.add_columns


def has_types(table: TableFacts, oids: Collection[int]) -> bool:
    """Return whether a column of the table has a type with one of these oids. For a domain, its base type counts."""
    return any(column.base.oid in oids for column in table.columns)


def explain_unused(option: str, oids: Collection[int], table: TableFacts) -> str:
    """Return the message that an option for all columns of numbers, or of dates, applies to no column of a table.

    `option` is the name of the option, and `oids` are the types to which it applies.
    """
    kind = "dates" if oids is DATE_OIDS else "numbers"
    return f'{option} applies to no column of table "{table.name}": none has a type of {kind}'


def common_notations(options: DialectOptions) -> tuple[str, ...]:
    """Return the notations that options give to all columns of numbers and to all columns of dates.

    Options that name a column do not count. ColumnMap.notations explains notations.

    >>> common_notations(DialectOptions(decimal_comma=["*"], thousands=".", date_order="dmy"))
    ('1.234,5', 'dmy')
    """
    comma, separator = "," if "*" in options.decimal_comma else None, options.thousands.get("*")
    is_given = (comma or separator) and separator != (comma or ".")
    numbers = (f"1{separator or ''}234{comma or '.'}5",) if is_given else ()
    return (*numbers, options.date_order["*"]) if "*" in options.date_order else numbers


def named_notation(name: str, options: DialectOptions) -> str | None:
    """Return the notation that options give to a column by its name, None if none does."""
    return _notation(Column(name=name, type_name="text"), options)


def _refuse_unread(option: str, names: Iterable[str], table: TableFacts) -> None:
    """Raise UsageError if an option of notations names a column whose values are not written again."""
    for name in names:
        column = table.column(name)
        if column is not None and column.base.oid in UNREAD_NUMBER_OIDS | UNREAD_DATE_OIDS:
            raise UsageError(
                f'{option} cannot be used with column "{name}" of type {column.type_name}',
                detail="The server's rules and settings decide how values of this type are read.",
                hint="Load the values into a column of numbers or dates first, or into one of type text.",
            )


def _notation(column: Column, options: DialectOptions) -> str | None:
    # If an option of numbers names the column, the other one for all columns of numbers applies to it, too.
    is_number = column.base.oid in NUMBER_OIDS or column.name in (*options.decimal_comma, *options.thousands)

    def choose(words: Mapping[str, str], *, is_meant: bool) -> str | None:
        return words.get(column.name, words.get("*") if is_meant else None)

    order = choose(options.date_order, is_meant=column.base.oid in DATE_OIDS)
    comma = choose(dict.fromkeys(options.decimal_comma, ","), is_meant=is_number)
    separator = choose(options.thousands, is_meant=is_number)
    if separator is not None and separator == (comma or "."):
        hint = "Use --decimal-comma for the column." if comma is None else "Use another character."
        raise UsageError(f'--thousands of column "{column.name}" is its decimal mark, too', hint=hint)
    if comma is None and separator is None:
        return order
    if order is not None:
        option = "--thousands" if comma is None else "--decimal-comma"
        raise UsageError(f'{option} and --date-order exclude each other for column "{column.name}"')
    return f"1{separator or ''}234{comma or '.'}5"


def find_absent(
    names: Collection[str], job: TargetJob, *, columns: Collection[str] | None = None
) -> list[tuple[str, str]]:
    """Return which of --rename, --skip and --only name a field that the file does not have, each with that name.

    `names` are those of the file's fields. If records name their fields, `columns` are the table's columns. Then
    --rename and --skip may also name these, and --only must have names as they are in the records, because records that
    are not read yet may have other names.
    """
    own = {*names, *(name.strip() for name in names)}
    created = {*job.dialect.name_columns([*names])}
    known = own | {*(columns or ())}
    absent = [("--rename", name) for name in job.dialect.rename if name not in known]
    absent += [("--skip", name) for name in job.skip if name not in known | created]
    if columns is not None:
        created = {job.dialect.rename.get(name, fold_name(name)) for name in own}
    return absent + [("--only", name) for name in job.only if name not in own | created]


def refuse_absent(
    absent: Sequence[tuple[str, str]], names: Collection[str], *, uri: str | None, is_all: bool = False
) -> None:
    """Raise UsageError for the first of the options that `find_absent` has returned.

    `names` are those of the fields in file `uri`, or in several files if that is None. `is_all` says whether the load
    has no other file.
    """
    for option, name in absent:
        near = {each.strip().lower(): each.strip() for each in names}
        longer = [each for each in near if re.match(rf"{re.escape(name.lower())}\b", each)]
        alike = longer if len(longer) == 1 else difflib.get_close_matches(name.lower(), near, n=1)
        shown = list_names([f'"{each}"' if "," in each else each for each in names], quote="")
        hint = f"Perhaps you meant {_quote_in_list(near[alike[0]])}." if alike else None
        raise UsageError(
            f'column "{name}" of {option} is not in {"the file" if uri else "any file of the load"}',
            detail=f"{uri} has: {shown}." if uri else f"The files have: {shown}.",
            hint=hint if is_all or hint else "If another file of the load has it, use --missing default.",
        )


def _quote_in_list(name: str) -> str:
    """Return a name in quotes, and if it has a comma in those of a list within the shell's."""
    return f'"{name}"' if "," not in name else shlex.quote('"' + name.replace('"', '""') + '"')


def _refuse_none(columns: Sequence[str], names: Sequence[str], *, table: TableFacts, uri: str) -> None:
    """Raise TargetError if a load would fill no column."""
    if not columns:
        raise TargetError(
            f'no column of table "{table.name}" gets a value from the file',
            detail=f"{uri} has: {list_names(names, quote='')}. All of them are skipped."
            if names
            else f"{uri} has no header.",
            hint="Leave out a --skip, or give a column a value with --set."
            if names
            else "Give a column that is not generated a value with --set.",
        )


def _refuse_row_names(header: Sequence[str], *, job: TargetJob, table: TableFacts, uri: str) -> None:
    if table.column(ROW_NAME) is not None or is_skipped(ROW_NAME, ROW_NAME, job):
        return
    more = ["..."] if len(header) > _NAMES_SHOWN else []
    listed = _list_option([ROW_NAME, *(name.strip() for name in header[:_NAMES_SHOWN]), *more])
    raise TargetError(
        "the header has no name for the first field, which has row names",
        detail=f"{uri}: the header has {count_nouns(len(header), 'name')}, and each record {len(header) + 1} fields.",
        hint=f"Name all fields with --columns {listed}; if row names are not data, add --skip {ROW_NAME}.",
    )


def _refuse_unknown(
    unknown: Sequence[str], names: Sequence[str], *, job: TargetJob, table: TableFacts, uri: str, is_typed: bool
) -> None:
    if not unknown:
        return
    listed = list_names(unknown)
    is_trailed = not names[-1].strip() and not unknown[-1].strip()
    if is_trailed or not unknown[0].strip():
        raise TargetError(
            "the header ends with a delimiter, and the field behind it has no name"
            if is_trailed
            else "a field of the file has no name in the header",
            detail=f"{uri}: {len(unknown)} of its columns are unknown to the table: {listed}.",
            hint=f"Name all fields with --columns, and skip those that the table lacks: {_name_all(names)}"
            if all(not name.strip() for name in unknown) and len(names) <= _NAMES_LISTED
            else "Name all fields with --columns, and skip those that the table lacks with --skip.",
        )
    raise TargetError(
        f'column "{unknown[0]}" of the file does not exist in table "{table.name}"',
        detail=f"{uri}: {len(unknown)} of its columns are unknown to the table: {listed}.",
        hint=(
            _suggest(unknown[0], job, table)
            or f"{_tell_skip(job)}, add it to the table with --add-columns, or name the fields with --columns"
            f"{'' if is_typed else '; if it is data, use --no-header'}."
        )
        + _suggest_anew(job, table),
    )


def _tell_skip(job: TargetJob, name: str = "") -> str:
    """Return the hint to load a file without a column, without a full stop."""
    return "Remove it from --only" if job.only else f"Skip it with --skip {name}".rstrip()


def _name_all(names: Sequence[str]) -> str:
    """Return options that name all fields of a file, and that skip the fields without a name in the header."""
    given = [name.strip() or f"field_{number}" for number, name in enumerate(names, 1)]
    skips = [new for new, name in zip(given, names, strict=True) if not name.strip()]
    return f"--columns {_list_option(given)} {' '.join(f'--skip {name}' for name in skips)}"


def _list_option(names: Sequence[str]) -> str:
    """Return names as the value of an option that takes a list, as it is typed."""
    return shlex.quote(",".join(map(quote_name, names)))


def _refuse_unfit(columns: Sequence[str], *, job: TargetJob, table: TableFacts, uri: str) -> None:
    """Refuse duplicate and generated columns, and columns of the table that would get no value."""
    for position, name in enumerate(columns):
        if name in columns[:position]:
            raise TargetError(f'column "{name}" appears twice in the file', detail=f"{uri} line 1.")
        if name in job.set:
            raise TargetError(
                f'column "{name}" is both in the file and in --set',
                hint=f"{_tell_skip(job, name)}, or leave out --set.",
            )
        column = table.column(name)
        if column is not None and column.is_generated:
            raise TargetError(
                f'column "{name}" is generated and cannot be loaded',
                detail=f'Table "{table.name}" computes it.',
                hint=f"{_tell_skip(job, name)}.",
            )
    missing = [
        column.name
        for column in table.columns
        if column.name not in columns
        and column.name not in job.set
        and not (column.is_generated or column.has_default or column.identity)
        and (column.is_not_null or not (job.landing.is_keyed or job.missing == "default" or job.add_columns))
    ]
    if missing:
        is_left_out = is_skipped(missing[0], missing[0], job)
        fault, lacks = ("is skipped", "does not fill") if is_left_out else ("is not in the file", "lacks")
        have = "has" if len(missing) == 1 else "have"
        is_nullable = not all(column.is_not_null for column in table.columns if column.name in missing)
        null = f", or use --missing default, which stores null (or --set '{missing[0]}={NULL_PLACEHOLDER}')"
        raise TargetError(
            f'column "{missing[0]}" of table "{table.name}" {fault}',
            detail=f"{uri} {lacks} {list_names(missing)}, which {have} no default.",
            hint=f"Give it a value with --set {missing[0]}=VALUE{null if is_nullable else ''}."
            + _suggest_anew(job, table),
        )


def _suggest_anew(job: TargetJob, table: TableFacts) -> str:
    """Return how the table gets the file's columns, for a load that replaces the table and may create it."""
    if not (job.create and job.mode == "replace"):
        return ""
    return f" If the table is to have the file's columns, run: DROP TABLE {quote_table(table.name)}; and load again."


def _suggest(name: str, job: TargetJob, table: TableFacts) -> str | None:
    if job.dialect.names != "snake" and snake_name(name) != name and table.column(snake_name(name)) is not None:
        return f'Use --names snake, with which it goes to column "{snake_name(name)}".'
    near = difflib.get_close_matches(name.lower(), [column.name for column in table.columns], n=1)
    return f'Perhaps you meant the column "{near[0]}".' if near else None
