"""RDS snapshot exports as AWS writes them: the folders, the JSON files, and Parquet with AWS's mapping of types."""

from __future__ import annotations

import io
import json
import uuid
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
from psycopg import sql

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

ID = "nightly-0700"

# docs.aws.amazon.com/AmazonRDS/latest/UserGuide/USER_ExportSnapshot.data-types.html: all other types are strings.
_TYPES = {
    "bigint": pa.int64(),
    "boolean": pa.bool_(),
    "bytea": pa.binary(),
    "double precision": pa.float64(),
    "integer": pa.int32(),
    "real": pa.float32(),
    "smallint": pa.int16(),
}


def export_table(connection: psycopg.Connection, name: str) -> pa.Table:
    """Return a table's rows as AWS exports them, in the order of its first column."""
    described = connection.execute(sql.SQL("SELECT * FROM {} LIMIT 0").format(_qualify(name))).description
    assert described is not None
    fields = []
    for column in described:
        kind = connection.execute("SELECT format_type(%s, NULL)", [column.type_code]).fetchone()
        assert kind is not None
        fields.append((column.name, _TYPES.get(str(kind[0]), pa.string())))
    values = [
        sql.SQL("{}").format(sql.Identifier(column))
        if kind is not pa.string() and not pa.types.is_string(kind)
        else sql.SQL("{}::text").format(sql.Identifier(column))
        for column, kind in fields
    ]
    query = sql.SQL("SELECT {} FROM {} ORDER BY 1").format(sql.SQL(", ").join(values), _qualify(name))
    rows = connection.execute(query).fetchall()
    columns = [pa.array([row[at] for row in rows], kind) for at, (_, kind) in enumerate(fields)]
    return pa.Table.from_arrays(columns, names=[column for column, _ in fields])


def make_export(
    tables: Mapping[str, pa.Table | Sequence[pa.Table]],
    *,
    database: str = "shop",
    entries: Sequence[Mapping[str, Any]] = (),
    status: str = "COMPLETE",
    export_id: str = ID,
) -> dict[str, bytes]:
    """Return the files of an export by their path; `tables` has the rows of each batch by schema.table.

    A table of no batches has a mark only. `entries` are more entries of the list of tables, in place of those that have
    the same target.
    """
    files: dict[str, bytes] = {}
    listed: dict[str, Mapping[str, Any]] = {
        database: {"target": database, "warningMessage": None, "status": "COMPLETE"}
    }
    for name, given in tables.items():
        batches = [given] if isinstance(given, pa.Table) else list(given)
        folder = f"{database}/{name}"
        for number, batch in enumerate(batches or [None], start=1):
            files[f"{folder}/{number}/_SUCCESS"] = b""
            if batch is not None:
                files[f"{folder}/{number}/part-00000-{uuid.uuid4()}.gz.parquet"] = write_part(batch)
        listed[f"{database}.{name}"] = {
            "tableStatistics": {
                "extractionStartTime": "Nov 25, 2026 7:00:00 AM",
                "extractionEndTime": "Nov 25, 2026 7:01:00 AM",
                "partitioningInfo": {"numberOfPartitions": 1, "numberOfCompletedPartitions": 1},
            },
            "schemaMetadata": {"originalTypeMappings": []},
            "status": "COMPLETE",
            "sizeGB": 1.2e-05,
            "target": f"{database}.{name}",
        }
    listed |= {entry["target"]: entry for entry in entries}
    info = {"percentProgress": 100, "exportTaskIdentifier": export_id, "status": status, "exportedFilesPath": export_id}
    files[f"export_info_{export_id}.json"] = json.dumps(info).encode()
    # As AWS does, in several files if there are many.
    found = list(listed.values())
    for first in range(0, len(found), 2):
        name = f"export_tables_info_{export_id}_from_{first + 1}_to_{first + 2}.json"
        files[name] = json.dumps({"perTableStatus": found[first : first + 2]}).encode()
    return files


def write_part(table: pa.Table) -> bytes:
    """Return rows as a Parquet file compressed by gzip."""
    out = io.BytesIO()
    pq.write_table(table, out, compression="gzip")
    return out.getvalue()


def write_export(folder: Path, files: Mapping[str, bytes]) -> Path:
    """Write an export's files below a folder, and return it."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def _qualify(name: str) -> sql.Identifier:
    schema, _, table = name.partition(".")
    return sql.Identifier(schema, table)
