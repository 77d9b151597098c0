"""Which indexes, keys and foreign keys of a table are parked while it is loaded, and which stay. Pure.

Nothing enforces a parked key on others who write to the table. So by default only a table that is empty is touched,
and only for a load that is worth it; --indexes rebuild says that nobody else is there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.model.shape import ParkingPlan, Part
from penstock.units import MIB, format_bytes

if TYPE_CHECKING:
    from collections.abc import Collection

    from penstock.model.job import OnError, TargetJob
    from penstock.model.shape import Indexes
    from penstock.server.shape.parts import ForeignKey, IndexPart, TableParts

# Below this, as stored, taking indexes away and making them again saves little, and costs catalogue rows
# (docs/decisions/0013).
SMALL_BYTES = 4 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkingFacts:
    """What is known of a load and its table.

    `is_empty`: the table has no rows, or will have none when the load begins; `is_truncated` is the latter.
    `is_parked`: this load has parked something there already. `size_bytes` is the sources' as stored, None where one
    does not tell. `empty_tables` are the oids of those that refer to it and have no rows, or are this load's too.
    """

    indexes: Indexes
    on_error: OnError
    job: TargetJob
    is_empty: bool
    size_bytes: int | None
    is_parked: bool = False
    is_truncated: bool = False
    empty_tables: Collection[int] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What is parked, foreign keys first, and how that is shown; `staying` are the table's own that are not."""

    plan: ParkingPlan
    indexes: tuple[IndexPart, ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()
    staying: tuple[ForeignKey, ...] = ()

    @property
    def is_parking(self) -> bool:
        """Whether anything is parked."""
        return bool(self.indexes or self.foreign_keys)


def decide_parking(parts: TableParts, facts: ParkingFacts) -> Decision:
    """Return what is parked of a table, with a reason for all that is not."""
    is_begun, reason = _decide_table(parts, facts)
    if not is_begun:
        kept = [_index_note(part, parts, "") for part in parts.indexes]
        own = tuple(key for key in parts.foreign_keys if key.relation_oid == parts.table.oid)
        kept += [_key_note(key, "") for key in own]
        return Decision(plan=ParkingPlan(reason=reason, kept=tuple(kept)), staying=own)
    keys = {(key.relation_oid, key.name): _why_foreign_key_stays(key, parts, facts) for key in parts.foreign_keys}
    staying: dict[str, str] = {}
    for part in parts.indexes:
        why = _why_index_stays(part, parts, facts) or _why_referenced_stays(part, parts, keys)
        if why is not None:
            staying[part.name] = why
    indexes = tuple(part for part in parts.indexes if part.name not in staying)
    gone = {part.name for part in indexes}
    foreign_keys, staying_keys, kept = [], [], []
    for key in parts.foreign_keys:
        why = keys[key.relation_oid, key.name]
        is_own = key.relation_oid == parts.table.oid
        if why is None and (is_own or key.references_index in gone):
            foreign_keys.append(key)
        elif is_own:
            staying_keys.append(key)
            kept.append(_key_note(key, why or ""))
    parked = [_key_note(key, "") for key in foreign_keys] + [_index_note(part, parts, "") for part in indexes]
    kept += [_index_note(part, parts, staying[part.name]) for part in parts.indexes if part.name in staying]
    plan = ParkingPlan(reason=reason, parked=tuple(parked), kept=tuple(kept))
    return Decision(plan=plan, indexes=indexes, foreign_keys=tuple(foreign_keys), staying=tuple(staying_keys))


def _decide_table(parts: TableParts, facts: ParkingFacts) -> tuple[bool, str]:
    """Return whether anything may be parked, and why or why not."""
    table, size = parts.table, facts.size_bytes
    is_small = size is not None and size < SMALL_BYTES
    why_not = _first(
        (facts.indexes == "keep", "--indexes keep"),
        (facts.job.mode == "replace", "the new table gets them after it is loaded"),
        (table.kind == "p", "a partitioned table's are left in place"),
        (table.kind != "r", "it is no plain table"),
        (not table.is_owner, f'only owner "{table.owner}" may park them'),
    )
    if why_not is not None:
        return False, why_not
    if facts.indexes == "rebuild":
        return True, "--indexes rebuild"
    if facts.is_parked:
        return True, "the load had parked them before"
    has_rows = "the table has rows, and others may write to it; --indexes rebuild says that nobody does"
    why_not = _first(
        (not facts.is_empty, has_rows),
        (is_small, f"{format_bytes(size or 0)} to load are too little for it to pay"),
    )
    if why_not is not None:
        return False, why_not
    return True, "the table is emptied first" if facts.is_truncated else "the table is empty"


def _why_foreign_key_stays(key: ForeignKey, parts: TableParts, facts: ParkingFacts) -> str | None:
    is_own = key.relation_oid == parts.table.oid
    has_rows = not is_own and facts.indexes == "auto" and key.relation_oid not in facts.empty_tables
    return _first(
        (key.is_kept_whole, "a partitioned table's is left in place"),
        (not key.is_owner, f'table {key.relation} is owned by "{key.owner}"'),
        (not key.may_refer, f"the role lacks REFERENCES on {key.references}"),
        (key.has_altered_triggers, "its triggers are not enabled as they are by default"),
        (is_own and not key.is_enforced and not key.is_self_reference, "it is not enforced"),
        (is_own and facts.on_error == "reject", "records that break it are to be rejected"),
        (has_rows, f"table {key.relation} has rows"),
    )


def _why_index_stays(part: IndexPart, parts: TableParts, facts: ParkingFacts) -> str | None:
    table, index, row, job = parts.table, part.facts, part.row, facts.job
    if row is None or not index.is_valid:
        return "it is not valid"
    is_identity = row.is_replica_identity or (index.is_primary and table.replica_identity == "d")
    is_merge_key = row.is_unique and bool(job.key) and set(index.key_columns) == set(job.key)
    is_checking = row.is_unique or part.constraint is not None
    return _first(
        (index.is_attached, "it belongs to an index of the partitioned table"),
        (bool(index.dependents), f"{', '.join(index.dependents)} depends on it"),
        (not table.may_create, f'the role may not make indexes in schema "{table.schema}"'),
        (not index.may_use_tablespace, f'the role may not make indexes in tablespace "{row.tablespace}"'),
        (table.is_published and is_identity, "it tells a published table's rows apart"),
        (is_merge_key, f"--mode {job.mode} needs it"),
        (row.is_unique and job.transform is not None, "the transform may need it"),
        (is_checking and facts.on_error == "reject", "records that break it are to be rejected"),
    )


def _first(*rules: tuple[bool, str]) -> str | None:
    """Return the first reason that holds."""
    return next((reason for holds, reason in rules if holds), None)


def _why_referenced_stays(part: IndexPart, parts: TableParts, staying: dict[tuple[int, str], str | None]) -> str | None:
    """Return why a key that foreign keys rely on stays: one of them does."""
    for key in parts.foreign_keys:
        is_relied_on = key.references_oid == parts.table.oid and key.references_index == part.name
        if is_relied_on and (why := staying[key.relation_oid, key.name]) is not None:
            return f'foreign key "{key.name}" of {key.relation} relies on it, which stays: {why}'
    return None


def _index_note(part: IndexPart, parts: TableParts, reason: str) -> Part:
    kinds = {"p": "primary key", "u": "unique constraint", "x": "exclusion constraint"}
    if part.constraint is None:
        what = "unique index" if part.row is not None and part.row.is_unique else "index"
        return Part(kind="index", what=what, name=part.name, relation=parts.table.quoted_name, reason=reason)
    what = kinds[part.constraint.kind]
    return Part(kind="constraint", what=what, name=part.name, relation=parts.table.quoted_name, reason=reason)


def _key_note(key: ForeignKey, reason: str) -> Part:
    return Part(kind="constraint", what="foreign key", name=key.name, relation=key.relation, reason=reason)
