"""The options of `penstock load`: how each is spelled and described; parsing.py reads what is given."""

from __future__ import annotations

from typing import Annotated

import typer

_WHAT = "What is loaded"
_FILES = "How the files are written"
_COLUMNS = "Columns"
_SERVER = "Server"
_LEDGER = "Exactly once"
_REJECTS = "Bad records"
_SHOWN = "What is done and shown"

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
        help="Encoding of the files, by PostgreSQL's name, or UTF16 or UTF32; by default UTF8.",
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
Changed = Annotated[
    str | None,
    typer.Option(
        "--changed",
        metavar="WHAT",
        help="For an object that was loaded, or begun, in another version: error (the default), load or skip.",
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
        help="For a record that the table refuses: stop, or reject: write it to the ledger and load all others. Keys "
        "and foreign keys then stay in place, and of records with the same key the one that comes first is loaded "
        "(default: stop).",
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
MaxRecord = Annotated[
    str | None,
    typer.Option(
        "--max-record",
        metavar="SIZE",
        help="Fail at a record that is longer than this, from 1MB to 1GB: mostly a quote that never ends, which would "
        "fill the memory; by default 256MB.",
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
    typer.Option("--quiet", help="Show nothing but warnings and errors, and results as JSON.", rich_help_panel=_SHOWN),
]
Warnings = Annotated[
    str | None,
    typer.Option(
        "--warnings",
        metavar="show|error",
        help="Whether a warning is an error, for scripts: with error nothing begins that is warned of, nothing more is "
        "committed behind a warning, and one behind the last row makes exit code 2; by default show.",
        rich_help_panel=_SHOWN,
    ),
]
Json = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Print the result as one JSON object on standard output; messages stay on standard error.",
        rich_help_panel=_SHOWN,
    ),
]
