"""Merges staged records if the table refuses some: stores the others, and records the refused ones by position.

The records for the table, one for each key, are copied into a temporary table in the order of the merge. From there one
DO statement merges them in stretches, each under its own savepoint (sorting.py). A refused record goes to another
temporary table with the reason. Records that violate a foreign key are tried again as long as some succeed. At the end,
all other records with the key of a refused one are refused too.

Everything happens in the caller's transaction, and the staging table is only read. The role needs the rights for the
merge, TEMPORARY on the database and USAGE on plpgsql.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, LiteralString, NamedTuple

from psycopg import sql

from penstock.core.catalogue.staging import BLOCK_COLUMN, OBJECT_COLUMN, POSITION_COLUMNS, SEQUENCE_COLUMN
from penstock.core.connect.connection import Connection
from penstock.core.connect.errors import translate_errors
from penstock.core.connect.search_path import SETTINGS, users_settings
from penstock.core.sql import fetch_one, list_identifiers, table_identifier
from penstock.ledger.rejects import FOREIGN_KEY_VIOLATION, Reason
from penstock.loading.land.merge import MergeCounts, MergeParts, PlanCounts, count_staged
from penstock.loading.land.merge_errors import RecordPosition
from penstock.loading.land.merge_key import same_key, same_lack
from penstock.loading.rejects.sorting import SortingParts, compose_sorting

# The PL/pgSQL code that stores a stretch and reads the server's counts from the plan. It composes the statement's text
# before it changes search_path to the user's.
STORE_COUNTED: Final = """
            statement := {head} || pg_catalog.quote_literal(sorting.lower) || {middle}
                || pg_catalog.quote_literal(sorting.upper) || {tail};
            {to_users};
            EXECUTE statement INTO plan;
            {to_own};
            affected := pg_catalog.json_extract_path_text(plan, '0', 'Plan', 'Actual Rows')::numeric;
            met := pg_catalog.json_extract_path_text(plan, '0', 'Plan', 'Conflicting Tuples')::numeric;
"""
STORE_ALL: Final = """
            statement := {head} || pg_catalog.quote_literal(sorting.lower) || {middle}
                || pg_catalog.quote_literal(sorting.upper) || {tail};
            {to_users};
            EXECUTE statement;
            GET DIAGNOSTICS affected = ROW_COUNT;
            {to_own};
"""
DECLARATIONS: Final = """
    statement text;
    plan json;
    met int8 := 0;
    conflicts int8 := 0;
    proposed int8 := 0;
    noted int8 := 0;
"""
COUNT: Final = """
            conflicts := conflicts + met;
            proposed := proposed + (last - first + 1);
"""
NOTE: Final = """
                INSERT INTO {refused} ({columns}, {reasons})
                SELECT {columns}, sorting.code, sorting.words, NULLIF(sorting.more, ''), NULLIF(sorting.field, '')
                  FROM {stage} AS s
                 WHERE s.ctid = sorting.places[sorting.bad];
                noted := noted + CASE WHEN sorting.code = {reference} THEN 0 ELSE 1 END;
"""
OUTCOME: Final = """
        pg_catalog.json_build_object('stored', stored, 'proposed', proposed, 'conflicts', conflicts, 'noted', noted)
"""

READ_REFUSED: Final = """
    SELECT r.{object}, r.{block}, n.penstock_record, r.{sqlstate}, r.{message}, r.{detail}, r.{column}
      FROM {refused} AS r
      JOIN (
               SELECT s.{object}, s.{block}, s.{sequence},
                      pg_catalog.row_number() OVER (PARTITION BY s.{object}, s.{block} ORDER BY s.{sequence})
                          AS penstock_record
                 FROM {staging} AS s
                 JOIN (SELECT DISTINCT b.{object}, b.{block} FROM {refused} AS b) AS b
                   ON b.{object} = s.{object} AND b.{block} = s.{block}
           ) AS n
        ON n.{object} = r.{object} AND n.{block} = r.{block} AND n.{sequence} = r.{sequence}
     ORDER BY r.{object}, r.{block}, r.{sequence}
"""

# Refuses the records that have the key of a refused record. Several refused records may have one key only if it has
# nulls. Then the reason of any of them is used.
ADD_SAME_KEYS: Final = """
    INSERT INTO {refused} ({columns}, {reasons})
    SELECT DISTINCT ON (s.{object}, s.{block}, s.{sequence})
           {staged_columns}, r.{sqlstate}, {same_key} || r.{message}, r.{detail}, r.{column}
      FROM {staging} AS s
      JOIN {refused} AS r ON {same}
     WHERE NOT EXISTS (SELECT FROM {refused} AS r WHERE {same_position})
