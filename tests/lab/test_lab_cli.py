"""`penstock lab` as it is typed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import psycopg
import pytest

from penstock.cli.main import main
from penstock_lab.topology.lab import Lab

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.part("rest")
def test_a_lab_is_listed_and_described_until_it_is_down(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """As text and as objects; a primary that has ended is another exit code than a lab that was never there."""

    def run(*arguments: str, code: int = 0) -> str:
        assert main(["lab", *arguments]) == code
        return capfd.readouterr().out

    up = json.loads(run("up", "single", "--name", "one", "--parameters", "embedded", "--json"))
    with psycopg.connect(up["conninfo"]) as connection:
        assert connection.execute("SHOW max_wal_size").fetchone() == ("4GB",)
    assert run("list") == "one  single  up\n"
    assert json.loads(run("list", "--json")) == {
        "format": 1,
        "labs": [{"name": "one", "shape": "single", "stage": "up"}],
    }
    assert json.loads(run("status", "one", "--json"))["members"] == up["members"]
    assert f"connect with: {up['conninfo']}" in run("status", "one")
    server = Lab.named("one", home)
    parts = server._parts(server._known())
    parts.server(server._known().primary).stop("immediate")
    assert "the primary is not running" in run("status", "one", code=3)
    assert up["conninfo"] in run("up", "single", "--name", "one", "--parameters", "embedded")
    assert run("down", "one") == "down: one\n"
    assert run("down", "one") == 'lab "one" was not up\n'
    assert run("list") == "no lab is up\n"
    run("status", "one", code=2)


@pytest.mark.parametrize("is_link", [False, True])
def test_folder_that_is_no_lab_is_left_as_it_is(
    home: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], is_link: bool
) -> None:
    """Somebody's own, or what a symbolic link names, whether a lab is to be removed or created there."""
    labs, other = home / "labs", tmp_path / "other"
    labs.mkdir(parents=True)
    own = other if is_link else labs / "mine"
    own.mkdir()
    (own / "work").write_text("kept")
    if is_link:
        (labs / "mine").symlink_to(other)
    for command in (["down", "mine"], ["up", "single", "--name", "mine"]):
        assert main(["lab", *command]) != 0
        assert "symbolic link" in (error := capfd.readouterr().err) or "is no lab of penstock" in error
        assert (own / "work").read_text() == "kept"


def test_a_single_server_has_no_zones_to_delay(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """And names of labs are names of folders."""
    assert main(["lab", "up", "single", "--zone-latency", "1ms"]) == 2
    assert main(["lab", "up", "single", "--name", "../x"]) == 2
    assert '"../x" is not a valid lab name' in capfd.readouterr().err
    assert not (home / "labs").exists()


@pytest.mark.parametrize("command", [["status"], ["heal"], ["failover"], ["kill", "zone-a"]])
def test_name_of_a_lab_is_the_last_argument(home: Path, capfd: pytest.CaptureFixture[str], command: list[str]) -> None:
    """For every command but up, which creates it."""
    assert not home.joinpath("labs").exists()
    assert main(["lab", *command, "other"]) == 2
    assert '"other"' in capfd.readouterr().err
    assert main(["lab", "down", "other"]) == 0
    assert '"other"' in capfd.readouterr().out
