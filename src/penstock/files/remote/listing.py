"""Resolves remote sources to objects: keys, prefixes and wildcards of object stores, and HTTP URLs.

Keys are matched like local paths: `*` and `?` match within one part, `**` matches several parts, and a name that begins
with a dot only matches a pattern that does too.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import NotSupportedError

from penstock.errors import SourceError
from penstock.files.remote.stores import STORE_ERRORS, Stores, describe_failure, retry_delay_s, source_error
from penstock.files.skipped import OnNotice, is_skipped, note_empty, note_skipped_files
from penstock.model.source.source import ObjectHead, SourceObject

if TYPE_CHECKING:
    from obstore import GetResult, ObjectMeta
    from obstore.store import ObjectStore


_T = TypeVar("_T")

_WILDCARDS = frozenset("*?[")

# Any bucket name that a request can contain is accepted; the service's own rules are not checked. Ceph allows
# tenant:bucket, and Azure has $web and $root.
_BUCKET = re.compile(r"[\w$.:-]+", re.ASCII)

# Few attempts: a first request that fails is more often a mistyped name than a temporary error, and a user is waiting.
_LISTING_FAILURES = 3


def list_remote(source: str, stores: Stores, *, on_notice: OnNotice) -> Iterator[SourceObject]:
    """Yield the objects that a URL stands for, ordered by key. `on_notice` is called for those skipped by name.

    Raises SourceError, also if there are no objects, except for a folder that has only a marker or skipped objects.
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
        matching = [_object(root, meta) for meta in listed.objects if matches(meta["path"], key)]
        if not matching:
            raise SourceError(f'"{root}/{key}" matches no file')
        yield from matching


def list_keys(folder: str, stores: Stores) -> tuple[str, ...]:
    """Return the keys of all objects below a prefix, relative to it. Raises SourceError."""
    scheme, _, rest = folder.partition("://")
    bucket, _, prefix = rest.partition("/")
    root = f"{scheme.lower()}://{bucket}"
    store, _ = stores.find(root)
    listed = _list_folder(store, root, f"{prefix}/")
    return tuple(meta["path"].removeprefix(f"{prefix}/") for meta in listed.objects)


def stat_key(uri: str, stores: Stores) -> tuple[SourceObject, str | None]:
    """Return the object whose key is exactly that of `uri`, and its Content-Encoding. Raises SourceError."""
    head = look_at(uri, stores)
    found = SourceObject(uri=uri, location=uri, size_bytes=head.size_bytes, version=head.version)
    return found, head.content_encoding


def look_at(location: str, stores: Stores) -> ObjectHead:
    """Return what the store says of an object now, by a HEAD request. Raises SourceError."""
    store, path = stores.find(location)
    result = _retrying(lambda: obstore.get(store, path, options={"head": True}), uri=location)
    encoding = result.attributes.get("Content-Encoding")
    return ObjectHead(version=result.meta["e_tag"], size_bytes=result.meta["size"], content_encoding=encoding)


def safe_url(url: str) -> str:
    """Return an HTTP URL without user, password, query string and fragment, which may contain secrets."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def matches(key: str, pattern: str) -> bool:
    """Return whether a key matches a pattern by the rules for local paths."""
    return _matches_parts(key.split("/"), pattern.split("/"))


def _matches_parts(names: list[str], patterns: list[str]) -> bool:
    if not patterns or not names:
        return not patterns and not names
    if patterns[0] == "**":
        if _matches_parts(names, patterns[1:]):
            return True
        # "**" as the last part matches all files below.
        is_everything = len(patterns) == 1 and len(names) == 1
        return not names[0].startswith(".") and (is_everything or _matches_parts(names[1:], patterns))
    if names[0].startswith(".") and not patterns[0].startswith("."):
        return False
    return fnmatchcase(names[0], patterns[0]) and _matches_parts(names[1:], patterns[1:])


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
    found = _retrying(lambda: [meta for batch in obstore.list(store, prefix=prefix) for meta in batch], uri=uri)
    found.sort(key=lambda meta: meta["path"])
    folders = {meta["path"].rpartition("/")[0] for meta in found} | {prefix}
    # Consoles create an empty object with the folder's name to mark a folder.
    objects = [meta for meta in found if not (meta["size"] == 0 and meta["path"] in folders)]
    return _Folder(objects, is_marked=len(objects) < len(found))


def _list_prefix(store: ObjectStore, root: str, key: str, on_notice: OnNotice) -> Iterator[SourceObject]:
    """Yield all objects under a prefix, except those skipped because of their names."""
    listed = _list_folder(store, root, key)
    found = [meta for meta in listed.objects if matches(meta["path"], f"{key}**/*")]
    taken = [meta for meta in found if not any(map(is_skipped, meta["path"].removeprefix(key).split("/")))]
    note_skipped_files([f"{root}/{meta['path']}" for meta in found if meta["size"] and meta not in taken], on_notice)
    if not taken:
        if not found and not listed.is_marked:
            raise SourceError(f'"{root}/{key}" matches no file')
        on_notice(note_empty(f'prefix "{root}/{key}"'))
    for meta in taken:
        yield _object(root, meta)


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
    return SourceObject(uri=uri, location=uri, size_bytes=meta["size"], version=meta["e_tag"])


def _stat_url(url: str, stores: Stores) -> SourceObject:
    """Return the size and version of a URL's object, by a request for its first byte.

    HEAD is not used, because a signed URL allows only GET. To read in parts, objects.py needs ranges and an ETag.
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
        version=_url_version(meta, uri=uri),
        has_ranges=first_byte is not None and meta["e_tag"] is not None,
    )


def _url_version(meta: ObjectMeta, *, uri: str) -> str | None:
    """Return the ETag; without one the time of modification, the size and the URL; None if the server names no time.

    The URL keeps other files from being taken for this one under another name: several may have the same time and size.
    """
    if meta["e_tag"] is not None:
        return meta["e_tag"]
    # obstore has the beginning of 1970 for a response without Last-Modified.
    modified = meta["last_modified"]
    return f"modified {modified:%Y-%m-%dT%H:%M:%SZ}, {meta['size']} bytes, {uri}" if modified.timestamp() else None


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
