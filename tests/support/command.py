"""Runs penstock as a user does: in a process of its own, or in this one (fixture `penstock` of conftest.py)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Finished:
    """What a run of penstock left."""

    code: int
    out: str
    err: str

    @property
    def object(self) -> Any:
        """Return the one object on standard output."""
        return json.loads(self.out)


def run_process(*arguments: str, environment: Mapping[str, str] | None = None, stdin: str = "") -> Finished:
    """Run `python -m penstock` with more environment variables."""
    finished = subprocess.run(
        [sys.executable, "-m", "penstock", *arguments],
        env={**os.environ, **(environment or {})},
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
    )
    return Finished(finished.returncode, finished.stdout, finished.stderr)
