"""Applies all rules to a recording, to find what limits the workload."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.core.slotted import slotted
from penstock.diagnose.batches import is_hidden
from penstock.diagnose.rules.autovacuum import Autovacuum
from penstock.diagnose.rules.background import CommitWaits, InternalLocks, IoWaits, StandbysBehind, WalWrites
from penstock.diagnose.rules.bloat import Bloat
from penstock.diagnose.rules.case import Case, Rule
from penstock.diagnose.rules.checkpoints import Checkpoints
from penstock.diagnose.rules.connections import OpenedSessions
from penstock.diagnose.rules.held_rows import HeldRows
from penstock.diagnose.rules.host import Host
from penstock.diagnose.rules.locks import LockWaits, blame_standbys
from penstock.diagnose.rules.row_costs import RowCosts
from penstock.diagnose.rules.sessions import ClientWaits, OutsideWaits, Processors
from penstock.diagnose.rules.statements import SlowStatements
from penstock.diagnose.rules.storage import DataVolume, IndexReads, TemporaryWork
from penstock.watch.rates import RatesMeter
from penstock.watch.risks import RiskMeter
from penstock.watch.waits import Activity, ActivityMeter, find_moments

if TYPE_CHECKING:
    from penstock.core.values.accounts import LoadCounts
    from penstock.core.values.diagnosis import Diagnosis
    from penstock.watch.values import Recording, RecordingHeader, Sample


# The diagnoses of a volume at its limit, and of waits for WAL.
_VOLUMES = frozenset({"volume-iops", "volume-throughput", "instance-limit", "volume-balance"})
_WAL = frozenset({"commit-local-flush", "wal-write"})

# Causes, and the diagnoses of waits that each cause may explain. A cause that explains at least half of such waits is
# reported before these diagnoses, because its remedy needs no other volume, and no other transactions.
_CAUSES = {
    "checkpoints-forced": _VOLUMES | _WAL,
    "checkpoints-timed": _VOLUMES | _WAL,
    "index-reads": _VOLUMES | _WAL,
    "temp-spill-on-data-volume": _VOLUMES,
    "autovacuum-io": _VOLUMES,
}
_MOSTLY = 0.5

# These diagnoses of a statement explain why it reads or computes much. Unlike the causes above, they are reported
# together with "data-io".
_LACKS = (
    *("xmin-held", "foreign-key-unindexed", "no-statistics", "stale-statistics", "bloat"),
    *("statement-spills", "sequential-scan", "row-costs", "jit"),
)
_EXPLAINS = {
    **_CAUSES,
    **dict.fromkeys(_LACKS, _VOLUMES | {"cpu-bound", "data-io"}),
    # Who waits for such a lock has used a processor to try to get it.
    "lwlock-contention": frozenset({"cpu-bound"}),
    # What waits for such a worker stops others in turn.
    "autovacuum-wraparound": frozenset({"lock-queue"}),
}

# The effects that are not reported if their cause is reported, because the remedies of the effects would then be wrong.
_EFFECTS = {
    "autovacuum-wraparound": frozenset({"lock-wait"}),
    "standby-behind": frozenset({"commit-standby"}),
    "xmin-held": frozenset({"autovacuum", "autovacuum-io", "bloat"}),
    # More sessions pay for the same.
    "row-costs": frozenset({"few-sessions"}),
    "temp-spill": frozenset({"statement-spills"}),
    "temp-spill-on-data-volume": frozenset({"statement-spills"}),
    "temp-disk-slow": frozenset({"statement-spills"}),
}

# Waits of fewer sessions than this on average limit nobody. A guess needs more. What counters show is no guess; but a
# statement that is seen a few times in a quiet hour may read a table whole because that is its best plan.
_LEAST_ACTIVE = 0.05
_FEW_ACTIVE = 0.5
_PLANS = frozenset({"sequential-scan", "bloat"})
_BY_COUNTERS = frozenset({"client-bound", "deadlocks", "temp-disk-full", "temp-space-low", *_LACKS})

# Diagnoses that name no limit. They are reported last, and only beside another diagnosis, unless they have a bound.
REMARKS = frozenset({"other-programs", "waits-disagree-with-cpu"})


@slotted
class Findings:
    """What limits the workload, with the share of time of each limit, and all waits."""

    diagnoses: tuple[Diagnosis, ...]
    activity: Activity
    # Whether there were sessions of other roles whose activity this role may not see.
    hides_sessions: bool
    # What will stop the server, although no session waits for it yet.
    risks: tuple[Diagnosis, ...] = ()


class Examination:
    """Applies all rules to samples one by one. It keeps only sums, so memory does not grow with the recording."""

    def __init__(self, header: RecordingHeader) -> None:
        self._header = header
        self._activity, self._rates, self._risks = ActivityMeter(), RatesMeter(), RiskMeter(header.settings)
        self._io, self._host = IoWaits(), Host()
        self._rules: list[Rule] = [
            *(StandbysBehind(header), CommitWaits(header), TemporaryWork(self._risks)),
            *(
                ClientWaits(self._host),
                OutsideWaits(),
                Processors(self._host),
                IndexReads(self._io),
                DataVolume(self._io, header),
                WalWrites(self._io),
                InternalLocks(),
            ),
            *(Checkpoints(self._io, self._risks), OpenedSessions(self._risks)),
            *(HeldRows(self._risks), SlowStatements(self._risks), Bloat(self._risks), RowCosts(self._risks)),
        ]
        # These rules also see the sessions of other applications, which may hinder the workload.
        self._rules_of_all: list[Rule] = [LockWaits(), Autovacuum(self._risks, self._host)]
        self._tick = 0
        self._hides_sessions = False

    def see(self, sample: Sample) -> None:
        """Take the next sample."""
        whole, sample = sample, keep_workload(sample, self._header.application)
        moments = find_moments(sample, self._tick)
        self._tick += 1
        self._activity.see(sample, moments)
        self._rates.see(sample)
        self._risks.see(sample)
        self._io.see(moments)
        self._host.see(sample)
        self._hides_sessions = self._hides_sessions or any(map(is_hidden, sample.sessions))
        moments = blame_standbys(moments, whole)
        for rule in self._rules:
            rule.see(sample, moments)
        for rule in self._rules_of_all:
            rule.see(whole, moments)

    def conclude(self, load: LoadCounts | None = None) -> Findings:
        """Return the findings from all samples. `load` is what a load by penstock counted, None for other workloads."""
        io = None if load is None else load.accounts.io
        case = Case(
            header=self._header,
            moments=self._activity.everything,
            elapsed_s=self._activity.elapsed_s or 1.0,
            rates=self._rates.result(),
            io=io if io is not None and io.is_exact else None,
            setting=None if load is None else load.setting,
        )
        found = [diagnosis for rule in self._rules + self._rules_of_all for diagnosis in rule.conclude(case)]
        activity = self._activity.result()
        found = [each for each in found if not _is_idle(each, activity.sessions)]
        if any(each.code in _VOLUMES | _CAUSES.keys() for each in found):
            found = [each for each in found if each.code != "data-io"]
        for cause in [each for each in found if each.code in _EFFECTS]:
            effects = _EFFECTS[cause.code]
            found = [each for each in found if each.code not in effects or cause.share < _least_cause(each)]
        if all(each.code in REMARKS and each.bound is None for each in found):
            found = []
        return Findings(
            diagnoses=rank(found),
            activity=activity,
            hides_sessions=self._hides_sessions,
            risks=self._risks.result(),
        )


def _is_idle(found: Diagnosis, sessions: float) -> bool:
    """Return whether a diagnosis is of waits that hardly anybody has, on a server with time to spare.

    `sessions` is the average number of active sessions. A rule for what is not active decides that for itself.
    """
    is_guess = found.confidence == "too few samples" and sessions < _FEW_ACTIVE
    if not found.samples or found.code in _BY_COUNTERS:
        return is_guess and found.code in _PLANS
    return is_guess or found.share * sessions < _LEAST_ACTIVE


def _least_cause(effect: Diagnosis) -> float:
    """Return the share that a cause must have so that its effect is not reported."""
    # The share of a statement that spills is its own, and not that of its waits for temporary files.
    return 0.0 if effect.code == "statement-spills" else _MOSTLY * min(effect.share, effect.rank)


def rank(found: Sequence[Diagnosis]) -> tuple[Diagnosis, ...]:
    """Return diagnoses in their order: the largest possible gain first, but a cause before the waits that it explains.

    A full disk comes first, because statements fail. The diagnoses in REMARKS come last.
    """
    causes = [each for each in found if each.code in _EXPLAINS]

    def key(each: Diagnosis) -> tuple[bool, bool, float, bool]:
        explaining = [cause for cause in causes if each.code in _EXPLAINS[cause.code]]
        explained = [cause.rank for cause in explaining if cause.share >= _MOSTLY * each.share]
        is_full = each.code == "temp-disk-full"
        return not is_full, each.code in REMARKS, -min([each.rank, *explained]), bool(explained)

    return tuple(sorted(found, key=key))


def keep_workload(sample: Sample, application: str | None) -> Sample:
    """Return a sample with only the sessions whose application name starts with `application`. None keeps all."""
    if application is None:
        return sample
    own = (session for session in sample.sessions if (session.application or "").startswith(application))
    return replace(sample, sessions=tuple(own))


def examine(recording: Recording) -> Findings:
    """Return the findings from a recording. Its samples are read one after the other, and are not kept."""
    examination = Examination(recording.header)
    for sample in recording.samples:
        examination.see(sample)
    return examination.conclude(recording.load)


def diagnose(recording: Recording) -> tuple[Diagnosis, ...]:
    """Return what limits the workload of a recording."""
    return examine(recording).diagnoses
