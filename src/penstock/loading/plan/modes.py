"""Modes of a load: which options may be combined, where COPY puts records, and which columns change. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from penstock import _native
from penstock.core.errors import DataError, FileLocation, SourceError, TargetError, UsageError
from penstock.core.values.dialect import Dialect, DialectOptions
from penstock.core.values.job import MAX_DELETE, TargetJob
from penstock.core.values.mode import LANDINGS, Landing
from penstock.core.values.names import quote_table
from penstock.core.values.notice import Notice
from penstock.core.values.options import quote_name, spell_options
from penstock.core.values.source import SourceObject
from penstock.core.values.table import Column, TableFacts, TableName
from penstock.core.words import list_names
from penstock.loading.formats.probe.columnar import read_folder_values
from penstock.loading.values.plan import LoadPlan, TargetPlan
from penstock.loading.values.types import (
    KEPT,
    NOTATED,
    NULL_WORDS,
    ORDERS,
    TYPE_OIDS,
    ColumnChange,
    ColumnFindings,
    identify_type,
    is_zero_date,
    list_notations,
    wider_types,
)


def check_mode(job: TargetJob, facts: TableFacts | None) -> None:
    """Raise UsageError or TargetError if the mode cannot be used with the other options, or with the table.

    `facts` is None if the table does not exist.
    """
    landing = job.landing
    if job.transform is not None and not LANDINGS[job.mode].adds:
        raise UsageError(
            f"--transform cannot be used with --mode {job.mode}",
            hint="Let the statement do it: INSERT ... ON CONFLICT, or MERGE.",
        )
    if landing.is_keyed and not job.key:
        raise UsageError(f"--mode {job.mode} needs --key", hint="Name the columns of a unique index: --key a,b.")
    if not landing.is_keyed and job.key and not job.create:
        raise UsageError(
            f"--key cannot be used with --mode {job.mode}",
            hint="It is for upsert, insert-new and sync. With --create it becomes the primary key of the new table.",
        )
    if job.keep not in ("error", job.used_keep):
        raise UsageError(
            f"--keep cannot be used with --mode {job.mode}",
            hint="It is for --mode upsert and sync; insert-new keeps the first record.",
        )
    if not landing.deletes and job.max_delete != MAX_DELETE:
        raise UsageError("--max-delete needs --mode sync", hint="No other mode deletes single rows.")
    if facts is None and job.transform is not None:
        raise UsageError("--create cannot be used with --transform", hint=f'Create table "{job.into}" first.')
    if facts is not None and landing.where in ("replacement", "partition") and facts.row_security_applies:
        is_new = landing.where == "partition"
        what = f'build a partition of table "{facts.parent}" aside' if is_new else f'replace table "{facts.name}"'
        raise TargetError(
            f"cannot {what}: row-level security applies to the role",
            detail="Rows of the new table would not be checked against the policies.",
            hint="Load as a role that has BYPASSRLS" + ("." if is_new else ", or with --mode truncate."),
        )


def check_key_names(target: TableFacts, key: Sequence[str], columns: Sequence[str]) -> None:
    """Raise UsageError or TargetError unless the columns of --key are all in the table and in `columns`, the file's."""
    if not key:
        raise UsageError("--key has no column", hint="Name the columns of a unique index: --key a,b.")
    for position, name in enumerate(key):
        if name in key[:position]:
            raise UsageError(f'column "{name}" is named twice in --key')
        column = target.column(name)
        if column is None:
            raise TargetError(
                f'column "{name}" of --key does not exist in table "{target.name}"',
                detail=f"The table has: {list_names([column.name for column in target.columns], quote='')}.",
            )
        if name not in columns:
            reason = (
                "The table computes it." if column.is_generated else f"The file fills: {list_names(columns, quote='')}."
            )
            raise TargetError(
                f'column "{name}" of --key is not in the file',
                detail=reason,
                hint="Choose a key whose columns the file has, or give the column a value with --set.",
            )


def explain_emptying(job: TargetJob, *, detail: str, hint: str | None) -> TargetError:
    """Return the error for a load that would empty a table although its files have no record for the table."""
    return TargetError(
        f'--mode {job.mode} would empty table "{job.into}" and load nothing',
        detail=detail,
        hint=hint or "If the table is to be empty, use TRUNCATE.",
    )


