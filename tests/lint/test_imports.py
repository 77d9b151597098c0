"""Every module can be imported by itself, which type checkers do not say of modules that are gone."""

from __future__ import annotations

import subprocess
import sys

from support.repository import ROOT

_IMPORT_ALL = """
import importlib, pkgutil
for name in ("penstock", "penstock_lab", "benchmarks"):
    package = importlib.import_module(name)
    for module in pkgutil.walk_packages(package.__path__, name + "."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
            print(module.name)
"""


def test_all_modules_can_be_imported() -> None:
    """Those of both packages, and the benchmarks."""
    ended = subprocess.run([sys.executable, "-c", _IMPORT_ALL], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert len(ended.stdout.splitlines()) > 300
