"""Does penstock commits foretell? A quorum's runs at 10 to 10,000 rows per commit, and what a recording of one said."""

from __future__ import annotations

import os
import statistics
import time
from typing import TYPE_CHECKING

from benchmarks.record import save
from penstock.core.connect.connection import ConnectionFactory, over_own_socket
from penstock.diagnose.batches import report_commits
from penstock.embedded.installations import default_installation
from penstock.watch.sampler import Sampler, sampling_beside
from penstock_lab.bench.commits.experiment import experiment
from penstock_lab.topology.lab import Lab

if TYPE_CHECKING:
    from benchmarks.options import Options
    from penstock.watch.values import Sample
    from penstock_lab.bench.commits.experiment import CommitExperiment

_MILLION = 1_000_000
# About five seconds each on two cores.
_ROWS = {10: 80_000, 100: 500_000, 1_000: _MILLION, 10_000: _MILLION}
_RECORDED = 100
_INTERVAL_S = 0.1
# For counters to arrive behind a call.
_AFTER_S = 1.5


def run(options: Options) -> None:
    """Run it and write the results."""
    lab = Lab.named(f"foretold-{os.getpid()}", options.data)
    try:
        found = lab.up("quorum", default_installation(), parameters="postgres")
        assert found.conninfo is not None
        factory = ConnectionFactory(over_own_socket(found.conninfo))
        with experiment(factory) as measured:
            seconds, foretold = _measure(measured, factory, lab, rounds=options.runs)
            version = measured.facts.version
    finally:
        lab.down()
    actual = {batch: statistics.median(found) for batch, found in seconds.items()}
    said = {batch: statistics.median(found) for batch, found in foretold.items()}
    errors = {batch: 100 * (said[batch] / actual[batch] - 1) for batch in actual}
    save(
        "foretold_commits",
        options=options,
        postgresql={"server_version": version},
        settings={"topology": "quorum", "recorded_rows_per_commit": _RECORDED, "interval_s": _INTERVAL_S},
        results={"seconds_per_million_rows": seconds, "foretold": foretold, "error_percent": errors},
        table=[
            ("rows per commit", "seconds a million rows", "foretold", "difference"),
            *(
                (f"{batch:,}", f"{actual[batch]:.2f}", f"{said[batch]:.2f}", f"{errors[batch]:+.0f} %")
                for batch in sorted(actual)
            ),
        ],
        notes=[
            (
                f"Foretold from a recording of the run at {_RECORDED} rows per commit of each round, without a probe; "
                "medians of all rounds."
            ),
        ],
    )


def _measure(
    measured: CommitExperiment, factory: ConnectionFactory, lab: Lab, *, rounds: int
) -> tuple[dict[int, list[float]], dict[int, list[float]]]:
    """Return the seconds a million rows took, and what was foretold in each round, by rows per commit."""
    seconds: dict[int, list[float]] = {batch: [] for batch in _ROWS}
    foretold: dict[int, list[float]] = {batch: [] for batch in _ROWS}
    for number in range(-1, rounds):
        for batch, rows in _ROWS.items():
            samples, elapsed_s = _record(measured, factory, rows=rows, batch=batch)
            lab.trim_receivers()
            print(f"{batch} rows per commit: {elapsed_s * _MILLION / rows:.2f} s a million", flush=True)
            if number < 0:
                continue
            seconds[batch].append(elapsed_s * _MILLION / rows)
            if batch == _RECORDED:
                (committer,) = report_commits(samples).committers
                for other in _ROWS:
                    predicted_s = committer.predict_s(_MILLION, other)
                    assert predicted_s is not None
                    foretold[other].append(predicted_s)
    return seconds, foretold


def _record(
    measured: CommitExperiment, factory: ConnectionFactory, *, rows: int, batch: int
) -> tuple[list[Sample], float]:
    """Run once beside a sampler; return the samples and the seconds of the call."""
    sampler = Sampler(factory, interval_s=_INTERVAL_S)
    try:
        with sampling_beside(sampler, interval_s=_INTERVAL_S) as samples:
            result = measured.call(rows=rows, rows_per_commit=batch)
            time.sleep(_AFTER_S)
    finally:
        sampler.close()
    return samples, result.use.elapsed_s
