"""Sorts records on the server: it stores those that the table accepts, and reports why it refused the others.

Records are copied into a temporary table, which is dropped at the end of the transaction. Records of files are copied
as text, which COPY always accepts. One DO statement then stores them by INSERT, or by the statement of a merge, in
stretches of consecutive records, each under its own savepoint. A sequence counts the records of a stretch that were
begun, so the position of a failed record is known. The records before it are stored. The failed record is then tried
again as the first one of a stretch, and recorded with the fields of the error. All the table's types, constraints,
triggers, partitions and indexes apply as usual. If a stretch fails as a whole, for example because of a foreign key
that is checked at its end, the next stretch is half as long.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from psycopg import sql

from penstock.frozen import frozen
from penstock.model.load.reject import Reason
from penstock.server.connect.errors import NOT_DATA
from penstock.server.connect.search_path import SETTINGS
from penstock.server.copy.copy import CopySession, compose_table
from penstock.server.copy.sorting_statements import (
    FIND_FIELD,
    HAS_RIGHTS,
    MAKE,
    NOTE,
    OUTCOME,
    SELECT,
    SELECT_RECORD,
    SORT,
    STORE,
    STRETCH,
    TAKE_OUTCOME,
)
from penstock.server.sql.queries import fetch_rows, list_identifiers

if TYPE_CHECKING:
    import psycopg

    from penstock.model.source.block import CopySpec

_STAGE: Final = "penstock_stage"
# The name of a table with the types of the target's columns. Its row type reads values as COPY does. The columns of the
# stage have type text.
_TYPED: Final = "penstock_typed"
_COUNTER: Final = "penstock_counter"

# The best number of records in a stretch is about the square root of (this factor / the share of bad records). Longer
# stretches are undone and stored again too often, and shorter ones have too much overhead. Of 20, 80 and 320 records,
# 80 were the fastest with 1 % bad records.
_STRETCH_FACTOR = 60.0

# A bad record without a known position causes as much repeated work as this many bad records with a known one.
_WHOLE_WEIGHT = 50

_MOST_IN_STRETCH = 2000
_FIRST_SIZE = 16

_NOTHING: Final = sql.SQL("")
_COMMA: Final = sql.SQL(", ")


@frozen
class SortingTarget:
    """The row of sorting_target.sql."""

    oid: int
    is_plain: bool


@frozen
class SortingColumn:
    """The row of sorting_columns.sql."""

    name: str
    type_name: str
    reading: Literal["text", "cast", "record"]


class RefusedRow(NamedTuple):
    """A row that could not be stored."""

    # Counted from 1 in the order of the COPY.
    position: int
    reason: Reason


@frozen
class Sorted:
    """How many rows were stored, and which were refused. Triggers may have skipped other rows."""

    stored: int
    refused: tuple[RefusedRow, ...]


class _Made(NamedTuple):
    """The transaction and the spec for which the stage was created. The stage is dropped when the transaction ends."""

    transaction: int
    spec: CopySpec


def find_hindrance(connection: psycopg.Connection[Any], table: str) -> str | None:
    """Return a hint why records for a table cannot be sorted, or None if they can. Raises psycopg.Error.

    `table` is a quoted name.
    """
    if connection.execute(HAS_RIGHTS).fetchone() != (True,):
        return (
            "Bad records are sorted out in a temporary table: grant the role TEMPORARY on the database and USAGE on"
            " language plpgsql."
        )
    if not all(row.is_plain for row in fetch_rows(connection, "sorting_target", SortingTarget, table=table)):
        return "Correct it: records for views, foreign tables and tables with rules on INSERT cannot be rejected."
    return None


class Hindered(Exception):
    """The records of a table cannot be sorted on the server. The message is a hint."""


class Sorter:
    """Sorts the records of one session. Methods raise CopyFailed.

    `own_codes` are prefixes of the SQLSTATEs that a single bad record causes. Needs TEMPORARY on the database, INSERT
    on the table, and USAGE on its types and on plpgsql.
    """

    def __init__(self, session: CopySession, own_codes: Sequence[str]) -> None:
        self._session = session
        self._own_codes = own_codes
        self._made: _Made | None = None
        self._columns: dict[str, SortingColumn] = {}

    def prepare(self, spec: CopySpec) -> CopySpec:
        """Create the stage for a table and return the spec of a COPY into it.

        Call `sort` afterwards. Raises Hindered.
        """
        self._session.begin()
        made = _Made(self._session.transaction, spec)
        if made != self._made:
            with self._session.between_copies() as connection:
                table = compose_table(spec).as_string(connection)
                if (hint := find_hindrance(connection, table)) is not None:
                    raise Hindered(hint)
                (target,) = fetch_rows(connection, "sorting_target", SortingTarget, table=table)
                found = fetch_rows(connection, "sorting_columns", SortingColumn, oid=target.oid)
                self._columns = {column.name: column for column in found}
                connection.execute(self._compose_make(made))
            self._made = made
        return replace(spec, schema="pg_temp", table=_STAGE)

    def sort(self) -> Sorted:
        """Store the copied records in their table and return the refused ones."""
        assert self._made is not None
        spec = self._made.spec
        with self._session.between_copies() as connection:
            statement = compose_sorting(
                connection,
                self._own_codes,
                SortingParts(
                    stage=_temporary(_STAGE),
                    store=self._compose_store(spec),
                    note=sql.SQL(NOTE),
                    outcome=sql.SQL(OUTCOME),
                    find_field=self._compose_find_field(spec),
                ),
                counter=_temporary(_COUNTER),
                most_in_stretch=_MOST_IN_STRETCH,
            )
            cursor = connection.execute(
                sql.SQL("{}; {}").format(statement, sql.SQL(TAKE_OUTCOME).format(stage=_temporary(_STAGE)))
            )
            cursor.nextset()
            row = cursor.fetchone()
        assert row is not None
        outcome = json.loads(row[0].decode(errors="replace"))
        refused = (
            RefusedRow(position, Reason(sqlstate=code, message=message, detail=detail or None, column=column or None))
            for position, code, message, detail, column in outcome["refused"]
        )
        self._session.check_table(spec)
        return Sorted(stored=outcome["stored"], refused=tuple(refused))

    # ---------------------------------------------------------------- the sorter's statements

    def _compose_make(self, made: _Made) -> sql.Composed:
        columns = [self._columns[name] for name in made.spec.columns]
        before = self._made
        drop = sql.SQL("DROP TABLE {}, {} CASCADE;").format(_temporary(_STAGE), _temporary(_TYPED))
        return sql.SQL(MAKE).format(
            # Drop the stage that this transaction has for another table.
            drop=_NOTHING if before is None or before.transaction != made.transaction else drop,
            stage=_temporary(_STAGE),
            texts=_COMMA.join(sql.SQL("{} pg_catalog.text").format(sql.Identifier(column.name)) for column in columns),
            typed=_temporary(_TYPED),
            columns=_COMMA.join(
                sql.SQL("{} {}").format(sql.Identifier(column.name), sql.SQL(column.type_name)) for column in columns
            ),
            counter=_temporary(_COUNTER),
            first=sql.Identifier(columns[0].name),
        )

    def _compose_store(self, spec: CopySpec) -> sql.Composed:
        """Return the statement that stores a stretch. It converts the texts as the columns' types do."""
        values: list[sql.Composable] = []
        fields: list[sql.Composable] = []
        for name in spec.columns:
            column, text = self._columns[name], sql.Identifier("s", name)
            fields.append(text if column.reading == "record" else sql.NULL)
            if column.reading == "text":
                values.append(text)
            elif column.reading == "cast":
                values.append(sql.SQL("CAST({} AS {})").format(text, sql.SQL(column.type_name)))
            else:
                values.append(sql.SQL("(s.penstock_record).{}").format(sql.Identifier(name)))
        is_recorded = any(self._columns[name].reading == "record" for name in spec.columns)
        select = sql.SQL(SELECT_RECORD if is_recorded else SELECT).format(
            values=_COMMA.join(values),
            fields=_COMMA.join(fields),
            typed=_temporary(_TYPED),
            stage=_temporary(_STAGE),
            rows=sql.SQL(STRETCH),
        )
        names = list_identifiers(spec.columns)
        return sql.SQL(STORE).format(target=compose_table(spec), names=names, select=select, **SETTINGS)

    def _compose_find_field(self, spec: CopySpec) -> sql.Composed:
        return sql.SQL(FIND_FIELD).format(
            values=_COMMA.join(sql.Identifier("s", name) for name in spec.columns),
            stage=_temporary(_STAGE),
            names=sql.Literal(list(spec.columns)),
            typed=_temporary(_TYPED),
            **SETTINGS,
        )


