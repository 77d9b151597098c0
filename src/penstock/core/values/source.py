"""The objects that sources consist of, their samples, how S3 buckets are reached, and files that are skipped.

Samples of columnar files (Parquet, Arrow IPC) list the columns, each with its PostgreSQL type.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Literal
from urllib.parse import urlsplit

from penstock.core.slotted import slotted
from penstock.core.values.notice import Notice

# A half-open range [start, end) of an object's decompressed bytes, or of the rows of a columnar file.
Range = tuple[int, int]

Compression = Literal["none", "gzip", "zstd", "bzip2", "xz", "lz4"]


# What stands in a recorded URL for the part that the ledger does not have.
HIDDEN = "?***"

# The parameters by which a query signs a URL, and selects nothing: of S3, GCS, Azure, OSS, COS, Swift, CDNs and nginx.
_SIGNATURE = re.compile(
    r"(?:^|&)(?:[\w-]*signature|(?:temp_url_)?sig|hdnt[sl]|md5(?=.*&expires=))=",
    re.IGNORECASE,
)
# The parameters by which a query only grants access, and those that may go with them. Others beside them may select.
_ACCESS = re.compile(r"(?:^|&)(?:(?:access_|private_)?token|api[_-]?key)=[^&]*", re.IGNORECASE)
_OF_ACCESS = re.compile(r"(?:^|&)(?:token_path|expires?)=[^&]*", re.IGNORECASE)


def safe_url(url: str) -> str:
    """Return an HTTP URL without user, password, query string and fragment, which may contain secrets."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def is_http(source: str) -> bool:
    """Return whether a source is an HTTP URL that can be read as one."""
    if not source.lower().startswith(("http://", "https://")):
        return False
    try:
        urlsplit(source)
    except ValueError:
        return False
    return True


def hides_part(source: str) -> bool:
    """Return whether a source is an HTTP URL that the ledger has without its query, its user or its password.

    >>> hides_part("https://host/a.csv?day=1"), hides_part("https://host/pkg@1/a.csv"), hides_part("s3://bucket/?")
    (True, False, False)
    """
    return is_http(source) and (bool(urlsplit(source).query) or "@" in urlsplit(source).netloc)


def is_hidden(recorded: str) -> bool:
    """Return whether the ledger has this source only in part."""
    return is_http(recorded) and recorded.endswith(HIDDEN)


def selecting_part(source: str) -> str:
    """Return the part of an HTTP URL's query that may select an object, empty if the query only signs the URL.

    >>> selecting_part("https://host/a?day=1&token=x&expires=9"), selecting_part("https://host/a?expires=9")
    ('day=1', 'expires=9')
    >>> selecting_part("https://host/a?se=2026&sig=x")
    ''
    """
    query = urlsplit(source).query if is_http(source) and not is_signed(source) else ""
    rest, is_granting = _ACCESS.subn("", query)
    return (_OF_ACCESS.sub("", rest) if is_granting else rest).lstrip("&")


def is_signed(source: str) -> bool:
    """Return whether a source is an HTTP URL whose query signs it, and is a secret."""
    return is_http(source) and _SIGNATURE.search(urlsplit(source).query) is not None


@slotted
class SourceObject:
    """One object of a source, such as a file, as it was listed: its URI, size and version."""

    # The name of the object. It is safe to show and store: it has no user, password or query string.
    uri: str
    # What loading/files opens: a path, a URL that may contain a signature, or "-" for standard input. It must never be
    # shown.
    location: str
    # The size, None if it is not known, as for standard input.
    size_bytes: int | None
    # A text that changes with the content: an ETag, a version id, the time of modification with the size, or the result
    # of file_version. None if it is not known.
    version: str | None
    # Whether the object is a pipe that was copied to a temporary file.
    is_spooled: bool = False
    # Whether ranges of this version can be requested.
    has_ranges: bool = True

    @property
    def is_pipe(self) -> bool:
        """Return whether the object is a pipe. Other data may have been loaded under a pipe's name before."""
        return self.is_spooled or (self.version is None and "://" not in self.location)

    def __repr__(self) -> str:
        return f"SourceObject({self.uri!r}, size_bytes={self.size_bytes})"


