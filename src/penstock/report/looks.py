"""Decides what a report shows of a recording, and which numbers of several recordings are compared. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from penstock.core.slotted import slotted
from penstock.core.units import GB, MB, format_count, format_duration
from penstock.core.values.accounts import FileOutcome, LoadCounts, LoadDetails
from penstock.diagnose.examination import Examination, Findings, keep_workload
from penstock.diagnose.load import judge_recording
from penstock.report.timeline import Timeline, mean
from penstock.watch.waits import CPU

if TYPE_CHECKING:
    from penstock.watch.values import Recording, RecordingHeader

# The maximum numbers of rows in the tables of waits, statements and files.
_WAITS_SHOWN, _STATEMENTS_SHOWN, FILES_SHOWN = 10, 5, 50
_STATEMENT_WIDTH = 200


@slotted
class Table:
    """A table of text on the page."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    # How many columns at the left have text, which is aligned to the left. All other columns are aligned to the right.
    texts: int = 1
    note: str = ""


@slotted
class ShownRecording:
    """One recording with all that the page shows of it."""

    # The name of the recording's file.
    name: str
    # The recording's name on the page.
    letter: str
    header: RecordingHeader
    timeline: Timeline
    findings: Findings
    load: LoadCounts | None
    is_whole: bool

    @property
    def details(self) -> LoadDetails | None:
        """Return what the load did, or None if the recording does not contain it."""
        return None if self.load is None else self.load.details


def look_at(recording: Recording, *, name: str, letter: str) -> ShownRecording:
    """Read all samples of a recording, and return what the page shows of it.

    `name` is the name of the recording's file. `letter` is the recording's short name on the page: A for the first.
    """
    examination, timeline = Examination(recording.header), Timeline()
    for sample in recording.samples:
        examination.see(sample)
        timeline.see(keep_workload(sample, recording.header.application))
    found = examination.conclude(recording.load)
    return ShownRecording(
        name=name,
        letter=letter,
        header=recording.header,
        timeline=timeline,
        findings=judge_recording(recording, found),
        load=recording.load,
        is_whole=recording.is_whole,
    )


def verdict(look: ShownRecording) -> tuple[str, str]:
    """Return two sentences: what limits the workload, and how to change that. The second may be empty."""
    if look.findings.diagnoses:
        limit = look.findings.diagnoses[0]
        return f"Limited by: {limit.verdict}", f"To change it: {limit.remedy}"
    if look.findings.hides_sessions:
        return "Cannot tell what limits the server", "Other roles' sessions are hidden from the role that recorded."
    return "No limit was found", ""


def facts(look: ShownRecording) -> list[tuple[str, str]]:
    """Return pairs of a subject and a text: file, server, recorded time, activity, and what could not be read."""
    header, activity = look.header, look.findings.activity
    cpus = "" if header.cpu_count is None else f", {header.cpu_count} CPUs"
    found = [
        ("file", look.name),
        ("server", f"PostgreSQL {header.version}{cpus}, {header.server}, database {header.database}"),
        ("recorded", f"{format_duration(look.timeline.end_s)} from {header.started_at} on"),
        ("activity", f"{activity.sessions:.2f} active sessions on average, {format_count(activity.samples)} samples"),
    ]
    if not look.is_whole:
        found.append(("end", "missing: the writer was killed or is still writing"))
    return found + [("not read", f"{unread.what}: {unread.why}") for unread in header.unread]


def describe_time(look: ShownRecording) -> Table | None:
    """Return a table of what a load's sessions, readers and steps spent their seconds on.

    None if no load was recorded.
    """
    if look.load is None:
        return None
    accounts = look.load.accounts
    sessions, readers = accounts.sessions, accounts.readers
    spent = [
        (f"sessions ({accounts.session_count})", "waiting for blocks", sessions.waiting_s),
        ("", "encoding", sessions.encoding_s),
        ("", "sending, or waiting for the server to take rows", sessions.sending_s),
        ("", "waiting for the end of COPY", sessions.finishing_s),
        ("", "committing", sessions.committing_s),
        (f"readers ({accounts.reader_count})", "reading", readers.reading_s),
        ("", "decompressing", readers.decompressing_s),
        ("", "finding the ends of records", readers.cutting_s),
        ("", "waiting for room in the queue", readers.queueing_s),
        *(("step", name, seconds) for name, seconds in accounts.steps_s.items()),
        ("client", f"its processors ({accounts.client_cpus})", accounts.client_cpu_s),
    ]
    rows = tuple((who, what, f"{seconds:,.2f}") for who, what, seconds in spent)
    return Table(heads=("who", "what", "seconds"), rows=rows, texts=2, note="Sums over sessions and readers.")


