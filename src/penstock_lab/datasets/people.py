"""IMDb's tables and their sizes, words for titles and names, and the rows of the files about people.

writer.py generates the rows of the files about titles.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from itertools import islice, product
from types import MappingProxyType
from typing import Final, TypeAlias

from penstock.core.slotted import slotted
from penstock_lab.datasets.datafiles import BATCH_TITLES, POOL_SIZE, Draws, batched_groups

# IMDb's tables with their columns, as developer.imdb.com/non-commercial-datasets lists them.
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

# How many rows each table has at scale 1: IMDb's counts, rounded.
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


@slotted
class ImdbCounts:
    """The number of titles, people and episodes. Tables refer to each other by number only."""

    titles: int
    people: int
    episodes: int

    @classmethod
    def at(cls, scale: float) -> ImdbCounts:
        """Return the numbers of titles, people and episodes at a scale, where 1 is IMDb's own size."""
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
    """Return exactly how many rows a table has at a scale, where 1 is IMDb's own size. A table has at least one row.

    Raises KeyError for an unknown table.
    """
    return max(1, round(_ROWS_AT_SCALE_1[table] * scale))


# ruff: noqa: RUF001 (other scripts are the point)


Phrase: TypeAlias = tuple[str, tuple[str, ...]]

# How many tails a phrase has. It is a power of two, so that the low bits of a draw pick a tail.
TAIL_COUNT: Final = 1024
TAIL_MASK: Final = TAIL_COUNT - 1


def _words(text: str) -> list[str]:
    return text.split()


GIVEN_NAMES: Final = _words(
    "Anna Tom José Zoë Maria Hans Émile Søren John Kate Sam Bill Frank Luis Li Robert James Mary "
    "David Paul Peter Michael Susan Laura Carlos Miguel François Chloé Jürgen Björn Åsa Łukasz "
    "Agnieszka Ștefan Ioana Márta István Giulia Marco Priya Arjun Fatima Omar Kenji Yuki Min-jun "
    "Soo-yeon Wei Xiu Linda George Helen Alice Martin Oscar Emma Noah Olivia Lucas Ingrid Mateo "
    "Sofía Nuno Inês Tuğba Emre"
)
_FAMILY_STARTS: Final = _words(
    "Ander Berg Blom Car Dahl Eden Fair Gold Hart Holm Johan Kauf Lind Mar Nor Ols Peter Rich Ros "
    "Schnei Stein Sund Wal Wein Whit Wolf Har Thomp Robin Mac Mül Lar"
)
_FAMILY_ENDS: Final = _words("son mann berg ström ley ford man stein well er sen ton quist ard wood dale")
_FAMILY_OTHER: Final = _words(
    "Smith Jones García Núñez O'Brien D'Angelo Nguyen Kim Park Wang Tanaka Silva Gonçalves Yılmaz Šimek Dvořák Nowak"
)
_GIVEN_CYRILLIC: Final = _words("Олег Анна Иван Мария Сергей Ольга Дмитрий Наталья Юрий Елена")
_FAMILY_CYRILLIC: Final = _words("Иваненко Шевченко Бондарчук Кравченко Черных Седых Коваленко Руденко")
_FAMILY_JAPANESE: Final = _words("山田 佐藤 鈴木 高橋 田中 渡辺 伊藤 中村 小林 黒澤")
_GIVEN_JAPANESE: Final = _words("太郎 花子 健一 美咲 翔 陽子 明 直樹 さくら 恵")

_ADJECTIVES: Final = _words(
    "Silent Last Red Lost Golden Broken Hidden Distant Burning Frozen Secret Wild Quiet Midnight "
    "Little Great Empty Crooked Endless Forgotten Naked Invisible Perfect Strange"
)
_NOUNS: Final = _words(
    "River House Night Road Garden Stranger Island Summer Winter Train City Heart Mirror Letter "
    "Storm Shadow Bridge Queen King Thief Dance Forest Ocean Promise Wedding Detective Café Château "
    "Señora Mädchen Doctor Show News Match"
)
_ADJECTIVES_CYRILLIC: Final = _words("Последний Красный Тихий Белый Старый Новый Далёкий Забытый")
_NOUNS_CYRILLIC: Final = _words("поезд город дом берег снег день путь остров вечер ветер")
_HEADS_JAPANESE: Final = _words("赤い 最後の 夏の 東京 静かな 遠い 消えた 小さな")
_TAILS_JAPANESE: Final = _words("物語 花 海 夜 列車 恋人 約束 城 事件 ラーメン")


