"""Decides what is wrong with a load, given the ledger, the sources as they are now, and counts of rows. Pure."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING

from penstock.core.checks import check_standby
from penstock.core.errors import TargetError
from penstock.core.units import count_nouns, format_count
from penstock.core.values.diagnosis import refuse
from penstock.core.values.job import LoadJob, TargetJob
from penstock.core.values.names import quote_name
from penstock.core.values.notice import Notice
from penstock.core.values.server import ServerFacts
from penstock.core.values.source import SourceObject
from penstock.ledger.values import ObjectRecord
from penstock.loading.files.listing import ctime_ns, is_remote, lasting_version, recorded_name
from penstock.loading.values.objects import PlannedObject, all_objects
from penstock.loading.values.plan import LoadPlan, TargetPlan
from penstock.proof.values import differs

if TYPE_CHECKING:
    from penstock.proof.values import TypeWithoutBinary, VerifiedTable


_CHANGED = "has changed since it was loaded"


def find_targets(job: LoadJob, table: VerifiedTable) -> list[TargetJob]:
    """Return those targets of a job whose table is this one, by the names that the table had in the load."""
    return [each for each in job.targets if str(each.into) in table.names]


def is_alone(table: VerifiedTable) -> bool:
    """Return whether the load alone has filled a table: it emptied or created it, and no other has written since."""
    return (table.is_emptied or table.is_created) and not table.is_shared


def find_touched(objects: Iterable[ObjectRecord], listed: Mapping[str, SourceObject]) -> list[ObjectRecord]:
    """Return the objects that are local files of the same size as when they were loaded, with another inode or time.

    Their content may be the same. `listed` has the sources of the job as they are now, by the URI that the ledger has.
    """
    return [
        each
        for each in objects
        if (source := listed.get(each.uri)) is not None
        and not is_remote(source.location)
        and _has_other_version(each, source)
        and each.size_bytes == source.size_bytes
    ]


def describe_touched(is_same: bool | None, reason: str = "the ledger has no checksum of it") -> str | None:
    """Return what is wrong with a file that `find_touched` returned, None if its content is the same.

    `is_same` is whether the content is the same, None if that cannot be found out; `reason` then says why.
    """
    if is_same is None:
        return f"has another inode or time of change than when it was loaded, and cannot be compared: {reason}"
    return None if is_same else _CHANGED


def check_objects(
    objects: Iterable[ObjectRecord], listed: Mapping[str, SourceObject], touched: Mapping[int, str | None]
) -> Iterator[Notice]:
    """Yield a notice for each thing that is wrong with the load's objects.

    An object may have another version than was loaded, or the ledger may lack a part of it, have a part twice, or have
    other numbers of records than were read. `listed` has the sources of the job as they are now, by the URI that the
    ledger has. `touched` maps the numbers of the objects that `find_touched` returned to what `describe_touched`
    returned.
    """
    for each in objects:
        if each.uri not in listed:
            yield differs(each.uri, "is not among the load's sources any more")
        elif _has_other_version(each, listed[each.uri]) and (message := touched.get(each.number, _CHANGED)) is not None:
            yield differs(each.uri, message)
        if not each.is_complete:
            yield differs(each.uri, "a part of it is missing in the ledger")
        if each.repeated:
            yield differs(each.uri, "a part of it is in the ledger more than once")
        if each.records != each.rows + each.rejected + each.suppressed:
            done = f"{each.rows:,} stored, {each.rejected:,} rejected, {each.suppressed:,} suppressed"
            yield differs(each.uri, f"of {count_nouns(each.records, 'record')}, {done}")


def check_counts(
    meaning: str, tables: Sequence[VerifiedTable], *, is_all: bool, loaded: Collection[str]
) -> Iterator[Notice]:
    """Yield a notice for each object that the load could not read, and for each table with a wrong number of rows.

    `meaning` is the load's, in which its end has recorded these objects. Those in `loaded`, by URI, are no matter. If
    `is_all` is false, neither are those of other tables than `tables`.
    """
    names = {name for each in tables for name in each.names}
    for each in json.loads(meaning).get("unreadable", ()):
        if each["uri"] not in loaded and (is_all or each["table"] in names):
            yield differs(each["uri"], f"was not loaded: {each['reason']}")
    for table in tables:
        yield from check_rows(table)


def _has_other_version(loaded: ObjectRecord, source: SourceObject) -> bool:
    """Return whether a source may be another than was loaded. A file's times are set by anyone, but for its ctime."""
    if loaded.version not in (None, lasting_version(source)):
        return True
    return loaded.ctime_ns not in (None, ctime_ns(source))


