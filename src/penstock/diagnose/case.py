"""What all rules look at: a recording's active sessions and rates, shares of time, and how sure they are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.diagnose.activity import divide, find_moments, name_application, name_statement, weights_of
from penstock.diagnose.advice import ADVICE
from penstock.diagnose.rates import measure_rates
from penstock.model.diagnosis import Diagnosis, Evidence

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.diagnose.activity import Moment
    from penstock.diagnose.rates import Rates
    from penstock.model.diagnosis import Confidence
    from penstock.model.recording import Recording

# Fewer samples of active sessions say nothing.
_FEWEST_SAMPLES = 20

# Standard errors: a share is known to about twice as many points, 6 and 14.
_HIGH_ERROR = 0.03
_MEDIUM_ERROR = 0.07

# Samples further apart count as independent.
_CORRELATED_TICKS = 10

# Enough of a statement to know it by.
_NAME_LENGTH = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A recording as rules see it; `moments` are those of active sessions."""

    recording: Recording
    moments: Sequence[Moment]
    elapsed_s: float
    rates: Rates

    @classmethod
    def of(cls, recording: Recording) -> Case:
        """Return what there is to judge."""
        samples = recording.samples
        elapsed_s = sum(weights_of(samples)) or 1.0
        rates = measure_rates(samples)
        return cls(recording=recording, moments=find_moments(samples), elapsed_s=elapsed_s, rates=rates)

    def select(self, is_counted: Callable[[Moment], bool]) -> list[Moment]:
        """Return the moments of active sessions that are counted."""
        return [moment for moment in self.moments if is_counted(moment)]

    def sessions(self, moments: Sequence[Moment]) -> float:
        """Return how many sessions these are on average."""
        return sum(moment.weight_s for moment in moments) / self.elapsed_s

    def busy_cpus(self) -> float | None:
        """Return how many of the host's processors were busy on average."""
        samples = [each for each in self.recording.samples if each.host_busy_cpus is not None]
        total_s = sum(sample.interval_s for sample in samples)
        return sum((each.host_busy_cpus or 0.0) * each.interval_s for each in samples) / total_s if total_s else None

    def conclude(
        self,
        code: str,
        part: Sequence[Moment],
        evidence: Sequence[Evidence],
        *,
        among: Sequence[Moment] | None = None,
        **words: str,
    ) -> Diagnosis:
        """Return a diagnosis of what a part of the moments shows; from too few of them its claim is put as a guess."""
        moments = self.moments if among is None else among
        advice, share, confidence = ADVICE[code], share_of(part, moments), _judge(part, moments)
        claim = f"{100 * share:.0f} % of {advice.claim.format(**words)}"
        if confidence == "too few samples":
            claim = f"too few samples ({len(moments)} of active sessions); perhaps {claim}"
        return Diagnosis(
            code=code,
            claim=claim,
            share=share,
            evidence=(*evidence, *self._who(part)),
            samples=len(moments),
            confidence=confidence,
            remedy=advice.remedy.format(**words),
            proof=advice.proof,
            source=advice.source,
        )

    def _who(self, part: Sequence[Moment]) -> list[Evidence]:
        """Return the application and the statement that have most of these."""
        named = (("application", name_application), ("statement", name_statement))
        found = [(what, divide(part, self.elapsed_s, name)[0]) for what, name in named]
        return [number(f"of this, {what} {shorten(most.name)}", 100 * most.share, "%") for what, most in found]


def number(name: str, value: float, unit: str = "") -> Evidence:
    """Return a number as evidence."""
    return Evidence(name=name, value=value, unit=unit)


def shorten(name: str) -> str:
    """Return the beginning of a name or statement."""
    return name if len(name) <= _NAME_LENGTH else f"{name[: _NAME_LENGTH - 1]}…"


def share_of(part: Sequence[Moment], moments: Sequence[Moment]) -> float:
    """Return the part's share of time, 0 to 1."""
    return sum(moment.weight_s for moment in part) / (sum(moment.weight_s for moment in moments) or 1.0)


def _judge(part: Sequence[Moment], moments: Sequence[Moment]) -> Confidence:
    """Return how sure a share is.

    Sessions wait together in one tick, and likely for the same at the next: ticks are what varies, with their
    covariances (Newey and West, 1987). The error is at least that of independent samples, whose share is drawn to the
    middle (Agresti and Coull, 1998): ten of ten do not prove all.
    """
    count = len(moments)
    if count < _FEWEST_SAMPLES:
        return "too few samples"
    middle = (len(part) + 2) / (count + 4)
    strays = [0.0] * (moments[-1].tick + 1)
    for sign, group in ((1.0, part), (-len(part) / count, moments)):
        for moment in group:
            strays[moment.tick] += sign
    variance = sum(stray * stray for stray in strays)
    for lag in range(1, min(_CORRELATED_TICKS, len(strays) // 4) + 1):
        together = sum(now * later for now, later in zip(strays, strays[lag:], strict=False))
        variance += 2 * (1 - lag / (_CORRELATED_TICKS + 1)) * together
    error = math.sqrt(max(middle * (1 - middle) / (count + 4), variance / count**2))
    if error <= _HIGH_ERROR:
        return "high"
    return "medium" if error <= _MEDIUM_ERROR else "low"
