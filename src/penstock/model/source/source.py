"""Values of the objects that sources consist of, and of how S3 buckets are reached."""

from __future__ import annotations

from typing import Literal

from penstock.frozen import frozen

# A half-open range [start, end) of an object's decompressed bytes, or of the rows of a columnar file.
Range = tuple[int, int]

Compression = Literal["none", "gzip", "zstd", "bzip2", "xz", "lz4"]


@frozen
class SourceObject:
    """One object as it was listed.

    `uri` is safe to show and store: it has no user, password or query string. `location` is what the file room opens (a
    path, a URL that may contain a signature, "-" for standard input) and must never be shown. `size_bytes` and
    `version` (an ETag, version id, time of modification with the size, or file_version; opaque) are None if they are
    not known, as for standard input. `is_spooled`: the object is a pipe that was copied to a temporary file.
    `has_ranges`: ranges of this version can be requested.
    """

    uri: str
    location: str
    size_bytes: int | None
    version: str | None
    is_spooled: bool = False
    has_ranges: bool = True

    @property
    def is_pipe(self) -> bool:
        """Whether the object comes from a pipe: other data may have been loaded under the same name before."""
        return self.is_spooled or (self.version is None and "://" not in self.location)

    def __repr__(self) -> str:
        return f"SourceObject({self.uri!r}, size_bytes={self.size_bytes})"


@frozen
class ObjectHead:
    """What a store answers to a HEAD request; a field is None if the store does not name it."""

    version: str | None
    size_bytes: int
    content_encoding: str | None


@frozen
class S3Route:
    """How a bucket is reached. `endpoint` is the configured URL, None for AWS's own endpoint of the region."""

    bucket: str
    region: str
    endpoint: str | None


@frozen
class ObjectSample:
    """The decompressed beginning of an object, which probing and planning read."""

    source: SourceObject
    compression: Compression
    # At most a few hundred KiB, in the encoding in which it is sent, without the byte-order mark.
    head: bytes
    # Whether `head` is the whole object.
    is_whole: bool
    # The encoding of the byte-order mark, None without a mark.
    bom: str | None = None
    # The delimiter that a line before `head` names (sep=;).
    separator: str | None = None
    # The line on which `head` begins, after the lines to skip and one that names the separator.
    first_line: int = 1
    # What the object's format has found out by itself, such as the footer of a columnar file, whose `head` is empty.
    # Only formats look into it.
    own: object = None

    @property
    def is_empty(self) -> bool:
        """Whether the object has neither text nor columns."""
        return not self.head and self.own is None
