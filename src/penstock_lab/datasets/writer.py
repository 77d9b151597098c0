"""Writes files in the shape of IMDb's. The rows of the files about titles are generated here, as batches of lines."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import cache
from pathlib import Path
from typing import Final

from penstock.core.errors import UsageError
from penstock_lab.datasets import people
from penstock_lab.datasets.datafiles import (
    BATCH_TITLES,
    POOL_SIZE,
    DataFile,
    Draws,
    TableProgress,
    batched_groups,
    make_folder,
    measure_file,
    write_table,
)
from penstock_lab.datasets.people import (
    IMDB_TABLES,
    TAIL_MASK,
    ImdbCounts,
    Phrase,
    cyrillic_titles,
    episode_phrases,
    expected_rows,
    japanese_titles,
    title_phrases,
)

NULL: Final = "\\N"

# Every ninth title that is not an episode is a series (see _series_title). All other titles have these types, by
# weight.
_SERIES_PERIOD: Final = 9
_TITLE_TYPES: Final = {
    "short": 44,
    "movie": 30,
    "video": 12,
    "tvMovie": 6,
    "tvMiniSeries": 3,
    "tvSpecial": 2,
    "videoGame": 2,
    "tvShort": 1,
}
# The shortest and longest run time in minutes, and the share of titles with a known run time.
_RUNTIMES: Final = {
    "short": (2, 40, 0.6),
    "movie": (60, 190, 0.65),
    "tvEpisode": (10, 60, 0.3),
    "tvSeries": (20, 60, 0.4),
    "videoGame": (60, 600, 0.02),
}
_OTHER_RUNTIME: Final = (20, 120, 0.5)
# A pool of endings has 8,192 entries, and this mask makes an index into the pool from a draw. Each type of titles has
# its own pool of endings. With POOL_SIZE entries in each, filling the pools would take longer than generating the rows
# of a small data set.
_ENDING_MASK: Final = (1 << 13) - 1
_GENRES: Final = {
    "Drama": 20,
    "Comedy": 15,
    "Short": 6,
    "Documentary": 8,
    "Talk-Show": 9,
    "News": 5,
    "Drama,Romance": 7,
    "Comedy,Drama,Romance": 4,
    "Action,Adventure,Sci-Fi": 3,
    "Crime,Drama,Mystery": 5,
    "Animation,Short": 3,
    "Reality-TV": 4,
    "Family,Game-Show": 4,
    "Horror,Thriller": 2,
    "\\N": 5,
}
# What follows a title in title.akas (region, language, types, attributes), by script, with its weight.
_AKAS: Final = {
    ("latin", "US\t\\N\timdbDisplay\t\\N"): 12,
    ("latin", "GB\t\\N\timdbDisplay\t\\N"): 7,
    ("latin", "DE\tde\t\\N\t\\N"): 12,
    ("latin", "FR\tfr\t\\N\t\\N"): 12,
    ("latin", "ES\tes\t\\N\t\\N"): 11,
    ("latin", "IT\tit\t\\N\t\\N"): 11,
    ("latin", "PT\tpt\t\\N\t\\N"): 10,
    ("latin", "BR\t\\N\timdbDisplay\t\\N"): 4,
    ("latin", "CA\ten\talternative\talternative spelling"): 1,
    ("latin", "XWW\ten\timdbDisplay\tfestival title"): 1,
    ("latin", "AU\t\\N\tworking\tliteral title"): 1,
    ("cyrillic", "RU\t\\N\timdbDisplay\t\\N"): 3,
    ("cyrillic", "BG\tbg\timdbDisplay\t\\N"): 1,
    ("japanese", "JP\tja\t\\N\t\\N"): 11,
    ("japanese", "JP\tja\talternative\tdubbed version"): 1,
}


def title_basics(draws: Draws, *, seed: int, counts: ImdbCounts) -> Iterator[list[str]]:
    """Yield title.basics. One title in ten has an original title that differs from its primary title."""
    name_title = _title_namer(seed, counts)
    types = Draws(seed, "words/types").pool(_TITLE_TYPES)
    endings = {
        title_type: _basics_endings(draws, title_type) for title_type in ("tvEpisode", "tvSeries", *_TITLE_TYPES)
    }
    for first in range(1, counts.titles + 1, BATCH_TITLES):
        count = min(BATCH_TITLES, counts.titles + 1 - first)
        lines = []
        for title, pick in enumerate(draws.picks(count), start=first):
            title_type = _title_type(title, types=types, counts=counts)
            name = name_title(title)
            original = name if pick % 10 else name_title(title + pick)
            lines.append(f"tt{title:07d}\t{title_type}\t{name}\t{original}{endings[title_type][pick & _ENDING_MASK]}")
        yield lines


def title_akas(draws: Draws, *, seed: int, rows: int, counts: ImdbCounts) -> Iterator[list[str]]:
    """Yield title.akas: each title's original name, then its names in other regions, numbered from 1."""
    name_title = _title_namer(seed, counts)
    phrases = {
        "cyrillic": cyrillic_titles(seed),
        "japanese": japanese_titles(seed),
        "latin": title_phrases(seed),
    }
    regions = [
        (None if script == "latin" and pick % 3 else phrases[script], f"\t{ending}\t0\n")
        for (script, ending), pick in zip(draws.pool(_AKAS), draws.picks(POOL_SIZE), strict=True)
    ]
    mean = 1.02 * rows / counts.titles
    sizes = [min(60, round(draws.random.expovariate(1 / mean))) for _ in range(4096)]
    for first, batch in batched_groups(sizes, titles=counts.titles, rows=rows):
        picks = iter(zip(draws.picks(sum(batch)), draws.picks(sum(batch)), strict=True))
        lines = []
        for title, size in enumerate(batch, start=first):
            if not size:
                continue
            start = f"tt{title:07d}\t"
            name = name_title(title)
            next(picks)
            lines.append(f"{start}1\t{name}\t\\N\t\\N\toriginal\t\\N\t1\n")
            for ordering, (region, pick) in zip(_numbers(size), picks, strict=False):
                pool, ending = regions[region]
                lines.append(f"{start}{ordering}{name if pool is None else _spell(pool[pick], region)}{ending}")
        yield lines


