"""Generates the rows of the files about people: name.basics, title.crew and title.principals, as batches of lines."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Final

from penstock.lab.datasets.draws import BATCH_TITLES, POOL_SIZE, Draws, batched_groups
from penstock.lab.datasets.imdb.words import GIVEN_NAMES, TAIL_MASK, person_phrases

if TYPE_CHECKING:
    from penstock.lab.datasets.imdb.tables import Counts

_PROFESSIONS: Final = {
    "actor": 22,
    "actress": 14,
    "producer": 6,
    "writer": 5,
    "director": 5,
    "camera_department": 5,
    "sound_department": 3,
    "editor": 3,
    "composer": 3,
    "actor,producer,writer": 4,
    "director,writer,producer": 4,
    "actress,soundtrack": 3,
    "miscellaneous": 5,
    "\\N": 18,
}
_CREW_COUNTS: Final = {
    (1, 0): 22,
    (1, 1): 20,
    (1, 2): 12,
    (0, 0): 26,
    (0, 1): 6,
    (2, 2): 6,
    (1, 4): 6,
    (3, 8): 2,
}
_CAST: Final = {"actor": 43, "actress": 30, "self": 27, "archive_footage": 4}
_SELF_CHARACTERS: Final = ("Self",) * 6 + ("Self - Host",) * 3 + ("Self - Guest",) * 2 + ("Self - Presenter",)
_ROLES: Final = (
    "Narrator (voice)",
    "Policeman #2",
    "Waiter",
    "Dancer",
    "Doctor",
    "La señora",
    "Der Nachbar",
    "Various",
    "Additional Voices",
    "Rosalía \\\\ Rosa",
)
_CREW: Final = {
    "director\t\\N\t\\N": 26,
    "director\tco-director\t\\N": 1,
    "writer\t\\N\t\\N": 12,
    "writer\tscreenplay\t\\N": 4,
    "writer\tstory\t\\N": 3,
    "writer\tcreated by\t\\N": 5,
    'writer\tnovel "The Lost City"\t\\N': 1,
    "producer\tproducer\t\\N": 22,
    "producer\tline producer\t\\N": 2,
    "composer\t\\N\t\\N": 8,
    "cinematographer\tdirector of photography\t\\N": 5,
    "cinematographer\t\\N\t\\N": 5,
    "editor\t\\N\t\\N": 8,
    "production_designer\t\\N\t\\N": 4,
    "casting_director\t\\N\t\\N": 4,
}


def name_basics(draws: Draws, *, seed: int, counts: Counts) -> Iterator[list[str]]:
    """Yield name.basics: who people are, when they lived, and up to four titles they are known for."""
    names = person_phrases(seed)
    lives = _lives(draws)
    professions = draws.pool(_PROFESSIONS)
    known_counts = draws.pool({0: 12, 1: 42, 2: 14, 3: 10, 4: 22})
    for first in range(1, counts.people + 1, BATCH_TITLES):
        count = min(BATCH_TITLES, counts.people + 1 - first)
        known = [known_counts[pick] for pick in draws.picks(count)]
        titles = iter(draws.skewed(sum(known), counts.titles))
        picks = zip(draws.picks(count), draws.picks(count), draws.picks(count), draws.picks(count), strict=True)
        lines = []
        for person, size, (name, tail, life, profession) in zip(range(first, first + count), known, picks, strict=True):
            head, tails = names[name]
            lines.append(
                f"nm{person:07d}\t{head}{tails[tail & TAIL_MASK]}\t{lives[life]}\t{professions[profession]}\t"
                f"{_listed('tt', titles, size)}\n"
            )
        yield lines


def title_crew(draws: Draws, *, counts: Counts) -> Iterator[list[str]]:
    """Yield title.crew: each title's directors and writers."""
    sizes = draws.pool(_CREW_COUNTS)
    for first in range(1, counts.titles + 1, BATCH_TITLES):
        count = min(BATCH_TITLES, counts.titles + 1 - first)
        crews = [sizes[pick] for pick in draws.picks(count)]
        people = iter(draws.skewed(sum(directors + writers for directors, writers in crews), counts.people))
        yield [
            f"tt{title:07d}\t{_listed('nm', people, directors)}\t{_listed('nm', people, writers)}\n"
            for title, (directors, writers) in enumerate(crews, start=first)
        ]


