"""Writes results to standard output and messages to standard error, and defines the exit codes and their meanings.

Text for people is made safe for the terminal here. JSON has its own escapes. In JSON, dataclasses are objects, and each
object that --json prints has the number of its format.

Users can type the commands in hints as they are shown. The packages that compose hints do not know how this run reaches
its server, or whether there is a job file. So this module adds the options that name the server and the ledger to the
commands in hints. If a job file is loaded, it writes options that belong in a [[target]] as keys of that file.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from penstock.core.errors import PenstockError
from penstock.core.values.diagnosis import Diagnosis
from penstock.core.values.job import TARGET_KINDS
from penstock.core.values.notice import Notice
from penstock.core.values.options import Option, option_fields, option_of
from penstock.core.words import hide_secrets, visible, visible_lines

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

# Matches two kinds of commands: those that find a load, a change or a lease, with a load's id or the word ID behind
# them, and those that load. Commands that name their server already do not match. The second group tells whether a
# command names its ledger.
_COMMAND = re.compile(
    r"\bpenstock (resume|retry|verify|undo|rejects|repair|loads(?: show| forget| prune)?+|settings (?:restore|leases)"
    r"|load(?= --into ))\b"
    r"(?: (?:ID\b|[0-9a-f][0-9a-f-]{7,}))?+"
    r"(?!(?: --ledger-schema (?:'[^']*'|\S+))? --(?:to|pg-bin|role|tunnel|iam-auth)\b)((?= --ledger-schema\b))?"
)

# Matches an option and its value. The value is in quotes, contains = or a comma, has only capitals and digits, is a
# percentage, or is a word.
_OPTION = re.compile(r"(?<![\w-])--([a-z][a-z-]*)(?:[ =]('[^']*'|[\w{}]+[=,][\w{}=,:/-]+|[A-Z0-9_]+\b%?|[a-z-]+\b))?")

# The number of the format of the objects that --json prints, for all commands. Raise it if a field is removed, or gets
# another meaning or type. A new field does not raise it.
JSON_FORMAT = 1

# Matches the command that loads a table with more options. A job file is changed in its place.
_WHOLE = re.compile(r"\brun: penstock load --into .*", re.DOTALL)

_named: dict[str, Any] = {}
_keys: dict[str, Option] = {}


def remember_target(options: Mapping[str, Any]) -> None:
    """Keep the options by which this run reaches its server and ledger, for the commands in messages.

    Empty `options` forget the earlier ones. `options["load"]` is a list of words: the typed options that only a load
    has.
    """
    _named.clear()
    _named.update(options)


def spell_as_keys(*, is_job_file: bool) -> None:
    """Set how later messages spell the options of a target: as keys of a job file, or as on the command line."""
    _keys.clear()
    if is_job_file:
        fields = (field for kind in TARGET_KINDS for field in option_fields(kind).values())
        _keys.update({field.name: option for field in fields if (option := option_of(field)) is not None})


def complete_commands(text: str) -> str:
    """Return a text in which each command has the options that this run used to reach its server and ledger.

    Secrets are left out. In a load of a job file, options of a target are written as the file's keys.

    >>> remember_target({"to": "dbname=shop password=x", "ledger_schema": "own"})
    >>> complete_commands("Resume with: penstock resume 0a1b2c3d4e.")
    'Resume with: penstock resume 0a1b2c3d4e --to dbname=shop --ledger-schema own.'
    >>> complete_commands("run penstock settings restore")
    'run penstock settings restore --to dbname=shop'
    >>> complete_commands(complete_commands("run penstock loads forget 0a1b2c3d4e --keep-rows"))
    'run penstock loads forget 0a1b2c3d4e --to dbname=shop --ledger-schema own --keep-rows'
    >>> remember_target({"pg_bin": "/opt/16/bin"})
    >>> complete_commands("See penstock loads.")
    'See penstock loads --pg-bin /opt/16/bin.'
    >>> remember_target({})
    >>> complete_commands("See penstock loads.")
    'See penstock loads.'
    >>> spell_as_keys(is_job_file=True)
    >>> complete_commands("Add it with --add-columns, or use --missing default, --no-header, --skip or --columns a,b.")
    'Add it with add_columns = true, or use missing = "default", header = false, key "skip" or columns = "a,b".'
    >>> complete_commands("With the options of all warnings, run: penstock load --into t --null NA f.csv")
    'With the options of all warnings, set their keys in the [[target]]'
    >>> spell_as_keys(is_job_file=False)
    """
    if _keys and "--" in text:
        text = _OPTION.sub(_spell, _WHOLE.sub(_name_keys, text))
    if not _named or "penstock " not in text:
        return text
    return _COMMAND.sub(lambda found: found[0] + _compose(found[1], is_schema_named=found[2] is not None), text)


def _name_keys(found: re.Match[str]) -> str:
    mode = ', with mode = "replace"' if " --mode replace " in found[0] else ""
    return f"set their keys in the [[target]]{mode}"


def _spell(found: re.Match[str]) -> str:
    """Return an option and its value as a line of a job file.

    Other text, and options of the whole load, are unchanged.
    """
    name, value = found[1].removeprefix("no-").replace("-", "_"), found[2]
    if (option := _keys.get(found[1].replace("-", "_"), _keys.get(name))) is None:
        return found[0]
    metavar = option.kind.metavar
    if metavar is None:
        rest = "" if value is None else found[0][-len(value) - 1 :]
        return f"{name} = {'false' if found[1].startswith('no-') else 'true'}{rest}"
    is_word = value is not None and value.isalpha() and value.islower()
    if value is None or (is_word and value not in metavar.split("|")):
        return f'key "{name}"' + ("" if value is None else f" {value}")
    return f"{name} = {value}" if value[0] == "'" else f'{name} = "{value}"'


def _compose(command: str, *, is_schema_named: bool) -> str:
    has_ledger = not command.startswith("settings")
    to, schema, bin_dir = _named.get("to"), _named.get("ledger_schema"), _named.get("pg_bin")
    words = {
        "--to": None if to is None else _without_secrets(to),
        "--pg-bin": str(bin_dir) if bin_dir is not None and has_ledger else None,
        "--role": _named.get("role"),
        "--tunnel": _named.get("tunnel"),
        "--ledger-schema": schema if has_ledger and not is_schema_named and schema != "penstock" else None,
    }
    flag = " --iam-auth" if _named.get("iam_auth") else ""
    more = "".join(f" {shlex.quote(word)}" for word in _named.get("load", ()) if command == "load")
    return "".join(f" {name} {shlex.quote(value)}" for name, value in words.items() if value) + flag + more


def _without_secrets(to: str) -> str | None:
    """Return a connection string as it was typed, or without its secrets.

    If it has a secret, only the words that name the server are returned; None if no word names it.
    """
    from penstock.core.connect.conninfo import describe_target, parse_conninfo

    given = parse_conninfo(to)
    if not given.keys() & {"password", "sslpassword"} and hide_secrets(to) == to:
        return to
    return describe_target(given) if given.keys() & {"service", "host", "hostaddr", "port", "dbname", "user"} else None


class OutputError(PenstockError):
    """Standard output cannot be written, for example because the disk is full or the stream is closed."""


@dataclass(slots=True)
class _Written:
    has_result: bool = False
    warnings: list[Notice] = field(default_factory=list)


_written = _Written()


def begin_output() -> None:
    """Forget the result, the warnings and the target that an earlier run in this process has kept here."""
    remember_target({})
    spell_as_keys(is_job_file=False)
    _written.has_result = False
    _written.warnings.clear()


def note_warning(notice: Notice) -> None:
    """Keep a printed warning for `shown_warnings`: --json prints it too, and --warnings error checks for it."""
    _written.warnings.append(_complete_notice(notice))


def _complete_notice(notice: Notice) -> Notice:
    hint = None if notice.hint is None else complete_commands(notice.hint)
    return replace(notice, message=complete_commands(notice.message), hint=hint)


def shown_warnings() -> list[Notice]:
    """Return the warnings that this run has printed."""
    return _written.warnings


def has_result() -> bool:
    """Return whether this run has printed a result. Nothing may follow one in JSON."""
    return _written.has_result


def open_closed_streams() -> None:
    """Open /dev/null for each standard stream that was closed when the process started.

    Otherwise the next file or connection would get the number of the closed stream. With /dev/null, reading standard
    input and writing standard output fail, and messages to standard error are lost.
    """
    # A new descriptor gets the lowest free number, so each stream gets its own number.
    if sys.stdin is None:
        os.open(os.devnull, os.O_WRONLY)
    if sys.stdout is None:
        sys.stdout = _open_null(os.O_RDONLY)
    if sys.stderr is None:
        sys.stderr = _open_null(os.O_WRONLY)


def _open_null(flags: int) -> TextIO:
    return open(os.open(os.devnull, flags), "w", encoding="utf-8", errors="backslashreplace")  # noqa: PTH123


def write_result(result: Mapping[str, object] | DataclassInstance | Sequence[str], *, done: str | None = None) -> None:
    """Print a result and flush it: lines of text, or a mapping or dataclass as one object in JSON.

    `done` is the detail of the error if this fails: what the command has done nevertheless. Raises OutputError,
    BrokenPipeError.
    """
    if isinstance(result, str):
        write_drawn(visible(complete_commands(result)), done=done)
    elif isinstance(result, Sequence):
        write_drawn("\n".join(visible(complete_commands(line)) for line in result), done=done)
    else:
        write_drawn(compose_json(result), done=done)


def compose_json(result: Mapping[str, object] | DataclassInstance) -> str:
    """Return a result as a JSON object. Its key "format" has the version of the format."""
    found = result if isinstance(result, Mapping) else to_fields(result)
    return json.dumps({"format": JSON_FORMAT, **found}, default=_to_json)


def _to_json(value: Any) -> object:
    """Convert a value of a type that JSON does not have: a dataclass, a time, a path or a set.

    Commands in warnings and diagnoses are completed.
    """
    if isinstance(value, (datetime, Path)):
        return value.isoformat() if isinstance(value, datetime) else str(value)
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, Notice):
        return _complete_notice(value).as_item()
    found = to_fields(value)
    if isinstance(value, Diagnosis) and value.remedy is not None:
        found["remedy"] = complete_commands(value.remedy)
    return found


def to_fields(value: DataclassInstance) -> dict[str, object]:
    """Return the fields of a dataclass by name. Their values are unchanged."""
    return {each.name: getattr(value, each.name) for each in fields(value)}


def write_drawn(text: str, *, done: str | None = None) -> None:
    """Print a result unchanged, with penstock's colours. The caller has made it safe for a terminal.

    `done` is the detail of the error if this fails. Raises OutputError, BrokenPipeError.
    """
    _written.has_result = True
    with naming_output_failure(done):
        print(text, flush=True)


def flush_output() -> None:
    """Flush standard output. Raises OutputError, BrokenPipeError."""
    with naming_output_failure():
        sys.stdout.flush()


def abandon_output() -> None:
    """Redirect standard output to /dev/null, so that the interpreter's last flush does not fail."""
    _redirect_to_null(sys.stdout)


