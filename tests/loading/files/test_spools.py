"""Copies of pipes: the folder of a killed process is removed by the next one, that of a running process is not."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# Spools a pipe, prints where the copy is, and waits.
PROGRAM = """
import os, sys
from penstock.loading.files.local import Spool
from penstock.core.values.source import SourceObject
there, here = os.pipe()
os.write(here, b"a\\n1\\n")
os.close(here)
spool = Spool()
path = f"/dev/fd/{there}"
print(spool.copy(SourceObject(uri=path, location=path, size_bytes=None, version=None)).location, flush=True)
sys.stdin.read()
spool.close()
"""


@contextmanager
def spooling(folder: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Provide a process that has spooled a pipe in a temporary directory, and the path of the copy."""
    argv = [sys.executable, "-c", PROGRAM]
    environment = {"PYTHONPATH": ":".join(sys.path), "TMPDIR": str(folder)}
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as running:
        assert running.stdout is not None
        try:
            yield running, Path(running.stdout.readline().strip())
        finally:
            running.kill()


def test_copy_of_a_killed_process_is_removed_by_the_next(tmp_path: Path) -> None:
    """Nobody else would: the folder belongs to no load."""
    with spooling(tmp_path) as (killed, left):
        assert left.read_bytes() == b"a\n1\n"
        killed.kill()
        killed.wait()
    assert left.exists()
    with spooling(tmp_path) as (running, copy):
        assert copy.exists()
        assert not left.parent.exists()
        running.communicate("")
    assert [*tmp_path.iterdir()] == []


def test_copy_of_a_running_process_stays(tmp_path: Path) -> None:
    """So do links and files of the same name, which penstock has not created."""
    other = tmp_path / "other"
    other.mkdir()
    (tmp_path / "penstock-spool-link").symlink_to(other)
    (tmp_path / "penstock-spool-file").touch()
    with spooling(tmp_path) as (_, first), spooling(tmp_path) as (_, second):
        assert first.read_bytes() == second.read_bytes() == b"a\n1\n"
    assert other.exists()
    assert (tmp_path / "penstock-spool-file").exists()
