"""The entry point: finds the command, runs it, and turns an error, SIGTERM and SIGHUP into a message and an exit code.

Each command is in its own module, which is imported only if the command runs, so a load starts fast.
"""

from __future__ import annotations

import gc
import io
import os
import re
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from types import FrameType, MappingProxyType
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
import typer.core
from typer.main import get_command

from penstock import __version__
from penstock.cli.help import add_help
from penstock.cli.output import (
    BROKEN_PIPE,
    EXIT_CODES,
    INTERNAL_ERROR,
    OK,
    OutputError,
    abandon_output,
    begin_output,
    complete_commands,
    flush_output,
    has_result,
    naming_output_failure,
    open_closed_streams,
    show_error,
    showing_log,
    shown_warnings,
    write_message,
    write_result,
)
from penstock.core.errors import Interrupted, PenstockError, UsageError
from penstock.core.words import hide_secrets

if TYPE_CHECKING:
    from typer._click import Command, Context
    from typer._click.shell_completion import CompletionItem


class TextCommand(typer.core.TyperCommand):
    """A command whose parameters are texts, lists of texts and flags, which the command itself checks.

    Parameters that are not given have their defaults.
    """

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Set the context's parameters from the typed arguments, and return the arguments that are left.

        --help prints the help and exits.
        """
        parser = self.make_parser(ctx)
        values, rest, _ = parser.parse_args(args=args)
        for param in self.get_params(ctx):
            if not param.is_eager:
                value = values.get(param.name)
                ctx.params[param.name] = param.default if value is None else value
            elif param.name in values:
                param.handle_parse_result(ctx, values, rest)
        if not ctx.resilient_parsing:
            if rest:
                ctx.fail(f"Got unexpected extra argument(s) ({' '.join(rest)})")
            for param in self.get_params(ctx):
                # A load without sources has a message of its own.
                if param.required and param.nargs == 1 and ctx.params.get(param.name or "") is None:
                    ctx.fail(f"Missing argument '{param.metavar}'.")
        ctx.args = rest
        return rest


@contextmanager
def interrupting_signals() -> Iterator[None]:
    """Raise KeyboardInterrupt if SIGTERM or SIGHUP arrives while the block runs.

    Outside the main thread this does nothing, because Python allows only the main thread to handle signals.
    """

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    # Ignored signals stay ignored, such as SIGHUP with nohup.
    is_main = threading.current_thread() is threading.main_thread()
    numbers = (signal.SIGTERM, signal.SIGHUP) if is_main else ()
    taken = [number for number in numbers if signal.getsignal(number) == signal.SIG_DFL]
    for number in taken:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


# All commands under their headings, in the order of --help. Each command has its name and its module. The module has a
# function with this name, or an `app` with several commands. Add a new command here.
_HEADINGS = MappingProxyType(
    {
        "Loads": {
            "load": "penstock.loading.command.load",
            "loads": "penstock.loading.command.loads",
            "resume": "penstock.loading.command.load",
            "rejects": "penstock.loading.command.rejects",
            "retry": "penstock.loading.command.rejects",
            "verify": "penstock.proof.command",
            "undo": "penstock.removal.command",
            "repair": "penstock.restore.command",
            "init": "penstock.loading.command.loads",
            "doctor": "penstock.preflight.command",
        },
        "What a server waits for": {
            "watch": "penstock.watch.command.watch",
            "diagnose": "penstock.diagnose.command",
            "report": "penstock.report.command",
            "commits": "penstock.commits.command",
            "mcp": "penstock.mcp.command",
        },
        "Temporary work, settings, storage, Amazon RDS": {
            "temp": "penstock.temp.command",
            "settings": "penstock.settings.command",
            "rds": "penstock.rds.command",
            "storage": "penstock.storage.command",
        },
        "To try things on this machine": {
            "server": "penstock.embedded.command",
            "demo": "penstock_lab.bench.command",
            "lab": "penstock_lab.command.lab",
            "cat": "penstock_lab.command.cat",
            "bench": "penstock_lab.bench.command",
        },
    }
)
# Package penstock_lab can be absent, and its commands with it.
_HAS_LAB = find_spec("penstock_lab") is not None
COMMANDS = MappingProxyType(
    {
        name: module
        for commands in _HEADINGS.values()
        for name, module in commands.items()
        if _HAS_LAB or not module.startswith("penstock_lab.")
    }
)

# The arguments of these commands need no conversion, so `TextCommand` parses them. The commands start sooner with it
# than with typer's own class.
_TEXT_COMMANDS = ("load", "resume")

# Matches an option in a message of typer.
_QUOTED_OPTION = re.compile(r"'(--?[a-z][a-z-]*)'")

# A line end within a paragraph.
_LINE_END = re.compile(r"(?<!\n)\n(?!\n)")

# The variable that the shell's completion sets, by typer's naming.
_COMPLETION = "_PENSTOCK_COMPLETE"

_EPILOG = "Exit codes:\n\n" + "\n\n".join(f"{code}: {meaning}." for code, meaning in EXIT_CODES)


def load_command(name: str) -> Command:
    """Import a command and return it. Raises UsageError if no command has this name."""
    path = COMMANDS.get(name)
    if path is None:
        from penstock.core.words import suggest

        near = suggest(name, COMMANDS)
        hint = f"Perhaps you meant: penstock {near}." if near else "See penstock --help."
        raise UsageError(f'unknown command "{name}"', hint=hint)
    module = import_module(path)
    function = getattr(module, name, None)
    command = get_command(module.app if function is None else _make_app(name, function))
    command.name = name
    assert isinstance(command, typer.core.TyperCommand | typer.core.TyperGroup)
    command.rich_help_panel = next(heading for heading, commands in _HEADINGS.items() if name in commands)
    _join_lines(command)
    return command


def _make_app(name: str, function: Callable[..., None]) -> typer.Typer:
    made = typer.Typer(add_completion=False)
    made.command(name, cls=TextCommand if name in _TEXT_COMMANDS else None)(function)
    return made


def _join_lines(command: Command) -> None:
    """Join the lines of each paragraph of a help text.

    Otherwise typer would keep a docstring's line ends at any width.
    """
    command.help = _LINE_END.sub(" ", command.help or "")
    for below in getattr(command, "commands", {}).values():
        _join_lines(below)


class _LazyGroup(typer.core.TyperGroup):
    """A group that imports a command's module when the command is looked up."""

    def list_commands(self, ctx: Context) -> list[str]:  # noqa: ARG002 (typer's signature)
        return list(COMMANDS)

    def get_command(self, ctx: Context, cmd_name: str) -> Command:  # noqa: ARG002 (typer's signature)
        return load_command(cmd_name)

    def shell_complete(self, ctx: Context, incomplete: str) -> list[CompletionItem]:
        """Offer the options and the names of commands. The commands are not imported for this."""
        from typer._click.shell_completion import CompletionItem

        names = [CompletionItem(name) for name in COMMANDS if name.startswith(incomplete)]
        return names + super(typer.core.TyperGroup, self).shell_complete(ctx, incomplete)


