"""Verifies a complete load: reads the ledger, lists the sources, counts rows, and has values compared.

It changes nothing. Needs SELECT on the tables, and to compare values TEMPORARY on the database.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from psycopg import sql

from penstock.core.aws.credentials import AwsCredentials
from penstock.core.catalogue.facts import read_server_facts
from penstock.core.connect.errors import in_transaction, translate_errors
from penstock.core.errors import TargetError
from penstock.core.files.listing import lasting_name, lasting_version, recorded_name
from penstock.core.files.streams import SourceReader
from penstock.core.recorded import to_json
from penstock.core.sql import fetch_one, fetch_rows
from penstock.ledger.ledger import Ledger
from penstock.ledger.listing import list_objects, no_such_load
from penstock.ledger.rejects import RejectStore
from penstock.ledger.rights import read_rights
from penstock.ledger.schema import has_ledger
from penstock.loading.context import LoadTools
from penstock.loading.plan.identity import describe_changes, describe_meaning, job_from_json
from penstock.loading.plan_load import World, plan_load
from penstock.proof.compare import SEES_ALL, TableComparison, rows_of
from penstock.proof.decide import (
    check_objects,
    check_records,
    check_rows,
    find_obstacles,
    find_targets,
    find_work,
    is_alone,
    refuse_gone,
    refuse_values,
)
from penstock.proof.values import Problem, VerifiedTable, VerifyOutcome

if TYPE_CHECKING:
    from penstock.core.connect.connection import Connection, ConnectionFactory
    from penstock.core.values.job import LoadJob
    from penstock.ledger.rejects import RejectingLoad
    from penstock.ledger.values import ObjectRecord
    from penstock.loading.values.outcome import LoadProgress
    from penstock.loading.values.plan import LoadPlan


def verify_load(
    connect: ConnectionFactory,
    load_id: str,
    *,
    ledger_schema: str,
    values: bool = False,
    on_progress: Callable[[LoadProgress], None] | None = None,
) -> VerifyOutcome:
    """Verify a complete load: its counts, and with `values` each value that it has stored. Raises PenstockError.

    Values are not compared if something is wrong with the objects or their records in the ledger.
    """
    with connect.borrow() as connection:
        load, is_own_login = _read_load(connection, ledger_schema, load_id)
        job = job_from_json(load.job or "", load_id=load_id)
        with translate_errors("reading what the load has stored"):
            tables = fetch_rows(connection, "ledger/proof_tables", VerifiedTable, ledger=ledger_schema, load=load_id)
        objects = list_objects(connection, ledger_schema, load_id)
        refuse_gone(load_id, tables)
        tables = [_count(connection, job, each) for each in tables]
        server = replace(read_server_facts(connection), is_embedded=connect.is_embedded)
    with SourceReader(credentials=AwsCredentials(), is_for_others=not is_own_login) as sources:
        listed = [each for target in job.targets for each in sources.list(target.sources)]
        problems = [*check_objects(objects, {recorded_name(each): lasting_version(each) for each in listed})]
        is_compared = values and not problems
        problems += [problem for each in tables for problem in check_rows(each)]
        if is_compared:
            tools = LoadTools(
                connect=connect,
                sources=sources,
                server_major=server.major,
                on_progress=on_progress,
                ledger=Ledger(ledger_schema),
                max_record_bytes=job.rules.max_record,
                rejects_torn=job.rules.on_error == "reject",
                sends_text=True,
            )
            tables, found = _compare_all(load_id, load.meaning, job, tools, objects=objects, tables=tables)
            problems += found
    return VerifyOutcome(
        load_id=load_id,
        server=server.name,
        database=server.database,
        tables=tuple(tables),
        problems=tuple(problems),
    )


def _read_load(connection: Connection, schema: str, load_id: str) -> tuple[RejectingLoad, bool]:
    """Return a complete load that has a job, and whether this login began it. Raises TargetError, ServerError."""
    has_ledger(connection, schema)
    rights, load = read_rights(connection, schema, load_id), RejectStore(schema, load_id).read_load(connection)
    if rights is None or load is None:
        raise no_such_load(load_id)
    if load.state != "complete":
        raise TargetError(f"load {load_id} has not ended", hint=f"Finish it first: penstock resume {load_id}.")
    if load.job is None:
        raise TargetError(
            f"load {load_id} cannot be verified: the ledger does not have its sources",
            detail="They were pipes, or penstock loads prune has removed them.",
        )
    rights.refuse_others_job("verify", job_from_json(load.job, load_id=load_id))
    return load, rights.is_own_login


def _count(connection: Connection, job: LoadJob, table: VerifiedTable) -> VerifiedTable:
    """Return a table with the number of its rows, unless a transform has filled it. Raises ServerError."""
    if any(target.transform is not None for target in find_targets(job, table)):
        return table
    with in_transaction(connection, f"counting the rows of {table.table}"):
        connection.execute(SEES_ALL)
        (rows,) = fetch_one(connection, sql.SQL("SELECT pg_catalog.count(*) FROM {}").format(rows_of(table)))
    return replace(table, rows=rows, is_alone=is_alone(job, table))


# ---------------------------------------------------------------- values


def _compare_all(
    load_id: str,
    meaning: str,
    job: LoadJob,
    tools: LoadTools,
    *,
    objects: Sequence[ObjectRecord],
    tables: Sequence[VerifiedTable],
) -> tuple[list[VerifiedTable], list[Problem]]:
    """Compare the values of each table, and return the tables with the results, and the first differences."""
    tools.connect.refuse_unwritable("compare values")
    tools.sources.max_record_bytes = job.rules.max_record
    schema, began_s = tools.ledger.schema, tools.clock()
    plan = plan_load(_as_read_again(job), World(connect=tools.connect, sources=tools.sources, ledger_schema=schema))
    refuse_values(load_id, _find_changes(meaning, plan, tools))
    work = [(table, find_work(plan, table, objects)) for table in tables]
    store = RejectStore(schema, load_id)
    with tools.connect.borrow() as connection:
        rejected = {each.number: store.read_starts(connection, each.number) for each in objects if each.rejected}
    refuse_values(load_id, find_obstacles(plan, work, objects, rejected))
    compared: list[VerifiedTable] = []
    problems: list[Problem] = []
    for table, found in work:
        with tools.connect.connect(label="verify") as connection:
            comparison = TableComparison(connection, tools, table, found, rejected=rejected, began_s=began_s)
            result, wrong = comparison.run()
        own = [each for each in objects if each.number in table.objects]
        compared.append(result)
        problems += [*check_records(own, comparison.records), *wrong]
    return compared, problems


def _as_read_again(job: LoadJob) -> LoadJob:
    """Return a job whose plan reads all objects, changes no table, and asks nobody but the server."""
    rules = replace(job.rules, again=True, join=False, via="client", indexes="keep", freeze="never")
    targets = tuple(replace(each, types="text", add_columns=False) for each in job.targets)
    return replace(job, rules=rules, targets=targets)


def _find_changes(meaning: str, plan: LoadPlan, tools: LoadTools) -> list[str]:
    """Return what would now be read in another way than the load has read it."""
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
    for was, target in zip(before, now["targets"], strict=True):
        if target["landing"] == "replacement":
            # The columns of the table that has taken the old one's place have other numbers.
            target["numbers"] = was["numbers"]
    return describe_changes(meaning, to_json(now))
