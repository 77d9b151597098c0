"""Runs the self-test. Each step runs penstock's commands as separate processes, and checks what they have stored.

All tables and the ledger are in the schema of benchmarks, which is dropped at the end. A load that changes settings
needs a ledger in database "postgres". If the self-test has created it, the self-test drops it too. If this process is
killed, the next run drops both.
"""

from __future__ import annotations

import gzip
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from psycopg import sql

from penstock.changes.records import SERVER_DATABASE
from penstock.core.connect.connection import Connection, ConnectionFactory
from penstock.core.connect.errors import in_transaction, translate_errors
from penstock.core.errors import PenstockError
from penstock.core.slotted import slotted
from penstock.core.sql import fetch_one
from penstock.core.values.mode import LANDINGS, Mode
from penstock.ledger.schema import VERSION, look_for_ledger
from penstock_lab.bench.self_test.report import StepResult, describe_server, hide_names
from penstock_lab.bench.ways import SCHEMA, own_schema
from penstock_lab.datasets.datafiles import S3Folder
from penstock_lab.programs import Child

# A command that takes longer than this has failed.
_PATIENCE_S = 300.0
_LOOK_S = 0.2

# How many records each of the two files has. The ids of the second file begin in the middle of those of the first.
_RECORDS = 2000
_OVERLAP = 1000
# The file of the load that is killed. The load stores about 2 MB/s, and commits for the first time after about ten
# seconds. At this time more of the file is left than socket buffers hold, so the load cannot have ended.
_SLOW_RECORDS = 24_000
_SLOW_BYTES = 2_000

# The first file is loaded into a table, and then the second file in some mode. For each mode, these are the numbers
# that the table must have then: of all rows, and of rows of the second file.
_EXPECTED: Mapping[Mode, tuple[int, int]] = {
    "append": (2 * _RECORDS, _RECORDS),
    "truncate": (_RECORDS, _RECORDS),
    "replace": (_RECORDS, _RECORDS),
    "upsert": (_RECORDS + _OVERLAP, _RECORDS),
    "insert-new": (_RECORDS + _OVERLAP, _OVERLAP),
    "sync": (_RECORDS, _RECORDS),
}

_TABLES = ("append_t", "truncate_t", "replace_t", "transform_t", "slow_t", "settings_t", "s3_t")
_KEYED_TABLES = ("upsert_t", "insert-new_t", "sync_t", "indexes_t")
_WAIT = "CREATE OR REPLACE FUNCTION {}.wait() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN {}RETURN NEW; END'"
_SETUP = ";".join(
    (
        *(f'CREATE TABLE "{name}" (id integer, note text)' for name in _TABLES),
        *(f'CREATE TABLE "{name}" (id integer PRIMARY KEY, note text)' for name in _KEYED_TABLES),
        "CREATE INDEX ON indexes_t (note)",
        _WAIT.format(SCHEMA, "PERFORM pg_catalog.pg_sleep(0.001); "),
        "CREATE TRIGGER wait BEFORE INSERT ON slow_t FOR EACH ROW EXECUTE FUNCTION wait()",
    )
)

# The schema with the ledger of leases on settings, and the comment that marks it as created by this test.
_LEASES = "penstock"
_MARK = "made by penstock bench self-test, which drops it"


class SkipStep(Exception):
    """A step cannot run on this server. The text says why."""


class StepFailed(Exception):
    """A step did not have the expected result. The text gives the result, without names."""

    def __init__(self, reason: str, *, sqlstate: str | None = None, message: str | None = None) -> None:
        super().__init__(reason)
        self.sqlstate = sqlstate
        self.message = message


@dataclass(slots=True, kw_only=True)
class SelfTestFindings:
    """What a self-test has found so far."""

    versions: dict[str, object] = field(default_factory=dict)
    # None until the first step has examined the server.
    server: dict[str, object] | None = None
    steps: list[StepResult] = field(default_factory=list)


