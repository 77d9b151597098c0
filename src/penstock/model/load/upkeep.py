"""What is done for tables and server once a load is complete: vacuumed, analyzed, a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """The row of upkeep_relations.sql: a table that was loaded, or a partition of it, as VACUUM would find it.

    `root_oid` is the table that was loaded, `kind` is pg_class.relkind ("p" is partitioned and has no pages of its
    own). `known_pages` is what VACUUM or ANALYZE last saw, `visible_pages` how many of them VACUUM need not read.
    `inserted` counts rows ever inserted, `changes` those since then; statistics of sessions that have just ended may be
    missing in both. `may_vacuum`: this role has the right to VACUUM and to ANALYZE it.
    """

    root_oid: int
    oid: int
    schema: str
    name: str
    kind: str
    pages: int
    known_pages: int
    visible_pages: int
    inserted: int
    changes: int
    may_vacuum: bool

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FilledTable:
    """A table that a load has given rows, and how many; earlier runs of the load count too."""

    oid: int
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VacuumStep:
    """One command: VACUUM, ANALYZE or both; `is_only` leaves out the partitions (PostgreSQL 18 and later)."""

    relation: Relation
    vacuums: bool
    analyzes: bool
    is_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class VacuumPlan:
    """The commands in their order, and why some tables get none, in words."""

    steps: tuple[VacuumStep, ...]
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointDecision:
    """Whether a CHECKPOINT follows the load, and why. `is_refused`: it was wanted, and cannot be."""

    is_due: bool
    reason: str
    is_refused: bool = False
