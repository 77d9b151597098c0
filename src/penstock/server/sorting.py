"""Records that a table may refuse, sorted out by the server: it stores them in groups, and names those that it cannot.

They are copied into a temporary table that takes any record whose values have their columns' types, and are gone with
the transaction. One DO statement takes them on from there with INSERT, group by group in their order, each group under
a savepoint of its own. A sequence counts the records of a group that were begun, so where a group fails the record is
known: it is noted with the error's own fields, those before it are stored, and the group behind it is next. Whatever
may refuse a record does so itself: constraints, triggers, partitions, indexes.

Where the whole group fails, as by a foreign key that is checked at its end, half of it is tried.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import psycopg
from psycopg import sql

from penstock.server.copy import compose_table
from penstock.server.queries import fetch_rows
from penstock.server.search_path import PATHS
from penstock.server.sorting_statements import (
    DISCARD,
    FIND_FIELD,
    FIND_UNREAD,
    GROUP,
    JUDGE_SUSPECTS,
    MAKE,
    NOTE,
    NOTE_ERROR,
    ONE,
    OUTCOME,
    REST,
    SELECT,
    SELECT_RECORD,
    SORT,
    STORE,
    TAKE_OUTCOME,
)
from penstock.server.sorting_suspects import (
    Suspicion,
    compose_taken,
    compose_unchecked,
    read_suspicion,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from penstock.model.block import CopySpec
    from penstock.server.connection import Connection
    from penstock.server.copy import CopySession

_SCHEMA: Final = "pg_temp"
_STAGE: Final = "penstock_stage"
# Its row type reads values as COPY does, where the stage itself has text.
_TYPED: Final = "penstock_typed"
_COUNTER: Final = "penstock_counter"

# So many of the counter's numbers are drawn at once: each by itself takes as long as a small INSERT.
_COUNTER_CACHE = 1000

# The best group is about the square root of this over the share of bad records: larger ones are undone and stored again
# too often, and smaller ones cost too much each (of 20, 80 and 320 the second was the fastest with 1 % bad records).
_GROUP_FACTOR = 60.0

# A bad record that a whole group fails for makes so many others be stored again as that many whose place is known.
_WHOLE_WEIGHT = 50

_MOST_IN_GROUP = 2000
_FIRST_SIZE = 16

_NOTHING: Final = sql.SQL("")

# How many records are put aside together when one of them breaks a foreign key: once some were, more are at once, since
# where records refer to others that come later, many do.
_MOST_PARKED = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SortingTarget:
    """The row of sorting_target.sql."""

    oid: int
    is_plain: bool
    is_partitioned: bool
    has_row_triggers: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SortingColumn:
    """The row of sorting_columns.sql."""

    name: str
    type_name: str
    reading: Literal["text", "cast", "record"]


class RefusedRow(NamedTuple):
    """A row that could not be stored, counted from 1 in the order they were copied, and why."""

    place: int
    sqlstate: str
    message: str
    detail: str | None
    column: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sorted:
    """How many rows were stored, and which could not be; triggers may have kept out others."""

    stored: int
    refused: tuple[RefusedRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SortingRules:
    """Which errors are a record's own.

    `own_codes` are how their SQLSTATEs begin, `other_codes` those that are none of them all the same. With `parks`
    records are put aside together of which one breaks a foreign key, where many do: they will be tried again.
    """

    own_codes: tuple[str, ...]
    other_codes: tuple[str, ...]
    parks: bool


class _Made(NamedTuple):
    """What the stage was made for; it lives as long as the transaction."""

    transaction: int
    spec: CopySpec
    as_text: bool


class _Table(NamedTuple):
    """A table's columns, and what its rows can be suspected of."""

    types: dict[str, SortingColumn]
    suspicion: Suspicion


