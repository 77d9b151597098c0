"""Messages on standard error, in psql's form: `error: message`, then DETAIL and HINT.

Results go to standard output and are printed by their own modules.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from penstock.cli.terminal.output import note_warning, write_message
from penstock.model.redaction import hide_secrets
from penstock.model.source.dialect import Notice

if TYPE_CHECKING:
    from penstock.errors import PenstockError

_RESET = "\x1b[0m"
_STYLES = {"error": "\x1b[1;31m", "warning": "\x1b[1;33m"}


def shows_colours(stream: TextIO) -> bool:
    """Return whether output to a stream has colours: on a terminal, unless NO_COLOR is set (no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def show_error(error: PenstockError) -> None:
    """Print an error with its detail and hint."""
    _show("error", error.message, detail=error.detail, hint=error.hint)


def show_warning(notice: Notice) -> None:
    """Print a warning with its file and line, and keep it for the result as JSON."""
    note_warning(notice)
    _show("warning", notice.message, detail=notice.location, hint=notice.hint)


class Messages:
    """Prints what a command reports before its result; nothing if it is quiet."""

    def __init__(self, *, is_quiet: bool = False) -> None:
        self.is_quiet = is_quiet

    def note(self, text: str) -> None:
        """Print a line of information."""
        if not self.is_quiet:
            write_message(hide_secrets(text))


@contextmanager
def showing_log() -> Iterator[None]:
    """Print the warnings that penstock and other libraries log while the block runs."""
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
    parts = [message, f"DETAIL:  {detail}" if detail else "", f"HINT:  {hint}" if hint else ""]
    write_message(*(hide_secrets(part) for part in parts if part), head=head)
