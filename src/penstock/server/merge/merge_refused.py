"""The records that a merge has refused, with the reasons, in a temporary table of the merge's transaction.

If the table refuses a chosen record, the record is added to this temporary table. A record that is to be tried again is
moved back to the chosen records.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, LiteralString, NamedTuple

from psycopg import sql

from penstock.model.load.landing import BLOCK_COLUMN, OBJECT_COLUMN, POSITION_COLUMNS, SEQUENCE_COLUMN
from penstock.model.load.reject import FOREIGN_KEY_VIOLATION, Reason
from penstock.server.connect.connection import Connection
from penstock.server.connect.errors import translate_errors
from penstock.server.merge.merge_key import same_key, same_lack
from penstock.server.merge.merge_locate import RecordPosition
from penstock.server.merge.merge_sorting_statements import (
    ADD_SAME_KEYS,
    NOTE,
    READ_REFUSED,
    SAME_POSITION,
    TAKE_REFERENCES,
)
from penstock.server.sql.queries import fetch_one, list_identifiers, table_identifier

if TYPE_CHECKING:
    from penstock.server.merge.merge import MergeParts

_COMMA: Final = sql.SQL(", ")

# The columns for the reason. They follow the record's own columns.
_REASONS: Final = ("penstock_sqlstate", "penstock_message", "penstock_detail", "penstock_column")

# The beginning of the message for a record that is rejected because another record with its key was refused.
_SAME_KEY: Final = "another record with this key was rejected: "

# How many refused records one fetch returns.
_FETCHED = 1000


class RefusedRecord(NamedTuple):
    """A record that the merge refused."""

    # It counts only the staged records of the block, from 1.
    position: RecordPosition
    reason: Reason


class RefusedRecords:
    """The refused records of one merge. Methods raise ServerError.

    `number` distinguishes the merges of a transaction.
    """

    def __init__(self, connection: Connection, parts: MergeParts, *, number: int) -> None:
        self._connection = connection
        self._parts = parts
        self._table = sql.Identifier("pg_temp", f"penstock_refused_{number}")
        self._columns = (*parts.columns, *POSITION_COLUMNS)
        self._reasons = _free_names(_REASONS, taken=parts.columns)
        self._names: dict[str, sql.Composable] = {
            "refused": self._table,
            "staging": table_identifier(parts.staging),
            "columns": list_identifiers(self._columns),
            "staged_columns": _COMMA.join(sql.Identifier("s", name) for name in self._columns),
            "reasons": list_identifiers(self._reasons),
            "object": sql.Identifier(OBJECT_COLUMN),
            "block": sql.Identifier(BLOCK_COLUMN),
            "sequence": sql.Identifier(SEQUENCE_COLUMN),
            "reference": sql.Literal(FOREIGN_KEY_VIOLATION),
            "same_key": sql.Literal(_SAME_KEY),
        } | {
            name: sql.Identifier(reason)
            for name, reason in zip(("sqlstate", "message", "detail", "column"), self._reasons, strict=True)
        }
        self._names["same_position"] = self._compose(SAME_POSITION)

    def make(self, chosen: sql.Identifier) -> None:
        """Create the table, with the columns of the table `chosen`."""
        definitions = _COMMA.join(sql.SQL("{} pg_catalog.text").format(sql.Identifier(name)) for name in self._reasons)
        self._connection.execute(
            sql.SQL("CREATE TABLE {} (LIKE {}, {}) ON COMMIT DROP").format(self._table, chosen, definitions)
        )

    def compose_note(self, chosen: sql.Identifier) -> sql.Composed:
        """Return the statement, a part of the sorting statement, that records a refused record."""
        return self._compose(NOTE, stage=chosen)

    def count(self) -> int:
        """Return the number of refused records."""
        return self._count("SELECT pg_catalog.count(*) FROM {refused}")

    # ---------------------------------------------------------------- records that may be stored after all

    def count_references(self) -> int:
        """Return how many records violate a foreign key and may be tried again."""
        return self._count("SELECT pg_catalog.count(*) FROM {refused} WHERE {sqlstate} = {reference}")

    def take_references(self, chosen: sql.Identifier, *, is_backwards: bool) -> int:
        """Move the records that violate a foreign key back to the chosen ones. Return how many records were moved.

        With `is_backwards`, they are moved in descending order of their positions.
        """
        direction = sql.SQL(" DESC" if is_backwards else "")
        order = _COMMA.join(sql.Identifier(name) + direction for name in POSITION_COLUMNS)
        return self._connection.execute(self._compose(TAKE_REFERENCES, chosen=chosen, order=order)).rowcount

    def add_same_keys(self) -> None:
        """Refuse all records that have the same key as a refused record, with that record's SQLSTATE."""
        if not self.count():
            return
        self._analyze(self._table)
        for same in self._ways_to_be_same():
            self._connection.execute(self._compose(ADD_SAME_KEYS, same=same))

    def _ways_to_be_same(self) -> list[sql.Composed]:
        """Return conditions, one of which is true if records s and r have the same key."""
        assert self._parts.key is not None
        lack = same_lack(self._parts.key, "s", "r")
        return [same_key(self._parts.key, "s", "r"), *([] if lack is None else [lack])]

    # ---------------------------------------------------------------- records that stay refused

    def read_blocks(self) -> dict[int, list[int]]:
        """Return, for each object, the ascending offsets of the blocks that have refused records."""
        query = self._compose(
            "SELECT {object}, pg_catalog.array_agg(DISTINCT {block} ORDER BY {block}) FROM {refused} GROUP BY {object}"
        )
        with translate_errors("reading refused records"):
            return dict(self._connection.execute(query).fetchall())

    def read(self) -> Iterator[RefusedRecord]:
        """Yield the refused records in file order. Other statements may run in between."""
        with translate_errors("reading refused records"):
            self._analyze(self._table)
            with self._connection.cursor(name="penstock_refused") as cursor:
                cursor.execute(self._compose(READ_REFUSED))
                while rows := cursor.fetchmany(_FETCHED):
                    for number, start, record, sqlstate, message, detail, column in rows:
                        position = RecordPosition(object_number=number, block_start=start, record=record)
                        reason = Reason(sqlstate=sqlstate, message=message, detail=detail, column=column)
                        yield RefusedRecord(position, reason)

    def discard(self) -> None:
        """Delete the refused records from the staging table."""
        with translate_errors("removing refused records"):
            self._connection.execute(
                self._compose("DELETE FROM {staging} AS s USING {refused} AS r WHERE {same_position}")
            )

    def _count(self, query: LiteralString) -> int:
        with translate_errors("counting refused records"):
            return int(fetch_one(self._connection, self._compose(query))[0])

    def _compose(self, text: LiteralString, **names: sql.Composable) -> sql.Composed:
        return sql.SQL(text).format(**(self._names | names))

    def _analyze(self, table: sql.Identifier) -> None:
        """Update the planner's statistics of a temporary table."""
        self._connection.execute(sql.SQL("ANALYZE {}").format(table))


def _free_names(names: Sequence[str], *, taken: Sequence[str]) -> tuple[str, ...]:
    """Return names that no column of the file has.

    >>> _free_names(("a", "b"), taken=("b", "b_"))
    ('a', 'b__')
    """
    free = []
    for name in names:
        while name in taken:
            name += "_"  # noqa: PLW2901
        free.append(name)
    return tuple(free)
