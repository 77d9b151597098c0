"""Records the processes that work on one load together: which are alive, and which objects each has claimed.

A member is a row of table members, live while a session holds the advisory lock that the row names. Every loading
transaction first reads and locks its member's row (`compose_fence`). If a member's lock is free, another process ends
the member by an UPDATE of its row. The UPDATE waits for the member's open transactions, and makes its later
transactions fail. Only then are its claims free.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, LiteralString

from psycopg import sql

from penstock.core.connect.connection import Connection
from penstock.core.connect.errors import in_transaction, translate_errors
from penstock.core.sql import fetch_as, fetch_one
from penstock.ledger.committed import missing_objects
from penstock.ledger.locks import compose_is_locked, compose_query, mark, mark_member
from penstock.ledger.values import Claim, MemberRecord, MembersLook

# The condition that claim c is free. A member that has just joined is missing in this statement's snapshot, but it has
# not ended.
_IS_FREE: LiteralString = """
    (
        c.member IS NULL
        OR EXISTS (
               SELECT
                 FROM ONLY {members} AS m
                WHERE m.load = c.load
                  AND m.number = c.member
                  AND m.ended_at IS NOT NULL
           )
    )
"""

_END = """
    UPDATE ONLY {members} AS m
       SET ended_at = pg_catalog.clock_timestamp()
     WHERE m.load = %(load)s
       AND m.ended_at IS NULL
"""

_INSERT = """
    INSERT INTO {members} (load, number, lock_key, client)
    SELECT %(load)s::uuid, coalesce(max(m.number), 0) + 1, %(lock)s, %(client)s
      FROM ONLY {members} AS m
     WHERE m.load = %(load)s::uuid
    RETURNING number
"""

# Rows that another member is about to take, and rows of members that are still committing, are skipped.
_END_DEAD = """
    UPDATE ONLY {members} AS d
       SET ended_at = pg_catalog.clock_timestamp()
      FROM (
               SELECT m.load, m.number
                 FROM ONLY {members} AS m
                WHERE m.load = %(load)s
                  AND m.ended_at IS NULL
                  AND m.number <> %(member)s
                  AND NOT {is_locked}
                  AND EXISTS (SELECT FROM ONLY {loads} AS l WHERE l.id = m.load AND l.state = 'running')
                  FOR UPDATE OF m SKIP LOCKED
           ) AS s
     WHERE d.load = s.load
       AND d.number = s.number
    RETURNING d.client
"""

# Takes free objects, the largest first, up to a number of objects and up to a total size.
_TAKE = """
    UPDATE ONLY {claims} AS c
       SET member = %(member)s
      FROM (
               SELECT w.load, w.object
                 FROM (
                          SELECT f.load,
                                 f.object,
                                 pg_catalog.sum(f.size_bytes) OVER (ORDER BY f.size_bytes DESC, f.object) - f.size_bytes
                                     AS bytes_before
                            FROM (
                                     SELECT c.load, c.object, coalesce(o.size_bytes, 0) AS size_bytes
                                       FROM ONLY {claims} AS c
                                       JOIN ONLY {objects} AS o ON o.load = c.load AND o.number = c.object
                                      WHERE c.load = %(load)s
                                        AND c.object <> ALL (%(unseen)s::integer[])
                                        AND {is_free}
                                      ORDER BY o.size_bytes DESC NULLS FIRST, c.object
                                      LIMIT %(count)s
                                        FOR UPDATE OF c SKIP LOCKED
                                 ) AS f
                      ) AS w
                WHERE w.bytes_before < %(bytes)s
           ) AS t
     WHERE c.load = t.load
       AND c.object = t.object
    RETURNING c.object
"""

_OPEN = """
    INSERT INTO {claims} (load, object)
    SELECT l.id, n.number
      FROM ONLY {loads} AS l
      CROSS JOIN LATERAL ({missing}) AS n
     WHERE l.id = %s
        ON CONFLICT DO NOTHING
