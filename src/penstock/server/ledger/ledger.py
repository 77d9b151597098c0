"""Loads in the ledger: claimed, fenced, ended, forgotten; and what is committed of their objects.

A claim is an epoch. Every transaction that loads begins with a look at it (`fence`) that holds the row, so whoever
takes a load over waits for the transactions that are still under way and shuts out those that come after.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, LiteralString

import psycopg
from psycopg import sql

from penstock.errors import ServerError, TargetError
from penstock.model.ledger import Claim, CommittedRange, Coverage, FinishedLoad, KnownObject, LedgerObject
from penstock.model.table import TableName
from penstock.server.errors import translate_errors
from penstock.server.ledger.schema import ensure_schema
from penstock.server.ledger.targets import write_counts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from psycopg.errors import Diagnostic

    from penstock.model.ledger import LandedCounts, Range
    from penstock.server.connection import Connection

_RANGE = re.compile(r"\[(\d+),(\d+)\)")

# The first key of the advisory locks that tell which backends work on a load; "pens" in ASCII. They guard nothing.
_MARK = 0x70656E73

# The warning at a commit whose wait for synchronous standbys was cancelled: it has taken place on the primary
# (SyncRepWaitForLSN in src/backend/replication/syncrep.c).
_UNCONFIRMED = "01000"

# A statement that waits for another transaction is tried again so often, to be able to say for whom it waits.
_LOCK_TIMEOUT = "1s"


# Where synchronous_commit is off it is on for this transaction: WAL is flushed in order, so all before becomes durable
# with it.
_BE_DURABLE = (
    "SELECT pg_catalog.set_config('synchronous_commit', 'on', true)"
    " WHERE pg_catalog.current_setting('synchronous_commit') = 'off'"
)

# The objects of load l of which something is not committed.
_MISSING = """
    SELECT
      FROM {objects} AS o
      LEFT JOIN {ranges} AS r ON r.load = o.load AND r.object = o.number
      LEFT JOIN LATERAL pg_catalog.unnest(r.ranges) AS p (part) ON true
     WHERE o.load = l.id
     GROUP BY o.number
    HAVING NOT coalesce(pg_catalog.bool_or(r.has_start) AND pg_catalog.bool_or(r.has_end), false)
        OR pg_catalog.range_agg(p.part)
           <> pg_catalog.range_merge(pg_catalog.range_agg(p.part))::int8multirange
"""

# What load l has stored in its tables: of staged records, what became of them counts.
_STORED_ROWS = """
    SELECT coalesce((SELECT sum(r.rows) FROM {ranges} AS r WHERE r.load = l.id), 0)
           + coalesce((SELECT sum(t.inserted + t.updated - t.staged) FROM {targets} AS t WHERE t.load = l.id), 0)
"""

# The fields of FinishedLoad, in the order of _read_finished.
_TOTALS = """
    l.rows,
    coalesce((SELECT sum(r.suppressed) FROM {ranges} AS r WHERE r.load = l.id), 0)
    + coalesce((SELECT sum(t.suppressed) FROM {targets} AS t WHERE t.load = l.id), 0),
    coalesce((SELECT sum(t.inserted) FROM {targets} AS t WHERE t.load = l.id), 0),
    coalesce((SELECT sum(t.updated) FROM {targets} AS t WHERE t.load = l.id), 0),
    coalesce((SELECT sum(t.duplicates) FROM {targets} AS t WHERE t.load = l.id), 0),
    coalesce((SELECT sum(t.existing) FROM {targets} AS t WHERE t.load = l.id), 0)
