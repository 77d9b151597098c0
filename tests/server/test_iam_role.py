"""Whether a role may log in with tokens: rds_iam is made here, as a role of that name on Amazon's servers is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg import sql

from penstock.errors import ServerError
from penstock.server.inspect.iam_role import check_iam_role

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.lab import EmbeddedServer


@pytest.fixture
def admin(new_server: type[EmbeddedServer]) -> Iterator[psycopg.Connection]:
    """Provide a superuser's session on a server of its own: roles are a whole server's."""
    server = new_server()
    server.ensure_running()
    with psycopg.connect(server.conninfo(), autocommit=True) as opened:
        opened.execute("CREATE ROLE loader LOGIN")
        opened.execute("CREATE ROLE asker")
        yield opened


def test_grant_is_told_where_it_lacks(admin: psycopg.Connection) -> None:
    """A member, also by way of another role, may; everything else is told with what mends it."""
    admin.execute("SET ROLE asker")
    with pytest.raises(ServerError, match="role rds_iam does not exist"):
        check_iam_role(admin, "loader")
    admin.execute("RESET ROLE; CREATE ROLE rds_iam; CREATE ROLE app; SET ROLE asker")
    with pytest.raises(ServerError, match='role "nobody" does not exist'):
        check_iam_role(admin, "nobody")
    with pytest.raises(ServerError, match="may not log in with tokens") as caught:
        check_iam_role(admin, "loader")
    grant = 'GRANT rds_iam TO "loader";'
    assert grant in str(caught.value)
    admin.execute(sql.SQL("RESET ROLE; GRANT rds_iam TO app; GRANT app TO loader; SET ROLE asker"))
    check_iam_role(admin, "loader")
