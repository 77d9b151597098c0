"""Compares the values of one table: its objects are sent again, and the server compares the rows.

One session sends the objects into a temporary table, as text, so the server reads each value itself. Then rows are
compared as multisets of the SHA-256 of their binary values (record_send): rows count as equal only if their values are
equal to the bit. A merge leaves the key of a row as it is, so there the
key's index decides whether keys are equal. Only the first rows that differ are read here.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from typing import LiteralString

import psycopg
from psycopg import sql

from penstock.core.catalogue.staging import OBJECT_COLUMN, POSITION_COLUMNS, make_landing_table
from penstock.core.connect.connection import Connection
from penstock.core.connect.errors import in_transaction
from penstock.core.errors import TargetError
from penstock.core.slotted import slotted
from penstock.core.sql import fetch_one, fetch_rows, list_identifiers, table_identifier
from penstock.core.values.notice import Notice
from penstock.core.values.table import TableName
from penstock.ledger.rejects import Reason, Reject
from penstock.loading.context import LoadTools
from penstock.loading.copy.copy import CopyFailed, CopySession
from penstock.loading.land.locate import find_records
from penstock.loading.land.merge import find_parts
from penstock.loading.land.merge_errors import find_position
from penstock.loading.land.merge_key import Key, UniqueIndex, same_key, same_lack
from penstock.loading.land.merge_sorting import RefusedRecord
from penstock.loading.read.feed import Abandoned, BlockFeed, FeedPlan, OpenObject, reader_limit
from penstock.loading.read.objects import open_blocks
from penstock.loading.rejects.explain import explain_failure
from penstock.loading.rejects.pieces import Piece, origin_of
from penstock.loading.rejects.sorter import RejectSorter, part_unwritable
from penstock.loading.values.objects import Block, PlannedObject
from penstock.loading.values.plan import total_size
from penstock.proof.decide import group_by_columns, has_crossing, has_only_keys
from penstock.proof.later import UPDATED_COLUMN, LaterLoads, hash_of
from penstock.proof.values import VerifiedTable, differs

# How much text one COPY command and its transaction carry, so that their round trips do not count.
_SENT_BYTES = 4 * 1024 * 1024

# How many differing records, and how many differing rows, of a table are shown, and how many characters of each.
_MOST_SHOWN = 10
_SHOWN_CHARACTERS = 200

_SENT = TableName(schema="pg_temp", name="penstock_sent")
_REASON = Reason(message="is not in the table")


@slotted
class _ComparedColumns:
    """Columns in which records are compared with the table."""

    columns: tuple[str, ...]
    # The query of the sent records that must be in the table.
    chosen: sql.Composed


def rows_of(table: VerifiedTable) -> sql.Composed:
    """Return the SQL that follows FROM in a query of a table's rows, without those of tables that inherit from it."""
    return sql.SQL("ONLY {}" if table.kind == "r" else "{}").format(table_identifier(table.table))


@contextmanager
def seeing_all_rows(connection: Connection, table: VerifiedTable, what: str) -> Iterator[None]:
    """Run the block in a transaction that fails if a row-level security policy hides rows of a table.

    `what` is a word such as "counting". Error messages have it before "the rows of" and the table's name. Raises
    TargetError, ServerError.
    """
    try:
        with in_transaction(connection, f"{what} the rows of {table.table}"):
            connection.execute("SET LOCAL row_security = off")
            yield
    except TargetError as error:
        if isinstance(error.__cause__, psycopg.errors.InsufficientPrivilege):
            error.hint = "Have the owner grant SELECT on the table and USAGE on its schema."
        raise