def explain_rejected(job: TargetJob, load_id: str) -> TargetError:
    """Return the error for a load that would empty a table because all its records were rejected."""
    return explain_emptying(
        job,
        detail="All records were rejected.",
        hint=f"See penstock rejects {load_id}. If the table is to be empty, use --emptied load.",
    )


def check_types(job: TargetJob, facts: TableFacts | None, objects: Sequence[SourceObject], *, is_typed: bool) -> None:
    """Raise UsageError or SourceError if --types asks to find types in the files' values, and that cannot be done.

    `is_typed` says whether the format of the files has types of its own, as Parquet has.
    """
    if job.types == "text":
        return
    option = f"--types {job.types}"
    if is_typed and not any(read_folder_values(source.uri) for source in objects):
        raise UsageError(f"{option} cannot be used with columnar files", hint="Leave it out: the files have types.")
    if job.transform is not None:
        raise UsageError(f"{option} cannot be used with --transform", hint="The statement reads columns of type text.")
    if job.types == "infer" and not job.create:
        raise UsageError(f"{option} needs --create", hint="It chooses the types of a table that is created.")
    once = next((source for source in objects if source.is_pipe and not source.is_spooled), None)
    if once is not None and (facts is None or job.types == "widen"):
        raise SourceError(
            f'{option} cannot be used with "{once.uri}", which can be read only once',
            detail="Every value is looked at before the first row is loaded.",
            hint="Use --spool, which copies it to a temporary file.",
        )


def choose_landing(job: TargetJob, facts: TableFacts | None, *, is_atomic: bool) -> Landing:
    """Return how the records of a target become rows: by COPY into the table, by a staging table, or by a new table.

    COPY refuses a table whose row-level security applies to the role, so such a table needs a staging table. An atomic
    load that truncates needs one too, because its TRUNCATE would block readers during the whole load. A partition that
    exists is a table like others.
    """
    if job.partition_of is not None and facts is not None and facts.parent is None:
        return LANDINGS["append"]
    has_policies = facts is not None and facts.row_security_applies
    return job.landing.staged() if has_policies or (is_atomic and job.landing.truncates) else job.landing


def refuse_shared_tables(targets: Sequence[TargetPlan]) -> None:
    """Raise UsageError if two targets have the same table, and their modes differ or the mode does not allow it.

    Only modes that add rows allow it, and modes in which COPY fills the table itself. The ledger tells staged rows from
    others by the table, so one target may not be staged and another not.
    """
    first: dict[str, TargetPlan] = {}
    for target in targets:
        name = str(target.table)
        other = first.setdefault(name, target)
        if other is target:
            continue
        modes = {other.job.mode, target.job.mode}
        is_mixed = other.fills_table != target.fills_table
        if len(modes) > 1 or is_mixed or (not target.landing.adds and not target.fills_table):
            raise UsageError(
                f'table "{name}" is the target of two sets of sources',
                detail=f"Modes: {', '.join(sorted(modes))}{'; one has a transform' if is_mixed else ''}.",
                hint="Name all sources in one target, or run two loads.",
            )


def describe_notices(job: TargetJob, facts: TableFacts) -> list[Notice]:
    """Return the warning that --mode replace does not fire the table's row triggers, if it has some that matter."""
    if job.landing.where == "replacement" and facts.suppressing_triggers:
        return [
            Notice(
                code="triggers",
                message=f'row triggers of table "{facts.name}" do not fire for the new rows',
                hint="They are created on the new table after it is loaded. With --mode truncate they fire.",
            )
        ]
    return []


# Ordinary and partitioned tables.
_ALTERABLE = ("r", "p")


def check_changes(job: TargetJob, facts: TableFacts | None) -> None:
    """Raise UsageError if --add-columns is given and cannot be used with the job's other options or the relation."""
    if job.add_columns and job.transform is not None:
        raise UsageError(
            "--add-columns cannot be used with --transform", hint="The statement says which columns get values."
        )
    if job.add_columns and facts is not None and facts.kind not in _ALTERABLE:
        raise UsageError(f'--add-columns cannot be used with "{facts.name}", which is not a table')


def refuse_altered(plan: LoadPlan) -> None:
    """Raise UsageError if a load with --check would have to alter a table first."""
    for target in plan.targets:
        if changes := (*target.changes, *target.retyped):
            raise UsageError(
                f'--check cannot be used with a load that alters table "{target.table}"',
                detail=f"It would run: {compose_alter(target.table, changes)}",
                hint="Use --plan, or alter the table first.",
            )


