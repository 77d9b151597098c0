"""Loads: planned, checked, carried out."""

from __future__ import annotations

import time
import uuid
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from penstock.api.closing import Closing
from penstock.api.connect import connect_to
from penstock.api.instance import plan_by_instance
from penstock.aws.credentials import AwsCredentials
from penstock.files import SourceReader
from penstock.host import cpu_count
from penstock.loading.dialects import refuse_other_dialects
from penstock.loading.gather import gather_inputs
from penstock.loading.guard import SpaceGuard
from penstock.loading.plan import plan_load
from penstock.loading.rejects.check import check_load
from penstock.loading.retry import Patience, patiently
from penstock.loading.run import run_load
from penstock.loading.shape_plan import free_references, plan_parking
from penstock.loading.tools import LoadTools
from penstock.loading.warned import WarningLog, strict_error
from penstock.loading.ways import needs_more_than_copy
from penstock.loading.work import all_objects
from penstock.model.dialect import DialectOptions, Notice
from penstock.model.job import LoadJob, LoadRules, TargetJob
from penstock.model.names import parse_table_name
from penstock.server.ledger import Ledger
from penstock.server.ledger.rights import read_rights
from penstock.server.ledger.schema import find_version
from penstock.server.shape.missing import refuse_missing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from penstock.loading.leasing import LoadLease
    from penstock.loading.plan import TargetInput
    from penstock.model.job import Keep, Mode, Transform
    from penstock.model.outcome import CheckOutcome, LoadOutcome, LoadProgress, Problem
    from penstock.model.plan import LoadPlan, ObjectSample
    from penstock.model.server import ServerFacts
    from penstock.model.settings import LoadSettings
    from penstock.model.space import DiskForecast
    from penstock.model.table import TableName
    from penstock.server.connection import Connection, ConnectionFactory
    from penstock.settings.backend import SettingsBackend

_Result = TypeVar("_Result")


