"""The entry point: finds the command, runs it, and turns what went wrong into a message and an exit code.

Commands live in modules of their own, imported when they are called for: a load should not pay for what it does not
use.
"""

from __future__ import annotations

import gc
import io
import re
import sys
import traceback
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
import typer.core
from typer.main import get_command

from penstock import __version__
from penstock.cli.terminal.exit_codes import BROKEN_PIPE, EXIT_CODES, INTERNAL_ERROR, OK
from penstock.cli.terminal.messages import show_error, showing_log
from penstock.cli.terminal.output import (
    OutputError,
    abandon_output,
    begin_output,
    flush_output,
    has_result,
    naming_output_failure,
    open_closed_streams,
    shown_warnings,
    write_message,
    write_result,
)
from penstock.errors import Interrupted, PenstockError, UsageError
from penstock.model.redaction import hide_secrets

if TYPE_CHECKING:
    from collections.abc import Sequence

    # typer carries its own click; its types have no public name.
    from typer._click import Command, Context

# Every command, in the order of --help below its heading: its name and the module whose `app` it is. A new command is
# added here.
_HEADINGS = MappingProxyType(
    {
        "Loads": {
            "load": "penstock.cli.commands.load",
            "loads": "penstock.cli.commands.loads",
            "resume": "penstock.cli.commands.resume",
            "rejects": "penstock.cli.commands.rejects",
            "retry": "penstock.cli.commands.retry",
            "repair": "penstock.cli.commands.repair",
            "init": "penstock.cli.commands.init",
            "doctor": "penstock.cli.commands.doctor",
        },
        "What a server waits for": {
            "watch": "penstock.cli.commands.watching.watch",
            "diagnose": "penstock.cli.commands.watching.diagnose",
            "commits": "penstock.cli.commands.watching.commits",
        },
        "Temporary work, settings, Amazon RDS": {
            "temp": "penstock.cli.commands.temp.temp",
            "settings": "penstock.cli.commands.settings",
            "rds": "penstock.cli.commands.rds.rds",
        },
        "To try things on this machine": {
            "demo": "penstock.cli.commands.demo",
            "server": "penstock.cli.commands.server",
            "lab": "penstock.cli.commands.lab",
            "bench": "penstock.cli.commands.bench.bench",
        },
    }
)
COMMANDS = MappingProxyType({name: module for commands in _HEADINGS.values() for name, module in commands.items()})

# Not one between paragraphs
_LINE_END = re.compile(r"(?<!\n)\n(?!\n)")

_EPILOG = "Exit codes:\n\n" + "\n\n".join(f"{code}: {meaning}." for code, meaning in EXIT_CODES)


def load_command(name: str) -> Command:
    """Import a command and return it. Raises UsageError where there is none of that name."""
    module = COMMANDS.get(name)
    if module is None:
        import difflib

        near = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"Perhaps you meant: penstock {near[0]}." if near else "See penstock --help."
        raise UsageError(f'unknown command "{name}"', hint=hint)
    command = get_command(import_module(module).app)
    command.name = name
    assert isinstance(command, typer.core.TyperCommand | typer.core.TyperGroup)
    command.rich_help_panel = next(heading for heading, commands in _HEADINGS.items() if name in commands)
    _join_lines(command)
    return command


def _join_lines(command: Command) -> None:
    """Have a help text's paragraphs wrapped by the terminal's width: typer keeps a docstring's own line ends."""
    command.help = _LINE_END.sub(" ", command.help or "")
    for below in getattr(command, "commands", {}).values():
        _join_lines(below)


class _LazyGroup(typer.core.TyperGroup):
    """A group that imports a command's module when the command is asked for."""

    def list_commands(self, ctx: Context) -> list[str]:  # noqa: ARG002 (typer's signature)
        return list(COMMANDS)

    def get_command(self, ctx: Context, cmd_name: str) -> Command:  # noqa: ARG002 (typer's signature)
        return load_command(cmd_name)


app = typer.Typer(
    name="penstock",
    cls=_LazyGroup,
    epilog=_EPILOG,
    add_completion=False,
)


