"""Finds risks: growing numbers and faults that will stop the server although no session waits for them yet. Pure.

Risks are found in the rows that are read once a minute (activity.py). A rate is the one between the first and the last
reading.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from penstock.core.units import KIB, MB, MIB, count_nouns, format_bytes, format_count, format_duration
from penstock.core.values.diagnosis import Diagnosis, Evidence
from penstock.core.values.names import quote_text, spell_name
from penstock.watch.devices import WAL, DeviceMeter, are_counters
from penstock.watch.holders import OLD_PREPARED_S, describe_old_holder, end_prepared, read_int

if TYPE_CHECKING:
    from penstock.core.values.device import CounterRow
    from penstock.watch.values import Sample

# A number below this part of its limit is never reported.
_LEAST = 0.1

# A number at or above _LEAST is reported if it reaches its limit within this time at the present rate. The forecast
# reaches at most ten times as far into the future as the recording is long, because whatever makes the number grow may
# end, as a load does.
_SOON_S = 86_400.0
_MOST_FORECAST = 10

# A number at or above this part of its limit is reported even if it does not reach the limit soon. The second part is
# for disks.
_NEAR = 0.8
_NEARLY_FULL = 0.9

# A server takes no more writes at this age, which is 3 million before 2^31 (SetTransactionIdLimit in varsup.c).
_STOP = 2**31 - 3_000_000

# A cache of transaction states is too small if at least _LEAST of the look-ups, and this many a second, must read a
# block.
_LEAST_MISSES_PER_S = 100.0

# Statistics are stale if so many times the rows of a table have changed since. Autovacuum comes after a tenth.
_STALE = 2.0
# The planner knows how many rows a table has if it expects so many times of them at most.
_KNOWN = 1.5
# Autovacuum comes once a minute, unless it is busy with other tables.
_LATE_S = 300

# The planner reads tables with fewer rows well even without statistics.
_LEAST_ROWS = 10_000

# An unused slot or an archiver that keeps more WAL than this is reported even if the WAL is not seen to grow. Any may
# keep less than this for a short time.
_MUCH_WAL_BYTES = 1024 * MIB

_RESERVED = ("superuser_reserved_connections", "reserved_connections")

# For each column of database_ages.sql, the column of pg_class that gives the same age for a table.
_FROZEN = {"xid_age": "relfrozenxid", "mxid_age": "relminmxid"}

# For each beginning of a cache's name, the settings of its size, and a change that makes the cache less needed.
# PostgreSQL 17 has changed the names.
_CACHES = (
    (
        "subtrans",
        "subtransaction_buffers",
        "Fewer subtransactions (savepoints, EXCEPTION blocks), and no long transactions beside them.",
    ),
    ("multixact", "multixact_member_buffers, multixact_offset_buffers", "Lock rows in fewer sessions at a time."),
    ("xact", "transaction_buffers", "VACUUM tables after many changes, so that readers need not look up their rows."),
    (
        "transaction",
        "transaction_buffers",
        "VACUUM tables after many changes, so that readers need not look up their rows.",
    ),
    ("notify", "notify_buffers", "Have all sessions that LISTEN read their notifications."),
)

_SIZES = {"kB": KIB, "MB": MIB, "GB": 1024 * MIB, "TB": 1024 * 1024 * MIB}

_THEN_STOPS = "no transaction may write"
_THEN_FREEZES = "autovacuum to prevent wraparound reads whole tables and does not give way to locks"
_DROP = (
    "Start the consumer of slot {name}. If this consumer never comes back, drop its slot: "
    "SELECT pg_drop_replication_slot({name}). A consumer without its slot must be built again."
)
# The server refuses to drop such a slot.
_READ_FASTER = "See why the consumer of this slot falls behind: its disk, its processors, or the network to it."
_THEN_NO_MULTIXACT = "no transaction may lock a row that another has locked"
_FREEZE = "VACUUM (FREEZE) the oldest tables (age({column}) in pg_class) before; never pause autovacuum."
# Source: "Preventing Transaction ID Wraparound Failures". It says that FULL and FREEZE do more than is needed.
_VACUUM = "VACUUM the oldest tables (age({column}) in pg_class), without FULL and FREEZE, which take longer."


class RiskMeter:
    """Reads samples one by one. It keeps the first and the last reading of each view."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.settings = settings
        self._first: dict[str, tuple[float, Sequence[CounterRow]]] = {}
        self._last: dict[str, tuple[float, Sequence[CounterRow]]] = {}
        self.devices = DeviceMeter()
        self.free_for_wal: int | None = None
        # The largest number of client backends in any reading, including this process's own.
        self.most_connections = 0

    def see(self, sample: Sample) -> None:
        """Add a sample."""
        self.devices.see(sample)
        for name, rows in sample.counters.items():
            if name in _READ:
                self._first.setdefault(name, (sample.at_s, rows))
                self._last[name] = (sample.at_s, rows)
        for row in sample.counters.get("host_devices", ()):
            if row.get("tablespace") == WAL and are_counters(row):
                self.free_for_wal = read_int(row, "free_bytes")
        for row in sample.counters.get("connections", ())[:1]:
            # The row does not include the reader's own connection.
            self.most_connections = max(self.most_connections, read_int(row, "of_all") + 1)

    def result(self) -> tuple[Diagnosis, ...]:
        """Return the risks. The one that reaches its limit first comes first."""
        found = [risk for rule in _RULES for risk in rule(self)]
        left_s = {id(risk): risk.number("reached in") for risk in found}
        return tuple(sorted(found, key=lambda risk: (left_s[id(risk)] is None, left_s[id(risk)] or 0.0)))

    def rows(self, view: str) -> Sequence[CounterRow]:
        """Return the rows of the last reading."""
        return self._last[view][1] if view in self._last else ()

    def first_rows(self, view: str) -> Sequence[CounterRow]:
        """Return the rows of the first reading."""
        return self._first[view][1] if view in self._first else ()

    def rise(self, view: str, row: CounterRow, column: str, *keys: str) -> float:
        """Return by how much a value in a row has grown from the first reading to the last; 0 if that is not known."""
        for before in self.first_rows(view):
            if before.get(column) is not None and all(before.get(key) == row.get(key) for key in keys):
                return max(0, read_int(row, column) - read_int(before, column))
        return 0.0

    def rate(self, view: str, row: CounterRow, column: str, *keys: str) -> float:
        """Return by how much a value in a row grows in a second."""
        seen_s = self.seen_s(view)
        return self.rise(view, row, column, *keys) / seen_s if seen_s > 0 else 0.0

    def seen_s(self, view: str) -> float:
        """Return the time from the first reading of a view to the last."""
        return self._last[view][0] - self._first[view][0] if view in self._last else 0.0

    @property
    def allowed_connections(self) -> int | None:
        """Return how many connections ordinary roles may have, None if that is not known."""
        most = self.number("max_connections")
        return None if most is None else most - sum(self.number(name) or 0 for name in _RESERVED)

    def number(self, setting: str) -> int | None:
        """Return a setting that is a number or a size in bytes, None if it is not known, or is 0 or -1."""
        found = re.fullmatch(r"(\d+)(kB|MB|GB|TB)?", self.settings.get(setting, ""))
        return None if found is None else int(found[1]) * _SIZES.get(found[2], 1) or None


