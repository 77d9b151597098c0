"""What README tells people to type works."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from support.servers import ServerPool

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def commands(document: Path) -> list[str]:
    """Return the `$ penstock ...` lines of a document's console blocks."""
    blocks = re.findall(r"^```console\n(.*?)^```", document.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.splitlines()]
    return [line[2:] for line in lines if line.startswith("$ penstock ")]


@pytest.mark.parametrize("target", ["demo", "test", "lint", "bench", "faults", "fuzz", "wheel", "bundle"])
def test_make_has_the_targets_that_readme_names(target: str) -> None:
    """Make knows what README, CONTRIBUTING and the docs say."""
    done = subprocess.run(["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_documented_commands_work_in_order(document: Path, tmp_path: Path, servers: ServerPool) -> None:
    """Each document's penstock commands run one after another, in an empty folder, on an embedded server."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    environment["PENSTOCK_HOME"] = str(servers.new_home())
    for command in [*commands(document), "penstock server stop"]:
        argv = [sys.executable, "-m", *shlex.split(command)]
        done = subprocess.run(argv, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"


@pytest.mark.full
def test_demo_and_tutorial_leave_each_other_alone(tmp_path: Path, servers: ServerPool) -> None:
    """Their tables have the same names, and the server is the same: in either order, and twice."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    environment["PENSTOCK_HOME"] = str(servers.new_home())
    demo = "penstock demo --scale 0.00005 --rounds 1"
    for command in [demo, *commands(ROOT / "docs" / "tutorial.md"), demo, "penstock server stop"]:
        argv = [sys.executable, "-m", *shlex.split(command)]
        done = subprocess.run(argv, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"


def test_documented_python_runs_as_it_stands(tmp_path: Path, servers: ServerPool) -> None:
    """The blocks of docs/python.md are one program, on an embedded server; without set-up its warnings are printed."""
    text = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    program = "\n".join(re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    environment["PENSTOCK_HOME"] = str(servers.new_home())
    argv = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(argv, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    stop = [sys.executable, "-m", "penstock", "server", "stop"]
    subprocess.run(stop, env=environment, capture_output=True, check=True)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    (literal_null,) = re.findall(r"^literal-null (.*?) Use ", done.stdout, re.MULTILINE)
    assert literal_null in done.stderr
    assert "0 records are left" in done.stdout
