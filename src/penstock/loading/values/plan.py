"""The plan of a load: everything it will do, decided before it changes anything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Literal, TypeVar

from penstock.changes.values import IndexPlan
from penstock.core.errors import PenstockError
from penstock.core.slotted import slotted
from penstock.core.tuning import DEFAULT_TUNING, BatchPlan, LoadTuning
from penstock.core.values.accounts import PlanPart, UnreadableObject
from penstock.core.values.dialect import Dialect
from penstock.core.values.job import LoadJob, LoadRules, TargetJob
from penstock.core.values.mode import CLIENT_ROUTE, Landing, RoutePlan
from penstock.core.values.notice import Notice
from penstock.core.values.server import ServerFacts
from penstock.core.values.source import ObjectSample, SourceObject
from penstock.core.values.table import Column, ColumnMap, TableFacts, TableName
from penstock.ledger.values import LedgerOutlook
from penstock.loading.values.types import TYPE_OIDS, ColumnChange, TypedColumn, identify_type

_Part = TypeVar("_Part")

# How a header and its records differ by one field. "empty": either the records end with an empty field or the header
# with an empty name; this field is dropped. "row names": the header has no name for the first field, because R wrote
# row names into it.
Edge = Literal["empty", "row names"]
ROW_NAME = "row"


@slotted
class CopyChoice:
    """The format of COPY in which a target's rows are sent, and why. `reason` is empty if there was no choice."""

    format: Literal["text", "binary"] = "text"
    reason: str = ""
    # Whether blocks with quotes or backslashes are written as csv that has none.
    is_plain: bool = False


@slotted
class FreezeChoice:
    """Whether COPY freezes the rows of the load, and why. `reason` is empty if it does not."""

    is_used: bool = False
    reason: str = ""


@slotted
class TargetPlan:
    """What the load will do for one table: its objects, dialect, columns, indexes, and how records become rows."""

    job: TargetJob
    table: TableName
    # The table as it will be after `changes`, None if the load creates it.
    facts: TableFacts | None
    # The columns of a table that the load creates, None if the table exists.
    create_columns: tuple[str, ...] | None
    # The dialect of the text that is cut into records. If the files are not text, the dialect of the text that is sent.
    dialect: Dialect
    # The names in the first object's header, None without a header.
    header: tuple[str, ...] | None
    # The column map of the first object. Other objects may have their columns in another order.
    column_map: ColumnMap
    objects: tuple[SourceObject, ...]
    # The beginning of the first object that has text.
    sample: ObjectSample
    # Whether row triggers may make COPY report fewer rows than it was sent.
    allows_suppressed_rows: bool
    landing: Landing
    # The columns of a staging table for a transform, None without a transform.
    text_columns: tuple[str, ...] | None = None
    # Which indexes and keys are dropped while the table is loaded.
    indexes: IndexPlan = field(default_factory=IndexPlan)
    # An estimate of the number of records, made only if each record fires triggers. None if it is not known.
    estimated_records: int | None = None
    # The staged tables of this load to which the table's foreign keys refer. Those tables get their rows before this
    # table.
    follows: tuple[TableName, ...] = ()
    # The error that the table does not accept the columns of its files, although these files are loaded already. It is
    # raised only if one of them must be read again.
    refusal: PenstockError | None = None
    # How header and records differ by one field.
    edge: Edge | None = None
    # The types of `create_columns`, None if all are text.
    create_types: tuple[str, ...] | None = None
    # The name of the objects' format (loading/formats), and the format's own value for the first object
    # (ObjectSample.own).
    format: str = "text"
    own: object = None
    # The columns whose types were found in the files, with what decided them.
    typed: tuple[TypedColumn, ...] = ()
    # The objects that are not loaded according to the ledger.
    unloaded: tuple[SourceObject, ...] = ()
    # The columns that the load adds or alters first.
    changes: tuple[ColumnChange, ...] = ()
    # The columns to which the new table of a replacement gives other types.
    retyped: tuple[ColumnChange, ...] = ()
    # Whether INSERT triggers of the parent of a new partition are skipped (--triggers disable).
    skips_triggers: bool = False
    # The tables whose rows a sync's deletions change, each with the foreign key's action.
    cascades: tuple[str, ...] = ()
    # The format of COPY in which rows are sent.
    copy: CopyChoice = CopyChoice()

    @property
    def created_key(self) -> tuple[str, ...]:
        """Return the columns of the primary key of a table that the load creates."""
        return () if self.create_columns is None else self.job.key

    @property
    def fills_table(self) -> bool:
        """Whether COPY fills the table itself, so that rows are committed to it before the load ends."""
        return self.landing.where == "table"

    @property
    def is_truncated_first(self) -> bool:
        """Whether the table is truncated before its first row. A table with a staging table is truncated at the end."""
        return self.fills_table and self.landing.truncates

    @property
    def needs_more_than_copy(self) -> bool:
        """Whether more than COPY into the table is needed: TRUNCATE, a staging table, or a new table."""
        return self.landing.truncates or not self.fills_table

    @property
    def is_staged(self) -> bool:
        """Whether a statement fills the table from a staging table when the load ends."""
        return self.landing.where == "staging"

    @property
    def is_replaced(self) -> bool:
        """Whether COPY fills a new table, which replaces the old one or becomes a partition when the load ends."""
        return self.landing.where in ("replacement", "partition")

    @property
    def is_partition(self) -> bool:
        """Whether COPY fills a table that becomes a partition when the load ends."""
        return self.landing.where == "partition"

    @property
    def takes_types(self) -> bool:
        """Whether a new table replaces the old one, and its columns get the types that were found in the files."""
        return self.is_replaced and self.job.create and self.job.types == "infer"

    def staged(self) -> TargetPlan:
        """Return the plan with a staging table. Return it unchanged if COPY does not fill the table itself."""
        if not self.fills_table:
            return self
        return replace(self, landing=self.landing.staged(), allows_suppressed_rows=False)


