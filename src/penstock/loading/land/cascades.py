"""Finds what the deletions of a sync change beyond their rows: by ON DELETE CASCADE, SET NULL or SET DEFAULT.

No deletion may touch a record of the files. The server would delete or change a row that refers to a deleted one
without a word, also if the load has just stored it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import TYPE_CHECKING, Final

from psycopg import sql

from penstock.core.catalogue.staging import POSITION_COLUMNS
from penstock.core.connect.connection import Connection
from penstock.core.connect.errors import translate_errors
from penstock.core.errors import DataError, FileLocation
from penstock.core.slotted import slotted
from penstock.core.sql import fetch_names, fetch_rows, table_identifier
from penstock.core.values.table import TableName
from penstock.loading.land.merge_errors import NameRecord, find_position
from penstock.loading.land.merge_key import Key, find_key, same_key

if TYPE_CHECKING:
    from penstock.loading.land.context import TargetLanding

# The actions that change a row which refers to a deleted one: pg_constraint.confdeltype.
_ACTIONS: Final = {"c": "ON DELETE CASCADE", "n": "ON DELETE SET NULL", "d": "ON DELETE SET DEFAULT"}

_AND: Final = sql.SQL(" AND ")
_UNION: Final = sql.SQL(" UNION ALL ")

# The rows that are deleted: their tables (partitions) and places.
_DELETED: Final = """
    WITH RECURSIVE penstock_deleted (penstock_table, penstock_row) AS MATERIALIZED (({missing}){cascades})
"""
# The first record of the files. The order also makes the server plan for all rows: it expects to find one soon, and
# none exists.
_FIRST: Final = " ORDER BY 1, 2, 3, 4 LIMIT 1"
_CASCADES: Final = """
    UNION
    SELECT n.penstock_table, n.penstock_row
      FROM penstock_deleted AS d
     CROSS JOIN LATERAL ({cascades}) AS n (penstock_table, penstock_row)
"""
_CASCADE: Final = """
    SELECT c.tableoid, c.ctid FROM {referenced} AS p JOIN {referencing} AS c ON {same} WHERE {is_deleted}
"""
_IS_DELETED: Final = "p.tableoid = d.penstock_table AND p.ctid = d.penstock_row"
# A record, by its position, and the values of its key and of the row to which it refers.
_TOUCHED: Final = """
    SELECT {number}, {positions}, ARRAY[{values}], ARRAY[{referenced_values}]
      FROM penstock_deleted AS d
      JOIN {referenced} AS p ON {is_deleted}
      JOIN {records} ON {same}
"""
# The rows that this transaction has written. Its subtransactions have later numbers. The few rows that other sessions
# have committed since count as records too.
_WRITTEN: Final = sql.SQL("pg_catalog.age(c.xmin) <= 0")
# The rows of a key's table that belong to a target. Both may be partitions of one table.
_BELONGS: Final = """
    c.tableoid IN (SELECT t.relid FROM pg_catalog.pg_partition_tree({oid}) AS t UNION SELECT {oid}::pg_catalog.regclass)
"""


@slotted
class ForeignKeyRow:
    """The row of foreign_keys_to.sql: a foreign key to a table from which rows are deleted, itself or by a cascade."""

    name: str
    # pg_constraint.confdeltype.
    action: str
    # Whether it refers to the table itself, not only to a table from which rows are deleted by ON DELETE CASCADE.
    is_direct: bool
    # The referencing table.
    oid: int
    schema: str
    table: str
    # Whether it is an ordinary table, not a partitioned one.
    is_plain: bool
    referenced_oid: int
    referenced_schema: str
    referenced_table: str
    is_referenced_plain: bool
    # The columns of the key in both tables, and the = operators between them, in the same order. An operator has the
    # form OPERATOR(schema.name).
    columns: list[str]
    referenced_columns: list[str]
    operators: list[str]
    # The OIDs of the referencing table, its partitions and its parents.
    line: list[int]

    @property
    def changes_rows(self) -> bool:
        """Return whether ON DELETE changes or deletes the referencing rows. If not, it refuses the deletion."""
        return self.action in _ACTIONS

    @property
    def deed(self) -> str:
        """Return the key's ON DELETE clause, such as ON DELETE SET NULL. Raises KeyError unless `changes_rows`."""
        return _ACTIONS[self.action]

    def relation(self, *, is_referenced: bool) -> sql.Composed:
        """Return the referenced or the referencing table for FROM, with ONLY unless it is partitioned.

        Tables that inherit from the table are not part of the key.
        """
        if is_referenced:
            only, name = self.is_referenced_plain, sql.Identifier(self.referenced_schema, self.referenced_table)
        else:
            only, name = self.is_plain, sql.Identifier(self.schema, self.table)
        return sql.SQL("ONLY " if only else "") + name

    def refers(self, alias: str) -> sql.Composed:
        """Return the SQL condition that the row with alias `alias` refers to the row with alias p."""
        terms = (
            sql.SQL("{} {} {}").format(sql.Identifier("p", there), sql.SQL(operator), sql.Identifier(alias, here))
            for there, operator, here in zip(self.referenced_columns, self.operators, self.columns, strict=True)
        )
        return _AND.join(terms)


