"""What penstock names of PostgreSQL, held against each version: whether it exists there, and what is new.

The names are found in penstock's own text. A name that some versions lack is listed here with those that have it, so a
new version that drops or renames one is noticed, and so is a name that no version has.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.core.checks import NEWEST_TESTED_MAJOR
from penstock.settings.decide import LEASABLE
from penstock.watch import activity, rates
from support.repository import source_files
from support.servers import satisfies

if TYPE_CHECKING:
    from collections.abc import Iterable

    import psycopg

pytestmark = pytest.mark.versions

# Without the extension that a lab's servers have in the place of RDS's.
_TEXTS = [
    path.read_text("utf-8") for path in (*source_files("*.py"), *source_files("*.sql")) if "extension" not in path.parts
]
_WAIT_EVENTS = Path(__file__).with_name("wait_events.txt")

# Aurora alone has these.
_AURORAS = {
    *(
        "aurora_version",
        "aurora_replica_status",
        "aurora_stat_get_db_commit_latency",
        "aurora_stat_optimized_reads_cache",
        "io:xactsync",
    ),
    *("used_size", "total_size"),
}

_OBJECTS = {
    "has_parameter_privilege": ">= 15",
    "pg_publication_namespace": ">= 15",
    "pg_stat_force_next_flush": ">= 15",
    "pg_stat_io": ">= 16",
    "pg_stat_get_backend_io": ">= 18",
    "pg_stat_get_backend_wal": ">= 18",
}

# Each column is looked for in all of pg_catalog: many are in views that are read as they are.
_COLUMNS = {
    "indnullsnotdistinct": ">= 15",
    "wal_sync": "< 18",
    "buffers_backend": "< 17",
    "checkpoints_req": "< 17",
    "checkpoints_timed": "< 17",
    "object": ">= 16",
    "writes": ">= 16",
    "num_requested": ">= 17",
    "num_timed": ">= 17",
    "synced": ">= 17",
    "indexes_processed": ">= 17",
    "indexes_total": ">= 17",
    "conenforced": ">= 18",
    "conperiod": ">= 18",
    "prexcept": ">= 19",
    "puballsequences": ">= 19",
    "wal_fpi_bytes": ">= 19",
}

# Keys of rows that are not the server's: of the host's devices and of CloudWatch, of pg_stat_statements, and of
# penstock's own queries.
_OTHER_KEYS = {
    *("BurstBalance", "CPUUtilization", "device", "instance", "measured_at"),
    *("queryid", "rows", "toplevel", "userid", "temp_blk_read_time", "temp_blk_write_time"),
    *("bytes", "n_tup_changed", "least_free_bytes", "server_cpu_s", "busy_cpu_s"),
    *("kind", "user_name", "xid_age", "age_s", "is_catalog", "is_active", "columns", "referenced"),
    *("is_analyzed", "analyzed_s", "vacuumed_s", "unconfirmed_bytes"),
    *("blocks", "cost", "has_index", "is_build", "is_owner", "is_text", "is_unique", "of", "scans"),
    *("begin_event", "failed_event", "failed_later"),
}

_SETTINGS = {
    "reserved_connections": ">= 16",
    "allow_alter_system": ">= 17",
    "effective_wal_level": ">= 19",
}

_WAITS = {
    "io:aio": ">= 18",
    "io:aioiocompletion": ">= 18",
    "buffer:bufferexclusive": ">= 19",
    "buffer:buffershared": ">= 19",
    "buffer:buffershareexclusive": ">= 19",
    "timeout:commitdelay": ">= 19",
}
_CLASSES = "buffer|client|io|ipc|lock|lwlock|timeout"
# How several names begin.
_BEGINNINGS = {"io:aio", "io:buffile", "io:datafile", "io:slru"}


def _find(pattern: str) -> set[str]:
    """Return what a pattern finds in penstock's text."""
    return {name for text in _TEXTS for name in re.findall(pattern, text)}


