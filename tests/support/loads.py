"""Runs loads for tests: with blocks and COPY commands of any size, and otherwise as the library does."""

from __future__ import annotations

import itertools
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from penstock.core.connect.connection import ConnectionFactory
from penstock.core.errors import PenstockError
from penstock.core.tuning import BatchPlan, LoadTuning
from penstock.core.values.dialect import DialectOptions
from penstock.core.values.job import Housekeeping, LoadJob, LoadRules, TargetJob
from penstock.core.values.names import parse_table_name
from penstock.ledger.ledger import Ledger
from penstock.loading.files.streams import ObjectStream, SourceReader
from penstock.loading.loader import Loader
from penstock.loading.steps.changes import RebuiltIndexes
from penstock.loading.steps.settings import ChangedSettings
from penstock.loading.steps.upkeep import UpkeepDone
from penstock.restore.repair import Repairer, RepairOutcome
from support.results import has_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from penstock.core.catalogue.settings import LeasedSetting
    from penstock.core.values.notice import Notice
    from penstock.core.values.source import SourceObject
    from penstock.loading.values.outcome import CheckOutcome, LoadOutcome

Row = tuple[Any, ...]

_LINGERING_LOOKS = 50

# Where oids of a ledger's rows are those of this database's tables, as anybody can find out.
ORIGIN = """
    (SELECT concat_ws('/', c.system_identifier, d.oid, 'penstock.loads'::regclass::oid)
       FROM pg_control_system() AS c, pg_database AS d
      WHERE d.datname = current_database())
"""

_OPTIONS = {"has_header": "header", "nulls": "null"}

# A fault ends a test's load at once, unless the test is about waiting for it to pass.
IMPATIENT = LoadRules(retry_for=0.0)
# And what the ledger knows of a file of that name does not count.
# Made by the thousand, and none of their tables lasts: nothing is vacuumed.
AGAIN = LoadRules(retry_for=0.0, again=True, vacuum=False)


