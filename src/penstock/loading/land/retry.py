"""Retries the rejected records of all targets of a complete load in one transaction, when a user asks for it.

The rows, the counts in the ledger and the end of the rejects are committed together: a retry that is killed has changed
nothing. Records of a table that COPY filled, or that was replaced, are copied into the table. Records that a statement
stored (a merge, a transform) are staged in a temporary table, and the same statement stores them. Referenced tables
come first. Records that violate a foreign key are tried again as long as some are stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from penstock.changes.tables.copied import refuse_copied
from penstock.changes.tables.look import refuse_missing
from penstock.core.catalogue.catalog import find_table
from penstock.core.catalogue.staging import make_landing_table, truncate_landing_table
from penstock.core.errors import FileLocation, TargetError, UsageError
from penstock.core.frozen import frozen
from penstock.core.tuning import DEFAULT_TUNING
from penstock.core.values.table import TableFacts, TableName
from penstock.ledger.ledger import commit_durably
from penstock.ledger.locks import try_lock
from penstock.ledger.rejects import (
    FOREIGN_KEY_VIOLATION,
    Reason,
    RecordForm,
    Reject,
    RejectingLoad,
    RejectStore,
    RetryOutcome,
    StoredForm,
)
from penstock.ledger.targets import add_counts, read_landed
from penstock.ledger.values import Claim, LandedTarget
from penstock.loading.land.merge import hold_count
from penstock.loading.land.merge_sorting import settle
from penstock.loading.land.merges import STATEMENTS, explaining, find_refusal, open_sorter
from penstock.loading.plan.identity import job_from_json, loaded_columns
from penstock.loading.plan.order import rank_tables
from penstock.loading.rejects.explain import shorten_reason
from penstock.loading.rejects.pieces import Origin, form_from_json, make_origin
from penstock.loading.rejects.reject_file import read_reject_file
from penstock.loading.rejects.retry import Resender, committing, removed_meanwhile

if TYPE_CHECKING:
    from penstock.core.connect.connection import Connection
    from penstock.core.values.job import TargetJob
    from penstock.loading.context import LoadTools
    from penstock.loading.land.merge import MergeCounts
    from penstock.loading.land.merge_errors import RecordPosition

_TEMPORARY = "pg_temp"

# An object's number, and the offset of one of its records.
_Key: TypeAlias = tuple[int, int]


def retry_rejects(
    load_id: str,
    tools: LoadTools,
    connection: Connection,
    *,
    path: Path | None = None,
    into: TableName | None = None,
) -> RetryOutcome:
    """Retry the rejected records of a complete load, or only the records in the edited reject file `path`.

    `into` names the table of the file's records if several of the load's files have the same header. Records that are
    refused again stay rejected. Raises PenstockError; then nothing was changed. Needs TEMPORARY on the database.
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
    tables = store.find_tables(connection)
    refuse_copied(connection, refuse_missing(connection, tools.ledger.schema, tables), tables)
    edited = None if path is None else read_reject_file(load_id, path, tools, connection, into=into)
    targets = _find_targets(load_id, load, tools, connection)
    again = _Retry(Claim(load_id=load_id, epoch=load.epoch, is_resumed=True), tools, connection, targets)
    return again.run(edited)


@frozen
class _Staged:
    """How the records of a target are staged and stored. `number` is the target's number in the job."""

    number: int
    job: TargetJob
    facts: TableFacts
    columns: tuple[str, ...]
    table: TableName


@frozen
class _RetriedTable:
    """A table, and the forms of its objects with rejected records. `staged` is None if COPY fills the table."""

    forms: Mapping[int, tuple[StoredForm, RecordForm]]
    facts: TableFacts | None
    staged: _Staged | None = None

    @property
    def objects(self) -> list[int]:
        """Return the numbers of the objects."""
        return sorted(self.forms)

    def make_origins(self, server_major: int) -> dict[int, Origin]:
        """Return, by the object's number, the table to which the object's records are sent, and how."""
        return {
            number: make_origin(
                form, number=number, uri=stored.uri, server_major=server_major, has_positions=self.staged is not None
            )
            for number, (stored, form) in self.forms.items()
        }


def _find_targets(load_id: str, load: RejectingLoad, tools: LoadTools, connection: Connection) -> list[_RetriedTable]:
    """Return the targets with rejected records, referenced tables first. Raises TargetError, ServerError."""
    schema = tools.ledger.schema
    landed = {
        TableName(schema=each.landing_schema, name=each.landing_table): each
        for each in read_landed(connection, schema, load_id)
    }
    by_table: dict[TableName, dict[int, tuple[StoredForm, RecordForm]]] = {}
    for number, stored in RejectStore(schema, load_id).read_forms(connection).items():
        form = form_from_json(stored.form)
        by_table.setdefault(form.table, {})[number] = stored, form
    targets = [
        _find_target(forms, landed.get(table), load, connection, load_id=load_id) for table, forms in by_table.items()
    ]
    ranks, _ = rank_tables([target.facts for target in targets])
    return [target for _, target in sorted(zip(ranks, targets, strict=True), key=lambda pair: pair[0])]


