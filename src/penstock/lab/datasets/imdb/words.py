"""Combines names of people and titles from pools of few words, in Latin, Cyrillic and Japanese script.

A phrase is a head and the tails that may follow it: 65,536 heads make tens of millions of names.
"""

# ruff: noqa: RUF001 (other scripts are the point)

from __future__ import annotations

from itertools import product
from typing import Final, TypeAlias

from penstock.lab.datasets.draws import Draws

Phrase: TypeAlias = tuple[str, tuple[str, ...]]

# A power of two, so that the low bits of a draw pick a tail.
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
