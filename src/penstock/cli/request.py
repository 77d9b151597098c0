"""From what was typed to a job: by options alone, or by a job file that some options override."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli.parsing import (
    parse_columns,
    parse_constants,
    parse_dialect,
    parse_keep,
    parse_key,
    parse_mode,
    parse_sessions,
)
from penstock.cli.rules import fill_rules, parse_rules
from penstock.errors import SourceError, UsageError
from penstock.model.job import LoadJob, TargetJob
from penstock.model.names import parse_table_name

if TYPE_CHECKING:
    from penstock.cli.parsing import SourceOptions
    from penstock.cli.rules import RuleOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A job and where it goes; `to` may hold a password. `settings` is a job file's, None without."""

    job: LoadJob
    to: str | None
    role: str | None
    iam_auth: bool = False
    tunnel: str | None = None
    settings: str | None = None

    def __repr__(self) -> str:
        return f"Request({self.job!r}, role={self.role!r})"


def make_request(
    options: SourceOptions, rule_options: RuleOptions, *, to: str | None, role: str | None, sessions: str | None
) -> Request:
    """Return what to load and where. Raises UsageError."""
    if options.is_job_file:
        return _read_request(options, rule_options, to=to, role=role, sessions=sessions)
    rules = parse_rules(rule_options)
    if options.into is None:
        raise UsageError("no table to load into", hint="Name it with --into TABLE, or give a job file (.toml) alone.")
    if any(source.lower().endswith(".toml") for source in options.sources):
        raise UsageError(
            "--into cannot be used with a job file",
            detail="A source that ends with .toml is a job file, which names its own tables.",
            hint="Give the job file alone, or pipe data of that name in with - as the source.",
        )
    from penstock.loading.transformfile import read_transform

    target = TargetJob(
        sources=options.sources,
        table=parse_table_name(options.into),
        dialect=parse_dialect(options),
        columns=parse_columns(options.columns),
        constants=parse_constants(options.constants),
        skip=options.skip,
        create=options.create,
        mode=parse_mode(options),
        key=parse_key(options.key),
        keep=parse_keep(options),
        transform=None if options.transform is None else read_transform(Path(options.transform)),
    )
    return Request(job=LoadJob(targets=(target,), sessions=parse_sessions(sessions), rules=rules), to=to, role=role)


def _read_request(
    options: SourceOptions, rule_options: RuleOptions, *, to: str | None, role: str | None, sessions: str | None
) -> Request:
    refused = options.given_names()
    if refused:
        raise UsageError(
            f"{refused[0]} cannot be used with a job file",
            detail=f"{options.sources[0]} describes its own targets.",
            hint="Write it into the [[target]] that it is for; what is not about one target may be given here.",
        )
    from penstock.loading.jobfile import read_job_file

    path = Path(options.sources[0])
    if not path.exists():
        raise SourceError(f'job file "{path}" does not exist')
    found = read_job_file(path)
    job = replace(found.job, rules=parse_rules(fill_rules(rule_options, found.rules)))
    job = job if sessions is None else replace(job, sessions=parse_sessions(sessions))
    return Request(
        job=job,
        to=found.to if to is None else to,
        role=found.role if role is None else role,
        settings=found.settings,
    )
