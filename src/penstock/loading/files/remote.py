"""Lists objects of object stores and HTTP servers, and reads the version that was listed.

Keys are matched like local paths: `*` and `?` match within one part, `**` matches several parts, and a name that begins
with a dot matches only a pattern that begins with a dot.
"""

from __future__ import annotations

import glob
import random
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import NotSupportedError

from penstock.core.errors import SourceError
from penstock.core.units import KIB, MIB
from penstock.core.values.source import (
    ObjectHead,
    OnNotice,
    SourceObject,
    is_skipped,
    note_empty,
    note_skipped_files,
    safe_url,
    selecting_part,
)
from penstock.loading.files.stores import STORE_ERRORS, Stores, describe_failure, retry_delay_s, source_error

if TYPE_CHECKING:
    from obstore import GetOptions, GetResult, ObjectMeta
    from obstore.store import ObjectStore


_T = TypeVar("_T")

_WILDCARDS = frozenset("*?[")

# Any bucket name that a request can contain is accepted; the service's own rules are not checked. Ceph allows
# tenant:bucket, and Azure has $web and $root.
_BUCKET = re.compile(r"[\w$.:-]+", re.ASCII)

# How often a request for a listing may fail. The limit is low, because a user is waiting, and a first request that
# fails is more often due to a mistyped name than to a temporary error.
_LISTING_FAILURES = 3


def list_remote(source: str, stores: Stores, *, on_notice: OnNotice) -> Iterator[SourceObject]:
    """Yield the objects that a URL names, ordered by key. `on_notice` is called for objects that their names exclude.

    Raises SourceError if the URL names no object, or if the request fails. It is no error if a folder has only the
    empty object that marks a folder, or only excluded objects.
    """
    scheme, _, rest = source.partition("://")
    if scheme in ("http", "https"):
        yield _stat_url(source, stores)
        return
    bucket, _, key = rest.partition("/")
    if not _BUCKET.fullmatch(bucket):
        raise SourceError(f"{scheme}:// needs a bucket's name", hint=f"Write {scheme}://bucket/key.")
    root = f"{scheme}://{bucket}"
    store, _ = stores.find(root)
    if key == "" or key.endswith("/"):
        yield from _list_prefix(store, root, key, on_notice)
        return
    is_pattern = not _WILDCARDS.isdisjoint(key)
    found = _head(store, root, key, is_pattern=is_pattern)
    if found is not None:
        yield _object(root, found)
    else:
        listed = _list_folder(store, root, _literal_folder(key))
        matching = [_object(root, meta) for meta in listed.objects if matches(meta["path"], key, skips=True)]
        if not matching:
            raise SourceError(f'"{root}/{key}" matches no file')
        yield from matching


def stat_key(uri: str, stores: Stores) -> tuple[SourceObject, str | None]:
    """Return the object whose key is exactly that in `uri`, and its Content-Encoding. Raises SourceError."""
    head = look_at(uri, stores)
    found = SourceObject(uri=uri, location=uri, size_bytes=head.size_bytes, version=head.version)
    return found, head.content_encoding


def look_at(location: str, stores: Stores) -> ObjectHead:
    """Return the size, version and Content-Encoding that an object has now, by a HEAD request. Raises SourceError."""
    store, path = stores.find(location)
    result = _retrying(lambda: obstore.get(store, path, options={"head": True}), uri=location)
    encoding = result.attributes.get("Content-Encoding")
    return ObjectHead(version=result.meta["e_tag"], size_bytes=result.meta["size"], content_encoding=encoding)


def matches(key: str, pattern: str, *, skips: bool = False) -> bool:
    """Return whether a key matches a wildcard, by the rules for local paths.

    With `skips`, `**` matches no name that is skipped in folders, such as that of a file that is being written.
    """
    return _matches_parts(key.split("/"), pattern.split("/"), skips=skips)


def _matches_parts(names: list[str], patterns: list[str], *, skips: bool) -> bool:
    if not patterns or not names:
        return not patterns and not names
    if patterns[0] == "**":
        if _matches_parts(names, patterns[1:], skips=skips):
            return True
        # "**" as the last part matches all files below.
        is_everything = len(patterns) == 1 and len(names) == 1
        is_hidden = names[0].startswith(".") or (skips and is_skipped(names[0]))
        return not is_hidden and (is_everything or _matches_parts(names[1:], patterns, skips=skips))
    if names[0].startswith(".") and not patterns[0].startswith("."):
        return False
    return fnmatchcase(names[0], patterns[0]) and _matches_parts(names[1:], patterns[1:], skips=skips)


def _literal_folder(pattern: str) -> str:
    """Return the part of a pattern before the first folder with a wildcard, which is the prefix to list."""
    folders = pattern.split("/")[:-1]
    wild = next((at for at, name in enumerate(folders) if not _WILDCARDS.isdisjoint(name)), len(folders))
    return "/".join(folders[:wild])


