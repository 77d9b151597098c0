"""Whether a workload waits for its commits: for the local flush, for standbys or missing ones, for Aurora's storage."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeAlias

from penstock.diagnose.batches import COMMIT_WAITS, report_commits
from penstock.diagnose.case import Case, number, share_of
from penstock.units import MB, MIB, format_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.diagnose.activity import Moment
    from penstock.model.diagnosis import Diagnosis
    from penstock.model.recording import CounterRow

# It commits for nobody.
_AUTOVACUUM = "autovacuum worker"

# Below this, larger batches could not make a workload a tenth faster.
_LEAST_SHARE = 0.1

# A server flushes the log at each segment's end too: with so much of it to a commit, that is what is waited for.
_SEGMENT_BYTES = 16 * MIB

# How many standbys a commit waits for, how many of them stream, and the names of those that do not.
Missing: TypeAlias = tuple[int, int, tuple[str, ...]]

_STANDBY_NAMES = "synchronous_standby_names"

# FIRST 2 (a, b), ANY 1 (a, b), 2 (a, b), or a, b: which is 1 (a, b)
_LIST = re.compile(r"\s*(?:(?:(?:FIRST|ANY)\s+)?(\d{1,9})\s*\()?(.*)", re.IGNORECASE | re.DOTALL)
_NAME = re.compile(r'"((?:[^"]|"")*)"|([^\s,"()]+)')


def find_commit_waits(case: Case) -> list[Diagnosis]:
    """Return what commits wait for, missing standbys apart from those that are there."""
    missing = _missing_by_tick(case)
    found = []
    for code, waits in COMMIT_WAITS.items():
        part = [each for each in case.moments if each.wait in waits and each.session.backend_type != _AUTOVACUUM]
        if code == "commit-standby":
            found += _find_missing_standbys(case, [each for each in part if each.tick in missing], missing)
            part = [each for each in part if each.tick not in missing]
        if share_of(part, case.moments) >= _LEAST_SHARE and not (code == "commit-local-flush" and _ends_segments(case)):
            found.append(_commit_bound(case, code, part))
    return found


def _ends_segments(case: Case) -> bool:
    commits, wal_bytes = case.rates.commits_per_s, case.rates.wal_bytes_per_s
    return commits is not None and wal_bytes is not None and wal_bytes > _SEGMENT_BYTES * commits


def _missing_by_tick(case: Case) -> dict[int, Missing]:
    """Return what was missing at which samples, by what was last read of the standbys."""
    found: dict[int, Missing] = {}
    last = None
    for tick, sample in enumerate(case.recording.samples):
        if (rows := sample.counters.get("pg_stat_replication")) is not None:
            last = find_missing(case.recording.header.settings.get(_STANDBY_NAMES, ""), rows)
        if last is not None:
            found[tick] = last
    return found


def _find_missing_standbys(case: Case, part: Sequence[Moment], missing: dict[int, Missing]) -> list[Diagnosis]:
    if share_of(part, case.moments) < _LEAST_SHARE:
        return []
    needed, present, lost = missing[part[-1].tick]
    evidence = [number("standbys that a commit waits for", needed), number("such standbys that are streaming", present)]
    setting = case.recording.header.settings[_STANDBY_NAMES]
    return [case.conclude("standby-missing", part, evidence, names=", ".join(lost) or "any", setting=setting)]


def _commit_bound(case: Case, code: str, part: Sequence[Moment]) -> Diagnosis:
    rates, committers = case.rates, report_commits(case.recording.samples).committers
    commit_s, rows = (committers[0].commit_s, committers[0].enough_rows) if committers else (None, None)
    how = "counted" if rates.is_exact else "estimated from WAL"
    numbers = [
        ("active sessions on average", case.sessions(case.moments), ""),
        ("commits", rates.commits_per_s, "/s"),
        ("time for each commit", None if commit_s is None else 1000 * commit_s, "ms"),
        (f"rows per commit, {how}", rates.rows_per_commit, ""),
        ("WAL", None if rates.wal_bytes_per_s is None else rates.wal_bytes_per_s / MB, "MB/s"),
    ]
    evidence = [number(name, value, unit) for name, value, unit in numbers if value is not None]
    batch = "1,000 to 10,000 rows" if rows is None else f"{format_count(rows)} rows or more"
    return case.conclude(code, part, evidence, rows=batch)


def find_missing(standby_names: str, standbys: Sequence[CounterRow]) -> Missing | None:
    """Return what is missing by synchronous_standby_names and the rows of pg_stat_replication.

    None where enough is there, where none is asked for, and where the role may not see the rows.
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
    """Return for how many of which standbys a commit waits.

    >>> parse_standby_names('ANY 2 (a1, "b-1", *)')
    (2, ('a1', 'b-1', '*'))
    >>> parse_standby_names("a, b")
    (1, ('a', 'b'))
    """
    found = _LIST.fullmatch(value)
    assert found is not None
    names = tuple((quoted or "").replace('""', '"') or plain for quoted, plain in _NAME.findall(found[2]))
    return int(found[1] or 1), names
