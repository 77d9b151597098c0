"""What is diagnosed where a cause was planted, what its remedy gains, and what is found in healthy workloads.

A planting is SQL that prepares it, a script of pgbench that works, and what holds it up meanwhile. The truth is
measured by own queries, and not by penstock: what the sessions wait for, and how much more the workload does once the
remedy has been applied. Recordings stay in the data folder.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import psycopg

from benchmarks.record import save
from penstock.core.connect.connection import ConnectionFactory
from penstock.diagnose.examination import REMARKS, examine
from penstock.embedded.installations import default_installation, installation_at
from penstock.embedded.server import EmbeddedServer
from penstock.watch.recordings import Recorder
from penstock.watch.sampler import Sampler, sampling_beside
from penstock.watch.values import Recording

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from benchmarks.options import Options
    from penstock.diagnose.examination import Findings
    from penstock.embedded.installations import Installation

# Sampled so often, a recording of a few seconds has enough samples to be sure.
_INTERVAL_S = 0.1
_RECORDED_S = 6.0
_AFTER_S = 4.0
# Sessions report their counters once a second.
_ARRIVAL_S = 1.0

_SETTINGS = {
    "shared_buffers": "128MB",
    "max_connections": "120",
    "max_prepared_transactions": "5",
    "wal_level": "logical",
    "max_wal_size": "4GB",
    "fsync": "on",
    # Nothing but what was planted is to come between.
    "autovacuum_naptime": "1h",
}

# The application name of sessions that work; pgbench's own.
_WORKER = "pgbench"
_WAITS = f"""
    SELECT coalesce(wait_event_type || ':' || wait_event, 'CPU'), count(*) FROM pg_stat_activity
     WHERE application_name = '{_WORKER}' AND state = 'active' GROUP BY 1
