"""Reads remote objects in order, by several ranged requests at once. Each request is for the version that was listed.

A request that fails is repeated from the byte that it reached. If a server has no ranges or no ETag, there is one
stream, which cannot be resumed.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

import obstore

from penstock.errors import SourceError
from penstock.files.remote.stores import STORE_ERRORS, describe_failure, retry_delay_s, source_error
from penstock.units import KIB, MIB

if TYPE_CHECKING:
    from obstore import GetOptions, GetResult
    from obstore.store import ObjectStore

    from penstock.model.source.source import SourceObject

# According to AWS's performance guidelines, one request gives 85 to 90 MB/s, after a first byte that takes 30 to 200
# ms. Four requests of 4 MiB at a time then give about 80 to 200 MB/s of compressed text, more than a server loads, and
# limit the memory of an open object to 20 MiB (four in flight, one being read).
WINDOW_PARTS = 4
PART_BYTES = 4 * MIB

# A sample needs only the beginning.
SAMPLE_PART_BYTES = 512 * KIB

# If a request fails, the bytes of the current piece are lost, so pieces are small, and smallest after a failure.
_PIECE_BYTES = 128 * KIB
_PIECE_BYTES_AFTER_DROP = 1


class _Truncated(Exception):
    """A response ended before the requested range was complete."""


class RemoteObject:
    """One remote object. `pieces` starts the requests and gives the stored bytes in order; call it once."""

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
        """Return whether one request reads the whole object, in the version that was listed."""
        size_bytes = self._source.size_bytes
        return size_bytes is not None and self._is_pinned and size_bytes <= self._part_bytes

    @property
    def _is_pinned(self) -> bool:
        """Return whether ranges of the listed version can be requested."""
        return self._source.version is not None and self._source.has_ranges

    def pieces(self) -> Iterator[bytes]:
        """Yield the stored bytes. Raises SourceError if they cannot be read or are not the listed version's."""
        size_bytes = self._source.size_bytes
        if size_bytes == 0:
            return iter(())
        if size_bytes is None or not self._is_pinned:
            return self._stream_whole()
        if self.is_short:
            return iter(self._fetch(0, size_bytes))
        return self._stream_parts(size_bytes)

    def read_at(self, start: int, length_bytes: int) -> bytes:
        """Return bytes of the listed version from `start`, by several requests at once if they are many.

        Raises SourceError, also if the server does not serve ranges of a version.
        """
        if not self._is_pinned:
            raise SourceError(
                f'could not read ranges of "{self._source.uri}"',
                detail="The server does not serve ranges with an ETag.",
                hint="Download the file first.",
            )
        if self._executor is None:
            self._executor = ThreadPoolExecutor(WINDOW_PARTS, thread_name_prefix="penstock-fetch")
        starts = range(start, start + length_bytes, PART_BYTES)
        ends = [min(each + PART_BYTES, start + length_bytes) for each in starts]
        fetched = [self._executor.submit(self._fetch, *bounds) for bounds in zip(starts, ends, strict=True)]
        return b"".join(piece for part in fetched for piece in self._wait_for(part))

    def close(self) -> None:
        """Stop the requests in flight. Their threads end at their next piece; this does not wait for them."""
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
        """Return the bytes from `start` up to but not including `end`. A failed request resumes where it stopped."""
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
        # If-Match never matches a weak ETag, because it compares strongly. _check_pinned compares weak ETags.
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
        """Raise SourceError if the response is for another version: not every server supports If-Match."""
        listed, source = self._source.version, self._source
        etag, size_bytes = result.meta["e_tag"], result.meta["size"]
        if size_bytes != source.size_bytes:
            was, now = f"{source.size_bytes} bytes", f"{size_bytes} bytes"
        elif self._is_pinned and etag and listed and _unquoted(etag) != _unquoted(listed):
            was, now = f"the ETag {listed}", f"the ETag {etag}"
        else:
            return
        raise SourceError(
            f'"{source.uri}" changed while it was read',
            detail=f"It was listed with {was}; now it has {now}.",
            hint="Load it again when no process writes to it.",
        )

    def _wait_to_retry(self, exc: Exception, failures: int, offset: int) -> None:
        """Wait before another attempt, or raise SourceError if there must not be one."""
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
        """Yield the object from one request, which is repeated only if no byte has arrived."""
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
        """Return the error to raise if close() stopped the reading before the object was read completely."""
        return SourceError(f'reading "{self._source.uri}" was stopped')

    def _cannot_resume(self, offset: int, words: str) -> SourceError:
        return SourceError(
            f'could not read "{self._source.uri}" beyond byte {offset}',
            detail=f"{words} The server does not serve ranges with an ETag, so reading cannot be resumed.",
            hint="Start again, or download the file first.",
        )


def _unquoted(etag: str) -> str:
    # Azure's listings have ETags without quotes, its responses have them with quotes.
    return etag.strip('"')


def _words(exc: Exception) -> str:
    return "The response ended early." if isinstance(exc, _Truncated) else describe_failure(exc).words
