"""Replays statements in sessions: for each number of sessions, first a warm-up run at each place, then the rounds.

A round has a run at each place. The order of the places is random, because in a fixed order other work on the machine
could favour one place. All sessions run the same statement at the same time. The place is a setting of the session, so
nothing is restarted.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any, Self

from penstock.core.catalogue.catalog import read_server_facts
from penstock.core.connect.connection import Connection, ConnectionFactory
from penstock.core.connect.errors import rolled_back, translate_errors
from penstock.core.errors import PenstockError, TargetError
from penstock.core.host.disks import find_device, read_counters
from penstock.core.host.machine import memory_bytes
from penstock.core.host.process import holding_interrupts, server_cpu_s
from penstock.core.slotted import slotted
from penstock.core.sql import fetch_rows, run_query
from penstock.core.units import count_nouns
from penstock.core.values.device import Device, rates
from penstock.core.values.names import quote_name
from penstock.core.values.temp_place import DEFAULT_TABLESPACE, parse_setting
from penstock.core.words import hide_secrets
from penstock.temp.statements import find_spills, find_wait_s, sum_field
from penstock.temp.usage.usage import EXPLAIN, find_statements_schema
from penstock.temp.values import Comparison, ReplayResult, Skipped, StatementRun, Trial


@slotted
class DirectoryRow:
    """A row of directories.sql: a tablespace and its directory."""

    name: str
    # The directory of the tablespace, None if the role may not see it.
    directory: str | None


@slotted
class Explained:
    """The time and the plan of one run of a statement."""

    # The statement's time in seconds, as its session measured it.
    elapsed_s: float
    # The plan, as in EXPLAIN's JSON.
    plan: dict[str, Any]


@slotted
class ReplayFacts:
    """The facts about a server that a replay needs: block size, memory, and the role's temp_tablespaces."""

    # Whether the session's user is a superuser, or a member of a superuser role.
    is_superuser: bool
    block_bytes: int
    work_mem_bytes: int
    shared_buffers_bytes: int
    temp_tablespaces: str
    directories: dict[str, str]


class ReplaySession:
    """A session that runs the statements to compare. It has the user's own search_path and settings.

    Methods raise PenstockError.
    """

    def __init__(self, factory: ConnectionFactory, *, timeout_s: float) -> None:
        self._connection = factory.connect(label="replay")
        # A value of 0 would mean no timeout.
        self._timeout = f"{max(1, round(timeout_s * 1000))}ms"
        with translate_errors("preparing a session"):
            self._connection.execute("SET search_path TO DEFAULT")
        _time_temp_files(self._connection)

    def set_up(self, statements: Sequence[str]) -> None:
        """Run statements on which the replayed statements depend, such as SET and CREATE TEMPORARY TABLE."""
        with translate_errors("running the set-up"):
            for statement in statements:
                # The extended protocol refuses text with two statements.
                self._connection.execute(statement.encode(), binary=True)

    def explain(self, statement: str, *, tablespace: str, work_mem_bytes: int | None = None) -> Explained:
        """Run a statement under EXPLAIN ANALYZE, with temp_tablespaces set to `tablespace`. Return its time and plan.

        Its rows are not sent to the client. `work_mem_bytes` is the work_mem, by default the session's.
        """
        with translate_errors("running a statement"), rolled_back(self._connection):
            self._connection.execute("SET TRANSACTION READ ONLY")
            self._set("temp_tablespaces", tablespace)
            self._set("statement_timeout", self._timeout)
            if work_mem_bytes is not None:
                self._set("work_mem", f"{work_mem_bytes // 1024}kB")
            began_s = time.perf_counter()
            # Binary results make psycopg use the extended protocol, which accepts only one statement.
            row = self._connection.execute(f"{EXPLAIN}{statement}".encode(), binary=True).fetchone()
            elapsed_s = time.perf_counter() - began_s
        assert row is not None
        plan: dict[str, Any] = row[0][0]["Plan"]
        return Explained(elapsed_s=elapsed_s, plan=plan)

    def plan(self, statement: str) -> dict[str, Any]:
        """Return a statement's plan as EXPLAIN (VERBOSE) has it in JSON, without running the statement."""
        with translate_errors("planning a statement"):
            row = self._connection.execute(
                f"EXPLAIN (VERBOSE, FORMAT JSON) {statement}".encode(), binary=True
            ).fetchone()
        assert row is not None
        plan: dict[str, Any] = row[0][0]["Plan"]
        return plan

    @property
    def backend_pid(self) -> int:
        """Return the process id of the session's backend, as the server reports it."""
        return self._connection.info.backend_pid

    def cancel(self) -> None:
        """Cancel the running statement. Any thread may call this."""
        self._connection.cancel_safe(timeout=5)

    def close(self) -> None:
        """End the session."""
        self._connection.close()

    def _set(self, name: str, value: str) -> None:
        self._connection.execute("SELECT pg_catalog.set_config(%s, %s, true)", [name, value])


