"""Defines the paths of one embedded server's files, and the settings that the server is created with.

    HOME/data           the data directory, 0700, owned by the server's account
    HOME/run            the directory of the Unix socket, 0700, owned by the server's account
    HOME/log/server.log
    HOME/penstock.conf  the settings, rewritten at each start; postgresql.conf includes it
    HOME/pgpass         the password for TCP, readable by the caller only
    HOME/lock           held while a server is created, started or stopped
    HOME/alive          held by the server's processes

If the caller is root, HOME itself and the files that root writes there belong to root. In a folder that the server's
account owns, that account could replace a file that root is about to write by a symbolic link.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.core.errors import LabError
from penstock.core.newfile import open_own_folder
from penstock.core.slotted import slotted

if TYPE_CHECKING:
    from penstock.embedded.installations import Installation

SUPERUSER = "postgres"

# The longest path of a socket's directory. The path of a socket may have 107 bytes on Linux and 103 on macOS. The
# file's name takes up to 16 of them.
_SOCKET_DIR_LENGTH_BYTES = 80

# Settings for loads on a laptop: enough memory for the pages in use, and few checkpoints during a load. No setting
# reduces durability.
DEFAULT_SETTINGS: Mapping[str, str] = {
    "shared_buffers": "256MB",
    "maintenance_work_mem": "256MB",
    "min_wal_size": "512MB",
    "max_wal_size": "4GB",
    "checkpoint_timeout": "15min",
    "log_line_prefix": "%m [%p] %q%a ",
}


@dataclass(frozen=True, slots=True)
class ClusterFiles:
    """The paths of the files and directories of one embedded server, whose home directory is `home`."""

    home: Path

    @property
    def data(self) -> Path:
        """Return the path of the data directory."""
        return self.home / "data"

    @property
    def log(self) -> Path:
        """Return the path of the server's log file."""
        return self.home / "log" / "server.log"

    @property
    def settings(self) -> Path:
        """Return the path of the settings file that penstock writes at each start."""
        return self.home / "penstock.conf"

    @property
    def passwords(self) -> Path:
        """Return the path of the password file, in libpq's format (.pgpass)."""
        return self.home / "pgpass"

    @property
    def lock(self) -> Path:
        """Return the path of the lock file that a process holds while it starts or stops the server."""
        return self.home / "lock"

    @property
    def alive(self) -> Path:
        """Return the path of the lock file that the server's processes hold until the last of them has ended."""
        return self.home / "alive"

    @property
    def socket_dir(self) -> Path:
        """Return the directory of the Unix socket: HOME/run, or one in /tmp if that path is too long for a socket."""
        inside = self.home / "run"
        if len(os.fsencode(inside)) <= _SOCKET_DIR_LENGTH_BYTES:
            return inside

        digest = hashlib.sha256(os.fsencode(self.home)).hexdigest()[:12]
        return Path("/tmp") / f"penstock-{digest}"  # noqa: S108 (cluster.py lets nobody else own it)


@slotted
class ServerSpec:
    """What an embedded server is created and started with."""

    files: ClusterFiles
    installation: Installation
    settings: Mapping[str, str]
    listens_on_tcp: bool
    # The folder for copies of programs that the server's account cannot reach.
    copies: Path
    # The control group that the server runs in, None for the caller's.
    cgroup: Path | None = None
    # Variables that the server gets in addition to the few that it inherits.
    environment: Mapping[str, str] | None = None


@contextmanager
def naming_file_failure(files: ClusterFiles) -> Iterator[None]:
    """Turn an OSError in the block, such as a full or read-only disk, into LabError.

    Raises LabError before the block if the home directory of the embedded server is a symbolic link or belongs to
    another user, who could replace the server's files.
    """
    try:
        if files.home.exists():
            os.close(open_own_folder(files.home))
        yield
    except OSError as error:
        raise LabError(
            "could not use the embedded server's files",
            detail=f'"{error.filename or files.home}": {error.strerror or error}',
            hint="Free space there and make it writable, or name another directory with the environment variable "
            "PENSTOCK_HOME.",
        ) from error


def read_data_major(files: ClusterFiles) -> int | None:
    """Return the major version that created the data directory, or None if there is none. Raises LabError."""
    try:
        return int((files.data / "PG_VERSION").read_text(encoding="ascii"))
    except FileNotFoundError:
        return None
    except PermissionError as error:
        raise LabError(
            "the embedded server belongs to another user",
            detail=f'"{files.data}" cannot be read: {error.strerror}',
        ) from error
    except ValueError as error:
        raise LabError(
            "the embedded server's data directory is damaged",
            detail=f'"{files.data / "PG_VERSION"}" holds no version number',
            hint="Restore the data directory from a backup, or remove it.",
        ) from error


def check_major(spec: ServerSpec) -> None:
    """Raise LabError if another major version than that of the programs has created the data directory."""
    data_major = read_data_major(spec.files)
    if data_major is not None and data_major != spec.installation.major:
        raise LabError(
            f"the data directory was created by PostgreSQL {data_major}, not {spec.installation.major}",
            detail=f'data directory "{spec.files.data}", programs "{spec.installation.bin_dir}"',
            hint=f"Name PostgreSQL {data_major}'s programs with --pg-bin, or remove the data directory.",
        )