def _names(connection: psycopg.Connection, query: str) -> set[str]:
    return {name for (name,) in connection.execute(query.encode()).fetchall()}


def _missing(since: dict[str, str], major: int) -> set[str]:
    """Return the names that a version does not have."""
    return {name for name, versions in since.items() if not satisfies(major, versions)}


def _major(connection: psycopg.Connection) -> int:
    return connection.info.server_version // 10_000


def _lacking(named: Iterable[str], there: set[str]) -> set[str]:
    return {*named} - there - _AURORAS


def test_version_is_one_of_those_without_a_warning(connection: psycopg.Connection) -> None:
    """What is tested is named as tested."""
    assert _major(connection) <= NEWEST_TESTED_MAJOR


def test_functions_and_relations_exist(connection: psycopg.Connection) -> None:
    """In files of SQL and in what is composed."""
    there = _names(
        connection,
        "SELECT proname FROM pg_proc UNION SELECT relname FROM pg_class UNION SELECT typname FROM pg_type",
    )
    named = _find(r"pg_catalog\.(\w+)")
    assert len(named) > 200
    assert _lacking(named, there) == _missing(_OBJECTS, _major(connection))


def test_columns_that_are_read_by_name_exist(connection: psycopg.Connection) -> None:
    """Those that are read through JSON, because not all versions have them, and those of statistics views."""
    there = _names(
        connection,
        "SELECT a.attname FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid"
        " WHERE c.relnamespace = 'pg_catalog'::regnamespace AND NOT a.attisdropped"
        " UNION SELECT unnest(proargnames) FROM pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace",
    )
    named = _find(r"row\.get\(\s*\"(\w+)\"") | _find(r"to_jsonb\(\w+\) ->> '(\w+)'")
    phases = [parts for view in rates.VIEWS.values() for parts in view.phases.values()]
    named |= {*rates._COUNTED, *(name for parts in phases for pair in parts for name in pair)}
    assert _lacking(named - _OTHER_KEYS, there) == _missing(_COLUMNS, _major(connection))


def test_settings_exist(connection: psycopg.Connection) -> None:
    """Those that are asked for by name, those of which findings are made, and those that can be changed."""
    lists = _find(r"s\.name IN \(([^)]*)\)")
    named = _find(r"current_setting\(\s*'(\w+)'") | {name for each in lists for name in re.findall(r"'(\w+)'", each)}
    # A name with a dot belongs to an extension or a service.
    named |= {name for name in (*activity._SETTINGS, *LEASABLE) if "." not in name}
    assert len(named) > 40
    there = _names(connection, "SELECT name FROM pg_settings")
    assert _lacking(named, there) == _missing(_SETTINGS, _major(connection))


@pytest.mark.pg(">= 17")
def test_wait_events_exist(connection: psycopg.Connection) -> None:
    """Rules compare them in lower case, because PostgreSQL 17 spells some of them in another way."""
    there = _names(connection, "SELECT lower(type || ':' || name) FROM pg_wait_events")
    there |= {name for name in _BEGINNINGS if any(event.startswith(name) for event in there)}
    named = _find(rf"[\"']((?:{_CLASSES}):[a-z]+)[\"']")
    assert len(named) > 20
    assert _lacking(named, there) == _missing(_WAITS, _major(connection))


@pytest.mark.pg(">= 17")
def test_every_wait_event_has_been_looked_at(connection: psycopg.Connection) -> None:
    """Of the classes that rules interpret.

    If this fails: decide for each which rule it belongs to, if any, and add it to wait_events.txt.
    """
    known = {
        f"{kind}:{name}"
        for kind, _, names in (line.partition(":") for line in _WAIT_EVENTS.read_text("utf-8").splitlines())
        for name in names.split()
    }
    there = _names(
        connection,
        "SELECT type || ':' || name FROM pg_wait_events WHERE type NOT IN ('Activity', 'Extension', 'InjectionPoint')",
    )
    assert there - known == set()
