"""Makes the plan of a load from the job and the facts: all decisions in one place. Pure.

`--plan` prints the plan, and `run.py` carries it out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter

from penstock.errors import DataError, PenstockError, TargetError, UsageError
from penstock.files.probe import ProbeResult, probe_dialect, refuse_unclear_escapes, validate_options
from penstock.files.probe.columnar import probe_columnar, refuse_unsupported
from penstock.files.probe.folders import read_folder_values
from penstock.files.probe.json_lines import is_json_lines, probe_json_lines
from penstock.frozen import frozen
from penstock.loading.pace import plan_sessions
from penstock.loading.plan.changes import added_changes, check_changes, with_columns
from penstock.loading.plan.columns import (
    edge_notice,
    find_edge,
    find_whole_column,
    map_columns,
    map_names,
    name_created_columns,
    name_created_types,
    name_folder_columns,
    naming_notice,
    refuse_many_names,
    refuse_unknown_names,
    unknown_columns,
)
from penstock.loading.plan.modes import (
    check_mode,
    check_types,
    choose_landing,
    describe_notices,
    explain_emptying,
    refuse_shared_tables,
)
from penstock.loading.plan.notices import check_switches, estimate_records, server_notices, table_notices
from penstock.model.finding import refuse
from penstock.model.load.job import LoadJob, LoadRules, TargetJob
from penstock.model.load.plan import Edge, LoadPlan, ObjectSample, TargetPlan, name_fields, stored_size
from penstock.model.load.tuning import DEFAULT_TUNING, LoadTuning
from penstock.model.server.checks import check_sequences, check_table
from penstock.model.server.server import ServerFacts
from penstock.model.server.table import Column, ColumnMap, TableFacts, TableName
from penstock.model.source.dialect import DialectOptions, Notice
from penstock.model.source.source import SourceObject
from penstock.model.source.types import TYPE_OIDS


@frozen
class TargetInput:
    """What was gathered for one target.

    `sample` is of the first object with text that is not known to be loaded, or of the first one with text if all are.
    `may_be_loaded`: the sample's object is loaded, or may be; then it is not read again. `facts` is None if the table
    does not exist. `notices` name the files that are not loaded, `unloaded` the objects not known to be loaded.
    `lines_before_emptying` is how many lines the longest object has if that is one at most, and the load would remove
    rows from the table; else None.
    """

    job: TargetJob
    objects: tuple[SourceObject, ...]
    sample: ObjectSample
    facts: TableFacts | None
    notices: tuple[Notice, ...] = ()
    may_be_loaded: bool = False
    unloaded: tuple[SourceObject, ...] = ()
    lines_before_emptying: int | None = None


def plan_load(
    job: LoadJob,
    inputs: Sequence[TargetInput],
    *,
    server: ServerFacts,
    cpu_count: int | None,
    load_id: str,
    tuning: LoadTuning = DEFAULT_TUNING,
) -> LoadPlan:
    """Return the plan of a load; `cpu_count` is the server's, None if unknown.

    Raises UsageError, TargetError or DataError if the job cannot be done as requested.
    """
    planned = [_plan_target(gathered, job.rules, server) for gathered in inputs]
    targets = _follow_staged(_stage_together([target for target, _ in planned], is_atomic=job.rules.atomic))
    _refuse_double_creation(targets)
    refuse_shared_tables(targets)
    depends = _rows_depend_on_each_other(inputs, targets)
    ranks, circles = rank_tables([gathered.facts for gathered in inputs])
    is_repeatable = not any(_is_read_once(source) for target, _ in planned for source in target.objects)
    # A pipe cannot be read again, so the load cannot be resumed: it is loaded as a whole or not at all.
    is_single = not is_repeatable or (job.rules.atomic and any(target.fills_table for target in targets))
    sessions = plan_sessions(
        asked=1 if depends or is_single else job.sessions,
        cpu_count=cpu_count,
        free_connections=server.free_connections,
        size_bytes=stored_size(targets),
    )
    if is_single:
        sessions = replace(sessions, reason="all rows are loaded in one transaction")
    return LoadPlan(
        load_id=load_id,
        job=job,
        batch=replace(tuning.batch, limit_bytes=None, duration_s=None) if is_single else tuning.batch,
        tuning=tuning,
        is_repeatable=is_repeatable,
        targets=tuple(targets),
        sessions=sessions,
        is_in_job_order=depends,
        ranks=ranks,
        defers_keys=bool(circles) and job.rules.atomic,
        notices=tuple(notice for _, notices in planned for notice in notices)
        + ((_DEPENDS_NOTICE,) if depends else ())
        + circles
        + tuple(server_notices(server)),
    )


def _is_read_once(source: SourceObject) -> bool:
    return source.is_pipe and not source.is_spooled


# The sessions do not see each other's rows until these are committed, so a referenced row would be missing.
_DEPENDS_NOTICE = Notice(
    code="references",
    message="a foreign key refers to a table of this load: one session, referenced tables first",
    hint="To use all sessions, drop the key before the load and add it after.",
)


def rank_tables(facts: Sequence[TableFacts | None]) -> tuple[tuple[int, ...], tuple[Notice, ...]]:
    """Return the rank of each table, and a notice for each circle of foreign keys.

    Referenced tables come first; otherwise the order is the given one. None is a table that does not exist yet.
    """
    tables = {each.oid: each for each in facts if each is not None}
    graph = {
        oid: [other for other in tables if other in facts.references and other != oid] for oid, facts in tables.items()
    }
    notices = []
    while True:
        try:
            order = list(TopologicalSorter(graph).static_order())
            break
        except CycleError as error:
            circle = dict.fromkeys(error.args[1])
            notices.append(_notice_circle([str(tables[oid].name) for oid in circle]))
            # Ignore the keys of this circle; those of other tables still decide the order.
            for oid in circle:
                graph[oid] = [other for other in graph[oid] if other not in circle]
    ranked = sorted(
        range(len(facts)),
        key=lambda number: -1 if (each := facts[number]) is None else order.index(each.oid),
    )
    return tuple(ranked.index(number) for number in range(len(facts))), tuple(notices)


def _notice_circle(names: Sequence[str]) -> Notice:
    listed = ", ".join(f'"{name}"' for name in names)
    return Notice(
        code="references",
        message=f"foreign keys refer to each other in a circle: {listed}; no order of these tables keeps every key",
        hint="Have one DEFERRABLE (with --mode append INITIALLY DEFERRED, too) and use --atomic; or drop it before the "
        "load and add it after.",
    )


def _rows_depend_on_each_other(inputs: Sequence[TargetInput], targets: Sequence[TargetPlan]) -> bool:
    """Whether COPY fills a target that has a foreign key to a target of this load, including itself."""
    loaded = {gathered.facts.oid for gathered in inputs if gathered.facts is not None}
    return any(
        target.fills_table and gathered.facts is not None and not loaded.isdisjoint(gathered.facts.references)
        for gathered, target in zip(inputs, targets, strict=True)
    )


def _stage_together(targets: list[TargetPlan], *, is_atomic: bool) -> list[TargetPlan]:
    """Stage all targets of an atomic load if one of them is staged, so that all rows appear in the last transaction."""
    if not is_atomic or all(target.fills_table for target in targets):
        return targets
    return [target.staged() for target in targets]


def _follow_staged(targets: list[TargetPlan]) -> list[TargetPlan]:
    """Stage each target with a foreign key to a staged table, because its rows must be stored after that table's."""
    staged = {each.facts.oid: each.table for each in targets if each.is_staged and each.facts is not None}
    following = [replace(target, follows=_find_followed(target, staged)) for target in targets]
    targets = [each.staged() if each.follows else each for each in following]
    # Other tables may refer to those just staged.
    return targets if targets == following else _follow_staged(targets)


