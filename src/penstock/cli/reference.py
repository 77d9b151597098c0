"""Writes docs/reference/cli.md from the commands themselves: `python -m penstock.cli.reference [FILE]`.

A test compares the file with what this returns, so that no option goes undocumented.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer.core
from typer.main import get_command

from penstock.cli.exit_codes import EXIT_CODES
from penstock.cli.main import app

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typer._click import Command, Context

_DEFAULT_PATH = Path("docs/reference/cli.md")

_INTRODUCTION = """\
# Command line

<!-- Written by `python -m penstock.cli.reference`; edit the commands' own help instead. -->

Results go to standard output; progress, warnings and errors to standard error, in psql's form: `error:`, `DETAIL:`,
`HINT:`. Colours and bars appear on a terminal only; `NO_COLOR` turns colours off."""


def render_reference() -> str:
    """Return the reference of every command, in Markdown."""
    parts = [_INTRODUCTION, *(_section(command, context) for command, context in walk_commands())]
    codes = "\n".join(f"| {code} | {meaning} |" for code, meaning in EXIT_CODES)
    parts.append(f"## Exit codes\n\n| code | meaning |\n|---|---|\n{codes}")
    return "\n\n".join(parts) + "\n"


def walk_commands() -> Iterator[tuple[Command, Context]]:
    """Yield every command and group with its context, `penstock` itself first."""
    root = get_command(app)
    # Plain text, whatever the commands are shown with.
    yield from _walk(root, root.context_class(root, info_name="penstock", obj={}))


def _walk(command: Command, context: Context) -> Iterator[tuple[Command, Context]]:
    yield command, context
    if isinstance(command, typer.core.TyperGroup):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from _walk(child, child.context_class(child, info_name=name, parent=context, obj={}))


def _section(command: Command, context: Context) -> str:
    usage = " ".join((context.command_path, *command.collect_usage_pieces(context)))
    parts = [f"## {context.command_path}", f"```\n{usage}\n```", _help_text(command)]
    records = [record for param in command.get_params(context) if (record := param.get_help_record(context))]
    if records:
        parts.append("\n".join(["| | |", "|---|---|", *(_row(names, text) for names, text in records)]))
    return "\n\n".join(part for part in parts if part)


def _help_text(command: Command) -> str:
    return (command.help or "").replace("\\\\", "\\").strip()


def _row(names: str, text: str) -> str:
    return f"| `{_escape(names)}` | {_escape(text)} |"


def _escape(text: str) -> str:
    """Return a text whose bars do not end a table's cell."""
    return " ".join(text.split()).replace("|", "\\|")


def main() -> None:
    """Write the reference to the file named, by default its place in the documents."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else _DEFAULT_PATH
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render_reference(), encoding="utf-8")


if __name__ == "__main__":
    main()