"""
_COMMITS = "SELECT sum(xact_commit) FROM pg_stat_database WHERE datname = current_database()"


@dataclass(frozen=True, slots=True)
class Place:
    """A server with a planting. `folder` is for files."""

    server: EmbeddedServer
    conninfo: str
    folder: Path

    def execute(self, *statements: str) -> None:
        """Run statements, each by itself."""
        with psycopg.connect(self.conninfo, autocommit=True, application_name="planter") as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def find(self, program: str) -> str:
        """Return a program of the server's installation, or another one."""
        own = self.server.spec.installation.bin_dir / program
        found = str(own) if own.exists() else shutil.which(program)
        for older in sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{program}")):
            found = found or str(older)
        assert found is not None, program
        return found

    @contextmanager
    def session(self, *statements: str, name: str = "left") -> Iterator[psycopg.Connection[Any]]:
        """Provide a session that has run statements in a transaction, and is left so."""
        with psycopg.connect(self.conninfo, application_name=name) as connection:
            for statement in statements:
                connection.execute(statement.encode())
            yield connection
            connection.rollback()

    @contextmanager
    def repeating(self, work: Callable[[psycopg.Connection[Any]], object], *, sessions: int = 1) -> Iterator[None]:
        """Run work again and again by sessions of their own, until the block ends."""
        stop = threading.Event()

        def repeat() -> None:
            with suppress(psycopg.Error), psycopg.connect(self.conninfo, application_name=_WORKER) as connection:
                while not stop.is_set():
                    work(connection)

        threads = [threading.Thread(target=repeat, daemon=True) for _ in range(sessions)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            end_workers(self.conninfo)
            for thread in threads:
                thread.join(20)

    @contextmanager
    def program(self, *command: str, stopped: bool = False) -> Iterator[subprocess.Popen[bytes]]:
        """Run a program meanwhile. With `stopped`, it is stopped by a signal after a second."""
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            if stopped:
                time.sleep(1)
                child.send_signal(signal.SIGSTOP)
            yield child
        finally:
            child.send_signal(signal.SIGCONT)
            child.kill()
            child.wait()


Hold: TypeAlias = "Callable[[Place], AbstractContextManager[object]]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A planting, or a healthy workload if nothing is expected of it."""

    name: str
    # The codes of which one must be first; none for a healthy workload.
    expected: tuple[str, ...] = ()
    # Codes that are true beside it: in a healthy workload, facts.
    also: frozenset[str] = frozenset()
    prepare: tuple[str, ...] = ()
    # Scripts of pgbench, with its clients and options.
    work: tuple[str, ...] = ()
    clients: int = 2
    options: tuple[str, ...] = ()
    # Or work by psycopg.
    repeat: Callable[[psycopg.Connection[Any]], object] | None = None
    # What is there while the workload is recorded, and not afterwards.
    hold: Hold = lambda _: nullcontext()
    # What is done before the workload is measured again.
    remedy: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    # What claim or remedy of the first must have, and what no remedy may have.
    named: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    # The codes of risks that must be there.
    risks: tuple[str, ...] = ()
    # The wait that own queries must have seen most.
    wait: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What was found, and the truth."""

    name: str
    expected: tuple[str, ...]
    found: tuple[tuple[str, str, float, float | None], ...]
    risks: tuple[str, ...]
    is_right: bool
    harm: tuple[str, ...]
    missing: tuple[str, ...]
    # The largest wait by own queries, with its share, and the gain: the part of the time that the remedy has saved.
    wait: str
    gain: float | None
    # The transactions a second with the planting, and after its remedy.
    before_per_s: float
    after_per_s: float | None


def run_case(case: Case, installation: Installation, folder: Path) -> tuple[Result, Findings]:
    """Plant, record, diagnose, apply the remedy, and measure again."""
    home = Path(tempfile.mkdtemp(prefix="planted-", dir=folder))
    home.chmod(0o755)
    server = EmbeddedServer.create(home / "server", installation, {**_SETTINGS, **case.settings}, listens_on_tcp=True)
    try:
        place = Place(server, server.ensure_running(), home)
        place.execute(*case.prepare, "SELECT pg_sleep(1.2)", "CHECKPOINT")
        with case.hold(place):
            recorded, waits, before = _record(case, place, folder / f"{case.name}.recording")
        after = None
        if case.remedy or case.hold is not Case.__dataclass_fields__["hold"].default:
            place.execute(*case.remedy)
            with _working(case, place):
                time.sleep(1)
                after = _count_per_s(place.conninfo, _AFTER_S)
        found = examine(recorded)
        return _judge(case, found, waits, before, after), found
    finally:
        server.stop("immediate")
        shutil.rmtree(home, ignore_errors=True)


def _judge(case: Case, found: Findings, waits: Counter[str], before: float, after: float | None) -> Result:
    first = next(iter(found.diagnoses), None)
    codes = [each.code for each in found.diagnoses if each.code not in REMARKS and each.confidence != "too few samples"]
    texts = "" if first is None else f"{first.claim} {first.remedy}"
    texts += "".join(f" {each.claim} {each.remedy}" for each in found.risks if each.code in case.risks)
    remedies = " ".join(str(each.remedy) for each in (*found.diagnoses, *found.risks))
    missing = [each for each in case.named if each not in texts]
    missing += [each for each in case.risks if each not in {risk.code for risk in found.risks}]
    allowed = {*case.expected, *case.also}
    # Where other programs use the machine, what computes waits for them.
    expected = {*case.expected, "other-programs"} if "cpu-bound" in case.expected else {*case.expected}
    is_first = bool(first) and first.code in expected if expected else set(codes) <= allowed
    total = sum(waits.values()) or 1
    most = ", ".join(f"{count / total:.0%} {wait}" for wait, count in waits.most_common(2))
    gain = None if not after else 1 - before / after
    return Result(
        name=case.name,
        expected=case.expected,
        found=tuple(
            (each.code, str(each.confidence), each.share, getattr(each, "bound", None)) for each in found.diagnoses
        ),
        risks=tuple(each.code for each in found.risks if each.code != "disk-full"),
        is_right=is_first and not missing,
        harm=tuple(each for each in case.never if each in remedies),
        missing=tuple(missing),
        wait=most,
        gain=gain,
        before_per_s=before,
        after_per_s=after,
    )


def _record(case: Case, place: Place, path: Path) -> tuple[Recording, Counter[str], float]:
    """Record the workload. Return the recording, what own queries saw it wait for, and its transactions a second."""
    path.unlink(missing_ok=True)
    sampler = Sampler(ConnectionFactory(place.conninfo), interval_s=_INTERVAL_S)
    try:
        with _working(case, place):
            time.sleep(0.5)
            with sampling_beside(sampler, interval_s=_INTERVAL_S) as samples:
                waits: Counter[str] = Counter()
                per_s = _count_per_s(place.conninfo, _RECORDED_S, waits)
            # The sampler is in the same database, and reads while the counters arrive too.
            per_s -= samples[-1].own_commits / (_RECORDED_S + _ARRIVAL_S)
    finally:
        sampler.close()
    with Recorder(path, sampler.header) as recorder:
        for sample in samples:
            recorder.write(sample)
    return Recording(header=sampler.header, samples=tuple(samples), is_whole=True), waits, max(0.0, per_s)


def _count_per_s(conninfo: str, seconds: float, waits: Counter[str] | None = None) -> float:
    """Return the transactions that the database commits in a second, and count what workers wait for."""
    connect = partial(psycopg.connect, conninfo, autocommit=True, application_name="planter")
    with connect(dbname="template1") as watcher, connect() as own:
        (first,) = own.execute(_COMMITS).fetchone() or (0,)
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            time.sleep(0.15)
            if waits is not None:
                waits.update(dict(watcher.execute(_WAITS.encode()).fetchall()))
        time.sleep(_ARRIVAL_S)
        (last,) = own.execute(_COMMITS).fetchone() or (0,)
    return float(last - first - 1) / (seconds + _ARRIVAL_S)


@contextmanager
def _working(case: Case, place: Place) -> Iterator[None]:
    with ExitStack() as stack:
        if case.repeat is not None:
            stack.enter_context(place.repeating(case.repeat, sessions=case.clients))
        for number, script in enumerate(case.work):
            path = place.folder / f"work-{number}.sql"
            path.write_text(script)
            clients = str(case.clients if number == 0 else 1)
            stack.enter_context(
                place.program(
                    *(place.find("pgbench"), "-n", "-c", clients, "-j", "1", "-T", "60", "-f", str(path)),
                    *case.options,
                    place.conninfo,
                )
            )
            stack.callback(end_workers, place.conninfo)
        yield


def end_workers(conninfo: str) -> None:
    """End the sessions that work."""
    with psycopg.connect(conninfo, autocommit=True, dbname="template1", application_name="planter") as connection:
        ask = f"SELECT pg_terminate_backend(pid, 2000) FROM pg_stat_activity WHERE application_name = '{_WORKER}'"
        connection.execute(ask.encode())


def run(options: Options) -> None:
    """Run all plantings and healthy workloads, on each server of --pg-bin, or on the usual one."""
    from benchmarks.healthy import HEALTHY
    from benchmarks.planted import PLANTINGS
    from benchmarks.planted_daily import DAILY

    folder = options.data / "plantings"
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    installations = [installation_at(path) for path in options.pg_bin] or [default_installation()]
    only = os.environ.get("PENSTOCK_PLANTINGS", "").split()
    for installation in installations:
        results = {}
        for kind, cases in (("planted", [*PLANTINGS, *DAILY]), ("healthy", HEALTHY)):
            results[kind] = [
                _show(case, installation, folder) for case in cases if not only or case.name in only or kind in only
            ]
        if only:
            continue
        _save(options, installation, results)


def _show(case: Case, installation: Installation, folder: Path) -> Result:
    result, found = run_case(case, installation, folder)
    verdict = ("right" if result.is_right else "WRONG") + (" HARM" if result.harm else "")
    gain = "" if result.gain is None else f"; gain {result.gain:.0%}"
    print(f"{verdict} {case.name}: {result.wait}{gain}; missing {result.missing} harm {result.harm}", flush=True)
    for each in (*found.diagnoses, *found.risks):
        bound = getattr(each, "bound", None)
        print(f"    {each.code} share {each.share:.2f} bound {bound}: {each.claim} | {each.remedy}"[:700], flush=True)
    return result


def _save(options: Options, installation: Installation, results: Mapping[str, list[Result]]) -> None:
    from dataclasses import asdict

    table = [("what", "found first", "waits for, of active time", "most to gain", "gained", "by own queries")]
    for result in (*results["planted"], *results["healthy"]):
        code, _, share, bound = result.found[0] if result.found else ("nothing", "", 0.0, None)
        shown = "" if bound is None else f"{bound:.0%}"
        gained = "" if result.gain is None else f"{result.gain:.0%}"
        wrong = "" if result.is_right and not result.harm else " (wrong)"
        table.append((result.name, code + wrong, f"{share:.0%}" if share else "", shown, gained, result.wait))
    right = sum(result.is_right for result in results["planted"])
    healthy = sum(result.is_right for result in results["healthy"])
    harm = sum(bool(result.harm) for kind in results.values() for result in kind)
    save(
        f"plantings-{installation.major}",
        options=options,
        postgresql={"server_version": str(installation.major), **_SETTINGS},
        settings={"recorded_s": _RECORDED_S, "interval_s": _INTERVAL_S},
        results={kind: [asdict(result) for result in each] for kind, each in results.items()},
        table=table,
        notes=(
            (
                f"Right first: {right} of {len(results['planted'])}; nothing but facts in {healthy} of "
                f"{len(results['healthy'])} healthy workloads; remedies that would harm: {harm}."
            ),
        ),
    )
