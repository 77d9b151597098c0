"""What local sources stand for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.core.errors import SourceError
from penstock.core.values.source import safe_url
from penstock.loading.files.remote import matches
from penstock.loading.files.streams import SourceReader

if TYPE_CHECKING:
    from penstock.core.values.notice import Notice


def _names(*sources: str) -> list[str]:
    with SourceReader() as reader:
        return [item.uri for item in reader.list(sources)]


def _notices(*sources: str) -> list[str]:
    notices: list[Notice] = []
    with SourceReader() as reader:
        reader.list(sources, on_notice=notices.append)
    return [each.message for each in notices]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a working directory with a few files, hidden ones and subdirectories."""
    for name in ("b.csv", "a.csv", ".hidden.csv", "sub/c.csv", "sub/.git/d.csv", "sub/deep/e.tsv"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("1\n")
    (tmp_path / "empty.csv").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_wildcards_are_sorted_and_leave_hidden_files_out(folder: Path) -> None:
    """Wildcards give files in the order of their names, empty ones included."""
    assert _names("*.csv") == ["a.csv", "b.csv", "empty.csv"]
    assert _names("**/*.?sv") == ["a.csv", "b.csv", "empty.csv", "sub/c.csv", "sub/deep/e.tsv"]


def test_pattern_ends_in_folders_that_hold_themselves(folder: Path) -> None:
    """Two links upwards would make 2 to the power of 40 paths before a path is too long."""
    for name in ("sub/up", "sub/top", "sub/deep/up"):
        (folder / name).symlink_to(folder)
    (folder / "beside").symlink_to(folder / "sub")
    assert _names("**/*.?sv") == ["a.csv", "b.csv", "beside/c.csv", "beside/deep/e.tsv", "empty.csv"]
    assert _names(f"{folder}/sub/**/*.tsv") == [f"{folder}/sub/deep/e.tsv"]
    assert "beside/deep/e.tsv" in _names("**/deep/**")


def test_directory_stands_for_its_files(folder: Path) -> None:
    """A directory gives its own files, not those of its subdirectories."""
    assert _names("sub", str(folder)) == [
        "sub/c.csv",
        *(f"{folder}/{name}" for name in ("a.csv", "b.csv", "empty.csv")),
    ]


def test_file_named_twice_is_listed_once(folder: Path) -> None:
    """A file that two sources stand for is loaded once, where it was named first."""
    assert _names("b.csv", "*.csv", "b.csv") == ["b.csv", "a.csv", "empty.csv"]


def test_same_file_by_two_paths_is_listed_once_with_a_warning(folder: Path) -> None:
    """Device and inode identify the file, whatever its path. What is skipped is reported."""
    (folder / "link.csv").symlink_to("a.csv")
    assert _names("a.csv", "./a.csv", "link.csv") == ["a.csv"]
    assert _notices("a.csv", "./a.csv", "link.csv") == [
        '"./a.csv" is the same file as "a.csv" and is loaded once (and 1 more like it)'
    ]
    assert _names("b.csv", "b.csv") == ["b.csv"]
    assert _notices("b.csv", "b.csv") == ['"b.csv" is named more than once and is loaded once']


def test_folders_that_are_skipped_are_told(folder: Path) -> None:
    """In a directory and among what a pattern matches; ** leaves nothing out but what is hidden."""
    (folder / "sub" / "other").mkdir()
    assert _notices("sub") == ['folder "sub/deep" is skipped (and 1 more like it)']
    assert _notices("*") == ['folder "sub" is skipped']
    assert [_notices(name) for name in ("sub/deep", "*.csv", "sub/**", "**/*.csv")] == [[]] * 4


def test_files_of_a_folder_that_are_no_data_by_their_names_are_skipped(folder: Path) -> None:
    """These are files that are being written, marks and checksums.

    Those with data are reported, and are loaded if they are named.
    """
    out = folder / "out"
    (out / "_temporary").mkdir(parents=True)
    for name in ("part-0.csv", "part-1.csv.part", "_metadata", ".part-0.csv.crc", "part-0.csv.crc", "_temporary/x.csv"):
        (out / name).write_text("1\n")
    (out / "_SUCCESS").touch()
    assert _names("out") == ["out/part-0.csv"]
    assert _names("out/**") == ["out/part-0.csv"]
    assert _names("out/*.part", "out/_metadata") == ["out/part-1.csv.part", "out/_metadata"]
    assert 'file "out/_metadata" is skipped by its name (and 2 more like it)' in _notices("out")


def test_empty_folder_stands_for_nothing_and_says_so(folder: Path) -> None:
    """Tonight's files have not come: that is no error."""
    (folder / "today").mkdir()
    assert _names("today", "b.csv") == ["b.csv"]
    assert _notices("today") == ['directory "today" holds no files to load']
    (folder / "today" / "_SUCCESS").touch()
    (folder / "today" / "_temporary").mkdir()
    assert _notices("today") == ['directory "today" holds no files to load']


def test_link_to_a_file_that_is_gone_is_an_error(folder: Path) -> None:
    """As if its disk were not mounted. A sync, or a replacement, would remove its rows."""
    (folder / "in").mkdir()
    (folder / "in" / "a.csv").write_text("1\n")
    (folder / "in" / "b.csv").symlink_to(folder / "gone.csv")
    for source in ("in", "in/*", "in/**"):
        with pytest.raises(SourceError, match=r"b\.csv"):
            _names(source)


def test_existing_name_wins_over_its_wildcards(folder: Path) -> None:
    """A file whose name looks like a pattern is that file."""
    (folder / "[ab].csv").write_text("1\n")
    assert _names("[ab].csv") == ["[ab].csv"]


def test_file_url_is_a_path(folder: Path) -> None:
    """A file URL is decoded; one of another machine is refused."""
    (folder / "a b%.csv").write_text("1\n")
    assert _names(f"file://{folder}/a%20b%25.csv") == [f"{folder}/a b%.csv"]
    with pytest.raises(SourceError, match="does not name a file of this machine"):
        _names("file://elsewhere/a.csv")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("missing.csv", 'could not open "missing.csv": No such file or directory'),
        ("*.parquet", '"\\*.parquet" matches no file'),
        ("a.csv/x", 'could not open "a.csv/x": Not a directory'),
        ("ftp://user:secret@host/x?key=secret", '"ftp://host/x" has an unknown type'),
        ("nul\0byte", "could not open"),
        ("https:/user:secret@host/x?sig=secret", '"https:/host/x" has an unknown type'),
        ("https:host/x?sig=secret", '"https:host/x" has an unknown type'),
        ("htps:/host/x?sig=secret", '"htps:/host/x" matches no file'),
        ("http://a b/x?sig=secret", '"http://a b/x" is not a valid URL'),
        ("http://user:secret@host:99999/x?sig=secret", "is not a valid URL"),
    ],
)
def test_source_that_stands_for_nothing_is_named(folder: Path, source: str, message: str) -> None:
    """A source without a file is an error that names it, without what may be secret."""
    with pytest.raises(SourceError, match=message) as caught:
        _names(source)
    assert "secret" not in str(caught.value)


