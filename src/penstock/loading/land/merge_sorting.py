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
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any, Final, LiteralString, NamedTuple

import psycopg
from psycopg import sql

from penstock.core.catalogue.staging import BLOCK_COLUMN, OBJECT_COLUMN, POSITION_COLUMNS, SEQUENCE_COLUMN
from penstock.core.connect.connection import Connection
from penstock.core.connect.errors import translate_errors
from penstock.core.connect.search_path import SETTINGS, users_settings
from penstock.core.sql import fetch_one, list_identifiers, table_identifier
from penstock.ledger.rejects import FOREIGN_KEY_VIOLATION, Reason
from penstock.ledger.values import MergeCounts
from penstock.loading.land.merge import MergeParts, PlanCounts, count_staged
from penstock.loading.land.merge_errors import RecordPosition
from penstock.loading.land.merge_key import same_key, same_lack
from penstock.loading.rejects.sorting import BYTES_ENCODING, FIRST_SIZE, SortingParts, run_sorting

# The PL/pgSQL code that stores a stretch. It composes the statement's text before it changes search_path to the user's.
STORE_STAGED: Final = """
            statement := {head} || pg_catalog.quote_literal(sorting.lower) || {middle}
                || pg_catalog.quote_literal(sorting.upper) || {tail};
            {to_users};
            EXECUTE statement{into};
            GET DIAGNOSTICS affected = ROW_COUNT;
            {to_own};
            {read_plan}
"""
# Reads the server's counts from the plan, if the statement returns it.
READ_PLAN: Final = """
            affected := pg_catalog.json_extract_path_text(plan, '0', 'Plan', 'Actual Rows')::numeric;
            met := pg_catalog.json_extract_path_text(plan, '0', 'Plan', 'Conflicting Tuples')::numeric;
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
                INSERT INTO {refused} ({columns}, {reason})
                SELECT {columns},
                       ARRAY[sorting.code, sorting.words, NULLIF(sorting.more, ''), NULLIF(sorting.field, '')]
                  FROM {chosen} AS s
                 WHERE s.ctid = sorting.places[sorting.bad];
                noted := noted + CASE WHEN sorting.code = {reference} THEN 0 ELSE 1 END;
"""
OUTCOME: Final = """
        pg_catalog.json_build_object('stored', stored, 'proposed', proposed, 'conflicts', conflicts, 'noted', noted)
"""

READ_BLOCKS: Final = """
    SELECT {object}, pg_catalog.array_agg(DISTINCT {block} ORDER BY {block}) FROM {refused} GROUP BY {object}
"""
READ_REFUSED: Final = """
    SELECT r.{object}, r.{block}, n.penstock_record,
           pg_catalog.convert_to(pg_catalog.to_json(r.{reason})::pg_catalog.text, {encoding})
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
    INSERT INTO {refused} ({columns}, {reason})
    SELECT DISTINCT ON (s.{object}, s.{block}, s.{sequence})
           {staged_columns}, ARRAY[r.{reason}[1], {same_key} || r.{reason}[2], r.{reason}[3], r.{reason}[4]]
      FROM {staging} AS s
      JOIN {refused} AS r ON {same}
     WHERE NOT EXISTS (
               SELECT FROM {refused} AS r
                WHERE r.{object} = s.{object} AND r.{block} = s.{block} AND r.{sequence} = s.{sequence}
           )
"""
TAKE_REFERENCES: Final = """
    WITH moved AS (
        DELETE FROM {refused} WHERE {reason}[1] = {reference} RETURNING {columns}
    )
    INSERT INTO {chosen} ({columns}) SELECT {columns} FROM moved ORDER BY {order}
"""
_COMMA: Final = sql.SQL(", ")

_TEMPORARY: Final = "pg_temp"

# The column of refused records with SQLSTATE, message, detail and column. It follows the record's own columns.
_REASON: Final = "penstock_reason"

# The beginning of the message for a record that is rejected because another record with its key was refused.
_SAME_KEY: Final = "another record with this key was rejected: "

# How many refused records one fetch returns.
_FETCHED = 1000

# The largest number of records in a stretch. A stretch costs as much overhead as some hundred rows. For each bad record
# in a stretch, the stretch is undone and stored again.
_MOST_IN_STRETCH = 20_000

# Distinguishes the temporary tables of the merges of a transaction.
_numbers = count()


class RefusedRecord(NamedTuple):
    """A staged record that the table refused: its position in the files, and the server's reason."""

    position: RecordPosition
    reason: Reason


