"""Each option of a load is declared in one place, and everything that has options follows from it."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from dataclasses import MISSING
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import penstock
from penstock.api import keywords
from penstock.cli.options import LOAD_OPTIONS, TARGET_OPTIONS, flag
from penstock.cli.reference import render_keywords
from penstock.core.errors import UsageError
from penstock.core.values.job import LOAD_KINDS, TARGET_KINDS
from penstock.core.values.options import find_option, option_fields
from penstock.loading.jobs.jobfile import read_job_file
from penstock.loading.jobs.request import make_request, make_target

if TYPE_CHECKING:
    from dataclasses import Field

_SOURCE = Path(penstock.__file__).parent
_OPTIONS = TARGET_OPTIONS | LOAD_OPTIONS
# A value for each kind whose values are not any text, as it is typed.
_TYPED = {
    "LIST": "a,b",
    "COLUMN=VALUE": ["a=b"],
    "OLD=NEW": ["a=b"],
    "[COLUMN=]CHAR": ["a=.", " "],
    "[COLUMN=]ORDER": ["a=dmy"],
    "TIME": "1min",
    "N": "3",
    "SIZE": "2MB",
    "PERCENT": "5%",
    "auto|N": "2",
}


def _typed(field: Field[Any]) -> Any:
    option = find_option(field)
    assert option is not None
    metavar = option.kind.metavar
    if metavar is None:
        return field.default is not True
    return _TYPED.get(metavar) or (["x"] if option.kind.is_list else metavar.split("|")[-1])


def test_each_option_is_declared_once() -> None:
    """In one dataclass, and by no typer.Option of a command of its own that stands for the same."""
    names = [name for kind in (*TARGET_KINDS, *LOAD_KINDS) for name in option_fields(kind)]
    assert len(names) == len(set(names))
    flags = {flag(field) for field in _OPTIONS.values()}
    by_hand = [
        (path.relative_to(_SOURCE).as_posix(), argument.value)
        for path in _SOURCE.rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "typer.Option"
        for argument in call.args
        if isinstance(argument, ast.Constant) and argument.value in flags
    ]
    # Options of other commands, whose meaning is another.
    assert {name for name, _ in by_hand} <= {
        "embedded/command.py",
        "cli/options.py",
        "diagnose/command.py",
        "loading/command/loads.py",
        "rds/command.py",
        "watch/command/watch.py",
    }


@pytest.mark.parametrize("name", [name for name in _OPTIONS if name not in ("transform", "pg_bin", "reject_file")])
def test_option_is_the_same_typed_written_and_in_python(name: str, tmp_path: Path) -> None:
    """The name of the field is the job file's key and the function's keyword, and with dashes what is typed."""
    field = _OPTIONS[name]
    typed = _typed(field)
    needed = {
        "max_rejects": {"on_error": "reject"},
        "shared_group": {"settings": "auto"},
    }
    given = {"into": "t", name: typed, **needed.get(name, {})}
    request = make_request(given, [make_target(given, sources=["/f"])])
    top, target = [], ["sources = '/f'"]
    for key, value in given.items():
        text = str(value).lower() if isinstance(value, bool) else repr(value)
        (target if key in TARGET_OPTIONS else top).append(f"{key} = {text}")
    path = tmp_path / "job.toml"
    path.write_text("\n".join([*top, "[[target]]", *target]))
    assert read_job_file(path) == request
    assert name in inspect.signature(penstock.load).parameters
    # A switch that is on by default is turned off by its name with --no-.
    negation = "no-" if field.default is True else ""
    assert flag(field).removeprefix("--").removeprefix(negation).replace("-", "_") == name


@pytest.mark.parametrize("name", _OPTIONS)
def test_default_is_what_its_own_kind_makes_of_it(name: str) -> None:
    """So that a value that was read once may be read again, as replace() does."""
    field = _OPTIONS[name]
    option = find_option(field)
    assert option is not None
    if field.default not in (MISSING, None, ()):
        assert option.kind.read(field.default) == field.default


def test_error_names_what_the_option_may_be_and_no_secret() -> None:
    """A list may hold a connection string."""
    with pytest.raises(UsageError, match="invalid value for to") as caught:
        make_request({"to": ["password=s3cret"]}, [])
    assert "s3cret" not in str(caught.value)


def test_unknown_option_of_python_is_a_type_error_with_the_nearest() -> None:
    """As of any function, before a server is asked."""
    with pytest.raises(
        TypeError, match=r"load\(\) got an unexpected keyword argument 'colums'; did you mean 'columns'"
    ):
        penstock.load("f", "t", colums="a")
    with pytest.raises(TypeError, match=r"loads\(\) got an unexpected keyword argument 'mode'"):
        penstock.loads(mode="append")


def test_keywords_of_python_are_typed_as_the_options_are_declared() -> None:
    """If this fails, run `python -m penstock.cli.reference` and commit what it wrote."""
    assert Path(keywords.__file__).read_text(encoding="utf-8") == render_keywords()


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


@pytest.mark.part("rest")
def test_documented_python_is_typed(user_folder: Path) -> None:
    """The blocks of docs/python.md pass mypy --strict, as one program."""
    text = (_SOURCE.parents[1] / "docs" / "python.md").read_text(encoding="utf-8")
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


def test_help_of_python_says_what_the_value_does_and_not_the_option_of_the_shell() -> None:
    """vacuum=True vacuums: what --no-vacuum does is said of False."""
    text = penstock.load.__doc__ or ""
    assert "\n    vacuum: If False, skip the VACUUM" in text
    assert "\n    wait: If False, fail if another process" in text
    assert "\n    atomic: Let all rows appear at once" in text


def test_help_of_python_shows_all_options() -> None:
    """With what each does and what it is by default."""
    parameters = inspect.signature(penstock.load).parameters
    assert parameters["on_error"].default == "stop"
    assert "\n    on_error: What to do with a record that the table refuses" in (penstock.load.__doc__ or "")
    assert list(inspect.signature(penstock.retry).parameters)[:3] == ["load_id", "file", "to"]
