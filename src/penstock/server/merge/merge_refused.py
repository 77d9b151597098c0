"""Records that a merge has refused, with the reasons, in a temporary table of the merge's transaction.

What was chosen for the table and refused comes here; what may go in after all is taken out again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, LiteralString, NamedTuple

from psycopg import sql

from penstock.model.load.landing import BLOCK_COLUMN, OBJECT_COLUMN, POSITION_COLUMNS, SEQUENCE_COLUMN
from penstock.model.load.reject import FOREIGN_KEY_VIOLATION
from penstock.server.connect.errors import translate_errors
from penstock.server.merge.merge_key import same_key, same_lack
from penstock.server.merge.merge_locate import staging_identifier
from penstock.server.merge.merge_sorting_statements import (
    LOOK_AT,
    NOTE,
    NOTE_ALONE,
    NOTE_FOLLOWED,
    READ_REFUSED,
    SAME_PLACE,
    TAKE_REFERENCES,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.server.connect.connection import Connection
    from penstock.server.merge.merge import MergeParts

_COMMA: Final = sql.SQL(", ")

# Rows of a refused record: not looked at yet, without another record of its key, followed by one, and just looked at.
_FRESH, _ALONE, _FOLLOWED, _LOOKED_AT = range(4)

# What a refused record is noted with behind its own columns.
_REASONS: Final = ("penstock_sqlstate", "penstock_message", "penstock_detail", "penstock_column", "penstock_state")

# How many refused records are fetched at once.
_FETCHED = 1000


class RefusedRecord(NamedTuple):
    """A record that the merge refused: its object's number, its block's offset, its number in the block, and why.

    The number counts from 1 those records of the block that were staged.
    """

    object_number: int
    block_start: int
    record: int
    sequence: int
    sqlstate: str
    message: str
    detail: str | None
    column: str | None


class RefusedRecords:
    """The refused records of one merge. Methods raise ServerError; `number` tells several of one transaction apart."""

    def __init__(self, connection: Connection, parts: MergeParts, *, number: int) -> None:
        self._connection = connection
        self._parts = parts
        self._table = sql.Identifier("pg_temp", f"penstock_refused_{number}")
        self._columns = (*parts.columns, *POSITION_COLUMNS)
        self._reasons = _free_names(_REASONS, taken=parts.columns)
        self._names: dict[str, sql.Composable] = {
            "refused": self._table,
            "staging": staging_identifier(parts.staging),
            "columns": _join(self._columns),
            "reasons": _join(self._reasons),
            "object": sql.Identifier(OBJECT_COLUMN),
            "block": sql.Identifier(BLOCK_COLUMN),
            "sequence": sql.Identifier(SEQUENCE_COLUMN),
            "reference": sql.Literal(FOREIGN_KEY_VIOLATION),
            "fresh": sql.Literal(_FRESH),
            "alone": sql.Literal(_ALONE),
            "followed": sql.Literal(_FOLLOWED),
            "looked_at": sql.Literal(_LOOKED_AT),
        } | {
            name: sql.Identifier(reason)
            for name, reason in zip(("sqlstate", "message", "detail", "column", "state"), self._reasons, strict=True)
        }
        self._names["same_place"] = self._compose(SAME_PLACE)

    def make(self, chosen: sql.Identifier) -> None:
        """Make the table, for records of a table of chosen ones."""
        types = (*["pg_catalog.text"] * (len(self._reasons) - 1), "pg_catalog.int2")
        definitions = _COMMA.join(
            sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(type_name))
            for name, type_name in zip(self._reasons, types, strict=True)
        )
        self._connection.execute(
            sql.SQL("CREATE TABLE {} (LIKE {}, {}) ON COMMIT DROP").format(self._table, chosen, definitions)
        )

    def compose_note(self, chosen: sql.Identifier) -> sql.Composed:
        """Return what notes a chosen record within the statement that sorts."""
        return self._compose(NOTE, stage=chosen)

    def count(self) -> int:
        """Return how many records are refused."""
        return self._count("SELECT pg_catalog.count(*) FROM {refused}")

    # ---------------------------------------------------------------- those that may go in after all

    def count_references(self) -> int:
        """Return how many records refer to something that is not there, and may be tried again."""
        return self._count(
            "SELECT pg_catalog.count(*) FROM {refused} WHERE {sqlstate} = {reference} AND {state} <> {followed}"
        )

    def take_references(self, chosen: sql.Identifier, *, is_backwards: bool) -> int:
        """Move those to the chosen records; return how many there were."""
        direction = sql.SQL(" DESC" if is_backwards else "")
        order = _COMMA.join(sql.Identifier(name) + direction for name in POSITION_COLUMNS)
        return self._connection.execute(self._compose(TAKE_REFERENCES, chosen=chosen, order=order)).rowcount

    def look_at(self, *, references: bool) -> int:
        """Mark records that nobody has looked at for others of their key, of one kind; return how many there were."""
        found = self._connection.execute(self._compose(LOOK_AT, references=sql.Literal(references))).rowcount
        if found:
            self._analyze(self._table)
        return found

    def compose_behind(self) -> sql.Composed:
        """Return what is true of a record s that is not refused and has the key of one just looked at."""
        arms = [
            self._compose(
                "SELECT s.ctid FROM {staging} AS s"
                " WHERE EXISTS (SELECT FROM {refused} AS r WHERE r.{state} = {looked_at} AND {same})",
                same=same,
            )
            for same in self._ways_to_be_same()
        ]
        return self._compose(
            "s.ctid IN ({arms}) AND NOT EXISTS (SELECT FROM {refused} AS r WHERE {same_place})",
            arms=sql.SQL(" UNION ALL ").join(arms),
        )

    def note_followers(self, chosen: sql.Identifier) -> None:
        """Note of the records just looked at which have a chosen one of their key behind them."""
        self._analyze(chosen)
        for same in self._ways_to_be_same():
            self._connection.execute(self._compose(NOTE_FOLLOWED, chosen=chosen, same=same))
        self._connection.execute(self._compose(NOTE_ALONE))

    def _ways_to_be_same(self) -> list[sql.Composed]:
        """Return the conditions of which one is true of records s and r with the same key."""
        assert self._parts.key is not None
        lack = same_lack(self._parts.key, "s", "r")
        return [same_key(self._parts.key, "s", "r"), *([] if lack is None else [lack])]

    # ---------------------------------------------------------------- those that do not

    def read_blocks(self) -> dict[int, list[int]]:
        """Return the offsets of the blocks of which records are refused, in ascending order, by their objects."""
        query = self._compose(
            "SELECT {object}, pg_catalog.array_agg(DISTINCT {block} ORDER BY {block}) FROM {refused} GROUP BY {object}"
        )
        with translate_errors("reading refused records"):
            return dict(self._connection.execute(query).fetchall())

    def read(self) -> Iterator[RefusedRecord]:
        """Yield the refused records in file order. Other statements may be run meanwhile."""
        with translate_errors("reading refused records"):
            self._analyze(self._table)
            with self._connection.cursor(name="penstock_refused") as cursor:
                cursor.execute(self._compose(READ_REFUSED))
                while rows := cursor.fetchmany(_FETCHED):
                    yield from map(RefusedRecord._make, rows)

    def discard(self) -> None:
        """Remove the refused records from the staging table."""
        with translate_errors("removing refused records"):
            self._connection.execute(
                self._compose("DELETE FROM {staging} AS s USING {refused} AS r WHERE {same_place}")
            )

    def _count(self, query: LiteralString) -> int:
        with translate_errors("counting refused records"):
            row = self._connection.execute(self._compose(query)).fetchone()
        assert row is not None
        return int(row[0])

    def _compose(self, text: LiteralString, **names: sql.Composable) -> sql.Composed:
        return sql.SQL(text).format(**(self._names | names))

    def _analyze(self, table: sql.Identifier) -> None:
        """Tell the planner how many rows a temporary table has."""
        self._connection.execute(sql.SQL("ANALYZE {}").format(table))


def _free_names(names: Sequence[str], *, taken: Sequence[str]) -> tuple[str, ...]:
    """Return names that no column has: a file may have any.

    >>> _free_names(("a", "b"), taken=("b", "b_"))
    ('a', 'b__')
    """
    free = []
    for name in names:
        while name in taken:
            name += "_"  # noqa: PLW2901
        free.append(name)
    return tuple(free)


def _join(names: Sequence[str]) -> sql.Composed:
    return _COMMA.join(map(sql.Identifier, names))
