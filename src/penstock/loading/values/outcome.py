"""The progress and the outcome of a load or of --check."""

from __future__ import annotations

from dataclasses import field, replace
from typing import Literal

from penstock.core.slotted import slotted
from penstock.core.units import MB, count_nouns, format_duration
from penstock.core.values.accounts import FileOutcome, LoadAccounts, StepPart, StepProgress, UnreadableObject
from penstock.core.values.diagnosis import Diagnosis
from penstock.core.values.notice import Notice
from penstock.core.values.server import describe_server
from penstock.ledger.values import LeftRejects


@slotted
class FileProgress:
    """The progress of one object of a load. `seconds` is the time since a session took its first block."""

    uri: str
    table: str
    # The stored size, None if it is not known.
    size_bytes: int | None
    # The stored (compressed) bytes that were read so far.
    bytes_read: int
    rows: int
    seconds: float
    is_done: bool


@slotted
class LoadProgress:
    """The progress of a running load."""

    # The rows that were sent and not skipped or rejected, as far as this is known.
    rows: int
    # The stored (compressed) bytes that were read, and the bytes that were sent by COPY.
    bytes_read: int
    bytes_copied: int
    # The stored size of all objects, None if it is not known.
    size_bytes: int | None
    # The seconds since the load began.
    elapsed_s: float
    # How many sessions send rows.
    sessions: int
    # The objects opened so far.
    files: tuple[FileProgress, ...]
    file_count: int
    # What the load does besides sending rows, such as a rebuild. Empty while it only sends rows.
    activity: str = ""
    # The steps of this activity that are running.
    steps: tuple[StepProgress, ...] = ()
    # The indexes and keys to rebuild after the last row.
    to_rebuild: int = 0
    # Whether the rows counted here are records in staging tables. A statement stores them at the end of the load.
    is_staged: bool = False


@slotted
class StatementOutcome:
    """What the server reported of a transform, the user's own statement."""

    # The name of the statement's file.
    name: str
    # The target for which the records were staged. The statement may store rows in other tables too.
    table: str
    # The number of staged records.
    records: int
    # The server's command tag, such as "MERGE 118".
    tag: str
    # The number of rows in the tag.
    rows: int


@slotted
class LoadShare:
    """What this process has done of a load by several hosts."""

    # The name of this host.
    host: str
    # The rows that this process has stored, and the number of their objects.
    rows: int
    objects: int
    # How many processes have loaded rows.
    members: int


@slotted
class LoadOutcome:
    """The outcome of a load that is complete. No count of rows includes those that a transform stored."""

    # The id of the load, None if no load was recorded, because every object had been loaded before.
    load_id: str | None
    state: Literal["complete"]
    # Whether only the primary is known to have the commit, because the wait for a synchronous standby was cancelled.
    is_local_only: bool
    # The rows that this run stored. If several hosts loaded (--join), the rows that all hosts stored.
    rows: int
    # The rows that were committed before this run resumed the load.
    rows_before: int
    # The objects that earlier loads had loaded.
    objects_skipped: int
    # The number of rejected records, None if they could not be counted after the load was complete.
    rejected: int | None
    # The records that row triggers skipped.
    suppressed: int
    bytes_read: int
    bytes_copied: int
    # The duration of the load, without the steps that follow its end, such as VACUUM.
    seconds: float
    # The time that sessions spent sending or waiting for the server, summed over the sessions.
    busy_seconds: float
    sessions: int
    files: tuple[FileOutcome, ...]
    # New rows of a merge by key.
    inserted: int = 0
    # Existing rows that a merge by key updated.
    updated: int = 0
    # Rows that --mode sync deleted, because the files do not have their keys.
    deleted: int = 0
    # The tables in which the deletions changed rows that referred to deleted ones, each with the foreign key's action.
    cascades: tuple[str, ...] = ()
    # Records that were not stored because another record with their key was stored.
    duplicates: int = 0
    # Records that were skipped because the table had a row with their key.
    existing: int = 0
    # What the server reported of each transform, in the job's order.
    statements: tuple[StatementOutcome, ...] = ()
    # What the steps before and after the rows did, by the name of the step.
    steps: dict[str, StepPart] = field(default_factory=dict)
    server: str = ""
    database: str = ""
    # Records of skipped objects that earlier loads rejected and that have been neither loaded nor discarded.
    rejects_left: tuple[LeftRejects, ...] = ()
    # Objects that could not be read to their end. None of their rows is loaded, and the next load tries them again.
    unreadable: tuple[UnreadableObject, ...] = ()
    # The warnings of the plan and of the load.
    warnings: tuple[Notice, ...] = ()
    # Where the time of sessions and readers went.
    accounts: LoadAccounts | None = None
    # What limited the load, the largest share of its time first.
    diagnoses: tuple[Diagnosis, ...] = ()
    # What this process has done if several hosts loaded (--join), otherwise None.
    share: LoadShare | None = None

    @property
    def transformed(self) -> frozenset[str]:
        """The names of the targets with a transform. Its statement may have stored the rows in any table."""
        return frozenset(statement.table for statement in self.statements)

    @property
    def headline(self) -> str:
        """What was loaded, how fast and where, in one line: the first line that the command prints."""
        on_server = describe_server(self.server, self.database)
        if self.load_id is None:
            skipped = self.objects_skipped
            why = f"{count_nouns(skipped, 'object')} already loaded" if skipped else "no files"
            return f"nothing to load: {why}{on_server}"
        tables = list(dict.fromkeys(file.table for file in self.files if file.table not in self.transformed))
        # If only the last transaction of an interrupted load remained, the outcome has no files.
        into = f" into {tables[0] if len(tables) == 1 else f'{len(tables)} tables'}" if tables else ""
        what = f"loaded {count_nouns(self.rows, 'row')}{into}"
        if self.statements and not tables:
            what = f"staged {count_nouns(sum(statement.records for statement in self.statements), 'record')}"
        rate = self.bytes_copied / self.seconds / MB if self.seconds > 0 else 0.0
        pace = f"{rate:.{0 if rate >= 100 else 1}f} MB/s, {count_nouns(self.sessions, 'session')}"
        return f"{what} in {format_duration(self.seconds)} ({pace}){on_server}"

    def __str__(self) -> str:
        """Return what was loaded, and how much was not, in one line."""
        rejected = [f"rejected {count_nouns(self.rejected, 'record')}"] if self.rejected else []
        unreadable = [f"{count_nouns(len(self.unreadable), 'object')} not readable"] if self.unreadable else []
        return ", ".join([self.headline, *rejected, *unreadable])

    def with_part(self, step: str, part: StepPart) -> LoadOutcome:
        """Return the outcome with what one step did. `step` is the step's name."""
        return replace(self, steps=self.steps | {step: part})


@slotted
class BadRecord:
    """One bad record that --check found."""

    uri: str
    # The line in the file; None if it is not known.
    line: int | None = None
    # The column of the bad value, None if it is not known.
    column: str | None = None
    message: str
    sqlstate: str | None = None
    hint: str | None = None


@slotted
class CheckOutcome:
    """What --check read, and the bad records that it found."""

    # The records that the server has parsed.
    rows: int
    # The stored (compressed) bytes.
    bytes_read: int
    seconds: float
    # The first problems; their number is limited.
    problems: tuple[BadRecord, ...]
    # How many problems were found in all.
    problem_count: int
    # False if some records were not checked.
    is_complete: bool
    server: str = ""
    database: str = ""
    warnings: tuple[Notice, ...] = ()