def _time_temp_files(connection: Connection) -> None:
    """Have EXPLAIN show the time of reads and writes, if the role may set track_io_timing. Raises ServerError."""
    try:
        with translate_errors("setting track_io_timing"):
            connection.execute("SET track_io_timing = on")
    except PenstockError as error:
        if error.sqlstate != NOT_ALLOWED:
            raise


def check_place(connection: Connection, tablespaces: str) -> None:
    """Raise TargetError if a tablespace in the value of temp_tablespaces is missing or not granted to the role.

    The session's temp_tablespaces are set to the value.
    """
    with translate_errors("checking where temporary work is to go"):
        connection.execute("SELECT pg_catalog.set_config('temp_tablespaces', %s, false)", [tablespaces])


def read_replay_facts(connection: Connection) -> ReplayFacts:
    """Return the facts about a server that a replay needs. Raises ServerError."""
    with translate_errors("reading what a replay must know"):
        row = run_query(connection, "temp/replay_facts").fetchone()
        directories = fetch_rows(connection, "watch/directories", DirectoryRow)
    assert row is not None
    return ReplayFacts(
        is_superuser=row[0],
        block_bytes=row[1],
        work_mem_bytes=row[2],
        shared_buffers_bytes=row[3],
        temp_tablespaces=row[4],
        directories={each.name: each.directory for each in directories if each.directory is not None},
    )


def find_top_statements(connection: Connection, count: int) -> tuple[list[str], list[Skipped]]:
    """Return the texts of the `count` statements of this database that spilled most.

    Also return those that were skipped. These are statements whose text is hidden from this role. Needs
    pg_stat_statements, and pg_read_all_stats for statements of other roles. Raises TargetError without the extension,
    ServerError.
    """
    with translate_errors("reading pg_stat_statements"):
        schema = find_statements_schema(connection)
        if schema is None:
            raise TargetError(
                "the extension pg_stat_statements is not installed in this database",
                hint="Name statements with --sql FILE; or add it to shared_preload_libraries, restart, and run CREATE "
                "EXTENSION pg_stat_statements.",
            )
        found = run_query(connection, "temp/spilling_statements", statements=schema, explain=EXPLAIN).fetchall()
    kept: list[str] = []
    skipped: list[Skipped] = []
    for (text,) in found:
        if len(kept) == count:
            break
        if text is None or text == "<insufficient privilege>":
            skipped.append(Skipped(statement="(hidden)", why="the role may not see it: it lacks pg_read_all_stats"))
        else:
            kept.append(text)
    return kept, skipped


def read_totals(connection: Connection) -> dict[str, tuple[int, float]] | None:
    """Return the calls and the total_exec_time in milliseconds of each statement of this database, by its text.

    Return None without pg_stat_statements, or if it cannot be read. Raises ServerError.
    """
    try:
        with translate_errors("reading pg_stat_statements"):
            schema = find_statements_schema(connection)
            if schema is None:
                return None
            rows = run_query(connection, "temp/statement_totals", statements=schema, explain=EXPLAIN).fetchall()
    except PenstockError as error:
        if error.sqlstate not in (NOT_ALLOWED, _NOT_LOADED):
            raise
        return None
    return {hide_secrets(text): (calls, total_ms) for text, calls, total_ms in rows}


