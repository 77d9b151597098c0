"""Files that are known by other names: symbolic links, renamed ones, folders beside them."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import pytest

from penstock.core.errors import DataError, TargetError
from penstock.core.values.job import LoadRules
from support.files import write_to
from support.loads import IMPATIENT, Loads, target

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.core.values.job import Mode, Types
    from penstock.loading.values.outcome import LoadProgress


@pytest.fixture
def loads(ledger18: str) -> Loads:
    """Provide loads into a database with a table of one number."""
    return Loads(ledger18, setup="CREATE TABLE t (a int)")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Provide a file of two records in a folder of its own."""
    path = tmp_path / "files" / "a.csv"
    path.parent.mkdir()
    path.write_text("a\n1\n2\n")
    return path


def test_file_that_was_loaded_is_known_through_a_symbolic_link(loads: Loads, path: Path) -> None:
    """To itself or to its folder; and one that was loaded through a link is known by its own name."""
    assert loads.run(target(path)).rows == 2
    link = path.parent.parent / "link.csv"
    link.symlink_to(path)
    folder = path.parent.parent / "folder"
    folder.symlink_to(path.parent)
    assert [loads.run(target(each)).rows for each in (link, folder, folder / "a.csv")] == [0, 0, 0]
    assert loads.count() == 2
    other = path.with_name("b.csv")
    other.write_text("a\n3\n")
    link.unlink()
    link.symlink_to(other)
    assert [loads.run(target(each)).rows for each in (link, other)] == [1, 0]


def test_folder_with_a_link_to_one_of_its_files_loads_it_once(loads: Loads, path: Path) -> None:
    """The load reports this, as it reports folders that it skips."""
    (path.parent / "b.csv").symlink_to(path)
    (path.parent / "deeper").mkdir()
    assert loads.run(target(path.parent)).rows == 2
    assert [each.message for each in loads.warnings] == [
        f'folder "{path.parent}/deeper" is skipped',
        f'"{path.parent}/b.csv" is the same file as "{path}" and is loaded once',
    ]


def test_renamed_file_is_loaded_with_a_warning_that_names_the_other(loads: Loads, path: Path) -> None:
    """It has the size, inode and time of modification of one that is loaded into the same table."""
    loads.execute("CREATE TABLE u (a int)")
    loads.run(target(path))
    renamed = path.with_name("b.csv")
    path.rename(renamed)
    loads.run(target(renamed, into="u"))
    assert loads.notices == []
    load_id = loads.execute("SELECT id::text FROM penstock.loads ORDER BY began_at LIMIT 1")[0][0]
    assert loads.run(target(renamed)).rows == 2
    (notice,) = loads.notices
    assert notice.startswith(f'"{renamed}" may be "{path}" under another name')
    assert f"load {load_id}" in notice


def test_file_that_is_loaded_again_on_purpose_is_not_warned_of(loads: Loads, path: Path) -> None:
    """By --again, or known already under the name that it has."""
    loads.run(target(path))
    renamed = path.with_name("b.csv")
    path.rename(renamed)
    loads.run(target(renamed), rules=LoadRules(retry_for=0.0, again=True))
    loads.run(target(renamed))
    assert loads.notices == []


@pytest.mark.parametrize("way", ["touched", "replaced"])
@pytest.mark.parametrize("changed", ["error", "load"])
def test_file_of_the_same_bytes_has_not_changed(
    loads: Loads, path: Path, way: str, changed: Literal["error", "load"]
) -> None:
    """Another time or inode is no change; another byte in a file of that size is."""
    path.write_text("a\n" + "".join(f"{number}\n" for number in range(100_000)))
    rules = LoadRules(retry_for=0.0, changed=changed)
    assert loads.run(target(path), rules=rules).rows == 100_000
    if way == "touched":
        os.utime(path, ns=(1, 1))
    else:
        other = path.with_name("b.csv")
        other.write_bytes(path.read_bytes())
        other.replace(path)
    loads.plan(target(path))
    outcome = loads.run(target(path), rules=rules)
    assert (outcome.rows, outcome.objects_skipped) == (0, 1)
    content = path.read_text()
    path.write_text(content.replace("50000", "50001"))
    with pytest.raises(TargetError, match="has changed since it was loaded"):
        loads.run(target(path))


@pytest.mark.parametrize("mode", ["append", "upsert", "insert-new"])
def test_loaded_files_without_a_new_column_stop_nothing(loads: Loads, tmp_path: Path, mode: Mode) -> None:
    """A folder whose new files have one more column, which the table has got: the old ones are not compared."""
    loads.execute("CREATE TABLE u (a int PRIMARY KEY, b text)")
    folder = tmp_path / "nightly"
    folder.mkdir()
    job = replace(target(folder, into="u"), mode=mode, key=() if mode == "append" else ("a",))
    write_to(folder / "1.csv", "a,b\n1,x\n")
    assert loads.run(job).rows == 1
    loads.execute("ALTER TABLE u ADD c text")
    # Nothing is to be read: nothing is compared.
    assert loads.run(job).objects_skipped == 1
    write_to(folder / "2.csv", "c,a,b\nnew,2,y\n")
    outcome = loads.run(job)
    assert (outcome.rows, outcome.objects_skipped) == (1, 1)
    assert loads.rows("u") == [(1, "x", None), (2, "y", "new")]
    assert loads.run(job).objects_skipped == 2


