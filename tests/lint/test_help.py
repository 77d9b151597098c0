"""Every command and option explains itself, and the reference says what they say."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import typer.core

from penstock.cli.main import COMMANDS, main
from penstock.cli.output import EXIT_CODES
from penstock.core import errors
from support.reference import render_job_tables, render_manpage, render_reference, walk_commands
from support.repository import DOCS, ROOT

if TYPE_CHECKING:
    from collections.abc import Callable

    from typer._click import Command

_REFERENCE = DOCS / "reference" / "cli.md"
_MANPAGE = ROOT / "man" / "data" / "share" / "man" / "man1" / "penstock.1"
_JOB_FILES = DOCS / "reference" / "job.md"
_WALKED: dict[str, tuple[Command, Any]] = {
    context.command_path: (command, context) for command, context in walk_commands()
}
_FRAME = re.compile(r"[│╭╮╰╯─\s]+")


@pytest.fixture
def show(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Provide a function that returns what a command prints on standard output; it succeeds, and reports nothing."""

    def run(*arguments: str) -> str:
        assert main(arguments) == 0
        out, err = capsys.readouterr()
        assert err == ""
        return out

    return run


def test_walk_reaches_every_command() -> None:
    """The other tests of this module look at what is walked."""
    assert {f"penstock {name}" for name in COMMANDS} < set(_WALKED)
    assert "penstock server status" in _WALKED


def test_commands_and_their_options_have_help(subtests: pytest.Subtests) -> None:
    """A sentence for the command, and one for each option and argument."""
    for path, (command, context) in _WALKED.items():
        with subtests.test(path):
            assert command.help
            records = {param.name: param.get_help_record(context) for param in command.get_params(context)}
            assert [name for name, record in records.items() if record is None or not record[1].strip()] == []


def test_paragraphs_of_help_are_wrapped_by_the_terminal_alone() -> None:
    """Lines of the source would end in the middle of those of a terminal."""
    texts = {path: command.help or "" for path, (command, _) in _WALKED.items()}
    assert [path for path, text in texts.items() if any("\n" in part for part in text.split("\n\n"))] == []


def _plain(text: str) -> str:
    """Return a text without line ends, blanks and frames, as rich draws them between its words."""
    return _FRAME.sub("", text)


def _texts_of(command: Command) -> list[str]:
    """Return the help texts of a command, and of its options and arguments."""
    params = [each for each in command.params if isinstance(each, typer.core.TyperOption | typer.core.TyperArgument)]
    return [command.help or "", *(each.help or "" for each in params if not each.hidden)]


def test_help_prints_every_text_whole(
    show: Callable[..., str], subtests: pytest.Subtests, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brackets such as those of pg-penstock[report] are not taken for markup, colons not for emoji."""
    monkeypatch.setenv("COLUMNS", "500")
    for path, (command, _) in _WALKED.items():
        with subtests.test(path):
            shown = _plain(show(*path.split()[1:], "--help"))
            assert [text for text in _texts_of(command) if _plain(text) not in shown] == []


def test_help_of_report_names_the_extra() -> None:
    """The text that was lost."""
    assert "[report]" in (_WALKED["penstock report"][0].help or "")


def test_reference_is_up_to_date() -> None:
    """If this fails, run `make reference` and commit what it wrote."""
    assert _REFERENCE.read_text(encoding="utf-8") == render_reference()
    written = _JOB_FILES.read_text(encoding="utf-8")
    assert written == render_job_tables(written)
    assert _MANPAGE.read_text(encoding="utf-8") == render_manpage(walk_commands(), exit_codes=EXIT_CODES)


def test_man_reads_the_man_page_without_a_warning() -> None:
    """Groff warns of macros that do not exist, and of lines that do not fit."""
    program = shutil.which("man")
    if program is None:
        pytest.skip("man is not installed (Debian's package man-db)")
    argv = [program, "--warnings", "--local-file", str(_MANPAGE)]
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "MANWIDTH": "100"}
    shown = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True)
    assert shown.stderr == ""
    assert "--on-error stop|reject" in shown.stdout
    assert "EXIT STATUS" in shown.stdout


def test_exit_codes_cover_every_error() -> None:
    """The documented codes are those that errors carry."""
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    assert {kind.exit_code for kind in kinds} <= {code for code, _ in EXIT_CODES}


def test_brief_help_fits_one_screen(show: Callable[..., str], subtests: pytest.Subtests) -> None:
    """Of 80 columns and 40 lines, with the prompt; all that it names stands in the whole help too."""
    for path, (command, context) in _WALKED.items():
        with subtests.test(path):
            lines = show(*path.split()[1:], "-h").splitlines()
            assert len(lines) < 40
            assert max(map(len, lines)) <= 80
            known = {name for param in command.get_params(context) for name in param.opts}
            assert {line.split()[0].rstrip(",") for line in lines if line.startswith("  -")} <= known


def test_brief_help_has_a_whole_sentence_on_one_line_for_each_command(
    show: Callable[..., str], subtests: pytest.Subtests
) -> None:
    """None is cut, and none takes a second line."""
    groups = {path: command.commands for path, (command, _) in _WALKED.items() if hasattr(command, "commands")}
    assert len(groups) > 5
    for path, commands in groups.items():
        lines = show(*path.split()[1:], "-h").splitlines()
        for name in commands:
            with subtests.test(f"{path} {name}"):
                (shown,) = [line for line in lines if line.startswith(f"  {name} ")]
                assert shown.endswith(".")


def test_brief_help_of_a_load_has_what_most_loads_need(show: Callable[..., str]) -> None:
    """Nineteen options below their headings, each with its default."""
    lines = show("load", "-h").splitlines()
    assert len([line for line in lines if line.startswith("  --")]) == 19
    messy = ("--skip-lines", "--only", "--skip", "--rename", "--set", "--add-columns")
    assert {option for option in messy if any(line.startswith(f"  {option} ") for line in lines)} == {*messy}
    assert "Bad records" in lines
    assert "(default: stop)" in " ".join(" ".join(lines).split())


def test_whole_help_of_a_load_has_the_headings_of_the_brief_one(
    show: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the same order, with every option, on at most 300 lines of 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    whole, short = (show("load", option).splitlines() for option in ("--help", "-h"))
    assert len(whole) <= 300
    assert max(map(len, whole)) <= 80
    headings = [line for line in short[2:-1] if line[:1].isalpha() and not line.endswith(".")]
    assert [line for line in whole if line in headings] == headings
    shown = {line.split()[0] for line in whole if line.startswith("  --")}
    assert {param.opts[0] for param in _WALKED["penstock load"][0].params if param.opts[0].startswith("--")} == shown


def test_brief_help_names_options_that_it_leaves_out(show: Callable[..., str]) -> None:
    """Those that a file of another country needs."""
    more = show("load", "-h").splitlines()[-1]
    known = {name for param in _WALKED["penstock load"][0].params for name in param.opts}
    assert set(re.findall(r"--[a-z-]+", more)) - {"--help"} == {"--encoding", "--decimal-comma", "--date-order"}
    assert {"--encoding", "--decimal-comma", "--date-order"} <= known


def test_help_names_exit_codes(show: Callable[..., str]) -> None:
    """A script's author finds them where they look first."""
    assert "130: interrupted" in show("--help")


def test_no_arguments_show_help(show: Callable[..., str]) -> None:
    """As every command line does: one screen with all commands."""
    assert show() == show("-h")
