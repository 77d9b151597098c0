"""What is dropped of a table, what stays, and why."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.changes.tables.definition import ConstraintRow, IndexRow
from penstock.changes.tables.parts import ForeignKey, IndexFacts, IndexPart, ShapeTable, TableParts
from penstock.changes.tables.rebuild_plan import (
    RebuildPlan,
    estimate_cost,
    order_by_cost,
    order_by_depth,
    plan_rebuild,
)
from penstock.changes.values import Change
from penstock.core.tuning import DEFAULT_TUNING
from penstock.core.units import GIB, MIB
from penstock.core.values.job import TargetJob
from penstock.core.values.table import TableName
from penstock.loading.indexes.decide import IndexDecision, IndexPlanFacts, decide_indexes

JOB = TargetJob(sources=("f",), into=TableName(schema="s", name="t"))
FACTS = IndexPlanFacts(indexes="auto", job=JOB, is_empty=True, size_bytes=DEFAULT_TUNING.least_dropping_bytes)
TABLE = ShapeTable(
    oid=1,
    schema="s",
    name="t",
    quoted_name="s.t",
    kind="r",
    owner="o",
    is_owner=True,
    may_create=True,
    parent_oid=None,
    replica_identity="d",
    is_published=False,
    columns={"a": "integer"},
    lock_count=6400,
)


def make_index(name: str, *, is_unique: bool = False, kind: str | None = None, **facts: object) -> IndexPart:
    """Return an index on column a, of a constraint of a kind where one is given."""
    row = IndexRow(
        name=name,
        is_unique=is_unique,
        body="USING btree (a)",
        constraint_name=None if kind is None else name,
        tablespace="",
        options=[],
        is_clustered=False,
        is_replica_identity=False,
        statistics_targets=[None],
        comment=None,
    )
    constraint = ConstraintRow(
        name=name,
        kind=kind or "",
        definition="",
        is_deferrable=False,
        is_deferred=False,
        is_validated=True,
        is_enforced=True,
        is_temporal=False,
        comment=None,
    )
    described = IndexFacts(
        relation_oid=1,
        oid=1,
        name=name,
        method="btree",
        is_valid=True,
        is_primary=kind == "p",
        parent_oid=None,
        parent=None,
        is_partial=False,
        may_use_tablespace=True,
        runs_functions=False,
        key_columns=["a"],
        columns={"a": "integer"},
        width_bytes=4,
        dependents=[],
    )
    return IndexPart(
        facts=replace(described, **facts),  # type: ignore[arg-type]
        row=row,
        constraint=None if kind is None else constraint,
    )


def make_key(name: str, *, relation_oid: int = 1, references_oid: int = 1, **facts: object) -> ForeignKey:
    """Return a foreign key that refers to "pk"."""
    key = ForeignKey(
        name=name,
        relation_oid=relation_oid,
        relation=f"s.t{relation_oid}",
        relation_kind="r",
        references_oid=references_oid,
        references=f"s.t{references_oid}",
        references_index="pk",
        definition="FOREIGN KEY (a) REFERENCES s.t(a)",
        is_deferrable=False,
        is_deferred=False,
        is_validated=True,
        is_enforced=True,
        comment=None,
        is_kept_whole=False,
        parent_oid=None,
        parent=None,
        owner="o",
        is_owner=True,
        may_refer=True,
        has_altered_triggers=False,
        cast_owner=None,
        columns={},
    )
    return replace(key, **facts)  # type: ignore[arg-type]


PK, UNIQUE, PLAIN = make_index("pk", is_unique=True, kind="p"), make_index("u", is_unique=True), make_index("i")
OWN, TO_US = make_key("own", references_oid=9), make_key("to_us", relation_oid=7)


def decide(
    *indexes: IndexPart, keys: tuple[ForeignKey, ...] = (), table: ShapeTable = TABLE, **facts: object
) -> tuple[list[str], dict[str, str], str]:
    """Return what is dropped, by name, and the reasons of what stays."""
    parts = TableParts(table=table, indexes=indexes, foreign_keys=keys)
    decision = decide_indexes(parts, replace(FACTS, **facts))  # type: ignore[arg-type]
    names = [key.name for key in decision.foreign_keys] + [part.name for part in decision.indexes]
    assert [part.name for part in decision.plan.dropped] == names
    return names, {part.name: part.reason for part in decision.plan.kept}, decision.plan.reason


def test_what_keeps_rows_unique_stays_in_an_empty_table() -> None:
    """With the foreign keys that rely on it; others may write to the table. The plan says who may have it dropped."""
    apart = make_index("apart", kind="x")
    dropped, kept, reason = decide(PK, UNIQUE, apart, PLAIN, keys=(OWN, TO_US))
    assert dropped == ["own", "i"]
    assert kept == dict.fromkeys(
        ("pk", "u", "apart"), "it enforces uniqueness, and other sessions may write to the table"
    )
    assert reason == "the table is empty"
    decision = decide_indexes(TableParts(table=TABLE, indexes=(PK, UNIQUE, PLAIN), foreign_keys=()), FACTS)
    assert decision.plan.gain is not None
    assert "--indexes rebuild: it builds pk, u once" in decision.plan.gain


def test_rebuild_drops_an_empty_table_whole() -> None:
    """Foreign keys first, since keys cannot go before them; and nothing is left to gain."""
    parts = TableParts(table=TABLE, indexes=(PK, UNIQUE, PLAIN), foreign_keys=(OWN, TO_US))
    decision = decide_indexes(parts, replace(FACTS, indexes="rebuild"))
    assert [part.name for part in decision.plan.dropped] == ["own", "to_us", "pk", "u", "i"]
    assert (decision.plan.kept, decision.plan.gain) == ((), None)


def test_an_index_whose_functions_run_with_another_path_stays() -> None:
    """Before PostgreSQL 17 CREATE INDEX takes the session's, which is penstock's own."""
    dropped, kept, _ = decide(make_index("i", runs_functions=True), indexes="rebuild")
    assert dropped == []
    assert "search_path" in kept["i"]


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"indexes": "keep"}, "--indexes keep"),
        ({"is_empty": False}, "has rows"),
        ({"size_bytes": DEFAULT_TUNING.least_dropping_bytes - 1}, "too little"),
        ({"job": replace(JOB, mode="replace")}, "new table"),
    ],
)
def test_nothing_is_dropped_where_it_must_not_or_does_not_pay(facts: dict[str, object], reason: str) -> None:
    """And the plan says why."""
    dropped, kept, why = decide(PK, PLAIN, keys=(OWN,), **facts)
    assert dropped == []
    assert set(kept) == {"pk", "i", "own"}
    assert reason in why


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (replace(TABLE, kind="v"), "not a table"),
        (replace(TABLE, is_owner=False), 'owner "o"'),
    ],
)
def test_some_tables_are_left_alone_whatever_is_asked(table: ShapeTable, reason: str) -> None:
    """A role that does not own the table cannot drop at all."""
    dropped, _, why = decide(PK, PLAIN, table=table, indexes="rebuild")
    assert dropped == []
    assert reason in why


def test_rebuild_drops_a_table_with_rows() -> None:
    """Said out loud, since nothing enforces a dropped key on others."""
    assert decide(PK, PLAIN, keys=(TO_US,), indexes="rebuild", is_empty=False, size_bytes=1)[0] == ["to_us", "pk", "i"]


def test_a_load_goes_on_in_the_shape_it_had_made() -> None:
    """Its own rows do not make the table one that others write to."""
    assert decide(PK, PLAIN, has_dropped=True, is_empty=False)[0] == ["i"]
    assert decide(PK, PLAIN, has_dropped=True, is_empty=False, indexes="rebuild")[0] == ["pk", "i"]


@pytest.mark.parametrize("indexes", ["auto", "rebuild"])
def test_what_refuses_rows_stays_if_records_are_rejected(indexes: str) -> None:
    """The plan says what that costs. Plain indexes refuse nothing, but for an expression's errors and long values."""
    apart, short = make_index("apart", kind="x"), make_index("short", columns={"a": "character varying(99)"})
    computed, long = make_index("computed", key_columns=[""]), make_index("long", columns={"a": "text"})
    digits = make_index("digits", columns={"a": "numeric"})
    indexed = (PK, UNIQUE, apart, PLAIN, short, computed, long, digits)
    dropped, kept, _ = decide(*indexed, keys=(OWN,), rejects=True, indexes=indexes)
    assert dropped == ["i", "short"]
    reason = "keys stay in place with --on-error reject: each row is checked as it arrives"
    other = "storing a record in it may fail, which --on-error reject sees as the record arrives"
    assert kept == dict.fromkeys(("pk", "u", "apart", "own"), reason) | dict.fromkeys(
        ("computed", "long", "digits"), other
    )


