"""`penstock diagnose`: shows what limits the workload of a recording. examination.py analyses it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime, time, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import Json  # noqa: TC001 (typer reads annotations)
from penstock.cli.output import write_result
from penstock.core.errors import UsageError
from penstock.core.units import format_count, format_duration
from penstock.core.values.diagnosis import describe_diagnosis
from penstock.core.words import line_up

if TYPE_CHECKING:
    from penstock.core.values.diagnosis import Diagnosis
    from penstock.diagnose.examination import Findings
    from penstock.watch.values import Recording

_CANNOT_TELL = (
    "Cannot tell what limits the server: other roles' sessions are hidden from this role.",
    "What follows is of its own sessions alone. As a superuser: GRANT pg_read_all_stats TO the role, and record again.",
)
# How many diagnoses fit one screen. --json prints all of them.
_SHOWN = 3


def diagnose(
    recording: Annotated[
        Path | None,
        typer.Argument(
            metavar="[RECORDING]",
            show_default=False,
            help="Read this file of penstock watch --record or penstock load, or this folder of --history (default: "
            "the newest recording of your loads).",
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="TIME", help="Look at samples from this time on, such as 03:00 or 2026-11-24T03:00."
        ),
    ] = None,
    until: Annotated[
        str | None, typer.Option("--to", metavar="TIME", help="Look at samples up to this time (default: the last).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show what limits the workload of a recording. Show the numbers for each limit, and what to do.

    Times are those of this host's clock; a time without a date is the last such time.

    Exit codes: 0 read, whatever was found, 4 the file is not a recording, or has a newer format.
    """
    from penstock.diagnose.examination import examine
    from penstock.diagnose.load import judge_recording
    from penstock.watch.history import read_history
    from penstock.watch.kept import list_recordings, newest_recording, recordings_folder
    from penstock.watch.recordings import read_recording

    path = newest_recording(recordings_folder(os.environ)) if recording is None else recording
    if since is None and until is None and not path.is_dir():
        read = read_recording(path)
    else:
        now = datetime.now().astimezone()
        since_s = 0.0 if since is None else parse_moment(since, now, option="--from")
        until_s = now.timestamp() if until is None else parse_moment(until, now, option="--to")
        if since_s > until_s:
            raise UsageError("--from is later than --to")
        read = read_history(list_recordings(path) if path.is_dir() else [path], since_s, until_s)
    found = judge_recording(read, examine(read))
    if as_json:
        write_result(
            {
                "diagnoses": found.diagnoses,
                "hides_sessions": found.hides_sessions,
                "is_whole": read.is_whole,
                "unread": read.header.unread,
                "risks": found.risks,
            }
        )
    else:
        write_result(describe_findings(read, found))


def parse_moment(text: str, now: datetime, *, option: str) -> float:
    """Return a time of day, or a date and time, as seconds since 1970. Raises UsageError.

    >>> noon = datetime.fromisoformat("2026-11-24T12:00:00+00:00")
    >>> noon.timestamp() - parse_moment("11:30", noon, option="--from")
    1800.0
    >>> noon.timestamp() - parse_moment("13:00", noon, option="--from")
    82800.0
    """
    try:
        if ":" in text and "-" not in text and "T" not in text:
            of_day = time.fromisoformat(text)
            moment = datetime.combine(now.date(), of_day, tzinfo=now.tzinfo)
            return (moment if moment <= now else moment - timedelta(days=1)).timestamp()
        moment = datetime.fromisoformat(text)
    except ValueError as exc:
        raise UsageError(
            f'{option} is "{text}", which is not a time', hint="Write 03:00, or 2026-11-24T03:00."
        ) from exc
    return (moment if moment.tzinfo else moment.replace(tzinfo=now.tzinfo)).timestamp()


def describe_findings(recording: Recording, found: Findings) -> list[str]:
    """Return a screen: the recording's server, and a block for each diagnosis, or the waits if there is none."""
    header, activity, diagnoses = recording.header, found.activity, found.diagnoses
    cpus = "" if header.cpu_count is None else f" on {header.cpu_count} CPUs"
    lines = [
        f"PostgreSQL {header.version}{cpus}, {format_duration(activity.elapsed_s)} from {header.started_at} on",
        f"{activity.sessions:.2f} active sessions on average, {format_count(activity.samples)} samples of them",
    ]
    if not recording.is_whole:
        lines.append("The end of the recording is missing: its writer was killed or is still writing.")
    lines += [f"Could not be read: {unread.what}: {unread.why}" for unread in header.unread]
    if found.hides_sessions:
        lines += ["", *_CANNOT_TELL]
    for rank, diagnosis in enumerate(diagnoses[:_SHOWN], start=1):
        sure = "" if diagnosis.confidence == "too few samples" else f", confidence {diagnosis.confidence}"
        lines += ["", f"{rank}  {diagnosis.code}{sure}", *describe_diagnosis(diagnosis, "   ")]
    if len(diagnoses) > _SHOWN:
        lines += ["", f"{len(diagnoses) - _SHOWN} more: --json"]
    if not diagnoses:
        waits = [(part.name, f"{part.sessions:.2f}", f"{100 * part.share:.0f} %") for part in activity.waits[:10]]
        table = [("waits of active sessions", "on average", "of time"), *waits] if waits else []
        headline = [] if found.hides_sessions else ["No findings."]
        lines += ["", *headline, *line_up(table, align="<>>", indent="  ")]
    return lines + describe_risks(found.risks)


def describe_risks(risks: Sequence[Diagnosis]) -> list[str]:
    """Return a block with the risks that no session waits for yet; no lines if there are none."""
    lines = ["", "Nobody waits for this yet:"] if risks else []
    width = max((len(risk.code) for risk in risks), default=0)
    return lines + [line for risk in risks for line in describe_diagnosis(risk, f"   {risk.code:{width}}  ")]
