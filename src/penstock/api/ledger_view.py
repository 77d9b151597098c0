"""Reads the loads that a database's ledger records, and resumes, retries, prunes or forgets them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.changes.tables.look import find_missing
from penstock.core.aws.credentials import AwsCredentials
from penstock.core.catalogue.catalog import read_facts
from penstock.core.closing import Closing
from penstock.core.errors import TargetError
from penstock.core.values.job import LoadJob, LoadRules
from penstock.core.values.options import pick
from penstock.ledger.ledger import Ledger
from penstock.ledger.listing import (
    find_left_staging,
    find_newest,
    forget_load,
    list_loads,
    list_objects,
    no_such_load,
    prune_loads,
    sum_up_tables,
)
from penstock.ledger.members import list_members
from penstock.ledger.rejects import RejectCause, RejectStore, RetryOutcome, find_latest
from penstock.ledger.rights import LoadRights, read_rights, share_ledger
from penstock.ledger.schema import has_ledger, open_ledger
from penstock.loading.context import LoadTools, Patience, patiently
from penstock.loading.files.streams import SourceReader
from penstock.loading.formats import FORMATS
from penstock.loading.land.retry import retry_rejects
from penstock.loading.plan.identity import job_from_json
from penstock.loading.rejects.reject_file import write_reject_files
from penstock.loading.steps.sequences import advance_sequences
from penstock.proof.verify import verify_load

if TYPE_CHECKING:
    from penstock.changes.values import Missing
    from penstock.core.connect.connection import Connection, ConnectionFactory
    from penstock.core.values.server import ServerFacts
    from penstock.core.values.table import TableName
    from penstock.ledger.values import (
        LeftStaging,
        LoadRecord,
        MemberRecord,
        ObjectRecord,
        PrunedLoads,
        StayingRows,
        TableTotals,
    )
    from penstock.loading.values.outcome import LoadProgress
    from penstock.proof.values import TableOutcome, VerifyOutcome
    from penstock.removal.decide import UndoOutcome


class LedgerView(Closing):
    """Reads and changes the loads that the ledger of a database records. Close it, or use it as a context manager.

    Methods raise ServerError, TargetError. An argument `load_id` is the whole id of a load.
    """

    def __init__(self, connect: ConnectionFactory, *, ledger_schema: str = "penstock") -> None:
        self._connect = connect
        self._schema = ledger_schema

    def close(self) -> None:
        """Close the session that the methods share."""
        self._connect.close()

    def loads(
        self, *, since: datetime | None = None, into: str | None = None, limit: int | None = None
    ) -> list[LoadRecord]:
        """Return loads, the newest last.

        Only loads that began at `since` or later, or into table `into`, are returned if these are given; with `limit`,
        only so many of the newest. Without a time zone, `since` is in that of this machine.
        """
        if isinstance(since, datetime) and since.tzinfo is None:
            # pandas' times have another astimezone.
            with suppress(ValueError, OverflowError):
                since = datetime(*since.timetuple()[:6], since.microsecond, fold=since.fold).astimezone()
        with self._connect.borrow() as connection:
            return list_loads(connection, self._schema, since=since, into=into, limit=limit)

    def totals(self) -> list[TableTotals]:
        """Return for each table that was loaded the sums over all its loads that the ledger records."""
        with self._connect.borrow() as connection:
            return sum_up_tables(connection, self._schema)

    def server(self) -> ServerFacts:
        """Return the facts of the server that has the ledger."""
        with self._connect.borrow() as connection:
            return read_facts(self._connect, connection)

    def left_staging(self) -> list[LeftStaging]:
        """Return the staging tables that loads have left that do not run any more."""
        with self._connect.borrow() as connection:
            return find_left_staging(connection, self._schema)

    def share(
        self,
        roles: Sequence[str],
        *,
        is_publishing_allowed: bool = False,
        upgrades: bool = False,
        only_planned: bool = False,
    ) -> list[str]:
        """Create the ledger if it does not exist, let roles use it, and return the statements that do so.

        `is_publishing_allowed` is whether publications may include the ledger's tables. An older ledger is refused,
        unless `upgrades` is true. With `only_planned`, the statements are not executed.
        """
        with self._connect.borrow() as connection:
            if not only_planned:
                self._connect.refuse_unwritable("create the ledger")
            return share_ledger(
                connection,
                self._schema,
                roles,
                is_publishing_allowed=is_publishing_allowed,
                upgrades=upgrades,
                only_planned=only_planned,
            )

    def prune(self, *, age_s: float) -> PrunedLoads:
        """Remove the details of loads that ended at least `age_s` seconds ago, and return what was removed.

        Only complete loads count. Staging tables of that age are dropped too.
        """
        with self._opening("prune the ledger") as connection:
            return prune_loads(connection, self._schema, age_s=age_s)

    def discard_rejects(self, load_id: str) -> int:
        """Delete the rejected records of a load from the ledger, and return how many were deleted.

        The load must not be running.
        """
        with self._opening("discard rejected records") as connection:
            self._rights(connection, load_id).refuse_other_role("discard rejects of")
            return RejectStore(self._schema, load_id).discard(connection)

    def missing(self) -> list[Missing]:
        """Return the indexes and keys that tables lack because a rebuild failed."""
        with self._connect.borrow() as connection:
            return find_missing(connection, self._schema)

    def find(self, beginning: str) -> str:
        """Return the id of the only load whose id begins with `beginning`.

        Raises TargetError if there is none, or several.
        """
        if not beginning:
            # An unset variable of a script gives an empty id. It must not match, even if the ledger has only one load.
            raise TargetError("the load's id is empty", hint="See penstock loads.")
        found = [record.load_id for record in self.loads() if record.load_id.startswith(beginning.lower())]
        if len(found) != 1:
            if found:
                raise TargetError(f'several loads begin with "{beginning}"', detail=f"{', '.join(found)}.")
            raise no_such_load(beginning)
        return found[0]

    def find_newest(self, beginning: str, *, removable: bool = False) -> str:
        """Return the id of this role's newest load, complete or not, if `beginning` is "latest".

        With `removable`, that load must be one that this login began. Otherwise, return the id of the only load whose
        id begins with `beginning`. Raises TargetError if there is none.
        """
        if beginning != "latest":
            return self.find(beginning)
        with self._connect.borrow() as connection:
            found = find_newest(connection, self._schema, removable=removable)
        if found is None:
            raise TargetError("the ledger has no load of this role", hint="See penstock loads.")
        return found

    def find_rejecting(self, beginning: str) -> str:
        """Return the id of the newest load with rejected records that this role may see, if `beginning` is "latest".

        Otherwise, return the id of the only load whose id begins with `beginning`. Raises TargetError if there is none.
        """
        if beginning != "latest":
            return self.find(beginning)
        with self._connect.borrow() as connection:
            found = find_latest(connection, self._schema)
        if found is None:
            raise TargetError("no load has rejected records that this role may see", hint="See penstock loads.")
        return found

    def find_unfinished(self, beginning: str) -> str:
        """Return the id of this role's newest load that can be resumed, if `beginning` is "latest".

        A load that a process is still running is returned only if there is no other.

        If `beginning` is anything else, return the id of the only load, in any state, whose id begins with it. Raises
        TargetError if there is no such load, or several.
        """
        if beginning != "latest":
            return self.find(beginning)
        with self._connect.borrow() as connection:
            found = find_newest(connection, self._schema, resumable=True)
        if found is None:
            raise TargetError("no load can be resumed", hint="See penstock loads.")
        return found

    def load(self, load_id: str) -> tuple[LoadRecord, list[ObjectRecord]]:
        """Return the ledger's record of a load, and those of its objects.

        Raises TargetError if there is no such load.
        """
        with self._connect.borrow() as connection:
            found = list_loads(connection, self._schema, load_id=load_id)
            if not found:
                raise no_such_load(load_id)
            return found[0], list_objects(connection, self._schema, load_id)

    def members(self, load_id: str) -> list[MemberRecord]:
        """Return the records of the processes that have loaded rows of a load."""
        with self._connect.borrow() as connection:
            return list_members(connection, self._schema, load_id)

    def job(self, load_id: str) -> LoadJob:
        """Return the job that resumes a load.

        Raises TargetError if the load is complete, if its sources cannot be read again, or if this session may not run
        a job of the load's owner.
        """
        record, _ = self.load(load_id)
        if record.state == "complete":
            raise TargetError(f"load {load_id} is complete", hint="There is nothing to resume.")
        if record.job is None:
            raise TargetError(
                f"load {load_id} read a pipe, or a URL of which the ledger does not have the query or password",
                hint="Run its own command again.",
            )
        job = job_from_json(record.job, load_id=load_id)
        with self._connect.borrow() as connection:
            self._rights(connection, load_id).refuse_others_job("resume", job)
        return job

    def find_resumed(
        self, beginning: str, options: Mapping[str, Any], *, on_notice: Callable[[str], None] | None = None
    ) -> tuple[str, LoadJob]:
        """Return the id of the load that `find_unfinished` finds, and its job. `options` replace options of the job.

        Transient errors are retried for as long as the option retry_for says; `on_notice` is called with each. Raises
        UsageError, and the errors of `find_unfinished`.
        """
        rules = pick(LoadRules, options)
        # The load was started with its own --retry-for, which only its job shows. Until the job is read, use the
        # caller's.
        retry_for_s = LoadRules(**{name: rules[name] for name in ("retry_for",) if name in rules}).retry_for

        def look() -> tuple[str, LoadJob]:
            load_id = self.find_unfinished(beginning)
            return load_id, self.job(load_id)

        patience = Patience(retry_for_s, time.perf_counter)
        load_id, job = patiently(look, patience, sleep=time.sleep, notice=on_notice)
        return load_id, replace(job, rules=replace(job.rules, **{"wait": True, **rules}), **pick(LoadJob, options))

    def rejects(self, load_id: str) -> list[RejectCause]:
        """Return the causes for which records of a load were rejected, the most frequent first.

        The role must have run the load.
        """
        with self._open() as connection:
            return RejectStore(self._schema, load_id).read_causes(connection)

    def write_rejects(self, load_id: str, path: Path) -> list[Path]:
        """Write the rejected records of a load to `path`, and return the paths of the files written.

        Records with other headers, dialects, tables or columns go to more files, whose names have a number, such as
        rejects-2.csv. Without rejected records no file is written. Raises SourceError, ServerError, TargetError.
        """
        with self._open() as connection:
            return write_reject_files(load_id, path, self._schema, connection)

    def retry(self, load_id: str, path: Path | None = None, *, into: TableName | None = None) -> RetryOutcome:
        """Load the rejected records of a load again, or the records of a corrected reject file instead.

        Return what was done. `path` is the corrected file. `into` is the table of its records, which is needed if
        several reject files of the load have the same header. Raises PenstockError.
        """
        with self._opening("load") as connection:
            tools = self._tools(connection)
            rights, load = self._rights(connection, load_id), RejectStore(self._schema, load_id).read_load(connection)
            job = None if load is None or load.job is None else job_from_json(load.job, load_id=load_id)
            rights.refuse_others_job("retry", job)
        # Use a separate session, because the retry holds the load's lock until its session ends.
        with self._connect.connect(label="retry") as connection:
            return retry_rejects(load_id, tools, connection, advance=advance_sequences, path=path, into=into)

    def verify(
        self, load_id: str, *, values: bool = False, on_progress: Callable[[LoadProgress], None] | None = None
    ) -> VerifyOutcome:
        """Verify that a complete load has stored each record of its files once, and return what was found.

        Without `values`, only counts are compared. With `values`, the files are read again, and each value is compared.
        Raises SourceError too.
        """
        return verify_load(self._connect, load_id, ledger_schema=self._schema, values=values, on_progress=on_progress)

    def verify_table(
        self, into: TableName, *, values: bool = False, on_progress: Callable[[LoadProgress], None] | None = None
    ) -> TableOutcome:
        """Verify all loads of the ledger that have filled a table, together, and return what was found.

        The number of the table's rows is compared with what all loads have stored. With `values`, the files are read
        again, and each value is compared. Raises TargetError if no load has filled the table, SourceError, ServerError.
        """
        from penstock.proof.together import verify_table  # noqa: PLC0415 (few callers need it)

        return verify_table(self._connect, into, ledger_schema=self._schema, values=values, on_progress=on_progress)

    def undo(self, load_id: str, *, is_partial: bool = False, only_planned: bool = False) -> UndoOutcome:
        """Remove the rows that a load has stored, and the load from the ledger.

        Return how many rows of each table it were. With `only_planned`, rows are only counted. With `is_partial`, rows
        that were changed since they were stored may stay. Raises DataError too.
        """
        from penstock.removal.undo import undo_load  # noqa: PLC0415 (few callers need it)

        with self._open() if only_planned else self._opening("undo a load") as connection:
            return undo_load(
                self._connect,
                connection,
                load_id,
                ledger_schema=self._schema,
                is_partial=is_partial,
                only_planned=only_planned,
            )

    @contextmanager
    def _open(self) -> Iterator[Connection]:
        """Borrow a session. Raises TargetError if the ledger cannot be trusted."""
        with self._connect.borrow() as connection:
            has_ledger(connection, self._schema)
            yield connection

    @contextmanager
    def _opening(self, what: str) -> Iterator[Connection]:
        """Borrow a session to change the ledger, and upgrade an older ledger first. `what` completes "cannot ..."."""
        with self._connect.borrow() as connection:
            self._connect.refuse_unwritable(what)
            open_ledger(connection, self._schema)
            yield connection

    def _rights(self, connection: Connection, load_id: str) -> LoadRights:
        rights = read_rights(connection, self._schema, load_id)
        if rights is None:
            raise no_such_load(load_id)
        return rights

    def _tools(self, connection: Connection) -> LoadTools:
        major = connection.info.server_version // 10_000
        sources = SourceReader(formats=FORMATS, credentials=AwsCredentials())
        return LoadTools(connect=self._connect, sources=sources, server_major=major, ledger=Ledger(self._schema))

    def forget(self, load_id: str, *, keeps_rows: bool = False) -> list[StayingRows]:
        """Remove a load from the ledger, and return how many of its rows remain in each table.

        The load must not be running. The load's objects then count as not loaded. If rows remain, TargetError is raised
        unless `keeps_rows` is true.
        """
        with self._connect.borrow() as connection:
            if not list_loads(connection, self._schema, load_id=load_id):
                raise no_such_load(load_id)
        with self._opening("forget a load") as connection:
            return forget_load(connection, self._schema, load_id, keeps_rows=keeps_rows)
