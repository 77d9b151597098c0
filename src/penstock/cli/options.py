"""Options of commands: declared ones as typer's options, those that commands share, and what the shell completes.

The module also opens the server or the ledger that a command's options name.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.output import remember_target, show_warning
from penstock.core.values.job import LOAD_KINDS, TARGET_KINDS, Access, Housekeeping
from penstock.core.values.notice import Notice
from penstock.core.values.options import NAMES, OptionError, option_fields, option_of, pick
from penstock.core.values.source import is_signed
from penstock.core.words import hide_secrets

if TYPE_CHECKING:
    from dataclasses import Field

    from penstock.api.ledger_view import LedgerView
    from penstock.core.connect.connection import ConnectionFactory

_WORD = re.compile(r"[a-z][a-z-]*")


def words_of(metavar: str | None) -> Callable[[str], list[str]] | None:
    """Return the shell completion of an option whose values are words, such as append|truncate; None for other options.

    >>> words_of("auto|N")("")
    ['auto']
    """
    words = [word for word in (metavar or "").split("|") if _WORD.fullmatch(word)]
    if not words:
        return None

    def offer(incomplete: str) -> list[str]:
        return [word for word in words if word.startswith(incomplete)]

    return offer


TARGET_OPTIONS = {name: field for kind in TARGET_KINDS for name, field in option_fields(kind).items()}
LOAD_OPTIONS = {name: field for kind in LOAD_KINDS for name, field in option_fields(kind).items()}
_OPTIONS = TARGET_OPTIONS | LOAD_OPTIONS

# SERVER has the options that name the server and the way to connect. LEDGER also has those by which a load may have
# reached its server and ledger.
SERVER = ("to", "role", "iam_auth", "tunnel")
LEDGER = ("to", "pg_bin", *SERVER[1:], "read_write", "ledger_schema")


def takes(names: Iterable[str]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator for a command with **options. The decorated command has the named options.

    The command is called with those that were typed. An OptionError that it raises names the option as it is typed.
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
                option = option_of(field)
                if given[field.name] in (None, [], ()):
                    del given[field.name]
                elif field.default is True:
                    given[field.name] = False  # Typed as --no-...
                elif option is not None and option.kind is NAMES:
                    given[field.name] = ",".join(given[field.name])  # The lists of a repeated option are one list.
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
    """Return how an option is typed, such as --name.

    It is --no-name if `value` is False, or if the option is on by default.
    """
    name = field.name.replace("_", "-")
    is_off = _is_switch(field) and (field.default is True or value is False)
    return f"--no-{name}" if is_off else f"--{name}"


def flags(field: Field[Any]) -> str:
    """Return how an option is typed, with its negative form if it has one: --name/--no-name, as typer takes it."""
    if _is_switch(field) and field.default is None:
        return f"{flag(field)}/{flag(field, False)}"
    return flag(field)


def _is_switch(field: Field[Any]) -> bool:
    option = option_of(field)
    return option is not None and option.kind.metavar is None


def _annotate(field: Field[Any]) -> Any:
    option = option_of(field)
    assert option is not None
    kind = bool if option.kind.metavar is None else list[str] if option.kind.is_list else str
    shown = typer.Option(
        flags(field),
        metavar=option.kind.metavar,
        help=option.help,
        rich_help_panel=option.group,
        show_default=False,
        autocompletion=words_of(option.kind.metavar),
    )
    return Annotated[kind | None, shown]


NewestId = Annotated[
    str,
    typer.Argument(
        metavar="ID|latest",
        show_default=False,
        help="The load's id, or its first characters; latest is this role's newest load.",
    ),
]
UnfinishedId = Annotated[
    str,
    typer.Argument(
        metavar="ID|latest",
        show_default=False,
        help="The load's id, or its first characters; latest is this role's newest load that was cut short.",
    ),
]
RejectingId = Annotated[
    str,
    typer.Argument(
        metavar="ID|latest",
        show_default=False,
        help="The load's id, or its first characters; latest is the newest load with rejected records.",
    ),
]
Json = Annotated[
    bool,
    typer.Option("--json", help="Print the result as one JSON object on standard output; messages on standard error."),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show nothing but warnings and errors, and results as JSON.")]
QuietLoad = Annotated[
    bool,
    typer.Option(
        "--quiet", help="Show nothing but warnings, errors, a line if records were rejected, and results as JSON."
    ),
]
# The options of commands that ask AWS about a server, without connecting to it.
To = Annotated[
    str | None,
    typer.Option(
        "--to",
        metavar="CONNINFO",
        help="Use the host of this server, given as for psql (default: the PG* variables).",
    ),
]
Region = Annotated[
    str | None,
    typer.Option("--region", metavar="REGION", help="Use this AWS region (default: the endpoint's or configured one)."),
]
Profile = Annotated[
    str | None,
    typer.Option("--profile", metavar="NAME", help="Use this profile of the AWS configuration (default: AWS_PROFILE)."),
]


def open_target(options: Mapping[str, Any], *, allows_standby: bool = False) -> ConnectionFactory:
    """Return the factory that opens sessions on the server that the options name. Raises UsageError, LabError."""
    from penstock.api.connect import connect_to

    remember_target(options)
    warn_of_secrets(options.get("to"))
    return connect_to(**pick(Access, options), allows_standby=allows_standby)


def open_ledger(options: Mapping[str, Any], *, allows_standby: bool = False) -> LedgerView:
    """Return a view of the ledger that the options name. Raises UsageError, LabError."""
    from penstock.api.ledger_view import LedgerView

    schema = Housekeeping(**pick(Housekeeping, options)).ledger_schema
    return LedgerView(open_target(options, allows_standby=allows_standby), ledger_schema=schema)


def warn_of_secrets(to: str | None, *, sources: Iterable[str] = ()) -> None:
    """Print a warning if a source or the connection string has a secret: every user of the machine sees command lines.

    Raises UsageError if `to` is not a connection string.
    """
    if any(hide_secrets(source) != source or is_signed(source) for source in sources):
        show_warning(
            Notice(
                code="secret-visible",
                message="every user of this machine can read the signed URL",
                hint="Write it into a job file that only you can read: process lists show command lines.",
            )
        )
    if to is None:
        return
    from penstock.core.connect.conninfo import parse_conninfo

    if parse_conninfo(to).keys() & {"password", "sslpassword"}:
        show_warning(
            Notice(
                code="secret-visible",
                message="every user of this machine can read the password in --to",
                hint="Use ~/.pgpass or PGPASSWORD: process lists show command lines.",
            )
        )