def write_message(*lines: str, head: str = "") -> None:
    """Print the lines of a message on standard error, after `head`.

    The lines are made safe for a terminal; `head` is printed unchanged. One call prints all, so that messages of
    several threads do not mix. A message that cannot be written is lost, because a full disk or a closed pipe must not
    end the load or change the exit code.
    """
    try:
        text = "\n".join(visible_lines(complete_commands(line)) for line in lines)
        print(head + text, file=sys.stderr, flush=True)
    except OSError:
        _redirect_to_null(sys.stderr)


def _redirect_to_null(stream: TextIO) -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)


@contextmanager
def naming_output_failure(done: str | None = None) -> Iterator[None]:
    """Turn an OSError in the block, which writes output, into OutputError. BrokenPipeError stays.

    `done` is the detail of the error: what the command has done in spite of the failure.
    """
    try:
        yield
    except BrokenPipeError:
        # The reader of the pipe has ended. That is not a failure, so main exits without a message.
        raise
    except OSError as exc:
        raise OutputError(f"could not write to standard output: {exc.strerror}", detail=done) from exc


_RESET = "\x1b[0m"
_STYLES = {"error": "\x1b[1;31m", "warning": "\x1b[1;33m"}


def shows_colours(stream: TextIO) -> bool:
    """Return whether output to a stream has colours: on a terminal that is not "dumb", unless NO_COLOR is set.

    Source: no-color.org.
    """
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def show_error(error: PenstockError) -> None:
    """Print an error with its detail and hint on standard error."""
    _show("error", error.message, detail=error.detail, hint=error.hint)