"""

_LOOK = """
    SELECT l.state = 'complete' AS is_complete,
           s.claimed,
           s.held,
           s.free,
           (SELECT pg_catalog.count(*)
              FROM ONLY {members} AS m
             WHERE m.load = l.id AND m.ended_at IS NULL AND m.number <> %(member)s AND {is_locked}) AS others,
           EXISTS (
               SELECT FROM ONLY {members} AS m WHERE m.load = l.id AND m.number = %(member)s AND m.ended_at IS NULL
           ) AS is_member,
           l.session_limit,
           ARRAY(
               SELECT m.number
                 FROM ONLY {members} AS m
                WHERE m.load = l.id AND m.ended_at IS NULL AND m.number <> %(member)s AND NOT {is_locked}
           ) AS dying
      FROM ONLY {loads} AS l
      CROSS JOIN LATERAL (
               SELECT pg_catalog.count(*) AS claimed,
                      pg_catalog.count(*) FILTER (WHERE NOT f.is_free) AS held,
                      pg_catalog.count(*) FILTER (WHERE f.is_free AND c.object <> ALL (%(unseen)s::integer[])) AS free
                 FROM ONLY {claims} AS c
                CROSS JOIN LATERAL (SELECT {is_free} AS is_free) AS f
                WHERE c.load = l.id
           ) AS s
     WHERE l.id = %(load)s
"""

_LIST = """
    SELECT m.number,
           m.client,
           m.ended_at IS NULL AND l.state = 'running' AND {is_locked} AS is_live,
           coalesce(s.objects, 0) AS objects,
           (
               SELECT pg_catalog.count(*) FROM ONLY {claims} AS c WHERE c.load = m.load AND c.member = m.number
           ) AS claimed,
           coalesce(s.rows, 0)::int8 AS rows,
           m.began_at,
           greatest(m.began_at, s.committed_at) AS seen_at,
           extract(epoch FROM greatest(m.began_at, s.committed_at) - m.began_at)::float8 AS seconds
      FROM ONLY {members} AS m
      JOIN ONLY {loads} AS l ON l.id = m.load
      LEFT JOIN (
               SELECT r.member,
                      pg_catalog.count(DISTINCT r.object) AS objects,
                      pg_catalog.sum(r.rows) AS rows,
                      pg_catalog.max(r.committed_at) AS committed_at
                 FROM ONLY {ranges} AS r
                WHERE r.load = %(load)s
                GROUP BY r.member
           ) AS s
        ON s.member = m.number
     WHERE m.load = %(load)s
     ORDER BY m.number
"""


def compose_fence(schema: str, claim: Claim) -> sql.Composed:
    """Return the query with which a loading transaction begins. If it returns no row, the member has ended.

    The load's row is locked first, as a foreign key would lock it, so a session that removes the load waits.
    """
    return compose_query(
        "SELECT {mark}, {mark_member} FROM ONLY {loads} AS l JOIN ONLY {members} AS m ON m.load = l.id"
        " WHERE l.id = {load} AND m.number = {member} AND m.ended_at IS NULL FOR KEY SHARE OF l FOR SHARE OF m",
        schema,
        mark=mark(claim.load_id),
        mark_member=mark_member(claim.load_id, claim.member),
        load=sql.Literal(claim.load_id),
        member=sql.Literal(claim.member),
    )


def compose_register(schema: str) -> sql.Composed:
    """Return the statement that adds a member and returns its number.

    Its parameters are `load`, `lock` and `client`.
    """
    return _compose(_INSERT, schema)


def compose_end(schema: str, *, only_dead: bool) -> sql.Composed:
    """Return the statement that ends a load's members, or only those whose lock is free. Its parameter is `load`.

    It waits for their open transactions.
    """
    return _compose(f"{_END} AND NOT {{is_locked}}" if only_dead else _END, schema)


def register(connection: Connection, schema: str, load_id: str, *, lock: str, client: str) -> int:
    """Add a member, and return its number. A session of this process holds the member's lock. Raises ServerError."""
    values = {"load": load_id, "lock": lock, "client": client}
    with in_transaction(connection, "joining the load"):
        # Members that join at the same time would choose the same number.
        hold = compose_query("SELECT FROM ONLY {loads} WHERE id = %(load)s FOR NO KEY UPDATE", schema)
        connection.execute(hold, values)
        return int(fetch_one(connection, compose_register(schema), values)[0])


def find_joinable(connection: Connection, schema: str, lock: str) -> tuple[str, bool] | None:
    """Return the id of the running load that has a lock, and whether its objects can be claimed. Raises ServerError."""
    query = compose_query(
        "SELECT l.id::text, EXISTS (SELECT FROM ONLY {claims} AS c WHERE c.load = l.id) FROM ONLY {loads} AS l"
        " WHERE l.lock_key = %s AND l.state = 'running' ORDER BY l.began_at DESC LIMIT 1",
        schema,
    )
    with translate_errors("looking for a load to join"):
        return connection.execute(query, [lock]).fetchone()


