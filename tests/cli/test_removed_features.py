"""A feature that nothing else imports can be removed with its folder and its lines in the list of commands."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import penstock
from support.parts import rest

_SOURCE = Path(penstock.__file__).parent


# Imports every module of the copy, so that an import of the removed feature is found wherever it stands.
_IMPORT_ALL = """
import importlib, pathlib, sys
root = pathlib.Path(sys.argv[1])
for path in sorted((root / "penstock").rglob("*.py")):
    name = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
    if not name.endswith("__main__"):
        importlib.import_module(name)
"""


@pytest.mark.parametrize("feature", [rest("bench"), rest("commits"), "report", rest("mcp")])
def test_program_works_without_a_feature(feature: str, database18: str, tmp_path: Path) -> None:
    """All other modules can be imported, --help lists the other commands, and a load runs."""
    copy = tmp_path / "source" / "penstock"
    shutil.copytree(_SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.rmtree(copy / feature)
    main = copy / "cli" / "main.py"
    listed = main.read_text(encoding="utf-8")
    kept = re.sub(rf'^ +"\w+": "penstock\.{feature}\..*\n', "", listed, flags=re.MULTILINE)
    assert kept != listed
    main.write_text(kept, encoding="utf-8")
    file = tmp_path / "rows.csv"
    file.write_text("a,b\n1,x\n", encoding="utf-8")

    def run(*arguments: str) -> str:
        environment = {**os.environ, "PYTHONPATH": str(copy.parent)}
        done = subprocess.run(
            [sys.executable, *arguments], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("-c", _IMPORT_ALL, str(copy.parent))
    assert not re.search(rf"^\W*{feature}  ", run("-m", "penstock", "--help"), re.MULTILINE)
    shown = run("-m", "penstock", "load", str(file), "--into", "removed", "--create", "--to", database18)
    assert "loaded 1 row" in shown
