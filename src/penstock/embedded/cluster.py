"""Creates what one embedded server needs on disk: folders, data directory, settings (see layout.py)."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.core.errors import LabError
from penstock.core.newfile import open_own_folder
from penstock.embedded.layout import SUPERUSER, ClusterFiles
from penstock.embedded.programs import run_program
from penstock.embedded.users import ServerUser, first_unreachable, give_to

if TYPE_CHECKING:
    from penstock.embedded.installations import Installation

_INITDB_TIMEOUT_S = 300

# A server's log that is longer than this is renamed at the next start, because a log grows as long as the server
# exists. One old log is kept.
_LOG_LENGTH_BYTES = 16 * 1024 * 1024


def make_home(files: ClusterFiles, *, user: ServerUser | None) -> None:
    """Create the directory `files.home`. A directory that exists must belong to this user, and must not be a link.

    `user` is the account that runs the server, None if it is the caller's. Raises LabError if the directory cannot be
    created or is another user's, or if that account cannot reach it.
    """
    try:
        _make_dirs(files.home, mode=0o700 if user is None else 0o755)
        os.close(open_own_folder(files.home))
    except OSError as error:
        raise LabError(
            "could not create the embedded server's directory",
            detail=f'"{files.home}": {error.strerror}',
            hint="Set the environment variable PENSTOCK_HOME to a directory that can be written to.",
        ) from error
    if user is not None and (barrier := first_unreachable(files.home, user)) is not None:
        raise LabError(
            "the embedded server's account cannot access its directory",
            detail=f'account {user.name} may not enter "{barrier}", on the way to "{files.home}"',
            hint=f"Set the environment variable PENSTOCK_HOME to a directory that {user.name} can access.",
        )


def make_private_dirs(files: ClusterFiles, *, user: ServerUser | None) -> None:
    """Create the directories of the log and of the socket, which only the server's account may enter.

    The caller holds the server's lock file. Raises LabError if such a directory exists and is not private.
    """
    for folder in (files.log.parent, files.socket_dir):
        make_private_dir(folder, user)


def create_data_dir(
    files: ClusterFiles, installation: Installation, *, user: ServerUser | None, is_synced: bool
) -> None:
    """Run initdb, and write the password file. The data directory appears either complete or not at all.

    With `is_synced` false, initdb does not flush the files to disk. Raises LabError if initdb fails.
    """
    unfinished = Path(tempfile.mkdtemp(prefix="data.new-", dir=files.home))
    password = unfinished.with_name(f"{unfinished.name}.password")
    try:
        give_to(unfinished, user)
        secret = secrets.token_urlsafe(24)
        write_private(password, secret, owner=user)
        run_program(
            initdb_argv(installation, unfinished, password=password, is_synced=is_synced),
            purpose=f"create a PostgreSQL {installation.major} data directory",
            user=user,
            timeout_s=_INITDB_TIMEOUT_S,
            cwd=unfinished,
        )
        _include_settings(unfinished / "postgresql.conf", files.settings)
        write_private(files.passwords, f"127.0.0.1:*:*:{SUPERUSER}:{secret}\n", owner=None)
        unfinished.rename(files.data)
    finally:
        password.unlink(missing_ok=True)
        shutil.rmtree(unfinished, ignore_errors=True)


def remove_unfinished(files: ClusterFiles) -> None:
    """Remove the files of `create_data_dir` that are left if its process was killed."""
    for leftover in files.home.glob("data.new-*"):
        if leftover.is_dir() and not leftover.is_symlink():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink(missing_ok=True)


def initdb_argv(installation: Installation, data_dir: Path, *, password: Path, is_synced: bool) -> list[str]:
    """Return the words of the initdb command: encoding UTF8, sort order of bytes, and data checksums as on RDS.

    Connections over the socket need no password (trust). Only the server's account and root can enter the socket's
    directory, and both could read and replace the data files anyway. Connections over TCP need the one in file
    `password`.
    """
    argv = [
        installation.program("initdb"),
        f"--pgdata={data_dir}",
        f"--username={SUPERUSER}",
        f"--pwfile={password}",
        "--auth-local=trust",
        "--auth-host=scram-sha-256",
        "--encoding=UTF8",
        "--locale=C",
        "--data-checksums",
    ]
    if installation.major >= 17:
        # The builtin provider knows the letters of all scripts, whichever locales the machine has.
        argv += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    return argv if is_synced else [*argv, "--no-sync"]


def format_settings(settings: Mapping[str, str]) -> str:
    """Return settings as the text of a configuration file, with a comment at its head."""
    header = "# Written by penstock at each start; settings of your own survive in ALTER SYSTEM.\n"
    lines = (f"{name} = '{_quote(value)}'\n" for name, value in settings.items())
    return header + "".join(lines)


def write_settings(files: ClusterFiles, settings: Mapping[str, str]) -> None:
    """Replace the settings file that the server reads at its next start."""
    unfinished = files.settings.with_name(f"{files.settings.name}.new")
    unfinished.write_text(format_settings(settings), encoding="utf-8")
    unfinished.chmod(0o644)
    unfinished.replace(files.settings)


def rotate_log(files: ClusterFiles) -> None:
    """Rename the server's log to NAME.1 if it is longer than 16 MiB. An older NAME.1 is replaced."""
    if files.log.exists() and files.log.stat().st_size > _LOG_LENGTH_BYTES:
        files.log.replace(files.log.with_name(f"{files.log.name}.1"))


def _quote(value: str) -> str:
    return value.replace("\\", "\\\\").replace("'", "''")


def _include_settings(configuration: Path, settings: Path) -> None:
    # O_NOFOLLOW is needed because this process may be root, and the server's account owns this folder and could create
    # a symbolic link in it.
    descriptor = os.open(configuration, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(f"\ninclude '../{settings.name}'\n")


def write_private(path: Path, text: str, *, owner: ServerUser | None) -> None:
    """Replace `path` by a new file that only `owner` can read; None is the caller. Symbolic links are not followed."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    give_to(path, owner)


def _make_dirs(folder: Path, *, mode: int) -> None:
    """Create a folder and its missing parents with `mode`.

    The umask is ignored, because the server's account must be able to enter these folders.
    """
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(exist_ok=True)
        path.chmod(mode)


def make_private_dir(folder: Path, user: ServerUser | None) -> None:
    """Create a directory that only the server's account may enter. Raises LabError if it exists and is not private."""
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        pass
    else:
        give_to(folder, user)
    status = folder.lstat()
    owner = os.geteuid() if user is None else user.uid
    if folder.is_symlink() or not folder.is_dir() or status.st_uid != owner or status.st_mode & 0o077:
        raise LabError(
            f'"{folder}" is not a private directory of the server\'s account',
            detail=f"owner {status.st_uid} and mode {status.st_mode & 0o7777:04o}, expected {owner} and 0700",
            hint="Remove it.",
        )
