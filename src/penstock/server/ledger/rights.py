"""Finds the owner of a load, and decides whether this session may do what the load's rows say.

Row security lets a role write only its own name into `owner`, and a login only its own name into `login` (schema.py).
After SET ROLE, any function that runs in the session can call RESET ROLE, and then has the login's rights.
"""

from __future__ import annotations

from typing import Literal

from penstock.errors import TargetError
from penstock.frozen import frozen
from penstock.model.load.job import LoadJob
from penstock.server.connect.connection import Connection
from penstock.server.connect.errors import translate_errors
from penstock.server.ledger.origin import compose_query
from penstock.server.sql.queries import fetch_as

# What the user is about to do with a load.
Deed = Literal["resume", "retry", "forget", "discard rejects of"]


@frozen
class LoadRights:
    """The owner of a load, and how this session's login relates to the load.

    `is_own_login` is whether this session's login chose the load's sources and transform. `is_logins` is whether the
    load's role is this login itself.
    """

    load_id: str
    owner: str
    is_own_role: bool
    is_own_login: bool
    is_logins: bool
    is_member: bool
    is_superuser: bool

    def refuse_other_role(self, what: Deed) -> None:
        """Raise TargetError if the load belongs to another role than the current one."""
        if not self.is_own_role:
            raise TargetError(
                f'cannot {what} load {self.load_id}: it belongs to role "{self.owner}"',
                detail="Its rows in the ledger would act with the privileges of the current role.",
                hint=f'Use --role "{self.owner}".'
                if self.is_member
                else f'Run it as "{self.owner}", or as a member of that role with --role "{self.owner}".',
            )

    def refuse_others_job(self, what: Deed, job: LoadJob | None) -> None:
        """Raise TargetError if the load is another role's, or if another login's code could run as this login."""
        self.refuse_other_role(what)
        has_transform = job is not None and any(target.transform is not None for target in job.targets)
        if self.is_own_login or not (self.is_superuser or has_transform):
            return
        role = "" if self.is_logins else f' with --role "{self.owner}"'
        raise TargetError(
            f"cannot {what} load {self.load_id}: by the ledger, another login began it",
            detail="Its transform could RESET ROLE to this login's privileges."
            if has_transform
            else "This login is a superuser, and code in the session could RESET ROLE to it.",
            hint="Log in as the user that began it, or "
            + (
                f"write the records to a file with penstock rejects {self.load_id} --reject-file, and load that file."
                if what == "retry"
                else f"run its own penstock load command{role}."
            ),
        )


def read_rights(connection: Connection, schema: str, load_id: str) -> LoadRights | None:
    """Return the rights on a load, or None if it does not exist. Raises ServerError."""
    query = compose_query(
        """
        SELECT l.id::text AS load_id,
               l.owner::text,
               l.owner = CURRENT_USER AS is_own_role,
               coalesce(l.login = SESSION_USER, false) AS is_own_login,
               l.owner = SESSION_USER AS is_logins,
               coalesce(
                   (SELECT pg_catalog.pg_has_role(r.oid, 'MEMBER') FROM pg_catalog.pg_roles AS r
                     WHERE r.rolname = l.owner),
                   false
               ) AS is_member,
               (SELECT r.rolsuper FROM pg_catalog.pg_roles AS r WHERE r.rolname = SESSION_USER) AS is_superuser
          FROM ONLY {loads} AS l
         WHERE l.id = %s
        """,
        schema,
    )
    with translate_errors("reading the load's owner"):
        return next(iter(fetch_as(connection, LoadRights, query, [load_id])), None)
