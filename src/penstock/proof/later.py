"""What later loads into a table have made of the records of earlier ones: loads are compared from the newest back.

A later upsert has changed values of rows that an earlier load has stored. So the records of each upsert stay in a
temporary table of the session, and the records of the loads before it are changed in the same way before they are
compared. A file that a later load has loaded anew is not read for the earlier load.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, LiteralString, Self

from psycopg import sql

from penstock.core.connect.connection import Connection, ConnectionFactory
from penstock.core.slotted import slotted
from penstock.core.sql import fetch_one, list_identifiers, table_identifier
from penstock.core.values.table import TableName
from penstock.ledger.values import ObjectRecord
from penstock.loading.land.merge_key import Key, same_key, same_lack

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence


# The column of sent records that says whether a later load has updated their row.
UPDATED_COLUMN = "penstock_updated"

# The number in penstock_hashes of records in all columns of the table.
_WHOLE_ROWS = -1


def hash_of(columns: sql.Composed) -> sql.Composed:
    """Return the expression of the hash of a row's binary values in some columns."""
    return sql.SQL("pg_catalog.sha256(pg_catalog.record_send(ROW({})))").format(columns)


@slotted
class _Upsert:
    """The records that a load has merged, in a temporary table."""

    records: TableName
    key: Key
    columns: tuple[str, ...]


