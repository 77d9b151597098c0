"""What a load did, and how far it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from penstock.model.load.ledger import LeftRejects
    from penstock.model.load.shape import Rebuilt
    from penstock.model.server.settings import LeasedSetting
    from penstock.model.source.dialect import Notice


@dataclass(frozen=True, slots=True, kw_only=True)
class FileProgress:
    """One object's share. `bytes_read` counts stored (compressed) bytes; `size_bytes` is None where unknown."""

    uri: str
    table: str
    size_bytes: int | None
    bytes_read: int
    rows: int
    seconds: float
    is_done: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StepProgress:
    """Something that is made behind the last row, such as an index: how much of the phase it is in is done.

    `fraction` is None where the phase counts nothing.
    """

    name: str
    phase: str
    fraction: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadProgress:
    """A load in flight: `files` holds those that have been opened; `sessions` how many are sending.

    `activity` is what is done now where that is not loading, `steps` its parts that are under way. `to_rebuild` are the
    indexes and keys that are to be rebuilt after the last row. `is_staged`: all rows are records in staging tables,
    which a statement takes on at the end.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class FileOutcome:
    """One object's rows and the seconds from its first block to its last."""

    uri: str
    table: str
    rows: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementOutcome:
    """What the server reported of a user's own statement, which alone knows where its rows went.

    `name` is its file, `table` the target whose `records` were staged for it, `tag` the server's command tag, such as
    "MERGE 118", and `rows` the number in that.
    """

    name: str
    table: str
    records: int
    tag: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOutcome:
    """A finished load. `rows` are those this run stored; `suppressed` those that row triggers kept out.

    What a transform stored is in no count: `statements` have what the server reported of each, in the job's order.

    `load_id` is None where every object had been loaded before, so that nothing was written down.

    `rows_before` had been committed when the load was taken up again; `objects_skipped` had been loaded by earlier
    loads. `inserted` and `updated` tell apart the rows that were merged by a key, `duplicates` are records that gave
    way to another record with their key, `existing` those that were left out because a row had it. `is_local_only`: a
    synchronous standby was not waited for to the end. `busy_seconds` is the sessions' time spent sending or waiting for
    the server, summed. `rebuilt` are the indexes and keys that were parked, each with its own time; they took
    `rebuild_seconds` together, which `seconds` has in it. `settings` are those of the server that were others during
    the load. `warnings` are the plan's and the load's own.

    `rejected` is None if the records could not be counted behind a load that is complete.
    `rejects_left` are records of skipped objects that earlier loads have rejected and nobody has loaded or discarded.

    `gains` are what would have made it faster, at the user's word.

    `seconds` ends with the load itself. What followed is apart: `vacuum_s` for the tables in `vacuumed` and `analyzed`,
    `checkpoint_s`.
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
    rebuilt: tuple[Rebuilt, ...] = ()
    rebuild_seconds: float = 0.0
    vacuum_s: float = 0.0
    vacuumed: tuple[str, ...] = ()
    analyzed: tuple[str, ...] = ()
    checkpoint_s: float = 0.0
    gains: tuple[str, ...] = ()
    settings: tuple[LeasedSetting, ...] = ()
    server: str = ""
    database: str = ""
    rejects_left: tuple[LeftRejects, ...] = ()
    warnings: tuple[Notice, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One bad record that --check found. `line` is the file's; `column` where it is known."""

    uri: str
    line: int | None
    column: str | None
    message: str
    sqlstate: str | None
    hint: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOutcome:
    """What --check read and the problems it met.

    `problem_count` may exceed `problems`, which are limited; `is_complete` is False where something was left unchecked.
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
