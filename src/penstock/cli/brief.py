"""`-h`: the help of a command on one screen. `--help` prints all of it.

Each text is cut to its first sentence and its default. If a command has more options than fit on the screen, only those
are shown that most loads need.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated

import typer
import typer.core
from typer.main import get_command

if TYPE_CHECKING:
    from typer._click import Command, Context, Parameter

    # Names with their texts, below headings.
    Table = dict[str, list[tuple[str, str]]]

COLUMNS = 80
LINES = 40

# A name that is longer than this has a line of its own, and its text is below it.
_NAME_COLUMNS = 28

# The arguments and options that most loads need, by the names of their parameters.
_NEEDED = frozenset(
    (
        *("sources", "into", "create", "mode", "key", "types", "columns", "delimiter", "null", "header"),
        *("to", "settings", "on_error", "indexes", "plan", "check"),
    )
)

# Those that few loads need, but whose users look for them: the last line names them.
_SOUGHT = ("encoding", "decimal_comma", "date_order")

_DEFAULT = re.compile(r" \((default: .*)\)\.?$")


def add_brief_help(command: Command) -> None:
    """Give a command, and each command below it, the option -h."""
    asking = typer.Typer(add_completion=False)
    asking.command()(_ask)
    command.params += get_command(asking).params
    for below in getattr(command, "commands", {}).values():
        add_brief_help(below)


def _show(context: typer.Context, is_asked: bool) -> None:
    if is_asked:
        print("\n".join(describe_briefly(context)))
        raise typer.Exit


def _ask(
    brief: Annotated[bool, typer.Option("-h", hidden=True, is_eager=True, expose_value=False, callback=_show)] = False,
) -> None:
    pass


def describe_briefly(context: Context) -> list[str]:
    """Return the lines of a command's help. Together with the shell's next prompt, they fit on the screen."""
    # --help is left out, because the last line names it.
    params = [param for param in context.command.params if param.get_help_record(context) is not None]
    lines = _compose(context, params)
    if len(lines) < LINES:
        return lines
    sought = ", ".join(each.opts[0] for name in _SOUGHT for each in params if each.name == name)
    needed = [each for each in params if each.name in _NEEDED]
    return _compose(context, needed, more=f"For more ({sought})" if sought else "For more")


def _compose(context: Context, params: Sequence[Parameter], *, more: str = "For more") -> list[str]:
    command = context.command
    usage = " ".join(("Usage:", context.command_path, *command.collect_usage_pieces(context)))
    lines = [usage, "", *wrap(_shorten(command.help), COLUMNS, break_on_hyphens=False)]
    lines += [*_lay_out(_list_commands(context)), *_lay_out(_list_params(context, params))]
    path = context.command_path
    below = f"{path} COMMAND -h, " if isinstance(command, typer.core.TyperGroup) else ""
    return [*lines, "", f"{more}: {below}{path} --help"]


def _list_params(context: Context, params: Sequence[Parameter]) -> Table:
    # Arguments come first, without a heading.
    found: Table = {"": []}
    for param in params:
        assert isinstance(param, typer.core.TyperArgument | typer.core.TyperOption)
        record = param.get_help_record(context)
        assert record is not None
        heading, name = param.rich_help_panel or "Options", record[0]
        if isinstance(param, typer.core.TyperArgument):
            # The argument's type follows its name.
            heading, name = "", name.partition(" <")[0]
        found.setdefault(heading, []).append((name, _shorten(param.help)))
    return found


def _list_commands(context: Context) -> Table:
    found: Table = {}
    group = context.command
    if isinstance(group, typer.core.TyperGroup):
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            assert isinstance(command, typer.core.TyperCommand | typer.core.TyperGroup)
            found.setdefault(command.rich_help_panel or "Commands", []).append((name, _shorten(command.help)))
    return found


def _shorten(text: str | None) -> str:
    """Return the first sentence of a help text, and its default, which is at the end of the text.

    >>> _shorten("How rows are stored. append: as they come (default: append).")
    'How rows are stored (default: append).'
    """
    first, more, _ = (text or "").partition("\n\n")[0].partition(". ")
    default = _DEFAULT.search(text or "") if more else None
    return f"{first} ({default[1]})." if default else f"{first.removesuffix('.')}."


def _lay_out(table: Table) -> Iterator[str]:
    """Yield the lines of a table."""
    longest = max((len(name) for rows in table.values() for name, _ in rows), default=0)
    columns = min(longest, _NAME_COLUMNS) + 4
    for heading, rows in table.items():
        if heading:
            yield heading
        for name, text in rows:
            is_long = len(name) > columns - 4
            if is_long:
                yield f"  {name}"
            head = " " * columns if is_long else f"  {name}".ljust(columns)
            yield from wrap(text, COLUMNS, initial_indent=head, subsequent_indent=" " * columns, break_on_hyphens=False)
