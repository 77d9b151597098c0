"""What a user can still change about a load; a remedy names these changes alone, and no option that is in effect.

The text of a remedy has no option in it. It has the name of a choice in braces, and a sentence with a choice that a
load does not have is left out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from string import Formatter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from penstock.model.load.accounts import LoadAccounts, LoadSetting
    from penstock.model.load.job import Housekeeping
    from penstock.model.load.plan import LoadPlan, TargetPlan

# How a remedy names each choice. `find_choices` decides which of them a load has.
CHOICES: Final[Mapping[str, str]] = {
    "rebuild": "--indexes rebuild",
    "rebuild_keys": "--indexes rebuild",
    "keep_indexes": "--indexes keep",
    "disable_triggers": "--triggers disable",
    "pause_autovacuum": "--autovacuum pause",
    "bulk_load": "--settings bulk-load",
    "no_vacuum": "--no-vacuum",
    "no_checkpoint": "--no-checkpoint",
    "atomic": "--atomic",
    "not_atomic": "--atomic",
    "spool": "--spool",
    "replace": "--mode replace",
    "truncate": "--mode truncate --atomic",
    "more_sessions": "--sessions",
    "fewer_sessions": "--sessions",
    "via_client": "--via client",
    "text_format": "--copy-format text",
    "plain_text": "UTF-8, in PostgreSQL's text format or as CSV with commas",
    "more_files": "more files",
    "more_imports": "more files",
    "fast_codec": "zstd or lz4",
    "far_source": "the bucket or the web server",
    "near_source": "the disk",
    "pipe": "standard input or the pipe",
    "statement": "the statement of --transform",
    "recording": "penstock diagnose",
    "no_record": "--no-record",
}

_FAST_CODECS = ("none", "zstd", "lz4")


@dataclass(frozen=True, slots=True)
class Way:
    """One sentence of a remedy. `of_loads`: it is for loads by penstock only, or, if False, for all other workloads."""

    text: str
    of_loads: bool | None = None

    @property
    def needs(self) -> frozenset[str]:
        """Return the choices that the sentence names."""
        return frozenset(name for _, name, _, _ in Formatter().parse(self.text) if name and name in CHOICES)


def write_remedy(ways: Collection[Way], setting: LoadSetting | None, words: Mapping[str, str]) -> str:
    """Return the sentences that fit a workload; `setting` is that of a load by penstock, None of any other workload."""
    choices = CHOICES.keys() if setting is None else setting.choices
    is_load = setting is not None
    fitting = [way for way in ways if way.of_loads in (None, is_load) and way.needs.issubset(choices)]
    texts = [way.text.format(**CHOICES, **words) for way in fitting]
    return " ".join(texts) or "No option of the load changes that."


def find_choices(plan: LoadPlan, house: Housekeeping, accounts: LoadAccounts, *, is_recorded: bool) -> tuple[str, ...]:
    """Return what the user can still change about a load that was planned so, in the order of CHOICES."""
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


def _may_have_rows(target: TargetPlan) -> bool:
    return target.facts is not None and bool(target.indexes.dropped) and not target.landing.is_fresh


def _of_sessions(plan: LoadPlan, accounts: LoadAccounts) -> Iterator[str]:
    rules, is_single = plan.job.rules, plan.batch.duration_s is None
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
    # As many objects are read at a time as there are sessions, and at least two.
    if not any(source.is_pipe for source in objects) and len(objects) < max(2, accounts.session_count):
        yield "more_files"
        if plan.route.is_import:
            yield "more_imports"
    if any(target.sample_compression not in _FAST_CODECS for target in plan.targets):
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
    if any(target.columnar is None and not _is_plain(target) for target in plan.targets):
        yield "plain_text"


def _is_plain(target: TargetPlan) -> bool:
    dialect = target.dialect
    is_comma = dialect.format == "csv" and dialect.delimiter == ","
    return dialect.encoding.upper() in ("UTF8", "SQL_ASCII") and (is_comma or dialect.format == "text")
