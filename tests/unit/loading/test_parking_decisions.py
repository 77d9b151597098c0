"""What is parked of a table, what stays, and why."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.loading.parking import SMALL_BYTES, ParkingFacts, decide_parking
from penstock.loading.rebuild_plan import RebuildPlan, estimate_cost, order_by_cost, plan_rebuild
from penstock.model.job import TargetJob
from penstock.model.shape import Change
from penstock.model.table import TableName
from penstock.server.ddl.definition import ConstraintRow, IndexRow
from penstock.server.shape.parts import ForeignKey, IndexFacts, IndexPart, ShapeTable, TableParts
from penstock.units import GIB, MIB

JOB = TargetJob(sources=("f",), table=TableName(schema="s", name="t"))
FACTS = ParkingFacts(indexes="auto", on_error="stop", job=JOB, is_empty=True, size_bytes=SMALL_BYTES)
TABLE = ShapeTable(
    oid=1,
    schema="s",
    name="t",
    quoted_name="s.t",
    kind="r",
    owner="o",
    is_owner=True,
    may_create=True,
    replica_identity="d",
    is_published=False,
    columns={"a": "integer"},
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
        self_reference_head=None,
        is_deferrable=False,
        is_deferred=False,
        is_validated=True,
        is_enforced=True,
        is_temporal=False,
        comment=None,
    )
    described = IndexFacts(
        name=name,
        method="btree",
        is_valid=True,
        is_primary=kind == "p",
        is_attached=False,
        is_partial=False,
        may_use_tablespace=True,
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
        owner="o",
        is_owner=True,
        may_refer=True,
        has_altered_triggers=False,
        columns={},
    )
    return replace(key, **facts)  # type: ignore[arg-type]


PK, UNIQUE, PLAIN = make_index("pk", is_unique=True, kind="p"), make_index("u", is_unique=True), make_index("i")
OWN, TO_US = make_key("own", references_oid=9), make_key("to_us", relation_oid=7)


def decide(
    *indexes: IndexPart, keys: tuple[ForeignKey, ...] = (), table: ShapeTable = TABLE, **facts: object
) -> tuple[list[str], dict[str, str], str]:
    """Return what is parked, by name, and the reasons of what stays."""
    parts = TableParts(table=table, indexes=indexes, foreign_keys=keys)
    decision = decide_parking(parts, replace(FACTS, **facts))  # type: ignore[arg-type]
    names = [key.name for key in decision.foreign_keys] + [part.name for part in decision.indexes]
    assert [part.name for part in decision.plan.parked] == names
    return names, {part.name: part.reason for part in decision.plan.kept}, decision.plan.reason


def test_an_empty_table_is_parked_whole() -> None:
    """Foreign keys first, since keys cannot go before them."""
    parked, kept, reason = decide(PK, UNIQUE, PLAIN, keys=(OWN, TO_US), empty_tables={7})
    assert parked == ["own", "to_us", "pk", "u", "i"]
    assert kept == {}
    assert reason == "the table is empty"


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"indexes": "keep"}, "--indexes keep"),
        ({"is_empty": False}, "has rows"),
        ({"size_bytes": SMALL_BYTES - 1}, "too little"),
        ({"job": replace(JOB, mode="replace")}, "new table"),
    ],
)
def test_nothing_is_parked_where_it_must_not_or_does_not_pay(facts: dict[str, object], reason: str) -> None:
    """And the plan says why."""
    parked, kept, why = decide(PK, PLAIN, keys=(OWN,), **facts)
    assert parked == []
    assert set(kept) == {"pk", "i", "own"}
    assert reason in why


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (replace(TABLE, kind="p"), "partitioned"),
        (replace(TABLE, is_owner=False), 'owner "o"'),
    ],
)
def test_some_tables_are_left_alone_whatever_is_asked(table: ShapeTable, reason: str) -> None:
    """A role that does not own the table cannot park at all."""
    parked, _, why = decide(PK, PLAIN, table=table, indexes="rebuild")
    assert parked == []
    assert reason in why


def test_rebuild_parks_a_table_with_rows() -> None:
    """Said out loud, since nothing enforces a parked key on others."""
    assert decide(PK, PLAIN, keys=(TO_US,), indexes="rebuild", is_empty=False, size_bytes=1)[0] == ["to_us", "pk", "i"]


def test_a_load_goes_on_in_the_shape_it_had_made() -> None:
    """Its own rows do not make the table one that others write to."""
    assert decide(PK, is_parked=True, is_empty=False)[0] == ["pk"]


def test_rejects_need_what_refuses_records() -> None:
    """Keys, exclusion constraints and foreign keys stay with --on-error reject; plain indexes go."""
    exclusion = make_index("x", kind="x")
    parked, kept, _ = decide(PK, UNIQUE, exclusion, PLAIN, keys=(OWN,), on_error="reject")
    assert parked == ["i"]
    assert set(kept) == {"pk", "u", "x", "own"}


@pytest.mark.parametrize("mode", ["upsert", "insert-new"])
def test_a_merge_keeps_its_key(mode: str) -> None:
    """By whatever index it is unique."""
    parked, kept, _ = decide(PK, PLAIN, job=replace(JOB, mode=mode, key=("a",)))
    assert parked == ["i"]
    assert kept == {"pk": f"--mode {mode} needs it"}


def test_a_published_tables_identity_stays() -> None:
    """Its subscribers could not tell rows apart."""
    parked, kept, _ = decide(PK, PLAIN, table=replace(TABLE, is_published=True))
    assert parked == ["i"]
    assert "published" in kept["pk"]


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        (replace(TO_US, is_owner=False), "is owned by"),
        (replace(TO_US, is_kept_whole=True), "partitioned"),
        (replace(TO_US, has_altered_triggers=True), "triggers"),
        (TO_US, "has rows"),
    ],
)
def test_a_key_stays_with_a_foreign_key_that_relies_on_it(key: ForeignKey, reason: str) -> None:
    """Others' tables are not ours to change, and those with rows may be written to."""
    parked, kept, _ = decide(PK, PLAIN, keys=(key,))
    assert parked == ["i"]
    assert reason in kept["pk"]


