"""Each option of a load is declared in one place; signatures, help and types of the Python functions follow from it."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import penstock
from penstock.api import keywords
from penstock.cli.options import LOAD_OPTIONS, TARGET_OPTIONS, flag
from penstock.core.values.job import LOAD_KINDS, TARGET_KINDS
from penstock.core.values.options import option_fields
from support.reference import render_keywords
from support.repository import parsed_sources, read_document

_OPTIONS = TARGET_OPTIONS | LOAD_OPTIONS


def test_each_option_is_declared_once() -> None:
    """In one dataclass, and by no typer.Option of a command of its own that stands for the same."""
    names = [name for kind in (*TARGET_KINDS, *LOAD_KINDS) for name in option_fields(kind)]
    assert len(names) == len(set(names))
    flags = {flag(field) for field in _OPTIONS.values()}
    by_hand = [
        (path, argument.value)
        for path, tree in parsed_sources()
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "typer.Option"
        for argument in call.args
        if isinstance(argument, ast.Constant) and argument.value in flags
    ]
    # Options of other commands, whose meaning is another.
    assert {name for name, _ in by_hand} <= {
        "penstock/embedded/command.py",
        "penstock/cli/options.py",
        "penstock/diagnose/command.py",
        "penstock/loading/command/loads.py",
        "penstock/rds/command.py",
        "penstock/watch/command/watch.py",
        "penstock_lab/bench/command.py",
        "penstock_lab/command/lab.py",
    }


def test_keywords_of_python_are_typed_as_the_options_are_declared() -> None:
    """If this fails, run `make reference` and commit what it wrote."""
    assert Path(keywords.__file__).read_text(encoding="utf-8") == render_keywords()


def test_help_of_python_says_what_the_value_does_and_not_the_option_of_the_shell() -> None:
    """vacuum=True vacuums: what --no-vacuum does is said of False."""
    text = penstock.load.__doc__ or ""
    assert "\n    vacuum: If False, skip the VACUUM" in text
    assert "\n    wait: If False, fail, do not wait, if another process" in text
    assert "\n    atomic: Let all rows appear at once" in text


def test_help_of_python_shows_all_options() -> None:
    """With what each does and what it is by default."""
    parameters = inspect.signature(penstock.load).parameters
    assert parameters["on_error"].default == "stop"
    assert "\n    on_error: What to do with a record that the table refuses" in (penstock.load.__doc__ or "")
    assert list(inspect.signature(penstock.retry).parameters)[:3] == ["load_id", "file", "to"]


@pytest.fixture(scope="module")
def user_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide the folder of a user's programs, where mypy keeps what it has found out about penstock."""
    return tmp_path_factory.mktemp("user")


def _find_type_errors(program: str, folder: Path) -> list[str]:
    """Return the errors that mypy finds in a program of a user."""
    (folder / "program.py").write_text(program)
    argv = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--no-error-summary", "program.py"]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)
    assert not done.stderr
    return [line for line in done.stdout.splitlines() if ": note: " not in line]


def test_documented_python_is_typed(user_folder: Path) -> None:
    """The blocks of docs/python.md pass mypy --strict, as one program."""
    text = read_document("docs/python.md")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert len(blocks) > 8
    assert _find_type_errors("\n".join(blocks), user_folder) == []


def test_type_checker_finds_words_and_options_that_do_not_exist(user_folder: Path) -> None:
    """Before the program runs; what an option may be otherwise is no error."""
    calls = [
        'penstock.load("f", "t", mode="upsert", key="id", retry_for="5s", sessions="auto", null=["", "x"])',
        'penstock.load("f", "t", mode="upsertt")',
        'penstock.load("f", "t", colums="a")',
        'penstock.loads(to="service=x", mode="append")',
    ]
    found = _find_type_errors("\n".join(["import penstock", *calls]), user_folder)
    assert [(line.split(":")[1], line.rpartition("[")[2]) for line in found] == [
        ("3", "arg-type]"),
        ("4", "call-arg]"),
        ("5", "call-arg]"),
    ]