class Sorter:
    """The sorting of one session's records. Methods raise CopyFailed.

    Needs TEMPORARY on the database, INSERT on the table, and USAGE on its types and on plpgsql.
    """

    def __init__(self, session: CopySession, rules: SortingRules) -> None:
        self._session = session
        self._rules = rules
        self._tables: dict[tuple[str | None, str], _Table] = {}
        self._made: _Made | None = None
        # Whether values must be read by the server's statement, since COPY would fail for those that are wrong.
        self.reads_values = False

    def prepare(self, spec: CopySpec) -> CopySpec | None:
        """Return where to copy records that are meant for a table; None where they cannot be sorted.

        What is copied there goes to the table by `sort`, and is gone where a savepoint before it is gone back to.
        """
        self._session.begin()
        made = _Made(self._session.transaction, spec, self.reads_values)
        if made != self._made:
            with self._session.between_copies() as connection:
                types = self._read_table(connection, spec).types
                if not set(spec.columns) <= types.keys():
                    return None
                self._make(connection, made, [types[name].type_name for name in spec.columns])
            self._made = made
        return replace(spec, schema=_SCHEMA, table=_STAGE)

    def sort(self) -> Sorted:
        """Take on to their table what has been copied."""
        assert self._made is not None
        with self._session.between_copies() as connection:
            cursor = connection.execute(self._compose(connection, self._made))
            cursor.nextset()
            row = cursor.fetchone()
        assert row is not None
        text = row[0] if isinstance(row[0], str) else bytes(row[0]).decode(errors="replace")
        outcome = json.loads(text)
        return Sorted(
            stored=outcome["stored"],
            refused=tuple(
                sorted(
                    RefusedRow(place, code, message, detail or None, column or None)
                    for place, code, message, detail, column in outcome["refused"]
                )
            ),
        )

    # ---------------------------------------------------------------- the tables

    def _read_table(self, connection: Connection, spec: CopySpec) -> _Table:
        """Return what is known of a table; no types where it cannot take rows by INSERT as it does by COPY."""
        key = spec.schema, spec.table
        if key not in self._tables:
            self._tables[key] = _Table(types={}, suspicion=Suspicion())
            name = compose_table(spec).as_string(connection)
            for target in fetch_rows(connection, "sorting_target", SortingTarget, table=name):
                if target.is_plain:
                    self._tables[key] = _read_plain(connection, target)
        return self._tables[key]

    def _make(self, connection: Connection, made: _Made, types: Sequence[str]) -> None:
        spec = made.spec
        typed = sql.SQL(", ").join(
            sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(type_name))
            for name, type_name in zip(spec.columns, types, strict=True)
        )
        text = sql.SQL(", ").join(sql.SQL("{} pg_catalog.text").format(sql.Identifier(name)) for name in spec.columns)
        statement = sql.SQL(MAKE).format(
            drop=self._compose_drop(made),
            stage=_temporary(_STAGE),
            columns=text if made.as_text else typed,
            typed=sql.SQL("CREATE TABLE {} ({}) ON COMMIT DROP;").format(_temporary(_TYPED), typed)
            if made.as_text
            else sql.SQL(""),
            counter=_temporary(_COUNTER),
            cache=sql.Literal(_COUNTER_CACHE),
            first=sql.Identifier(spec.columns[0]),
        )
        try:
            connection.execute(statement)
        except psycopg.Error:
            if not connection.broken:
                connection.execute(DISCARD)
            raise

    def _compose_drop(self, made: _Made) -> sql.Composable:
        """Return what makes room where the transaction has a stage for another table."""
        before = self._made
        if before is None or before.transaction != made.transaction:
            return sql.SQL("")
        tables = [_temporary(_STAGE), *([_temporary(_TYPED)] if before.as_text else [])]
        return sql.SQL("DROP TABLE {} CASCADE;").format(sql.SQL(", ").join(tables))

    # ---------------------------------------------------------------- the statement

    def _compose(self, connection: Connection, made: _Made) -> sql.Composed:
        rules, spec = self._rules, made.spec
        stage = _temporary(_STAGE)
        # Texts are no values that could be looked at.
        suspicion = Suspicion() if made.as_text else self._tables[spec.schema, spec.table].suspicion
        find_field: sql.Composable = sql.SQL("")
        find_suspects = compose_unchecked(suspicion, spec.columns, stage=stage)
        note_error = _compose_note_error(rules)
        if made.as_text:
            types = self._tables[spec.schema, spec.table].types
            find_field = sql.SQL(FIND_FIELD).format(
                values=_values(spec),
                stage=stage,
                names=sql.Literal(list(spec.columns)),
                reads=sql.Literal([types[name].reading != "text" for name in spec.columns]),
                typed=_temporary(_TYPED),
                **PATHS,
            )
            find_suspects = self._compose_find_unread(spec, note_error=note_error, find_field=find_field)
        note = sql.SQL(NOTE)
        do = compose_sorting(
            connection,
            rules,
            stage=stage,
            counter=_temporary(_COUNTER),
            store=self._compose_store(made, sql.SQL(GROUP)),
            note=note,
            outcome=sql.SQL(OUTCOME),
            most_in_group=_MOST_IN_GROUP,
            find_field=find_field,
            find_suspects=find_suspects,
            find_taken=compose_taken(suspicion, spec.columns, stage=stage, target=compose_table(spec)),
            judge_suspects=sql.SQL(JUDGE_SUSPECTS).format(
                store_one=self._compose_store(made, sql.SQL(ONE)),
                note_error=note_error,
                find_field=find_field,
                note=note,
            ),
        )
        return sql.SQL("{}; {}").format(do, sql.SQL(TAKE_OUTCOME).format(stage=stage))

    def _compose_find_unread(
        self, spec: CopySpec, *, note_error: sql.Composable, find_field: sql.Composable
    ) -> sql.Composable:
        types = self._tables[spec.schema, spec.table].types
        read = tuple(name for name in spec.columns if types[name].reading != "text")
        if not read:
            return sql.SQL("")
        return sql.SQL(FIND_UNREAD).format(
            select_rest=self._compose_reading(spec, sql.SQL(REST), only=read),
            note_error=note_error,
            find_field=find_field,
            **PATHS,
        )

    def _compose_store(self, made: _Made, rows: sql.Composable) -> sql.Composed:
        spec = made.spec
        if made.as_text:
            select = self._compose_reading(spec, rows)
        else:
            select = sql.SQL(SELECT).format(values=_values(spec), stage=_temporary(_STAGE), rows=rows)
        names = sql.SQL(", ").join(map(sql.Identifier, spec.columns))
        return sql.SQL(STORE).format(target=compose_table(spec), names=names, select=select, **PATHS)

    def _compose_reading(
        self, spec: CopySpec, rows: sql.Composable, *, only: Collection[str] | None = None
    ) -> sql.Composed:
        """Return the query that reads the stage's texts as their columns' types do; all columns', or some."""
        types = self._tables[spec.schema, spec.table].types
        values: list[sql.Composable] = []
        fields: list[sql.Composable] = []
        for name in spec.columns:
            column, text = types[name], sql.Identifier("s", name)
            fields.append(text if column.reading == "record" else sql.NULL)
            if only is not None and name not in only:
                continue
            if column.reading == "text":
                values.append(text)
            elif column.reading == "cast":
                values.append(sql.SQL("CAST({} AS {})").format(text, sql.SQL(column.type_name)))
            else:
                values.append(sql.SQL("(s.penstock_record).{}").format(sql.Identifier(name)))
        is_recorded = any(types[name].reading == "record" for name in spec.columns)
        return sql.SQL(SELECT_RECORD if is_recorded else SELECT).format(
            values=sql.SQL(", ").join(values),
            fields=sql.SQL(", ").join(fields),
            typed=_temporary(_TYPED),
            stage=_temporary(_STAGE),
            rows=rows,
        )