class _Folder(NamedTuple):
    """The objects that a store has under a prefix, by key. `is_marked` is whether the folder has a marker object."""

    objects: list[ObjectMeta]
    is_marked: bool


def _list_folder(store: ObjectStore, root: str, folder: str) -> _Folder:
    prefix = folder.strip("/") or None
    uri = f"{root}/{folder}"
    found = _list_below(store, prefix, uri=uri)
    found.sort(key=lambda meta: meta["path"])
    folders = {meta["path"].rpartition("/")[0] for meta in found} | {prefix}
    # Consoles create an empty object with the folder's name to mark a folder.
    objects = [meta for meta in found if not (meta["size"] == 0 and meta["path"] in folders)]
    return _Folder(objects, is_marked=len(objects) < len(found))


def _list_below(store: ObjectStore, prefix: str | None, *, uri: str) -> list[ObjectMeta]:
    return _retrying(lambda: [meta for batch in obstore.list(store, prefix=prefix) for meta in batch], uri=uri)


def _list_prefix(store: ObjectStore, root: str, key: str, on_notice: OnNotice) -> Iterator[SourceObject]:
    """Yield all objects under a prefix, except those skipped because of their names."""
    listed = _list_folder(store, root, key)
    found = [meta for meta in listed.objects if matches(meta["path"], f"{glob.escape(key)}**/*")]
    taken: list[ObjectMeta] = []
    skipped: list[ObjectMeta] = []
    for meta in found:
        is_out = any(map(is_skipped, meta["path"].removeprefix(key).split("/")))
        (skipped if is_out or _marks_folder(store, root, meta) else taken).append(meta)
    note_skipped_files([f"{root}/{meta['path']}" for meta in skipped if meta["size"]], on_notice)
    if not taken:
        if not found and not listed.is_marked:
            raise SourceError(f'"{root}/{key}" matches no file')
        on_notice(note_empty(f'prefix "{root}/{key}"'))
    for meta in taken:
        yield _object(root, meta)


def _marks_folder(store: ObjectStore, root: str, meta: ObjectMeta) -> bool:
    """Return whether an object marks a folder without files: the key of such a mark ends with a slash.

    obstore leaves the slash out of its path, and lists the mark below itself.
    """
    path = meta["path"]
    if meta["size"] or "." in path.rpartition("/")[2]:
        return False
    return any(each["path"] == path for each in _list_below(store, path, uri=f"{root}/{path}"))


def _head(store: ObjectStore, root: str, key: str, *, is_pattern: bool) -> ObjectMeta | None:
    """Return the object whose key is exactly `key`.

    If the store answers that there is none (404, or 403 without the right to list), return None if `is_pattern`.
    Otherwise raise SourceError.
    """
    uri = f"{root}/{key}"
    try:
        return _retrying(lambda: obstore.head(store, key), uri=uri)
    except SourceError as exc:
        # The failure is not attached as the cause: tracebacks would show its URL, which may be signed.
        failed = exc.__context__
        status = describe_failure(failed).status if isinstance(failed, Exception) else None
        # Without the right to list, S3 answers 403 instead of 404 for a key that does not exist.
        if is_pattern and status in (403, 404):
            return None
        if status == 404:
            exc.hint = 'To load everything under a prefix, end it with "/".'
        raise


def _object(root: str, meta: ObjectMeta) -> SourceObject:
    uri = f"{root}/{meta['path']}"
    etag = meta["e_tag"]
    if etag is not None and not etag.endswith('"'):
        # Azure's listings have ETags without quotes, its responses have them with quotes.
        etag = f'"{etag}"'
    return SourceObject(uri=uri, location=uri, size_bytes=meta["size"], version=etag)


def _stat_url(url: str, stores: Stores) -> SourceObject:
    """Return the size and version of a URL's object, by a request for its first byte.

    HEAD is not used, because a signed URL allows only GET. The response shows whether the server serves ranges with an
    ETag. If it does not, RemoteObject reads the object in one part.
    """
    try:
        parts = urlsplit(url)
        # Reading .port raises ValueError if the port is not a number.
        is_valid = bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_valid = False
    if not is_valid:
        raise SourceError("a source is not a valid URL", hint="Write https://host/path.")
    uri, url = safe_url(url), parts._replace(fragment="").geturl()
    store, path = stores.find(url)
    try:
        first_byte = _retrying(lambda: _get_first_byte(store, path), uri=uri)
    except SourceError as exc:
        if "*" in parts.path:
            told = "HTTP has no listing, so wildcards are not possible: name each file."
            exc.hint = told if exc.hint is None else f"{told} {exc.hint}"
        raise
    meta = (first_byte or _retrying(lambda: obstore.get(store, path), uri=uri)).meta
    return SourceObject(
        uri=uri,
        location=url,
        size_bytes=meta["size"],
        version=_url_version(meta, url=url),
        has_ranges=first_byte is not None and meta["e_tag"] is not None,
    )


# How a version begins that has the time of modification, because the server sends no ETag.
_BY_TIME = "modified "


