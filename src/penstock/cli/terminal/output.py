"""Results on standard output, messages on standard error, and what becomes of a command that cannot write them.

What is printed to people is made visible here; JSON escapes in its own way.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TextIO

from penstock.cli.terminal.visible import visible, visible_lines
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.model.source.dialect import Notice


class OutputError(PenstockError):
    """Standard output is full, closed or broken otherwise."""


@dataclass(slots=True)
class _Written:
    has_result: bool = False
    warnings: list[Notice] = field(default_factory=list)


_written = _Written()


def begin_output() -> None:
    """Forget what an earlier run in this process has written."""
    _written.has_result = False
    _written.warnings.clear()


def note_warning(notice: Notice) -> None:
    """Keep a warning that is printed, for the result as JSON and for those to whom it is an error."""
    _written.warnings.append(notice)


def shown_warnings() -> list[Notice]:
    """Return the warnings that this run has printed."""
    return _written.warnings


def has_result() -> bool:
    """Whether a result was written: as JSON there is one object, and nothing may follow it."""
    return _written.has_result


def open_closed_streams() -> None:
    """Have reading and writing fail where standard input and output were closed; messages then go nowhere.

    Python leaves such a stream None, and what is opened next, such as a connection, would get its number.
    """
    # What is opened gets the lowest number that is free.
    if sys.stdin is None:
        os.open(os.devnull, os.O_WRONLY)
    if sys.stdout is None:
        sys.stdout = _open_null(os.O_RDONLY)
    if sys.stderr is None:
        sys.stderr = _open_null(os.O_WRONLY)


def _open_null(flags: int) -> TextIO:
    return open(os.open(os.devnull, flags), "w", encoding="utf-8", errors="backslashreplace")  # noqa: PTH123


def write_result(result: Mapping[str, object] | Sequence[str], *, done: str | None = None) -> None:
    """Print a result at once, an object as JSON or lines of text; `done` is what stays true where that fails.

    Raises OutputError, BrokenPipeError.
    """
    if isinstance(result, str):
        write_drawn(visible(result), done=done)
    elif isinstance(result, Mapping):
        write_drawn(json.dumps(result), done=done)
    else:
        write_drawn("\n".join(map(visible, result)), done=done)


def write_drawn(text: str, *, done: str | None = None) -> None:
    """Print a result as it stands: its parts are visible, and what else is in it are penstock's own colours."""
    _written.has_result = True
    with naming_output_failure(done):
        print(text, flush=True)


def flush_output() -> None:
    """Write out what was printed. Raises OutputError, BrokenPipeError."""
    with naming_output_failure():
        sys.stdout.flush()


def abandon_output() -> None:
    """Give standard output away, so that the interpreter's last flush finds somebody to write to."""
    _give_away(sys.stdout)


def write_message(*lines: str, head: str = "") -> None:
    """Print a message on standard error; one that cannot be written, to a log on a full disk or to nobody, is lost.

    What is under way, and the exit code, matter more than what is said of them. `head` is printed as it stands. A whole
    message is printed at once, so that lines of several threads do not mix.
    """
    try:
        print(head + "\n".join(map(visible_lines, lines)), file=sys.stderr, flush=True)
    except OSError:
        _give_away(sys.stderr)


def _give_away(stream: TextIO) -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)


@contextmanager
def naming_output_failure(done: str | None = None) -> Iterator[None]:
    """Turn what writing raises into OutputError, but for BrokenPipeError; `done` as for write_result."""
    try:
        yield
    except BrokenPipeError:
        # Nobody reads any more: not a failure, and main leaves quietly
        raise
    except OSError as exc:
        raise OutputError(f"could not write to standard output: {exc.strerror}", detail=done) from exc
