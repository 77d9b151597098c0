"""Judges the facts of a server, of its RDS instance and of a load: findings with remedies. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from penstock.core.catalogue.catalog import DiskForecast
from penstock.core.checks import (
    MORE_CONNECTIONS,
    check_ledger_creation,
    check_pooler,
    check_publications,
    check_server,
    check_staging_right,
    check_table,
    warn_of_version,
)
from penstock.core.units import GIB, MIB, count_nouns, format_bytes, format_count, format_duration
from penstock.core.values.diagnosis import Diagnosis, Severity, note, ok, refusal, refusal_of, warning
from penstock.core.values.names import init_command, quote_name, quote_text
from penstock.core.values.source import S3Bucket
from penstock.loading.plan.space import DiskSpace, describe_disk, describe_shortage
from penstock.loading.values.plan import LoadPlan
from penstock.rds.findings import compose_growth, larger_size
from penstock.rds.values import RdsDescription, Storage, describe_near
from penstock.watch.risks import find_full_disk, stops_soon

if TYPE_CHECKING:
    from penstock.core.values.inspection import Encryption, Inspection, StandbyRow, TableInspection

# A standby is reported as far behind if it lacks more WAL than this, or if its delay is longer than the second value.
_LAG_BYTES = GIB
_LAG_S = 60.0

# The beginning of synchronous_standby_names that says for how many standbys a commit waits: FIRST 2 (a, b).
_COUNTED_STANDBYS = re.compile(r"\s*(?:(?:FIRST|ANY)\s+)?(\d+)\s*\(", re.IGNORECASE)

# A password that expires within this time is reported, as in PostgreSQL 19 (password_expiration_warning_threshold).
_PASSWORD_ENDS_S = 7 * 86_400.0

# Services whose storage makes pages from WAL, whatever fsync and full_page_writes say. Source: Neon's page on
# compatibility with PostgreSQL ("fsync").
_OWN_STORAGE = ("neon", "aurora")

# How settings are changed on managed services, where no role may run ALTER SYSTEM.
_SERVICE_PARAMETERS = {
    "rds": "in the instance's DB parameter group",
    "rds-cluster": "in the DB cluster parameter group",
    "aurora": "in the DB cluster parameter group",
    "cloud-sql": "with gcloud sql instances patch --database-flags",
    "alloydb": "with gcloud alloydb instances update --database-flags",
    "azure": "with az postgres flexible-server parameter set",
}


def _judge_followers(found: Inspection) -> Iterator[Diagnosis]:
    """Yield findings about standbys and lost replication slots."""
    for standby in found.standbys or ():
        yield from _judge_standby(standby)
    for slot in found.slots or ():
        if slot.wal_status == "lost":
            yield warning(
                "slots",
                f"slot {slot.name} has lost WAL it needs: its consumer must be created again",
                f"SELECT pg_drop_replication_slot({quote_text(slot.name)});",
            )
    names = found.value("synchronous_standby_names")
    standbys = found.standbys
    if not names or found.server.is_in_recovery or standbys is None or found.value("synchronous_commit") == "local":
        return
    states = [standby.sync_state for standby in standbys]
    if None in states:
        return
    counted = _COUNTED_STANDBYS.match(names)
    needed, connected = int(counted[1]) if counted else 1, sum(state in {"sync", "quorum"} for state in states)
    if connected < needed:
        yield refusal(
            "standbys",
            f"synchronous_standby_names is '{names}', and {connected} of {needed} such standbys are connected: every "
            "commit waits",
            "Start standbys with such an application_name, or see why they do not connect. A failover loses commits "
            "that no standby has, so do not empty the setting.",
        )


def _judge_standby(standby: StandbyRow) -> Iterator[Diagnosis]:
    behind = []
    if standby.lag_bytes is not None and standby.lag_bytes > _LAG_BYTES:
        behind.append(format_bytes(standby.lag_bytes))
    if standby.lag_s is not None and standby.lag_s > _LAG_S:
        behind.append(format_duration(standby.lag_s))
    if behind:
        name = standby.name or f"process {standby.pid}"
        text = f"standby {name} is {' and '.join(behind)} behind, and a load writes more WAL"
        yield warning("standbys", text)


def _judge_durability(found: Inspection) -> Iterator[Diagnosis]:
    """Yield findings about settings with which the server can lose committed rows, or which harm loaded tables."""
    for name in ("fsync", "full_page_writes"):
        if found.value(name) == "off" and found.flavour.kind not in _OWN_STORAGE:
            yield warning(
                "settings",
                f"{name} is off: a crash may lose or corrupt everything, the ledger included",
                describe_change(found, name, "on"),
            )
    if found.value("autovacuum") == "off":
        yield warning(
            "settings",
            "autovacuum is off: loaded tables get no statistics, and rows are frozen only to prevent wraparound",
            describe_change(found, "autovacuum", "on"),
        )
    pending = [setting.name for setting in found.settings if setting.is_pending_restart]
    if pending:
        yield note("settings", f"changed, and waiting for a restart of the server: {', '.join(pending)}")


def _judge_space(found: Inspection) -> Iterator[Diagnosis]:
    """Yield findings about nearly full disks, and about a disk with less free space for WAL than max_wal_size."""
    if found.host is None:
        return
    largest_wal = found.value("max_wal_size")
    wal_bytes = 0 if largest_wal is None else int(largest_wal) * MIB
    for volume in found.host.volumes:
        if volume.holds == "WAL" and volume.free_bytes < wal_bytes:
            yield warning(
                "disks",
                f"{format_bytes(volume.free_bytes)} are free for WAL on {volume.device}, less than max_wal_size "
                f"({format_bytes(wal_bytes)})",
                "Free or add space there, or lower max_wal_size.",
            )
        else:
            yield from find_full_disk(f"{volume.device} ({volume.holds})", volume.free_bytes, volume.size_bytes)


def _judge_managers(found: Inspection) -> Iterator[Diagnosis]:
    """Yield notes about tools that manage the server's settings, and about facts that could not be read."""
    for manager in found.managers:
        yield note(
            "settings",
            f"managed by {manager.name}, recognised by {manager.told_by}: it undoes what ALTER SYSTEM does",
            f"Change settings with {manager.change}.",
        )
    for unread in found.unread:
        text = f"{unread.what} could not be read: {unread.why}"
        yield note("server", text)


