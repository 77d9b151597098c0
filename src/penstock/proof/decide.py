"""Decides what is wrong with a load, given the ledger, the sources as they are now, and counts of rows. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.core.errors import TargetError
from penstock.core.files.listing import recorded_name
from penstock.core.units import count_nouns, format_count
from penstock.loading.values.work import ObjectWork
from penstock.proof.values import Problem, VerifiedTable

if TYPE_CHECKING:
    from penstock.core.values.job import LoadJob, TargetJob
    from penstock.ledger.values import ObjectRecord
    from penstock.loading.values.plan import LoadPlan


def find_targets(job: LoadJob, table: VerifiedTable) -> list[TargetJob]:
    """Return the targets of a job that have filled a table."""
    return [each for each in job.targets if str(each.into) in (str(table.table), table.name)]


def is_alone(job: LoadJob, table: VerifiedTable) -> bool:
    """Return whether the load alone has filled a table: it emptied, replaced or created it, and no other has loaded it.

    A merge by key never counts, because it leaves other rows.
    """
    targets = find_targets(job, table)
    if table.is_shared or any(each.landing.is_keyed for each in targets):
        return False
    return table.is_emptied or (bool(targets) and all(each.create for each in targets))


def check_objects(objects: Iterable[ObjectRecord], versions: Mapping[str, str | None]) -> Iterator[Problem]:
    """Yield what is wrong with objects. `versions` has the versions that the job's sources have now, by URI."""
    for each in objects:
        if each.uri not in versions:
            yield Problem(where=each.uri, message="is not among the load's sources any more")
        elif each.version not in (None, versions[each.uri]):
            yield Problem(where=each.uri, message="has changed since it was loaded")
        if not each.is_complete:
            yield Problem(where=each.uri, message="a part of it is missing in the ledger")
        if each.repeated:
            yield Problem(where=each.uri, message="a part of it is in the ledger more than once")
        if each.records != each.rows + each.rejected + each.suppressed:
            done = f"{each.rows:,} stored, {each.rejected:,} rejected, {each.suppressed:,} suppressed"
            yield Problem(where=each.uri, message=f"of {count_nouns(each.records, 'record')}, {done}")


def refuse_gone(load_id: str, tables: Iterable[VerifiedTable]) -> None:
    """Raise TargetError if the rows of the load are not in a table any more."""
    for each in tables:
        if each.is_gone:
            raise TargetError(
                f'table "{each.table}" does not have the rows of load {load_id} any more',
                detail="It was dropped, or a later load has emptied or replaced it.",
            )


def check_rows(table: VerifiedTable) -> Iterator[Problem]:
    """Yield what is wrong with the counts of a table."""
    if table.rows is None:
        return
    done = table.inserted + table.updated + table.rejected + table.suppressed + table.duplicates + table.existing
    if done != table.records:
        message = f"of {count_nouns(table.records, 'record')}, {done:,} stored, rejected or skipped"
        yield Problem(where=str(table.table), message=message)
    if table.rows < table.inserted or (table.is_alone and table.rows != table.inserted):
        message = f"has {count_nouns(table.rows, 'row')}, and the load has stored {format_count(table.inserted)}"
        yield Problem(where=str(table.table), message=message)


def check_records(objects: Iterable[ObjectRecord], cut: Mapping[int, int]) -> Iterator[Problem]:
    """Yield the objects of which another number of records was cut now. `cut` has the number for each object."""
    for each in objects:
        if cut[each.number] != each.records:
            message = f"has {count_nouns(cut[each.number], 'record')}, and the load has cut {each.records:,}"
            yield Problem(where=each.uri, message=message)


def find_work(plan: LoadPlan, table: VerifiedTable, objects: Iterable[ObjectRecord]) -> list[ObjectWork]:
    """Return the objects of a table, to be sent again with the position of each record."""
    numbers = {each.uri: each.number for each in objects if each.number in table.objects}
    work: list[ObjectWork] = []
    for index, target in enumerate(plan.targets):
        if target.facts is not None and target.facts.oid == table.oid:
            landing = replace(target.landing, where="staging")
            staged = replace(target, landing=landing, allows_suppressed_rows=False)
            work += [
                ObjectWork(target=staged, source=source, number=numbers[uri], target_index=index)
                for source in target.objects
                if (uri := recorded_name(source)) in numbers
            ]
    return work


def refuse_values(load_id: str, reasons: Iterable[str]) -> None:
    """Raise TargetError if there are reasons why the values of a load cannot be compared."""
    if detail := "\n".join(reasons):
        raise TargetError(
            f"the values of load {load_id} cannot be compared",
            detail=detail,
            hint=f"Compare counts: penstock verify {load_id}.",
        )


def find_obstacles(
    plan: LoadPlan,
    work: Sequence[tuple[VerifiedTable, Sequence[ObjectWork]]],
    objects: Iterable[ObjectRecord],
    rejected: Mapping[int, Sequence[int]],
) -> Iterator[str]:
    """Yield why the rows of the load need not be the records of its files.

    `work` has the objects of each table, and `rejected` the offsets of each object's rejected records.
    """
    for target in plan.targets:
        if target.job.transform is not None:
            yield f'Transform "{target.job.transform.name}" has made the rows of table "{target.table}".'
        triggers = () if target.facts is None else target.facts.suppressing_triggers
        if triggers and plan.job.rules.triggers == "keep":
            yield f'Triggers of table "{target.table}" may change rows: {", ".join(triggers)}.'
    for table, found in work:
        if table.existing:
            yield f'Table "{table.table}" had rows with keys of the files, which the load kept.'
        if len(found) != len(table.objects) or len({frozenset(each.target.column_map.columns) for each in found}) > 1:
            yield f'Several targets of the load have filled table "{table.table}".'
    if any(each.rejected != len(rejected.get(each.number, ())) for each in objects):
        yield "Some rejected records were discarded, so they cannot be told from records that are missing."
