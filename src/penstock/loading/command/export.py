"""Makes targets of a load from the tables of an RDS snapshot export, as AWS writes it to S3.

    export-id/export_info_export-id.json
    export-id/export_tables_info_export-id_from_1_to_96.json
    export-id/DATABASE/SCHEMA.TABLE/1/_SUCCESS
    export-id/DATABASE/SCHEMA.TABLE/1/part-00000-UUID.gz.parquet

A table has one or several folders like `1`. In older exports, the files are directly in the table's folder. A table
without rows has no files. Source: docs.aws.amazon.com/AmazonRDS/latest/UserGuide/USER_ExportSnapshot.FileNames.html
"""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from penstock.core.aws.credentials import AwsCredentials
from penstock.core.errors import SourceError, UsageError
from penstock.core.frozen import frozen
from penstock.core.values.dialect import Notice
from penstock.core.values.table import TableName
from penstock.loading.command.request import make_target
from penstock.loading.files.listing import is_remote
from penstock.loading.files.streams import SourceReader

if TYPE_CHECKING:
    from penstock.core.values.job import TargetJob

INFO: Final = "export_info_"
TABLES: Final = "export_tables_info_"

_COMPLETE: Final = "COMPLETE"
_MARK: Final = "_SUCCESS"

# Replaces characters of names by underscores, as AWS does in the paths of an export.
_REPLACED: Final = str.maketrans(dict.fromkeys('\\`" ', "_"))


@frozen
class Export:
    """The content of an export's own files, and the names of all its files."""

    # The folder's path or URL without the last slash.
    root: str
    status: str
    # The entries of `perTableStatus`, one for each table.
    entries: tuple[dict[str, Any], ...]
    # All files below the folder, relative to it.
    names: tuple[str, ...]


@frozen
class ExportedTable:
    """A table that can be loaded, and its folder's path relative to the export."""

    table: TableName
    folder: str


def parse_info(data: bytes, *, uri: str) -> dict[str, Any]:
    """Return the object in a JSON file of an export. Raises SourceError."""
    try:
        found = json.loads(data)
    except ValueError as exc:
        raise SourceError(f'"{uri}" is not JSON', detail=f"{exc}.") from exc
    entries = found.get("perTableStatus", []) if isinstance(found, dict) else None
    if not isinstance(entries, list) or not all(map(_has_target, entries)):
        raise SourceError(f'"{uri}" does not describe a snapshot export')
    return dict(found)


def _has_target(entry: object) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("target"), str)


def find_tables(export: Export, *, within: str = "") -> tuple[tuple[ExportedTable, ...], tuple[Notice, ...]]:
    """Return the tables of an export that have rows, and notices about the others.

    `within` is the folder of a database or a table, relative to the export; only its tables are returned. Raises
    SourceError if the export is not whole, UsageError if it has several databases.
    """
    if export.status != _COMPLETE:
        raise SourceError(
            f'export "{export.root}" is not complete',
            detail=f"Its status is {export.status}.",
            hint="Export the snapshot again, or load single tables by their folders with --into.",
        )
    entries = {str(entry["target"]): entry for entry in export.entries if _is_within(_folder_of(entry), within)}
    listed = {target: _folder_of(entry) for target, entry in entries.items() if "." in target}
    files = _group_by_folder(export.names)
    _refuse_misread(export, listed, [folder for folder in files if _is_within(folder, within)])
    notices = [_notice_problem(entry, export) for entry in entries.values() if _find_problem(entry) is not None]
    complete = [target for target in listed if entries[target].get("status") == _COMPLETE]
    if not complete:
        where = f"{export.root}/{within}".rstrip("/")
        raise SourceError(f'export "{where}" has no complete table', detail="\n".join(each.message for each in notices))
    found: list[ExportedTable] = []
    for target in complete:
        folder = listed[target]
        schema, _, name = target.partition(".")[2].partition(".")
        table = TableName(schema=schema, name=name)
        if _has_rows(export, folder, files.get(folder, ()), table):
            found.append(ExportedTable(table=table, folder=folder))
        else:
            notices.append(_notice_empty(table, export))
    _refuse_databases(found, export)
    return tuple(found), tuple(notices)


def _group_by_folder(names: Iterable[str]) -> dict[str, list[str]]:
    """Return the files in each folder database/schema.table, by the folder."""
    found: dict[str, list[str]] = {}
    for name in names:
        if name.count("/") > 1:
            found.setdefault("/".join(name.split("/", 2)[:2]), []).append(name)
    return found


def _folder_of(entry: dict[str, Any]) -> str:
    """Return the folder of an entry: database/schema.table for a table, the database's name for a database."""
    database, _, table = str(entry["target"]).translate(_REPLACED).partition(".")
    return f"{database}/{table}" if table else database


def _is_within(folder: str, within: str) -> bool:
    return not within or f"{folder}/".startswith(f"{within}/")


def _find_problem(entry: dict[str, Any]) -> str | None:
    """Return what the export reports as wrong with a table or a database, None if it is complete."""
    said = entry.get("failureCause") or entry.get("warningMessage")
    status = entry.get("status")
    if status == _COMPLETE or (status is None and said):
        return None if said is None else str(said)
    return f"status {status}" + (f": {said}" if said else "")


def _notice_problem(entry: dict[str, Any], export: Export) -> Notice:
    is_loaded = entry.get("status") == _COMPLETE or "/" not in _folder_of(entry)
    what = "reports" if is_loaded else "is not in the export:"
    message = f'"{entry["target"]}" {what} {_find_problem(entry)}'
    return Notice(code="export", message=message, uri=export.root)


