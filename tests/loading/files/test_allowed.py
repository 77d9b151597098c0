"""What another party may name of the sources that the user allows: no link, wildcard or spelling leads out of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.core.errors import SourceError, UsageError
from penstock.loading.files.allowed import AllowedSources
from penstock.loading.files.streams import SourceReader

if TYPE_CHECKING:
    from collections.abc import Iterator

SECRET = b"user,word\nroot,hunter2\n"


@pytest.fixture
def landing(tmp_path: Path) -> Path:
    """Provide a folder with a file and a folder, beside another folder with a secret."""
    folder = tmp_path / "in"
    (folder / "days").mkdir(parents=True)
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "s.csv").write_bytes(SECRET)
    (folder / "a.csv").write_text("1,x\n")
    (folder / "days" / "b.csv").write_text("2,y\n")
    return folder


@pytest.fixture
def reader(landing: Path) -> Iterator[SourceReader]:
    """Return a reader that may read the folder."""
    with SourceReader(allowed=AllowedSources([str(landing)])) as opened:
        yield opened


def _read(reader: SourceReader, source: str) -> list[bytes]:
    return [b"".join(reader.read_bytes(each)) for each in reader.list([source])]


@pytest.mark.parametrize(
    "source", ["a.csv", "*.csv", "days/*.csv", "d*/b.csv", "**", "**/b.csv", "", "link.csv", "ld/*"]
)
def test_what_is_in_an_allowed_folder_is_read(landing: Path, reader: SourceReader, source: str) -> None:
    """By its name, by wildcards, and through links that stay inside."""
    (landing / "link.csv").symlink_to(landing / "days" / "b.csv")
    (landing / "ld").symlink_to(landing / "days")
    assert _read(reader, f"{landing}/{source}")


def test_an_allowed_folder_may_be_a_link(landing: Path, tmp_path: Path) -> None:
    """What counts is where it leads."""
    (tmp_path / "current").symlink_to(landing)
    with SourceReader(allowed=AllowedSources([str(tmp_path / "current")])) as reader:
        assert _read(reader, f"{tmp_path}/current/a.csv") == _read(reader, str(landing / "a.csv")) == [b"1,x\n"]


@pytest.mark.parametrize("link", ["link.csv", "ldir", "days/link.csv", "days/ldir"])
@pytest.mark.parametrize(
    "source", ["link.csv", "lin[k].csv", "ldi?/*.csv", "ldir/s.csv", "**/s.csv", "**", "", "**/l*"]
)
def test_links_that_lead_out_are_not_followed(landing: Path, reader: SourceReader, link: str, source: str) -> None:
    """Nothing outside is read, and the answer is the same whether a file exists there or not."""
    secret = landing.parent / "secret"
    (landing / link).symlink_to(secret / "s.csv" if link.endswith("link.csv") else secret)

    def ask() -> str:
        try:
            return repr(_read(reader, f"{landing}/{source}"))
        except (UsageError, SourceError) as error:
            return str(error)

    answer = ask()
    (secret / "s.csv").unlink()
    assert "hunter2" not in answer
    assert ask() == answer


def test_a_link_that_leads_out_is_refused_by_name(landing: Path, reader: SourceReader) -> None:
    """By itself, and where a wildcard or the folder meets it."""
    (landing / "link.csv").symlink_to(landing.parent / "secret" / "s.csv")
    for source in ("link.csv", "lin*", "", "**"):
        with pytest.raises(UsageError, match="none of the sources"):
            reader.list([f"{landing}/{source}"])


def test_a_link_that_takes_the_place_of_a_listed_path_is_not_followed(landing: Path, reader: SourceReader) -> None:
    """Neither as the file, nor as a folder on the way to it."""
    (listed,) = reader.list([str(landing / "days" / "b.csv")])
    (landing / "days").rename(landing.parent / "moved")
    (landing / "days").symlink_to(landing.parent / "moved")
    with pytest.raises(SourceError, match="could not open"):
        _ = [*reader.read_bytes(listed)]
    (listed,) = reader.list([str(landing / "a.csv")])
    (landing / "a.csv").rename(landing / "old.csv")
    (landing / "a.csv").symlink_to(landing / "old.csv")
    with pytest.raises(SourceError, match="could not open"):
        _ = [*reader.read_bytes(listed)]


def test_pipes_and_standard_input_are_not_read(
    landing: Path, reader: SourceReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe would be waited for; standard input has the client's requests, also where its folder is allowed."""
    os.mkfifo(landing / "pipe")
    for source in ("pipe", "p*", "**"):
        with pytest.raises(UsageError, match="is a pipe or a device"):
            reader.list([f"{landing}/{source}"])
    monkeypatch.chdir(landing)
    with pytest.raises(SourceError, match="could not open"):
        reader.list(["-"])


