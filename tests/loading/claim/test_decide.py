"""What is done with each object, by what the ledger knows of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pytest

from penstock.core.errors import TargetError
from penstock.core.values.job import LoadRules, TargetJob
from penstock.core.values.source import SourceObject
from penstock.core.values.table import ColumnMap, TableName
from penstock.ledger.lookup import LedgerFindings
from penstock.ledger.values import KnownObject, LedgerObject
from penstock.loading.claim.decide import ClaimFacts, LoadDecision, decide_load, decide_objects, find_known
from penstock.loading.values.objects import PlannedObject
from penstock.loading.values.plan import TargetPlan
from support.plans import sample_of

if TYPE_CHECKING:
    from penstock.core.values.dialect import Dialect
    from penstock.core.values.job import Mode

TABLE = TableName(schema="public", name="t")
ITEM = LedgerObject(number=0, target_oid=7, target=TABLE, uri="/a", version="1", size_bytes=10)
LOADED = KnownObject(
    load_id="old",
    identity="other",
    state="complete",
    number=3,
    target_oid=7,
    uri="/a",
    version="1",
    rows=5,
)


def decide(
    *known: KnownObject, running: str | None = None, emptied_oid: int | None = None, **rules: object
) -> list[str]:
    """Return what is done with the object, and its number."""
    decisions = decide_objects(
        [ITEM],
        known,
        running=running,
        emptied=frozenset() if emptied_oid is None else frozenset({emptied_oid}),
        rules=LoadRules(**rules),  # type: ignore[arg-type]
    )
    return [f"{each.action} {each.number}{' changed' if each.is_changed else ''}" for each in decisions]


def test_unknown_object_is_new() -> None:
    """Numbers begin at 0."""
    assert decide() == ["new 0"]


def test_loaded_object_is_left_out() -> None:
    """Of the same version into the same table."""
    assert decide(LOADED) == ["skip -1"]


def test_loaded_object_is_loaded_again_when_told() -> None:
    """--again."""
    assert decide(LOADED, again=True) == ["new 0"]


@pytest.mark.parametrize(("on_changed", "done"), [("load", "new 0"), ("skip", "skip -1")])
def test_another_version_is_loaded_or_left_out_as_told(on_changed: str, done: str) -> None:
    """--changed."""
    assert decide(replace(LOADED, version="0"), changed=on_changed) == [done]


def test_another_version_is_an_error_until_told() -> None:
    """With both choices."""
    with pytest.raises(TargetError, match="has changed") as caught:
        decide(replace(LOADED, version="0"))
    assert "--changed skip" in str(caught.value.hint)


def test_former_version_is_loaded_again_if_rows_are_updated() -> None:
    """A file goes back to what it was: its rows are those of the version in between, unless the load only appends."""
    known = [LOADED, replace(LOADED, load_id="later", version="2")]
    rules = LoadRules(changed="load")
    actions = [
        decide_objects([ITEM], known, running=None, emptied=frozenset(), rules=rules, updating=updating)[0].action
        for updating in (frozenset({ITEM.number}), frozenset[int]())
    ]
    assert actions == ["new", "skip"]


def test_object_without_a_version_is_never_taken_for_loaded() -> None:
    """Nobody knows whether it is the same."""
    item = replace(ITEM, version=None)
    found = replace(LOADED, version=None)
    with pytest.raises(TargetError, match="may have changed"):
        decide_objects([item], [found], running=None, emptied=frozenset(), rules=LoadRules())


def test_own_object_is_gone_on_with() -> None:
    """Under the number it has."""
    assert decide(replace(LOADED, load_id="own", state="running"), running="own") == ["resume 3"]


@pytest.mark.parametrize("on_changed", ["load", "skip"])
@pytest.mark.parametrize("rows", [0, 5])
def test_own_object_that_has_changed_is_an_error_until_told(on_changed: str, rows: int) -> None:
    """As one that was loaded before; whatever is committed of it must then be compared."""
    own = replace(LOADED, load_id="own", state="running", version="0", rows=rows)
    with pytest.raises(TargetError, match="has changed since load own began"):
        decide(own, running="own")
    assert decide(own, running="own", changed=on_changed) == ["resume 3 changed"]


def test_object_is_left_to_another_load_if_several_hosts_load_this_one() -> None:
    """A load has the objects that it began with; objects that are loaded already are skipped as ever."""
    assert decide(running="own", join=True) == ["left -1"]
    assert decide(join=True) == ["new 0"]
    assert decide(running="own") == ["new 0"]
    assert decide(LOADED, running="own", join=True) == ["skip -1"]


@pytest.mark.parametrize("on_changed", ["error", "load", "skip"])
def test_another_version_of_an_own_object_is_an_error_of_the_host_if_several_load(on_changed: str) -> None:
    """Another host may be loading the version that the load began with."""
    own = replace(LOADED, load_id="own", state="running", version="0")
    with pytest.raises(TargetError, match="is not the object that load own began with") as caught:
        decide_objects(
            [ITEM],
            [own],
            running="own",
            emptied=frozenset(),
            rules=LoadRules(join=True, changed=on_changed),  # type: ignore[arg-type]
            host="web-1",
        )
    assert "web-1" in str(caught.value.detail)


def test_own_object_without_a_version_must_be_compared() -> None:
    """Nobody knows whether it has changed."""
    own = replace(LOADED, load_id="own", state="running", version=None)
    item = replace(ITEM, version=None)
    (decision,) = decide_objects([item], [own], running="own", emptied=frozenset(), rules=LoadRules())
    assert decision.is_changed


def test_object_of_another_unfinished_load_is_an_error() -> None:
    """That load has committed rows of it, perhaps."""
    with pytest.raises(TargetError, match="belongs to unfinished load old"):
        decide(replace(LOADED, state="running"))


@pytest.mark.parametrize(("on_emptied", "done"), [("load", "new 0"), ("skip", "skip -1"), ("error", None)])
def test_rows_that_are_gone_are_a_question(on_emptied: str, done: str | None) -> None:
    """--emptied; by default the error names both answers."""
    if done is not None:
        assert decide(LOADED, emptied_oid=7, emptied=on_emptied) == [done]
        return
    with pytest.raises(TargetError, match="after objects were loaded") as caught:
        decide(LOADED, emptied_oid=7)
    assert "--emptied load" in str(caught.value.hint)


@pytest.mark.parametrize("is_last", [True, False])
def test_rows_that_any_load_has_left_are_there(*, is_last: bool) -> None:
    """This holds in any order of the loads in the ledger, because the server's clock may have been set back."""
    gone = [replace(LOADED, is_superseded=True), replace(LOADED, target_oid=6), replace(LOADED, rows=0)]
    assert decide(*([*gone, LOADED] if is_last else [LOADED, *gone])) == ["skip -1"]
    with pytest.raises(TargetError, match="after objects were loaded"):
        decide(*(gone if is_last else reversed(gone)))


