"""The job of a load: what the user asked for. Each option of a load is declared here or in dialect.py, nowhere else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, field
from pathlib import Path
from typing import Literal

from penstock.core.errors import UsageError
from penstock.core.slotted import slotted
from penstock.core.units import GIB, MB
from penstock.core.values.dialect import DialectOptions
from penstock.core.values.mode import LANDINGS, PARTITION, TRANSFORM, Landing, Mode, Via
from penstock.core.values.options import (
    COUNT,
    LAG,
    NAMES,
    PERCENT,
    SESSIONS,
    SWITCH,
    TABLE,
    TIME,
    VALUES,
    OptionKind,
    options_in,
    path,
    read_options,
    size,
    text,
    texts,
    words,
)
from penstock.core.values.table import TableName

# Which of several records with the same key an upsert stores: the first or the last in file order, or none (an error).
Keep = Literal["first", "last", "error"]
MAX_DELETE = 10.0
# What to do with an object that was loaded in another version.
OnChanged = Literal["error", "load", "skip"]
# What to do with objects that were loaded into the table before it was emptied.
OnEmptied = Literal["error", "load", "skip"]
# What to do with a file that lacks columns.
OnMissing = Literal["error", "default"]
OnError = Literal["stop", "reject"]
# How the types of new columns are chosen.
Types = Literal["text", "infer", "widen"]
# Whether COPY freezes rows.
Freeze = Literal["auto", "always", "never"]
Indexes = Literal["auto", "keep", "rebuild"]
# What to do with a table's user triggers, and with its autovacuum, while it is loaded.
TriggerRule = Literal["keep", "disable"]
AutovacuumRule = Literal["keep", "pause"]
# The format of COPY in which rows are sent.
CopyFormat = Literal["auto", "text", "binary"]
# Whether a warning is an error.
WarningRule = Literal["show", "error"]

# The default of --max-record. PostgreSQL accepts at most 1 GB as one line. The limit must be larger than a piece of a
# file, which is up to 768 KiB.
MAX_RECORD_BYTES = 256 * MB

_what = options_in("What is loaded")
_columns = options_in("Columns")
_server = options_in("Server")
_ledger = options_in("Exactly once")
_rejects = options_in("Bad records")
_indexes = options_in("Indexes and keys")
_table = options_in("The table during the load")
_after = options_in("After the load")
_shown = options_in("What is done and shown")


@slotted
class Transform:
    """A user's statement that stores staged records."""

    # The name of the statement's file, shown in errors.
    name: str
    text: str


def _read_transform(value: object) -> Transform:
    if isinstance(value, Mapping):
        return Transform(**value)
    if not isinstance(value, Transform):
        raise ValueError("the path of a file")  # noqa: TRY004 (read_options turns ValueError into OptionError)
    return value


_TRANSFORM = OptionKind(read=_read_transform, metavar="FILE.sql", hint="str | Path | Transform")


