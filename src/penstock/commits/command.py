"""`penstock commits`: shows which applications wait for commits, and what larger batches would gain."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.options import SERVER, Json, open_target, takes
from penstock.cli.output import write_message, write_result
from penstock.commits.view import describe_commits
from penstock.core.errors import PenstockError, UsageError
from penstock.core.units import format_duration
from penstock.core.values.options import parse_duration
from penstock.diagnose.batches import BATCHES, CommitReport, report_commits
from penstock.watch.command.watched import Watched, report_unread, sample_while
from penstock.watch.recordings import read_recording

if TYPE_CHECKING:
    from penstock.commits.probe import CommitTimes
    from penstock.watch.sampler import Sampler
    from penstock.watch.values import Sample

# The sampling interval of the published experiment. A commit takes milliseconds, so a longer interval would show too
# little.
_INTERVAL_S = 0.1
# The number of rows for which the JSON estimates the time.
_ROWS = 1_000_000


@takes(SERVER)
def commits(
    for_time: Annotated[
        str | None, typer.Option("--for", metavar="TIME", help="Watch the server for this long (default: 60s).")
    ] = None,
    recording: Annotated[
        Path | None,
        typer.Option("--recording", metavar="FILE", help="Read this recording of penstock watch, and no server."),
    ] = None,
    probe: Annotated[
        bool,
        typer.Option("--probe", help="Also measure how long 100 small commits take, one after the other."),
    ] = False,
    as_json: Json = False,
    **options: Any,
) -> None:
    """Show which applications wait for their commits. Estimate how long their rows would take in larger batches.

    Watches a server while it works, ten times a second; needs pg_read_all_stats (or pg_monitor) to see what others'
    sessions do. It changes nothing. --probe writes a message of a few bytes into the log for each commit, and no table.

    Exit codes: 0 reported; others as for every command.
    """
    if recording is not None and (for_time is not None or probe or "to" in options):
        raise UsageError(
            "--recording cannot be used with --for, --probe or --to", hint="With a recording no server is watched."
        )
    probed: CommitTimes | None = None
    if recording is not None:
        read = read_recording(recording)
        header = read.header
        report = report_commits(read.samples, settings=header.settings)
    else:
        from penstock.watch.watching import open_sampler

        factory = open_target(options, allows_standby=not probe)
        with closing(open_sampler(factory, to=options.get("to"), interval_s=_INTERVAL_S)) as sampler:
            header = sampler.header
            report_unread(header)
            samples = _sample(sampler, parse_duration(for_time or "60s", option="--for"))
        if probe:
            from penstock.commits.probe import probe_commits

            try:
                probed = probe_commits(factory)
            except PenstockError as error:
                # The report of the samples taken so far is printed in any case.
                write_message(f"commits were not measured: {error.message}")
        probed_s = None if probed is None else probed.commit_s
        report = report_commits(samples, settings=header.settings, probed_s=probed_s)
    if not report.elapsed_s:
        raise UsageError("the recording has no samples", hint="Watch for a longer time.")
    write_result(_as_object(report, probed) if as_json else describe_commits(header, report, probed))


def _sample(sampler: Sampler, for_s: float) -> list[Sample]:
    """Return the samples of `for_s` seconds, or of the time until Ctrl-C or SIGTERM."""
    write_message(f"watching for {format_duration(for_s)}; press Ctrl-C to stop earlier")
    samples: list[Sample] = []
    watched = Watched(interval_s=_INTERVAL_S)
    sample_while(watched.stop.wait, sampler, watched, keep=samples.append, for_s=for_s)
    # The list is copied, so that a sample that arrives later is not added.
    return list(samples)


def _as_object(report: CommitReport, probed: CommitTimes | None) -> dict[str, object]:
    fields = asdict(report)
    fields["committers"] = [
        {
            **asdict(committer),
            "enough_rows_per_commit": committer.enough_rows,
            "predicted_s_per_million_rows": {str(batch): committer.predict_s(_ROWS, batch) for batch in BATCHES},
        }
        for committer in report.committers
    ]
    fields["probe"] = probed
    return fields