class LaterLoads:
    """The loads into a table that were compared so far. Loads are compared from the newest to the oldest."""

    def __init__(self, connect: ConnectionFactory, *, are_several: bool = False, counts_rows: bool = False) -> None:
        self._connect = connect
        self.are_several = are_several
        self.counts_rows = counts_rows
        self._closing = ExitStack()
        self._connection: Connection | None = None
        # The newest first.
        self._upserts: list[_Upsert] = []
        self._uris: dict[str, ObjectRecord] = {}
        # The number of rows of each table, by its oid, and how many the ledger expected then.
        self.counted: dict[int, tuple[int, int | None]] = {}
        # The columns in which records are compared that no key tells apart, each with its number in penstock_hashes.
        self._keyless: dict[tuple[str, ...], int] = {}
        # The columns of the table, if its rows are counted.
        self._columns: tuple[str, ...] = ()
        # Whether a later load has updated rows, and its records are not known: earlier loads may lack records.
        self.has_obstacle = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._closing.close()

    def open(self) -> Connection:
        """Return the session whose temporary tables have the records of later upserts. Raises ServerError."""
        if self._connection is None or self._connection.closed:
            # The temporary tables are gone with a session that was lost.
            self.has_obstacle = self.has_obstacle or bool(self._upserts)
            self._upserts.clear()
            self._keyless.clear()
            self._columns = ()
            self._connection = self._closing.enter_context(self._connect.connect(label="verify"))
        return self._connection

    def find_renewed(self, objects: Iterable[ObjectRecord]) -> list[ObjectRecord]:
        """Return those of an earlier load's objects of which a later load has loaded another version."""
        return [
            each
            for each in objects
            if (later := self._uris.get(each.uri)) is not None
            and (each.version, each.size_bytes, each.ctime_ns) != (later.version, later.size_bytes, later.ctime_ns)
        ]

    @property
    def loaded(self) -> Collection[str]:
        """Return the URIs of all objects of the loads that were compared so far."""
        return self._uris.keys()

    def note_objects(self, objects: Iterable[ObjectRecord]) -> None:
        """Add the objects of the load that is compared now. For earlier loads they are objects of a later load."""
        self._uris |= {each.uri: each for each in objects if each.uri not in self._uris}

    def find_keyless(self, columns: Collection[str]) -> Iterator[str]:
        """Yield a sentence for each key column of a later upsert that is not in `columns`.

        Later upserts cannot be applied to the records of a load whose files lack such a column.
        """
        for name in dict.fromkeys(name for each in self._upserts for name in each.key.names):
            if name not in columns:
                yield f'A later load has updated rows by column "{name}", which its files lack.'

    def change(self, sent: TableName, columns: Sequence[str], *, merged: sql.Composed | None, key: Key | None) -> None:
        """Update the records in temporary table `sent` as later upserts have updated their rows. Raises psycopg.Error.

        `columns` are the columns of the records. If the load is an upsert itself, `merged` is a query of the records
        that it has merged by `key`. These are kept for the loads that are compared next.
        """
        connection, table = self.open(), table_identifier(sent)
        flag = sql.Identifier(UPDATED_COLUMN)
        connection.execute(sql.SQL("ALTER TABLE {} ADD {} bool NOT NULL DEFAULT false").format(table, flag))
        # The oldest upsert is the first, because the newest one decides.
        later = self._upserts[::-1]
        if merged is not None and key is not None:
            self._upserts.append(self._keep(merged, key, columns))
        for each in later:
            updated = [name for name in each.columns if name in columns and name not in each.key.names]
            values = [sql.SQL("{name} = u.{name}").format(name=sql.Identifier(name)) for name in updated]
            for is_same in filter(None, [same_key(each.key, "r", "u"), same_lack(each.key, "r", "u")]):
                connection.execute(
                    sql.SQL("UPDATE {} AS r SET {} FROM {} AS u WHERE {}").format(
                        table,
                        sql.SQL(", ").join([*values, sql.SQL("{} = true").format(flag)]),
                        table_identifier(each.records),
                        is_same,
                    )
                )
        self._join_last()

    def _join_last(self) -> None:
        """Add the records of the last upsert to those of the one after it, if both have the same key and columns.

        Then the number of updates does not grow with that of the loads.
        """
        if len(self._upserts) < 2:
            return
        newer, last = self._upserts[-2:]
        if (newer.key.names, newer.columns) != (last.key.names, last.columns):
            return
        one, other = table_identifier(newer.records), table_identifier(last.records)
        known = sql.SQL(" OR ").join(filter(None, [same_key(last.key, "r", "u"), same_lack(last.key, "r", "u")]))
        move = sql.SQL("INSERT INTO {} SELECT * FROM {} AS r WHERE NOT EXISTS (SELECT FROM {} AS u WHERE {})")
        self.open().execute(move.format(one, other, one, known))
        self.open().execute(sql.SQL("DROP TABLE {}").format(other))
        self._upserts.pop()

    def _keep(self, merged: sql.Composed, key: Key, columns: Sequence[str]) -> _Upsert:
        table = TableName(schema="pg_temp", name=f"penstock_upsert_{len(self._upserts)}")
        create = sql.SQL("CREATE TABLE {} AS SELECT {} FROM ({}) AS c")
        self.open().execute(create.format(table_identifier(table), list_identifiers(columns), merged))
        return _Upsert(records=table, key=key, columns=tuple(columns))

    def note_hashes(self, sent: sql.Composed, columns: Sequence[str]) -> None:
        """Keep the hashes of records that no key tells apart from those of other loads. `sent` is a query of them.

        Raises psycopg.Error.
        """
        self._insert_hashes(sent, columns, number=self._keyless.setdefault(tuple(columns), len(self._keyless)))

    def note_rows(self, sent: sql.Composed, columns: Sequence[str]) -> None:
        """Keep the hashes of records in all `columns` of the table, but of those whose rows a later load has updated.

        Raises psycopg.Error.
        """
        self._columns = tuple(columns)
        own = sql.SQL("SELECT * FROM ({}) AS r WHERE NOT {}").format(sent, sql.Identifier(UPDATED_COLUMN))
        self._insert_hashes(own, columns, number=_WHOLE_ROWS)

    def _insert_hashes(self, sent: sql.Composed, columns: Sequence[str], *, number: int) -> None:
        self.open().execute("CREATE TABLE IF NOT EXISTS pg_temp.penstock_hashes (number int, hash bytea)")
        insert = sql.SQL("INSERT INTO pg_temp.penstock_hashes SELECT {}, {} FROM ({}) AS c")
        self.open().execute(insert.format(sql.Literal(number), hash_of(list_identifiers(columns)), sent))

    def count_doubled(self, rows: sql.Composed) -> int:
        """Return how many records of all loads together have no row of their own. `rows` is what follows FROM.

        Raises psycopg.Error.
        """
        of_each = "coalesce(sum(greatest(s.number - coalesce(t.number, 0), 0)), 0)"
        return sum(self._count(of_each, rows, columns, number) for columns, number in self._keyless.items())

    def count_rows(self, rows: sql.Composed) -> int:
        """Return how many rows are records of the loads, each of one record. `rows` is what follows FROM.

        Raises psycopg.Error.
        """
        return self._count("coalesce(sum(least(s.number, coalesce(t.number, 0))), 0)", rows, self._columns, _WHOLE_ROWS)

    def _count(self, counted: LiteralString, rows: sql.Composed, columns: Sequence[str], number: int) -> int:
        if not columns:
            return 0
        query = sql.SQL(
            "SELECT {counted}::int8"
            " FROM (SELECT h.hash, count(*) AS number FROM pg_temp.penstock_hashes AS h WHERE h.number = {number}"
            " GROUP BY 1) AS s"
            " LEFT JOIN (SELECT {hash} AS hash, count(*) AS number FROM {rows} AS t GROUP BY 1) AS t USING (hash)"
        ).format(
            counted=sql.SQL(counted), number=sql.Literal(number), hash=hash_of(list_identifiers(columns)), rows=rows
        )
        return int(fetch_one(self.open(), query)[0])
