"""Returns warnings about a table or its server before a load, and decides the VACUUM and CHECKPOINT after it.

Also estimates how many records will fire triggers, and checks that the role may disable triggers. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import groupby

from penstock.core.checks import warn_of_version
from penstock.core.errors import TargetError
from penstock.core.tuning import DEFAULT_TUNING, LoadTuning
from penstock.core.units import format_bytes
from penstock.core.values.job import LoadRules
from penstock.core.values.notice import Notice
from penstock.core.values.server import ServerFacts
from penstock.core.values.table import TableFacts
from penstock.core.words import list_names
from penstock.loading.plan.space import text_bytes
from penstock.loading.values.objects import all_objects
from penstock.loading.values.plan import CheckpointDecision, LoadPlan, Relation, TargetPlan, VacuumPlan, VacuumStep


def table_notices(table: TableFacts) -> list[Notice]:
    """Return a list with the warning that the table or some of its partitions are unlogged, or an empty list."""
    notices = []
    if table.is_unlogged:
        notices.append(
            Notice(
                code="unlogged",
                message=f'table "{table.name}" is unlogged',
                hint="Its rows are lost in a crash, and are not replicated.",
            )
        )
    elif table.unlogged_partitions:
        notices.append(
            Notice(
                code="unlogged",
                message=f'partitions of table "{table.name}" are unlogged: {list_names(table.unlogged_partitions)}',
                hint="Their rows are lost in a crash, and are not replicated.",
            )
        )
    return notices


def unpublished_notice(table: TableFacts) -> Notice | None:
    """Return a warning that no publication includes the table although publications exist, or None.

    The warning is shown for the table's first load only, because the user may not want to publish the table.
    """
    if not table.unpublished or table.is_unlogged or table.unlogged_partitions:
        return None
    return Notice(
        code="unpublished",
        message=f'table "{table.name}" is not replicated to subscribers',
        hint=f"No publication includes its new rows; existing publications: {list_names(table.unpublished)}.",
    )


def server_notices(server: ServerFacts) -> list[Notice]:
    """Return warnings about an untested version, and about wal_level minimal, with which nothing is replicated."""
    notices = []
    if (finding := warn_of_version(server)) is not None:
        notices.append(Notice(code="untested-version", message=finding.claim, hint=finding.remedy))
    if server.wal_level == "minimal":
        notices.append(
            Notice(
                code="wal-minimal",
                message="nothing that is loaded is replicated: wal_level is minimal",
                hint="Standbys and point-in-time recovery are not possible; take a base backup after the load.",
            )
        )
    return notices


def check_switches(rules: LoadRules, facts: TableFacts | None) -> None:
    """Raise TargetError if --triggers or --autovacuum asks to alter a table that the role does not own."""
    asked = [f"--triggers {rules.triggers}"] if rules.triggers != "keep" else []
    asked += [f"--autovacuum {rules.autovacuum}"] if rules.autovacuum == "pause" else []
    if not asked or facts is None or facts.is_owner:
        return
    raise TargetError(
        f'{" and ".join(asked)} needs the owner of table "{facts.name}"',
        detail="Only the owner may alter a table.",
        hint="Load as the owner (--role), or do not use the option.",
    )


def estimate_records(target: TargetPlan) -> int | None:
    """Return about how many records a target's objects have, None if the size of an object is not known.

    The estimate is the size of the objects' text, divided by the length of a line in the sample.
    """
    size_bytes, head = text_bytes(all_objects((target,))), target.sample.head
    lines = head.count(b"\n")
    if size_bytes is None or not lines:
        return None
    headers = len(target.objects) if target.dialect.has_header else 0
    return max(0, round(size_bytes * lines / len(head)) - headers)


# The assumed size of a page. The server is not asked for its own, because only orders of magnitude matter here.
PAGE_BYTES = 8192

# A table that is this many times larger than the load is only analyzed, because VACUUM may take longer than the load. A
# table smaller than `long_vacuum_bytes` is vacuumed in any case.
_MUCH_LARGER = 10


def decide_vacuum(
    relations: Sequence[Relation],
    filled: Collection[int],
    *,
    before: Mapping[int, Relation],
    stored_bytes: float,
    major: int,
    analyzed: Collection[int] = (),
    emptied: Collection[int] = (),
    tuning: LoadTuning = DEFAULT_TUNING,
) -> VacuumPlan:
    """Return the VACUUM and ANALYZE commands to run after a load, and which tables the role may not vacuum.

    `filled` has the OIDs of the loaded tables. `relations` are these tables and their partitions, ordered by root_oid.
    `before` has the same relations by OID, as they were when the load began, as far as this is known. Partitions that
    the load did not change are skipped. `stored_bytes` is how many bytes the load has sent by COPY. A table is only
    analyzed, not vacuumed, if it is larger than ten times `stored_bytes` and larger than long_vacuum_bytes of `tuning`.
    `major` is the server's major version.

    `analyzed` has the OIDs of tables that were just analyzed: they are only vacuumed. `emptied` has the OIDs of tables
    that the load has created, truncated or replaced. VACUUM freezes these tables, and tables that had no pages before,
    because the load alone has filled them.
    """
    steps: list[VacuumStep] = []
    forbidden: list[Relation] = []
    for root_oid, group in groupby(relations, key=lambda relation: relation.root_oid):
        if root_oid not in filled:
            continue
        tree = list(group)
        size_bytes = sum(relation.pages for relation in tree) * PAGE_BYTES
        vacuums = size_bytes <= max(tuning.long_vacuum_bytes, _MUCH_LARGER * stored_bytes)
        touched = [relation for relation in tree if relation.kind == "r" and _is_touched(relation, before)]
        forbidden += [relation for relation in touched if not relation.may_vacuum]
        root = next((relation for relation in tree if relation.oid == root_oid and relation.kind == "p"), None)
        parent = None if root is None else _analyze_parent(root, tree, major=major)
        has_all = parent is not None and not parent.is_only
        for relation in touched:
            analyzes = not has_all and relation.oid not in analyzed
            old = before.get(relation.oid)
            freezes = root_oid in emptied or (old is not None and old.pages == 0)
            if relation.may_vacuum and (vacuums or analyzes):
                steps.append(VacuumStep(relation=relation, vacuums=vacuums, analyzes=analyzes, freezes=freezes))
        steps += [] if parent is None else [parent]
    left_out = (_describe_forbidden(forbidden, major=major),) if forbidden else ()
    return VacuumPlan(steps=tuple(steps), left_out=left_out)


def _is_touched(relation: Relation, before: Mapping[int, Relation]) -> bool:
    """Return whether the load changed a relation: a partition, if its size or counters differ from before the load."""
    if relation.oid == relation.root_oid:
        return True
    old = before.get(relation.oid)
    if old is not None:
        return (relation.pages, relation.written) != (old.pages, old.written)
    return relation.pages != relation.known_pages or relation.changes > 0


def _analyze_parent(root: Relation, tree: Sequence[Relation], *, major: int) -> VacuumStep | None:
    """Return the ANALYZE of a partitioned table, which autovacuum never does, or None if the role may not run it.

    Before PostgreSQL 18 this ANALYZE also analyzes every partition, including those that took no rows.
    """
    is_only = major >= 18
    if not all(relation.may_vacuum for relation in ([root] if is_only else tree)):
        return None
    return VacuumStep(relation=root, vacuums=False, analyzes=True, is_only=is_only)


def _describe_forbidden(relations: Sequence[Relation], *, major: int) -> str:
    right = ", and lacks MAINTAIN" if major >= 17 else ""
    return f"not vacuumed: {list_names(relations)}; the role owns neither the table nor the database{right}"


def describe_vacuum(plan: LoadPlan) -> str:
    """Return a line for --plan: which tables are vacuumed after the load, or why none is."""
    if not plan.job.rules.vacuum:
        return "no VACUUM: --no-vacuum"
    lacking = [str(target.table) for target in plan.targets if target.facts is not None and not target.facts.may_vacuum]
    if len(lacking) == len(plan.targets):
        return "no VACUUM: the role lacks the privilege"
    words = "VACUUM (ANALYZE) of tables that got rows, with FREEZE if they had none"
    return f"{words}, except {', '.join(lacking)}: the role lacks the privilege" if lacking else words


def decide_checkpoint(
    *,
    asked: bool | None,
    stored_bytes: float,
    is_leased: bool,
    is_aurora: bool,
    may_checkpoint: bool,
    tuning: LoadTuning = DEFAULT_TUNING,
) -> CheckpointDecision:
    """Return whether a CHECKPOINT follows a load, and why.

    `asked` is true for --checkpoint, false for --no-checkpoint, None if neither was given. `stored_bytes` is how many
    bytes were sent by COPY. `is_leased` says whether the server's settings were changed for the load, `may_checkpoint`
    whether the role has the right according to the catalog. With --checkpoint, a CHECKPOINT is tried even without this
    right, because managed services have their own rules.

    >>> decide_checkpoint(asked=None, stored_bytes=5e9, is_leased=True, is_aurora=False, may_checkpoint=True).is_due
    True
    """
    if asked is False:
        return CheckpointDecision(is_due=False, reason="--no-checkpoint")
    if asked is None and not is_leased:
        reason = "the server's settings are not changed, and it has its own checkpoint schedule"
        return CheckpointDecision(is_due=False, reason=reason)
    if asked is None and stored_bytes < tuning.least_checkpoint_bytes:
        reason = f"less than {format_bytes(tuning.least_checkpoint_bytes)} was loaded"
        return CheckpointDecision(is_due=False, reason=reason)
    if is_aurora:
        reason = "Amazon Aurora's storage has no checkpoints"
        return CheckpointDecision(is_due=False, reason=reason, is_refused=True)
    if not may_checkpoint and not asked:
        reason = "it needs superuser, or from PostgreSQL 15 the role pg_checkpoint"
        return CheckpointDecision(is_due=False, reason=reason, is_refused=True)
    reason = "--checkpoint" if asked else "the server's settings were changed so that checkpoints are rare"
    return CheckpointDecision(is_due=True, reason=reason)
