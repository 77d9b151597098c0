"""Whether a workload waits for its commits: for the local flush, for standbys or missing ones, for Aurora's storage."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, TypeAlias

from penstock.diagnose.case import Case, number, share_of
from penstock.units import MB, MIB, format_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.diagnose.activity import Moment
    from penstock.model.diagnosis import Diagnosis, Evidence
    from penstock.model.recording import CounterRow

_WAITS = {
    "commit-local-flush": {"io:walsync", "lwlock:walwrite"},
    "commit-standby": {"ipc:syncrep"},
    "commit-aurora-storage": {"io:xactsync"},
}

# It commits for nobody.
_AUTOVACUUM = "autovacuum worker"

# Below this, larger batches could not make a workload a tenth faster.
_LEAST_SHARE = 0.1

# A server flushes the log at each segment's end too: with so much of it to a commit, that is what is waited for.
_SEGMENT_BYTES = 16 * MIB

# A batch is long enough when it waits for its commit so much of its time; samples may have seen no work at all.
_GOAL = 0.01
_LEAST_WORK = 0.01

# How many standbys a commit waits for, how many of them stream, and the names of those that do not.
Missing: TypeAlias = tuple[int, int, tuple[str, ...]]

_STANDBY_NAMES = "synchronous_standby_names"

# FIRST 2 (a, b), ANY 1 (a, b), 2 (a, b), or a, b: which is 1 (a, b)
_LIST = re.compile(r"\s*(?:(?:(?:FIRST|ANY)\s+)?(\d+)\s*\()?(.*)", re.IGNORECASE | re.DOTALL)
_NAME = re.compile(r'"((?:[^"]|"")*)"|([^\s,"()]+)')


def find_commit_waits(case: Case) -> list[Diagnosis]:
    """Return what commits wait for, missing standbys apart from those that are there."""
    missing = _missing_by_tick(case)
    found = []
    for code, waits in _WAITS.items():
        part = [each for each in case.moments if each.wait in waits and each.session.backend_type != _AUTOVACUUM]
        if code == "commit-standby":
            found += _find_missing_standbys(case, [each for each in part if each.tick in missing], missing)
            part = [each for each in part if each.tick not in missing]
        if share_of(part, case.moments) >= _LEAST_SHARE and not (code == "commit-local-flush" and _ends_segments(case)):
            rows = advise_rows(case, part)
            batch = "1,000 to 10,000 rows" if rows is None else f"{format_count(rows)} rows or more"
            found.append(case.conclude(code, part, _measure_commits(case, part), rows=batch))
    return found


def advise_rows(case: Case, part: Sequence[Moment]) -> int | None:
    """Return the rows per commit, as 1, 2 or 5 with zeros, at which these waits are a hundredth of the time.

    A commit waits as long however much it commits; work for a row stays what it is in the backends that wait.
    """
    rows = case.rates.rows_per_commit
    if rows is None:
        return None
    pids = {moment.session.pid for moment in part}
    waiting = share_of(part, case.select(lambda moment: moment.session.pid in pids))
    wanted = rows * (1 - _GOAL) / _GOAL * waiting / max(_LEAST_WORK, 1 - waiting)
    step = 10 ** math.floor(math.log10(max(1.0, wanted)))
    return next(int(factor * step) for factor in (1, 2, 5, 10) if factor * step >= wanted)


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
    evidence = [number("standbys that a commit waits for", needed), number("such standbys that stream", present)]
    setting = case.recording.header.settings[_STANDBY_NAMES]
    return [case.conclude("standby-missing", part, evidence, names=", ".join(lost) or "any", setting=setting)]


def _measure_commits(case: Case, part: Sequence[Moment]) -> list[Evidence]:
    rates = case.rates
    evidence = [number("active sessions on average", case.sessions(case.moments))]
    if rates.commits_per_s:
        evidence.append(number("commits", rates.commits_per_s, "/s"))
        evidence.append(number("wait for each commit", 1000 * case.sessions(part) / rates.commits_per_s, "ms"))
    if rates.rows_per_commit is not None:
        how = "counted" if rates.is_exact else "estimated from WAL"
        evidence.append(number(f"rows per commit, {how}", rates.rows_per_commit))
    if rates.wal_bytes_per_s is not None:
        evidence.append(number("WAL", rates.wal_bytes_per_s / MB, "MB/s"))
    return evidence


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
