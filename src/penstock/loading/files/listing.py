"""Lists the objects of the sources that a user names, in a deterministic order, each with its version.

Local paths, directories and wildcards are listed here, remote sources in remote.py.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

from penstock.core.errors import SourceError, naming_file
from penstock.core.values.notice import Notice
from penstock.core.values.source import (
    OnNotice,
    SourceObject,
    is_http,
    is_skipped,
    note_empty,
    note_skipped_files,
    safe_url,
)
from penstock.loading.files.local import STDIN_LOCATION, stat_object
from penstock.loading.files.parallel import map_at_once

if TYPE_CHECKING:
    from penstock.loading.files.stores import Stores

REMOTE_SCHEMES = ("s3", "gs", "az", "http", "https")

# How many URLs are requested at once. A request takes one round trip, or several with TLS.
_REQUESTS = 8

# Matches a URL that lacks a slash. Such a text may contain a secret, as any URL may.
_MISTYPED_URL = re.compile(r"(?:s3|gs|az|https?|file):/?(?!/)", re.IGNORECASE)
# Matches a user and password before a host, which cannot be part of a path.
_USERINFO = re.compile(r"[^\s:@/]+:[^\s]*@")
_URL_LIKE = re.compile(r"\w[\w+.-]*:/+|" + _MISTYPED_URL.pattern, re.IGNORECASE)


def list_objects(
    sources: Sequence[str], *, stores: Callable[[], Stores], on_notice: OnNotice
) -> tuple[SourceObject, ...]:
    """Return the objects of all sources, each once, in the order of the sources and then by name.

    Folders within folders, and files whose names show that they are incomplete or not data, are left out. `on_notice`
    is called for both, for objects that are named twice, and for a folder without files to load. Raises SourceError if
    a source matches nothing. `stores` is called only if a source is remote.
    """
    listed: list[SourceObject] = []
    objects: dict[str, SourceObject] = {}
    for found in _list_sources(sources, stores, on_notice):
        listed += found
    # A file that is named twice, for example by its path and by a wildcard, is loaded once.
    for item in listed:
        objects.setdefault(_identity(item), item)
    _refuse_alike(objects.values())
    if len(objects) < len(listed):
        on_notice(_note_repeated([item for item in listed if objects[_identity(item)] is not item], objects))
    return tuple(objects.values())


def _refuse_alike(objects: Iterable[SourceObject]) -> None:
    """Raise SourceError if two URLs differ only in what the ledger does not have: it would take them for one object."""
    seen: set[str] = set()
    for item in objects:
        if is_http(item.location) and item.uri in seen:
            raise SourceError(
                f'two of the URLs are "{item.uri}" with different queries or users',
                detail="The ledger has URLs without their queries, users and passwords.",
                hint="Download the objects, and load the files.",
            )
        seen.add(item.uri)


def is_remote(location: str) -> bool:
    """Return whether a location is a URL that is read through obstore: s3, gs, az, http or https."""
    return _scheme(location) in REMOTE_SCHEMES


def _identity(item: SourceObject) -> str:
    """Return the identity of an object: its URL or, for a local file, its version, which has the device and inode."""
    if item.version is None or is_remote(item.location):
        return item.location
    return "file " + item.version


def _note_repeated(repeated: Sequence[SourceObject], objects: Mapping[str, SourceObject]) -> Notice:
    item = repeated[0]
    first = objects[_identity(item)]
    same = "is named more than once" if first.uri == item.uri else f'is the same file as "{first.uri}"'
    more = f" (and {len(repeated) - 1} more like it)" if len(repeated) > 1 else ""
    message = f'"{item.uri}" {same} and is loaded once{more}'
    return Notice(code="repeated-source", message=message, uri=item.uri)


def _list_sources(
    sources: Sequence[str], stores: Callable[[], Stores], on_notice: OnNotice
) -> Iterator[list[SourceObject]]:
    """Yield the objects of each source; remote sources are listed in parallel."""
    if not any(map(is_remote, sources)):
        yield from (_list_named(source, stores, on_notice) for source in sources)
        return
    # Create the stores before the threads use them.
    found = stores()
    yield from map_at_once(lambda source: _list_named(source, lambda: found, on_notice), sources, threads=_REQUESTS)


def _list_named(source: str, stores: Callable[[], Stores], on_notice: OnNotice) -> list[SourceObject]:
    with naming_file(_shown(source)):
        return list(_list_source(source, stores, on_notice))


def _list_source(source: str, stores: Callable[[], Stores], on_notice: OnNotice) -> Iterator[SourceObject]:
    if source == STDIN_LOCATION:
        yield SourceObject(uri="stdin", location=STDIN_LOCATION, size_bytes=None, version=None)
    elif is_remote(source):
        from penstock.loading.files.remote import list_remote  # noqa: PLC0415 (10 ms, obstore)

        scheme, _, rest = source.partition("://")
        yield from list_remote(f"{scheme.lower()}://{rest}", stores(), on_notice=on_notice)
    elif _scheme(source) == "file":
        yield from _list_path(local_path(source), on_notice)
    elif _is_no_path(source) and not os.path.lexists(source):
        raise SourceError(
            f'"{_shown(source)}" has an unknown type',
            hint="Give a path, a file, s3, gs, az, http or https URL, or - for standard input.",
        )
    else:
        yield from _list_path(source, on_notice)


def _list_path(path: str, on_notice: OnNotice) -> Iterator[SourceObject]:
    """Yield the objects of a local path. If the path exists, its characters * and ? are not wildcards."""
    if glob.has_magic(path) and not os.path.lexists(path):
        names = sorted(expand(path))
        found_each = [stat_object(name, uri=_printable(name)) for name in names]
        if not any(found_each):
            raise SourceError(f'"{_shown(path)}" matches no file')
        yield from filter(None, found_each)
        if "**" not in path:
            _note_skipped([name for name, each in zip(names, found_each, strict=True) if each is None], on_notice)
        return
    found = stat_object(path, uri=_printable(path))
    if found is not None:
        yield found
    else:
        yield from _list_directory(path, on_notice)


def expand(pattern: str) -> set[str]:
    """Return the paths that a wildcard matches. Hidden names, and the contents of hidden directories, are left out.

    `**` matches any number of directories and follows symbolic links. glob is not used for `**`, because glob follows a
    link to a parent directory until the path is too long.
    """
    parts = pattern.split("/")
    if "**" not in parts:
        _refuse_unlistable(parts)
        return set(glob.glob(pattern))  # noqa: PTH207 (pathlib rewrites paths)
    at = parts.index("**")
    rest = "/".join(parts[at + 1 :])
    roots = glob.glob("/".join(parts[:at]) + "/") if at else [""]  # noqa: PTH207
    found = {
        name for root in roots for folder in _folders(root) for name in expand(glob.escape(folder) + (rest or "*"))
    }
    return found if rest else {name for name in found if not is_skipped(name.rpartition("/")[2])}


def _refuse_unlistable(parts: Sequence[str]) -> None:
    """Raise SourceError if a folder in which names are looked for cannot be read: glob would pass it over."""
    is_found = False
    for at, part in enumerate(parts):
        is_wild = glob.has_magic(part)
        if is_wild or is_found:
            above = "/".join(parts[:at])
            for folder in glob.glob(f"{above}/") if at else ["."]:  # noqa: PTH207 (pathlib rewrites paths)
                if folder.endswith("/lost+found/"):
                    continue
                try:
                    if is_wild:
                        os.scandir(folder).close()
                    os.stat(f"{folder}/.")  # noqa: PTH116
                except OSError as exc:
                    raise SourceError(
                        f'could not list "{_printable(folder)}": {exc.strerror}',
                        hint="Name the folders in which to look, or have this one made readable.",
                    ) from exc
        is_found = is_found or is_wild


def _folders(root: str) -> Iterator[str]:
    """Yield a directory and all directories below it, each ending with a slash; links to a parent are skipped."""
    waiting: list[tuple[str, frozenset[tuple[int, int]]]] = [(root, frozenset())]
    while waiting:
        folder, above = waiting.pop()
        try:
            status = os.stat(folder or ".")  # noqa: PTH116
            if (here := (status.st_dev, status.st_ino)) in above:
                continue
            inner = [entry.name for entry in os.scandir(folder or ".") if not is_skipped(entry.name) and entry.is_dir()]
        except OSError as exc:
            raise SourceError(f'could not list "{_printable(folder)}": {exc.strerror}') from exc
        yield folder
        waiting += [(f"{folder}{name}/", above | {here}) for name in inner]


def _list_directory(path: str, on_notice: OnNotice) -> Iterator[SourceObject]:
    """Yield the regular files of a directory, without its subfolders and without files skipped by their names."""
    try:
        entries = [entry for entry in os.scandir(path) if entry.name[0] != "."]
        kept = [entry for entry in entries if not is_skipped(entry.name)]
        # A link to a file that is gone counts as a file that cannot be read.
        gone = [entry.path for entry in kept if entry.is_symlink() and not os.path.exists(entry.path)]  # noqa: PTH110
        names = sorted([*gone, *(entry.path for entry in kept if entry.is_file())])
        folders = sorted(entry.path for entry in kept if entry.is_dir())
        skipped = sorted(entry.path for entry in entries if is_skipped(entry.name) and entry.is_file())
        note_skipped_files([_printable(name) for name in skipped if os.stat(name).st_size], on_notice)  # noqa: PTH116
    except OSError as exc:
        raise SourceError(f'could not list "{_printable(path)}": {exc.strerror}') from exc
    if not names and folders:
        raise SourceError(
            f'directory "{_printable(path)}" holds no files to load',
            hint=f'To load its subfolders too, write "{_printable(path).rstrip("/")}/**".',
        )
    if not names:
        on_notice(note_empty(f'directory "{_printable(path)}"'))
    for name in names:
        found = stat_object(name, uri=_printable(name))
        if found is not None:
            yield found
    _note_skipped(folders if names else [], on_notice)


def _note_skipped(folders: Sequence[str], on_notice: OnNotice) -> None:
    if folders:
        path = _printable(folders[0])
        more = f" (and {len(folders) - 1} more like it)" if len(folders) > 1 else ""
        hint = f'To load its subfolders too, write "{os.path.dirname(path)}/**".'  # noqa: PTH120 (pathlib rewrites paths)
        on_notice(Notice(code="folder-skipped", message=f'folder "{path}" is skipped{more}', uri=path, hint=hint))


def local_path(source: str) -> str:
    """Return the path of a local source: the source itself, or the path in a file URL.

    Raises SourceError if the URL names no file of this machine.
    """
    if _scheme(source) != "file":
        return source
    host, slash, path = source.partition("://")[2].partition("/")
    if host not in ("", "localhost") or not slash:
        raise SourceError(
            f'"{_shown(source)}" does not name a file of this machine', hint="Write file:///path/to/file."
        )
    return os.fsdecode(unquote_to_bytes("/" + path))


def lasting_name(source: str) -> str:
    """Return a source without what depends on the current directory: an absolute path, or a URL without secrets.

    In URLs of object stores, ? is a wildcard and @ may be part of a key. They name no object if they hold a secret.

    >>> lasting_name("https://user:word@host/a.csv?signature=s"), lasting_name("/a/../b.csv")
    ('https://host/a.csv', '/b.csv')
    >>> lasting_name("https://host/pkg@1.2/a.csv#token=t")
    'https://host/pkg@1.2/a.csv'
    >>> lasting_name("s3://bucket/ann@host/day-?.csv")
    's3://bucket/ann@host/day-?.csv'
    """
    if source == STDIN_LOCATION:
        return source
    if _scheme(source) in ("s3", "gs", "az"):
        return _printable(source)
    if is_http(source):
        return _printable(safe_url(source))
    if _scheme(source) is not None and _scheme(source) != "file":
        return _shown(source)
    return _printable(os.path.abspath(local_path(source)))  # noqa: PTH100 (pathlib does not take .. away)


def recorded_name(source: SourceObject) -> str:
    """Return the URI by which the ledger records an object: a URL, or a path with its symbolic links resolved."""
    if source.is_pipe or "://" in source.uri:
        return source.uri
    return _printable(os.path.realpath(source.location))


def lasting_version(source: SourceObject) -> str | None:
    """Return an object's version for the ledger, without the parts that can change while the content stays the same.

    These are, for a local file, the device number, which depends on the host and may change with each mount, and the
    time of change, which also changes if the file is renamed, linked, or given other permissions.
    """
    if source.version is None or is_remote(source.location):
        return source.version
    return source.version.partition(":")[2].rpartition(":")[0]


def ctime_ns(source: SourceObject) -> int | None:
    """Return the time of change (st_ctime_ns) that a local file had when it was listed, None for other objects."""
    if source.version is None or is_remote(source.location):
        return None
    return int(source.version.rpartition(":")[2])


def _is_no_path(source: str) -> bool:
    return _scheme(source) is not None or bool(_MISTYPED_URL.match(source) or _USERINFO.match(source))


def _scheme(source: str) -> str | None:
    scheme, separator, _ = source.partition("://")
    return scheme.lower() if separator and scheme.isalnum() else None


def _printable(path: str) -> str:
    """Return a path in which bytes that are not UTF-8 are written as escapes."""
    return path.encode("utf-8", "backslashreplace").decode()


def _shown(source: str) -> str:
    """Return a source without the parts of a URL that may be secret."""
    start = _URL_LIKE.match(source)
    if start is None:
        userinfo = None if os.path.lexists(source) else _USERINFO.match(source)
        return _printable(source if userinfo is None else f"***@{source[userinfo.end() :]}")
    return _printable(start[0] + source[start.end() :].partition("?")[0].rpartition("@")[2])