def _find_followed(target: TargetPlan, staged: Mapping[int, TableName]) -> tuple[TableName, ...]:
    facts = target.facts
    if facts is None:
        return ()
    return tuple(name for oid, name in staged.items() if oid in facts.references and oid != facts.oid)


def _plan_target(gathered: TargetInput, rules: LoadRules, server: ServerFacts) -> tuple[TargetPlan, tuple[Notice, ...]]:
    job, sample, facts = gathered.job, gathered.sample, gathered.facts
    uri = sample.source.uri
    validate_options(job.dialect)
    refuse(check_table(job.into, exists=facts is not None, creates=job.create))
    check_mode(job, facts)
    check_changes(job, facts)
    check_types(job, facts, gathered.objects, is_text=sample.columnar is None)
    check_switches(rules, facts)
    probe = _probe(gathered, server, rejects=rules.on_error == "reject")
    if rules.emptied != "load":
        _refuse_emptying(gathered, probe)
    _refuse_unclear_start(probe, job, is_new=facts is None)
    is_json = probe.dialect.format == "jsonl"
    edge = None if is_json else find_edge(probe, job=job, table=None if job.transform is not None else facts)
    named = _created_columns(probe, gathered, edge) if facts is None or job.transform is not None else None
    created, staged = None if facts is not None else named, None if job.transform is None else named
    types = None
    if created is not None and sample.columnar is not None:
        types = name_created_types(sample.columnar, job, count=len(created), uri=uri)
    table = facts if facts is not None else _created_table(job.into, created or (), types)
    landing = choose_landing(job, facts, is_atomic=rules.atomic)
    added: dict[str, str] = {}
    if facts is not None and job.add_columns and not gathered.may_be_loaded:
        added = unknown_columns(probe.header, job, facts, edge, columnar=sample.columnar, uri=uri)
        table = facts = with_columns(facts, added)
    filled = table if staged is None else _created_table(table.name, staged)
    column_map, refusal = _map_sample(probe, gathered, filled, edge, rejects=rules.on_error == "reject")
    if staged is None:
        refuse(check_sequences(table, column_map.columns, role=server.user), sqlstate="42501")
    target = TargetPlan(
        job=job,
        table=table.name,
        facts=facts,
        create_columns=created,
        dialect=probe.dialect,
        header=probe.header,
        edge=edge,
        column_map=column_map,
        objects=gathered.objects,
        sample_compression=sample.compression,
        sample_bom=sample.bom,
        allows_suppressed_rows=landing.where == "table" and bool(table.suppressing_triggers),
        landing=landing,
        text_columns=staged,
        refusal=refusal,
        create_types=types,
        columnar=sample.columnar,
        unloaded=gathered.unloaded,
        changes=() if facts is None else added_changes(facts, added),
    )
    if table.row_triggers:
        target = replace(target, estimated_records=estimate_records(target, sample))
    notices = (*_name_notices(probe, target, filled, uri=uri), *_table_notices(table, gathered))
    return target, (*gathered.notices, *probe.notices, *notices, *describe_notices(job, table))


