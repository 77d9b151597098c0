"""Options of a load mean the same typed, in a job file and in Python."""

from __future__ import annotations

import inspect
from dataclasses import MISSING
from typing import TYPE_CHECKING, Any

import pytest

import penstock
from penstock.cli.options import LOAD_OPTIONS, TARGET_OPTIONS, flag
from penstock.core.errors import UsageError
from penstock.core.values.options import option_of
from penstock.loading.jobs import make_request, make_target, read_job_file

if TYPE_CHECKING:
    from dataclasses import Field
    from pathlib import Path

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
    "TIME|SIZE": "30s",
    "PERCENT": "5%",
    "auto|N": "2",
}
# What an option needs beside it.
_NEEDED: dict[str, dict[str, Any]] = {
    "max_rejects": {"on_error": "reject"},
    "shared_group": {"settings": "auto"},
    "partition_of": {"for_values": "IN (1)"},
    "for_values": {"partition_of": "p"},
}


def _typed(field: Field[Any]) -> Any:
    option = option_of(field)
    assert option is not None
    metavar = option.kind.metavar
    if metavar is None:
        return field.default is not True
    return _TYPED.get(metavar) or (["x"] if option.kind.is_list else metavar.split("|")[-1])


def test_option_is_the_same_typed_written_and_in_python(tmp_path: Path, subtests: pytest.Subtests) -> None:
    """The name of the field is the job file's key and the function's keyword, and with dashes what is typed."""
    path = tmp_path / "job.toml"
    for name, field in _OPTIONS.items():
        if name in ("transform", "pg_bin", "reject_file"):
            continue
        given = {"into": "t", name: _typed(field), **_NEEDED.get(name, {})}
        with subtests.test(name):
            request = make_request(given, [make_target(given, sources=["/f"])])
            _write_job(path, given)
            assert read_job_file(path) == request
            assert name in inspect.signature(penstock.load).parameters
            # A switch that is on by default is turned off by its name with --no-.
            negation = "no-" if field.default is True else ""
            assert flag(field).removeprefix("--").removeprefix(negation).replace("-", "_") == name


def _write_job(path: Path, given: dict[str, Any]) -> None:
    top, target = [], ["sources = '/f'"]
    for key, value in given.items():
        text = str(value).lower() if isinstance(value, bool) else repr(value)
        (target if key in TARGET_OPTIONS else top).append(f"{key} = {text}")
    path.write_text("\n".join([*top, "[[target]]", *target]))


def test_defaults_are_what_their_own_kinds_make_of_them(subtests: pytest.Subtests) -> None:
    """So that a value that was read once may be read again, as replace() does."""
    for name, field in _OPTIONS.items():
        with subtests.test(name):
            option = option_of(field)
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