def with_columns(facts: TableFacts, types: Mapping[str, str]) -> TableFacts:
    """Return the facts of a table with columns added. `types` has the type of each added column, by its name."""
    added: list[Column] = []
    for number, (name, type_name) in enumerate(types.items(), facts.attributes + 1):
        oid, modifier = identify_type(type_name)
        added.append(Column(name=name, type_name=type_name, number=number, type_oid=oid, type_modifier=modifier))
    return replace(facts, columns=(*facts.columns, *added), attributes=facts.attributes + len(added))


def added_changes(facts: TableFacts, names: Collection[str]) -> tuple[ColumnChange, ...]:
    """Return the changes that add the columns `names` to a table.

    `facts` are the facts of the table as it will be with these columns. Raises TargetError if the role is not the
    table's owner.
    """
    columns = [column for column in facts.columns if column.name in names]
    changes = tuple(ColumnChange(column=each.name, number=each.number, type_name=each.type_name) for each in columns)
    if changes and not facts.is_owner:
        raise TargetError(
            f'must be owner of table "{facts.name}" to add columns',
            hint=f"Have its owner run: {compose_alter(facts.name, changes)};",
        )
    return changes


def compose_alter(table: TableName, changes: Sequence[ColumnChange]) -> str:
    """Return the ALTER TABLE statement that makes the changes, without a semicolon, for messages."""
    return f"ALTER TABLE {quote_table(table)} {', '.join(change.action for change in changes)}"


def widenable(facts: TableFacts) -> dict[str, str]:
    """Return the columns that --types widen may change, each with the name of its type.

    Their types are those that penstock chooses itself, without a modifier such as a precision.
    """
    names = {oid: name for name, oid in TYPE_OIDS.items() if name in KEPT}
    return {
        column.name: names[column.type_oid]
        for column in facts.columns
        if column.type_oid in names and column.type_modifier == -1
    }


def choose_wider(facts: TableFacts, name: str, type_name: str, found: ColumnFindings | None) -> ColumnChange | None:
    """Return the change after which column `name` keeps all values that were found, None if it needs no change.

    `type_name` is the column's present type. `found` has the types that take all its values, None if it has none.
    """
    column = facts.column(name)
    if column is not None and found is not None and found.word is not None:
        seen = found.word[1]
        return ColumnChange(column=name, number=column.number, type_name="text", was=type_name, decided_by=seen)
    if column is None or found is None or found.fits & KEPT[type_name]:
        return None
    wider = wider_types(type_name)
    chosen = next((each for each in wider if each == "text" or found.fits & KEPT[each]), "text")
    before = (type_name, *wider[: wider.index(chosen)])
    lost = [found.lost[KEPT[each]] for each in before]
    decided_by = max(lost, key=lambda seen: seen[0])[1]
    return ColumnChange(
        column=column.name, number=column.number, type_name=chosen, was=type_name, decided_by=decided_by
    )


def suggest_change(column: Column, value: str) -> ColumnChange | None:
    """Return the change of a column's type after which it accepts a value that the server has refused.

    Return None if the column's present type is not one that --types chooses, or if the value is a date that another
    DateStyle accepts.
    """
    name = next((name for name, oid in TYPE_OIDS.items() if oid == column.type_oid), "text")
    fits, _ = _native.recognize(value.encode(), sum(KEPT.values()) | NOTATED)
    if name == "text" or column.type_modifier != -1 or any(order in list_notations(fits) for order in ORDERS):
        return None
    chosen = next((each for each in wider_types(name) if fits & KEPT.get(each, 0)), "text")
    return ColumnChange(column=column.name, number=column.number, type_name=chosen, was=name)


def suggest_kept(type_name: str, value: str) -> str:
    """Return the name of a type that keeps a value unchanged. The column's type, `type_name`, rounds or alters it.

    >>> suggest_kept("date", "2026-01-31 10:00"), suggest_kept("numeric(9,2)", "1.005"), suggest_kept("integer", "007")
    ('timestamp', 'numeric', 'text')
    """
    is_moment = type_name.startswith(("date", "time"))
    fits, _ = _native.recognize(value.encode(), sum(KEPT.values()))
    candidates = ("timestamp", "timestamptz") if is_moment else ("numeric",)
    kept = next((each for each in candidates if fits & KEPT[each]), "text")
    is_time = type_name.startswith("time ") and kept == "text"
    return "timetz" if is_time and not _native.find_change(value.encode(), "timetz", -1) else kept


