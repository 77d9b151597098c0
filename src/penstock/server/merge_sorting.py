"""Staged records of which the merge refuses some: all others go in, and those are known by where they stood.

The records that are to go to the table (one of each key) are copied into a temporary table in the order of the merge,
and one DO statement takes them on from there by the merge's own statement, in groups, each under a savepoint
(sorting.py). A refused record goes to another temporary table with the reason. If the files have others with its key,
the next of them by the rules of the merge takes its place, as if the refused one were not in the files. Records that
refer to others are tried again as long as some go in.

Everything happens within the caller's transaction, and the staging table is only read. Needs TEMPORARY on the
database and USAGE on plpgsql, besides what the merge itself needs.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from psycopg import sql

from penstock.model.landing import BLOCK_COLUMN, OBJECT_COLUMN, POSITION_COLUMNS, SEQUENCE_COLUMN
from penstock.model.reject import FOREIGN_KEY_VIOLATION
from penstock.server.errors import translate_errors
from penstock.server.merge import PlanCounts, count_staged
from penstock.server.merge_locate import staging_identifier
from penstock.server.sorting import SortingRules, compose_sorting

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.server.connection import Connection
    from penstock.server.merge import MergeCounts, MergeParts
    from penstock.server.merge_key import Key

_COMMA: Final = sql.SQL(", ")
_TEMPORARY: Final = "pg_temp"

# So much of the temporary table is taken on by one statement, which keeps the place of each of its rows in memory.
_PORTION_BYTES = 32 * 1024 * 1024

# A group costs as much as some hundred rows, and is undone and stored again for each bad one in it.
_MOST_IN_GROUP = 20_000

# Rows of a refused record: not looked at yet, without another record of its key, followed by one, and just looked at.
_FRESH, _ALONE, _FOLLOWED, _LOOKED_AT = range(4)

# What a refused record is noted with behind its own columns.
_REASONS: Final = ("penstock_sqlstate", "penstock_message", "penstock_detail", "penstock_column", "penstock_state")

# How many refused records are fetched at once.
_FETCHED = 1000

_HAS_RIGHTS: Final = """
    SELECT pg_catalog.has_database_privilege(pg_catalog.current_database(), 'TEMPORARY')
           AND EXISTS (
                   SELECT
                     FROM pg_catalog.pg_language AS l
                    WHERE l.lanname = 'plpgsql'
                      AND pg_catalog.has_language_privilege(l.oid, 'USAGE')
               )
"""

_STORE_COUNTED: Final = """
            EXECUTE {head} || pg_catalog.quote_literal(sorting.lower) || {middle}
                || pg_catalog.quote_literal(sorting.upper) || {tail} INTO plan;
            affected := pg_catalog.json_extract_path_text(plan, '0', 'Plan', 'Actual Rows')::numeric;
            met := pg_catalog.json_extract_path_text(plan, '0', 'Plan', 'Conflicting Tuples')::numeric;
"""
_STORE_ALL: Final = """
            EXECUTE {head} || pg_catalog.quote_literal(sorting.lower) || {middle}
                || pg_catalog.quote_literal(sorting.upper) || {tail};
            GET DIAGNOSTICS affected = ROW_COUNT;
"""
_DECLARATIONS: Final = """
    plan json;
    met int8 := 0;
    conflicts int8 := 0;
    proposed int8 := 0;
    noted int8 := 0;
"""
_COUNT: Final = """
            conflicts := conflicts + met;
            proposed := proposed + (last - first + 1);
"""
_NOTE: Final = """
                INSERT INTO {refused} ({columns}, {reasons})
                SELECT {columns}, sorting.code, sorting.words, NULLIF(sorting.more, ''), NULLIF(sorting.field, ''),
                       {state}
                  FROM {stage} AS s
                 WHERE s.ctid = sorting.places[sorting.bad];
                noted := noted + CASE WHEN sorting.code = {reference} THEN 0 ELSE 1 END;
"""
_OUTCOME: Final = """
        pg_catalog.json_build_object('stored', stored, 'proposed', proposed, 'conflicts', conflicts, 'noted', noted,
                                     'weight', weight)
