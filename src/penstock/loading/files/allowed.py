"""Holds the sources that another party names against those that the user allows: real paths, and prefixes of URLs."""

from __future__ import annotations

import glob
import os
import re
import string
from collections.abc import Iterator, Sequence
from dataclasses import replace
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, unquote
from urllib.request import HTTPRedirectHandler, Request, build_opener

from penstock.core.errors import SourceError, UsageError
from penstock.core.values.source import SourceObject, is_skipped
from penstock.loading.files.listing import expand, is_remote, local_path

_WEB = ("http", "https")
_TIMEOUT_S = 30

# Characters that clients of HTTP remove from URLs, or read as a slash.
_AMBIGUOUS = re.compile(r"[\x00-\x20\x7f\\]")
# The same in a decoded path, where a space is a space.
_AMBIGUOUS_DECODED = re.compile(r"[\x00-\x1f\x7f\\]")


class AllowedSources:
    """The files, folders, wildcards and URLs that may be read. A folder allows what is below it.

    A URL that ends with a slash allows what is below it. A wildcard allows the paths that it matches, and only if a
    source is given as the same text. Raises UsageError if one of `named` is empty or ambiguous.
    """

    def __init__(self, named: Sequence[str]) -> None:
        self._named = tuple(named)
        if "" in self._named:
            # An unset variable of the shell would allow the current folder.
            raise UsageError("a source is empty", hint="Name a file, a folder or a URL; . is the current folder.")
        urls = [_normalize(each) for each in named if is_remote(each)]
        if None in urls:
            raise UsageError("a source is a URL that clients or servers may read as another", hint="Write it plainly.")
        self._urls = tuple(filter(None, urls))

    def resolve(self, source: str) -> str:
        """Return a source with its symbolic links and HTTP redirects followed. Each of them must be allowed too.

        All folders that the expansion of a wildcard reads must be allowed, so that no answer shows whether a file
        exists elsewhere. Raises UsageError if something is not allowed, and SourceError if an HTTP server does not
        answer.
        """
        if is_remote(source):
            self._check_url(source, source)
            return self._follow(source) if source.lower().startswith("http") else source
        roots = tuple(self._find_roots(source))
        folder, pattern = _split(local_path(source))
        _check_path(folder, roots, source)
        real = os.path.realpath(folder)
        searched = pattern or ("*" if os.path.isdir(real) else "")  # noqa: PTH112 (as in listing.py)
        for met in _meet(glob.escape(real), searched) if searched else ():
            _check_path(met, roots, source)
        return f"{glob.escape(real)}/{pattern}" if pattern else real

    def hold(self, found: SourceObject, source: str) -> SourceObject:
        """Return an object that was listed for `source`, with its real path.

        Raises UsageError if the object is not allowed, or is not a regular file.
        """
        if is_remote(found.location):
            # A store has no links, so a wildcard lists only what it matches.
            if source not in self._named or found.location.startswith(_WEB):
                self._check_url(found.location, source)
            return found
        _check_path(found.location, tuple(self._find_roots(source)), source)
        if found.version is None:
            raise UsageError(f'"{found.uri}" is a pipe or a device', hint="Name a regular file.")
        return replace(found, location=os.path.realpath(found.location))

    def _find_roots(self, source: str) -> Iterator[str]:
        """Yield the real paths of the files and folders that are allowed."""
        for named in self._named:
            folder, pattern = ("", "") if is_remote(named) else _split(local_path(named))
            if folder and (not pattern or named == source):
                yield os.path.realpath(folder)

    def _check_url(self, url: str, source: str) -> None:
        given = _normalize(url)
        if given is None or not any(
            given == each or (each.endswith("/") and given.startswith(each)) for each in self._urls
        ):
            raise _refusal(source)

    def _follow(self, url: str) -> str:
        """Return the URL to which the redirects of a URL lead. Raises UsageError, SourceError."""
        from penstock.loading.files.stores import split_userinfo  # noqa: PLC0415 (8 ms, obstore)

        check = self._check_url

        class Redirects(HTTPRedirectHandler):
            def redirect_request(self, *given: Any) -> Request | None:
                # The last argument is the URL to which the response leads.
                check(given[-1], url)
                return super().redirect_request(*given)

        plain, headers = split_userinfo(url.partition("#")[0])
        # urllib takes ASCII alone. Reading encodes a path in the same way.
        asked = quote(plain, safe=string.punctuation)
        request = Request(asked, headers={"Range": "bytes=0-0", "User-Agent": "penstock"})  # noqa: S310
        for name, value in headers.items():
            # A redirect may lead to another host, which the password is not for.
            request.add_unredirected_header(name, value)
        try:
            with build_opener(Redirects).open(request, timeout=_TIMEOUT_S) as response:
                final = response.geturl()
        except HTTPError as error:
            # The request that reads the object will fail too, and explain why.
            final = error.geturl()
            error.close()
        except (OSError, HTTPException, ValueError) as error:
            raise SourceError(f'could not read "{asked.partition("?")[0]}"', detail=f"{error}.") from None
        return url if final == asked else str(final)


