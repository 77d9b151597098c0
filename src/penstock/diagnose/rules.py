"""Applies all rules to a recording, to find what limits the workload."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.diagnose.activity import ActivityMeter, find_moments
from penstock.diagnose.batches import is_hidden
from penstock.diagnose.case import Case
from penstock.diagnose.commits import CommitWaits
from penstock.diagnose.rates import RatesMeter
from penstock.diagnose.sessions import ClientWaits, LockWaits, Processors
from penstock.diagnose.temp import TemporaryWork

if TYPE_CHECKING:
    from penstock.diagnose.activity import Activity
    from penstock.diagnose.case import Rule
    from penstock.model.diagnosis import Diagnosis
    from penstock.model.recording import Recording


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What limits the workload, by share of time, and all waits.

    `hides_sessions`: there were sessions of other roles, and this role may not see what they do.
    """

    diagnoses: tuple[Diagnosis, ...]
    activity: Activity
    hides_sessions: bool


def examine(recording: Recording) -> Findings:
    """Return the findings from a recording. Its samples are read once, one after the other, and none is kept."""
    rules: list[Rule] = [CommitWaits(recording.header), LockWaits(), TemporaryWork(), ClientWaits(), Processors()]
    activity, rates = ActivityMeter(), RatesMeter()
    hides_sessions = False
    for tick, sample in enumerate(recording.samples):
        moments = find_moments(sample, tick)
        activity.see(sample, moments)
        rates.see(sample)
        hides_sessions = hides_sessions or any(map(is_hidden, sample.sessions))
        for rule in rules:
            rule.see(sample, moments)
    case = Case(
        header=recording.header,
        moments=activity.everything,
        elapsed_s=activity.elapsed_s or 1.0,
        rates=rates.result(),
    )
    found = [diagnosis for rule in rules for diagnosis in rule.conclude(case)]
    # The diagnosis that waits and processors disagree is last, because it names no limit.
    found.sort(key=lambda each: (each.code == "waits-disagree-with-cpu", -each.share))
    return Findings(diagnoses=tuple(found), activity=activity.result(), hides_sessions=hides_sessions)


def diagnose(recording: Recording) -> tuple[Diagnosis, ...]:
    """Return what limits the workload of a recording."""
    return examine(recording).diagnoses
