"""Loads a file with `gzip -dc FILE | psql -c "COPY ... FROM STDIN"`, as users do: the baseline of comparisons.

The caller passes the COPY command. No SQL is composed here.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import field
from pathlib import Path

from penstock.core.errors import LabError
from penstock.core.frozen import frozen

# The PG* variables are not inherited: they would make psql connect to another server, unless the user named the server.
_INHERITED_VARIABLES = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
_TAG = re.compile(r"^COPY (\d+)$", re.MULTILINE)


@frozen
class Psql:
    """A psql and its server."""

    program: str
    # Without a password, because other users of the machine can see it.
    conninfo: str
    # Passed in PGPASSWORD.
    password: str | None = field(default=None, repr=False)
    # Whether the server is the user's, so that all of the user's PG* variables apply.
    is_users: bool = False

    def copy(self, path: Path, statement: str) -> int:
        """Pipe a gzip file to `statement`, a COPY FROM STDIN, and return the row count that psql reports.

        It uses one session: gzip and psql, connected by a pipe. Raises LabError.
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
        kept = [name for name in os.environ if name in _INHERITED_VARIABLES or self.is_users]
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