"""


class Ledger:
    """The ledger of one schema. Methods raise ServerError and TargetError, and need what the schema's grants give."""

    def __init__(self, schema: str = "penstock") -> None:
        self.schema = schema

    def ensure(self, connection: Connection, *, is_publishing_allowed: bool = False) -> None:
        """Make the ledger where it is missing; refuse one that cannot be trusted."""
        ensure_schema(connection, self.schema, is_publishing_allowed=is_publishing_allowed)

    # ---------------------------------------------------------------- one process at a time

    def try_lock(self, connection: Connection, identity: str) -> bool:
        """Take the session's lock on a load, which ends with the session; return False where another has it.

        `identity` is a digest in hexadecimal, of which the first 64 bits are the key.
        """
        with translate_errors("locking the load"):
            row = connection.execute("SELECT pg_catalog.pg_try_advisory_lock(%s)", [_lock_key(identity)]).fetchone()
        return row == (True,)

    def find_lock_holder(self, connection: Connection, identity: str) -> int | None:
        """Return the backend that has the lock on a load, None where it has gone."""
        key = _lock_key(identity) & (2**64 - 1)
        query = """
            SELECT l.pid
              FROM pg_catalog.pg_locks AS l
             WHERE l.locktype = 'advisory'
               AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = current_database())
               AND l.classid = %s::oid
               AND l.objid = %s::oid
               AND l.objsubid = 1
               AND l.granted
        """
        with translate_errors("looking for who has locked the load"):
            row = connection.execute(query, [key >> 32, key & 0xFFFFFFFF]).fetchone()
        return None if row is None else int(row[0])

    def find_workers(self, connection: Connection, load_id: str) -> list[int]:
        """Return the backends in whose transactions rows of a load are under way."""
        query = """
            SELECT l.pid
              FROM pg_catalog.pg_locks AS l
             WHERE l.locktype = 'advisory'
               AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = current_database())
               AND l.classid = %s::oid
               AND l.objid = %s::oid
               AND l.objsubid = 2
               AND l.pid <> pg_catalog.pg_backend_pid()
             ORDER BY l.pid
        """
        with translate_errors("looking for the load's sessions"):
            rows = connection.execute(query, [_MARK, _mark_key(load_id) & 0xFFFFFFFF]).fetchall()
        return [int(pid) for (pid,) in rows]

    # ---------------------------------------------------------------- before a load

    def look_up(
        self, connection: Connection, identity: str, objects: Sequence[LedgerObject]
    ) -> tuple[str | None, list[KnownObject]]:
        """Return the id of the load of that identity that has begun and not ended, and what is known of the objects.

        They are found by their URI and by their table's oid or name.
        """
        running = sql.SQL("SELECT id::text FROM {} WHERE identity = %s AND state = 'running'")
        query = sql.SQL(
            """
            SELECT o.load::text, l.identity, l.state, o.number, o.target_oid, o.target_schema, o.target_table,
                   o.uri, o.version, (
                       SELECT coalesce(sum(r.rows), 0)
                         FROM {schema}.ranges AS r
                        WHERE r.load = o.load
                          AND r.object = o.number
                   ), EXISTS (
                       SELECT
                         FROM {schema}.targets AS t
                        WHERE t.target_oid = o.target_oid
                          AND t.load <> o.load
                          AND t.truncated_at > l.changed_at
                   )
              FROM ROWS FROM (
                       unnest(%(oids)s::oid[]), unnest(%(schemas)s::name[]), unnest(%(tables)s::name[]),
                       unnest(%(uris)s::text[])
                   ) AS w (oid, schema_name, table_name, uri)
              JOIN {schema}.objects AS o
                ON o.uri = w.uri
               AND (o.target_oid = w.oid OR (o.target_schema = w.schema_name AND o.target_table = w.table_name))
              JOIN {schema}.loads AS l
                ON l.id = o.load
             ORDER BY l.changed_at
            """
        ).format(schema=sql.Identifier(self.schema))
        with translate_errors("looking up what has been loaded"), connection.pipeline():
            found = connection.execute(running.format(self._table("loads")), [identity])
            rows = connection.execute(query, _object_arrays(objects)).fetchall()
            row = found.fetchone()
        return None if row is None else str(row[0]), [
            KnownObject(
                load_id=load_id,
                identity=identity,
                state=state,
                number=number,
                target_oid=oid,
                target=TableName(schema=schema, name=table),
                uri=uri,
                version=version,
                rows=int(count),
                is_superseded=state == "complete" and is_superseded,
            )
            for load_id, identity, state, number, oid, schema, table, uri, version, count, is_superseded in rows
        ]

    def begin(
        self,
        connection: Connection,
        *,
        load_id: str,
        identity: str,
        lock: str,
        client: str,
        tables: Sequence[str],
        meaning: str,
        job: str | None,
        objects: Sequence[LedgerObject],
    ) -> Claim:
        """Write a new load down, with its objects, in one statement.

        `lock` is what `try_lock` was given; `meaning` and `job` are JSON.
        """
        query = sql.SQL(
            """
            WITH begun AS (
                INSERT INTO {loads} (id, identity, lock_key, client, tables, meaning, job)
                VALUES (%(load)s, %(identity)s, %(lock)s, %(client)s, %(names)s::text[], %(meaning)s::jsonb,
                        %(job)s::jsonb)
                RETURNING id
            )
            {insert}
            """
        ).format(
            loads=self._table("loads"),
            insert=self._insert_objects(sql.SQL("(SELECT begun.id FROM begun)")),
        )
        values = _object_arrays(objects) | {
            "load": load_id,
            "identity": identity,
            "lock": lock,
            "client": client,
            "names": list(tables),
            "meaning": meaning,
            "job": job,
        }
        with translate_errors("writing the load down"):
            connection.execute(query, values)
        return Claim(load_id=load_id, epoch=1, is_resumed=False)

    def take_over(self, connection: Connection, load_id: str, *, client: str, job: str | None = None) -> Claim | None:
        """Raise a load's epoch; None where sessions of a loader that has gone still hold it after a second.

        What they are committing counts; what they begin after this is refused. `job` is written down in the old one's
        place: what is no part of the identity may be another now. Raises TargetError where the load is not there or has
        ended.
        """
        query = sql.SQL(
            "UPDATE {} SET epoch = epoch + 1, client = %s, job = coalesce(%s::jsonb, job),"
            " changed_at = pg_catalog.now() WHERE id = %s AND state = 'running' RETURNING epoch"
        ).format(self._table("loads"))
        try:
            with translate_errors("taking the load over"), connection.transaction():
                connection.execute(sql.SQL("SET LOCAL lock_timeout = {}").format(sql.Literal(_LOCK_TIMEOUT)))
                # Off would let a crash bring the old epoch back, after rows were committed under the new one.
                connection.execute("SET LOCAL synchronous_commit = 'local'")
                row = connection.execute(query, [client, job, load_id]).fetchone()
        except ServerError as error:
            if error.sqlstate == "55P03":
                return None
            raise
        if row is None:
            raise TargetError(f"load {load_id} is not there any more, or has ended", hint="See penstock loads.")
        return Claim(load_id=load_id, epoch=int(row[0]), is_resumed=True)

    def add_objects(self, connection: Connection, claim: Claim, objects: Sequence[LedgerObject]) -> None:
        """Add objects to a load that has begun."""
        query = self._insert_objects(sql.SQL("%(load)s::uuid"))
        with translate_errors("writing objects down"):
            connection.execute(query, _object_arrays(objects) | {"load": claim.load_id})

    def change_version(self, connection: Connection, claim: Claim, number: int, item: LedgerObject) -> None:
        """Write down the version of an object with which the load goes on."""
        query = sql.SQL("UPDATE {} SET version = %s, size_bytes = %s WHERE load = %s AND number = %s")
        with translate_errors("writing an object's version down"):
            connection.execute(
                query.format(self._table("objects")), [item.version, item.size_bytes, claim.load_id, number]
            )

    # ---------------------------------------------------------------- what is committed

    def read_coverage(self, connection: Connection, load_id: str) -> dict[int, Coverage]:
        """Return what is committed of each object of a load, by its number."""
        query = sql.SQL(
            """
            SELECT r.object, pg_catalog.range_agg(part)::text, bool_or(r.has_start AND is_leading),
                   bool_or(r.has_end AND is_leading), sum(r.rows) FILTER (WHERE is_leading)
              FROM {ranges} AS r
              CROSS JOIN LATERAL (
                       SELECT NULL::int8range AS part, true AS is_leading
                       UNION ALL
                       SELECT p.part, false FROM pg_catalog.unnest(r.ranges) AS p (part)
                   ) AS parts
             WHERE r.load = %s
             GROUP BY r.object
            """
        ).format(ranges=self._table("ranges"))
        with translate_errors("reading what is committed"):
            rows = connection.execute(query, [load_id]).fetchall()
        return {
            number: Coverage(ranges=_parse_ranges(ranges), has_start=has_start, has_end=has_end, rows=int(count))
            for number, ranges, has_start, has_end, count in rows
        }

    def read_ranges(self, connection: Connection, load_id: str, number: int) -> list[CommittedRange]:
        """Return the ledger's rows of one object."""
        query = sql.SQL(
            "SELECT start, ranges::text, has_start, has_end, records, rows, suppressed, checksum"
            " FROM {} WHERE load = %s AND object = %s ORDER BY start"
        ).format(self._table("ranges"))
        with translate_errors("reading what is committed of an object"):
            rows = connection.execute(query, [load_id, number]).fetchall()
        return [
            CommittedRange(
                object_number=number,
                start=start,
                ranges=_parse_ranges(ranges),
                has_start=has_start,
                has_end=has_end,
                records=records,
                rows=stored,
                suppressed=suppressed,
                checksum=checksum,
            )
            for start, ranges, has_start, has_end, records, stored, suppressed, checksum in rows
        ]

    # ---------------------------------------------------------------- what sessions send with their rows

    def fence(self, claim: Claim) -> sql.Composed:
        """Return the query that every loading transaction begins with: no row means that the load was taken over."""
        return sql.SQL(
            "SELECT pg_catalog.pg_try_advisory_xact_lock_shared({}, {}) FROM {} WHERE id = {} AND epoch = {} FOR SHARE"
        ).format(
            sql.Literal(_MARK),
            sql.Literal(_mark_key(claim.load_id)),
            self._table("loads"),
            sql.Literal(claim.load_id),
            sql.Literal(claim.epoch),
        )

    def insert_ranges(self, claim: Claim, ranges: Sequence[CommittedRange]) -> sql.Composed:
        """Return the statement that writes down what its transaction commits."""
        rows = sql.SQL(", ".join(map(_range_values, ranges)))
        return sql.SQL(
            "INSERT INTO {} (load, object, start, ranges, has_start, has_end, records, rows, suppressed, checksum,"
            " rejected, form) SELECT {}::uuid, v.object, v.start, v.ranges::int8multirange, v.has_start, v.has_end,"
            " v.records, v.rows, v.suppressed, v.checksum, v.rejected, v.form::jsonb FROM (VALUES {})"
            " AS v (object, start, ranges, has_start, has_end, records, rows, suppressed, checksum, rejected, form)"
        ).format(self._table("ranges"), sql.Literal(claim.load_id), rows)

    # ---------------------------------------------------------------- the end

    def finish(
        self, connection: Connection, claim: Claim, *, act: Callable[[], Sequence[LandedCounts]] | None = None
    ) -> FinishedLoad | None:
        """Write down that a load is complete, durably; return None where the ledger lacks a part of it.

        `act` does in the same transaction what is left to do for the tables, once nothing is missing. The ledger alone
        decides: a server that crashed may have lost what it had acknowledged. Raises TargetError where the load was
        taken over, and whatever `act` raises.
        """
        query = sql.SQL(
            """
            UPDATE {loads} AS l
               SET state = 'complete',
                   changed_at = pg_catalog.clock_timestamp(),
                   rows = ({rows})
             WHERE l.id = %(load)s
               AND l.epoch = %(epoch)s
               AND NOT EXISTS ({missing})
            RETURNING {totals}
            """
        ).format(
            loads=self._table("loads"),
            rows=self._compose(_STORED_ROWS),
            missing=self._compose(_MISSING),
            totals=self._compose(_TOTALS),
        )
        values = {"load": claim.load_id, "epoch": claim.epoch}
        with translate_errors("writing down that the load is complete"), _hearing_warnings(connection) as warnings:
            if act is None:
                row = _run_durably(connection, query, values)
            else:
                row = self._run_with(connection, claim, act, query, values)
        if row is None:
            self.check_claim(connection, claim)
            return None
        return _read_finished(row, is_local_only=_UNCONFIRMED in warnings)

    def _run_with(
        self,
        connection: Connection,
        claim: Claim,
        act: Callable[[], Sequence[LandedCounts]],
        query: sql.Composed,
        values: Mapping[str, Any],
    ) -> tuple[Any, ...] | None:
        """Act and run the last statement in one durable transaction, behind the claim's fence; None undoes it."""
        row: tuple[Any, ...] | None = None
        with connection.transaction() as transaction:
            connection.execute(_BE_DURABLE)
            self.hold_claim(connection, claim)
            if self.has_all(connection, claim):
                write_counts(connection, self.schema, claim, act())
                row = connection.execute(query, values).fetchone()
            if row is None:
                raise psycopg.Rollback(transaction)
        return row

    def hold_claim(self, connection: Connection, claim: Claim) -> None:
        """Hold a load for the rest of the transaction; raise TargetError where it is not ours any more."""
        with translate_errors("looking at the load"):
            if connection.execute(self.fence(claim)).fetchone() is None:
                raise taken_over(claim.load_id)

    def has_all(self, connection: Connection, claim: Claim) -> bool:
        """Return whether every record of a load is committed."""
        query = sql.SQL("SELECT NOT EXISTS ({}) FROM {} AS l WHERE l.id = %s").format(
            self._compose(_MISSING), self._table("loads")
        )
        with translate_errors("looking what is missing"):
            return connection.execute(query, [claim.load_id]).fetchone() == (True,)

    def confirm(self, connection: Connection, claim: Claim) -> FinishedLoad | None:
        """Return what `finish` did if it had been done though its answer was lost, made durable once more."""
        query = sql.SQL(
            "UPDATE {} AS l SET changed_at = l.changed_at WHERE l.id = %(load)s AND l.state = 'complete' RETURNING {}"
        ).format(self._table("loads"), self._compose(_TOTALS))
        with translate_errors("looking whether the load is complete"), _hearing_warnings(connection) as warnings:
            row = _run_durably(connection, query, {"load": claim.load_id})
        if row is None:
            return None
        return _read_finished(row, is_local_only=_UNCONFIRMED in warnings)

    def check_claim(self, connection: Connection, claim: Claim) -> None:
        """Raise TargetError where a load is not ours any more."""
        query = sql.SQL("SELECT epoch FROM {} WHERE id = %s").format(self._table("loads"))
        with translate_errors("looking at the load"):
            row = connection.execute(query, [claim.load_id]).fetchone()
        if row != (claim.epoch,):
            raise taken_over(claim.load_id)

    def forget_unused(self, connection: Connection, claim: Claim, *, even_if_used: bool = False) -> bool:
        """Remove a load of which nothing was committed, or `even_if_used`; return whether it is gone."""
        query = sql.SQL(
            "DELETE FROM {loads} AS l WHERE l.id = %s AND l.epoch = %s AND l.state = 'running'"
            " AND (%s OR NOT EXISTS (SELECT FROM {ranges} AS r WHERE r.load = l.id)) RETURNING true"
        ).format(loads=self._table("loads"), ranges=self._table("ranges"))
        with translate_errors("removing the load from the ledger"):
            return connection.execute(query, [claim.load_id, claim.epoch, even_if_used]).fetchone() is not None

    def committed_rows(self, connection: Connection, load_id: str) -> int:
        """Return how many rows of a load are committed."""
        query = sql.SQL("SELECT coalesce(sum(rows), 0) FROM {} WHERE load = %s").format(self._table("ranges"))
        with translate_errors("counting what is committed"):
            row = connection.execute(query, [load_id]).fetchone()
        assert row is not None
        return int(row[0])

    def _insert_objects(self, load: sql.Composable) -> sql.Composed:
        return sql.SQL(
            """
            INSERT INTO {objects} (load, number, target_oid, target_schema, target_table, uri, version, size_bytes)
            SELECT {load}, w.*
              FROM ROWS FROM (
                       unnest(%(numbers)s::integer[]), unnest(%(oids)s::oid[]), unnest(%(schemas)s::name[]),
                       unnest(%(tables)s::name[]), unnest(%(uris)s::text[]), unnest(%(versions)s::text[]),
                       unnest(%(sizes)s::bigint[])
                   ) AS w
            """
        ).format(objects=self._table("objects"), load=load)

    def _table(self, name: str) -> sql.Identifier:
        return sql.Identifier(self.schema, name)

    def _compose(self, text: LiteralString) -> sql.Composed:
        names = ("objects", "ranges", "targets")
        return sql.SQL(text).format(**{name: self._table(name) for name in names})