def name_fields(header: Sequence[str] | None, edge: Edge | None) -> tuple[str, ...] | None:
    """Return the names of the fields of a record, None without a header.

    `header` has the names in the header. `edge` says how header and records differ by one field, None if they do not.
    """
    if header is None:
        return None
    if edge == "row names":
        return (ROW_NAME, *header)
    return tuple(header[:-1] if edge == "empty" and header and not header[-1].strip() else header)


def create_table_facts(name: TableName, columns: Sequence[str], types: Sequence[str] | None = None) -> TableFacts:
    """Return the facts of a table that does not exist yet: one for --create, or a transform's staging table.

    `types` are the names of the columns' types. Without them, all columns are text.
    """
    typed = zip(columns, types or ["text"] * len(columns), strict=True)
    return TableFacts(
        oid=0,
        name=name,
        kind="r",
        columns=tuple(
            Column(
                name=column,
                type_name=type_name,
                number=number,
                type_oid=oid,
                type_modifier=modifier,
                is_json=type_name == "jsonb",
            )
            for number, (column, type_name) in enumerate(typed, 1)
            for oid, modifier in [(TYPE_OIDS[type_name], -1) if type_name in TYPE_OIDS else identify_type(type_name)]
        ),
    )


def table_after_creation(target: TargetPlan) -> TableFacts:
    """Return the facts of the table whose columns the files fill, as it will be when rows are sent.

    That is the target's table, or a transform's staging table.
    """
    if target.text_columns is not None:
        return create_table_facts(target.table, target.text_columns)
    if target.facts is not None:
        return target.facts
    return create_table_facts(target.table, target.create_columns or (), target.create_types)


def stored_size(targets: Iterable[TargetPlan]) -> int | None:
    """Return the stored (compressed) size of all objects of the targets, in bytes, None if that of one is unknown."""
    return total_size(source for target in targets for source in target.objects)


def total_size(sources: Iterable[SourceObject]) -> int | None:
    """Return the stored (compressed) size of objects, in bytes, None if the size of one is unknown."""
    sizes = [source.size_bytes for source in sources]
    return None if any(size is None for size in sizes) else sum(size or 0 for size in sizes)


@slotted
class SessionPlan:
    """How many COPY sessions the load starts with, how many it may have at most, and why.

    It adds sessions only if `is_adaptive` is true (--sessions auto).
    """

    initial: int
    maximum: int
    is_adaptive: bool
    reason: str
    # How many connections to the server are free.
    connections: int = 0


@slotted
class RowFacts:
    """The facts of a load, apart from its targets, that decide the format of COPY and whether COPY freezes rows."""

    rules: LoadRules
    server: ServerFacts
    route: RoutePlan
    sessions: SessionPlan
    is_repeatable: bool
    tuning: LoadTuning