def person_phrases(seed: int) -> list[Phrase]:
    """Return a pool of people's names: given name, then family name, in one script (Japanese: family name first)."""
    draws = Draws(seed, "words/people")
    families = [start + end for start, end in product(_FAMILY_STARTS, _FAMILY_ENDS)] + _FAMILY_OTHER * 8
    latin = _tails(draws, families)
    cyrillic = _tails(draws, _FAMILY_CYRILLIC)
    japanese = _tails(draws, _GIVEN_JAPANESE)
    weights: dict[Phrase, float] = {}
    for rank, given in enumerate(GIVEN_NAMES, start=1):
        weights[f"{given} ", latin] = 100 / (rank + 10)
        weights[f"{given} {GIVEN_NAMES[-rank]} ", latin] = 20 / (rank + 10)
        weights[f'{given} "{GIVEN_NAMES[-rank]}" ', latin] = 0.5 / (rank + 10)
    weights |= {(f"{given} ", cyrillic): 0.6 for given in _GIVEN_CYRILLIC}
    weights |= {(f"{family} ", japanese): 0.4 for family in _FAMILY_JAPANESE}
    return draws.pool(weights)


def title_phrases(seed: int) -> list[Phrase]:
    """Return a pool of titles in Latin script. A few have quotes inside or at the start."""
    draws = Draws(seed, "words/titles")
    pairs = [f"{adjective} {noun}" for adjective, noun in product(_ADJECTIVES, _NOUNS)]
    nouns = _tails(draws, [*_NOUNS * 10, *pairs])
    weights: dict[Phrase, float] = {}
    for rank, adjective in enumerate(_ADJECTIVES, start=1):
        weights[f"The {adjective} ", nouns] = 60 / (rank + 5)
        weights[f"{adjective} ", nouns] = 30 / (rank + 5)
        weights[f'The "{adjective}" ', nouns] = 0.4
    for noun in _NOUNS:
        weights[f"{noun} of the ", nouns] = 2
        weights[f"{noun} & ", nouns] = 0.5
        weights[f"Das {noun}: ", nouns] = 0.5
        weights[f"L'{noun} - ", nouns] = 0.5
    for given in GIVEN_NAMES:
        weights[f"{given}'s ", nouns] = 1
        weights[f'"{given}" and the ', nouns] = 0.05
        weights[f"¿{given}? ", nouns] = 0.1
    return draws.pool(weights)


def episode_phrases(seed: int) -> list[Phrase]:
    """Return a pool of episode titles: half are numbered, the others are ordinary titles."""
    draws = Draws(seed, "words/episodes")
    numbers = tuple(f"{number % 100 + 1}" for number in range(TAIL_COUNT))
    numbered = {(f"Episode #{season}.", numbers): 1.0 / season for season in range(1, 21)}
    titles = title_phrases(seed)
    return [*draws.pool(numbered)[: len(titles) // 2], *titles[len(titles) // 2 :]]


def cyrillic_titles(seed: int) -> list[Phrase]:
    """Return a pool of titles in Cyrillic script."""
    draws = Draws(seed, "words/cyrillic")
    nouns = _tails(draws, _NOUNS_CYRILLIC)
    return draws.pool({(f"{adjective} ", nouns): 1 for adjective in _ADJECTIVES_CYRILLIC})


def japanese_titles(seed: int) -> list[Phrase]:
    """Return a pool of titles in Japanese script."""
    draws = Draws(seed, "words/japanese")
    tails = _tails(draws, _TAILS_JAPANESE)
    return draws.pool({(head, tails): 1 for head in _HEADS_JAPANESE})


def _tails(draws: Draws, words: list[str]) -> tuple[str, ...]:
    return tuple(draws.random.choices(words, k=TAIL_COUNT))


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


def name_basics(draws: Draws, *, seed: int, counts: ImdbCounts) -> Iterator[list[str]]:
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


def title_crew(draws: Draws, *, counts: ImdbCounts) -> Iterator[list[str]]:
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


def title_principals(draws: Draws, *, rows: int, counts: ImdbCounts) -> Iterator[list[str]]:
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
    """Return a pool of the columns that follow an actor's identifier: category, job and characters."""
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
    """Return each row's offset into the pool of endings: 0 (cast) for three fifths, then POOL_SIZE (crew)."""
    cast = (size * 3 + 4) // 5
    return [0] * cast + [POOL_SIZE] * (size - cast)