def describe_change(found: Inspection, name: str, value: str) -> str:
    """Return a sentence or statement that changes a setting of this server to a value.

    It names the tool that manages the server's settings, or the cloud service, or else uses ALTER SYSTEM. `value` is
    the value as SQL has it.
    """
    if found.managers:
        return f"Set {name} = {value} with {found.managers[0].change}."
    if (means := _SERVICE_PARAMETERS.get(found.flavour.kind)) is not None:
        return f"Set {name} = {value} {means}."
    setting = found.setting(name)
    restart = setting is not None and setting.context == "postmaster"
    then = "then restart the server." if restart else "SELECT pg_reload_conf();"
    return f"ALTER SYSTEM SET {quote_name(name)} = {value}; {then}"


_ORDER = {"refusal": 0, "warning": 1, "note": 2, "ok": 3}


_VERIFY = "Add sslmode=verify-full to the connection string, with sslrootcert=FILE for the server's authority."


def judge(found: Inspection, *, creates: bool = False, publishes: bool = False) -> tuple[Diagnosis, ...]:
    """Return findings that say what the facts mean for a load, the most severe first.

    `creates` is whether the load creates a missing table, and `publishes` whether publications may include the ledger's
    tables.
    """
    findings = [
        *filter(None, [check_pooler(found.pooler)]),
        *check_server(found.server, found.receiver),
        *_judge_connection(found),
        *_judge_server(found),
        *_judge_ledger(found, publishes=publishes),
        *_judge_table(found, creates=creates),
        *_judge_rights(found, creates=creates),
        *_judge_followers(found),
        *_judge_durability(found),
        *_judge_space(found),
        *_judge_managers(found),
    ]
    return sort_findings(findings)


def sort_findings(findings: Iterable[Diagnosis]) -> tuple[Diagnosis, ...]:
    """Return the findings, the most severe first."""
    return tuple(sorted(findings, key=lambda finding: _ORDER[finding.severity]))


def describe_verdict(findings: Sequence[Diagnosis]) -> str:
    """Return the last line of the screen: whether a load would begin, and what will soon stop the server."""
    if not would_load(findings):
        return "A load would be refused."
    stops = [found.code for found in findings if stops_soon(found)]
    if stops:
        return f"A load would begin, but first mend what will soon stop the server: {', '.join(stops)}."
    return "Ready to load."


def would_load(findings: Sequence[Diagnosis]) -> bool:
    """Return whether a load would begin: none of the findings is a refusal."""
    return all(finding.severity != "refusal" for finding in findings)


