"""Judges the facts of a server: what works, what does not, and how to correct it. Pure.

A finding is a refusal only if penstock load fails for the same reason. Package cli prints the findings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from penstock.access.server import find_durability, find_followers, find_managers, find_space, find_wal
from penstock.model.finding import Finding, note, ok, refusal, warning
from penstock.model.server.checks import (
    MORE_CONNECTIONS,
    check_ledger_creation,
    check_pooler,
    check_publications,
    check_server,
    check_staging_right,
    check_table,
)
from penstock.model.server.names import init_command, quote_name
from penstock.units import count_nouns

if TYPE_CHECKING:
    from penstock.model.server.inspection import Encryption, Inspection, TableInspection

_ORDER = {"refusal": 0, "warning": 1, "note": 2, "ok": 3}


_VERIFY = "Add sslmode=verify-full to the connection string, with sslrootcert=FILE for the server's authority."


def judge(found: Inspection, *, creates: bool = False, publishes: bool = False) -> tuple[Finding, ...]:
    """Return findings that say what the facts mean for a load, the most severe first.

    If `creates` is true, the load creates the table if it does not exist. If `publishes` is true, publications may
    include the ledger's tables.
    """
    findings = [
        *filter(None, [check_pooler(found.pooler)]),
        *check_server(found.server, found.receiver),
        *_judge_connection(found),
        *_judge_server(found),
        *_judge_ledger(found, publishes=publishes),
        *_judge_table(found, creates=creates),
        *_judge_rights(found, creates=creates),
        *find_followers(found),
        *find_wal(found),
        *find_durability(found),
        *find_space(found),
        *find_managers(found),
    ]
    return sort_findings(findings)


def sort_findings(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings, the most severe first."""
    return tuple(sorted(findings, key=lambda finding: _ORDER[finding.severity]))


def would_load(findings: Sequence[Finding]) -> bool:
    """Return whether a load is possible, which means that no finding is a refusal."""
    return all(finding.severity != "refusal" for finding in findings)


def _judge_connection(found: Inspection) -> Iterator[Finding]:
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


def _judge_encryption(found: Encryption | None) -> Iterator[Finding]:
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


def _judge_server(found: Inspection) -> Iterator[Finding]:
    server = found.server
    if server.server_encoding != "UTF8":
        yield note("server", f"the database's encoding is {server.server_encoding}: other characters are errors")


def _judge_ledger(found: Inspection, *, publishes: bool) -> Iterator[Finding]:
    ledger = found.ledger
    if ledger is None or found.server.is_in_recovery:
        return
    schema = quote_name(ledger.schema)
    if ledger.distrust is not None:
        yield ledger.distrust
    elif ledger.exists and ledger.may_write:
        text = f"in schema {schema}; role {quote_name(ledger.role)} may use all its tables"
        yield ok("ledger", text)
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


def _judge_rights(found: Inspection, *, creates: bool) -> Iterator[Finding]:
    rights, user = found.rights, quote_name(found.server.user)
    database = quote_name(found.server.database)
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
    if not rights.may_create_table and found.table is not None and found.table.facts is None:
        where = quote_name(found.table.asked.schema or rights.creation_schema or "public")
        yield Finding(
            severity="refusal" if creates and found.table.asked.schema is None else "note",
            subject="rights",
            text="--create will not work in the schema where unqualified tables are created",
            remedy=f"GRANT CREATE ON SCHEMA {where} TO {user};",
        )


def _judge_table(found: Inspection, *, creates: bool) -> Iterator[Finding]:
    table = found.table
    if table is None or found.server.is_in_recovery:
        return
    if table.facts is None:
        yield from filter(None, [check_table(table.asked, exists=False, creates=creates)])
        return
    text = f'"{table.facts.name}" can be loaded into'
    yield table.refusal or ok("table", text)
    yield from _judge_costs(found, table)


def _judge_costs(found: Inspection, table: TableInspection) -> Iterator[Finding]:
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
