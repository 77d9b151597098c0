"""Reads postmaster.pid, and checks whether the server of that file accepts connections. Starts no subprocess.

A load imports only this module if its embedded server is running, so keep the module light.
"""

from __future__ import annotations

import socket
import struct
import time
from pathlib import Path

from penstock.core.errors import LabError
from penstock.core.slotted import slotted

_POLL_S = 0.05

_ANSWER_TIMEOUT_S = 5

# An SSLRequest is the shortest message that a server answers. The server logs nothing if nothing follows it
# (postgresql.org/docs/current/protocol-message-formats.html).
_SSL_REQUEST = struct.pack("!ii", 8, 80877103)


@slotted
class Postmaster:
    """The fields of postmaster.pid (see PostgreSQL's src/include/utils/pidfile.h).

    `started_at` is Unix time in seconds.
    """

    pid: int
    started_at: int
    port: int
    # The directory of the server's socket, None in the first moments of a start.
    socket_dir: Path | None
    # The state of the server: starting, stopping, ready or standby.
    state: str

    @property
    def socket_path(self) -> Path | None:
        """Return the path of the Unix socket, None in the first moments of a start."""
        return None if self.socket_dir is None else self.socket_dir / f".s.PGSQL.{self.port}"


def parse_postmaster_pid(text: str) -> Postmaster | None:
    """Return the fields of postmaster.pid, whose text is given; None if the file is still being written."""
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
    """Return the fields of postmaster.pid, or None if the file does not exist or is incomplete.

    A killed server leaves the file, so the file does not show that the server runs. Raises LabError if the file belongs
    to another user.
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
    """Return the postmaster of a data directory if it accepts connections now, otherwise None. Raises LabError."""
    postmaster = read_postmaster(data_dir)
    return postmaster if postmaster is not None and _is_accepting(postmaster) else None


def await_settled(data_dir: Path, socket_dir: Path, *, timeout_s: float) -> Postmaster | None:
    """Wait until a data directory's server accepts connections or has ended.

    Return its postmaster, None if it has ended. A killed server leaves its postmaster.pid, its socket's lock file and,
    for a moment, its backends. PostgreSQL refuses to start if any process has the pid in those files. That process may
    be a new one with the same pid (likely after a reboot), or the ended server itself, if its parent has not reaped it.
    Therefore this function removes the files if no server process uses the data directory. Raises LabError after
    `timeout_s` seconds.
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
    """Return the process ids of a data directory's server: processes "postgres" whose working directory it is."""
    # Imported here: only stopping a server, or starting one after a crash, needs it.
    import psutil  # noqa: PLC0415 (46 ms)

    directory = str(data_dir.resolve())
    pids = []
    for process in psutil.process_iter():
        try:
            if process.name() == "postgres" and process.cwd() == directory:
                pids.append(process.pid)
        except psutil.Error:
            # The process has ended, or it belongs to another account. Such an account cannot enter the directory.
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
            # Both errors mean that the queue of connections is full or the machine is slow. The server exists and is
            # busy.
            return True
        except (FileNotFoundError, ConnectionError):
            return False