def test_rows_of_another_table_count_for_nothing() -> None:
    """It had the name, or the file went into several tables."""
    assert decide(replace(LOADED, target_oid=6)) == ["new 0"]


def test_object_without_rows_is_not_missed() -> None:
    """An empty file left nothing that could be gone."""
    assert decide(replace(LOADED, rows=0), emptied_oid=7) == ["skip -1"]


def test_new_objects_are_numbered_behind_those_that_the_load_has() -> None:
    """A prefix that has grown, and lost others."""
    own = replace(LOADED, load_id="own", state="running")
    items = [replace(ITEM, uri="/b"), ITEM, replace(ITEM, uri="/c")]
    decisions = decide_objects(items, [own], running="own", next_number=9, emptied=frozenset(), rules=LoadRules())
    assert [(each.action, each.number) for each in decisions] == [("new", 9), ("resume", 3), ("new", 10)]


class CountedName(str):
    """A name that counts how often one is compared with another."""

    __slots__ = ()
    comparisons = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        CountedName.comparisons += 1
        return str.__eq__(self, other)


def test_objects_are_found_among_many_without_comparing_each_with_each() -> None:
    """A folder of thousands of files, all loaded already: the comparisons grow with their number, not its square."""
    count = 1000
    CountedName.comparisons = 0
    items = [replace(ITEM, uri=CountedName(f"/{number}"), number=number) for number in range(count)]
    known = [replace(LOADED, uri=CountedName(f"/{number}")) for number in range(count)]
    assert find_known(items, known) == [[number] for number in range(count)]
    assert decide_objects(items, known, running=None, emptied=frozenset(), rules=LoadRules())[-1].action == "skip"
    assert CountedName.comparisons < 10 * count


def decide_for(
    *known: KnownObject, mode: Mode = "append", refusal: TargetError | None = None, **rules: object
) -> LoadDecision:
    """Return what is decided for a load of /a and /b."""
    uris = ("/a", "/b")
    sources = tuple(SourceObject(uri=uri, location=uri, size_bytes=10, version="1") for uri in uris)
    job = TargetJob(sources=uris, into=TABLE, mode=mode)
    target = TargetPlan(
        job=job,
        landing=job.landing,
        table=TABLE,
        facts=None,
        create_columns=None,
        dialect=cast("Dialect", None),
        header=None,
        column_map=ColumnMap(columns=()),
        objects=sources,
        sample=sample_of(sources[0]),
        allows_suppressed_rows=False,
        refusal=refusal,
    )
    facts = ClaimFacts(
        works=[PlannedObject(target=target, source=source, number=number) for number, source in enumerate(sources)],
        items=[replace(ITEM, uri=uri, number=number) for number, uri in enumerate(uris)],
        found=LedgerFindings(
            running=None, next_number=0, is_copied=False, known=known, changed_by={}, server_holds=(), renamed={}
        ),
        emptied=frozenset(),
        meaning="",
        created=(),
    )
    return decide_load(facts, LoadRules(**rules))  # type: ignore[arg-type]


def test_only_objects_that_are_not_loaded_are_added_to_a_load() -> None:
    """They are numbered from 0, and no other load may have them."""
    decision = decide_for(LOADED)
    assert [(item.uri, item.number) for item in decision.new] == [("/b", 0)]
    assert (decision.skipped, decision.is_nothing, decision.unshared) == (1, False, {0})
    assert decide_for(LOADED, replace(LOADED, uri="/b")).is_nothing


@pytest.mark.parametrize(("mode", "again"), [("truncate", False), ("append", True)])
def test_objects_that_are_loaded_in_any_case_may_belong_to_other_loads(mode: Mode, *, again: bool) -> None:
    """With --again, and with a mode that empties the table."""
    decision = decide_for(LOADED, mode=mode, again=again)
    assert len(decision.new) == 2
    assert decision.unshared == frozenset()


def test_a_refusal_of_the_plan_is_raised_if_an_object_is_loaded() -> None:
    """If all objects are loaded already, nothing is refused."""
    refusal = TargetError("no column")
    assert decide_for(LOADED, replace(LOADED, uri="/b"), refusal=refusal).is_nothing
    with pytest.raises(TargetError, match="no column"):
        decide_for(LOADED, refusal=refusal)
