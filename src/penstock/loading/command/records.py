"""Renders rejected records, and the outcome of a retry, as text and as objects for --json."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.core.units import count_nouns, format_count

if TYPE_CHECKING:
    from penstock.cli.output import Messages
    from penstock.ledger.rejects import RejectCause, RetryOutcome

# How many characters of a record are shown.
_SHOWN = 200


def describe_causes(causes: Sequence[RejectCause], *, load_id: str, on_server: str) -> list[str]:
    """Return the lines that a command prints about rejected records: a head, and three lines for each cause.

    `on_server` is a text that names the server.
    """
    if not causes:
        return [f"load {load_id}{on_server} has no rejected records that this role may see"]
    lines = [f"{count_nouns(sum(cause.count for cause in causes), 'record')} rejected of load {load_id}{on_server}"]
    for cause in causes:
        code = "" if cause.sqlstate is None else f" (SQLSTATE {cause.sqlstate})"
        column = "" if cause.column is None else f', column "{cause.column}"'
        lines.append(f"{count_nouns(cause.count, 'record')}: {cause.message}{column}{code}")
        example = "" if cause.example == cause.message else f": {cause.example}"
        detail = "" if cause.detail is None else f" ({cause.detail})"
        lines.append(f"  first {cause.uri} line {cause.line}{example}{detail}")
        lines.append(f"  {show_record(cause.raw)}")
    return lines


def describe_discarded(load_id: str, count: int, on_server: str) -> str:
    """Return in one line how many records were discarded."""
    return f"discarded {count_nouns(count, 'rejected record')} of load {load_id}{on_server}"


def cause_object(cause: RejectCause) -> dict[str, object]:
    """Return a cause as the object that --json prints."""
    return asdict(cause) | {"raw": show_record(cause.raw)}


def show_record(raw: bytes) -> str:
    r"""Return the first 200 characters of a record on one line. Characters that are not printable are escaped.

    >>> show_record(b"a,\xff\n")
    'a,\\xff'
    """
    text = raw.rstrip(b"\r\n").decode("utf-8", errors="backslashreplace")
    flat = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
    return flat if len(flat) <= _SHOWN else f"{flat[:_SHOWN]}..."


def describe_retry(outcome: RetryOutcome, on_server: str = "") -> str:
    """Return the outcome of a retry in one line.

    >>> from penstock.ledger.rejects import RetryOutcome
    >>> describe_retry(RetryOutcome(load_id="1", rows=2, suppressed=0, left=1))
    'loaded 2 rejected records, 1 is left: see penstock rejects 1'
    """
    done = f"loaded {count_nouns(outcome.rows, 'rejected record')}{on_server}"
    if outcome.suppressed:
        done += f", row triggers skipped {format_count(outcome.suppressed)}"
    if not outcome.left:
        return f"{done}, none remain"
    verb = "is" if outcome.left == 1 else "are"
    return f"{done}, {format_count(outcome.left)} {verb} left: see penstock rejects {outcome.load_id}"


def note_reject_files(paths: Sequence[Path], messages: Messages) -> None:
    """Print the names of the files to which rejected records were written."""
    if paths:
        messages.note(f"rejected records are in {', '.join(map(str, paths))}")
