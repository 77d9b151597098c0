"""Finds what costs time for each row of a load, and what its user can still change. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from penstock.core.units import count_nouns, format_bytes
from penstock.core.values.accounts import LoadAccounts, LoadConditions, LoadDetails, Rows, StepPart
from penstock.core.values.job import Housekeeping
from penstock.core.words import hide_secrets
from penstock.diagnose.values import CHOICES
from penstock.loading.plan.freeze import may_freeze
from penstock.loading.steps.changes import describe_changes
from penstock.loading.values.outcome import LoadOutcome
from penstock.loading.values.plan import LoadPlan, TargetPlan, total_size

# The codecs whose decompression takes little time.
_FAST_CODECS = ("none", "zstd", "lz4")


def list_conditions(
    plan: LoadPlan, house: Housekeeping, accounts: LoadAccounts, *, is_recorded: bool
) -> LoadConditions:
    """Return what costs time for each row of a load, and what the user can change about it.

    These are the indexes, foreign keys and row triggers of the tables, the reason for the number of sessions, and the
    result of `list_choices`. `is_recorded` says whether the load is recorded.
    """
    kept = [part for target in plan.targets for part in target.indexes.kept]
    facts = [target.facts for target in plan.targets if target.facts is not None]
    disables = plan.job.rules.triggers == "disable"
    return LoadConditions(
        indexes=tuple(part.name for part in kept if part.what != "foreign key"),
        foreign_keys=tuple(part.name for part in kept if part.what == "foreign key"),
        triggers=() if disables else tuple(name for each in facts for name in each.row_triggers),
        sessions_why=plan.sessions.reason,
        is_import=plan.route.is_import,
        droppable=tuple(name for target in plan.targets for name in target.indexes.droppable),
        choices=list_choices(plan, house, accounts, is_recorded=is_recorded),
    )


def list_choices(plan: LoadPlan, house: Housekeeping, accounts: LoadAccounts, *, is_recorded: bool) -> tuple[str, ...]:
    """Return what the user can change about a load, as keys of CHOICES in their order.

    `accounts` are what the load has counted. `is_recorded` says whether the load is recorded.
    """
    found = {*_of_tables(plan, accounts), *_of_sessions(plan, accounts), *_of_sources(plan, accounts)}
    rules = plan.job.rules
    changes_settings = house.settings != "none"
    found |= {"no_vacuum"} if rules.vacuum else set()
    found |= {"no_checkpoint"} if rules.checkpoint or (rules.checkpoint is None and changes_settings) else set()
    found |= set() if changes_settings else {"bulk_load"}
    found |= {"recording"} if is_recorded else set()
    found |= {"no_record"} if house.no_record else set()
    return tuple(name for name in CHOICES if name in found)


def _of_tables(plan: LoadPlan, accounts: LoadAccounts) -> Iterator[str]:
    rules, targets = plan.job.rules, plan.targets
    existing = [target for target in targets if target.facts is not None and not target.is_replaced]
    is_owned = bool(existing) and all(target.facts is None or target.facts.is_owner for target in targets)
    is_large = accounts.bytes_copied >= plan.tuning.least_dropping_bytes
    if is_large and any(target.indexes.droppable for target in targets):
        yield "rebuild"
        keys = {part.name for target in targets for part in target.indexes.kept if part.what == "foreign key"}
        if any(not keys.isdisjoint(target.indexes.droppable) for target in targets):
            yield "rebuild_keys"
    if rules.indexes == "rebuild" and any(map(_may_have_rows, targets)):
        yield "keep_indexes"
    if rules.triggers == "keep" and is_owned and any(target.facts and target.facts.row_triggers for target in existing):
        yield "disable_triggers"
    if rules.autovacuum == "keep" and is_owned:
        yield "pause_autovacuum"
    if any(target.is_staged and target.landing.truncates for target in targets):
        yield from ("replace", "truncate")
    if any(target.job.transform is not None for target in targets):
        yield "statement"
    if not plan.freeze.is_used and may_freeze(plan):
        yield "freeze"


def _may_have_rows(target: TargetPlan) -> bool:
    return target.facts is not None and bool(target.indexes.dropped) and not target.landing.is_fresh


def _of_sessions(plan: LoadPlan, accounts: LoadAccounts) -> Iterator[str]:
    rules = plan.job.rules
    is_single = plan.batch.duration_s is None and not plan.batch.is_one_table
    is_many = not is_single and not plan.is_in_job_order
    if is_many and plan.sessions.connections > accounts.session_count:
        yield "more_sessions"
    if is_many and accounts.session_count > 1:
        yield "fewer_sessions"
    if not is_single and plan.fills_tables and not rules.join and not plan.route.is_import:
        yield "atomic"
    if is_single and not plan.is_repeatable:
        yield "spool"
    elif is_single:
        yield "not_atomic"
    if plan.route.is_import:
        yield "via_client"


def _of_sources(plan: LoadPlan, accounts: LoadAccounts) -> Iterator[str]:
    objects = [source for target in plan.targets for source in target.objects]
    # The number of objects that are read at a time is the number of sessions, and at least two.
    if not any(source.is_pipe for source in objects) and len(objects) < max(2, accounts.session_count):
        yield "more_files"
        if plan.route.is_import:
            yield "more_imports"
    if any(target.sample.compression not in _FAST_CODECS for target in plan.targets):
        yield "fast_codec"
    if any(source.is_pipe and not source.is_spooled for source in objects):
        yield "pipe"
    elif any("://" in source.location for source in objects):
        yield "far_source"
    else:
        yield "near_source"
    if not plan.route.is_import:
        yield from _of_formats(plan)


def _of_formats(plan: LoadPlan) -> Iterator[str]:
    if any(target.copy.format == "binary" for target in plan.targets):
        yield "text_format"
    if not all(map(_is_plain, plan.targets)):
        yield "plain_text"


def _is_plain(target: TargetPlan) -> bool:
    dialect = target.dialect
    is_comma = dialect.format == "csv" and dialect.delimiter == ","
    return dialect.encoding.upper() in ("UTF8", "SQL_ASCII") and (is_comma or dialect.format == "text")


def describe_load(plan: LoadPlan, outcome: LoadOutcome) -> LoadDetails:
    """Return what a recording keeps of a load's plan and outcome. Secrets in the names of files are hidden."""
    sessions = f"{plan.sessions.initial}, at most {plan.sessions.maximum}: {plan.sessions.reason}"
    return LoadDetails(
        files=tuple(replace(file, uri=hide_secrets(file.uri)) for file in outcome.files),
        plan=(("sessions", sessions), *map(_describe_target, plan.targets), *_rows([describe_changes(plan)])),
        done=tuple(_rows(outcome.steps.values())),
    )


def _describe_target(target: TargetPlan) -> tuple[str, str]:
    size = total_size(target.objects)
    of_size = "" if size is None else f", {format_bytes(size)}"
    is_new = "" if target.create_columns is None else "; the table is created"
    objects = count_nouns(len(target.objects), "object")
    return f"table {target.table}", f"{target.job.mode}; {objects}{of_size}{is_new}"


def _rows(parts: Iterable[StepPart]) -> Iterator[tuple[str, ...]]:
    for part in parts:
        for line in part.describe():
            yield from (tuple(row) for row in line.rows) if isinstance(line, Rows) else [(line,)]