@slotted
class TargetJob:
    """One table to load, with its sources and options.

    Its repr does not show the sources, because a URL may be signed. Raises UsageError.
    """

    sources: tuple[str, ...] = field(repr=False)
    into: TableName = _what(MISSING, TABLE, "Table to load into: TABLE or SCHEMA.TABLE, as in SQL.")
    create: bool = _what(
        False,
        SWITCH,
        "Create the table if it does not exist. Its columns are named by the header (or --columns), and are of type "
        "text unless --types is given. Parquet and Arrow have types.",
    )
    partition_of: TableName | None = _what(
        None,
        TABLE,
        "Make the table by itself, with the indexes and keys of this one, and attach it as a partition at the end.",
    )
    for_values: str | None = _what(
        None,
        text("BOUNDS"),
        "Bounds of the partition, as CREATE TABLE has them: FROM (...) TO (...), IN (...) or WITH (...).",
    )
    types: Types = _columns(
        "text",
        words(Types),
        "Types of new columns. text: all are text. infer: every value of every file is read before "
        "the first row is loaded, and each column gets the first of boolean, integer, bigint, numeric, double "
        "precision, date, timestamp, timestamptz, uuid and jsonb that takes all its values, else text. widen: infer "
        "for a new table; of a table that exists, a column whose type does not keep the values is altered first, from "
        "integer to bigint, numeric or text, or from date to timestamp, timestamptz or text (default: text).",
    )
    add_columns: bool = _columns(
        False,
        SWITCH,
        "Add the columns of the files that the table lacks. They are of type text unless --types is given. Files "
        "that lack a column that may be null are then loaded too.",
    )
    mode: Mode = _what(
        "append",
        words(LANDINGS),
        "How rows get into the table. append adds them. truncate empties the table first. replace loads a new table, "
        "which then takes the old one's place. upsert inserts, or updates the row with the key; insert-new skips "
        "records whose key has a row; sync is upsert, and then deletes the rows whose key no file has: all three need "
        "--key. With append and truncate readers see rows as they are committed, unless --atomic is given; with the "
        "others all or nothing (default: append).",
    )
    key: tuple[str, ...] = _what(
        (),
        NAMES,
        "Key columns, as in a,b. With upsert, insert-new and sync they find the row of a record, and need a unique "
        "index. Of a table that --create makes, they become the primary key, in every mode. May be given several "
        "times.",
    )
    keep: Keep = _what(
        "error",
        words(Keep),
        "Which of several records with the same key an upsert or a sync stores, in the order of the files (default: "
        "error).",
    )
    max_delete: float = _what(
        MAX_DELETE,
        PERCENT,
        "Largest share of the table's rows that sync deletes. If more have no record, the load stops before it changes "
        "the table; 100% is no limit (default: 10%).",
    )
    transform: Transform | None = _what(
        None,
        _TRANSFORM,
        "One INSERT or MERGE that takes the records on, from table :staging, whose columns are text and named by "
        "the header in lower case (or by --columns). It runs once, at the end, in one transaction.",
    )
    dialect: DialectOptions = field(default_factory=DialectOptions)
    columns: tuple[str, ...] | None = _columns(
        None,
        NAMES,
        "Columns for the file's fields, as in a,b,c. They are columns of the table, in the file's order, and "
        "replace a header's names. Of JSON Lines, names that its records have. May be given several times.",
    )
    set: Mapping[str, str] = _columns(
        {},
        VALUES,
        "Give a column one value in every row. {filename} stands for the file's name, {null} for null, {default} "
        "for the column's default. May be given several times.",
    )
    skip: tuple[str, ...] = _columns(
        (),
        texts("COLUMN"),
        "Skip a column of the file. A name that no file has is an error. May be given several times.",
    )
    only: tuple[str, ...] = _columns(
        (),
        NAMES,
        "Columns of the file to load, as in a,b,c. All others are skipped. A name that no file has is an error. May "
        "be given several times.",
    )
    missing: OnMissing = _columns(
        "error",
        words(OnMissing),
        "What to do if a file lacks a column of the table, or one of --skip or --only: error; or default: the column "
        "gets its default or null, which a NOT NULL column without a default cannot (default: error).",
    )

    copy_format: CopyFormat = _server(
        "auto",
        words(CopyFormat),
        "Format in which rows of text files are sent. binary: values in canonical form are encoded here, which saves "
        "the server's time; blocks with other values go as text. auto: binary if the column types and the load's size "
        "let it gain; --plan shows which and why (default: auto).",
    )

    def __post_init__(self) -> None:
        if not self.sources:
            raise UsageError("no source to load", hint="Name files or URLs, or - for standard input.")
        read_options(self)
        option = "--rename" if self.dialect.rename else "--names snake" if self.dialect.names == "snake" else None
        if self.columns is not None and option is not None:
            raise UsageError(
                f"{option} and --columns exclude each other", hint="--columns has the names of the table's columns."
            )

        if self.partition_of is not None or self.for_values is not None:
            self._check_partition()
        if self.only and self.skip:
            raise UsageError(
                "--only and --skip exclude each other", hint="All columns but those of --only are skipped."
            )

    def _check_partition(self) -> None:
        """Raise UsageError unless both options of a partition are given, and no option that excludes them."""
        if self.partition_of is None or self.for_values is None:
            raise UsageError("--partition-of and --for-values need each other")
        others = {
            f"--mode {self.mode}": self.mode != "append",
            "--create": self.create,
            "--transform": self.transform is not None,
            "--add-columns": self.add_columns,
            f"--types {self.types}": self.types != "text",
            "--key": bool(self.key),
        }
        for option in (option for option, is_given in others.items() if is_given):
            raise UsageError(f"{option} cannot be used with --partition-of", hint="The table is made like its parent.")

    @property
    def landing(self) -> Landing:
        """Return how records become rows of the table: as the mode says, or by the transform if there is one."""
        if self.partition_of is not None:
            return PARTITION
        return LANDINGS[self.mode] if self.transform is None else TRANSFORM

    @property
    def merge_key(self) -> tuple[str, ...]:
        """Return the columns by which a record finds the row to update or delete; empty if the mode uses no key."""
        return self.key if self.landing.is_keyed else ()

    @property
    def used_keep(self) -> Keep | None:
        """Return which of several records with the same key an update uses; None if no rows are updated."""
        return self.keep if self.landing.updates else None