class TableComparison:
    """Compares the values of one table with the files of a load. Methods raise PenstockError.

    `later` has the later loads into the table, which are compared before this one, and the session that is used. `work`
    are the objects that fill the table, each with its number in the ledger and the columns that it has. `left_out` maps
    the numbers of objects to the positions of records that are not compared: those that the load has rejected, and
    those that a user has corrected. A position is the decompressed byte at which a record begins, or the number of a
    row in a Parquet or Arrow file; positions are in ascending order. `began_s` is the time, by the clock of `tools`,
    since which progress is reported. After `run`, the attribute `records` has the number of records that were read from
    each object, by the object's number. The temporary tables end with the session.
    """

    def __init__(
        self,
        later: LaterLoads,
        tools: LoadTools,
        table: VerifiedTable,
        work: Sequence[PlannedObject],
        *,
        left_out: Mapping[int, Sequence[int]],
        began_s: float,
    ) -> None:
        self._later = later
        self._connection = connection = later.open()
        self._tools = tools
        self._table = table
        self._work = {each.number: replace(each, landing=_SENT) for each in work}
        self._left_out = left_out
        self._began_s = began_s
        self._target = work[0].target
        self._session = CopySession(connection, is_protected=True)
        self._sorter = RejectSorter(self._session)
        self.records = Counter[int]()
        self._bytes = 0
        self._groups = group_by_columns(table, work)
        # The columns that all objects have.
        self._columns = next(iter(self._groups))
        # The records that the server refuses now: the offsets of all, by object, and the first ones.
        self._refused: dict[int, list[int]] = defaultdict(list)
        self._shown: list[Reject] = []
        self._others: tuple[str, ...] = ()

    def run(self) -> tuple[VerifiedTable, list[Notice]]:
        """Send the objects into temporary tables and compare them there with the table.

        Return the table with what was counted, and a notice for each of the first ten records that the table lacks and
        the first ten rows that the files lack.
        """
        facts = self._target.facts
        assert facts is not None
        columns = tuple(dict.fromkeys(name for each in self._work.values() for name in each.target.column_map.columns))
        # The columns that the files lack. A row that no other load has changed has null there, or the column's default.
        if self._later.counts_rows:
            unfed = (each.name for each in facts.columns if not each.is_generated and each.name not in columns)
            self._others = tuple(unfed)
        parts, written_otherwise, key = self._choose()
        self._connection.execute("DROP TABLE IF EXISTS pg_temp.penstock_sent, pg_temp.penstock_differing")
        make_landing_table(
            self._connection,
            schema="pg_temp",
            name=_SENT.name,
            target=facts,
            columns=(*columns, *self._others),
            as_text=False,
        )
        try:
            self._send_all()
        except CopyFailed as failure:
            raise explain_failure(failure, where=failure.location) from failure
        with seeing_all_rows(self._connection, self._table, "comparing"):
            merged = parts[0].chosen if self._target.landing.updates else None
            self._later.change(_SENT, columns, merged=merged, key=key)
            if self._later.counts_rows:
                everything = [each.name for each in facts.columns if not each.is_generated]
                self._later.note_rows(parts[0].chosen, everything)
            unkeyed = self._find_unkeyed(parts[0], key)
            if self._later.are_several and unkeyed is not None:
                self._later.note_hashes(unkeyed, parts[0].columns)
            missing = extra = 0
            shown, surplus = self._shown, list[Notice]()
            for number, part in enumerate(parts):
                # Rows that no file has are looked for in the columns that all files have.
                lacking, more = self._compare(part, both_ways=self._table.is_compared_both_ways and number == 0)
                shown = [*shown, *self._find_missing(part)] if lacking else shown
                surplus += self._find_extra(part) if more else []
                missing, extra = max(missing, lacking), extra + more
                self._connection.execute("DROP TABLE pg_temp.penstock_differing")
            (otherwise,) = fetch_one(self._connection, written_otherwise)
            problems = [*dict.fromkeys(map(self._name, shown))][:_MOST_SHOWN] + surplus
        compared = replace(
            self._table,
            compared=self.records.total() - sum(len(self._left_out.get(number, ())) for number in self._work),
            compared_bytes=self._bytes,
            missing=missing + sum(map(len, self._refused.values())),
            extra=extra,
            written_otherwise=otherwise,
            has_only_keys=has_only_keys(self._table, self._target),
            has_key=unkeyed is None,
            has_crossing=has_crossing(self._groups),
        )
        return compared, problems

    def _find_unkeyed(self, part: _ComparedColumns, key: Key | None) -> sql.Composed | None:
        """Return a query of the records that no unique index keeps from being equal to others, None if there are none.

        `key` is that of the load's merge, None if it has none. Of a merge, they are those with a null in the key.
        """
        if self._has_key():
            return None
        if key is None:
            return part.chosen
        nulls = [
            sql.SQL("c.{} IS NULL").format(sql.Identifier(each.name)) for each in key.columns if not each.is_not_null
        ]
        if key.has_equal_nulls or not nulls:
            return None
        found = sql.SQL("SELECT * FROM ({}) AS c WHERE {}").format(part.chosen, sql.SQL(" OR ").join(nulls))
        (is_there,) = fetch_one(self._connection, sql.SQL("SELECT EXISTS ({})").format(found))
        return found if is_there else None

    def _has_key(self) -> bool:
        """Return whether a unique index keeps two rows from being equal in the columns of the files."""
        indexes = fetch_rows(self._connection, "loading/merge_keys", UniqueIndex, oid=self._table.oid)
        return any(
            (each.is_primary or each.has_equal_nulls)
            and each.is_valid
            and not (each.is_partial or each.is_deferrable)
            and set(each.columns) <= set(self._columns)
            for each in indexes
        )

    # ---------------------------------------------------------------- sending

    def _send_all(self) -> None:
        work = list(self._work.values())
        feed = BlockFeed(
            work,
            lambda item: open_blocks(item, self._tools),
            FeedPlan(reader_limit=reader_limit(len(work), sessions=1), sessions=1),
            clock=self._tools.clock,
        )
        try:
            self._send_blocks(feed)
            self._report(feed, activity=f"comparing with {self._table.table}")
        except Abandoned:
            assert feed.failure is not None
            raise feed.failure from None
        except BaseException as exc:
            feed.abandon(exc)
            self._tools.sources.interrupt()
            self._session.abandon()
            raise
        finally:
            feed.close()

    def _send_blocks(self, feed: BlockFeed) -> None:
        pieces: list[Piece] = []
        waiting_bytes = 0
        while (taken := feed.take(session=0, prefer=None)) is not None:
            opened, block = taken
            self.records[opened.work.number] += block.records
            pieces += self._cut(opened, block)
            waiting_bytes += block.size_bytes
            feed.note_sent(opened, block.records)
            if waiting_bytes >= _SENT_BYTES:
                self._send(pieces)
                self._bytes += waiting_bytes
                pieces, waiting_bytes = [], 0
                self._report(feed)
        self._send(pieces)
        self._bytes += waiting_bytes

    def _cut(self, opened: OpenObject, block: Block) -> list[Piece]:
        """Return the records of a block that are compared and that can be written for COPY."""
        piece = Piece(origin=origin_of(opened, self._tools.server_major), block=block)
        at = piece.records_at(self._left_out.get(opened.work.number, ()))
        edges = zip([0, *(each + 1 for each in at)], [*at, block.records], strict=True)
        kept = [piece.cut(first, stop) for first, stop in edges if first < stop] if at else [piece]
        good: list[Piece] = []
        for each in kept if block.records else []:
            parts, refused = part_unwritable(each)
            good += parts
            self._note_refused(refused)
        return good

    def _send(self, pieces: Sequence[Piece]) -> None:
        if pieces:
            self._note_refused(self._sorter.send(pieces).rejects)
            self._session.commit()

    def _note_refused(self, refused: Sequence[Reject]) -> None:
        for each in refused:
            self._refused[each.object_number].append(each.start)
        for each in refused[: _MOST_SHOWN - len(self._shown)]:
            # The table may have its row nevertheless, for example if the type was altered since.
            reason = replace(each.reason, message=f"is refused now: {each.reason.message}")
            self._shown.append(replace(each, reason=reason))

    def _report(self, feed: BlockFeed, *, activity: str = "") -> None:
        if self._tools.on_progress is not None:
            progress = feed.progress(
                bytes_copied=self._bytes,
                size_bytes=total_size(each.source for each in self._work.values()),
                elapsed_s=self._tools.clock() - self._began_s,
            )
            self._tools.on_progress(replace(progress, activity=activity))

    # ---------------------------------------------------------------- comparing

    def _compare(self, part: _ComparedColumns, *, both_ways: bool) -> tuple[int, int]:
        """Find the hashes that differ. Return how many records the table lacks, and how many rows it has in addition.

        The rows in addition are counted only if `both_ways` is true.
        """
        self._connection.execute(
            self._compose(
                part,
                "CREATE TABLE pg_temp.penstock_differing AS SELECT e.hash, sum(e.weight) AS surplus"
                " FROM (SELECT {hash} AS hash, 1 AS weight FROM ({chosen}) AS c"
                " UNION ALL SELECT {hash}, -1 FROM {rows} AS t) AS e"
                " GROUP BY e.hash HAVING sum(e.weight) {differs} 0",
                differs=sql.SQL("<>" if both_ways else ">"),
            )
        )
        query = (
            "SELECT coalesce(sum(surplus) FILTER (WHERE surplus > 0), 0)::int8,"
            " coalesce(-sum(surplus) FILTER (WHERE surplus < 0), 0)::int8 FROM pg_temp.penstock_differing"
        )
        missing, extra = fetch_one(self._connection, query)
        return missing, extra

    def _find_missing(self, part: _ComparedColumns) -> Iterator[Reject]:
        """Yield the first records that the table lacks, found in their objects."""
        query = self._compose(
            part,
            "SELECT {positions} FROM (SELECT c.*, d.surplus,"
            " row_number() OVER (PARTITION BY d.hash ORDER BY {positions}) AS rank"
            " FROM (SELECT {hash} AS hash, {positions} FROM ({chosen}) AS c) AS c"
            " JOIN pg_temp.penstock_differing AS d ON d.hash = c.hash WHERE d.surplus > 0) AS f"
            " WHERE f.rank <= f.surplus ORDER BY {positions} LIMIT {limit}",
        )
        rows = self._connection.execute(query).fetchall()
        positions = [find_position(self._connection, _SENT, *row) for row in rows]
        for number, of_object in groupby(positions, key=attrgetter("object_number")):
            found = [RefusedRecord(each, _REASON) for each in of_object]
            _, rejects = find_records(
                self._work[number],
                self._tools,
                found,
                blocks=sorted({each.position.block_start for each in found}),
                rejected=sorted(self._refused[number]),
                committed=[],
            )
            yield from rejects

    def _name(self, reject: Reject) -> Notice:
        return differs(
            self._work[reject.object_number].source.uri,
            reject.reason.message,
            line=reject.line,
            record=reject.raw.decode("utf-8", errors="backslashreplace").rstrip("\r\n")[:_SHOWN_CHARACTERS],
        )

    def _find_extra(self, part: _ComparedColumns) -> list[Notice]:
        """Return the first rows that the files lack."""
        query = self._compose(
            part,
            "SELECT f.shown FROM (SELECT e.shown, d.surplus, row_number() OVER (PARTITION BY d.hash) AS rank"
            " FROM (SELECT {hash} AS hash, pg_catalog.left(ROW({columns})::text, {length}) AS shown FROM {rows} AS t)"
            " AS e JOIN pg_temp.penstock_differing AS d ON d.hash = e.hash WHERE d.surplus < 0) AS f"
            " WHERE f.rank <= -f.surplus LIMIT {limit}",
        )
        rows = self._connection.execute(query).fetchall()
        where = str(self._table.table)
        return [differs(where, "has a row that is not in the files", record=shown) for (shown,) in rows]

    def _compose(self, part: _ComparedColumns, query: LiteralString, **more: sql.Composable) -> sql.Composed:
        columns = list_identifiers(part.columns)
        return sql.SQL(query).format(
            hash=hash_of(columns),
            columns=columns,
            chosen=part.chosen,
            rows=rows_of(self._table),
            positions=list_identifiers(POSITION_COLUMNS),
            limit=sql.Literal(_MOST_SHOWN),
            length=sql.Literal(_SHOWN_CHARACTERS),
            **more,
        )

    def _choose(self) -> tuple[list[_ComparedColumns], sql.Composed, Key | None]:
        """Return what must be in the table, the query that counts keys written otherwise, and the key of a merge.

        With a key, the records are those that the merge keeps. Each has the key as its row writes it, if it has a row.
        """
        job, landing, facts = self._target.job, self._target.landing, self._target.facts
        assert facts is not None
        sent = table_identifier(_SENT)
        if not landing.is_keyed:
            of_objects = sql.SQL("SELECT * FROM {} WHERE {} = ANY ({})")
            number = sql.Identifier(OBJECT_COLUMN)
            parts = [
                _ComparedColumns(columns=columns, chosen=of_objects.format(sent, number, sql.Literal(numbers)))
                for columns, numbers in self._groups.items()
            ]
            return parts, sql.SQL("SELECT 0::int8").format(), None
        columns = self._target.column_map.columns
        merge = find_parts(
            self._connection,
            staging=_SENT,
            target=facts,
            columns=columns,
            key=job.key,
            updates=landing.updates,
            keep=job.keep,
        )
        assert merge.key is not None
        ways = filter(None, [same_key(merge.key, "r", "t"), same_lack(merge.key, "r", "t")])
        matched = sql.SQL("(SELECT {} * FROM {} ORDER BY {}) AS r LEFT JOIN {} AS t ON {}").format(
            merge.compose_order()[0],
            sent,
            merge.compose_order()[1],
            rows_of(self._table),
            sql.SQL(" OR ").join(sql.SQL("({})").format(way) for way in ways),
        )
        found = sql.SQL("t.tableoid IS NOT NULL")
        values = [
            sql.SQL("CASE WHEN {} THEN t.{name} ELSE r.{name} END AS {name}").format(found, name=sql.Identifier(name))
            if name in job.key
            else sql.Identifier("r", name)
            for name in (*columns, *self._others, *POSITION_COLUMNS, UPDATED_COLUMN)
        ]
        keys = (hash_of(sql.SQL(", ").join(sql.Identifier(alias, name) for name in job.key)) for alias in ("r", "t"))
        chosen = sql.SQL("SELECT {} FROM {}").format(sql.SQL(", ").join(values), matched)
        return (
            [_ComparedColumns(columns=self._columns, chosen=chosen)],
            sql.SQL("SELECT pg_catalog.count(*) FROM {} WHERE {} AND {} <> {}").format(matched, found, *keys),
            merge.key,
        )
