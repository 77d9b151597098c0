"""Starts processes that stay when the lab's command ends: run by its path, with their list as JSON on standard input.

Each is written down, with its pid and start time, before its program runs, and as the caller: the program may have
another account. It needs nothing of penstock, so that it starts at once.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

import psutil


def main() -> None:
    """Start what standard input lists; end with a message where one cannot be started."""
    for launch in json.load(sys.stdin):
        _start(launch)


def _start(launch: dict[str, Any]) -> None:
    # Closed by the exec, so that the end of what it says is the program's beginning.
    reading, writing = os.pipe()
    if os.fork() == 0:
        try:
            _become(launch)
        except BaseException as error:  # noqa: BLE001 (a fork must never return)
            os.write(writing, str(error).encode())
            os._exit(127)
    os.close(writing)
    with os.fdopen(reading) as said:
        if text := said.read():
            sys.exit(f"{launch['name']}: {text}")


def _become(launch: dict[str, Any]) -> NoReturn:
    os.setsid()
    log = os.open(launch["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    _write_down(Path(launch["record"]), launch)
    os.chdir(launch["folder"])
    if launch["uid"] is not None:
        os.setgroups([])
        os.setgid(launch["gid"])
        os.setuid(launch["uid"])
    os.umask(0o077)
    for number, descriptor in enumerate((nothing, log, log)):
        os.dup2(descriptor, number)
    os.execv(launch["argv"][0], launch["argv"])  # noqa: S606 (no shell is meant)


def _write_down(path: Path, launch: dict[str, Any]) -> None:
    process = psutil.Process()
    record = {"name": launch["name"], "argv": launch["argv"], "pid": process.pid, "started_s": process.create_time()}
    unfinished = path.with_name(f"{path.name}.new")
    with unfinished.open("w", encoding="utf-8") as file:
        json.dump(record, file)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)


if __name__ == "__main__":
    main()
