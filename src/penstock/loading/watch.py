"""Watches a load: samples the server beside it, and concludes at its end what limited it and what would help."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from penstock.core.connect.endpoints import is_rds_endpoint
from penstock.core.host import holding_interrupts
from penstock.core.units import count_nouns, format_bytes
from penstock.core.values.accounts import LoadCounts, LoadDetails, LoadSetting, Rows, StepPart
from penstock.core.words import hide_secrets
from penstock.diagnose.values import CHOICES
from penstock.loading.steps.changes_plan import describe_changes
from penstock.loading.values.plan import LoadPlan, TargetPlan, total_size
from penstock.watch.kept import recordings_folder
from penstock.watch.watching import SHORTEST_S, Beside, open_sampler_at

if TYPE_CHECKING:
    from penstock.core.connect.connection import ConnectionFactory
    from penstock.core.values.accounts import LoadAccounts
    from penstock.core.values.job import Housekeeping
    from penstock.core.values.server import ServerFacts
    from penstock.diagnose.examination import Examination
    from penstock.loading.values.outcome import LoadOutcome
    from penstock.loading.values.plan import LoadPlan, TargetPlan
    from penstock.watch.sampler import Sampler
    from penstock.watch.values import RecordingHeader, Sample

# The codecs that a reader decompresses with little time.
_FAST_CODECS = ("none", "zstd", "lz4")


def find_setting(plan: LoadPlan, house: Housekeeping, accounts: LoadAccounts, *, is_recorded: bool) -> LoadSetting:
    """Return what a planned load left in effect that costs time for each row, and what the user can still change.

    The result names the indexes, the foreign keys and the row triggers, and why the load had this number of sessions.
    """
    kept = [part for target in plan.targets for part in target.indexes.kept]
    facts = [target.facts for target in plan.targets if target.facts is not None]
    disables = plan.job.rules.triggers == "disable"
    return LoadSetting(
        indexes=tuple(part.name for part in kept if part.what != "foreign key"),
        foreign_keys=tuple(part.name for part in kept if part.what == "foreign key"),
        triggers=() if disables else tuple(name for each in facts for name in each.row_triggers),
        sessions_why=plan.sessions.reason,
        is_import=plan.route.is_import,
        droppable=tuple(name for target in plan.targets for name in target.indexes.droppable),
        choices=find_choices(plan, house, accounts, is_recorded=is_recorded),
    )


def find_choices(plan: LoadPlan, house: Housekeeping, accounts: LoadAccounts, *, is_recorded: bool) -> tuple[str, ...]:
    """Return what the user could still change about a load with this plan, in the order of CHOICES."""
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
    # The number of objects that are read at a time is the number of sessions, and at least two.
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
    if not all(map(_is_plain, plan.targets)):
        yield "plain_text"


def _is_plain(target: TargetPlan) -> bool:
    dialect = target.dialect
    is_comma = dialect.format == "csv" and dialect.delimiter == ","
    return dialect.encoding.upper() in ("UTF8", "SQL_ASCII") and (is_comma or dialect.format == "text")


def describe_load(plan: LoadPlan, outcome: LoadOutcome) -> LoadDetails:
    """Return what a load did, without secrets in the names of its files."""
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


# The server is sampled only if at least this many free connections are left beside those of the load.
_SPARE_CONNECTIONS = 3

# The application names of a load's sessions begin with this.
_APPLICATION = "penstock"


class LoadWatch:
    """Samples a server while a load runs, keeps the recording, and finds what limited the load.

    The recording is written to the file that --record names, or to the user's folder, which keeps 20. The server is not
    sampled if it has few free connections beside the load's own.
    """

    def __init__(self, connect: ConnectionFactory, plan: LoadPlan, *, server: ServerFacts, house: Housekeeping) -> None:
        self._connect = connect
        self._plan = plan
        self._server = server
        self._house = house
        self._path = house.record
        is_scarce = server.free_connections < plan.sessions.maximum + _SPARE_CONNECTIONS
        self._is_on = not house.no_record and not is_scarce and bool(plan.targets)
        self._header: RecordingHeader | None = None
        self._examination: Examination | None = None
        # Samples that are not examined yet. For a load that gets no verdict, they are never examined.
        self._waiting: list[Sample] = []

    def run(self, load: Callable[[], LoadOutcome], on_notice: Callable[[str], None]) -> LoadOutcome:
        """Call `load`, and sample in a thread meanwhile. Return the load's outcome with what limited the load.

        No error of the sampling reaches the load.
        """
        if not self._is_on:
            return self._judge(load(), is_sampled=False)
        beside = Beside(
            self._open_sampler,
            path=self._path,
            folder=recordings_folder(os.environ),
            see=self._see,
            on_notice=on_notice,
        )
        outcome: LoadOutcome | None = None
        try:
            outcome = load()
        finally:
            # An interrupt cannot change a load that has ended, and would hide what the load reports.
            with holding_interrupts(limit=1) as interrupts:
                # A thread that has not stopped may still add samples.
                is_sampled = beside.stop(partial(self._count, outcome))
                interrupts.drop()
        return self._judge(outcome, is_sampled=is_sampled)

    def _count(self, outcome: LoadOutcome | None) -> LoadCounts | None:
        if outcome is None or outcome.accounts is None:
            return None

        details = describe_load(self._plan, outcome)
        setting = find_setting(self._plan, self._house, outcome.accounts, is_recorded=self._is_on)
        return LoadCounts(accounts=outcome.accounts, setting=setting, details=details)

    def _judge(self, outcome: LoadOutcome, *, is_sampled: bool) -> LoadOutcome:
        """Return the outcome of a load with the verdict on it. A short or small load has none."""
        if outcome.accounts is None or outcome.accounts.elapsed_s < self._plan.tuning.least_verdict_s:
            return outcome
        from penstock.diagnose.load import LoadCase, find_verdict, judge_load  # noqa: PLC0415 (short loads do not need it)

        counts = self._count(outcome)
        assert counts is not None
        header = self._header if is_sampled else None
        findings = None if header is None else self._examine(header).conclude(counts)
        cpu_count = None if header is None else header.cpu_count
        found = judge_load(LoadCase(counts=counts, findings=findings, cpu_count=cpu_count))
        return replace(outcome, diagnoses=find_verdict(found, outcome.accounts, self._plan.tuning))

    def _open_sampler(self) -> Sampler:
        host, _, _ = self._server.host.rpartition(":")
        rds_host = host if is_rds_endpoint(host) else None
        return open_sampler_at(
            self._connect, rds_host, interval_s=SHORTEST_S, application=_APPLICATION, facts=self._server
        )

    def _see(self, header: RecordingHeader, sample: Sample) -> None:
        self._header = header
        self._waiting.append(sample)
        if sample.at_s >= self._plan.tuning.least_verdict_s:
            self._examine(header)

    def _examine(self, header: RecordingHeader) -> Examination:
        """Return the examination of all samples so far."""
        from penstock.diagnose.examination import Examination  # noqa: PLC0415 (short loads do not need it)

        self._examination = self._examination or Examination(header)
        for sample in self._waiting:
            self._examination.see(sample)
        self._waiting.clear()
        return self._examination
