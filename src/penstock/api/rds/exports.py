"""Reads the description in an RDS snapshot export, and creates the jobs that load its tables."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.aws.credentials import AwsCredentials
from penstock.errors import SourceError, UsageError
from penstock.files import SourceReader
from penstock.files.listing import is_remote
from penstock.loading.job.export import INFO, TABLES, Export, find_tables, parse_info
from penstock.loading.job.request import make_target

if TYPE_CHECKING:
    from penstock.model.load.job import TargetJob
    from penstock.model.source.dialect import Notice

# The folder may be that of an export, of a database in it, or of a table in the database.
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
        # HTTP has no listing.
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
        # A listing would include everything below the folder, which may be a whole bucket.
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