def show_warning(notice: Notice) -> None:
    """Print a warning with its file and line on standard error, and keep it for `shown_warnings`."""
    note_warning(notice)
    _show("warning", notice.message, detail=notice.location, hint=notice.hint)


class Messages:
    """Prints on standard error what a command reports before its result; prints nothing if `is_quiet` is true."""

    def __init__(self, *, is_quiet: bool = False) -> None:
        self.is_quiet = is_quiet

    def note(self, text: str) -> None:
        """Print a line of information."""
        if not self.is_quiet:
            write_message(hide_secrets(text))


@contextmanager
def showing_log() -> Iterator[None]:
    """Print as warnings what penstock and other libraries log at level WARNING or higher while the block runs."""
    log, handler = logging.getLogger(), _LogHandler(logging.WARNING)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


class _LogHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        # If a connection breaks, psycopg logs this warning in addition to the error that it raises.
        if record.name == "psycopg" and str(record.msg).startswith("error ignored"):
            return
        show_warning(Notice(code="log", message=record.getMessage()))


def _show(kind: str, message: str, *, detail: str | None, hint: str | None) -> None:
    head = f"{_STYLES[kind]}{kind}:{_RESET} " if shows_colours(sys.stderr) else f"{kind}: "
    write_message(*compose_message(message, detail=detail, hint=hint), head=head)


