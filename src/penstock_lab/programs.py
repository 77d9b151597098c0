"""Programs that experiments compare with: psql behind gzip, and a program that runs beside this process.

`Psql` loads a file with `gzip -dc FILE | psql -c "COPY ... FROM STDIN"`, as users do. The caller passes the COPY
command; no SQL is composed here.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import field
from pathlib import Path
from typing import Self

from penstock.core.errors import LabError
from penstock.core.slotted import slotted

# How long a program may take to end by itself after SIGTERM, for example to restore what it has changed.
_LEAVING_S = 60.0


class Child:
    """A program that runs beside this process. If it still runs when the block ends, it is sent SIGTERM.

    It has this process's environment, and a session of its own, so Ctrl-C does not reach it.
    """

    def __init__(self, argv: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._process:
            self._process.terminate()
            try:
                self._process.wait(_LEAVING_S)
            except subprocess.TimeoutExpired:
                self.kill()

    @property
    def is_running(self) -> bool:
        """Return whether the program has not ended."""
        return self._process.poll() is None

    def kill(self) -> None:
        """End the program at once (SIGKILL)."""
        self._process.kill()
        self._process.wait()

    def wait(self, *, timeout_s: float) -> tuple[int, str]:
        """Wait until the program ends, and return its exit code and standard output.

        Raises LabError if it takes longer than `timeout_s` seconds.
        """
        try:
            out, _ = self._process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired as error:
            raise LabError(f"a command took longer than {timeout_s:g} s") from error
        return self._process.returncode, out.decode(errors="replace")


# The variables that psql inherits if the server is not the user's. No PG* variable is inherited, because the user's PG*
# variables would make psql connect to another server.
_VARIABLES_OF_PSQL = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
_TAG = re.compile(r"^COPY (\d+)$", re.MULTILINE)


@slotted
class Psql:
    """A psql program, and the server to which it connects."""

    program: str
    # The connection string. It contains no password, because other users of the machine can see a command line.
    conninfo: str
    # The password, which is passed in PGPASSWORD.
    password: str | None = field(default=None, repr=False)
    # Whether the server is the user's, so that all of the user's PG* variables apply.
    is_users: bool = False

    def copy(self, path: Path, statement: str) -> int:
        """Pipe a gzip file, decompressed, to psql with `statement`, a COPY FROM STDIN.

        Return the rows that psql reports. The load is one session: gzip and psql, connected by a pipe. Raises LabError.
        """
        gzip = shutil.which("gzip")
        if gzip is None:
            raise LabError("gzip is not installed", hint="Install it; the comparison decompresses as a shell would.")
        argv = [self.program, "--no-psqlrc", f"--dbname={self.conninfo}", f"--command={statement}"]
        try:
            return _run_pipe([gzip, "-dc", str(path)], argv, path=path, environment=self._environment())
        except OSError as error:
            raise LabError(f'could not load "{path}" with psql', detail=f"{argv[0]}: {error.strerror}") from error

    def _environment(self) -> dict[str, str]:
        kept = [name for name in os.environ if name in _VARIABLES_OF_PSQL or self.is_users]
        password = {} if self.password is None else {"PGPASSWORD": self.password}
        return {name: os.environ[name] for name in kept} | {"LC_ALL": "C"} | password


def _run_pipe(gzip_argv: list[str], psql_argv: list[str], *, path: Path, environment: dict[str, str]) -> int:
    with subprocess.Popen(gzip_argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as gzip:
        assert gzip.stdout is not None
        try:
            finished = subprocess.run(
                psql_argv, stdin=gzip.stdout, capture_output=True, text=True, env=environment, check=False
            )
        finally:
            # If psql ends early, gzip must not wait for a reader.
            gzip.stdout.close()
    tag = _TAG.search(finished.stdout)
    if finished.returncode != 0 or tag is None:
        raise LabError(f'could not load "{path}" with psql', detail=finished.stderr.strip()[-2000:])
    if gzip.returncode != 0:
        raise LabError(f'could not decompress "{path}"', detail=f"gzip ended with status {gzip.returncode}")
    return int(tag[1])
