"""Whatever keys records share and whatever they refer to: what a loop over the files would store is in the table.

Keys and foreign keys are parked, so nothing refuses a record that breaks them before they are rebuilt. Without
references the model is a loop that inserts each record in file order; without keys that two have, the largest set of
records that refer to something. With both the table must be whole, and no reject may be one that would go in.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st

from penstock.loading import late_search
from penstock.model.job import LoadRules
from support.loads import Loads, chop_commands, target

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from hypothesis.strategies import DrawFn

EXAMPLES = settings(
    phases=[Phase.explicit, Phase.generate],
    max_examples=max(15, settings().max_examples // 4),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
RULES = LoadRules(
    retry_for_s=0.0, is_again=True, on_changed="load", vacuums=False, indexes="rebuild", on_error="reject"
)

SETUP = """
    DROP TABLE IF EXISTS t, p;
    CREATE TABLE p (k int PRIMARY KEY);
    INSERT INTO p VALUES (1), (2);
    CREATE TABLE t (
        id int,
        a int PRIMARY KEY,
        b int UNIQUE,
        c int REFERENCES p,
        d int REFERENCES t
    );
"""
PARENTS = {1, 2}


@dataclass(frozen=True, slots=True)
class Record:
    """A record: its place among all, two keys, and what it refers to: another table, and this one."""

    place: int
    a: int
    b: int | None
    c: int | None
    d: int | None

    def line(self) -> str:
        """Return it as csv."""
        values = (self.place, self.a, self.b, self.c, self.d)
        return ",".join("" if value is None else str(value) for value in values) + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Files, and how they are parted and searched."""

    records: list[Record]
    cuts: list[int]
    sessions: int
    piece_bytes: int
    batch_bytes: int
    portion_bytes: int
    needles: int


@st.composite
def cases(draw: DrawFn) -> Case:
    """Draw files whose records share keys and refer to each other."""
    size = draw(st.integers(min_value=1, max_value=25))
    has_duplicates, has_references = draw(st.sampled_from([(True, False), (False, True), (True, True)]))
    keys = st.integers(min_value=100, max_value=100 + 2 * size)
    records = []
    for place in range(size):
        a = draw(keys) if has_duplicates else 100 + place
        b = draw(st.none() | keys) if has_duplicates else None
        c = draw(st.sampled_from([None, 1, 2, 2, 3])) if has_references else None
        d = draw(st.none() | keys) if has_references else None
        records.append(Record(place, a, b, c, d))
    return Case(
        records=records,
        cuts=sorted(draw(st.lists(st.integers(min_value=0, max_value=size), max_size=2))),
        sessions=draw(st.integers(min_value=1, max_value=3)),
        piece_bytes=draw(st.sampled_from([7, 40, 1000])),
        batch_bytes=draw(st.sampled_from([30, 1000])),
        portion_bytes=draw(st.sampled_from([1, 100, 10_000])),
        needles=draw(st.sampled_from([0, 16])),
    )


def loop(records: list[Record], out: set[int]) -> set[int]:
    """Return which records a loop stores that knows of keys alone."""
    stored: set[int] = set()
    a: set[int] = set()
    b: set[int] = set()
    for record in records:
        if record.place not in out and record.a not in a and record.b not in b:
            stored.add(record.place)
            a.add(record.a)
            b |= {record.b} - {None}  # type: ignore[arg-type]
    return stored


def without_orphans(records: list[Record]) -> set[int]:
    """Return which records stay once those are out that refer to nothing."""
    out: set[int] = set()
    while True:
        stored = loop(records, out)
        there = {record.a for record in records if record.place in stored}
        news = {
            record.place
            for record in records
            if record.place in stored
            and (record.c not in PARENTS | {None} or (record.d is not None and record.d not in there))
        }
        if not news:
            return stored
        out |= news


def check_whole(records: list[Record], stored: set[int], codes: dict[int, str]) -> None:
    """Assert that no rejected record would go in, and that each is told what it breaks."""
    inside = [record for record in records if record.place in stored]
    by_a = {record.a: record for record in inside}
    by_b = {record.b: record for record in inside if record.b is not None}
    for record in records:
        if record.place in stored:
            continue
        is_orphan = record.c not in PARENTS | {None} or record.d not in {None, record.a, *by_a}
        owners = [found for found in (by_a.get(record.a), by_b.get(record.b)) if found is not None]
        assert is_orphan or owners, record
        if not is_orphan:
            assert codes[record.place] == "23505", record


@EXAMPLES
@given(case=cases())
def test_what_a_loop_would_store_is_in_the_table(
    case: Case, database18: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And all other records are rejects."""
    loads = Loads(database18, piece_bytes=case.piece_bytes)
    loads.execute(SETUP)
    chop_commands(monkeypatch, 20)
    monkeypatch.setattr(late_search, "_PORTION_BYTES", case.portion_bytes)
    monkeypatch.setattr(late_search, "_MOST_NEEDLES", case.needles)
    records = case.records
    edges = [0, *case.cuts, len(records)]
    paths = []
    for number, (start, end) in enumerate(pairwise(edges)):
        path = tmp_path / f"{number}.csv"
        path.write_text("".join(record.line() for record in records[start:end]))
        paths.append(path)
    job = target(paths, columns=("id", "a", "b", "c", "d"), format="csv", has_header=False)
    outcome = loads.run(job, rules=RULES, sessions=case.sessions, batch_bytes=case.batch_bytes)
    rows: list[Any] = loads.execute("SELECT id FROM t")
    stored = {place for (place,) in rows}
    query = "SELECT convert_from(raw, 'UTF8'), sqlstate FROM penstock.rejects WHERE load = %s ORDER BY object, start"
    rejects = loads.execute(query.replace("%s", f"'{outcome.load_id}'"))
    codes = {int(raw.split(",")[0]): code for raw, code in rejects}
    assert [raw for raw, _ in rejects] == [record.line() for record in records if record.place not in stored]
    assert (outcome.rows, outcome.rejected) == (len(stored), len(records) - len(stored))
    assert loads.execute(
        "SELECT count(*) FROM pg_constraint WHERE conrelid = 't'::regclass AND contype IN ('p', 'u')"
        " OR conrelid = 't'::regclass AND contype = 'f' AND convalidated"
    ) == [(4,)]
    has_references = any(record.c is not None or record.d is not None for record in records)
    has_duplicates = len({record.a for record in records}) < len(records) or any(record.b for record in records)
    if not has_references:
        event("keys alone")
        assert stored == loop(records, set())
    elif not has_duplicates:
        event("references alone")
        assert stored == without_orphans(records)
    else:
        event("both")
    check_whole(records, stored, codes)