def _name_notices(probe: ProbeResult, target: TargetPlan, filled: TableFacts, *, uri: str) -> Iterator[Notice]:
    """Warn of names of the sample, and of its header, that are not taken as they stand."""
    job, edge = target.job, target.edge
    if probe.dialect.format == "jsonl" and target.facts is not None and target.text_columns is None:
        yield from _whole_notices(probe, job, target.facts, uri=uri)
    if target.create_columns is not None or target.text_columns is not None:
        yield from _naming_notices(probe, job, edge, uri=uri)
    if (found := edge_notice(edge, probe, uri=uri)) is not None:
        yield found
    yield from _header_notices(probe, job, filled, uri=uri)


def _refuse_emptying(gathered: TargetInput, probe: ProbeResult) -> None:
    """Raise TargetError if the load would remove the table's rows, and has no record in place of them."""
    lines = gathered.lines_before_emptying
    if lines == 0 or (lines == 1 and probe.dialect.has_header):
        what = "only a header" if lines else "no record"
        raise explain_emptying(
            gathered.job,
            detail=f"{gathered.sample.source.uri} has {what}, as every other source.",
            hint="Use --emptied load if the table is to be empty.",
        )


def _map_sample(
    probe: ProbeResult, gathered: TargetInput, table: TableFacts, edge: Edge | None, *, rejects: bool
) -> tuple[ColumnMap, PenstockError | None]:
    """Return the columns that the sample's fields go to, or none, with the error, if all objects are loaded already.

    Then the error is raised only if an object is loaded again.
    """
    job, uri = gathered.job, gathered.sample.source.uri
    stated = {} if gathered.sample.columnar is None else read_folder_values(uri)
    try:
        if probe.dialect.format != "jsonl":
            found = map_columns(probe.header, job=job, table=table, uri=uri, edge=edge, folder_values=stated)
            if gathered.sample.columnar is not None:
                refuse_unsupported(gathered.sample.columnar, found, uri=uri)
            return found, None
        if not rejects:
            refuse_unknown_names(probe.header or (), job=job, table=table, uri=uri)
        return map_names(probe.header or (), job=job, table=table, uri=uri), None
    except (TargetError, UsageError) as error:
        if not gathered.may_be_loaded:
            raise
        return ColumnMap(columns=()), error


