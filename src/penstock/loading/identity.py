"""Which load this is: what must be the same for a load to be gone on with. Pure.

Numbers of sessions, sizes of blocks and batches are not part of it, and neither are the objects' versions, nor what is
only asked for at the end: which of several records with the same key counts, and a transform's text.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from penstock.model.dialect import DialectOptions
from penstock.model.job import LoadJob, LoadRules, TargetJob, Transform
from penstock.model.jsontext import to_json
from penstock.model.table import TableName

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.model.plan import LoadPlan, TargetPlan


def describe_meaning(
    plan: LoadPlan, *, oids: Sequence[int], sources: Sequence[Sequence[str]], settings: Mapping[str, str]
) -> str:
    """Return what decides which rows a load stores, as JSON: equal for equal loads.

    `oids` are the targets', `sources` what each one's sources are called wherever the load is started from; `settings`
    are those of the session that decide what a text means.
    """
    targets = [
        _describe_target(target, oid=oid, sources=names)
        for target, oid, names in zip(plan.targets, oids, sources, strict=True)
    ]
    rules = plan.job.rules
    return to_json({"targets": targets, "settings": dict(settings), "again": rules.is_again, "atomic": rules.is_atomic})


def digest(meaning: str) -> str:
    """Return a load's identity: the SHA-256 of what it means, in hexadecimal."""
    return hashlib.sha256(meaning.encode()).hexdigest()


def describe_changes(before: str, now: str) -> list[str]:
    """Return what differs between two meanings, a sentence each.

    >>> one = '{"targets": [], "settings": {"TimeZone": "UTC"}}'
    >>> describe_changes(one, one.replace("UTC", "Europe/Rome"))
    ['TimeZone was "UTC" and is "Europe/Rome".']
    """
    old, new = json.loads(before), json.loads(now)
    changes = [
        f'{name} was "{old["settings"].get(name)}" and is "{value}".'
        for name, value in new["settings"].items()
        if old["settings"].get(name) != value
    ]
    for was, target in zip(old["targets"], new["targets"], strict=False):
        table = target["table"] if target["schema"] is None else f"{target['schema']}.{target['table']}"
        if was.get("oid") != target["oid"]:
            changes.append(f'Table "{table}" is not the one that the load began with.')
        others = [name for name in target if name != "oid" and was.get(name) != target[name]]
        if others:
            changes.append(f'Of table "{table}" other: {", ".join(others)}.')
    return changes


def _describe_target(target: TargetPlan, *, oid: int, sources: Sequence[str]) -> dict[str, Any]:
    return {
        "oid": oid,
        "schema": target.table.schema,
        "table": target.table.name,
        "mode": target.job.mode,
        "key": target.job.key,
        "landing": target.landing,
        "transform": target.job.transform is not None,
        "sources": list(sources),
        "dialect": asdict(target.dialect),
        "columns": target.job.columns,
        "set": dict(target.job.constants),
        "skip": target.job.skip,
    }


def job_to_json(job: LoadJob) -> str:
    """Return a job as JSON, from which `job_from_json` makes it again."""
    return to_json(asdict(job))


def job_from_json(text: str) -> LoadJob:
    """Return the job that `job_to_json` wrote down."""
    fields = json.loads(text)
    return LoadJob(
        targets=tuple(_read_target(target) for target in fields["targets"]),
        sessions=fields["sessions"],
        rules=_read_rules(fields["rules"]),
    )


def _read_rules(fields: dict[str, Any]) -> LoadRules:
    # What earlier versions had by default: autovacuum paused once it was seen, and VACUUM within a budget.
    former = {"autovacuum": "auto", "vacuums": None}
    return LoadRules(**{name: value for name, value in fields.items() if name not in former or value != former[name]})


def _read_target(fields: dict[str, Any]) -> TargetJob:
    dialect = fields["dialect"]
    nulls = dialect["nulls"]
    return TargetJob(
        sources=tuple(fields["sources"]),
        table=TableName(**fields["table"]),
        dialect=DialectOptions(**(dialect | {"nulls": None if nulls is None else tuple(nulls)})),
        columns=None if fields["columns"] is None else tuple(fields["columns"]),
        constants=fields["constants"],
        skip=tuple(fields["skip"]),
        create=fields["create"],
        mode=fields["mode"],
        key=tuple(fields["key"]),
        keep=fields["keep"],
        transform=None if fields["transform"] is None else Transform(**fields["transform"]),
    )
