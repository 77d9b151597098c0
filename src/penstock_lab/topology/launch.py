"""Starts processes that keep running when the lab's command ends.

penstock runs this script by its path. Standard input has the list of processes as JSON. Before the script runs a
program, it writes a record with the program's pid and start time. It does this as the caller's account, because the
program may run as another account. The script imports nothing of penstock, so it starts quickly.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

import psutil


def main() -> None:
    """Start the processes that standard input lists. Exit with a message if one cannot be started."""
    for launch in json.load(sys.stdin):
        _start(launch)


def _start(launch: dict[str, Any]) -> None:
    # The pipe is close-on-exec, so it is closed when the program starts. If nothing was written to it before, the
    # program has started.
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