@slotted
class SelfTest:
    """The connections, options and files that the steps of a self-test use."""

    connect: ConnectionFactory
    # A session that finds the tables of the schema by their names.
    control: Connection
    # The options with which a command reaches the server.
    reach: Sequence[str]
    # The folder for files that the steps write.
    folder: Path
    # Where the server may read in S3, as s3://bucket/prefix.
    s3: str | None
    found: SelfTestFindings

    def start(self, *words: str) -> Child:
        """Start a penstock command with --json, and return the running program. `words` are its arguments."""
        return Child([sys.executable, "-m", "penstock", *words, "--json"])

    def run(self, *words: str, codes: Sequence[int] = (0,)) -> Any:
        """Run a penstock command with --json, and return the last object that it prints.

        Raises StepFailed if its exit code is not one of `codes`, and LabError if it takes too long.
        """
        with self.start(*words) as child:
            code, out = child.wait(timeout_s=_PATIENCE_S)
        try:
            found = json.loads(out.splitlines()[-1])
        except (IndexError, ValueError):
            found = {}
        error = found.get("error") if found.get("state") == "failed" else None
        if error is not None or code not in codes:
            told = error or {"sqlstate": None, "message": None}
            reason = f"penstock {words[0]}: exit code {code}"
            raise StepFailed(reason, sqlstate=told["sqlstate"], message=told["message"])
        return found

    @property
    def with_ledger(self) -> tuple[str, ...]:
        """Return the options that name the server, and the ledger in the self-test's schema."""
        return (*self.reach, "--ledger-schema", SCHEMA)

    def load_words(self, source: Path | str, table: str) -> tuple[str, ...]:
        """Return the arguments of a penstock command that loads a file into a table of the self-test's schema."""
        return ("load", str(source), "--into", f'{SCHEMA}."{table}"', "--no-record", *self.with_ledger)

    def load(self, source: Path | str, table: str, *options: str) -> Any:
        """Load a file into a table of the self-test's schema, and return what the command prints in JSON.

        If the load was cut short before, it is resumed.
        """
        return self.run(*self.load_words(source, table), *options)

    def first(self) -> Path:
        """Write the first file to load, and return its path."""
        return _write(self.folder / "first.csv", range(_RECORDS), "first")

    def second(self) -> Path:
        """Write the second file to load, some of whose ids are in the first one too, and return its path."""
        return _write(self.folder / "second.csv", range(_OVERLAP, _OVERLAP + _RECORDS), "second")

    def expect_rows(self, table: str, expected: tuple[int, int]) -> None:
        """Raise StepFailed unless a table has `expected` rows in all, and so many of them from the second file."""
        query = sql.SQL("SELECT count(*), count(*) FILTER (WHERE note = 'second') FROM {}")
        _expect("rows", fetch_one(self.control, query.format(sql.Identifier(SCHEMA, table))), expected)


def _write(path: Path, ids: range, note: str) -> Path:
    path.write_text("id,note\n" + "".join(f"{number},{note}\n" for number in ids), encoding="ascii")
    return path


def _expect(what: str, found: object, expected: object = True) -> None:
    """Raise StepFailed if two values differ. The report shows both, so they must be numbers or truth values."""
    if found != expected:
        raise StepFailed(f"{what}: {found} in place of {expected}")


def _examine(test: SelfTest) -> None:
    test.found.versions = test.run("--version")
    examined = test.run("doctor", *test.with_ledger, codes=(0, 9))
    test.found.server = describe_server(examined)
    _expect("ready to load", examined["would_load"])


def _load_in(mode: Mode) -> Callable[[SelfTest], None]:
    def load(test: SelfTest) -> None:
        table = f"{mode}_t"
        test.load(test.first(), table)
        key = ("--key", "id") if LANDINGS[mode].is_keyed else ()
        limit = ("--max-delete", "100%") if LANDINGS[mode].deletes else ()
        test.load(test.second(), table, "--mode", mode, *key, *limit)
        test.expect_rows(table, _EXPECTED[mode])

    return load