@slotted
class ObjectHead:
    """A store's answer to a HEAD request. A field is None if the answer does not contain it."""

    version: str | None
    size_bytes: int
    content_encoding: str | None


@slotted
class S3Bucket:
    """How a bucket is reached. `endpoint` is the configured URL, None for AWS's own endpoint of the region."""

    bucket: str
    region: str
    endpoint: str | None


@slotted
class ObjectSample:
    """The decompressed beginning of an object. From it the dialect is guessed and the load is planned."""

    source: SourceObject
    compression: Compression
    # The beginning, at most a few hundred KiB, without a byte-order mark. It is in the encoding in which it is sent to
    # the server.
    head: bytes
    # Whether `head` is the whole object.
    is_whole: bool
    # The encoding of the byte-order mark, None without a mark.
    bom: str | None = None
    # The delimiter that a line before `head` names (sep=;).
    separator: str | None = None
    # The line on which `head` begins, after the skipped lines and a line that names the separator.
    first_line: int = 1
    # The name of the object's format (loading/formats) if it is not text; `head` is then empty. None for text.
    format: str | None = None
    # A value of that format, such as the footer of a columnar file. Only formats read it.
    own: object = None

    @property
    def is_empty(self) -> bool:
        """Return whether the object is text without a character."""
        return not self.head and self.format is None


OnNotice = Callable[[Notice], None]

# How the names of skipped files begin or end. The beginnings are those of Hadoop's FileInputFormat (_SUCCESS,
# _temporary, ._COPYING_); the endings are those of incomplete files and of checksums.
_BEGINNINGS = (".", "_")
_ENDINGS = (".tmp", ".part", ".crc")


def is_skipped(name: str) -> bool:
    """Return whether a file or folder of this name is skipped, unless the user names it as a source.

    >>> [is_skipped(name) for name in ("_SUCCESS", ".a.csv.crc", "b.csv.part", "part-0.csv")]
    [True, True, True, False]
    """
    return name.startswith(_BEGINNINGS) or name.endswith(_ENDINGS)


def note_skipped_files(names: Sequence[str], on_notice: OnNotice) -> None:
    """Report the first of the skipped files and how many others there are. Hidden files are not reported."""
    shown = [name for name in names if not name.rpartition("/")[2].startswith(".")]
    if shown:
        more = f" (and {len(shown) - 1} more like it)" if len(shown) > 1 else ""
        message = f'file "{shown[0]}" is skipped by its name{more}'
        on_notice(Notice(code="file-skipped", message=message, uri=shown[0], hint="To load it, name it."))


def note_empty(folder: str) -> Notice:
    """Return the notice that a folder has no files to load."""
    return Notice(code="folder-empty", message=f"{folder} holds no files to load")


ColumnarFormat = Literal["parquet", "arrow"]

# The names of the formats and of their parts in messages.
FORMAT_NAMES: dict[ColumnarFormat, str] = {"parquet": "Parquet", "arrow": "Arrow"}


@slotted
class ColumnarField:
    """One column of a columnar file."""

    name: str
    # The type's name in Arrow.
    type_name: str
    # The type of a table's column that is created for this column, None if penstock cannot load values of this type.
    sql_type: str | None
    # Whether the file does not say if the values are texts or bytes.
    is_untold: bool
    # The expected length of a value as COPY text, 0 in a file without rows.
    value_bytes: float


@slotted
class ColumnarSample:
    """The columns and the size of a columnar file, from its footer."""

    format: ColumnarFormat
    fields: tuple[ColumnarField, ...]
    rows: int
    # The number of row groups (Parquet) or record batches (Arrow).
    parts: int

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the columns, in the file's order."""
        return tuple(field.name for field in self.fields)
