"""Options of Python functions: a decorator that gives their signature and help, and how messages spell them.

Errors and warnings spell options as arguments: --mode replace is mode="replace". Commands such as `penstock undo ID`
stay as they are typed in a shell.
"""

from __future__ import annotations

import inspect
import json
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import MISSING, Field, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from penstock.core.errors import PenstockError
from penstock.core.values.job import LOAD_KINDS, TARGET_KINDS
from penstock.core.values.options import COUNT, SESSIONS, describe_value, option_fields, option_of
from penstock.core.words import hide_secrets, suggest

if TYPE_CHECKING:
    from penstock.core.values.notice import Notice


OPTIONS: Mapping[str, Field[Any]] = {
    name: field for kind in (*TARGET_KINDS, *LOAD_KINDS) for name, field in option_fields(kind).items()
}

# A whole command of a load at the end of a hint; any other command; an option, perhaps with a value.
_SPELLED = re.compile(
    r"run: penstock load (?P<load>.*)$|penstock [a-z][^,;.]*"
    r"|(?<![\w./-])--(?P<no>no-)?(?P<name>[a-z][a-z-]*[a-z])"
    r"(?:(?P<sign>[= ])(?P<value>'[^']*'|\"[^\"]*\"|(?!--)\S+?)(?=[.,;:)]*(?:\s|$)))?",
    re.DOTALL,
)
_QUOTES = ("'", '"')
# The words that follow an option in messages and are not its value.
_NO_VALUE = re.compile(
    "adjust|and|cannot|creates|does|exclude|for|go|has|if|is|it|names|needs?|of|once|or|out|takes|value|with|without"
)
# The blank between two arguments.
_BETWEEN = re.compile(r'(?:(?<=")|(?<==True)|(?<==False)) (?=[a-z_]+=["\dTF])')


def in_python(text: str, switches: Collection[str] = ()) -> str:
    """Return a message in which options of the command line are spelled as arguments of Python.

    `switches` are the names of arguments that are true or false and are no options of a load.

    >>> print(in_python("Use --mode replace, --key a,b or --no-vacuum; --sessions 1 if --role is given.", []))
    Use mode="replace", key="a,b" or vacuum=False; sessions=1 if role is given.
    >>> print(in_python("Use --mode upsert --key a --changed load to update rows."))
    Use mode="upsert", key="a", changed="load" to update rows.
    >>> print(in_python("With the options of all, run: penstock load --null '' --null NA --create --into t f.csv"))
    With the options of all, run: penstock.load(..., null=["", "NA"], create=True)
    >>> print(in_python("a--create.csv: --create needs --names snake, or --role 'a b'."))
    a--create.csv: create=True needs names="snake", or role="a b".
    >>> print(in_python("Use --partial; or run penstock loads forget 1f2e --keep-rows.", ["partial"]))
    Use partial=True; or run penstock loads forget 1f2e --keep-rows.
    """

    def spell(match: re.Match[str]) -> str:
        if match["load"] is not None:
            return f"run: penstock.load(..., {_arguments(match['load'])})"
        name = (match["name"] or "").replace("-", "_")
        if name in switches:
            return f"{name}=True{match['sign'] or ''}{match['value'] or ''}"
        if name not in OPTIONS:
            return match[0]
        sign, value, option = match["sign"], match["value"], option_of(OPTIONS[name])
        assert option is not None
        if option.kind.metavar is None:
            return f"{name}={match['no'] is None}{sign or ''}{value or ''}"
        words = option.kind.metavar.split("|")
        has_words = len(words) > 1 and "N" not in words
        is_plain = value is not None and sign == " " and value[0] not in _QUOTES
        if value is None or (is_plain and (value not in words if has_words else _NO_VALUE.fullmatch(value))):
            return f"{name}{sign or ''}{value or ''}"
        return f"{name}={_literal(name, value[1:-1] if value[0] in _QUOTES else value)}"

    return _BETWEEN.sub(", ", _SPELLED.sub(spell, text))


def _arguments(command: str) -> str:
    """Return the options of a command as arguments, without the table and the server, which stay the same."""
    given: dict[str, list[str]] = {}
    words = iter(shlex.split(command))
    for word in words:
        name = word.removeprefix("--").replace("-", "_")
        option = option_of(OPTIONS[name]) if name in OPTIONS and word.startswith("--") else None
        if option is not None and option.kind.metavar is not None:
            given.setdefault(name, []).append(_literal(name, next(words)))
        elif word.startswith("--"):
            given[name.removeprefix("no_")] = [f"{option is not None}"]
    kept = {name: values for name, values in given.items() if name not in ("into", "to")}
    spelled = {name: each[0] if len(each) == 1 else f"[{', '.join(each)}]" for name, each in kept.items()}
    return ", ".join(f"{name}={value}" for name, value in spelled.items())


def _literal(name: str, text: str) -> str:
    option = option_of(OPTIONS[name])
    is_number = option is not None and option.kind in (COUNT, SESSIONS) and text.isdecimal()
    return text if is_number else json.dumps(text, ensure_ascii=False)


def reword_error(error: PenstockError, switches: Collection[str]) -> None:
    """Change the texts of an error so that options of the command line are spelled as arguments of Python.

    Secrets in them, which may have been given as another argument, are hidden.
    """

    def reword(text: str) -> str:
        return hide_secrets(in_python(text, switches))

    error.message = reword(error.message)
    error.detail = None if error.detail is None else reword(error.detail)
    error.hint = None if error.hint is None else reword(error.hint)
    # The repr of an exception has its arguments.
    error.args = (error.message,)


def reword_notice(notice: Notice, copies: Mapping[str, str]) -> Notice:
    """Return a warning with options spelled as arguments of Python, and with its source in place of a temporary copy.

    `copies` maps the URIs of temporary copies to the names of the sources.
    """
    uri = None if notice.uri is None else copies.get(notice.uri, notice.uri)
    hint = None if notice.hint is None else hide_secrets(in_python(notice.hint))
    return replace(notice, message=hide_secrets(in_python(notice.message)), hint=hint, uri=uri)


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
