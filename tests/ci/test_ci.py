"""What CI installs, so that what tests are skipped for elsewhere is tested there."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from pathlib import Path

import pytest

from penstock_lab.volumes import PACKAGES
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


@pytest.fixture
def own_home(tmp_path: Path) -> dict[str, str]:
    """Provide an environment whose HOME has what a machine may have by chance, and settings of a registry's client."""
    (tmp_path / ".config" / "pip").mkdir(parents=True)
    (tmp_path / ".config" / "pip" / "pip.conf").write_text("[global]\n")
    (tmp_path / ".local" / "state" / "penstock").mkdir(parents=True)
    return {**os.environ, "HOME": str(tmp_path), "PENSTOCK_HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "c")}


def run_isolated(script: str, environment: dict[str, str]) -> list[str]:
    """Return the lines that a script prints in the environment that `make test` makes."""
    given = {name: value for name, value in environment.items() if name != "PENSTOCK_ISOLATED"}
    command = [_ROOT / ".ci" / "isolated", "bash", "-c", script]
    return subprocess.run(command, env=given, cwd=_ROOT, text=True, capture_output=True, check=True).stdout.split()


_SCRIPT = """
    ls -A "$HOME" && find "$HOME" -name penstock && ls "$HOME/.config/pip" && echo "${PENSTOCK_HOME-}${XDG_CACHE_HOME-}"
    ls -A "$TMPDIR" && python3 -c 'import tempfile; print(tempfile.gettempdir())' && echo "$TMPDIR" "$CARGO_HOME"
"""


@pytest.mark.parametrize("may_mount", [True, False])
def test_tests_run_with_nothing_that_a_machine_has_by_chance(
    tmp_path: Path, own_home: dict[str, str], may_mount: bool
) -> None:
    """HOME and temporary directory are empty; settings of clients of registries are there; nothing stays behind."""
    if not may_mount:
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "unshare").write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / "bin" / "unshare").chmod(0o755)
        own_home["PATH"] = f"{tmp_path / 'bin'}:{own_home['PATH']}"
    before = {*Path("/tmp").glob("isolated.*")}  # noqa: S108
    *found, temporary, named, cargo = run_isolated(_SCRIPT, {**own_home, "CARGO_HOME": "/c"})
    assert found == [".cache", ".config", ".m2", "pip.conf", "home"]
    assert (temporary, cargo) == (named, "/c")
    assert {*Path("/tmp").glob("isolated.*")} <= before  # noqa: S108


def test_where_root_may_mount_the_temporary_directory_itself_is_empty(own_home: dict[str, str]) -> None:
    """A file at a fixed path there is not found; the exit code is that of the command."""
    if os.geteuid() != 0 or subprocess.run(["unshare", "--mount", "true"], check=False).returncode != 0:
        pytest.skip("only root may mount")
    with tempfile.NamedTemporaryFile(dir="/tmp") as file:
        assert run_isolated(f"cd /tmp && ls -A . ../var/tmp && test ! -e {file.name}", own_home) == [
            *(".:", "home", "../var/tmp:")
        ]
        with pytest.raises(subprocess.CalledProcessError) as raised:
            run_isolated("exit 7", own_home)
    assert raised.value.returncode == 7
