"""Decides which indexes, keys and foreign keys of a table are dropped while it is loaded, and which are kept. Pure.

What is dropped is rebuilt after the last row. Until then, other sessions can write rows that violate a dropped key. So
by default unique indexes and keys are kept, and other indexes and foreign keys are dropped only if the table is empty
and the load is large enough. With --indexes rebuild, the user says that no other session writes to the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from penstock.changes.tables.parts import ForeignKey, IndexPart, PartId, TableParts, group_families
from penstock.changes.values import IndexOrKey, IndexPlan
from penstock.core.slotted import slotted
from penstock.core.tuning import DEFAULT_TUNING, LoadTuning
from penstock.core.units import format_bytes
from penstock.core.values.job import Indexes, TargetJob

# _LOCKS_PER_PART counts the locks for an index and its constraint, or for a foreign key and its triggers (2.05 were
# counted). A load uses at most one part in _LOCK_SHARE of the lock table, because all sessions share it.
_LOCKS_PER_PART = 2
_LOCK_SHARE = 2

_REJECTING = "keys stay in place with --on-error reject: each row is checked as it arrives"
_MAY_REFUSE = "storing a record in it may fail, which --on-error reject sees as the record arrives"
_KEEPS_UNIQUE = "it enforces uniqueness, and other sessions may write to the table"


@slotted
class IndexPlanFacts:
    """What decides which indexes and keys of a table a load drops: options, sizes, and whether the table is empty."""

    indexes: Indexes
    job: TargetJob
    # Whether the table has no rows, or is truncated before the first row.
    is_empty: bool
    # The stored size of the sources, None if one is unknown.
    size_bytes: int | None
    # Whether this load has already dropped indexes or keys of the table.
    has_dropped: bool = False
    # Whether the table is truncated before the first row.
    is_truncated: bool = False
    # Whether records that the table refuses are rejected.
    rejects: bool = False
    # The OIDs of the tables that the load syncs, of their partitions and of their parents.
    synced: frozenset[int] = frozenset()
    tuning: LoadTuning = DEFAULT_TUNING


@slotted
class IndexDecision:
    """The indexes and foreign keys of one table that a load drops, and those that it keeps."""

    # The part of the decision that the user sees.
    plan: IndexPlan
    indexes: tuple[IndexPart, ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()
    # The foreign keys of the table itself that are kept.
    staying: tuple[ForeignKey, ...] = ()

    @property
    def is_dropping(self) -> bool:
        """Whether anything is dropped."""
        return bool(self.indexes or self.foreign_keys)


def decide_indexes(parts: TableParts, facts: IndexPlanFacts) -> IndexDecision:
    """Return which indexes and keys of a table and its partitions the load drops, with a reason for each that is kept.

    An index is dropped together with all indexes attached to it, and a foreign key together with all foreign keys
    attached to it.
    """
    is_begun, reason = _decide_table(parts, facts)
    tables = parts.tables
    why_keys = _judge_foreign_keys(parts, facts) if is_begun else _all_stay(parts.all_foreign_keys)
    why_indexes = _judge_indexes(parts, facts, why_keys) if is_begun else _all_stay(parts.all_indexes)
    gone = {key for key, why in why_indexes.items() if why is None}
    dropped_keys: list[ForeignKey] = []
    staying: list[ForeignKey] = []
    dropped: list[IndexOrKey] = []
    kept: list[IndexOrKey] = []
    for keys in group_families(parts.all_foreign_keys):
        top, why = keys[0], why_keys[keys[0].part_id]
        is_own = top.relation_oid in tables
        if why is None and (is_own or (top.references_oid, top.references_index) in gone):
            dropped_keys += keys
            dropped.append(_key_note(keys, tables, ""))
        elif is_own:
            staying += keys
            kept.append(_key_note(keys, tables, why or ""))
    for indexes in group_families(parts.all_indexes):
        why = why_indexes[indexes[0].part_id]
        (dropped if why is None else kept).append(_index_note(indexes, tables, why or ""))
    return IndexDecision(
        plan=IndexPlan(reason=reason, dropped=tuple(dropped), kept=tuple(kept), gain=_describe_gain(kept)),
        indexes=tuple(part for part in parts.all_indexes if part.part_id in gone),
        foreign_keys=tuple(dropped_keys),
        staying=tuple(staying),
    )


def _describe_gain(kept: Iterable[IndexOrKey]) -> str | None:
    """Return advice to use --indexes rebuild, or None if that option would not drop more."""
    names = ", ".join(part.name for part in kept if part.reason == _KEEPS_UNIQUE)
    if not names:
        return None
    return f"if no other session writes to the table, use --indexes rebuild: it builds {names} once, after the rows"


def _all_stay(parts: Iterable[IndexPart | ForeignKey]) -> dict[PartId, str | None]:
    return {part.part_id: "" for part in parts}


def _judge_foreign_keys(parts: TableParts, facts: IndexPlanFacts) -> dict[PartId, str | None]:
    """Return, for each foreign key, the reason why it must stay, or None if it may be dropped."""
    judged: dict[PartId, str | None] = {}
    for family in group_families(parts.all_foreign_keys):
        why = next(filter(None, (_why_foreign_key_stays(key, parts, facts) for key in family)), None)
        judged.update((key.part_id, why) for key in family)
    return judged


def _judge_indexes(
    parts: TableParts, facts: IndexPlanFacts, why_keys: Mapping[PartId, str | None]
) -> dict[PartId, str | None]:
    """Return the reason why each index stays, None if it is dropped."""
    tables = parts.tables
    judged: dict[PartId, str | None] = {}
    for family in group_families(parts.all_indexes):
        reasons = (
            _why_index_stays(part, tables[part.facts.relation_oid], facts)
            or _why_incomplete(part, family, tables)
            or _why_referenced_stays(part, tables[part.facts.relation_oid], why_keys)
            for part in family
        )
        why = next(filter(None, reasons), None)
        if why is None and facts.indexes == "auto" and any(part.refuses_rows for part in family):
            why = _KEEPS_UNIQUE
        judged.update((part.part_id, why) for part in family)
    return judged


def _decide_table(parts: TableParts, facts: IndexPlanFacts) -> tuple[bool, str]:
    """Return whether anything may be dropped, and why or why not."""
    table, size = parts.table, facts.size_bytes
    of_partitions = sum(len(each.indexes) + len(each.foreign_keys) for each in parts.partitions)
    least = facts.tuning.least_dropping_bytes + of_partitions * facts.tuning.least_part_bytes
    is_small = size is not None and size < least
    # The locks that are needed. All indexes and keys are dropped in one transaction, which holds all these locks.
    needed = len(parts.tables) + _LOCKS_PER_PART * (len(parts.all_indexes) + len(parts.all_foreign_keys))
    why_not = _first(
        (facts.indexes == "keep", "--indexes keep"),
        (facts.job.landing.where == "replacement", "the new table gets them after it is loaded"),
        (table.kind not in ("r", "p"), "it is not a table"),
        (not table.is_owner, f'only owner "{table.owner}" may drop them'),
        (
            bool(parts.partitions) and needed > table.lock_count // _LOCK_SHARE,
            f"it may take {needed:,} locks, and max_locks_per_transaction allows {table.lock_count:,} in total",
        ),
    )
    if why_not is not None:
        return False, why_not
    if facts.indexes == "rebuild":
        return True, "--indexes rebuild"
    if facts.has_dropped:
        return True, "the load has already dropped them"
    has_rows = "the table has rows, and other sessions may write to it; use --indexes rebuild if none does"
    why_not = _first(
        (not facts.is_empty, has_rows),
        (is_small, f"{format_bytes(size or 0)} to load are too little to gain from it"),
    )
    if why_not is not None:
        return False, why_not
    return True, "the table is emptied first" if facts.is_truncated else "the table is empty"


def _why_foreign_key_stays(key: ForeignKey, parts: TableParts, facts: IndexPlanFacts) -> str | None:
    is_own = key.relation_oid in parts.tables
    is_top = key.parent_oid is None
    # Before PostgreSQL 18 a foreign key of a partitioned table cannot be NOT VALID, so it could not be rebuilt as such.
    is_whole = key.is_validated or key.relation_kind != "p"
    return _first(
        (key.is_kept_whole, f"{key.references} is partitioned, and the parts would be rebuilt under other names"),
        (is_own and not is_top and key.parent_oid not in parts.tables, "it belongs to the partitioned table's"),
        (not key.is_owner, f'table {key.relation} is owned by "{key.owner}"'),
        (not key.may_refer, f"the role lacks REFERENCES on {key.references}"),
        (key.has_altered_triggers, "its triggers are not enabled as they are by default"),
        (is_own and not key.is_enforced and not key.is_self_reference, "it is not enforced"),
        (not is_whole, "it is not valid"),
        (key.cast_owner is not None, f'functions of "{key.cast_owner}" compare its columns'),
        (is_own and facts.rejects, _REJECTING),
        (key.references_oid in facts.synced, "--mode sync deletes rows that it may refer to"),
    )


def _why_index_stays(part: IndexPart, parts: TableParts, facts: IndexPlanFacts) -> str | None:
    table, index, row, job = parts.table, part.facts, part.row, facts.job
    if row is None or not index.is_valid:
        return "it is not valid"
    is_identity = row.is_replica_identity or (index.is_primary and table.replica_identity == "d")
    is_merge_key = row.is_unique and bool(job.merge_key) and set(index.key_columns) == set(job.merge_key)
    return _first(
        (not table.is_owner, f'partition {table.quoted_name} is owned by "{table.owner}"'),
        (bool(index.dependents), f"{', '.join(index.dependents)} depends on it"),
        (not table.may_create, f'the role may not create indexes in schema "{table.schema}"'),
        (not index.may_use_tablespace, f'the role may not create indexes in tablespace "{row.tablespace}"'),
        (table.is_published and is_identity, "it is the replica identity of a published table"),
        (is_merge_key, f"--mode {job.mode} needs it"),
        (row.is_unique and job.transform is not None, "the transform may need it"),
        (index.runs_functions, "its functions set no search_path, and would run with one other than the user's"),
        (part.refuses_rows and facts.rejects, _REJECTING),
        (part.may_refuse_records and facts.rejects, _MAY_REFUSE),
    )


def _first(*rules: tuple[bool, str]) -> str | None:
    """Return the reason of the first rule whose condition is true, or None."""
    return next((reason for holds, reason in rules if holds), None)


def _why_incomplete(part: IndexPart, family: Sequence[IndexPart], tables: Mapping[int, TableParts]) -> str | None:
    """Return why an index of a partitioned table could not be rebuilt with its attached indexes, or None if it can.

    For example, the index is attached to another index that stays, or a partition lacks an index to attach.
    """
    table = tables[part.facts.relation_oid].table
    has_one = {each.facts.relation_oid for each in family if each.parent_id == part.part_id}
    lacking = [
        each.table for each in tables.values() if each.table.parent_oid == table.oid and each.table.oid not in has_one
    ]
    parent = next((each for each in family if each.part_id == part.parent_id), None)
    is_more = parent is not None and parent.constraint is None and part.constraint is not None
    # See CompareIndexInfo in src/backend/catalog/index.c.
    cannot_attach = part.constraint is not None and (part.constraint.kind == "x" or part.constraint.is_temporal)
    return _first(
        (part is family[0] and part.parent_id is not None, "it belongs to an index of the partitioned table"),
        (bool(lacking), f"partition {lacking[0].quoted_name} cannot have one" if lacking else ""),
        (is_more, f"the constraint of partition {table.quoted_name} would not be dropped with it"),
        (table.kind == "p" and cannot_attach, "the server cannot attach exclusion constraints"),
    )


def _why_referenced_stays(part: IndexPart, parts: TableParts, staying: Mapping[PartId, str | None]) -> str | None:
    """Return why a key stays if a foreign key that depends on it stays, otherwise None."""
    for key in parts.foreign_keys:
        is_relied_on = key.references_oid == parts.table.oid and key.references_index == part.name
        if is_relied_on and (why := staying[key.relation_oid, key.name]) is not None:
            return f'foreign key "{key.name}" of {key.relation} depends on it and is kept: {why}'
    return None


def _index_note(family: Sequence[IndexPart], tables: Mapping[int, TableParts], reason: str) -> IndexOrKey:
    part = family[0]
    kinds = {"p": "primary key", "u": "unique constraint", "x": "exclusion constraint"}
    is_unique = part.row is not None and part.row.is_unique
    return IndexOrKey(
        kind="index" if part.constraint is None else "constraint",
        what=("unique index" if is_unique else "index") if part.constraint is None else kinds[part.constraint.kind],
        name=part.name,
        relation=tables[part.facts.relation_oid].table.quoted_name,
        reason=reason,
        attached=len(family) - 1,
        is_of_partition=tables[part.facts.relation_oid].table.parent_oid in tables,
    )


def _key_note(family: Sequence[ForeignKey], tables: Mapping[int, TableParts], reason: str) -> IndexOrKey:
    key = family[0]
    return IndexOrKey(
        kind="constraint",
        what="foreign key",
        name=key.name,
        relation=key.relation,
        reason=reason,
        attached=len(family) - 1,
        is_of_partition=key.relation_oid in tables and tables[key.relation_oid].table.parent_oid in tables,
    )