def test_a_foreign_key_to_a_key_that_stays_is_not_in_the_way() -> None:
    """Other tables' foreign keys are parked for the key alone."""
    assert decide(PK, keys=(TO_US,), on_error="reject", empty_tables={7})[0] == []


@pytest.mark.parametrize(
    ("index", "reason"),
    [
        (make_index("i", dependents=["view v"]), "view v depends on it"),
        (make_index("i", is_attached=True), "partitioned"),
        (make_index("i", is_valid=False), "not valid"),
        (make_index("i", may_use_tablespace=False), "tablespace"),
    ],
)
def test_an_index_that_could_not_be_made_again_stays(index: IndexPart, reason: str) -> None:
    """Each with its reason."""
    parked, kept, _ = decide(index, indexes="rebuild")
    assert parked == []
    assert reason in kept["i"]


# ---------------------------------------------------------------- the order of the rebuild


def make_change(name: str, number: int, *, width: int = 4, method: str = "btree", types: str = "integer") -> Change:
    """Return the record of an index."""
    record = {"index": {"body": "(a)"}, "method": method, "width_bytes": width, "columns": {"a": types}}
    return Change(
        target_oid=1,
        target=JOB.table,
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


@pytest.mark.parametrize(
    ("count", "cpus", "memory", "plan"),
    [
        (5, 2, None, RebuildPlan(sessions=2, workers=0, memory_bytes=GIB)),
        (1, 8, None, RebuildPlan(sessions=1, workers=7, memory_bytes=GIB)),
        (3, 8, 64 * GIB, RebuildPlan(sessions=3, workers=1, memory_bytes=GIB)),
        (5, 2, 2 * GIB, RebuildPlan(sessions=2, workers=0, memory_bytes=GIB // 4)),
        (5, None, 256 * MIB, RebuildPlan(sessions=2, workers=0, memory_bytes=64 * MIB)),
    ],
)
def test_sessions_share_processors_and_memory(
    count: int, cpus: int | None, memory: int | None, plan: RebuildPlan
) -> None:
    """A session for each CPU; together they take a quarter of the memory at most."""
    assert plan_rebuild(count, cpu_count=cpus, memory_bytes=memory) == plan
