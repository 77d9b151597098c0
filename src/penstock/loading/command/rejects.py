"""`penstock rejects` shows which records a load has rejected, and `penstock retry` loads them again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.options import LEDGER, Json, RejectingId, open_ledger, takes
from penstock.cli.output import REJECTS, Messages, show_warning, shown_warnings, write_result
from penstock.core.errors import UsageError
from penstock.core.units import count_nouns, format_count
from penstock.core.values.names import parse_table_name
from penstock.core.values.server import describe_server
from penstock.loading.views.outcome import server_object

if TYPE_CHECKING:
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


Discard = Annotated[bool, typer.Option("--discard", help="Delete them: they will not be loaded.")]


@takes((*LEDGER, "reject_file"))
def rejects(load_id: RejectingId, discard: Discard = False, as_json: Json = False, **options: Any) -> None:
    """Show why records were rejected, by cause. Show the first record of each cause.

    The records are in the ledger, visible only to the role that loaded them; --reject-file writes
    them to a file to be corrected.
    """
    if discard and "reject_file" in options:
        raise UsageError(
            "--discard cannot be used with --reject-file",
            hint="Write the file first, then run penstock rejects ID --discard.",
        )
    with open_ledger(options) as view:
        whole_id, server = view.find_rejecting(load_id), view.server()
        head = server_object(server) | {"load_id": whole_id}
        on_server = describe_server(server.name, server.database)
        if discard:
            count = view.discard_rejects(whole_id)
            write_result(head | {"discarded": count} if as_json else describe_discarded(whole_id, count, on_server))
            return
        causes = view.rejects(whole_id)
        paths = view.write_rejects(whole_id, Path(options["reject_file"])) if "reject_file" in options else []
        is_open = bool(paths) and view.load(whole_id)[0].state != "complete"
    if as_json:
        write_result(head | {"causes": [cause_object(cause) for cause in causes]})
    else:
        write_result(describe_causes(causes, load_id=whole_id, on_server=on_server))
    messages = Messages()
    note_reject_files(paths, messages)
    if is_open:
        messages.note("the load has not ended: when it has, write the file again before you correct records in it")


File = Annotated[
    str | None,
    typer.Argument(
        metavar="[FILE]",
        show_default=False,
        help="Load this corrected reject file: each of its records replaces the rejected one.",
    ),
]
Into = Annotated[
    str | None,
    typer.Option(
        metavar="TABLE",
        show_default=False,
        help="Name the table of FILE's records if several reject files of the load have its header.",
    ),
]


@takes(LEDGER)
def retry(load_id: RejectingId, file: File = None, into: Into = None, as_json: Json = False, **options: Any) -> None:
    """Load the rejected records of a load again. Do so after the table was changed, or from a corrected file.

    All of them are stored as their load would have stored them, referenced tables first, in one transaction. Records
    that are loaded are removed from the rejected ones, so none is loaded twice; the others remain, with their places in
    the load's own files. A corrected file has the records of one of the load's reject files, in their order; those that
    are not corrected yet remain.

    Exit codes: 0 all were loaded, 3 some remain.
    """
    with open_ledger(options) as view:
        server = view.server()
        path, table = None if file is None else Path(file), None if into is None else parse_table_name(into)
        outcome = view.retry(view.find_rejecting(load_id), path, into=table)
    for notice in outcome.warnings:
        show_warning(notice)
    on_server = describe_server(server.name, server.database)
    if as_json:
        write_result(server_object(server) | asdict(outcome) | {"warnings": shown_warnings()})
    else:
        write_result(describe_retry(outcome, on_server))
    if outcome.left:
        raise typer.Exit(REJECTS)
