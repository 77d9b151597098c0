"""Loads that are verified: their ids, what was found, and files that were touched since."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

import penstock
from penstock.core.errors import TargetError
from penstock.core.values.job import LoadRules
from support.loads import Loads, write_csv

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.core.values.job import TargetJob
    from penstock.proof.values import VerifyOutcome

RECORDS = [f"{number},v{number % 7}" for number in range(200)]


def write_records(folder: Path) -> Path:
    """Write a csv file of the 200 records."""
    return write_csv(folder / "rows.csv", RECORDS)


def load_in_tiny_blocks(conninfo: str) -> Loads:
    """Return loads into a database with table t."""
    return Loads(conninfo, piece_bytes=101, setup="CREATE TABLE t (a int, b text)")


def load(loads: Loads, *targets: TargetJob, on_error: Any = "stop") -> str:
    """Run a load, and return its id."""
    outcome = loads.run(*targets, batch_bytes=200, rules=LoadRules(retry_for=0.0, on_error=on_error))
    assert outcome.load_id is not None
    return outcome.load_id


def verify(loads: Loads, load_id: str, *, values: bool = True) -> VerifyOutcome:
    """Verify a load."""
    return penstock.verify(load_id, to=loads.conninfo, values=values)


def said(outcome: VerifyOutcome) -> list[tuple[str, int | None]]:
    """Return each problem's message and line."""
    return [(problem.message, problem.line) for problem in outcome.problems]


def refuse(loads: Loads, load_id: str) -> str:
    """Return why the values of a load cannot be compared."""
    with pytest.raises(TargetError) as caught:
        verify(loads, load_id)
    return f"{caught.value.message}: {caught.value.detail}"


def copy_again(path: Path) -> None:
    """Replace a file by a copy, which has another inode and another time of modification."""
    copy = path.with_name("copy")
    copy.write_bytes(path.read_bytes())
    os.utime(copy, ns=(1, 1))
    copy.replace(path)