@slotted
class LoadPlan:
    """The plan of a whole load. plan_load makes it, --plan prints it, and the load runs it unchanged."""

    load_id: str
    job: LoadJob
    server: ServerFacts
    targets: tuple[TargetPlan, ...]
    sessions: SessionPlan
    batch: BatchPlan
    # Whether every source can be read again, so that transient faults can be retried and an interrupted load resumed.
    is_repeatable: bool
    notices: tuple[Notice, ...] = ()
    # Whether objects are read in the order of `ranks`, instead of the largest first.
    is_in_job_order: bool = False
    # Each target's turn: referenced tables first, otherwise the order of the job.
    ranks: tuple[int, ...] = ()
    # Whether foreign keys refer to each other in a circle, so that all rows are committed in one transaction.
    defers_keys: bool = False
    tuning: LoadTuning = DEFAULT_TUNING
    # Whether this process or the server reads the objects.
    route: RoutePlan = CLIENT_ROUTE
    # Objects that cannot be listed, or whose tables have no readable object. The targets do not include them.
    unreadable: tuple[UnreadableObject, ...] = ()
    freeze: FreezeChoice = FreezeChoice()

    def load_order(self, number: int) -> int:
        """Return the rank in which a target gets its rows, given its number in the job. Both count from 0."""
        return self.ranks[number] if self.ranks else number

    @property
    def created_names(self) -> list[TableName]:
        """Return the names of the tables that the load creates, each once."""
        return list(dict.fromkeys(target.table for target in self.targets if target.create_columns is not None))

    @property
    def fills_tables(self) -> bool:
        """Whether the load stores rows in a target table before the load's end."""
        return any(target.fills_table for target in self.targets)

    @property
    def needs_more_than_copy(self) -> bool:
        """Whether more than COPY into the table is needed for some target (see TargetPlan)."""
        return any(target.needs_more_than_copy for target in self.targets)

    @property
    def changes_shape(self) -> bool:
        """Whether the load drops indexes or keys, disables triggers or pauses autovacuum."""
        rules = self.job.rules
        is_switching = rules.triggers != "keep" or rules.autovacuum == "pause"
        return is_switching or any(target.indexes.dropped for target in self.targets)

    @property
    def size_bytes(self) -> int | None:
        """Return the stored (compressed) size of all objects in bytes, None if the size of one is unknown."""
        return stored_size(self.targets)


@slotted
class ForeseenLoad:
    """What a load would do if it began now: its plan, its steps' parts of the plan, and what becomes of each object."""

    plan: LoadPlan
    # What the steps before and after the rows will do, by the name of the step.
    steps: Mapping[str, PlanPart] = field(default_factory=dict)
    # None if the ledger was not asked.
    outlook: LedgerOutlook | None = None
    # The plan's notices, and the warnings that were given while the load was foreseen.
    notices: tuple[Notice, ...] = ()

    def find_part(self, kind: type[_Part]) -> _Part | None:
        """Return what a step would do, given the class of this part of the plan, None if no step has such a part."""
        return next((part for part in self.steps.values() if isinstance(part, kind)), None)


@slotted
class Relation:
    """The row of upkeep_relations.sql: a table that was loaded, or a partition of it, before VACUUM.

    The counts may not include rows of sessions that have just ended.
    """

    # The table that was loaded.
    root_oid: int
    oid: int
    schema: str
    name: str
    # pg_class.relkind; "p" is a partitioned table, which itself has no pages.
    kind: str
    pages: int
    # The number of pages at the last VACUUM or ANALYZE.
    known_pages: int
    # All rows ever inserted, updated and deleted.
    written: int
    # The rows changed since the last ANALYZE and the rows inserted since the last VACUUM.
    changes: int
    # Whether this role may VACUUM and ANALYZE the table.
    may_vacuum: bool

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"


@slotted
class VacuumStep:
    """One command for one table or partition: VACUUM, ANALYZE or both."""

    relation: Relation
    vacuums: bool
    analyzes: bool
    # Whether VACUUM freezes: the load alone has filled the table.
    freezes: bool = False
    # Whether the partitions are skipped (PostgreSQL 18 and later).
    is_only: bool = False


@slotted
class VacuumPlan:
    """The VACUUM and ANALYZE commands after a load, in their order."""

    steps: tuple[VacuumStep, ...]
    # The tables that are skipped, and why.
    left_out: tuple[str, ...] = ()


@slotted
class CheckpointDecision:
    """Whether a CHECKPOINT follows the load, and why or why not."""

    is_due: bool
    reason: str
    # Whether a CHECKPOINT was due but is not possible.
    is_refused: bool = False
