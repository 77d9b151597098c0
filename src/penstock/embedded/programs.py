"""Runs external programs without a shell, as an account, with a time limit. A failure raises LabError."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.core.errors import LabError

if TYPE_CHECKING:
    from penstock.embedded.users import ServerUser

# The only variables that a server inherits. A server runs for days, and its account can read its environment. So the
# environment must not have the caller's secrets (AWS_SECRET_ACCESS_KEY, PGPASSWORD). PGDATA or PGPORT would misdirect
# the server.
_INHERITED_VARIABLES = ("PATH", "TZ", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")


def run_program(
    argv: list[str],
    *,
    purpose: str,
    user: ServerUser | None,
    timeout_s: float,
    cwd: Path | None = None,
    log: Path | None = None,
    stdin: str | None = None,
    environment: Mapping[str, str] | None = None,
    keeps: Collection[int] = (),
) -> str:
    """Run a program to its end as `user` (None: the caller's account) and return its standard output.

    The program gets its own session, so processes that it leaves running survive Ctrl-C and the end of this process.
    They and the program keep the descriptors in `keeps` open. `environment` is added to the few variables that the
    program inherits. `purpose` completes the error message "could not ...". If `log` is given, the error's detail
    includes the end of that file. Raises LabError if the program cannot be started, ends with another status than 0, or
    takes longer than `timeout_s` seconds.
    """
    try:
        finished = subprocess.run(
            argv,
            cwd=cwd,
            env={"LC_ALL": "C"}
            | {name: os.environ[name] for name in _INHERITED_VARIABLES if name in os.environ}
            | dict(environment or {}),
            # An empty string gives the program end of file at once.
            input=stdin or "",
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
            start_new_session=True,
            umask=0o077,
            pass_fds=tuple(keeps),
            user=None if user is None else user.uid,
            group=None if user is None else user.gid,
            extra_groups=None if user is None else [],
        )
    except subprocess.TimeoutExpired as error:
        raise LabError(f"could not {purpose}", detail=f"{argv[0]} took longer than {timeout_s:g} s") from error
    except OSError as error:
        raise LabError(f"could not {purpose}", detail=f"{argv[0]}: {error.strerror}") from error
    if finished.returncode != 0:
        raise LabError(f"could not {purpose}", detail=_explain(argv[0], finished, log))
    return finished.stdout


def log_tail(log: Path, *, line_count: int = 12) -> str:
    """Return the last `line_count` lines of a log file, or an empty string if the file does not exist."""
    try:
        with log.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 8192))
            return "\n".join(file.read().decode(errors="replace").splitlines()[-line_count:])
    except FileNotFoundError:
        return ""


def _explain(program: str, finished: subprocess.CompletedProcess[str], log: Path | None) -> str:
    said = (finished.stderr.strip() or finished.stdout.strip())[-2000:]
    lines = [f"{program} ended with status {finished.returncode}", said]
    if log is not None and (tail := log_tail(log)):
        lines.append(f"the log {log} ends:\n{tail}")
    return "\n".join(line for line in lines if line)


def find_program(name: str, *, package: str) -> str:
    """Return the path of a program. Raises LabError if it is not installed; the hint names Debian's `package`."""
    # An ordinary user's PATH lacks the sbin folders.
    if (found := shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")) is None:
        raise LabError(f"{name} is not installed", hint=f"Install it; Debian's package is {package}.")
    return found


def entering(group: Path, user: ServerUser | None, argv: Sequence[str]) -> list[str]:
    """Return the words of a command, for root, that enters control group `group` and then runs `argv` as `user`.

    Raises LabError if setpriv is not installed.
    """
    account = [] if user is None else [f"--reuid={user.uid}", f"--regid={user.gid}", "--clear-groups"]
    script = 'echo $$ > "$0" && exec "$@"'
    setpriv = find_program("setpriv", package="util-linux")
    return ["/bin/sh", "-c", script, str(group / "cgroup.procs"), setpriv, *account, *argv]
