"""Gathers the inputs of a plan: the objects, a sample of each target's first object, the tables and the server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

from penstock.core.catalogue.catalog import check_loadable, find_foreign_partitions, survey
from penstock.core.catalogue.tables import is_empty
from penstock.core.checks import check_server
from penstock.core.connect.connection import Connection
from penstock.core.errors import SourceError, TargetError
from penstock.core.slotted import slotted
from penstock.core.values.accounts import UnreadableObject, describe_error
from penstock.core.values.diagnosis import refuse
from penstock.core.values.dialect import DialectOptions
from penstock.core.values.job import LoadJob, TargetJob
from penstock.core.values.notice import Notice
from penstock.core.values.server import ServerFacts
from penstock.core.values.source import ObjectSample, SourceObject
from penstock.core.values.table import TableFacts, TableName
from penstock.ledger.lookup import look_up
from penstock.ledger.values import KnownObject, LedgerObject
from penstock.loading.files.listing import recorded_name
from penstock.loading.files.streams import SourceReader
from penstock.loading.formats import find_format
from penstock.loading.plan.modes import explain_emptying
from penstock.loading.plan.partitions import describe_partition, find_parents
from penstock.loading.plan.target import TargetInput
from penstock.loading.values.objects import ledger_object

_INSUFFICIENT_PRIVILEGE = "42501"


@slotted
class Inputs:
    """What was gathered for a plan: facts of the server, and each target's objects, sample, and facts of its table."""

    server: ServerFacts
    # The job without targets that have no objects, without tables to create whose files are all empty, and without
    # targets of which no object can be read.
    job: LoadJob
    targets: tuple[TargetInput, ...]
    # The sources that cannot be listed, and the first object of each target of which no object can be read.
    unreadable: tuple[UnreadableObject, ...]

    @property
    def oids(self) -> list[int]:
        """Return the OIDs of the targets' tables, without those that do not exist yet."""
        return [each.facts.oid for each in self.targets if each.facts is not None]


def gather_inputs(
    job: LoadJob,
    *,
    sources: SourceReader,
    connection: Connection,
    on_notice: Callable[[Notice], None],
    ledger_schema: str | None = None,
    is_embedded: bool = False,
    stores: bool = True,
    refuse_changed: Callable[..., None] | None = None,
) -> Inputs:
    """Return the server's facts, the job, and the objects, sample and table facts of each of its targets.

    For each target, a few hundred KiB of one object are read as the sample: of the first object with text that is not
    loaded according to the ledger in schema `ledger_schema` (None if no ledger exists). `on_notice` is called with a
    warning for each target without objects or with empty files only. Unless `stores` is false, an error is raised if
    the server or a table cannot be loaded into. `refuse_changed` (claim/decide.py) is called with a target's files and
    the ledger's records of them before one is read, and raises an error for files that have changed. Raises
    TargetError, ServerError, and SourceError if no target has an object that can be read.
    """
    targets, parents = find_parents(job.targets, connection)
    server, tables = survey(connection, [target.into for target in targets])
    for finding in check_server(server) if stores else ():
        refuse(finding)
    failed: list[tuple[UnreadableObject, SourceError]] = []
    gathered = [
        _gather_target(
            target,
            facts if parent is None else describe_partition(target, facts, parent, connection),
            sources=sources,
            connection=connection,
            server=server,
            on_notice=on_notice,
            ledger_schema=None if job.rules.again else ledger_schema,
            loads_changed=job.rules.changed == "load",
            refuse_changed=refuse_changed,
            stores=stores,
            failed=failed,
        )
        for target, facts in zip(targets, tables, strict=True)
        for parent in (None if target.partition_of is None else parents[target.partition_of],)
    ]
    inputs = tuple(each for each in gathered if each is not None)
    if failed and not inputs:
        raise failed[0][1]
    _refuse_shared_input(inputs)
    return Inputs(
        server=replace(server, is_embedded=is_embedded),
        job=replace(job, targets=tuple(each.job for each in inputs)),
        targets=inputs,
        unreadable=tuple(item for item, _ in failed),
    )


def _gather_target(
    target: TargetJob,
    facts: TableFacts | None,
    *,
    sources: SourceReader,
    connection: Connection,
    server: ServerFacts,
    on_notice: Callable[[Notice], None],
    ledger_schema: str | None,
    loads_changed: bool,
    refuse_changed: Callable[..., None] | None,
    stores: bool,
    failed: list[tuple[UnreadableObject, SourceError]],
) -> TargetInput | None:
    def note_failed(uri: str, error: SourceError) -> None:
        failed.append((UnreadableObject(uri=uri, table=str(target.into), reason=describe_error(error)), error))

    notices: list[Notice] = []
    objects = sources.list(target.sources, on_notice=notices.append, on_failed=note_failed)
    if not objects:
        for notice in notices:
            on_notice(notice)
        if not failed and _loses_rows(target, facts, connection):
            raise explain_emptying(target, detail="Its sources have no file to load.", hint=None)
        return None
    if facts is not None and stores:
        check_loadable(facts, user=server.user, foreign_partitions=find_foreign_partitions(connection, facts))
    unknown, may_be_loaded = objects, False
    if facts is not None and ledger_schema is not None and not _is_loaded_each_time(target):
        found = _find_unknown(target, objects, facts, connection, ledger_schema, refuse_changed, newer=loads_changed)
        # If there is only one object, it is the sample. Whether it is loaded is decided when the load begins.
        is_only_sample = len(objects) == 1 and not _depends_on_files(target)
        unknown = objects if is_only_sample else found
        may_be_loaded = not unknown or (is_only_sample and not objects[0].is_pipe)
    try:
        sample = _sample_first(unknown or objects, objects, target.dialect, sources)
    except SourceError as error:
        if not sources.skips_unreadable or not error.is_unreadable:
            raise
        file = None if error.location is None else error.location.file
        note_failed(recorded_name(next((each for each in objects if each.uri == file), objects[0])), error)
        return None
    if facts is None and target.create and sample.is_empty:
        message = f'every source is empty: table "{target.into}" is not created'
        for notice in (*notices, Notice(code="empty", message=message, uri=sample.source.uri)):
            on_notice(notice)
        return None
    notices += find_format(sample, target.dialect).find_notices(sample, target, facts, sources)
    lines = _count_lines(sample, objects, target, sources) if _loses_rows(target, facts, connection) else None
    return TargetInput(
        job=target,
        objects=objects,
        sample=sample,
        facts=facts,
        notices=tuple(notices),
        may_be_loaded=may_be_loaded,
        unloaded=unknown,
        lines_before_emptying=lines,
    )


