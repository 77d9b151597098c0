"""Writes the lines of generated tables to gzip files. Each file has a temporary name until it is complete."""

from __future__ import annotations

import gzip
import logging
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from isal import isal_zlib

from penstock.errors import LabError
from penstock.files.newfile import NewFile
from penstock.frozen import frozen

_log = logging.getLogger(__name__)

# This level takes half the time of igzip's best level, and files are 2 % larger.
_COMPRESS_LEVEL = 2
# A gzip member with a 32 KiB window. igzip writes neither a name nor a time into the header, so the same seed gives the
# same bytes.
_GZIP_WBITS = 31
_READ_BYTES = 1024 * 1024


@frozen
class DataFile:
    """One written file."""

    table: str
    path: Path
    # Without the header.
    rows: int
    # The size before compression.
    plain_bytes: int
    # The size after compression.
    size_bytes: int


@frozen
class TableProgress:
    """A table that is being written."""

    table: str
    # The rows so far.
    rows: int
    expected_rows: int


def make_folder(out_dir: Path) -> None:
    """Create the directory for the files. Raises LabError."""
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
    """Write TABLE.tsv.gz with a header from batches of lines. No file remains after an error. Raises LabError."""
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
    """Return a gzip file of a table after counting its rows, without the header. Raises LabError."""
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
