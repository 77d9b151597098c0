"""Writes declared options into docs/reference, the man page, api/keywords.py: `make reference`.

It writes cli.md and the man page from the commands, the tables of keys in job.md, and the types of the options of
Python functions in api/keywords.py. A test compares the files with what this module returns, so every option is
documented and typed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer.core
from typer.main import get_command

from penstock.api.options import ACCESS_KEYWORDS, LOAD_KEYWORDS, OPTIONS, RESUME_KEYWORDS
from penstock.cli.main import app
from penstock.cli.options import LOAD_OPTIONS, TARGET_OPTIONS, flags
from penstock.cli.output import EXIT_CODES
from penstock.core.values.options import option_of

if TYPE_CHECKING:
    from dataclasses import Field

    from typer._click import Command, Context


def render_manpage(commands: Iterable[tuple[Command, Context]], *, exit_codes: Sequence[tuple[int, str]]) -> str:
    """Return the man page of all commands in troff's man macros. The first of `commands` is `penstock` itself.

    `exit_codes` are pairs of a code and its meaning.
    """
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


_FOLDER = Path("docs/reference")
# A wheel installs the files below man/data into the environment, where man finds them.
_MANPAGE = Path("man/data/share/man/man1/penstock.1")
_KEYWORDS = Path("src/penstock/api/keywords.py")
_KEYWORDS_HEAD = '''\
"""The types of the options that functions take by name, written by `make reference`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict

if TYPE_CHECKING:
    from penstock.core.values.job import Transform
    from penstock.core.values.table import TableName
'''

_INTRODUCTION = """\
# Command line

<!-- Written by `make reference`; edit the commands' own help instead. -->

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
    # The context is created without rich, so that the help is plain text.
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
    help_text = (command.help or "").replace("\\\\", "\\").strip()
    parts = [f"## {context.command_path}", f"```\n{usage}\n```", help_text]
    records = [record for param in command.get_params(context) if (record := param.get_help_record(context))]
    if records:
        parts.append("\n".join(["| | |", "|---|---|", *(_row(names, text) for names, text in records)]))
    return "\n\n".join(part for part in parts if part)


def _row(names: str, text: str) -> str:
    return f"| `{_escape_cell(names)}` | {_escape_cell(text)} |"


def _escape_cell(text: str) -> str:
    """Return a text with an escaped |, so that it does not end a table's cell."""
    return " ".join(text.split()).replace("|", "\\|")


def render_job_tables(text: str) -> str:
    """Return the text of job.md, `text`, with its tables of keys written anew from the declared options."""
    for name, options in (("top level", LOAD_OPTIONS), ("target", TARGET_OPTIONS)):
        rows = [_key_row(field) for field in options.values()]
        table = "\n".join(["| key | value | meaning | option |", "|---|---|---|---|", *rows])
        start, end = f"<!-- {name}: written by make reference -->\n", "\n<!-- end -->"
        before, _, rest = text.partition(start)
        text = before + start + table + end + rest.partition(end)[2]
    return text


def _key_row(field: Field[Any]) -> str:
    option = option_of(field)
    assert option is not None
    value = (option.kind.metavar or ("false" if field.default is True else "true or false")).replace("|", ", ")
    return f"| `{field.name}` | {value} | {_escape_cell(option.help)} | `{flags(field).replace('/', '`, `')}` |"


def render_keywords() -> str:
    """Return the text of the module penstock.api.keywords, written from the declared options."""
    parts = [_KEYWORDS_HEAD]
    base, known = "TypedDict", set[str]()
    for name, text, names in (
        ("AccessKeywords", "Options of how to connect to a server, and where its ledger is.", ACCESS_KEYWORDS),
        ("ResumeKeywords", "Options that may differ when a load is resumed.", RESUME_KEYWORDS),
        ("LoadKeywords", "Options of a load, as penstock.load takes them.", LOAD_KEYWORDS),
    ):
        # Each class has the options of the one before.
        keywords = "\n".join(_keyword(OPTIONS[each]) for each in names if each not in known)
        parts.append(f'class {name}({base}, total=False):\n    """{text}"""\n\n{keywords}\n')
        assert known <= {*names}
        base, known = name, {*names}
    return "\n\n".join(parts)


def _keyword(field: Field[Any]) -> str:
    option = option_of(field)
    assert option is not None
    return f"    {field.name}: {option.kind.hint}{' | None' if field.default is None else ''}"


def main() -> None:
    """Write cli.md, job.md, api/keywords.py and the man page."""
    (_FOLDER / "cli.md").write_text(render_reference(), encoding="utf-8")
    job = _FOLDER / "job.md"
    job.write_text(render_job_tables(job.read_text(encoding="utf-8")), encoding="utf-8")
    _KEYWORDS.write_text(render_keywords(), encoding="utf-8")
    _MANPAGE.write_text(render_manpage(walk_commands(), exit_codes=EXIT_CODES), encoding="utf-8")


if __name__ == "__main__":
    main()