def title_principals(draws: Draws, *, rows: int, counts: Counts) -> Iterator[list[str]]:
    """Yield title.principals: each title's cast, then its crew, numbered from 1."""
    endings = _cast_endings(draws) + draws.pool({f"\t{ending}\n": weight for ending, weight in _CREW.items()})
    mean = 1.02 * rows / counts.titles
    sizes = [round(draws.random.triangular(0, 2 * mean, mean)) for _ in range(4096)]
    for first, batch in batched_groups(sizes, titles=counts.titles, rows=rows):
        count = sum(batch)
        starts: list[str] = []
        offsets: list[int] = []
        for title, size in enumerate(batch, start=first):
            tconst = f"tt{title:07d}"
            starts += [tconst + ordering for ordering in _orderings(size)]
            offsets += _ending_offsets(size)
        people = draws.skewed(count, counts.people)
        picks = draws.picks(count)
        yield [
            f"{start}{person:07d}{endings[pick + offset]}"
            for start, person, pick, offset in zip(starts, people, picks, offsets, strict=True)
        ]


def _listed(prefix: str, numbers: Iterator[int], count: int) -> str:
    """Return the next `count` numbers as a comma-separated list of identifiers, or a null."""
    if not count:
        return "\\N"
    return ",".join([f"{prefix}{number:07d}" for number in islice(numbers, count)])


def _lives(draws: Draws) -> list[str]:
    """Return a pool of birth and death years. Most are unknown, as in IMDb."""
    lives = ["\\N\t\\N"] * (POOL_SIZE - 5000)
    for _ in range(5000):
        birth = round(draws.random.triangular(1850, 2005, 1965))
        death = birth + round(draws.random.triangular(20, 100, 75))
        lives.append(f"{birth}\t{death}" if death < 2025 else f"{birth}\t\\N")
    return lives


def _cast_endings(draws: Draws) -> list[str]:
    """Return a pool of what follows an actor's identifier: category, job and characters."""
    names = person_phrases(draws.random.getrandbits(32))
    endings = []
    for category, pick in zip(draws.pool(_CAST), draws.picks(POOL_SIZE), strict=True):
        head, tails = names[pick]
        characters = _characters(draws, category, head.strip(), tails[pick & TAIL_MASK])
        endings.append(f"\t{category}\t\\N\t{characters}\n")
    return endings


def _characters(draws: Draws, category: str, given: str, family: str) -> str:
    """Return a JSON array of one or two characters with its quotes escaped, or a null."""
    share = draws.random.random()
    if category in {"self", "archive_footage"}:
        return f'["{draws.random.choice(_SELF_CHARACTERS)}"]' if share < 0.92 else "\\N"
    if share < 0.14:
        return "\\N"
    if share < 0.17:
        return f'["{GIVEN_NAMES[int(share * 1000) % 50]} \\"The {family}\\" {family}"]'
    if share < 0.24:
        return f'["{draws.random.choice(_ROLES)}"]'
    if share < 0.30:
        return f'["{_escaped(given)}","{draws.random.choice(_ROLES)}"]'
    return f'["{_escaped(given)}"]' if share < 0.74 else f'["{_escaped(given)} {family}"]'


def _escaped(text: str) -> str:
    return text.replace('"', '\\"')


@cache
def _orderings(size: int) -> list[str]:
    return [f"\t{ordering}\tnm" for ordering in range(1, size + 1)]


@cache
def _ending_offsets(size: int) -> list[int]:
    """Return each row's offset into the pool of endings: 0 (cast) for three rows of five, POOL_SIZE for the crew."""
    cast = (size * 3 + 4) // 5
    return [0] * cast + [POOL_SIZE] * (size - cast)
