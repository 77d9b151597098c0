"""Plans, checks and runs loads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from penstock.core.aws.credentials import AwsCredentials
from penstock.core.catalogue.catalog import DiskForecast
from penstock.core.catalogue.lock_watch import watch_locks
from penstock.core.closing import Closing, log_notice, log_warning
from penstock.core.connect.connection import Connection, ConnectionFactory
from penstock.core.errors import PenstockError, TableExistsError
from penstock.core.newfile import check_new, check_writable
from penstock.core.tuning import DEFAULT_TUNING, LoadTuning
from penstock.core.values.job import Housekeeping, LoadJob
from penstock.core.values.notice import Notice
from penstock.core.values.options import OptionError
from penstock.ledger.ledger import Ledger
from penstock.ledger.listing import find_left_rejects
from penstock.ledger.rights import read_rights
from penstock.ledger.schema import has_ledger
from penstock.ledger.values import LeftRejects
from penstock.loading.claim.claim import foresee_load
from penstock.loading.context import LoadTools, Patience, patiently
from penstock.loading.files.listing import recorded_name
from penstock.loading.files.streams import SourceReader
from penstock.loading.formats import FORMATS
from penstock.loading.imports.route import refuse_check
from penstock.loading.plan.modes import refuse_altered
from penstock.loading.plan.remedies import add_command
from penstock.loading.plan.space import SpaceGuard
from penstock.loading.plan_load import PlanTools, plan_load
from penstock.loading.run import run_load
from penstock.loading.steps.order import plan_steps
from penstock.loading.steps.step import find_left
from penstock.loading.values.objects import all_objects
from penstock.loading.values.outcome import BadRecord, CheckOutcome, LoadOutcome, LoadProgress
from penstock.loading.values.plan import ForeseenLoad, LoadPlan
from penstock.loading.warned import WarningLog, strict_error
from penstock.loading.watch import LoadWatch

if TYPE_CHECKING:
    from penstock.loading.yielding.brake import Brake
    from penstock.settings.backend import SettingsBackend


class Listener:
    """Calls `on_progress` with the progress. If it raises an exception, the load gets a KeyboardInterrupt instead.

    After that, `on_progress` is not called any more.
    """

    def __init__(self, on_progress: Callable[[LoadProgress], None]) -> None:
        self._on_progress = on_progress
        self._failure: BaseException | None = None

    def __call__(self, progress: LoadProgress) -> None:
        """Call the function, unless it has raised an exception before."""
        if self._failure is not None:
            return
        try:
            self._on_progress(progress)
        except KeyboardInterrupt:
            raise
        except BaseException as exc:
            self._failure = exc
            raise KeyboardInterrupt from exc

    @contextmanager
    def raising(self) -> Iterator[None]:
        """Run the load in the block. If `on_progress` has raised an exception, raise that exception after the block.

        If the block raises a PenstockError because of this, the error's text becomes a note of the exception. Otherwise
        the note says that the load is complete.
        """
        note = "The load is complete."
        try:
            yield
        except PenstockError as error:
            if self._failure is None:
                raise
            note = str(error)
        if self._failure is not None:
            self._failure.add_note(note)
            raise self._failure


_Result = TypeVar("_Result")

_HOUSEKEEPING = Housekeeping()


class Loader(Closing):
    """Plans, checks and runs loads into one server. Close it, or use it as a context manager.

    If `resumes` is given, it is the id of the load to resume, and no other load is begun. Standard input can be read
    only once, so plan and run with the same Loader, and plan only one job with it. Warnings and notices are logged if
    no callback is given for them. `sources` is called to create what reads files and objects.
    """

    def __init__(
        self,
        connect: ConnectionFactory,
        housekeeping: Housekeeping = _HOUSEKEEPING,
        *,
        resumes: str | None = None,
        tuning: LoadTuning = DEFAULT_TUNING,
        sources: Callable[..., SourceReader] = SourceReader,
    ) -> None:
        if housekeeping.settings not in ("none", "auto"):
            # Import the profiles only if the load changes settings.
            from penstock.settings.decide import PROFILES  # noqa: PLC0415 (19 ms)

            if housekeeping.settings not in PROFILES:
                raise OptionError("settings", housekeeping.settings, f"none, auto or {', '.join(PROFILES)}")
        self._connect = connect
        self._locks = watch_locks(connect)
        self._resumes = resumes
        self._tuning = tuning
        self._housekeeping = housekeeping
        self._ledger = Ledger(housekeeping.ledger_schema)
        self._make_sources = sources
        self._sources: SourceReader | None = None
        self._retry_for_s = 0.0
        self._on_notice: Callable[[str], None] = log_notice

    def close(self) -> None:
        """Close the sources, and the session that is kept for further use."""
        if self._sources is not None:
            self._sources.close()
        self._connect.close()

    def plan(
        self, job: LoadJob, *, on_notice: Callable[[str], None] | None = None, refuses_changed: bool = True
    ) -> LoadPlan:
        """Examine sources, tables and server, and return what a load would do. Nothing is changed.

        Raises PenstockError. If the size of an object differs from that of the object that was loaded, TargetError is
        raised before an object is read, unless the job says what to do with changed objects. For `check`, which reads
        such objects nevertheless, set `refuses_changed` to false. `on_notice` is called with what the planning waits
        for. After the first successful connection, transient errors are retried as during the load.
        """
        self._retry_for_s, self._on_notice = job.rules.retry_for, on_notice or log_notice
        self._locks.limit_s, self._locks.notice = self._retry_for_s, self._on_notice
        plan = self._patiently(lambda: self._look(job, refuses_changed=refuses_changed))
        if (path := self._housekeeping.reject_file) is not None:
            objects = [source for target in plan.targets for source in target.objects]
            # Standard input (descriptor 0) may be the same file as the reject file.
            check_writable(path, sources=[0 if source.location == "-" else source.location for source in objects])
        if (path := self._housekeeping.record) is not None:
            check_new(path)
        return plan

    def _patiently(self, act: Callable[[], _Result]) -> _Result:
        patience = Patience(self._retry_for_s, time.perf_counter)
        return patiently(act, patience, sleep=time.sleep, notice=self._on_notice)

    def _in_session(self, act: Callable[[Connection], _Result]) -> _Result:
        """Return the result of `act` with a session. Retry it after transient errors. Raises PenstockError."""

        def run() -> _Result:
            with self._connect.borrow() as connection:
                return act(connection)

        return self._patiently(run)

    def _look(self, job: LoadJob, *, refuses_changed: bool) -> LoadPlan:
        if self._resumes is None:
            is_own_job = True
        else:
            with self._connect.borrow() as connection:
                is_own_job = self._check_rights(self._resumes, job, connection)
        self._sources = self._sources or self._make_sources(
            formats=FORMATS,
            credentials=AwsCredentials() if is_own_job else None,
            spools=self._housekeeping.spool,
            is_for_others=not is_own_job,
            max_record_bytes=job.rules.max_record,
            skips_unreadable=job.rules.skips_unreadable,
        )
        with self._hearing() as heard:
            tools = PlanTools(
                connect=self._connect,
                sources=self._sources,
                ledger_schema=self._ledger.schema,
                tuning=self._tuning,
                aws_timeout_s=self._housekeeping.aws_timeout,
                warnings=heard,
                on_notice=self._on_notice,
                refuses_changed=refuses_changed,
            )
            return plan_load(job, tools)

    def _check_rights(self, load_id: str, job: LoadJob, connection: Connection) -> bool:
        """Return whether this login chose the job. Otherwise only sources that every user may read are read.

        Raises TargetError if another role's job needs a right that this role must not use for other roles.
        """
        # Raises TargetError if the ledger cannot be trusted.
        has_ledger(connection, self._ledger.schema)
        rights = read_rights(connection, self._ledger.schema, load_id)
        if rights is None:
            return True
        rights.refuse_others_job("resume", job)
        return rights.is_own_login

    @contextmanager
    def _hearing(
        self, on_warning: Callable[[Notice], None] | None = None, *, is_strict: bool = False
    ) -> Iterator[WarningLog]:
        """Provide a log that collects the warnings of the server and of the load while the block runs."""
        log = WarningLog(on_warning, is_strict=is_strict)
        before = self._connect.on_warning
        self._connect.on_warning = partial(log.warn, "server")
        try:
            yield log
        finally:
            self._connect.on_warning = before

    def foresee(self, plan: LoadPlan) -> ForeseenLoad:
        """Return what the steps of a plan would do before and after the rows, and what `run` would do with each object.

        Nothing is changed. The ledger is read, and the beginning of each new or changed object. Raises the errors that
        `run` would raise before the first row.
        """
        with self._hearing() as heard:
            tools = self._leasing(plan, replace(self._tools(plan), warnings=heard))
            outlook = self._in_session(partial(foresee_load, plan, tools))
            steps = self._in_session(partial(plan_steps, plan, tools, outlook)) if plan.targets else {}
        return ForeseenLoad(plan=plan, steps=steps, outlook=outlook, notices=(*plan.notices, *heard.notices))

    def forecast_volume(self, foreseen: ForeseenLoad, *, device: str, free_bytes: int) -> DiskForecast:
        """Return how many bytes a planned load is expected to add to a server that has all its files on one volume.

        `device` is the name of the volume, and `free_bytes` are the bytes that are free on it now; both are part of the
        result. Raises ServerError.
        """
        plan, outlook = foreseen.plan, foreseen.outlook
        works = all_objects(plan.targets) if outlook is None else find_left(plan, outlook)
        forecast = partial(SpaceGuard().forecast_volume, plan, works)
        return self._in_session(partial(forecast, device=device, free_bytes=free_bytes))

    def run(
        self,
        plan: LoadPlan,
        *,
        on_progress: Callable[[LoadProgress], None] | None = None,
        on_notice: Callable[[str], None] | None = None,
        on_warning: Callable[[Notice], None] | None = None,
    ) -> LoadOutcome:
        """Load the plan's objects that are not loaded yet, and return what was done.

        If another load has created one of the tables since the plan was made, that table is used.

        `on_progress` is called with the progress, and `on_notice` with what the load does or waits for. `on_warning` is
        called with each warning that is not among the plan's notices; the outcome has all warnings. Raises
        PenstockError, which says which rows stay committed and how to resume. If `on_progress` raises an exception, the
        load ends as after an interrupt, and that exception is raised.
        """
        try:
            return self._run(plan, on_progress, on_notice, on_warning)
        except TableExistsError:
            again = self.plan(plan.job, on_notice=on_notice)
            if _count_created(again) >= _count_created(plan):
                # The table exists, but this role cannot see it.
                raise
        # Another load has created a table since the plan was made.
        for notice in again.notices:
            if on_warning is not None and notice not in plan.notices:
                on_warning(notice)
        return self.run(again, on_progress=on_progress, on_notice=on_notice, on_warning=on_warning)

    def _run(
        self,
        plan: LoadPlan,
        on_progress: Callable[[LoadProgress], None] | None,
        on_notice: Callable[[str], None] | None,
        on_warning: Callable[[Notice], None] | None,
    ) -> LoadOutcome:
        is_strict = _refuse_warned(plan)
        listener = None if on_progress is None else Listener(on_progress)
        with self._hearing(on_warning or log_warning, is_strict=is_strict) as heard:
            tools = replace(self._tools(plan, on_progress=listener, on_notice=on_notice), warnings=heard)
            watch = LoadWatch(self._connect, plan, server=plan.server, house=self._housekeeping)
            with nullcontext() if listener is None else listener.raising():
                outcome = watch.run(lambda: run_load(plan, self._leasing(plan, tools)), tools.notice)
        outcome = replace(outcome, server=plan.server.name, database=plan.server.database)
        left: tuple[LeftRejects, ...] = ()
        if outcome.objects_skipped:
            try:
                left = self._find_left_rejects(plan, outcome)
            except PenstockError as error:
                # The load is complete.
                tools.warnings.warn("rejects", f"rejected records were not counted: {error.message}")
        return replace(outcome, rejects_left=left, warnings=(*plan.notices, *heard.notices))

    def _find_left_rejects(self, plan: LoadPlan, outcome: LoadOutcome) -> tuple[LeftRejects, ...]:
        schema, load_id = self._ledger.schema, outcome.load_id
        oids = [target.facts.oid for target in plan.targets if target.facts is not None]
        uris = [recorded_name(work.source) for work in all_objects(plan.targets)]
        find = partial(find_left_rejects, schema=schema, oids=oids, uris=uris, but_load=load_id)
        return tuple(self._in_session(find))

    def _leasing(self, plan: LoadPlan, tools: LoadTools) -> LoadTools:
        """Return the tools with the lease that --settings requires."""
        choice = self._housekeeping.settings
        if choice == "none":
            return tools
        from penstock.loading.steps.lease import LoadLease  # noqa: PLC0415 (39 ms, only if settings change)

        lease = LoadLease(plan, tools, choice=choice, is_local=plan.server.is_local)
        return replace(tools, lease=lease)

    def _make_brake(self, plan: LoadPlan, notice: Callable[[str], None]) -> Brake | None:
        """Return what holds the load while others are behind, None if no option asks for it."""
        rules = plan.job.rules
        if rules.yields_for is None:
            return None
        from penstock.loading.yielding.brake import Brake  # noqa: PLC0415 (few loads yield)

        return Brake(rules, self._connect, tuning=plan.tuning, clock=time.perf_counter, notice=notice)

    def _open_settings(self) -> SettingsBackend:
        from penstock.settings.backend import open_backend  # noqa: PLC0415 (50 ms, only if settings change)

        return open_backend(self._connect, may_share_group=self._housekeeping.shared_group)

    def write_rejects(self, outcome: LoadOutcome) -> list[Path]:
        """Write the rejected records of a load to the file of --reject-file, and return the files written.

        If headers, dialects or tables differ, several files are written. The result is empty if --reject-file is not
        given, or if no record was rejected. Raises SourceError, ServerError.
        """
        load_id, path = outcome.load_id, self._housekeeping.reject_file
        if not outcome.rejected or load_id is None or path is None:
            return []
        from penstock.loading.rejects.reject_file import write_reject_files  # noqa: PLC0415 (23 ms, few loads need it)

        return self._in_session(partial(write_reject_files, load_id, path, self._ledger.schema))

    def check(
        self,
        plan: LoadPlan,
        *,
        on_problem: Callable[[BadRecord], None] | None = None,
        on_progress: Callable[[LoadProgress], None] | None = None,
        on_warning: Callable[[Notice], None] | None = None,
    ) -> CheckOutcome:
        """Parse all records of the plan's objects as the server would, load nothing, and return the problems found.

        Types, NOT NULL and CHECK constraints are checked. Keys are not. `on_problem` is called with each bad record.
        Raises PenstockError. Needs SELECT on the tables and TEMPORARY on the database.
        """
        from penstock.loading.rejects.check import check_load  # noqa: PLC0415 (15 ms, loads do not need it)

        refuse_check(plan)
        refuse_altered(plan)
        _refuse_warned(plan)
        with self._hearing(on_warning or log_warning) as heard:
            tools = replace(self._tools(plan, on_progress=on_progress), warnings=heard)
            outcome = check_load(plan, tools, on_problem=on_problem)
        warnings = (*plan.notices, *heard.notices)
        return replace(outcome, server=plan.server.name, database=plan.server.database, warnings=warnings)

    def _tools(
        self,
        plan: LoadPlan,
        *,
        on_progress: Callable[[LoadProgress], None] | None = None,
        on_notice: Callable[[str], None] | None = None,
    ) -> LoadTools:
        rules, server = plan.job.rules, plan.server
        self._locks.limit_s, self._locks.notice = rules.retry_for, on_notice or log_notice
        assert self._sources is not None
        return LoadTools(
            connect=self._connect,
            sources=self._sources,
            server_major=server.major,
            ledger=self._ledger,
            is_publishing_allowed=self._housekeeping.publish_ledger,
            guard=SpaceGuard() if server.is_local else None,
            brake=self._make_brake(plan, on_notice or log_notice),
            on_progress=on_progress,
            on_notice=on_notice or log_notice,
            server=server,
            open_settings=self._open_settings,
            resumes=self._resumes,
            max_record_bytes=rules.max_record,
            rejects_torn=rules.on_error == "reject",
        )


def _count_created(plan: LoadPlan) -> int:
    return sum(target.create_columns is not None for target in plan.targets)


def _refuse_warned(plan: LoadPlan) -> bool:
    """Return whether warnings are errors. Raise UsageError if they are errors and the plan has a warning."""
    is_strict = plan.job.rules.warnings == "error"
    if is_strict and plan.notices:
        error = strict_error(plan.notices[0])
        add_command(error, plan.targets, plan.job, [notice.options for notice in plan.notices])
        raise error
    return is_strict
