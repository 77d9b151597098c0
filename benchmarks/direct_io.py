"""Measures what a file delivers by direct I/O: no page cache answers or collects anything."""

from __future__ import annotations

import mmap
import os
import random
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pathlib import Path

# A filesystem's largest block; direct I/O wants its buffers and offsets aligned.
_FILL_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """What was done, and in what time by the clock."""

    ios: int
    elapsed_s: float
    io_bytes: int

    @property
    def iops(self) -> float:
        """Return I/Os per second."""
        return self.ios / self.elapsed_s

    @property
    def bytes_per_s(self) -> float:
        """Return the throughput."""
        return self.iops * self.io_bytes


def fill(path: Path, size_bytes: int) -> None:
    """Write a file, so that none of its blocks is a hole, which is read without I/O."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_DIRECT, 0o600)
    try:
        with mmap.mmap(-1, _FILL_BYTES) as buffer:
            buffer.write(random.Random(1).randbytes(_FILL_BYTES))
            for offset in range(0, size_bytes, _FILL_BYTES):
                os.pwrite(descriptor, buffer, offset)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def measure(
    path: Path, what: Literal["read", "write"], *, ios: int, io_bytes: int, threads: int = 8, seed: int = 1
) -> Delivered:
    """Read or write blocks of a filled file from several threads, each once, in no order: none is remembered below."""
    blocks = random.Random(seed).sample(range(path.stat().st_size // io_bytes), ios)
    descriptor = os.open(path, os.O_RDWR | os.O_DIRECT)
    left = iter(blocks)

    def work() -> None:
        with mmap.mmap(-1, io_bytes) as buffer:
            for block in left:
                offset = block * io_bytes
                if what == "write":
                    os.pwrite(descriptor, buffer, offset)
                else:
                    os.preadv(descriptor, [buffer], offset)

    workers = [threading.Thread(target=work, daemon=True) for _ in range(threads)]
    began_s = time.monotonic()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    elapsed_s = time.monotonic() - began_s
    os.close(descriptor)
    return Delivered(ios=ios, elapsed_s=elapsed_s, io_bytes=io_bytes)
