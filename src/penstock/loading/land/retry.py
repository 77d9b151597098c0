"""Retries rejected records: those that violated a foreign key at a load's end, and all of them when a user asks for it.

A retry is one transaction: its rows, the counts in the ledger and the end of the rejects are committed together, so a
retry that is killed has changed nothing. Records of a table that COPY filled, or that was replaced, are copied into the
table. Records that a statement stored (a merge, a transform) are staged in a temporary table, and the same statement
stores them. Referenced tables come first. Records that violate a foreign key are tried again as long as some are
stored.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from penstock.changes.records import read_changes
from penstock.changes.tables.copied import refuse_copied
from penstock.changes.tables.kinds import AUTOVACUUM_PAUSE
from penstock.changes.tables.look import refuse_missing
from penstock.core.catalogue.catalog import find_table, read_partition_line
from penstock.core.catalogue.staging import make_landing_table, truncate_landing_table
from penstock.core.catalogue.tables import LoadedTable
from penstock.core.connect.connection import Connection
from penstock.core.connect.errors import translate_errors
from penstock.core.errors import FileLocation, PenstockError, TargetError, UsageError
from penstock.core.slotted import slotted
from penstock.core.sql import fetch_names
from penstock.core.values.job import TargetJob
from penstock.core.values.mode import EVENT_BITS, Landing
from penstock.core.values.notice import Notice
from penstock.core.values.table import TableFacts, TableName
from penstock.ledger.ledger import commit_durably, taken_over
from penstock.ledger.locks import try_lock
from penstock.ledger.rejects import (
    FOREIGN_KEY_VIOLATION,
    Correction,
    Reason,
    RecordForm,
    Reject,
    RejectingLoad,
    RejectStore,
    RetryOutcome,
    StoredForm,
)
from penstock.ledger.targets import add_counts, read_landed
from penstock.ledger.values import Claim, LandedTarget, MergeCounts
from penstock.loading.context import LoadTools
from penstock.loading.copy.copy import CopyFailed, CopySession, Superseded
from penstock.loading.land.merge import hold_count, remove_literals
from penstock.loading.land.merges import STATEMENTS, MergeStatement, SortingMerges, StagedRecords
from penstock.loading.plan.identity import find_other_settings, job_from_json, loaded_columns
from penstock.loading.plan.order import rank_tables
from penstock.loading.rejects.explain import explain_failure, shorten_reason, too_many_rejects
from penstock.loading.rejects.pieces import Origin, Piece, form_from_json, make_origin
from penstock.loading.rejects.reject_file import read_reject_file
from penstock.loading.rejects.sorter import RejectSorter, SortedRecords, make_piece, part_unwritable

if TYPE_CHECKING:
    from penstock.loading.land.merge_errors import RecordPosition

_TEMPORARY = "pg_temp"

# An object's number, and the offset of one of its records.
_Key: TypeAlias = tuple[int, int]

# Advances the sequences of columns of a table past their values, and returns warnings.
Advance: TypeAlias = Callable[[Connection, TableFacts, Collection[str]], Sequence[str]]

# The stored form of each object's records, and what it says.
_Forms: TypeAlias = Mapping[int, tuple[StoredForm, RecordForm]]


def retry_references(
    claim: Claim,
    tools: LoadTools,
    connection: Connection,
    *,
    max_rejects: int | None = None,
) -> None:
    """Retry the load's records that were rejected for a foreign key, until no more of them can be stored.

    They are copied in one transaction, which is committed. Raises DataError if more than `max_rejects` rejected records
    of the load are left, and PenstockError.
    """
    store = RejectStore(tools.ledger.schema, claim.load_id)
    forms = _read_forms(store, connection)
    retry = _Retry(claim, tools, connection, [_RetriedTable(origins=_make_origins(forms, tools))])
    with retry.committing():
        retry.send_references()
    if max_rejects is None or store.count(connection) <= max_rejects:
        return
    uris = {number: stored.uri for number, (stored, _) in forms.items()}
    raise too_many_rejects(max_rejects, store.read(connection), uris=uris)


def retry_rejects(
    load_id: str,
    tools: LoadTools,
    connection: Connection,
    *,
    advance: Advance,
    path: Path | None = None,
    into: TableName | None = None,
) -> RetryOutcome:
    """Retry the rejected records of a complete load, or only the records in the edited reject file `path`.

    `into` names the table of the file's records if several of the load's reject files have the same header. Records
    that are refused again stay rejected. `advance` advances the sequences of a table's columns past their values, and
    returns warnings. Return how many rows were stored, how many records triggers skipped, and how many are still
    rejected. Raises PenstockError; then nothing was changed. Needs TEMPORARY on the database.
    """
    if into is not None and path is None:
        raise UsageError(
            "--into cannot be used without a reject file", hint="It names the table of the file's records."
        )
    tools.connect.refuse_unwritable("load")
    store = RejectStore(tools.ledger.schema, load_id)
    load = store.read_load(connection)
    if load is None:
        raise TargetError(f"there is no load {load_id}", hint="penstock loads lists them.")
    if load.state != "complete":
        raise TargetError(f"load {load_id} has not ended", hint=f"Finish it first: penstock resume {load_id}.")
    if not try_lock(connection, load.lock_key):
        raise TargetError("another process works on this load", hint="Try again when it has ended.")
    _refuse_other_settings(load_id, load, tools)
    tables = store.read_targets(connection)
    refuse_copied(connection, refuse_missing(connection, tools.ledger.schema, tables), tables)
    _refuse_changed(load_id, connection, tools.ledger.schema, tables)
    if (emptied := store.find_emptied(connection)) is not None:
        raise _outdated(load_id, *emptied)
    edited = None if path is None else read_reject_file(load_id, path, tools, connection, into=into)
    targets = _find_targets(load_id, load, tools, connection, oids=tables)
    _refuse_triggers(load_id, load, targets, connection)
    claim = Claim(load_id=load_id, epoch=load.epoch, is_resumed=True)
    outcome = _Retry(claim, tools, connection, targets).run(edited)
    filled = targets if outcome.rows else ()
    messages = [message for target in filled for message in _advance(connection, target, advance)]
    return replace(outcome, warnings=tuple(Notice(code="sequences", message=message) for message in messages))


def _refuse_changed(load_id: str, connection: Connection, schema: str, oids: Sequence[int]) -> None:
    """Raise TargetError if a table, a partition or a parent lacks keys or fires no triggers because of a load."""
    line = read_partition_line(connection, oids)
    for change in read_changes(connection, schema):
        if change.relation_oid in line and not change.is_copied and change.kind != AUTOVACUUM_PAUSE.name:
            raise TargetError(
                f'cannot retry load {load_id}: indexes, keys or triggers of table "{line[change.relation_oid]}" are not'
                " restored yet",
                detail=f"Load {change.load_id} has dropped or disabled them.",
                hint="Retry when that load has ended. If it was killed, run penstock repair first.",
            )


def _refuse_other_settings(load_id: str, load: RejectingLoad, tools: LoadTools) -> None:
    """Raise TargetError if the session would read dates, times or intervals in another way than the load has."""
    # The tables are found without search_path.
    now = {name: value for name, value in tools.connect.input_settings.items() if name != "search_path"}
    meaning = json.loads(load.meaning)
    # A prune has removed the details of a load without rejected records.
    if "settings" in meaning and (changes := find_other_settings(meaning["settings"], now)):
        raise TargetError(
            f"load {load_id} has read its values by other settings",
            detail="\n".join(changes),
            hint="Set them as they were, by PGOPTIONS='-c datestyle=ISO,DMY' for example, and retry.",
        )


def _refuse_triggers(
    load_id: str, load: RejectingLoad, targets: Sequence[_RetriedTable], connection: Connection
) -> None:
    """Raise TargetError if the retry would fire triggers that did not fire for the load.

    They were disabled, or COPY filled a new table before it had any. The job of a pipe is not known.
    """
    job = None if load.job is None else job_from_json(load.job, load_id=load_id)
    is_silent = job is not None and job.rules.triggers == "disable"
    triggers: list[str] = []
    for target in targets if is_silent else [target for target in targets if target.is_new]:
        landing = Landing() if target.statement is None else target.statement.staged.job.landing
        events = sum(EVENT_BITS[event] for event in landing.events)
        oids = [] if target.facts is None else [target.facts.oid]
        with translate_errors("looking for triggers"):
            triggers += fetch_names(connection, "loading/user_triggers", oids=oids, events=events)
    if triggers:
        raise TargetError(
            f"a retry of load {load_id} would fire triggers that did not fire for the load",
            detail=f"Triggers: {', '.join(triggers)}.",
            hint="Disable them (ALTER TABLE ... DISABLE TRIGGER ...) until the retry has ended.",
        )


def _advance(connection: Connection, target: _RetriedTable, advance: Advance) -> Sequence[str]:
    """Advance the sequences of a table. Return warnings, also of an error, because the rows are stored."""
    if target.facts is None:
        return ()
    columns = {name for origin in target.origins.values() for name in origin.form.column_map.columns}
    if target.statement is not None:
        # A transform may fill any column.
        columns |= {column.name for column in target.facts.columns}
    try:
        return advance(connection, target.facts, columns)
    except (PenstockError, KeyboardInterrupt) as error:
        return (f"sequences were not advanced: {error or 'interrupted'}",)


@slotted
class _RetriedTable:
    """A table, and how the rejected records of its objects are sent, by the object's number.

    `statement` stores the records that are staged. It is None if COPY fills the table. `is_new` is whether COPY has
    filled a new table, which then replaced another one or became a partition.
    """

    origins: Mapping[int, Origin]
    facts: TableFacts | None = None
    statement: MergeStatement | None = None
    is_new: bool = False


def _read_forms(store: RejectStore, connection: Connection) -> _Forms:
    forms = store.read_forms(connection)
    return {number: (stored, form_from_json(stored.form)) for number, stored in forms.items()}


def _make_origins(
    forms: _Forms, tools: LoadTools, *, table: TableName | None = None, has_positions: bool = False
) -> dict[int, Origin]:
    """Return how the records of objects are sent: to their table, or to the given one."""
    return {
        number: make_origin(
            form if table is None else replace(form, table=table, working_names=()),
            number=number,
            uri=stored.uri,
            server_major=tools.server_major,
            has_positions=has_positions,
        )
        for number, (stored, form) in forms.items()
    }


def _find_targets(
    load_id: str, load: RejectingLoad, tools: LoadTools, connection: Connection, *, oids: Sequence[int]
) -> list[_RetriedTable]:
    """Return the targets with rejected records, referenced tables first. `oids` are those of the load's tables.

    Raises TargetError, ServerError.
    """
    schema = tools.ledger.schema
    landed = {
        TableName(schema=each.landing_schema, name=each.landing_table): each
        for each in read_landed(connection, schema, load_id)
    }
    by_table: dict[TableName, dict[int, tuple[StoredForm, RecordForm]]] = {}
    for number, (stored, form) in _read_forms(RejectStore(schema, load_id), connection).items():
        by_table.setdefault(form.table, {})[number] = stored, form
    targets: list[_RetriedTable] = []
    for table, forms in by_table.items():
        if (found := landed.get(table)) is None:
            facts = find_table(connection, table)
            if facts is None or facts.oid not in oids:
                raise _other_table(load_id, table)
            targets.append(_RetriedTable(origins=_make_origins(forms, tools), facts=facts))
        else:
            targets.append(_find_landed(forms, found, load, tools, connection, load_id=load_id))
    ranks, _ = rank_tables([target.facts for target in targets])
    return [target for _, target in sorted(zip(ranks, targets, strict=True), key=lambda pair: pair[0])]


def _other_table(load_id: str, table: TableName) -> TargetError:
    return TargetError(
        f'table "{table}" is not the one that load {load_id} has filled',
        detail="That one was renamed, or dropped and created again.",
        hint=f"Give it its name back; or write the records to a file with penstock rejects {load_id} --reject-file "
        "PATH, and load that.",
    )


def _find_landed(
    forms: _Forms,
    landed: LandedTarget,
    load: RejectingLoad,
    tools: LoadTools,
    connection: Connection,
    *,
    load_id: str,
) -> _RetriedTable:
    """Return the target whose records the load did not copy into the table itself."""
    if landed.table is None:
        (stored, _), *_ = forms.values()
        raise TargetError(f'table "{stored.table}" of load {load_id} does not exist any more')
    table = TableName(schema=landed.schema, name=landed.table)
    facts = find_table(connection, table)
    if facts is None:
        raise TargetError(f'table "{table}" does not exist any more')
    if landed.kind == "replacement":
        return _RetriedTable(origins=_make_origins(forms, tools, table=table), facts=facts, is_new=True)
    job = None if load.job is None else job_from_json(load.job, load_id=load_id)
    if job is None or landed.number >= len(job.targets):
        raise TargetError(
            f'rejected records of table "{table}" cannot be retried',
            detail="They come from a pipe, so the ledger does not have the job that says how they are stored.",
            hint=f"Write them to a file with penstock rejects {load_id} --reject-file PATH, correct that, and load it"
            " with the load's own options, but --mode upsert for sync, and append for truncate.",
        )
    _refuse_transform(load_id, job.targets[landed.number], table)
    columns = dict.fromkeys(loaded_columns(load.meaning, landed.number))
    columns |= dict.fromkeys(name for _, form in forms.values() for name in form.column_map.columns)
    staging = TableName(schema=_TEMPORARY, name=f"penstock_retry_{landed.number}")
    staged = StagedRecords(
        number=landed.number, job=job.targets[landed.number], facts=facts, columns=tuple(columns), staging=staging
    )
    return _RetriedTable(
        origins=_make_origins(forms, tools, table=staging, has_positions=True),
        facts=facts,
        statement=STATEMENTS[staged.job.landing.statement](connection, staged),
    )


# Matches the parts of a transform by which it may change rows that have no staged record. An UPDATE of a table is one,
# and ON CONFLICT DO UPDATE, WHEN MATCHED THEN UPDATE and FOR UPDATE are not.
_BEYOND_STAGED = re.compile(
    r"\bmatched\s+by\s+source\b|\bdelete\b|\btruncate\b"
    r"|\bupdate(?:\s*'|\s+(?!(?:set|of|nowait|skip|on|for|returning|limit|offset|fetch|from|as|is|in|and|or|not|then|else|end)\b)\w)",
    re.IGNORECASE,
)


def _refuse_transform(load_id: str, target: TargetJob, table: TableName) -> None:
    """Raise TargetError if a target's transform may change rows of records that a retry does not stage."""
    if target.transform is not None and _BEYOND_STAGED.search(remove_literals(target.transform.text)):
        raise TargetError(
            f'rejected records of table "{table}" cannot be retried',
            detail=f'Transform "{target.transform.name}" may also change or delete rows that have no staged record, '
            "and a retry stages only the rejected ones.",
            hint=f"Write them to a file with penstock rejects {load_id} --reject-file PATH, correct that, and load it "
            "with a statement that changes no other rows.",
        )


