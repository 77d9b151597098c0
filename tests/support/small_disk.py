"""A file system that is soon full."""

from __future__ import annotations

import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class SmallDisk:
    """A file system in memory, of a size that can be changed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def resize(self, size_bytes: int) -> None:
        """Make it larger, or as small as what is on it allows."""
        subprocess.run(["mount", "-o", f"remount,size={size_bytes}", str(self.path)], check=True)


@contextmanager
def small_disk(size_bytes: int) -> Iterator[SmallDisk]:
    """Provide a small disk that a server's account can use; it ends with the test."""
    path = Path(tempfile.mkdtemp(prefix="penstock-disk-"))
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(path)], check=True)
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)
        path.rmdir()
