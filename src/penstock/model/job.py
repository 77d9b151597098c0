"""What the user asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.model.dialect import DialectOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.model.table import TableName


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetJob:
    """One table to fill and where its bytes come from.

    `columns` names the file's fields in order (in place of a header). `constants` (--set) gives columns a value for
    every row, in which {filename} stands for the object's last path part. `skip` names header fields to leave out.
    `create` makes the table, with text columns named by the header, where there is none.
    """

    sources: tuple[str, ...]
    table: TableName
    dialect: DialectOptions = field(default_factory=DialectOptions)
    columns: tuple[str, ...] | None = None
    constants: Mapping[str, str] = field(default_factory=dict)
    skip: tuple[str, ...] = ()
    create: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadJob:
    """One load of one or more targets by the same sessions; `sessions` None means auto."""

    targets: tuple[TargetJob, ...]
    sessions: int | None = None