def with_type(facts: TableFacts, change: ColumnChange) -> TableFacts:
    """Return the facts of a table with the type of one column changed."""
    columns = tuple(
        replace(
            column,
            type_name=change.type_name,
            type_modifier=-1,
            type_oid=TYPE_OIDS[change.type_name],
            base_name=None,
            base_oid=None,
            is_json=change.type_name == "jsonb",
        )
        if column.name == change.column
        else column
        for column in facts.columns
    )
    return replace(facts, columns=columns)


def notation_options(column: str, notations: Sequence[str]) -> str:
    """Return the options of the command line that say in which notation a column's values are written.

    A notation is that of a number or date, such as `1.234,5` or `dmy`. If there are several, "or" separates their
    options.

    >>> print(notation_options("price", ["1.234,5"]), notation_options("sold at", ["dmy", "mdy"]), sep="; ")
    --decimal-comma price --thousands price=.; --date-order 'sold at=dmy' or --date-order 'sold at=mdy'
    """
    options = (DialectOptions(**solve_notation(column, [notation])) for notation in notations)
    return " or ".join(shlex.join(spell_options(each)) for each in options)


def solve_notation(column: str, notations: Sequence[str]) -> dict[str, Any]:
    """Return the fields of DialectOptions that say that a column's values are written in a notation.

    The result is empty unless `notations` has exactly one notation.
    """
    if len(notations) != 1:
        return {}
    (notation,) = notations
    found: dict[str, Any] = {
        "decimal_comma": (column,) if notation[-2] == "," else (),
        "thousands": {column: notation[1:-5]} if notation[1:-5] else {},
        "date_order": {column: notation} if notation in ORDERS else {},
    }
    return {name: value for name, value in found.items() if value}


def solve_null(value: str, columns: Sequence[str], dialect: Dialect) -> dict[str, Any]:
    """Return the fields of DialectOptions with which the text `value` in these columns is loaded as null.

    They are the options that `null_option` describes.
    """
    is_quoted = dialect.format == "csv" and value in dialect.nulls
    return {"null": (value,)} | ({"force_null": tuple(columns)} if is_quoted else {})


def null_option(value: str, column: str, dialect: Dialect) -> str:
    """Return, for a hint, the option with which the text `value` in a column is loaded as null.

    It is --null, or --force-null if --null names the text already: then the field was in quotes.
    """
    if dialect.format == "csv" and value in dialect.nulls:
        return f"--force-null {shlex.quote(quote_name(column))} if it stands for null"
    too = " (with --null '' too, if empty fields do)" if value else ""
    return f"--null {shlex.quote(value)} if it stands for null{too}"


def refuse_widening(
    facts: TableFacts, change: ColumnChange, dependents: Sequence[str], dialect: Dialect, *, is_delimited: bool
) -> None:
    """Raise DataError if a column cannot be widened, or would become text because of a word for null, such as N/A.

    A column cannot be widened if an object of the database depends on it, or if the role is not the table's owner.
    `dependents` describe these objects. `is_delimited` says whether the values are from delimited text, in which a word
    may stand for null.
    """
    seen = change.decided_by
    assert seen is not None
    alter = f"run: {compose_alter(facts.name, [change])};"
    is_null_word = is_delimited and change.type_name == "text" and seen.value in NULL_WORDS
    hint = f"To load it, {alter}"
    if is_null_word or (is_delimited and is_zero_date(seen.value)):
        hint = f"Use {null_option(seen.value, change.column, dialect)}. If it is text, {alter}"
    if dependents:
        hint += " PostgreSQL refuses that until views, generated columns, triggers and the like are dropped."
    why = f"Not altered, because it is used by: {'; '.join(dependents)}." if dependents else None
    if not facts.is_owner:
        why = "The role is not the owner of the table."
    if why is None and is_null_word:
        why = "Not altered, because other programs write that for null."
    if why is not None:
        location = FileLocation(file=seen.uri, line=seen.line, column=change.column)
        error = DataError(
            f'column "{change.column}" of table "{facts.name}" is {change.was} and does not take {seen.shown}',
            detail=f"{location}.\n{why}",
            hint=hint,
            location=location,
        )
        error.options = solve_null(seen.value, [change.column], dialect) if is_null_word else None
        raise error
