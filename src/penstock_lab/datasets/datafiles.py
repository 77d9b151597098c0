"""Writes generated tables to gzip files, draws reproducible numbers, generates sysbench's tables, and uploads to S3."""

from __future__ import annotations

import gzip
import logging
import random
import sys
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Final, TypeVar

import obstore
from isal import isal_zlib

from penstock.core.aws.credentials import AwsCredentials
from penstock.core.errors import LabError, UsageError
from penstock.core.newfile import NewFile
from penstock.core.slotted import slotted
from penstock.loading.files.stores import STORE_ERRORS, CredentialSource, Stores, describe_failure

_log = logging.getLogger(__name__)

# igzip's compression level. Compression takes half the time of igzip's best level, and the files are 2 % larger.
_COMPRESS_LEVEL = 2
# The format and window of a file: a gzip member with a window of 32 KiB. igzip writes neither a name nor a time into
# the header, so the same seed gives the same bytes.
_GZIP_WBITS = 31
_READ_BYTES = 1024 * 1024


@slotted
class DataFile:
    """A gzip file with the rows of one table."""

    table: str
    path: Path
    # The number of rows of the file, without the header.
    rows: int
    # The size before compression.
    plain_bytes: int
    # The size after compression.
    size_bytes: int


@slotted
class TableProgress:
    """How much of a table's file is written."""

    table: str
    # How many rows were written so far.
    rows: int
    expected_rows: int


def make_folder(out_dir: Path) -> None:
    """Create the directory for the files, and its parents, if they do not exist. Raises LabError."""
    try:
        out_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _could_not_write(out_dir, error) from error


def write_table(
    out_dir: Path,
    table: str,
    columns: Sequence[str],
    batches: Iterable[Sequence[str]],
    *,
    expected_rows: int,
    on_progress: Callable[[TableProgress], None] | None = None,
) -> DataFile:
    """Write the file TABLE.tsv.gz, a header with the columns and then the lines of all batches, and return it.

    No file remains after an error. Raises LabError.
    """
    path = out_dir / f"{table}.tsv.gz"
    rows = 0
    try:
        with NewFile(path, mode=0o666) as raw:
            compressor = isal_zlib.compressobj(_COMPRESS_LEVEL, isal_zlib.DEFLATED, _GZIP_WBITS)
            header = "\t".join(columns).encode() + b"\n"
            raw.write(compressor.compress(header))
            plain_bytes = len(header)
            for lines in batches:
                payload = "".join(lines).encode()
                raw.write(compressor.compress(payload))
                plain_bytes += len(payload)
                rows += len(lines)
                if on_progress:
                    on_progress(TableProgress(table=table, rows=rows, expected_rows=expected_rows))
            raw.write(compressor.flush())
            size_bytes = raw.tell()
            raw.finish()
    except OSError as error:
        raise _could_not_write(out_dir, error) from error
    _log.info("wrote %s: %s rows", path, rows)
    return DataFile(table=table, path=path, rows=rows, plain_bytes=plain_bytes, size_bytes=size_bytes)


def measure_file(path: Path, table: str) -> DataFile:
    """Return the gzip file of a table with its number of rows, which are counted without the header.

    Raises LabError.
    """
    rows, plain_bytes = -1, 0
    try:
        with gzip.open(path, "rb") as file:
            while block := file.read(_READ_BYTES):
                rows += block.count(b"\n")
                plain_bytes += len(block)
        size_bytes = path.stat().st_size
    except (OSError, EOFError, zlib.error) as error:
        raise LabError(
            f'could not read "{path}": {getattr(error, "strerror", None) or error}',
            hint="Download IMDb's seven files from datasets.imdbws.com, and name their directory.",
        ) from error
    return DataFile(table=table, path=path, rows=rows, plain_bytes=plain_bytes, size_bytes=size_bytes)


def _could_not_write(out_dir: Path, error: OSError) -> LabError:
    return LabError(
        f'could not write to "{out_dir}": {error.strerror}',
        hint="Give a directory that can be written to and has enough space.",
    )


T = TypeVar("T")

