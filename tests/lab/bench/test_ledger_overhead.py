"""The overhead's figures are a paired comparison's."""

from __future__ import annotations

import pytest
from benchmarks.cpu import Run, compare


def test_overhead_is_the_mean_of_the_pairs_differences() -> None:
    """Ten pairs of 4 s, and 1 % more on the average, by 0 and by 2 % in turn."""
    before = [Run(seconds=2.0, client_cpu_s=1.0, server_cpu_s=3.0)] * 10
    after = [Run(seconds=2.0, client_cpu_s=1.0, server_cpu_s=3.0 + 0.08 * (n % 2)) for n in range(10)]
    found = compare(before, after)
    assert found["percent"] == pytest.approx(1.0)
    # 2.262 * 0.0422 / sqrt(10) seconds of 4
    assert found["high_percent"] - found["percent"] == pytest.approx(0.754, abs=0.001)
    assert found["low_percent"] + found["high_percent"] == pytest.approx(2.0)
