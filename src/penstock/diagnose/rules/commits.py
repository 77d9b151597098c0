"""The rule for waits for commits: for the local flush, present or missing standbys, or Aurora's storage."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from penstock.diagnose.activity import Moment, Tally
from penstock.diagnose.batches import CommitMeter
from penstock.diagnose.rules.case import BULK_BYTES, LEAST_SHARE, Case, number
from penstock.diagnose.transactions import COMMIT_WAITS, LOCAL_FLUSH
from penstock.units import MB, format_count

if TYPE_CHECKING:
    from penstock.model.diagnosis import Diagnosis
    from penstock.model.recording import RecordingHeader, Sample
    from penstock.model.server.counters import CounterRow

# How many standbys a commit waits for, how many of them stream, and the names of those that do not.
Missing: TypeAlias = tuple[int, int, tuple[str, ...]]

STANDBY_NAMES = "synchronous_standby_names"

# The forms are FIRST 2 (a, b), ANY 1 (a, b), 2 (a, b), and a, b. The last one means 1 (a, b).
_LIST = re.compile(r"\s*(?:(?:(?:FIRST|ANY)\s+)?(\d{1,9})\s*\()?(.*)", re.IGNORECASE | re.DOTALL)
_NAME = re.compile(r'"((?:[^"]|"")*)"|([^\s,"()]+)')


class CommitWaits:
    """The rule for waits for commits. Waits while standbys are missing are counted separately."""

    def __init__(self, header: RecordingHeader) -> None:
        self._header = header
        self._parts = {code: Tally() for code in COMMIT_WAITS.values()}
        self._meter = CommitMeter(header.settings)
        self._missing: Missing | None = None
        self._without = Tally()
        self._lost: Missing | None = None

    def see(self, sample: Sample, _: Sequence[Moment]) -> None:
        """Add a sample. Which standbys are missing is known from the last reading of pg_stat_replication."""
        if (rows := sample.counters.get("pg_stat_replication")) is not None:
            self._missing = find_missing(self._header.settings.get(STANDBY_NAMES, ""), rows)
        for code, moment in self._meter.see(sample):
            self._count(code, moment)

    def _count(self, code: str, moment: Moment) -> None:
        if code == "commit-standby" and self._missing is not None:
            self._lost = self._missing
            self._without.add(moment)
        else:
            self._parts[code].add(moment)

    def conclude(self, case: Case) -> list[Diagnosis]:
        """Return what commits wait for."""
        for code, moment in self._meter.end():
            self._count(code, moment)
        found = []
        if self._lost is not None and case.share(self._without) >= LEAST_SHARE:
            found.append(self._conclude_missing(case, self._lost))
        for code, part in self._parts.items():
            is_bulk = code == LOCAL_FLUSH and case.is_written_per_commit(BULK_BYTES)
            if case.share(part) >= LEAST_SHARE and not is_bulk:
                found += self._conclude_commits(case, code, part)
        return found

    def _conclude_missing(self, case: Case, missing: Missing) -> Diagnosis:
        needed, present, lost = missing
        evidence = [
            number("standbys that a commit waits for", needed),
            number("such standbys that are streaming", present),
        ]
        setting = self._header.settings[STANDBY_NAMES]
        names = ", ".join(lost) or "any"
        return case.conclude("standby-missing", self._without, evidence, names=names, setting=setting)

    def _conclude_commits(self, case: Case, code: str, part: Tally) -> list[Diagnosis]:
        rates, committers = case.rates, self._meter.result(case.rates).committers
        commit_s = now = rows = by = None
        if committers:
            first = committers[0]
            commit_s, now, rows, by = first.commit_s, first.rows_per_commit, first.enough_rows, first.rows_by
        if rows is not None and now is not None and now >= rows:
            # The application's number of commits shows that they take less than 1 % of the time, even if the samples
            # show more.
            return []
        how = "estimated from WAL" if by == "WAL" else f"by {by}" if by == "pg_stat_statements" else "counted"
        numbers = [
            ("active sessions on average", case.sessions(case.moments), ""),
            ("commits", rates.commits_per_s, "/s"),
            ("commits that wrote", rates.writes_per_s, "/s"),
            ("time for each commit", None if commit_s is None else 1000 * commit_s, "ms"),
            (f"rows per commit, {how}", now, ""),
            ("WAL", None if rates.wal_bytes_per_s is None else rates.wal_bytes_per_s / MB, "MB/s"),
        ]
        evidence = [number(name, value, unit) for name, value, unit in numbers if value is not None]
        batch = "more rows at a time" if rows is None else f"every {format_count(rows)} rows or more"
        return [case.conclude(code, part, evidence, batch=batch)]


def find_missing(standby_names: str, standbys: Sequence[CounterRow]) -> Missing | None:
    """Return the standbys of synchronous_standby_names that pg_stat_replication does not show as streaming.

    Returns None if enough standbys stream, if the setting names no standby, or if the role may not see the rows.
    """
    needed, names = parse_standby_names(standby_names)
    if not names or any(row.get("state") is None for row in standbys):
        return None
    streaming = [row for row in standbys if row["state"] == "streaming" and row.get("sync_state") != "async"]
    if len(streaming) >= needed:
        return None
    present = {str(row.get("application_name")).lower() for row in streaming}
    lost = tuple(name for name in names if name != "*" and name.lower() not in present)
    return needed, len(streaming), lost


def parse_standby_names(value: str) -> tuple[int, tuple[str, ...]]:
    """Return how many standbys a commit waits for, and the names that they are chosen from.

    >>> parse_standby_names('ANY 2 (a1, "b-1", *)')
    (2, ('a1', 'b-1', '*'))
    >>> parse_standby_names("a, b")
    (1, ('a', 'b'))
    """
    found = _LIST.fullmatch(value)
    assert found is not None
    names = tuple((quoted or "").replace('""', '"') or plain for quoted, plain in _NAME.findall(found[2]))
    return int(found[1] or 1), names