app = typer.Typer(
    name="penstock",
    cls=_LazyGroup,
    epilog=_EPILOG,
)


def _show_version(context: typer.Context, is_asked: bool) -> None:
    if not is_asked:
        return
    if context.params.get("as_json"):
        from penstock.cli.versions import describe_versions

        write_result(describe_versions())
    else:
        print(f"penstock {__version__}")
    raise typer.Exit


@app.callback()
def _penstock(
    version: Annotated[  # noqa: ARG001 (its callback acts)
        bool, typer.Option("--version", help="Print penstock's version.", callback=_show_version)
    ] = False,
    as_json: Annotated[
        # This option is eager, so that its value is known when --version is handled.
        bool,
        typer.Option(
            "--json",
            help="With --version, print what a bug report needs, as JSON.",
            is_eager=True,
        ),
    ] = False,
) -> None:
    """Load files into PostgreSQL, show what its sessions wait for, and put temporary work on local disk.

    Each command has -h, which shows what most need on one screen, and --help, which shows everything.
    """
    if as_json:
        raise UsageError("--json before a command is for --version", hint="Write it behind the command's name.")


def run_process() -> NoReturn:
    """Run the command that the process was started with, and end the process.

    gc.freeze() prevents the interpreter's last search for cycles, which takes a tenth of a short command's time.
    """
    if _COMPLETION in os.environ:
        from typer.completion import shell_complete

        sys.exit(shell_complete(get_command(app), {}, "penstock", _COMPLETION, os.environ[_COMPLETION]))
    code = main()
    gc.freeze()
    sys.exit(code)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that the arguments name, and return the exit code. By default they are those of the process."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    open_closed_streams()
    begin_output()
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A finished load must not fail because the locale has no characters for a file's name.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        with interrupting_signals(), showing_log():
            code = _run(given or ["-h"])
        flush_output()
    except BrokenPipeError:
        return _leave_broken_pipe()
    except OutputError as error:
        return _leave_broken_output(error)
    except KeyboardInterrupt:
        return _fail(Interrupted("interrupted"), given)
    except PenstockError as error:
        return _fail(error, given)
    except Exception:  # noqa: BLE001 (an internal error has its own exit code)
        write_message(*hide_secrets(traceback.format_exc()).splitlines())
        return _answer(
            PenstockError(
                "internal error, please report",
                hint="Include the traceback, and what penstock --version --json prints.",
            ),
            given,
            INTERNAL_ERROR,
        )
    return code


