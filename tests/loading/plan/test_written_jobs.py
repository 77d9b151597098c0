"""Jobs as the ledger has them: what is written down is read again."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from penstock.core.errors import TargetError
from penstock.core.values.dialect import DialectOptions
from penstock.core.values.job import LoadJob, LoadRules, TargetJob
from penstock.core.values.names import parse_table_name
from penstock.loading.plan.identity import job_from_json, job_to_json

_JOB = LoadJob(targets=(TargetJob(sources=("a.csv",), into=parse_table_name("t")),), rules=LoadRules(retry_for=5.0))


def test_written_job_is_read_as_it_was() -> None:
    """With all its rules."""
    assert job_from_json(job_to_json(_JOB)) == _JOB


def test_options_of_columns_are_read_as_they_were() -> None:
    """And a job that was written without them has their defaults."""
    options = DialectOptions(decimal_comma="*", thousands=[" ", "a=."], date_order="dmy")  # type: ignore[arg-type]
    job = replace(_JOB, targets=(replace(_JOB.targets[0], dialect=options),))
    assert job_from_json(job_to_json(job)) == job
    fields = json.loads(job_to_json(_JOB))
    for name in ("decimal_comma", "thousands", "date_order"):
        del fields["targets"][0]["dialect"][name]
    assert job_from_json(json.dumps(fields)) == _JOB


def test_job_of_an_older_version_means_what_it_meant() -> None:
    """The first jobs had no number of their format, and no rule for frozen rows: they were not frozen."""
    fields = json.loads(job_to_json(_JOB))
    del fields["format"], fields["rules"]["freeze"]
    read = job_from_json(json.dumps(fields))
    assert read.rules == replace(_JOB.rules, freeze="never")


def test_former_option_is_read_if_it_says_what_this_version_does() -> None:
    """With another value the job is refused, as one with an option of a later version is."""
    fields = json.loads(job_to_json(_JOB))
    fields["targets"][0]["sync_delete"] = "delete"
    assert job_from_json(json.dumps(fields)) == _JOB
    fields["targets"][0]["sync_delete"] = "SET gone = now()"
    with pytest.raises(TargetError, match='option "sync_delete" is unknown'):
        job_from_json(json.dumps(fields))
