r"""Whichever records a merge refuses, the records of all other keys land; also after deaths.

The model chooses one record of each key by the mode: if the table refuses it, all records of that key are rejected;
otherwise it is stored, and the others give way. Records may refer to others of the same table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from penstock.core.tuning import BatchPlan
from penstock.core.values.job import LoadRules
from support.loads import Loads
from support.modes import Killed, killing_at, landing_tables, mode_target

if TYPE_CHECKING:
    from pathlib import Path

    from hypothesis.strategies import DrawFn

    from penstock.core.values.job import TargetJob

EXAMPLES = settings(
    phases=[Phase.explicit, Phase.generate],
    max_examples=max(12, settings().max_examples // 6),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

SETUP = """
    DROP SCHEMA IF EXISTS penstock CASCADE;
    DROP TABLE IF EXISTS t, parent;
    CREATE TABLE parent (id int PRIMARY KEY);
    INSERT INTO parent VALUES (1);
    CREATE TABLE t (
        k int PRIMARY KEY, s text NOT NULL CHECK (s <> 'bad'), p int REFERENCES parent, r int REFERENCES t, w int
    );
    CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF NEW.s = 'raise' THEN RAISE EXCEPTION 'not this one' USING ERRCODE = 'P0042'; END IF;
        RETURN NEW;
    END $$;
    CREATE TRIGGER refuse BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION refuse();
"""

# What a record has in s, and the code it is refused with.
OWN = {"bad": "23514", "": "23502", "raise": "P0042"}
# What it is refused with by COPY already.
EARLY = {"type": "22P02", "few": "22P04"}
REFERENCE, TAKEN = "23503", "23505"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A record: its object, its place there, its bytes, its values, and what COPY makes of it."""

    number: int
    start: int
    line: int
    raw: bytes
    key: int | None
    s: str
    parent: int | None
    refers: int | None
    w: int
    early: str | None

    @property
    def own_code(self) -> str | None:
        """Return what the record is refused with whatever else there is: the trigger comes first, then nulls."""
        code = OWN.get(self.s)
        return "23502" if self.key is None and code != "P0042" else code


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Files, what the table had, how to load, and the statements at which loaders die, one after another."""

    mode: str
    keep: str
    files: list[bytes]
    records: list[Record]
    existing: list[int]
    sessions: int
    piece_bytes: int
    batch_bytes: int
    portion_bytes: int
    deaths: list[int]


@st.composite
def _cases(draw: DrawFn) -> Case:
    mode = draw(st.sampled_from(["upsert", "upsert", "insert-new", "truncate"]))
    is_keyed = mode != "truncate"
    keys = draw(st.sampled_from([4, 12, 40]))
    share = draw(st.sampled_from([1, 3, 10]))
    files, records = [], []
    for number in range(draw(st.integers(1, 3))):
        data, line = b"k,s,p,r,w\n", 2
        for _ in range(draw(st.integers(0, 25))):
            is_bad = draw(st.integers(0, share)) == 0
            kind = draw(st.sampled_from([*OWN, *EARLY])) if is_bad else None
            # One that spans lines and has too few fields is torn: tests/loading/formats/test_torn_records.py.
            texts = ["x", 'a "b", c', *([] if kind == "few" else ["two\nlines"])]
            s = kind if kind in OWN else draw(st.sampled_from(texts))
            parent = draw(st.sampled_from([None, 1, 1, 1, 99])) if is_keyed else None
            key = draw(st.integers(0, keys)) if draw(st.integers(0, 9)) else None
            # Never a later one, so that the order of what refers to what is certain to end.
            refers = draw(st.none() | st.integers(0, key - 1)) if key and is_keyed and share < 10 else None
            w = len(records)
            fields = ["" if value is None else str(value) for value in (key, s, parent, refers, w)]
            fields[1] = '"' + s.replace('"', '""') + '"' if s else ""
            fields = {"type": ["seven", *fields[1:]], "few": fields[:3]}.get(kind or "", fields)
            raw = ",".join(fields).encode() + b"\n"
            early = EARLY.get(kind or "")
            records.append(
                Record(
                    number=number,
                    start=len(data),
                    line=line,
                    raw=raw,
                    key=key,
                    s=s,
                    parent=parent,
                    refers=refers,
                    w=w,
                    early=early,
                )
            )
            data, line = data + raw, line + raw.count(b"\n")
        files.append(data)
    return Case(
        mode=mode,
        keep=draw(st.sampled_from(["first", "last"])) if mode == "upsert" else "error",
        files=files,
        records=records,
        existing=draw(st.lists(st.integers(0, keys), max_size=6, unique=True)),
        sessions=draw(st.integers(1, 3)),
        piece_bytes=draw(st.sampled_from([7, 40, 1000])),
        batch_bytes=draw(st.sampled_from([1, 30, 10_000])),
        portion_bytes=draw(st.sampled_from([1, 10_000_000])),
        deaths=draw(st.lists(st.integers(0, 90), max_size=2)),
    )


@dataclass(slots=True)
class Model:
    """What becomes of records: each key's row (None for one that was there), the codes of rejected ones, and counts."""

    rows: dict[int | None, int | None]
    rejected: dict[int, str]
    stored: int = 0
    duplicates: int = 0
    existing: int = 0


