"""Jobs as the ledger has them: what is written down is read again."""

from __future__ import annotations

import json
from dataclasses import replace

from penstock.core.values.job import LoadJob, LoadRules, TargetJob
from penstock.core.values.names import parse_table_name
from penstock.loading.plan.identity import job_from_json, job_to_json

_JOB = LoadJob(targets=(TargetJob(sources=("a.csv",), into=parse_table_name("t")),), rules=LoadRules(retry_for=5.0))


def test_written_job_is_read_as_it_was() -> None:
    """With all its rules."""
    assert job_from_json(job_to_json(_JOB)) == _JOB


def test_job_of_an_older_version_means_what_it_meant() -> None:
    """The first jobs had no number of their format, and no rule for frozen rows: they were not frozen."""
    fields = json.loads(job_to_json(_JOB))
    del fields["format"], fields["rules"]["freeze"]
    read = job_from_json(json.dumps(fields))
    assert read.rules == replace(_JOB.rules, freeze="never")
