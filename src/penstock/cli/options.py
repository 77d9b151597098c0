r"""The options of `penstock load`: how each is spelled and described, and how its text becomes a value.

What a value means is judged by the rooms that use it (files for the dialect, loading for columns).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.errors import UsageError
from penstock.model.dialect import DialectOptions
from penstock.model.job import LoadRules

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.model import job
    from penstock.model.dialect import Format
    from penstock.model.job import OnChanged, OnError

_WHAT = "What is loaded"
_FILES = "How the files are written"
_COLUMNS = "Columns"
_SERVER = "Server"
_LEDGER = "Exactly once"
_REJECTS = "Bad records"
_SHOWN = "What is done and shown"

_CHOICES: Mapping[str, OnChanged] = {"error": "error", "load": "load", "skip": "skip"}
_ON_ERROR: Mapping[str, OnError] = {"stop": "stop", "reject": "reject"}
_SECONDS = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_MODES: Mapping[str, job.Mode] = {
    "append": "append",
    "truncate": "truncate",
    "replace": "replace",
    "upsert": "upsert",
    "insert-new": "insert-new",
}
_KEEPS: Mapping[str, job.Keep] = {"first": "first", "last": "last", "error": "error"}
_FORMATS: Mapping[str, Format] = {"csv": "csv", "text": "text", "tsv": "tsv"}

Sources = Annotated[
    list[str],
    typer.Argument(
        metavar="SOURCE",
        show_default=False,
        help="Files to load: paths, directories, wildcards, s3, gs, az, http and https URLs, or - for standard input; "
        "compressed or not. Or one job file that ends with .toml.",
    ),
]
Into = Annotated[
    str | None,
    typer.Option(
        "--into",
        metavar="TABLE",
        help="Table to load into, as SQL spells it: TABLE or SCHEMA.TABLE.",
        rich_help_panel=_WHAT,
    ),
]
Create = Annotated[
    bool,
    typer.Option(
        "--create",
        help="Make the table where there is none, with text columns named by the header (or --columns).",
        rich_help_panel=_WHAT,
    ),
]
Mode = Annotated[
    str | None,
    typer.Option(
        "--mode",
        metavar="MODE",
        help="append (the default) adds rows. truncate empties the table first. replace loads a new table and puts it "
        "in the old one's place. upsert inserts, or updates the row with the key; insert-new leaves out records whose "
        "key has a row: both need --key. With append and truncate readers see rows as they are committed, unless "
        "--atomic is given; otherwise all or nothing.",
        rich_help_panel=_WHAT,
    ),
]
Key = Annotated[
    str | None,
    typer.Option(
        "--key",
        metavar="LIST",
        help="Columns by which upsert and insert-new know a row again, as in a,b; a unique index on them is needed.",
        rich_help_panel=_WHAT,
    ),
]
Keep = Annotated[
    str | None,
    typer.Option(
        "--keep",
        metavar="first|last|error",
        help="Which of several records with the same key an upsert stores, in the order of the files; by default they "
        "are an error.",
        rich_help_panel=_WHAT,
    ),
]
TransformFile = Annotated[
    str | None,
    typer.Option(
        "--transform",
        metavar="FILE.sql",
        help="One INSERT or MERGE that takes the records on, from table :staging, whose columns are text and named by "
        "the header in lower case (or by --columns). It runs once, at the end, in one transaction.",
        rich_help_panel=_WHAT,
    ),
]
FormatOption = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="FORMAT",
        help="csv and text as COPY has them, or tsv: tab separated without quoting, so that quotes and backslashes "
        "are data. By default told from the file's first block, as is all that follows.",
        rich_help_panel=_FILES,
    ),
]
Delimiter = Annotated[
    str | None,
    typer.Option(
        "--delimiter",
        metavar="CHAR",
        help="Character between fields; a tab may be written \\t.",
        rich_help_panel=_FILES,
    ),
]
Quote = Annotated[
    str | None,
    typer.Option("--quote", metavar="CHAR", help="Quoting character of csv.", rich_help_panel=_FILES),
]
Escape = Annotated[
    str | None,
    typer.Option(
        "--escape",
        metavar="CHAR",
        help="Character before a quote inside quotes (csv); by default the quote itself.",
        rich_help_panel=_FILES,
    ),
]
Nulls = Annotated[
    list[str] | None,
    typer.Option(
        "--null",
        metavar="TEXT",
        help="What stands for null; may be given several times.",
        rich_help_panel=_FILES,
    ),
]
Header = Annotated[
    bool | None,
    typer.Option(
        "--header/--no-header",
        show_default=False,
        help="Whether the first line of each file names its columns.",
        rich_help_panel=_FILES,
    ),
]
Encoding = Annotated[
    str | None,
    typer.Option(
        "--encoding",
        metavar="NAME",
        help="Encoding of the files, as PostgreSQL or Python names it; by default UTF8.",
        rich_help_panel=_FILES,
    ),
]
Columns = Annotated[
    str | None,
    typer.Option(
        "--columns",
        metavar="LIST",
        help="Columns that the file's fields go to, in the file's order, as in a,b,c; in place of a header's names.",
        rich_help_panel=_COLUMNS,
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="COLUMN=VALUE",
        help="Give a column one value in every row. {filename} stands for the file's name, {null} for null, "
        "{default} for the column's default. May be given several times.",
        rich_help_panel=_COLUMNS,
    ),
]
Skip = Annotated[
    list[str] | None,
    typer.Option(
        "--skip",
        metavar="COLUMN",
        help="Leave a column of the file out. May be given several times.",
        rich_help_panel=_COLUMNS,
    ),
]
To = Annotated[
    str | None,
    typer.Option(
        "--to",
        metavar="CONNINFO",
        help="Server and database, as psql takes them: a URI, key=value words or a database's name. By default what "
        "the PG* variables say, and without them the embedded server, which is started.",
        rich_help_panel=_SERVER,
    ),
]
Role = Annotated[
    str | None,
    typer.Option(
        "--role", metavar="ROLE", help="Role to become (SET ROLE), who will own what is made.", rich_help_panel=_SERVER
    ),
]
IamAuth = Annotated[
    bool,
    typer.Option(
        "--iam-auth",
        help="Authenticate by AWS IAM (Amazon RDS, Aurora): each connection's password is a token made for it, with "
        "the credentials that the AWS command line would use.",
        rich_help_panel=_SERVER,
    ),
]
Tunnel = Annotated[
    str | None,
    typer.Option(
        "--tunnel",
        metavar="localhost:PORT",
        help="Connect to this end of a tunnel (ssh -L, SSM). The server's own name and port stay in --to: TLS verifies "
        "them, and IAM tokens are made for them.",
        rich_help_panel=_SERVER,
    ),
]
Sessions = Annotated[
    str | None,
    typer.Option(
        "--sessions",
        metavar="auto|N",
        help="How many sessions load at once; auto, the default, starts from the server's CPUs and keeps what "
        "measured throughput rewards.",
        rich_help_panel=_SERVER,
    ),
]
Atomic = Annotated[
    bool,
    typer.Option(
        "--atomic",
        help="Let all rows appear at once: one session, one transaction. By default each session commits about every "
        "10 seconds, so that little is done again after a fault.",
        rich_help_panel=_LEDGER,
    ),
]
Again = Annotated[
    bool,
    typer.Option(
        "--again",
        help="Load objects once more that the ledger says are loaded; by default they are left out.",
        rich_help_panel=_LEDGER,
    ),
]
IgnoreSpace = Annotated[
    bool,
    typer.Option(
        "--ignore-space",
        help="Begin though the load is expected to fill a disk of this machine.",
        rich_help_panel=_LEDGER,
    ),
]
Expect = Annotated[
    str | None,
    typer.Option(
        "--expect",
        metavar="TIME",
        help="How long a load that begins now may take, as in 90min or 3h: tells which maintenance and backup windows "
        "of Amazon RDS it would meet, and the command that moves them. A load that would meet one does not begin.",
        rich_help_panel=_LEDGER,
    ),
]
IgnoreWindows = Annotated[
    bool,
    typer.Option(
        "--ignore-windows",
        help="With --expect, begin though the load would meet a window.",
        rich_help_panel=_LEDGER,
    ),
]
Changed = Annotated[
    str | None,
    typer.Option(
        "--changed",
        metavar="WHAT",
        help="For an object that was loaded in another version: error (the default), load or skip.",
        rich_help_panel=_LEDGER,
    ),
]
Emptied = Annotated[
    str | None,
    typer.Option(
        "--emptied",
        metavar="WHAT",
        help="For objects that were loaded into the table before it was emptied or made anew: error (the default), "
        "load or skip.",
        rich_help_panel=_LEDGER,
    ),
]
NoWait = Annotated[
    bool,
    typer.Option(
        "--no-wait",
        help="Fail where another process works on the same load, and do not wait for it.",
        rich_help_panel=_LEDGER,
    ),
]
RetryFor = Annotated[
    str | None,
    typer.Option(
        "--retry-for",
        metavar="TIME",
        help="How long to go on trying without progress when a connection is lost, the server restarts, a disk is "
        "full or the like: 30s, 5min (the default), 1h, or 0.",
        rich_help_panel=_LEDGER,
    ),
]
Spool = Annotated[
    bool,
    typer.Option(
        "--spool",
        help="Copy standard input and pipes to a temporary file first: several sessions can load it, and faults be "
        "waited out. By default a pipe is loaded by one session in one transaction.",
        rich_help_panel=_LEDGER,
    ),
]
LedgerSchema = Annotated[
    str,
    typer.Option(
        "--ledger-schema",
        metavar="SCHEMA",
        help="Schema in which loads are written down; it is made where there is none.",
        rich_help_panel=_LEDGER,
    ),
]
PublishLedger = Annotated[
    bool,
    typer.Option(
        "--publish-ledger",
        help="Make the ledger's tables though a publication for all tables publishes them.",
        rich_help_panel=_LEDGER,
    ),
]
OnErrorOption = Annotated[
    str | None,
    typer.Option(
        "--on-error",
        metavar="WHAT",
        help="For a record that the table refuses: stop (the default), or reject: put it aside in the ledger and load "
        "all others. Which of two records with the same key is put aside is not certain.",
        rich_help_panel=_REJECTS,
    ),
]
MaxRejects = Annotated[
    str | None,
    typer.Option(
        "--max-rejects",
        metavar="N",
        help="With --on-error reject, stop when more than N records were put aside.",
        rich_help_panel=_REJECTS,
    ),
]
RejectFile = Annotated[
    str | None,
    typer.Option(
        "--reject-file",
        metavar="PATH",
        help="With --on-error reject, write the records that were put aside to this file at the end, byte for byte "
        "below the header, to be corrected and loaded by penstock retry.",
        rich_help_panel=_REJECTS,
    ),
]
RejectOutput = Annotated[
    str | None,
    typer.Option(
        "--reject-file",
        metavar="PATH",
        help="Write the records to this file, byte for byte below the header, to be corrected and loaded by penstock "
        "retry.",
    ),
]
BinDir = Annotated[
    str | None,
    typer.Option(
        "--pg-bin",
        metavar="DIR",
        help="For the embedded server, use the PostgreSQL with its programs in this folder.",
        rich_help_panel=_SERVER,
    ),
]
PlanOnly = Annotated[
    bool,
    typer.Option("--plan", help="Print what would be done, and do nothing.", rich_help_panel=_SHOWN),
]
CheckOnly = Annotated[
    bool,
    typer.Option(
        "--check",
        help="Have the server parse everything, report the bad records (the first 1,000, then stop), and load nothing. "
        "Types, NOT NULL and CHECK are checked; keys, foreign keys, partition routing and triggers are not.",
        rich_help_panel=_SHOWN,
    ),
]
Quiet = Annotated[
    bool,
    typer.Option("--quiet", help="Show nothing but results and errors.", rich_help_panel=_SHOWN),
]
Json = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Print the result as one JSON object on standard output; messages stay on standard error.",
        rich_help_panel=_SHOWN,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """What was said of sources, table and columns, as it was typed; None or empty where nothing was."""

    sources: tuple[str, ...]
    into: str | None
    create: bool
    format: str | None
    delimiter: str | None
    quote: str | None
    escape: str | None
    nulls: tuple[str, ...]
    header: bool | None
    encoding: str | None
    columns: str | None
    constants: tuple[str, ...]
    skip: tuple[str, ...]
    mode: str | None = None
    key: str | None = None
    keep: str | None = None
    transform: str | None = None

    @property
    def is_job_file(self) -> bool:
        """Return whether the sources are one job file."""
        return self.into is None and len(self.sources) == 1 and self.sources[0].lower().endswith(".toml")

    def given_names(self) -> list[str]:
        """Return the options among these that were given, as they are typed."""
        spelled = {"nulls": "null", "constants": "set"}
        return [
            f"--{spelled.get(option.name, option.name)}"
            for option in fields(self)
            if option.name != "sources" and getattr(self, option.name) not in (None, (), False)
        ] + (["--no-header"] if self.header is False else [])


def parse_dialect(options: SourceOptions) -> DialectOptions:
    """Return what was said of the dialect."""
    from penstock.files.probe import parse_character

    def character(text: str | None) -> str | None:
        return None if text is None else parse_character(text)

    return DialectOptions(
        format=_parse_format(options.format),
        delimiter=character(options.delimiter),
        quote=character(options.quote),
        escape=character(options.escape),
        nulls=options.nulls or None,
        has_header=options.header,
        encoding=options.encoding,
    )


def _parse_format(text: str | None) -> Format | None:
    if text is None:
        return None
    if text not in _FORMATS:
        raise UsageError(f'there is no format "{text}"', hint="Use --format with csv, text or tsv.")
    return _FORMATS[text]


def parse_columns(text: str | None) -> tuple[str, ...] | None:
    """Return the names of a list such as a,b,"c,d". Raises UsageError for one without a name.

    >>> parse_columns('id, "a,b"')
    ('id', 'a,b')
    """
    if text is None:
        return None
    names = _split_names(text)
    if not names or not all(names):
        raise UsageError(
            "--columns has an empty name",
            detail=f"It was given as {text!r}.",
            hint="Name every field of the file, and use --skip for those that are not wanted.",
        )
    return names


def _split_names(text: str) -> tuple[str, ...]:
    import csv

    return tuple(name.strip() for name in next(csv.reader([text], skipinitialspace=True), []))


def parse_mode(options: SourceOptions) -> job.Mode:
    """Return how the rows are to land. Raises UsageError."""
    if options.mode is None:
        return "append"
    if options.mode not in _MODES:
        raise UsageError(f'there is no mode "{options.mode}"', hint=f"Use --mode with {', '.join(_MODES)}.")
    return _MODES[options.mode]


def parse_key(text: str | None) -> tuple[str, ...]:
    """Return the columns of a key. Raises UsageError for one without a name.

    >>> parse_key("a, b")
    ('a', 'b')
    """
    if text is None:
        return ()
    names = _split_names(text)
    if not names or not all(names):
        raise UsageError("--key has an empty name", detail=f"It was given as {text!r}.", hint="Write --key a,b.")
    return names


def parse_keep(options: SourceOptions) -> job.Keep:
    """Return which of several records with the same key counts. Raises UsageError."""
    if options.keep is None:
        return "error"
    if options.keep not in _KEEPS:
        raise UsageError(f'"{options.keep}" is no word for --keep', hint="Use --keep with first, last or error.")
    if options.mode != "upsert":
        raise UsageError("--keep is for --mode upsert", hint="insert-new keeps the first record of a key.")
    return _KEEPS[options.keep]


def parse_constants(settings: Sequence[str]) -> Mapping[str, str]:
    """Return the columns and values of --set. Raises UsageError."""
    constants: dict[str, str] = {}
    for setting in settings:
        column, separator, value = setting.partition("=")
        column = column.strip()
        if not separator or not column:
            raise UsageError(
                "--set takes COLUMN=VALUE",
                detail=f"It was given as {setting!r}.",
                hint="Write --set source={filename}, or --set 'note=' for an empty string.",
            )
        if column in constants:
            raise UsageError(f'column "{column}" is set twice', hint="Give each column one --set.")
        constants[column] = value
    return constants


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleOptions:
    """What was said of the ledger, of readers and of faults, as it was typed."""

    atomic: bool = False
    again: bool = False
    changed: str | None = None
    emptied: str | None = None
    no_wait: bool = False
    retry_for: str | None = None
    on_error: str | None = None
    max_rejects: str | None = None
    reject_file: str | None = None
    ignore_space: bool = False


def parse_rules(options: RuleOptions) -> LoadRules:
    """Return what was said of the ledger, of readers and of faults. Raises UsageError."""
    defaults = LoadRules()
    return LoadRules(
        is_atomic=options.atomic,
        is_again=options.again,
        on_changed=_parse_choice("--changed", options.changed, default=defaults.on_changed),
        on_emptied=_parse_choice("--emptied", options.emptied, default=defaults.on_emptied),
        waits=not options.no_wait,
        retry_for_s=defaults.retry_for_s if options.retry_for is None else parse_duration(options.retry_for),
        on_error=_parse_on_error(options),
        max_rejects=_parse_max_rejects(options.max_rejects),
        ignores_space=options.ignore_space,
    )


def _parse_on_error(options: RuleOptions) -> OnError:
    text = "stop" if options.on_error is None else options.on_error
    if text not in _ON_ERROR:
        raise UsageError(f'there is no --on-error "{text}"', hint="Use --on-error with stop or reject.")
    refused = {"--max-rejects": options.max_rejects, "--reject-file": options.reject_file}
    for name, value in refused.items():
        if value is not None and text == "stop":
            raise UsageError(f"{name} needs --on-error reject", hint="By default the first bad record ends the load.")
    return _ON_ERROR[text]


def _parse_max_rejects(text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()):
        raise UsageError(f"{text!r} is not a number of records", hint="Use --max-rejects with a number from 0 upwards.")
    return int(text)


def _parse_choice(option: str, text: str | None, *, default: OnChanged) -> OnChanged:
    if text is None:
        return default
    if text not in _CHOICES:
        raise UsageError(f'there is no {option} "{text}"', hint=f"Use {option} with error, load or skip.")
    return _CHOICES[text]


def parse_duration(text: str) -> float:
    """Return a time in seconds, as PostgreSQL's settings spell it. Raises UsageError.

    >>> parse_duration("5min"), parse_duration("90"), parse_duration("1.5 h")
    (300.0, 90.0, 5400.0)
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?(ms|s|min|h|d)?", text.strip())
    if match is None:
        raise UsageError(f"{text!r} is not a time", hint="Write 30s, 5min or 1h.")
    return float(match[1]) * _SECONDS[match[2] or "s"]


def parse_sessions(text: str | None) -> int | None:
    """Return the number of sessions, None for auto. Raises UsageError."""
    if text is None or text == "auto":
        return None
    if not (text.isascii() and text.isdigit()) or int(text) < 1:
        raise UsageError(
            f"{text!r} is not a number of sessions", hint="Use --sessions=auto, or a number from 1 upwards."
        )
    return int(text)
