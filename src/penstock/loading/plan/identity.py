"""The identity of a load: what must be the same for a load to be resumed. Pure.

The number of sessions, the sizes of blocks and batches, and the objects' versions are not part of it. Choices that take
effect only when the load ends are not part of it either: which of several records with the same key is kept, and the
text of a transform. Whether a transform exists is a part of it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from penstock import __version__
from penstock.core.recorded import UnknownPart, make_recorded, reading_record, to_json
from penstock.core.values.dialect import DialectOptions
from penstock.core.values.job import LoadJob, LoadRules, TargetJob
from penstock.loading.values.plan import LoadPlan, TargetPlan

# The key in a job's JSON for the version of penstock that wrote it.
_WRITER = "penstock"

# The number of the format in which the ledger has jobs. Raise it if the form of the JSON or the meaning of a known
# option changes. A new option does not raise it, because a version that does not know the option refuses it by name.
JOB_FORMAT = 1

# The values of rules in jobs that were recorded before the rules existed. A rule is listed only if its default would
# change how such a job is loaded.
_RULES_BEFORE = {"freeze": "never"}

# The settings of a session that a meaning leaves out while they have these values. With these, the identity of loads
# that began before penstock recorded them does not change.
_DEFAULT_SETTINGS = {"IntervalStyle": "postgres"}

# The former options of a target that this version does not have, with the values that mean what it does. With another
# value, the option is unknown.
_DROPPED = {"sync_delete": "delete"}


def describe_meaning(
    plan: LoadPlan,
    *,
    oids: Sequence[int],
    sources: Sequence[Sequence[str]],
    settings: Mapping[str, str],
    new_schema: str | None,
) -> str:
    """Return a load's meaning as JSON: all that decides which rows the load stores. Equal loads have equal meanings.

    `oids` are the OIDs of the targets' tables, in the order of the targets. An OID of 0 stands for a table whose OID
    and columns are left out, so that the result does not depend on the database. `sources` are the names of each
    target's sources, independent of the current directory. `settings` are the values of the session's settings that
    decide how a text becomes a value. `new_schema` is the schema in which the load creates tables whose names have
    none. It is part of the meaning because these tables exist when the load is resumed.
    """
    targets = [
        _describe_target(target, oid=oid, sources=names, new_schema=new_schema)
        for target, oid, names in zip(plan.targets, oids, sources, strict=True)
    ]
    rules = plan.job.rules
    named = {name: value for name, value in settings.items() if _DEFAULT_SETTINGS.get(name) != value}
    return to_json({"targets": targets, "settings": named, "again": rules.again, "atomic": rules.atomic})


def digest(meaning: str) -> str:
    """Return the identity of a load: the SHA-256 of its meaning, in hexadecimal. Equal loads have equal identities."""
    return hashlib.sha256(meaning.encode()).hexdigest()


def describe_changes(before: str, now: str) -> list[str]:
    """Return sentences that describe the differences between two meanings (see `describe_meaning`) of one load.

    >>> one = '{"targets": [], "settings": {"TimeZone": "UTC"}}'
    >>> describe_changes(one, one.replace("UTC", "Europe/Rome"))
    ['TimeZone was "UTC" and is "Europe/Rome".']
    """
    old, new = json.loads(before), json.loads(now)
    changes = find_other_settings(old["settings"], new["settings"])
    for was, target in zip(old["targets"], new["targets"], strict=False):
        table = target["table"] if target["schema"] is None else f"{target['schema']}.{target['table']}"
        if was.get("oid") != target["oid"]:
            changes.append(f'Table "{table}" is not the one that the load began with.')
        if was.get("numbers") != target["numbers"]:
            changes.append(
                f'Columns of table "{table}" were added, dropped or renamed; or a file with other columns has come: '
                "move it away until the load is complete."
            )
        others = [name for name in {**target, **was} if was.get(name) != target.get(name)]
        others = [name for name in others if name not in ("oid", "numbers")]
        if others:
            changes.append(f'Of table "{table}" other: {", ".join(others)}.')
    return changes


def find_other_settings(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return a sentence for each setting of a session that now has another value than the meaning of a load says."""
    was = {**_DEFAULT_SETTINGS, **before}
    return [
        f'{name} was "{was.get(name)}" and is "{value}".'
        for name, value in {**_DEFAULT_SETTINGS, **now}.items()
        if was.get(name) != value
    ]


