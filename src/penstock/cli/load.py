"""`penstock load`: runs what the arguments ask for and says what came of it."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from penstock.cli import options as given  # noqa: TC001 (typer reads annotations)
from penstock.cli import options_table as table  # noqa: TC001 (typer reads annotations)
from penstock.cli.dialect_view import describe_dialect
from penstock.cli.exit_codes import REJECTS, WOULD_NOT_LOAD
from penstock.cli.messages import Messages, show_warning
from penstock.cli.options_settings import Settings, SharedGroup, parse_settings
from penstock.cli.outcome_view import check_object, describe_check, describe_outcome, describe_problem, outcome_object
from penstock.cli.output import shown_warnings, write_result
from penstock.cli.parsing import SourceOptions
from penstock.cli.progress import showing_progress
from penstock.cli.rejects_view import note_reject_files
from penstock.cli.request import make_request
from penstock.cli.rules import RuleOptions
from penstock.cli.target import warn_of_secrets
from penstock.cli.textcommand import TextCommand
from penstock.errors import DataError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import FrameType

    from penstock.api import Loader
    from penstock.cli.request import Request
    from penstock.model.dialect import Notice
    from penstock.model.outcome import Problem
    from penstock.model.plan import LoadPlan
    from penstock.server.connection import ConnectionFactory

app = typer.Typer(add_completion=False)


@app.command("load", cls=TextCommand)
def load(
    sources: given.Sources,
    into: given.Into = None,
    create: given.Create = False,
    mode: given.Mode = None,
    key: given.Key = None,
    keep: given.Keep = None,
    transform: given.TransformFile = None,
    format_name: given.FormatOption = None,
    delimiter: given.Delimiter = None,
    quote: given.Quote = None,
    escape: given.Escape = None,
    nulls: given.Nulls = None,
    header: given.Header = None,
    encoding: given.Encoding = None,
    columns: given.Columns = None,
    constants: given.Set = None,
    skip: given.Skip = None,
    to: given.To = None,
    role: given.Role = None,
    iam_auth: given.IamAuth = False,
    tunnel: given.Tunnel = None,
    sessions: given.Sessions = None,
    atomic: given.Atomic = False,
    again: given.Again = False,
    changed: given.Changed = None,
    emptied: given.Emptied = None,
    no_wait: given.NoWait = False,
    retry_for: given.RetryFor = None,
    on_error: given.OnErrorOption = None,
    max_rejects: given.MaxRejects = None,
    reject_file: given.RejectFile = None,
    max_record: given.MaxRecord = None,
    spool: given.Spool = False,
    ignore_space: given.IgnoreSpace = False,
    indexes: table.Indexes = None,
    triggers: table.Triggers = None,
    autovacuum: table.Autovacuum = None,
    no_vacuum: table.NoVacuum = False,
    checkpoint: table.Checkpoint = None,
    ledger_schema: given.LedgerSchema = "penstock",
    publish_ledger: given.PublishLedger = False,
    settings: Settings = None,
    shared_group: SharedGroup = False,
    pg_bin: given.BinDir = None,
    plan: given.PlanOnly = False,
    check: given.CheckOnly = False,
    warnings: given.Warnings = None,
    quiet: given.Quiet = False,
    as_json: given.Json = False,
) -> None:
    """Load files into a table: every row once, also after a fault or when it is run again.

    Several sessions load at once, also from a single file. What is loaded is written down in the target database, so
    the same command goes on where it was cut short, and leaves out what is loaded already. A job file (job.toml) loads
    into many tables at once: docs/reference/job.md lists its keys.
    """
    if plan and check:
        raise UsageError("--plan and --check cannot be used together", hint="Each looks at the load in its own way.")
    source_options = SourceOptions(
        sources=tuple(sources or ()),
        into=into,
        create=create,
        format=format_name,
        delimiter=delimiter,
        quote=quote,
        escape=escape,
        nulls=tuple(nulls or ()),
        header=header,
        encoding=encoding,
        columns=columns,
        constants=tuple(constants or ()),
        skip=tuple(skip or ()),
        mode=mode,
        key=key,
        keep=keep,
        transform=transform,
    )
    if not sources:
        raise UsageError("no source to load", hint="Name files or URLs, or - for standard input.")
    rules = RuleOptions(
        atomic=atomic,
        again=again,
        changed=changed,
        emptied=emptied,
        no_wait=no_wait,
        retry_for=retry_for,
        on_error=on_error,
        max_rejects=max_rejects,
        reject_file=reject_file,
        ignore_space=ignore_space,
        indexes=indexes,
        triggers=triggers,
        autovacuum=autovacuum,
        vacuum=False if no_vacuum else None,
        checkpoint=checkpoint,
        max_record=max_record,
        warnings=warnings,
    )
    request = make_request(source_options, rules, to=to, role=role, sessions=sessions)
    request = replace(request, iam_auth=iam_auth, tunnel=tunnel)
    if request.to is not None and pg_bin is not None:
        raise UsageError(
            "--pg-bin is for the embedded server only",
            detail="A connection string names another server.",
            hint="Leave one of the two out.",
        )
    if settings is None and not check:
        settings = request.settings
    messages = Messages(is_quiet=quiet)
    warn_of_secrets(to, sources=sources)
    command = LoadCommand(messages=messages, is_quiet=quiet, as_json=as_json)
    house = Housekeeping(
        ledger_schema=ledger_schema,
        is_publishing_allowed=publish_ledger,
        spools=spool,
        reject_file=None if reject_file is None else Path(reject_file),
        settings=parse_settings(settings, may_share_group=shared_group, only_checks=check),
        may_share_group=shared_group,
    )
    with interrupting_signals():
        command.run(
            request,
            house,
            pg_bin=None if pg_bin is None else Path(pg_bin),
            action="plan" if plan else "check" if check else "load",
        )


@contextmanager
def interrupting_signals() -> Iterator[None]:
    """Let a signal to end be like Ctrl-C: what is under way is committed, and a second one gives it up."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    # nohup has SIGHUP ignored, and that is to stay.
    taken = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) == signal.SIG_DFL]
    for number in taken:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Housekeeping:
    """Where loads are written down, whether pipes are copied to disk first, and where rejected records go.

    `resumes` is the load that is to be gone on with.
    """

    ledger_schema: str = "penstock"
    is_publishing_allowed: bool = False
    spools: bool = False
    reject_file: Path | None = None
    settings: str = "none"
    may_share_group: bool = False
    resumes: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadCommand:
    """One run of the command and how it talks."""

    messages: Messages
    is_quiet: bool
    as_json: bool

    def run(
        self, request: Request, house: Housekeeping, *, pg_bin: Path | None, action: Literal["plan", "check", "load"]
    ) -> None:
        """Do what was asked for. Raises PenstockError, typer.Exit."""
        from penstock.api import Loader, connect_to

        connect = connect_to(
            request.to, role=request.role, pg_bin=pg_bin, iam_auth=request.iam_auth, tunnel=request.tunnel
        )
        with Loader(
            connect,
            ledger_schema=house.ledger_schema,
            is_publishing_allowed=house.is_publishing_allowed,
            spools=house.spools,
            settings=house.settings,
            may_share_group=house.may_share_group,
            resumes=house.resumes,
        ) as loader:
            plan = loader.plan(request.job, on_notice=self.messages.note)
            if house.reject_file is not None:
                check_reject_file(house.reject_file, plan)
            if action == "plan":
                self._plan(loader, plan, connect)
                return
            connect.refuse_pooler(action)
            self._announce(plan)
            if request.job.rules.warnings == "error" and (warned := shown_warnings()):
                from penstock.loading.warned import strict_error

                raise strict_error(warned[0])
            if action == "check":
                self._check(loader, plan)
            else:
                self._load(loader, plan, house)

    def _plan(self, loader: Loader, plan: LoadPlan, connect: ConnectionFactory) -> None:
        from penstock.cli.plan_view import describe_plan, plan_object, plan_warnings

        rules = plan.job.rules
        loader.check_dialects(plan)
        disks = loader.forecast(plan)
        settings = loader.plan_settings(plan)
        warned = [*shown_warnings(), *plan_warnings(plan, disks)]
        if self.as_json:
            shown = plan_object(plan, loader.server, disks, settings=settings)
            write_result(shown | {"warnings": [notice.as_item() for notice in warned]})
        else:
            write_result(describe_plan(plan, loader.server, disks, settings=settings))
        if warned and rules.warnings == "error":
            raise typer.Exit(UsageError.exit_code)
        is_short = any(disk.is_short for disk in disks) and not rules.ignores_space
        is_without_lease = settings is not None and settings.is_refusing
        if is_short or is_without_lease or connect.pooler is not None:
            raise typer.Exit(WOULD_NOT_LOAD)

    def _announce(self, plan: LoadPlan) -> None:
        """Say what the files were taken for, and what is odd about them."""
        for target in plan.targets:
            name = f"dialect of {target.table}" if len(plan.targets) > 1 else "dialect"
            self.messages.note(f"{name}: {describe_dialect(target.dialect, target.sample_compression)}")
        for notice in plan.notices:
            show_warning(notice)

    def _load(self, loader: Loader, plan: LoadPlan, house: Housekeeping) -> None:
        with showing_progress(self.messages, is_quiet=self.is_quiet) as on_progress:
            outcome = loader.run(plan, on_progress=on_progress, on_notice=self.messages.note, on_warning=show_warning)
        as_text = describe_outcome(outcome)
        done = f"The load itself succeeded: {as_text[0]}."
        self._print(outcome_object(outcome), as_text, done=done)
        if outcome.rejected and outcome.load_id is not None:
            if house.reject_file is not None:
                note_reject_files(loader.write_rejects(outcome.load_id, house.reject_file), self.messages)
            raise typer.Exit(REJECTS)
        _refuse_late(outcome.warnings, plan)

    def _check(self, loader: Loader, plan: LoadPlan) -> None:
        on_problem = None if self.as_json else _print_problem
        with showing_progress(self.messages, is_quiet=self.is_quiet) as on_progress:
            outcome = loader.check(plan, on_problem=on_problem, on_progress=on_progress, on_warning=show_warning)
        self._print(check_object(outcome), [describe_check(outcome)])
        if outcome.problems:
            raise typer.Exit(DataError.exit_code)
        _refuse_late(outcome.warnings, plan)

    def _print(self, as_object: dict[str, object], as_text: list[str], *, done: str | None = None) -> None:
        """Print a result; a quiet command prints one only where it was asked for as JSON."""
        if self.as_json:
            write_result(as_object | {"warnings": [notice.as_item() for notice in shown_warnings()]}, done=done)
        elif not self.is_quiet:
            write_result(as_text, done=done)


def _refuse_late(warnings: Sequence[Notice], plan: LoadPlan) -> None:
    """Exit as for an error where one is a warning and came when all was done; the result tells what that is."""
    if warnings and plan.job.rules.warnings == "error":
        raise typer.Exit(UsageError.exit_code)


def check_reject_file(path: Path, plan: LoadPlan) -> None:
    """Refuse before the load a file that could not be written after it, or that would replace a source."""
    from penstock.files.newfile import check_writable

    objects = [source for target in plan.targets for source in target.objects]
    # Standard input may be a file too
    check_writable(path, sources=[0 if source.location == "-" else source.location for source in objects])


def _print_problem(problem: Problem) -> None:
    write_result(describe_problem(problem))
