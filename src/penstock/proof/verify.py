"""Verifies a complete load: reads the ledger, lists the sources, counts rows, and has values compared.

It changes nothing. Needs SELECT on the tables and on the ledger's, and to compare values TEMPORARY on the database.
"""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import cache, partial
from itertools import groupby
from operator import attrgetter
from typing import Any

from psycopg import sql

from penstock.core.aws.credentials import AwsCredentials
from penstock.core.catalogue.catalog import read_facts
from penstock.core.connect.connection import Connection, ConnectionFactory
from penstock.core.connect.errors import translate_errors
from penstock.core.connect.search_path import users_settings
from penstock.core.errors import DataError, SourceError, TargetError, UsageError
from penstock.core.recorded import to_json
from penstock.core.sql import fetch_one, fetch_rows
from penstock.core.values.job import LoadJob
from penstock.core.values.notice import Notice
from penstock.core.values.source import SourceObject, is_hidden
from penstock.ledger.ledger import Ledger
from penstock.ledger.listing import list_objects, no_such_load
from penstock.ledger.rejects import RejectingLoad, RejectStore
from penstock.ledger.rights import read_rights
from penstock.ledger.schema import has_ledger
from penstock.ledger.values import ObjectRecord
from penstock.loading.claim.facts import is_unchanged
from penstock.loading.context import LoadTools
from penstock.loading.files.listing import is_remote, lasting_name, local_path, recorded_name
from penstock.loading.files.streams import SourceReader
from penstock.loading.formats import FORMATS, format_of
from penstock.loading.plan.identity import describe_changes, describe_meaning, job_from_json
from penstock.loading.plan_load import PlanTools, read_again
from penstock.loading.values.objects import PlannedObject
from penstock.loading.values.outcome import LoadProgress
from penstock.loading.values.plan import LoadPlan
from penstock.proof.compare import TableComparison, rows_of, seeing_all_rows
from penstock.proof.decide import (
    check_counts,
    check_objects,
    check_records,
    count_corrected,
    describe_touched,
    find_obstacles,
    find_renamed,
    find_targets,
    find_touched,
    find_without_binary,
    find_work,
    is_alone,
    refuse_gone,
    refuse_hidden,
    refuse_temporary,
    refuse_values,
    with_positions,
)
from penstock.proof.later import LaterLoads
from penstock.proof.values import TypeWithoutBinary, VerifiedTable, VerifyOutcome


def verify_load(
    connect: ConnectionFactory,
    load_id: str,
    *,
    ledger_schema: str,
    values: bool = False,
    on_progress: Callable[[LoadProgress], None] | None = None,
) -> VerifyOutcome:
    """Verify the counts of a complete load, and with `values` each value that it has stored. Return what was found.

    Values are not compared if something is wrong with the files, or with their objects in the ledger. Raises
    PenstockError.
    """
    with LaterLoads(connect) as later:
        return verify_before(
            later, connect, load_id, ledger_schema=ledger_schema, values=values, on_progress=on_progress
        )


