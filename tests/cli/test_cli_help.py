"""Every command and option explains itself, and the reference says what they say."""

from __future__ import annotations

import doctest
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.cli import help as help_
from penstock.cli.main import COMMANDS
from penstock.cli.output import EXIT_CODES
from penstock.cli.reference import render_job_tables, render_manpage, render_reference, walk_commands
from penstock.core import errors

if TYPE_CHECKING:
    from collections.abc import Callable

    from cli.conftest import Finished

_REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"
_MANPAGE = Path(__file__).parents[2] / "man" / "data" / "share" / "man" / "man1" / "penstock.1"
_JOB_FILES = _REFERENCE.with_name("job.md")
_WALKED = {context.command_path: (command, context) for command, context in walk_commands()}


def test_walk_reaches_every_command() -> None:
    """The other tests of this module look at what is walked."""
    assert {f"penstock {name}" for name in COMMANDS} < set(_WALKED)
    assert "penstock server status" in _WALKED


@pytest.mark.parametrize("path", _WALKED)
def test_command_and_its_options_have_help(path: str) -> None:
    """A sentence for the command, and one for each option and argument."""
    command, context = _WALKED[path]
    assert command.help
    for param in command.get_params(context):
        record = param.get_help_record(context)
        assert record is not None, param.name
        assert record[1].strip(), param.name


@pytest.mark.parametrize("path", _WALKED)
def test_paragraphs_of_help_are_wrapped_by_the_terminal_alone(path: str) -> None:
    """Lines of the source would end in the middle of those of a terminal."""
    text = _WALKED[path][0].help or ""
    assert not any("\n" in paragraph for paragraph in text.split("\n\n"))


def test_reference_is_up_to_date() -> None:
    """If this fails, run `python -m penstock.cli.reference` and commit what it wrote."""
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


def test_help_names_exit_codes(penstock: Callable[..., Finished]) -> None:
    """A script's author finds them where they look first."""
    shown = penstock("--help")
    assert shown.code == 0
    assert "130: interrupted" in shown.out


def test_no_arguments_show_help(penstock: Callable[..., Finished]) -> None:
    """As every command line does: one screen with all commands."""
    assert penstock().out == penstock("-h").out


@pytest.mark.parametrize("path", _WALKED)
def test_brief_help_fits_one_screen(path: str, penstock: Callable[..., Finished]) -> None:
    """Of 80 columns and 40 lines, with the prompt; all that it names stands in the whole help too."""
    shown = penstock(*path.split()[1:], "-h")
    lines = shown.out.splitlines()
    assert (shown.code, shown.err) == (0, "")
    assert len(lines) < 40
    assert max(map(len, lines)) <= 80
    known = {name for param in _WALKED[path][0].get_params(_WALKED[path][1]) for name in param.opts}
    assert {line.split()[0].rstrip(",") for line in lines if line.startswith("  -")} <= known


def test_brief_help_of_a_load_has_what_most_loads_need(penstock: Callable[..., Finished]) -> None:
    """Nineteen options below their headings, each with its default."""
    lines = penstock("load", "-h").out.splitlines()
    assert len([line for line in lines if line.startswith("  --")]) == 19
    messy = ("--skip-lines", "--only", "--skip", "--rename", "--set", "--add-columns")
    assert {option for option in messy if any(line.startswith(f"  {option} ") for line in lines)} == {*messy}
    assert "Bad records" in lines
    assert "(default: stop)" in " ".join(" ".join(lines).split())


def test_whole_help_of_a_load_has_the_headings_of_the_brief_one(
    penstock: Callable[..., Finished], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the same order, with every option, on at most 300 lines of 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    whole, short = (penstock("load", option).out.splitlines() for option in ("--help", "-h"))
    assert len(whole) <= 300
    assert max(map(len, whole)) <= 80
    headings = [line for line in short[2:-1] if line[:1].isalpha() and not line.endswith(".")]
    assert [line for line in whole if line in headings] == headings
    shown = {line.split()[0] for line in whole if line.startswith("  --")}
    assert {param.opts[0] for param in _WALKED["penstock load"][0].params if param.opts[0].startswith("--")} == shown


def test_brief_help_names_options_that_it_leaves_out(penstock: Callable[..., Finished]) -> None:
    """Those that a file of another country needs."""
    more = penstock("load", "-h").out.splitlines()[-1]
    known = {name for param in _WALKED["penstock load"][0].params for name in param.opts}
    assert set(re.findall(r"--[a-z-]+", more)) - {"--help"} == {"--encoding", "--decimal-comma", "--date-order"}
    assert {"--encoding", "--decimal-comma", "--date-order"} <= known


@pytest.mark.parametrize("path", [path for path, (command, _) in _WALKED.items() if hasattr(command, "commands")])
def test_brief_help_has_a_whole_sentence_on_one_line_for_each_command(
    path: str, penstock: Callable[..., Finished]
) -> None:
    """None is cut, and none takes a second line."""
    lines = penstock(*path.split()[1:], "-h").out.splitlines()
    for name in _WALKED[path][0].commands:  # type: ignore[attr-defined]
        shown = [line for line in lines if line.startswith(f"  {name} ")]
        assert len(shown) == 1
        assert shown[0].endswith(".")


def test_examples_of_brief_help_hold() -> None:
    """What a docstring shows is what happens."""
    assert doctest.testmod(help_).failed == 0