def refuse_gone(load_id: str, tables: Iterable[VerifiedTable]) -> None:
    """Raise TargetError if the rows of the load may not be in a table any more."""
    for each in tables:
        if each.is_gone:
            raise TargetError(
                f'table "{each.table}" may not have the rows of load {load_id} any more',
                detail="It was dropped, or a later load has emptied, replaced or synced it, its parent or a partition.",
            )


def refuse_hidden(table: VerifiedTable, *, role: str) -> None:
    """Raise TargetError if row-level security may hide rows of a table from the role: they would count as missing."""
    if table.hides_rows:
        raise TargetError(
            f'cannot verify table "{table.table}": row-level security applies to role "{role}"',
            detail="Rows that its policies hide would count as missing.",
            hint=f"Have a superuser run ALTER ROLE {quote_name(role)} BYPASSRLS; and verify again.",
        )


def refuse_temporary(server: ServerFacts, *, may_create: bool) -> None:
    """Raise TargetError if values cannot be compared, because no temporary table can be created on the server.

    The server may be a standby, or the role may lack TEMPORARY on the database, which `may_create` says.
    """
    refuse(check_standby(server.is_in_recovery, "compare values"), sqlstate="25006")
    if not may_create:
        database, role = quote_name(server.database), quote_name(server.user)
        raise TargetError(
            f"permission denied to create temporary tables in database {database}",
            detail=f"Values are compared in a temporary table, and role {role} lacks TEMPORARY on the database.",
            hint=f"Have the owner run GRANT TEMPORARY ON DATABASE {database} TO {role}; or compare counts.",
            sqlstate="42501",
        )


def check_rows(table: VerifiedTable) -> Iterator[Notice]:
    """Yield a notice for each count of a table that is wrong. Yields nothing if the table's rows were not counted.

    The records read must be those that were stored, rejected or skipped, and the table must have the load's rows.
    """
    if table.rows is None:
        return
    done = table.inserted + table.updated + table.rejected + table.suppressed + table.duplicates + table.existing
    if done != table.records:
        message = f"of {count_nouns(table.records, 'record')}, {done:,} stored, rejected or skipped"
        yield differs(str(table.table), message)
    rows = count_nouns(table.rows, "row")
    if table.rows < table.inserted or (table.is_alone and table.rows != table.inserted):
        message = f"has {rows}, and the load has stored {format_count(table.inserted)}"
        yield differs(str(table.table), message)
    elif table.rows < table.floor:
        message = f"has {rows}, and the load has stored, updated or found {format_count(table.floor)}"
        yield differs(str(table.table), message)


def count_expected(tables: Sequence[VerifiedTable]) -> int | None:
    """Return how many rows a table has if all its rows are those of the given loads, None if it may have other rows.

    `tables` describes the table once for each load whose rows must be in it, the oldest load first.
    """
    is_known = bool(tables) and all(each.rows is not None for each in tables) and not tables[0].has_relatives
    is_own = is_known and (tables[0].is_emptied or tables[0].is_created)
    return sum(each.inserted for each in tables) if is_own else None


def refuse_none(table: VerifiedTable, staying: Sequence[str]) -> None:
    """Raise TargetError if no load is left whose rows must be in a table."""
    if not staying:
        raise TargetError(
            f'table "{table.table}" has no load that can be verified',
            detail="Later loads into its partitions or its parents may have removed the rows of all.",
        )


def check_records(objects: Iterable[ObjectRecord], cut: Mapping[int, int]) -> Iterator[Notice]:
    """Yield a notice for each object from which another number of records was read now than by the load.

    `cut` maps the objects' numbers to the numbers of records that were read now.
    """
    for each in objects:
        if cut[each.number] != each.records:
            message = f"has {count_nouns(cut[each.number], 'record')}, and the load has cut {each.records:,}"
            yield differs(each.uri, message)


def find_work(plan: LoadPlan, table: VerifiedTable, objects: Iterable[ObjectRecord]) -> list[PlannedObject]:
    """Return the planned objects that fill a table, each with the number that the ledger has for it."""
    numbers = {each.uri: each.number for each in objects if each.number in table.objects}
    return [
        replace(work, number=numbers[uri])
        for work in all_objects(plan.targets)
        if work.target.facts is not None
        and work.target.facts.oid == table.oid
        and (uri := recorded_name(work.source)) in numbers
    ]


def has_only_keys(table: VerifiedTable, target: TargetPlan) -> bool:
    """Return whether only key columns can be compared, because the load kept rows that had the keys of records."""
    return table.existing > 0 and not target.landing.updates


def compared_columns(table: VerifiedTable, target: TargetPlan) -> tuple[str, ...]:
    """Return the names of the columns in which a target's objects are compared with a table."""
    columns = target.column_map.columns
    return tuple(name for name in columns if name in target.job.key or not has_only_keys(table, target))