"""

_READ_REFUSED: Final = """
    SELECT r.{object}, r.{block}, n.penstock_record, r.{sequence}, r.{sqlstate}, r.{message}, r.{detail}, r.{column}
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


_NOTE_FOLLOWED: Final = """
    UPDATE {refused} AS r SET {state} = {followed} FROM {chosen} AS s WHERE r.{state} = {looked_at} AND {same_key};
    UPDATE {refused} SET {state} = {alone} WHERE {state} = {looked_at}
"""


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


@dataclass(slots=True)
class _Sums:
    """What the groups came to, and what the next ones are to know of them."""

    stored: int = 0
    proposed: int = 0
    conflicts: int = 0
    noted: int = 0
    seen: int = 0
    weight: int = 1


def can_sort_merges(connection: Connection) -> bool:
    """Whether the role may have refused records sorted out. Raises ServerError."""
    with translate_errors("looking up the right to temporary tables"):
        return connection.execute(_HAS_RIGHTS).fetchone() == (True,)


class MergeSorter:
    """The merge of one staging table, record by record where it must be. Methods raise PenstockError.

    `number` tells several of one transaction apart. Call `merge`; then, with those of other tables, `retry_references`
    and `take_next` until none of them has anything left to do.
    """

    def __init__(
        self, connection: Connection, parts: MergeParts, *, number: int, own_codes: Sequence[str], other: Sequence[str]
    ) -> None:
        self._connection = connection
        self._parts = parts
        self._rules = SortingRules(own_codes=tuple(own_codes), other_codes=tuple(other), parks=True)
        name = f"penstock_merge_{number}"
        self._chosen = sql.Identifier(_TEMPORARY, name)
        self._owner = sql.Identifier(_TEMPORARY, name, OBJECT_COLUMN)
        self._refused = sql.Identifier(_TEMPORARY, f"penstock_refused_{number}")
        self._counter = sql.Identifier(_TEMPORARY, f"penstock_merge_counter_{number}")
        self._columns = (*parts.columns, *POSITION_COLUMNS)
        self._reasons = _free_names(_REASONS, taken=parts.columns)
        self._what = f"merging into {parts.target.name}"
        self._sums = _Sums()
        self._staged = 0
        self._has_others = False
        self._is_backwards = True

    @property
    def noted(self) -> int:
        """Return how many records were refused, but for those that refer to others, so far."""
        return self._sums.noted

    def merge(self, *, limit: int | None = None) -> None:
        """Take all records on, the first time; stop where more than `limit` of them are refused for good."""
        with translate_errors(self._what):
            made = self._connection.execute(
                sql.SQL("CREATE TEMPORARY TABLE {} ON COMMIT DROP AS {}").format(self._chosen, self._compose_choice())
            ).rowcount
            self._connection.execute(self._compose_refused())
            self._connection.execute(
                sql.SQL("CREATE SEQUENCE {} CACHE 1000 OWNED BY {}").format(self._counter, self._owner)
            )
        self._staged = count_staged(self._connection, self._parts.staging)
        self._has_others = self._staged > made
        self._process(parks=True, limit=limit)

    def retry_references(self) -> int:
        """Try records that refer to others once more; return how many of them went in."""
        with translate_errors(self._what):
            moved = self._connection.execute(self._compose_move()).rowcount
        if not moved:
            return 0
        self._is_backwards = not self._is_backwards
        # All at once first: they may be what each other refers to.
        self._process(parks=False, first_size=moved)
        return moved - self._count_references()

    def take_next(self, *, references: bool) -> bool:
        """Take on the records that are next in turn behind refused ones of their key; return whether there were any.

        Behind those that were refused for what they refer to with `references`, else behind the others.
        """
        if not self._has_others:
            return False
        with translate_errors(self._what):
            looked_at = self._connection.execute(
                sql.SQL("UPDATE {} SET {} = {} WHERE {} = {} AND ({} = {}) = {}").format(
                    self._refused,
                    self._state,
                    sql.Literal(_LOOKED_AT),
                    self._state,
                    sql.Literal(_FRESH),
                    sql.Identifier(self._reasons[0]),
                    sql.Literal(FOREIGN_KEY_VIOLATION),
                    sql.Literal(references),
                )
            ).rowcount
            if not looked_at:
                return False
            self._analyze(self._refused)
            found = self._connection.execute(
                sql.SQL("INSERT INTO {} ({}) {}").format(
                    self._chosen, _join(self._columns), self._compose_choice(behind=self._compose_behind())
                )
            ).rowcount
            self._note_followers()
        if found:
            self._process(parks=True)
        return bool(found)

    def counts(self) -> MergeCounts:
        """Return what became of the records but the refused ones."""
        sums = self._sums
        # Each record is refused, or came to the table once, or gave way to another with its key.
        assert sums.proposed == self._staged - self.count_refused() or self._has_others
        counted = PlanCounts(
            staged=self._staged - self.count_refused(),
            proposed=sums.proposed,
            conflicts=sums.conflicts,
            stored=sums.stored,
        )
        return self._parts.count(counted)

    def count_refused(self) -> int:
        """Return how many records are refused."""
        with translate_errors("counting refused records"):
            row = self._connection.execute(
                sql.SQL("SELECT pg_catalog.count(*) FROM {}").format(self._refused)
            ).fetchone()
        assert row is not None
        return int(row[0])

    def discard_refused(self) -> None:
        """Remove the refused records from the staging table."""
        same_place = sql.SQL(" AND ").join(
            sql.SQL("r.{} = s.{}").format(sql.Identifier(name), sql.Identifier(name)) for name in POSITION_COLUMNS
        )
        with translate_errors("removing refused records"):
            self._connection.execute(
                sql.SQL("DELETE FROM {} AS s USING {} AS r WHERE {}").format(
                    staging_identifier(self._parts.staging), self._refused, same_place
                )
            )

    def read_blocks(self) -> dict[int, list[int]]:
        """Return the offsets of the blocks of which records are refused, in ascending order, by their objects."""
        query = sql.SQL(
            "SELECT {object}, pg_catalog.array_agg(DISTINCT {block} ORDER BY {block}) FROM {refused} GROUP BY {object}"
        ).format(object=sql.Identifier(OBJECT_COLUMN), block=sql.Identifier(BLOCK_COLUMN), refused=self._refused)
        with translate_errors("reading refused records"):
            return dict(self._connection.execute(query).fetchall())

    def read_refused(self) -> Iterator[RefusedRecord]:
        """Yield the refused records in file order. Other statements may be run meanwhile."""
        names = dict(zip(("sqlstate", "message", "detail", "column"), self._reasons, strict=False))
        query = sql.SQL(_READ_REFUSED).format(
            object=sql.Identifier(OBJECT_COLUMN),
            block=sql.Identifier(BLOCK_COLUMN),
            sequence=sql.Identifier(SEQUENCE_COLUMN),
            refused=self._refused,
            staging=staging_identifier(self._parts.staging),
            **{name: sql.Identifier(column) for name, column in names.items()},
        )
        with translate_errors("reading refused records"):
            self._analyze(self._refused)
            with self._connection.cursor(name="penstock_refused") as cursor:
                cursor.execute(query)
                while rows := cursor.fetchmany(_FETCHED):
                    yield from map(RefusedRecord._make, rows)

    # ---------------------------------------------------------------- groups

    def _process(self, *, parks: bool, limit: int | None = None, first_size: int = 16) -> None:
        """Take on what has been chosen, a portion of pages at a time."""
        with translate_errors(self._what):
            pages, portion = self._find_pages()
            for page in range(0, pages, portion):
                self._take_on(page, page + portion, parks=parks, first_size=first_size)
                if limit is not None and self._sums.noted > limit:
                    return
            self._connection.execute(sql.SQL("TRUNCATE {}").format(self._chosen))

    def _find_pages(self) -> tuple[int, int]:
        """Return how many pages the chosen records fill, and how many are a portion."""
        row = self._connection.execute(
            "SELECT pg_catalog.pg_relation_size(%s::regclass), pg_catalog.current_setting('block_size')::int8",
            [self._chosen.as_string(self._connection)],
        ).fetchone()
        assert row is not None
        size_bytes, page_bytes = row
        return size_bytes // page_bytes, max(1, _PORTION_BYTES // page_bytes)

    def _take_on(self, page: int, behind: int, *, parks: bool, first_size: int) -> None:
        sums = self._sums
        statement = compose_sorting(
            self._connection,
            replace(self._rules, parks=parks),
            stage=self._chosen,
            portion=sql.SQL("WHERE s.ctid >= {}::tid AND s.ctid < {}::tid").format(
                sql.Literal(f"({page},0)"), sql.Literal(f"({behind},0)")
            ),
            counter=self._counter,
            declarations=sql.SQL(_DECLARATIONS),
            store=self._compose_store(),
            count=sql.SQL(_COUNT),
            note=sql.SQL(_NOTE).format(
                refused=self._refused,
                columns=_join(self._columns),
                reasons=_join(self._reasons),
                state=sql.Literal(_FRESH),
                stage=self._chosen,
                reference=sql.Literal(FOREIGN_KEY_VIOLATION),
            ),
            outcome=sql.SQL(_OUTCOME),
            most_in_group=_MOST_IN_GROUP,
            first_size=first_size,
            seen=sums.seen,
            weight=sums.weight,
        )
        self._connection.execute(statement)
        row = self._connection.execute("SELECT pg_catalog.current_setting('penstock.outcome')").fetchone()
        assert row is not None
        outcome = json.loads(row[0])
        sums.stored += outcome["stored"]
        sums.proposed += outcome["proposed"]
        sums.conflicts += outcome["conflicts"]
        sums.noted += outcome["noted"]
        sums.seen += outcome["proposed"]
        sums.weight = outcome["weight"]

    def _compose_store(self) -> sql.Composed:
        """Return what stores a group, as the merge's statement does all."""
        head, tail = self._parts.compose_group(self._chosen)
        middle = " AND s.ctid <= "
        counted = sql.SQL(" AND pg_catalog.nextval({}::regclass) > 0").format(
            sql.Literal(self._counter.as_string(self._connection))
        )
        return sql.SQL(_STORE_COUNTED if self._parts.key is not None else _STORE_ALL).format(
            head=sql.Literal((head + sql.SQL(" WHERE s.ctid >= ")).as_string(self._connection)),
            middle=sql.Literal(middle),
            tail=sql.Literal((counted + tail).as_string(self._connection)),
        )

    # ---------------------------------------------------------------- which records

    def _compose_choice(self, *, behind: sql.Composable | None = None) -> sql.Composed:
        """Return the query for the records that are to go to the table, in the merge's order."""
        condition = sql.SQL("") if behind is None else sql.SQL(" WHERE ") + behind
        distinct, order = self._parts.compose_order()
        return sql.SQL("SELECT {} {} FROM {} AS s{} ORDER BY {}").format(
            distinct, _join(self._columns), staging_identifier(self._parts.staging), condition, order
        )

    def _compose_refused(self) -> sql.Composed:
        definitions = _COMMA.join(
            sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(type_name))
            for name, type_name in zip(self._reasons, (*["pg_catalog.text"] * 4, "pg_catalog.int2"), strict=True)
        )
        return sql.SQL("CREATE TABLE {} (LIKE {}, {}) ON COMMIT DROP").format(self._refused, self._chosen, definitions)

    def _compose_move(self) -> sql.Composed:
        """Return the statement that has records tried again whose references may be there by now."""
        direction = sql.SQL(" DESC" if self._is_backwards else "")
        order = _COMMA.join(sql.Identifier(name) + direction for name in POSITION_COLUMNS)
        return sql.SQL(
            "WITH moved AS (DELETE FROM {} WHERE {} = {} AND {} <> {} RETURNING {})"
            " INSERT INTO {} ({}) SELECT {} FROM moved ORDER BY {}"
        ).format(
            self._refused,
            sql.Identifier(self._reasons[0]),
            sql.Literal(FOREIGN_KEY_VIOLATION),
            self._state,
            sql.Literal(_FOLLOWED),
            _join(self._columns),
            self._chosen,
            _join(self._columns),
            _join(self._columns),
            order,
        )

    def _compose_behind(self) -> sql.Composed:
        """Return what is true of a record s that is not refused and has the key of one just looked at."""
        same_place = sql.SQL(" AND ").join(
            sql.SQL("r.{} = s.{}").format(sql.Identifier(name), sql.Identifier(name)) for name in POSITION_COLUMNS
        )
        assert self._parts.key is not None
        return sql.SQL(
            "EXISTS (SELECT FROM {} AS r WHERE r.{} = {} AND {}) AND NOT EXISTS (SELECT FROM {} AS r WHERE {})"
        ).format(
            self._refused,
            self._state,
            sql.Literal(_LOOKED_AT),
            _same_key(self._parts.key, "s", "r"),
            self._refused,
            same_place,
        )

    def _note_followers(self) -> None:
        assert self._parts.key is not None
        self._analyze(self._chosen)
        follow = sql.SQL(_NOTE_FOLLOWED).format(
            refused=self._refused,
            state=self._state,
            looked_at=sql.Literal(_LOOKED_AT),
            followed=sql.Literal(_FOLLOWED),
            alone=sql.Literal(_ALONE),
            chosen=self._chosen,
            same_key=_same_key(self._parts.key, "s", "r"),
        )
        self._connection.execute(follow)

    @property
    def _state(self) -> sql.Identifier:
        return sql.Identifier(self._reasons[-1])

    def _count_references(self) -> int:
        query = sql.SQL("SELECT pg_catalog.count(*) FROM {} WHERE {} = {} AND {} <> {}").format(
            self._refused,
            sql.Identifier(self._reasons[0]),
            sql.Literal(FOREIGN_KEY_VIOLATION),
            self._state,
            sql.Literal(_FOLLOWED),
        )
        with translate_errors(self._what):
            row = self._connection.execute(query).fetchone()
        assert row is not None
        return int(row[0])

    def _analyze(self, table: sql.Identifier) -> None:
        """Tell the planner how many rows a temporary table has."""
        self._connection.execute(sql.SQL("ANALYZE {}").format(table))