def _find_target(
    forms: Mapping[int, tuple[StoredForm, RecordForm]],
    landed: LandedTarget | None,
    load: RejectingLoad,
    connection: Connection,
    *,
    load_id: str,
) -> _RetriedTable:
    stored, form = next(iter(forms.values()))
    if landed is None:
        return _RetriedTable(forms=forms, facts=find_table(connection, form.table))
    if landed.table is None:
        raise TargetError(f'table "{stored.table}" of load {load_id} does not exist any more')
    table = TableName(schema=landed.schema, name=landed.table)
    facts = find_table(connection, table)
    if facts is None:
        raise TargetError(f'table "{table}" does not exist any more')
    if landed.kind == "replacement":
        return _RetriedTable(forms=_send_into(forms, table), facts=facts)
    job = None if load.job is None else job_from_json(load.job, load_id=load_id)
    if job is None or landed.number >= len(job.targets):
        raise TargetError(
            f'rejected records of table "{table}" cannot be retried',
            detail="They come from a pipe, so the ledger does not have the job that says how they are stored.",
            hint=f"Write them to a file with penstock rejects {load_id} --reject-file PATH, correct that, and load it"
            " with the load's own options.",
        )
    names = dict.fromkeys((*loaded_columns(load.meaning, landed.number), *_name_columns(forms)))
    staged = _Staged(
        number=landed.number,
        job=job.targets[landed.number],
        facts=facts,
        columns=tuple(names),
        table=TableName(schema=_TEMPORARY, name=f"penstock_retry_{landed.number}"),
    )
    return _RetriedTable(forms=_send_into(forms, staged.table), facts=facts, staged=staged)


def _name_columns(forms: Mapping[int, tuple[StoredForm, RecordForm]]) -> Iterator[str]:
    for _, form in forms.values():
        yield from form.column_map.columns


def _send_into(
    forms: Mapping[int, tuple[StoredForm, RecordForm]], table: TableName
) -> dict[int, tuple[StoredForm, RecordForm]]:
    return {number: (item, replace(form, table=table, working_names=())) for number, (item, form) in forms.items()}


