"""Renders a load's plan as text and as an object for --json. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from penstock.core.slotted import slotted
from penstock.core.units import count_nouns, format_bytes, format_count
from penstock.core.values.mode import RoutePlan
from penstock.core.values.names import quote_name, quote_table
from penstock.core.values.source import SourceObject
from penstock.core.words import line_up
from penstock.ledger.values import LedgerOutlook
from penstock.loading.values.plan import ForeseenLoad, LoadPlan, SessionPlan, TargetPlan, name_fields
from penstock.loading.views.outcome import describe_steps

# How many files are listed. These are enough to see whether the right files were found.
_OBJECTS_SHOWN = 20

_ACTIONS = {"new": "", "resume": "resumed", "skip": "skipped: loaded already"}


@slotted
class FieldColumn:
    """The column into which a field of the files is loaded."""

    # The field's name or number.
    field: str
    # The field's column, None if the field is skipped.
    column: str | None
    type_name: str | None


def field_uses(target: TargetPlan) -> tuple[FieldColumn, ...]:
    """Return for each field of the files the column into which it is loaded, in the file's order."""
    mapped = target.column_map
    fed = mapped.columns[: len(mapped.columns) - len(mapped.constants)]
    if mapped.names is not None:
        named = [(name, None if index is None else fed[index]) for name, index in mapped.names]
        return tuple(
            FieldColumn(field=name, column=column, type_name=_type_of(column, target))
            for name, column in named or [("(the whole record)", fed[0])]
        )
    header = name_fields(target.header, target.edge)
    names = target.job.columns or header or tuple(f"field {number}" for number in range(1, len(fed) + 1))
    keep = range(len(names)) if mapped.keep is None else mapped.keep
    column_of = dict(zip(keep, fed, strict=False))
    return tuple(
        FieldColumn(field=name, column=column_of.get(index), type_name=_type_of(column_of.get(index), target))
        for index, name in enumerate(names)
    )


def folder_columns(target: TargetPlan) -> dict[str, str]:
    """Return the columns that are filled from names of folders, each with the value for the first object."""
    mapped = target.column_map
    constants = zip(mapped.columns[len(mapped.columns) - len(mapped.constants) :], mapped.constants, strict=True)
    return {name: "null" if value is None else value for name, value in constants if name not in target.job.set}


def unfed_columns(target: TargetPlan) -> dict[str, str]:
    """Return the table's columns that get no value from the files, each with what it gets instead.

    That is one of "default", "identity", "generated" and "null".
    """
    if target.facts is None:
        return {}
    instead = {}
    for column in target.facts.columns:
        if column.name in target.column_map.columns:
            continue
        if column.is_generated:
            instead[column.name] = "generated"
        elif column.identity:
            instead[column.name] = "identity"
        else:
            instead[column.name] = "default" if column.has_default else "null"
    return instead


def describe_plan(foreseen: ForeseenLoad) -> list[str]:
    """Return the lines that `penstock load --plan` prints."""
    plan, outlook = foreseen.plan, foreseen.outlook
    server = plan.server
    heads = [
        ("server", f"{'embedded ' * server.is_embedded}PostgreSQL {server.version}, {server.address}"),
        ("sessions", describe_sessions(plan.sessions)),
        ("timeouts", "statement, transaction and idle timeouts are off for these sessions; lock_timeout stays"),
    ]
    if plan.job.rules.via != "client":
        heads.append(("route", describe_route(plan.route)))
    if outlook is not None:
        heads.append(("ledger", describe_outlook(outlook)))
    if plan.freeze.is_used:
        heads.append(("freeze", describe_freeze(plan)))
    if sum(len(target.objects) for target in plan.targets) > 1:
        heads.append(("order", "referenced tables first" if plan.is_in_job_order else "largest objects first"))
    lines = line_up(heads, align="<<")
    is_single = plan.job.rules.atomic or not plan.is_repeatable
    for target, actions in zip(plan.targets, _actions(plan, outlook), strict=True):
        lines += ["", *_describe_target(target, is_atomic=is_single)]
        lines += _describe_objects(target.objects, actions)
    if steps := describe_steps(foreseen.steps):
        lines += ["", *steps]
    if foreseen.notices:
        lines.append("")
    for notice in foreseen.notices:
        lines.append(f"warning: {notice.message}" + (f" ({notice.location.rstrip('.')})" if notice.location else ""))
        lines += [f"  HINT:  {notice.hint}"] if notice.hint else []
    return lines