# The size of a pool: as many entries as a draw of 16 bits has values, so that a draw is an index into the pool.
POOL_SIZE: Final = 1 << 16
# How many titles a batch has. They have about 1 MB of principals, so a write is large enough and memory stays small.
BATCH_TITLES: Final = 2048


class Draws:
    """Pseudo-random numbers for one table. The same `seed` and `name` give the same numbers, whatever others draw."""

    def __init__(self, seed: int, name: str) -> None:
        self.random = random.Random(f"{seed}/{name}")

    def picks(self, count: int) -> array[int]:
        """Return `count` uniform random integers from 0 to POOL_SIZE - 1, which are indexes into a pool."""
        return self._words("H", count)

    def floats(self, count: int) -> list[float]:
        """Return `count` uniform random numbers from 0 up to, but not including, 1."""
        return [word / 2**32 for word in self._words("I", count)]

    def skewed(self, count: int, limit: int) -> list[int]:
        """Return `count` random integers from 1 to `limit`.

        The probability of n is about proportional to n ** (-2 / 3).
        """
        return [1 + (word * word * word * limit >> 96) for word in self._words("I", count)]

    def pool(self, weights: Mapping[T, float]) -> list[T]:
        """Return POOL_SIZE values, in which each value occurs in proportion to its weight."""
        return self.random.choices(list(weights), list(weights.values()), k=POOL_SIZE)

    def _words(self, typecode: str, count: int) -> array[int]:
        words = array(typecode)
        words.frombytes(self.random.randbytes(count * words.itemsize))
        if sys.byteorder == "big":
            words.byteswap()
        return words


def batched_groups(sizes: Sequence[int], *, titles: int, rows: int) -> Iterator[tuple[int, list[int]]]:
    """Yield groups of titles: the number of a group's first title, and the row count of each title of the group.

    The counts are `sizes`, repeated until their sum is `rows`. Later titles have no rows. If the titles end before
    that, the last title gets the remaining rows.
    """
    left = rows
    for first in range(0, titles, BATCH_TITLES):
        until = min(first + BATCH_TITLES, titles)
        batch = [sizes[title % len(sizes)] for title in range(first, until)]
        if sum(batch) >= left or until == titles:
            yield first + 1, _fit(batch, left)
            return
        left -= sum(batch)
        yield first + 1, batch


def _fit(sizes: list[int], total: int) -> list[int]:
    """Return `sizes` with the sum `total`: the sizes at the end are reduced, or the last one is increased."""
    fitted = []
    left = total
    for size in sizes:
        fitted.append(min(size, left))
        left -= fitted[-1]
    fitted[-1] += left
    return fitted


COLUMNS = ("id", "k", "c", "pad")
TABLES = ("sbtest1", "sbtest2", "sbtest3")

# The statement that creates a table. It is sysbench's statement without the primary key, which is built after the rows
# are loaded. Source: oltp_common.lua of sysbench 1.0, create_table.
CREATE = (
    "CREATE TABLE {table} (id integer NOT NULL, k integer DEFAULT 0 NOT NULL, c char(120) DEFAULT '' NOT NULL,"
    " pad char(60) DEFAULT '' NOT NULL)"
)

# The distribution of k: three quarters of all values are in the middle hundredth of the range. Each of the other values
# is the mean of twelve uniform draws.
#
# Source: sysbench 1.0.20, sb_rand_special and the defaults in src/sb_rand.c: --rand-type=special --rand-spec-iter=12
# --rand-spec-pct=1 --rand-spec-res=75. A later README.md of sysbench describes them under "Random Numbers Options".
_SPECIAL_ITERATIONS, _SPECIAL_SHARE, _SPECIAL_RESERVED = 12, 0.01, 0.75

_MOST_ROWS = 2_147_483_647
_BATCH_ROWS = 4096
_C_GROUPS, _PAD_GROUPS = 10, 5
_GROUPS = _C_GROUPS + _PAD_GROUPS


