"""Gathers what a plan is made from: the objects, a sample of each target's first, the table and the server."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.errors import SourceError
from penstock.loading.plan.plan import TargetInput
from penstock.model.source.dialect import Notice
from penstock.server.table.catalog import check_loadable, find_foreign_partitions, survey

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.files import SourceReader
    from penstock.model.load.job import LoadJob, TargetJob
    from penstock.model.load.plan import ObjectSample
    from penstock.model.server.server import ServerFacts
    from penstock.model.server.table import TableFacts
    from penstock.model.source.dialect import DialectOptions
    from penstock.model.source.source import SourceObject
    from penstock.server.connect.connection import Connection


def gather_inputs(
    job: LoadJob, *, sources: SourceReader, connection: Connection, on_notice: Callable[[Notice], None]
) -> tuple[ServerFacts, LoadJob, tuple[TargetInput, ...]]:
    """Return the server's facts, and the objects, sample and table facts of each target of the job that is returned.

    That job lacks targets whose folders are empty, and those to be created of empty files, of which `on_notice` hears.
    Reads a few hundred KiB of one object a target, and those before it that hold nothing. Raises SourceError,
    TargetError, ServerError.
    """
    server, tables = survey(connection, [target.into for target in job.targets])
    gathered = [
        _gather_target(target, facts, sources=sources, connection=connection, server=server, on_notice=on_notice)
        for target, facts in zip(job.targets, tables, strict=True)
    ]
    inputs = tuple(each for each in gathered if each is not None)
    _refuse_shared_input(inputs)
    return server, replace(job, targets=tuple(each.job for each in inputs)), inputs


def _gather_target(
    target: TargetJob,
    facts: TableFacts | None,
    *,
    sources: SourceReader,
    connection: Connection,
    server: ServerFacts,
    on_notice: Callable[[Notice], None],
) -> TargetInput | None:
    notices: list[Notice] = []
    objects = sources.list(target.sources, on_notice=notices.append)
    if not objects:
        for notice in notices:
            on_notice(notice)
        return None
    if facts is not None:
        check_loadable(
            facts,
            user=server.user,
            is_in_recovery=server.is_in_recovery,
            foreign_partitions=find_foreign_partitions(connection, facts),
        )
    sample = _sample_first(objects, target.dialect, sources)
    if facts is None and target.create and not sample.head:
        message = f'every source is empty: table "{target.into}" is not created'
        for notice in (*notices, Notice(code="empty", message=message, uri=sample.source.uri)):
            on_notice(notice)
        return None
    return TargetInput(job=target, objects=objects, sample=sample, facts=facts, notices=tuple(notices))


def _sample_first(objects: tuple[SourceObject, ...], options: DialectOptions, sources: SourceReader) -> ObjectSample:
    """Return the sample of the first object that has text: a compressed one may have none though it has a size."""
    for source in objects:
        if source.size_bytes != 0 and (sample := sources.sample(source, options)).head:
            return sample
    return sources.sample(objects[0], options)


def _refuse_shared_input(inputs: tuple[TargetInput, ...]) -> None:
    """Standard input can be read once."""
    streams: list[SourceObject] = [
        source for gathered in inputs for source in gathered.objects if source.location == "-"
    ]
    if len(streams) > 1:
        raise SourceError("standard input can be the source of one target only")