@slotted
class LoadRules:
    """How a load treats loaded objects, other loads, faults, bad records and the table, and what follows the load.

    Raises UsageError.
    """

    via: Via = _server(
        "client",
        words(Via),
        "Who reads the objects. client: penstock does, and sends the rows. server: the server imports whole objects "
        "from S3 by the extension aws_s3 of Amazon RDS and Aurora, one in each transaction (default: client).",
    )
    atomic: bool = _ledger(
        False,
        SWITCH,
        "Let all rows appear at once: one session, one transaction. By default each session commits about every "
        "10 seconds. With --mode truncate readers wait while the rows are moved from a staging table; with --mode "
        "replace they hardly wait.",
    )
    again: bool = _ledger(
        False,
        SWITCH,
        "Load objects that the ledger says are loaded once more; by default they are skipped.",
    )
    changed: OnChanged = _ledger(
        "error",
        words(OnChanged),
        "What to do with an object that was loaded, or begun, in another version (default: error).",
    )
    emptied: OnEmptied = _ledger(
        "error",
        words(OnEmptied),
        "What to do with objects loaded into the table before it was emptied. load also lets --mode truncate "
        "and replace empty a table if no file has a record (default: error).",
    )
    join: bool = _ledger(
        False,
        SWITCH,
        "Load together with other hosts that run the same command: each takes objects that no other has taken. Local "
        "files must be on a file system that all hosts share. By default a second process waits for the first.",
    )
    wait: bool = _ledger(True, SWITCH, "Fail, do not wait, if another process works on the load.")
    retry_for: float = _ledger(
        300.0,
        TIME,
        "How long to retry without progress if a connection is lost, the server restarts, a disk is full or the "
        "like, and how long to wait for a lock of other sessions: 30s, 5min, 1h, or 0 (default: 5min).",
    )
    max_replica_lag: str | None = _server(
        None,
        LAG,
        "Begin no batch while a standby or subscriber is further behind, as in 30s or 1GB (docs/locks.md).",
    )
    max_wal: int | None = _server(
        None,
        size(MB, 1000 * GIB, "a size from 1MB to 1000GB"),
        "Begin no batch while a replication slot keeps more WAL.",
    )
    max_wait: float = _server(
        3600.0,
        TIME,
        "How long the load may so be held before it ends incomplete (default: 1h).",
    )
    ignore_space: bool = _ledger(False, SWITCH, "Load even if a local disk may fill.")
    on_error: OnError = _rejects(
        "stop",
        words(OnError),
        "What to do with a record that the table refuses. stop ends the load. reject writes the record to the ledger "
        "and loads all others. Keys and foreign keys then stay in place, and of records with the same key the one that "
        "comes first is loaded. A stray quote of csv costs the line that it is in. Without --encoding, records with "
        "bytes that are not UTF-8 are rejected, unless they are many in the file's first block. A file in which no "
        "record has the right number of fields ends the load. A file that cannot be read to its end is left out, and "
        "tried again by the next load. Such a load cannot be undone (default: stop).",
    )
    max_rejects: int | None = _rejects(
        None,
        COUNT,
        "With --on-error reject, stop if more than N are rejected.",
    )
    max_record: int = _rejects(
        MAX_RECORD_BYTES,
        size(MB, GIB, "a size from 1MB to 1GB"),
        "Fail at a longer record, mostly a quote that never ends; with --on-error reject, reject its first line "
        "(default: 256MB).",
    )
    indexes: Indexes = _indexes(
        "auto",
        words(Indexes),
        "Which indexes and keys are dropped for the load and rebuilt after it. auto: of an empty "
        "table and its partitions, if the load is large enough, indexes and foreign keys, but nothing that keeps "
        "rows unique. rebuild: of any table, keys too; meanwhile other sessions can insert rows that violate them. "
        "keep: none. --plan shows which (default: auto).",
    )
    freeze: Freeze = _table(
        "auto",
        words(Freeze),
        "Whether COPY freezes the rows of tables that the load creates, truncates or replaces, so that no VACUUM "
        "writes their pages again. One session then sends all rows of a table in one transaction. always: with --mode "
        "truncate other sessions wait for the table meanwhile. auto: only if the load creates or replaces its tables, "
        "has 64 MiB or more, and is as fast with one session for each table (default: auto).",
    )
    triggers: TriggerRule = _table(
        "keep",
        words(TriggerRule),
        "disable turns off the table's own triggers that the load would fire, and restores each after the load; "
        "meanwhile they do not fire for other sessions either. Those of a partition that is attached meanwhile do. "
        "Needs the table's owner (default: keep).",
    )
    autovacuum: AutovacuumRule = _table(
        "keep",
        words(AutovacuumRule),
        "pause keeps autovacuum from the table, its partitions and their TOAST tables until the load ends; "
        "settings are restored. Needs the table's owner (default: keep).",
    )
    vacuum: bool = _after(
        True,
        SWITCH,
        "Skip the VACUUM (ANALYZE) that follows, of the tables and partitions that got rows. A table of more than "
        "ten times what was loaded (and more than 64 MiB) is only analyzed.",
    )
    checkpoint: bool | None = _after(
        None,
        SWITCH,
        "Whether a CHECKPOINT follows, which writes all changed pages at once and so slows other sessions. By default "
        "it follows a load of 1 GiB and more, if the server's settings were changed for the load.",
    )
    warnings: WarningRule = _shown(
        "show",
        words(WarningRule),
        "Whether a warning is an error, for scripts. With error, a load whose plan has a warning does not begin, no "
        "more rows are committed after a warning, and a warning after the last row makes exit code 2 (default: show).",
    )

    def __post_init__(self) -> None:
        read_options(self)
        if self.max_rejects is not None:
            refuse_without_rejects("--max-rejects", self)
        option = self.yields_for
        if option is not None and (self.atomic or self.freeze == "always"):
            other = "--atomic" if self.atomic else "--freeze always"
            raise UsageError(
                f"{option} and {other} exclude each other", hint="One transaction has all rows, and cannot pause."
            )

    @property
    def yields_for(self) -> str | None:
        """Return the option by which the load begins no batches while others are behind, None if there is none."""
        if self.max_replica_lag is not None:
            return "--max-replica-lag"
        return None if self.max_wal is None else "--max-wal"

    @property
    def is_repeating(self) -> bool:
        """Return whether objects may be loaded although another ledger has recorded them."""
        return self.again or self.emptied == "load"

    @property
    def skips_unreadable(self) -> bool:
        """Return whether a load may be complete without objects that cannot be read.

        This is false for a load by several hosts (--join), because another host may be able to read them.
        """
        return self.on_error == "reject" and not self.join


