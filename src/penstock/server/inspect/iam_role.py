"""Checks, in another role's session, whether a role may log in with IAM tokens."""

from __future__ import annotations

from penstock.errors import ServerError
from penstock.frozen import frozen
from penstock.model.server.iam import grant_rds_iam
from penstock.server.connect.connection import Connection, describe_connection
from penstock.server.connect.errors import translate_errors
from penstock.server.sql.queries import fetch_rows


@frozen
class IamRole:
    """The row of iam_role.sql. `is_rds` is whether the server has the role rds_iam, as Amazon's servers have."""

    is_there: bool
    is_rds: bool
    is_member: bool


def check_iam_role(connection: Connection, user: str) -> None:
    """Raise ServerError, with the statement that corrects it, unless a role may log in with tokens."""
    address = describe_connection(connection)
    with translate_errors(f"reading the roles of {address}"):
        (found,) = fetch_rows(connection, "iam_role", IamRole, user=user)
    if not found.is_rds:
        raise ServerError(
            "role rds_iam does not exist",
            detail=f"The server is {address}.",
            hint="Only Amazon RDS and Aurora have IAM database authentication: connect to one of these.",
        )
    if not found.is_there:
        raise ServerError(f'role "{user}" does not exist', hint=f'CREATE ROLE "{user}" LOGIN; {grant_rds_iam(user)}')
    if not found.is_member:
        raise ServerError(
            f'role "{user}" may not log in with tokens',
            detail="It is not a member of rds_iam.",
            hint=f"As a privileged user: {grant_rds_iam(user)} From then on it cannot log in with its password.",
        )
