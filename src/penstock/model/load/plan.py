"""Everything a load will do, decided before anything is done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from penstock.units import MIB

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.errors import PenstockError
    from penstock.model.load.job import LoadJob, TargetJob
    from penstock.model.load.shape import ParkingPlan
    from penstock.model.server.table import ColumnMap, TableFacts, TableName
    from penstock.model.source.dialect import Dialect, Notice
    from penstock.model.source.source import Compression, SourceObject


# How a header and the records below it differ by one field: the records end with an empty one or the header with an
# empty name, which is dropped; or the header has no name for the first field, in which R writes the names of rows.
Edge = Literal["empty", "row names"]
ROW_NAME = "row"

# Where COPY puts a target's records: into its table, into a staging table that one statement empties into it, or into a
# new table that takes its place.
Landing = Literal["table", "staging", "replacement"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectSample:
    """The start of an object, decompressed: what probing and the plan look at.

    `head` is at most a few hundred KiB, transcoded to the encoding it is sent in and without its byte-order mark;
    `is_whole` tells whether that is all of the object. It begins on `first_line`, behind lines to skip and one that
    names `separator` (sep=;).
    """

    source: SourceObject
    compression: Compression
    head: bytes
    is_whole: bool
    bom: str | None = None
    separator: str | None = None
    first_line: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetPlan:
    """What will be done for one table.

    `create_columns` are the text columns of a table that is yet to be created, None if it exists. `header` are the
    names in the first object's header, None without a header. `column_map` is the first object's; the columns of others
    may come in another order. `edge` says how names and records differ by one field. `sample_compression` and
    `sample_bom` are the first object's. `text_columns` are those of a staging table for a transform, None without one.
    `parking` is what is dropped of the table while it is loaded, None if nothing can be. `estimated_records` is looked
    up if each record fires triggers; None if unknown. `follows` are the staged tables of this load to which the table's
    foreign keys refer: the table gets its rows after them. `refusal` is why the table does not take the columns of
    files that are loaded already: it is raised if one of them is to be read again.
    """

    job: TargetJob
    table: TableName
    facts: TableFacts | None
    create_columns: tuple[str, ...] | None
    dialect: Dialect
    header: tuple[str, ...] | None
    column_map: ColumnMap
    objects: tuple[SourceObject, ...]
    sample_compression: Compression
    allows_suppressed_rows: bool
    landing: Landing = "table"
    text_columns: tuple[str, ...] | None = None
    parking: ParkingPlan | None = None
    estimated_records: int | None = None
    sample_bom: str | None = None
    follows: tuple[TableName, ...] = ()
    refusal: PenstockError | None = None
    edge: Edge | None = None

    @property
    def fills_table(self) -> bool:
        """Whether COPY fills the table itself, so that rows are there before the load's end."""
        return self.landing == "table"

    @property
    def is_staged(self) -> bool:
        """Whether a statement fills the table from a staging table with the load's end."""
        return self.landing == "staging"

    @property
    def is_replaced(self) -> bool:
        """Whether a new table takes the place of the old one with the load's end."""
        return self.landing == "replacement"


def name_fields(header: Sequence[str] | None, edge: Edge | None) -> tuple[str, ...] | None:
    """Return the names of the fields that are loaded, None without a header."""
    if header is None:
        return None
    if edge == "row names":
        return (ROW_NAME, *header)
    return tuple(header[:-1] if edge == "empty" and header and not header[-1].strip() else header)


def stored_size(targets: Iterable[TargetPlan]) -> int | None:
    """Return the size of all objects as stored, in bytes, or None where one does not tell."""
    return total_size(source for target in targets for source in target.objects)


def total_size(sources: Iterable[SourceObject]) -> int | None:
    """Return the size of objects as stored, in bytes, or None where one does not tell."""
    sizes = [source.size_bytes for source in sources]
    return None if any(size is None for size in sizes) else sum(size or 0 for size in sizes)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPlan:
    """How many COPY sessions: where to start, how far `auto` may go, and why."""

    initial: int
    maximum: int
    is_adaptive: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """How records are divided among transactions and statements.

    A session's transaction ends after `limit_bytes` or `duration_s`; None: with the load. A merge that rejects records
    takes `merge_portion_bytes` of them by one statement, which keeps the position of each in the server's memory.
    """

    limit_bytes: int | None
    duration_s: float | None
    merge_portion_bytes: int = 32 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """The whole load: made by one pure function, printed by --plan, carried out as it stands.

    `is_in_job_order`: objects are read in the order of `ranks`, and not the largest first: of each target its place,
    referenced tables first, and else as in the job. `is_repeatable`: every
    source can be read again, so a fault that passes can be waited out and a load that was cut short resumed.
    `defers_keys`: foreign keys refer to each other in a circle, and rows come to their tables in one transaction.
    """

    load_id: str
    job: LoadJob
    targets: tuple[TargetPlan, ...]
    sessions: SessionPlan
    batch: BatchPlan
    is_repeatable: bool
    notices: tuple[Notice, ...] = ()
    is_in_job_order: bool = False
    ranks: tuple[int, ...] = ()
    defers_keys: bool = False

    def rank(self, place: int) -> int:
        """Return which target's turn a target has."""
        return self.ranks[place] if self.ranks else place

    @property
    def changes_shape(self) -> bool:
        """Whether something of a table is parked or switched off from the start."""
        rules = self.job.rules
        is_switching = rules.triggers != "keep" or rules.autovacuum == "pause"
        return is_switching or any(target.parking and target.parking.parked for target in self.targets)

    @property
    def size_bytes(self) -> int | None:
        """Return the sources' size as stored, or None where one does not tell."""
        return stored_size(self.targets)