def _probe(gathered: TargetInput, server: ServerFacts, *, rejects: bool) -> ProbeResult:
    """Return the sample's dialect and header. Raises DataError if it could be read in two ways, UsageError."""
    job, sample, facts = gathered.job, gathered.sample, gathered.facts
    if sample.columnar is not None:
        return probe_columnar(sample.columnar, job, uri=sample.source.uri)
    if is_json_lines(sample.head, job.dialect, is_whole=sample.is_whole):
        return probe_json_lines(
            sample.head,
            options=job.dialect,
            is_whole=sample.is_whole,
            table_columns=() if facts is None else [column.name for column in facts.columns],
            uri=sample.source.uri,
            first_line=sample.first_line,
            rejects=rejects,
            compression=sample.compression,
        )
    loadable = None
    if facts is not None and job.transform is None:
        loadable = [column.name for column in facts.columns if not column.is_generated]
    options = options_of(sample, job.dialect)
    if options.encoding is None and server.server_encoding == "SQL_ASCII":
        # As COPY does in such a database, accept any bytes.
        options = replace(options, encoding="SQL_ASCII")
    probe = probe_dialect(
        sample.head,
        options=options,
        is_whole=sample.is_whole,
        table_columns=loadable,
        uri=sample.source.uri,
        bom=sample.bom,
        first_line=sample.first_line,
        rejects=rejects,
        compression=sample.compression,
    )
    refuse_unclear_escapes(
        sample.head,
        is_whole=sample.is_whole,
        dialect=probe.dialect,
        options=options,
        uri=sample.source.uri,
        first_line=sample.first_line,
    )
    return probe


def _header_notices(probe: ProbeResult, job: TargetJob, table: TableFacts, *, uri: str) -> tuple[Notice, ...]:
    """Warn if the first record is not loaded as a header although none of its names is a known column."""
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


def _created_columns(probe: ProbeResult, gathered: TargetInput, edge: Edge | None) -> tuple[str, ...]:
    job, sample = gathered.job, gathered.sample
    uri = sample.source.uri
    names = job.columns if job.columns is not None else name_fields(probe.header, edge) or [""] * probe.field_count
    if probe.dialect.format == "jsonl":
        refuse_many_names(len(names), uri=uri)
    if probe.dialect.format == "jsonl" and not names:
        raise DataError(
            "no record names a column",
            detail=f"{uri}: its first block has no JSON object with a name.",
            hint="Name the columns with --columns.",
        )
    if sample.columnar is not None:
        stated = (read_folder_values(source.uri) for source in gathered.objects)
        names = (*names, *name_folder_columns(stated, names, job))
    return name_created_columns(names, job, uri=uri)


