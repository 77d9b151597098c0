"""Where an embedded server's files lie, and what they say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.core.errors import LabError
from penstock.embedded.cluster import format_settings, initdb_argv, make_home
from penstock.embedded.installations import Installation
from penstock.embedded.layout import ClusterFiles
from penstock.embedded.server import EmbeddedServer, default_home, format_conninfo
from penstock.embedded.users import ServerUser, first_unreachable


@pytest.mark.parametrize(
    ("environment", "is_root", "home"),
    [
        ({"PENSTOCK_HOME": "/srv/pg", "XDG_DATA_HOME": "/data"}, False, "/srv/pg"),
        ({"PENSTOCK_HOME": "/srv/pg"}, True, "/srv/pg"),
        ({"XDG_DATA_HOME": "/data"}, False, "/data/penstock"),
        ({"XDG_DATA_HOME": "/data", "HOME": "/root"}, True, "/var/lib/penstock/root"),
        ({"HOME": "/home/ann"}, True, "/var/lib/penstock/home/ann"),
        ({"XDG_DATA_HOME": "relative"}, False, "~/.local/share/penstock"),
        ({}, False, "~/.local/share/penstock"),
    ],
)
def test_home_follows_environment(environment: dict[str, str], is_root: bool, home: str) -> None:
    """PENSTOCK_HOME comes first; root has a folder for each HOME, and none in it."""
    assert default_home(environment, is_root=is_root) == Path(home).expanduser()


def test_socket_path_fits_its_limit() -> None:
    """Short homes hold their socket, long ones have it in /tmp, each under a name of its own."""
    assert ClusterFiles(Path("/srv/pg")).socket_dir == Path("/srv/pg/run")
    long_dirs = {ClusterFiles(Path("/srv") / (letter * 200)).socket_dir for letter in "ab"}
    assert len(long_dirs) == 2
    assert all(len(str(folder / ".s.PGSQL.65535.lock")) < 100 for folder in long_dirs)


def test_settings_are_quoted() -> None:
    """A quote or backslash in a value does not end it."""
    assert "a = 'it''s \\\\ fine'\n" in format_settings({"a": "it's \\ fine"})


def test_conninfo_is_quoted() -> None:
    """Blanks, quotes and empty values survive libpq's parser."""
    from psycopg.conninfo import conninfo_to_dict

    values = {"host": "/srv/my 'own'\\run", "user": "", "dbname": "postgres"}
    assert conninfo_to_dict(format_conninfo(**values)) == values


def test_builtin_locale_is_asked_of_17_and_later() -> None:
    """Older versions do not know the option."""
    commands = {
        major: initdb_argv(
            Installation(bin_dir=Path("/pg/bin"), major=major, origin="directory"),
            Path("/srv/data"),
            password=Path("/srv/password"),
            is_synced=True,
        )
        for major in (16, 17)
    }
    assert [("--builtin-locale=C.UTF-8" in commands[major]) for major in (16, 17)] == [False, True]


def test_unreachable_directory_is_named(tmp_path: Path) -> None:
    """The outermost one is, because that is the one to open."""
    inner = tmp_path / "closed" / "inner"
    inner.mkdir(parents=True)
    tmp_path.chmod(0o755)
    (tmp_path / "closed").chmod(0o700)
    stranger = ServerUser(name="stranger", uid=54321, gid=54321)
    barrier = first_unreachable(inner, stranger)
    assert barrier is not None
    assert (tmp_path / "closed").is_relative_to(barrier)
    assert first_unreachable(Path("/"), stranger) is None


def test_import_of_the_embedded_server_is_light() -> None:
    """A load that finds its server running pays for no subprocess, no copying and no process table."""
    program = "import sys, penstock.embedded.server; print(*sys.modules)"
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    heavy = {
        "subprocess",
        "shutil",
        "tempfile",
        "psutil",
        "psycopg",
        "typer",
        "rich",
        "importlib.metadata",
    }
    assert heavy.isdisjoint(finished.stdout.split())


def test_a_home_that_another_user_has_chosen_is_not_used(tmp_path: Path) -> None:
    """In a shared PENSTOCK_HOME a link could lead to that user's server. Neither its files nor it are used."""
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (tmp_path / "server-18").symlink_to(theirs)
    with pytest.raises(LabError, match="could not create"):
        make_home(ClusterFiles(tmp_path / "server-18"), user=None)
    installation = Installation(bin_dir=Path("/pg/bin"), major=18, origin="directory")
    server = EmbeddedServer.create(tmp_path / "server-18", installation)
    for use in (server.ensure_running, server.status, server.stop, server.conninfo):
        with pytest.raises(LabError) as raised:
            use()
        assert "symbolic link" in str(raised.value.detail)
    if os.geteuid() == 0:
        os.chown(theirs, 1234, -1)
        with pytest.raises(LabError) as raised:
            EmbeddedServer.create(theirs, installation).status()
        assert "belongs to another user" in str(raised.value.detail)
    assert list(theirs.iterdir()) == []
