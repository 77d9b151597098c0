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
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from psycopg import sql

from penstock.model.load.landing import OBJECT_COLUMN, POSITION_COLUMNS
from penstock.server.connect.connection import Connection
from penstock.server.connect.errors import translate_errors
from penstock.server.connect.search_path import SETTINGS, users_settings
from penstock.server.copy.sorting import SortingParts, compose_sorting
from penstock.server.merge.merge import MergeCounts, MergeParts, PlanCounts, count_staged
from penstock.server.merge.merge_refused import RefusedRecords
from penstock.server.merge.merge_sorting_statements import COUNT, DECLARATIONS, OUTCOME, STORE_ALL, STORE_COUNTED
from penstock.server.sql.queries import fetch_one, list_identifiers, table_identifier

_TEMPORARY: Final = "pg_temp"

# A stretch costs as much overhead as some hundred rows. For each bad record in it, the stretch is undone and stored
# again.
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
        # The most that one statement merges. It is limited, because the statement keeps the position of each row in
        # memory.
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
