"""Decides whether a load can be undone, and whether what is found in its tables is what it has stored. Pure.

The module also has what an undo reads from the ledger, and what it has removed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from penstock.changes.values import Change
from penstock.core.errors import PenstockError, TargetError
from penstock.core.slotted import slotted
from penstock.core.units import count_nouns
from penstock.core.values.notice import Notice
from penstock.core.values.table import TableName


@slotted
class UndoTable:
    """A row of undo_tables.sql: a table of a load, and the transactions that stored rows."""

    schema: str
    name: str
    # The table's oid in this database, None if the table does not exist any more.
    oid: int | None
    # pg_class.relkind, None if the table does not exist any more.
    kind: str | None
    # Whether the load ran in this database, and not in one of which this is a copy or a restored dump.
    is_here: bool
    # Whether the role has the rights to read and to delete the rows.
    may_delete: bool
    # The foreign keys that refer to the table, each with what it does when rows are deleted.
    referrers: list[str]
    # The later loads that have skipped records because rows of the table had their keys.
    skipping: list[str]
    # The triggers on INSERT that may have changed other rows of the table when the load stored its rows.
    writers: list[str]
    # The rows that the load has stored, by the ledger.
    rows: int
    # The records that row triggers have skipped, by the ledger. They may have stored them elsewhere.
    suppressed: int
    # Whether the ledger has the transactions of all these rows.
    is_known: bool
    # Whether the server imported objects of it. Its function may store rows in a subtransaction, which xmin then has.
    is_imported: bool
    # Whether so many transactions have followed that xmin does not tell the load's rows from others.
    is_old: bool
    # The values of xmin in the load's rows.
    transactions: list[str]

    @property
    def table(self) -> TableName:
        """Return the table's name."""
        return TableName(schema=self.schema, name=self.name)


@slotted
class UndoneTable:
    """The rows that an undo has removed from a table, or would remove."""

    table: str
    # The rows that the load had stored, by the ledger.
    stored: int
    # Those of them that were found as the load had stored them, and were removed.
    rows: int
    # The foreign keys that refer to the table, each with what it does when rows are deleted.
    referrers: tuple[str, ...]


@slotted
class UndoOutcome:
    """The rows that an undo has removed from all tables of a load, or would remove."""

    load_id: str
    server: str
    database: str
    tables: tuple[UndoneTable, ...]
    # How many of the load's files another load has loaded into the same table, too.
    shared: int = 0
    warnings: tuple[Notice, ...] = ()

    @property
    def rows(self) -> int:
        """Return how many rows were removed from all tables, or would be removed."""
        return sum(each.rows for each in self.tables)


# Why a load in another mode than append cannot be undone.
_MODES = {
    "truncate": "it has removed the table's former rows, and nothing can restore them",
    "replace": "it has replaced the table, and the former one does not exist any more",
    "upsert": "it has updated rows, and their former values do not exist any more",
    "sync": "it has updated or deleted rows, and their former values do not exist any more",
}
# How rows land whose transactions the ledger has.
_BY_COPY = ("table", "partition")
# The modes whose next load leaves no row of this one.
_RENEWING = ("truncate", "replace")
_FORGET = "Remove the rows with a statement of your own, then run penstock loads forget {} --keep-rows."


def refuse_load(load_id: str, *, meaning: str, job: str | None, is_partial: bool) -> None:
    """Raise TargetError if an undo cannot remove the rows of a load, because of what the load has done.

    `meaning` and `job` are the JSON texts of these columns of the ledger; `job` is None for a load from a pipe. An
    earlier penstock has recorded transactions of rows under savepoints, and only the job shows that it stored such
    rows. An undo would not find them, and would take them for changed rows. So `is_partial` is refused without a job.
    """
    if "targets" not in (found := json.loads(meaning)):
        raise _refusal(load_id, "its details were pruned")
    targets: Sequence[Mapping[str, Any]] = found["targets"]
    whys = [_MODES[each["mode"]] for each in targets if each.get("mode") in _MODES]
    if any(each.get("transform") for each in targets):
        whys.append("the statement of its transform may have changed any row")
    elif not whys and any(each.get("landing") not in _BY_COPY and each.get("mode") != "insert-new" for each in targets):
        whys.append("its rows were moved from a staging table, and the ledger has no transactions of such moves")
    if job is not None and json.loads(job).get("rules", {}).get("on_error") == "reject":
        whys.append("with --on-error reject its rows were stored under savepoints, which the ledger does not have")
    if job is None and is_partial:
        whys.append("the ledger does not have the options of a load from a pipe, so --partial cannot be used")
    if whys:
        modes = {each.get("mode") for each in targets}
        renewing = modes.pop() if len(modes) == 1 else None
        hint = f"Load the right files with --mode {renewing}: no row of this load then stays."
        raise _refusal(load_id, whys[0], hint=hint if renewing in _RENEWING else _FORGET)


