"""Adds up what the attempts of one load did. Only the ledger says which rows are stored."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain

from penstock.core.host.machine import cpu_count
from penstock.core.units import count_nouns
from penstock.core.values.accounts import (
    BackendIo,
    FileOutcome,
    LoadAccounts,
    ReaderSeconds,
    SessionSeconds,
    UnreadableObject,
    add_seconds,
)
from penstock.ledger.values import FinishedLoad
from penstock.loading.attempt import LoadAttempt
from penstock.loading.values.outcome import LoadOutcome, StatementOutcome


class Tally:
    """The totals of all attempts of one load in this process.

    `began_s` is when the load began, by the clock of `now_s`.
    """

    def __init__(self, *, began_s: float) -> None:
        self.began_s = began_s
        self.attempts = 0
        self.rejected = 0
        self._skipped = 0
        self._rows_before = 0
        self._rows_committed = 0
        self._bytes_read = 0
        self._bytes_copied = 0
        self._session_seconds, self._reader_seconds = SessionSeconds(), ReaderSeconds()
        self._readers = 0
        self._rows_s = 0.0
        self._io: BackendIo | None = None
        self._steps_s: dict[str, float] = {}
        self._cpu_began_s = time.process_time()
        self._sessions = 1
        self._files: dict[int, FileOutcome] = {}
        self._statements: dict[int, StatementOutcome] = {}
        self._deleted: dict[int, int] = {}
        self._cascades: dict[int, Sequence[str]] = {}
        self._unreadable: tuple[UnreadableObject, ...] = ()

    def note_before(self, *, skipped: int, rows: int) -> None:
        """Record how many objects earlier loads have loaded, and how many rows earlier runs have committed."""
        self._skipped = skipped
        self._rows_before = rows

    def note_attempt(self, attempt: LoadAttempt) -> None:
        """Add the bytes, rows and seconds of an attempt, whether it has failed or not."""
        totals = [running.totals for running in attempt.sessions]
        self.attempts += 1
        self._bytes_read += attempt.feed.bytes_read
        self._bytes_copied += sum(total.bytes_copied for total in totals)
        for total in totals:
            add_seconds(self._session_seconds, total.seconds)
        add_seconds(self._reader_seconds, attempt.feed.reader_seconds)
        self._readers = max(self._readers, attempt.feed.most_readers)
        self._rows_s += attempt.rows_s
        if attempt.io is not None:
            self._io = attempt.io if self._io is None else self._io.add(attempt.io)
        self._rows_committed += sum(total.rows_committed for total in totals)
        self._sessions = max(self._sessions, sum(total.bytes_copied > 0 for total in totals))
        for number, outcome in attempt.files():
            before = self._files.get(number)
            seconds = outcome.seconds + (0.0 if before is None else before.seconds)
            self._files[number] = replace(outcome, seconds=seconds)

    def note_step(self, name: str, seconds: float) -> None:
        """Add the seconds of a step before or after the rows. The time of a step without a name is not counted."""
        if name:
            self._steps_s[name] = self._steps_s.get(name, 0.0) + seconds

    def account(self, outcome: LoadOutcome, *, now_s: float) -> LoadOutcome:
        """Return the outcome with what the load has counted until `now_s`: seconds, bytes, rows and I/O."""
        accounts = LoadAccounts(
            elapsed_s=now_s - self.began_s,
            rows_s=self._rows_s,
            sessions=self._session_seconds,
            session_count=self._sessions,
            readers=self._reader_seconds,
            reader_count=self._readers,
            client_cpu_s=time.process_time() - self._cpu_began_s,
            client_cpus=cpu_count(),
            bytes_read=self._bytes_read,
            bytes_copied=self._bytes_copied,
            rows=outcome.rows,
            steps_s=self._steps_s,
            io=self._io,
        )
        return replace(outcome, accounts=accounts)

    @property
    def rows_seen(self) -> int:
        """Return how many rows of the load were committed according to what this process has seen.

        These are the rows of earlier runs and of this process, including rows that were deleted since.
        """
        return self._rows_before + self._rows_committed

    def note_statement(self, number: int, statement: StatementOutcome) -> None:
        """Record what the server reported of a transform. `number` is the index of its target in the job.

        The record replaces that of an earlier attempt.
        """
        self._statements[number] = statement

    def note_deleted(self, number: int, rows: int, cascades: Sequence[str]) -> None:
        """Record how many rows of a target were deleted because the files do not have them.

        `number` is the index of the target in the job. `cascades` name the tables whose rows foreign keys then changed,
        each with the action.
        """
        self._deleted[number], self._cascades[number] = rows, cascades

    @property
    def lack(self) -> str:
        """Return in words how many objects of the sources could not be read; an empty text if all of them were read."""
        return f"{count_nouns(len(self._unreadable), 'object')} could not be read" if self._unreadable else ""

    def note_unreadable(self, planned: Sequence[UnreadableObject], found: Mapping[int, UnreadableObject]) -> None:
        """Record the objects that could not be read.

        `planned` are those found in planning, and `found` the others by their numbers in the ledger.
        """
        self._unreadable = (*planned, *(found[number] for number in sorted(found)))
        self._files = {number: file for number, file in self._files.items() if number not in found}

    def set_file_rows(self, rows: Mapping[int, int]) -> None:
        """Set the row count of each object to its committed rows, given by the object's number in the ledger."""
        self._files = {number: replace(outcome, rows=rows.get(number, 0)) for number, outcome in self._files.items()}

    def outcome(self, load_id: str | None, finished: FinishedLoad, *, now_s: float) -> LoadOutcome:
        """Return the outcome of a load that is complete.

        `load_id` is None if this process had nothing to load. `finished` has the ledger's counts, which include earlier
        runs. `now_s` is the present time of the load's clock.
        """
        statements = tuple(self._statements[number] for number in sorted(self._statements))
        # Subtract the rows that the statements reported, because the ledger's row count includes them.
        reported = sum(statement.rows for statement in statements)
        rows = finished.rows - reported
        # A record that an earlier run had stored may have been rejected since, so the earlier count may be too large.
        before = min(self._rows_before, rows)
        return LoadOutcome(
            load_id=load_id,
            state="complete",
            is_local_only=finished.is_local_only,
            rows=rows - before,
            rows_before=before,
            objects_skipped=self._skipped,
            rejected=self.rejected,
            suppressed=finished.suppressed,
            bytes_read=self._bytes_read,
            bytes_copied=self._bytes_copied,
            seconds=now_s - self.began_s,
            busy_seconds=self._session_seconds.busy_s,
            sessions=self._sessions,
            files=tuple(self._files[number] for number in sorted(self._files)),
            inserted=finished.inserted - reported,
            updated=finished.updated,
            deleted=sum(self._deleted.values()),
            cascades=tuple(dict.fromkeys(chain.from_iterable(self._cascades.values()))),
            duplicates=finished.duplicates,
            existing=finished.existing,
            statements=statements,
            unreadable=self._unreadable,
        )