_START_TIMEOUT_S = 60.0

# How often interrupts are handled while statements run.
_LOOK_INTERVAL_S = 0.1

_DISK_FULL = "53100"
# The SQLSTATE of a lacking privilege.
NOT_ALLOWED = "42501"
# The SQLSTATE of pg_stat_statements if shared_preload_libraries lacks it.
_NOT_LOADED = "55000"

# In a trial with a larger work_mem, the sorts and hashes of all sessions together get at most a quarter of the memory.
_MEMORY_SHARE = 4
# How many processes each session may have: its backend and two parallel workers. Each process has its own work_mem.
_PROCESSES = 3


@slotted
class Place:
    """The tablespaces of one server to which temporary files of the statements go."""

    # The names of the tablespaces.
    names: tuple[str, ...]
    factory: ConnectionFactory
    # The value of the setting temp_tablespaces.
    tablespaces: str
    facts: ReplayFacts
    # The server's memory. For a server on another machine it is a guess, and the true value is usually larger.
    memory_bytes: int
    device: Device | None

    @property
    def name(self) -> str:
        """Return the names of the tablespaces, separated by commas."""
        return ", ".join(self.names)


@slotted
class ReplayRequest:
    """Which statements to replay, in how many sessions at once, and in how many rounds."""

    statements: tuple[str, ...]
    concurrencies: tuple[int, ...]
    rounds: int = 5
    # The order of the places in each round is drawn with this seed.
    seed: int = 0
    timeout_s: float = 600.0
    setup: tuple[str, ...] = ()


def open_place(factory: ConnectionFactory, tablespace: str | None, *, allows_superuser: bool) -> Place:
    """Return the given tablespace of a server, None for the role's present temp_tablespaces, with the server's facts.

    Raises TargetError for a superuser unless `allows_superuser` is true, and for a name that the server refuses. Raises
    ServerError.
    """
    with factory.connect(label="replay") as connection:
        factory.refuse_pooler("replay statements")
        server, facts = read_server_facts(connection), read_replay_facts(connection)
        if facts.is_superuser and not allows_superuser:
            raise TargetError(
                "statements are not replayed as a superuser",
                detail="Functions may write files and run programs with its rights, also if it is read-only, and "
                "undo SET ROLE.",
                hint="Connect as a role that is no superuser's member; --as-superuser does it all the same.",
            )
        # Guess the memory as four times shared_buffers, because shared_buffers is rarely more than a quarter of the
        # memory.
        memory = memory_bytes(connection.info.backend_pid) if server.is_local else 4 * facts.shared_buffers_bytes
        value = facts.temp_tablespaces if tablespace is None else quote_name(tablespace)
        if tablespace is not None:
            # Check only a given name. In a stored setting, PostgreSQL ignores tablespaces that are missing or not
            # granted.
            check_place(connection, value)
    names = tuple(name or DEFAULT_TABLESPACE for name in parse_setting(value) or ("",))
    directory = facts.directories.get(names[0]) if server.is_local else None
    return Place(
        names=names,
        factory=factory,
        tablespaces=value,
        facts=facts,
        memory_bytes=memory,
        device=None if directory is None else find_device(Path(directory)),
    )