def _expect(case: Case) -> Model:
    is_fresh = case.mode == "truncate"
    return _settle(case, case.records, {} if is_fresh else dict.fromkeys(case.existing))


def _settle(case: Case, records: list[Record], rows: dict[int | None, int | None]) -> Model:
    """Return what becomes of records, given the table's rows."""
    rejected = {record.w: record.early for record in records if record.early is not None}
    model = Model(rows=dict(rows), rejected=rejected)
    staged = [record for record in records if record.early is None]
    if case.mode == "truncate":
        return _expect_all(staged, model)
    waiting: dict[int | None, list[Record]] = {}
    for record in reversed(staged) if case.keep == "last" else staged:
        waiting.setdefault(record.key, []).append(record)
    while any(_try_first(key, waiting, model, case) for key in list(waiting)):
        pass
    # Those that refer to nothing, now that all others are in.
    for left in waiting.values():
        model.rejected |= {record.w: REFERENCE for record in left}
    return model


def _expect_all(staged: list[Record], model: Model) -> Model:
    for record in staged:
        code = record.own_code or (TAKEN if record.key in model.rows else None)
        if code is None:
            model.rows[record.key] = record.w
            model.stored += 1
        else:
            model.rejected[record.w] = code
    return model


def _try_first(key: int | None, waiting: dict[int | None, list[Record]], model: Model, case: Case) -> bool:
    """Try the record of a key that is first in turn; return whether anything came of it."""
    record, *others = waiting[key]
    is_left = case.mode == "insert-new" and key in model.rows
    if key is None:
        # No two records without a key have the same one.
        model.rejected |= {each.w: each.own_code or "" for each in waiting.pop(key)}
        return True
    if (code := record.own_code) is not None:
        model.rejected |= {each.w: code for each in waiting.pop(key)}
        return True
    is_fit = record.parent != 99 and (record.refers is None or record.refers in model.rows)
    if not is_fit and not is_left:
        return False
    if is_left:
        model.existing += 1
    else:
        model.rows[key] = record.w
        model.stored += 1
    model.duplicates += len(others)
    del waiting[key]
    return True


@pytest.mark.part("rest")
@EXAMPLES
@given(case=_cases())
def test_all_but_refused_records_land(database: str, tmp_path: Path, case: Case) -> None:
    """On each version; each record is counted once, and rejected ones are there byte for byte."""
    loads = Loads(database, piece_bytes=case.piece_bytes, setup=SETUP)
    for key in case.existing:
        loads.execute(f"INSERT INTO t VALUES ({key}, 'old')")
    batch = BatchPlan(limit_bytes=case.batch_bytes, duration_s=None, merge_portion_bytes=case.portion_bytes)
    job = _write(tmp_path, case)
    rules = LoadRules(retry_for=0.0, on_error="reject", atomic=True)
    model = _expect(case)
    for death in case.deaths:
        try:
            with killing_at(death):
                loads.run(job, sessions=case.sessions, batch=batch, rules=rules)
            break
        except Killed:
            rows = dict(loads.execute("SELECT k, w FROM t"))
            assert rows in (dict.fromkeys(case.existing), model.rows)
    else:
        loads.run(job, sessions=case.sessions, batch=batch, rules=rules)
    # A loader that died behind its last commit has truncated for a load that is complete.
    loads.execute("DELETE FROM penstock.loads WHERE began_at < (SELECT max(began_at) FROM penstock.loads)")
    _assert_ended(loads, case, model)


def _assert_ended(loads: Loads, case: Case, model: Model) -> None:
    """Assert what is in the table, what is rejected, and that each record is counted once."""
    assert dict(loads.execute("SELECT k, w FROM t")) == model.rows
    found = loads.execute("SELECT object, start, line, raw, sqlstate FROM penstock.rejects ORDER BY object, start")
    assert found == [
        (record.number, record.start, record.line, record.raw, model.rejected[record.w])
        for record in case.records
        if record.w in model.rejected
    ]
    assert landing_tables(loads) == []
    counted = loads.execute(
        "SELECT object, sum(records)::int, sum(rows)::int, sum(rejected)::int FROM penstock.ranges"
        " GROUP BY 1 ORDER BY 1"
    )
    expected = []
    for number in range(len(case.files)):
        ours = [record for record in case.records if record.number == number]
        rejected = sum(record.w in model.rejected for record in ours)
        expected.append((number, len(ours), len(ours) - rejected, rejected))
    assert counted == expected
    sums = loads.execute("SELECT staged, inserted + updated, duplicates, existing, suppressed FROM penstock.targets")
    left = len(case.records) - len(model.rejected)
    assert sums == [(left, model.stored, model.duplicates, model.existing, 0)]
    assert left == model.stored + model.duplicates + model.existing
    assert loads.execute("SELECT rows FROM penstock.loads") == [(model.stored,)]


def _write(folder: Path, case: Case) -> TargetJob:
    paths = []
    for number, data in enumerate(case.files):
        path = folder / f"{number}.csv"
        path.write_bytes(data)
        paths.append(path)
    key = () if case.mode == "truncate" else ("k",)
    return mode_target(paths, case.mode, key=key, keep=case.keep, format="csv", has_header=True)
