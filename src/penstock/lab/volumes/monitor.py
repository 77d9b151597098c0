"""Changes the limits of a volume that is in use, through the monitor (QMP) of its qemu-storage-daemon.

Source: qemu.readthedocs.io, "QEMU Storage Daemon QMP Reference", qom-set and ThrottleLimits.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from penstock.errors import LabError

_SOCKET = "monitor.sock"
_TIMEOUT_S = 10.0

# The daemon's working directory is the volume's folder, so the path is short enough for a socket.
MONITOR_ARGV = ("--chardev", f"socket,id=monitor,path={_SOCKET},server=on,wait=off", "--monitor", "chardev=monitor")


def set_limits(folder: Path, groups: Mapping[str, Mapping[str, int]]) -> None:
    """Set the limits of throttle groups, by group, of the daemon whose files are in `folder`. Raises LabError."""
    try:
        with _open_monitor(folder) as ask:
            ask({"execute": "qmp_capabilities"})
            for group, limits in groups.items():
                arguments = {"path": f"/objects/{group}", "property": "limits", "value": dict(limits)}
                ask({"execute": "qom-set", "arguments": arguments})
    except (OSError, ValueError) as error:
        raise LabError(f'could not change the limits of the volume in "{folder}"', detail=str(error)) from error


class _Monitor:
    def __init__(self, client: socket.socket) -> None:
        self._client = client
        self._lines = client.makefile("r", encoding="utf-8")
        self._lines.readline()

    def __call__(self, command: Mapping[str, object]) -> None:
        """Send a command and wait until it is done. Raises ValueError if the daemon refuses it."""
        self._client.sendall(json.dumps(command).encode() + b"\n")
        while line := self._lines.readline():
            answer = json.loads(line)
            if "return" in answer:
                return
            if "error" in answer:
                raise ValueError(answer["error"].get("desc"))
        raise ValueError("the volume's daemon has ended")


@contextmanager
def _open_monitor(folder: Path) -> Iterator[_Monitor]:
    # Through a descriptor of the folder, because the folder's own path may be too long for a socket.
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(_TIMEOUT_S)
            client.connect(f"/proc/self/fd/{descriptor}/{_SOCKET}")
            yield _Monitor(client)
    finally:
        os.close(descriptor)
