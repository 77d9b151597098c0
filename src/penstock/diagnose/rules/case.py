"""What all rules get: a recording's active sessions and rates. Computes shares of time, and how certain they are."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from operator import mul
from typing import TYPE_CHECKING, Protocol

from penstock.core.slotted import slotted
from penstock.core.units import KIB, MB
from penstock.core.values.diagnosis import Confidence, Diagnosis, Evidence
from penstock.diagnose.batches import BULK_BYTES
from penstock.diagnose.rules.advice import ADVICE
from penstock.diagnose.values import write_remedy

if TYPE_CHECKING:
    from penstock.core.values.accounts import BackendIo, LoadConditions
    from penstock.watch.rates import Rates
    from penstock.watch.values import RecordingHeader, Sample
    from penstock.watch.waits import ActivityTally, Moment, Ticks

# Fewer samples of active sessions than this are not enough to conclude anything.
FEWEST_SAMPLES = 20

# If a limit costs a smaller share of the time than this, even the best remedy makes a workload less than a tenth
# faster.
LEAST_SHARE = 0.1

# The largest standard errors of a share for high and medium confidence. The true share is probably within twice the
# standard error: 6 and 14 percentage points.
_HIGH_ERROR = 0.03
_MEDIUM_ERROR = 0.07

# If WAL is written at this rate or more, and commits have this size or more, the bytes of WAL limit the workload, and
# longer transactions gain nothing. This was measured with 31 MB/s in 155 commits a second.
_MUCH_BYTES = 128 * KIB
_MUCH_BYTES_PER_S = 24 * MB

# Samples that are more than this many ticks apart count as independent.
_CORRELATED_TICKS = 10

# The names that poolers give their sessions, for clients that have no name.
_POOLER = re.compile(r"pgbouncer|pgcat|odyssey|pgpool|rds.?proxy", re.IGNORECASE)

# How many characters are enough to recognize a statement.
_NAME_LENGTH = 60


class Rule(Protocol):
    """Reads a recording sample by sample. At the end it concludes what limits the workload."""

    def see(self, sample: Sample, moments: Sequence[Moment]) -> None:
        """Add a sample, with its active sessions."""

    def conclude(self, case: Case) -> list[Diagnosis]:
        """Return the diagnoses from all samples; an empty list if this rule finds no limit."""


@slotted
class Case:
    """The sums of a whole recording."""

    header: RecordingHeader
    # Counts the active sessions in all samples.
    moments: Ticks
    elapsed_s: float
    rates: Rates
    # What the server counted for the workload's own sessions alone, None if it did not count them.
    io: BackendIo | None = None
    # What cost time for each row of the load, None if the workload is not a load by penstock.
    setting: LoadConditions | None = None

    @property
    def counted_s(self) -> float:
        """Return the time in which the server's counters rose. It includes that in which no sample could be taken."""
        return self.rates.elapsed_s or self.elapsed_s

    def sessions(self, moments: Ticks) -> float:
        """Return the average number of sessions that these moments stand for."""
        return moments.seconds / self.elapsed_s

    @property
    def is_bulk(self) -> bool:
        """Return whether sessions wait while WAL is written, so that larger batches do not shorten their waits."""
        is_much = (self.rates.wal_bytes_per_s or 0.0) >= _MUCH_BYTES_PER_S and self.is_written_per_commit(_MUCH_BYTES)
        return is_much or self.is_written_per_commit(BULK_BYTES)

    def is_written_per_commit(self, size_bytes: int) -> bool:
        """Return whether commits have more WAL than this on average. Return False if that is not known.

        If none is counted as one that wrote, all count: commits that only lock rows flush WAL without a changed row.
        """
        commits, wal_bytes = self.rates.writes_per_s or self.rates.commits_per_s, self.rates.wal_bytes_per_s
        return commits is not None and wal_bytes is not None and wal_bytes > size_bytes * commits

    @property
    def changed_rows(self) -> float | None:
        """Return how many rows the server changed, None if that is not known, as of few commits."""
        rates = self.rates
        if rates.writes_per_s is None or rates.rows_per_commit is None:
            return None
        return rates.elapsed_s * rates.writes_per_s * rates.rows_per_commit

    def share(self, part: Ticks) -> float:
        """Return the part's share of active time, 0 to 1."""
        return share_of(part, self.moments)

    def conclude(
        self,
        code: str,
        part: ActivityTally,
        evidence: Sequence[Evidence],
        *,
        among: Ticks | None = None,
        **words: str,
    ) -> Diagnosis:
        """Return a diagnosis that rests on a part of the moments. If they are too few, the claim says "perhaps"."""
        moments = self.moments if among is None else among
        share, confidence = share_of(part, moments), _judge(part, moments)
        found = self.conclude_counted(code, share, (*evidence, *_who(part)), **words)
        claim = f"{100 * share:.0f} % of {found.claim}"
        if confidence == "too few samples":
            claim = f"too few samples ({moments.count} of active sessions); perhaps {claim}"
        return replace(found, claim=claim, samples=moments.count, confidence=confidence)

    def conclude_counted(self, code: str, share: float, evidence: Sequence[Evidence], **words: str) -> Diagnosis:
        """Return a diagnosis that rests on counters alone. Its claim has no share; `share` decides its rank."""
        advice = ADVICE[code]
        return Diagnosis(
            code=code,
            claim=advice.claim.format(**words),
            share=share,
            evidence=tuple(evidence),
            samples=0,
            confidence="high",
            remedy=write_remedy(advice.remedy, self.setting, words),
            proof=advice.proof,
            source=advice.source,
        )


