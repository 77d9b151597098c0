"""Plans one target of a load: probes its sample, maps the fields to columns, decides where its rows land. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from penstock.core.checks import check_table
from penstock.core.errors import DataError, PenstockError, TargetError, UsageError
from penstock.core.slotted import slotted
from penstock.core.values.diagnosis import refuse
from penstock.core.values.job import LoadRules, TargetJob
from penstock.core.values.notice import Notice
from penstock.core.values.server import ServerFacts
from penstock.core.values.source import ObjectSample, SourceObject
from penstock.core.values.table import ColumnMap, TableFacts
from penstock.core.words import list_names
from penstock.loading.formats import find_format
from penstock.loading.formats.columns import (
    edge_notice,
    find_edge,
    find_loaded,
    name_created_columns,
    name_folder_columns,
    name_records,
    naming_notice,
    unknown_columns,
)
from penstock.loading.formats.format import Format
from penstock.loading.formats.probe.columnar import read_folder_values
from penstock.loading.formats.probe.form import validate_options
from penstock.loading.formats.probe.probing import ProbeResult
from penstock.loading.plan.modes import (
    added_changes,
    check_changes,
    check_key_names,
    check_mode,
    check_types,
    choose_landing,
    describe_notices,
    explain_emptying,
    with_columns,
)
from penstock.loading.plan.notices import check_switches, estimate_records, table_notices
from penstock.loading.plan.partitions import refuse_existing
from penstock.loading.values.plan import Edge, TargetPlan, create_table_facts, name_fields, table_after_creation


@slotted
class TargetInput:
    """What was gathered for one target.

    `unloaded` are the objects that are not loaded according to the ledger. `sample` is the beginning of the first of
    them that has text or, if all objects are loaded, of the first object that has text. If `may_be_loaded` is true, the
    object of the sample may be loaded already, and is then not loaded again. `facts` is None if the table does not
    exist. `notices` name the files that are skipped. `lines_before_emptying` is the number of lines of the longest
    object, if it has at most one line and the load would remove rows from the table; otherwise None.
    """

    job: TargetJob
    objects: tuple[SourceObject, ...]
    sample: ObjectSample
    facts: TableFacts | None
    notices: tuple[Notice, ...] = ()
    may_be_loaded: bool = False
    unloaded: tuple[SourceObject, ...] = ()
    lines_before_emptying: int | None = None


def plan_target(gathered: TargetInput, rules: LoadRules, server: ServerFacts) -> tuple[TargetPlan, tuple[Notice, ...]]:
    """Return the plan of one target as if it were the load's only target, and its warnings.

    Raises UsageError, TargetError or DataError if the target cannot be loaded as its job requests.
    """
    job, sample, facts = gathered.job, gathered.sample, gathered.facts
    uri = sample.source.uri
    validate_options(job.dialect)
    refuse(check_table(job.into, exists=facts is not None, creates=job.create))
    check_mode(job, facts)
    check_changes(job, facts)
    found = find_format(sample, job.dialect)
    check_types(job, facts, gathered.objects, is_typed=found.is_typed)
    check_switches(rules, facts)
    rejects = rules.on_error == "reject"
    probe = found.probe(sample, job, facts, server=server, rejects=rejects)
    if rules.emptied != "load":
        _refuse_emptying(gathered, probe)
    _refuse_unclear_start(probe, job, is_new=facts is None)
    edge = find_edge(probe, job=job, table=None if job.transform is not None else facts)
    named = _created_columns(found, probe, gathered, edge) if facts is None or job.transform is not None else None
    created, staged = None if facts is not None else named, None if job.transform is None else named
    types = None if created is None else _type_created(found, probe, gathered, count=len(created))
    table = facts if facts is not None else create_table_facts(job.into, created or (), types)
    landing = choose_landing(job, facts, is_atomic=rules.atomic)
    added: dict[str, str] = {}
    if facts is not None and job.add_columns and not gathered.may_be_loaded:
        unknown = unknown_columns(probe.header, job, facts, edge, is_by_name=found.is_by_name)
        added = found.type_columns(sample.own, unknown, uri=uri)
        table = facts = with_columns(facts, added)
    target = TargetPlan(
        job=job,
        table=table.name,
        facts=facts,
        create_columns=created,
        dialect=probe.dialect,
        header=probe.header,
        edge=edge,
        column_map=ColumnMap(columns=()),
        objects=gathered.objects,
        sample=sample,
        allows_suppressed_rows=landing.where == "table" and bool(table.suppressing_triggers),
        landing=landing,
        text_columns=staged,
        create_types=types,
        format=found.name,
        own=sample.own,
        unloaded=gathered.unloaded,
        skips_triggers=rules.triggers == "disable",
        changes=() if facts is None else added_changes(facts, added),
    )
    column_map, refusal = _map_sample(found, gathered, target, rejects=rejects)
    target = replace(target, column_map=column_map, refusal=refuse_existing(job, facts) or refusal)
    if target.created_key and not job.merge_key:
        check_key_names(table, target.created_key, column_map.columns)
    if table.row_triggers:
        target = replace(target, estimated_records=estimate_records(target))
    notices = (*_name_notices(probe, target, uri=uri), *_table_notices(table, gathered))
    return target, (*gathered.notices, *probe.notices, *notices, *describe_notices(job, table))


def _name_notices(probe: ProbeResult, target: TargetPlan, *, uri: str) -> Iterator[Notice]:
    """Yield warnings about names in the sample, or its header, that are changed before they become columns."""
    job, edge = target.job, target.edge
    if target.create_columns is not None or target.text_columns is not None:
        yield from _naming_notices(probe, job, edge, uri=uri)
    if (found := edge_notice(edge, probe, uri=uri)) is not None:
        yield found
    yield from _header_notices(probe, job, table_after_creation(target), uri=uri)


def _refuse_emptying(gathered: TargetInput, probe: ProbeResult) -> None:
    """Raise TargetError if the load would remove the table's rows and has no records to replace them."""
    lines = gathered.lines_before_emptying
    if lines == 0 or (lines == 1 and probe.dialect.has_header):
        what = "only a header" if lines else "no record"
        raise explain_emptying(
            gathered.job,
            detail=f"{gathered.sample.source.uri} has {what}, as every other source.",
            hint="Use --emptied load if the table is to be empty.",
        )