@slotted
class _TargetRecords:
    """The staged records of a target. `key` is the merge key, None if the records are only inserted."""

    landing: TargetLanding
    staging: TableName
    key: Key | None

    def compose(self, foreign_key: ForeignKeyRow) -> tuple[sql.Composed, sql.Composed]:
        """Return what follows JOIN, and the SQL condition that the row of a record refers to the row with alias p.

        Without a merge key, the staging table itself is joined if its records have the values of the foreign key
        (`say_all`). Otherwise the referencing table is joined with alias c, and with a merge key the staging table too.
        The staging table's alias is s.
        """
        staging = table_identifier(self.staging)
        if self.key is None and self.say_all(foreign_key):
            return sql.SQL("{} AS s").format(staging), foreign_key.refers("s")
        rows = sql.SQL("{} AS c").format(foreign_key.relation(is_referenced=False))
        belongs = sql.SQL(_BELONGS).format(oid=sql.Literal(self.landing.facts.oid))
        if self.key is None:
            return rows, _AND.join([foreign_key.refers("c"), belongs, _WRITTEN])
        joined = sql.SQL("{} ON {} JOIN {} AS s").format(rows, foreign_key.refers("c"), staging)
        return joined, _AND.join([same_key(self.key, "s", "c"), belongs])

    def say_all(self, foreign_key: ForeignKeyRow) -> bool:
        """Return whether a staged record has the same values in the foreign key's columns as its row.

        It has if the files have all these columns, and the table has no triggers.
        """
        target, facts = self.landing.target, self.landing.facts
        has_triggers = facts.suppressing_triggers or facts.row_triggers or facts.statement_triggers
        return set(foreign_key.columns) <= set(target.column_map.columns) and not has_triggers

    def aliases(self, foreign_key: ForeignKeyRow) -> tuple[str, str | None]:
        """Return two aliases of the query: of the table whose values an error shows, and of the staging table.

        The second is None if the query does not join the staging table.
        """
        if self.key is not None:
            return "c", "s"
        return ("s", "s") if self.say_all(foreign_key) else ("c", None)

    def shown(self, foreign_key: ForeignKeyRow) -> Sequence[str]:
        """Return the names of the columns whose values an error shows: the merge key or else the foreign key."""
        return foreign_key.columns if self.key is None else self.key.names


def find_foreign_keys(connection: Connection, oid: int) -> list[ForeignKeyRow]:
    """Return the foreign keys that refer to a table, or to a table from which ON DELETE CASCADE deletes rows.

    `oid` is the OID of the table from which rows are to be deleted. Raises ServerError.
    """
    with translate_errors("looking up the foreign keys that refer to a table"):
        return fetch_rows(connection, "loading/foreign_keys_to", ForeignKeyRow, oid=oid)


def find_triggers(connection: Connection, oids: Iterable[int]) -> list[str]:
    """Return the enabled triggers of tables and their partitions, such as `audit ON orders`. Raises ServerError.

    Triggers of constraints are not returned. `oids` are the OIDs of the tables.
    """
    with translate_errors("looking up triggers"):
        return fetch_names(connection, "loading/user_triggers", oids=sorted(oids))


def describe_cascades(foreign_keys: Iterable[ForeignKeyRow]) -> tuple[str, ...]:
    """Return the referencing tables whose rows ON DELETE changes, such as `public.orders (ON DELETE CASCADE)`."""
    return tuple(dict.fromkeys(f"{key.schema}.{key.table} ({key.deed})" for key in foreign_keys if key.changes_rows))