def _judge_connection(found: Inspection) -> Iterator[Diagnosis]:
    if found.pooler is None:
        yield ok("connection", "directly to the server, without a pooler")
    yield from _judge_encryption(found.encryption)
    free = found.server.free_connections
    if 1 <= free < 3:
        text = f"{free} more connection{'s are' if free > 1 else ' is'} free: a load can use at most that many sessions"
        yield warning("connection", text, MORE_CONNECTIONS)
    if found.clock is not None and abs(found.clock.ahead_s) > found.clock.error_s + 60:
        side = "ahead of" if found.clock.ahead_s > 0 else "behind"
        yield warning(
            "clock",
            f"the server's clock is {abs(found.clock.ahead_s):.0f} s {side} this host's",
            "Have both follow NTP: clouds refuse requests that are signed at another time.",
        )


def _judge_encryption(found: Encryption | None) -> Iterator[Diagnosis]:
    if found is None:
        return
    mode = f"sslmode={found.sslmode}"
    if not found.is_encrypted:
        text = f"not encrypted ({mode}): passwords and records can be read on the network"
        yield warning("connection", text, _VERIFY)
    elif found.sslmode == "verify-full":
        yield ok("connection", f"encrypted, the server's certificate and name verified ({mode})")
    else:
        text = f"encrypted, but the server's identity is not verified ({mode})"
        yield note("connection", text, _VERIFY)


def _judge_server(found: Inspection) -> Iterator[Diagnosis]:
    server = found.server
    yield from filter(None, [warn_of_version(server)])
    if server.server_encoding != "UTF8":
        yield note("server", f"the database's encoding is {server.server_encoding}: other characters are errors")


def _judge_ledger(found: Inspection, *, publishes: bool) -> Iterator[Diagnosis]:
    ledger = found.ledger
    if ledger is None or found.server.is_in_recovery:
        return
    schema = quote_name(ledger.schema)
    if ledger.upgrade is not None:
        yield ledger.upgrade
    if ledger.distrust is not None:
        yield ledger.distrust
    elif ledger.exists and ledger.may_write:
        text = f"in schema {schema}; role {quote_name(ledger.role)} may use all its tables"
        yield ledger.unrestored or ok("ledger", text)
    elif ledger.exists:
        yield refusal(
            "ledger",
            f"role {quote_name(ledger.role)} may not use all tables of the ledger in schema {schema}",
            f"Have the database's owner run {init_command(ledger.schema, ledger.role)}.",
        )
    else:
        publishing = [each.name for each in found.publications or () if each.is_all_tables and not publishes]
        text = f"will be created in schema {schema} by the first load"
        yield check_ledger_creation(ledger, ledger.schema) or check_publications(publishing) or ok("ledger", text)


def _judge_rights(found: Inspection, *, creates: bool) -> Iterator[Diagnosis]:
    rights, user = found.rights, quote_name(found.server.user)
    database = quote_name(found.server.database)
    if rights.password_ends_in_s is not None and rights.password_ends_in_s < _PASSWORD_ENDS_S:
        # The password is that of the session user. SET ROLE changes only the current user.
        when = f"expires in {format_duration(rights.password_ends_in_s)}"
        if rights.password_ends_in_s <= 0:
            when = "has expired"
        yield warning(
            "rights",
            f"the password of role {quote_name(rights.session_user)} {when}: after that it opens no session",
            f"ALTER ROLE {quote_name(rights.session_user)} VALID UNTIL '...';",
        )
    if not rights.may_make_temporary:
        yield note(
            "rights",
            "--check will not work: it parses into a temporary table",
            f"GRANT TEMPORARY ON DATABASE {database} TO {user};",
        )
    if not rights.reads_statistics:
        yield note(
            "rights",
            "wait events of other sessions, standby lag and autovacuum are hidden from this role",
            f"GRANT pg_read_all_stats TO {user};",
        )
    is_absent = found.table is not None and found.table.facts is None and found.table.asked.schema is None
    if not rights.may_create_table and is_absent:
        where = quote_name(rights.creation_schema or "public")
        yield Diagnosis(
            severity="refusal" if creates else "note",
            code="rights",
            claim="--create will not work in the schema where unqualified tables are created",
            remedy=f"GRANT CREATE ON SCHEMA {where} TO {user};",
        )


def _judge_table(found: Inspection, *, creates: bool) -> Iterator[Diagnosis]:
    table = found.table
    if table is None or found.server.is_in_recovery:
        return
    if table.facts is None:
        yield from filter(None, [check_table(table.asked, exists=False, creates=creates)])
        if creates and table.refusal is not None:
            yield table.refusal
        return
    text = f'"{table.facts.name}" can be loaded into'
    yield table.refusal or ok("table", text)
    if table.lacking:
        lacking = f"{', '.join(table.lacking)}, which load {', '.join(table.dropped_by)} has dropped"
        remedy = f"If the load is not running: penstock resume {table.dropped_by[0]}, or penstock repair."
        yield warning("table", f'"{table.facts.name}" lacks {lacking}', remedy)
    yield from _judge_costs(found, table)


