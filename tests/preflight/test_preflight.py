"""Facts into findings: what a load is refused for, what is only said, and what would mend it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from penstock.core.checks import NEWEST_TESTED_MAJOR, check_server
from penstock.core.values.diagnosis import refusal
from penstock.core.values.inspection import (
    Connections,
    Encryption,
    FileSystem,
    Flavour,
    HostFacts,
    Inspection,
    LedgerState,
    Manager,
    Publication,
    Receiver,
    Rights,
    Setting,
    Slot,
    StandbyRow,
    TableCosts,
    TableInspection,
)
from penstock.core.values.server import Clock, PoolerFacts, Unread
from penstock.core.values.table import TableFacts, TableName
from penstock.loading.plan.notices import server_notices
from penstock.preflight.findings import describe_change, judge, would_load
from support.plans import SERVER

if TYPE_CHECKING:
    from penstock.core.values.diagnosis import Diagnosis

GIB = 1024**3

RIGHTS = Rights(
    is_superuser=False,
    may_create_schema=True,
    may_make_temporary=True,
    creation_schema="public",
    may_create_table=True,
    reads_statistics=True,
    reads_settings=True,
    signals_backends=False,
    may_checkpoint=False,
    may_reload=False,
    may_replicate=False,
    bypasses_row_security=False,
    session_user='o"brien',
    password_ends_in_s=None,
)

LEDGER = LedgerState(role=SERVER.user, schema="penstock", owner="owner", exists=True, may_create=True, may_write=True)

SOUND = Inspection(
    server=SERVER,
    flavour=Flavour(kind="postgresql", name="PostgreSQL"),
    managers=(),
    pooler=None,
    rights=RIGHTS,
    settings=(),
    connections=Connections(maximum=100, reserved=3, used=7, role_limit=None, database_limit=None),
    standbys=(),
    slots=(),
    receiver=None,
    archiver=None,
    publications=(),
    tablespaces=(),
    autovacuum_workers=0,
    ledger=LEDGER,
    clock=Clock(ahead_s=0.1, error_s=0.01),
)

STANDBY = StandbyRow(pid=7, name="s1", address=None, state="streaming", sync_state="async", lag_bytes=0, lag_s=0.0)
SLOT = Slot(
    name="o'slot",
    kind="physical",
    database=None,
    is_active=False,
    wal_status="extended",
    retained_bytes=5 * GIB,
    unconfirmed_bytes=None,
    safe_bytes=None,
)
FACTS = TableFacts(oid=1, name=TableName(schema="public", name="t"), kind="r", columns=())


def setting(name: str, value: str, **more: object) -> Setting:
    """Return a setting as pg_settings has it."""
    given = Setting(
        name=name,
        value=value,
        unit=None,
        context="sighup",
        source="default",
        source_file=None,
        is_pending_restart=False,
        may_alter_system=False,
    )
    return replace(given, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("encryption", "severity", "words"),
    [
        (Encryption(is_encrypted=False, sslmode="prefer"), "warning", "not encrypted (sslmode=prefer)"),
        (Encryption(is_encrypted=True, sslmode="require"), "note", "is not verified (sslmode=require)"),
        (Encryption(is_encrypted=True, sslmode="verify-full"), "ok", "verified (sslmode=verify-full)"),
    ],
)
def test_how_a_connection_is_protected_is_told(encryption: Encryption, severity: str, words: str) -> None:
    """This is shown by what libpq did, because the mode alone does not show it."""
    (finding,) = (each for each in judge(found(encryption=encryption)) if "sslmode" in each.claim)
    assert (finding.severity, finding.code) == (severity, "connection")
    assert words in finding.claim
    assert (finding.remedy is None) is (severity == "ok")


def table(**more: object) -> TableInspection:
    """Return a table that can be loaded into, but for what is given."""
    return replace(TableInspection(asked=FACTS.name, facts=FACTS), **more)  # type: ignore[arg-type]


def found(**changes: object) -> Inspection:
    """Return a sound server but for what is given; `server_` and `rights_` go into those."""
    server = {name[7:]: value for name, value in changes.items() if name.startswith("server_")}
    rights = {name[7:]: value for name, value in changes.items() if name.startswith("rights_")}
    rest = {name: value for name, value in changes.items() if not name.startswith(("server_", "rights_"))}
    return replace(
        SOUND,
        server=replace(SERVER, **server),  # type: ignore[arg-type]
        rights=replace(RIGHTS, **rights),  # type: ignore[arg-type]
        **rest,  # type: ignore[arg-type]
    )


def worst(inspection: Inspection) -> Diagnosis:
    """Return the first finding, which is the worst."""
    return judge(inspection)[0]


def test_sound_server_has_nothing_to_mend() -> None:
    """All is well, and a load would go."""
    findings = judge(SOUND)
    assert {finding.severity for finding in findings} == {"ok"}
    assert would_load(findings)


REFUSALS = {
    "pooler": ({"pooler": PoolerFacts(told_pid=1, backend_pid=2)}, "connection", "directly"),
    "no connection": ({"server_free_connections": 0}, "connection", "max_connections"),
    "old": ({"server_version_num": 130010, "server_version": "13.10"}, "server", "Upgrade"),
    "standby": (
        {
            "server_is_in_recovery": True,
            "receiver": Receiver(status="streaming", sender_host="db1", sender_port=5433, lag_bytes=0, delay_s=0.0),
        },
        "server",
        "host=db1 port=5433",
    ),
    "standby that hides its primary": ({"server_is_in_recovery": True}, "server", "primary"),
    "no ledger and no right": (
        {"ledger": replace(LEDGER, exists=False, owner=None, may_create=False, may_write=False)},
        "ledger",
        "penstock init --grant 'o\"brien'",
    ),
    "schema without rights": (
        {"ledger": replace(LEDGER, exists=False, may_create=False, may_write=False)},
        "ledger",
        "penstock init --grant 'o\"brien'",
    ),
    "ledger without rights": (
        {"ledger": replace(LEDGER, may_write=False)},
        "ledger",
        "penstock init --grant 'o\"brien'",
    ),
    "ledger of somebody else": (
        {"ledger": replace(LEDGER, distrust=refusal("ledger", "cannot trust the ledger", "Find out."))},
        "ledger",
        "Find out.",
    ),
    "publication for all tables": (
        {
            "ledger": replace(LEDGER, exists=False),
            "publications": (Publication(name="everything", is_all_tables=True),),
        },
        "ledger",
        "--publish-ledger",
    ),
    "no table": ({"table": TableInspection(asked=TableName(schema=None, name="t"))}, "table", "--create"),
    "unloadable table": (
        {"table": table(refusal=refusal("table", "it is a view", "Name a table."))},
        "table",
        "Name a table.",
    ),
    "too few synchronous standbys": (
        {
            "settings": (setting("synchronous_standby_names", "ANY 2 (s1, s2, s3)"),),
            "standbys": (replace(STANDBY, sync_state="quorum"), STANDBY),
        },
        "standbys",
        "do not empty the setting",
    ),
    "no synchronous standby": (
        {"settings": (setting("synchronous_standby_names", "s9"),), "standbys": (STANDBY,)},
        "standbys",
        "do not empty the setting",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refusal_has_its_remedy(case: str) -> None:
    """Each makes the verdict, alone, and says what would mend it."""
    changes, subject, remedy = REFUSALS[case]
    findings = judge(found(**changes))
    assert not would_load(findings)
    assert [finding.severity for finding in findings].count("refusal") == 1
    assert findings[0].code == subject
    assert remedy in (findings[0].remedy or "")


@pytest.mark.parametrize(
    ("changes", "severity", "subject"),
    [
        ({"server_free_connections": 2}, "warning", "connection"),
        ({"clock": Clock(ahead_s=-90.0, error_s=0.1)}, "warning", "clock"),
        ({"server_server_encoding": "SQL_ASCII"}, "note", "server"),
        ({"rights_may_make_temporary": False}, "note", "rights"),
        ({"rights_reads_statistics": False}, "note", "rights"),
        ({"rights_password_ends_in_s": 86_400.0}, "warning", "rights"),
        ({"rights_password_ends_in_s": -1.0}, "warning", "rights"),
        ({"server_version_num": 990_000, "server_version": "99.0"}, "warning", "server"),
        ({"standbys": (replace(STANDBY, lag_bytes=3 * GIB),)}, "warning", "standbys"),
        ({"standbys": (replace(STANDBY, lag_s=120.0),)}, "warning", "standbys"),
        ({"slots": (replace(SLOT, wal_status="lost"),)}, "warning", "slots"),
        ({"settings": (setting("fsync", "off"),)}, "warning", "settings"),
        ({"settings": (setting("autovacuum", "off"),)}, "warning", "settings"),
        ({"settings": (setting("max_connections", "9", is_pending_restart=True),)}, "note", "settings"),
        ({"managers": (Manager(name="Patroni", told_by="x", change="patronictl edit-config"),)}, "note", "settings"),
        ({"unread": (Unread(what="slots", why="no"),)}, "note", "server"),
        ({"table": table(facts=replace(FACTS, is_unlogged=True))}, "warning", "table"),
        ({"table": table(facts=replace(FACTS, row_security_applies=True))}, "note", "table"),
        ({"table": table(facts=replace(FACTS, suppressing_triggers=("g ON t",)))}, "note", "table"),
        ({"table": table(publications=("p",))}, "note", "table"),
        (
            {"table": table(costs=TableCosts(indexes=2, foreign_keys=1, insert_triggers=[], size_bytes=0))},
            "note",
            "table",
        ),
    ],
)
def test_what_does_not_stop_a_load_is_said(changes: dict[str, object], severity: str, subject: str) -> None:
    """It is the worst finding, and the load would go."""
    inspection = found(**changes)
    assert would_load(judge(inspection))
    assert (worst(inspection).severity, worst(inspection).code) == (severity, subject)


def test_settings_whose_place_the_storage_of_a_service_takes_are_no_finding() -> None:
    """Neon has fsync off, and stores WAL safely by means of its own."""
    neon = Flavour(kind="neon", name="Neon")
    assert judge(found(flavour=neon, settings=(setting("fsync", "off"),))) == judge(found(flavour=neon))


def test_server_newer_than_the_tested_ones_is_warned_of() -> None:
    """Of a load too, which is not refused."""
    newer = replace(SERVER, version_num=(NEWEST_TESTED_MAJOR + 1) * 10_000, version=f"{NEWEST_TESTED_MAJOR + 1}.0")
    assert [notice.code for notice in server_notices(newer)] == ["untested-version"]
    assert list(check_server(newer)) == []
    assert server_notices(replace(SERVER, version_num=NEWEST_TESTED_MAJOR * 10_000)) == []


def test_distributed_auroras_are_refused_with_their_own_loaders() -> None:
    """By doctor and by loads, which raise the same finding."""
    (dsql,) = check_server(replace(SERVER, distributed="dsql"))
    (limitless,) = check_server(replace(SERVER, distributed="limitless"))
    assert (dsql.claim, limitless.claim) == (
        "cannot load into Aurora DSQL",
        "cannot load into Aurora Limitless Database",
    )
    assert "aurora-dsql-loader" in (dsql.remedy or "")
    assert "limitless_data_load_start" in (limitless.remedy or "")


@pytest.mark.parametrize(
    "changes",
    [
        {"standbys": (replace(STANDBY, sync_state="sync"),)},
        {"standbys": (replace(STANDBY, sync_state="quorum"),)},
        {"standbys": (replace(STANDBY, sync_state="sync"), replace(STANDBY, sync_state="potential"))},
        {"standbys": (replace(STANDBY, state=None, sync_state=None, lag_bytes=None, lag_s=None),)},
        {"standbys": None},
    ],
)
def test_synchronous_standby_that_is_there_or_hidden_refuses_nothing(changes: dict[str, object]) -> None:
    """What cannot be seen is not taken for missing."""
    assert would_load(judge(found(settings=(setting("synchronous_standby_names", "s1"),), **changes)))


def test_disks_are_measured_against_wal_and_their_size() -> None:
    """Less room for WAL than max_wal_size, or a tenth of a disk, is a warning; enough is none."""
    settings = (setting("max_wal_size", "4096", unit="MB"),)

    def warnings(free_bytes: int) -> list[str]:
        volume = FileSystem(holds="WAL", path="/w", device="/dev/w", size_bytes=20 * GIB, free_bytes=free_bytes)
        data = FileSystem(
            holds="data directory", path="/d", device="/dev/d", size_bytes=20 * GIB, free_bytes=free_bytes
        )
        host = HostFacts(cpu_count=2, memory_bytes=GIB, volumes=(volume, data))
        return [each.claim for each in judge(found(settings=settings, host=host)) if each.severity == "warning"]

    assert warnings(10 * GIB) == []
    [only] = warnings(3 * GIB)
    assert "less than max_wal_size" in only
    assert len(warnings(GIB)) == 2


def test_names_in_remedies_are_quoted() -> None:
    """A role or a slot may have any name."""
    [note] = [each for each in judge(found(rights_may_make_temporary=False)) if each.severity == "note"]
    assert note.remedy == 'GRANT TEMPORARY ON DATABASE "shop" TO "o""brien";'
    lost = found(slots=(replace(SLOT, wal_status="lost"),))
    assert "pg_drop_replication_slot('o''slot')" in (worst(lost).remedy or "")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"settings": (setting("autovacuum", "off"),)}, 'ALTER SYSTEM SET "autovacuum" = on; SELECT pg_reload_conf();'),
        ({"settings": (setting("autovacuum", "off", context="postmaster"),)}, "restart the server"),
        ({"flavour": Flavour(kind="rds", name="Amazon RDS")}, "in the instance's DB parameter group"),
        ({"managers": (Manager(name="Patroni", told_by="x", change="patronictl edit-config"),)}, "patronictl"),
    ],
)
def test_setting_is_changed_where_it_stays_changed(changes: dict[str, object], says: str) -> None:
    """Not by ALTER SYSTEM where a service or a manager has the settings."""
    assert says in describe_change(found(**changes), "autovacuum", "on")