class Loader(Closing):
    """Plans, checks and carries out loads into one server; close it, or use it as a context manager.

    Loads are written down in schema `ledger_schema` of the target database; `is_publishing_allowed` makes it there
    though a publication for all tables publishes it. `spools`: pipes are copied to a temporary file and read from that.
    `settings` is what becomes of the server's settings meanwhile: "none", "auto", or a profile's name;
    `may_share_group`: also where a parameter group of Amazon RDS is other instances' too. `resumes` is a load's id: it
    is gone on with, or nothing is loaded.
    Sources are read once where they cannot be read again (standard input): plan and run with the same Loader.
    """

    def __init__(
        self,
        connect: ConnectionFactory,
        *,
        ledger_schema: str = "penstock",
        is_publishing_allowed: bool = False,
        spools: bool = False,
        settings: str = "none",
        may_share_group: bool = False,
        resumes: str | None = None,
    ) -> None:
        self._connect = connect
        self._resumes = resumes
        self._settings = settings
        self._may_share_group = may_share_group
        self._ledger = Ledger(ledger_schema)
        self._is_publishing_allowed = is_publishing_allowed
        self._sources = SourceReader(credentials=AwsCredentials(), spools=spools)
        self._server: ServerFacts | None = None
        self._samples: tuple[ObjectSample, ...] = ()
        self._retry_for_s = 0.0
        self._on_notice: Callable[[str], None] | None = None

    def close(self) -> None:
        """Let go of what the sources hold and of the session kept for the next step."""
        self._sources.close()
        self._connect.close()

    @property
    def server(self) -> ServerFacts:
        """Return the server's facts; known once a load was planned."""
        assert self._server is not None
        return self._server

    def plan(self, job: LoadJob, *, on_notice: Callable[[str], None] | None = None) -> LoadPlan:
        """Look at sources, table and server, and return what a load would do; changes nothing. Raises PenstockError.

        Faults that pass are waited out as those of the load are, once a connection has stood.
        """
        self._retry_for_s, self._on_notice = job.rules.retry_for_s, on_notice
        return self._patiently(lambda: self._look(job))

    def _patiently(self, act: Callable[[], _Result]) -> _Result:
        patience = Patience(self._retry_for_s, time.perf_counter)
        return patiently(act, patience, sleep=time.sleep, notice=self._on_notice)

    def _look(self, job: LoadJob) -> LoadPlan:
        with self._hearing() as heard:
            plan = self._plan_load(job)
        return replace(plan, notices=(*plan.notices, *heard.notices))

    def _plan_load(self, job: LoadJob) -> LoadPlan:
        with self._connect.borrow() as connection:
            if self._resumes is not None:
                self._check_rights(self._resumes, job, connection)
            server, inputs = gather_inputs(job, sources=self._sources, connection=connection)
            self._server = server
            if oids := [gathered.facts.oid for gathered in inputs if gathered.facts is not None]:
                refuse_missing(connection, self._ledger.schema, oids)
            self._samples = tuple(gathered.sample for gathered in inputs)
            plan = self._plan(job, inputs, connection)
            if not server.is_local:
                plan = plan_by_instance(plan, server, host=connection.info.host)
            if needs_more_than_copy(plan.targets):
                from penstock.loading.landing import check_ways  # noqa: PLC0415 (20 ms, for who merges or replaces)

                check_ways(plan, connection, ledger_schema=self._ledger.schema)
        return self._note_pooler(plan)

    def _check_rights(self, load_id: str, job: LoadJob, connection: Connection) -> None:
        """Refuse to do with our rights what another chose; of what another login chose, read only what all may read."""
        # Refuses a ledger that cannot be trusted.
        find_version(connection, self._ledger.schema)
        rights = read_rights(connection, self._ledger.schema, load_id)
        if rights is not None:
            rights.refuse_others_job("resume", job)
            if not rights.is_own_login:
                self._sources = SourceReader(is_for_others=True)

    @contextmanager
    def _hearing(
        self, on_warning: Callable[[Notice], None] | None = None, *, is_strict: bool = False
    ) -> Iterator[WarningLog]:
        """Provide what keeps the warnings of server and load meanwhile."""
        log = WarningLog(on_warning, is_strict=is_strict)
        before = self._connect.on_warning
        self._connect.on_warning = partial(log.warn, "server")
        try:
            yield log
        finally:
            self._connect.on_warning = before

    def _plan(self, job: LoadJob, inputs: Sequence[TargetInput], connection: Connection) -> LoadPlan:
        """Return the plan, with what is parked; foreign keys that are do not keep sessions from each other."""
        server, load_id = self.server, str(uuid.uuid4())
        cpus = cpu_count() if server.is_local else None
        plan = plan_load(job, inputs, server=server, cpu_count=cpus, load_id=load_id)
        if not any(target.facts and (target.facts.has_indexes or target.facts.references) for target in plan.targets):
            return plan

        plan, freed = plan_parking(plan, connection)
        if not plan.is_in_job_order:
            return plan
        inputs = free_references(inputs, freed)
        again = plan_load(job, inputs, server=server, cpu_count=cpus, load_id=load_id)
        targets = zip(again.targets, plan.targets, strict=True)
        return replace(again, targets=tuple(replace(new, parking=old.parking) for new, old in targets))

    def _note_pooler(self, plan: LoadPlan) -> LoadPlan:
        """Return a plan that says that a pooler is in the way: looking works behind one, loading does not."""
        pooler = self._connect.pooler
        if pooler is None:
            return plan
        refusal = pooler.refuse("load")
        return replace(plan, notices=(*plan.notices, Notice(code="pooler", message=refusal.message, hint=refusal.hint)))

    def check_dialects(self, plan: LoadPlan) -> None:
        """Raise DataError where an object could be meant otherwise than the first one: what `run` looks at first."""
        refuse_other_dialects(all_objects(plan.targets), self._sources)

    def forecast(self, plan: LoadPlan) -> list[DiskForecast]:
        """Return what a load that was planned is expected to add to disks; none where they are not this machine's.

        Raises ServerError.
        """
        guard = self._guard()
        if guard is None:
            return []

        def look() -> list[DiskForecast]:
            with self._connect.borrow() as connection:
                return guard.forecast(plan, all_objects(plan.targets), connection)

        return self._patiently(look)

    def forecast_volume(self, plan: LoadPlan, *, device: str, free_bytes: int) -> DiskForecast:
        """Return what a load that was planned is expected to add to a server that has all its files on one volume.

        Raises ServerError.
        """
        guard = SpaceGuard(samples=self._samples)
        works = all_objects(plan.targets)

        def look() -> DiskForecast:
            with self._connect.borrow() as connection:
                return guard.forecast_volume(plan, works, connection, device=device, free_bytes=free_bytes)

        return self._patiently(look)

    def run(
        self,
        plan: LoadPlan,
        *,
        on_progress: Callable[[LoadProgress], None] | None = None,
        on_notice: Callable[[str], None] | None = None,
        on_warning: Callable[[Notice], None] | None = None,
    ) -> LoadOutcome:
        """Load what the plan names and is not loaded yet.

        `on_notice` hears what is done and waited for, `on_warning` what is warned of beside the plan's notices; the
        outcome has both kinds of warnings. Raises PenstockError, which says what stays and how to go on.
        """
        is_strict = _refuse_warned(plan)
        with self._hearing(on_warning, is_strict=is_strict) as heard:
            tools = replace(self._tools(on_progress, on_notice, rules=plan.job.rules), warnings=heard)
            if self._settings == "none":
                outcome = run_load(plan, tools)
            else:
                with self._lease(plan, tools) as lease:
                    outcome = run_load(plan, replace(tools, lease_id=lease.lease_id))
                outcome = replace(outcome, settings=lease.settings)
        return replace(outcome, warnings=(*plan.notices, *heard.notices))

    def plan_settings(self, plan: LoadPlan) -> LoadSettings | None:
        """Return what a load that was planned would change of the server's settings, None where that is not asked for.

        Raises PenstockError.
        """
        return None if self._settings == "none" else self._patiently(self._lease(plan, self._tools(None, None)).look)

    def _lease(self, plan: LoadPlan, tools: LoadTools) -> LoadLease:
        from penstock.loading.leasing import LoadLease  # noqa: PLC0415 (39 ms, for who changes settings)

        return LoadLease(plan, self._samples, tools, choice=self._settings, is_local=self.server.is_local)

    def _open_settings(self) -> SettingsBackend:
        from penstock.api.settings import open_backend  # noqa: PLC0415 (50 ms, for who changes settings)

        return open_backend(self._connect, may_share_group=self._may_share_group)

    def write_rejects(self, load_id: str, path: Path) -> list[Path]:
        """Write the rejected records of a load to a file, or to several where headers or dialects differ."""
        from penstock.loading.rejects.reject_file import write_reject_files  # noqa: PLC0415 (23 ms, for who rejects)

        def write() -> list[Path]:
            with self._connect.borrow() as connection:
                return write_reject_files(load_id, path, self._tools(None, None), connection)

        return self._patiently(write)

    def check(
        self,
        plan: LoadPlan,
        *,
        on_problem: Callable[[Problem], None] | None = None,
        on_progress: Callable[[LoadProgress], None] | None = None,
        on_warning: Callable[[Notice], None] | None = None,
    ) -> CheckOutcome:
        """Parse everything as the server would and load nothing; every bad record is reported. Raises PenstockError.

        Needs SELECT on the tables and TEMPORARY on the database. Types, NOT NULL and CHECK are checked; keys are not.
        """
        _refuse_warned(plan)
        with self._hearing(on_warning) as heard:
            outcome = check_load(plan, self._tools(on_progress, None, rules=plan.job.rules), on_problem=on_problem)
        return replace(outcome, warnings=(*plan.notices, *heard.notices))

    def _guard(self) -> SpaceGuard | None:
        if not self.server.is_local:
            return None

        return SpaceGuard(samples=self._samples)

    def _tools(
        self,
        on_progress: Callable[[LoadProgress], None] | None,
        on_notice: Callable[[str], None] | None,
        *,
        rules: LoadRules | None = None,
    ) -> LoadTools:
        return LoadTools(
            connect=self._connect,
            sources=self._sources,
            server_major=self.server.major,
            ledger=self._ledger,
            is_publishing_allowed=self._is_publishing_allowed,
            guard=self._guard(),
            on_progress=on_progress,
            on_notice=on_notice,
            server=self.server,
            open_settings=self._open_settings,
            resumes=self._resumes,
            max_record_bytes=(rules or LoadRules()).max_record_bytes,
        )


