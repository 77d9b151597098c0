"""Rows of a table that break a key or foreign key which cannot be rebuilt, told by their keys, and taken out again.

Everything happens in the caller's transaction, which holds the claim of the load that the rows are of. In
temporary tables are the keys of the rows that break it, with how many rows there are of each, and records of the files,
which are compared with them by the server's own types, collations and operators.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, LiteralString

import psycopg
from psycopg import sql

from penstock.model.landing import SEQUENCE_COLUMN
from penstock.model.table import TableName
from penstock.server.copy import copy_statement
from penstock.server.landing import typed_columns
from penstock.server.queries import fetch_rows
from penstock.server.shape.parts import is_foreign_key, read_index_record

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.model.block import CopySpec
    from penstock.model.shape import Change
    from penstock.model.table import TableFacts
    from penstock.server.connection import Connection

# The stage's name, in pg_temp.
STAGE: Final = TableName(schema="pg_temp", name="penstock_stage")

_STAGE: Final = sql.Identifier(STAGE.schema or "", STAGE.name)

_STAGE_INDEX: Final = "penstock_stage_index"

# Searches sort or hash a value of each row; more is spilled.
_WORK_MEM: Final = "256MB"

# The stage's number of a row: drawn by one session, so that it has no gaps.
_SEQUENCE_CACHE = 1000

# Keys of rows that refer to nothing; and, where a table refers to itself, to nothing but such rows.
_ORPHANS: Final = """
    SELECT {names}, pg_catalog.count(*) AS penstock_rows
      FROM ({rows}) AS t
     WHERE {given}
       AND NOT EXISTS (SELECT FROM {only}{referenced} AS r WHERE {meets})
     GROUP BY {names}
"""
_ORPHANS_WITHIN: Final = """
    WITH RECURSIVE b AS (
        SELECT {own}, {names}
          FROM ({rows}) AS t
         WHERE {given}
           AND NOT EXISTS (SELECT FROM {only}{referenced} AS r WHERE {meets})
         UNION ALL
        SELECT {t_own}, {t_names}
          FROM ({rows}) AS t
          JOIN b ON {met}
    )
    SELECT {names}, pg_catalog.count(*) AS penstock_rows FROM b GROUP BY {names}
"""

# How an error's detail tells a key, in whatever language (BuildIndexValueDescription in genam.c).
_KEY_NAMED: Final = re.compile(r"\)=\((.*)\)")

_AND: Final = sql.SQL(" AND ")
_COMMA: Final = sql.SQL(", ")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPart:
    """The row of violated_key.sql; all have the same condition."""

    expression: str
    collation_schema: str | None
    collation: str | None
    equal_schema: str
    equal: str
    condition: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferencePart:
    """The row of violated_reference.sql."""

    column: str
    referenced_schema: str
    referenced_table: str
    referenced_column: str
    equal_schema: str
    equal: str
    same_schema: str
    same: str
    is_self_reference: bool
    has_parts: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """One value of a key: how it is had from a row, and the operator by which two are the same."""

    expression: sql.Composable
    same: sql.Composable


def make_stage(connection: Connection, facts: TableFacts, columns: Sequence[str]) -> None:
    """Make a temporary table for records of a table's columns, which are numbered from 1 as they come."""
    number = sql.SQL("{} pg_catalog.int8 GENERATED ALWAYS AS IDENTITY (CACHE {})").format(
        sql.Identifier(SEQUENCE_COLUMN), sql.Literal(_SEQUENCE_CACHE)
    )
    definitions = _COMMA.join([*typed_columns(connection, facts, columns), number])
    connection.execute(sql.SQL("CREATE TABLE {} ({}) ON COMMIT DROP").format(_STAGE, definitions))


def copy_to_stage(connection: Connection, spec: CopySpec, parts: Iterable[bytes | memoryview]) -> int:
    """Copy records to the stage; return how many there were."""
    with connection.cursor() as cursor:
        with cursor.copy(copy_statement(spec)) as copy:
            for part in parts:
                copy.write(part)
        return cursor.rowcount