def title_episode(draws: Draws, *, counts: ImdbCounts) -> Iterator[list[str]]:
    """Yield title.episode: runs of episodes of one series and season. Some seasons and episode numbers are null."""
    series_count = max(1, (counts.titles - counts.episodes) // _SERIES_PERIOD)
    run_lengths = draws.pool({1: 10, 4: 6, 6: 8, 8: 8, 10: 12, 13: 14, 22: 10, 26: 6, 60: 2, 250: 1})
    seasons = draws.pool({"1": 50, "2": 18, "3": 10, "4": 6, "5": 4, "6": 3, "11": 1, "\\N": 8})
    episode = 1
    while episode <= counts.episodes:
        lines: list[str] = []
        picks = zip(draws.skewed(256, series_count), draws.picks(256), draws.picks(256), strict=True)
        for series, run, season_pick in picks:
            parent = _series_title(series, counts)
            season = seasons[season_pick]
            ends = min(episode + run_lengths[run], counts.episodes + 1)
            middle = f"\ttt{parent:07d}\t{season}\t"
            is_numbered = season != NULL
            lines += [
                f"tt{counts.episode_title(episode + step):07d}{middle}{step + 1 if is_numbered else NULL}\n"
                for step in range(ends - episode)
            ]
            episode = ends
        yield lines


def title_ratings(draws: Draws, *, rows: int, counts: ImdbCounts) -> Iterator[list[str]]:
    """Yield title.ratings: a subset of the titles, in order. Votes are very uneven. Most averages are near seven."""
    averages = [f"{draws.random.triangular(1, 10, 7.4):.1f}" for _ in range(POOL_SIZE)]
    votes = [str(5 + int(5 * draws.random.paretovariate(0.6)) % 3_000_000) for _ in range(POOL_SIZE)]
    for first in range(0, rows, BATCH_TITLES):
        count = min(BATCH_TITLES, rows - first)
        lines = []
        picks = zip(draws.picks(count), draws.picks(count), draws.picks(count), strict=True)
        for row, (step, average, vote) in enumerate(picks, start=first):
            # Each row picks one title from its own range of titles.
            low, high = row * counts.titles // rows, (row + 1) * counts.titles // rows
            title = low + 1 + (step * (high - low) >> 16)
            lines.append(f"tt{title:07d}\t{averages[average]}\t{votes[vote]}\n")
        yield lines


def _title_namer(seed: int, counts: ImdbCounts) -> Callable[[int], str]:
    """Return the function that names a title, so that title.basics and title.akas have the same names."""
    others = title_phrases(seed)
    episodes = episode_phrases(seed)

    def name_title(title: int) -> str:
        mixed = title * 2_654_435_761 & 0xFFFFFFFF
        pool = episodes if counts.is_episode(title) else others
        return _spell(pool[mixed >> 16], mixed ^ title)

    return name_title


def _spell(phrase: Phrase, pick: int) -> str:
    head, tails = phrase
    return head + tails[pick & TAIL_MASK]


def _title_type(title: int, *, types: list[str], counts: ImdbCounts) -> str:
    episodes = counts.episodes_up_to(title)
    if episodes > counts.episodes_up_to(title - 1):
        return "tvEpisode"
    other = title - episodes
    return types[other % POOL_SIZE] if other % _SERIES_PERIOD else "tvSeries"


def _series_title(series: int, counts: ImdbCounts) -> int:
    """Return the title number of the n-th series, which is the (9 n)-th title that is not an episode."""
    others = counts.titles - counts.episodes
    if not others:
        return 1
    # Of the titles 1 to n, n - episodes_up_to(n) are not episodes. This is the smallest n that reaches the wanted
    # number of such titles.
    return (min(series * _SERIES_PERIOD, others) - 1) * counts.titles // others + 1


def _basics_endings(draws: Draws, title_type: str) -> list[str]:
    """Return a pool of the columns that follow the titles, for one title type: isAdult, years, run time and genres."""
    shortest, longest, known_share = _RUNTIMES.get(title_type, _OTHER_RUNTIME)
    endings = []
    for genres in draws.pool(_GENRES)[: _ENDING_MASK + 1]:
        number = draws.random.random()
        start = round(draws.random.triangular(1895, 2026, 2018))
        is_ended = title_type == "tvSeries" and number < 0.4
        end = str(min(2026, start + int(number * 20))) if is_ended else "\\N"
        runtime = str(shortest + int((longest - shortest) * number)) if number < known_share else "\\N"
        years = f"{start}\t{end}" if number < 0.9 else "\\N\t\\N"
        endings.append(f"\t{int(number > 0.98)}\t{years}\t{runtime}\t{genres}\n")
    return endings


@cache
def _numbers(size: int) -> list[str]:
    return [f"{ordering}\t" for ordering in range(2, size + 1)]


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
        "title.akas": lambda: title_akas(draws, seed=seed, rows=rows, counts=counts),
        "title.basics": lambda: title_basics(draws, seed=seed, counts=counts),
        "title.crew": lambda: people.title_crew(draws, counts=counts),
        "title.episode": lambda: title_episode(draws, counts=counts),
        "title.principals": lambda: people.title_principals(draws, rows=rows, counts=counts),
        "title.ratings": lambda: title_ratings(draws, rows=rows, counts=counts),
    }
    return makers[table]()