def _refuse_unclear_start(probe: ProbeResult, job: TargetJob, *, is_new: bool) -> None:
    """Raise DataError if the header could be a record, or if lines before it could be the header of a new table."""
    # If there are lines before the header, check these first: then the first line is not the header.
    for notice in sorted(probe.notices, key=lambda notice: notice.code != "preamble"):
        if notice.code == "preamble" and is_new:
            raise DataError(notice.message, detail=notice.location, hint=notice.hint)
        if notice.code == "first-line" and probe.header is not None and job.columns is None:
            names = ", ".join(f'"{name}"' for name in probe.header)
            raise DataError(
                "the first line may be a header or a record",
                detail=f"{notice.location}\nWith --header, columns are named {names}.\n"
                "With --no-header, this is the first row.",
                hint=notice.hint,
            )


def _whole_notices(probe: ProbeResult, job: TargetJob, facts: TableFacts, *, uri: str) -> tuple[Notice, ...]:
    """Warn if records of JSON Lines are stored whole although all their names are columns of the table."""
    whole = find_whole_column(job, facts)
    if whole is None or not probe.header or any(facts.column(name) is None for name in probe.header):
        return ()
    return (
        Notice(
            code="column-names",
            message=f'each record is stored whole in column "{whole}", although its names are columns of the table',
            uri=uri,
            hint=f"Use --columns {','.join(probe.header)} to load the values of these names.",
        ),
    )


def options_of(sample: ObjectSample, options: DialectOptions) -> DialectOptions:
    """Return the dialect options of an object: the user's, and the delimiter of a first line such as sep=;."""
    return options if sample.separator is None else replace(options, delimiter=sample.separator)


def _naming_notices(probe: ProbeResult, job: TargetJob, edge: Edge | None, *, uri: str) -> tuple[Notice, ...]:
    names = name_fields(probe.header, edge)
    notice = None if job.columns is not None else naming_notice(names, probe.field_count, job.dialect, uri=uri)
    return () if notice is None else (notice,)


def _created_table(name: TableName, columns: Sequence[str], types: Sequence[str] | None = None) -> TableFacts:
    """Return the facts of a table that --create will make, or of a transform's staging table."""
    typed = zip(columns, types or ["text"] * len(columns), strict=True)
    return TableFacts(
        oid=0,
        name=name,
        kind="r",
        columns=tuple(
            Column(
                name=column,
                type_name=type_name,
                number=number,
                type_oid=TYPE_OIDS.get(type_name, 0),
                is_json=type_name == "jsonb",
            )
            for number, (column, type_name) in enumerate(typed, 1)
        ),
    )


def table_after_creation(target: TargetPlan) -> TableFacts:
    """Return the facts of the table that the files fill, as it will be when rows are sent."""
    if target.text_columns is not None:
        return _created_table(target.table, target.text_columns)
    if target.facts is not None:
        return target.facts
    return _created_table(target.table, target.create_columns or (), target.create_types)


def _table_notices(table: TableFacts, gathered: TargetInput) -> list[Notice]:
    notices = table_notices(table)
    # The sample was taken from the first object that has text. So if the sample is empty, all objects are empty.
    if gathered.sample.is_empty:
        notices.append(Notice(code="empty", message="every source is empty", uri=gathered.objects[0].uri))
    return notices


def _refuse_double_creation(targets: Sequence[TargetPlan]) -> None:
    """Raise UsageError if two targets would create the same table with different columns."""
    created: dict[TableName, tuple[object, ...]] = {}
    for target in targets:
        if target.create_columns is None:
            continue
        columns = (target.create_columns, target.create_types, target.created_key)
        if created.setdefault(target.table, columns) != columns:
            raise UsageError(f'table "{target.table}" would be created twice with different columns')
