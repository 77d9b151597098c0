"""What follows a complete load: VACUUM and ANALYZE of its tables, and a CHECKPOINT."""

from __future__ import annotations

from penstock.frozen import frozen


@frozen
class Relation:
    """The row of upkeep_relations.sql: a table that was loaded, or a partition of it, before VACUUM.

    `root_oid` is the table that was loaded, `kind` is pg_class.relkind ("p" is a partitioned table, which has no pages
    of its own). `known_pages` is the number of pages at the last VACUUM or ANALYZE. `inserted` counts all rows ever
    inserted. `changes` counts the rows changed since the last ANALYZE and the rows inserted since the last VACUUM.
    Neither count may include sessions that have just ended.
    `may_vacuum` is true if this role may VACUUM and ANALYZE the table.
    """

    root_oid: int
    oid: int
    schema: str
    name: str
    kind: str
    pages: int
    known_pages: int
    inserted: int
    changes: int
    may_vacuum: bool

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"


@frozen
class VacuumStep:
    """One command: VACUUM, ANALYZE or both; `is_only` skips the partitions (PostgreSQL 18 and later)."""

    relation: Relation
    vacuums: bool
    analyzes: bool
    is_only: bool = False


@frozen
class VacuumPlan:
    """The commands in their order, and why some tables are skipped."""

    steps: tuple[VacuumStep, ...]
    left_out: tuple[str, ...] = ()


@frozen
class CheckpointDecision:
    """Whether a CHECKPOINT follows the load, and why. `is_refused` is true if it was due but is not possible."""

    is_due: bool
    reason: str
    is_refused: bool = False