@pytest.mark.parametrize("mode", ["upsert", "insert-new"])
def test_a_merge_keeps_its_key(mode: str) -> None:
    """By whatever index it is unique."""
    dropped, kept, _ = decide(PK, PLAIN, job=replace(JOB, mode=mode, key=("a",)))
    assert dropped == ["i"]
    assert kept == {"pk": f"--mode {mode} needs it"}


def test_a_published_tables_identity_stays() -> None:
    """Without it, the subscribers could not identify rows."""
    dropped, kept, _ = decide(PK, PLAIN, table=replace(TABLE, is_published=True))
    assert dropped == ["i"]
    assert "published" in kept["pk"]


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        (replace(TO_US, is_owner=False), "is owned by"),
        (replace(TO_US, is_kept_whole=True), "partitioned"),
        (replace(TO_US, has_altered_triggers=True), "triggers"),
    ],
)
def test_a_key_stays_with_a_foreign_key_that_relies_on_it(key: ForeignKey, reason: str) -> None:
    """Others' tables are not ours to change."""
    dropped, kept, _ = decide(PK, PLAIN, keys=(key,), indexes="rebuild")
    assert dropped == ["i"]
    assert reason in kept["pk"]


def test_a_foreign_key_to_a_key_that_stays_is_not_in_the_way() -> None:
    """Other tables' foreign keys are dropped for the key alone."""
    assert decide(PK, keys=(TO_US,))[0] == []


