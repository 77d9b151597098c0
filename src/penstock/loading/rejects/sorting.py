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
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from psycopg import sql

from penstock.core.connect.connection import Connection
from penstock.core.connect.errors import NOT_DATA, hint_missing_right, translate_errors
from penstock.core.connect.search_path import SETTINGS
from penstock.core.errors import TargetError
from penstock.core.slotted import slotted
from penstock.core.sql import fetch_names, fetch_rows, list_identifiers, run_query, table_identifier
from penstock.core.values.table import TableFacts, TableName
from penstock.ledger.rejects import Reason
from penstock.loading.copy.copy import CopyFailed, CopySession, compose_table
from penstock.loading.values.objects import CopySpec

if TYPE_CHECKING:
    import psycopg


# Creates the temporary tables, and the sequence that counts the records which a stretch has begun: a sequence is not
# rolled back. The sequence has a large cache, because without one each nextval takes as long as a small INSERT.
MAKE: Final = """
    {drop}
    CREATE TABLE {stage} ({texts}) ON COMMIT DROP;
    CREATE TABLE {typed} ({columns}) ON COMMIT DROP;
    CREATE SEQUENCE {counter} CACHE 1000 OWNED BY {stage}.{first}
"""

# The DO statement that sorts. A name that is both a column and a variable means the column. Variables are qualified
# with the block's name. {to_users} and {to_own} are search_path.SETTINGS. If a statement between them fails, the
# rollback to the savepoint restores the search_path.
SORT: Final = """
#variable_conflict use_column
<<sorting>>
DECLARE
    places CONSTANT tid[] := ARRAY(SELECT s.ctid FROM {stage} AS s {portion});
    total CONSTANT int4 := pg_catalog.cardinality(places);
    counter CONSTANT regclass := {counter};
    size int4 := {size};
    weight int8 := 1;
    first int4 := 1;
    last int4;
    lower tid;
    upper tid;
    counted int8;
    begun int8;
    bad int4;
    is_own boolean;
    stored int8 := 0;
    affected int8;
    code text;
    words text;
    more text;
    field text;
    refusing text;
    advice text;
    outcome json[] := '{{}}';
    {declarations}
BEGIN
    counted := pg_catalog.nextval(counter);
    WHILE first <= total LOOP
        last := LEAST(first + size - 1, total);
        lower := places[first];
        upper := places[last];
        code := NULL;
        BEGIN
            {store}
        EXCEPTION WHEN OTHERS OR ASSERT_FAILURE THEN
            GET STACKED DIAGNOSTICS
                code = RETURNED_SQLSTATE,
                words = MESSAGE_TEXT,
                more = PG_EXCEPTION_DETAIL,
                field = COLUMN_NAME,
                refusing = PG_DATATYPE_NAME;
            is_own := code ~ {own_codes} AND code <> ALL ({other_codes});
            bad := first + GREATEST(pg_catalog.currval(counter) - counted, 1) - 1;
            {find_field}
            IF NOT is_own THEN
                -- Not a record's fault: end the statement, and name the record by its position if that is known.
                IF first < last AND bad = last THEN
                    RAISE;
                END IF;
                GET STACKED DIAGNOSTICS advice = PG_EXCEPTION_HINT;
                RAISE USING ERRCODE = code, MESSAGE = words, DETAIL = more, HINT = advice, DATATYPE = bad;
            END IF;
        END;
        begun := pg_catalog.currval(counter) - counted;
        counted := counted + begun;
        IF code IS NULL THEN
            stored := stored + affected;
            {after_stretch}
            first := last + 1;
            size := LEAST(2 * size, {most}, GREATEST(1, pg_catalog.sqrt({factor}::float8 * first / weight)));
        ELSIF first = last OR begun = 1 THEN
            bad := first;
            weight := weight + CASE WHEN first = last THEN {whole_weight} ELSE 1 END;
            {note}
            first := first + 1;
        ELSIF begun > 1 AND bad < last THEN
            -- Store the records before it first: it may violate the key of one that is refused itself.
            size := begun - 1;
        ELSE
            -- The record is not known, because foreign keys are checked when the statement ends.
            size := (last - first + 1) / 2;
        END IF;
    END LOOP;
    PERFORM pg_catalog.set_config('penstock.outcome', {outcome}::text, true);
END sorting
"""

