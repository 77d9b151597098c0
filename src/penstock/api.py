"""penstock as a library: the verbs put together, and the one place where AWS, the lab and loading meet.

`load` does everything in one call; `Loader` shows the plan first and can check without loading.
"""

from __future__ import annotations

import os
import uuid
from typing import TYPE_CHECKING, Self

from penstock.aws.credentials import AwsCredentials
from penstock.errors import TargetError
from penstock.files import SourceReader
from penstock.host import cpu_count
from penstock.loading.gather import gather_inputs
from penstock.loading.identity import job_from_json
from penstock.loading.plan import plan_load
from penstock.loading.run import run_load
from penstock.loading.tools import LoadTools
from penstock.loading.ways import needs_more_than_copy
from penstock.model.dialect import DialectOptions
from penstock.model.job import LoadJob, LoadRules, TargetJob
from penstock.model.names import parse_table_name
from penstock.server.connection import ConnectionFactory, has_connection_settings
from penstock.server.facts import read_server_facts
from penstock.server.ledger import Ledger
from penstock.server.ledger.listing import forget_load, list_loads, list_objects, no_such_load
from penstock.server.ledger.rejects import RejectStore

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from penstock.model.job import Keep, Mode, Transform
    from penstock.model.ledger import LoadRecord, ObjectRecord
    from penstock.model.outcome import CheckOutcome, LoadOutcome, LoadProgress, Problem
    from penstock.model.plan import LoadPlan
    from penstock.model.reject import RejectCause, RetryOutcome
    from penstock.model.server import ServerFacts
    from penstock.model.table import TableName
    from penstock.server.connection import Connection


def connect_to(to: str | None = None, *, role: str | None = None, pg_bin: Path | None = None) -> ConnectionFactory:
    """Return the factory for a target: `to` as libpq takes it, else PG* variables, else the embedded server.

    The embedded server is started where it is not running; `pg_bin` names another PostgreSQL's programs for it.
    Raises LabError.
    """
    if to is None and (pg_bin is not None or not has_connection_settings(os.environ)):
        from penstock.lab import default_server  # noqa: PLC0415 (only who needs a server pays for the lab)

        to = default_server(pg_bin).ensure_running()
    return ConnectionFactory(to or "", role=role)


class Loader:
    """Plans, checks and carries out loads into one server; close it, or use it as a context manager.

    Loads are written down in schema `ledger_schema` of the target database; `is_publishing_allowed` makes it there
    though a publication for all tables publishes it. `spools`: pipes are copied to a temporary file and read from that.
    Sources are read once where they cannot be read again (standard input): plan and run with the same Loader.
    """

    def __init__(
        self,
        connect: ConnectionFactory,
        *,
        ledger_schema: str = "penstock",
        is_publishing_allowed: bool = False,
        spools: bool = False,
    ) -> None:
        self._connect = connect
        self._ledger = Ledger(ledger_schema)
        self._is_publishing_allowed = is_publishing_allowed
        self._sources = SourceReader(credentials=AwsCredentials(), spools=spools)
        self._server: ServerFacts | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of what the sources hold and of the session kept for the next step."""
        self._sources.close()
        self._connect.close()

    @property
    def server(self) -> ServerFacts:
        """Return the server's facts; known once a load was planned."""
        assert self._server is not None
        return self._server

    def plan(self, job: LoadJob) -> LoadPlan:
        """Look at sources, table and server, and return what a load would do; changes nothing. Raises PenstockError."""
        with self._connect.borrow() as connection:
            self._server = server = read_server_facts(connection)
            inputs = gather_inputs(job, sources=self._sources, connection=connection, server=server)
            plan = plan_load(
                job,
                inputs,
                server=server,
                cpu_count=cpu_count() if server.is_local else None,
                load_id=str(uuid.uuid4()),
            )
            if needs_more_than_copy(plan.targets):
                from penstock.loading.landing import check_ways  # noqa: PLC0415 (paid for by who needs it)

                check_ways(plan, connection)
        return plan

    def run(
        self,
        plan: LoadPlan,
        *,
        on_progress: Callable[[LoadProgress], None] | None = None,
        on_notice: Callable[[str], None] | None = None,
    ) -> LoadOutcome:
        """Load what the plan names and is not loaded yet.

        Raises PenstockError, which says what stays and how to go on.
        """
        return run_load(plan, self._tools(on_progress, on_notice))

    def write_rejects(self, load_id: str, path: Path) -> list[Path]:
        """Write the rejected records of a load to a file, or to several where headers or dialects differ."""
        from penstock.loading.reject_file import write_reject_files  # noqa: PLC0415 (paid for by who needs it)

        with self._connect.borrow() as connection:
            return write_reject_files(load_id, path, self._tools(None, None), connection)

    def check(
        self,
        plan: LoadPlan,
        *,
        on_problem: Callable[[Problem], None] | None = None,
        on_progress: Callable[[LoadProgress], None] | None = None,
    ) -> CheckOutcome:
        """Parse everything as the server would and load nothing; every bad record is reported. Raises PenstockError.

        Needs TEMPORARY on the database. Types, NOT NULL and CHECK are checked; keys are not.
        """
        from penstock.loading.check import check_load  # noqa: PLC0415 (paid for by loads that need it)

        return check_load(plan, self._tools(on_progress, None), on_problem=on_problem)

    def _tools(
        self,
        on_progress: Callable[[LoadProgress], None] | None,
        on_notice: Callable[[str], None] | None,
    ) -> LoadTools:
        return LoadTools(
            connect=self._connect,
            sources=self._sources,
            server_major=self.server.major,
            ledger=self._ledger,
            is_publishing_allowed=self._is_publishing_allowed,
            on_progress=on_progress,
            on_notice=on_notice,
        )


