"""`penstock load` runs, plans or checks a load; `penstock resume` resumes one from the job that the ledger records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from penstock.api.options import RESUME
from penstock.cli.options import (
    LOAD_OPTIONS,
    TARGET_OPTIONS,
    Json,
    QuietLoad,
    UnfinishedId,
    flag,
    open_target,
    takes,
    warn_of_secrets,
)
from penstock.cli.output import (
    REJECTS,
    WOULD_NOT_LOAD,
    Messages,
    remember_target,
    show_warning,
    shown_warnings,
    spell_as_keys,
    write_message,
    write_result,
)
from penstock.core.errors import DataError, FileLocation, LeftOutError, SourceError, UsageError
from penstock.core.slotted import slotted
from penstock.core.values.job import Access, Housekeeping, Request
from penstock.core.values.options import OptionError, pick, spell_options
from penstock.loading.command.progress import showing_progress
from penstock.loading.command.rejects import note_reject_files
from penstock.loading.jobs import make_request, make_target, no_table, read_job_file
from penstock.loading.views.outcome import (
    check_object,
    describe_check,
    describe_outcome,
    describe_problem,
    describe_rejected,
    outcome_object,
)

if TYPE_CHECKING:
    from penstock.core.connect.connection import ConnectionFactory
    from penstock.core.values.notice import Notice
    from penstock.loading.loader import Loader
    from penstock.loading.values.outcome import LoadProgress
    from penstock.loading.values.plan import LoadPlan

    Show = Callable[[LoadProgress], None] | None
    Adding = Callable[[Show], Show]

Sources = Annotated[
    list[str],
    typer.Argument(
        metavar="SOURCE",
        show_default=False,
        help="Files to load: paths, directories, wildcards, s3, gs, az, http and https URLs, or - for standard input; "
        "compressed or not. Or one job file that ends with .toml.",
    ),
]
PlanOnly = Annotated[
    bool,
    typer.Option("--plan", rich_help_panel="What is done and shown", help="Print what would be done, and do nothing."),
]
CheckOnly = Annotated[
    bool,
    typer.Option(
        "--check",
        rich_help_panel="What is done and shown",
        help="Have the server parse everything; load nothing. Bad records are reported, the first 1,000 of them. "
        "Types, NOT NULL and CHECK are checked; keys, foreign keys, partition routing, triggers "
        "and row security are not.",
    ),
]
Ray = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="ADDRESS",
        help="Load together with the nodes of the Ray cluster at this address (auto: the one that Ray finds), as by "
        "--join: one process on each node, which Ray starts again if it dies. Needs the extra ray, here and there.",
    ),
]
Members = Annotated[
    str | None,
    typer.Option(
        "--members", metavar="N", help="With --ray, how many processes to start (default: one for each node)."
    ),
]


@takes([*TARGET_OPTIONS, *LOAD_OPTIONS])
def load(
    sources: Sources,
    plan: PlanOnly = False,
    check: CheckOnly = False,
    ray: Ray = None,
    members: Members = None,
    quiet: QuietLoad = False,
    as_json: Json = False,
    **options: Any,
) -> None:
    """Load files into a table, each row exactly once. Run it again after a fault: it continues where it stopped.

    Several sessions load at once, even from a single file. What is loaded is recorded in the target database, so the
    same command resumes an interrupted load, and skips what is loaded already. A job file (job.toml) loads into many
    tables at once: docs/reference/job.md lists its keys.
    """
    if plan and check:
        raise UsageError("--plan and --check cannot be used together", hint="Each looks at the load in its own way.")
    if check and options.get("settings", "none") != "none":
        raise UsageError("--settings and --check cannot be used together", hint="A check writes nothing.")
    if ray is not None and (plan or check):
        raise UsageError("--ray cannot be used with --plan and --check", hint="Use --join to plan such a load.")
    if members is not None and ray is None:
        raise UsageError("--members needs --ray", hint="Without Ray, run the command with --join on each host.")
    if not sources:
        raise UsageError("no source to load", hint="Name files or URLs, or - for standard input.")
    request = _read_request(sources, options | ({"join": True} if ray is not None else {}))
    if ray is not None and any(target.landing.is_fresh for target in request.job.targets):
        raise UsageError(
            "--ray cannot be used with --mode truncate and replace, nor with --partition-of",
            detail="A process that Ray starts when the load is complete would load the files again.",
            hint="Run the command with --join on each host instead.",
        )
    if check:
        house = replace(request.housekeeping, settings="none", shared_group=False)
        request = replace(request, housekeeping=house)
    warn_of_secrets(options.get("to"), sources=sources)
    if members is not None and not (members.isdecimal() and int(members)):
        raise OptionError("--members", members, "a number of 1 or more")
    count = None if members is None else int(members)
    command = LoadCommand(messages=Messages(is_quiet=quiet), as_json=as_json, ray=ray, members=count)
    command.run(request, action="plan" if plan else "check" if check else "load")


def _read_request(sources: Sequence[str], options: Mapping[str, Any]) -> Request:
    """Return the request of the options, or of a job file. Options override keys of the job file.

    Raises UsageError.
    """
    is_job_file = [source.lower().endswith(".toml") for source in sources]
    if "into" not in options and is_job_file == [True]:
        request = _read_job_file(Path(sources[0]), options)
        spell_as_keys(is_job_file=True)
        return request
    if "into" not in options:
        raise no_table()
    if any(is_job_file):
        raise UsageError(
            "--into cannot be used with a job file",
            detail="A source that ends with .toml is a job file, which names its own tables.",
            hint="Give the job file alone, or pipe data of that name in with - as the source.",
        )
    return make_request(options, [make_target(options, sources=sources)])


def _read_job_file(path: Path, options: Mapping[str, Any]) -> Request:
    for name in options:
        if name in TARGET_OPTIONS:
            raise UsageError(
                f"{flag(TARGET_OPTIONS[name], options[name])} cannot be used with a job file",
                detail=f"{path} describes its own targets.",
                hint="Write it into the [[target]] that it is for; what is not about one target may be given here.",
            )
    # If a folder above may not be searched, read_job_file says so.
    with suppress(PermissionError):
        if not path.exists():
            raise SourceError(f'job file "{path}" does not exist', location=FileLocation(file=str(path)))
    return read_job_file(path, options)


@slotted
class LoadCommand:
    """One run of `penstock load`. `run` plans, checks or runs the load, and prints the result.

    `ray` is the address of a Ray cluster whose nodes load too, and `members` how many processes are started there.
    """

    messages: Messages
    as_json: bool
    ray: str | None = None
    members: int | None = None

    def run(self, request: Request, *, action: Literal["plan", "check", "load"], resumes: str | None = None) -> None:
        """Do what `action` says, and print the result. If `resumes` is given, it is the id of the load to resume.

        Raises PenstockError. Raises typer.Exit if the exit code is to be other than 0 although no error was raised.
        """
        from penstock.api.connect import connect_to
        from penstock.core.host.process import keep_freed_memory
        from penstock.loading.loader import Loader

        keep_freed_memory()
        access, house = request.access, request.housekeeping
        # The names of the server and the ledger are known by themselves, and a recording is a new file.
        more = spell_options(replace(access, to=None, pg_bin=None, role=None, tunnel=None, iam_auth=False))
        more += spell_options(replace(house, ledger_schema=Housekeeping().ledger_schema, record=None))
        remember_target(asdict(access) | {"ledger_schema": house.ledger_schema, "load": more})
        connect = connect_to(**asdict(request.access))
        with Loader(connect, request.housekeeping, resumes=resumes) as loader:
            plan = loader.plan(request.job, on_notice=self.messages.note, refuses_changed=action != "check")
            if action == "plan":
                self._plan(loader, plan, connect)
                return
            connect.refuse_unwritable(action)
            self._announce(plan)
            if request.job.rules.warnings == "error" and (warned := shown_warnings()):
                from penstock.loading.warned import strict_error

                raise strict_error(warned[0])
            if action == "check":
                self._check(loader, plan)
            else:
                with self._on_ray(request, connect) as adding:
                    self._load(loader, plan, adding)

    @contextmanager
    def _on_ray(self, request: Request, connect: ConnectionFactory) -> Iterator[Adding | None]:
        """With --ray, start members, and provide the function that adds their progress.

        The members end with the block.
        """
        if self.ray is None:
            yield None
            return
        if connect.is_embedded:
            raise UsageError("--ray needs a server that all nodes reach", hint="Name it with --to.")
        from penstock.api.ray_members import RayMembers, make_order

        members = RayMembers(make_order(request), address=self.ray, count=self.members, notice=self.messages.note)
        is_complete = False
        try:
            yield members.adding
            is_complete = True
        except (typer.Exit, LeftOutError):
            is_complete = True
            raise
        finally:
            members.close(is_complete=is_complete)

    def _plan(self, loader: Loader, plan: LoadPlan, connect: ConnectionFactory) -> None:
        from penstock.loading.views.plan import describe_plan, plan_object

        rules = plan.job.rules
        foreseen = loader.foresee(plan)
        warned = [*shown_warnings(), *foreseen.notices]
        if self.as_json:
            write_result(plan_object(foreseen) | {"warnings": warned})
        else:
            write_result(describe_plan(foreseen))
        if warned and rules.warnings == "error":
            raise typer.Exit(UsageError.exit_code)
        if any(part.is_refusing for part in foreseen.steps.values()) or connect.explain_unwritable("load") is not None:
            raise typer.Exit(WOULD_NOT_LOAD)

    def _announce(self, plan: LoadPlan) -> None:
        """Print the dialect of each target, the route if --via is given, and the warnings of the plan."""
        from penstock.loading.formats import format_of

        for target in plan.targets:
            name = f"dialect of {target.table}" if len(plan.targets) > 1 else "dialect"
            self.messages.note(f"{name}: {format_of(target).describe(target)}")
        if plan.job.rules.via != "client":
            from penstock.loading.views.plan import describe_route

            self.messages.note(f"route: {describe_route(plan.route)}")
        for notice in plan.notices:
            show_warning(notice)

    def _load(self, loader: Loader, plan: LoadPlan, adding: Adding | None) -> None:
        with showing_progress(self.messages) as shown:
            on_progress = shown if adding is None else adding(shown)
            outcome = loader.run(plan, on_progress=on_progress, on_notice=self.messages.note, on_warning=show_warning)
        as_text = describe_outcome(outcome)
        done = f"The load itself succeeded: {as_text[0]}."
        self._print(outcome_object(outcome), as_text, done=done)
        if self.messages.is_quiet and not self.as_json and (rejected := describe_rejected(outcome)):
            write_message(*rejected)
        if outcome.rejected and outcome.load_id is not None:
            note_reject_files(loader.write_rejects(outcome), self.messages)
        _refuse_late(outcome.warnings, plan)
        if outcome.rejected is None or outcome.rejected or outcome.rejects_left or outcome.unreadable:
            raise typer.Exit(REJECTS)

    def _check(self, loader: Loader, plan: LoadPlan) -> None:
        on_problem = None if self.as_json else lambda problem: write_result(describe_problem(problem))
        with showing_progress(self.messages) as on_progress:
            outcome = loader.check(plan, on_problem=on_problem, on_progress=on_progress, on_warning=show_warning)
        self._print(check_object(outcome), [describe_check(outcome)])
        if outcome.problems:
            raise typer.Exit(DataError.exit_code)
        _refuse_late(outcome.warnings, plan)

    def _print(self, as_object: dict[str, object], as_text: list[str], *, done: str | None = None) -> None:
        """Print a result. With --quiet, print it only if --json is given."""
        if self.as_json:
            write_result(as_object | {"warnings": shown_warnings()}, done=done)
        elif not self.messages.is_quiet:
            write_result(as_text, done=done)


def _refuse_late(warnings: Sequence[Notice], plan: LoadPlan) -> None:
    """Exit with code 2 if --warnings error is given and the load gave a warning after its rows were committed."""
    if warnings and plan.job.rules.warnings == "error":
        raise typer.Exit(UsageError.exit_code)


@takes(("to", "pg_bin", *RESUME))
def resume(load_id: UnfinishedId, quiet: QuietLoad = False, as_json: Json = False, **options: Any) -> None:
    """Resume a load that was cut short. Any host that reads the same sources can do so.

    The sources, the tables and the options of the job are those of the command that began the load. Give --settings,
    --reject-file and --read-write again.
    """
    from penstock.api.ledger_view import LedgerView

    messages = Messages(is_quiet=quiet)
    house = Housekeeping(**pick(Housekeeping, options))
    with LedgerView(open_target(options), ledger_schema=house.ledger_schema) as view:
        whole_id, job = view.find_resumed(load_id, options, on_notice=messages.note)
    request = Request(job=job, access=Access(**pick(Access, options)), housekeeping=house)
    command = LoadCommand(messages=messages, as_json=as_json)
    command.run(request, action="load", resumes=whole_id)
