"""Runs penstock as a user does: a process of its own, or in this one where only its words matter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from penstock.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


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


@pytest.fixture
def penstock(capfd: pytest.CaptureFixture[str]) -> Callable[..., Finished]:
    """Provide a function (*arguments) that runs the command line in this process."""

    def run(*arguments: str) -> Finished:
        code = main(arguments)
        out, err = capfd.readouterr()
        return Finished(code, out, err)

    return run


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