class LedgerView:
    """What the ledger of a database says, and loads taken from it; close it, or use it as a context manager.

    Methods raise ServerError, TargetError.
    """

    def __init__(self, connect: ConnectionFactory, *, ledger_schema: str = "penstock") -> None:
        self._connect = connect
        self._schema = ledger_schema

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the session kept for the next question."""
        self._connect.close()

    def loads(self) -> list[LoadRecord]:
        """Return all loads, the newest last."""
        with self._connect.borrow() as connection:
            return list_loads(connection, self._schema)

    def find(self, beginning: str) -> str:
        """Return the id of the one load whose id begins so."""
        found = [record.load_id for record in self.loads() if record.load_id.startswith(beginning.lower())]
        if len(found) != 1:
            if found:
                raise TargetError(f'several loads begin with "{beginning}"', detail=f"{', '.join(found)}.")
            raise no_such_load(beginning)
        return found[0]

    def load(self, load_id: str) -> tuple[LoadRecord, list[ObjectRecord]]:
        """Return one load and its objects."""
        with self._connect.borrow() as connection:
            found = list_loads(connection, self._schema, load_id=load_id)
            if not found:
                raise no_such_load(load_id)
            return found[0], list_objects(connection, self._schema, load_id)

    def job(self, load_id: str) -> LoadJob:
        """Return what to run to go on with a load. Raises TargetError where its sources cannot be read again."""
        record, _ = self.load(load_id)
        if record.state == "complete":
            raise TargetError(f"load {load_id} is complete", hint="There is nothing to go on with.")
        if record.job is None:
            raise TargetError(
                f"load {load_id} read a pipe, which cannot be read again", hint="Run its own command once more."
            )
        return job_from_json(record.job)

    def rejects(self, load_id: str) -> list[RejectCause]:
        """Return why records of a load were rejected, the most frequent cause first; this role's own loads'."""
        with self._connect.borrow() as connection:
            return RejectStore(self._schema, load_id).read_causes(connection)

    def write_rejects(self, load_id: str, path: Path) -> list[Path]:
        """Write the rejected records of a load to a file, or to several where headers or dialects differ."""
        from penstock.loading.reject_file import write_reject_files  # noqa: PLC0415 (paid for by who needs it)

        with self._connect.borrow() as connection:
            return write_reject_files(load_id, path, self._tools(connection), connection)

    def retry(self, load_id: str, path: Path | None = None) -> RetryOutcome:
        """Load the rejected records of a load once more, or those of an edited reject file in their place."""
        from penstock.loading.again import retry_rejects  # noqa: PLC0415 (paid for by who needs it)
        from penstock.loading.reject_file import read_reject_file  # noqa: PLC0415

        with self._connect.borrow() as connection:
            tools = self._tools(connection)
            edited = None if path is None else read_reject_file(load_id, path, tools, connection)
        # A session of its own: it holds the load's lock until it ends.
        with self._connect.connect(label="retry") as connection:
            return retry_rejects(load_id, tools, connection, edited=edited)

    def _tools(self, connection: Connection) -> LoadTools:
        major = connection.info.server_version // 10_000
        sources = SourceReader(credentials=AwsCredentials())
        return LoadTools(connect=self._connect, sources=sources, server_major=major, ledger=Ledger(self._schema))

    def forget(self, load_id: str) -> None:
        """Remove a load from the ledger; its rows stay, and its objects count as not loaded."""
        with self._connect.borrow() as connection:
            if not list_loads(connection, self._schema, load_id=load_id):
                raise no_such_load(load_id)
            forget_load(connection, self._schema, load_id)


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
    rules: LoadRules | None = None,
    ledger_schema: str = "penstock",
    on_progress: Callable[[LoadProgress], None] | None = None,
) -> LoadOutcome:
    """Load files into one table and return what was done; what is loaded already is left out.

    `sources` are paths, globs and URLs; `into` is "table" or "schema.table" as SQL spells it; `to` is what libpq takes
    as a connection string, by default PG* variables and else the embedded server. `mode`, `key`, `keep` and `transform`
    say how rows get into the table (docs/reference/job.md). Raises PenstockError, which says what stays and how to go
    on. Needs INSERT on the table, CREATE on its schema for `create`, and the use of the ledger.
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
    with Loader(connect_to(to, role=role), ledger_schema=ledger_schema) as loader:
        plan = loader.plan(LoadJob(targets=(target,), sessions=sessions, rules=rules or LoadRules()))
        return loader.run(plan, on_progress=on_progress)
