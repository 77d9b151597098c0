"""The progress and the outcome of a load or of --check."""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, Literal

from penstock.frozen import frozen

if TYPE_CHECKING:
    from penstock.model.diagnosis import Diagnosis
    from penstock.model.load.accounts import LoadAccounts
    from penstock.model.load.details import FileOutcome, UnreadableObject
    from penstock.model.load.ledger import LeftRejects
    from penstock.model.load.part import StepPart, StepProgress
    from penstock.model.source.dialect import Notice


@frozen
class FileProgress:
    """The progress of one object. `bytes_read` counts stored (compressed) bytes; `size_bytes` is None if unknown."""

    uri: str
    table: str
    size_bytes: int | None
    bytes_read: int
    rows: int
    seconds: float
    is_done: bool


@frozen
class LoadProgress:
    """The progress of a running load: `files` are the objects opened so far, `sessions` how many sessions send rows.

    If the load does not send rows now, `activity` says what it does, and `steps` are the steps of this activity that
    are running. `to_rebuild` is the number of indexes and keys to rebuild after the last row. If `is_staged` is true,
    `rows` counts records in staging tables; at the end of the load a statement stores these records.
    """

    rows: int
    bytes_read: int
    bytes_copied: int
    size_bytes: int | None
    elapsed_s: float
    sessions: int
    files: tuple[FileProgress, ...]
    file_count: int
    activity: str = ""
    steps: tuple[StepProgress, ...] = ()
    to_rebuild: int = 0
    is_staged: bool = False


@frozen
class StatementOutcome:
    """What the server reported of a transform, the user's own statement.

    `name` is the statement's file. `table` is the target whose `records` were staged for it; the statement may store
    rows in other tables too. `tag` is the server's command tag, such as "MERGE 118", and `rows` the number in it.
    """

    name: str
    table: str
    records: int
    tag: str
    rows: int


@frozen
class LoadShare:
    """What this process has done of a load by several hosts; `members` is how many processes have loaded rows."""

    host: str
    rows: int
    objects: int
    members: int


@frozen
class LoadOutcome:
    """A finished load. `rows` counts the rows that this run stored, `suppressed` the records that row triggers skipped.

    No count includes the rows of a transform: `statements` has what the server reported of each, in the job's order.

    `load_id` is None if every object had been loaded before, so that no load was recorded.

    `rows_before` counts rows that were committed before this run resumed the load; `objects_skipped` counts objects
    that earlier loads had loaded. Of rows merged by a key, `inserted` and `updated` are counted apart; `duplicates`
    counts records that were not stored because another record with their key was, `existing` records that were skipped
    because the table had a row with their key. `is_local_only`: the wait for a synchronous standby was cancelled, so
    only the primary is known to have the commit. `busy_seconds` is the time that
    sessions spent sending or waiting for the server, summed over the sessions. `warnings` are those of the plan and of
    the load.

    `rejected` is None if the load is complete but its rejected records could not be counted afterwards. `rejects_left`
    are records of skipped objects that earlier loads rejected and that have been neither loaded nor discarded.
    `unreadable` are objects that could not be read to their end: nothing of them is loaded, and the next load tries
    them again.

    `steps` has what the steps before and after the rows did, by the name of the step. `seconds` does not include the
    steps that followed the load's end, such as VACUUM. `accounts` says where the time of sessions and readers went, and
    `diagnoses` what limited the load, the largest share of its time first. If several hosts loaded (--join), `share` is
    what this process has done, and `rows` are those of all.
    """

    load_id: str | None
    state: Literal["complete"]
    is_local_only: bool
    rows: int
    rows_before: int
    objects_skipped: int
    rejected: int | None
    suppressed: int
    bytes_read: int
    bytes_copied: int
    seconds: float
    busy_seconds: float
    sessions: int
    files: tuple[FileOutcome, ...]
    inserted: int = 0
    updated: int = 0
    duplicates: int = 0
    existing: int = 0
    statements: tuple[StatementOutcome, ...] = ()
    steps: dict[str, StepPart] = field(default_factory=dict)
    server: str = ""
    database: str = ""
    rejects_left: tuple[LeftRejects, ...] = ()
    unreadable: tuple[UnreadableObject, ...] = ()
    warnings: tuple[Notice, ...] = ()
    accounts: LoadAccounts | None = None
    diagnoses: tuple[Diagnosis, ...] = ()
    share: LoadShare | None = None

    def with_part(self, step: str, part: StepPart) -> LoadOutcome:
        """Return the outcome with what one step did added."""
        return replace(self, steps=self.steps | {step: part})


@frozen
class Problem:
    """One bad record that --check found. `line` is the line in the file; `column` is None if it is not known."""

    uri: str
    line: int | None
    column: str | None
    message: str
    sqlstate: str | None
    hint: str | None = None


@frozen
class CheckOutcome:
    """What --check read, and the problems it found.

    `problem_count` may be larger than the number of `problems`, which is limited. `is_complete` is False if some
    records were not checked.
    """

    rows: int
    bytes_read: int
    seconds: float
    problems: tuple[Problem, ...]
    problem_count: int
    is_complete: bool
    server: str = ""
    database: str = ""
    warnings: tuple[Notice, ...] = ()