def describe_outlook(outlook: LedgerOutlook) -> str:
    """Return what the load would resume and skip, according to the ledger.

    >>> from penstock.ledger.values import LedgerOutlook
    >>> describe_outlook(LedgerOutlook(exists=True, resumes=None, actions=("skip", "new", "skip")))
    'skips 2 of 3 objects, which are loaded already'
    >>> describe_outlook(LedgerOutlook(exists=True, resumes="1f", actions=("resume", "new")))
    'resumes load 1f'
    >>> describe_outlook(LedgerOutlook(exists=True, resumes="1f", actions=("resume", "left")))
    'resumes load 1f, leaves 1 of 2 objects, which are not part of it'
    >>> describe_outlook(LedgerOutlook(exists=False, resumes=None, actions=("new",)))
    'to be created'
    """
    if not outlook.exists:
        return "to be created"
    skipped, count = outlook.actions.count("skip"), len(outlook.actions)
    words = [] if outlook.resumes is None else [f"resumes load {outlook.resumes}"]
    if skipped:
        words.append(f"skips {format_count(skipped)} of {count_nouns(count, 'object')}, which are loaded already")
    if left := outlook.actions.count("left"):
        words.append(f"leaves {format_count(left)} of {count_nouns(count, 'object')}, which are not part of it")
    return ", ".join(words) or "has none of the objects"


def _actions(plan: LoadPlan, outlook: LedgerOutlook | None) -> list[Sequence[str]]:
    actions = iter(() if outlook is None else outlook.actions)
    return [[next(actions, "new") for _ in target.objects] for target in plan.targets]


def describe_sessions(sessions: SessionPlan) -> str:
    """Return a text that says how many sessions the load uses, and why."""
    count = str(sessions.initial)
    if sessions.is_adaptive:
        count += f", up to {sessions.maximum} by measured throughput"
    return f"{count} ({sessions.reason})"


def describe_freeze(plan: LoadPlan) -> str:
    """Return the text about COPY FREEZE: why it is used, what a fault repeats, and for which tables readers wait."""
    tables = ", ".join(str(target.table) for target in plan.targets if target.is_truncated_first)
    words = f"COPY FREEZE ({plan.freeze.reason}); after a fault a table begins again"
    return f"{words}; other sessions wait for {tables} until its rows are committed" if tables else words


def describe_route(route: RoutePlan) -> str:
    """Return a text that says who reads the objects, this process or the server.

    >>> from penstock.core.values.mode import RoutePlan
    >>> describe_route(RoutePlan(via="server", region="eu-west-1"))
    'server: it imports each object from S3 in a transaction of its own, region eu-west-1'
    """
    if route.is_import:
        what = "it imports each object from S3 in a transaction of its own"
        return f"server: {what}, region {route.region}"
    return "client: penstock reads the objects and sends the rows"


def plan_object(foreseen: ForeseenLoad) -> dict[str, object]:
    """Return the JSON object that `penstock load --plan --json` prints."""
    plan, outlook = foreseen.plan, foreseen.outlook
    return {
        "load_id": plan.load_id,
        "state": "planned",
        "server": asdict(plan.server) | {"name": plan.server.name},
        "sessions": plan.sessions,
        "route": plan.route,
        "freeze": plan.freeze,
        "is_in_job_order": plan.is_in_job_order,
        "size_bytes": plan.size_bytes,
        "ledger": outlook,
        "targets": [
            _target_object(target, actions)
            for target, actions in zip(plan.targets, _actions(plan, outlook), strict=True)
        ],
        "steps": {name: asdict(part) for name, part in foreseen.steps.items()},
        "warnings": foreseen.notices,
    }


def _target_object(target: TargetPlan, actions: Sequence[str]) -> dict[str, object]:
    return {
        "table": str(target.table),
        "create_columns": target.create_columns,
        "create_types": target.create_types,
        "create_key": target.created_key,
        "found_types": target.typed,
        "mode": target.job.mode,
        "key": target.job.key,
        "keep": target.job.used_keep,
        "max_delete": target.job.max_delete if target.landing.deletes else None,
        "cascades": target.cascades,
        "transform": None if target.job.transform is None else target.job.transform.name,
        "landing": target.landing.where,
        "follows": [str(table) for table in target.follows],
        "dialect": target.dialect,
        "columnar": target.own,
        "copy": target.copy,
        "compression": target.sample.compression,
        "fields": field_uses(target),
        "constants": dict(target.job.set),
        "folder_columns": folder_columns(target),
        "not_in_files": unfed_columns(target),
        "objects": [
            {"uri": source.uri, "size_bytes": source.size_bytes, "action": action}
            for source, action in zip(target.objects, actions, strict=True)
        ],
    }