def refuse_without_rejects(option: str, rules: LoadRules) -> None:
    """Raise UsageError if an option for rejected records is given without --on-error reject."""
    if rules.on_error != "reject":
        raise UsageError(f"{option} needs --on-error reject", hint="By default the first bad record ends the load.")


@slotted
class LoadJob:
    """One load of one or more targets by the same sessions; `sessions` None means auto. Raises UsageError."""

    targets: tuple[TargetJob, ...]
    sessions: int | None = _server(
        None,
        SESSIONS,
        "How many sessions load at once; auto starts from the server's CPUs and keeps what measured throughput "
        "rewards (default: auto).",
    )
    rules: LoadRules = field(default_factory=LoadRules)

    def __post_init__(self) -> None:
        read_options(self)


@slotted
class Access:
    """Which server to connect to, and how. `to` may contain a password. Raises UsageError."""

    to: str | None = _server(
        None,
        text("CONNINFO"),
        "Server and database, as psql takes them. That is a URI, key=value words or a database's name. The embedded "
        "server is started if nothing names another (default: the PG* variables or a service file, else the embedded "
        "server).",
    )
    role: str | None = _server(None, text("ROLE"), "Role to become (SET ROLE), who will own what is created.")
    iam_auth: bool = _server(
        False,
        SWITCH,
        "Authenticate by AWS IAM (Amazon RDS, Aurora): each connection's password is a token made for it, with "
        "the credentials that the AWS command line would use.",
    )
    tunnel: str | None = _server(
        None,
        text("localhost:PORT"),
        "Connect to this end of a tunnel (ssh -L, SSM). The server's own name and port stay in --to: TLS verifies "
        "them, and IAM tokens are made for them.",
    )
    read_write: bool = _server(
        False,
        SWITCH,
        "Write even if the database, the role or PGOPTIONS sets default_transaction_read_only; by default that is "
        "refused.",
    )
    pg_bin: Path | None = _server(
        None,
        path("DIR"),
        "For the embedded server, use the PostgreSQL with its programs in this folder.",
    )

    def __repr__(self) -> str:
        return f"Access(role={self.role!r})"

    def __post_init__(self) -> None:
        read_options(self)
        if self.to is not None and self.pg_bin is not None:
            raise UsageError(
                "--pg-bin is for the embedded server only",
                detail="A connection string names another server.",
                hint="Remove one of the two.",
            )