def replay(
    request: ReplayRequest,
    first: Place,
    second: Place,
    *,
    skipped: Sequence[Skipped] = (),
    say: Callable[[str], None] = lambda _: None,
) -> ReplayResult:
    """Run each statement with each number of sessions in both places, and return the comparisons.

    If a statement fails, its comparison has the message. Ctrl-C ends the replay: the result then has what was measured
    so far, and `is_interrupted` is true. `say` is called with the progress. Raises ServerError if sessions cannot be
    opened and nothing has been measured yet.
    """
    comparisons: list[Comparison] = []
    is_interrupted = False
    order = random.Random(request.seed)  # noqa: S311 (draws an order, no secret)
    for (number, statement), sessions in product(enumerate(request.statements, start=1), request.concurrencies):
        say(f"statement {number} of {len(request.statements)}, {count_nouns(sessions, 'session')}")
        comparing = _Comparing(request, (first, second), sessions, order)
        try:
            with comparing:
                comparisons.append(comparing.compare(number, statement))
        except PenstockError as error:
            # The statement failed, for example because there are more sessions than max_connections allows. The replay
            # goes on if another run was measured.
            if not any(each.first for each in comparisons):
                raise
            why = " ".join(filter(None, (error.message, error.detail)))
            comparisons.append(comparing.conclude(number, statement, failure=why))
        except KeyboardInterrupt:
            is_interrupted = True
            if all(comparing.runs):
                comparisons.append(comparing.conclude(number, statement))
            break
    return ReplayResult(
        first_place=first.name,
        second_place=second.name,
        rounds=request.rounds,
        seed=request.seed,
        comparisons=tuple(comparisons),
        skipped=tuple(skipped),
        shared_device=find_shared(first.device, second.device),
        is_interrupted=is_interrupted,
    )


def run_together(
    sessions: Sequence[ReplaySession],
    statement: str,
    *,
    tablespace: str,
    block_bytes: int,
    device: Device | None = None,
    work_mem_bytes: int | None = None,
) -> StatementRun:
    """Run a statement in all sessions at the same time, with temporary files in `tablespace`, and return the run.

    `device` is the tablespace's, whose rates are measured, and `block_bytes` is the server's block size. If a session
    fails, the others are cancelled. Raises ServerError.
    """
    before, cpu_s = None if device is None else read_counters(device), server_cpu_s(sessions[0].backend_pid)
    elapsed_s, found = _explain_together(sessions, statement, tablespace, work_mem_bytes)
    after, later_s = None if device is None else read_counters(device), server_cpu_s(sessions[0].backend_pid)
    plans = [each.plan for each in found]
    return StatementRun(
        elapsed_s=elapsed_s,
        session_s=tuple(each.elapsed_s for each in found),
        written_bytes=block_bytes * sum(int(plan.get("Temp Written Blocks", 0)) for plan in plans),
        read_bytes=block_bytes * sum(int(plan.get("Temp Read Blocks", 0)) for plan in plans),
        local_bytes=block_bytes * sum(int(plan.get("Local Written Blocks", 0)) for plan in plans),
        workers_planned=sum(sum_field(plan, "Workers Planned") for plan in plans),
        workers_launched=sum(sum_field(plan, "Workers Launched") for plan in plans),
        spills=find_spills(plans[0], block_bytes=block_bytes),
        wait_s=_mean_wait_s(plans),
        cpu_s=None if cpu_s is None or later_s is None else later_s - cpu_s,
        device=None if before is None or after is None else rates(before, after),
    )


def _explain_together(
    sessions: Sequence[ReplaySession], statement: str, tablespace: str, work_mem_bytes: int | None
) -> tuple[float, list[Explained]]:
    start = threading.Barrier(len(sessions) + 1)

    def explain(session: ReplaySession) -> Explained:
        start.wait(_START_TIMEOUT_S)
        return session.explain(statement, tablespace=tablespace, work_mem_bytes=work_mem_bytes)

    with holding_interrupts() as interrupts, ThreadPoolExecutor(max_workers=len(sessions)) as pool:
        futures = [pool.submit(explain, session) for session in sessions]
        start.wait(_START_TIMEOUT_S)
        began_s = time.perf_counter()
        try:
            pending = set(futures)
            while pending:
                done, pending = wait(pending, timeout=_LOOK_INTERVAL_S, return_when=FIRST_COMPLETED)
                for future in done:
                    future.result()
                interrupts.deliver()
        except BaseException:
            # The pool waits until all sessions have ended their statements, so cancel the statements of the other
            # sessions.
            for session in sessions:
                session.cancel()
            raise
        elapsed_s = time.perf_counter() - began_s
    return elapsed_s, [future.result() for future in futures]


def _mean_wait_s(plans: Sequence[dict[str, Any]]) -> float | None:
    known = [wait_s for plan in plans if (wait_s := find_wait_s(plan)) is not None]
    return mean(known) if known else None