def _transform(test: SelfTest) -> None:
    statement = test.folder / "transform.sql"
    insert = sql.SQL("INSERT INTO {}.transform_t SELECT id::integer, note FROM :staging")
    statement.write_text(insert.format(sql.Identifier(SCHEMA)).as_string(None), encoding="ascii")
    test.load(test.second(), "transform_t", "--transform", str(statement))
    test.expect_rows("transform_t", (_RECORDS, _RECORDS))


def _kill_and_resume(test: SelfTest) -> None:
    path = _write(test.folder / "slow.csv", range(_SLOW_RECORDS), "x" * _SLOW_BYTES)
    deadline_s = time.monotonic() + _PATIENCE_S
    with test.start(*test.load_words(path, "slow_t"), "--sessions", "1") as child:
        while not (committed := fetch_one(test.control, "SELECT count(*) FROM slow_t")[0]):
            _expect("the load was killed in time", child.is_running and time.monotonic() < deadline_s)
            time.sleep(_LOOK_S)
        child.kill()
    test.control.execute(_WAIT.format(SCHEMA, "").encode())
    outcome = test.load(path, "slow_t")
    rows = fetch_one(test.control, "SELECT count(*), count(DISTINCT id) FROM slow_t")
    _expect("rows, and distinct rows", rows, (_SLOW_RECORDS, _SLOW_RECORDS))
    _expect("committed rows were kept", committed <= outcome["rows_before"] < _SLOW_RECORDS)


def _rebuild_indexes(test: SelfTest) -> None:
    query = "SELECT array_agg(indexdef ORDER BY indexdef) FROM pg_indexes WHERE tablename = 'indexes_t'"
    before = fetch_one(test.control, query)
    outcome = test.load(test.first(), "indexes_t", "--indexes", "rebuild")
    _expect("rebuilt indexes and keys", len((outcome["steps"].get("changes") or {"rebuilt": ()})["rebuilt"]), 2)
    _expect("indexes are as before", fetch_one(test.control, query) == before)


def _change_settings(test: SelfTest) -> None:
    decision = test.run("settings", "diff", "bulk-load", *test.reach)
    if decision["obstacle"] is not None:
        raise SkipStep("this role cannot change settings of this server")
    if not any(change["scope"] == "server" for change in decision["changes"]):
        raise SkipStep("the settings are those of bulk-load already")
    with _own_leases(test):
        outcome = test.load(test.first(), "settings_t", "--settings", "bulk-load")
    changed = (outcome["steps"].get("settings") or {"settings": ()})["settings"]
    _expect("settings were changed", any(each["during"] != each["before"] for each in changed))
    _expect("settings were restored", all(each["after"] == each["before"] for each in changed))


@contextmanager
def _own_leases(test: SelfTest) -> Iterator[None]:
    """Create the schema with the ledger of leases, if it does not exist, and drop it when the block ends.

    A comment marks the schema. If this process is killed, the next run finds the comment, restores the settings and
    drops the schema. Raises SkipStep if the ledger exists and is older, because it is not this test's.
    """
    with test.connect.in_database(SERVER_DATABASE).connect(label="bench") as control:
        query = "SELECT coalesce(pg_catalog.obj_description(n.oid, 'pg_namespace') = %s, false) FROM pg_namespace n"
        found = control.execute(f"{query} WHERE n.nspname = %s".encode(), [_MARK, _LEASES]).fetchone()
        if found == (False,) and look_for_ledger(control, _LEASES)() not in (None, VERSION):
            raise SkipStep("a load would upgrade the ledger of leases, which an older penstock uses")
        if found is None:
            with in_transaction(control, f"creating schema {_LEASES}"):
                control.execute(f"CREATE SCHEMA {_LEASES}; COMMENT ON SCHEMA {_LEASES} IS '{_MARK}'".encode())
        try:
            yield
        finally:
            if found is None or found[0]:
                _drop_leases(test, control)


