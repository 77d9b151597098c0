"""IMDb-shaped files: their counts, references, traps and repeatability."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import LabError, UsageError
from penstock_lab.datasets.people import IMDB_TABLES, ImdbCounts, expected_rows
from penstock_lab.datasets.writer import write_imdb

if TYPE_CHECKING:
    from pathlib import Path

    from penstock_lab.datasets.datafiles import TableProgress

SCALE = 0.0005


@pytest.fixture(scope="module")
def imdb(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[list[str]]]:
    """Return every table's rows (header first) of one small set."""
    files = write_imdb(tmp_path_factory.mktemp("imdb"), scale=SCALE)
    return {file.table: _read(file.path) for file in files}


def _read(path: Path) -> list[list[str]]:
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as lines:
        return [line.removesuffix("\n").split("\t") for line in lines]


@pytest.mark.part("rest")
def test_every_table_has_imdbs_columns_and_the_expected_rows(imdb: dict[str, list[list[str]]]) -> None:
    """Header, field count and row count hold in all seven files."""
    for table, columns in IMDB_TABLES.items():
        header, *rows = imdb[table]
        assert tuple(header) == columns
        assert {len(row) for row in rows} == {len(columns)}
        assert len(rows) == expected_rows(table, SCALE)


def test_identifiers_refer_to_titles_and_people_that_exist(imdb: dict[str, list[list[str]]]) -> None:
    """Every tconst and nconst in any file is one of title.basics or name.basics."""
    titles = {row[0] for row in imdb["title.basics"][1:]}
    people = {row[0] for row in imdb["name.basics"][1:]}
    for table in ("title.akas", "title.crew", "title.episode", "title.principals", "title.ratings"):
        assert {row[0] for row in imdb[table][1:]} <= titles
    assert {row[2] for row in imdb["title.principals"][1:]} <= people
    for row in imdb["title.crew"][1:]:
        assert {person for crew in row[1:] if crew != "\\N" for person in crew.split(",")} <= people
    for row in imdb["name.basics"][1:]:
        assert row[5] == "\\N" or set(row[5].split(",")) <= titles


def test_episodes_are_episodes_of_series(imdb: dict[str, list[list[str]]]) -> None:
    """title.episode lists exactly the titles of type tvEpisode, and its parents are series."""
    types = {row[0]: row[1] for row in imdb["title.basics"][1:]}
    episodes = imdb["title.episode"][1:]
    assert [row[0] for row in episodes] == [title for title, kind in types.items() if kind == "tvEpisode"]
    assert {types[row[1]] for row in episodes} == {"tvSeries"}


@pytest.mark.parametrize("table", ["title.akas", "title.principals"])
def test_ordering_counts_from_one_within_a_title(imdb: dict[str, list[list[str]]], table: str) -> None:
    """Titles ascend, and each one's rows are numbered 1, 2, 3 and so on."""
    previous, ordering = "", 0
    for row in imdb[table][1:]:
        assert row[0] >= previous
        ordering = ordering + 1 if row[0] == previous else 1
        assert int(row[1]) == ordering
        previous = row[0]


def test_identifiers_are_unique_where_they_are_keys(imdb: dict[str, list[list[str]]]) -> None:
    """The first column is a key of each file with one row per title or person, in order."""
    for table in ("name.basics", "title.basics", "title.crew", "title.episode", "title.ratings"):
        keys = [row[0] for row in imdb[table][1:]]
        assert keys == sorted(set(keys))


def test_characters_are_json_arrays_with_escaped_quotes(imdb: dict[str, list[list[str]]]) -> None:
    """The column parses as JSON; a small share holds backslashes, which are data."""
    characters = [row[5] for row in imdb["title.principals"][1:] if row[5] != "\\N"]
    assert all(isinstance(json.loads(text), list) for text in characters)
    escaped = sum('\\"' in text for text in characters)
    assert 0.005 < escaped / len(characters) < 0.1


def test_titles_hold_quotes_in_the_middle_and_other_scripts(imdb: dict[str, list[list[str]]]) -> None:
    """What makes FORMAT csv mangle the real files is in these too."""
    names = " ".join(row[2] for row in imdb["title.akas"][1:])
    assert any('"' in row[2][1:-1] for row in imdb["title.basics"][1:])
    assert "é" in names
    assert any("а" <= letter <= "я" for letter in names)  # noqa: RUF001 (Cyrillic is meant)
    assert any("ぁ" <= letter <= "ん" for letter in names)