class SortingParts(NamedTuple):
    """The parts of the sorting statement that differ between its uses."""

    # The table with the rows to be sorted.
    stage: sql.Identifier
    # Stores a stretch.
    store: sql.Composable
    # Records the refused row number `bad`.
    note: sql.Composable
    # The JSON that is left in setting penstock.outcome.
    outcome: sql.Composable
    find_field: sql.Composable = _NOTHING
    # Runs after a stretch.
    after_stretch: sql.Composable = _NOTHING
    declarations: sql.Composable = _NOTHING
    # The condition for the part of the rows to be sorted; by default all rows.
    portion: sql.Composable = _NOTHING


def compose_sorting(
    connection: psycopg.Connection[Any],
    own_codes: Sequence[str],
    parts: SortingParts,
    *,
    counter: sql.Identifier,
    most_in_stretch: int,
    first_size: int = _FIRST_SIZE,
) -> sql.Composed:
    """Return the statement that stores rows stretch by stretch, and records those that the table refuses."""
    body = sql.SQL(SORT).format(
        **parts._asdict(),
        counter=sql.Literal(counter.as_string(connection)),
        own_codes=sql.Literal(f"^({'|'.join(own_codes)})"),
        other_codes=sql.Literal(sorted(NOT_DATA)),
        most=sql.Literal(most_in_stretch),
        factor=sql.Literal(_STRETCH_FACTOR),
        whole_weight=sql.Literal(_WHOLE_WEIGHT),
        size=sql.Literal(first_size),
    )
    return sql.SQL("DO LANGUAGE plpgsql {}").format(sql.Literal(body.as_string(connection)))


def _temporary(name: str) -> sql.Identifier:
    return sql.Identifier("pg_temp", name)