class _Retry:
    """One retry of rejected records of one load, in one session and one transaction.

    Methods raise CopyFailed, PenstockError.
    """

    def __init__(
        self, claim: Claim, tools: LoadTools, connection: Connection, targets: Sequence[_RetriedTable]
    ) -> None:
        self._claim = claim
        self._schema = tools.ledger.schema
        self._targets = targets
        self._origins = {number: origin for target in targets for number, origin in target.origins.items()}
        tables = {
            TableName(schema=origin.encoder.spec.schema, name=origin.encoder.spec.table): LoadedTable(
                target.facts.name, target.facts.oid
            )
            for target in targets
            if target.facts is not None and target.statement is None
            for origin in target.origins.values()
        }
        self._session = CopySession(connection, fence=tools.ledger.fence(claim), is_protected=True, tables=tables)
        self._store = RejectStore(self._schema, claim.load_id)
        self._sorter = RejectSorter(self._session)
        # The numbers of the targets whose staging tables exist.
        self._made: set[int] = set()
        self._rows = self._suppressed = 0
        # The records that a reject file has with other bytes.
        self._corrected: set[_Key] = set()

    def run(self, edited: Mapping[_Key, bytes] | None) -> RetryOutcome:
        """Send the load's rejected records in one transaction, commit it, and return the outcome.

        If `edited` is given, only its records are sent, with the bytes that it has for them. Its keys are pairs of an
        object's number and the record's offset in the object. In either case, the load's records that violate a foreign
        key are then sent until no more of them can be stored. Raises PenstockError.
        """
        with self.committing():
            self._send_all(edited=edited)
            self.send_references()
            with self._session.between_copies() as connection:
                self._note_corrected(connection)
                left = self._store.count(connection)
                # A load may have emptied the table while the records waited for its lock.
                if (emptied := self._store.find_emptied(connection)) is not None:
                    raise _outdated(self._claim.load_id, *emptied)
            # This commit must be durable, because the load has no later commit that flushes the WAL.
            self._session.execute(commit_durably())
        return RetryOutcome(load_id=self._claim.load_id, rows=self._rows, suppressed=self._suppressed, left=left)

    def _note_corrected(self, connection: Connection) -> None:
        """Record which records are not as their objects have them, also those that were refused again."""
        starts: dict[int, list[int]] = {}
        for number, start in self._corrected:
            starts.setdefault(number, []).append(start)
        if starts:
            self._store.note_corrected(connection, starts)

    @contextmanager
    def committing(self) -> Iterator[None]:
        """Run the block in one transaction, and commit it unless another process has taken over the load.

        Raises PenstockError.
        """
        try:
            self._session.begin()
            yield
            self._session.commit()
        except CopyFailed as failure:
            raise explain_failure(failure, where=failure.location) from failure
        except Superseded as exc:
            raise taken_over(self._claim.load_id) from exc
        except PenstockError:
            self._session.roll_back()
            raise

    def send_references(self) -> None:
        """Send the records that violated a foreign key, until no more of them can be stored.

        The last records are sent first, because most of these records come before the records that they refer to. Each
        further pass reverses the order.
        """
        is_backwards = True
        while self._send_all(codes=[FOREIGN_KEY_VIOLATION], is_backwards=is_backwards):
            is_backwards = not is_backwards

    def _send_all(
        self,
        *,
        edited: Mapping[_Key, bytes] | None = None,
        codes: Sequence[str] | None = None,
        is_backwards: bool = False,
    ) -> int:
        """Send records of all targets once, and return how many of them were not refused again."""
        settled, sent = 0, set[_Key]()
        for target in self._targets:

            def read(target: _RetriedTable = target) -> Iterator[list[Reject]]:
                for rejects in self._read(sorted(target.origins), codes, is_backwards=is_backwards):
                    if edited is None:
                        yield rejects
                    elif chosen := [reject for reject in rejects if _key(reject) in edited]:
                        sent.update(map(_key, chosen))
                        again = [replace(reject, raw=edited[_key(reject)]) for reject in chosen]
                        self._corrected.update(_find_corrected(chosen, again))
                        yield again

            settled += self._copy(read()) if target.statement is None else self._merge(target.statement, read)
        if edited is not None and len(sent) < len(edited):
            raise _removed_meanwhile()
        return settled

    def _read(
        self, objects: Sequence[int], codes: Sequence[str] | None, *, is_backwards: bool
    ) -> Iterator[list[Reject]]:
        """Yield rejected records, a few MiB at a time (see RejectStore.read). Records may be sent in between."""
        beyond = None
        while True:
            with self._session.between_copies() as connection:
                rejects = self._store.read(
                    connection, beyond=beyond, objects=objects, codes=codes, is_backwards=is_backwards
                )
            if not rejects:
                return
            yield rejects
            beyond = _key(rejects[-1])

    def _send(self, rejects: Sequence[Reject]) -> SortedRecords:
        """Copy records, and return which were stored and which were refused. The ledger is not changed."""
        pieces: list[Piece] = []
        unwritable: list[Reject] = []
        for reject in rejects:
            parts, refused = part_unwritable(make_piece(reject, self._origins[reject.object_number]))
            pieces += parts
            unwritable += refused
        found = self._sorter.send(pieces)
        found.rejects += unwritable
        return found

    def _settle(
        self, rejects: Sequence[Reject], refused: Iterable[Reject], suppressed: Mapping[int, int] | None = None
    ) -> int:
        """Remove the records that were not refused again from the ledger's rejects, and return their number.

        The refused records get their new reasons and bytes. `suppressed` is the number of records, by object, that row
        triggers skipped. Raises TargetError if another process has removed one of the records.
        """
        again, skipped = {_key(reject): reject for reject in refused}, suppressed or {}
        stored = [reject for reject in rejects if _key(reject) not in again]
        corrections = [
            Correction(object_number=number, rows=count - skipped.get(number, 0), suppressed=skipped.get(number, 0))
            for number, count in Counter(reject.object_number for reject in stored).items()
        ]
        with self._session.between_copies() as connection:
            self._store.renew(connection, list(again.values()))
            if stored:
                if self._store.remove(connection, stored) != len(stored):
                    raise _removed_meanwhile()
                self._store.correct(connection, corrections)
        return len(stored)

    def _copy(self, chosen: Iterable[Sequence[Reject]]) -> int:
        """Send records to the table itself."""
        settled = 0
        for rejects in chosen:
            found = self._send(rejects)
            settled += self._settle(rejects, found.rejects, found.suppressed)
            self._rows += found.rows
            self._suppressed += found.suppressed.total()
        return settled

    def _merge(self, statement: MergeStatement, read: Callable[[], Iterable[Sequence[Reject]]]) -> int:
        """Stage records, and store them with the target's statement. `read` yields the same records each time."""
        staged = statement.staged
        refused: dict[_Key, Reject] = {}
        sent = 0
        for rejects in read():
            self._make_table(staged)
            sent += len(rejects)
            refused |= {_key(reject): reject for reject in self._send(rejects).rejects}
        reasons: dict[_Key, Reason] = {}
        if sent > len(refused):
            with self._session.between_copies() as connection:
                counts, reasons = self._store_staged(statement, connection)
                hold_count(staged.facts.name, counts.staged + len(reasons), records=sent - len(refused))
                landed = counts.landed(number=staged.number, target_oid=staged.facts.oid)
                add_counts(connection, self._schema, self._claim.load_id, landed)
            self._rows += counts.inserted + counts.updated
            self._suppressed += counts.suppressed
        settled = 0
        for rejects in read():
            again = [refused[_key(reject)] for reject in rejects if _key(reject) in refused]
            again += [replace(reject, reason=reasons[_key(reject)]) for reject in rejects if _key(reject) in reasons]
            settled += self._settle(rejects, again)
        return settled

    def _make_table(self, staged: StagedRecords) -> None:
        """Create the target's staging table, unless this retry has created it already."""
        if staged.number not in self._made:
            with self._session.between_copies() as connection:
                make_landing_table(
                    connection,
                    schema=_TEMPORARY,
                    name=staged.staging.name,
                    target=staged.facts,
                    columns=staged.columns,
                    as_text=staged.job.transform is not None,
                )
            self._made.add(staged.number)

    def _store_staged(
        self, statement: MergeStatement, connection: Connection
    ) -> tuple[MergeCounts, dict[_Key, Reason]]:
        """Store the staged records and empty the table. Return the counts, and the reason for each refused record."""
        statement.check()
        merges = SortingMerges(connection, name_record=self._name_record)
        (counts,) = merges.run([statement])
        refused = (record for sorter in merges.sorters for record in sorter.read_refused())
        reasons = {
            (record.position.object_number, record.position.block_start): shorten_reason(record.reason)
            for record in refused
        }
        truncate_landing_table(connection, statement.staged.staging)
        return counts, reasons

    def _name_record(self, position: RecordPosition) -> FileLocation | str:
        """Return the line of a staged record in its file. In a retry, each record is a block of its own."""
        number, start = position.object_number, position.block_start
        with self._session.between_copies() as connection:
            (reject,) = self._store.read(connection, beyond=(number, start - 1), limit_bytes=1)
        return FileLocation(file=self._origins[number].uri, line=reject.line)


def _find_corrected(before: Sequence[Reject], after: Sequence[Reject]) -> Iterator[_Key]:
    """Yield the keys of the records that have other bytes now, apart from their line ends."""
    for was, now in zip(before, after, strict=True):
        if was.raw.strip(b"\r\n") != now.raw.strip(b"\r\n"):
            yield _key(now)


def _outdated(load_id: str, table: str, later: str) -> TargetError:
    return TargetError(
        f'load {later} has emptied, replaced or synced table "{table}" since load {load_id}',
        detail="The rejected records belong to what the table had before.",
        hint=f"Delete them with penstock rejects {load_id} --discard, or write them to a file with --reject-file and"
        " load that file.",
    )


def _removed_meanwhile() -> TargetError:
    """Return the error for records that another process has retried or discarded."""
    return TargetError("rejected records of this load were loaded or removed just now", hint="Try again.")


def _key(reject: Reject) -> _Key:
    return reject.object_number, reject.start