def _run(arguments: list[str]) -> int:
    name, rest = arguments[0], arguments[1:]
    try:
        # A known command is called without its group, because typer needs 60 ms for the group's options.
        if name in COMMANDS:
            command, path = load_command(name), f"penstock {name}"
        else:
            # The parser removes the words that it has read.
            command, path, rest = get_command(app), "penstock", [*arguments]
        add_help(command)
        # -h, --help and --version print here.
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
    """Return typer's error as a UsageError.

    If the error names an option that asks for something penstock never does, such as --no-fsync, return the error that
    explains why.
    """
    if (unknown := getattr(error, "option_name", None)) is not None:
        from penstock.settings.refusals import explain_refusal

        if (refusal := explain_refusal(unknown)) is not None:
            return refusal
        if hasattr(error, "possibilities"):
            return _no_such_option(unknown, getattr(error, "ctx", None))
    message = error.format_message().strip().rstrip(".") or "missing command"
    message = _QUOTED_OPTION.sub(r"\1", message)
    context: typer.Context | None = getattr(error, "ctx", None)
    command = "penstock" if context is None else context.command_path
    hint = f"See {command} --help."
    if getattr(getattr(error, "param", None), "name", None) == "load_id":
        hint = f"The ids are listed by penstock loads. {hint}"
    return UsageError(message[:1].lower() + message[1:], hint=hint)


def _no_such_option(name: str, context: Context | None) -> UsageError:
    from penstock.core.words import suggest

    path = "penstock" if context is None else context.command_path
    params = [] if context is None else context.command.get_params(context)
    near = suggest(name, [each for param in params for each in (*param.opts, *param.secondary_opts) if each[:1] == "-"])
    see = f"See {path} --help."
    return UsageError(f"no such option: {name}", hint=see if near is None else f"Perhaps you meant {near}. {see}")


def _fail(error: PenstockError, arguments: Sequence[str]) -> int:
    """Print an error on standard error and, with --json, also as an object on standard output. Return its exit code."""
    show_error(error)
    return _answer(error, arguments, error.exit_code)


def _answer(error: PenstockError, arguments: Sequence[str], code: int) -> int:
    """Print an error as an object if --json was given and no result is printed yet. Return the exit code."""
    if "--json" in arguments and not has_result():
        described = _describe(error)
        try:
            write_result({"state": "failed", "error": described, "warnings": shown_warnings()})
        except BrokenPipeError:
            return _leave_broken_pipe()
        except OutputError:
            # The first error is printed already, and it decides the exit code.
            abandon_output()
    return code


def _describe(error: PenstockError) -> dict[str, str | int | None]:
    location = error.location
    words = {
        "message": error.message,
        "detail": error.detail,
        "hint": None if error.hint is None else complete_commands(error.hint),
        "sqlstate": error.sqlstate,
        "file": None if location is None else location.file,
        "column": None if location is None else location.column,
        "load_id": error.load_id,
    }
    shown = {name: None if text is None else hide_secrets(text) for name, text in words.items()}
    return {**shown, "line": None if location is None else location.line}


def _leave_broken_pipe() -> int:
    abandon_output()
    return BROKEN_PIPE


def _leave_broken_output(error: OutputError) -> int:
    """Report on standard error that the result could not be written, and return the exit code."""
    abandon_output()
    show_error(error)
    return error.exit_code