def open_claims(connection: Connection, schema: str, load_id: str, *, limit: int) -> None:
    """Let members claim the objects of a load that are not complete, with at most `limit` sessions in all.

    Raises ServerError.
    """
    update = compose_query("UPDATE ONLY {loads} SET session_limit = %s WHERE id = %s", schema)
    with in_transaction(connection, "opening the load to other hosts"):
        connection.execute(update, [limit, load_id])
        connection.execute(compose_query(_OPEN, schema, missing=missing_objects(schema)), [load_id])


def end_dead(connection: Connection, schema: str, claim: Claim) -> list[str]:
    """End the other members whose lock is free, unless they are still committing; return their clients.

    Raises ServerError.
    """
    with translate_errors("looking for members that have died"):
        values = {"load": claim.load_id, "member": claim.member}
        return [client for (client,) in connection.execute(_compose(_END_DEAD, schema), values).fetchall()]


def end_member(connection: Connection, schema: str, claim: Claim) -> None:
    """End a member, so that other members can claim its objects. Raises ServerError."""
    query = _compose(f"{_END} AND m.number = %(member)s", schema)
    with translate_errors("leaving the load"):
        connection.execute(query, {"load": claim.load_id, "member": claim.member})


def take_objects(
    connection: Connection,
    schema: str,
    claim: Claim,
    *,
    count: int,
    length_bytes: int,
    unseen: Collection[int] = (),
) -> list[int]:
    """Claim free objects for a member, the largest first. Return their numbers, an empty list if no object is free.

    At most `count` objects are claimed, and no more once they have `length_bytes` in all. Objects in `unseen` are not
    claimed, because this member cannot read them. Raises ServerError.
    """
    values: dict[str, Any] = {"load": claim.load_id, "member": claim.member, "count": count, "bytes": length_bytes}
    values["unseen"] = list(unseen)
    with translate_errors("claiming objects"):
        return [number for (number,) in connection.execute(_compose(_TAKE, schema), values).fetchall()]


def finish_objects(connection: Connection, schema: str, claim: Claim, numbers: Sequence[int]) -> None:
    """Remove the claims of objects that a member has loaded completely. Raises ServerError."""
    query = compose_query("DELETE FROM ONLY {claims} WHERE load = %s AND member = %s AND object = ANY (%s)", schema)
    with translate_errors("recording that objects are complete"):
        connection.execute(query, [claim.load_id, claim.member, list(numbers)])


def find_claimed(connection: Connection, schema: str, load_id: str) -> list[str]:
    """Return the URIs of the objects of a load by several hosts that are not complete. Raises ServerError."""
    query = compose_query(
        "SELECT o.uri FROM ONLY {claims} AS c JOIN ONLY {objects} AS o ON o.load = c.load AND o.number = c.object"
        " WHERE c.load = %s ORDER BY o.number",
        schema,
    )
    with translate_errors("looking for objects that are not complete"):
        return [uri for (uri,) in connection.execute(query, [load_id]).fetchall()]


def look_at_members(
    connection: Connection, schema: str, claim: Claim, *, unseen: Collection[int] = ()
) -> MembersLook | None:
    """Return the state of a load as one of its members sees it, None if the ledger does not have the load.

    `unseen` are the objects that the member's host does not have. Raises ServerError.
    """
    values = {"load": claim.load_id, "member": claim.member, "unseen": list(unseen)}
    with translate_errors("looking at the load's members"):
        return next(iter(fetch_as(connection, MembersLook, _compose(_LOOK, schema), values)), None)


def list_members(connection: Connection, schema: str, load_id: str) -> list[MemberRecord]:
    """Return the processes that have loaded rows of a load. Raises ServerError."""
    with translate_errors("listing the load's members"):
        return fetch_as(connection, MemberRecord, _compose(_LIST, schema), {"load": load_id})


def _compose(text: LiteralString, schema: str) -> sql.Composed:
    return compose_query(text, schema, is_locked=compose_is_locked("m"), is_free=compose_query(_IS_FREE, schema))
