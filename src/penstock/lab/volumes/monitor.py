"""Changes the limits of a volume that is in use, through the monitor (QMP) of its qemu-storage-daemon.

Source: qemu.readthedocs.io, "QEMU Storage Daemon QMP Reference", qom-set and ThrottleLimits.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TextIO

from penstock.errors import LabError

_SOCKET = "monitor.sock"
_TIMEOUT_S = 10.0

# The daemon's working directory is the volume's folder, so the path is short enough for a socket.
MONITOR_ARGV = ("--chardev", f"socket,id=monitor,path={_SOCKET},server=on,wait=off", "--monitor", "chardev=monitor")


def set_limits(folder: Path, groups: Mapping[str, Mapping[str, int]]) -> None:
    """Set the limits of the throttle groups of the daemon with files in `folder`. Raises LabError.

    `groups` has the limits of each group by its name.
    """
    commands: list[Mapping[str, object]] = [{"execute": "qmp_capabilities"}]
    for group, limits in groups.items():
        arguments = {"path": f"/objects/{group}", "property": "limits", "value": dict(limits)}
        commands.append({"execute": "qom-set", "arguments": arguments})
    try:
        _send(folder, commands)
    except (OSError, ValueError) as error:
        raise LabError(f'could not change the limits of the volume in "{folder}"', detail=str(error)) from error


def _send(folder: Path, commands: Iterable[Mapping[str, object]]) -> None:
    """Send commands one after the other. Each is sent when the one before is done. Raises OSError, ValueError."""
    # The socket is opened through a descriptor of the folder, because the folder's own path may be too long for a
    # socket.
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(_TIMEOUT_S)
            client.connect(f"/proc/self/fd/{descriptor}/{_SOCKET}")
            lines = client.makefile("r", encoding="utf-8")
            lines.readline()
            for command in commands:
                client.sendall(json.dumps(command).encode() + b"\n")
                _await_end(lines)
    finally:
        os.close(descriptor)


def _await_end(lines: TextIO) -> None:
    """Wait until a command is done. Raises ValueError if the daemon refuses it."""
    for line in lines:
        answer = json.loads(line)
        if "return" in answer:
            return
        if "error" in answer:
            raise ValueError(answer["error"].get("desc"))
    raise ValueError("the volume's daemon has ended")
