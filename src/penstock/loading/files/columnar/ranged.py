"""A seekable file that reads ranges of an object, always from the version that was listed."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from typing import Protocol


class RangedObject(Protocol):
    """An opened object whose ranges can be read in any order. Raises SourceError."""

    def read_at(self, start: int, length_bytes: int) -> bytes:
        """Return the stored bytes from `start`."""

    def close(self) -> None:
        """Close the file or the connections."""


class RangedFile(io.RawIOBase):
    """A file that pyarrow reads.

    `failure` keeps the SourceError of a read, because pyarrow replaces it by its own error.
    """

    def __init__(
        self, stored: RangedObject, *, size_bytes: int, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        super().__init__()
        self._stored = stored
        self._size_bytes = size_bytes
        self._at = 0
        self._clock = clock
        self.bytes_read = 0
        self.reading_s = 0.0
        self.failure: BaseException | None = None

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position of the next read."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the position of the next read, and return it."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size_bytes}[whence]
        self._at = base + offset
        return self._at

    def size(self) -> int:
        """Return the length of the object in bytes."""
        return self._size_bytes

    def read(self, length_bytes: int | None = -1) -> bytes:
        """Return the next bytes, fewer only at the end of the object. Raises SourceError."""
        left = max(0, self._size_bytes - self._at)
        wanted = left if length_bytes is None or length_bytes < 0 else min(length_bytes, left)
        began_s = self._clock()
        try:
            data = self._stored.read_at(self._at, wanted) if wanted else b""
        except BaseException as failure:
            self.failure = failure
            raise
        self.reading_s += self._clock() - began_s
        self.bytes_read += len(data)
        self._at += len(data)
        return data

    def close(self) -> None:
        """Close the object."""
        if not self.closed:
            self._stored.close()
        super().close()