def clear_stage(connection: Connection) -> None:
    """Empty the stage; numbers go on."""
    connection.execute(sql.SQL("TRUNCATE {}").format(_STAGE))


class Violations:
    """What breaks the key or foreign key of a change. Methods raise psycopg.Error, TargetError.

    The stage is there and has the columns that decide on it; `number` tells several of one transaction apart. Needs
    SELECT and DELETE on the table, SELECT on a referenced one, TEMPORARY on the database.
    """

    def __init__(self, connection: Connection, change: Change, facts: TableFacts, *, number: int) -> None:
        self._connection = connection
        self._change = change
        self._table = sql.Identifier(facts.name.schema or "", facts.name.name)
        self._keys = sql.Identifier("pg_temp", f"penstock_keys_{number}")
        self._found = sql.Identifier("pg_temp", f"penstock_found_{number}")
        self._parts: list[_Part] = []
        self._condition: sql.Composable = sql.SQL("true")
        self._references: list[ReferencePart] = []

    # ---------------------------------------------------------------- which

    def lock(self) -> None:
        """Lock the table against writers; readers go on, but for a moment where it refers to itself.

        A foreign key to the table itself would keep rows from being deleted, and is taken away: its record is there.
        """
        self._read_definition()
        lock = sql.SQL("LOCK TABLE ONLY {} IN {} MODE")
        is_self_reference = any(part.is_self_reference for part in self._references)
        mode = "ACCESS EXCLUSIVE" if is_self_reference else "SHARE ROW EXCLUSIVE"
        self._connection.execute(lock.format(self._table, sql.SQL(mode)))
        if is_self_reference:
            drop = sql.SQL("ALTER TABLE {} DROP CONSTRAINT {}")
            self._connection.execute(drop.format(self._table, sql.Identifier(self._change.name)))

    def find(self, *, hint: str | None = None) -> bool:
        """Look for the keys of rows that break it; return whether there are any.

        With a `hint`, the detail of the error that names one key, of this one alone: that takes a scan of the table,
        and all of them a sort. None is found where it cannot be read in that.
        """
        self._connection.execute(sql.SQL("SET LOCAL work_mem = {}").format(sql.Literal(_WORK_MEM)))
        self._connection.execute("SET LOCAL jit = off")
        if self._references:
            search = self._search_orphans()
        else:
            values = None if hint is None else self._read_hint(hint)
            if hint is not None and values is None:
                return False
            search = self._search_duplicates(values)
        try:
            with self._connection.transaction():
                self._run(
                    "CREATE TEMPORARY TABLE {keys} ON COMMIT DROP AS"
                    " SELECT pg_catalog.row_number() OVER () AS penstock_number, k.* FROM ({search}) AS k",
                    search=search,
                )
        except psycopg.DataError:
            # What was read in the hint is no value of its type.
            if hint is None:
                raise
            return False
        self._run("ANALYZE {keys}")
        if self._connection.execute(self._compose("SELECT FROM {keys} LIMIT 1")).fetchone() is None:
            self._run("DROP TABLE {keys}")
            return False
        self._run("CREATE TABLE {found} (penstock_number pg_catalog.int8) ON COMMIT DROP")
        return True

    def _read_hint(self, hint: str) -> list[str] | None:
        """Return the values of the key that an error's detail names, None where they cannot be told apart."""
        match = _KEY_NAMED.search(hint)
        values = [] if match is None else match[1].split(", ")
        return values if len(values) == len(self._parts) else None

    def read_keys(self, limit: int) -> list[list[str]] | None:
        """Return the values of each such key as text, None where there are more than `limit` of them."""
        texts = _COMMA.join(name + sql.SQL("::text") for name in self._names())
        query = self._compose("SELECT {texts} FROM {keys} LIMIT {limit}", texts=texts, limit=sql.Literal(limit + 1))
        rows = self._connection.execute(query).fetchall()
        return [list(row) for row in rows] if len(rows) <= limit else None

    # ---------------------------------------------------------------- records compared with them

    def match(self) -> list[int]:
        """Return the numbers of the staged records that have such a key, and take note of them."""
        query = self._compose(
            "WITH m AS MATERIALIZED (SELECT s.{sequence} AS penstock_place, k.penstock_number FROM ({rows}) AS s"
            " JOIN {keys} AS k ON {same}), n AS (INSERT INTO {found} SELECT m.penstock_number FROM m)"
            " SELECT m.penstock_place FROM m",
            sequence=sql.Identifier(SEQUENCE_COLUMN),
            rows=self._select(sql.SQL("t.{}").format(sql.Identifier(SEQUENCE_COLUMN)), _STAGE),
            same=self._are_same("s"),
        )
        return [number for (number,) in self._connection.execute(query)]

    def count_differing(self) -> tuple[int, bool]:
        """Return how many rows have a key of which not as many records were found, and whether none has too many."""
        row = self._connection.execute(
            self._compose(
                "SELECT pg_catalog.sum(k.penstock_rows), pg_catalog.bool_and(coalesce(f.count, 0) < k.penstock_rows)"
                " FROM {keys} AS k LEFT JOIN (SELECT penstock_number, pg_catalog.count(*) FROM {found}"
                " GROUP BY penstock_number) AS f USING (penstock_number)"
                " WHERE coalesce(f.count, 0) <> k.penstock_rows"
            )
        ).fetchone()
        assert row is not None
        return int(row[0] or 0), bool(row[1])

    # ---------------------------------------------------------------- taken out

    def delete(self) -> int:
        """Delete the rows; return how many there were."""
        places = self._compose(
            "SELECT t.penstock_place FROM ({rows}) AS t JOIN {keys} AS k ON {same}",
            rows=self._select(sql.SQL("t.ctid AS penstock_place"), self._table),
            same=self._are_same("t"),
        )
        statement = self._compose("DELETE FROM ONLY {table} WHERE ctid = ANY (ARRAY({places}))", places=places)
        return self._connection.execute(statement).rowcount

    # ---------------------------------------------------------------- put together

    def _read_definition(self) -> None:
        if is_foreign_key(self._change):
            self._read_reference()
        else:
            self._read_key()

    def _read_reference(self) -> None:
        self._references = fetch_rows(
            self._connection,
            "violated_reference",
            ReferencePart,
            oid=self._change.relation_oid,
            name=self._change.name,
        )
        self._parts = [
            _Part(expression=sql.SQL("t.") + sql.Identifier(each.column), same=_operator(each.same_schema, each.same))
            for each in self._references
        ]

    def _read_key(self) -> None:
        """Have the server read the index's definition, by making it on the stage for a moment."""
        index, _ = read_index_record(self._change)
        name = sql.Identifier("pg_temp", _STAGE_INDEX)
        self._run(
            "CREATE UNIQUE INDEX {index} ON {stage} {body}",
            index=sql.Identifier(_STAGE_INDEX),
            body=sql.SQL(index.body or ""),
        )
        row = self._connection.execute("SELECT %s::pg_catalog.regclass::oid", [f"pg_temp.{_STAGE_INDEX}"]).fetchone()
        assert row is not None
        found = fetch_rows(self._connection, "violated_key", KeyPart, oid=row[0])
        self._run("DROP INDEX {index}", index=name)
        if found[0].condition is not None:
            self._condition = sql.SQL(found[0].condition)
        self._parts = [
            _Part(expression=_collate(part), same=_operator(part.equal_schema, part.equal)) for part in found
        ]

    def _search_duplicates(self, values: Sequence[str] | None) -> sql.Composed:
        """Return the search for keys that several rows have; with values, for that key alone."""
        names = _COMMA.join(self._names())
        given = self._are_given()
        if values is not None:
            given = _AND.join(
                # The operator decides which type a literal is of.
                sql.SQL("t.{} {} {}").format(name, part.same, sql.Literal(value))
                for name, part, value in zip(self._names(), self._parts, values, strict=True)
            )
        return self._compose(
            "SELECT {names}, pg_catalog.count(*) AS penstock_rows FROM ({rows}) AS t WHERE {given}"
            " GROUP BY {names} HAVING pg_catalog.count(*) > 1",
            names=names,
            rows=self._select(None, self._table),
            given=given,
        )

    def _search_orphans(self) -> sql.Composed:
        """Return the search for keys that refer to nothing; in the table itself, to nothing but such rows too."""
        first = self._references[0]
        names: dict[str, sql.Composable] = {
            "names": _COMMA.join(self._names()),
            "rows": self._select(None, self._table),
            "given": self._are_given(),
            "only": sql.SQL("" if first.has_parts else "ONLY "),
            "referenced": sql.Identifier(first.referenced_schema, first.referenced_table),
            "meets": self._meets(sql.SQL("r")),
        }
        if not first.is_self_reference:
            return self._compose(_ORPHANS, **names)
        # What refers to a row that is taken out refers to nothing then.
        own = _COMMA.join(
            sql.SQL("t.{} AS {}").format(
                sql.Identifier(each.referenced_column), sql.Identifier(f"penstock_own_{place}")
            )
            for place, each in enumerate(self._references)
        )
        names["rows"] = self._select(own, self._table)
        names["own"] = _COMMA.join(sql.Identifier(f"penstock_own_{place}") for place in range(len(self._references)))
        names["met"] = _AND.join(
            sql.SQL("b.{} {} t.{}").format(
                sql.Identifier(f"penstock_own_{place}"), _operator(each.equal_schema, each.equal), name
            )
            for place, (each, name) in enumerate(zip(self._references, self._names(), strict=True))
        )
        names["t_names"] = _COMMA.join(sql.SQL("t.") + name for name in self._names())
        names["t_own"] = _COMMA.join(
            sql.Identifier("t", f"penstock_own_{place}") for place in range(len(self._references))
        )
        return self._compose(
            _ORPHANS_WITHIN,
            **names,
        )

    def _meets(self, alias: sql.Composable) -> sql.Composed:
        return _AND.join(
            sql.SQL("{}.{} {} t.{}").format(
                alias, sql.Identifier(each.referenced_column), _operator(each.equal_schema, each.equal), name
            )
            for each, name in zip(self._references, self._names(), strict=True)
        )

    def _select(self, place: sql.Composable | None, table: sql.Composable) -> sql.Composed:
        """Return the query for the key of each row; a name in an expression means a column of the table."""
        values = [
            sql.SQL("{} AS {}").format(part.expression, name)
            for part, name in zip(self._parts, self._names(), strict=True)
        ]
        return sql.SQL("SELECT {} FROM ONLY {} AS t WHERE {}").format(
            _COMMA.join(values if place is None else [place, *values]), table, self._condition
        )

    def _names(self) -> list[sql.Identifier]:
        return [sql.Identifier(f"penstock_key_{place}") for place in range(len(self._parts))]

    def _are_given(self) -> sql.Composed:
        """Return what is true of a row t whose key has no null: others break nothing."""
        return _AND.join(sql.SQL("t.{} IS NOT NULL").format(name) for name in self._names())

    def _are_same(self, alias: LiteralString) -> sql.Composed:
        """Return what is true of a row, by its alias, that has the key k."""
        return _AND.join(
            sql.SQL("{}.{} {} k.{}").format(sql.SQL(alias), name, part.same, name)
            for part, name in zip(self._parts, self._names(), strict=True)
        )

    def _run(self, text: LiteralString, **names: sql.Composable) -> None:
        self._connection.execute(self._compose(text, **names))

    def _compose(self, text: LiteralString, **names: sql.Composable) -> sql.Composed:
        return sql.SQL(text).format(table=self._table, stage=_STAGE, keys=self._keys, found=self._found, **names)


def _operator(schema: str, name: str) -> sql.Composed:
    return sql.SQL("OPERATOR({}.{})").format(sql.Identifier(schema), sql.SQL(name))


def _collate(part: KeyPart) -> sql.Composed:
    """Return an index's expression with the index's collation, by which it was made."""
    expression = sql.SQL("({})").format(sql.SQL(part.expression))
    if part.collation is None or part.collation_schema is None:
        return expression
    return expression + sql.SQL(" COLLATE {}").format(sql.Identifier(part.collation_schema, part.collation))