def verify_before(
    later: LaterLoads,
    connect: ConnectionFactory,
    load_id: str,
    *,
    ledger_schema: str,
    values: bool,
    on_progress: Callable[[LoadProgress], None] | None,
    only: int | None = None,
) -> VerifyOutcome:
    """Return what verifying a load has found, given what is known of later loads into its table.

    `only` is the oid of the one table to verify; None verifies all tables of the load. Adds the load to `later`. Raises
    PenstockError.
    """
    with connect.borrow() as connection:
        load, is_own_login = _read_load(connection, ledger_schema, load_id)
        job = job_from_json(load.job or "", load_id=load_id)
        with translate_errors("reading what the load has stored"):
            tables = fetch_rows(connection, "ledger/proof_tables", VerifiedTable, ledger=ledger_schema, load=load_id)
        tables = [each for each in tables if only in (None, each.oid)]
        numbers = {number for each in tables for number in each.objects}
        found = [each for each in list_objects(connection, ledger_schema, load_id) if each.number in numbers]
        renewed = later.find_renewed(found)
        later.note_objects(found)
        objects = [each for each in found if each not in renewed]
        server = read_facts(connect, connection)
        refuse_gone(load_id, tables)
        if values:
            connect.refuse_unwritable("compare values")
            refuse_temporary(server, may_create=_may_create_temporary(connection))
        left = {each.number for each in objects}
        tables = [replace(each, objects=[*filter(left.__contains__, each.objects)]) for each in tables]
        tables = [_count(connection, job, each, later.counted, role=server.user) for each in tables]
    with LoadedSources(
        {each.uri for each in objects}, is_for_others=not is_own_login, max_record_bytes=job.rules.max_record
    ) as sources:
        tools = _make_tools(connect, sources, job, server_major=server.major, ledger=Ledger(ledger_schema))
        tools = replace(tools, on_progress=on_progress)
        listed = {recorded_name(each): each for target in job.targets for each in sources.list(target.sources)}
        # A plan reads the catalogue and the beginnings of files, so it is made once, and only if something needs it.
        plan = cache(partial(read_again, job, PlanTools(connect=connect, sources=sources, ledger_schema=ledger_schema)))
        touched = _compare_touched(load_id, plan, tools, objects=find_touched(objects, listed), tables=tables)
        problems = [*check_objects(objects, listed, touched)]
        is_compared = values and not problems
        problems += check_counts(load.meaning, tables, is_all=only is None, loaded=later.loaded)
        if is_compared and objects:
            tables, wrong = _compare_all(
                load_id, load.meaning, job, plan, replace(tools, sends_text=True), later, objects, tables, renewed
            )
            problems += wrong
    return VerifyOutcome(
        load_id=load_id,
        server=server.name,
        database=server.database,
        tables=tuple(tables),
        has_values=values and not later.has_obstacle,
        renewed=tuple(each.uri for each in renewed),
        problems=tuple(problems),
    )


def _make_tools(
    connect: ConnectionFactory, sources: SourceReader, job: LoadJob, *, server_major: int, ledger: Ledger
) -> LoadTools:
    """Return the tools with which the load's sources are read as the load has read them."""
    return LoadTools(
        connect=connect,
        sources=sources,
        server_major=server_major,
        ledger=ledger,
        max_record_bytes=job.rules.max_record,
        rejects_torn=job.rules.on_error == "reject",
    )


def _read_load(connection: Connection, schema: str, load_id: str) -> tuple[RejectingLoad, bool]:
    """Return a complete load that has a job, and whether this login began it. Raises TargetError, ServerError."""
    has_ledger(connection, schema)
    rights, load = read_rights(connection, schema, load_id), RejectStore(schema, load_id).read_load(connection)
    if rights is None or load is None:
        raise no_such_load(load_id)
    if load.state != "complete":
        raise TargetError(f"load {load_id} has not ended", hint=f"Finish it first: penstock resume {load_id}.")
    job = None if load.job is None else job_from_json(load.job, load_id=load_id)
    if job is None or any(is_hidden(source) for target in job.targets for source in target.sources):
        raise TargetError(
            f"load {load_id} cannot be verified: the ledger does not have its sources",
            detail="They were pipes, or URLs with a query or password, or its details were pruned.",
        )
    rights.refuse_others_job("verify", job)
    return load, rights.is_own_login


def _may_create_temporary(connection: Connection) -> bool:
    with translate_errors("looking at the rights on the database"):
        query = "SELECT pg_catalog.has_database_privilege(pg_catalog.current_database(), 'TEMPORARY')"
        return bool(fetch_one(connection, query)[0])


def _count(
    connection: Connection,
    job: LoadJob,
    table: VerifiedTable,
    counted: dict[int, tuple[int, int | None]],
    *,
    role: str,
) -> VerifiedTable:
    """Return a table with the number of its rows, unless a transform has filled it, or if it is a view.

    Rows are counted unless `counted` has their number, and how many there must be. Loads that have stored rows since
    do not count. Raises TargetError, ServerError.
    """
    if table.kind == "v" or any(target.transform is not None for target in find_targets(job, table)):
        return table
    refuse_hidden(table, role=role)
    if table.oid not in counted:
        with seeing_all_rows(connection, table, "counting"), users_settings(connection):
            query = sql.SQL("SELECT pg_catalog.count(*) FROM {}").format(rows_of(table))
            counted[table.oid] = fetch_one(connection, query)[0], table.floor_of_all
    rows, floor = counted[table.oid]
    return replace(table, rows=rows, floor_of_all=floor, is_alone=is_alone(table))


