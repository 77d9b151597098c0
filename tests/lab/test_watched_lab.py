"""What penstock watch, diagnose and commits say of a batch job whose commits wait for a quorum."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from penstock.core.connect.connection import ConnectionFactory, over_own_socket
from penstock_lab.bench.commits.experiment import experiment

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.embedded.installations import Installation
    from penstock_lab.topology.lab import Lab

pytestmark = pytest.mark.part("rest")

_ROWS = 4_000


def run_json(*arguments: str) -> object:
    """Return what a command prints."""
    command = [sys.executable, "-m", "penstock", *arguments, "--json"]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def test_batch_job_by_row_is_seen_for_what_it_is(lab: Lab, installation: Installation, tmp_path: Path) -> None:
    """Its commits as they were, its rows, that it waits for standbys, and what larger batches would take."""
    conninfo = lab.up("quorum", installation, parameters="postgres", zone_latency_s=0.0005).conninfo
    assert conninfo is not None
    path = str(tmp_path / "r")
    command = [sys.executable, "-m", "penstock", "watch", "--to", conninfo, "--interval", "0.2", "--record", path]
    with (
        experiment(ConnectionFactory(over_own_socket(conninfo))) as measured,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching,
    ):
        assert watching.stdout is not None
        watching.stdout.readline()
        result = measured.call(rows=_ROWS, rows_per_commit=1)
        watching.send_signal(signal.SIGTERM)
        watching.communicate(timeout=60)
        assert watching.returncode == 0

    diagnoses = run_json("diagnose", path)
    assert isinstance(diagnoses, dict)
    assert diagnoses["diagnoses"][0]["code"] == "commit-standby"

    report = run_json("commits", "--recording", path)
    assert isinstance(report, dict)
    rates = report["rates"]
    assert rates["commits_per_s"] * rates["elapsed_s"] == pytest.approx(result.use.commits, rel=0.05)
    assert rates["rows_per_commit"] == pytest.approx(1.0, rel=0.05)
    assert rates["is_exact"]
    (committer,) = report["committers"]
    assert committer["application"] == "penstock bench"
    assert committer["waiting"] > 0.5
    predicted = list(committer["predicted_s_per_million_rows"].values())
    assert len(predicted) == 5
    assert sorted(predicted, reverse=True) == predicted