def _time_left(now: float, limit: float, rate: float) -> float | None:
    return max(0.0, limit - now) / rate if rate > 0 else None


def _is_near(
    now: float, limit: float, left_s: float | None = None, *, seen_s: float = 0.0, near: float = _NEAR
) -> bool:
    """Return whether a number is near its limit, or will reach it soon. `seen_s` is how long it was seen to grow."""
    is_soon = left_s is not None and left_s <= min(_SOON_S, _MOST_FORECAST * seen_s)
    return limit > 0 and (now >= near * limit or (now >= _LEAST * limit and is_soon))


# For each code: the unit, what happens at the limit or what is wrong, and the remedy.
_TEXTS: Final = {
    "transaction-age": ("transactions", "{then}", "{remedy}"),
    "multixact-age": ("multixacts", "{then}", "{remedy}"),
    "prepared-transaction": ("seconds since PREPARE", "{then}", "{remedy}"),
    "slot-keeps-wal": ("bytes", "{then}", "{remedy}"),
    "archiver-keeps-wal": (
        "bytes",
        "{then}",
        "See the server's log for the output of archive_command or archive_library.",
    ),
    "connections": (
        "connections",
        "ordinary roles may not connect",
        "Use fewer sessions, by a pooler of connections; a larger max_connections needs a restart.",
    ),
    "sequence-end": (
        "numbers",
        "INSERT fails",
        (
            "ALTER SEQUENCE AS bigint, or move its MAXVALUE or MINVALUE; of an integer column: first make it bigint, "
            "which rewrites the table and locks it."
        ),
    ),
    "disk-full": (
        "bytes",
        "statements fail, and the server stops if the WAL is there",
        "Free or add space there.",
    ),
    "slru-misses": (
        "misses a second, {share:.0f} % of its look-ups",
        "sessions wait for these reads",
        "{remedy} From PostgreSQL 17 on, a larger cache: {setting}, at a restart.",
    ),
    "checksum-failures": (
        "reads of pages with a wrong checksum",
        "its storage has lost or changed data",
        "Find the relation in the server's log, and restore it from a backup; check the storage.",
    ),
    "invalid-index": (
        "",
        "each change of the table maintains it, and no query uses it",
        "DROP INDEX CONCURRENTLY {name}, or REINDEX INDEX CONCURRENTLY {name}.",
    ),
    "never-analyzed": (
        "rows without statistics",
        "no ANALYZE has read it, so its plans are guesses",
        "VACUUM (ANALYZE) {name}.",
    ),
    "stale-statistics": (
        "rows changed since its last ANALYZE",
        "that is twice its rows or more, so its plans are guesses",
        "ANALYZE {name}, which locks out neither readers nor writers; then see why autovacuum does not come.",
    ),
    "decoding-spills": (
        "MB/s of changes that decoding writes to disk and reads again",
        "its subscriber falls behind",
        "Raise logical_decoding_work_mem, commit more often, or have the subscription stream.",
    ),
}