def find_shared(first: Device | None, second: Device | None) -> str | None:
    """Return the name of the device that has both places, None if they are on different or unknown devices."""
    if first is None or second is None:
        return None
    is_one = first.name == second.name or bool({*first.disks} & {*second.disks})
    return second.name if is_one else None


@dataclass
class _Comparing:
    """Compares one statement with one number of sessions. The sessions are open within the context."""

    request: ReplayRequest
    places: tuple[Place, Place]
    sessions: int
    order: random.Random
    began_with: list[int] = field(default_factory=list)
    runs: tuple[list[StatementRun], list[StatementRun]] = field(default_factory=lambda: ([], []))

    def __enter__(self) -> Self:
        self._stack = ExitStack()
        try:
            self._opened = tuple(self._open(place) for place in self.places)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is KeyboardInterrupt:
            self.cancel()
        self._stack.close()

    def compare(self, number: int, statement: str) -> Comparison:
        """Run the statement once in each place to warm up, then in all rounds, and return the comparison of the rounds.

        `number` is the statement's position in the request, from 1. If a run fails, no other follows, and the
        comparison has the error's message and the runs so far.
        """
        try:
            for place in (0, 1):
                self._run(place, statement)
            for _ in range(self.request.rounds):
                places = self.order.sample((0, 1), 2)
                self.began_with.append(places[0] + 1)
                for place in places:
                    self.runs[place].append(self._run(place, statement))
        except PenstockError as error:
            return self.conclude(number, statement, failure=error.message)
        return self.conclude(number, statement, trial=self._try_remedy(statement))

    def conclude(
        self, number: int, statement: str, *, trial: Trial | None = None, failure: str | None = None
    ) -> Comparison:
        """Return the comparison of the runs so far.

        `failure` is the message of the error that ended them, if one did.
        """
        return Comparison(
            number=number,
            statement=hide_secrets(statement),
            sessions=self.sessions,
            first=tuple(self.runs[0]),
            second=tuple(self.runs[1]),
            began_with=tuple(self.began_with),
            trial=trial,
            failure=failure,
        )

    def cancel(self) -> None:
        """Cancel the running statements."""
        for session in {*self._opened[0], *self._opened[1]}:
            session.cancel()

    def _open(self, place: Place) -> list[ReplaySession]:
        opened = []
        for _ in range(self.sessions):
            session = ReplaySession(place.factory, timeout_s=self.request.timeout_s)
            self._stack.callback(session.close)
            session.set_up(self.request.setup)
            opened.append(session)
        return opened

    def _run(self, number: int, statement: str, *, work_mem_bytes: int | None = None) -> StatementRun:
        """Run a statement at a place. If the second place's disk is full, run it in the default tablespace."""
        try:
            return self._run_at(number, self.places[number].tablespaces, statement, work_mem_bytes)
        except PenstockError as error:
            if error.sqlstate != _DISK_FULL or number == 0:
                raise
        return replace(self._run_at(number, "", statement, work_mem_bytes), is_elsewhere=True)

    def _run_at(self, number: int, tablespace: str, statement: str, work_mem_bytes: int | None) -> StatementRun:
        place = self.places[number]
        return run_together(
            self._opened[number],
            statement,
            tablespace=tablespace,
            block_bytes=place.facts.block_bytes,
            device=place.device,
            work_mem_bytes=work_mem_bytes,
        )

    def _try_remedy(self, statement: str) -> Trial | None:
        """Run the statement once at the first place with the work_mem that its spills need, if memory allows."""
        place, last = self.places[0], self.runs[0][-1]
        if not last.spills:
            return None
        limit = place.memory_bytes // _MEMORY_SHARE // self.sessions // _PROCESSES
        wanted = min(limit, max(spill.needed_bytes for spill in last.spills))
        if wanted <= place.facts.work_mem_bytes:
            return None
        try:
            run = self._run(0, statement, work_mem_bytes=wanted)
        except PenstockError:
            # The comparison does not need the trial. If the trial fails, the replay's own runs are still valid.
            return None
        return Trial(work_mem_bytes=wanted, elapsed_s=run.elapsed_s, written_bytes=run.written_bytes)