def compose_sorting(
    connection: Connection,
    rules: SortingRules,
    *,
    stage: sql.Identifier,
    counter: sql.Identifier,
    store: sql.Composable,
    note: sql.Composable,
    outcome: sql.Composable,
    most_in_group: int,
    find_field: sql.Composable = _NOTHING,
    find_suspects: sql.Composable = _NOTHING,
    find_taken: sql.Composable = _NOTHING,
    judge_suspects: sql.Composable = _NOTHING,
    count: sql.Composable = _NOTHING,
    declarations: sql.Composable = _NOTHING,
    portion: sql.Composable = _NOTHING,
    first_size: int = _FIRST_SIZE,
    seen: int = 0,
    weight: int = 1,
) -> sql.Composed:
    """Return the statement that takes the rows of `stage`, or a `portion` of them, on group by group.

    `store` stores a group, `count` is run once it is stored, `note` notes the row `bad`, and `outcome` is the JSON that
    is left in setting penstock.outcome. `seen` rows with a `weight` of bad ones came before. Rows that `find_suspects`
    or `find_taken` finds are left out of their groups, and `judge_suspects` deals with them at the end.
    """
    body = sql.SQL(SORT).format(
        stage=stage,
        portion=portion,
        counter=sql.Literal(counter.as_string(connection)),
        declarations=declarations,
        store=store,
        count=count,
        note=note,
        note_error=_compose_note_error(rules),
        outcome=outcome,
        find_field=find_field,
        find_suspects=find_suspects,
        find_taken=find_taken,
        judge_suspects=judge_suspects,
        most_parked=sql.Literal(_MOST_PARKED),
        whole_weight=sql.Literal(_WHOLE_WEIGHT),
        parks=sql.Literal(rules.parks),
        most=sql.Literal(most_in_group),
        factor=sql.Literal(_GROUP_FACTOR),
        size=sql.Literal(first_size),
        seen=sql.Literal(seen),
        weight=sql.Literal(weight),
    )
    return sql.SQL("DO LANGUAGE plpgsql {}").format(sql.Literal(body.as_string(connection)))


def _compose_note_error(rules: SortingRules) -> sql.Composed:
    return sql.SQL(NOTE_ERROR).format(
        own_codes=sql.Literal(f"^({'|'.join(rules.own_codes)})"), other_codes=sql.Literal(list(rules.other_codes))
    )


def _read_plain(connection: Connection, target: SortingTarget) -> _Table:
    columns = fetch_rows(connection, "sorting_columns", SortingColumn, oid=target.oid)
    # What such triggers make of rows is not known before.
    suspicion = (
        Suspicion()
        if target.has_row_triggers
        else read_suspicion(connection, target.oid, is_partitioned=target.is_partitioned)
    )
    return _Table(types={column.name: column for column in columns}, suspicion=suspicion)


def _values(spec: CopySpec) -> sql.Composed:
    return sql.SQL(", ").join(sql.Identifier("s", name) for name in spec.columns)


def _temporary(name: str) -> sql.Identifier:
    return sql.Identifier(_SCHEMA, name)
