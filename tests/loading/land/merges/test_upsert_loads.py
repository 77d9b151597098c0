"""Loads of every mode leave what a model says, from any files, by several sessions, with deaths in between."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.core.errors import DataError
from support.loads import Loads
from support.modes import Killed, killing_at, landing_tables, mode_target

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hypothesis.strategies import DrawFn

    from penstock.core.values.job import TargetJob
    from penstock.loading.values.outcome import LoadOutcome

# A row of table t: key, value, and a column that the files may lack.
Row = tuple[int, str | None, int | None]

_KEYED = ("upsert", "insert-new", "sync")

# Deaths cost a load each; what they meet differs from example to example.
EXAMPLES = settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Files, what the table had, how to load, and the statements at which loaders die, one after another."""

    mode: str
    keep: str
    files: list[list[Row]]
    existing: list[Row]
    has_w: bool
    sessions: int
    piece_bytes: int
    batch_bytes: int
    deaths: list[int]

    @property
    def records(self) -> list[Row]:
        """Return the files' records in the order of the job."""
        return [row for rows in self.files for row in rows]


@st.composite
def _cases(draw: DrawFn) -> Case:
    mode = draw(st.sampled_from(["upsert", "upsert", "insert-new", "sync", "sync", "replace", "truncate"]))
    is_keyed = mode in _KEYED
    has_w = draw(st.booleans()) or not is_keyed
    rows = st.tuples(
        st.integers(0, 12),
        st.none() | st.sampled_from(["x", 'a "b", c', "tab\there", "two\nlines"]),
        st.none() | st.integers(0, 9) if has_w else st.none(),
    )
    files = draw(st.lists(st.lists(rows, max_size=12), min_size=1, max_size=3))
    existing = draw(st.lists(rows, max_size=6, unique_by=lambda row: row[0]))
    return Case(
        mode=mode,
        keep=draw(st.sampled_from(["first", "last", "error"])) if mode in ("upsert", "sync") else "error",
        files=files,
        existing=existing,
        has_w=has_w,
        sessions=draw(st.integers(1, 3)),
        piece_bytes=draw(st.sampled_from([7, 40, 1000])),
        batch_bytes=draw(st.sampled_from([1, 30, 10_000])),
        deaths=draw(st.lists(st.integers(0, 60), max_size=2)),
    )


def _expect(case: Case) -> list[Row] | None:
    """Return the table's rows as the modes are defined; None where a key is in the files twice and must not be."""
    keys = [row[0] for row in case.records]
    if case.mode in ("upsert", "sync"):
        if case.keep == "error" and len(set(keys)) < len(keys):
            return None
        chosen = case.records if case.keep == "last" else case.records[::-1]
        table = {row[0]: row for row in case.existing}
        for key, row in {row[0]: row for row in chosen}.items():
            w = row[2] if case.has_w or key not in table else table[key][2]
            table[key] = (key, row[1], w)
        return [row for key, row in table.items() if case.mode == "upsert" or key in keys]
    if case.mode == "insert-new":
        return list({row[0]: row for row in [*case.records[::-1], *case.existing]}.values())
    return case.records


@EXAMPLES
@given(case=_cases())
def test_modes_leave_what_the_model_says(database18: str, tmp_path_factory: pytest.TempPathFactory, case: Case) -> None:
    """Also the counts: every record is stored, or gave way, or met a row; nothing that was made stays behind."""
    loads = _prepare(database18, case)
    job = _write(tmp_path_factory.mktemp("files"), case)
    expected = _expect(case)
    run: Callable[[], LoadOutcome] = lambda: loads.run(job, sessions=case.sessions, batch_bytes=case.batch_bytes)  # noqa: E731
    outcome = None
    for death in case.deaths:
        try:
            with killing_at(death):
                outcome = run()
            break
        except Killed:
            if case.mode != "truncate":
                assert loads.rows() in (_sorted(case.existing), _sorted(expected or case.existing))
        except DataError:
            break
    if expected is None:
        with pytest.raises(DataError, match="duplicated in the files"):
            run()
        assert loads.rows() == _sorted(case.existing)
        return
    if outcome is None:
        outcome = run()
    assert loads.rows() == _sorted(expected)
    assert landing_tables(loads) == []
    if outcome.rows_before == 0 and not outcome.objects_skipped:
        counted = outcome.rows + outcome.suppressed + outcome.duplicates + outcome.existing
        assert counted == len(case.records)


def _prepare(conninfo: str, case: Case) -> Loads:
    loads = Loads(conninfo, piece_bytes=case.piece_bytes)
    key = " PRIMARY KEY" if case.mode in _KEYED else ""
    loads.execute(
        f"DROP SCHEMA IF EXISTS penstock CASCADE; DROP TABLE IF EXISTS t;CREATE TABLE t (k int{key}, v text, w int)"
    )
    for row in case.existing:
        loads.execute(f"INSERT INTO t VALUES ({', '.join(map(_to_sql, row))})")
    return loads


def _write(folder: Path, case: Case) -> TargetJob:
    paths = []
    for number, rows in enumerate(case.files):
        path = folder / f"{number}.csv"
        lines = [",".join(map(_to_csv, row if case.has_w else row[:2])) for row in rows]
        path.write_text("\n".join(["k,v,w" if case.has_w else "k,v", *lines]) + "\n")
        paths.append(path)
    options = {"max_delete": 100} if case.mode == "sync" else {}
    key = ("k",) if case.mode in _KEYED else ()
    return mode_target(paths, case.mode, key=key, keep=case.keep, has_header=True, **options)


def _sorted(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=repr)


def _to_sql(value: Any) -> str:
    return "NULL" if value is None else str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"


def _to_csv(value: Any) -> str:
    return "" if value is None else str(value) if isinstance(value, int) else '"' + value.replace('"', '""') + '"'