# Parts of SORT if records are stored by INSERT. STORE stores a stretch, whose rows STRETCH selects. NOTE records a
# refused record. OUTCOME is the result as JSON, and TAKE_OUTCOME reads it.
STORE: Final = """
            {to_users};
            INSERT INTO {target} ({names}) OVERRIDING SYSTEM VALUE
            {select};
            GET DIAGNOSTICS affected = ROW_COUNT;
            {to_own};
"""
STRETCH: Final = """
s.ctid OPERATOR(pg_catalog.>=) sorting.lower
               AND s.ctid OPERATOR(pg_catalog.<=) sorting.upper
               AND pg_catalog.nextval(sorting.counter) OPERATOR(pg_catalog.>) 0
"""
NOTE: Final = "outcome := outcome || pg_catalog.json_build_array(bad, code, words, more, field);"
OUTCOME: Final = "pg_catalog.json_build_object('stored', stored, 'refused', pg_catalog.to_json(outcome))"
# The encoding of the bytes in which a text of the server is received. In SQL_ASCII, it may be valid in no encoding.
BYTES_ENCODING: Final = "CASE pg_catalog.getdatabaseencoding() WHEN 'SQL_ASCII' THEN 'SQL_ASCII' ELSE 'UTF8' END"
# Runs the statement and returns the outcome as bytes.
RUN: Final = """
    DO LANGUAGE plpgsql {body};
    SELECT pg_catalog.convert_to(pg_catalog.current_setting('penstock.outcome'), {encoding});
    SELECT pg_catalog.set_config('penstock.outcome', '', true);
    {after}
"""

SELECT: Final = """
            SELECT {values}
              FROM {stage} AS s
             WHERE {rows}
"""

# Reads texts as a composite type, whose input function calls the input function of each column, as COPY does.
SELECT_RECORD: Final = """
            SELECT {values}
              FROM (
                       SELECT s.*,
                              CAST(CAST(ROW({fields}) AS pg_catalog.text) AS {typed}) AS penstock_record
                         FROM {stage} AS s
                        WHERE {rows}
                       OFFSET 0
                   ) AS s
"""

# Finds the field that a type refuses, by converting each field alone. This also shows whether a type has raised the
# error: some types raise SQLSTATEs that mean something else for a statement. A domain's CHECK reports the domain's
# name.
FIND_FIELD: Final = """
            IF field = '' AND (NOT is_own OR bad = first AND (code LIKE '22%' OR code = '54001' OR refusing <> '')) THEN
                DECLARE
                    fields CONSTANT text[] := (
                        SELECT ARRAY[{values}]
                          FROM {stage} AS s
                         WHERE s.ctid = sorting.places[sorting.bad]
                    );
                    names CONSTANT text[] := {names};
                    quoted text;
                BEGIN
                    FOR number IN 1 .. pg_catalog.cardinality(names) LOOP
                        CONTINUE WHEN fields[number] IS NULL;
                        quoted := pg_catalog.replace(pg_catalog.replace(fields[number], '\\', '\\\\'), '"', '\\"');
                        BEGIN
                            {to_users};
                            PERFORM CAST(
                                pg_catalog.concat(
                                    '(',
                                    pg_catalog.repeat(',', number OPERATOR(pg_catalog.-) 1),
                                    '"',
                                    quoted,
                                    '"',
                                    pg_catalog.repeat(',', pg_catalog.cardinality(names) OPERATOR(pg_catalog.-) number),
                                    ')'
                                ) AS {typed}
                            );
                            {to_own};
                        EXCEPTION WHEN OTHERS THEN
                            -- Several fields may have an error with this SQLSTATE. The message text tells which one was
                            -- reported.
                            IF SQLSTATE = code AND (field = '' OR SQLERRM = words) THEN
                                field := names[number];
                                is_own := true;
                                EXIT WHEN SQLERRM = words;
                            END IF;
                        END;
                    END LOOP;
                END;
            END IF;
"""


_STAGE: Final = "penstock_stage"
# The name of a table with the types of the target's columns. Its row type reads values as COPY does. The columns of the
# stage have type text.
_TYPED: Final = "penstock_typed"
_COUNTER: Final = "penstock_counter"

# The best number of records in a stretch is about the square root of (this factor / the share of bad records). Longer
# stretches are undone and stored again too often, and shorter ones have too much overhead. With 1 % bad records, a
# factor that gave stretches of 80 records was faster than stretches of 20 and of 320.
_STRETCH_FACTOR = 60.0

# A bad record whose position is not known causes as much repeated work as this many bad records whose positions are
# known.
_WHOLE_WEIGHT = 50

_MOST_IN_STRETCH = 2000
FIRST_SIZE: Final = 16

_NOTHING: Final = sql.SQL("")
_COMMA: Final = sql.SQL(", ")