def settle(sorters: Sequence[MergeSorter]) -> None:
    """Have merges that have been begun store all that they can: references between their tables too."""
    while True:
        while sum(sorter.retry_references() for sorter in sorters):
            pass
        # A record that refers to nothing gives way to the next of its key only when all others are in.
        if any(sorter.take_next(references=False) for sorter in sorters):
            continue
        if not any(sorter.take_next(references=True) for sorter in sorters):
            return


def check_constraints_at_once(connection: Connection) -> None:
    """Have deferred constraints refuse their records in this transaction's statements, not its commit."""
    with translate_errors("setting when constraints are checked"):
        connection.execute("SET CONSTRAINTS ALL IMMEDIATE")


def _same_key(key: Key, one: str, other: str) -> sql.Composed:
    """Return the condition that two records have the same key, as its index compares them."""
    terms = []
    for column in key.columns:
        left, right = sql.Identifier(one, column.name), sql.Identifier(other, column.name)
        collate: sql.Composable = sql.SQL("")
        if column.collation is not None and column.collation_schema is not None:
            collate = sql.SQL(" COLLATE {}").format(sql.Identifier(column.collation_schema, column.collation))
        is_equal = sql.SQL("{}{} OPERATOR({}.{}) {}").format(
            left, collate, sql.Identifier(column.equal_schema), sql.SQL(column.equal), right
        )
        if key.has_equal_nulls and not column.is_not_null:
            is_equal = sql.SQL("({} OR ({} IS NOT DISTINCT FROM NULL AND {} IS NOT DISTINCT FROM NULL))").format(
                is_equal, left, right
            )
        terms.append(is_equal)
    return sql.SQL(" AND ").join(terms)


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
