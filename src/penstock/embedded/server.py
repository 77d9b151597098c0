"""A PostgreSQL server that penstock creates, starts on demand, and leaves running.

`installations` finds the programs. `postmaster` checks whether the server answers. `control` starts and stops the
server, and is imported only for that. No SQL is run here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from penstock.core.errors import LabError
from penstock.core.slotted import slotted
from penstock.embedded.installations import Installation, default_installation, installation_at
from penstock.embedded.layout import (
    DEFAULT_SETTINGS,
    SUPERUSER,
    ClusterFiles,
    ServerSpec,
    check_major,
    naming_file_failure,
    read_data_major,
)
from penstock.embedded.postmaster import Postmaster, find_running, read_postmaster
from penstock.embedded.users import is_root

if TYPE_CHECKING:
    from penstock.embedded.control import StopMode

# The variables that psql does not inherit. With them, it would connect to another server, or would require TLS or an
# authentication that is not available: a socket has none, and the wheel's psql has no TLS.
_LIBPQ_TARGET_VARIABLES = (
    "PGHOST",
    "PGHOSTADDR",
    "PGPORT",
    "PGUSER",
    "PGPASSWORD",
    "PGDATABASE",
    "PGSERVICE",
    "PGTARGETSESSIONATTRS",
    "PGCHANNELBINDING",
    "PGREQUIREAUTH",
    "PGREQUIREPEER",
    "PGREQUIRESSL",
    "PGSSLMODE",
    "PGSSLNEGOTIATION",
    "PGSSLCERTMODE",
    "PGSSLROOTCERT",
    "PGGSSENCMODE",
)


@slotted
class ServerStatus:
    """Whether an embedded server runs, how to connect to it, and where its files are."""

    is_running: bool
    major: int
    data_dir: Path
    log: Path
    # The postmaster's process id, None if the server is down.
    pid: int | None
    # When the server was started, as Unix time. None if the server is down.
    started_at: int | None
    # The connection string, None if the server is down.
    conninfo: str | None


@dataclass(frozen=True, slots=True)
class EmbeddedServer:
    """A PostgreSQL server that penstock creates, starts and stops for one user. It may be running or not.

    `create` constructs it. All methods may be called at any time, also from several processes at once. They raise
    LabError.
    """

    spec: ServerSpec

    @classmethod
    def create(
        cls,
        home: Path,
        installation: Installation,
        settings: Mapping[str, str] | None = None,
        *,
        base: Mapping[str, str] = DEFAULT_SETTINGS,
        listens_on_tcp: bool = False,
        copies: Path | None = None,
        cgroup: Path | None = None,
    ) -> EmbeddedServer:
        """Return the server with files in `home`, a directory that need not exist yet. Nothing is created.

        At its next start, the server has the settings `base` and `settings`, where the latter win. With
        `listens_on_tcp`, it listens on 127.0.0.1 at a free port, besides the Unix socket. `copies` is the directory to
        which root copies programs for the unprivileged account; by default it is next to `home`. `cgroup` is the
        control group that it runs in.
        """
        home = home.absolute()
        return cls(
            ServerSpec(
                files=ClusterFiles(home),
                installation=installation,
                settings={**base, **(settings or {})},
                listens_on_tcp=listens_on_tcp,
                copies=home.parent / "postgresql" if copies is None else copies,
                cgroup=cgroup,
            )
        )

    @property
    def data_dir(self) -> Path:
        """Return the path of the data directory."""
        return self.spec.files.data

    def ensure_running(self) -> str:
        """Start the server if it is down, after creating it if it does not exist.

        Return the connection string of its socket. If the server runs, this reads two small files and opens a socket.
        Raises LabError if the server cannot be started (with the end of its log), or if its data directory has another
        major version.
        """
        with naming_file_failure(self.spec.files):
            check_major(self.spec)
            postmaster = find_running(self.data_dir)
            if postmaster is None:
                from penstock.embedded.control import start_server  # noqa: PLC0415 (8 ms, subprocess)

                postmaster = start_server(self.spec)
        return _socket_conninfo(postmaster)

    def stop(self, mode: StopMode = "fast") -> bool:
        """Stop the server and return whether it was running. With "immediate", its next start runs crash recovery."""
        with naming_file_failure(self.spec.files):
            if read_postmaster(self.data_dir) is None:
                return False
            from penstock.embedded.control import stop_server  # noqa: PLC0415 (8 ms, subprocess)

            return stop_server(self.spec, mode)

    def status(self) -> ServerStatus:
        """Return whether the server runs, and where its files are. Changes nothing."""
        with naming_file_failure(self.spec.files):
            postmaster = find_running(self.data_dir)
            data_major = read_data_major(self.spec.files)
        return ServerStatus(
            is_running=postmaster is not None,
            major=data_major or self.spec.installation.major,
            data_dir=self.data_dir,
            log=self.spec.files.log,
            pid=None if postmaster is None else postmaster.pid,
            started_at=None if postmaster is None else postmaster.started_at,
            conninfo=None if postmaster is None else _socket_conninfo(postmaster),
        )

    def conninfo(self) -> str:
        """Return the connection string for the Unix socket. Raises LabError if the server is down."""
        return _socket_conninfo(self._running())

    def tcp_conninfo(self) -> str:
        """Return the connection string for TCP, which names a password file. Raises LabError if the server is down."""
        return format_conninfo(
            host="127.0.0.1",
            port=str(self._running().port),
            user=SUPERUSER,
            dbname="postgres",
            passfile=str(self.spec.files.passwords),
        )

    def psql_argv(self, args: Sequence[str] = ()) -> list[str]:
        """Return the words of a psql command that connects to the running server. Options in `args` win over its own.

        Raises LabError if the server is down.
        """
        postmaster = self._running()
        return [
            self.spec.installation.program("psql"),
            f"--host={postmaster.socket_dir}",
            f"--port={postmaster.port}",
            f"--username={SUPERUSER}",
            *args,
        ]

    def exec_psql(self, args: Sequence[str] = ()) -> NoReturn:
        """Replace this process by psql, connected to the running server.

        psql runs as the caller, so it can read the caller's files. Raises LabError.
        """
        argv = self.psql_argv(args)
        environment = {name: value for name, value in os.environ.items() if name not in _LIBPQ_TARGET_VARIABLES}
        try:
            os.execve(argv[0], argv, environment)  # noqa: S606 (no shell is meant)
        except OSError as error:
            raise LabError("could not run psql", detail=f"{argv[0]}: {error.strerror}") from error

    def _running(self) -> Postmaster:
        with naming_file_failure(self.spec.files):
            postmaster = find_running(self.data_dir)
        if postmaster is None:
            raise LabError(
                "the embedded server is not running",
                detail=f'data directory "{self.data_dir}"',
                hint="Start it with penstock server start.",
            )
        return postmaster


def default_server(bin_dir: Path | None = None) -> EmbeddedServer:
    """Return the embedded server of this user, which is kept between runs. There is one for each major version.

    Its programs are those in `bin_dir` (--pg-bin), by default the wheel's newest. Raises LabError, UsageError if there
    are none.
    """
    installation = default_installation() if bin_dir is None else installation_at(bin_dir)
    base = default_home(os.environ, is_root=is_root())
    return EmbeddedServer.create(base / f"server-{installation.major}", installation)


def default_home(environment: Mapping[str, str], *, is_root: bool) -> Path:
    """Return the directory that has the home directories of this user's embedded servers.

    It is the one that PENSTOCK_HOME names in `environment`, if that is set. Otherwise, root has one for each HOME in
    /var/lib, because the servers' account cannot enter /root, and several people may use sudo -E. Other users have one
    in XDG_DATA_HOME, by default ~/.local/share; a relative path there is ignored, as the XDG specification requires.
    """
    if chosen := environment.get("PENSTOCK_HOME"):
        return Path(chosen).expanduser()
    if is_root:
        return Path("/var/lib/penstock", environment.get("HOME", "/root").strip("/"))
    data_home = Path(environment.get("XDG_DATA_HOME", ""))
    return (data_home if data_home.is_absolute() else Path.home() / ".local" / "share") / "penstock"


def _socket_conninfo(postmaster: Postmaster) -> str:
    return format_conninfo(
        host=str(postmaster.socket_dir), port=str(postmaster.port), user=SUPERUSER, dbname="postgres"
    )


def format_conninfo(**parameters: str) -> str:
    """Return a connection string of libpq with the given parameters. Values are quoted if necessary."""
    return " ".join(f"{name}={_quote_conninfo(value)}" for name, value in parameters.items())


def _quote_conninfo(value: str) -> str:
    if value and not any(character in " \t\n'\\" for character in value):
        return value
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
