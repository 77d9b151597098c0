"""A session that has the server import objects from S3, each in its own transaction."""

from __future__ import annotations

from psycopg import sql
from psycopg.pq import ExecStatus

from penstock.model.source.block import CopySpec
from penstock.server.connect.search_path import TO_USERS_SETTINGS
from penstock.server.copy.copy import CopySession
from penstock.server.imports.call import S3Place, compose_import
from penstock.server.table.identity import compose_look

# How often the server checks, during an import, whether its client is still connected. Otherwise the import of a killed
# client would continue, and would prevent the load from being resumed.
_LOOK_FOR_CLIENT = (
    "SELECT pg_catalog.set_config(name, '2s', false) FROM pg_catalog.pg_settings"
    " WHERE name = 'client_connection_check_interval'"
)


class ImportSession(CopySession):
    """A CopySession in which the server reads the rows from S3 itself: `import_object` replaces COPY FROM STDIN."""

    _is_prepared = False

    def begin(self) -> None:
        """Open a transaction if none is open. The first one of a session also has the server check its client."""
        if not self._is_prepared:
            self.execute(sql.SQL(_LOOK_FOR_CLIENT))
            self._is_prepared = True
        super().begin()

    def import_object(self, spec: CopySpec, place: S3Place, *, has_header: bool) -> str | None:
        """Import an object in the open transaction, and return the text with which the server reports that.

        The call runs with the user's search_path, as COPY does. Raises CopyFailed, and TargetError if the table's name
        belongs to a table other than the one in `tables`. Needs EXECUTE on the function, and INSERT on the table.
        """
        self._spec, table = spec, self._find_table(spec)
        parts = [sql.SQL(TO_USERS_SETTINGS), compose_import(spec, place, has_header=has_header)]
        parts += [] if table is None else [compose_look(table, spec.columns)]
        with self._failures():
            self._pgconn.send_query(sql.SQL("; ").join(parts).as_bytes(self._connection))
            self._flush()
            self._take_users_settings()
            result = self._take(ExecStatus.TUPLES_OK)
            self._take_look(table, spec)
        text = result.get_value(0, 0) if result.ntuples == 1 else None
        return None if text is None else text.decode("utf-8", "replace")
