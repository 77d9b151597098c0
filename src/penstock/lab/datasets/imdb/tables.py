"""Defines the names, columns and sizes of IMDb's files, and which titles are episodes.

Other modules generate the rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from penstock.frozen import frozen

# The columns are those that developer.imdb.com/non-commercial-datasets lists.
IMDB_TABLES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "name.basics": (
            "nconst",
            "primaryName",
            "birthYear",
            "deathYear",
            "primaryProfession",
            "knownForTitles",
        ),
        "title.akas": (
            "titleId",
            "ordering",
            "title",
            "region",
            "language",
            "types",
            "attributes",
            "isOriginalTitle",
        ),
        "title.basics": (
            "tconst",
            "titleType",
            "primaryTitle",
            "originalTitle",
            "isAdult",
            "startYear",
            "endYear",
            "runtimeMinutes",
            "genres",
        ),
        "title.crew": ("tconst", "directors", "writers"),
        "title.episode": ("tconst", "parentTconst", "seasonNumber", "episodeNumber"),
        "title.principals": ("tconst", "ordering", "nconst", "category", "job", "characters"),
        "title.ratings": ("tconst", "averageRating", "numVotes"),
    }
)

# Scale 1: IMDb's row counts, rounded.
_ROWS_AT_SCALE_1: Final[Mapping[str, int]] = MappingProxyType(
    {
        "name.basics": 14_000_000,
        "title.akas": 50_000_000,
        "title.basics": 11_000_000,
        "title.crew": 11_000_000,
        "title.episode": 8_500_000,
        "title.principals": 90_000_000,
        "title.ratings": 1_500_000,
    }
)


@frozen
class Counts:
    """The number of titles, people and episodes. Tables refer to each other by number only."""

    titles: int
    people: int
    episodes: int

    @classmethod
    def at(cls, scale: float) -> Counts:
        """Return the counts for a scale."""
        return cls(
            titles=expected_rows("title.basics", scale),
            people=expected_rows("name.basics", scale),
            episodes=expected_rows("title.episode", scale),
        )

    def episode_title(self, episode: int) -> int:
        """Return the number of the title that is the given episode. Both count from 1.

        Episodes are spread evenly over the titles, so this needs no table.
        """
        return -(-episode * self.titles // self.episodes)

    def episodes_up_to(self, title: int) -> int:
        """Return how many of the titles 1 to `title` are episodes."""
        return title * self.episodes // self.titles

    def is_episode(self, title: int) -> bool:
        """Return whether a title is an episode of a series."""
        return self.episodes_up_to(title) > self.episodes_up_to(title - 1)


def expected_rows(table: str, scale: float) -> int:
    """Return exactly how many rows a table has at a scale: at least one.

    Raises KeyError for an unknown table.
    """
    return max(1, round(_ROWS_AT_SCALE_1[table] * scale))
