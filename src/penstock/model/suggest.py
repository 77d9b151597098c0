"""Finds the name that a user probably meant, to be shown in a hint: by spelling, or by other tools' names. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Final

# What other loaders and PostgreSQL's own tools call an option: penstock's name, and theirs.
_FOREIGN: Final[Mapping[str, str]] = {
    "into": "table tables table_name tablename target relation dest destination t",
    "to": "database db dbname dsn conn connection connection_string conninfo uri url host hostname port user username "
    "password pg postgres server d u p",
    "role": "owner",
    "delimiter": "delim sep separator fs field_terminator fields_terminated_by field_separator",
    "quote": "quotechar quote_char enclosed_by",
    "escape": "escapechar escape_char",
    "null": "na nulls null_as nullstr null_string null_if na_values null_value",
    "skip_lines": "skiprows skip_rows skip_leading_rows",
    "columns": "fields column_names cols",
    "set": "default defaults constant",
    "rename": "map mapping alias",
    "mode": "overwrite append truncate replace upsert on_conflict if_exists write_mode conflict",
    "key": "keys primary_key pk unique_key conflict_columns on",
    "sessions": "jobs workers threads parallel parallelism concurrency processes connections j",
    "format": "file_format filetype file_type type f",
    "encoding": "charset file_encoding client_encoding",
    "create": "create_table",
    "types": "infer infer_types schema dtypes",
    "add_columns": "evolve merge_schema schema_evolution",
    "on_error": "ignore_errors skip_errors max_errors errors store_rejects",
    "max_rejects": "reject_limit maxerrors max_bad_records error_limit",
    "reject_file": "rejects bad_file badfile reject_path errors_file log_errors",
    "transform": "sql query",
    "plan": "dry_run dryrun explain n",
    "again": "force reload",
    "help": "h",
    "quiet": "q silent",
    "retry_for": "retries retry timeout",
}
_MEANT = {foreign: ours for ours, names in _FOREIGN.items() for foreign in names.split()}

# Names that are less alike are not taken for one name mistyped. The limit lies just above --table and --role, which
# agree in two thirds of their letters and dashes. Other tools' names for options must be more alike.
_LEAST_LIKENESS = 0.7
_LEAST_FOREIGN_LIKENESS = 0.8


def suggest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that a name probably means, None if there is none.

    >>> suggest("--table", ["--into", "--role"]), suggest("dry-run", ["plan"]), suggest("colums", ["columns"])
    ('--into', 'plan', 'columns')
    >>> suggest("--table", ["--role"]), suggest("--where", ["--to", "--header"])
    (None, None)
    """
    names = {_plain(each): each for each in known}
    foreign = {theirs: names[ours] for theirs, ours in _MEANT.items() if ours in names}
    asked = _plain(name)
    if asked in names or asked in foreign:
        return names.get(asked) or foreign[asked]
    return _nearest(asked, names, _LEAST_LIKENESS) or _nearest(asked, foreign, _LEAST_FOREIGN_LIKENESS)


def _nearest(asked: str, names: Mapping[str, str], likeness: float) -> str | None:
    # Names of one or two letters are left out: they are like too many others.
    near = difflib.get_close_matches(asked, [each for each in names if len(each) > 2], 1, likeness)
    return names[near[0]] if near else None


def _plain(name: str) -> str:
    return name.lstrip("-").replace("-", "_").casefold()
