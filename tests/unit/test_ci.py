"""What CI installs, so that what tests are skipped for elsewhere is tested there."""

from __future__ import annotations

import re
from pathlib import Path

from penstock.lab.volumes import PACKAGES
from support.servers import FROM_NEWER_DEBIAN

_ROOT = Path(__file__).resolve().parents[2]
# How the reason of a skip says what to install.
_NAMED = re.compile(r"\(Debian's package ([a-z0-9-]+)\)")


def test_packages_that_skipped_tests_name_are_installed_by_ci() -> None:
    """Those of the lab's volumes too, whose errors are the reasons of skips."""
    named = {name for path in (_ROOT / "tests").rglob("*.py") for name in _NAMED.findall(path.read_text("utf-8"))}
    found = re.search(r"^packages=\((.*)\)$", (_ROOT / ".ci" / "run").read_text("utf-8"), re.MULTILINE)
    assert found is not None
    assert "postgresql-15" in named
    assert {*found[1].split()} == named | {*PACKAGES.values()}


def test_versions_that_the_header_of_a_run_misses_are_installed_by_ci() -> None:
    """Those that neither the Python package nor this Debian has."""
    found = re.findall(r"^install_postgresql (\d+) ", (_ROOT / ".ci" / "run").read_text("utf-8"), re.MULTILINE)
    assert tuple(map(int, found)) == FROM_NEWER_DEBIAN
