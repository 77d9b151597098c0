"""Writes the man page penstock(1) from the commands' help, as `reference` writes the reference."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typer._click import Command, Context


def render_manpage(commands: Iterable[tuple[Command, Context]], *, exit_codes: Sequence[tuple[int, str]]) -> str:
    """Return the man page in troff's macros. The first of `commands` is the root."""
    (root, root_context), *others = commands
    lines = [
        ".TH PENSTOCK 1",
        ".SH NAME",
        "penstock \\- load files into PostgreSQL, and show what its sessions wait for",
        ".SH SYNOPSIS",
        *_usage(root, root_context),
        ".SH DESCRIPTION",
        *_help(root),
        *_options(root, root_context),
        ".SH COMMANDS",
    ]
    for command, context in others:
        lines += [f".SS {_escape(context.command_path)}", *_usage(command, context), ".PP", *_help(command)]
        lines += _options(command, context)
    lines.append(".SH EXIT STATUS")
    for code, meaning in exit_codes:
        lines += [".TP", f".B {code}", f"{_escape(meaning)}."]
    return "\n".join([*lines, ".SH SEE ALSO", ".BR psql (1)"]) + "\n"


def _usage(command: Command, context: Context) -> list[str]:
    pieces = " ".join(command.collect_usage_pieces(context))
    return [f"\\fB{_escape(context.command_path)}\\fP {_escape(pieces)}".rstrip()]


def _help(command: Command) -> list[str]:
    paragraphs = (command.help or "").strip().split("\n\n")
    return "\n.PP\n".join(_escape(" ".join(paragraph.split())) for paragraph in paragraphs).split("\n")


def _options(command: Command, context: Context) -> list[str]:
    lines = []
    for param in command.get_params(context):
        if (record := param.get_help_record(context)) is not None:
            lines += [".TP", f"\\fB{_escape(record[0])}\\fP", _escape(" ".join(record[1].split()))]
    return lines


def _escape(text: str) -> str:
    r"""Return a text so that troff prints it unchanged.

    >>> _escape(".5 of --a\\b")
    '\\&.5 of \\-\\-a\\eb'
    """
    escaped = text.replace("\\\\", "\\").replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped
