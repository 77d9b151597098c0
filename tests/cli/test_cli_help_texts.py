"""Every command's --help prints the help texts as they are written."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
import typer.core

from penstock.cli.main import main
from penstock.cli.reference import walk_commands

if TYPE_CHECKING:
    from typer._click import Command

COMMANDS = {context.command_path: command for command, context in walk_commands()}
_FRAME = re.compile(r"[│╭╮╰╯─\s]+")


def plain(text: str) -> str:
    """Return a text without line ends, blanks and frames, as rich draws them between its words."""
    return _FRAME.sub("", text)


def texts_of(command: Command) -> list[str]:
    """Return the help texts of a command, and of its options and arguments."""
    params = [each for each in command.params if isinstance(each, typer.core.TyperOption | typer.core.TyperArgument)]
    return [command.help or "", *(each.help or "" for each in params if not each.hidden)]


@pytest.mark.parametrize("path", COMMANDS)
def test_help_prints_every_text_whole(
    path: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brackets such as those of pg-penstock[report] are not taken for markup, colons not for emoji."""
    monkeypatch.setenv("COLUMNS", "500")
    assert main([*path.split()[1:], "--help"]) == 0
    shown = plain(capsys.readouterr().out)
    assert [text for text in texts_of(COMMANDS[path]) if plain(text) not in shown] == []


def test_help_of_report_names_the_extra() -> None:
    """The text that was lost."""
    assert "[report]" in (COMMANDS["penstock report"].help or "")