def bounded(found: Diagnosis, gains: float) -> Diagnosis:
    """Return a diagnosis whose remedy can gain at most this part of its share, 0 to 1, by the server's counters."""
    bound = found.share * gains
    return replace(found, bound=bound, claim=f"{found.claim}. At most {100 * bound:.0f} % can be gained")


def _who(part: ActivityTally) -> list[Evidence]:
    """Return as evidence the application and the statement that have the largest shares of a part."""
    named = (("application", part.applications), ("statement", part.statements))
    found = [(what, most) for what, shares in named for most in shares.parts(1.0)[:1]]
    return [
        number(f"of this, {what} {shorten(most.name)}{_remark_pooler(what, most.name)}", 100 * most.share, "%")
        for what, most in found
    ]


def _remark_pooler(what: str, name: str) -> str:
    """Return a remark if an application's name is that of a connection pooler."""
    return " (a pooler; its clients have no other name here)" if what == "application" and _POOLER.search(name) else ""


def change_setting(header: RecordingHeader, name: str, value: str, *, in_group: str | None = None) -> str:
    """Return how to change a setting for the whole server. On RDS no role may run ALTER SYSTEM.

    `in_group` is the value as a parameter group takes it, the number alone, and its unit; by default `value`.
    """
    if "rds.extensions" in header.settings:
        return f"{name} = {in_group or value} in the server's parameter group"
    change = f"ALTER SYSTEM SET {name} = {value}, and SELECT pg_reload_conf()"
    return f"{change}, unless Patroni, an operator or a cloud service manages settings"


def number(name: str, value: float, unit: str = "") -> Evidence:
    """Return a number as evidence."""
    return Evidence(name=name, value=value, unit=unit)


def shorten(name: str) -> str:
    """Return the beginning of a name or statement."""
    return name if len(name) <= _NAME_LENGTH else f"{name[: _NAME_LENGTH - 1]}…"


def share_of(part: Ticks, moments: Ticks) -> float:
    """Return the share of the moments' time that belongs to the part, 0 to 1."""
    return part.seconds / (moments.seconds or 1.0)


def _judge(part: Ticks, moments: Ticks) -> Confidence:
    """Return how certain the part's share of the time is, from the standard error of the share.

    Sessions of one tick are correlated, and so are those of neighbouring ticks. So the variance is computed over ticks,
    with their covariances (Newey and West, 1987). The standard error is never taken to be smaller than that of
    independent samples. For independent samples, the share is first moved towards one half (Agresti and Coull, 1998):
    otherwise ten of ten samples would give an error of zero.
    """
    count = moments.count
    if count < FEWEST_SAMPLES:
        return "too few samples"
    middle = (part.count + 2) / (count + 4)
    expected = part.count / count
    strays = [-expected * seen for seen in moments.by_tick]
    for tick, seen in enumerate(part.by_tick):
        strays[tick] += seen
    variance = sum(stray * stray for stray in strays)
    for lag in range(1, min(_CORRELATED_TICKS, len(strays) // 4) + 1):
        together = sum(map(mul, strays, strays[lag:]))
        variance += 2 * (1 - lag / (_CORRELATED_TICKS + 1)) * together
    error = math.sqrt(max(middle * (1 - middle) / (count + 4), variance / count**2))
    if error <= _HIGH_ERROR:
        return "high"
    return "medium" if error <= _MEDIUM_ERROR else "low"