def _risk(
    code: str, what: str, now: float, limit: float | None = None, left_s: float | None = None, **words: object
) -> Diagnosis:
    """Return a risk of `what`, an object of the server: a number, its limit, and the seconds until it reaches that."""
    unit, then, remedy = (text.format(**words) for text in _TEXTS[code])
    numbers = (("now", now, unit), ("limit", limit, unit), ("reached in", left_s, "s"))
    evidence = [Evidence(name=name, value=value, unit=each) for name, value, each in numbers if value is not None]
    claim = _compose_claim(what, now, unit, then, limit, left_s)
    return Diagnosis(code=code, claim=claim, evidence=tuple(evidence), remedy=remedy)


def _compose_claim(what: str, now: float, unit: str, then: str, limit: float | None, left_s: float | None) -> str:
    """Return a risk in one line, without its code and its remedy.

    >>> _compose_claim("the server", 88, "connections", "no role may connect", 97, None)
    'the server has 88 of 97 connections (91 %); then no role may connect'
    """
    has, most = (
        "" if value is None else format_bytes(value) if unit == "bytes" else format_count(round(value))
        for value in (now, limit)
    )
    if not unit:
        return f"{what}; {then}"
    counted = "" if unit == "bytes" else f" {unit}"
    if not limit:
        return f"{what} has {has}{counted}; {then}"
    when = "" if left_s is None else f", reached in {format_duration(left_s)} at this rate"
    return f"{what} has {has} of {most}{counted} ({100 * now / limit:.0f} %){when}; then {then}"


def _find_ages(seen: RiskMeter) -> Iterator[Diagnosis]:
    freezes_at, of_multixacts = seen.number("autovacuum_freeze_max_age"), "autovacuum_multixact_freeze_max_age"
    yield from _find_age(seen, "transaction-age", "xid_age", freezes_at, then=_THEN_STOPS)
    yield from _find_age(seen, "multixact-age", "mxid_age", seen.number(of_multixacts), then=_THEN_NO_MULTIXACT)