@slotted
class SortingTarget:
    """The row of sorting_target.sql: a relation, and whether INSERT stores rows in it as COPY does, one by one."""

    oid: int
    is_plain: bool


@slotted
class SortingColumn:
    """The row of sorting_columns.sql: a column, and how to convert text to its values as COPY does."""

    name: str
    type_name: str
    # How a text becomes a value: as it is, by CAST, or as a field of a composite value.
    reading: Literal["text", "cast", "record"]


@slotted
class SortedRows:
    """How many records of the temporary table were stored, and the numbers and reasons of those that were refused.

    Records are numbered from 1 in the order of the COPY. Triggers have skipped the others.
    """

    stored: int
    refused: tuple[tuple[int, Reason], ...]


def find_hindrance(connection: psycopg.Connection[Any], table: str) -> str | None:
    """Return a hint that says why the records for a table cannot be sorted, None if they can. Raises psycopg.Error.

    The role may lack a right, or the table may be one for which INSERT does not do what COPY does. `table` is its name
    as SQL, with its schema and quotes.
    """
    if run_query(connection, "loading/sorting_rights").fetchone() != (True,):
        return (
            "Bad records are sorted out in a temporary table: grant the role TEMPORARY on the database and USAGE on"
            " language plpgsql."
        )
    if not all(row.is_plain for row in fetch_rows(connection, "loading/sorting_target", SortingTarget, table=table)):
        return "Correct it: records for views, foreign tables and tables with rules on INSERT cannot be rejected."
    return None


