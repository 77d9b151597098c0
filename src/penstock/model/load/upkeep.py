"""What follows a complete load: VACUUM and ANALYZE of its tables, and a CHECKPOINT."""

from __future__ import annotations

from penstock.frozen import frozen


@frozen
class Relation:
    """The row of upkeep_relations.sql: a table that was loaded, or a partition of it, before VACUUM.

    The counts of rows may lack those of sessions that have just ended.
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
    # All rows ever inserted.
    inserted: int
    # The rows changed since the last ANALYZE and the rows inserted since the last VACUUM.
    changes: int
    # Whether this role may VACUUM and ANALYZE the table.
    may_vacuum: bool

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"


@frozen
class VacuumStep:
    """One command: VACUUM, ANALYZE or both."""

    relation: Relation
    vacuums: bool
    analyzes: bool
    # Whether the partitions are skipped (PostgreSQL 18 and later).
    is_only: bool = False


@frozen
class VacuumPlan:
    """The commands in their order."""

    steps: tuple[VacuumStep, ...]
    # The tables that are skipped, and why.
    left_out: tuple[str, ...] = ()


@frozen
class CheckpointDecision:
    """Whether a CHECKPOINT follows the load, and why."""

    is_due: bool
    reason: str
    # Whether it was due but is not possible.
    is_refused: bool = False
