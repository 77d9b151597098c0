"""Starts and stops embedded servers with pg_ctl, one process at a time."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Literal

from penstock.errors import LabError
from penstock.lab.cluster import (
    create_data_dir,
    make_home,
    make_private_dirs,
    remove_unfinished,
    rotate_log,
    write_settings,
)
from penstock.lab.copies import make_reachable
from penstock.lab.layout import ServerSpec, check_major, read_data_major
from penstock.lab.locks import exclusive_lock
from penstock.lab.postmaster import Postmaster, await_settled, find_running, server_pids
from penstock.lab.programs import log_tail, run_program
from penstock.lab.users import ServerUser, choose_server_user
from penstock.lab.volumes.cgroup import entering

if TYPE_CHECKING:
    from penstock.lab.installations import Installation

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
