"""The help of a command: `-h` on one screen, `--help` all of it, below the same headings.

On the screen, each text is cut to its first sentence and its default. If a command has more options than fit, only
those are shown that most loads need.
"""

from __future__ import annotations

import re
import shutil
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
_NAME_COLUMNS = 24
# The same for the whole help, whose texts are longer.
_WHOLE_NAME_COLUMNS = 18

# The arguments and options that most loads need, by the names of their parameters.
_NEEDED = frozenset(
    (
        *("sources", "into", "create", "mode", "key", "types", "add_columns", "columns", "rename", "set", "only"),
        *("skip", "delimiter", "null", "header", "skip_lines", "to", "on_error", "plan", "check"),
    )
)

# Those that few loads need, but whose users look for them: the last line names them.
_SOUGHT = ("encoding", "decimal_comma", "date_order")

_DEFAULT = re.compile(r" \((default: .*)\)\.?$")


def add_help(command: Command) -> None:
    """Give a command, and each command below it, the options -h and --help."""
    asking = typer.Typer(add_completion=False, add_help_option=False)
    asking.command()(_ask)
    command.params += get_command(asking).params
    command.add_help_option = False
    for below in getattr(command, "commands", {}).values():
        add_help(below)


def _show_briefly(context: typer.Context, is_asked: bool) -> None:
    if is_asked:
        print("\n".join(describe_briefly(context)))
        raise typer.Exit


def _show(context: typer.Context, is_asked: bool) -> None:
    if is_asked:
        print("\n".join(describe(context, width=shutil.get_terminal_size().columns)))
        raise typer.Exit


def _ask(
    brief: Annotated[
        bool, typer.Option("-h", hidden=True, is_eager=True, expose_value=False, callback=_show_briefly)
    ] = False,
    whole: Annotated[
        bool, typer.Option("--help", hidden=True, is_eager=True, expose_value=False, callback=_show)
    ] = False,
) -> None:
    pass


def describe(context: Context, *, width: int) -> list[str]:
    """Return the lines of a command's whole help, wrapped at `width` characters."""
    command = context.command
    params = [param for param in command.params if param.get_help_record(context) is not None]
    lines = [_show_usage(context)]
    for paragraph in (command.help or "").split("\n\n"):
        lines += ["", *wrap(paragraph, width, break_on_hyphens=False)]
    for table in (_list_commands(context), _list_params(context, params, is_whole=True)):
        lines += _lay_out(table, width=width, name_columns=_WHOLE_NAME_COLUMNS)
    lines += ["", *(command.epilog or "").split("\n\n")] if command.epilog else []
    return [*lines, "", f"What most need, on one screen: {context.command_path} -h"]


def describe_briefly(context: Context) -> list[str]:
    """Return the lines of a command's short help. They fit on one screen, together with the shell's next prompt."""
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
    lines = [_show_usage(context), "", *wrap(_shorten(command.help), COLUMNS, break_on_hyphens=False)]
    for table in (_list_commands(context), _list_params(context, params)):
        lines += _lay_out(table, width=COLUMNS, name_columns=_NAME_COLUMNS)
    path = context.command_path
    below = f"{path} COMMAND -h, " if isinstance(command, typer.core.TyperGroup) else ""
    return [*lines, "", f"{more}: {below}{path} --help"]


def _show_usage(context: Context) -> str:
    return " ".join(("Usage:", context.command_path, *context.command.collect_usage_pieces(context)))


def _list_params(context: Context, params: Sequence[Parameter], *, is_whole: bool = False) -> Table:
    # Arguments come first, without a heading; then the headings that most need, so that both helps have one order.
    needed = [param for param in params if param.name in _NEEDED]
    found: Table = {heading: [] for heading in ("", *map(_name_heading, needed))}
    for param in params:
        record = param.get_help_record(context)
        assert record is not None
        heading, name = _name_heading(param), record[0]
        assert isinstance(param, typer.core.TyperArgument | typer.core.TyperOption)
        if not heading:
            # The argument's type follows its name.
            name = name.partition(" <")[0]
        text = param.help
        found.setdefault(heading, []).append((name, (text or "") if is_whole else _shorten(text)))
    return found


def _name_heading(param: Parameter) -> str:
    assert isinstance(param, typer.core.TyperArgument | typer.core.TyperOption)
    return "" if isinstance(param, typer.core.TyperArgument) else param.rich_help_panel or "Options"


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


def _lay_out(table: Table, *, width: int, name_columns: int) -> Iterator[str]:
    """Yield the lines of a table. Names of more than `name_columns` have lines of their own."""
    longest = max((len(name) for rows in table.values() for name, _ in rows), default=0)
    columns = min(longest, name_columns) + 4
    for heading, rows in table.items():
        if heading:
            yield heading
        for name, text in rows:
            is_long = len(name) > columns - 4
            if is_long:
                yield f"  {name}"
            head = " " * columns if is_long else f"  {name}".ljust(columns)
            yield from wrap(text, width, initial_indent=head, subsequent_indent=" " * columns, break_on_hyphens=False)