def refuse_tables(load_id: str, tables: Sequence[UndoTable], *, is_partial: bool) -> list[UndoTable]:
    """Raise TargetError if the rows of a load cannot be told from others. Return the tables that exist.

    With `is_partial`, other tables may have been dropped, and triggers may have stored records elsewhere.
    """
    here = [each for each in tables if each.oid is not None and each.kind is not None]
    gone = next((each for each in tables if each not in here), None)
    # Rows that the server imported may not be found, so what --partial leaves would be loaded again.
    is_imported = any(each.is_imported for each in tables)
    if gone is not None and not (here and is_partial):
        raise TargetError(
            f'table "{gone.table}" of load {load_id} does not exist any more',
            hint="Use --partial to remove the rows of the other tables."
            if here and not is_imported
            else f"Run penstock loads forget {load_id}, so that the files count as not loaded.",
        )
    for each in here:
        if not each.is_here:
            raise _refusal(
                load_id, f'table "{each.table}" is a copy, or was restored: its rows have other transactions'
            )
        if each.kind == "v":
            raise _refusal(load_id, f'"{each.table}" is a view, whose triggers have stored the rows elsewhere')
        if not each.is_known:
            raise _refusal(
                load_id,
                "the ledger does not have the transactions of all its rows: an older penstock, one in another "
                "database, or a run with --on-error reject has stored some",
            )
        if is_imported and is_partial:
            raise _refusal(
                load_id,
                "the server imported objects of it (--via server), and the ledger may not have the transactions that "
                "stored them, so --partial cannot be used",
            )
        if not each.may_delete:
            raise TargetError(
                f'permission denied to undo load {load_id}: the role lacks DELETE or SELECT on table "{each.table}"',
                hint="Have the owner grant both on the whole table: undo reads the system column xmin.",
                sqlstate="42501",
            )
        if each.is_old:
            raise _refusal(load_id, "2^31 transactions have followed, so that its rows cannot be told from others")
        if each.suppressed and not is_partial:
            raise TargetError(
                f"load {load_id} cannot be undone as a whole: row triggers skipped"
                f' {count_nouns(each.suppressed, "record")} of table "{each.table}"',
                detail="They may have stored them elsewhere, and undo does not find such rows.",
                hint=_FORGET.format(load_id)
                if is_imported
                else "Use --partial to remove the rows of the table alone. Rows elsewhere stay, and are stored a "
                "second time if the files are loaded again.",
            )
        _refuse_writers(load_id, each)
    return here


def _refuse_writers(load_id: str, table: UndoTable) -> None:
    if table.writers and table.rows:
        raise TargetError(
            f'load {load_id} cannot be undone: triggers may have changed other rows of table "{table.table}", which '
            "then look like the load's",
            detail=f"Triggers: {', '.join(table.writers)}.",
            hint="If they change no rows but those that are inserted, or did not fire for the load, disable them "
            f"for the undo. {_FORGET.format(load_id)}",
        )


def warn_unkeyed(changes: Iterable[Change], load_id: str, tables: Iterable[UndoTable]) -> list[Notice]:
    """Return a warning for each table whose keys are dropped, by the load or such that it involves one of `tables`.

    `changes` are those that are recorded and not restored.
    """
    oids = {each.oid for each in tables}
    unkeyed = [
        str(each.target)
        for each in changes
        if each.kind in ("constraint", "reference") and not each.is_copied
        if each.load_id == load_id or oids & {each.target_oid, *each.relations}
    ]
    return [
        Notice(
            code="not-restored",
            message=f'a load has dropped keys of table "{table}" and not restored them: foreign keys may not hold',
            hint="Run penstock repair before undo. If rows of this load keep it from restoring the keys, run it after.",
        )
        for table in dict.fromkeys(unkeyed)
    ]


def warn_skipped(tables: Iterable[UndoTable]) -> list[Notice]:
    """Return a warning for each table of which later loads have skipped records, perhaps because of the load's rows."""
    return [
        Notice(
            code="existing-keys",
            message=f"{count_nouns(len(each.skipping), 'later load')} skipped records of table"
            f' "{each.table}" whose keys existed',
            hint="If rows of the undone load had these keys, the table has no such rows after the undo. Then load the "
            f"files of these loads again, with --again: {', '.join(each.skipping)}.",
        )
        for each in tables
        if each.skipping and each.rows
    ]


def find_difference(
    load_id: str, tables: Sequence[UndoneTable], *, is_partial: bool, is_imported: bool
) -> PenstockError | None:
    """Return the error if a table has more or fewer unchanged rows of a load than the load stored, None if none has.

    With `is_partial`, fewer rows are no error. `is_imported` is whether the server imported objects of the load.
    """
    for each in tables:
        found = f'Of {count_nouns(each.stored, "row")} that it has stored in "{each.table}", {each.rows:,}'
        if each.rows > each.stored:
            return TargetError(
                f'table "{each.table}" has more rows of the transactions of load {load_id} than it has stored',
                detail=f"It has stored {each.stored:,}, and {each.rows:,} were found: a trigger may have added some.",
                hint=_FORGET.format(load_id),
            )
        if not each.rows and each.stored:
            return TargetError(
                f'load {load_id} cannot be undone: no row of it in table "{each.table}" is as it was stored',
                detail="They were updated, moved or deleted, or an ALTER TABLE has written the table anew, as "
                "--types widen does. Rows that the server imports may be stored under savepoints, and are then not "
                "found. Row security or a trigger may also keep rows.",
                hint=_FORGET.format(load_id),
            )
        if each.rows < each.stored and not is_partial:
            return TargetError(
                f"load {load_id} cannot be undone as a whole: some of its rows were updated, moved or deleted",
                detail=f"{found} are as they were stored. Row security or a trigger may also keep rows"
                f"{', and those that the server imported may not be found' if is_imported else ''}.",
                hint=_FORGET.format(load_id)
                if is_imported
                else "Use --partial to remove those alone. Rows that were updated since then stay, and are stored a "
                "second time if the files are loaded again.",
            )
    return None


def _refusal(load_id: str, why: str, *, hint: str = _FORGET) -> TargetError:
    return TargetError(f"load {load_id} cannot be undone: {why}", hint=hint.format(load_id))