def write_sysbench(
    out_dir: Path, *, rows: int, seed: int = 1, on_progress: Callable[[TableProgress], None] | None = None
) -> tuple[DataFile, ...]:
    """Write sbtest1 to sbtest3, `rows` rows each, as tab-separated gzip files with a header. Return the files.

    The bytes of a file depend only on `seed`, `rows` and the table. Raises UsageError if `rows` exceeds the range of
    the integer key, and LabError if a file cannot be written.
    """
    if not 0 < rows <= _MOST_ROWS:
        raise UsageError(f"rows must be from 1 to {_MOST_ROWS:,}: {rows}")
    make_folder(out_dir)
    return tuple(
        write_table(out_dir, table, COLUMNS, _batches(table, rows, seed), expected_rows=rows, on_progress=on_progress)
        for table in TABLES
    )


def _batches(table: str, rows: int, seed: int) -> Iterator[list[str]]:
    draws = Draws(seed, table)
    groups = [f"{number:011d}" for number in (draws.random.randrange(10**11) for _ in range(POOL_SIZE))]
    for first in range(1, rows + 1, _BATCH_ROWS):
        count = min(_BATCH_ROWS, rows + 1 - first)
        keys = draw_special(draws, count, rows)
        chosen = [groups[pick] for pick in draws.picks(count * _GROUPS)]
        yield [
            f"{first + row}\t{keys[row]}\t{'-'.join(chosen[at : at + _C_GROUPS])}"
            f"\t{'-'.join(chosen[at + _C_GROUPS : at + _GROUPS])}\n"
            for row, at in enumerate(range(0, count * _GROUPS, _GROUPS))
        ]


def draw_special(draws: Draws, count: int, limit: int) -> list[int]:
    """Return `count` random integers from 1 to `limit` with sysbench's distribution `special`.

    As in sysbench, one random number decides both whether a value is in the middle hundredth of the range, and where.
    Numbers of at least 1 - _SPECIAL_RESERVED (0.25) choose the middle. Because the same number then decides where in
    the middle, no value is in its lowest quarter.
    """
    width, ordinary = limit - 1, 1 - _SPECIAL_RESERVED
    places = draws.floats(count)
    others = iter(draws.floats(_SPECIAL_ITERATIONS * sum(place < ordinary for place in places)))
    return [
        1 + int(sum(islice(others, _SPECIAL_ITERATIONS)) / _SPECIAL_ITERATIONS * width)
        if place < ordinary
        else 1 + int(place * (width * _SPECIAL_SHARE + 1) + width / 2 - width * _SPECIAL_SHARE / 2)
        for place in places
    ]


class S3Folder:
    """A prefix in a bucket, named by a URL such as s3://bucket/prefix. Raises UsageError if the URL names no bucket.

    `access` provides region, endpoint and credentials; None takes those of the environment.
    """

    def __init__(self, url: str, access: CredentialSource | None = None) -> None:
        self._url = url.rstrip("/")
        if not self._url.removeprefix("s3://"):
            raise UsageError(f'"{url}" names no bucket', hint="Write s3://bucket/prefix.")
        self._stores = Stores(access or AwsCredentials())

    def upload(self, path: Path) -> str:
        """Upload a gzip file under its own name, and return its URL. Raises LabError, SourceError."""
        url = f"{self._url}/{path.name}"
        store, key = self._stores.find(url)
        with _naming_url("write", url):
            # obstore sends large files in parts. A failed upload leaves no object.
            obstore.put(store, key, path, attributes={"Content-Encoding": "gzip"})
        return url

    def remove(self, name: str) -> None:
        """Remove the object with this name from the folder. Raises LabError, SourceError."""
        url = f"{self._url}/{name}"
        store, key = self._stores.find(url)
        with _naming_url("remove", url):
            obstore.delete(store, key)


@contextmanager
def _naming_url(action: str, url: str) -> Iterator[None]:
    try:
        yield
    except (*STORE_ERRORS, ValueError) as exc:
        # The cause is not attached, because its text has the URL, which may be signed.
        raise LabError(
            f'could not {action} "{url}"',
            detail=describe_failure(exc).words,
            hint="Check that the bucket exists, AWS_ENDPOINT_URL, AWS_REGION and the credentials.",
        ) from None