class SortingStage:
    """The temporary table in which the records of one session are sorted. Methods raise CopyFailed.

    `own_codes` are prefixes of the SQLSTATEs that a single bad record causes. Needs TEMPORARY on the database, INSERT
    on the table, and USAGE on its types and on plpgsql.
    """

    def __init__(self, session: CopySession, own_codes: Sequence[str]) -> None:
        self._session = session
        self._own_codes = own_codes
        # The transaction and the spec for which the stage was created. It is dropped when the transaction ends.
        self._made: tuple[int, CopySpec] | None = None
        self._columns: dict[str, SortingColumn] = {}

    def prepare(self, spec: CopySpec, failure: CopyFailed) -> CopySpec:
        """Create the temporary table for records of the COPY with this spec, and return the spec of a COPY into it.

        The caller then copies the records and calls `sort`. If the records cannot be sorted, `failure` is raised again
        with a hint that says why.
        """
        self._session.begin()
        made = self._session.transaction, spec
        if made != self._made:
            with self._session.between_copies() as connection:
                table = compose_table(spec).as_string(connection)
                if (hint := find_hindrance(connection, table)) is not None:
                    report = replace(failure.report, hint=hint)
                    raise CopyFailed(report, failure.context, is_disconnect=False) from failure
                (target,) = fetch_rows(connection, "loading/sorting_target", SortingTarget, table=table)
                found = fetch_rows(connection, "loading/sorting_columns", SortingColumn, oid=target.oid)
                self._columns = {column.name: column for column in found}
                connection.execute(self._compose_make(*made))
            self._made = made
        return replace(spec, schema="pg_temp", table=_STAGE)

    def sort(self) -> SortedRows:
        """Move the copied records to the table of the load, and return how many it has stored and which it refused."""
        assert self._made is not None
        _, spec = self._made
        with self._session.between_copies() as connection:
            outcome = run_sorting(
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
                after=sql.SQL("TRUNCATE {}").format(_temporary(_STAGE)),
            )
        refused = (
            (position, Reason(sqlstate=code, message=message, detail=detail or None, column=column or None))
            for position, code, message, detail, column in outcome["refused"]
        )
        self._session.check_table(spec)
        return SortedRows(stored=outcome["stored"], refused=tuple(refused))

    # ---------------------------------------------------------------- the sorter's statements

    def _compose_make(self, transaction: int, spec: CopySpec) -> sql.Composed:
        columns = [self._columns[name] for name in spec.columns]
        drop = sql.SQL("DROP TABLE {}, {} CASCADE;").format(_temporary(_STAGE), _temporary(_TYPED))
        return sql.SQL(MAKE).format(
            # Drop the stage that this transaction has for another table.
            drop=_NOTHING if self._made is None or self._made[0] != transaction else drop,
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
    # The expression for the result as JSON. The statement returns it in the setting penstock.outcome.
    outcome: sql.Composable
    find_field: sql.Composable = _NOTHING
    # Runs after a stretch.
    after_stretch: sql.Composable = _NOTHING
    declarations: sql.Composable = _NOTHING
    # The WHERE clause that selects the rows to be sorted. By default all rows are sorted.
    portion: sql.Composable = _NOTHING


def run_sorting(
    connection: psycopg.Connection[Any],
    own_codes: Sequence[str],
    parts: SortingParts,
    *,
    counter: sql.Identifier,
    most_in_stretch: int,
    first_size: int = FIRST_SIZE,
    after: sql.Composable = _NOTHING,
) -> dict[str, Any]:
    """Store the rows of a temporary table in stretches of consecutive rows, and record those that are refused.

    Return the value of the expression parts.outcome as Python values. `own_codes` are regular expressions for the
    beginnings of the SQLSTATEs that a single bad record causes. `counter` is a sequence that counts the rows of a
    stretch. `most_in_stretch` and `first_size` are the largest and the first number of rows in a stretch. `after` is a
    statement that runs in the same round trip. Raises psycopg.Error.
    """
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
    cursor = connection.execute(
        sql.SQL(RUN).format(body=sql.Literal(body.as_string(connection)), after=after, encoding=sql.SQL(BYTES_ENCODING))
    )
    cursor.nextset()
    row = cursor.fetchone()
    assert row is not None
    outcome: dict[str, Any] = json.loads(row[0].decode(errors="replace"))
    return outcome


def _temporary(name: str) -> sql.Identifier:
    return sql.Identifier("pg_temp", name)


class ScratchTables:
    """The temporary tables into which one session of --check copies records, one for each target's table and columns.

    Each is created when it is first used. Every commit deletes their rows.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._names: dict[tuple[TableName, frozenset[str]], str] = {}

    def name_for(self, facts: TableFacts, filled: Collection[str]) -> str:
        """Return the name, in pg_temp, of the temporary table for a load that fills the columns `filled` of a table.

        The temporary table has the same columns, and their NOT NULL and CHECK constraints, except constraints on
        columns that the server fills (made_up_columns). It has no defaults, because the default of a serial column
        would advance the sequence. If the load's table does not exist yet (OID 0), all columns are text. Needs
        TEMPORARY on the database and SELECT on the load's table. Raises TargetError, ServerError.
        """
        key = (facts.name, frozenset(filled))
        if key not in self._names:
            # The tables are numbered, because two schemas may have a table of the same name.
            name = f"penstock_check_{len(self._names) + 1}"
            try:
                with translate_errors(f"creating a temporary table like {facts.name}"):
                    _create(self._connection, name, facts)
                    _loosen(self._connection, name, made_up_columns(facts, filled))
            except TargetError as error:
                hint_missing_right(error, "Have the role granted SELECT on the table, and TEMPORARY on the database.")
                raise
            self._names[key] = name
        return self._names[key]


def made_up_columns(facts: TableFacts, filled: Collection[str]) -> tuple[str, ...]:
    """Return the columns that the server fills, by a default or as identity, in a load that fills the columns `filled`.

    If there are any, generated columns are returned too, because they may be computed from them.
    """
    unfilled = {
        column.name
        for column in facts.columns
        if column.name not in filled and not column.is_generated and (column.has_default or column.identity)
    }
    return tuple(
        column.name for column in facts.columns if column.name in unfilled or (unfilled and column.is_generated)
    )


def _create(connection: Connection, name: str, facts: TableFacts) -> None:
    if facts.oid:
        body = sql.SQL("LIKE {} INCLUDING CONSTRAINTS INCLUDING GENERATED").format(table_identifier(facts.name))
    else:
        body = sql.SQL(", ").join(
            sql.SQL("{} pg_catalog.text").format(sql.Identifier(column.name)) for column in facts.columns
        )
    table = sql.Identifier("pg_temp", name)
    connection.execute(sql.SQL("CREATE TEMPORARY TABLE {} ({}) ON COMMIT DELETE ROWS").format(table, body))


def _loosen(connection: Connection, name: str, columns: Sequence[str]) -> None:
    """Drop the constraints on columns that are null in the temporary table but not in the target."""
    if not columns:
        return
    checks = fetch_names(connection, "loading/checks_of_columns", table=f"pg_temp.{name}", columns=list(columns))
    actions = [sql.SQL("ALTER COLUMN {} DROP NOT NULL").format(sql.Identifier(column)) for column in columns]
    actions += [sql.SQL("DROP CONSTRAINT {}").format(sql.Identifier(check)) for check in checks]
    connection.execute(
        sql.SQL("ALTER TABLE {} {}").format(sql.Identifier("pg_temp", name), sql.SQL(", ").join(actions))
    )
