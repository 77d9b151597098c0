"""SourceReader lists, samples and opens the sources of a load as streams of decompressed bytes.

The other modules of this folder read, decompress and decode the bytes. The formats, which the constructor is given,
recognize and read them.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Final, Protocol, Self, TypeVar

from penstock.core.errors import SourceError, naming_file
from penstock.core.units import KIB, MIB, count_nouns
from penstock.core.values.dialect import DialectOptions
from penstock.core.values.job import MAX_RECORD_BYTES
from penstock.core.values.notice import Notice
from penstock.core.values.source import (
    FORMAT_NAMES,
    ColumnarFormat,
    Compression,
    ObjectHead,
    ObjectSample,
    SourceObject,
)
from penstock.core.words import hide_secrets
from penstock.loading.files.columnar.reader import ColumnarFile, RangedFile, RangedObject
from penstock.loading.files.compression import decompress
from penstock.loading.files.encodings import detect_bom, is_ascii_safe, resolve_encoding, transcode
from penstock.loading.files.listing import is_remote, lasting_name, list_objects
from penstock.loading.files.local import LocalObject, Spool, refuse_remote
from penstock.loading.files.parallel import map_at_once
from penstock.loading.files.signatures import SIGNATURE_BYTES, check_is_not_compressed, check_is_text, sniff

if TYPE_CHECKING:
    from penstock.loading.files.allowed import AllowedSources
    from penstock.loading.files.stores import CredentialSource, Stores

# The most bytes that the lines to skip may have. They are held in memory until the last of them is found.
_SKIPPED_BYTES: Final = 16 * MIB
_SEPARATOR: Final = re.compile(rb"sep=([,;|\t:])(?:\r\n|\n|\r)", re.IGNORECASE)
_SEPARATOR_BYTES: Final = len(b"sep=;\r\n")


def skip_beginning(
    text: Iterator[bytes], options: DialectOptions, *, uri: str
) -> tuple[Iterator[bytes], str | None, int]:
    """Remove the lines to skip, and a following line such as sep=; if the options allow it.

    Return the remaining text, the separator that the sep= line names (None without such a line), and the number of
    removed lines. Raises SourceError if the lines to skip do not end.
    """
    if lines := options.skip_lines:
        text = _skip_lines(text, lines, uri=uri)
    if not options.may_name_separator:
        return text, None, lines
    head = take(text, _SEPARATOR_BYTES)
    if (named := _SEPARATOR.match(head)) is None:
        return chain((head,), text) if head else text, None, lines
    rest = head[named.end() :]
    return chain((rest,), text) if rest else text, named[1].decode(), lines + 1


def _skip_lines(text: Iterator[bytes], lines: int, *, uri: str) -> Iterator[bytes]:
    taken = bytearray()
    for piece in text:
        taken += piece
        # A carriage return at the end may be the first half of a CRLF line end.
        ends = list(islice(re.finditer(rb"\r\n|\n|\r(?!\Z)", taken), lines))
        if len(ends) == lines:
            return chain((bytes(taken[ends[-1].end() :]),), text)
        if len(taken) > _SKIPPED_BYTES:
            raise SourceError(
                "the lines to skip do not end",
                detail=f"{uri}: {count_nouns(lines, 'line')}.",
                hint="Check --skip-lines.",
            )
    # The last line of the file may have no line end.
    if taken and (found := len(taken.splitlines())) < lines:
        raise SourceError(
            "file has fewer lines than are to be skipped",
            detail=f"{uri}: {found} of {count_nouns(lines, 'line')}.",
            hint="Check --skip-lines.",
        )
    return iter(())


def take(pieces: Iterator[bytes], least_bytes: int) -> bytes:
    """Take pieces until they have at least `least_bytes` or none is left, and return them joined."""
    head = b""
    while len(head) < least_bytes and (piece := next(pieces, None)) is not None:
        head += piece
    return head


# How many bytes a sample has: some thousand records, which are enough to find out the dialect and are read in a few ms.
SAMPLE_BYTES = 256 * KIB

# How many bytes of each object after the first are read to find out its form, and how many remote objects are read at
# once, because a round trip takes 20 to 200 ms.
_LOOK_BYTES = 32 * KIB
_LOOKS = 16

# The most bytes of remote objects that are kept because a sample has read the whole object. The load then does not
# fetch them again.
_KEPT_BYTES = 64 * MIB

_NO_OPTIONS = DialectOptions()

_Read = TypeVar("_Read")


class SourceFormat(Protocol):
    """What a SourceReader asks of a format (Format in loading/formats/format.py)."""

    name: str
    is_binary: bool

    def recognize(self, head: bytes, options: DialectOptions, *, is_whole: bool) -> bool:
        """Return whether an object is of this format. `head` are its first bytes after decompression.

        `is_whole` says whether they are all of its bytes.
        """

    def is_cut(self, head: bytes) -> bool:
        """Return whether a sample that ends after `head` must be extended to the end of its first line."""

    def read_own(self, sample: ObjectSample, options: DialectOptions, sources: SourceReader) -> object:
        """Return what the format needs to know of an object of a binary format (ObjectSample.own)."""


class StoredObject(Protocol):
    """An opened object that yields its bytes as they are stored, which means not decompressed."""

    def pieces(self) -> Iterator[bytes]:
        """Yield the stored bytes in order, once."""

    def close(self) -> None:
        """Close the file or the connections."""


class ObjectStream:
    """One object's text: decompressed, without byte-order mark, and in UTF-8 if its encoding is not ASCII-safe.

    Iterating yields `bytes` of at most OUTPUT_PIECE_BYTES, and raises SourceError. The lines to skip, and a first line
    such as sep=; are not part of the text. If one of the formats in `binary` recognizes the object, its bytes are
    decompressed and not changed otherwise.
    """

    compression: Compression
    # The format of an object that is not text, None for text.
    format: SourceFormat | None
    bom: str | None
    # The delimiter that a first line such as sep=; names, None without such a line.
    separator: str | None
    # The line of the file on which the text begins.
    first_line: int
    # The encoding of --encoding or of the byte-order mark, None without both.
    encoding: str | None
    # How many stored bytes were read so far. Any thread may read this attribute.
    bytes_read: int

    def __init__(
        self,
        source: SourceObject,
        stored: StoredObject,
        options: DialectOptions,
        *,
        binary: Sequence[SourceFormat] = (),
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.source = source
        self.bytes_read = 0
        self.bom = self.separator = self.encoding = None
        self.first_line = 1
        # reading_s: the seconds of waiting for the source's bytes. text_s: the seconds of making text, including
        # reading_s.
        self.reading_s = self.text_s = 0.0
        self._clock = clock
        self._stored = stored
        try:
            head, pieces = self._begin()
            is_whole = len(head) < SIGNATURE_BYTES
            self.format = next((each for each in binary if each.recognize(head, options, is_whole=is_whole)), None)
            self._pieces = self._decode(head, pieces, options) if self.format is None else chain((head,), pieces)
        except BaseException:
            self.close()
            raise

    def __iter__(self) -> Iterator[bytes]:
        with naming_file(self.source.uri):
            began_s = self._clock()
            for piece in self._pieces:
                self.text_s += self._clock() - began_s
                yield piece
                began_s = self._clock()
            self.text_s += self._clock() - began_s

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file or the connections. This may be called more than once."""
        self._stored.close()

    def _begin(self) -> tuple[bytes, Iterator[bytes]]:
        """Find out the compression, and return the first decompressed bytes and the pieces that follow them."""
        pieces = self._count()
        head = take(pieces, SIGNATURE_BYTES)
        self.compression = sniff(head)
        pieces = decompress(chain((head,), pieces), compression=self.compression, uri=self.source.uri)
        return take(pieces, SIGNATURE_BYTES), pieces

    def _decode(self, head: bytes, text: Iterator[bytes], options: DialectOptions) -> Iterator[bytes]:
        """Find out the encoding by the first bytes, and return the pieces of the text."""
        uri = self.source.uri
        check_is_text(head, uri=uri)
        if self.compression != "none":
            check_is_not_compressed(head, uri=uri, outer=self.compression)
        self.bom, mark_bytes = detect_bom(head) or (None, 0)
        self.encoding = resolve_encoding(stated=options.encoding, bom=self.bom, uri=uri)
        if len(head) > mark_bytes:
            text = chain((head[mark_bytes:],), text)
        if self.encoding is not None and not is_ascii_safe(self.encoding):
            text = transcode(text, encoding=self.encoding, uri=uri, offset=mark_bytes)
        text, self.separator, skipped = skip_beginning(text, options, uri=uri)
        self.first_line += skipped
        return text

    def _count(self) -> Iterator[bytes]:
        began_s = self._clock()
        for piece in self._stored.pieces():
            self.reading_s += self._clock() - began_s
            self.bytes_read += len(piece)
            yield piece
            began_s = self._clock()
        self.reading_s += self._clock() - began_s