@pytest.mark.parametrize(
    ("index", "reason"),
    [
        (make_index("i", dependents=["view v"]), "view v depends on it"),
        (make_index("i", parent_oid=5, parent="p"), "partitioned"),
        (make_index("i", is_valid=False), "not valid"),
        (make_index("i", may_use_tablespace=False), "tablespace"),
    ],
)
def test_an_index_that_could_not_be_made_again_stays(index: IndexPart, reason: str) -> None:
    """Each with its reason."""
    dropped, kept, _ = decide(index, indexes="rebuild")
    assert dropped == []
    assert reason in kept["i"]


# ---------------------------------------------------------------- partitions

LEAVES = tuple(
    replace(TABLE, oid=oid, name=f"t{oid}", quoted_name=f"s.t{oid}", parent_oid=parent, kind=kind)
    for oid, parent, kind in ((2, 1, "r"), (3, 1, "p"), (4, 3, "r"))
)
FK = make_key("fk", references_oid=9, relation_kind="p")
ATTACHED = {2: ("pk", 1), 3: ("pk", 1), 4: ("pk_3", 3)}


def make_tree(*, without: int = 0, table: ShapeTable | None = None, **facts: object) -> TableParts:
    """Return a table with two levels of partitions and a key on all but one; `facts` are of the key of partition 4."""
    root = TableParts(table=replace(TABLE, kind="p"), indexes=(PK,), foreign_keys=(FK,))
    below = []
    for leaf in LEAVES:
        parent, parent_oid = ATTACHED[leaf.oid]
        changes = {"relation_oid": leaf.oid, "parent": parent, "parent_oid": parent_oid}
        changes |= facts if leaf.oid == 4 else {}
        key = make_index(f"pk_{leaf.oid}", is_unique=True, kind="p", **changes)
        refers = make_key("fk", relation_oid=leaf.oid, references_oid=9, parent="fk", parent_oid=parent_oid)
        own = table if table is not None and table.oid == leaf.oid else leaf
        indexes = () if leaf.oid == without else (key,)
        below.append(TableParts(table=own, indexes=indexes, foreign_keys=(refers,)))
    return replace(root, partitions=tuple(below))


