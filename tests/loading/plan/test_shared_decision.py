"""`--plan`, `--check`, `doctor --for` and a load decide alike about a file: all take it, or all refuse it."""

from __future__ import annotations

import contextlib
import csv
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from benchmarks.dialects import CONTENTS, dialects

from penstock.core.connect.connection import ConnectionFactory
from penstock.core.errors import PenstockError
from penstock.core.values.job import Access, Housekeeping, LoadJob, Request
from penstock.loading.formats.blocks import RecordFormError
from penstock.preflight.doctor import diagnose
from support.loads import IMPATIENT, Loads, target
from support.parts import rest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.core.values.job import TargetJob

_OBJECTS = [{"id": number, "name": "Ann", "note": "x"} for number in range(9)]

# Files of other programs than those that benchmarks/dialects.py imitates
_OTHERS = {
    "TPC-H": "1|Customer#1|note|\n2|Customer#2||\n",
    "a semicolon behind each record": "id;name;note;\n1;Ann;x;\n2;Bob;y;\n",
    "a blank behind the last delimiter": "1|a|b| \n2|c|d| \n",
    "one record without the last delimiter": "1|a|b|\n2|c|d\n3|e|f|\n",
    "a field too many": "1|a|b|\n2|c|d|e\n",
    "trailing fields omitted": "id,name,note\n1,Ann,x\n2,Bob\n3,Eve,z\n",
    "fields too many": "id,name,note\n1,Ann,x\n2,Bob,y,z,w\n",
    "a blank line at the end": "id,name,note\n1,Ann,x\n\n",
    "blank lines inside": "id,name,note\n1,Ann,x\n\n2,Bob,y\n",
    "Excel's empty columns": "Id,Name,Note,,,\n1,Ann,x,,,\n",
    "decimal commas": "id;name;note\n1;1.234,00;5,5\n",
    "backslash and quote": '"id","name","note"\n"1","He said \\"yes\\", twice","x"\n',
    "an open quote": 'id,name,note\n1,"Ann,x\n2,Bob,y\n',
    "a title": "Report\n\nid,name,note\n1,Ann,x\n2,Bob,y\n3,Eve,z\n",
    "nothing": "",
    "a blank line": "\n",
    "a header": "id,name,note\n",
    "a header without a line end": "id,name,note",
    "one record": "1,Ann,x",
    "an end-of-data mark": "1\tAnn\tx\n\\.\n",
    "unclear backslashes": "1\tC:\\new\\table\tx\n",
    "an array first": "{1,2}\tAnn\tx\n",
    "a log": "[2026-11-01 12:00:00] started\n",
    "JSON Lines": "".join(f"{json.dumps(each)}\n" for each in _OBJECTS),
    "JSON Lines with another name": '{"id": 1, "other": 2}\n',
    "JSON Lines with a bad record": '{"id": 1}\n{"id": 2}\n{"id":\n',
    "pretty JSON": json.dumps(_OBJECTS[0], indent=1),
    "a JSON array": json.dumps(_OBJECTS),
    "commas between records": ",\n".join(map(json.dumps, _OBJECTS)),
    "HTML": "<!DOCTYPE html>\n<html></html>\n",
    "XML": '<?xml version="1.0"?>\n<a/>\n',
    "a dump": "--\n-- PostgreSQL database dump\n--\nSET x = 1;\n",
    "a zip archive": "PK\x03\x04\x14\x00\x00\x00",
    "zero bytes": "id,name,note\n1,A\x00n,x\n",
}


@pytest.fixture
def loads(ledger18: str) -> Loads:
    """Provide loads into a database with nothing but a ledger."""
    return Loads(ledger18)


def _imitations() -> dict[str, bytes]:
    """Return each dialect of the benchmark with one of its contents, in turn."""
    found = {}
    for index, (dialect, write) in enumerate(dialects().items()):
        contents = list(CONTENTS.items())
        for content, rows in contents[index % len(contents) :: len(contents)]:
            with contextlib.suppress(UnicodeEncodeError, csv.Error):
                if (data := write([[*row] for row in rows * 4])) is not None:
                    found[f"{dialect}, {content}"] = data
    return found


_FILES = {name: text.encode() for name, text in _OTHERS.items()} | _imitations()


def _decide(act: Callable[[], object]) -> PenstockError | None:
    """Return the error that an act raises, None if it raises none."""
    try:
        act()
    except PenstockError as error:
        return error
    return None


def _diagnose(loads: Loads, job: TargetJob) -> bool:
    """Return whether `doctor --for` says that the load would begin."""
    asked = Request(
        job=LoadJob(targets=(job,), rules=IMPATIENT), access=Access(), housekeeping=Housekeeping(no_record=True)
    )
    found = diagnose(ConnectionFactory(loads.conninfo), now=datetime.now(UTC), request=asked, creates=job.create)
    return found.would_load


def _is_of_a_record(error: PenstockError) -> bool:
    """Return whether a load refuses one record, and not the file: only reading all of it finds that."""
    return isinstance(error, RecordFormError) or (error.sqlstate or "").startswith("22")


@pytest.mark.parametrize("create", [rest(False), True], ids=["existing table", "created"])
@pytest.mark.parametrize("name", _FILES)
def test_plan_doctor_check_and_load_decide_alike(loads: Loads, tmp_path: Path, name: str, create: bool) -> None:
    """A plan refuses nothing that a load takes, and every file that a load refuses before its first record."""
    path = tmp_path / "f"
    path.write_bytes(_FILES[name])
    if not create:
        loads.execute("CREATE TABLE t (id text, name text, note text)")
    job, problems = target(path, create=create), [0]
    plan, would_load = _decide(lambda: loads.plan(job)), _diagnose(loads, job)
    check = _decide(lambda: problems.append(loads.check(job).problem_count))
    load = _decide(lambda: loads.run(job))
    assert would_load == (plan is None)
    assert (load is None) == (check is None and not any(problems)), (check, problems, load)
    if plan is not None:
        assert load is not None
        assert load.exit_code == plan.exit_code
    if load is not None and not _is_of_a_record(load):
        assert str(plan) == str(load)


@pytest.mark.parametrize("name", ["pretty JSON", "a JSON array", "HTML", "a dump", "a log", "JSON Lines"])
def test_further_files_are_decided_alike(loads: Loads, tmp_path: Path, name: str) -> None:
    """Beside a file that is taken, also into a table whose only column takes any line."""
    paths = [tmp_path / each for each in ("first", "later")]
    paths[0].write_text("x\ny\n")
    paths[1].write_bytes(_FILES[name])
    loads.execute("CREATE TABLE t (line text)")
    job = target(paths, has_header=False)
    errors = [_decide(act) for act in (lambda: loads.plan(job), lambda: loads.check(job), lambda: loads.run(job))]
    assert None not in errors
    assert len({str(error) for error in errors}) == 1