class SourceReader:
    """Lists, samples and opens sources.

    Keeps connections, and what samples have read of pipes and small remote objects. `formats` are the formats that it
    recognizes. If `spools` is true, pipes are copied to temporary files when they are listed. If `is_for_others` is
    true, another user chose the sources: then no URL is read, and a local file only if every user may read it. If
    `allowed` is given, nothing else is read. `credentials` provides the access to S3; without it, obstore finds
    credentials itself. `jitter` returns a random number in [0, 1) that spreads retries. `max_record_bytes` limits how
    far a sample is extended to the end of its first line. If `skips_unreadable` is true, samples of several objects
    leave out the objects that cannot be read.
    """

    def __init__(
        self,
        *,
        formats: Sequence[SourceFormat] = (),
        credentials: CredentialSource | None = None,
        spools: bool = False,
        is_for_others: bool = False,
        allowed: AllowedSources | None = None,
        max_record_bytes: int = MAX_RECORD_BYTES,
        skips_unreadable: bool = False,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._formats = formats
        self._credentials = credentials
        self._jitter = jitter
        self._stores: Stores | None = None
        self._pipes: dict[str, _Pipe] = {}
        self._kept: dict[SourceObject, list[bytes]] = {}
        self._kept_bytes = 0
        self._spools = spools
        self._is_for_others = is_for_others
        self._allowed = allowed
        self._max_record_bytes = max_record_bytes
        self.skips_unreadable = skips_unreadable
        self._spool: Spool | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def list(
        self,
        sources: Sequence[str],
        *,
        on_notice: Callable[[Notice], None] = lambda _: None,
        on_failed: Callable[[str, SourceError], None] | None = None,
    ) -> tuple[SourceObject, ...]:
        """Return the objects of all sources, each once, in the order of the sources and then by name.

        `on_notice` is called for what `list_objects` leaves out. If `skips_unreadable` is true, `on_failed` is called
        with the lasting name of each source that cannot be listed and with the error. Otherwise raises SourceError, as
        it does if a source matches nothing. Raises UsageError if a source is not allowed.
        """
        if self._is_for_others:
            refuse_remote(sources)
        if self._allowed is not None:
            return self._list_allowed(self._allowed, sources, on_notice)
        if on_failed is not None and self.skips_unreadable:
            sources = self._find_listable(sources, on_failed)
        objects = list_objects(sources, stores=self._connect, on_notice=on_notice) if sources else ()
        if not self._spools:
            return objects
        if self._spool is None:
            self._spool = Spool()
        return tuple(
            self._spool.copy(source) if source.version is None and not is_remote(source.location) else source
            for source in objects
        )

    def _list_allowed(
        self, allowed: AllowedSources, sources: Sequence[str], on_notice: Callable[[Notice], None]
    ) -> tuple[SourceObject, ...]:
        return tuple(
            allowed.hold(each, source)
            for source in sources
            for each in list_objects([allowed.resolve(source)], stores=self._connect, on_notice=on_notice)
        )

    def _find_listable(self, sources: Sequence[str], on_failed: Callable[[str, SourceError], None]) -> Sequence[str]:
        """Return the sources that can be listed. They are listed one by one only if listing all together fails."""

        def look(names: Sequence[str]) -> SourceError | None:
            try:
                list_objects(names, stores=self._connect, on_notice=lambda _: None)
            except SourceError as error:
                if not error.is_unreadable:
                    raise
                return error
            return None

        if look(sources) is None:
            return sources
        errors = {source: look([source]) for source in sources}
        for source, error in errors.items():
            if error is not None:
                on_failed(hide_secrets(lasting_name(source)), error)
        return [source for source in sources if errors[source] is None]

    def sample(
        self,
        source: SourceObject,
        options: DialectOptions = _NO_OPTIONS,
        *,
        limit_bytes: int = SAMPLE_BYTES,
    ) -> ObjectSample:
        """Return the beginning of an object: its text up to `limit_bytes`, and what was recognized.

        Little more than that is read. If a format needs the whole first line, the sample is extended to the end of that
        line, but not beyond `max_record_bytes`. Raises SourceError.
        """
        with self._open(source, options, is_sample=True) as stream:
            found = stream.format
            head, is_whole = self._read_head(
                iter(stream), limit_bytes=limit_bytes if found is None else SIGNATURE_BYTES
            )
        sample = ObjectSample(
            source=source,
            compression=stream.compression,
            head=head,
            is_whole=is_whole,
            bom=stream.bom,
            separator=stream.separator,
            first_line=stream.first_line,
            format=None if found is None else found.name,
        )
        if found is None:
            return sample
        return replace(sample, head=b"", is_whole=False, own=found.read_own(sample, options, self))

    def sample_all(
        self, sources: Sequence[SourceObject], options: DialectOptions = _NO_OPTIONS
    ) -> Iterator[ObjectSample]:
        """Yield the beginnings of objects in their order, 32 KiB of each. Several remote objects are read at once.

        Raises SourceError. If `skips_unreadable` is true, objects that cannot be read are left out instead.
        """

        def look(source: SourceObject) -> ObjectSample | None:
            return self.try_to(lambda: self.sample(source, options, limit_bytes=_LOOK_BYTES))

        found: Iterator[ObjectSample | None] = map(look, sources)
        if any(is_remote(source.location) for source in sources):
            # Create the stores before the threads use them.
            self._connect()
            found = map_at_once(look, sources, threads=_LOOKS)
        yield from (sample for sample in found if sample is not None)

    def try_to(self, read: Callable[[], _Read]) -> _Read | None:
        """Return the result of `read`, or None if it raises SourceError and `skips_unreadable` is true.

        A SourceError that is transient, or about credentials, is raised in any case.
        """
        try:
            return read()
        except SourceError as error:
            if not self.skips_unreadable or not error.is_unreadable:
                raise
            return None

    def look_all(self, sources: Sequence[SourceObject]) -> Iterator[ObjectHead]:
        """Yield the present size, version and Content-Encoding of remote objects, in their order.

        Several HEAD requests are sent at once. Raises SourceError.
        """
        from penstock.loading.files.remote import look_at  # noqa: PLC0415 (8 ms, obstore)

        stores = self._connect()
        yield from map_at_once(lambda source: look_at(source.location, stores), sources, threads=_LOOKS)

    def look(self, source: SourceObject) -> ObjectHead:
        """Return the present size, version and Content-Encoding of a remote object, by a HEAD request.

        Raises SourceError.
        """
        (head,) = self.look_all([source])
        return head

    def open(
        self, source: SourceObject, options: DialectOptions = _NO_OPTIONS, *, format_name: str | None = None
    ) -> ObjectStream:
        """Return an object as a stream of text or, if `format_name` names a binary format, of decompressed bytes.

        A pipe can be sampled several times and then opened once. Raises SourceError if the object has another format.
        """
        stream = self._open(source, options, is_sample=False)
        found = None if stream.format is None else stream.format.name
        if found != format_name:
            stream.close()
            raise SourceError(f'"{source.uri}" has format {found or "text"}, not {format_name or "text"}')
        return stream

    def stat(self, uri: str) -> tuple[SourceObject, str | None]:
        """Return the object of S3 whose key is exactly that in `uri`, and its Content-Encoding. Raises SourceError.

        Wildcards are not expanded.
        """
        from penstock.loading.files.remote import stat_key  # noqa: PLC0415 (10 ms, obstore)

        return stat_key(uri, self._connect())

    def read_bytes(self, source: SourceObject, *, decompresses: bool = True) -> Iterator[bytes]:
        """Yield an object's bytes. If `decompresses` is true, a compressed object is decompressed.

        Raises SourceError, also at the end of an object that is truncated.
        """
        with naming_file(source.uri):
            stored = self._open_stored(source, is_sample=False)
            try:
                pieces = stored.pieces()
                head = take(pieces, SIGNATURE_BYTES)
                yield from decompress(
                    chain((head,), pieces), compression=sniff(head) if decompresses else "none", uri=source.uri
                )
            finally:
                stored.close()

    def open_columnar(self, source: SourceObject, file_format: ColumnarFormat) -> tuple[RangedFile, ColumnarFile]:
        """Open a columnar object.

        Return its file, which the caller closes, and a reader of the file. Raises SourceError.
        """
        with naming_file(source.uri):
            if source.version is None and not is_remote(source.location):
                raise SourceError(
                    f'"{source.uri}" is a pipe, and {FORMAT_NAMES[file_format]} is read by ranges',
                    hint="Use --spool, which copies it to a temporary file.",
                )
            file = RangedFile(self._open_ranged(source), size_bytes=source.size_bytes or 0)
            try:
                return file, ColumnarFile(file, file_format, uri=source.uri)
            except BaseException:
                file.close()
                raise

    def _open_ranged(self, source: SourceObject) -> RangedObject:
        if not is_remote(source.location):
            return self._open_local(source)
        from penstock.loading.files.remote import RemoteObject  # noqa: PLC0415 (10 ms, obstore)

        store, path = self._connect().find(source.location)
        return RemoteObject(source, store, path, jitter=self._jitter)

    def interrupt(self) -> None:
        """Make present and later reads of pipes raise SourceError. Any thread may call this."""
        for pipe in self._pipes.values():
            pipe.interrupt()

    def close(self) -> None:
        """Close the pipes that were sampled but not opened, close the connections, and remove copies of pipes."""
        for pipe in self._pipes.values():
            pipe.abandon()
        self._pipes.clear()
        self._kept.clear()
        self._stores = None
        if self._spool is not None:
            self._spool.close()

    def _open(self, source: SourceObject, options: DialectOptions, *, is_sample: bool) -> ObjectStream:
        with naming_file(source.uri):
            stored = self._open_stored(source, is_sample=is_sample)
            return ObjectStream(source, stored, options, binary=[each for each in self._formats if each.is_binary])

    def _read_head(self, pieces: Iterator[bytes], *, limit_bytes: int) -> tuple[bytes, bool]:
        """Return the beginning of an object as `sample` does, and whether it is the whole object."""
        head = take(pieces, limit_bytes + 1)
        if len(head) <= limit_bytes:
            return head, True
        if not any(each.is_cut(head[:limit_bytes]) for each in self._formats):
            return head[:limit_bytes], False
        parts, length_bytes = [head[:limit_bytes], head[limit_bytes:]], len(head)
        while b"\n" not in parts[-1] and length_bytes <= self._max_record_bytes:
            if (piece := next(pieces, None)) is None:
                return b"".join(parts), True
            parts.append(piece)
            length_bytes += len(piece)
        return b"".join(parts), False

    def _open_stored(self, source: SourceObject, *, is_sample: bool) -> StoredObject:
        if is_remote(source.location):
            return self._open_remote(source, is_sample=is_sample)
        if source.version is not None or self._is_for_others:
            return self._open_local(source)
        if source.location not in self._pipes:
            self._pipes[source.location] = _Pipe(source)
        pipe = self._pipes[source.location]
        return pipe.sample() if is_sample else pipe.open()

    def _open_local(self, source: SourceObject) -> LocalObject:
        return LocalObject(source, is_for_others=self._is_for_others, follows_links=self._allowed is None)

    def _open_remote(self, source: SourceObject, *, is_sample: bool) -> StoredObject:
        from penstock.loading.files.remote import RemoteObject  # noqa: PLC0415 (10 ms, obstore)

        kept = self._kept.get(source) if is_sample else self._kept.pop(source, None)
        if kept is None:
            store, path = self._connect().find(source.location)
            stored = RemoteObject(source, store, path, is_sample=is_sample, jitter=self._jitter)
            if not is_sample or not stored.is_short or self._kept_bytes >= _KEPT_BYTES:
                return stored
            kept = self._kept[source] = list(stored.pieces())
            self._kept_bytes += sum(map(len, kept))
        return _PipeReader(iter(kept), close=lambda: None)

    def _connect(self) -> Stores:
        if self._stores is None:
            from penstock.loading.files.stores import Stores  # noqa: PLC0415 (8 ms, obstore)

            self._stores = Stores(self._credentials)
        return self._stores


class _Pipe:
    """A pipe or standard input. Keeps the bytes that samples have read, so that the stream can begin with them."""

    def __init__(self, source: SourceObject) -> None:
        self._source = source
        self._stored = LocalObject(source)
        self._rest = self._stored.pieces()
        self._taken: list[bytes] = []
        self._is_open = False

    def sample(self) -> StoredObject:
        """Return an object that reads the pipe's beginning."""
        self._check_unopened()
        return _PipeReader(self._look(), close=lambda: None)

    def open(self) -> StoredObject:
        """Return an object that reads the pipe from its beginning to its end."""
        self._check_unopened()
        self._is_open = True
        taken, self._taken = self._taken, []
        return _PipeReader(chain(taken, self._rest), close=self._stored.close)

    def interrupt(self) -> None:
        """Make a wait for the pipe's bytes raise SourceError."""
        self._stored.interrupt()

    def abandon(self) -> None:
        """Close the pipe unless a stream reads it, because the stream closes it."""
        if not self._is_open:
            self._stored.close()

    def _look(self) -> Iterator[bytes]:
        yield from self._taken.copy()
        # "yield from" is not used, because it would close the pipe's generator together with this one.
        for piece in self._rest:
            self._taken.append(piece)
            yield piece

    def _check_unopened(self) -> None:
        if self._is_open:
            raise SourceError(f'"{self._source.uri}" can be read only once')


class _PipeReader:
    def __init__(self, pieces: Iterator[bytes], *, close: Callable[[], None]) -> None:
        self._pieces = pieces
        self.close = close

    def pieces(self) -> Iterator[bytes]:
        """Return the pieces."""
        return self._pieces
