"""Objects of one load that could be meant in two ways are refused before the first row, unless an option decides."""

from __future__ import annotations

import os
import random
import threading
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from penstock.core.errors import DataError
from penstock.core.values.job import LoadRules
from support.loads import Loads, target

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


@pytest.fixture
def loads(ledger18: str) -> Loads:
    """Provide loads into a database with a table that takes whatever stands in two fields."""
    return Loads(ledger18, setup="CREATE TABLE t (a text, b text)")


def _write(folder: Path, texts: Sequence[str]) -> list[Path]:
    paths = [folder / f"{number}.txt" for number in range(1, len(texts) + 1)]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text, newline="")
    return paths


_BACKSLASHES = ("1\tC:\\new\\\\table\n", "2\ty\n3\tC:\\Users\\xavier\n")
# Nothing but backslashes that could be escapes
_UNCLEAR = "1\tC:\\new\\table\n"


@pytest.mark.parametrize(
    ("texts", "line", "readings", "option"),
    [
        (_BACKSLASHES, "line 2: 3\tC:\\Users\\xavier", ("E'C:Users\\nvier'", "'C:\\Users\\xavier'"), "--format=tsv"),
        (
            _BACKSLASHES[::-1],
            "line 1: 1\tC:\\new\\\\table",
            ("'C:\\new\\\\table'", "E'C:\\new\\\\table'"),
            "--format=text",
        ),
        (("1\tx\n", '2\t"y\tz"\n'), "line 1: 2", ("'\"y', 'z\"'", "E'y\\tz'"), "--format=csv"),
        (("1,x\n2,y\n", "2;y,z\n" * 2), "line 1: 2;y,z", ("'2;y', 'z'", "'2', 'y,z'"), "--delimiter=';'"),
        (("a,b\n1,x\n", "2,y\n"), "line 1: 2,y", ("names of columns", "a row of '2', 'y'"), "--no-header"),
        (("1,x\n2,y\n", "a,b\n3,z\n"), "line 1: a,b", ("a row of 'a', 'b'", "names of columns"), "--header"),
    ],
    ids=["escapes", "backslashes", "quotes", "delimiters", "header in the first", "header in another"],
)
def test_object_that_could_be_meant_otherwise_is_refused_with_both_readings(
    loads: Loads, tmp_path: Path, texts: Sequence[str], line: str, readings: tuple[str, str], option: str
) -> None:
    """The objects before it are not loaded either: it is found before the first row, by load, check and plan."""
    job = target(_write(tmp_path, [*texts[:1] * 3, *texts[1:]]))
    error = loads.refuse(job)
    assert isinstance(error, DataError)
    assert f"4.txt {line}" in (error.detail or "")
    before, here = (error.detail or "").splitlines()[1:]
    assert readings[0] in before
    assert readings[1] in here
    assert option in (error.hint or "")
    assert loads.execute("SELECT FROM penstock.loads") == []
    with pytest.raises(DataError):
        loads.check(job)
    with pytest.raises(DataError):
        loads.plan(job)


@pytest.mark.parametrize(
    ("texts", "options", "rows"),
    [
        (_BACKSLASHES, {"format": "tsv"}, [("1", "C:\\new\\\\table"), ("2", "y"), ("3", "C:\\Users\\xavier")]),
        ((_UNCLEAR,), {"format": "tsv"}, [("1", "C:\\new\\table")]),
        ((_UNCLEAR,), {"format": "text"}, [("1", "C:\new\table")]),
        (("1,x\n2,y\n", "2;y,z\n" * 2), {"delimiter": ","}, [("1", "x"), ("2", "y"), ("2;y", "z"), ("2;y", "z")]),
        (("a,b\n1,x\n", "2,y\n"), {"has_header": False}, [("1", "x"), ("2", "y"), ("a", "b")]),
        (("1,x\n2,y\n", "a,b\n3,z\n"), {"has_header": True, "columns": ("a", "b")}, [("2", "y"), ("3", "z")]),
    ],
)
def test_what_an_option_says_is_certain(
    loads: Loads, tmp_path: Path, texts: Sequence[str], options: dict[str, Any], rows: list[tuple[str, str]]
) -> None:
    """All objects are read by it, whatever they look like."""
    loads.run(target(_write(tmp_path, texts), **options))
    assert loads.rows() == rows