"""
TAKE_REFERENCES: Final = """
    WITH moved AS (
        DELETE FROM {refused} WHERE {sqlstate} = {reference} RETURNING {columns}
    )
    INSERT INTO {chosen} ({columns}) SELECT {columns} FROM moved ORDER BY {order}
"""
SAME_POSITION: Final = "r.{object} = s.{object} AND r.{block} = s.{block} AND r.{sequence} = s.{sequence}"


_COMMA: Final = sql.SQL(", ")

# The columns for the reason in the table of refused records. They follow the record's own columns.
_REASONS: Final = ("penstock_sqlstate", "penstock_message", "penstock_detail", "penstock_column")

# The beginning of the message for a record that is rejected because another record with its key was refused.
_SAME_KEY: Final = "another record with this key was rejected: "

# How many refused records one fetch returns.
_FETCHED = 1000


class RefusedRecord(NamedTuple):
    """A record that the merge refused."""

    # The record's position in the files. In it, `record` counts only the staged records of the block, from 1.
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


_TEMPORARY: Final = "pg_temp"

# The largest number of records in a stretch. A stretch costs as much overhead as some hundred rows. For each bad record
# in a stretch, the stretch is undone and stored again.
_MOST_IN_STRETCH = 20_000


@dataclass(slots=True)
class _Sums:
    stored: int = 0
    proposed: int = 0
    conflicts: int = 0
    noted: int = 0


class MergeSorter:
    """Merges one staging table and rejects its bad records. Methods raise PenstockError.

    Call `merge`, and then `settle` with the sorters of all tables. The attribute `refused` has the records that were
    not stored.
    """

    def __init__(
        self,
        connection: Connection,
        parts: MergeParts,
        *,
        # Distinguishes the merges of a transaction.
        number: int,
        # Prefixes of the SQLSTATEs that a single bad record causes.
        own_codes: Sequence[str],
        # How many bytes of records one statement merges at most, because the statement keeps the position of each row
        # in memory.
        portion_bytes: int,
    ) -> None:
        self._connection = connection
        self._portion_bytes = portion_bytes
        self._parts = replace(parts, is_sorted_out=True)
        self._own_codes = own_codes
        name = f"penstock_merge_{number}"
        self._chosen = sql.Identifier(_TEMPORARY, name)
        self._owner = sql.Identifier(_TEMPORARY, name, OBJECT_COLUMN)
        self.refused = RefusedRecords(connection, parts, number=number)
        self._counter = sql.Identifier(_TEMPORARY, f"penstock_merge_counter_{number}")
        self._columns = (*parts.columns, *POSITION_COLUMNS)
        self._what = f"merging into {parts.target.name}"
        self._sums = _Sums()
        self._staged = 0
        self._has_others = False
        self._is_backwards = True

    @property
    def noted(self) -> int:
        """Return how many records have been refused so far, not counting those that violate a foreign key."""
        return self._sums.noted

    def merge(self, *, limit: int | None = None) -> None:
        """Try to store all records for the first time. Stop if more than `limit` of them are refused for good."""
        with translate_errors(self._what):
            made = self._connection.execute(
                sql.SQL("CREATE TEMPORARY TABLE {} ON COMMIT DROP AS {}").format(self._chosen, self._compose_choice())
            ).rowcount
            self.refused.make(self._chosen)
            self._connection.execute(
                sql.SQL("CREATE SEQUENCE {} CACHE 1000 OWNED BY {}").format(self._counter, self._owner)
            )
        self._staged = count_staged(self._connection, self._parts.staging)
        self._has_others = self._staged > made
        self._process(limit=limit)

    def retry_references(self) -> int:
        """Try records that violate a foreign key again. Return how many were stored."""
        with translate_errors(self._what):
            moved = self.refused.take_references(self._chosen, is_backwards=self._is_backwards)
        if not moved:
            return 0
        self._is_backwards = not self._is_backwards
        # Try all in one stretch first, because they may refer to each other.
        self._process(first_size=moved)
        return moved - self.refused.count_references()

    def refuse_same_keys(self) -> None:
        """Refuse the records that have the key of a refused one. Call this when no more records can be stored."""
        if self._has_others:
            with translate_errors(self._what):
                self.refused.add_same_keys()

    def counts(self) -> MergeCounts:
        """Return the counts of all records except the refused ones."""
        sums = self._sums
        # Each record was either refused, or proposed to the table once, or left out because another record has its key.
        staged = self._staged - self.refused.count()
        assert sums.proposed == staged or self._has_others
        counted = PlanCounts(
            staged=staged,
            proposed=sums.proposed,
            conflicts=sums.conflicts,
            stored=sums.stored,
        )
        return self._parts.count(counted)

    # ---------------------------------------------------------------- stretches

    def _process(self, *, limit: int | None = None, first_size: int = 16) -> None:
        """Store the chosen records, a portion of pages at a time."""
        with translate_errors(self._what):
            pages, portion = self._find_pages()
            for page in range(0, pages, portion):
                self._take_on(page, page + portion, first_size=first_size)
                if limit is not None and self._sums.noted > limit:
                    return
            self._connection.execute(sql.SQL("TRUNCATE {}").format(self._chosen))

    def _find_pages(self) -> tuple[int, int]:
        """Return the number of pages of the chosen records, and the number of pages in a portion."""
        size_bytes, page_bytes = fetch_one(
            self._connection,
            "SELECT pg_catalog.pg_relation_size(%s::regclass), pg_catalog.current_setting('block_size')::int8",
            [self._chosen.as_string(self._connection)],
        )
        return size_bytes // page_bytes, max(1, self._portion_bytes // page_bytes)

    def _take_on(self, page: int, behind: int, *, first_size: int) -> None:
        sums = self._sums
        statement = compose_sorting(
            self._connection,
            self._own_codes,
            SortingParts(
                stage=self._chosen,
                portion=sql.SQL("WHERE s.ctid >= {}::tid AND s.ctid < {}::tid").format(
                    sql.Literal(f"({page},0)"), sql.Literal(f"({behind},0)")
                ),
                declarations=sql.SQL(DECLARATIONS),
                store=self._compose_store(),
                after_stretch=sql.SQL(COUNT),
                note=self.refused.compose_note(self._chosen),
                outcome=sql.SQL(OUTCOME),
            ),
            counter=self._counter,
            most_in_stretch=_MOST_IN_STRETCH,
            first_size=first_size,
        )
        self._connection.execute(statement)
        (text,) = fetch_one(self._connection, "SELECT pg_catalog.current_setting('penstock.outcome')")
        outcome = json.loads(text)
        sums.stored += outcome["stored"]
        sums.proposed += outcome["proposed"]
        sums.conflicts += outcome["conflicts"]
        sums.noted += outcome["noted"]

    def _compose_store(self) -> sql.Composed:
        """Return the PL/pgSQL code that stores one stretch, a range of consecutive chosen records.

        Its INSERT and ON CONFLICT are those of the merge of all records.
        """
        head, tail = self._parts.compose_group(self._chosen)
        middle = " AND s.ctid OPERATOR(pg_catalog.<=) "
        counted = sql.SQL(" AND pg_catalog.nextval({}::pg_catalog.regclass) OPERATOR(pg_catalog.>) 0").format(
            sql.Literal(self._counter.as_string(self._connection))
        )
        return sql.SQL(STORE_COUNTED if self._parts.key is not None else STORE_ALL).format(
            head=sql.Literal((head + sql.SQL(" WHERE s.ctid OPERATOR(pg_catalog.>=) ")).as_string(self._connection)),
            middle=sql.Literal(middle),
            tail=sql.Literal((counted + tail).as_string(self._connection)),
            **SETTINGS,
        )

    # ---------------------------------------------------------------- the choice of records

    def _compose_choice(self) -> sql.Composed:
        """Return the query that chooses the records for the table, in the order of the merge."""
        distinct, order = self._parts.compose_order()
        return sql.SQL("SELECT {} {} FROM {} AS s ORDER BY {}").format(
            distinct, list_identifiers(self._columns), table_identifier(self._parts.staging), order
        )


def settle(sorters: Sequence[MergeSorter]) -> None:
    """Try refused records of all merges again until no more can be stored, then refuse records with a refused key.

    Records of one table may refer to records of another table, so the merges are retried together.
    """
    while sum(sorter.retry_references() for sorter in sorters):
        pass
    for sorter in sorters:
        sorter.refuse_same_keys()


def check_constraints_at_once(connection: Connection) -> None:
    """Check deferred constraints in each statement of this transaction, instead of at its commit."""
    with translate_errors("setting when constraints are checked"), users_settings(connection):
        connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