def _notice_empty(table: TableName, export: Export) -> Notice:
    message = f'table "{table}" has no rows in the export and is left as it is'
    return Notice(code="export", message=message, uri=export.root, hint="TRUNCATE the table if it has rows.")


def _has_rows(export: Export, folder: str, names: Iterable[str], table: TableName) -> bool:
    """Return whether a table has files. Raises SourceError if the mark of a complete folder is missing."""
    own = [name.rpartition("/") for name in names]
    marked = {parent for parent, _, name in own if name == _MARK}
    filled = {parent for parent, _, name in own if name.endswith(".parquet")}
    unmarked = sorted(filled - marked) if marked else [folder]
    if unmarked:
        raise SourceError(
            f'table "{table}" is not whole in the export',
            detail=f'"{export.root}/{unmarked[0]}" has no file {_MARK}.',
            hint="Copy or export it again. To load what there is, name its folder and --into.",
        )
    return bool(filled)


def _refuse_misread(export: Export, listed: Mapping[str, str], folders: Sequence[str]) -> None:
    """Raise SourceError unless each folder with files belongs to exactly one listed table."""
    tables: dict[str, str] = {}
    for target, folder in listed.items():
        if target.count(".") == 1:
            raise SourceError(f'export "{export.root}" is not of PostgreSQL', detail=f'Table "{target}" has no schema.')
        if (other := tables.setdefault(folder, target)) != target:
            names = f'"{other}" and "{target}"'
            raise SourceError(f"tables {names} have the same folder in the export", detail=f"{export.root}/{folder}.")
    unlisted = [folder for folder in folders if folder not in tables]
    if unlisted:
        raise SourceError(
            f'export "{export.root}" does not list the table of folder "{unlisted[0]}"',
            detail=f"Its files {TABLES}*.json have all tables of a whole export.",
            hint="Copy or export it again. To load that table, name its folder and --into.",
        )


def _refuse_databases(found: Sequence[ExportedTable], export: Export) -> None:
    databases = list(dict.fromkeys(each.folder.partition("/")[0] for each in found))
    if len(databases) > 1:
        raise UsageError(
            "the export has tables of several databases",
            detail=f"{export.root} has: {', '.join(databases)}.",
            hint=f"Load one at a time: {export.root}/{databases[0]}/.",
        )


# How many levels the given folder may be below that of the export: it may be the folder of the export, of a database in
# it, or of a table in the database.
_DEPTHS = range(3)


def read_export(
    sources: Sequence[str], options: Mapping[str, Any], *, on_notice: Callable[[Notice], None]
) -> list[TargetJob]:
    """Return a job for each table of an export, or of a database or a table in it. `options` are those of each job.

    Raises UsageError if the sources are not the folder of an export, SourceError if the export is incomplete.
    """
    if len(sources) != 1 or not _may_be_export(sources[0]):
        raise UsageError(
            "no table to load into",
            hint="Name it with --into TABLE, or give a job file (.toml) or the folder of an RDS snapshot export alone.",
        )
    (source,) = sources
    folder = (source if is_remote(source) else os.path.abspath(source)).rstrip("/")  # noqa: PTH100 (as in listing.py)
    with SourceReader(credentials=AwsCredentials()) as reader:
        root, within = _find_root(folder, reader)
        export = _read(root, reader)
    tables, notices = find_tables(export, within=within)
    for notice in notices:
        on_notice(notice)
    return [
        make_target({**options, "into": each.table}, sources=[_name_files(f"{root}/{each.folder}")]) for each in tables
    ]


def _may_be_export(source: str) -> bool:
    if is_remote(source):
        # A remote folder must end with a slash. A folder of an HTTP server cannot be listed.
        return source.endswith("/") and not source.lower().startswith("http")
    return os.path.isdir(source)  # noqa: PTH112 (as in listing.py)


def _find_root(folder: str, sources: SourceReader) -> tuple[str, str]:
    """Return the folder of the export to which a folder belongs, and the rest of the folder's path."""
    parts = folder.split("/")
    for depth in _DEPTHS:
        cut = len(parts) - depth
        root = "/".join(parts[:cut])
        if _is_export(root, sources):
            return root, "/".join(parts[cut:])
    raise UsageError(
        "no table to load into",
        detail=f'"{folder}" is no snapshot export: {INFO}*.json can be read neither in it nor in a folder above.',
        hint="Name the table with --into TABLE.",
    )


def _is_export(root: str, sources: SourceReader) -> bool:
    if not is_remote(root):
        return bool(glob.glob(f"{glob.escape(root)}/{INFO}*.json"))  # noqa: PTH207 (as in listing.py)
    try:
        # Look for a single file by its name. A listing would include everything below the folder, which may be a whole
        # bucket.
        return bool(sources.list([f"{root}/{INFO}{root.rpartition('/')[2]}.json"]))
    except SourceError:
        return False


def _read(root: str, sources: SourceReader) -> Export:
    names = sources.list_names(root)
    infos = [name for name in names if "/" not in name and name.endswith(".json")]

    def read(beginning: str) -> list[dict[str, Any]]:
        found = sources.list([f"{root}/{name}" for name in infos if name.startswith(beginning)])
        return [parse_info(b"".join(sources.read_bytes(each)), uri=each.uri) for each in found]

    return Export(
        root=root,
        status=str(read(INFO)[0].get("status")),
        entries=tuple(entry for info in read(TABLES) for entry in info.get("perTableStatus", [])),
        names=names,
    )


def _name_files(folder: str) -> str:
    return f"{folder}/" if is_remote(folder) else f"{glob.escape(folder)}/**"