class ChoppedSources(SourceReader):
    """Sources whose streams come in pieces of `piece_bytes`, so that even a tiny file makes many blocks.

    `at_piece` is called in the reader's thread with the number of each piece, from 0, before it is handed on.
    """

    def __init__(self, piece_bytes: int, at_piece: Callable[[int], None] | None = None, **options: Any) -> None:
        super().__init__(**options)
        self._piece_bytes = piece_bytes
        self._at_piece = at_piece

    def open(self, source: SourceObject, *args: Any, **options: Any) -> ObjectStream:
        """Return the object as the parent does, in smaller pieces."""
        stream = super().open(source, *args, **options)
        stream._pieces = self._chop(stream._pieces)
        return stream

    def _chop(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        number = itertools.count()
        for piece in pieces:
            for start in range(0, len(piece), self._piece_bytes):
                if self._at_piece is not None:
                    self._at_piece(next(number))
                yield piece[start : start + self._piece_bytes]


def target(
    path: Path | Sequence[Path],
    *,
    into: str = "t",
    columns: Sequence[str] | None = None,
    constants: Mapping[str, str] | None = None,
    skip: Sequence[str] = (),
    create: bool = False,
    **dialect: Any,
) -> TargetJob:
    """Return one target of a job; `dialect` takes what Dialect does."""
    paths = [path] if not isinstance(path, (list, tuple)) else path
    return TargetJob(
        sources=tuple(map(str, paths)),
        into=parse_table_name(into),
        # As the dialect itself calls them
        dialect=DialectOptions(**{_OPTIONS.get(name, name): value for name, value in dialect.items()}),
        columns=None if columns is None else tuple(columns),
        set=dict(constants or {}),
        skip=tuple(skip),
        create=create,
    )


class Loads:
    """Loads and checks into one database, in which statements are run first."""

    def __init__(
        self,
        conninfo: str,
        *,
        role: str | None = None,
        piece_bytes: int | None = None,
        setup: str = "",
        record: Path | None = None,
        samples: bool = False,
        chunk_bytes: int | None = None,
        ledger_schema: str = "penstock",
        **tuning: Any,
    ) -> None:
        """`chunk_bytes` ends each COPY command, and `tuning` takes what LoadTuning does."""
        self.conninfo = conninfo
        self.warnings: tuple[Notice, ...] = ()
        self.notices: list[str] = []
        self._connect = ConnectionFactory(conninfo, role=role)
        self.piece_bytes = piece_bytes
        self.role = role
        # A load that happens to take longer than half a second would be sampled by a session of its own.
        self._housekeeping = Housekeeping(
            record=record, no_record=record is None and not samples, ledger_schema=ledger_schema
        )
        self.tuning = LoadTuning(**tuning)
        if chunk_bytes is not None:
            self.chop(chunk_bytes)
        self.at_piece: Callable[[int], None] | None = None
        if setup:
            self.execute(setup)

    def run(
        self,
        *targets: TargetJob,
        sessions: int | None = 2,
        on_progress: Any = None,
        rules: LoadRules = IMPATIENT,
        batch_bytes: int | None = None,
        batch: BatchPlan | None = None,
    ) -> LoadOutcome:
        """Plan and carry out a load of the targets; `batch_bytes` ends batches early, `batch` is all of the plan."""
        with self.loader() as loader:
            plan = loader.plan(LoadJob(targets=targets, sessions=sessions, rules=rules))
            batch = batch or plan.batch
            if batch_bytes is not None:
                batch = replace(batch, limit_bytes=batch_bytes, duration_s=None)
            plan = replace(plan, batch=batch)
            self.warnings = plan.notices
            return loader.run(
                plan,
                on_progress=on_progress,
                on_notice=self.notices.append,
                on_warning=lambda notice: self.notices.append(notice.message),
            )

    def tune(self, **tuning: Any) -> None:
        """Have the loads from now on tuned in another way; takes what LoadTuning does."""
        self.tuning = replace(self.tuning, **tuning)

    def chop(self, chunk_bytes: int) -> None:
        """Let a COPY command end as soon as it carried `chunk_bytes`."""
        self.tune_batches(chunk_bytes=chunk_bytes, round_trips_per_chunk=0)

    def tune_batches(self, **batch: Any) -> None:
        """Have the batches of the loads from now on end in another way; takes what BatchPlan does."""
        self.tune(batch=replace(self.tuning.batch, **batch))

    def check(self, *targets: TargetJob, sessions: int | None = 2, rules: LoadRules = IMPATIENT) -> CheckOutcome:
        """Plan a load of the targets and only check it."""
        with self.loader() as loader:
            job = LoadJob(targets=targets, sessions=sessions, rules=rules)
            return loader.check(loader.plan(job, refuses_changed=False))

    def plan(self, *targets: TargetJob, rules: LoadRules = IMPATIENT) -> None:
        """Plan a load as --plan does: with a look at every object's dialect."""
        with self.loader() as loader:
            loader.foresee(loader.plan(LoadJob(targets=targets, rules=rules)))

    def refuse(self, *targets: TargetJob, sessions: int | None = 2, on_progress: Any = None) -> PenstockError:
        """Run a load that must fail, check that no target's table has rows, and return the error."""
        with pytest.raises(PenstockError) as caught:
            self.run(*targets, sessions=sessions, on_progress=on_progress)
        for table in {str(job.into) for job in targets}:
            assert not self.has_table(table) or self.count(table) == 0
        return caught.value

    def assert_resumes(self, first: TargetJob, other: TargetJob, repair: Callable[[], object]) -> list[Row]:
        """Let a load fail at a record, repair the file, resume it by another job; return the rows, each stored once."""
        with pytest.raises(PenstockError):
            self.run(first, batch_bytes=10_000)
        before = self.count()
        repair()
        outcome = self.run(other, rules=replace(IMPATIENT, changed="load"))
        rows = self.rows()
        assert 0 < before < len(rows)
        assert (outcome.rows, outcome.rows_before) == (len(rows) - before, before)
        return rows

    def loader(self) -> Loader:
        """Return what plans and runs loads, to be closed."""
        chopped = SourceReader if self.piece_bytes is None else partial(ChoppedSources, self.piece_bytes, self.at_piece)
        return Loader(self._connect, self._housekeeping, tuning=self.tuning, sources=chopped)

    def execute(self, statement: str) -> list[Row]:
        """Run statements as the connection's user and return the last one's rows."""
        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            cursor = connection.execute(statement)  # type: ignore[call-overload]
            return cursor.fetchall() if has_rows(cursor) else []

    def repair(self) -> RepairOutcome:
        """Repair as from another host."""
        with Repairer(ConnectionFactory(self.conninfo)) as repairer:
            return repairer.run()

    def indexes(self) -> list[str]:
        """Return the names of table t's indexes."""
        query = "SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid = 't'::regclass ORDER BY 1"
        return [name for (name,) in self.execute(query)]

    def rows(self, table: str = "t") -> list[Row]:
        """Return a table's rows in the order of their text."""
        return sorted(self.execute(f"SELECT * FROM {table}"), key=repr)

    def count(self, table: str = "t") -> int:
        """Return how many rows a table has."""
        return int(self.execute(f"SELECT count(*) FROM {table}")[0][0])

    def has_table(self, name: str) -> bool:
        """Return whether a table exists."""
        return self.execute(f"SELECT pg_catalog.to_regclass('{name}')") != [(None,)]

    def lingering(self) -> int:
        """Return how many other sessions hold a transaction open in this database.

        A backend whose client has gone drops its temporary tables in a transaction: it is given time to end.
        """
        for _ in range(_LINGERING_LOOKS):
            count = int(
                self.execute(
                    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                    " AND pid <> pg_backend_pid() AND xact_start IS NOT NULL AND backend_type = 'client backend'"
                )[0][0]
            )
            if count == 0:
                break
            time.sleep(0.1)
        return count


def indexes_of(outcome: LoadOutcome) -> RebuiltIndexes:
    """Return what a load rebuilt."""
    part = outcome.steps.get("changes", RebuiltIndexes())
    assert isinstance(part, RebuiltIndexes)
    return part


def settings_of(outcome: LoadOutcome) -> tuple[LeasedSetting, ...]:
    """Return the settings that were changed during a load."""
    part = outcome.steps.get("settings", ChangedSettings(settings=()))
    assert isinstance(part, ChangedSettings)
    return part.settings


def upkeep_of(outcome: LoadOutcome) -> UpkeepDone:
    """Return what followed a load."""
    part = outcome.steps.get("upkeep", UpkeepDone(vacuumed=(), analyzed=(), vacuum_s=0.0, checkpoint_s=0.0))
    assert isinstance(part, UpkeepDone)
    return part


def await_end_of_backends(loads: Loads) -> None:
    """Wait until the server has noticed that a client is gone."""
    own = "datname = current_database() AND application_name LIKE 'penstock%'"
    while loads.execute(f"SELECT pid FROM pg_stat_activity WHERE {own}"):
        time.sleep(0.02)


def share_ledger(admin: Loads, role: str, schema: str = "penstock") -> None:
    """Create the ledger as role `admin`, and grant its use to a role as the documentation says."""
    with ConnectionFactory(admin.conninfo).connect() as connection:
        Ledger(schema).ensure(connection)
    admin.execute(f"GRANT USAGE ON SCHEMA {schema} TO {role}")
    admin.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}")


def write_csv(path: Path, records: Sequence[str], header: str = "a,b") -> Path:
    """Write a csv file and return its path."""
    path.write_text("".join(f"{record}\n" for record in [header, *records]))
    return path


def find_sums(loads: Loads) -> list[Row]:
    """Return records, rows, suppressed and rejected of each object in the ledger."""
    return loads.execute(
        "SELECT object, sum(records)::int, sum(rows)::int, sum(suppressed)::int, sum(rejected)::int"
        " FROM penstock.ranges GROUP BY 1 ORDER BY 1"
    )