def _refuse_warned(plan: LoadPlan) -> bool:
    """Raise UsageError where a warning is an error and the plan has one; return whether one is."""
    is_strict = plan.job.rules.warnings == "error"
    if is_strict and plan.notices:
        raise strict_error(plan.notices[0])
    return is_strict


def load(
    sources: str | Sequence[str],
    *,
    into: str | TableName,
    to: str | None = None,
    dialect: DialectOptions | None = None,
    columns: Sequence[str] | None = None,
    constants: Mapping[str, str] | None = None,
    skip: Sequence[str] = (),
    create: bool = False,
    mode: Mode = "append",
    key: Sequence[str] = (),
    keep: Keep = "error",
    transform: Transform | None = None,
    sessions: int | None = None,
    role: str | None = None,
    iam_auth: bool = False,
    tunnel: str | None = None,
    rules: LoadRules | None = None,
    ledger_schema: str = "penstock",
    settings: str = "none",
    on_progress: Callable[[LoadProgress], None] | None = None,
) -> LoadOutcome:
    """Load files into one table and return what was done; what is loaded already is left out.

    `sources` are paths, globs and URLs; `into` is "table" or "schema.table" as SQL spells it; `to` is what libpq takes
    as a connection string, by default PG* variables and else the embedded server; `iam_auth` and `tunnel` are those of
    connect_to. `mode`, `key`, `keep` and `transform`
    say how rows get into the table (docs/reference/job.md); `settings` is that of Loader. Raises PenstockError, which
    says what stays and how to go on. Needs INSERT on the table, CREATE on its schema for `create`, and the use of the
    ledger.
    """
    target = TargetJob(
        sources=(sources,) if isinstance(sources, str) else tuple(sources),
        table=parse_table_name(into) if isinstance(into, str) else into,
        dialect=dialect or DialectOptions(),
        columns=None if columns is None else tuple(columns),
        constants=dict(constants or {}),
        skip=tuple(skip),
        create=create,
        mode=mode,
        key=tuple(key),
        keep=keep,
        transform=transform,
    )
    connect = connect_to(to, role=role, iam_auth=iam_auth, tunnel=tunnel)
    with Loader(connect, ledger_schema=ledger_schema, settings=settings) as loader:
        plan = loader.plan(LoadJob(targets=(target,), sessions=sessions, rules=rules or LoadRules()))
        return loader.run(plan, on_progress=on_progress)