@pytest.mark.parametrize(
    "texts",
    [
        ("1\tx\n2\ty\n", "3\tC:\\Users\n"),
        ('1\t"x\ty"\n', "2\tz\n"),
        ("1\tx\\ny\n\\N\tx\n", "2\tz\n", "3\t\\N\n", _UNCLEAR),
        ("a,b\n1,x\n", "b,a\nx,2\n", "a,b\n", ""),
        ("a,b\nx,y\n", "a,b\nz,\n"),
        ("1,x\n", "2,y;;z||\n3,w\n", "\n"),
        ("1,x\n", "2,y,z\n"),
        ("1,x\n2,y\n", "2;y,z\n"),
    ],
    ids=[
        "plain first",
        "plain csv",
        "plain text",
        "columns in another order",
        "words",
        "punctuation",
        "ragged",
        "one record",
    ],
)
def test_object_that_tells_nothing_else_is_read_as_the_first(loads: Loads, tmp_path: Path, texts: list[str]) -> None:
    """Nothing in it speaks for another reading; records that do not fit are rejected."""
    loads.plan(target(_write(tmp_path, texts)), rules=LoadRules(on_error="reject"))


def _refused_by(act: Callable[[], object]) -> DataError:
    with pytest.raises(DataError) as caught:
        act()
    return caught.value


@pytest.mark.parametrize("create", [False, True], ids=["load", "create"])
@pytest.mark.parametrize("options", [{}, {"delimiter": "\t"}, {"has_header": False}], ids=str)
def test_backslashes_that_nothing_explains_are_refused_with_both_readings(
    loads: Loads, tmp_path: Path, options: dict[str, Any], *, create: bool
) -> None:
    r"""Also in the first or only object: C:\new holds a line feed as text and a backslash as tsv."""
    if create:
        loads.execute("DROP TABLE t")
    job = target(_write(tmp_path, [_UNCLEAR]), create=create, columns=("a", "b"), **options)
    error = loads.refuse(job)
    assert isinstance(error, DataError)
    for refused in (error, _refused_by(lambda: loads.check(job)), _refused_by(lambda: loads.plan(job))):
        line, as_text, as_tsv = (refused.detail or "").splitlines()
        assert line == f"{tmp_path / '1.txt'} line 1: 1\tC:\\new\\table"
        assert "--format=text" in as_text
        assert r"'1', E'C:\new\table'" in as_text
        assert "--format=tsv" in as_tsv
        assert r"'1', 'C:\new\table'" in as_tsv
        assert "--format=text" in (refused.hint or "")
        assert "--format=tsv" in (refused.hint or "")
    assert loads.has_table("t") is not create


@pytest.mark.parametrize("seed", range(20))
def test_what_copy_wrote_of_ordinary_rows_is_read_as_they_were(loads: Loads, tmp_path: Path, seed: int) -> None:
    """A null or a backslash among many rows proves COPY's escapes: nobody is asked, and every value is the same."""
    rng = random.Random(seed)
    values = ["x", "two words", "a\nb", "a\tb", "C:\\new", None, ""]
    with psycopg.connect(loads.conninfo) as connection:
        with connection.cursor().copy("COPY t FROM STDIN") as copy:
            for number in range(50):
                copy.write_row((str(number), rng.choice(values)))
        with connection.cursor().copy("COPY t TO STDOUT") as copy:
            (tmp_path / "f").write_bytes(b"".join(copy))
    before = loads.rows()
    loads.execute("TRUNCATE t")
    loads.run(target(tmp_path / "f"))
    assert loads.rows() == before


@pytest.mark.parametrize("name", ["README.txt", "zz notes.md"])
def test_file_that_may_be_no_data_is_named(loads: Loads, tmp_path: Path, name: str) -> None:
    """Whether it is the first file or not; without files of data there is none."""
    (tmp_path / "a.csv").write_text("a;b\n1;2\n")
    (tmp_path / name).write_text("These files are from\nthe shop.\n")
    hint = loads.refuse(target(tmp_path, create=True)).hint or ""
    assert hint.startswith(f"If {tmp_path}/{name} is no data, name the others alone: '{tmp_path}/*.csv'. ")
    (tmp_path / "a.csv").rename(tmp_path / "a")
    assert "no data" not in (loads.refuse(target(tmp_path, create=True)).hint or "")


def test_object_that_was_loaded_before_is_not_looked_at_again(loads: Loads, tmp_path: Path) -> None:
    """A folder that grows by a file a day costs a look at one file."""
    paths = _write(tmp_path, ["1,x\n2,y\n", "a,b\n3,z\n"])
    loads.run(target(paths, has_header=False))
    paths += [tmp_path / "3.txt"]
    paths[2].write_text("4,w\n")
    assert loads.run(target(paths)).rows == 1


def test_pipe_that_could_be_meant_otherwise_takes_everything_back(loads: Loads, tmp_path: Path) -> None:
    """It is looked at when its turn comes: the second is not written before the first has been read."""
    paths = [tmp_path / "1", tmp_path / "2"]
    for path in paths:
        os.mkfifo(path)

    def write() -> None:
        for path, text in zip(paths, ("1,x\n" * 100_000, "a,b\n3,z\n"), strict=True):
            path.write_text(text)

    writer = threading.Thread(target=write)
    writer.start()
    error = loads.refuse(target(paths))
    writer.join()
    assert f"{paths[1]} line 1: a,b" in (error.detail or "")