def _find_age(seen: RiskMeter, code: str, column: str, freezes_at: int | None, *, then: str) -> Iterator[Diagnosis]:
    if freezes_at is None:
        return
    # Autovacuum starts at freezes_at, and is expected to reduce the age soon. So an age that is only a little above
    # freezes_at does not yet count towards _STOP.
    late = max(freezes_at, _LEAST * _STOP)
    # Leave out template0: its VACUUM takes no time, and nobody can connect to it.
    rows = [row for row in seen.rows("database_ages") if row.get("datallowconn", True) or read_int(row, column) >= late]
    row = max(rows, key=lambda each: read_int(each, column), default=None)
    if row is None:
        return
    age = read_int(row, column)
    is_late = age >= late
    limit, then = (_STOP, then) if is_late else (freezes_at, _THEN_FREEZES)
    left_s = _time_left(age, limit, seen.rate("database_ages", row, column, "datname"))
    if is_late or _is_near(age, limit, left_s, seen_s=seen.seen_s("database_ages")):
        from_age = seen.number("autovacuum_freeze_max_age") or freezes_at
        # Slots of other databases hold the catalogs of this one, and snapshots there those that all have in common.
        held = describe_old_holder(seen.rows("xmin_holders"), from_age)
        remedy = held + (_VACUUM if is_late else _FREEZE).format(column=_FROZEN[column])
        yield _risk(code, f"database {row.get('datname')}", age, limit, left_s, then=then, remedy=remedy)


def stops_soon(found: Diagnosis) -> bool:
    """Return whether a diagnosis says that the server will soon take no more writes, for want of numbers."""
    now, limit = found.number("now"), found.number("limit")
    is_age = found.code in {"transaction-age", "multixact-age"}
    return is_age and now is not None and limit == _STOP and now >= _NEAR * limit


def _find_prepared(seen: RiskMeter) -> Iterator[Diagnosis]:
    for row in seen.rows("prepared"):
        age_s, blocks, tables = read_int(row, "age_s"), _read_list(row, "blocks"), _read_list(row, "tables")
        if age_s >= OLD_PREPARED_S or blocks:
            gid, owner, datname = quote_text(str(row.get("gid"))), row.get("owner"), row.get("datname")
            locks = count_nouns(read_int(row, "locks"), "lock") + (f" ({', '.join(tables)})" if tables else "")
            then = (
                f"until it is ended, over restarts too, it keeps {locks}, and rows that died in the last "
                f"{count_nouns(read_int(row, 'xid_age'), 'transaction')}"
            )
            then += f"; sessions that wait for it: {len(blocks)}" if blocks else ""
            what = f"prepared transaction {gid} of role {owner} in database {datname}"
            yield _risk("prepared-transaction", what, age_s, then=then, remedy=end_prepared(row))


def _read_list(row: CounterRow, column: str) -> list[str]:
    value = row.get(column)
    return [str(each) for each in value] if isinstance(value, list | tuple) else []