def _judge_costs(found: Inspection, table: TableInspection) -> Iterator[Diagnosis]:
    facts, costs = table.facts, table.costs
    assert facts is not None
    name = f'"{facts.name}"'
    if facts.row_security_applies:
        yield note(
            "table",
            f"row-level security of {name} applies to this role: records go through a staging table",
            "Load as the table's owner, or as a role with BYPASSRLS, and COPY fills the table itself.",
        )
        if found.ledger is not None and found.ledger.exists:
            yield from filter(None, [check_staging_right(found.ledger, found.ledger.schema)])
    if facts.is_unlogged:
        text = f"{name} is unlogged: its rows are lost in a crash and are not replicated"
        yield warning("table", text)
    if facts.suppressing_triggers:
        triggers = ", ".join(facts.suppressing_triggers)
        yield note("table", f"triggers fire for each row, and may skip it: {triggers}")
    if table.publications:
        names = ", ".join(quote_name(publication) for publication in table.publications)
        text = f"rows of {name} are published by {names}: subscribers get every batch as it is committed"
        yield note("table", text)
    if costs is None:
        return
    passes = [
        count_nouns(count, one, many)
        for count, one, many in (
            (costs.indexes, "index", "indexes"),
            (costs.foreign_keys, "foreign key", "foreign keys"),
            (len(costs.insert_triggers), "trigger", "triggers"),
        )
        if count
    ]
    if passes:
        yield note("table", f"each row of {name} is checked by {', '.join(passes)}")


def judge_disks(space: DiskSpace) -> Iterator[Diagnosis]:
    """Yield a finding for each local disk.

    The finding is a refusal if the load would fill the disk and the job does not allow that.
    """
    for disk in space.disks:
        if disk.is_short and not space.is_ignored:
            yield refusal_of(describe_shortage(disk), "disks")
        else:
            yield _judge_room(disk)


def _judge_room(disk: DiskForecast) -> Diagnosis:
    severity: Severity = "warning" if disk.is_tight or disk.is_short else "ok"
    return Diagnosis(severity=severity, code="disks", claim=f"{disk.device}: {describe_disk(disk)}")


def judge_volume(
    volume: DiskForecast, storage: Storage, found: RdsDescription, *, is_ignored: bool = False
) -> Iterator[Diagnosis]:
    """Yield a finding on whether the load fits on the storage of an RDS instance, which may grow automatically.

    `volume` is the storage with the bytes that are free and the bytes that the load needs. `storage` is the same
    storage as AWS describes it, and `found` the description of the server. `is_ignored` is --ignore-space.
    """
    if not volume.needs:
        text = "the disk space that the load needs is not known: a source has no known size, or no record"
        yield note("disks", text)
        return
    if not volume.is_short or is_ignored:
        yield _judge_room(volume)
        return
    size_gib = storage.size_gib or 0
    missing_bytes = volume.needed_bytes - volume.free_bytes
    remedy = compose_growth(found, larger_size(size_gib, missing_bytes)) if size_gib else None
    ceiling_gib = storage.ceiling_gib
    text = f"the load would fill {volume.device}: {describe_disk(volume)}"
    if ceiling_gib is None:
        yield refusal("disks", f"{text}; autoscaling is off", remedy)
    elif missing_bytes > (ceiling_gib - size_gib) * GIB:
        text += f"; automatic growth to {format_count(ceiling_gib)} GiB is not enough"
        yield refusal("disks", text, remedy)
    else:
        text += f"; it may grow automatically to {format_count(ceiling_gib)} GiB, in steps and not at once"
        yield warning("disks", text, remedy)


def judge_windows(found: RdsDescription, *, now: datetime) -> Iterator[Diagnosis]:
    """Yield a note for each maintenance or backup window that is open now or begins within three hours."""
    for text in describe_near(found.windows, now=now):
        yield note("windows", text)


def judge_routes(plan: LoadPlan, routes: Sequence[S3Bucket]) -> Iterator[Diagnosis]:
    """Yield a finding "ok" for each S3 bucket of a planned load, with the endpoint by which the bucket was reached.

    Planning has reached the buckets: it lists them, and reads one object for each table.
    """
    for route in routes:
        inside = [
            source.uri
            for target in plan.targets
            for source in target.objects
            if source.uri.startswith(f"s3://{route.bucket}/")
        ]
        endpoint = "AWS's own endpoint" if route.endpoint is None else f"the endpoint {route.endpoint}"
        objects = count_nouns(len(inside), "object")
        text = f"s3://{route.bucket} is reached from here: {objects}, by {endpoint} in region {route.region}"
        yield ok("sources", text)
