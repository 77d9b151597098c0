"""gp2's burst bucket. I/Os are saved while a volume does less than its baseline, and spent above it. Pure."""

from __future__ import annotations

import math

from penstock.frozen import frozen


@frozen
class Bucket:
    """A burst bucket. It fills at the baseline rate.

    >>> Bucket(capacity_ios=5_400_000, baseline_iops=750, burst_iops=3000).burst_s(5_400_000)
    2400.0
    """

    capacity_ios: int
    baseline_iops: int
    # The largest rate while the bucket is not empty.
    burst_iops: int

    def burst_s(self, balance_ios: float) -> float:
        """Return how many seconds a balance lasts at the full burst rate."""
        spent_per_s = self.burst_iops - self.baseline_iops
        return balance_ios / spent_per_s if spent_per_s > 0 else math.inf

    def run(self, *, balance_ios: float, demand_iops: float, elapsed_s: float) -> tuple[float, float]:
        """Return how many I/Os a volume does in `elapsed_s` if `demand_iops` are wanted, and the final balance."""
        reached_iops = min(demand_iops, max(self.burst_iops, self.baseline_iops))
        spent_per_s = reached_iops - self.baseline_iops
        if spent_per_s <= 0:
            return reached_iops * elapsed_s, min(self.capacity_ios, balance_ios - spent_per_s * elapsed_s)
        burst_s = min(elapsed_s, balance_ios / spent_per_s)
        done_ios = reached_iops * burst_s + self.baseline_iops * (elapsed_s - burst_s)
        return done_ios, balance_ios - spent_per_s * burst_s

    def take(self, *, balance_ios: float, ios: float, least_s: float) -> tuple[float, float]:
        """Return how long a volume takes for `ios`, but at least `least_s`, and the final balance.

        >>> Bucket(capacity_ios=5_400_000, baseline_iops=750, burst_iops=3000).take(
        ...     balance_ios=0, ios=4500, least_s=1
        ... )
        (6.0, 0.0)
        """
        demand_iops = ios / least_s if least_s > 0 else math.inf
        reached_iops = min(demand_iops, max(self.burst_iops, self.baseline_iops))
        if reached_iops <= self.baseline_iops:
            elapsed_s = max(least_s, ios / self.baseline_iops)
            earned = self.baseline_iops * elapsed_s - ios
            return elapsed_s, min(float(self.capacity_ios), balance_ios + earned)
        spent_per_s = reached_iops - self.baseline_iops
        burst_s = min(ios / reached_iops, balance_ios / spent_per_s)
        elapsed_s = burst_s + (ios - reached_iops * burst_s) / self.baseline_iops
        return elapsed_s, max(0.0, balance_ios - spent_per_s * burst_s)