def _find_kept_wal(seen: RiskMeter) -> Iterator[Diagnosis]:
    usual, free, most = seen.number("max_wal_size"), seen.free_for_wal, seen.number("max_slot_wal_keep_size")
    for row in seen.rows("slots"):
        kept, rate = read_int(row, "retained_bytes"), seen.rate("slots", row, "retained_bytes", "name")
        limit = most or (None if free is None else kept + free)
        left_s = None if limit is None else _time_left(kept, limit, rate)
        # A logical slot keeps WAL for some time after its consumer has confirmed it. So what is not confirmed shows
        # whether the slot is read, even if the consumer only calls pg_logical_slot_get_changes now and then.
        unread = kept if row.get("unconfirmed_bytes") is None else read_int(row, "unconfirmed_bytes")
        is_growing = usual and unread >= _LEAST * usual and (rate > 0 or kept > usual)
        is_unused = not row.get("is_active") and (is_growing or unread > _MUCH_WAL_BYTES)
        is_near = limit is not None and _is_near(kept, limit, left_s, seen_s=seen.seen_s("slots"))
        if row.get("wal_status") != "lost" and (is_unused or is_near):
            what = f"slot {row.get('name')}, {'in use' if row.get('is_active') else 'not in use'},"
            then = "the slot is lost" if most else _end_of_wal(limit, rate)
            remedy = _READ_FASTER if row.get("is_active") else _DROP.format(name=quote_text(str(row.get("name"))))
            yield _risk("slot-keeps-wal", what, kept, limit, left_s, then=then, remedy=remedy)
    for row in seen.rows("archiver"):
        kept, rate = read_int(row, "lag_bytes"), seen.rate("archiver", row, "lag_bytes")
        limit = None if free is None else kept + free
        left_s = None if limit is None else _time_left(kept, limit, rate)
        is_failing = read_int(row, "last_failed_at_s") > read_int(row, "last_archived_at_s")
        is_behind = kept > _MUCH_WAL_BYTES or (usual is not None and kept > usual and rate > 0)
        is_near = limit is not None and _is_near(kept, limit, left_s, seen_s=seen.seen_s("archiver"))
        if is_failing or is_behind or is_near:
            what = f"the archiver, which fails at {row.get('last_failed')}," if is_failing else "the archiver"
            yield _risk("archiver-keeps-wal", what, kept, limit, left_s, then=_end_of_wal(limit, rate))


def _end_of_wal(limit: float | None, rate: float) -> str:
    if limit is None:
        return f"it grows{f' by {rate / MB:.1f} MB/s' if rate else ''} until the disk is full"
    return "the disk of the WAL is full"


def _find_connections(seen: RiskMeter) -> Iterator[Diagnosis]:
    limit = seen.allowed_connections
    if limit is not None and _is_near(seen.most_connections, limit):
        yield _risk("connections", "the server", seen.most_connections, limit)


def _find_sequences(seen: RiskMeter) -> Iterator[Diagnosis]:
    for row in seen.rows("sequences"):
        now, limit = read_int(row, "last_value"), read_int(row, "last_possible")
        left_s = _time_left(now, limit, seen.rate("sequences", row, "last_value", "schemaname", "sequencename"))
        if _is_near(now, limit, left_s, seen_s=seen.seen_s("sequences")):
            yield _risk("sequence-end", f"sequence {_name(row, 'sequencename')}", now, limit, left_s)


def _find_full_disks(seen: RiskMeter) -> Iterator[Diagnosis]:
    for use in seen.devices.result():
        what, left_s = f"{use.device} ({', '.join(use.tablespaces)})", use.full_in_s
        yield from find_full_disk(what, use.least_free_bytes, use.size_bytes, left_s, seen_s=use.rates.elapsed_s)


def find_full_disk(
    device: str, free_bytes: int, size_bytes: int, left_s: float | None = None, *, seen_s: float = 0.0
) -> Iterator[Diagnosis]:
    """Yield a risk if a device is nearly full, or will be full in `left_s` seconds and was read for `seen_s`."""
    used = size_bytes - free_bytes
    if _is_near(used, size_bytes, left_s, seen_s=seen_s, near=_NEARLY_FULL):
        yield _risk("disk-full", f"device {device}", used, size_bytes, left_s)


def _find_slru_misses(seen: RiskMeter) -> Iterator[Diagnosis]:
    for row in seen.rows("pg_stat_slru"):
        misses, hits = (seen.rate("pg_stat_slru", row, name, "name") for name in ("blks_read", "blks_hit"))
        if misses >= _LEAST_MISSES_PER_S and misses >= _LEAST * (misses + hits):
            name = str(row.get("name"))
            setting, remedy = next(
                (found for beginning, *found in _CACHES if name.lower().startswith(beginning)),
                ("its setting", "Have fewer transactions at a time."),
            )
            share = 100 * misses / (misses + hits)
            yield _risk("slru-misses", f"cache {name}", misses, share=share, setting=setting, remedy=remedy)


def _find_checksum_failures(seen: RiskMeter) -> Iterator[Diagnosis]:
    for row in seen.rows("database_ages"):
        if count := read_int(row, "checksum_failures"):
            yield _risk("checksum-failures", f"database {row.get('datname')}", count)