def _map_sample(
    found: Format, gathered: TargetInput, target: TargetPlan, *, rejects: bool
) -> tuple[ColumnMap, PenstockError | None]:
    """Return the column map of the sample. If all objects are loaded already, return the error instead of raising it.

    The load raises the error only if an object is loaded again.
    """
    try:
        return found.map_first(gathered.sample, target, rejects=rejects), None
    except (TargetError, UsageError) as error:
        if not gathered.may_be_loaded:
            raise
        return ColumnMap(columns=()), error


def _header_notices(probe: ProbeResult, job: TargetJob, table: TableFacts, *, uri: str) -> tuple[Notice, ...]:
    """Warn if the first record is taken for a header, and not loaded, although none of its names is a known column."""
    if job.columns is None or job.dialect.header is not None or not probe.dialect.has_header or probe.header is None:
        return ()
    known = {name.strip().casefold() for name in (*job.columns, *(column.name for column in table.columns))}
    if any(name.strip().casefold() in known for name in probe.header):
        return ()
    return (
        Notice(
            code="first-line",
            message="first line is treated as a header and not loaded",
            uri=uri,
            line=1,
            hint="Use --no-header to load it, or --header if it is one.",
        ),
    )


def _created_columns(found: Format, probe: ProbeResult, gathered: TargetInput, edge: Edge | None) -> tuple[str, ...]:
    job, uri = gathered.job, gathered.sample.source.uri
    names = job.columns if job.columns is not None else name_fields(probe.header, edge) or [""] * probe.field_count
    names = name_records(names, job) if found.is_by_name else names
    if found.names_folders:
        stated = (read_folder_values(source.uri) for source in gathered.objects)
        names = (*names, *name_folder_columns(stated, names, job))
    return name_created_columns(names, job, uri=uri)


def _type_created(found: Format, probe: ProbeResult, gathered: TargetInput, *, count: int) -> tuple[str, ...] | None:
    """Return the types of columns to be created: the file's own types, then text for columns not in the file.

    None if all columns have type text.
    """
    if not found.is_typed:
        return None
    job, sample = gathered.job, gathered.sample
    fields = find_loaded(job.columns or probe.header or (), job)
    types = found.type_columns(sample.own, fields, uri=sample.source.uri).values()
    return (*types, *["text"] * (count - len(types)))


def _refuse_unclear_start(probe: ProbeResult, job: TargetJob, *, is_new: bool) -> None:
    """Raise DataError if the header could be a record, or if lines before it could be the header of a new table."""
    # Check first for lines before the header, because then the first line is not the header.
    for notice in sorted(probe.notices, key=lambda notice: notice.code != "preamble"):
        if notice.code == "preamble" and is_new:
            raise DataError(notice.message, detail=notice.location, hint=notice.hint)
        if notice.code == "first-line" and probe.header is not None and job.columns is None:
            names = list_names(probe.header)
            raise DataError(
                "the first line may be a header or a record",
                detail=f"{notice.location}\nWith --header, columns are named {names}.\n"
                "With --no-header, this is the first row.",
                hint=notice.hint,
            )


def _naming_notices(probe: ProbeResult, job: TargetJob, edge: Edge | None, *, uri: str) -> tuple[Notice, ...]:
    names = name_fields(probe.header, edge)
    notice = None if job.columns is not None else naming_notice(names, probe.field_count, job, uri=uri)
    return () if notice is None else (notice,)


def _table_notices(table: TableFacts, gathered: TargetInput) -> list[Notice]:
    notices = table_notices(table)
    # The sample was taken from the first object that has text. So if the sample is empty, all objects are empty.
    if gathered.sample.is_empty:
        notices.append(Notice(code="empty", message="every source is empty", uri=gathered.objects[0].uri))
    return notices