def _check_path(path: str, roots: Sequence[str], source: str) -> None:
    try:
        real = os.path.realpath(path)
    except ValueError:
        # The path has a NUL character or half a surrogate pair.
        raise _refusal(source) from None
    if not any(real == root or real.startswith(f"{root.rstrip('/')}/") for root in roots):
        raise _refusal(source)


def _refusal(source: str) -> UsageError:
    return UsageError(
        f'"{source}" is none of the sources that penstock mcp may read',
        detail="It is outside them, a link or redirect leads out of them, or its URL may be read as another.",
        hint="The user names them when the server starts: penstock mcp SOURCE...",
    )


def _split(path: str) -> tuple[str, str]:
    """Return the folder in which a wildcard begins, and the wildcard; a path itself, and "".

    >>> _split("/srv/in/*/a?.csv"), _split("a.csv"), _split("*.csv")
    (('/srv/in', '*/a?.csv'), ('a.csv', ''), ('.', '*.csv'))
    """
    if not glob.has_magic(path) or os.path.lexists(path):
        return path or ".", ""
    parts = path.split("/")
    at = next(number for number, part in enumerate(parts) if glob.has_magic(part))
    folder = "/".join(parts[:at])
    return folder or ("/" if at else "."), "/".join(parts[at:])


def _meet(folder: str, pattern: str) -> Iterator[str]:
    """Yield the paths that the expansion of a pattern meets: the folders that it searches, and what it matches.

    What is below a path is met after the path, so that the caller can stop at a link that leads out.
    """
    parts = [folder, *pattern.split("/")]
    for at, part in enumerate(parts[1:], start=1):
        if part != "**":
            yield from sorted(expand("/".join(parts[: at + 1])))
            continue
        for root in expand("/".join(parts[:at])):
            for parent, folders, files in os.walk(root):
                folders[:] = [name for name in folders if not is_skipped(name)]
                yield from (f"{parent}/{name}" for name in (*folders, *(files if at == len(parts) - 1 else ())))


def _normalize(url: str) -> str | None:
    """Return a URL with scheme and host in lower case, None if clients or servers may read it as another.

    Keys of stores are compared as they are; paths of HTTP are decoded as often as they are encoded.

    >>> _normalize("HTTP://Host:80/a/B%20c.csv")
    'http://host/a/B%20c.csv'
    """
    scheme, _, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    scheme, names = scheme.lower(), path
    if scheme in _WEB:
        user, at, host = authority.rpartition("@")
        authority = user + at + host.lower().removesuffix(":80" if scheme == "http" else ":443")
        names = re.split(r"[?#]", path, maxsplit=1)[0]
        while (decoded := unquote(names)) != names:
            names = decoded
        if _AMBIGUOUS.search(url) or re.search(r"[?#]", authority) or _AMBIGUOUS_DECODED.search(names):
            return None
    if {name.partition(";")[0] for name in names.split("/")} & {".", ".."}:
        return None
    return f"{scheme}://{authority}{slash}{path}"