@slotted
class Housekeeping:
    """Where loads are recorded, and what is done before and after a load. Raises UsageError.

    `settings` says which of the server's settings are changed during the load: "none", "auto", or a profile's name.
    """

    settings: str = _server(
        "none",
        text("none|auto|PROFILE"),
        "Settings of the server while the load runs. none changes nothing. bulk-load has fewer checkpoints; the "
        "settings are restored however the load ends, and missing rights are an error that names them. auto does "
        "that if the role has the rights and the load is large enough to gain from it (default: none).",
    )
    shared_group: bool = _server(
        False,
        SWITCH,
        "Change a parameter group of Amazon RDS even if other instances use it, whose settings then change too.",
    )
    ledger_schema: str = _ledger(
        "penstock",
        text("SCHEMA"),
        "Schema in which loads are recorded; it is created if it does not exist (default: penstock).",
    )
    publish_ledger: bool = _ledger(
        False,
        SWITCH,
        "Create the ledger's tables even if a FOR ALL TABLES publication includes them.",
    )
    spool: bool = _ledger(
        False,
        SWITCH,
        "Copy standard input and pipes to a temporary file first, so that several sessions can load it, and "
        "retry. By default one session loads a pipe in one transaction.",
    )
    reject_file: Path | None = _rejects(
        None,
        path("PATH"),
        "Write the rejected records to this file at the end, byte for byte below the header, to be corrected and "
        "loaded by penstock retry.",
    )

    record: Path | None = _server(
        None,
        path("FILE"),
        "Write samples of the server to this new file, for penstock diagnose. By default a load that takes longer than "
        "two seconds writes them to a file of your own, and the last 20 of these are kept.",
    )
    no_record: bool = _server(False, SWITCH, "Do not sample the server while the load runs.")
    aws_timeout: float = _server(
        5.0,
        TIME,
        "How long to wait for AWS's description of an instance of Amazon RDS, which has its vCPUs and windows. AWS is "
        "asked beside the other planning of a load of 64 MiB or more: 5s, 1min, or 0 not to ask (default: 5s).",
    )

    def __post_init__(self) -> None:
        read_options(self)
        if self.record is not None and self.no_record:
            raise UsageError("--record and --no-record exclude each other")
        if self.shared_group and self.settings == "none":
            raise UsageError("--shared-group needs --settings", hint="Without it no setting is changed.")


@slotted
class Request:
    """A job, the server it loads into, and what is done before and after it. Raises UsageError."""

    job: LoadJob
    access: Access
    housekeeping: Housekeeping

    def __post_init__(self) -> None:
        if self.housekeeping.reject_file is not None:
            refuse_without_rejects("--reject-file", self.job.rules)


# TARGET_KINDS declare the options of one table, LOAD_KINDS those of the whole load. Help and reference have this order.
TARGET_KINDS = (TargetJob, DialectOptions)
LOAD_KINDS = (Access, LoadJob, LoadRules, Housekeeping)
