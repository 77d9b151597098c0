"""What nothing else imports can be removed: a feature with its lines in the list of commands, and the lab."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
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


@pytest.mark.part("rest")
@pytest.mark.parametrize("feature", [rest("commits"), "report", rest("mcp")])
def test_program_works_without_a_feature(feature: str, database18: str, tmp_path: Path) -> None:
    """All other modules can be imported, --help lists the other commands, and a load runs."""
    copy = copy_penstock(tmp_path)
    shutil.rmtree(copy / feature)
    main = copy / "cli" / "main.py"
    listed = main.read_text(encoding="utf-8")
    kept = re.sub(rf'^ +"\w+": "penstock\.{feature}\..*\n', "", listed, flags=re.MULTILINE)
    assert kept != listed
    main.write_text(kept, encoding="utf-8")
    _use(copy, database18, tmp_path, absent=[feature])


def test_program_works_without_the_lab(database18: str, tmp_path: Path) -> None:
    """After rm -r src/penstock_lab, penstock loads, watches, diagnoses and places; it offers no command of the lab."""
    run = _use(copy_penstock(tmp_path), database18, tmp_path, absent=["lab", "bench", "demo", "cat"])
    recording = str(tmp_path / "a.recording")
    run("-m", "penstock", "watch", "--record", recording, "--for", "1s", "--to", database18)
    run("-m", "penstock", "diagnose", recording)
    assert "temp" in run("-m", "penstock", "temp", "place", "--help")
    assert "unknown command" in run("-m", "penstock", "lab", code=2)


def copy_penstock(folder: Path) -> Path:
    """Copy package penstock alone to a folder, and return the copy."""
    copy = folder / "source" / "penstock"
    shutil.copytree(_SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


def _use(copy: Path, database: str, folder: Path, *, absent: list[str]) -> Callable[..., str]:
    """Import all modules of a copy, see that its help lacks the `absent` commands, and load a file with it.

    Return the function that runs Python with the copy, and returns what it prints.
    """
    file = folder / "rows.csv"
    file.write_text("a,b\n1,x\n", encoding="utf-8")

    def run(*arguments: str, code: int = 0) -> str:
        # -S: the editable installation would offer the lab. The other packages are where this Python has them.
        paths = [str(copy.parent), *(each for each in sys.path if each.endswith("site-packages"))]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        done = subprocess.run(
            [sys.executable, "-S", *arguments], env=environment, cwd=folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == code, done.stderr
        return done.stdout if code == 0 else done.stderr

    run("-c", _IMPORT_ALL, str(copy.parent))
    listed = run("-m", "penstock", "--help")
    assert [each for each in absent if re.search(rf"^\W*{each}  ", listed, re.MULTILINE)] == []
    shown = run("-m", "penstock", "load", str(file), "--into", "removed", "--create", "--to", database)
    assert "loaded 1 row" in shown
    return run
