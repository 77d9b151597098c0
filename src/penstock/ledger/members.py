"""Records the processes that work on one load together: which are alive, and which objects each has claimed.

A member is a row of table members, live while a session holds the advisory lock that the row names. Every loading
transaction first reads and locks its member's row (`compose_fence`). If a member's lock is free, another process ends
the member by an UPDATE of its row. The UPDATE waits for the member's open transactions, and makes its later
transactions fail. After that, the member's claims are free.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import sql

from penstock.core.connect.connection import Connection
from penstock.core.connect.errors import in_transaction, translate_errors
from penstock.core.errors import DataError, ServerError
from penstock.core.sql import fetch_rows, run_query
from penstock.ledger.locks import compose_query, mark, mark_member
from penstock.ledger.schema import VERSION
from penstock.ledger.values import Claim, MemberRecord, MembersState


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


def register(connection: Connection, schema: str, load_id: str, *, lock: str, client: str) -> int:
    """Add a process to a load as a member, and return the member's number. Raises ServerError.

    `client` names the process. `lock` is the digest of the member's advisory lock, which a session of the process has.
    """
    values = {"load": load_id, "lock": lock, "client": client}
    with refusing_older(), in_transaction(connection, "joining the load"):
        # Lock the load's row. Without this lock, members that join at the same time would choose the same number.
        hold = compose_query("SELECT FROM ONLY {loads} WHERE id = %(load)s FOR NO KEY UPDATE", schema)
        connection.execute(hold, values)
        row = run_query(connection, "ledger/add_member", ledger=schema, version=VERSION, **values).fetchone()
    assert row is not None
    return int(row[0])


# The CHECK constraint on table `members` that fails if the process knows an older version of the ledger.
_OLDER = "members_version"


@contextmanager
def refusing_older() -> Iterator[None]:
    """Raise a transient error if another process has upgraded the ledger since this one opened it.

    A retry opens the ledger again, which raises an error that names the version of penstock to install.
    """
    try:
        yield
    except DataError as error:
        cause = error.__cause__
        if not isinstance(cause, psycopg.Error) or cause.diag.constraint_name != _OLDER:
            raise
        raise ServerError(
            "the ledger was upgraded by a newer penstock", hint="Nothing was recorded: run it again.", is_transient=True
        ) from error


def find_joinable(connection: Connection, schema: str, lock: str) -> tuple[str, bool] | None:
    """Return the id of the running load that has a lock, and whether its objects can be claimed.

    Returns None if no load runs. `lock` is the digest of the load's advisory lock. Raises ServerError.
    """
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
        run_query(connection, "ledger/open_claims", ledger=schema, load=load_id)


def end_dead(connection: Connection, schema: str, claim: Claim) -> list[str]:
    """End the other members of a load whose lock is free, unless they are still committing.

    Return the host and process id of each ended member. Raises ServerError.
    """
    with translate_errors("looking for members that have died"):
        rows = run_query(connection, "ledger/end_dead", ledger=schema, load=claim.load_id, member=claim.member)
        return [client for (client,) in rows]


def end_member(connection: Connection, schema: str, claim: Claim) -> None:
    """End this process's member of a load, so that other members can claim its objects. Raises ServerError."""
    values = {"load": claim.load_id, "member": claim.member, "only_dead": False}
    with translate_errors("leaving the load"):
        run_query(connection, "ledger/end_members", ledger=schema, **values)


def take_objects(
    connection: Connection,
    schema: str,
    claim: Claim,
    *,
    count: int,
    length_bytes: int,
    unseen: Collection[int] = (),
) -> list[int]:
    """Claim objects that no member has claimed, the largest first. Return their numbers.

    At most `count` objects are claimed, and no more once they have `length_bytes` in all. Objects in `unseen` are not
    claimed, because this member cannot read them. Raises ServerError.
    """
    values: dict[str, Any] = {"load": claim.load_id, "member": claim.member, "count": count, "bytes": length_bytes}
    values["unseen"] = list(unseen)
    with translate_errors("claiming objects"):
        return [number for (number,) in run_query(connection, "ledger/take_objects", ledger=schema, **values)]


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
) -> MembersState | None:
    """Return the state of a load by several hosts as one member sees it, None if the ledger does not have the load.

    `unseen` are the numbers of the objects that the member's host does not have. Raises ServerError.
    """
    values = {"load": claim.load_id, "member": claim.member, "unseen": list(unseen)}
    with translate_errors("looking at the load's members"):
        return next(iter(fetch_rows(connection, "ledger/members_look", MembersState, ledger=schema, **values)), None)


def list_members(connection: Connection, schema: str, load_id: str) -> list[MemberRecord]:
    """Return the processes that have loaded rows of a load. Raises ServerError."""
    with translate_errors("listing the load's members"):
        return fetch_rows(connection, "ledger/members", MemberRecord, ledger=schema, load=load_id)
