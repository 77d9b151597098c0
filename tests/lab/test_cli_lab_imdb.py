"""`penstock lab imdb` as typed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typer.testing import CliRunner

from penstock.core.errors import UsageError
from penstock_lab.command.lab import app

if TYPE_CHECKING:
    from pathlib import Path


def test_imdb_writes_the_named_tables_and_says_so(tmp_path: Path) -> None:
    """Standard output has one line per file."""
    arguments = ["imdb", "--scale", "0.001", "--out", str(tmp_path), "--tables", "title.crew, title.ratings"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["title.crew.tsv.gz", "title.ratings.tsv.gz"]
    assert f"{tmp_path}/title.crew.tsv.gz: 11,000 rows, " in result.output


def test_imdb_refuses_an_unknown_table(tmp_path: Path) -> None:
    """The error reaches the command line's own handler as it is."""
    result = CliRunner().invoke(app, ["imdb", "--scale", "1", "--out", str(tmp_path), "--tables", "crew"])
    assert isinstance(result.exception, UsageError)


def test_every_option_has_help() -> None:
    """What --help shows of each option is a sentence, not just its name."""
    import typer.main

    for command in typer.main.get_command(app).commands.values():
        for parameter in command.params:
            is_argument = parameter.param_type_name == "argument"
            assert is_argument or parameter.name == "help" or parameter.help, f"{command.name} {parameter.name}"