def decide_tree(parts: TableParts, **facts: object) -> IndexDecision:
    """Return what is dropped of a partitioned table."""
    return decide_indexes(parts, replace(FACTS, indexes="rebuild", **facts))  # type: ignore[arg-type]


def test_a_partitioned_tables_key_goes_with_all_that_is_attached() -> None:
    """It is shown as one, with their number."""
    decision = decide_tree(make_tree())
    assert [part.name for part in decision.indexes] == ["pk", "pk_2", "pk_3", "pk_4"]
    assert [key.relation_oid for key in decision.foreign_keys] == [1, 2, 3, 4]
    assert [(part.name, part.attached) for part in decision.plan.dropped] == [("fk", 3), ("pk", 3)]
    assert decision.plan.kept == ()


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        (make_tree(is_valid=False), "it is not valid"),
        (make_tree(dependents=["view v"]), "view v depends on it"),
        (make_tree(may_use_tablespace=False), "tablespace"),
        (make_tree(without=4), "partition s.t4 cannot have one"),
        (make_tree(table=replace(LEAVES[2], is_owner=False, owner="x")), 'partition s.t4 is owned by "x"'),
        (make_tree(table=replace(LEAVES[0], may_create=False)), "may not create indexes in schema"),
        (make_tree(table=replace(LEAVES[0], is_published=True)), "published"),
    ],
)
def test_a_partition_whose_index_must_stay_keeps_those_of_all(parts: TableParts, reason: str) -> None:
    """None of them can go without the others."""
    decision = decide_tree(parts)
    assert decision.indexes == ()
    assert [(part.name, part.attached) for part in decision.plan.kept] == [("pk", len(parts.all_indexes) - 1)]
    assert reason in decision.plan.kept[0].reason


def test_what_a_partition_has_of_its_own_is_its_own_affair() -> None:
    """It goes where what is attached stays, and stays where that goes."""
    own = make_index("own", relation_oid=4)
    tree = make_tree(dependents=["view v"])
    leaf = tree.partitions[2]
    tree = replace(tree, partitions=(*tree.partitions[:2], replace(leaf, indexes=(*leaf.indexes, own))))
    decision = decide_tree(tree)
    assert [part.name for part in decision.indexes] == ["own"]
    assert [(part.name, part.is_of_partition) for part in decision.plan.dropped] == [("fk", False), ("own", True)]


def test_a_part_of_another_tables_index_stays() -> None:
    """Where a partition is loaded that is partitioned itself."""
    tree = make_tree()
    middle = replace(tree.partitions[1], partitions=(tree.partitions[2],))
    decision = decide_tree(middle)
    assert not decision.is_dropping
    assert {part.reason for part in decision.plan.kept} == {
        "it belongs to an index of the partitioned table",
        "it belongs to the partitioned table's",
    }


def test_an_exclusion_constraint_of_a_partitioned_table_stays() -> None:
    """No index can be attached to it."""
    apart = make_index("apart", kind="x")
    tree = make_tree()
    decision = decide_tree(replace(tree, indexes=(*tree.indexes, apart), partitions=()))
    assert {part.name: part.reason for part in decision.plan.kept} == {
        "apart": "the server cannot attach exclusion constraints"
    }