def loaded_columns(meaning: str, number: int) -> tuple[str, ...]:
    """Return the columns that the files of target `number` fill, according to a load's meaning.

    The result is empty if the meaning does not name them.

    >>> loaded_columns('{"targets": [{"numbers": {"a": 1, "b": 2}}]}', 0)
    ('a', 'b')
    """
    targets = json.loads(meaning).get("targets", ())
    return tuple(targets[number].get("numbers") or ()) if number < len(targets) else ()


def _describe_target(target: TargetPlan, *, oid: int, sources: Sequence[str], new_schema: str | None) -> dict[str, Any]:
    return {
        "oid": oid,
        "numbers": _number_columns(target) if oid else None,
        "schema": target.table.schema or new_schema,
        "table": target.table.name,
        "mode": target.job.mode,
        "key": target.job.key,
        "landing": target.landing.where,
        "transform": target.job.transform is not None,
        "sources": list(sources),
        "dialect": asdict(target.dialect),
        "columns": target.job.columns,
        "set": dict(target.job.set),
        "skip": target.job.skip,
        **_describe_given(target.job.dialect),
        **({"partition": [str(target.job.partition_of), target.job.for_values]} if target.job.partition_of else {}),
        **({"only": sorted(target.job.only)} if target.job.only else {}),
    }


def _describe_given(options: DialectOptions) -> dict[str, Any]:
    """Return the options for names and notations that are not at their defaults.

    Options at their defaults are skipped, so that the identity of loads without these options does not change.
    """
    default = DialectOptions()
    names = ("names", "rename", "decimal_comma", "thousands", "date_order")
    return {name: getattr(options, name) for name in names if getattr(options, name) != getattr(default, name)}


def _number_columns(target: TargetPlan) -> dict[str, int | None]:
    """Return the attribute number of each column, because a renamed column keeps its number."""
    numbers = {name: number for number, name in enumerate(target.create_columns or (), 1)}
    if target.facts is not None:
        numbers = {column.name: column.number for column in target.facts.columns}
    return {name: numbers.get(name) for name in target.column_map.columns}


def job_to_json(job: LoadJob) -> str:
    """Return a job as JSON for `job_from_json`: its options by name, the number of its format, penstock's version."""
    return to_json({_WRITER: __version__, "format": JOB_FORMAT, **asdict(job)})


def job_from_json(text: str, *, load_id: str | None = None) -> LoadJob:
    """Return the job that `job_to_json` wrote. Errors name the load `load_id`.

    An option that the JSON lacks gets the value with which this version loads as the writing version did. Jobs of the
    first versions have no number of their format. Raises TargetError if another version of penstock wrote the job and
    this version does not know all of its parts.
    """
    fields = json.loads(text)
    writer = fields.pop(_WRITER, None) if isinstance(fields, dict) else None
    with reading_record("the job" if load_id is None else f"the job of load {load_id}", writer=writer):
        if (number := fields.pop("format", JOB_FORMAT)) != JOB_FORMAT:
            raise UnknownPart(f"format {number} is unknown")
        targets = tuple(_read_target(target) for target in fields["targets"])
        rules = make_recorded(LoadRules, _RULES_BEFORE | fields["rules"])
        return make_recorded(LoadJob, fields | {"targets": targets, "rules": rules})


def _read_target(fields: dict[str, Any]) -> TargetJob:
    kept = {name: value for name, value in fields.items() if name not in _DROPPED or value != _DROPPED[name]}
    return make_recorded(TargetJob, kept | {"dialect": make_recorded(DialectOptions, fields["dialect"])})