def describe_tables(look: ShownRecording) -> Table | None:
    """Return a table of the files and rows of each loaded table; None if the recording does not have them."""
    if look.details is None or not look.details.files:
        return None
    tables: dict[str, list[FileOutcome]] = {}
    for file in look.details.files:
        tables.setdefault(file.table, []).append(file)
    rows = tuple(
        (table, format_count(len(files)), format_count(sum(file.rows for file in files)))
        for table, files in tables.items()
    )
    return Table(heads=("table", "files", "rows"), rows=rows)


def describe_files(look: ShownRecording) -> Table | None:
    """Return a table of the rows and seconds of each loaded file; None if the recording does not have them.

    Of more than 50 files, only the slowest are listed.
    """
    if look.details is None or not look.details.files:
        return None
    files = sorted(look.details.files, key=lambda file: -file.seconds)
    rows = tuple(
        (file.uri, file.table, *map(say, (file.rows, file.seconds, file.rows / (file.seconds or 1.0))))
        for file in files[:FILES_SHOWN]
    )
    more = f"{len(files) - FILES_SHOWN} more, which took less time." if len(files) > FILES_SHOWN else ""
    return Table(heads=("file", "table", "rows", "seconds", "rows/s"), rows=rows, texts=2, note=more)


def describe_plan(look: ShownRecording) -> Table | None:
    """Return a table of what a load planned, and of the indexes, keys and triggers that cost time for each row.

    Return None if the recording does not have them.
    """
    if look.load is None or look.details is None:
        return None
    setting = look.load.setting
    stayed = {
        "indexes and keys kept": setting.indexes,
        "foreign keys kept": setting.foreign_keys,
        "row triggers kept": setting.triggers,
    }
    rows = [*look.details.plan, *((name, ", ".join(found)) for name, found in stayed.items() if found)]
    return _cells(rows)


def describe_done(look: ShownRecording) -> Table | None:
    """Return a table of what the load changed and restored, and did after its rows were stored.

    None if not recorded.
    """
    return None if look.details is None else _cells(look.details.done)


def _cells(rows: Sequence[tuple[str, ...]]) -> Table | None:
    """Return rows of text of different lengths as a table. A single cell spans the whole table."""
    return Table(heads=(), rows=tuple(rows), texts=max(map(len, rows))) if rows else None


def describe_waits(look: ShownRecording) -> Table:
    """Return a table of the ten waits with the most active time.

    Each has its average number of active sessions, and its share of all active time in per cent.
    """
    waits = look.findings.activity.waits[:_WAITS_SHOWN]
    rows = tuple((part.name, f"{part.sessions:.2f}", f"{100 * part.share:.0f}") for part in waits)
    return Table(heads=("wait", "sessions", "% of time"), rows=rows, note="CPU: active without a wait.")


def describe_statements(look: ShownRecording) -> Table:
    """Return a table of the five statements with the most active time.

    Each has its average number of active sessions, and its share of all active time in per cent.
    """
    parts = look.findings.activity.statements[:_STATEMENTS_SHOWN]
    rows = tuple((_shorten(part.name), f"{part.sessions:.2f}", f"{100 * part.share:.0f}") for part in parts)
    return Table(heads=("statement", "sessions", "% of time"), rows=rows)


def _shorten(text: str) -> str:
    return text if len(text) <= _STATEMENT_WIDTH else f"{text[:_STATEMENT_WIDTH]} ..."


# The numbers by which recordings are compared: each has a name, a unit, and a function that reads it from a recording.
_MEASURES: tuple[tuple[str, str, Callable[[ShownRecording], float | None]], ...] = (
    ("recorded", "s", lambda look: look.timeline.end_s),
    ("load", "s", lambda look: _count(look, "elapsed_s")),
    ("rows loaded", "", lambda look: _count(look, "rows")),
    ("rows", "/s", lambda look: _rate(look, "rows") or mean(look.timeline.rows)),
    ("COPY data", "MB/s", lambda look: _rate(look, "bytes_copied", MB)),
    ("sessions of the load", "", lambda look: _count(look, "session_count")),
    ("processors of the client", "s", lambda look: _count(look, "client_cpu_s")),
    ("read by the load's sessions", "GB", lambda look: _io(look, "read_bytes")),
    ("written by the load's sessions", "GB", lambda look: _io(look, "write_bytes")),
    ("WAL of the load's sessions", "GB", lambda look: _io(look, "wal_bytes")),
    ("active sessions", "", lambda look: look.findings.activity.sessions),
    ("busy processors of the host", "", lambda look: mean(look.timeline.busy_cpus)),
    ("WAL", "GB", lambda look: look.timeline.wal_bytes / GB),
    ("WAL", "MB/s", lambda look: mean(look.timeline.wal)),
    ("checkpoints forced by WAL", "", lambda look: look.timeline.forced.count),
    ("queue of the data's device", "", lambda look: _data(look, "queue")),
    ("I/Os of the data's device", "/s", lambda look: _data(look, "iops")),
    ("I/O of the data's device", "MB/s", lambda look: _data(look, "mb_per_s")),
)


