"""Imported at the start of every Python below the folder's name in PYTHONPATH: writes down which programs are started.

Python's audit events report processes, so that even short-lived ones are seen.
"""

from __future__ import annotations

import os
import sys

_STARTS = {"subprocess.Popen", "os.exec", "os.posix_spawn", "os.system", "os.spawn"}


def _write_down(event: str, arguments: tuple[object, ...]) -> None:
    if event in _STARTS:
        line = f"{event} {arguments!r}\n".encode("utf-8", "backslashreplace")
        fd = os.open(os.environ["PENSTOCK_TEST_STARTED"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(fd, line)
        os.close(fd)


if "PENSTOCK_TEST_STARTED" in os.environ:
    sys.addaudithook(_write_down)