def _run_durably(connection: Connection, query: sql.Composed, values: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """Run a statement that writes, in one transaction, and return its row once that is safe.

    Where synchronous_commit is off it is on for this: WAL is flushed in order, so all before becomes durable with it.
    """
    with connection.pipeline():
        connection.execute("BEGIN")
        connection.execute(_BE_DURABLE)
        cursor = connection.execute(query, values)
        connection.execute("COMMIT")
        return cursor.fetchone()


def _read_finished(row: Sequence[Any], *, is_local_only: bool) -> FinishedLoad:
    rows, suppressed, inserted, updated, duplicates, existing = map(int, row)
    return FinishedLoad(
        rows=rows,
        suppressed=suppressed,
        is_local_only=is_local_only,
        inserted=inserted,
        updated=updated,
        duplicates=duplicates,
        existing=existing,
    )


@contextmanager
def _hearing_warnings(connection: Connection) -> Iterator[list[str]]:
    """Provide the SQLSTATEs of the warnings that the server sends meanwhile."""
    states: list[str] = []

    def hear(diagnostic: Diagnostic) -> None:
        states.append(diagnostic.sqlstate or "")

    connection.add_notice_handler(hear)
    try:
        yield states
    finally:
        connection.remove_notice_handler(hear)


def taken_over(load_id: str) -> TargetError:
    """Return the error for a load that another process goes on with."""
    return TargetError(
        f"load {load_id} was taken over by another process",
        detail="What this one had committed stays, and the other knows of it.",
        hint="See penstock loads.",
    )


def _object_arrays(objects: Sequence[LedgerObject]) -> dict[str, Any]:
    return {
        "numbers": [item.number for item in objects],
        "oids": [item.target_oid for item in objects],
        "schemas": [item.target.schema for item in objects],
        "tables": [item.target.name for item in objects],
        "uris": [item.uri for item in objects],
        "versions": [item.version for item in objects],
        "sizes": [item.size_bytes for item in objects],
    }


def _lock_key(identity: str) -> int:
    """Return the advisory lock's key for a load: the digest's first 64 bits, signed."""
    key = int(identity[:16], 16)
    return key - 2**64 if key >= 2**63 else key


def _mark_key(load_id: str) -> int:
    key = int(load_id.replace("-", "")[:8], 16)
    return key - 2**32 if key >= 2**31 else key


def _range_values(row: CommittedRange) -> str:
    """Return one row of a VALUES list. A batch may hold many thousand: numbers are written without psycopg's help."""
    form = "NULL" if row.form is None else sql.Literal(row.form).as_string(None)
    return (
        f"({row.object_number:d},{row.start:d},'{_format_ranges(row.ranges)}',{bool(row.has_start)},"
        f"{bool(row.has_end)},{row.records:d},{row.rows:d},{row.suppressed:d},{row.checksum:d},{row.rejected:d},{form})"
    )


def _format_ranges(ranges: Sequence[Range]) -> str:
    return "{" + ",".join(f"[{start:d},{end:d})" for start, end in ranges) + "}"


def _parse_ranges(text: str | None) -> tuple[Range, ...]:
    """Return a multirange as PostgreSQL writes it.

    >>> _parse_ranges("{[0,10),[20,30)}")
    ((0, 10), (20, 30))
    """
    return tuple((int(start), int(end)) for start, end in _RANGE.findall(text or ""))