class LoadedSources(SourceReader):
    """Reads the sources of a load, and lists only the objects that the load has loaded.

    Files that came later may have other columns, and the first listed file decides the plan. If the load has loaded no
    object of some sources, for example because earlier loads had loaded them, all objects of these sources are listed.
    Local files and folders of which it has loaded nothing need not exist.
    """

    def __init__(self, loaded: Collection[str], **options: Any) -> None:
        super().__init__(formats=FORMATS, credentials=AwsCredentials(), **options)
        self._loaded = loaded

    def list(self, sources: Sequence[str], **options: Any) -> tuple[SourceObject, ...]:
        """Return the loaded objects of the sources, in the order of `SourceReader.list`. Raises SourceError."""
        found = super().list([source for source in sources if not self._is_foreign(source)], **options)
        return tuple(each for each in found if recorded_name(each) in self._loaded) or found

    def _is_foreign(self, source: str) -> bool:
        """Return whether a local file or folder does not exist, and the load has loaded nothing of it."""
        if is_remote(source) or os.path.lexists(path := local_path(source)):
            return False
        name = os.path.realpath(path)
        return not any(uri == name or uri.startswith(f"{name}/") for uri in self._loaded) and not glob.has_magic(path)


def _compare_touched(
    load_id: str,
    plan: Callable[[], LoadPlan],
    tools: LoadTools,
    *,
    objects: Sequence[ObjectRecord],
    tables: Sequence[VerifiedTable],
) -> dict[int, str | None]:
    """Compare touched files with the checksums in the ledger. Return what is wrong with each, None if nothing."""
    found = {each.number: describe_touched(True) for each in objects if each.size_bytes == 0}
    left = [each for each in objects if each.number not in found]
    if not left:
        return found
    try:
        planned = plan()
    except (DataError, SourceError, TargetError, UsageError) as error:
        # A file whose content is new may contradict its table or the options of the load.
        return found | {each.number: describe_touched(None, error.message) for each in left}
    found |= {each.number: describe_touched(None, "the load would now fill another table") for each in left}
    for work in [each for table in tables for each in find_work(planned, table, left)]:
        try:
            with tools.connect.borrow() as connection:
                found[work.number] = describe_touched(is_unchanged(load_id, work, tools, connection))
        except (DataError, SourceError) as error:
            found[work.number] = describe_touched(None, error.message)
    return found


# ---------------------------------------------------------------- values