def _find_invalid_indexes(seen: RiskMeter) -> Iterator[Diagnosis]:
    before = [row.get("indexrelname") for row in seen.first_rows("invalid_indexes")]
    for row in seen.rows("invalid_indexes"):
        # An index is reported only if it was invalid in the first reading too. If a build has just failed, its session
        # knows.
        if row.get("indexrelname") in before:
            name = _name(row, "indexrelname")
            yield _risk("invalid-index", f"index {name} of {row.get('relname')} is invalid", 1, name=name)


def _find_never_analyzed(seen: RiskMeter) -> Iterator[Diagnosis]:
    view, keys = "pg_stat_user_tables", ("schemaname", "relname")
    for row in seen.rows(view):
        is_read = seen.rise(view, row, "seq_scan", *keys) + seen.rise(view, row, "idx_scan", *keys) > 0
        # Autovacuum cannot read the temporary tables of a session.
        is_temporary = str(row.get("schemaname")).startswith("pg_temp_")
        if is_read and lacks_statistics(row) and not is_temporary:
            name = _name(row, "relname")
            yield _risk("never-analyzed", f"table {name}, which is read,", read_int(row, "n_live_tup"), name=name)


def lacks_statistics(row: CounterRow) -> bool:
    """Return whether a row of tables.sql is a table that has never been analyzed and is large enough to need it."""
    return row.get("is_analyzed") is False and read_int(row, "n_live_tup") >= _LEAST_ROWS


def _find_stale(seen: RiskMeter) -> Iterator[Diagnosis]:
    view, keys = "pg_stat_user_tables", ("schemaname", "relname")
    for row in seen.rows(view):
        is_read = seen.rise(view, row, "seq_scan", *keys) + seen.rise(view, row, "idx_scan", *keys) > 0
        is_late = row.get("analyzed_s") is None or read_int(row, "analyzed_s") >= _LATE_S
        if is_read and is_late and is_stale(row, _STALE) and not str(row.get("schemaname")).startswith("pg_temp_"):
            name = _name(row, "relname")
            changed = read_int(row, "n_mod_since_analyze")
            yield _risk("stale-statistics", f"table {name}, which is read,", changed, name=name)


def is_stale(row: CounterRow, part: float) -> bool:
    """Return whether a row of tables.sql is a table of which so many times its rows have changed since ANALYZE.

    A session that fills a table and analyzes it at once reports its rows afterwards, so that they seem to have changed
    since. So rows that were only inserted count if the planner does not know of them.
    """
    live, known = read_int(row, "n_live_tup"), read_int(row, "reltuples")
    is_updated = read_int(row, "n_tup_changed") - read_int(row, "n_tup_ins") >= part * live
    is_unknown = row.get("reltuples") is None or not live / _KNOWN <= known <= live * _KNOWN
    is_much = read_int(row, "n_mod_since_analyze") >= max(_LEAST_ROWS, part * live)
    return row.get("is_analyzed") is True and is_much and (is_updated or is_unknown)


def _find_spilled_decoding(seen: RiskMeter) -> Iterator[Diagnosis]:
    view = "pg_stat_replication_slots"
    for row in seen.rows(view):
        spilled, decoded = (seen.rate(view, row, name, "slot_name") for name in ("spill_bytes", "total_bytes"))
        if spilled >= MB and spilled >= _LEAST * decoded:
            yield _risk("decoding-spills", f"slot {row.get('slot_name')}", spilled / MB)


def _name(row: CounterRow, column: str) -> str:
    return spell_name(row.get("schemaname"), row.get(column))


_RULES = (
    *(
        _find_ages,
        _find_prepared,
        _find_kept_wal,
        _find_connections,
        _find_sequences,
        _find_full_disks,
        _find_slru_misses,
    ),
    *(_find_checksum_failures, _find_invalid_indexes, _find_never_analyzed, _find_stale, _find_spilled_decoding),
)
_READ = frozenset(
    (
        *("database_ages", "xmin_holders", "slots", "archiver", "sequences", "pg_stat_slru", "invalid_indexes"),
        *("pg_stat_user_tables", "pg_stat_replication_slots", "unindexed_keys", "write_costs", "prepared"),
    )
)