def refuse_touched(
    connection: Connection,
    missing: Sequence[tuple[sql.Composed, Sequence[ForeignKeyRow]]],
    landings: Sequence[TargetLanding],
    *,
    name_record: NameRecord,
) -> None:
    """Raise DataError if deletions of a sync would, by ON DELETE, delete or change the row of a record of the files.

    `missing` has a pair for each synced table: the query for tableoid and ctid of the rows to be deleted, and the
    foreign keys from `find_foreign_keys`. `landings` are the staged targets of the load. The error names the record by
    `name_record`. Raises ServerError.
    """
    keys = list({(key.oid, key.name): key for _, found in missing for key in found if key.changes_rows}.values())
    records = list(_find_records(connection, landings))
    pairs = [(key, each) for key, each in product(keys, records) if each.landing.facts.oid in key.line]
    if not pairs:
        return
    with translate_errors("looking for records that deletions would change"):
        row = connection.execute(_compose(keys, [query for query, _ in missing], pairs)).fetchone()
        if row is None:
            return
        number, *position, values, referenced_values = row
        key, touched = pairs[number]
        found: FileLocation | str = "a new row"
        if None not in position:
            found = name_record(find_position(connection, touched.staging, *position))
    error = DataError(
        f'cannot sync table "{key.referenced_schema}.{key.referenced_table}": a record of the files refers to a row'
        " that is to be deleted",
        detail=f'{found}: record {_describe(touched.shown(key), values)} of table "{touched.landing.facts.name}"'
        f' refers to row {_describe(key.referenced_columns, referenced_values)} by foreign key "{key.name}",'
        f" {key.deed}: it would be {'deleted' if key.action == 'c' else 'changed'} with it.",
        hint="Add the row to the files, or correct the record.",
    )
    error.location = found if isinstance(found, FileLocation) else None
    raise error


def _find_records(connection: Connection, landings: Sequence[TargetLanding]) -> Iterator[_TargetRecords]:
    """Yield the records whose rows are known. The rows that a transform's statement stores are not."""
    for landing in landings:
        if landing.table is not None and landing.target.landing.statement == "merge":
            merge_key = landing.target.job.merge_key
            key = find_key(connection, landing.facts, merge_key) if merge_key else None
            yield _TargetRecords(landing=landing, staging=landing.table, key=key)


def _compose(
    keys: Sequence[ForeignKeyRow],
    missing: Sequence[sql.Composed],
    pairs: Sequence[tuple[ForeignKeyRow, _TargetRecords]],
) -> sql.Composed:
    """Return the query for one record whose row would be deleted or changed."""
    is_deleted = sql.SQL(_IS_DELETED)
    cascades = [
        sql.SQL(_CASCADE).format(
            referenced=key.relation(is_referenced=True),
            referencing=key.relation(is_referenced=False),
            same=key.refers("c"),
            is_deleted=is_deleted,
        )
        for key in keys
        # Follow a cascade only if other keys refer to the rows that it deletes. Without recursion, the server can join
        # all rows at once.
        if key.action == "c" and any(other.referenced_oid in key.line for other in keys)
    ]
    touched = []
    for number, (key, records) in enumerate(pairs):
        joined, same = records.compose(key)
        row, record = records.aliases(key)
        touched.append(
            sql.SQL(_TOUCHED).format(
                number=sql.Literal(number),
                positions=sql.SQL(", ").join(
                    sql.SQL("NULL::bigint") if record is None else sql.Identifier(record, name)
                    for name in POSITION_COLUMNS
                ),
                values=_as_texts(row, records.shown(key)),
                referenced_values=_as_texts("p", key.referenced_columns),
                referenced=key.relation(is_referenced=True),
                is_deleted=is_deleted,
                records=joined,
                same=same,
            )
        )
    arms = sql.SQL(_CASCADES).format(cascades=_UNION.join(cascades)) if cascades else sql.SQL("")
    deleted = sql.SQL(_DELETED).format(missing=_UNION.join(missing), cascades=arms)
    return deleted + _UNION.join(touched) + sql.SQL(_FIRST)


def _as_texts(alias: str, names: Sequence[str]) -> sql.Composed:
    return sql.SQL(", ").join(sql.SQL("{}::pg_catalog.text").format(sql.Identifier(alias, name)) for name in names)


def _describe(names: Sequence[str], values: Sequence[str | None]) -> str:
    shown = ", ".join("null" if value is None else value for value in values)
    return f"({', '.join(names)})=({shown})"
