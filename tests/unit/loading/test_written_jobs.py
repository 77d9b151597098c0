"""Jobs as the ledger has them: what is written down is read again, also what earlier versions wrote."""

from __future__ import annotations

from penstock.loading.plan.identity import job_from_json, job_to_json
from penstock.model.load.job import LoadJob, LoadRules, TargetJob
from penstock.model.server.names import parse_table_name
from penstock.model.server.table import TableName
from penstock.model.source.dialect import DialectOptions

_JOB = LoadJob(targets=(TargetJob(sources=("a.csv",), into=parse_table_name("t")),), rules=LoadRules(retry_for=5.0))


def test_written_job_is_read_as_it_was() -> None:
    """With all its rules."""
    assert job_from_json(job_to_json(_JOB)) == _JOB


def test_job_of_an_earlier_version_is_read_by_todays_names() -> None:
    """Its fields were called otherwise; and of its defaults two are no more."""
    written = """{"targets": [{"sources": ["/f.csv"], "table": {"schema": "s", "name": "T"},
        "dialect": {"format": "csv", "delimiter": ";", "quote": null, "escape": null, "nulls": ["", "-"],
                    "has_header": false, "encoding": null},
        "columns": ["a", "b"], "constants": {"c": "1"}, "skip": ["b"], "create": true, "mode": "upsert", "key": ["a"],
        "keep": "last", "transform": null}],
      "sessions": 3,
      "rules": {"is_atomic": true, "is_again": true, "on_changed": "load", "on_emptied": "skip", "waits": false,
        "retry_for_s": 5.0, "on_error": "reject", "max_rejects": 7, "ignores_space": true, "indexes": "keep",
        "vacuums": null, "checkpoints": true, "triggers": "disable", "autovacuum": "auto",
        "max_record_bytes": 2000000, "warnings": "error"}}"""
    target = TargetJob(
        sources=("/f.csv",),
        into=TableName(schema="s", name="T"),
        dialect=DialectOptions(format="csv", delimiter=";", null=("", "-"), header=False),
        columns=("a", "b"),
        set={"c": "1"},
        skip=("b",),
        create=True,
        mode="upsert",
        key=("a",),
        keep="last",
    )
    rules = LoadRules(
        atomic=True,
        again=True,
        changed="load",
        emptied="skip",
        wait=False,
        retry_for=5.0,
        on_error="reject",
        max_rejects=7,
        ignore_space=True,
        indexes="keep",
        checkpoint=True,
        triggers="disable",
        max_record=2_000_000,
        warnings="error",
    )
    assert job_from_json(written) == LoadJob(targets=(target,), sessions=3, rules=rules)
    kept = job_from_json(written.replace('"vacuums": null', '"vacuums": false').replace('"auto"', '"pause"'))
    assert (kept.rules.vacuum, kept.rules.autovacuum) == (False, "pause")