def _show_version(is_asked: bool) -> None:
    if is_asked:
        print(f"penstock {__version__}")
        raise typer.Exit


@app.callback()
def _penstock(
    version: Annotated[
        bool, typer.Option("--version", help="Print penstock's version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Load files into PostgreSQL, show what its sessions wait for, and put temporary work on local disk."""


def run_process() -> NoReturn:
    """Run the command that the process was started with, and end the process.

    What it made is the kernel's to take back: looking through all of it for cycles first takes a tenth of a start.
    """
    code = main()
    gc.freeze()
    sys.exit(code)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that the arguments name (by default the process's own) and return the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    open_closed_streams()
    begin_output()
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A file's name that the locale cannot write must not turn a finished load into a failure.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        with showing_log():
            code = _run(given or ["--help"])
        flush_output()
    except BrokenPipeError:
        return _leave_broken_pipe()
    except OutputError as error:
        return _leave_broken_output(error)
    except KeyboardInterrupt:
        return _fail(Interrupted("interrupted"), given)
    except PenstockError as error:
        return _fail(error, given)
    except Exception:  # noqa: BLE001 (the last resort: a fault of ours gets an exit code of its own)
        write_message(*hide_secrets(traceback.format_exc()).splitlines())
        return _answer(
            PenstockError("internal error, please report", hint="Include the traceback."), given, INTERNAL_ERROR
        )
    return code


def _run(arguments: list[str]) -> int:
    name, rest = arguments[0], arguments[1:]
    try:
        # A command is called without the group around it: typer's handling of the group's options costs 60 ms.
        if name in COMMANDS:
            command, path = load_command(name), f"penstock {name}"
        else:
            command, path, rest = get_command(app), "penstock", arguments
        # Help and version are printed here
        with naming_output_failure():
            context = command.make_context(path, rest)
        with context:
            command.invoke(context)
    except typer.Exit as leave:
        return leave.exit_code
    except typer.TyperException as error:
        raise _usage_error(error) from error
    return OK


def _usage_error(error: typer.TyperException) -> UsageError:
    """Return typer's complaint in our words; for an option that asks for what is never done, why."""
    if (unknown := getattr(error, "option_name", None)) is not None:
        from penstock.model.refusals import explain_refusal

        if (refusal := explain_refusal(unknown)) is not None:
            return refusal
    # pydantic's words before what is wrong with a value
    message = error.format_message().replace("Value error, ", "").strip().rstrip(".") or "missing command"
    context: typer.Context | None = getattr(error, "ctx", None)
    command = "penstock" if context is None else context.command_path
    return UsageError(message[:1].lower() + message[1:], hint=f"See {command} --help.")


def _fail(error: PenstockError, arguments: Sequence[str]) -> int:
    """Print an error, also as an object on standard output for those who asked for JSON."""
    show_error(error)
    return _answer(error, arguments, error.exit_code)


def _answer(error: PenstockError, arguments: Sequence[str], code: int) -> int:
    """Print an error as an object for those who asked for JSON and have got none yet; return the exit code."""
    if "--json" in arguments and not has_result():
        described = _describe(error)
        try:
            warnings = [notice.as_item() for notice in shown_warnings()]
            write_result({"state": "failed", "error": described, "warnings": warnings})
        except BrokenPipeError:
            return _leave_broken_pipe()
        except OutputError:
            # What went wrong first was told, and decides the exit code
            abandon_output()
    return code


def _describe(error: PenstockError) -> dict[str, str | int | None]:
    place = error.place
    words = {
        "message": error.message,
        "detail": error.detail,
        "hint": error.hint,
        "sqlstate": error.sqlstate,
        "file": None if place is None else place.file,
        "column": None if place is None else place.column,
        "load_id": error.load_id,
    }
    shown = {name: None if text is None else hide_secrets(text) for name, text in words.items()}
    return {**shown, "line": None if place is None else place.line}


def _leave_broken_pipe() -> int:
    abandon_output()
    return BROKEN_PIPE


def _leave_broken_output(error: OutputError) -> int:
    """Say that the result could not be written, on standard error only."""
    abandon_output()
    show_error(error)
    return error.exit_code