def compose_message(message: str, *, detail: str | None, hint: str | None) -> list[str]:
    """Return a message as psql prints it, without secrets: the message, and lines for DETAIL and HINT if given."""
    parts = [message, f"DETAIL:  {detail}" if detail else "", f"HINT:  {hint}" if hint else ""]
    return [hide_secrets(part) for part in parts if part]


OK = 0
REJECTS = 3
# The exit code of `pg_ctl status` for a server that does not run.
NOT_RUNNING = 3
# The exit code of penstock load --check, verify, temp check and bench self-test.
PROBLEMS = 5
WOULD_NOT_LOAD = 9
INTERNAL_ERROR = 70
INTERRUPTED = 130
# The exit code that a shell reports for a program that SIGPIPE has ended.
BROKEN_PIPE = 141

EXIT_CODES = (
    (OK, "done; for --check, verify and temp check, no problem was found; for doctor, ready to load"),
    (1, "any other error"),
    (2, "usage error: an option, a job file or a dialect is invalid; with --warnings error, a warning"),
    (
        REJECTS,
        "complete, but records were rejected or objects not read; for server and lab status: the server is not running",
    ),
    (4, "a source cannot be found, read or decompressed, changed meanwhile, or is not part of the load (--join)"),
    (PROBLEMS, "the data does not fit dialect or table; --check, verify, temp check or bench self-test found problems"),
    (6, "the table is missing, does not match, or cannot be loaded into"),
    (7, "the server refused, failed or went away"),
    (8, "an embedded server could not be set up or run"),
    (WOULD_NOT_LOAD, "doctor, load --plan: a load would be refused, for the reasons shown"),
    (10, "AWS cannot be reached, refuses the request, or does not know the instance"),
    (INTERNAL_ERROR, "internal error: please report its traceback"),
    (INTERRUPTED, "interrupted by Ctrl-C or a signal"),
    (BROKEN_PIPE, "standard output was closed by its reader"),
)