def _drop_leases(test: SelfTest, control: Connection) -> None:
    """Restore the settings of killed loads, and drop the ledger of leases unless another load uses it now."""
    test.run("repair", *test.with_ledger)
    tables = [f"{_LEASES}.{name}" for name in ("changes", "holds", "loads")]
    with in_transaction(control, f"dropping schema {_LEASES}"):
        if fetch_one(control, "SELECT pg_catalog.to_regclass(%s) IS NOT NULL", [tables[0]])[0]:
            control.execute(f"LOCK TABLE {', '.join(tables)}".encode())
            for table in tables:
                _expect(
                    "the ledger of leases is in use", control.execute(f"TABLE {table}".encode()).rowcount > 0, False
                )
        control.execute(f"DROP SCHEMA {_LEASES} CASCADE".encode())


def _watch(test: SelfTest) -> None:
    recording = test.folder / "watched.recording"
    test.run("watch", "--for", "3s", "--record", str(recording), *test.reach)
    _expect("the recording is whole", test.run("diagnose", str(recording))["is_whole"])


def _import_from_s3(test: SelfTest) -> None:
    if test.s3 is None:
        raise SkipStep("--s3 was not given")
    # The object always has the same name. If a run is killed, the next run replaces and removes its object.
    path, folder = test.folder / f"{SCHEMA}.csv.gz", S3Folder(test.s3)
    path.write_bytes(gzip.compress(test.second().read_bytes()))
    is_uploaded = True
    try:
        try:
            url = folder.upload(path)
        except PenstockError:
            is_uploaded = False
            raise
        test.load(url, "s3_t", "--via", "server")
    finally:
        # Ctrl-C arrives when the upload is complete.
        if is_uploaded:
            folder.remove(path.name)
    test.expect_rows("s3_t", (_RECORDS, _RECORDS))


STEPS: Mapping[str, Callable[[SelfTest], None]] = {
    "doctor": _examine,
    **{f"load, mode {mode}": _load_in(mode) for mode in _EXPECTED},
    "load, transform": _transform,
    "kill and resume": _kill_and_resume,
    "indexes dropped and rebuilt": _rebuild_indexes,
    "settings changed and restored": _change_settings,
    "watch and diagnose": _watch,
    "import from S3": _import_from_s3,
}


def run_self_test(
    connect: ConnectionFactory,
    found: SelfTestFindings,
    *,
    reach: Sequence[str],
    folder: Path,
    s3: str | None,
    names: Sequence[str],
    say: Callable[[StepResult], None],
) -> None:
    """Run the steps in a schema of their own. Add the result of each step to `found`.

    Messages are kept without `names`, and without the names of the role and the database. Needs CREATE on the database.
    Raises TargetError, ServerError if the schema cannot be created or dropped.
    """
    with own_schema(connect, purpose="run the self-test", setup=_SETUP) as control:
        control.execute(f"SET search_path = pg_catalog, {SCHEMA}".encode())
        test = SelfTest(connect=connect, control=control, reach=reach, folder=folder, s3=s3, found=found)
        known = fetch_one(control, "SELECT current_user, session_user, current_database()")
        for name, step in STEPS.items():
            found.steps.append(_run_step(name, step, test, names=[*names, *known]))
            say(found.steps[-1])


def _run_step(name: str, step: Callable[[SelfTest], None], test: SelfTest, *, names: Sequence[str]) -> StepResult:
    began_s = time.perf_counter()
    try:
        with translate_errors(name):
            step(test)
    except SkipStep as skip:
        return StepResult(name=name, state="skipped", seconds=0.0, reason=str(skip))
    except (StepFailed, PenstockError) as error:
        if isinstance(error.__context__, KeyboardInterrupt):
            # The step was interrupted, and cleaning up after it failed. The next run cleans up.
            raise error.__context__ from None
        message = None if error.message is None else hide_names(error.message, names, sqlstate=error.sqlstate)
        return StepResult(
            name=name,
            state="failed",
            seconds=round(time.perf_counter() - began_s, 3),
            reason=str(error) if isinstance(error, StepFailed) else None,
            sqlstate=error.sqlstate,
            message=message,
        )
    return StepResult(name=name, state="ok", seconds=round(time.perf_counter() - began_s, 3))
