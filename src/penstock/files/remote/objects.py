"""Remote objects: several ranged requests in flight, in order, each pinned to the object that was listed.

A request that drops is sent again from the byte it had reached. Where a server has no ranges or no ETag there is one
stream, which cannot be resumed.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

import obstore

from penstock.errors import SourceError
from penstock.files.remote.stores import STORE_ERRORS, describe_failure, retry_delay_s, source_error
from penstock.units import KIB, MIB

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from obstore import GetOptions, GetResult
    from obstore.store import ObjectStore

    from penstock.model.source.source import SourceObject

# By AWS's performance guidelines a request gives 85 to 90 MB/s after a first byte that takes 30 to 200 ms. Four of
# 4 MiB at a time are then some 80 to 200 MB/s of compressed text, more than a server loads, and bound the memory of
# an open object to 20 MiB (four in flight, one being read).
WINDOW_PARTS = 4
PART_BYTES = 4 * MIB

# A sample needs the beginning only
SAMPLE_PART_BYTES = 512 * KIB

# A drop loses what has arrived of a piece, so that pieces are small, and smallest after a drop
_PIECE_BYTES = 128 * KIB
_PIECE_BYTES_AFTER_DROP = 1


class _Truncated(Exception):
    """A response ended before the range that was asked for."""


class RemoteObject:
    """One remote object; `pieces` gives its stored bytes in order, once, and begins the requests."""

    def __init__(
        self,
        source: SourceObject,
        store: ObjectStore,
        path: str,
        *,
        is_sample: bool = False,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._source = source
        self._store = store
        self._path = path
        self._window_parts = 1 if is_sample else WINDOW_PARTS
        self._part_bytes = SAMPLE_PART_BYTES if is_sample else PART_BYTES
        self._jitter = jitter
        self._closed = threading.Event()
        self._executor: ThreadPoolExecutor | None = None

    @property
    def is_short(self) -> bool:
        """Whether one request gives all of it, of the version that was listed."""
        size_bytes = self._source.size_bytes
        return size_bytes is not None and self._source.version is not None and size_bytes <= self._part_bytes

    def pieces(self) -> Iterator[bytes]:
        """Yield the stored bytes; raise SourceError where they cannot be read or are not what was listed."""
        size_bytes = self._source.size_bytes
        if size_bytes == 0:
            return iter(())
        if size_bytes is None or self._source.version is None:
            return self._stream_whole()
        if self.is_short:
            return iter(self._fetch(0, size_bytes))
        return self._stream_parts(size_bytes)

    def close(self) -> None:
        """Stop the requests in flight; their threads end by themselves at their next piece."""
        self._closed.set()
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)

    def _stream_parts(self, size_bytes: int) -> Iterator[bytes]:
        executor = ThreadPoolExecutor(self._window_parts, thread_name_prefix="penstock-fetch")
        self._executor = executor
        in_flight: deque[Future[list[bytes]]] = deque()
        try:
            for start in range(0, size_bytes, self._part_bytes):
                part = self._wait_for(in_flight.popleft()) if len(in_flight) == self._window_parts else []
                if self._closed.is_set():
                    raise self._stopped()
                end = min(start + self._part_bytes, size_bytes)
                in_flight.append(executor.submit(self._fetch, start, end))
                yield from part
            while in_flight:
                yield from self._wait_for(in_flight.popleft())
        finally:
            self.close()

    def _wait_for(self, part: Future[list[bytes]]) -> list[bytes]:
        try:
            return part.result()
        except CancelledError:
            raise self._stopped() from None

    def _fetch(self, start: int, end: int) -> list[bytes]:
        """Return the bytes from `start` to before `end`, resumed as often as progress is made."""
        pieces: list[bytes] = []
        failures = 0
        while start < end and not self._closed.is_set():
            resumed_at = start
            try:
                for piece in self._request(start, end, has_failed=failures > 0):
                    pieces.append(piece)
                    start += len(piece)
            except (*STORE_ERRORS, _Truncated) as exc:
                failures = 1 if start > resumed_at else failures + 1
                self._wait_to_retry(exc, failures, start)
        if start < end:
            raise self._stopped()
        return pieces

    def _request(self, start: int, end: int, *, has_failed: bool) -> Iterator[bytes]:
        options: GetOptions = {"range": (start, end)}
        etag = self._source.version or ""
        # If-Match compares strongly, so that a weak ETag would never match; it is compared on arrival
        if not etag.startswith("W/"):
            options["if_match"] = etag
        result = obstore.get(self._store, self._path, options=options)
        self._check_pinned(result)
        for piece in result.stream(_PIECE_BYTES_AFTER_DROP if has_failed else _PIECE_BYTES):
            if self._closed.is_set():
                return
            start += len(piece)
            if start > end:
                raise SourceError(
                    f'could not read "{self._source.uri}": the server sent more bytes than requested',
                    detail=f"Bytes up to {end} were requested.",
                    hint="Download the file first.",
                )
            yield piece
        if start < end:
            raise _Truncated

    def _check_pinned(self, result: GetResult) -> None:
        """Raise SourceError if the response is of another version (not every server honours If-Match)."""
        listed, source = self._source.version, self._source
        etag, size_bytes = result.meta["e_tag"], result.meta["size"]
        if size_bytes != source.size_bytes:
            was, now = f"{source.size_bytes} bytes", f"{size_bytes} bytes"
        elif etag and listed and _unquoted(etag) != _unquoted(listed):
            was, now = f"the ETag {listed}", f"the ETag {etag}"
        else:
            return
        raise SourceError(
            f'"{source.uri}" changed while it was read',
            detail=f"It was listed with {was}; now it has {now}.",
            hint="Load it again when no process writes to it.",
        )

    def _wait_to_retry(self, exc: Exception, failures: int, offset: int) -> None:
        """Wait before another attempt, or raise SourceError where there should be none."""
        if not isinstance(exc, _Truncated) and not describe_failure(exc).is_transient:
            raise source_error(self._source.uri, exc) from None
        delay_s = retry_delay_s(failures, jitter=self._jitter())
        if delay_s is None:
            raise SourceError(
                f'could not read "{self._source.uri}" beyond byte {offset}',
                detail=f"{_words(exc)} {failures} attempts in a row failed.",
                is_transient=True,
            ) from None
        self._closed.wait(delay_s)

    def _stream_whole(self) -> Iterator[bytes]:
        """Yield the object from one request, which is sent again only as long as nothing has arrived."""
        size_bytes, bytes_read, failures = self._source.size_bytes, 0, 0
        while not self._closed.is_set():
            try:
                result = obstore.get(self._store, self._path)
                if size_bytes is not None:
                    self._check_pinned(result)
                for piece in result.stream(_PIECE_BYTES):
                    bytes_read += len(piece)
                    yield piece
            except STORE_ERRORS as exc:
                if bytes_read:
                    raise self._cannot_resume(bytes_read, _words(exc)) from None
                failures += 1
                self._wait_to_retry(exc, failures, 0)
            else:
                if size_bytes is not None and bytes_read != size_bytes:
                    raise self._cannot_resume(bytes_read, f"It has {size_bytes} bytes.")
                return
        raise self._stopped()

    def _stopped(self) -> SourceError:
        """Return the error for reading on after close(): what was read is not the whole."""
        return SourceError(f'reading "{self._source.uri}" was stopped')

    def _cannot_resume(self, offset: int, words: str) -> SourceError:
        return SourceError(
            f'could not read "{self._source.uri}" beyond byte {offset}',
            detail=f"{words} The server does not serve ranges with an ETag, so reading cannot be resumed.",
            hint="Start again, or download the file first.",
        )


def _unquoted(etag: str) -> str:
    # Azure lists ETags without the quotes that its responses have
    return etag.strip('"')


def _words(exc: Exception) -> str:
    return "The response ended early." if isinstance(exc, _Truncated) else describe_failure(exc).words