def test_partitions_ask_for_more_bytes() -> None:
    """Each of their indexes and keys is made by itself."""
    tree = make_tree()
    least = DEFAULT_TUNING.least_dropping_bytes + 6 * DEFAULT_TUNING.least_part_bytes
    auto = replace(FACTS, size_bytes=least - 1)
    assert "too little" in decide_indexes(tree, auto).plan.reason
    assert decide_indexes(tree, replace(auto, size_bytes=least)).is_dropping


def test_more_partitions_than_the_server_can_lock_are_left_alone() -> None:
    """The lock table is everybody's."""
    tree = make_tree()
    tree = replace(tree, table=replace(tree.table, lock_count=39))
    assert "max_locks_per_transaction" in decide_tree(tree).plan.reason


def test_a_foreign_key_of_a_partitioned_table_that_is_not_valid_stays() -> None:
    """Before PostgreSQL 18 there is no way to add one that is not."""
    tree = make_tree()
    decision = decide_tree(replace(tree, foreign_keys=(replace(FK, is_validated=False),)))
    assert decision.foreign_keys == ()
    assert "it is not valid" in [part.reason for part in decision.plan.kept]


# ---------------------------------------------------------------- the order of the rebuild


def make_change(name: str, number: int, *, width: int = 4, method: str = "btree", types: str = "integer") -> Change:
    """Return the record of an index."""
    record = {"index": {"body": "(a)"}, "method": method, "width_bytes": width, "columns": {"a": types}}
    return Change(
        target_oid=1,
        target=JOB.into,
        kind="index",
        relation_oid=1,
        name=name,
        record=record,
        load_id="x",
        number=number,
    )


def test_the_one_that_takes_longest_comes_first() -> None:
    """Texts and wide rows take longer, and ties stay in their order."""
    small, text = make_change("small", 1), make_change("text", 2, width=24, types="text")
    gin, brin, other = (
        make_change("gin", 3, width=8, method="gin"),
        make_change("brin", 4, method="brin"),
        make_change("o", 5),
    )
    ordered = order_by_cost([small, text, gin, brin, other])
    assert [change.name for change in ordered] == ["gin", "text", "small", "o", "brin"]
    assert estimate_cost(text) > estimate_cost(small)


def test_larger_tables_come_first_and_parents_after_what_is_attached() -> None:
    """The size of a partition counts as its columns do."""
    first, second = make_change("a", 1), replace(make_change("b", 2), relation_oid=2)
    assert [change.name for change in order_by_cost([first, second], {1: 10, 2: 20})] == ["b", "a"]
    parents = {(1, "a"): None, (2, "b"): (1, "a")}
    assert [change.name for change in order_by_depth([first, second], parents)] == ["b", "a"]


@pytest.mark.parametrize(
    ("count", "cpus", "memory", "plan"),
    [
        (5, 2, None, RebuildPlan(sessions=3, cpus=2, memory_bytes=GIB)),
        (1, 8, None, RebuildPlan(sessions=1, cpus=8, memory_bytes=GIB)),
        (3, 8, 64 * GIB, RebuildPlan(sessions=3, cpus=8, memory_bytes=GIB)),
        (5, 2, 2 * GIB, RebuildPlan(sessions=3, cpus=2, memory_bytes=GIB // 2 // 3)),
        (5, None, 256 * MIB, RebuildPlan(sessions=3, cpus=2, memory_bytes=64 * MIB)),
    ],
)
def test_sessions_share_processors_and_memory(
    count: int, cpus: int | None, memory: int | None, plan: RebuildPlan
) -> None:
    """One session more than CPUs; together they take a quarter of the memory at most."""
    assert plan_rebuild(count, cpu_count=cpus, memory_bytes=memory) == plan