@pytest.mark.part("rest")
def test_one_file_with_other_columns_is_refused_before_the_load_begins(loads: Loads, path: Path) -> None:
    """With its own error, though an unfinished load has it; and nothing is recorded of one that is new."""
    loads.run(target(path))
    text = "a\n" + "1\n" * 1_000_000 + "x\n"
    begun = write_to(path.with_name("b.csv"), text)
    with pytest.raises(DataError):
        loads.run(target(begun), sessions=1, batch_bytes=1)
    recorded = loads.execute("SELECT state, count(*) FROM penstock.loads GROUP BY 1 ORDER BY 1")
    assert recorded == [("complete", 1), ("running", 1)]
    loads.execute("ALTER TABLE t RENAME a TO b")
    for refused in (begun, write_to(path.with_name("c.csv"), "a\n4\n")):
        with pytest.raises(TargetError, match='column "a" of the file does not exist'):
            loads.run(target(refused))
    assert loads.execute("SELECT state, count(*) FROM penstock.loads GROUP BY 1 ORDER BY 1") == recorded
    assert loads.run(target(path)).objects_skipped == 1


def test_files_to_load_with_other_columns_are_refused_before_the_load_begins(loads: Loads, tmp_path: Path) -> None:
    """One statement takes on the records of all: nothing is left that would keep the files from being loaded alone."""
    loads.execute("CREATE TABLE u (a int PRIMARY KEY, b text, c text)")
    records = "".join(f"{number},{'x' * 1000}\n" for number in range(10, 1000))
    paths = [write_to(tmp_path / "1.csv", f"a,b\n{records}"), write_to(tmp_path / "2.csv", "a,b,c\n2,y,z\n")]
    job = replace(target(paths, into="u"), mode="upsert", key=("a",))
    with pytest.raises(DataError, match="different columns"):
        loads.run(job, sessions=1, batch_bytes=1)
    assert loads.execute("SELECT to_regclass('penstock.loads') IS NULL OR NOT EXISTS (TABLE penstock.loads)") == [
        (True,)
    ]
    for path in paths:
        assert loads.run(replace(job, sources=(str(path),))).rows > 0


@pytest.mark.parametrize("emptied", ["error", "load"])
def test_loaded_files_that_are_read_again_are_compared(
    loads: Loads, path: Path, emptied: Literal["error", "load"]
) -> None:
    """As when their rows are gone, and the table has got a column that they lack."""
    loads.run(target(path))
    loads.execute("TRUNCATE t; ALTER TABLE t ADD b text NOT NULL")
    with pytest.raises(TargetError) as caught:
        loads.run(target(path), rules=replace(IMPATIENT, emptied=emptied))
    assert ("is not in the file" in caught.value.message) is (emptied == "load")


def test_progress_counts_only_files_that_are_to_be_read(loads: Loads, path: Path) -> None:
    """Not those of a folder that were loaded before; and it begins with nothing read, from where the pace counts."""
    loads.run(target(path.parent))
    new = write_to(path.with_name("b.csv"), "a\n3\n")
    heard: list[LoadProgress] = []
    loads.run(target(path.parent), on_progress=heard.append)
    assert {progress.size_bytes for progress in heard} == {new.stat().st_size}
    assert heard[0].bytes_read == 0


@pytest.mark.parametrize("types", ["text", "widen"])
@pytest.mark.parametrize(
    "content",
    [b"a,b\n1,2\n", b"c\n1\n", b"a\n\xff\n", b'a\n"open\n', b"a\nno number\n", b"", b"PAR1"],
    ids=["new column", "other column", "not UTF-8", "open quote", "other type", "empty", "other format"],
)
@pytest.mark.parametrize("is_alone", [True, False])
def test_corrected_file_has_changed_before_anything_of_its_content_matters(
    loads: Loads, tmp_path: Path, content: bytes, types: Types, is_alone: bool
) -> None:
    """The hint has every way to correct the table; nothing of the file is looked at, nor warned of."""
    folder = tmp_path / "nightly"
    folder.mkdir()
    write_to(folder / "1.csv", "a\n1\n2\n3\n")
    if not is_alone:
        write_to(folder / "2.csv", "a\n4\n")
    loads.execute("CREATE TABLE u (a int)")
    job = replace(target(folder, into="u", header=True), types=types, create=types != "text")
    load_id = loads.run(job).load_id
    (folder / "1.csv").write_bytes(content)
    with pytest.raises(TargetError, match="has changed since it was loaded") as caught:
        loads.plan(job)
    for way in (f"penstock undo {load_id}", "--mode replace", "--mode upsert --key", "--changed load"):
        assert way in (caught.value.hint or "")


def test_corrected_file_may_be_checked_before_it_is_loaded(loads: Loads, tmp_path: Path) -> None:
    """A check stores nothing, so it asks nobody what to do with the former version."""
    path = write_to(tmp_path / "f.csv", "a\n1\n")
    loads.execute("CREATE TABLE u (a int)")
    loads.run(target(path, into="u"))
    write_to(path, "a\n1\nx\n")
    assert loads.check(target(path, into="u")).problem_count == 1


def test_corrected_file_is_upserted_or_replaces_the_rows(loads: Loads, tmp_path: Path) -> None:
    """As the hint says, into a table that the file was appended to."""
    path = write_to(tmp_path / "f.csv", "a,b\n1,x\n2,y\n")
    loads.execute("CREATE TABLE u (a int PRIMARY KEY, b text)")
    loads.run(target(path, into="u"))
    write_to(path, "a,b\n1,corrected\n2,y\n")
    upsert = replace(target(path, into="u"), mode="upsert", key=("a",))
    assert loads.run(upsert, rules=LoadRules(retry_for=0.0, changed="load")).updated > 0
    assert loads.rows("u") == [(1, "corrected"), (2, "y")]
    write_to(path, "a,b\n1,again\n")
    loads.run(replace(target(path, into="u"), mode="replace"))
    assert loads.rows("u") == [(1, "again")]
