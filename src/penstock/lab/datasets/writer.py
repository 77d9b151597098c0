"""Writes generated files in the shape of IMDb's."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from penstock.core.errors import UsageError
from penstock.lab.datasets import people, titles
from penstock.lab.datasets.datafiles import DataFile, Draws, TableProgress, make_folder, measure_file, write_table
from penstock.lab.datasets.people import IMDB_TABLES, ImdbCounts, expected_rows

_TABLES_HINT = f"The tables are {', '.join(IMDB_TABLES)}."


def write_imdb(
    out_dir: Path,
    *,
    scale: float,
    seed: int = 1,
    tables: Collection[str] | None = None,
    on_progress: Callable[[TableProgress], None] | None = None,
) -> tuple[DataFile, ...]:
    """Write IMDb-shaped files, such as title.ratings.tsv.gz, to a directory and return what was written.

    Scale 1 is IMDb's size. A file's bytes depend only on seed, scale and table. `tables` selects some of IMDB_TABLES;
    None means all. Memory use does not depend on the scale. Raises UsageError for an unknown table or a scale that is
    not above zero, and LabError if a file cannot be written.
    """
    chosen = choose_tables(tables)
    if not 0 < scale < float("inf"):
        hint = "Scale 1 is IMDb's size; 0.001 makes a small set."
        raise UsageError(f"scale must be greater than zero: {scale}", hint=hint)
    make_folder(out_dir)
    return tuple(
        write_table(
            out_dir,
            table,
            IMDB_TABLES[table],
            _make_rows(table, scale=scale, seed=seed),
            expected_rows=expected_rows(table, scale),
            on_progress=on_progress,
        )
        for table in chosen
    )


def read_imdb(folder: Path, *, tables: Collection[str] | None = None) -> tuple[DataFile, ...]:
    """Return IMDb's seven files in a directory, such as title.ratings.tsv.gz, after counting their rows.

    `tables` selects some of them. Raises UsageError for an unknown table, LabError if a file is missing or damaged.
    """
    return tuple(measure_file(folder / f"{table}.tsv.gz", table) for table in choose_tables(tables))


def choose_tables(tables: Collection[str] | None) -> list[str]:
    """Return the selected tables in IMDb's order; None selects all. Raises UsageError for an unknown table."""
    if tables is None:
        return list(IMDB_TABLES)
    if not tables:
        raise UsageError("no table was given", hint=_TABLES_HINT)
    for table in tables:
        if table not in IMDB_TABLES:
            raise UsageError(f'unknown table "{table}"', hint=_TABLES_HINT)
    return [table for table in IMDB_TABLES if table in tables]


def _make_rows(table: str, *, scale: float, seed: int) -> Iterator[list[str]]:
    counts = ImdbCounts.at(scale)
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