def group_by_columns(table: VerifiedTable, work: Sequence[PlannedObject]) -> dict[tuple[str, ...], list[int]]:
    """Return the sets of columns in which objects are compared with a table, each with the numbers of its objects.

    These are the objects that have all columns of the set. The first set has the columns that all objects have, and
    each other set has all columns of some object. In a column that an object lacks, its rows have the default, so each
    set is compared by itself. An object with more columns is compared in the smaller sets too, so that no row counts
    for two records.
    """
    columns = {each.number: compared_columns(table, each.target) for each in work}
    first, *others = columns.values()
    common = tuple(name for name in first if all(name in each for each in others))
    found = dict.fromkeys([common, *(each for each in columns.values() if set(each) != set(common))])
    return {each: [number for number, names in columns.items() if {*each} <= {*names}] for each in found}


def has_crossing(columns: Iterable[Iterable[str]]) -> bool:
    """Return whether there are two sets of columns each of which lacks a column of the other.

    Then one row may count for two records, one of each set.

    >>> has_crossing(["a", "ab", "abc"]), has_crossing(["a", "ab", "ac"])
    (False, True)
    """
    return any(not ({*one} <= {*other} or {*other} <= {*one}) for one, other in combinations(columns, 2))


def count_corrected(
    table: VerifiedTable, corrected: Mapping[int, Iterable[int]], rejected: Mapping[int, Iterable[int]]
) -> int:
    """Return how many records of a table were rejected, corrected by a user and loaded.

    `corrected` and `rejected` map the numbers of objects to the positions of their records. A record that is in both is
    still rejected, and does not count.
    """
    return sum(len({*corrected.get(number, ())} - {*rejected.get(number, ())}) for number in table.objects)


def find_without_binary(
    table: VerifiedTable, work: Iterable[PlannedObject], types: Iterable[TypeWithoutBinary]
) -> Iterator[str]:
    """Yield a sentence for each compared column whose type has no binary output, so that record_send fails for it."""
    compared = {name for each in work for name in compared_columns(table, each.target)}
    for each in types:
        if each.name in compared:
            yield f'Column "{each.name}" of table "{table.table}": type {each.type_name} has no binary output.'


def with_positions(work: PlannedObject) -> PlannedObject:
    """Return an object that is sent with the position of each record, by which a record is found again in its file."""
    landing = replace(work.target.landing, where="staging")
    return replace(work, target=replace(work.target, landing=landing, allows_suppressed_rows=False))


def refuse_values(load_id: str, reasons: Iterable[str]) -> None:
    """Raise TargetError if there are reasons why a load's values cannot be compared. Its detail lists them."""
    if detail := "\n".join(reasons):
        raise TargetError(
            f"the values of load {load_id} cannot be compared",
            detail=detail,
            hint=f"Compare counts: penstock verify {load_id}.",
        )


def find_renamed(tables: Iterable[VerifiedTable]) -> Iterator[str]:
    """Yield a sentence for each table that the job does not find any more, because it has another name or schema."""
    for each in tables:
        if each.is_renamed:
            yield f'Table "{each.names[0]}" of the load is "{each.table}" now.'


def find_obstacles(
    job: LoadJob,
    plan: LoadPlan,
    work: Sequence[tuple[VerifiedTable, Sequence[PlannedObject]]],
    objects: Iterable[ObjectRecord],
    rejected: Mapping[int, Sequence[int]],
) -> Iterator[str]:
    """Yield a sentence for each reason why the load's rows may differ from the records of its files.

    Values cannot be compared if there is one. `job` is the load's own job, and `plan` is the plan that reads its
    objects again. `work` has each table with its objects. `rejected` maps the numbers of objects to the positions of
    the rejected records that the ledger still has.
    """
    oids = {table.oid for table, _ in work}
    for target in plan.targets:
        if target.facts is not None and target.facts.oid not in oids:
            continue
        if target.job.transform is not None:
            yield f'Transform "{target.job.transform.name}" has made the rows of table "{target.table}".'
        triggers = () if target.facts is None else target.facts.suppressing_triggers
        if triggers and job.rules.triggers == "keep":
            yield f'Triggers of table "{target.table}" may change rows: {", ".join(triggers)}.'
    for table, found in work:
        if not found:
            yield f'The load would now fill another table than "{table.table}".'
        elif len(found) != len(table.objects):
            yield f'Several targets of the load have filled table "{table.table}".'
    if any(each.rejected != len(rejected.get(each.number, ())) for each in objects):
        yield "Some rejected records were discarded, so they cannot be told from records that are missing."