def _depends_on_files(target: TargetJob) -> bool:
    """Return whether columns, or their types, are found in all files that are loaded."""
    return target.types != "text" or target.add_columns


def _is_loaded_each_time(target: TargetJob) -> bool:
    """Return whether all files are loaded each time: into a table that is emptied or replaced, and for a sync."""
    return target.landing.is_fresh or target.landing.deletes


def _loses_rows(target: TargetJob, facts: TableFacts | None, connection: Connection) -> bool:
    """Return whether a load removes rows that its table has."""
    if facts is None or target.partition_of is not None:
        return False
    return target.landing.is_fresh and not is_empty(connection, facts.oid)


def _count_lines(
    sample: ObjectSample, objects: Sequence[SourceObject], target: TargetJob, sources: SourceReader
) -> int | None:
    """Return 0 if all objects are empty, 1 if none has more than one line (a header).

    None if an object has more lines.
    """
    most = 0
    others = (source for source in objects if source != sample.source and source.size_bytes != 0)
    found = (sources.try_to(partial(sources.sample, source, target.dialect)) for source in others)
    for each in chain((sample,), (other for other in found if other is not None)):
        lines = find_format(each, target.dialect).count_lines(each)
        if lines > 1:
            return None
        most = max(most, lines)
    return most


def _find_unknown(
    target: TargetJob,
    objects: tuple[SourceObject, ...],
    facts: TableFacts,
    connection: Connection,
    ledger_schema: str,
    refuse_changed: Callable[..., None] | None,
    *,
    newer: bool,
) -> tuple[SourceObject, ...]:
    """Return the objects that no complete load has loaded with their present size.

    `newer` says whether newer versions are loaded. Objects that are looked at for columns or types are then compared by
    their version. Returns all objects if the role may not read the ledger. Raises TargetError.
    """
    by_version = newer and _depends_on_files(target)
    items = [
        ledger_object(source, number=number, target_oid=facts.oid, target=facts.name)
        for number, source in enumerate(objects)
    ]
    try:
        known = look_up(connection, ledger_schema, "", items, lock="").known
    except TargetError as error:
        if error.sqlstate != _INSUFFICIENT_PRIVILEGE:
            raise
        # A role that may not read the ledger cannot load, and the load reports that later.
        return objects
    if refuse_changed is not None:
        files = [item for source, item in zip(objects, items, strict=True) if not source.is_pipe]
        refuse_changed(files, known, is_updating=target.landing.updates)

    def identify(each: LedgerObject | KnownObject) -> tuple[str, str | int | None]:
        return each.uri, (each.version if by_version else None) or each.size_bytes

    loaded = {identify(each) for each in known if each.state == "complete"}
    return tuple(
        source for source, item in zip(objects, items, strict=True) if source.is_pipe or identify(item) not in loaded
    )


def collect_objects(inputs: tuple[TargetInput, ...]) -> tuple[dict[int, TableName], list[LedgerObject]]:
    """Return the names of the targets' existing tables, by OID, and their objects as the ledger records them.

    Pipes are not returned. An object's number counts within its target.
    """
    found = [(each, each.facts) for each in inputs if each.facts is not None]
    items = [
        ledger_object(source, number=number, target_oid=facts.oid, target=facts.name)
        for each, facts in found
        for number, source in enumerate(each.objects)
        if not source.is_pipe
    ]
    return {facts.oid: facts.name for _, facts in found}, items


def _sample_first(
    unknown: tuple[SourceObject, ...],
    objects: tuple[SourceObject, ...],
    options: DialectOptions,
    sources: SourceReader,
) -> ObjectSample:
    """Return the sample of the first object with text among `unknown`. If none can be read, take it from `objects`.

    A compressed object may be empty although it has a size.
    """
    seen: list[ObjectSample] = []
    for source in unknown:
        sample = None if source.size_bytes == 0 else sources.try_to(partial(sources.sample, source, options))
        if sample is not None:
            if not sample.is_empty:
                return sample
            seen.append(sample)
    loaded = tuple(source for source in objects if source not in unknown)
    if not seen and loaded and any(source.size_bytes != 0 for source in unknown):
        return _sample_first(loaded, (), options, sources)
    return seen[0] if seen else sources.sample(unknown[0], options)


def _refuse_shared_input(inputs: tuple[TargetInput, ...]) -> None:
    """Raise SourceError if two targets read standard input, which can be read only once."""
    streams: list[SourceObject] = [
        source for gathered in inputs for source in gathered.objects if source.location == "-"
    ]
    if len(streams) > 1:
        raise SourceError("standard input can be the source of one target only")
