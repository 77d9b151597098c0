"""What the user asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

from penstock.errors import UsageError
from penstock.model.dialect import DialectOptions
from penstock.model.shape import Indexes
from penstock.units import GIB, MB

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.model.table import TableName


# How rows get into a table, and which of several records with the same key counts, by file order.
Mode = Literal["append", "truncate", "replace", "upsert", "insert-new"]
Keep = Literal["first", "last", "error"]


def _check_words(job: TargetJob | LoadRules, **known: Any) -> None:
    """Raise UsageError for a word that is none of its kind: mode="truncat" would append."""
    for name, kind in known.items():
        if (word := getattr(job, name)) not in get_args(kind):
            raise UsageError(f'invalid value "{word}" for {name}', hint=f"Use {', '.join(get_args(kind))}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Transform:
    """A user's statement that takes staged records on; `name` is the file it comes from, for errors."""

    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetJob:
    """One table to fill and where its bytes come from.

    `columns` names the file's fields in order (in place of a header). `constants` (--set) gives columns a value for
    every row, in which {filename} stands for the object's last path part. `skip` names header fields to leave out.
    `create` makes the table, with text columns named by the header, where there is none. `key` names the columns by
    which upsert and insert-new know a row again; `keep` is for upsert. `transform` takes the records on in place of
    COPY, and goes with mode append alone. Its repr leaves the sources out: a URL may be signed. Raises UsageError.
    """

    sources: tuple[str, ...] = field(repr=False)
    table: TableName
    dialect: DialectOptions = field(default_factory=DialectOptions)
    columns: tuple[str, ...] | None = None
    constants: Mapping[str, str] = field(default_factory=dict)
    skip: tuple[str, ...] = ()
    create: bool = False
    mode: Mode = "append"
    key: tuple[str, ...] = ()
    keep: Keep = "error"
    transform: Transform | None = None

    def __post_init__(self) -> None:
        if not self.sources:
            raise UsageError("no source to load", hint="Name files or URLs.")
        _check_words(self, mode=Mode, keep=Keep)


# Whether a warning is an error.
WarningRule = Literal["show", "error"]
# PostgreSQL takes no more than 1 GB as one line. Pieces of files, up to 768 KiB, are to be shorter than the limit.
MAX_RECORD_BYTES = 256 * MB
_RECORD_LIMITS_BYTES = (MB, GIB)

# What to do with what the ledger says is loaded but is another now.
OnChanged = Literal["error", "load", "skip"]
OnEmptied = Literal["error", "load", "skip"]
OnError = Literal["stop", "reject"]
# What becomes of a table's user triggers, and of autovacuum at it, while it is loaded.
TriggerRule = Literal["keep", "disable"]
AutovacuumRule = Literal["keep", "pause"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRules:
    """How a load deals with what the ledger knows, with readers, with others, and with faults.

    `is_atomic`: all rows appear at once. `is_again`: objects that are loaded already are loaded once more. `on_changed`
    is for a new version of an object that is loaded, or begun; `on_emptied` for objects whose rows are gone from the
    table since. `waits`: another process that works on the same load is waited for. `retry_for_s` bounds how long
    faults that pass are waited out without progress. `on_error` says what becomes of a record that the table refuses:
    it ends the load, or is rejected, `max_rejects` of them at most (None: any number). `ignores_space`: a load that is
    expected to fill a disk begins all the same. `indexes` says whether indexes and keys are parked meanwhile. `vacuums`
    and `checkpoints` say what follows the load; None: a checkpoint where settings were changed for it.
    `triggers` and `autovacuum` are the tables' own, for as long as the load lasts. `max_record_bytes`: a longer record
    is an error, whatever `on_error` says. `warnings`: nothing more is committed behind one that is an error. Raises
    UsageError.
    """

    is_atomic: bool = False
    is_again: bool = False
    on_changed: OnChanged = "error"
    on_emptied: OnEmptied = "error"
    waits: bool = True
    retry_for_s: float = 300.0
    on_error: OnError = "stop"
    max_rejects: int | None = None
    ignores_space: bool = False
    indexes: Indexes = "auto"
    vacuums: bool = True
    checkpoints: bool | None = None
    triggers: TriggerRule = "keep"
    autovacuum: AutovacuumRule = "keep"
    max_record_bytes: int = MAX_RECORD_BYTES
    warnings: WarningRule = "show"

    def __post_init__(self) -> None:
        least, most = _RECORD_LIMITS_BYTES
        if not least <= self.max_record_bytes <= most:
            raise UsageError(f"max_record_bytes cannot be {self.max_record_bytes}", hint="It is from 1 MB to 1 GiB.")
        _check_words(
            self,
            on_changed=OnChanged,
            on_emptied=OnEmptied,
            on_error=OnError,
            indexes=Indexes,
            triggers=TriggerRule,
            autovacuum=AutovacuumRule,
            warnings=WarningRule,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadJob:
    """One load of one or more targets by the same sessions; `sessions` None means auto. Raises UsageError."""

    targets: tuple[TargetJob, ...]
    sessions: int | None = None
    rules: LoadRules = field(default_factory=LoadRules)

    def __post_init__(self) -> None:
        if self.sessions is not None and self.sessions < 1:
            raise UsageError(f"sessions cannot be {self.sessions}", hint="It is 1 or more, or None for auto.")