def compare(looks: Sequence[ShownRecording]) -> Table:
    """Return a table of the numbers of all recordings side by side. For two recordings, it also has the difference.

    Rates of loads have none.
    """
    found = [(name, unit, [of(look) for look in looks]) for name, unit, of in _MEASURES]
    shares = [{part.name: 100 * part.share for part in look.findings.activity.waits} for look in looks]
    found += [(f"active time in {name}", "%", [share.get(name, 0.0) for share in shares]) for name in top_waits(looks)]
    # Users wait for the time of a load: its rates would read as gains that nobody has.
    rates = {"/s", "MB/s"} if all(look.load is not None for look in looks) else set()
    limits = [{each.code: 100 * each.share for each in look.findings.diagnoses} for look in looks]
    codes = dict.fromkeys(code for shares in limits for code in shares)
    found += [(f"limit {code}", "%", [shares.get(code) for shares in limits]) for code in codes]
    rows = [
        (name, unit, *map(say, values), "" if unit in rates else _difference(values))
        for name, unit, values in found
        if any(value is not None for value in values)
    ]
    names = {name: None for look in looks for name in look.header.settings}
    for name in names:
        of_each = [look.header.settings.get(name, "") for look in looks]
        if len(set(of_each)) > 1:
            rows.append((name, "", *of_each, ""))
    last = f"{looks[-1].letter} against A" if len(looks) == 2 else ""
    letters = (look.letter if len(looks) > 1 else "value" for look in looks)
    return Table(heads=("", "unit", *letters, last), rows=tuple(rows), texts=2)


def top_waits(looks: Sequence[ShownRecording], count: int = 5) -> list[str]:
    """Return the names of the `count` waits with the largest shares of active time in all recordings.

    CPU comes first.
    """
    sums: dict[str, float] = {}
    for look in looks:
        for part in look.findings.activity.waits:
            sums[part.name] = sums.get(part.name, 0.0) + part.share
    names = sorted(sums, key=lambda name: -sums[name])[:count]
    return sorted(names, key=lambda name: name != CPU)


def _difference(values: Sequence[float | None]) -> str:
    """Return by how much the second of two values exceeds the first, in per cent.

    >>> _difference([2.0, 3.0]), _difference([0.0, 1.0]), _difference([2.0, 2.0])
    ('+50 %', '', '=')
    """
    if len(values) != 2 or not values[0] or values[1] is None:
        return ""
    per_cent = 100 * (values[1] / values[0] - 1)
    return f"{per_cent:+,.0f} %" if abs(per_cent) >= 0.5 else "="


def _count(look: ShownRecording, name: str) -> float | None:
    """Return a number of the load's accounts, None if no load was recorded."""
    return None if look.load is None else getattr(look.load.accounts, name)


def _io(look: ShownRecording, name: str) -> float | None:
    """Return GB that the server counted for the load's sessions alone, or None if it has no count for them alone."""
    io = None if look.load is None else look.load.accounts.io
    counted = None if io is None or not io.is_exact else getattr(io, name)
    return None if counted is None else counted / GB


def _rate(look: ShownRecording, name: str, unit: float = 1.0) -> float | None:
    count, seconds = _count(look, name), _count(look, "rows_s")
    return None if count is None else count / (seconds or 1.0) / unit


def _data(look: ShownRecording, curve: str) -> float | None:
    """Return the mean of a curve of the device with the data directory."""
    devices = (each for each in look.timeline.devices.values() if each.has_data)
    return next((mean(getattr(each, curve)) for each in devices), None)


def say(value: float | None) -> str:
    """Return a number as text with about three digits; None as an empty text.

    >>> [say(value) for value in (None, 3, 0.25, 12.34, 123456.0)]
    ['', '3', '0.25', '12.3', '123,456']
    """
    if value is None:
        return ""
    if isinstance(value, int) or value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"