def test_directory_without_files_hints_at_what_lies_deeper(folder: Path) -> None:
    """A directory of directories is an error with the wildcard to use."""
    (folder / "outer" / "inner").mkdir(parents=True)
    with pytest.raises(SourceError, match=r"outer/\*\*"):
        _names("outer")
    # As Spark writes its partitions.
    (folder / "outer" / "_SUCCESS").touch()
    with pytest.raises(SourceError, match=r"outer/\*\*"):
        _names("outer")


def test_wildcard_passes_over_no_folder_that_cannot_be_listed(folder: Path) -> None:
    """A sync would delete the rows of its files."""
    inner = folder / "out" / "eu"
    inner.mkdir(parents=True)
    (inner / "a.csv").write_text("1\n")
    for source in ("out/*/*.csv", "out/*/a.csv"):
        assert _names(source) == ["out/eu/a.csv"]
    uid = os.geteuid()
    folder.chmod(0o755)
    inner.chmod(0)
    try:
        os.seteuid(65534 if uid == 0 else uid)
        for source in ("out/*/*.csv", "out/*/a.csv", "out/*/in/*.csv", "out/**"):
            with pytest.raises(SourceError, match="could not list"):
                _names(source)
    finally:
        os.seteuid(uid)
        inner.chmod(0o755)


def test_listed_version_pins_identity_size_and_time(folder: Path) -> None:
    """Writing to a file or replacing it changes its version."""
    with SourceReader() as reader:
        before = reader.list(["a.csv"])[0]
        status = (folder / "a.csv").stat()
        assert before.version == f"{status.st_dev}:{status.st_ino}:2:{status.st_mtime_ns}:{status.st_ctime_ns}"
        os.utime(folder / "a.csv", ns=(0, 1))
        assert reader.list(["a.csv"])[0].version != before.version


def test_name_that_is_not_utf8_can_be_shown(folder: Path) -> None:
    """A name of arbitrary bytes is listed, and its URI is plain text."""
    path = os.fsencode(folder) + b"/caf\xe9.csv"
    Path(os.fsdecode(path)).write_text("1\n")
    assert _names("caf*") == ["caf\\udce9.csv"]


@pytest.mark.parametrize(
    ("key", "pattern", "is_match"),
    [
        ("data/a.csv", "data/*.csv", True),
        ("data/sub/a.csv", "data/*.csv", False),
        ("data/sub/a.csv", "data/**/*.csv", True),
        ("data/a.csv", "data/**/*.csv", True),
        ("data/x/y/z", "data/**", True),
        ("data/.hidden", "data/*", False),
        ("data/.hidden", "data/.h*", True),
        ("data/.tmp/a.csv", "data/**/*", False),
        ("data/part-01", "data/part-[0-9]?", True),
        ("other/a.csv", "data/*", False),
    ],
)
def test_keys_match_like_paths(key: str, pattern: str, *, is_match: bool) -> None:
    """Wildcards mean for keys of object stores what they mean for local paths."""
    assert matches(key, pattern) is is_match


@pytest.mark.parametrize("key", ["out/_temporary/0/part-0.csv", "out/x/part-0.csv.part"])
def test_double_star_matches_no_key_that_a_prefix_skips(key: str) -> None:
    """What is being written would be loaded beside what is committed."""
    assert matches(key, "out/**")
    assert not matches(key, "out/**", skips=True)


def test_safe_url_has_no_secrets() -> None:
    """User, password, signature and fragment are left out; a port stays."""
    assert safe_url("https://u:p@host:8443/a/b.csv?X-Amz-Signature=s#f") == "https://host:8443/a/b.csv"