def test_people_and_types_are_skewed(imdb: dict[str, list[list[str]]]) -> None:
    """The busiest hundredth of the people have far more than their share; most titles are episodes."""
    rows = Counter(row[2] for row in imdb["title.principals"][1:])
    busiest = rows.most_common(expected_rows("name.basics", SCALE) // 100)
    assert sum(count for _, count in busiest) > 0.1 * rows.total()
    assert Counter(row[1] for row in imdb["title.basics"][1:]).most_common(1)[0][0] == "tvEpisode"


@pytest.mark.part("rest")
def test_same_seed_gives_same_bytes_whatever_else_is_written(tmp_path: Path) -> None:
    """A table alone equals the table written among all others; another seed differs."""
    (alone,) = write_imdb(tmp_path / "a", scale=0.0001, seed=7, tables=["title.principals"])
    others = write_imdb(tmp_path / "b", scale=0.0001, seed=7)
    (different,) = write_imdb(tmp_path / "c", scale=0.0001, seed=8, tables=["title.principals"])
    among = next(file for file in others if file.table == "title.principals")
    assert alone.path.read_bytes() == among.path.read_bytes()
    assert alone.path.read_bytes() != different.path.read_bytes()


def test_sizes_told_are_the_files_own(tmp_path: Path) -> None:
    """DataFile's byte counts equal what is on disk, compressed and not."""
    (file,) = write_imdb(tmp_path, scale=0.001, tables=["title.ratings"])
    assert file.size_bytes == file.path.stat().st_size
    assert file.plain_bytes == len(gzip.decompress(file.path.read_bytes()))


def test_progress_ends_at_the_expected_rows(tmp_path: Path) -> None:
    """The callback counts up to the rows of the table."""
    seen: list[TableProgress] = []
    write_imdb(tmp_path, scale=0.001, tables=["title.crew"], on_progress=seen.append)
    assert len(seen) > 1
    assert seen[-1].rows == seen[-1].expected_rows == 11_000


def test_unknown_table_is_a_usage_error_with_a_hint(tmp_path: Path) -> None:
    """The hint lists what there is, and nothing is written."""
    with pytest.raises(UsageError, match=r'unknown table "title\.principal"') as caught:
        write_imdb(tmp_path, scale=1, tables=["title.principal"])
    assert "title.principals" in (caught.value.hint or "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("scale", [0, -1, float("nan"), float("inf")])
def test_scale_must_be_positive(tmp_path: Path, scale: float) -> None:
    """Zero, negative and infinite sizes make no sense."""
    with pytest.raises(UsageError, match="scale must be"):
        write_imdb(tmp_path, scale=scale)


def test_out_dir_that_is_a_file_is_an_error(tmp_path: Path) -> None:
    """A directory that cannot be made is named."""
    blocker = tmp_path / "file"
    blocker.write_text("")
    with pytest.raises(LabError, match=r"could not write to .*file"):
        write_imdb(blocker, scale=0.001)


def test_interrupted_write_leaves_nothing_behind(tmp_path: Path) -> None:
    """An exception from within leaves neither a half file nor a temporary one."""

    def interrupt(_: TableProgress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_imdb(tmp_path, scale=0.001, tables=["title.crew"], on_progress=interrupt)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("scale", [1e-9, 1e-7, 3e-6, 2e-5])
def test_tiny_scales_give_exact_rows(tmp_path: Path, scale: float) -> None:
    """Even a set of one title is whole."""
    for file in write_imdb(tmp_path, scale=scale):
        assert file.rows == expected_rows(file.table, scale) == len(_read(file.path)) - 1


@given(scale=st.floats(min_value=1e-7, max_value=1e-3))
def test_episode_numbers_and_titles_agree(scale: float) -> None:
    """The n-th episode's title is an episode, and n of the titles up to it are."""
    counts = ImdbCounts.at(scale)
    for episode in {1, (counts.episodes + 1) // 2, counts.episodes}:
        title = counts.episode_title(episode)
        assert counts.is_episode(title)
        assert counts.episodes_up_to(title) == episode