def test_a_file_url_is_held_as_its_path(landing: Path, reader: SourceReader) -> None:
    """Its escapes are decoded first."""
    assert _read(reader, f"file://{landing}/a.csv") == [b"1,x\n"]
    for source in (
        f"file://{landing}/..%2fsecret/s.csv",
        f"file://{landing.parent}/secret/s.csv",
        "file:///etc/passwd",
    ):
        with pytest.raises(UsageError):
            reader.list([source])


def test_a_named_wildcard_allows_what_it_matches_and_no_other(landing: Path) -> None:
    """As the user has written it."""
    (landing / "link.csv").symlink_to(landing.parent / "secret" / "s.csv")
    allowed = AllowedSources([f"{landing}/a*.csv"])
    assert allowed.resolve(f"{landing}/a*.csv") == f"{landing.resolve()}/a*.csv"
    for source in (f"{landing}/a.csv", f"{landing}/*.csv", f"{landing}/link.csv"):
        with pytest.raises(UsageError):
            allowed.resolve(source)


@pytest.mark.parametrize("name", ["a\0b", "\ud800", "a\0*", "\ud800*"])
def test_names_that_no_file_can_have_are_refused(landing: Path, reader: SourceReader, name: str) -> None:
    """As errors of the one who asks."""
    with pytest.raises((UsageError, SourceError)):
        reader.list([f"{landing}/{name}"])


def test_keys_are_compared_as_they_are(landing: Path) -> None:
    """Below the prefix up to its slash; a store decodes nothing."""
    allowed = AllowedSources(["s3://bucket/a/", "s3://bucket/one.csv", str(landing)])
    for source in ("s3://bucket/a/b.csv", "s3://bucket/a/%2e%2e/b", "S3://bucket/a/*", "s3://bucket/one.csv"):
        assert allowed.resolve(source) == source
    for source in (
        "s3://bucket/a",
        "s3://bucket/ab",
        "s3://bucket/a/../b",
        "s3://other/a/b",
        "s3://bucket/*",
        "gs://bucket/a/b",
    ):
        with pytest.raises(UsageError):
            allowed.resolve(source)


@pytest.mark.parametrize(
    "path",
    [
        "../s", "%2e%2e/s", ".%2E/s", "%252e%252e/s", "x/.\t./.\n./s", "..%2fs", "..%5cs", "..\\s", "x/..;a=b/../s",
        "%09../s", ".%0d./s", "\u0000", "./s", " ../s",
    ],
)  # fmt: skip
def test_a_url_stays_below_its_prefix_however_it_is_written(path: str) -> None:
    """Dots, their escapes and escapes of those, backslashes, parameters, and characters that clients remove."""
    for prefix in ("http://host/a/", "https://user:word@host:8443/a/"):
        with pytest.raises(UsageError):
            AllowedSources([prefix]).resolve(prefix + path)


@pytest.mark.parametrize(
    "url", ["http://host/b", "http://host", "http://host/a", "http://host:81/a/b", "https://host/a/b", "http://a@host/a/b",
            "http://host.evil/a/b", "http://host@evil/a/b", "http://evil#http://host/a/b", "ftp://host/a/b"]
)  # fmt: skip
def test_another_server_scheme_or_port_is_refused(url: str) -> None:
    """The prefix has them all."""
    with pytest.raises(UsageError):
        AllowedSources(["http://host/a/"]).resolve(url)
