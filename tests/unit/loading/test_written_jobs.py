"""Jobs as the ledger has them: what is written down is read again."""

from __future__ import annotations

from penstock.core.values.job import LoadJob, LoadRules, TargetJob
from penstock.core.values.names import parse_table_name
from penstock.loading.plan.identity import job_from_json, job_to_json

_JOB = LoadJob(targets=(TargetJob(sources=("a.csv",), into=parse_table_name("t")),), rules=LoadRules(retry_for=5.0))


def test_written_job_is_read_as_it_was() -> None:
    """With all its rules."""
    assert job_from_json(job_to_json(_JOB)) == _JOB
