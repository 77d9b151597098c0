"""A decorator that gives functions with **options the signature and help of the declared options."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import MISSING
from functools import wraps
from typing import ParamSpec, TypeVar

from penstock.api.wording import OPTIONS, reword_error
from penstock.core.errors import PenstockError
from penstock.core.values.options import describe_value
from penstock.core.words import suggest

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")

# The options that say how to connect to the server, and in which schema its ledger is.
ACCESS = ("role", "iam_auth", "tunnel", "read_write", "ledger_schema")
# The options that functions accept by name. keywords.py has the types of these options.
LOAD_KEYWORDS = tuple(name for name in OPTIONS if name not in ("into", "to"))
ACCESS_KEYWORDS = ("pg_bin", *ACCESS)
# The options that may differ when a load is resumed. The table, and options that decide which rows are stored, must
# stay the same.
RESUME = (
    *("role", "iam_auth", "tunnel", "read_write", "sessions", "changed", "emptied", "wait", "retry_for"),
    *("ignore_space", "on_error", "max_rejects", "max_record", "warnings", "settings", "shared_group"),
    *("ledger_schema", "reject_file", "aws_timeout"),
)
RESUME_KEYWORDS = ("pg_bin", *RESUME)


def takes(names: Iterable[str]) -> Callable[[Callable[_Given, _Result]], Callable[_Given, _Result]]:
    """Return a decorator for a function with **options. The decorated function accepts only the named options.

    help() of the function lists them. Its errors spell options as arguments of Python.
    """
    fields = [OPTIONS[name] for name in names]

    def decorate(function: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
        own = [each for each in inspect.signature(function).parameters.values() if each.kind is not each.VAR_KEYWORD]
        switches = [each.name for each in own if each.default is False]
        added = []
        for field in fields:
            default = {} if field.default is MISSING else field.default
            kind = inspect.Parameter.KEYWORD_ONLY
            added.append(inspect.Parameter(field.name, kind, default=default, annotation=field.type))
        signature = inspect.signature(function).replace(parameters=[*own, *added])

        @wraps(function)
        def call(*args: _Given.args, **options: _Given.kwargs) -> _Result:
            for name in options:
                if name not in signature.parameters:
                    near = suggest(name, signature.parameters)
                    hint = f"; did you mean {near!r}?" if near else ""
                    raise TypeError(f"{function.__name__}() got an unexpected keyword argument {name!r}{hint}")
            try:
                return function(*args, **options)
            except PenstockError as error:
                reword_error(error, switches)
                raise

        call.__signature__ = signature  # type: ignore[attr-defined]
        lines = [f"    {field.name}: {describe_value(field)}" for field in fields]
        call.__doc__ = "\n".join([inspect.cleandoc(function.__doc__ or ""), "", "Options:", *lines])
        return call

    return decorate