def _compare_all(
    load_id: str,
    meaning: str,
    job: LoadJob,
    plan: Callable[[], LoadPlan],
    tools: LoadTools,
    later: LaterLoads,
    objects: Sequence[ObjectRecord],
    tables: Sequence[VerifiedTable],
    renewed: Sequence[ObjectRecord],
) -> tuple[list[VerifiedTable], list[Notice]]:
    """Compare the values of each table, and return the tables with the results, and the first differences.

    `renewed` are the load's objects that are not compared.
    """
    began_s = tools.clock()
    refuse_values(load_id, find_renamed(tables))
    try:
        planned = plan()
    except (DataError, TargetError, UsageError) as error:
        refuse_values(load_id, filter(None, [f"Its files cannot be planned again: {error.message}.", error.detail]))
        raise
    refuse_values(load_id, _find_changes(meaning, planned, tools, is_part=bool(renewed)))
    work = [
        (table, [*map(with_positions, _map_each(find_work(planned, table, objects), tools.sources))])
        for table in tables
    ]
    store = RejectStore(tools.ledger.schema, load_id)
    with tools.connect.borrow() as connection:
        rejected = {each.number: store.read_starts(connection, each.number) for each in objects if each.rejected}
        corrected = store.read_corrected(connection)
        types = [fetch_rows(connection, "proof/without_binary", TypeWithoutBinary, oid=table.oid) for table, _ in work]
    refuse_values(load_id, find_obstacles(job, planned, work, objects, rejected))
    for (table, found), typed in zip(work, types, strict=True):
        refuse_values(load_id, find_without_binary(table, found, typed))
        refuse_values(load_id, later.find_keyless({*found[0].target.column_map.columns} if found else ()))
    left_out = {
        number: sorted({*rejected.get(number, ()), *corrected.get(number, ())}) for number in {*rejected, *corrected}
    }
    compared: list[VerifiedTable] = []
    problems: list[Notice] = []
    for table, found in work:
        with nullcontext(later) if len(work) == 1 else LaterLoads(tools.connect) as of_table:
            comparison = TableComparison(
                of_table,
                tools,
                replace(table, corrected=count_corrected(table, corrected, rejected)),
                found,
                left_out=left_out,
                began_s=began_s,
            )
            result, wrong = comparison.run()
        own = [each for each in objects if each.number in table.objects]
        compared.append(result)
        # A record that is missing may have been updated by a load whose records are not known.
        problems += [*check_records(own, comparison.records), *([] if later.has_obstacle else wrong)]
    return compared, problems


def _map_each(work: Sequence[PlannedObject], sources: SourceReader) -> list[PlannedObject]:
    """Return objects with the columns of each, which its beginning names. A merge has refused other columns."""
    mapped = {each.number: each for each in work}
    for _, of_target in groupby(work, key=attrgetter("target_index")):
        numbers = {each.source: each.number for each in of_target}
        target = mapped[next(iter(numbers.values()))].target
        form = format_of(target)
        if len(numbers) == 1 or target.header is None or target.landing.is_keyed or form.is_by_name:
            continue
        for sample in sources.sample_all([*numbers], target.job.dialect):
            header = form.find_header(sample, target)
            own = replace(
                target,
                column_map=form.map_sample(sample, target),
                header=target.header if header is None else tuple(header),
            )
            number = numbers[sample.source]
            mapped[number] = replace(mapped[number], target=own)
    return [*mapped.values()]


def _find_changes(meaning: str, plan: LoadPlan, tools: LoadTools, *, is_part: bool) -> list[str]:
    """Return what would now be read in another way than the load has read it.

    `is_part` is whether the plan lacks objects of the load, of which the first has decided the columns.
    """
    before = json.loads(meaning)["targets"]
    if len(before) != len(plan.targets):
        return ["Some of its tables have no objects any more."]
    now = json.loads(
        describe_meaning(
            plan,
            oids=[each["oid"] for each in before],
            sources=[[lasting_name(source) for source in target.job.sources] for target in plan.targets],
            settings=tools.connect.input_settings,
            new_schema=None,
        )
    )
    for was, target, plan_target in zip(before, now["targets"], plan.targets, strict=True):
        # The rights of the role decide whether records are staged, and not what is stored.
        target["landing"] = was["landing"]
        if target["dialect"]["format"] == "jsonl" and was["numbers"] and target["numbers"]:
            # A column that was added since then is one that no record names.
            target["numbers"] = {name: each for name, each in target["numbers"].items() if name in was["numbers"]}
        numbers = was["numbers"] or {}
        is_by_name = target["dialect"]["format"] == "jsonl"
        lacking = set(numbers) - set(target["numbers"] or numbers)
        names = {column.name for column in plan_target.facts.columns} if plan_target.facts is not None else set()
        if is_by_name and not is_part and lacking and lacking <= names:
            return ["The beginning of the first file does not name all columns that the load has filled."]
        if is_part and all(numbers.get(name, each) == each for name, each in (target["numbers"] or {}).items()):
            target["numbers"] = was["numbers"]
        if target["landing"] in ("replacement", "partition"):
            # The columns of the table that has taken the old one's place have other numbers.
            target["numbers"] = was["numbers"]
    return describe_changes(meaning, to_json(now))
