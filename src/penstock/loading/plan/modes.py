"""Modes of a load: which options may be combined, and where COPY puts a target's records. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors import SourceError, TargetError, UsageError
from penstock.files.probe.folders import read_folder_values
from penstock.model.load.job import TargetJob
from penstock.model.load.mode import LANDINGS, Landing
from penstock.model.load.plan import TargetPlan
from penstock.model.server.table import TableFacts
from penstock.model.source.dialect import Notice
from penstock.model.source.source import SourceObject


def check_mode(job: TargetJob, facts: TableFacts | None) -> None:
    """Raise UsageError or TargetError if the mode cannot be used with the other options, or with the table."""
    landing = job.landing
    if job.transform is not None and not LANDINGS[job.mode].adds:
        raise UsageError(
            f"--transform cannot be used with --mode {job.mode}",
            hint="Let the statement do it: INSERT ... ON CONFLICT, or MERGE.",
        )
    if landing.is_keyed and not job.key:
        raise UsageError(f"--mode {job.mode} needs --key", hint="Name the columns of a unique index: --key a,b.")
    if not landing.is_keyed and job.key:
        raise UsageError(f"--key cannot be used with --mode {job.mode}", hint="It is for upsert and insert-new.")
    if job.keep not in ("error", job.used_keep):
        raise UsageError(
            f"--keep cannot be used with --mode {job.mode}",
            hint="It is for --mode upsert; insert-new keeps the first record.",
        )
    if facts is None and job.transform is not None:
        raise UsageError("--create cannot be used with --transform", hint=f'Create table "{job.into}" first.')
    if facts is not None and landing.where == "replacement" and facts.row_security_applies:
        raise TargetError(
            f'cannot replace table "{facts.name}": row-level security applies to the role',
            detail="Rows of the new table would not be checked against the policies.",
            hint="Load as a role that has BYPASSRLS, or with --mode truncate.",
        )


def explain_emptying(job: TargetJob, *, detail: str, hint: str | None) -> TargetError:
    """Return the error for a load that would empty a table and has no record for it."""
    return TargetError(
        f'--mode {job.mode} would empty table "{job.into}" and load nothing',
        detail=detail,
        hint=hint or "If the table is to be empty, use TRUNCATE.",
    )


def check_types(job: TargetJob, facts: TableFacts | None, objects: Sequence[SourceObject], *, is_typed: bool) -> None:
    """Raise UsageError or SourceError if the types of columns cannot be found in the values of the files."""
    if job.types == "text":
        return
    option = f"--types {job.types}"
    if is_typed and not any(read_folder_values(source.uri) for source in objects):
        raise UsageError(f"{option} cannot be used with columnar files", hint="Leave it out: the files have types.")
    if job.transform is not None:
        raise UsageError(f"{option} cannot be used with --transform", hint="The statement reads columns of type text.")
    if job.types == "infer" and not job.create:
        raise UsageError(f"{option} needs --create", hint="It chooses the types of a table that is created.")
    once = next((source for source in objects if source.is_pipe and not source.is_spooled), None)
    if once is not None and (facts is None or job.types == "widen"):
        raise SourceError(
            f'{option} cannot be used with "{once.uri}", which can be read only once',
            detail="Every value is looked at before the first row is loaded.",
            hint="Use --spool, which copies it to a temporary file.",
        )


def choose_landing(job: TargetJob, facts: TableFacts | None, *, is_atomic: bool) -> Landing:
    """Return how the records get into the table.

    COPY refuses a table whose row-level security applies to the role, so such a table needs a staging table. So does an
    atomic load that truncates: its TRUNCATE would block readers during the whole load.
    """
    has_policies = facts is not None and facts.row_security_applies
    return job.landing.staged() if has_policies or (is_atomic and job.landing.truncates) else job.landing


def refuse_shared_tables(targets: Sequence[TargetPlan]) -> None:
    """Raise UsageError if two targets have the same table with different modes, or would stage or replace it twice."""
    first: dict[str, TargetPlan] = {}
    for target in targets:
        name = str(target.table)
        other = first.setdefault(name, target)
        if other is target:
            continue
        modes = {other.job.mode, target.job.mode}
        if len(modes) > 1 or (not target.landing.adds and not target.fills_table):
            raise UsageError(
                f'table "{name}" is the target of two sets of sources',
                detail=f"Modes: {', '.join(sorted(modes))}.",
                hint="Name all sources in one target, or run two loads.",
            )


def describe_notices(job: TargetJob, facts: TableFacts) -> list[Notice]:
    """Return warnings about a mode's effects that the user may not expect."""
    if job.landing.where == "replacement" and facts.suppressing_triggers:
        return [
            Notice(
                code="triggers",
                message=f'row triggers of table "{facts.name}" do not fire for the new rows',
                hint="They are created on the new table after it is loaded. With --mode truncate they fire.",
            )
        ]
    return []
