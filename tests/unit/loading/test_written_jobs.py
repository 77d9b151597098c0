"""Jobs as the ledger has them: what is written down is read again, also what earlier versions wrote."""

from __future__ import annotations

import json

from penstock.loading.identity import job_from_json, job_to_json
from penstock.model.job import LoadJob, LoadRules, TargetJob
from penstock.model.names import parse_table_name

_JOB = LoadJob(targets=(TargetJob(sources=("a.csv",), table=parse_table_name("t")),), rules=LoadRules(retry_for_s=5.0))


def test_written_job_is_read_as_it_was() -> None:
    """With all its rules."""
    assert job_from_json(job_to_json(_JOB)) == _JOB


def test_rules_that_earlier_versions_had_by_default_are_read_as_todays() -> None:
    """Autovacuum that is paused once it is seen, and VACUUM within a budget, are no more."""
    written = json.loads(job_to_json(_JOB))
    written["rules"] |= {"autovacuum": "auto", "vacuums": None}
    assert job_from_json(json.dumps(written)) == _JOB
    written["rules"] |= {"autovacuum": "pause", "vacuums": False}
    rules = job_from_json(json.dumps(written)).rules
    assert (rules.autovacuum, rules.vacuums) == ("pause", False)
