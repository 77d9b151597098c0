"""`penstock watch`: shows what a server's sessions do and wait for, live, and records it.

Samples are taken in a separate thread, so that drawing never delays a sample.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.options import SERVER, open_target, takes
from penstock.cli.output import write_message, write_result
from penstock.core.errors import UsageError
from penstock.core.values.options import parse_duration
from penstock.watch.activity import SLOW
from penstock.watch.command.watched import Watched, report_unread, sample_while
from penstock.watch.history import History
from penstock.watch.recordings import Recorder
from penstock.watch.risks import RiskMeter
from penstock.watch.view import View, as_object, describe_line

if TYPE_CHECKING:
    from penstock.watch.sampler import Sampler
    from penstock.watch.values import Sample

# Taking a sample costs the server about 2 ms of CPU. With a shorter interval, the samples would show this cost.
_LEAST_INTERVAL_S = 0.05
# One day. Threads cannot wait for an unlimited time, and a longer interval is of no use.
_LARGEST_INTERVAL_S = 86_400.0
Interval = Annotated[
    str,
    typer.Option("--interval", metavar="TIME", help="Take samples at this interval, such as 0.2 or 5s."),
]
For = Annotated[
    str | None,
    typer.Option("--for", metavar="TIME", help="Watch for this long, such as 60s or 10min (default: until Ctrl-C)."),
]
QueryText = Annotated[
    bool,
    typer.Option("--with-query-text", help="Show and record statements with their literals (default: without)."),
]


@takes(SERVER)
def watch(
    interval: Interval = "1",
    for_time: For = None,
    record: Annotated[
        Path | None,
        typer.Option("--record", metavar="FILE", help="Also write every sample to a new file, for penstock diagnose."),
    ] = None,
    history: Annotated[
        Path | None,
        typer.Option("--history", metavar="DIR", help="Also write every sample to this folder, an hour to a file."),
    ] = None,
    keep: Annotated[
        str,
        typer.Option("--keep", metavar="TIME", help="Remove files of --history that are older than this."),
    ] = "24h",
    with_query_text: QueryText = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a sample.")] = False,
    **options: Any,
) -> None:
    """Show what a server's sessions do and wait for. On a terminal this is a screen, elsewhere a line for each sample.

    Active sessions are averages over the last 10 seconds, by what they wait for; active without a wait is called CPU,
    which is inferred. Needs pg_read_all_stats (or pg_monitor) to see what others' sessions do. It changes nothing and
    works on standbys. If all connections of the server are taken, it waits for one. Keys: p pauses, s sorts by name or
    by activity, + and - change the interval, q ends.

    Exit codes: 0 ended by --for, q, Ctrl-C or SIGTERM, with a complete recording; others as for every command.
    """
    from penstock.watch.watching import await_place, open_sampler

    interval_s = parse_interval(interval)
    for_s = None if for_time is None else parse_duration(for_time, option="--for")
    keep_s = parse_duration(keep, option="--keep")
    factory = open_target(options, allows_standby=True)
    with ExitStack() as stack:
        sampler = await_place(
            lambda: open_sampler(factory, to=options.get("to"), interval_s=interval_s, with_query_text=with_query_text),
            for_s=for_s,
            say=write_message,
        )
        stack.callback(sampler.close)
        writers: list[Recorder | History] = []
        if record is not None:
            writers.append(stack.enter_context(Recorder(record, sampler.header)))
        if history is not None:
            writers.append(stack.enter_context(History(history, lambda: sampler.header, keep_s=keep_s)))
        watched = Watched(interval_s=interval_s)
        _show_while_sampling(sampler, writers, watched, for_s=for_s, as_json=as_json)
    if record is not None:
        write_message(f"recorded {watched.count} samples; to read them: penstock diagnose {record}")


def parse_interval(text: str) -> float:
    """Return the time between two samples in seconds. Raises UsageError."""
    seconds = parse_duration(text, option="--interval")
    if seconds < _LEAST_INTERVAL_S:
        raise UsageError(f"an interval of {text} is too short", hint=f"Write {_LEAST_INTERVAL_S} or more.")
    if seconds > _LARGEST_INTERVAL_S:
        raise UsageError(f"an interval of {text} is too long", hint="Write 1d or less.")
    return seconds


def _show_while_sampling(
    sampler: Sampler, writers: Sequence[Recorder | History], watched: Watched, *, for_s: float | None, as_json: bool
) -> None:
    report_unread(sampler.header)
    meter = RiskMeter(sampler.header.settings)

    def keep(sample: Sample) -> None:
        meter.settings = sampler.header.settings
        meter.see(sample)
        if any(name in sample.counters for name in SLOW):
            watched.risks = meter.result()
        for writer in writers:
            writer.write(sample)
        watched.add(sample)

    def show() -> None:
        if as_json or not sys.stdout.isatty():
            _print_lines(sampler, watched, as_json=as_json)
        else:
            from penstock.watch.command.screen import show_screen

            show_screen(sampler.header, watched)

    sample_while(show, sampler, watched, keep=keep, for_s=for_s)


def _print_lines(sampler: Sampler, watched: Watched, *, as_json: bool) -> None:
    while not watched.stop.is_set():
        watched.news.wait()
        watched.news.clear()
        if watched.stop.is_set():
            break
        view = View.of(sampler.header, watched.samples, watched.risks)
        if as_json:
            write_result(as_object(view))
        else:
            write_result([describe_line(view)])