class MergeSorter:
    """Merges one staging table, and keeps the records that the table refuses. Methods raise PenstockError.

    Call `merge` of each sorter, and then `settle` with all sorters.
    """

    def __init__(
        self,
        connection: Connection,
        parts: MergeParts,
        *,
        # Prefixes of the SQLSTATEs that a single bad record causes.
        own_codes: Sequence[str],
        # How many bytes of records one statement merges at most, because the statement keeps the position of each row
        # in memory.
        portion_bytes: int,
    ) -> None:
        self._connection = connection
        self._portion_bytes = portion_bytes
        self._parts = parts
        self._own_codes = own_codes
        self._what = f"merging into {parts.target.name}"
        number = next(_numbers)
        chosen = f"penstock_merge_{number}"
        self._chosen = sql.Identifier(_TEMPORARY, chosen)
        self._counter = sql.Identifier(_TEMPORARY, f"penstock_merge_counter_{number}")
        columns = (*parts.columns, *POSITION_COLUMNS)
        self._names: dict[str, sql.Composable] = {
            "chosen": self._chosen,
            "counter": self._counter,
            "refused": sql.Identifier(_TEMPORARY, f"penstock_refused_{number}"),
            "staging": table_identifier(parts.staging),
            "columns": list_identifiers(columns),
            "staged_columns": _COMMA.join(sql.Identifier("s", name) for name in columns),
            "reason": sql.Identifier(_free_name(_REASON, taken=parts.columns)),
            "object": sql.Identifier(OBJECT_COLUMN),
            "owner": sql.Identifier(_TEMPORARY, chosen, OBJECT_COLUMN),
            "block": sql.Identifier(BLOCK_COLUMN),
            "sequence": sql.Identifier(SEQUENCE_COLUMN),
            "reference": sql.Literal(FOREIGN_KEY_VIOLATION),
            "same_key": sql.Literal(_SAME_KEY),
        }
        # The sums of what the statements have returned.
        self._sums = Counter[str]()
        self._staged = 0
        self._has_others = False
        self._is_backwards = True

    @property
    def noted(self) -> int:
        """Return how many records are refused so far, except for a foreign key: a later merge may store those."""
        return self._sums["noted"]

    def merge(self, *, limit: int | None = None) -> None:
        """Store the staged records that the table takes, and keep the others with the server's reasons.

        Stop early if `noted` is greater than `limit`.
        """
        distinct, order = self._parts.compose_order(is_rejecting=True)
        with translate_errors(self._what):
            made = self._run(
                "CREATE TEMPORARY TABLE {chosen} ON COMMIT DROP AS"
                " SELECT {distinct} {columns} FROM {staging} AS s ORDER BY {order}",
                distinct=distinct,
                order=order,
            ).rowcount
            self._run("CREATE TABLE {refused} (LIKE {chosen}, {reason} pg_catalog.text[]) ON COMMIT DROP")
            self._run("CREATE SEQUENCE {counter} CACHE 1000 OWNED BY {owner}")
        self._staged = count_staged(self._connection, self._parts.staging)
        self._has_others = self._staged > made
        self._process(limit=limit)

    def retry_references(self) -> int:
        """Try the records that violate a foreign key again. Return how many of them do not violate one any more.

        Each call reverses the order in which they are tried.
        """
        direction = sql.SQL(" DESC" if self._is_backwards else "")
        order = _COMMA.join(sql.Identifier(name) + direction for name in POSITION_COLUMNS)
        with translate_errors(self._what):
            moved = self._run(TAKE_REFERENCES, order=order).rowcount
        if not moved:
            return 0
        self._is_backwards = not self._is_backwards
        # Try all in one stretch first, because they may refer to each other.
        self._process(first_size=moved)
        return moved - self._count("SELECT pg_catalog.count(*) FROM {refused} WHERE {reason}[1] = {reference}")

    def refuse_same_keys(self) -> None:
        """Refuse the records that have the same key as a refused one. Call this when no more records can be stored."""
        if not self._has_others or not self.count_refused():
            return
        assert self._parts.key is not None
        with translate_errors(self._what):
            self._run("ANALYZE {refused}")
            # Two statements, because of the reason that same_lack has.
            for same in filter(None, (same_key(self._parts.key, "s", "r"), same_lack(self._parts.key, "s", "r"))):
                self._run(ADD_SAME_KEYS, same=same)

    def counts(self) -> MergeCounts:
        """Return the counts of all records except the refused ones."""
        # Each record was either refused, or proposed to the table once, or left out because another record has its key.
        staged, sums = self._staged - self.count_refused(), self._sums
        assert sums["proposed"] == staged or self._has_others
        return self._parts.count(
            PlanCounts(staged=staged, proposed=sums["proposed"], conflicts=sums["conflicts"], stored=sums["stored"])
        )

    # ---------------------------------------------------------------- refused records

    def count_refused(self) -> int:
        """Return the number of refused records."""
        return self._count("SELECT pg_catalog.count(*) FROM {refused}")

    def read_blocks(self) -> dict[int, list[int]]:
        """Return the offsets of the blocks that have refused records, ascending, by the number of the object."""
        with translate_errors("reading refused records"):
            return dict(self._run(READ_BLOCKS).fetchall())

    def read_refused(self) -> Iterator[RefusedRecord]:
        """Yield the refused records in file order. Other statements may run in between."""
        with translate_errors("reading refused records"):
            self._run("ANALYZE {refused}")
            with self._connection.cursor(name="penstock_refused") as cursor:
                cursor.execute(self._compose(READ_REFUSED, encoding=sql.SQL(BYTES_ENCODING)))
                while rows := cursor.fetchmany(_FETCHED):
                    for number, start, record, said in rows:
                        sqlstate, message, detail, column = json.loads(said.decode(errors="replace"))
                        position = RecordPosition(object_number=number, block_start=start, record=record)
                        reason = Reason(sqlstate=sqlstate, message=message, detail=detail, column=column)
                        yield RefusedRecord(position, reason)

    def _count(self, query: LiteralString) -> int:
        with translate_errors("counting refused records"):
            return int(fetch_one(self._connection, self._compose(query))[0])

    def _run(self, text: LiteralString, **names: sql.Composable) -> psycopg.Cursor[tuple[Any, ...]]:
        return self._connection.execute(self._compose(text, **names))

    def _compose(self, text: LiteralString, **names: sql.Composable) -> sql.Composed:
        return sql.SQL(text).format(**self._names, **names)

    # ---------------------------------------------------------------- stretches

    def _process(self, *, limit: int | None = None, first_size: int = FIRST_SIZE) -> None:
        """Store the chosen records, a portion of pages at a time."""
        with translate_errors(self._what):
            size_bytes, page_bytes = fetch_one(
                self._connection,
                "SELECT pg_catalog.pg_relation_size(%s::regclass), pg_catalog.current_setting('block_size')::int8",
                [self._chosen.as_string(self._connection)],
            )
            portion = max(1, self._portion_bytes // page_bytes)
            for page in range(0, size_bytes // page_bytes, portion):
                self._take_on(page, page + portion, first_size=first_size)
                if limit is not None and self.noted > limit:
                    return
            self._run("TRUNCATE {chosen}")

    def _take_on(self, page: int, behind: int, *, first_size: int) -> None:
        outcome = run_sorting(
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
                note=self._compose(NOTE),
                outcome=sql.SQL(OUTCOME),
            ),
            counter=self._counter,
            most_in_stretch=_MOST_IN_STRETCH,
            first_size=first_size,
        )
        self._sums.update(outcome)

    def _compose_store(self) -> sql.Composed:
        """Return the PL/pgSQL code that stores one stretch, a range of consecutive chosen records.

        Its INSERT and ON CONFLICT are those of the merge of all records.
        """
        head, tail = self._parts.compose_group(self._chosen)
        middle = " AND s.ctid OPERATOR(pg_catalog.<=) "
        counted = sql.SQL(" AND pg_catalog.nextval({}::pg_catalog.regclass) OPERATOR(pg_catalog.>) 0").format(
            sql.Literal(self._counter.as_string(self._connection))
        )
        is_counted = self._parts.key is not None
        return sql.SQL(STORE_STAGED).format(
            into=sql.SQL(" INTO plan" if is_counted else ""),
            read_plan=sql.SQL(READ_PLAN if is_counted else ""),
            head=sql.Literal((head + sql.SQL(" WHERE s.ctid OPERATOR(pg_catalog.>=) ")).as_string(self._connection)),
            middle=sql.Literal(middle),
            tail=sql.Literal((counted + tail).as_string(self._connection)),
            **SETTINGS,
        )


def _free_name(name: str, *, taken: Sequence[str]) -> str:
    """Return a name that no column of the file has.

    >>> _free_name("b", taken=("b", "b_"))
    'b__'
    """
    while name in taken:
        name += "_"
    return name


def settle(sorters: Sequence[MergeSorter]) -> None:
    """Try refused records of all merges again until no more can be stored. Then refuse records with a refused key.

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
