"""Files written for a user: whole or not at all, never over a device, a link, or what is being read."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.core.errors import SourceError
from penstock.core.newfile import NewFile, check_writable
from support.files import write_to

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def file_limit() -> Iterator[Callable[[int], None]]:
    """Provide a function that makes files of this process fill up at so many bytes, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda limit_bytes: resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_file_appears_whole_and_private(tmp_path: Path) -> None:
    """Until it is finished the old one stays."""
    path = write_to(tmp_path / "rejects.csv", "old")
    with NewFile(path) as file:
        file.write(b"new")
        assert path.read_text() == "old"
        file.finish()
    assert (path.read_text(), path.stat().st_mode & 0o777, list(tmp_path.iterdir())) == ("new", 0o600, [path])


def test_nothing_stays_of_a_file_that_is_given_up(tmp_path: Path) -> None:
    """Whatever ended its writing."""
    with pytest.raises(KeyboardInterrupt), NewFile(tmp_path / "rejects.csv") as file:
        file.write(b"half")
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_nothing_stays_where_the_disk_is_full(tmp_path: Path, file_limit: Callable[[int], None]) -> None:
    """The old file does."""
    path = write_to(tmp_path / "rejects.csv", "old")
    file_limit(4096)
    with pytest.raises(OSError, match="File too large"), NewFile(path) as file:
        file.write(b"x" * 5000)
        file.finish()
    assert (path.read_text(), list(tmp_path.iterdir())) == ("old", [path])


@pytest.mark.parametrize("kind", ["fifo", "directory", "link", "dangling link"])
def test_only_regular_files_are_replaced(tmp_path: Path, kind: str) -> None:
    """A name that stands for something else is refused, and is what it was."""
    path, other = tmp_path / "rejects.csv", tmp_path / "other.csv"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        path.symlink_to(other)
        if kind == "link":
            other.write_text("other")
    before = path.lstat()
    with pytest.raises(SourceError, match="will not replace"):
        NewFile(path)
    assert (path.lstat().st_ino, path.lstat().st_mode) == (before.st_ino, before.st_mode)
    assert not list(tmp_path.glob(".penstock-*"))


def test_devices_are_not_replaced() -> None:
    """/dev/full above all: a superuser could."""
    with pytest.raises(SourceError, match="it is a device"):
        check_writable(Path("/dev/full"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_folder_that_is_not_ours_to_write_is_told_of_at_once(tmp_path: Path) -> None:
    """Also if the file is there: it is written under another name first."""
    path = write_to(tmp_path / "rejects.csv", "old")
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(SourceError, match="Permission denied"):
            check_writable(path)
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.parametrize("way", ["itself", "hard link", "folder's link", "listed by a link"])
def test_sources_are_not_replaced(tmp_path: Path, way: str) -> None:
    """By whatever name source and file are known."""
    source = write_to(tmp_path / "data.csv", "a,b\n")
    path, listed = source, source
    if way == "hard link":
        path = tmp_path / "rejects.csv"
        path.hardlink_to(source)
    elif way == "folder's link":
        (tmp_path / "folder").symlink_to(tmp_path)
        path = tmp_path / "folder" / "data.csv"
    elif way == "listed by a link":
        listed = tmp_path / "link.csv"
        listed.symlink_to(source)
    with pytest.raises(SourceError, match="it is a source of the load"):
        check_writable(path, sources=[str(tmp_path / "gone.csv"), "s3://bucket/key", str(listed)])
    assert source.read_text() == "a,b\n"
