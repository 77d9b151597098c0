"""Watches a load: samples the server beside it, and concludes at its end what limited it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from penstock.core.connect.connection import ConnectionFactory
from penstock.core.connect.endpoints import is_rds_endpoint
from penstock.core.host.process import holding_interrupts
from penstock.core.values.accounts import LoadCounts
from penstock.core.values.job import Housekeeping
from penstock.core.values.server import ServerFacts
from penstock.loading.values.outcome import LoadOutcome
from penstock.loading.values.plan import LoadPlan
from penstock.watch.kept import recordings_folder
from penstock.watch.watching import SHORTEST_S, SamplerThread, open_sampler_at

if TYPE_CHECKING:
    from penstock.diagnose.examination import Examination
    from penstock.watch.sampler import Sampler
    from penstock.watch.values import RecordingHeader, Sample

# The server is sampled only if at least this many free connections are left beside the connections of the load.
_SPARE_CONNECTIONS = 3


class LoadWatch:
    """Samples a server while a load runs, writes a recording, and finds what limited the load.

    The recording is written to the file that --record names, or to the user's folder, which keeps 20 recordings. The
    server is not sampled if it has few free connections beside those of the load.
    """

    def __init__(self, connect: ConnectionFactory, plan: LoadPlan, *, server: ServerFacts, house: Housekeeping) -> None:
        self._connect = connect
        self._plan = plan
        self._server = server
        self._house = house
        self._path = house.record
        self._is_scarce = server.free_connections < plan.sessions.maximum + _SPARE_CONNECTIONS
        self._is_on = not house.no_record and not self._is_scarce and bool(plan.targets)
        self._header: RecordingHeader | None = None
        self._examination: Examination | None = None
        # Samples that are not examined yet. If a load gets no verdict, its samples are never examined.
        self._waiting: list[Sample] = []

    def run(self, load: Callable[[], LoadOutcome], on_notice: Callable[[str], None]) -> LoadOutcome:
        """Call `load` while a thread samples the server. Return the load's outcome with what limited the load.

        A short load gets no diagnoses. Errors of the sampling are not raised. `on_notice` is called if the recording
        cannot be written.
        """
        if not self._is_on:
            if self._path is not None and self._is_scarce:
                on_notice("the server has few free connections: the load goes on without a recording")
            return self._judge(load(), is_sampled=False)
        beside = SamplerThread(
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
                # If the thread has not stopped, its samples are not examined, because it may still add some.
                is_sampled = beside.stop(partial(self._count, outcome))
                interrupts.drop()
        return self._judge(outcome, is_sampled=is_sampled)

    def _count(self, outcome: LoadOutcome | None) -> LoadCounts | None:
        if outcome is None or outcome.accounts is None:
            return None
        from penstock.loading.choices import describe_load, list_conditions  # noqa: PLC0415 (short loads do not need it)

        details = describe_load(self._plan, outcome)
        setting = list_conditions(self._plan, self._house, outcome.accounts, is_recorded=self._is_on)
        return LoadCounts(accounts=outcome.accounts, setting=setting, details=details)

    def _judge(self, outcome: LoadOutcome, *, is_sampled: bool) -> LoadOutcome:
        """Return the outcome of a load with the verdict on it. A short load has none, unless its rows pay for much."""
        tuning, accounts = self._plan.tuning, outcome.accounts
        if accounts is None or accounts.elapsed_s < min(tuning.least_row_costs_s, tuning.least_verdict_s):
            return outcome
        counts = self._count(outcome)
        assert counts is not None
        setting = counts.setting
        pays = is_sampled and (setting.indexes or setting.triggers or setting.foreign_keys)
        if accounts.elapsed_s < tuning.least_verdict_s and not pays:
            return outcome
        from penstock.diagnose.load import LoadCase, find_verdict, judge_load  # noqa: PLC0415 (short loads do not need it)

        header = self._header if is_sampled else None
        findings = None if header is None else self._examine(header).conclude(counts)
        cpu_count = None if header is None else header.cpu_count
        found = judge_load(LoadCase(counts=counts, findings=findings, cpu_count=cpu_count))
        return replace(outcome, diagnoses=find_verdict(found, accounts, tuning))

    def _open_sampler(self) -> Sampler:
        host, _, _ = self._server.host.rpartition(":")
        rds_host = host if is_rds_endpoint(host) else None
        return open_sampler_at(
            self._connect, rds_host, interval_s=SHORTEST_S, application=self._connect.application, facts=self._server
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
