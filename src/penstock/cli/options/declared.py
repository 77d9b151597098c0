"""Turns the options that penstock.model declares into typer's options."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.options.completion import tables, words_of
from penstock.model.load.job import LOAD_KINDS, TARGET_KINDS
from penstock.model.options import OptionError, find_option, option_fields

if TYPE_CHECKING:
    from dataclasses import Field

TARGET_OPTIONS = {name: field for kind in TARGET_KINDS for name, field in option_fields(kind).items()}
LOAD_OPTIONS = {name: field for kind in LOAD_KINDS for name, field in option_fields(kind).items()}
_OPTIONS = TARGET_OPTIONS | LOAD_OPTIONS

# SERVER has the options that name the server and the way to connect. LEDGER also has the options for the ledger's
# place.
SERVER = ("to", "role", "iam_auth", "tunnel")
LEDGER = (*SERVER, "read_write", "ledger_schema")


def takes(names: Iterable[str]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator for a command with **options.

    The command accepts these options, and gets those that were typed.
    """
    fields = [_OPTIONS[name] for name in names]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command, eval_str=True).parameters.values()
        added = [
            inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_annotate(field))
            for field in fields
        ]
        positional = [each for each in own if each.default is each.empty and each.kind is not each.VAR_KEYWORD]
        others = [each.replace(kind=each.KEYWORD_ONLY) for each in own if each.default is not each.empty]

        @wraps(command)
        def run(*args: Any, **given: Any) -> None:
            for field in fields:
                if given[field.name] in (None, [], ()):
                    del given[field.name]
                elif field.default is True:
                    given[field.name] = False  # Typed as --no-...
            try:
                command(*args, **given)
            except OptionError as error:
                known = _OPTIONS.get(error.name)
                raise error.spelled(error.name if known is None else flag(known)) from None

        run.__signature__ = inspect.Signature([*positional, *added, *others])  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in (*positional, *added, *others)}
        return run

    return decorate


def flag(field: Field[Any], value: object = None) -> str:
    """Return how an option is typed: --name, or --no-name if `value` is False or the switch is on by default."""
    name = field.name.replace("_", "-")
    is_off = _is_switch(field) and (field.default is True or value is False)
    return f"--no-{name}" if is_off else f"--{name}"


def flags(field: Field[Any]) -> str:
    """Return all spellings of an option, in typer's form --a/--no-a."""
    if _is_switch(field) and field.default is None:
        return f"{flag(field)}/{flag(field, False)}"
    return flag(field)


def _is_switch(field: Field[Any]) -> bool:
    option = find_option(field)
    return option is not None and option.kind.metavar is None


def _annotate(field: Field[Any]) -> Any:
    option = find_option(field)
    assert option is not None
    kind = bool if option.kind.metavar is None else list[str] if option.kind.is_list else str
    shown = typer.Option(
        flags(field),
        metavar=option.kind.metavar,
        help=option.help,
        rich_help_panel=option.group,
        show_default=False,
        autocompletion=tables if option.kind.metavar == "TABLE" else words_of(option.kind.metavar),
    )
    return Annotated[kind | None, shown]
