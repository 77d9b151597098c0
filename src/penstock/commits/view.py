"""Renders the report of `penstock commits` as text. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from penstock.core.units import format_count, format_duration
from penstock.core.words import line_up, shorten_right
from penstock.diagnose.batches import BATCHES, LEAST_SAMPLES, CommitReport, Committer

if TYPE_CHECKING:
    from penstock.commits.probe import CommitTimes
    from penstock.watch.values import RecordingHeader

_ROWS = 1_000_000
# From commits of fewer rows than this, larger batches are foretold as a range.
_FEW_ROWS = 10
_STATEMENT_WIDTH = 90
_STATEMENTS = 3

_ROWS_BY = {
    "server": "counted by the server: no other application was seen writing",
    "WAL": "estimated from WAL: no other application was seen writing",
    "pg_stat_statements": "by pg_stat_statements, of the statements above",
}
_NOT_KNOWN = (
    "  not known what larger batches gain: others write too, and pg_stat_statements does not say how many rows its",
    "  commits have (it must be in this database, and these statements be this application's alone, one to a commit)",
)

_HOW = (
    "How to commit more rows at once, the largest gain first:",
    "  COPY (penstock load commits by time and size), or INSERT ... SELECT: one commit for all",
    "  INSERT with many rows each, or a driver's batches within one transaction",
    "  in a procedure or loop, COMMIT once for many rows",
    "  if a crash may lose what is committed within three times wal_writer_delay (0.6 s), and what no standby has:",
    "  SET LOCAL synchronous_commit = off in these transactions only",
)


def describe_commits(header: RecordingHeader, report: CommitReport, probed: CommitTimes | None) -> list[str]:
    """Return lines of text: who waits for commits, and how long larger batches would take.

    `report` was made from the samples of a recording with this header. `probed` are the times of small commits, None if
    they were not measured.
    """
    lines = [
        f"{header.server}, database {header.database}, PostgreSQL {header.version}",
        f"{format_duration(report.elapsed_s)}, {format_count(report.samples)} samples of active sessions"
        + ("" if report.samples >= LEAST_SAMPLES else ": too few samples"),
        _describe_rates(report),
    ]
    if probed is not None:
        lines.append(_describe_probe(probed))
    if not report.committers:
        hidden = "No session of this role waited for a commit; other roles' are hidden: it lacks pg_read_all_stats."
        return [*lines, hidden if report.hides_sessions else "No session waited for a commit."]
    for committer in report.committers:
        lines += ["", *_describe_committer(committer, hides_sessions=report.hides_sessions)]
    return [*lines, "", *_HOW]


def _describe_rates(report: CommitReport) -> str:
    rates = report.rates
    if rates.commits_per_s is None:
        return "Commits: not known"
    rows = ""
    if rates.rows_per_commit is not None:
        rows = f"{rates.rows_per_commit:,.1f} rows each (" + ("counted)" if rates.is_exact else "estimated from WAL)")
    return f"{rates.commits_per_s:,.1f} commits/s" + (f", {rows}" if rows else "")


def _describe_probe(probed: CommitTimes) -> str:
    slow_s = sorted(probed.commits_s)[int(len(probed.commits_s) * 0.95) - 1]
    return (
        f"A small commit takes {probed.commit_s * 1e3:.2f} ms, the median of {len(probed.commits_s)} "
        f"(95 % within {max(0.0, slow_s - probed.round_trip_s) * 1e3:.2f} ms)"
    )


def _describe_committer(committer: Committer, *, hides_sessions: bool) -> list[str]:
    lines = [
        (
            f'application "{committer.application}": {committer.sessions:.2f} sessions in transactions, '
            f"{committer.waiting:.0%} of their samples waiting for commits"
        )
    ]
    lines += [
        f"  {part.share:4.0%}  {shorten_right(part.name, _STATEMENT_WIDTH)}"
        for part in committer.statements[:_STATEMENTS]
    ]
    if hides_sessions:
        return [*lines, "  not known what larger batches gain: its commits are counted with those of hidden sessions"]
    if committer.rows_by is None and committer.commits_per_s is not None:
        return [*lines, *_NOT_KNOWN]
    if committer.commit_s is None or committer.row_s is None or committer.rows_per_commit is None:
        return [*lines, "  too few samples to estimate what larger batches gain"]
    lines.append(f"  {committer.rows_per_commit:,.1f} rows per commit ({_ROWS_BY[committer.rows_by or 'server']})")
    lines.append(f"  a commit takes {committer.commit_s * 1e3:.2f} ms, a row takes {committer.row_s * 1e6:.1f} µs")
    if committer.enough_rows is not None:
        lines.append(
            f"  from {format_count(committer.enough_rows)} rows per commit on, twice as many gain less than a tenth"
        )
    return [*lines, *_tabulate(committer)]


def _tabulate(committer: Committer) -> list[str]:
    now = max(1, round(committer.rows_per_commit or 1))
    rows = [("rows per commit", "seconds per million rows", "commits", "")]
    for batch in sorted({*BATCHES, now}):
        seconds = committer.predict_s(_ROWS, batch)
        assert seconds is not None
        assert committer.commit_s is not None
        waiting = _ROWS / batch * committer.commit_s / seconds
        # What a statement of few rows takes for itself is counted as its rows'. Larger batches save some of that.
        least = math.ceil(_ROWS / batch) * committer.commit_s
        is_range = now < _FEW_ROWS and batch > now
        shown = f"{least:,.1f} to {seconds:,.1f}" if is_range else f"{seconds:,.1f}"
        rows.append((format_count(batch), shown, f"{waiting:.1%}", "<- now" if batch == now else ""))
    return line_up(rows, align=">>><", indent="  ")