class _Retry:
    """One retry, in one session and one transaction. Methods raise CopyFailed, PenstockError."""

    def __init__(
        self, claim: Claim, tools: LoadTools, connection: Connection, targets: Sequence[_RetriedTable]
    ) -> None:
        self._claim = claim
        self._schema = tools.ledger.schema
        self._targets = targets
        origins = {
            number: each for target in targets for number, each in target.make_origins(tools.server_major).items()
        }
        self._resender = Resender(claim, tools, connection, origins)
        self._session = self._resender.session
        self._merges = count()
        self._made: set[int] = set()
        self._rows = self._suppressed = 0
        # The records that a reject file has with other bytes.
        self._corrected: set[_Key] = set()

    def run(self, edited: Mapping[_Key, bytes] | None) -> RetryOutcome:
        """Send all records, or only those in `edited`. The commit is the last act: its answer is what is reported."""
        with committing(self._session, self._claim):
            self._send_all(edited=edited)
            while self._send_all(codes=[FOREIGN_KEY_VIOLATION]):
                pass
            with self._session.between_copies() as connection:
                self._note_corrected(connection)
                left = self._resender.store.count(connection)
            # This commit must be durable, because the load has no later commit that flushes the WAL.
            self._session.execute(commit_durably())
        return RetryOutcome(load_id=self._claim.load_id, rows=self._rows, suppressed=self._suppressed, left=left)

    def _note_corrected(self, connection: Connection) -> None:
        """Record which records are not as their objects have them, also those that were refused again."""
        starts: dict[int, list[int]] = {}
        for number, start in self._corrected:
            starts.setdefault(number, []).append(start)
        if starts:
            self._resender.store.note_corrected(connection, starts)

    def _send_all(self, *, edited: Mapping[_Key, bytes] | None = None, codes: Sequence[str] | None = None) -> int:
        """Send records of all targets once, and return how many of them were not refused again."""
        left = set(edited or ())
        settled = 0
        for target in self._targets:
            chosen = _Chosen(
                self._resender, target.objects, edited=edited, codes=codes, left=left, corrected=self._corrected
            )
            settled += self._copy(chosen) if target.staged is None else self._merge(target.staged, chosen)
        if left:
            raise removed_meanwhile()
        return settled

    def _copy(self, chosen: _Chosen) -> int:
        """Send records to the table itself."""
        settled = 0
        for rejects in chosen.read():
            found = self._resender.send(rejects)
            settled += self._resender.settle(rejects, found.rejects, suppressed=found.suppressed)
            self._rows += found.rows
            self._suppressed += found.suppressed.total()
        return settled

    # ---------------------------------------------------------------- targets that are staged

    def _merge(self, staged: _Staged, chosen: _Chosen) -> int:
        """Stage records, and store them with the target's statement."""
        refused: dict[_Key, Reject] = {}
        sent = 0
        for rejects in chosen.read():
            self._make_table(staged)
            sent += len(rejects)
            refused |= {_key(reject): reject for reject in self._resender.send(rejects).rejects}
        if not sent:
            return 0
        with self._session.between_copies() as connection:
            counts, reasons = self._store(staged, connection)
            hold_count(staged.facts.name, counts.staged + len(reasons), records=sent - len(refused))
            landed = counts.landed(number=staged.number, target_oid=staged.facts.oid)
            add_counts(connection, self._schema, self._claim.load_id, landed)
        self._rows += counts.inserted + counts.updated
        self._suppressed += counts.suppressed
        settled = 0
        for rejects in chosen.read():
            again = [refused[_key(reject)] for reject in rejects if _key(reject) in refused]
            again += [replace(reject, reason=reasons[_key(reject)]) for reject in rejects if _key(reject) in reasons]
            settled += self._resender.settle(rejects, again, suppressed={})
        return settled

    def _make_table(self, staged: _Staged) -> None:
        """Create the target's staging table, unless this retry has created it already."""
        if staged.number in self._made:
            return
        with self._session.between_copies() as connection:
            make_landing_table(
                connection,
                schema=_TEMPORARY,
                name=staged.table.name,
                target=staged.facts,
                columns=staged.columns,
                as_text=staged.job.transform is not None,
            )
        self._made.add(staged.number)

    def _store(self, staged: _Staged, connection: Connection) -> tuple[MergeCounts, dict[_Key, Reason]]:
        """Store the staged records and empty the table. Return the counts, and the reason for each refused record."""
        statement = STATEMENTS[staged.job.landing.statement](
            connection,
            number=staged.number,
            job=staged.job,
            facts=staged.facts,
            columns=staged.columns,
            staging=staged.table,
        )
        statement.check()
        refusal = find_refusal(connection, staged.facts)
        parts = statement.find_parts() if refusal is None else None
        reasons: dict[_Key, Reason] = {}
        if parts is None:
            with explaining(refusal, staged.facts):
                counts = statement.run(self._name_record, lambda _number, _said: None)
        else:
            sorter = open_sorter(
                connection,
                parts,
                number=next(self._merges),
                portion_bytes=DEFAULT_TUNING.batch.merge_portion_bytes,
                name_record=self._name_record,
            )
            sorter.merge()
            settle([sorter])
            for record in sorter.refused.read():
                key = record.position.object_number, record.position.block_start
                reasons[key] = shorten_reason(record.reason)
            counts = sorter.counts()
        truncate_landing_table(connection, staged.table)
        return counts, reasons

    def _name_record(self, position: RecordPosition) -> FileLocation | str:
        """Return the line of a staged record in its file. In a retry, each record is a block of its own."""
        number, start = position.object_number, position.block_start
        with self._session.between_copies() as connection:
            (reject,) = self._resender.store.read(connection, beyond=(number, start - 1), limit_bytes=1)
        return FileLocation(file=self._resender.origins[number].uri, line=reject.line)


class _Chosen:
    """The rejected records of some objects that are sent in one pass.

    If `edited` is given, only the records that are in it are sent, with the bytes that it has for them, and are removed
    from `left`. Those whose bytes are others are added to `corrected`.
    """

    def __init__(
        self,
        resender: Resender,
        objects: Sequence[int],
        *,
        edited: Mapping[_Key, bytes] | None,
        codes: Sequence[str] | None,
        left: set[_Key],
        corrected: set[_Key],
    ) -> None:
        self._resender = resender
        self._objects = objects
        self._edited = edited
        self._codes = codes
        self._left = left
        self._corrected = corrected

    def read(self) -> Iterator[list[Reject]]:
        """Yield the records, a few MiB at a time. This may be called again before the records are settled."""
        for rejects in self._resender.read(objects=self._objects, codes=self._codes):
            if self._edited is None:
                yield rejects
            elif chosen := [reject for reject in rejects if _key(reject) in self._edited]:
                self._left.difference_update(map(_key, chosen))
                edited = [replace(reject, raw=self._edited[_key(reject)]) for reject in chosen]
                self._corrected.update(
                    _key(now)
                    for was, now in zip(chosen, edited, strict=True)
                    if was.raw.strip(b"\r\n") != now.raw.strip(b"\r\n")
                )
                yield edited


def _key(reject: Reject) -> _Key:
    return reject.object_number, reject.start