def _describe_way(target: TargetPlan, *, is_atomic: bool) -> str:
    """Return how rows get into a table, and what other sessions see of the table during the load."""
    job = target.job
    what: str = job.mode
    if job.merge_key:
        what += f" by {', '.join(job.merge_key)}"
    if job.used_keep is not None:
        what += ", duplicates are an error" if job.keep == "error" else f", the {job.keep} record of each key is used"
    if target.landing.deletes:
        what += f", rows without a record are deleted (at most {job.max_delete:g}%)"
        if target.cascades:
            what += f", which changes rows that refer to them in {', '.join(target.cascades)}"
    if job.transform is not None:
        what = f"transform by {job.transform.name}"
    if target.follows:
        what += ", after table " + ", ".join(f'"{table}"' for table in target.follows)
    readers = "readers see all or nothing" if is_atomic and target.fills_table else target.landing.readers
    if target.landing.where == "replacement" and target.facts is not None and target.facts.is_partition:
        readers += "; those of the partitioned table wait while the partition is exchanged"
    return f"{what}; {readers}"


def _describe_target(target: TargetPlan, *, is_atomic: bool) -> list[str]:
    from penstock.loading.formats import format_of  # noqa: PLC0415 (60 ms, psycopg, which penstock doctor --help needs not)

    state = "exists"
    if target.create_columns is not None:
        kind = "text columns" if target.create_types is None else "columns"
        state = f"to be created, {len(target.create_columns)} {kind}{_describe_key(target)}"
    elif target.is_partition and target.facts is not None:
        state = f"to be made, and attached to {target.facts.parent} for values {target.job.for_values}"
    lines = line_up(
        [
            ("table", f"{target.table} ({state})"),
            ("mode", _describe_way(target, is_atomic=is_atomic)),
            ("dialect", format_of(target).describe(target)),
            *([("copy", f"{target.copy.format} ({target.copy.reason})")] if target.copy.reason else []),
            ("columns", "file field -> table column"),
        ],
        align="<<",
    )
    uses = field_uses(target)
    shown = [use for use in uses if use.column is not None or not target.job.only]
    rows = [_field_row(use) for use in shown]
    if len(shown) < len(uses):
        rows.append((count_nouns(len(uses) - len(shown), "other"), "", "skipped", ""))
    lines += line_up(rows, align="<<<<", indent="  ")
    if target.typed and target.create_columns is not None:
        lines += describe_creation(target)
    others = [(name, "<-", "folder", f"{value} (first file)") for name, value in folder_columns(target).items()]
    others += [(name, "<-", "--set", value) for name, value in target.job.set.items()]
    others += [(name, "<-", what, "") for name, what in unfed_columns(target).items() if name not in target.job.set]
    if others:
        lines.append("columns not in the files")
        lines += line_up(others, align="<<<<", indent="  ")
    return lines


def describe_creation(target: TargetPlan) -> list[str]:
    """Return the lines of the CREATE TABLE statement of a table that the load creates.

    A comment on each column has the value that decided its type.
    """
    reasons = {column.name: column.reason for column in target.typed}
    columns = list(zip(target.create_columns or (), target.create_types or (), strict=True))
    key = [f"    PRIMARY KEY ({', '.join(map(quote_name, target.created_key))})"] if target.created_key else []
    rows = [
        (quote_name(name), type_name + "," * (number < len(columns) + len(key)), f"-- {reasons.get(name, '--set')}")
        for number, (name, type_name) in enumerate(columns, 1)
    ]
    return [f"CREATE TABLE {quote_table(target.table)} (", *line_up(rows, align="<<<", indent="    "), *key, ");"]


def _describe_key(target: TargetPlan) -> str:
    return f", primary key ({', '.join(target.created_key)})" if target.created_key else ""


def _field_row(use: FieldColumn) -> tuple[str, str, str, str]:
    if use.column is None:
        return (use.field, "", "skipped", "")
    return (use.field, "->", use.column, use.type_name or "")


def _describe_objects(objects: Sequence[SourceObject], actions: Sequence[str]) -> list[str]:
    lines = [f"objects  {format_count(len(objects))}, {_total_size(objects)}"]
    shown = objects[:_OBJECTS_SHOWN]
    rows = [
        (source.uri, _size(source.size_bytes), _ACTIONS[action])
        for source, action in zip(shown, actions[:_OBJECTS_SHOWN], strict=True)
    ]
    lines += line_up(rows, align="<><", indent="  ")
    if len(objects) > len(shown):
        rest = objects[len(shown) :]
        lines.append(f"  ... and {format_count(len(rest))} more, {_total_size(rest)}")
    return lines


def _size(size_bytes: int | None) -> str:
    return "size unknown" if size_bytes is None else format_bytes(size_bytes)


def _total_size(objects: Sequence[SourceObject]) -> str:
    known = format_bytes(sum(source.size_bytes or 0 for source in objects))
    if all(source.size_bytes is None for source in objects):
        return "size unknown"
    return f"at least {known}" if any(source.size_bytes is None for source in objects) else known


def _type_of(column: str | None, target: TargetPlan) -> str | None:
    if column is None:
        return None
    if target.facts is None:
        types = dict(zip(target.create_columns or (), target.create_types or (), strict=False))
        return types.get(column, "text")
    found = target.facts.column(column)
    return None if found is None else found.type_name
