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


@contextmanager
def mounted_device(size_bytes: int) -> Iterator[Path]:
    """Provide a small file system on a loop device, whose counters the kernel keeps; it ends with the test."""
    with tempfile.TemporaryDirectory(prefix="penstock-device-") as folder:
        image, path = Path(folder) / "image", Path(folder) / "mounted"
        with image.open("wb") as file:
            file.truncate(size_bytes)
        path.mkdir()
        subprocess.run(["mkfs.ext4", "-q", "-m", "0", str(image)], check=True)
        subprocess.run(["mount", "-o", "loop", str(image), str(path)], check=True)
        try:
            yield path
        finally:
            subprocess.run(["umount", "--lazy", str(path)], check=True)
