"""What remote sources stand for: objects, prefixes and wildcards of object stores, and HTTP URLs.

Keys are matched like local paths: `*` and `?` stay within one part, `**` spans parts, and a name that begins
with a dot must be asked for.
"""

from __future__ import annotations

import random
import re
import time
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import NotSupportedError

from penstock.errors import SourceError
from penstock.files.remote.stores import STORE_ERRORS, Stores, describe_failure, retry_delay_s, source_error
from penstock.files.skipped import is_skipped, note_empty, note_skipped_files
from penstock.model.source.source import SourceObject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from obstore import GetResult, ObjectMeta
    from obstore.store import ObjectStore

    from penstock.files.skipped import OnNotice

_T = TypeVar("_T")

_WILDCARDS = frozenset("*?[")

# Not their rules: what can stand in a request. A tenant of Ceph ends with a colon, a container of Azure begins with $.
_BUCKET = re.compile(r"[\w$.:-]+", re.ASCII)

# A first request that fails is more often a mistyped name than a passing fault, and somebody is waiting
_LISTING_FAILURES = 3


def list_remote(source: str, stores: Stores, *, on_notice: OnNotice) -> Iterator[SourceObject]:
    """Yield the objects that a URL stands for, in the order of their keys; `on_notice` hears of those skipped by name.

    Raises SourceError, also where there is none, but for a folder that has a mark or skipped objects alone.
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


def safe_url(url: str) -> str:
    """Return an HTTP URL without userinfo, query string and fragment, which may hold secrets."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def matches(key: str, pattern: str) -> bool:
    """Tell whether a key matches a pattern as a local path would."""
    return _matches_parts(key.split("/"), pattern.split("/"))


def _matches_parts(names: list[str], patterns: list[str]) -> bool:
    if not patterns or not names:
        return not patterns and not names
    if patterns[0] == "**":
        if _matches_parts(names, patterns[1:]):
            return True
        # A file below: "**" as the last part means everything underneath
        is_everything = len(patterns) == 1 and len(names) == 1
        return not names[0].startswith(".") and (is_everything or _matches_parts(names[1:], patterns))
    if names[0].startswith(".") and not patterns[0].startswith("."):
        return False
    return fnmatchcase(names[0], patterns[0]) and _matches_parts(names[1:], patterns[1:])


def _literal_folder(pattern: str) -> str:
    """Return the folder before the first part with a wildcard: as much as a store can look up."""
    folders = pattern.split("/")[:-1]
    wild = next((at for at, name in enumerate(folders) if not _WILDCARDS.isdisjoint(name)), len(folders))
    return "/".join(folders[:wild])


class _Folder(NamedTuple):
    """What a store has under a prefix, by key; `is_marked`: the folder has an object of its own name."""

    objects: list[ObjectMeta]
    is_marked: bool


def _list_folder(store: ObjectStore, root: str, folder: str) -> _Folder:
    prefix = folder.strip("/") or None
    uri = f"{root}/{folder}"
    found = _retrying(lambda: [meta for batch in obstore.list(store, prefix=prefix) for meta in batch], uri=uri)
    found.sort(key=lambda meta: meta["path"])
    folders = {meta["path"].rpartition("/")[0] for meta in found} | {prefix}
    # Consoles mark a folder by an empty object of its name
    objects = [meta for meta in found if not (meta["size"] == 0 and meta["path"] in folders)]
    return _Folder(objects, is_marked=len(objects) < len(found))


def _list_prefix(store: ObjectStore, root: str, key: str, on_notice: OnNotice) -> Iterator[SourceObject]:
    """Yield everything under a prefix but what is skipped by its name."""
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
    """Return the object of exactly that key; None if there is none and the key can be a pattern."""
    uri = f"{root}/{key}"
    try:
        return _retrying(lambda: obstore.head(store, key), uri=uri)
    except SourceError as exc:
        # It is not the cause: tracebacks would show its URL, which may be signed
        failed = exc.__context__
        status = describe_failure(failed).status if isinstance(failed, Exception) else None
        # Without the right to list, a key that does not exist is forbidden
        if is_pattern and status in (403, 404):
            return None
        if status == 404:
            exc.hint = 'To load everything under a prefix, end it with "/".'
        raise


def _object(root: str, meta: ObjectMeta) -> SourceObject:
    uri = f"{root}/{meta['path']}"
    return SourceObject(uri=uri, location=uri, size_bytes=meta["size"], version=meta["e_tag"])


def _stat_url(url: str, stores: Stores) -> SourceObject:
    """Learn the size and version of what a URL names by asking for its first byte.

    A signed URL allows GET only, hence no HEAD. `version` is set only where the server serves ranges of a
    version known by its ETag: what remote.py needs to read in parts.
    """
    try:
        parts = urlsplit(url)
        # A port that is no number shows when it is asked for
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
    if first_byte is not None:
        meta, version = first_byte.meta, first_byte.meta["e_tag"]
    else:
        meta, version = _retrying(lambda: obstore.get(store, path), uri=uri).meta, None
    return SourceObject(uri=uri, location=url, size_bytes=meta["size"], version=version)


def _get_first_byte(store: ObjectStore, path: str) -> GetResult | None:
    """Return the response to a request for the first byte, or None where there are no ranges, or no bytes."""
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
            # ValueError is a key that obstore cannot name
            failures += 1
            # The jitter spreads requests over time and guards nothing
            delay_s = retry_delay_s(failures, jitter=random.random())  # noqa: S311
            if failures >= _LISTING_FAILURES or delay_s is None or not describe_failure(exc).is_transient:
                raise source_error(uri, exc) from None
            time.sleep(delay_s)
