"""Writes IMDb's files: rows to lines to gzip, each file under a temporary name until it is whole."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from isal import isal_zlib

from penstock.errors import LabError, UsageError
from penstock.files.newfile import NewFile
from penstock.lab.imdb import people, titles
from penstock.lab.imdb.draws import Draws
from penstock.lab.imdb.tables import IMDB_TABLES, Counts, ImdbFile, ImdbProgress, expected_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from pathlib import Path

_log = logging.getLogger(__name__)

# Half the time of igzip's best level for 2 % more bytes.
_COMPRESS_LEVEL = 2
# A gzip member around a 32 KiB window. igzip writes neither name nor time into its header, so that the same
# seed gives the same bytes.
_GZIP_WBITS = 31
_TABLES_HINT = f"The tables are {', '.join(IMDB_TABLES)}."


def write_imdb(
    out_dir: Path,
    *,
    scale: float,
    seed: int = 1,
    tables: Collection[str] | None = None,
    on_progress: Callable[[ImdbProgress], None] | None = None,
) -> tuple[ImdbFile, ...]:
    """Write IMDb-shaped files, such as title.ratings.tsv.gz, into a directory and return what was written.

    Scale 1 is IMDb's size. A file's bytes depend on seed, scale and table only. `tables` picks some of
    IMDB_TABLES; None means all. Memory does not grow with the scale. Raises UsageError for an unknown table
    or a scale that is not above zero, LabError where a file cannot be written.
    """
    chosen = _choose_tables(tables)
    if not 0 < scale < float("inf"):
        msg = f"scale must be greater than zero: {scale}"
        raise UsageError(msg, hint="Scale 1 is IMDb's size; 0.001 makes a small set.")
    try:
        out_dir.mkdir(parents=True, exist_ok=True)
        return tuple(_write_table(out_dir, table, scale=scale, seed=seed, on_progress=on_progress) for table in chosen)
    except OSError as exc:
        msg = f'could not write to "{out_dir}": {exc.strerror}'
        raise LabError(msg, hint="Give a directory that can be written to and has enough space.") from exc


def _choose_tables(tables: Collection[str] | None) -> list[str]:
    """Return the wanted tables in IMDB_TABLES' order."""
    if tables is None:
        return list(IMDB_TABLES)
    if not tables:
        msg = "no table was given"
        raise UsageError(msg, hint=_TABLES_HINT)
    for table in tables:
        if table not in IMDB_TABLES:
            msg = f'unknown table "{table}"'
            raise UsageError(msg, hint=_TABLES_HINT)
    return [table for table in IMDB_TABLES if table in tables]


def _write_table(
    out_dir: Path, table: str, *, scale: float, seed: int, on_progress: Callable[[ImdbProgress], None] | None
) -> ImdbFile:
    """Write one table; nothing is left behind on an error."""
    path = out_dir / f"{table}.tsv.gz"
    expected = expected_rows(table, scale)
    rows = 0
    with NewFile(path, mode=0o666) as raw:
        compressor = isal_zlib.compressobj(_COMPRESS_LEVEL, isal_zlib.DEFLATED, _GZIP_WBITS)
        header = "\t".join(IMDB_TABLES[table]).encode() + b"\n"
        raw.write(compressor.compress(header))
        plain_bytes = len(header)
        for lines in _make_rows(table, scale=scale, seed=seed):
            payload = "".join(lines).encode()
            raw.write(compressor.compress(payload))
            plain_bytes += len(payload)
            rows += len(lines)
            if on_progress:
                on_progress(ImdbProgress(table=table, rows=rows, expected_rows=expected))
        raw.write(compressor.flush())
        size_bytes = raw.tell()
        raw.finish()
    _log.info("wrote %s: %s rows", path, rows)
    return ImdbFile(table=table, path=path, rows=rows, plain_bytes=plain_bytes, size_bytes=size_bytes)


def _make_rows(table: str, *, scale: float, seed: int) -> Iterator[list[str]]:
    """Return a table's lines in batches."""
    counts = Counts.at(scale)
    draws = Draws(seed, table)
    rows = expected_rows(table, scale)
    makers: dict[str, Callable[[], Iterator[list[str]]]] = {
        "name.basics": lambda: people.name_basics(draws, seed=seed, counts=counts),
        "title.akas": lambda: titles.title_akas(draws, seed=seed, rows=rows, counts=counts),
        "title.basics": lambda: titles.title_basics(draws, seed=seed, counts=counts),
        "title.crew": lambda: people.title_crew(draws, counts=counts),
        "title.episode": lambda: titles.title_episode(draws, counts=counts),
        "title.principals": lambda: people.title_principals(draws, rows=rows, counts=counts),
        "title.ratings": lambda: titles.title_ratings(draws, rows=rows, counts=counts),
    }
    return makers[table]()