def _url_version(meta: ObjectMeta, *, url: str) -> str | None:
    """Return the version: the ETag, or else the time of modification, size and URL. None without ETag and time.

    The URL is included because several files may have the same time and size. A query that may select a file is
    included as a digest, because it may contain a secret.
    """
    if meta["e_tag"] is not None:
        return meta["e_tag"]
    # For a response without Last-Modified, obstore returns the beginning of 1970.
    modified, name = meta["last_modified"], safe_url(url)
    if query := selecting_part(url):
        name += f"?{sha256(query.encode()).hexdigest()[:16]}"
    return f"{_BY_TIME}{modified:%Y-%m-%dT%H:%M:%SZ}, {meta['size']} bytes, {name}" if modified.timestamp() else None


def _get_first_byte(store: ObjectStore, path: str) -> GetResult | None:
    """Return the response to a request for the first byte.

    Returns None if the server does not serve ranges, or if the object is empty.
    """
    try:
        result = obstore.get(store, path, options={"range": (0, 1)})
        result.bytes()
    except NotSupportedError:
        return None
    except STORE_ERRORS as exc:
        if describe_failure(exc).status == 416:
            return None
        raise
    return result


def _retrying(request: Callable[[], _T], *, uri: str) -> _T:
    failures = 0
    while True:
        try:
            return request()
        except (*STORE_ERRORS, ValueError) as exc:
            # obstore raises ValueError for a key that it cannot represent.
            failures += 1
            # The jitter only spreads requests over time; it need not be secure.
            delay_s = retry_delay_s(failures, jitter=random.random())  # noqa: S311
            if failures >= _LISTING_FAILURES or delay_s is None or not describe_failure(exc).is_transient:
                raise source_error(uri, exc) from None
            time.sleep(delay_s)


# How many requests for parts of an object are in flight, and the size of a part. According to AWS's performance
# guidelines, one request gives 85 to 90 MB/s, after a first byte that takes 30 to 200 ms. Four requests of 4 MiB give
# about 80 to 200 MB/s of compressed text, more than a server loads. With them, an open object takes at most 20 MiB of
# memory (four parts in flight, one being read).
WINDOW_PARTS = 4
PART_BYTES = 4 * MIB

# The size of the only part that a sample requests, because a sample needs only the object's beginning.
SAMPLE_PART_BYTES = 512 * KIB

# The sizes of the pieces that are read from a response, normally and after a failure. If a request fails, the bytes of
# the current piece are lost, so pieces are small, and smallest after a failure.
_PIECE_BYTES = 128 * KIB
_PIECE_BYTES_AFTER_DROP = 1


class _Truncated(Exception):
    """A response ended before the requested range was complete."""


class RemoteObject:
    """One remote object in the version that was listed. `pieces` yields its bytes in order, once."""

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
        """Request the object, and yield its bytes, not decompressed.

        Raises SourceError if they cannot be read or are not those of the listed version.
        """
        size_bytes = self._source.size_bytes
        if size_bytes == 0:
            return iter(())
        if size_bytes is None or not self._is_pinned:
            return self._stream_whole()
        if self.is_short:
            return iter(self._fetch(0, size_bytes))
        return self._stream_parts(size_bytes)

    def read_at(self, start: int, length_bytes: int) -> bytes:
        """Return `length_bytes` bytes of the listed version from offset `start`.

        Many bytes are read by several requests. Raises SourceError if they cannot be read, or if the server does not
        serve ranges with an ETag.
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
        """Stop the requests that are not answered completely.

        Each thread ends when it gets its next piece. This method does not wait for the threads.
        """
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
        """Return the bytes from `start` up to but not including `end`.

        After a failure, only the missing bytes are requested.
        """
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
        # If-Match compares strongly, so it never matches a weak ETag. _check_pinned compares weak ETags.
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
        elif (
            not self._is_pinned
            and listed
            and (found := _url_version(result.meta, url=source.location))
            # An ETag says nothing of an answer that had none.
            and found.startswith(_BY_TIME) == listed.startswith(_BY_TIME)
            and _unquoted(found) != _unquoted(listed)
        ):
            was, now = f"version {listed}", f"version {found}"
        else:
            return
        raise SourceError(
            f'"{source.uri}" changed while it was read',
            detail=f"It was listed with {was}; now it has {now}.",
            hint="Load it again when no process writes to it"
            + (
                "."
                if self._is_pinned
                else ", or download the file first: the server may name another version each time."
            ),
        )

    def _wait_to_retry(self, exc: Exception, failures: int, offset: int) -> None:
        """Wait before the next attempt. Raise SourceError if a retry cannot succeed, or after too many failures."""
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
    # A weak ETag is compared as a strong one: each is equal to the other if their texts are.
    return etag.removeprefix("W/").strip('"')


def _words(exc: Exception) -> str:
    return "The response ended early." if isinstance(exc, _Truncated) else describe_failure(exc).words
